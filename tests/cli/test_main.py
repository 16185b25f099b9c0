"""The command line: exit status, outputs, and that an error leaves no partial output."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from support.hitables_command import run

import hitables

ROOT = Path(__file__).parents[2]
HITABLES = [sys.executable, "-c", "from hitables.cli.main import main; main()"]
CAMPUS = ROOT / "rulesets" / "campus.rules.gz"
SMALL = (
    "*filter\n:INPUT ACCEPT [0:0]\n"
    + "".join(f"-A INPUT -s 10.0.{n}.0/24 -p tcp -m tcp --dport {n + 1} -j DROP\n" for n in range(40))
    + "COMMIT\n"
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.rules"
    path.write_text(SMALL)
    return path


def test_help_loads_nothing_heavy() -> None:
    """It takes 60 ms then instead of a second; benchmarks/compile_speed.py measures the time."""
    code = (
        "import sys\nfrom hitables.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "print({'numpy', 'networkx', 'lark', 'rich', 'matplotlib'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()" and "compile" in done.stdout


def test_the_commands_load_with_the_first_click_that_the_project_takes() -> None:
    """Its classes take no types, as those of click 8.4 do."""
    code = (
        "import click\ndef refuse(*types): raise TypeError('not subscriptable')\n"
        "click.ParamType.__class_getitem__ = refuse\n"
        "import hitables.cli.filters, hitables.cli.values, hitables.cli.main, sflgen.cli"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compile_reads_standard_input_and_writes_standard_output(small: Path) -> None:
    piped = run("compile", text=SMALL)
    assert piped.stdout.startswith("# Compiled by hitables") and " -g ht" in piped.stdout
    assert piped.stderr == ""
    again = run("compile", "-", "-o", "-", text=SMALL)
    assert again.stdout == piped.stdout == run("compile", small).stdout


def test_compile_reads_gzip_and_refuses_its_own_output(tmp_path: Path) -> None:
    path = tmp_path / "small.rules.gz"
    path.write_bytes(gzip.compress(SMALL.encode()))
    once = run("compile", path).stdout
    assert "-A FORWARD" in once or "-A INPUT" in once
    piped = gzip.compress(SMALL.encode()).decode("utf-8", "surrogateescape")
    assert run("compile", text=piped).stdout == once
    refused = run("compile", text=once, status=2)
    assert refused.stdout == "" and "is compiled, and no source" in refused.stderr
    assert "COMMIT" in hitables.compile(once).text


def test_the_first_line_names_the_proof() -> None:
    assert "; proved equal to its input" in run("compile", text=SMALL).stdout.splitlines()[0]
    assert "; NOT PROVED equal" in run("compile", "--no-prove", text=SMALL).stdout.splitlines()[0]


def test_without_a_proof_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("compile", "--timeout", "1e-9", text=SMALL, status=2)
    assert done.stdout == "" and "out of time while proving" in done.stderr and "--no-prove" in done.stderr


def test_map_and_summary(small: Path, tmp_path: Path) -> None:
    done = run("compile", small, "-o", tmp_path / "out", "--map", tmp_path / "map.json", "--summary")
    assert "compiled" in done.stderr and done.stdout == ""
    document = json.loads((tmp_path / "map.json").read_text())
    jsonschema.validate(document, json.loads((ROOT / "hitables/schema/map.json").read_text()))
    lines = [line for table in document["tables"] for chain in table["chains"] for line in chain["lines"]]
    assert set(range(3, 43)) <= set(lines)
    rules = [line for line in (tmp_path / "out").read_text().splitlines() if line.startswith("-A")]
    assert len(rules) == len(lines)


def test_stats_count_the_rules_that_packets_read(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.rules"
    run("compile", small, "-o", out)
    schema = json.loads((ROOT / "hitables/schema/stats.json").read_text())
    before, after = (json.loads(run("stats", path, "--json").stdout) for path in (small, out))
    for each in (before, after):
        jsonschema.validate(each, schema)
    one, two = (next(c for c in each["chains"] if c["chain"] == "INPUT") for each in (before, after))
    assert two["mean_read"] < one["mean_read"]
    trace = tmp_path / "trace"
    trace.write_text("167772161 1 1 1 6\n167772161 1 1 9 6\n")
    over = json.loads(run("stats", small, "--json", "--trace", trace).stdout)["trace"]
    assert over["packets"] == 2 and over["longest_read"] == 40
    assert "INPUT" in run("stats", small, "--trace", trace).stdout
    # Several files are measured in the longest chain of the first.
    other = tmp_path / "other.rules"
    other.write_text("*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p udp -j DROP\nCOMMIT\n")
    documents = json.loads(run("stats", small, other, "--json", "--trace", trace).stdout)
    assert [each["trace"]["chain"] for each in documents] == ["INPUT", "INPUT"]


def test_trace_prints_every_rule_read_with_its_line(small: Path) -> None:
    packet = "chain=INPUT in=eth0 src=10.0.2.9 dst=1.1.1.1 proto=tcp sport=9 dport=3"
    lines = run("trace", small, "--packet", packet).stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["3", "4", "5"]
    assert lines[-1] == "verdict: DROP after 3 rules, by line 5"
    run("trace", small, "--packet", "chain=NOPE src=1.1.1.1 dst=1.1.1.1 proto=tcp", status=2)
    run("trace", small, "--packet", "chain=INPUT src=999.1.1.1", status=2)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("number=mrak=0x5", "number=mrak (did you mean mark?)"),
        ('fact="mark --mark 5=yes"', "fact=mark --mark 5 (did you mean mark --mark 0x5?)"),
        ('fact="! length --length 9=yes"', "fact=! length --length 9"),
        ('outcome="limit --limit 5/s=yes"', "outcome=limit --limit 5/s (did you mean limit "),
        ('outcome="mark --mark 0x5=yes"', "outcome=mark --mark 0x5 (write fact=mark --mark 0x5)"),
        (
            'fact="set --match-set a src --packets-gt 5=yes"',
            "fact=set --match-set a src --packets-gt 5 (write outcome=set ",
        ),
        ("number=mark=0x5", ""),
        ('fact="mark --mark 0x5=no/1"', ""),
    ],
)
def test_trace_tells_which_words_of_the_packet_nothing_asks_for(
    word: str, message: str, tmp_path: Path
) -> None:
    rules = tmp_path / "asks.rules"
    rules.write_text(
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m mark --mark 0x5 -j DROP\n"
        "-A INPUT -m set --match-set a src --packets-gt 5 -j DROP\n-A INPUT -m limit --limit 5/sec -j ACCEPT\nCOMMIT\n"
    )
    packet = "chain=INPUT src=10.0.2.9 dst=1.1.1.1 proto=udp sport=9 dport=3 "
    said = run("trace", rules, "--packet", packet + word).stderr.splitlines()
    told = [line for line in said if "asks for" in line]
    assert not any("told of the packet as it enters" in line for line in said)
    assert len(told) == bool(message)
    assert not message or told[0].startswith(f"hitables: no match of table filter asks for {message}")


@pytest.mark.parametrize("form", ["dot", "graphml", "svg"])
def test_graph_draws_chains_and_trees(small: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out.rules"
    run("compile", small, "-o", out)
    picture = run("graph", out, "--format", form).stdout
    assert "ht1" in picture
    if form != "dot":
        import xml.etree.ElementTree as ElementTree

        ElementTree.fromstring(picture)


def test_convert_refuses_ports_on_protocols_without(tmp_path: Path) -> None:
    filters = tmp_path / "f"
    filters.write_text(
        "@1.0.0.0/8 2.0.0.0/8 0 : 65535 80 : 80 0x06/0xFF\n@1.0.0.0/8 2.0.0.0/8 0 : 65535 80 : 80 0x2F/0xFF\n"
    )
    done = run("convert", "--from", "classbench", "--to", "iptables", filters, status=2)
    assert ":2:" in done.stderr


def test_trace_tells_what_surely_holds_and_what_no_packet_has(tmp_path: Path) -> None:
    rules = tmp_path / "recent.rules"
    recent = "-A INPUT -p tcp -m recent {} --name ssh -j ACCEPT\n"
    rules.write_text(
        f"*filter\n:INPUT DROP [0:0]\n{recent.format('! --set')}{recent.format('--set')}COMMIT\n"
    )
    packet = "chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=1 dport=22"
    done = run("trace", str(rules), "--packet", f"{packet} out=eth1")
    assert done.stdout.endswith("verdict: ACCEPT after 2 rules, by line 4\n")
    assert done.stderr == "hitables: packets of INPUT have no out=\n"
    for words, kind in (("frag=first", "first"), ("frag=later flags=SYN", "later")):
        done = run("trace", str(rules), "--packet", f"{packet} {words}")
        assert done.stdout.endswith(", by line 4\n")
        told = f"packets of INPUT have no frag={kind}: the kernel puts fragments together before\n"
        assert told in done.stderr
        done = run("trace", str(rules), "--packet", f"{packet.replace('INPUT', 'FORWARD')} out=eth1 {words}")
        assert "frag=" not in done.stderr
    line = "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=60 TTL=64 PROTO=UDP SPT=1 DPT=2 LEN=40"
    done = run("trace", str(rules), "--packet", line)
    assert done.stdout.endswith("verdict: DROP after 2 rules, by the policy of INPUT\n") and not done.stderr


def test_trace_names_matches_with_memory_that_the_packet_does_not_answer(tmp_path: Path) -> None:
    rules = tmp_path / "limit.rules"
    rules.write_text("*filter\n:INPUT DROP [0:0]\n-A INPUT -m limit --limit 5/sec -j ACCEPT\nCOMMIT\n")
    packet, key = (
        "chain=INPUT src=10.0.2.9 dst=1.1.1.1 proto=icmp icmp=8/0",
        "limit --limit 5/sec --limit-burst 5",
    )
    for answer, shown in (("", True), (f' outcome="{key}=no"', False), (f' outcome="{key}=yes"', False)):
        done = run("trace", rules, "--packet", packet + answer)
        assert (f"assumed not to hold:\n  {key}" in done.stderr) == shown
        data = json.loads(run("trace", rules, "--packet", packet + answer, "--json").stdout)
        assert data["open"] == [key] * shown


@pytest.mark.parametrize("command", [("check", 2), ("diff", 2), ("lint", 1), ("compile", 1)])
def test_a_name_of_leave_that_no_chain_has_is_told(command: tuple[str, int], small: Path) -> None:
    arguments = [command[0], *[small] * command[1]]
    known = ["--leave", "docker", "--leave", "f2b-*", "--leave", "INPUT"]
    told = run(*arguments, "--leave", "dokcer", "--leave", "kubernetes", *known).stderr
    assert "--leave dokcer: no chain has this name; did you mean docker?" in told
    assert "--leave kubernetes: no chain has this name\n" in told
    assert "no chain has" not in run(*arguments, *known).stderr
    refused = run(*arguments, "--leave", "docker,f2b-*", status=2).stderr
    assert "--leave docker --leave f2b-*" in refused
    assert "matches the built-in chain INPUT" in run(*arguments, "--leave", "IN*", status=2).stderr


@pytest.mark.parametrize("command", ["compile", "lint", "stats"])
def test_an_extension_whose_name_resembles_a_known_one_is_told(command: str, tmp_path: Path) -> None:
    rules = tmp_path / "typo.rules"
    rules.write_text(
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrak --ctstate NEW -j ACCEPT\n"
        "-A INPUT -m quota3 --grow -j LOOG --log-prefix x\n-A INPUT -m geoip --src-cc DE -j ACCEPT\nCOMMIT\n"
    )
    told = [line for line in run(command, rules).stderr.splitlines() if "is not known" in line]
    assert [line.rpartition("did you mean ")[2] for line in told] == ["conntrack?", "quota?", "LOG?"]


def test_many_chains_that_are_left_for_one_reason_have_one_line(tmp_path: Path) -> None:
    rules = tmp_path / "customers.rules"
    chains = [f"c{number}" for number in range(30)]
    lines = [
        f"-A {chain} -p tcp -m tcp --dport {port} -m limit --limit 1/s -j ACCEPT"
        for chain in chains
        for port in range(9)
    ]
    heads = ["*filter", ":FORWARD DROP [0:0]", *(f":{chain} - [0:0]" for chain in chains)]
    calls = [f"-A FORWARD -s 10.0.{at}.0/24 -j {chain}" for at, chain in enumerate(chains)]
    rules.write_text("\n".join([*heads, *calls, *lines, "COMMIT", ""]))
    told = [line for line in run("compile", rules).stderr.splitlines() if "not compiled" in line]
    assert (
        len(told) == 1
        and "chains c0 (9 rules), c1 (9 rules), c2 (9 rules), c3 (9 rules) and 26 more" in told[0]
    )


def test_a_failure_leaves_the_old_output(tmp_path: Path) -> None:
    out = tmp_path / "out.rules"
    out.write_text("as it was\n")
    done = run("compile", "-o", out, text="*filter\n-A INPUT -j NOWHERE\nCOMMIT\n", status=2)
    assert "-:2:13: NOWHERE" in done.stderr
    assert out.read_text() == "as it was\n" and os.listdir(tmp_path) == ["out.rules"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "/"], "directory"),
        (["compile", "/nonexistent"], "No such file"),
        (["compile", "-o", "/nonexistent/out"], "No such file"),
        (["compile", "--backend", "ebtables"], "backend"),
        (["compile", "--max-expansion", "0.5"], "max-expansion"),
        (["compile", "--algorithm", "magic"], "no tree builder is called 'magic'"),
        (["compile", "--max-depth", "0"], "max-depth of 0 is below 1"),
        (["compile", "--effort", "wild"], "'fast', 'normal', 'best'"),
        (["compile", "--table", "nat"], "no table nat"),
        (["compile", "--chain", "NOPE"], "no chain NOPE"),
        (["stats", "--trace", "/nonexistent"], "No such file"),
        (["frobnicate"], "frobnicate"),
    ],
)  # fmt: skip
def test_an_error_gives_a_message_and_exits_with_2(arguments: list[str], message: str) -> None:
    assert message in run(*arguments, text=SMALL, status=2).stderr


NO_NUMBERS = [
    (option, value)
    for option in ("max-expansion", "spfac", "timeout")
    for value in ("nan", "inf", "1e308", "-1")
]


@pytest.mark.parametrize(
    ("option", "value"), [*NO_NUMBERS, ("max-memory", "99999999999999T"), ("max-memory", "9" * 400 + "K")]
)
def test_a_value_outside_the_range_of_an_option_is_refused(option: str, value: str) -> None:
    done = run("compile", f"--{option}", value, text=SMALL, status=2)
    assert (done.stdout, done.stderr.count("Error: ")) == ("", 1)
    assert f"Error: Invalid value for '--{option}': " in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["apply", "--confirm", "1e12"], "'--confirm': '1e12' is no number of seconds from 0 to 1e9"),
        (["apply", "--confirm", "abc"], "'--confirm': 'abc' is no number of seconds from 0 to 1e9"),
        (["apply", "--timeout", "0"], "'--timeout': '0' is no number of seconds above 0, and up to 1e9"),
        (["compile", "--spfac", "abc"], "'--spfac': 'abc' is no number from 1 to 1e9"),
        (["rollback", "abc"], "'abc' is no whole number of at least 1"),
        (["persist", "--ssh", "70000"], "'70000' is no whole number from 1 to 65535"),
    ],
)
def test_the_message_says_what_number_is_expected(words: list[str], message: str) -> None:
    assert run(*words, "file", status=2).stderr.rstrip().endswith(message)


def test_the_help_has_both_bounds_of_a_number() -> None:
    assert "0<=x<=1e9" in run("apply", "--help", status=0).stdout


def test_large_values_are_accepted() -> None:
    large = ("--max-expansion", "1e9", "--spfac", "1e9", "--timeout", "1e9", "--max-memory", "1024T")
    assert run("compile", *large, text=SMALL, status=0).stderr == ""


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x00\x01", b"\xff\xfe\x00", b"*filter\n", os.urandom(3000)])
def test_input_that_is_not_a_rule_set_is_refused(data: bytes) -> None:
    done = subprocess.run([*HITABLES, "compile"], input=data, capture_output=True, check=False)
    assert done.returncode == 2 and b"Traceback" not in done.stderr and done.stdout == b""


def test_a_file_that_is_too_large_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(200 << 20)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "from hitables.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "compile", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "128 MiB" in done.stderr


def test_a_closed_pipe_is_not_a_crash() -> None:
    rules = f"{{ zcat {CAMPUS} | head -1500; echo COMMIT; }}"  # more than a pipe holds
    command = f"{rules} | {sys.executable} -c 'from hitables.cli.main import main; main()' compile --no-verify | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("# Compiled by") and "Traceback" not in done.stderr
    assert done.returncode in (0, 2)


def test_an_unexpected_fault_gives_a_message_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    import hitables.files
    from hitables.cli.main import main

    def broken(path: str) -> str:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(hitables.files, "read_text", broken)
    done = CliRunner().invoke(main, ["compile"])
    assert done.exit_code == 2 and "fault of hitables" in done.stderr and "oops" in done.stderr


def test_a_graph_has_the_format_of_its_file(small: Path, tmp_path: Path) -> None:
    beginnings = {"a.svg": "<?xml", "a.graphml": "<graphml", "a.dot": "digraph", "a": "digraph"}
    for name, beginning in beginnings.items():
        run("graph", small, "-o", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(beginning), name
    refused = run("graph", small, "-o", tmp_path / "a.png", status=2).stderr
    assert "let Graphviz draw it" in refused and not (tmp_path / "a.png").exists()
    odd = tmp_path / "it's $HOME.png"
    assert f"-o '{tmp_path}/it'\"'\"'s $HOME.png'\n" in run("graph", small, "-o", odd, status=2).stderr
    run("graph", small, "--format", "dot", "-o", tmp_path / "b.svg")
    assert (tmp_path / "b.svg").read_text().startswith("digraph")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--chain", "A B"], "--chain: not a chain name: 'A B'"),
        (["--chain", "A\nB"], "--chain: not a chain name: 'A\\nB'"),
        (["--chain", "A" * 44], "is longer than 28 characters"),
        (["--action", "DROP -j X"], "--action: a second -j"),
        (["--action", "DROP\nCOMMIT"], "--action: not a target: 'DROP\\nCOMMIT'"),
        (["--action", "DROP -s 192.0.2.1"], "--action: 'DROP -s 192.0.2.1' has tests"),
        (["--action", "web"], "--action: web is neither a chain of table filter nor a known target"),
        (["--chain", "web", "--action", "web"], "--action: chain web cannot jump to itself"),
    ],
)
def test_convert_refuses_chains_and_actions_that_iptables_refuses(options: list[str], message: str) -> None:
    filters = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n"
    done = run("convert", "-", *options, text=filters, status=2)
    assert message in done.stderr and not done.stdout


def test_convert_takes_a_target_with_options_and_quotes_the_chain() -> None:
    filters = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n"
    action = "REJECT --reject-with icmp-port-unreachable"
    done = run("convert", "-", "--chain", '$x"y', "--action", action, text=filters)
    assert f'-A "$x\\"y" -s 10.0.0.0/8 -j {action}\n' in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "x.seed", "-n", "9", "--trace", "t", "--pareto", "nan", "1"], "a Pareto shape of nan"),
        (["generate", "x.seed", "-n", "9", "--trace", "t", "--pareto", "1", "inf"], "and a scale of inf"),
        (["traffic", "x.trace", "--picture", "x.png"], "--picture x.png: the picture is svg"),
        (["classify", "x.filter", "x.trace", "-o", "-", "--format", "json"], "--output and --format json"),
        (["classify", "-", "-"], "FILTERS and TRACE are both standard input"),
        (["bench", "classify", "-", "-"], "FILTERS and TRACE are both standard input"),
        (["counters", "-", "--map", "-"], "FILE and --map are both standard input"),
        (["trace", "-", "--map", "-", "--packet", "dst=1.2.3.4"], "FILE and --map are both standard input"),
        (["stats", "-", "-"], "FILE - and FILE 2 are both standard input"),
        (["stats", "-", "--trace", "-"], "FILE - and --trace are both standard input"),
        (
            ["stats", "x.rules", "--through", "FORWARD"],
            "--through names the chain for the packets of --trace",
        ),
        (["lint", "-", "x.rules", "-"], "FILE - and FILE 3 are both standard input"),
        (["check", "x.rules", "-", "--map", "-"], "--map and B - are both standard input"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_option(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    filters = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n"
    Path("x.seed").write_text(run("seed", "-", text=filters).stdout)
    done = run(*words, status=2)
    assert message in done.stderr and not done.stdout and not Path("t").exists()


def test_a_pareto_tail_without_end_is_cut_without_a_warning(tmp_path: Path) -> None:
    filters = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n"
    seed = tmp_path / "x.seed"
    seed.write_text(run("seed", "-", text=filters).stdout)
    trace = tmp_path / "x.trace"
    done = run("generate", seed, "-n", "9", "--trace", trace, "--pareto", "0.0001", "1e300")
    assert not done.stderr and len(trace.read_text().splitlines()) == 90

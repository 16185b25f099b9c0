"""`hitables check`: exit status, text, errors, and the other formats."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner
from support import forked
from support.compared_rules import (
    EFFECT,
    ONE_LIMIT,
    POLICY,
    SAME,
    SARIF,
    SCHEMA,
    TWO_LIMITS,
    VERDICT,
    A,
    compare,
)

from hitables.cli.main import main
from hitables.compare import ENGINES, Result, Sampling
from hitables.errors import HitablesError
from hitables.ir.packet import Backend
from hitables.report.check import report
from hitables.report.formats import FORMATS
from hitables.verify.question import Answer, Equal, Question, Undecided

engines = pytest.mark.parametrize("engine", list(ENGINES))
HITABLES = [sys.executable, "-c", "from hitables.cli.main import main; main()"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `hitables check a.rules b.rules`, on these texts, in a process of its own."""

    def do(before: str, after: str, *arguments: str, status: int) -> subprocess.CompletedProcess[str]:
        (tmp_path / "a.rules").write_text(before)
        (tmp_path / "b.rules").write_text(after)
        done = forked.run(["hitables", "check", "a.rules", "b.rules", *arguments], folder=str(tmp_path))
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return do


# ---- exit status and text ----


def test_the_answer_is_equal_when_it_is_proved(run: Any) -> None:
    text = run(A, SAME, status=0).stdout
    assert text.startswith("a.rules and b.rules: proved equal\n")
    assert "table filter: INPUT (legacy and nft), FORWARD (legacy and nft), OUTPUT (legacy and nft)" in text
    assert "regions of the header space, engine exact" in text
    assert "compared: verdicts and effects; b.rules may drop malformed packets" in text


def test_a_sample_never_answers_equal(run: Any) -> None:
    text = run(A, SAME, "--engine", "sample", "--packets", "500", "--random-seed", "7", status=0).stdout
    first = text.splitlines()[0]
    assert first.startswith("a.rules and b.rules: no difference found in ") and first.endswith(" packets")
    assert "equal" not in text and "prove" not in text and "seed 7" in text
    document = json.loads(run(A, SAME, "--engine", "sample", "--format", "json", status=0).stdout)
    assert document["answer"] == "no difference found"
    assert {case["answer"] for case in document["cases"]} == {"no difference found"}


@engines
def test_a_difference_names_both_files_lines_and_verdicts(run: Any, engine: str, tmp_path: Path) -> None:
    text = run(A, VERDICT, "--engine", engine, status=1).stdout
    assert "a.rules and b.rules: they differ\ntable filter, chain INPUT (legacy and nft): verdict " in text
    document = json.loads(run(A, VERDICT, "--engine", engine, "--format", "json", status=1).stdout)
    (finding,) = document["findings"]
    assert {finding["before"]["verdict"], finding["after"]["verdict"]} == {"ACCEPT", "DROP"}
    accepts = "a.rules" if finding["before"]["verdict"] == "ACCEPT" else "b.rules"
    port = 80 if accepts == "a.rules" else 81
    assert f"\n{accepts}: ACCEPT, rules read: " in text
    assert f"  line 11: -A services -p tcp -m tcp --dport {port} -j ACCEPT\n" in text
    assert "  end of INPUT: DROP" in text
    # What it prints can be traced again.
    packet = next(line for line in text.splitlines() if line.startswith("packet: ")).removeprefix("packet: ")
    assert packet == finding["packet"]
    for file, way in (("a.rules", "before"), ("b.rules", "after")):
        traced = forked.run(["hitables", "trace", file, "--packet", packet], folder=str(tmp_path))
        assert traced.returncode == 0, traced.stderr
        last = traced.stdout.splitlines()[-1]
        verdict, count = finding[way]["verdict"], finding[way]["rules_read"]
        by = "line 11" if verdict == "ACCEPT" else "the policy of INPUT"
        assert last == f"verdict: {verdict} after {count} rules, by {by}"


@engines
def test_effects_are_compared_unless_only_verdicts_are(run: Any, engine: str) -> None:
    assert "ping" in run(A, EFFECT, "--engine", engine, status=1).stdout
    text = run(A, EFFECT, "--engine", engine, "--equivalence", "verdict", status=0).stdout
    assert "compared: verdicts only" in text


@engines
def test_chains_and_tables_can_be_chosen(run: Any, engine: str) -> None:
    text = run(A, VERDICT, "--engine", engine, "--chain", "FORWARD", "--chain", "OUTPUT", status=0).stdout
    assert "table filter: FORWARD (legacy and nft), OUTPUT (legacy and nft)\n" in text
    run(A, VERDICT, "--engine", engine, "--chain", "services", status=1)
    raw = "*raw\n-A PREROUTING -p udp -j NOTRACK\nCOMMIT\n"
    run(raw + A, raw + VERDICT, "--engine", engine, "--table", "raw", status=0)
    run(raw + A, raw + VERDICT, "--engine", engine, "--table", "filter", status=1)


@engines
def test_a_difference_of_one_backend_names_it(run: Any, engine: str) -> None:
    """Only nft reads bytes of a later fragment as a port, so only there the order of the two rules matters."""
    rule = "-A FORWARD -f -j ACCEPT\n", "-A FORWARD -p udp -m udp --dport 53 -j DROP\n"
    one, other = (f"*filter\n{first}{second}COMMIT\n" for first, second in (rule, rule[::-1]))
    run(one, other, "--engine", engine, "--backend", "legacy", status=0)
    text = run(one, other, "--engine", engine, status=1).stdout
    assert "chain FORWARD (nft): verdict ACCEPT becomes DROP" in text
    assert "FORWARD (legacy)" in text.split("the others")[1]


@engines
def test_malformed_packets_may_be_dropped_or_not(run: Any, engine: str) -> None:
    """B tests the port where A does not, and legacy drops a tcp header that is too short for this."""
    lax = "*filter\n-A FORWARD -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n"
    strict = lax.replace("-A", "-A FORWARD -p tcp -m tcp --dport 9 -j ACCEPT\n-A")
    strict, lax = (text.replace("-s 10.0.0.0/8 ", "") for text in (strict, lax))
    run(lax, strict, "--engine", engine, status=0)
    text = run(lax, strict, "--engine", engine, "--malformed", "exact", status=1).stdout
    assert "compared: verdicts and effects; malformed packets too" in text
    assert "bytes=" in text or "offset=1" in text
    assert "verdict ACCEPT becomes DROP, for a packet with broken headers\n" in text


@engines
def test_a_difference_of_later_fragments_says_so(run: Any, engine: str) -> None:
    all_udp = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -p udp -j ACCEPT\nCOMMIT\n"
    text = run(all_udp, all_udp.replace("-p udp", "-p udp ! -f"), "--engine", engine, status=1).stdout
    assert "verdict ACCEPT becomes DROP, for a later fragment\n" in text


@engines
def test_every_chain_that_differs_is_reported(engine: str) -> None:
    both = VERDICT.replace("FORWARD ACCEPT", "FORWARD DROP")
    checked = compare(A, both, engine)
    findings = report(checked).findings
    assert [finding.scope for finding in findings] == [("filter", "INPUT"), ("filter", "FORWARD")]
    (output,) = (case for case in checked.cases if isinstance(case.answer, Equal))
    assert output.chains == ("OUTPUT",) and output.backends == tuple(Backend)


@engines
def test_the_place_of_a_policy_is_its_line(engine: str) -> None:
    (finding,) = report(compare(A, POLICY, engine)).findings
    assert [(place.role, place.file, place.line, place.text) for place in finding.places] == [
        ("after", "b.rules", 3, ":FORWARD DROP"),
        ("before", "a.rules", 3, ":FORWARD ACCEPT"),
    ]


@engines
def test_the_place_of_an_effect_is_the_rule_that_has_it(engine: str) -> None:
    (finding,) = report(compare(A, EFFECT, engine)).findings
    assert finding.kind == "different-effects"
    assert [place.line for place in finding.places] == [8, 8] and "pong" in finding.places[0].text


@pytest.mark.parametrize("engine", ["exact", "diagrams"])
def test_memory_of_a_rule_is_a_difference_of_the_table(engine: str) -> None:
    """Two rules with a limit each instead of one for both sources: no single packet shows the difference."""
    checked = compare(ONE_LIMIT, TWO_LIMITS, engine)
    (finding,) = report(checked).findings
    assert (
        finding.kind == "different-memory"
        and finding.scope == ("filter", "INPUT")
        and "memory" in finding.message
    )
    whole, chains = checked.cases
    assert whole.chains == () and chains.answer is None
    assert finding.message in report(checked).text and "no difference" not in report(checked).text


def test_the_answer_is_undecided_when_the_time_is_over(run: Any) -> None:
    text = run(A, SAME, "--timeout", "1e-9", status=2).stdout
    assert text.startswith("a.rules and b.rules: undecided\n") and "0% of its packets" in text
    run(A, SAME, "--timeout", "100", "--max-memory", "2G", status=0)


def test_a_difference_outweighs_an_undecided_chain() -> None:
    def half(before: Any, after: Any, question: Question, *_: Any) -> Answer:
        if question.chains != {"FORWARD"}:
            return Undecided(
                "out of memory", "filter", min(question.chains - {"FORWARD"}), question.backends[0], 0.25
            )
        return ENGINES["sample"](before, after, question, Sampling(), lambda stage: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, "half", half)
        checked = compare(A, POLICY, "half")
        assert checked.result is Result.DIFFERENT and report(checked).status == 1
        assert "25% of its packets were decided" in report(checked).text
        checked = compare(A, A, "half")
        assert checked.result is Result.UNDECIDED and report(checked).status == 2


def test_the_option_engine_lists_all_engines() -> None:
    (option,) = (each for each in main.commands["check"].params if each.name == "engine")
    assert isinstance(option.type, click.Choice) and list(option.type.choices) == list(ENGINES)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oxidd", None)
    for name in [name for name in sys.modules if name.startswith("oxidd.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(HitablesError, match=r"oxidd: pip install oxidd"):
        compare(A, A, "diagrams")


def test_one_chain_may_differ_in_memory_and_another_for_a_packet(run: Any) -> None:
    blocked = "-A source -s 203.0.113.8/32 -j source_drop\n"
    before = (
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n"
        ":target - [0:0]\n:target_drop - [0:0]\n:source - [0:0]\n:source_drop - [0:0]\n"
        "-A INPUT -j source\n-A FORWARD -j source\n-A FORWARD -j target\n"
        "-A target -d 203.0.113.9/32 -j target_drop\n-A target_drop -m limit --limit 1/min -j LOG\n"
        f"{blocked}-A source -s 203.0.113.9/32 -j source_drop\n"
        "-A source_drop -m limit --limit 1/min -j LOG\n-A source_drop -j DROP\nCOMMIT\n"
    )
    after = before.replace(blocked, "")
    told = run(before, after, status=1).stdout
    assert "chain INPUT (legacy and nft): verdict DROP becomes ACCEPT" in told
    assert "chain FORWARD (legacy and nft): the memory of the rule in line 16 of the first is not one" in told
    cases = json.loads(run(before, after, "--format", "json", status=1).stdout)["cases"]
    assert [(case["chains"], case["answer"]) for case in cases] == [
        (["INPUT"], "different"), ([], "different"), (["FORWARD"], "not asked"), (["OUTPUT"], "equal"),
    ]  # fmt: skip


# ---- trouble ----


@pytest.mark.parametrize("fault", [ZeroDivisionError("x"), MemoryError(), RecursionError(), KeyboardInterrupt(),
                                   click.Abort(), click.ClickException("x"), AssertionError("x"), OSError("x")])  # fmt: skip
def test_no_fault_looks_like_a_difference(
    fault: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Answer:
        raise fault

    monkeypatch.setitem(ENGINES, "sample", broken)
    (tmp_path / "a").write_text(A)
    done = CliRunner().invoke(main, ["check", str(tmp_path / "a"), str(tmp_path / "a"), "--engine", "sample"])
    assert (
        done.exit_code == (130 if isinstance(fault, KeyboardInterrupt | click.Abort) else 2) and done.stderr
    )


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-", ">/dev/full", ">&-", "| true", "2> >(true)"])
def test_output_that_cannot_be_written_is_no_difference(redirect: str, tmp_path: Path) -> None:
    """Neither equal rule sets nor one that cannot be read may exit with 1."""
    (tmp_path / "a").write_text(A)
    (tmp_path / "bad").write_text(LOOP)
    command = f"{sys.executable} -c 'from hitables.cli.main import main; main()' check a $FILE --engine sample {redirect}"
    for file in ("a", "bad"):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=tmp_path,
            env=os.environ | {"FILE": file},
            capture_output=True,
            check=False,
        )
        assert done.returncode != 1 and (file == "a" or done.returncode == 2)


def test_unwritten_text_at_exit_changes_no_status(tmp_path: Path) -> None:
    """Python would exit with 120 when it cannot flush a buffer."""
    (tmp_path / "bad").write_text(LOOP)
    buffered = (
        "import sys; sys.stderr = open(2, 'w', closefd=False); from hitables.cli.main import main; main()"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", buffered, "check", "bad", "bad"], cwd=tmp_path, stderr=full, check=False
        )
    assert done.returncode == 2


LOOP = "*filter\n:a -\n:b -\n-A INPUT -j a\n-A a -j b\n-A b -j a\nCOMMIT\n"
SET = "*filter\n-A INPUT -m set --match-set {} src -j DROP\nCOMMIT\n"


@pytest.mark.parametrize("engine", ["exact", "sample"])
@pytest.mark.parametrize("after", [SET.format("two"), "*filter\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n"])
def test_a_set_that_one_side_alone_names_has_any_members(run: Any, after: str, engine: str) -> None:
    said = run(SET.format("one"), after, "--engine", engine, status=1).stdout
    assert "verdict DROP becomes ACCEPT" in said and 'fact="set --match-set one src=yes"' in said
    dead = "-A INPUT -j ACCEPT\n-A INPUT -m set --match-set one src -j DROP\nCOMMIT\n"
    run("*filter\n" + dead, "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n", "--engine", engine, status=0)


@pytest.mark.parametrize(
    ("before", "after", "arguments", "message"),
    [
        (A, "*filter\n-A INPUT -s 2001:db8::/32 -j DROP\nCOMMIT\n", [],
         "a.rules is for IPv4, b.rules for IPv6: only rule sets of one family"),
        (A, A, ["--table", "nat"], "table nat is in neither rule set"),
        (A, A, ["--chain", "NOPE"], "there is no chain NOPE"),
        (A, SAME, ["--chain", "services"], "chain services is only in a.rules"),
        (A, LOOP, [], "b.rules:6: chains jump in a circle: a -> b -> a"),
        (A, "*filter\n-A INPUT --sprot 80 -j DROP\nCOMMIT\n", [], "b.rules:2:"),
        (A, "no rules\n", [], "b.rules:1:"),
        ("", A, [], "a.rules"),
        (A, A, ["--family", "6"], "a.rules"),
        (A, A, ["--max-memory", "2"], "'2' is no size; write a number and K, M, G or T, as in 512M or 2G"),
        (A, A, ["--max-memory", "2X"], "'2X' is no size"),
        (A, A, ["--max-memory", "-2G"], "'-2G' is no size"),
        (A, A, ["--max-memory", "10K"], "'10K' is less than 1M"),
        (A, A, ["--timeout", "0"], "timeout"),
        (A, A, ["--timeout", "soon"], "soon"),
        (A, A, ["--packets", "9"], "engine exact draws no packets"),
        (A, A, ["--engine", "sample", "--max-memory", "2G"], "engine sample keeps no bound"),
        (A, A, ["--engine", "oracle"], "oracle"),
        (A, A, ["--format", "yaml"], "yaml"),
        (A, A, ["-o", "/nonexistent/out", "--engine", "sample"], "No such file"),
        (A, A, ["third.rules"], "name two rule sets, A and B; or --against A"),
    ],
)  # fmt: skip
def test_bad_input_gives_a_message_and_exits_with_2(
    run: Any, before: str, after: str, arguments: list[str], message: str
) -> None:
    done = run(before, after, *arguments, status=2)
    assert message in " ".join(done.stderr.split()) and done.stdout == ""


EMPTY = "*mangle\n:PREROUTING ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize(
    ("table", "status"),
    [
        (EMPTY, 0),
        (EMPTY.replace(":FORWARD ACCEPT", ":FORWARD DROP"), 1),
        (EMPTY.replace("COMMIT", "-A FORWARD -s 10.0.0.0/8 -j DROP\nCOMMIT"), 1),
        (EMPTY.replace("COMMIT", "-A FORWARD -p tcp -j MARK --set-xmark 0x1/0xffffffff\nCOMMIT"), 1),
        (EMPTY.replace("COMMIT", ":own - [0:0]\n-A own -j DROP\nCOMMIT"), 0),
    ],
)
def test_a_table_that_one_side_lacks_is_empty_there(run: Any, engine: str, table: str, status: int) -> None:
    """It has no rules there, and policies ACCEPT."""
    for sides in ((A, A + table), (A + table, A)):
        done = run(*sides, "--engine", engine, status=status)
        assert status == 0 or "table mangle, chain FORWARD" in done.stdout
        run(*sides, "--table", "mangle", "--engine", engine, status=status)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["/nonexistent", "{a}"], "No such file"),
        (["{a}", "/"], "directory"),
        (["{a}", "{broken}"], "broken: "),
        (["-", "-"], "are both standard input; name a file"),
        (["{a}"], "name two rule sets, A and B"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, files: list[str], message: str) -> None:
    paths = {name: tmp_path / name for name in ("a", "broken")}
    paths["a"].write_text(A)
    paths["broken"].write_bytes(gzip.compress(A.encode())[:-20])
    done = subprocess.run(
        [*HITABLES, "check", *(file.format(**paths) for file in files)],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and message in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [("1M", 1 << 20), ("2G", 2 << 30), ("1.5g", 3 << 29), ("512MiB", 1 << 29), ("1TB", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    (option,) = (each for each in main.commands["check"].params if each.name == "max_memory")
    assert option.type.convert(text, None, None) == size


def test_standard_input_is_one_of_the_two(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(A)
    for files, status in ((["a", "-"], 1), (["-", "a"], 1)):
        done = subprocess.run(
            [*HITABLES, "check", *files, "--engine", "sample", "--format", "sarif"],
            input=VERDICT, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status
        jsonschema.validate(json.loads(done.stdout), SARIF)


# ---- other formats ----


@pytest.mark.parametrize("form", list(FORMATS))
def test_o_writes_the_report_and_prints_its_text(run: Any, form: str, tmp_path: Path) -> None:
    out = tmp_path / "report"
    done = run(A, VERDICT, "--engine", "sample", "--format", form, "-o", str(out), status=1)
    assert done.stdout == "" and "packet: table=filter chain=INPUT" in done.stderr
    piped = run(A, VERDICT, "--engine", "sample", "--format", form, status=1)
    assert piped.stderr == "" and len(piped.stdout) == pytest.approx(len(out.read_text()), abs=20)


def test_help_of_check_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom hitables.cli.main import main\ntry: main(['check', '--help'])\nexcept SystemExit: pass\n"
        "print({'numpy', 'networkx', 'lark', 'rich', 'matplotlib'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()" and "--max-memory" in done.stdout


@pytest.mark.needs_kernel
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_kernel_confirms_a_difference(run: Any, form: str) -> None:
    done = run(A, VERDICT, "--replay", "--format", form, status=1)
    if form == "text":
        assert "kernel: confirmed" in done.stdout and "counted by" in done.stdout
        return
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    assert [finding["kernel"]["finding"] for finding in document["findings"]] == ["confirmed"]

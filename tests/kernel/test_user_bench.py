"""A user's own rule set in the kernel: what is measured decides alike, and what cannot be is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import hitables
from hitables.cli.main import main
from hitables.emit.text import write
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import rivals
from hitables.kernel.routable import crafted, routable
from hitables.kernel.stopwatch import Router, Stopwatch
from hitables.kernel.user_bench import Line, _advice, _hints, _in_short, default_batch, measure, routed
from hitables.simulate.boundary_packets import draw_packets
from hitables.simulate.interpreter import Interner, Interpreter

pytestmark = pytest.mark.usefixtures("small_namespaces")

HEAD = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
BLOCKED = [f"-A FORWARD -s {20 + at}.{at}.0.0/16 -j DROP" for at in range(40)]
PORTS = [
    f"-A FORWARD -s {20 + at}.{at}.0.0/16 -p tcp -m tcp --dport {100 + at} -j ACCEPT" for at in range(40)
]


def text_of(*rules: str) -> str:
    return HEAD + "".join(f"{rule}\n" for rule in rules) + "COMMIT\n"


def program_of(*rules: str) -> hitables.Program:
    return routed(hitables.read(text_of(*rules)), "FORWARD")


# -- writing rivals ----------------------------------------------------------------------------------


def test_a_list_of_addresses_becomes_one_rule_and_a_set() -> None:
    result = rivals.with_sets(
        program_of("-A FORWARD -p udp -j ACCEPT", *BLOCKED, "-A FORWARD -d 1.2.3.4 -j ACCEPT")
    )
    assert result.replaced == 40
    rules = result.program.table("filter")["FORWARD"].rules
    assert len(rules) == 3
    assert "-A FORWARD -m set --match-set bench0 src -j DROP" in write(result.program)
    assert result.members["bench0"][:2] == ("20.0.0.0/16", "21.1.0.0/16")


@pytest.mark.parametrize(
    "rules",
    [
        [rule.replace("-j DROP", "-j LOG") for rule in BLOCKED],  # fires once for each rule
        [rule.replace("-s", "! -s") for rule in BLOCKED],
        [
            f"{rule} -m limit --limit 1/s".replace(
                "-j DROP -m limit --limit 1/s", "-m limit --limit 1/s -j DROP"
            )
            for rule in BLOCKED
        ],
        BLOCKED[:7],
        [rule.replace("DROP", "DROP" if at % 2 else "ACCEPT") for at, rule in enumerate(BLOCKED)],
    ],
)
def test_what_a_set_cannot_stand_for_is_no_set(rules: list[str]) -> None:
    with pytest.raises(rivals.Cannot, match="no chain has 8 rules in a row"):
        rivals.with_sets(program_of(*rules))


def test_a_map_holds_each_rule_once_and_drops_what_another_holds() -> None:
    inside = "-A FORWARD -s 20.0.1.0/24 -p tcp -m tcp --dport 100 -j ACCEPT"
    frame, elements = rivals.verdict_map(program_of(*PORTS, inside))
    assert "vmap @five" in frame and elements.count(" : accept") == 40
    assert "20.0.0.0-20.0.255.255 . 0.0.0.0-255.255.255.255 . 6 . 0-65535 . 100 : accept," in elements


def test_a_map_of_many_elements_is_loaded_in_pieces() -> None:
    rules = [
        f"-A FORWARD -s 20.{at // 250}.{at % 250}.0/24 -j ACCEPT" for at in range(2 * rivals.AT_ONCE + 1)
    ]
    frame, *pieces = rivals.verdict_map(program_of(*rules))
    assert [piece.count(" : accept") for piece in (frame, *pieces)] == [0, rivals.AT_ONCE, rivals.AT_ONCE, 1]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("-A FORWARD -i eth0 -j ACCEPT", "line 5: -i eth0 is none of the five fields"),
        ("-A FORWARD -s 1.2.3.4 -j REJECT", "line 5: the target is not ACCEPT or DROP"),
        ("-A FORWARD ! -s 1.2.3.4 -j ACCEPT", "line 5: ! -s 1.2.3.4 is more than one interval"),
        ("-A FORWARD -p tcp -j DROP\n-A FORWARD -s 1.2.3.4 -j ACCEPT", "lines 5 and 6 overlap and differ"),
        ("-A FORWARD -m limit --limit 1/s -j ACCEPT", "none of the five fields"),
    ],
)
def test_what_a_map_cannot_say_is_told_by_line(rule: str, message: str) -> None:
    with pytest.raises(rivals.Cannot, match=message):
        rivals.verdict_map(program_of(rule))


def test_the_chain_that_is_measured_stands_in_forward_and_decides_as_before() -> None:
    program = hitables.read(
        text_of(*(rule.replace("FORWARD", "INPUT") for rule in PORTS), "-A FORWARD -j DROP")
    )
    other = routed(program, "INPUT")
    assert [chain.name for chain in other.table("filter").chains] == ["FORWARD"]
    batch = draw_packets(other, "filter", "FORWARD", 500)
    names = Interner()
    one = Interpreter(program, Backend.NFT, names).run("filter", "INPUT", batch)
    two = Interpreter(other, Backend.NFT, names).run("filter", "FORWARD", batch)
    assert (one.verdict == two.verdict).all()


def test_only_packets_between_hosts_are_sent_all_of_one_size() -> None:
    batch = draw_packets(program_of(*PORTS), "filter", "FORWARD", 2000)
    good = batch.pick(routable(batch))
    assert 0 < len(good) < 2000
    packets, sent = crafted(good)
    assert len(packets) == 40 * len(sent)


def test_a_rival_that_is_faster_is_named_and_one_within_doubt_is_not() -> None:
    lines = [Line("input", 9, 500.0, 5.0), Line("compiled", 9, 100.0, 5.0)]
    assert _advice([*lines, Line("ipset", 1, 50.0, 5.0)]) == [
        "ipset serves better here: 50 ns, compiled rules 100 ns"
    ]
    assert _advice([*lines, Line("ipset", 1, 95.0, 5.0), Line("nft-o", why="refused")]) == []
    assert _advice([lines[0], Line("compiled", 9, 498.0, 5.0)]) == ["compiling does not pay here"]


def test_of_what_a_tool_says_the_error_is_shown() -> None:
    assert (
        _in_short("nft: exit status 1: file:7:4-9: Error: Could not\nprocess\n   ^^^^") == "Could not process"
    )


# -- in the kernel -----------------------------------------------------------------------------------


@pytest.mark.needs_kernel
@pytest.mark.parametrize("family", Family)
def test_a_router_carries_what_the_rules_let_through(family: Family) -> None:
    address = "20.0.0.0/8" if family is Family.IPV4 else "2001:db8::/32"
    text = f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s {address} -j DROP\nCOMMIT\n"
    program = hitables.read(text, family=family)
    batch = draw_packets(program, "filter", "FORWARD", 3000)
    packets, sent = crafted(batch.pick(routable(batch)))
    hits = Interpreter(program, Backend.NFT).run("filter", "FORWARD", sent, hits=True).hits
    assert hits is not None and 0 < hits[0] < len(sent)
    for backend in Backend:
        with Stopwatch(backend, piece=0.01, router=Router(family, "in0", "out0")) as watch:
            watch.add("rules", text, packets, len(sent))
            assert watch.passing("rules") == len(sent) - hits[0]
            assert all(time > 0 for time in watch.run(3)["rules"])


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
def test_every_rival_of_a_list_is_measured(backend: Backend) -> None:
    program = hitables.read(text_of(*BLOCKED))
    result = measure(
        program, "FORWARD", default_batch(program, "FORWARD"), backend, against=rivals.NAMES, runs=3
    )
    assert [line.why for line in result.lines] == [""] * 5
    notes = {line.name: line.note for line in result.lines}
    assert notes["ipset"] == "40 rules became 1 set" and notes["nft-o"] == "40 rules, 1 after merging"
    assert result.packets == 2000 and result.empty > 0


@pytest.mark.needs_kernel
def test_what_cannot_be_measured_is_told_and_the_rest_is_measured(tmp_path: Path) -> None:
    path, trace = tmp_path / "rules", tmp_path / "trace"
    path.write_text(text_of("-A FORWARD -m recent --name x --rcheck -j DROP", *PORTS))
    trace.write_text(
        "".join(f"{(20 + at) << 24 | at << 16 | 5}\t{9 << 24}\t1\t{100 + at}\t6\n" for at in range(40))
    )
    args = ["bench", "kernel", str(path), "--trace", str(trace), "--runs", "3", "--json"]
    done = CliRunner().invoke(main, [*args, "--against", "ipset,nft-set,nft-o"])
    assert done.exit_code == 0, done.output
    rows = {row["name"]: row for row in json.loads(done.output)["rows"]}
    assert "no chain has 8 rules" in rows["ipset"]["why"]
    assert "line 5" in rows["nft-set"]["why"]
    assert "leaves out 1 rule: -t filter -A FORWARD -m recent" in rows["nft-o"]["why"]
    assert rows["compiled"]["ns_with_io"] > rows["compiled"]["ns"]


@pytest.mark.needs_kernel
def test_a_map_that_the_kernel_refuses_is_told_in_its_words() -> None:
    program = hitables.read(
        text_of(
            "-A FORWARD -s 20.0.0.0/8 -d 30.1.0.0/16 -j ACCEPT",
            "-A FORWARD -s 20.1.0.0/16 -d 30.0.0.0/8 -j ACCEPT",
        )
    )
    result = measure(
        program, "FORWARD", default_batch(program, "FORWARD"), Backend.NFT, against=["nft-set"], runs=3
    )
    (line,) = (line for line in result.lines if line.name == "nft-set")
    assert "exists" in line.why or line.rules == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--against", "ebpf"], "--rivals ebpf: unknown name; known are ipset, nft-set, nft-o"),
        (["--chain", "MINE"], "table filter has no built-in chain MINE"),
        (["--chain", "OUTPUT"], "chain OUTPUT of table filter has no rules"),
        (["--trace", "x", "--pcap", "y"], "not from both"),
        (["--costs", "-", "--pcap", "-"], "--costs and --pcap are both standard input"),
        (["--trace", "{trace}"], "none of 1 packets matches a rule of filter FORWARD"),
    ],
)
def test_what_makes_no_sense_to_measure_is_refused(args: list[str], message: str, tmp_path: Path) -> None:
    path, trace = tmp_path / "rules", tmp_path / "trace"
    path.write_text(text_of(*PORTS))
    trace.write_text("1\t2\t3\t4\t17\n")
    done = CliRunner().invoke(
        main, ["bench", "kernel", str(path), *(arg.format(trace=trace) for arg in args)]
    )
    assert done.exit_code == 2
    assert message in done.output


def test_a_list_of_addresses_is_told_that_an_ipset_may_serve_better() -> None:
    (message,) = _hints(program_of(*BLOCKED), [])
    assert message.startswith(f"{len(BLOCKED)} of {len(BLOCKED)} rules differ in one address only")
    assert _hints(program_of(*BLOCKED), ["ipset"]) == []
    assert _hints(program_of(*BLOCKED, *PORTS, *PORTS), []) == []
    assert _hints(program_of(*PORTS), []) == []

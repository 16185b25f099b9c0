"""Rules in their cheapest form: which matches are left out, which are reordered, and which must stay."""

from __future__ import annotations

import functools
import itertools
import random
import re

import pytest
from support.crossing_text import crossing
from support.small_namespace import Namespace

from hitables import read
from hitables.compiler import run_trees
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.emit.leaf_matches import Forms, without
from hitables.ir.choices import Malformed
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Match, Rule, leaves_chain
from hitables.kernel.load_save import load

pytestmark = pytest.mark.engine


def rule_of(words: str) -> Rule:
    program = read(f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD {words}\nCOMMIT\n")
    return program.table("filter")["FORWARD"].rules[0]


def names(matches: tuple[Match, ...]) -> list[str]:
    return [match.name or match.words[-2] for match in matches]


COSTS = {"string": 100.0, "length": 5.0, "mark": 2.0, "udp": 20.0, "limit": 1.0, "comment": 0.5, "time": 50.0}


def forms(native: bool = False, written: frozenset[Field] = frozenset(), exact: bool = False) -> Forms:
    return Forms(
        native=native,
        written=written,
        cost=lambda match: COSTS[match.name],
        early=lambda match: not (exact and match.needs),
    )


@pytest.mark.parametrize(
    ("words", "exact", "order"),
    [
        ("-m length --length 10 -m mark --mark 1 -j DROP", False, ["mark", "length"]),
        ("-m comment --comment x -m length --length 10 -j DROP", False, ["length", "comment"]),
        # -m udp drops what is cut off: sooner than it did is allowed, unless told otherwise; later is not.
        ("-p udp -m string --string x --algo bm -m udp --dport 53 -j DROP", False, ["-p", "udp", "string"]),
        ("-p udp -m string --string x --algo bm -m udp --dport 53 -j DROP", True, ["-p", "string", "udp"]),
        ("-p udp -m udp --dport 53 -m mark --mark 1 -j DROP", False, ["-p", "udp", "mark"]),
        # What is charged stays where it is, and so does what stands before and behind it.
        ("-m length --length 10 -m limit --limit 5/min -m mark --mark 1 -j DROP", False, ["length", "limit", "mark"]),
    ],
)  # fmt: skip
def test_expensive_matches_move_after_cheap_ones_where_that_changes_nothing(
    words: str, exact: bool, order: list[str]
) -> None:
    assert names(forms(exact=exact).ordered(rule_of(words).matches)) == order


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("-s 10.0.0.0/8 -p tcp -j ACCEPT", []),
        ("-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j ACCEPT", []),
        ("-s 10.0.0.0/8 -p tcp -j REJECT --reject-with tcp-reset", ["-p"]),
        ("-p tcp -m tcp --tcp-flags SYN SYN -m multiport --dports 80 -j ACCEPT", ["-p", "tcp"]),
        ("-s 10.0.0.0/8 -m limit --limit 5/min -p tcp -j DROP", ["limit"]),
    ],
)
def test_the_protocol_stays_where_a_rule_would_not_load_without_it(words: str, left: list[str]) -> None:
    rule = rule_of(words)
    kept = without(
        rule.matches,
        rule.target,
        lambda match: match.name in ("", "multiport") or match.words[-2] == "--dport",
    )
    assert names(kept) == left


@pytest.mark.parametrize(
    "match",
    [
        "addrtype --src-type LOCAL", "comment --comment x", "conntrack --ctstate NEW",
        "iprange --src-range 10.0.0.1-10.0.0.9", "limit --limit 5/min", "mac --mac-source 00:11:22:33:44:55",
        "mark --mark 1", "pkttype --pkt-type unicast", "recent --set", "state --state NEW",
    ],
)  # fmt: skip
def test_the_protocol_that_the_path_decides_goes_beside_a_match_of_any_protocol(match: str) -> None:
    rule = rule_of(f"-p tcp -m {match} -j ACCEPT")
    assert names(without(rule.matches, rule.target, lambda each: each.is_protocol)) == [match.split()[0]]


@pytest.mark.parametrize(
    "target",
    [
        "ACCEPT", "DROP", "LOG", "NFLOG", "MARK --set-mark 1", "CONNMARK --save-mark", "REJECT",
        "REJECT --reject-with icmp-host-prohibited",
    ],
)  # fmt: skip
def test_the_protocol_that_the_path_decides_goes_where_the_target_needs_none(target: str) -> None:
    rule = rule_of(f"-p tcp -j {target}")
    assert not without(rule.matches, rule.target, lambda match: True)


def test_only_matches_evaluated_as_the_trees_tests_are_left_out() -> None:
    rule = rule_of("-s 10.0.0.0/8 -p tcp -m multiport --dports 80 -m mark --mark 1 -j ACCEPT")
    assert names(tuple(forms().decidable(rule.matches))) == ["-s", "-p", "multiport"]
    assert names(tuple(forms(native=True).decidable(rule.matches))) == ["-s", "-p"]
    assert names(tuple(forms(written=frozenset({Field.SRC})).decidable(rule.matches))) == ["-p", "multiport"]


def sorted_out(rules: int) -> str:
    """Networks, a few ports in each: a tree asks for both."""
    lines = [
        f"-A FORWARD -s 10.{net}.0.0/16 -p tcp -m tcp --dport {port} -j {target}"
        for net, port in itertools.product(range(rules // 4), (22, 80, 443, 8080))
        for target in ("ACCEPT" if net % 2 else "DROP",)
    ]
    return "\n".join(["*filter", ":FORWARD DROP [0:0]", *lines, "COMMIT", ""])


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
def test_leaves_do_not_test_what_their_path_decides(backend: str) -> None:
    result = compile_text(sorted_out(80), Options(backend=backend, algorithm="bisect", leaf_size=1))
    leaves = [
        rule
        for chain in result.program.table("filter").chains
        for rule in chain.rules
        if rule.target is not None and rule.target.name in ("ACCEPT", "DROP")
    ]
    assert len(leaves) >= 80
    bare = [rule for rule in leaves if names(rule.matches) == ["-p", "tcp"]]
    assert len(bare) >= 40  # half of the networks were taken by a test of their own


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
def test_leaves_do_not_repeat_the_port_that_their_path_decides(backend: str) -> None:
    """The marks keep the rules of a port apart; a tree cannot ask for them."""
    lines = [
        f"-A FORWARD -p tcp -m tcp --dport {64 * part}:{64 * part + 63} -m mark --mark {mark} -j {target}"
        for part, mark in itertools.product(range(8), range(3))
        for target in ("ACCEPT" if part % 2 else "DROP",)
    ]
    text = "\n".join(["*filter", ":FORWARD DROP [0:0]", *lines, "COMMIT", ""])
    result = compile_text(text, Options(backend=backend, algorithm="bisect", leaf_size=4))
    rules = [rule for chain in result.program.table("filter").chains for rule in chain.rules]
    assert sum(names(rule.matches) == ["mark"] for rule in rules) >= len(lines) / 2


def guards_on_a_path(program: Program, chain: str = "FORWARD") -> int:
    """The most rules that only drop broken headers of tcp that one packet may meet."""
    most = met = 0
    for rule in program.table("filter")[chain].rules:
        met += rule.target is None and names(rule.matches) == ["-p", "tcp", "multiport"]
        most = max(most, met + (guards_on_a_path(program, rule.enters) if rule.enters else 0))
    return most


@pytest.mark.parametrize("backend", ["nft", "any"])
def test_a_path_has_one_guard_of_a_protocol_in_front_of_its_tests_of_ports(backend: str) -> None:
    lines = [
        f"-A FORWARD -p tcp -m multiport --dports {2000 + at},{3000 + at} -j {('ACCEPT', 'DROP')[at % 2]}"
        for at in range(40)
    ]
    text = "\n".join(["*filter", ":FORWARD ACCEPT [0:0]", *lines, "COMMIT", ""])
    assert guards_on_a_path(compile_text(text, Options(backend=backend)).program) == 1


def with_returns_that_are_limited(seed: int) -> str:
    """Rules that cross, and between them two that have memory and leave the chain."""
    rules = [
        line.replace("-j RETURN", "-j DROP")
        for line in crossing(240, seed).splitlines()
        if line.startswith("-A")
    ]
    limited = "-A FORWARD -p icmp -m limit --limit 5/min -j RETURN"
    lines = [*rules[:80], limited, *rules[80:160], limited, *rules[160:]]
    return "\n".join(["*filter", ":INPUT ACCEPT [0:0]", ":FORWARD DROP [0:0]", *lines, "COMMIT", ""])


def called(program: Program, chain: str = "FORWARD") -> list[str]:
    """Chains that the compiled *chain* enters and comes back from."""
    rules = program.table("filter")[chain].rules
    return [
        rule.target.name for rule in rules if rule.target is not None and rule.target.key.startswith("-j ht")
    ]


@pytest.mark.parametrize("backend", ["legacy", "any"])
def test_rules_that_cross_are_grouped_before_a_rule_that_cuts_the_chain_too(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = with_returns_that_are_limited(seed=6)
    options = Options(backend=backend, max_expansion=20.0)
    # One tree would be cheaper for so few rules.
    monkeypatch.setattr(run_trees, "grow", functools.partial(run_trees.grow, grouping=1))
    result = compile_text(text, options)
    (report,) = [each for each in result.reports if each.chain == "FORWARD"]
    assert report.read_after < report.read_before and report.after <= 20 * report.before
    assert backend == "any" or called(result.program)


@pytest.mark.needs_kernel
@pytest.mark.parametrize(
    ("table", "chain", "target"),
    [
        ("filter", "FORWARD", "-p tcp -j REJECT --reject-with tcp-reset"),
        ("nat", "PREROUTING", "-p tcp -j DNAT --to-destination 10.9.9.9:80"),
        ("mangle", "PREROUTING", "-p udp -j TPROXY --on-port 80 --on-ip 127.0.0.1"),
    ],
)
def test_an_action_apart_from_its_matches_keeps_the_protocol_that_it_needs(
    table: str, chain: str, target: str
) -> None:
    """The rule's packets ask earlier rules of other groups first, so its target stands in a chain of its own."""
    hosts = [
        f"-A {chain} {one} 95.142.79.{host}/32 {other} 10.11.0.0/16 -j ACCEPT"
        for host, (one, other) in itertools.product(range(40), (("-d", "-s"), ("-s", "-d")))
    ]
    lines = [
        f"-A {chain} -s 10.0.0.0/16 -j ACCEPT", f"-A {chain} -d 10.10.0.0/16 {target}", *hosts,
        f"-A {chain} -s 10.11.70.0/26 -j ACCEPT", f"-A {chain} -s 192.168.0.227/32 -j ACCEPT",
    ]  # fmt: skip
    text = "\n".join([f"*{table}", f":{chain} ACCEPT [0:0]", *lines, "COMMIT", ""])
    result = compile_text(text, Options(backend="any"))
    assert not result.faults
    acts = [line for line in result.text.splitlines() if re.match(r"-A ht\d+ -p \S+ -j", line)]
    assert acts
    with Namespace() as namespace:
        for backend in Backend:
            load(result.text, Family.IPV4, backend, namespace)


def test_a_segment_with_a_return_of_its_own_is_not_called() -> None:
    rng = random.Random(7)
    lines = [f"-A long -s 10.{rng.randrange(200)}.0.0/16 -d 10.{n}.0.0/16 -j RETURN" for n in range(60)]
    lines += ["-A long -p icmp -m limit --limit 5/min -j RETURN", "-A long -j DROP", "-A FORWARD -j long"]
    text = "\n".join(["*filter", ":FORWARD ACCEPT [0:0]", ":long - [0:0]", *lines, "COMMIT", ""])
    result = compile_text(text, Options(backend="legacy"))
    assert all(leaves_chain(rule) for rule in read(text).table("filter")["long"].rules[:60])
    assert not called(result.program, "long")


@pytest.mark.needs_kernel
def test_segments_that_are_called_load_in_both_kernels() -> None:
    result = compile_rules(read(with_returns_that_are_limited(seed=8)), Options(malformed=Malformed.STRICTER))
    from hitables import write

    for kernel in ("legacy", "nft"):
        with Namespace() as namespace:
            namespace.run([f"iptables-{kernel}-restore"], write(result.program))

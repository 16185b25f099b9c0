"""A compiled program does what its input does, keeps its limits, and loses nothing."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.equal_programs import assert_equal
from support.rule_texts import make_text
from support.scale import examples

from hitables import HitablesError, read, write
from hitables.analyse.levels import levels_above
from hitables.build.grow import ALGORITHMS, grow
from hitables.compiler.compile import compile_rules
from hitables.compiler.list_planner import rules_counted
from hitables.compiler.options import Options
from hitables.emit.sourcemap import source_map
from hitables.ir.choices import Malformed
from hitables.ir.fields import Family
from hitables.ir.program import Chain, Program
from hitables.ir.rule import Kind, Role

pytestmark = pytest.mark.engine

SMALL = Options(leaf_size=2, min_length=3, max_expansion=20.0)


def compiled(text: str, options: Options = SMALL, family: Family | None = None) -> tuple[Program, Program]:
    """The program of *text*, and what its compiled form says once printed and read again."""
    before = read(text, family=family)
    return before, read(write(compile_rules(before, options).program), family=before.family)


@pytest.mark.parametrize("malformed", list(Malformed))
@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32), family=st.sampled_from(Family))
def test_a_compiled_program_treats_every_packet_alike(
    backend: str, malformed: Malformed, seed: int, family: Family
) -> None:
    options = Options(backend=backend, malformed=malformed, leaf_size=2, min_length=3, max_expansion=20.0)
    before, after = compiled(make_text(random.Random(seed), family), options, family)
    assert_equal(before, after, options)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=examples(6))
@given(seed=st.integers(0, 2**32))
def test_every_builder_gives_equal_programs(algorithm: str, seed: int) -> None:
    options = Options(algorithm=algorithm, leaf_size=3, min_length=3, max_expansion=20.0)
    before, after = compiled(make_text(random.Random(seed), rules=60, chains=1), options)
    assert_equal(before, after, options)


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 2**32))
def test_compiling_the_output_again_is_equal_and_equal_input_gives_equal_bytes(seed: int) -> None:
    text = make_text(random.Random(seed))
    before, once = compiled(text)
    assert write(once) == write(compiled(text)[1])
    _, twice = compiled(write(once))
    assert_equal(before, twice, SMALL)


@settings(max_examples=examples(15))
@given(seed=st.integers(0, 2**32))
def test_rules_with_memory_exist_once_and_counters_keep_their_sums(seed: int) -> None:
    text = make_text(random.Random(seed), memory=0.3, counters=True)
    before, after = compiled(text)

    def memories(program: Program) -> Counter[str]:
        return Counter(
            match.key
            for table in program
            for chain in table.chains
            for rule in chain.rules
            for match in rule.matches
            if match.role is Role.ONCE
        )

    assert memories(before) == memories(after)
    result = compile_rules(before, SMALL)
    mapped = source_map(result.program, result.origins, "x")
    sums: Counter[int] = Counter()
    for table, entry in zip(result.program, mapped["tables"], strict=True):
        for chain, lines in zip(table.chains, entry["chains"], strict=True):
            for rule, line in zip(chain.rules, lines["lines"], strict=True):
                if line:
                    assert rule.counters is not None
                    sums[line] += rule.counters[0] * 1000 + rule.counters[1]
    wanted = Counter(
        {
            r.line: r.counters[0] * 1000 + r.counters[1]
            for _, c in all_chains(before)
            for r in c.rules
            if r.counters
        }
    )
    assert +sums == +wanted


def all_chains(program: Program) -> Iterator[tuple[str, Chain]]:
    return ((table.name, chain) for table in program for chain in table.chains)


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32), expansion=st.sampled_from([1.0, 1.5, 2.0, 4.0]))
def test_growth_stays_within_its_budget(seed: int, expansion: float) -> None:
    before = read(make_text(random.Random(seed), rules=150, chains=1, memory=0.0))
    result = compile_rules(before, Options(leaf_size=2, max_expansion=expansion))
    for report in result.reports:
        counted = rules_counted(before.table(report.table)[report.chain].rules)
        assert report.after <= expansion * counted, report


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32))
def test_nesting_stays_within_the_limit_of_nft(seed: int) -> None:
    _, after = compiled(
        make_text(random.Random(seed), rules=300, chains=8), Options(leaf_size=1, max_expansion=50.0)
    )
    for table in after:
        above = levels_above(table)
        assert max(above.values()) <= 15


def test_lists_whose_fields_cross_cost_no_more_than_a_tree_for_both_backends() -> None:
    """Each host has a mark of its own, as source and as destination, so no rule may be moved."""
    hosts = [f"10.{at // 256}.{at % 256}.7" for at in range(200)]
    lines = [
        f"-A FORWARD -{side} {host} -j MARK --set-xmark {at + 1:#x}/0xffffffff"
        for at, host in enumerate(hosts)
        for side in "sd"
    ]
    before = read("\n".join(["*mangle", *lines, "COMMIT", ""]))
    costs = {}
    for backend in ("nft", "any"):
        result = compile_rules(before, Options(backend=backend))
        (report,) = (each for each in result.reports if not each.why)
        costs[backend] = report.ns_after["nft"]
        assert_equal(before, result.program, Options(backend=backend))
    assert costs["nft"] <= 1.05 * costs["any"]


def test_a_long_chain_leaves_nesting_to_the_chains_that_it_enters() -> None:
    rng = random.Random(1)
    levels = [f"-A level{at} -j level{at + 1}" for at in range(10)]
    hosts = [f"10.{rng.randrange(8)}.{rng.randrange(256)}.{rng.randrange(256)}" for _ in range(400)]
    first = [f"-A FORWARD -s {host}/{rng.choice((20, 24, 32))} -p tcp --dport {rng.randrange(1, 999)} -j DROP"
             for host in hosts]  # fmt: skip
    last = [f"-A level10 -d {host} -j DROP" for host in hosts[:200]]
    lines = [
        "*filter",
        *(f":level{at} -" for at in range(11)),
        *first,
        "-A FORWARD -j level0",
        *levels,
        *last,
    ]
    options = Options(backend="nft", leaf_size=1)
    before = read("\n".join([*lines, "COMMIT", ""]))
    result = compile_rules(before, options)
    nested = {report.chain: report.nesting for report in result.reports}
    assert nested["level10"] >= 2, nested
    assert nested["FORWARD"] + nested["level10"] + 11 <= 15
    assert_equal(before, result.program, options)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("family", Family)
def test_protocol_0_is_never_tested_because_it_means_any(algorithm: str, family: Family) -> None:
    net = "10.{}.0.0/16" if family is Family.IPV4 else "2001:db8:{}::/48"
    lines = ["-A INPUT ! -p 1 -m mark --mark 0x1 -j DROP", "-A INPUT ! -p 1 -m mark --mark 0x2 -j DROP"] * 3
    lines += [f"-A INPUT -s {net.format(n)} -p {n + 2} -j REJECT" for n in range(40)]
    options = Options(algorithm=algorithm, leaf_size=2, min_length=3, max_expansion=20.0)
    before, after = compiled("*filter\n" + "\n".join(lines) + "\nCOMMIT\n", options, family)
    assert "-p 0 " not in write(after)
    assert_equal(before, after, options)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_icmp_type_255_is_never_tested_because_it_means_any(algorithm: str) -> None:
    lines = ["-A INPUT -p icmp -m icmp ! --icmp-type 254 -m mark --mark 0x1 -j DROP"] * 3
    kinds = (*range(38), 254, "0xff")
    lines += [
        f"-A INPUT -s 10.{n}.0.0/16 -p icmp -m icmp --icmp-type {k} -j DROP" for n, k in enumerate(kinds)
    ]
    options = Options(algorithm=algorithm, leaf_size=2, min_length=3, max_expansion=20.0)
    before, after = compiled("*filter\n" + "\n".join(lines) + "\nCOMMIT\n", options)
    assert_equal(before, after, options)


def crossing_text(rng: random.Random, family: Family, rules: int, others: float) -> str:
    """Blocks of rules with a source, with a destination, with neither, in a user chain that RETURNs may leave;
    *others*: how many of them are of a kind that may not be moved."""
    nets = (
        ["10.{}.{}.0/24", "10.{}.0.0/16"]
        if family is Family.IPV4
        else ["2001:db8:{:x}{:02x}::/48", "2001:{:x}::/32"]
    )
    kinds = [
        "-j LOG", "-j RETURN", "-m limit --limit 5/min -j ACCEPT", "-m mark --mark 0x1 -j DROP", "-g other", "-j other",
        "-j MARK --set-xmark 0x1/0xffffffff", "-m recent --name r --rcheck -j DROP", "", "-m time --timestart 09:00 -j DROP",
    ]  # fmt: skip
    lines = []
    for at in range(rules):
        option = ("-s", "-d")[at // 10 % 2] if at % 7 else rng.choice(["-s", "-d", ""])
        words = [
            option
            and f"{option} {rng.choice(nets).format(rng.randrange(16), rng.randrange(min(rules // 4, 250)))}"
        ]
        if at % 16 > 12:
            words += [
                "-d " + nets[0].format(1, rng.randrange(min(rules // 4, 250))) if option == "-s" else ""
            ]
        words += [
            rng.choice(
                ["", "-p tcp", f"-p tcp -m tcp --dport {rng.randrange(20, 26)}", "-p udp -m udp --sport 53"]
            )
        ]
        fair = rng.choice(["-j ACCEPT", "-j DROP", "-m mark --mark 0x2 -j ACCEPT"])
        words += [rng.choice(kinds) if rng.random() < others else fair]
        lines.append(" ".join(["-A cross", *filter(None, words)]))
    head = [
        "*filter",
        ":FORWARD DROP",
        ":cross -",
        ":other -",
        "-A FORWARD -j cross",
        "-A FORWARD -p tcp -j ACCEPT",
    ]
    return "\n".join([*head, *lines, "-A other -p udp -j DROP", "COMMIT", ""])


@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
@pytest.mark.parametrize("grouping", [1, 2])
@settings(max_examples=examples(8))
@given(
    seed=st.integers(0, 2**32),
    family=st.sampled_from(Family),
    malformed=st.sampled_from(Malformed),
    others=st.sampled_from([0.0, 0.05, 0.3]),
)
def test_rules_in_groups_do_what_they_do_in_their_list(
    grouping: int, backend: str, seed: int, family: Family, malformed: Malformed, others: float
) -> None:
    """In either order of the groups, though one tree may be cheaper here."""
    options = Options(backend=backend, malformed=malformed, max_expansion=20.0)
    text = crossing_text(random.Random(seed), family, 80, others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hitables.compiler.run_trees.grow", functools.partial(grow, grouping=grouping))
        before, after = compiled(text, options, family)
    assert_equal(before, after, options)


@pytest.mark.parametrize(
    "last", ["-j DROP", "-j LOG", "-m limit --limit 5/min -j ACCEPT", "-s 10.9.0.0/16 -j RETURN"]
)
def test_rules_that_cross_are_kept_apart(last: str) -> None:
    """Groups call versions of each other; every rule is printed; growth is bounded."""
    lines = [
        f"-A cross {('-s', '-d')[n // 50 % 2]} 10.{n % 7}.{n % 251}.0/24 -p tcp -j ACCEPT" for n in range(800)
    ]
    head = ["*filter", ":INPUT DROP", ":cross -", "-A INPUT -j cross"]
    text = "\n".join([*head, *lines, f"-A cross {last}", "COMMIT", ""])
    result = compile_rules(read(text))
    (report,) = (each for each in result.reports if each.chain == "cross")
    assert not report.why and report.after <= 4 * report.before
    assert report.read_after < report.read_before / 10
    made_for = {name for _, name in result.origins}
    called = [
        rule
        for _, chain in all_chains(result.program)
        for rule in chain.rules
        if rule.target is not None and rule.target.kind is Kind.JUMP and rule.target.name in made_for
    ]
    assert len(called) > 50
    mapped = source_map(result.program, result.origins, "x")
    lines = {line for entry in mapped["tables"] for chain in entry["chains"] for line in chain["lines"]}
    assert lines >= {rule.line for _, chain in all_chains(read(text)) for rule in chain.rules}


DROPPING_FIRST = {
    "icmp": "-p icmp -m icmp --icmp-type 8 -m iprange --src-range 10.{0}.0.0-10.{0}.9.9",
    "ports": "-p tcp -m multiport --dports {0},90 -m iprange --dst-range 10.{0}.0.0-10.{0}.9.9",
    "constant": "-p esp -m esp --espspi 500 -m iprange --src-range 10.{0}.0.0-10.{0}.9.9",
    "tcp option": "-p tcp -m tcp --tcp-option 3 -m multiport --dports 7{0}",
    "read through xtables": "-p tcp -m tcp -m tcp --dport 7{0}",
    "chunks": "-p sctp -m sctp --dport 7{0} --chunk-types any INIT",
}


@pytest.mark.parametrize("matches", DROPPING_FIRST.values(), ids=DROPPING_FIRST)
@pytest.mark.parametrize(
    "behind", ["-s 20.{0}.0.0/16", "-p tcp -m tcp --dport 8{0}", "-p sctp -m sctp --dport 8{0}"]
)
def test_a_match_drops_its_packets_whatever_later_matches_test(matches: str, behind: str) -> None:
    """A broken header meets the first match of a rule though the second asks for another address."""
    lines = [
        f"-A FORWARD {each.format(n)} -j {target}"
        for each, target in ((matches, "DROP"), (behind, "ACCEPT"))
        for n in range(12)
    ]
    for options in (SMALL, Options(backend="legacy", leaf_size=2), Options(backend="nft", leaf_size=2)):
        before, after = compiled("*filter\n" + "\n".join(lines) + "\nCOMMIT\n", options)
        assert_equal(before, after, options, 1500)


def test_a_rule_with_memory_that_returns_leaves_its_own_chain() -> None:
    """-j to a shared chain would come back behind the RETURN (measured in the kernel)."""
    lines = [f"-A user -s 10.0.{n}.0/24 -j DROP" for n in range(20)]
    lines += ["-A user -p tcp -m limit --limit 5/min -j RETURN"]
    lines += [f"-A user -s 10.0.{n}.0/23 -j REJECT" for n in range(0, 20, 2)]
    text = (
        "*filter\n:INPUT ACCEPT\n:user -\n-A INPUT -j user\n-A INPUT -j LOG\n"
        + "\n".join(lines)
        + "\nCOMMIT\n"
    )
    before, after = compiled(text, Options(leaf_size=2))
    assert len(after.table("filter").chains) > len(before.table("filter").chains)
    assert_equal(before, after, Options(), 5000)


def test_a_shared_rule_drops_no_packet_that_an_earlier_match_kept_from_it() -> None:
    shared = "-A INPUT -p dccp -m mark --mark 0x1 -m dccp --sport 53 -m limit --limit 5/min -j ACCEPT"
    lines = [shared, *(f"-A INPUT -s 10.0.{n}.0/24 -j DROP" for n in range(20)), "-A INPUT -j ACCEPT"]
    options = Options(leaf_size=2, malformed=Malformed.EXACT)
    before, after = compiled("*filter\n" + "\n".join(lines) + "\nCOMMIT\n", options)
    assert write(after).count("--limit 5/min") == 1 < len(after.table("filter").chains) - 3
    assert_equal(before, after, options, 5000)


def test_leaves_are_entered_by_goto_only() -> None:
    before = read(make_text(random.Random(7), rules=200, chains=1, memory=0.2))
    result = compile_rules(before, SMALL)
    own = {name for table in before for name in (c.name for c in table.chains)}
    shared = {
        chain.name
        for _, chain in all_chains(result.program)
        if len(chain.rules) == 1 and any(m.role is Role.ONCE for m in chain.rules[0].matches)
    }
    jumped = {
        rule.target.name
        for _, chain in all_chains(result.program)
        for rule in chain.rules
        if rule.target is not None and rule.target.kind is Kind.JUMP and rule.target.name not in own
    }
    assert result.origins and jumped <= shared


def test_names_never_clash_with_the_users() -> None:
    lines = [f"-A INPUT -s 10.0.{n}.0/24 -j ht{n}" for n in range(20)]
    chains = "".join(f":ht{n} -\n" for n in range(20))
    before, after = compiled("*filter\n:INPUT ACCEPT\n" + chains + "\n".join(lines) + "\nCOMMIT\n")
    names = [chain.name for chain in after.table("filter").chains]
    assert len(names) == len(set(names)) > len(before.table("filter").chains)
    assert_equal(before, after, SMALL)


@pytest.mark.parametrize(
    "first",
    ["-j LOG", "-j user", "-m mark --mark 0x1 -j DROP", "-m limit --limit 5/min -j ACCEPT", "-p tcp", ""],
)
def test_a_first_rule_that_does_not_decide_prevents_no_tree(first: str) -> None:
    lines = [f"-A FORWARD {first}", *(f"-A FORWARD -s 10.0.{n}.0/24 -j DROP" for n in range(200))]
    before, after = compiled("*filter\n:user -\n" + "\n".join(lines) + "\nCOMMIT\n", Options())
    (report,) = (each for each in compile_rules(before).reports if each.chain == "FORWARD")
    assert not report.why and report.read_after < 15 < 90 < report.read_before
    assert_equal(before, after, Options())


def test_a_chain_that_gains_nothing_stays_and_the_report_has_the_reason() -> None:
    text = "*filter\n:INPUT ACCEPT [0:0]\n" + "-A INPUT -m mark --mark 0x1 -j DROP\n" * 12 + "COMMIT\n"
    result = compile_rules(read(text))
    (report,) = result.reports
    assert report.why and write(result.program) == text
    assert (
        compile_rules(read("*filter\n-A INPUT -s 10.0.0.1 -j DROP\nCOMMIT\n"))
        .reports[0]
        .why.startswith("short")
    )


def test_only_what_was_asked_for_is_compiled() -> None:
    rules = "".join(f"-A {c} -s 10.0.{n}.0/24 -j DROP\n" for c in ("INPUT", "FORWARD") for n in range(20))
    program = read("*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n" + rules + "COMMIT\n")
    result = compile_rules(program, Options(chains=frozenset({"INPUT"}), leaf_size=2))
    assert {report.chain for report in result.reports if not report.why} == {"INPUT"}
    with pytest.raises(HitablesError, match="no table"):
        compile_rules(program, Options(tables=frozenset({"nat"})))
    with pytest.raises(HitablesError, match="no chain"):
        compile_rules(program, Options(chains=frozenset({"NOPE"})))


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "ebtables"}, {"max_expansion": 0.5}, {"leaf_size": 0}, {"max_expansion": float("nan")},
        {"max_expansion": float("inf")}, {"spfac": float("nan")}, {"spfac": 0.5},
    ],
)  # fmt: skip
def test_impossible_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(HitablesError):
        Options(**wrong)  # type: ignore[arg-type]

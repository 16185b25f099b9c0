"""Law: all engines that compare two programs agree.  A new engine is one line in ENGINES.

An engine that proves finds a difference if and only if there is one; one that draws packets
finds none where there is none.  Semantics confirms every difference.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial

import pytest
from support.every_packet import Both, TooMany, difference, every_walk
from support.programs import make_program, mutate
from support.scale import examples

import hitables
from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.errors import HitablesError
from hitables.ir import semantics
from hitables.ir.fields import Family, Field
from hitables.ir.headers import inconsistency, is_malformed
from hitables.ir.packet import Backend
from hitables.ir.packet_reader import read_packet
from hitables.ir.program import Program
from hitables.simulate import sampling
from hitables.verify import bdd, exact
from hitables.verify.question import Answer, Difference, Equal, Question, chain_pairs, differs

pytestmark = pytest.mark.engine

ENGINES: dict[str, Callable[[Program, Program, Question], Answer]] = {
    "sampled": partial(sampling.check, packets=1000),
    "exact": exact.check,
    "diagrams": bdd.check,
}
PROVES = [name for name in ENGINES if name != "sampled"]
WHOLE = Question()
QUESTIONS = (WHOLE, Question(malformed="exact"), Question(equivalence="verdict"))


def is_confirmed(difference: Difference, before: Program, after: Program, question: Question) -> bool:
    """Whether semantics finds the difference on the packet as it is printed, which must be one that can exist."""
    if difference.packet is None:
        assert "memory of its own" in difference.reason
        return True
    assert difference.backend is not None
    line = difference.describe().split("packet: ")[1].splitlines()[0]
    spelled = read_packet(line, before.family)
    assert inconsistency(spelled.packet) is None
    walks = [
        semantics.run(each.table(spelled.table), spelled.chain, spelled.packet, difference.backend)
        for each in (before, after)
    ]
    assert walks == [difference.before, difference.after]
    may_drop = question.malformed == "stricter" and is_malformed(spelled.packet)
    return differs(walks[0], walks[1], may_drop, question.verdict_only) is not None


def answers(before: Program, after: Program, question: Question) -> dict[str, Answer]:
    """The answer of each engine; without sampled for questions that it does not take."""
    engines = {
        name: engine for name, engine in ENGINES.items() if name in PROVES or not question.verdict_only
    }
    by_engine = {name: engine(before, after, question) for name, engine in engines.items()}
    for name, answer in by_engine.items():
        assert not isinstance(answer, Difference) or is_confirmed(answer, before, after, question), name
        assert not isinstance(answer, Equal) or answer.proved == (name in PROVES)
    return by_engine


def comparable(before: Program, after: Program) -> bool:
    """Whether an edit left the same ipsets in both."""
    try:
        return bool(chain_pairs(before, after, Question()))
    except HitablesError:
        return False


@pytest.mark.parametrize("question", QUESTIONS, ids=["stricter", "exact", "verdicts"])
@pytest.mark.parametrize("rules", [6, 16])
def test_engines_agree_on_programs_that_are_one_edit_apart(rules: int, question: Question) -> None:
    counts: Counter[bool] = Counter()
    for seed in range(examples(48)):
        rng = random.Random(seed)
        before = make_program(rng, rules=rules)
        after = mutate(rng, before)
        if not comparable(before, after):
            continue
        by_engine = answers(before, after, question)
        differ = {name: isinstance(by_engine[name], Difference) for name in PROVES}
        assert len(set(differ.values())) == 1, (seed, by_engine)
        drawn = by_engine.get("sampled")
        if isinstance(drawn, Difference) and drawn.packet is not None:
            assert all(differ.values()), (seed, drawn.describe())
        counts[all(differ.values())] += 1
    assert min(counts[True], counts[False]) >= 2


def small_pair(seed: int) -> tuple[Program, Program]:
    rng = random.Random(seed)
    before = make_program(rng, tiny=True, rules=2)
    return before, mutate(rng, before)


@cache
def walks_of(seed: int) -> tuple[list[Both], bool]:
    """The walks of a pair, and whether these are all; they are the same for every question."""
    walks: list[Both] = []
    try:
        for walk in every_walk(*small_pair(seed), WHOLE.backends, most=600):
            walks.append(walk)
    except TooMany:
        return walks, False
    return walks, True


@pytest.mark.parametrize("question", QUESTIONS, ids=["stricter", "exact", "verdicts"])
def test_a_proof_agrees_with_trying_every_packet(question: Question) -> None:
    counts: Counter[bool] = Counter()
    for seed in range(examples(195)):
        before, after = small_pair(seed)
        if not comparable(before, after):
            continue
        walks, all_of_them = walks_of(seed)
        every = difference(walks, question)
        if every is None and not all_of_them:
            continue
        by_engine = {name: ENGINES[name](before, after, question) for name in PROVES}
        for name, answer in by_engine.items():
            if isinstance(answer, Difference) and answer.packet is None:
                assert "memory of its own" in answer.reason  # of a rule elsewhere: no packet shows it
            else:
                assert isinstance(answer, Difference) == (every is not None), (name, seed, every, answer)
        counts[every is not None] += 1
    assert min(counts[True], counts[False]) >= 6, counts


FRAGMENT_PAIRS = {
    "multiport": ("-p tcp --dport 80 -j LOG", "-p tcp -m multiport --dports 80 -j LOG"),
    "-f": ("-f -j LOG", "-f -j LOG --log-prefix other"),
}


def in_chain(rule: str, table: str, chain: str, family: Family, entered_by: tuple[str, ...] = ()) -> Program:
    """A rule in a built-in chain, or in a user chain that these enter."""
    user = f":{chain} - [0:0]\n" + "".join(f"-A {each} -j {chain}\n" for each in entered_by)
    text = f"*{table}\n{user if entered_by else ''}-A {chain} {rule}\nCOMMIT\n"
    return read(text, family=family)


def differ_in_nft(engine: str, programs: Iterable[Program]) -> str:
    """The chain where a packet enters that shows a difference; "": there is none."""
    before, after = programs
    answer = ENGINES[engine](before, after, Question((Backend.NFT,)))
    if isinstance(answer, Equal):
        return ""
    assert isinstance(answer, Difference) and answer.packet is not None and answer.packet.is_later_fragment
    assert is_confirmed(answer, before, after, WHOLE)
    return answer.chain


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("table", ["mangle", "nat", "filter", "security"])
@pytest.mark.parametrize("pair", FRAGMENT_PAIRS)
def test_no_engine_lets_fragments_come_to_input_of_ipv4(pair: str, table: str, engine: str) -> None:
    one, other = FRAGMENT_PAIRS[pair]
    at_input = (in_chain(rule, table, "INPUT", Family.IPV4) for rule in (one, other))
    assert differ_in_nft(engine, at_input) == ""
    at_output = (in_chain(rule, table, "OUTPUT", Family.IPV4) for rule in (one, other))
    assert differ_in_nft(engine, at_output) == "OUTPUT"


@pytest.mark.parametrize("engine", ENGINES)
def test_fragments_come_to_input_of_ipv6(engine: str) -> None:
    at_input = (in_chain(rule, "filter", "INPUT", Family.IPV6) for rule in FRAGMENT_PAIRS["multiport"])
    assert differ_in_nft(engine, at_input) == "INPUT"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("pair", FRAGMENT_PAIRS)
@pytest.mark.parametrize(("callers", "chain"), [(("INPUT",), ""), (("INPUT", "FORWARD"), "FORWARD")])
def test_fragments_come_to_a_user_chain_from_where_they_come(
    callers: tuple[str, ...], chain: str, pair: str, engine: str
) -> None:
    entered = (in_chain(rule, "filter", "u", Family.IPV4, callers) for rule in FRAGMENT_PAIRS[pair])
    assert differ_in_nft(engine, entered) == chain


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_finds_a_compiled_program_equal(engine: str) -> None:
    lines = [
        f"-A FORWARD -s 10.{n // 4}.{n % 4 * 64}.0/18 -p {'tcp' if n % 3 else 'udp'} --dport {n}:{n + n % 7} "
        f"-j {'ACCEPT' if n % 2 else 'DROP'}"
        for n in range(60)
    ]
    lines[20] = "-A FORWARD -p tcp -m limit --limit 5/sec -j LOG"
    lines[40] = "-A FORWARD -m recent --name seen --update -j DROP"
    text = "\n".join(["*filter", ":FORWARD DROP [0:0]", *lines, "COMMIT", ""])
    before = read(text)
    after = compile_rules(before, Options()).program
    assert len(after.tables[0].chains) > len(before.tables[0].chains)
    assert isinstance(ENGINES[engine](before, after, Question()), Equal)


@pytest.mark.parametrize("engine", ["exact", "diagrams"])
def test_packets_that_a_match_drops_for_one_protocol_are_told_from_those_of_another(engine: str) -> None:
    """Two rules need twelve bytes, each of one protocol; the first accepts what is accepted without it."""
    types = "-A FORWARD -p dccp -m dccp --dccp-types REQUEST -j DROP\n"
    without = f"*filter\n:FORWARD ACCEPT [0:0]\n{types}COMMIT\n"
    with_it = without.replace("-A", "-A FORWARD -p ah -m ah --ahspi 1 -j ACCEPT\n-A")
    differences = hitables.check(with_it, without, engine=engine).differences
    assert differences and {each.packet and each.packet.values[Field.PROTO] for each in differences} == {51}
    assert all(each.packet and each.packet.l4_bytes < 12 for each in differences)

"""Deletions that are shown to change nothing: each of them is right, and wrong ones are not shown."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crossing_rules import crossing_text
from support.planned_updates import check
from support.scale import examples

import hitables
from hitables.build.grow import grow
from hitables.ir.fields import Family
from hitables.verify.question import Equal
from sflgen import idle_deletions
from sflgen.cache import Cache
from sflgen.commands import read_commands
from sflgen.edits import Edit, Op, apply
from sflgen.idle_deletions import changes_nothing
from sflgen.layout import ChainLayout, Section
from sflgen.planner import Plan, plan_unproved, start_unproved
from sflgen.proof import verify
from sflgen.rule_index import RuleIndex
from sflgen.settings import Settings, Strategy
from sflgen.state import State


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_deletions, "WORTH_TRYING", 0)
    monkeypatch.setattr("hitables.compiler.run_trees.grow", functools.partial(grow, grouping=1))


def grown(seed: int, family: Family, backend: str, other: float) -> State:
    """Trees of rules that cross, most of which treat their packets alike; a share of *other* ones."""
    rng = random.Random(seed)
    text = crossing_text(rng, family, "FORWARD", 80, other).replace("-j DROP", "-j ACCEPT")
    text = text.replace("COMMIT", "-A FORWARD -p tcp -j ACCEPT\n-A FORWARD -p udp -j ACCEPT\nCOMMIT")
    program = hitables.read(text, family=family)
    return start_unproved(program, Settings(backend, max_expansion=20.0)).after


def deletions(state: State, rng: random.Random, count: int) -> Iterator[Plan]:
    size = len(state.master.table("filter")["FORWARD"].rules)
    for _ in range(count):
        updates = read_commands(f"-D FORWARD {rng.randint(1, size)}", state.master)
        yield plan_unproved(state, updates, Strategy.GRAFT, delete_in_place=True)


def slipped(planned: Plan, rng: random.Random) -> Plan:
    """*planned* with a deletion left out, or another rule of the trees deleted in its place or besides."""
    state, edits = planned.before, list(planned.edits)
    table = state.loaded.table("filter")
    chain = rng.choice([chain for chain in table.chains if chain.rules])
    other = Edit(Op.DELETE, "filter", chain.name, rng.randrange(len(chain.rules)))
    kind = rng.randrange(3)
    if kind and edits:
        edits.pop()
    if kind != 1 and all(edit.chain != chain.name for edit in edits):
        edits.append(other)
    loaded = apply(state.loaded, edits)
    return replace(planned, edits=tuple(edits), after=replace(planned.after, loaded=loaded))


@settings(max_examples=examples(12))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
)
def test_what_is_shown_to_change_nothing_keeps_the_law(seed: int, family: Family, backend: str) -> None:
    rng = random.Random(seed)
    state = grown(seed, family, backend, rng.choice([0.0, 0.1]))
    for planned in deletions(state, rng, 6):
        for each in (planned, slipped(planned, rng)):
            if changes_nothing(each):
                answer = verify(each.after)
                assert isinstance(answer, Equal), each.text


def test_a_rule_in_front_of_others_that_treat_its_packets_alike_is_shown_to_change_nothing() -> None:
    shown, refused, slips = 0, 0, 0
    for seed in range(3):
        rng = random.Random(seed)
        for planned in deletions(grown(seed, Family.IPV4, "nft", 0.0), rng, 30):
            if not planned.deleted_in_place:
                continue
            if changes_nothing(planned):
                shown += 1
                check(planned)
            else:
                refused += 1
            slips += not changes_nothing(slipped(planned, rng))
    assert shown >= 5 and refused and slips > 10


def test_an_edit_besides_the_deletion_is_not_shown() -> None:
    state = grown(1, Family.IPV4, "nft", 0.0)
    planned = next(
        each for each in deletions(state, random.Random(1), 40) if each.edits and changes_nothing(each)
    )
    edit = planned.edits[0]
    rule = state.loaded.table("filter")[edit.chain].rules[edit.at]
    more = replace(planned, edits=(*planned.edits, Edit(Op.INSERT, "filter", edit.chain, 0, rule)))
    assert not changes_nothing(more)
    assert not changes_nothing(replace(planned, updates=planned.updates * 2))


# By hand: the list, the trees, the copies of the rule in front of the list, and whether it is idle.
A = "-A FORWARD -s 10.1.0.0/16"
OF_SF1 = "-A sf1 -s 10.1.0.0/16 -p tcp -j ACCEPT\n"
BY_HAND = {
    "others follow to the same end": (
        f"{A} -j ACCEPT\n-A FORWARD -j DROP\n",
        f"-A FORWARD -j sf1\n{A} -j ACCEPT\n-A FORWARD -j DROP\n{OF_SF1}",
        True,
    ),
    "the list goes on to another end": (
        "-A FORWARD -j DROP\n",
        f"-A FORWARD -j sf1\n{A} -j ACCEPT\n-A FORWARD -j DROP\n{OF_SF1}",
        False,
    ),
    "the caller goes on to another end": (
        f"{A} -j ACCEPT\n-A FORWARD -j DROP\n",
        f"-A FORWARD -j sf1\n-A FORWARD -j DROP\n{OF_SF1}",
        False,
    ),
    "one of two callers goes on to another end": (
        f"{A} -j ACCEPT\n-A FORWARD -j DROP\n",
        f"-A FORWARD -d 10.9.0.0/16 -j sf1\n-A FORWARD -d 10.9.0.0/16 -j DROP\n-A FORWARD -j sf1\n"
        f"{A} -j ACCEPT\n{OF_SF1}",
        False,
    ),
    "a rule right behind the call matches what comes back": (
        f"{A} -j ACCEPT\n-A FORWARD -j DROP\n",
        f"{A} -d 10.9.0.0/16 -j sf1\n{A} -d 10.9.0.0/16 -j ACCEPT\n-A FORWARD -j DROP\n{OF_SF1}",
        True,
    ),
    "a rule right behind the call does not match what comes back": (
        f"{A} -j ACCEPT\n-A FORWARD -j DROP\n",
        f"{A} -d 10.9.0.0/16 -j sf1\n{A} -d 10.8.0.0/16 -j ACCEPT\n-A FORWARD -j DROP\n{OF_SF1}",
        False,
    ),
    "a rule right behind the call matches by chance": (
        f"{A} -j ACCEPT\n-A FORWARD -j DROP\n",
        "-A FORWARD -m statistic --mode random --probability 0.5 -j sf1\n"
        "-A FORWARD -m statistic --mode random --probability 0.5 -j ACCEPT\n-A FORWARD -j DROP\n" + OF_SF1,
        False,
    ),
    "a rule logs in between": (
        f"{A} -j ACCEPT\n-A FORWARD -j DROP\n",
        f"-A FORWARD -j sf1\n{A} -j LOG\n{A} -j ACCEPT\n-A FORWARD -j DROP\n{OF_SF1}",
        False,
    ),
    "what follows a chain that another list enters is unknown": (
        f"{A} -j ACCEPT\n-A FORWARD -j DROP\n",
        f"-A FORWARD -j sf1\n{A} -j ACCEPT\n-A FORWARD -j DROP\n-A INPUT -j sf1\n{OF_SF1}",
        False,
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_what_follows_each_copy_on_every_way_decides(case: str) -> None:
    listed, loaded, is_idle = BY_HAND[case]
    rule = "-A FORWARD -s 10.1.0.0/16 -p tcp -j ACCEPT\n"
    heads = "*filter\n:FORWARD DROP\n:INPUT DROP\n"
    master = hitables.read(f"{heads}{rule}{listed}COMMIT\n")
    rules = master.table("filter")["FORWARD"].rules
    layout = ChainLayout((Section("FORWARD", len(rules), True),))
    trees = hitables.read(f"{heads}:sf1 -\n{loaded}COMMIT\n")
    layouts = {("filter", "FORWARD"): layout}
    before = State(Settings("nft"), master, trees, layouts, {}, 1)
    updates = read_commands("-D FORWARD 1", master)
    edits = (Edit(Op.DELETE, "filter", "sf1", 0),)
    index = RuleIndex.of(rules[1:], master.family)
    after = replace(
        before,
        master=apply(master, updates),
        loaded=apply(trees, edits),
        cache=Cache(rule_indexes={("filter", "FORWARD"): index}),
    )
    assert changes_nothing(Plan(before, after, tuple(updates), edits, ())) == is_idle

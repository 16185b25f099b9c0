"""The law of sflgen over trees in groups: entries stand where groups and their versions do not mind."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import make_command
from support.crossing_rules import calls_trees, crossing_command, crossing_text
from support.planned_updates import check
from support.scale import examples
from support.sflgen_command import step as commit

import hitables
from hitables.build.grow import grow
from hitables.errors import ParseError, Unsupported
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials
from hitables.kernel.load_save import load
from hitables.kernel.make_sendable import interfaces_of, make_sendable
from hitables.kernel.namespace import Namespace
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from sflgen.edits import read_commands
from sflgen.layout import Settings, Strategy
from sflgen.local_proof import proved_plan
from sflgen.planner import Plan, start
from sflgen.store import Store

PREFERRED = [None, None, Strategy.GRAFT, Strategy.GRAFT, Strategy.OVERLAY]


@pytest.fixture(scope="module", params=[1, 2], autouse=True)
def grouped(request: pytest.FixtureRequest) -> Iterator[None]:
    """In either order of the groups, though one tree may be cheaper here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hitables.compiler.tables.grow", functools.partial(grow, grouping=request.param))
        yield


def step(rng: random.Random, made: Plan, chain: str, other: float, strategy: Strategy | None) -> Plan | None:
    """The plan of one more update; None when it is refused, which says why."""
    master = made.after.master
    try:
        commands = "\n".join(
            crossing_command(rng, master, chain, other) for _ in range(rng.choice([1, 1, 1, 3]))
        )
        return proved_plan(made.after, read_commands(commands, master), strategy, rng.random() < 0.5)
    except (ParseError, Unsupported):
        return None


@settings(max_examples=examples(10))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]),
    other=st.sampled_from([0.0, 0.0, 0.05, 0.3]),
    chain=st.sampled_from(["FORWARD", "cross"]),
)
def test_after_every_update_of_grouped_trees_what_is_loaded_is_equal_to_the_list(
    seed: int, family: Family, backend: str, malformed: str, other: float, chain: str
) -> None:
    rng = random.Random(seed)
    program = hitables.read(crossing_text(rng, family, chain, rng.randrange(40, 100), other), family=family)
    made = start(program, Settings(backend, malformed, delta=rng.choice([6, 32]), max_expansion=20.0))
    check(made)
    for _ in range(8):
        following = step(rng, made, chain, other, rng.choice(PREFERRED))
        if following is not None:
            check(following)
            made = following


def test_there_are_groups_and_versions_among_the_trees_and_grafts_among_the_patches() -> None:
    called, chosen = 0, []
    for seed in range(6):
        rng = random.Random(seed)
        text = crossing_text(rng, Family.IPV4, "FORWARD", 100, [0.0, 0.1][seed % 2])
        made = start(hitables.read(text), Settings("nft", max_expansion=20.0))
        called += calls_trees(made.after.loaded, "FORWARD")
        for _ in range(6):
            made = step(rng, made, "FORWARD", 0.1, None) or made
            chosen += [strategy for _, _, strategy in made.chosen]
    assert called >= 4
    assert chosen.count(Strategy.GRAFT) >= 2 and chosen.count(Strategy.OVERLAY) >= 3


class Tried:
    """A kernel in which one list is loaded, and what becomes of packets there."""

    def __init__(self, namespace: Namespace, family: Family) -> None:
        self.namespace = namespace
        furnish(namespace, family, ("eth0", "eth1"))

    def passed(self, trials: Sequence[Trial]) -> list[bool]:
        prepare(self.namespace, "filter", "FORWARD", trials, tracked=True)
        results = send_trials(self.namespace)
        assert all(result.arrived for result in results)
        return [result.passed for result in results]


def without_memory(said: str) -> bool:
    """Whether the same packets meet the same end whenever they come; and every backend takes the rule."""
    return not re.search(r"-m (limit|statistic|recent|connlimit|mac|ttl)\b", said)


def any_command(rng: random.Random, master: Program, chain: str, other: float) -> str:
    """An update of *chain*, or now and then of anything else: policies, chains that come and go."""
    while True:
        said = (
            crossing_command(rng, master, chain, other)
            if rng.random() < 0.75
            else make_command(rng, master, [chain])
        )
        if without_memory(said):
            return said


def trials_of(master: Program, backend: Backend, seed: int, count: int) -> list[Trial]:
    """Packets at the edges of the rules; none is malformed, as trees may drop more of these than the list."""
    batch = BoundarySampler(Interpreter(master, backend), "filter", "FORWARD", seed=seed).draw(count)
    batch = make_sendable(batch, "FORWARD", dict.fromkeys(interfaces_of([batch]), "eth0"))
    return [Trial(packet) for packet in batch.pick(~batch.malformed())]


def grouped_lists(rng: random.Random, family: Family, backend: Backend, chain: str) -> Iterator[Plan]:
    """Lists whose trees call those of groups."""
    while True:
        lines = crossing_text(rng, family, chain, 80, 0.05).splitlines(keepends=True)
        program = hitables.read("".join(filter(without_memory, lines)), family=family)
        made = start(program, Settings(backend.value, max_expansion=20.0))
        if calls_trees(made.after.loaded, chain):
            yield made


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(("family", "chain"), [(Family.IPV4, "FORWARD"), (Family.IPV6, "cross")])
def test_the_kernel_does_what_the_list_says_after_each_update_of_grouped_trees(
    backend: Backend, family: Family, chain: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{backend} {family} {chain}")
    made = next(grouped_lists(rng, family, backend, chain))
    folder, taken, ends = str(tmp_path / "st"), 0, set()
    with Namespace() as namespace, Namespace() as plain:
        load(hitables.write(made.before.master), family, backend, namespace)
        patched, listed = Tried(namespace, family), Tried(plain, family)
        Store.create(Path(folder), made.before).close()
        assert namespace.call(commit, folder, made)
        for number in range(examples(5)):
            state = made.after
            try:
                commands = [any_command(rng, state.master, chain, 0.1) for _ in range(rng.choice([1, 1, 3]))]
                updates = read_commands("\n".join(commands), state.master)
                made = proved_plan(state, updates, rng.choice(PREFERRED), rng.random() < 0.5)
            except (ParseError, Unsupported):
                continue
            if not namespace.call(commit, folder, made):
                continue
            taken += 1
            load(hitables.write(made.after.master), family, backend, plain)
            trials = trials_of(made.after.master, backend, number, 60) + trials_of(
                state.master, backend, number, 60
            )
            expected = listed.passed(trials)
            found = patched.passed(trials)
            wrong = [trials[at].packet for at in range(len(trials)) if found[at] != expected[at]]
            assert not wrong, (commands, made.text, wrong[0])
            ends.update(expected)
    assert taken >= 2 and ends == {False, True}

"""The law of sflgen over trees in groups: entries are where groups and their versions allow them."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import small_namespace
from support.commands import make_command
from support.crossing_rules import calls_trees, crossing_command, crossing_step, crossing_text
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
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from sflgen.commands import read_commands
from sflgen.planner import Plan, start_unproved
from sflgen.proof import planner
from sflgen.settings import Settings, Strategy
from sflgen.store import Store

PREFERRED = [None, None, Strategy.GRAFT, Strategy.GRAFT, Strategy.OVERLAY]


@pytest.fixture(scope="module", params=[1, 2], autouse=True)
def grouped(request: pytest.FixtureRequest) -> Iterator[None]:
    """Force groups, in either order, where one tree may be cheaper."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hitables.compiler.run_trees.grow", functools.partial(grow, grouping=request.param))
        patch.setattr("hitables.compiler.run_trees.RunTrees.of_boxes", lambda *of: [])
        yield


@settings(max_examples=examples(10))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]),
    other=st.sampled_from([0.0, 0.0, 0.05, 0.3]),
    chain=st.sampled_from(["FORWARD", "cross"]),
)
def test_after_every_update_of_grouped_trees_the_loaded_rule_set_is_equal_to_the_list(
    seed: int, family: Family, backend: str, malformed: str, other: float, chain: str
) -> None:
    rng = random.Random(seed)
    program = hitables.read(crossing_text(rng, family, chain, rng.randrange(40, 100), other), family=family)
    plan = start_unproved(
        program, Settings(backend, malformed, delta=rng.choice([6, 32]), max_expansion=20.0)
    )
    check(plan)
    for _ in range(8):
        following = crossing_step(rng, plan, chain, other, rng.choice(PREFERRED))
        if following is not None:
            check(following)
            plan = following


def test_the_examples_have_groups_and_versions_and_grafts() -> None:
    called, chosen = 0, []
    for seed in range(6):
        rng = random.Random(seed)
        text = crossing_text(rng, Family.IPV4, "FORWARD", 100, [0.0, 0.1][seed % 2])
        plan = start_unproved(hitables.read(text), Settings("nft", max_expansion=20.0))
        called += calls_trees(plan.after.loaded, "FORWARD")
        for _ in range(6):
            plan = crossing_step(rng, plan, "FORWARD", 0.1, None) or plan
            chosen += [strategy for _, _, strategy in plan.chosen]
    assert called >= 4
    assert chosen.count(Strategy.GRAFT) >= 2 and chosen.count(Strategy.OVERLAY) >= 3


class Tried:
    """A kernel with one rule set, and the results of packets sent there."""

    def __init__(self, namespace: small_namespace.Namespace, family: Family) -> None:
        self.namespace = namespace
        furnish(namespace, family, ("eth0", "eth1"))

    def passed(self, trials: Sequence[Trial]) -> list[bool]:
        prepare(self.namespace, "filter", "FORWARD", trials, tracked=True)
        packets = send_trials(self.namespace)
        assert all(packet.arrived for packet in packets)
        return [packet.passed for packet in packets]


def without_memory(command: str) -> bool:
    """Whether the result of a packet does not depend on earlier ones; and every backend accepts the rule."""
    return not re.search(r"-m (limit|statistic|recent|connlimit|mac|ttl)\b", command)


def any_command(rng: random.Random, master: Program, chain: str, other: float) -> str:
    """An update of *chain*, or sometimes another one: of policies, or of whole chains."""
    while True:
        command = (
            crossing_command(rng, master, chain, other)
            if rng.random() < 0.75
            else make_command(rng, master, [chain])
        )
        if without_memory(command):
            return command


def trials_of(master: Program, backend: Backend, seed: int, count: int) -> list[Trial]:
    """Boundary packets of the rules; none is malformed, as trees may drop more of these than the list."""
    batch = BoundarySampler(Interpreter(master, backend), "filter", "FORWARD", seed=seed).draw(count)
    batch = make_sendable(batch, "FORWARD", dict.fromkeys(interfaces_of([batch]), "eth0"))
    return [Trial(packet) for packet in batch.pick(~batch.malformed())]


def grouped_lists(rng: random.Random, family: Family, backend: Backend, chain: str) -> Iterator[Plan]:
    """Lists whose trees call those of groups."""
    while True:
        lines = crossing_text(rng, family, chain, 70, 0.05).splitlines(keepends=True)
        program = hitables.read("".join(filter(without_memory, lines)), family=family)
        plan = start_unproved(program, Settings(backend.value, max_expansion=20.0))
        if calls_trees(plan.after.loaded, chain):
            yield plan


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(("family", "chain"), [(Family.IPV4, "FORWARD"), (Family.IPV6, "cross")])
def test_the_kernel_treats_packets_as_the_list_after_each_update_of_grouped_trees(
    backend: Backend, family: Family, chain: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{backend} {family} {chain}")
    plan = next(grouped_lists(rng, family, backend, chain))
    folder, taken, ends = str(tmp_path / "st"), 0, set()
    with small_namespace.Namespace() as namespace, small_namespace.Namespace() as plain:
        load(hitables.write(plan.before.master), family, backend, namespace)
        patched, listed = Tried(namespace, family), Tried(plain, family)
        Store.create(Path(folder), plan.before).close()
        assert namespace.call(commit, folder, plan)
        for number in range(examples(15)):
            state = plan.after
            try:
                commands = [any_command(rng, state.master, chain, 0.1) for _ in range(rng.choice([1, 1, 3]))]
                updates = read_commands("\n".join(commands), state.master)
                strategy = rng.choice(PREFERRED)
                plan = planner(rng.random() < 0.5)(state, updates, strategy)
            except (ParseError, Unsupported):
                continue
            if not namespace.call(commit, folder, plan):
                continue
            taken += 1
            load(hitables.write(plan.after.master), family, backend, plain)
            trials = trials_of(plan.after.master, backend, number, 60) + trials_of(
                state.master, backend, number, 60
            )
            expected = listed.passed(trials)
            results = patched.passed(trials)
            wrong = [trials[at].packet for at in range(len(trials)) if results[at] != expected[at]]
            assert not wrong, (commands, plan.text, wrong[0])
            ends.update(expected)
    assert taken >= 2 and ends == {False, True}

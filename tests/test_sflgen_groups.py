"""The law of sflgen over trees in groups: entries stand where groups and their versions do not mind."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

import pytest
from crossing import calls_trees, crossing_command, crossing_text
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sflgen_patch import check

import hitables
from hitables.build.tree import grow
from hitables.errors import ParseError, Unsupported
from hitables.ir.fields import Family
from sflgen.base import Settings, Strategy
from sflgen.patch import Plan, plan, start
from sflgen.updates import read_commands


@pytest.fixture(scope="module", params=[1, 2], autouse=True)
def grouped(request: pytest.FixtureRequest) -> Iterator[None]:
    """In either order of the groups, though one tree may be cheaper here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hitables.compile.grow", functools.partial(grow, grouping=request.param))
        yield


def step(rng: random.Random, made: Plan, chain: str, other: float, strategy: Strategy | None) -> Plan | None:
    """The plan of one more update; None when it is refused, which says why."""
    master = made.after.master
    try:
        commands = "\n".join(crossing_command(rng, master, chain, other) for _ in range(rng.choice([1, 1, 1, 3])))
        return plan(made.after, read_commands(commands, master), strategy)
    except (ParseError, Unsupported):
        return None


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1 << 32), family=st.sampled_from(Family), backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]), other=st.sampled_from([0.0, 0.0, 0.05, 0.3]),
    chain=st.sampled_from(["FORWARD", "cross"]),
)  # fmt: skip
def test_after_every_update_of_grouped_trees_what_is_loaded_is_equal_to_the_list(
    seed: int, family: Family, backend: str, malformed: str, other: float, chain: str
) -> None:
    rng = random.Random(seed)
    program = hitables.read(crossing_text(rng, family, chain, rng.randrange(40, 100), other), family=family)
    made = start(program, Settings(backend, malformed, delta=rng.choice([6, 32]), max_expansion=20.0))
    check(made)
    for _ in range(8):
        strategy = rng.choice([None, None, Strategy.GRAFT, Strategy.GRAFT, Strategy.OVERLAY])
        following = step(rng, made, chain, other, strategy)
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

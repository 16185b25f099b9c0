"""A profile: the cost of each kind of test and target in one kernel, as data.

Costs are nanoseconds above those of a packet without rules:

    miss         a rule whose first test is of this kind and fails
    holds        a test that holds, without the tests after it
    target       a rule without tests
    start        entering the rules at all
    branch_miss  a test whose result the processor predicted wrongly (JSON key: surprise)
    cache_miss   fetching a rule that is no longer in the processor's nearest cache, by reuse distance (other
                 rules read since it was read last): for a rule that is taken (its target, its counter, the
                 chain that it enters), for one that is read, and for one that is prefetched because it is far
                 down in a chain (JSON key: far)

The shipped profile and the output of `hitables calibrate` have the same form (hitables/schema/costs.json).
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ..errors import ParseError, Unsupported
from ..files import parse_json, read_text
from ..ir.fields import Family
from ..ir.packet import Backend, Outcome
from ..ir.rule import Match, Rule
from ..ir.semantics import Walk
from . import test_kinds

FORMAT, VERSION = "hitables-costs", 1
SHIPPED = ("linux-6.18",)


class Reading(enum.Enum):
    """The result of reading a rule: its first test fails, or all tests hold and its target is applied."""

    MISS = "miss"
    TAKEN = "taken"


class MatchCost(NamedTuple):
    """Nanoseconds of a test that fails (its rule's reading included), and of one that holds."""

    miss: float
    holds: float


class CacheMiss(NamedTuple):
    """Nanoseconds for fetching a rule at this reuse *distance*: taken, read, and read far down in a chain."""

    distance: float
    taken: float
    read: float
    ahead: float


@dataclass(frozen=True)
class Figures:
    """The figures of one backend."""

    tests: Mapping[str, MatchCost]
    targets: Mapping[str, float]
    start: float
    branch_miss: float
    cache_miss: tuple[CacheMiss, ...]
    # What tree_prices.py made of it, by axes.
    of_axes: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def test(self, kind: str) -> MatchCost:
        """The cost of a test of this kind; one that was not measured costs as much as a call of xtables."""
        cost = self.tests.get(kind)
        if cost is not None:
            return cost
        return self.tests["address/x" if kind.startswith("address") else test_kinds.OTHER_MATCH]

    def target(self, kind: str) -> float:
        return self.targets[kind]


@dataclass(frozen=True)
class Costs:
    """The figures of each backend.  *name*: of the profile, in messages; *machine*: where it was measured."""

    figures: Mapping[Backend, Figures]
    name: str
    machine: Mapping[str, Any]

    def of(self, backend: Backend) -> Figures:
        """The figures of *backend*; Unsupported when the profile has none."""
        if backend not in self.figures:
            raise Unsupported(
                f"{self.name}: the profile has no figures for {backend.value}; "
                "measure them with hitables calibrate"
            )
        return self.figures[backend]

    def address(self, length: int, backend: Backend, family: Family = Family.IPV4) -> MatchCost:
        """The cost of `-s` or `-d` with a prefix of *length*."""
        return self.of(backend).test(test_kinds.address(length, backend, family))

    def match(self, match: Match, backend: Backend, family: Family = Family.IPV4) -> MatchCost:
        """The cost of a match that is alone in its rule; parts that are tested one by one are added up."""
        figures = self.of(backend)
        parts = test_kinds.as_read(Rule((match,), None), backend).matches
        costs = [_cost(figures, part, backend, family) for part in parts]
        return MatchCost(costs[0].miss, sum(cost.holds for cost in costs))

    def rule(self, rule: Rule, backend: Backend, reading: Reading, family: Family = Family.IPV4) -> float:
        """Nanoseconds to read *rule* from the cache, when its first test fails or when it is taken."""
        figures = self.of(backend)
        tests = [
            _cost(figures, match, backend, family) for match in test_kinds.as_read(rule, backend).matches
        ]
        if reading is Reading.MISS and tests:
            return tests[0].miss
        return sum(test.holds for test in tests) + figures.target(test_kinds.target_kind(rule.target))

    def walk(self, walk: Walk, backend: Backend, family: Family = Family.IPV4) -> float:
        """Nanoseconds of a walk, all rules cached; a rule that did not match fails at its first test."""
        reading = {outcome: Reading.MISS for outcome in Outcome} | {Outcome.YES: Reading.TAKEN}
        steps = (self.rule(step.rule, backend, reading[step.outcome], family) for step in walk.steps)
        return self.of(backend).start + sum(steps) if walk.steps else 0.0

    def as_data(self) -> dict[str, Any]:
        """The profile as plain data, as in the file."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "machine": dict(self.machine),
            "backends": {
                backend.value: {
                    "tests": {kind: cost._asdict() for kind, cost in each.tests.items()},
                    "targets": dict(each.targets),
                    "start": each.start,
                    "surprise": each.branch_miss,
                    "far": [miss._asdict() for miss in each.cache_miss],
                }
                for backend, each in self.figures.items()
            },
        }


def _cost(figures: Figures, match: Match, backend: Backend, family: Family) -> MatchCost:
    kind = test_kinds.kind(match, backend, family)
    return figures.test(kind) if kind else MatchCost(0.0, 0.0)


def load(path: str) -> Costs:
    """The profile in the file *path*; ParseError when it is not a whole profile."""
    return read(read_text(path), path)


@cache
def default() -> Costs:
    """The shipped profile."""
    return read((files(__package__) / "profiles" / f"{SHIPPED[0]}.json").read_text(), SHIPPED[0])


def read(text: str, name: str) -> Costs:
    """A profile from its JSON."""
    try:
        data = parse_json(text)
    except ValueError as error:
        raise ParseError(f"not a profile of costs: {error}", source=name) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ParseError(f'not a profile of costs: "format" is not "{FORMAT}"', source=name)
    if data.get("version") != VERSION:
        raise ParseError(
            f"a profile of version {data.get('version')!r}, this hitables reads version {VERSION}",
            source=name,
            hint="measure again with hitables calibrate",
        )
    try:
        figures = {Backend(key): _figures(each) for key, each in data["backends"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(
            f"the profile is incomplete or broken ({type(error).__name__}: {error})",
            source=name,
            hint="measure again with hitables calibrate",
        ) from None
    machine = data.get("machine")
    return Costs(figures, name, machine if isinstance(machine, dict) else {})


def _figures(data: Any) -> Figures:
    tests = {kind: MatchCost(_ns(each["miss"]), _ns(each["holds"])) for kind, each in data["tests"].items()}
    targets = {kind: _ns(cost) for kind, cost in data["targets"].items()}
    cache_miss = [CacheMiss(*(_ns(each[key]) for key in CacheMiss._fields)) for each in data["far"]]
    needed = (
        test_kinds.COUNT,
        test_kinds.VERDICT,
        test_kinds.JUMP,
        test_kinds.GOTO,
        test_kinds.RETURN,
        test_kinds.OTHER_TARGET,
    )
    for kind in needed:
        if kind not in targets:
            raise KeyError(f"target {kind}")
    for kind in (test_kinds.OTHER_MATCH, "address", "address/x", "protocol", "interface", "fragment"):
        if kind not in tests:
            raise KeyError(f"test {kind}")
    return Figures(tests, targets, _ns(data["start"]), _ns(data["surprise"]), tuple(sorted(cache_miss)))


def _ns(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{value!r} is not a number of nanoseconds")
    return float(value)

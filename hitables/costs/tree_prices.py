"""A profile in the form that the tree builders take: the cost of missing each rule, and of each test.

A tree is grown for a sum of its cost and of the rules that it reads: the figures are those of cached rules,
and each rule read may be one more cache miss and branch miss (packet_cost.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain as row
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import LENGTHS, Axis, Cut, Prices
from ..analyse.mark_bits import Dimension, MarkBits
from ..ir.fact import Fact
from ..ir.fields import BRIDGE_PORTS, Family, Field
from ..ir.packet import Backend
from ..ir.rule import Match, Rule
from . import test_kinds
from .profile import Costs, Figures, MatchCost

Floats = npt.NDArray[np.float64]

# The share of the cost of reading a rule that is the same for all rules.  Legacy's tests differ little, and
# cache and branch misses cost more than they do: with 0.8 the acl sets read a fiftieth more and save 1 % of
# the time. In nft, 0.4 reads a twelfth more and saves a tenth to a sixth of the time; with less, reads grow
# and time does not fall.
EVEN = {Backend.LEGACY: 0.95, Backend.NFT: 0.4}
# For a tree that the budget of printed rules has cut short: its leaves are long, and fewer rules read save
# more than cheaper ones (20 to 40 % of the time, for lists whose rules cross much).
EVEN_WHEN_CROWDED = {Backend.LEGACY: 0.95, Backend.NFT: 0.8}
# For one that still reads many: halves the reads where two fields cross in lists of hundreds of rules.
EVEN_WHEN_MANY = {Backend.LEGACY: 0.95, Backend.NFT: 0.95}

# Order in which the kernel tries header tests; other matches follow.
_ORDER = {
    Backend.LEGACY: (Field.SRC, Field.DST, Field.IIF, Field.OIF, Field.PROTO, Field.FRAG),
    Backend.NFT: (Field.IIF, Field.OIF, Field.PROTO, Field.SRC, Field.DST, Field.FRAG, Field.FLAGS),
}
_PLAIN = {
    Field.IIF: "interface",
    Field.OIF: "interface",
    Field.PROTO: "protocol",
    Field.FRAG: "fragment",
}


class Priced:
    """Rules and the axes of a tree over them, prepared once for the prices of all backends."""

    def __init__(self, rules: Sequence[Rule], axes: Sequence[Axis], family: Family) -> None:
        self.axes, self.family, self.rules = axes, family, len(rules)
        matches_of = list(map(attrgetter("matches"), rules))
        matches = list(row.from_iterable(matches_of))
        ids = list(map(id, matches))
        by_id = dict(zip(ids, matches, strict=True))
        shapes: dict[Hashable, int] = {}
        number = {key: shapes.setdefault(_shape(match), len(shapes)) for key, match in by_id.items()}
        # The first match of each shape.
        first = {shape: key for key, shape in reversed(number.items())}
        self.matches = [by_id[first[shape]] for shape in range(len(shapes))]
        lengths = np.fromiter(map(len, matches_of), np.intp, len(rules))
        self.owner = np.repeat(np.arange(len(rules)), lengths)
        self.shape_of = np.fromiter(map(number.__getitem__, ids), np.intp, len(ids))
        targets = list(map(attrgetter("target"), rules))
        by_target = dict(zip(map(id, targets), targets, strict=True))
        kinds = {key: test_kinds.target_kind(target) for key, target in by_target.items()}
        self.targets = [kinds[id(target)] for target in targets]
        self._costs: dict[int, tuple[Floats, Floats, Floats]] = {}

    def costs(self, figures: Figures, backend: Backend) -> tuple[Floats, Floats, Floats]:
        """In nanoseconds: [rule, axis] a test that fails, and one that holds; [rule] the rest of the rule."""
        costs = self._costs.get(id(figures))
        if costs is None:
            costs = self._costs[id(figures)] = _rules(self, figures, backend)
        return costs


def prices(
    priced: Priced, costs: Costs, backends: Sequence[Backend], even: Mapping[Backend, float] = EVEN
) -> Prices:
    """The prices of the rules and of tests of the axes, the mean of *backends*.

    The unit is a test of an address that half of the packets pass; *even* of that is the same for all rules.
    """
    each = [_of(priced, costs, backend, even[backend]) for backend in backends]
    if len(each) == 1:
        return each[0]
    one, two = each
    return Prices(
        (one.test + two.test) / 2,
        two.order,
        (one.missed + two.missed) / 2,
        (one.holds + two.holds) / 2,
        (one.taken + two.taken) / 2,
        (one.jump + two.jump) / 2,
        (one.go + two.go) / 2,
        (one.act + two.act) / 2,
    )


def nanoseconds(priced: Priced, costs: Costs, backend: Backend) -> Prices:
    """The prices of the rules and of tests of the axes in *backend*, in nanoseconds."""
    return _of(priced, costs, backend, None)


def _of(priced: Priced, costs: Costs, backend: Backend, even: float | None) -> Prices:
    axes, family, figures = priced.axes, priced.family, costs.of(backend)
    go = figures.target(test_kinds.GOTO)
    common = figures.test("address/x")
    scale = 1.0 if even is None else (1 - even) / ((common.miss + common.holds + go) / 2)
    each = even or 0.0
    tests = _tests_of(tuple(axes), figures, backend, family)
    missed, holds, taken = priced.costs(figures, backend)
    return Prices(
        np.where(np.isnan(tests), 0, each + scale * (tests + (0, go))),
        np.array(_in_order(axes, backend), np.uint32),
        np.where(missed > 0, each + scale * missed, 0),
        scale * holds,
        each + scale * taken,
        *(
            each + scale * figures.target(kind)
            for kind in (test_kinds.JUMP, test_kinds.GOTO, test_kinds.VERDICT)
        ),
    )


def _tests_of(axes: tuple[Axis, ...], figures: Figures, backend: Backend, family: Family) -> Floats:
    """[axis, LENGTHS, 2] nanoseconds of a test that fails, and of one that holds; nan: there is none."""
    known = figures.of_axes.get((axes, backend, family))
    if known is None:
        known = np.full((len(axes), LENGTHS, 2), np.nan)
        for at, axis in enumerate(axes):
            for length, cost in _tests(axis, figures, backend, family):
                known[at, length] = cost
        figures.of_axes[axes, backend, family] = known
    return known


def _in_order(axes: Sequence[Axis], backend: Backend) -> list[int]:
    first = _ORDER[backend]
    place: dict[Dimension, int] = {field: at for at, field in enumerate(first)}
    return sorted(range(len(axes)), key=lambda at: (place.get(axes[at].field, len(first)), at))


def _tests(axis: Axis, figures: Figures, backend: Backend, family: Family) -> list[tuple[int, MatchCost]]:
    """The cost of a test of the axis by the length of its prefix, or by whether it is for several values."""
    if axis.cut is Cut.NONE:
        return []
    if isinstance(axis.field, MarkBits):
        cost = figures.test(f"-m {axis.field.attribute}")
        return [(length, cost) for length in range(axis.bits + 1)]
    if axis.cut is Cut.PREFIX:
        return [
            (length, figures.test(test_kinds.address(length, backend, family)))
            for length in range(axis.bits + 1)
        ]
    if axis.field in BRIDGE_PORTS:
        return [(several, figures.test("-m physdev")) for several in (0, 1)]
    if axis.field in _PLAIN:
        return [(several, figures.test(_PLAIN[axis.field])) for several in (0, 1)]
    # A port or an ICMP type is written behind its protocol.
    before = figures.test("protocol").holds
    if backend is Backend.LEGACY or axis.field not in (Field.SPORT, Field.DPORT):
        match = figures.test("-m udp" if axis.field in (Field.SPORT, Field.DPORT) else "-m icmp")
        pair = [match, match]
    else:
        pair = [figures.test("port"), figures.test("ports")]
    return [(at, MatchCost(before + cost.miss, before + cost.holds)) for at, cost in enumerate(pair)]


def _rules(priced: Priced, figures: Figures, backend: Backend) -> tuple[Floats, Floats, Floats]:
    place = {axis.field: at for at, axis in enumerate(priced.axes)}
    width, rules = len(priced.axes), priced.rules
    costs = [_match(match, place, figures, backend, priced.family) for match in priced.matches]
    # By shape: its tests of axes, one row of `flat` each, and the cost of its other tests.
    parts = np.array([len(each) for each, _ in costs], np.intp)
    first = np.cumsum(parts) - parts
    flat = np.array([part for each, _ in costs for part in each], float).reshape(-1, 3)
    spent = np.array([rest for _, rest in costs])
    owner, shape_of = priced.owner, priced.shape_of
    times = parts[shape_of]
    start = np.cumsum(times) - times
    chosen = np.repeat(first[shape_of] - start, times) + np.arange(times.sum())
    cells = np.repeat(owner, times) * width + flat[chosen, 0].astype(np.intp)
    missed = np.zeros(rules * width)
    missed[cells] = flat[chosen, 1]
    holds = np.bincount(cells, flat[chosen, 2], rules * width).astype(float)
    target = {kind: figures.target(kind) for kind in set(priced.targets)}
    rest = np.bincount(owner, spent[shape_of], rules) + [target[kind] for kind in priced.targets]
    return missed.reshape(rules, width), holds.reshape(rules, width), rest


def _limits(fact: Fact, field: Dimension) -> bool:
    return isinstance(field, MarkBits) and field.interval(fact) is not None


def _shape(match: Match) -> Hashable:
    """Equal for matches of equal cost: an address counts by its length, ports by whether they are one."""
    if match.number is not None:
        return match.name, match.key
    if match.name or len(match.tests) != 1:
        tests = tuple(
            (field, values.pairs if _may_exclude_one(values.pairs) else _is_one(values.pairs))
            for field, values in match.tests
        )
        return match.name, match.native, match.either, tests, None if match.name else match.words
    *option, value = match.words or ("",)
    return (*option, value.partition("/")[2], match.tests[0].field)


def _is_one(pairs: tuple[tuple[int, int], ...]) -> bool:
    return len(pairs) == 1 and pairs[0][0] == pairs[0][1]


def _may_exclude_one(pairs: tuple[tuple[int, int], ...]) -> bool:
    """Whether the values outside of *pairs* may be a single one."""
    return len(pairs) != 1 or pairs[0][0] <= 1 or pairs[0][1] >= 0xFFFE


def _match(
    match: Match, place: dict[Dimension, int], figures: Figures, backend: Backend, family: Family
) -> tuple[list[tuple[int, float, float]], float]:
    """Of a match: each tested axis with the costs of failing and holding; and the cost of its other tests."""
    tests: list[tuple[int, float, float]] = []
    rest = 0.0
    for part in test_kinds.as_read(Rule((match,), None), backend).matches:
        kind = test_kinds.kind(part, backend, family)
        if not kind:
            continue
        cost = figures.test(kind)
        axes = sorted({place[test.field] for test in part.tests if test.field in place})
        if part.number is not None:
            axes += [at for field, at in place.items() if _limits(part.number, field)]
        if not axes:
            rest += cost.holds
        # A match of several fields is evaluated once.
        tests += [(at, cost.miss, cost.holds if first == 0 else 0.0) for first, at in enumerate(axes)]
    return tests, rest

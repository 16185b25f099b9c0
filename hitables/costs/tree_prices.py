"""A profile in the form that the tree builders take: what each rule costs to miss, what a test costs.

A tree is grown for the sum of what it costs and of the rules that it reads: the figures say what rules cost
that are near, and each rule read is one more to fetch from afar and to be surprised by (see walks.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import LENGTHS, Axis, Cut, Prices
from ..ir.fields import Family, Field
from ..ir.packet import Backend
from ..ir.rule import Match, Rule
from . import test_kinds
from .profile import Costs, Figures, MatchCost

Floats = npt.NDArray[np.float64]

# Of what a rule read costs, the share that is the same for all.  Legacy's tests differ little, and memory and
# surprise cost more than they do: with 0.8 the acl sets read a fiftieth more for 1 % of the time.  In nft 0.4
# reads a twelfth more for a tenth to a sixth of the time; below that reads go on growing, time does not fall.
EVEN = {Backend.LEGACY: 0.95, Backend.NFT: 0.4}

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
    """Rules, and axes of a tree over them, that are to be priced: looked through once for all backends."""

    def __init__(self, rules: Sequence[Rule], axes: Sequence[Axis], family: Family) -> None:
        self.axes, self.family, self.rules = axes, family, len(rules)
        place = {id(match): match for rule in rules for match in rule.matches}
        shapes: dict[Hashable, int] = {}
        number = {key: shapes.setdefault(_shape(match), len(shapes)) for key, match in place.items()}
        # One match of each shape, the first.
        first = {shape: key for key, shape in reversed(number.items())}
        self.matches = [place[first[shape]] for shape in range(len(shapes))]
        lengths = np.fromiter((len(rule.matches) for rule in rules), np.intp, len(rules))
        self.owner = np.repeat(np.arange(len(rules)), lengths)
        self.which = np.fromiter(
            (number[id(match)] for rule in rules for match in rule.matches), np.intp, len(self.owner)
        )
        targets = {id(rule.target): test_kinds.target_kind(rule.target) for rule in rules}
        self.targets = [targets[id(rule.target)] for rule in rules]
        self._costs: dict[int, tuple[Floats, Floats, Floats]] = {}

    def costs(self, figures: Figures, backend: Backend) -> tuple[Floats, Floats, Floats]:
        """Of each rule, in nanoseconds: its tests by axis, failing and holding; all else of it."""
        found = self._costs.get(id(figures))
        if found is None:
            found = self._costs[id(figures)] = _rules(self, figures, backend)
        return found


def prices(priced: Priced, costs: Costs, backends: Sequence[Backend]) -> Prices:
    """What the rules and tests of the axes cost on the mean of *backends*.

    In units of a test of an address that half of the packets pass; EVEN of that is the same for all rules.
    """
    made = [_of(priced, costs, backend, EVEN[backend]) for backend in backends]
    if len(made) == 1:
        return made[0]
    one, two = made
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
    """What the rules and tests of the axes cost in *backend*, in nanoseconds."""
    return _of(priced, costs, backend, None)


def _of(priced: Priced, costs: Costs, backend: Backend, even: float | None) -> Prices:
    axes, family, figures = priced.axes, priced.family, costs.of(backend)
    go = figures.target(test_kinds.GOTO)
    usual = figures.test("address/x")
    scale = 1.0 if even is None else (1 - even) / ((usual.miss + usual.holds + go) / 2)
    each = even or 0.0
    test = np.zeros((len(axes), LENGTHS, 2))
    for at, axis in enumerate(axes):
        for length, cost in _tests(axis, figures, backend, family):
            test[at, length] = each + scale * cost.miss, each + scale * (cost.holds + go)
    missed, holds, taken = priced.costs(figures, backend)
    return Prices(
        test,
        np.array(_in_order(axes, backend), np.uint32),
        np.where(missed > 0, each + scale * missed, 0),
        scale * holds,
        each + scale * taken,
        *(
            each + scale * figures.target(kind)
            for kind in (test_kinds.JUMP, test_kinds.GOTO, test_kinds.VERDICT)
        ),
    )


def _in_order(axes: Sequence[Axis], backend: Backend) -> list[int]:
    first = _ORDER[backend]
    place = {field: at for at, field in enumerate(first)}
    return sorted(range(len(axes)), key=lambda at: (place.get(axes[at].field, len(first)), at))


def _tests(axis: Axis, figures: Figures, backend: Backend, family: Family) -> list[tuple[int, MatchCost]]:
    """What a test of the axis costs, by the length of its prefix, or by whether it is for several values."""
    if axis.cut is Cut.NONE:
        return []
    if axis.cut is Cut.PREFIX:
        return [
            (length, figures.test(test_kinds.address(length, backend, family)))
            for length in range(axis.bits + 1)
        ]
    if axis.field in _PLAIN:
        return [(several, figures.test(_PLAIN[axis.field])) for several in (0, 1)]
    # A port or an ICMP type is written behind its protocol.
    before = figures.test("protocol").holds
    if backend is Backend.LEGACY or axis.field not in (Field.SPORT, Field.DPORT):
        match = figures.test("-m udp" if axis.field in (Field.SPORT, Field.DPORT) else "-m icmp")
        found = [match, match]
    else:
        found = [figures.test("port"), figures.test("ports")]
    return [(at, MatchCost(before + cost.miss, before + cost.holds)) for at, cost in enumerate(found)]


def _rules(priced: Priced, figures: Figures, backend: Backend) -> tuple[Floats, Floats, Floats]:
    place = {axis.field: at for at, axis in enumerate(priced.axes)}
    width, rules = len(priced.axes), priced.rules
    said = [_match(match, place, figures, backend, priced.family) for match in priced.matches]
    # By match: the axes that say it, as often as it has parts.
    parts = np.array([len(each) for each, _ in said], np.intp)
    first = np.cumsum(parts) - parts
    flat = np.array([part for each, _ in said for part in each], float).reshape(-1, 3)
    spent = np.array([left for _, left in said])
    owner, which = priced.owner, priced.which
    times = parts[which]
    start = np.cumsum(times) - times
    chosen = np.repeat(first[which] - start, times) + np.arange(times.sum())
    cells = np.repeat(owner, times) * width + flat[chosen, 0].astype(np.intp)
    missed = np.zeros(rules * width)
    missed[cells] = flat[chosen, 1]
    held = np.bincount(cells, flat[chosen, 2], rules * width).astype(float)
    target = {kind: figures.target(kind) for kind in set(priced.targets)}
    rest = np.bincount(owner, spent[which], rules) + [target[kind] for kind in priced.targets]
    return missed.reshape(rules, width), held.reshape(rules, width), rest


def _shape(match: Match) -> Hashable:
    """Equal for matches that cost the same: of an address its length counts, of a port whether it is one."""
    if match.name or len(match.tests) != 1:
        tests = tuple(
            (field, values.pairs if _is_edge(values.pairs) else _is_one(values.pairs))
            for field, values in match.tests
        )
        return match.name, match.native, match.either, tests, None if match.name else match.words
    *option, value = match.words or ("",)
    return (*option, value.partition("/")[2], match.tests[0].field)


def _is_one(pairs: tuple[tuple[int, int], ...]) -> bool:
    return len(pairs) == 1 and pairs[0][0] == pairs[0][1]


def _is_edge(pairs: tuple[tuple[int, int], ...]) -> bool:
    """Whether what lies outside of them may be a single value."""
    return len(pairs) != 1 or pairs[0][0] <= 1 or pairs[0][1] >= 0xFFFE


def _match(
    match: Match, place: dict[Field, int], figures: Figures, backend: Backend, family: Family
) -> tuple[list[tuple[int, float, float]], float]:
    found: list[tuple[int, float, float]] = []
    rest = 0.0
    for part in test_kinds.as_read(Rule((match,), None), backend).matches:
        kind = test_kinds.kind(part, backend, family)
        if not kind:
            continue
        cost = figures.test(kind)
        asked = sorted({place[test.field] for test in part.tests if test.field in place})
        if not asked:
            rest += cost.holds
        # A match that asks for several fields is called once.
        found += [(at, cost.miss, cost.holds if first == 0 else 0.0) for first, at in enumerate(asked)]
    return found, rest

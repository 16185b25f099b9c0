"""A profile in the form that the tree builders take: what each rule costs to miss, what a test costs.

A tree is grown for the sum of what it costs and of the rules that it reads: the figures say what rules cost
that are near, and each rule read is one more to fetch from afar and to be surprised by (see walks.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..build.tree import LENGTHS, Axis, Cut, Prices
from ..ir.fields import Family, Field
from ..ir.packet import Backend
from ..ir.rule import Match, Rule
from . import kinds
from .table import Costs, Figures, MatchCost

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
    Field.IIF: "interface", Field.OIF: "interface", Field.PROTO: "protocol", Field.FRAG: "fragment",
}  # fmt: skip


def prices(
    rules: Sequence[Rule], axes: Sequence[Axis], costs: Costs, backends: Sequence[Backend], family: Family
) -> Prices:
    """What *rules* and tests of *axes* cost on the mean of *backends*.

    In units of a test of an address that half of the packets pass; EVEN of that is the same for all rules.
    """
    made = [_of(rules, axes, costs, backend, family, EVEN[backend]) for backend in backends]
    if len(made) == 1:
        return made[0]
    one, two = made
    return Prices(
        (one.test + two.test) / 2, two.order, (one.missed + two.missed) / 2, (one.holds + two.holds) / 2,
        (one.taken + two.taken) / 2,
        (one.jump + two.jump) / 2, (one.go + two.go) / 2, (one.act + two.act) / 2,
    )  # fmt: skip


def nanoseconds(
    rules: Sequence[Rule], axes: Sequence[Axis], costs: Costs, backend: Backend, family: Family
) -> Prices:
    """What *rules* and tests of *axes* cost in *backend*, in nanoseconds."""
    return _of(rules, axes, costs, backend, family, None)


def _of(
    rules: Sequence[Rule], axes: Sequence[Axis], costs: Costs, backend: Backend, family: Family,
    even: float | None,
) -> Prices:  # fmt: skip
    figures = costs.of(backend)
    go = figures.target(kinds.GOTO)
    usual = figures.test("address/x")
    scale = 1.0 if even is None else (1 - even) / ((usual.miss + usual.holds + go) / 2)
    each = even or 0.0
    test = np.zeros((len(axes), LENGTHS, 2))
    for at, axis in enumerate(axes):
        for length, cost in _tests(axis, figures, backend, family):
            test[at, length] = each + scale * cost.miss, each + scale * (cost.holds + go)
    missed, holds, taken = _rules(rules, axes, figures, backend, family)
    return Prices(
        test,
        np.array(_in_order(axes, backend), np.uint32),
        np.where(missed > 0, each + scale * missed, 0), scale * holds, each + scale * taken,
        *(each + scale * figures.target(kind) for kind in (kinds.JUMP, kinds.GOTO, kinds.VERDICT)),
    )  # fmt: skip


def _in_order(axes: Sequence[Axis], backend: Backend) -> list[int]:
    first = _ORDER[backend]
    place = {field: at for at, field in enumerate(first)}
    return sorted(range(len(axes)), key=lambda at: (place.get(axes[at].field, len(first)), at))


def _tests(
    axis: Axis, figures: Figures, backend: Backend, family: Family
) -> list[tuple[int, MatchCost]]:
    """What a test of the axis costs, by the length of its prefix, or by whether it is for several values."""
    if axis.cut is Cut.NONE:
        return []
    if axis.cut is Cut.PREFIX:
        return [
            (length, figures.test(kinds.address(length, backend, family))) for length in range(axis.bits + 1)
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


def _rules(
    rules: Sequence[Rule], axes: Sequence[Axis], figures: Figures, backend: Backend, family: Family
) -> tuple[Floats, Floats, Floats]:
    """Of each rule: its tests by axis, failing and holding; all else of it."""
    place = {axis.field: at for at, axis in enumerate(axes)}
    width = len(axes)
    matches = {id(match): match for rule in rules for match in rule.matches}
    targets = {id(rule.target): rule.target for rule in rules}
    number = {key: at for at, key in enumerate(matches)}
    said = [_match(match, place, figures, backend, family) for match in matches.values()]
    # By match: the axes that say it, as often as it has parts.
    parts = np.array([len(each) for each, _ in said], np.intp)
    first = np.cumsum(parts) - parts
    flat = np.array([part for each, _ in said for part in each], float).reshape(-1, 3)
    spent = np.array([left for _, left in said])
    lengths = np.array([len(rule.matches) for rule in rules], np.intp)
    owner = np.repeat(np.arange(len(rules)), lengths)
    which = np.array([number[id(match)] for rule in rules for match in rule.matches], np.intp)
    times = parts[which]
    start = np.cumsum(times) - times
    chosen = np.repeat(first[which] - start, times) + np.arange(times.sum())
    cells = np.repeat(owner, times) * width + flat[chosen, 0].astype(np.intp)
    missed = np.zeros(len(rules) * width)
    missed[cells] = flat[chosen, 1]
    held = np.bincount(cells, flat[chosen, 2], len(rules) * width).astype(float)
    target = {key: figures.target(kinds.target_kind(each)) for key, each in targets.items()}
    rest = np.bincount(owner, spent[which], len(rules)) + [target[id(rule.target)] for rule in rules]
    return missed.reshape(len(rules), width), held.reshape(len(rules), width), rest


def _match(
    match: Match, place: dict[Field, int], figures: Figures, backend: Backend, family: Family
) -> tuple[list[tuple[int, float, float]], float]:
    found: list[tuple[int, float, float]] = []
    rest = 0.0
    for part in kinds.as_read(Rule((match,), None), backend).matches:
        kind = kinds.kind(part, backend, family)
        if not kind:
            continue
        cost = figures.test(kind)
        asked = sorted({place[test.field] for test in part.tests if test.field in place})
        if not asked:
            rest += cost.holds
        # A match that asks for several fields is called once.
        found += [(at, cost.miss, cost.holds if first == 0 else 0.0) for first, at in enumerate(asked)]
    return found, rest

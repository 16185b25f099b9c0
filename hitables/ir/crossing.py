"""Rules of two kinds by turns, each kind with a field of its own: which of them a packet matches comes first.

A list that blocks each host as source and as destination has such rules, and so have the ports of a bridge,
in and out.  A tree over both fields has their product, and a tree for each field reads its rules in another
order than the list.  But the order is told only by packets that match rules of both kinds, and these are
few.

Law: let no rule of a list ask a memory or chance, nor test what a rule of its table may write.  Then whether
a rule matches a packet does not depend on when it is read.  So the list does what its rules of one kind do,
in their order, to each packet that matches no rule of the other; and the list is equal to this: packets that
match a rule of the first kind and a rule of the second read the list, those that match a rule of the first
alone read the rules of the first, all others read the rules of the second.  Where broken headers may be
dropped that the list accepts, its matches may be evaluated early, as they drop nothing else.

Callers: ir/arrangement.py.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .counting import GROUP
from .narrow_fields import BITS, BOUND
from .program import Table
from .rule import Metadata, Role, Rule
from .semantics import FIELDS_WRITTEN

# Rules before which the kind changes, at least: where it changes less often, trees serve as they are.
TURNS = 8
# At most one rule in so many limits the fields of both kinds.
FEW_OF_BOTH = 8


@dataclass(frozen=True, slots=True)
class Crossing:
    """Consecutive rules of a list, *start* to *end*, whose *kinds* have fields of their own.

    kinds  by rule: 0 for the first kind, 1 for the second
    """

    start: int
    end: int
    kinds: tuple[int, ...]

    def of_kind(self, kind: int) -> list[int]:
        """The rules of a kind, as indexes from *start*."""
        return [at for at, each in enumerate(self.kinds) if each == kind]


def crossings(
    rules: Sequence[Rule], narrow: Sequence[int], table: Table, bounds: Sequence[int]
) -> list[Crossing]:
    """The parts of *rules*, of a chain of *table*, in which rules of two kinds cross.

    narrow  by rule: the fields that it limits (narrow_fields.py)
    bounds  where a part ends in any case
    """
    found = _parts(narrow, bounds)
    if not found:
        return []
    states = written_by(table)
    return [each for each in found if not _changes(rules[each.start : each.end], states)]


def written_by(table: Table) -> frozenset[Metadata]:
    """The states that the rules of *table* may write."""
    matches = {id(match): match for chain in table.chains for rule in chain.rules for match in rule.matches}
    targets = {id(rule.target): rule.target for chain in table.chains for rule in chain.rules}
    by_matches = (match.writes for match in matches.values())
    return frozenset().union(*by_matches, *(Rule((), target).writes for target in targets.values()))


def _changes(rules: Sequence[Rule], states: frozenset[Metadata]) -> bool:
    """Whether writing *states* may change which of *rules* match a packet."""
    if not states:
        return False
    fields = frozenset(field for state in states for field in FIELDS_WRITTEN.get(state, ()))
    matches = {id(match): match for rule in rules for match in rule.matches}
    return any(
        (match.role is Role.CONSTANT and not match.reads.isdisjoint(states))
        or any(test.field in fields for test in match.tests)
        for match in matches.values()
    )


def _parts(narrow: Sequence[int], bounds: Sequence[int]) -> list[Crossing]:
    """The longest parts that do not overlap, in their order."""
    if len(narrow) < 2 * GROUP:
        return []
    # As bytes, which are counted and split without a loop.
    fields = bytes(each if each != BOUND else 0 for each in narrow)
    counts = {each: fields.count(each) for each in set(fields)}
    found: list[Crossing] = []
    for one, two in itertools.combinations(BITS.values(), 2):
        if min(_size(counts, one, two), _size(counts, two, one)) >= GROUP:
            found += _of_pair(fields.translate(_kinds(one, two)), bounds)
    chosen: list[Crossing] = []
    for part in sorted(found, key=lambda each: each.start - each.end):
        if all(part.end <= each.start or each.end <= part.start for each in chosen):
            chosen.append(part)
    return sorted(chosen, key=lambda each: each.start)


def _size(counts: Mapping[int, int], one: int, other: int) -> int:
    """How many rules limit field *one* and not the *other*."""
    return sum(count for fields, count in counts.items() if fields & (one | other) == one)


# A rule that limits the fields of both kinds, and one that limits neither.
_BOTH, _NEITHER = 2, 3


@functools.cache
def _kinds(one: int, two: int) -> bytes:
    """By fields that a rule limits: 0 for field *one*, 1 for field *two*, _BOTH or _NEITHER."""
    kind_of = {0: _NEITHER, one: 0, two: 1, one | two: _BOTH}
    return bytes(kind_of[fields & (one | two)] for fields in range(256))


def _of_pair(kinds: bytes, bounds: Sequence[int]) -> Iterator[Crossing]:
    """The parts without a rule of kind _NEITHER that have rules of the two kinds, by turns.

    A rule that limits both fields counts as one of the first kind, if such rules are few.
    """
    for first, last in itertools.pairwise(sorted({0, *bounds, len(kinds)})):
        start = first
        for own in kinds[first:last].split(bytes([_NEITHER])):
            end = start + len(own)
            if len(own) >= 2 * GROUP and _cross(own):
                yield Crossing(start, end, tuple(own.replace(bytes([_BOTH]), b"\0")))
            start = end + 1


def _cross(kinds: bytes) -> bool:
    alone = kinds.replace(bytes([_BOTH]), b"")
    turns = alone.count(b"\0\1") + alone.count(b"\1\0")
    few = FEW_OF_BOTH * (len(kinds) - len(alone)) <= len(kinds)
    return turns >= TURNS and min(alone.count(0), alone.count(1)) >= GROUP and few

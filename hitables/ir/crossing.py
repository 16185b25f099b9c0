"""Rules of several kinds by turns, each kind with a field of its own: which a packet matches is told first.

A list that blocks each host as source and as destination has two kinds, and so have the ports of a bridge, in
and out.  A tree over both fields has their product, and a tree for each field reads its rules in another
order than the list.  But the order is told only by packets that match rules of two kinds, and these are few.

Law: let no rule of a list ask a memory or chance, nor test what a rule of its table may write.  Then whether
a rule matches a packet does not depend on when it is read, and to a packet that matches rules of one kind
only the list does what these do, in their order.  So the list is equal to each of these:
- of two kinds: packets that match a rule of the first kind and one of the second read the list, those that
  match a rule of the first alone read the rules of the first, all others read the rules of the second;
- of any number, if each rule of all kinds but the last surely ends the way of its packets: the rules of the
  kinds are read in turn, and before each rule packets that it matches go to the list if they match a rule of
  a later kind, too.  There they end, since that rule is in the list.  Other packets match no rule of another
  kind, or they had ended before.
Of two kinds, where each rule of the first surely ends the way of its packets, a packet need not read all of
the list: if its first match of the second kind stands behind some place, it matches no rule of that kind
before the place; so it may read the rules of the first kind that stand there, and then the list behind it.
Where broken headers may be dropped that the list accepts, its matches may be evaluated early, as they drop
nothing else.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .commuting import GROUP
from .fields import Family
from .narrow_fields import BITS, BOUND, may_drop
from .program import Table
from .rule import Match, Metadata, Role, Rule
from .semantics import FIELDS_WRITTEN

# Rules before which the kind changes, at least: where it changes less often, trees serve as they are.
TURNS = 8
# Most kinds of rules that are told apart.
MOST_KINDS = 4
# At most one rule in so many limits the fields of both kinds.
FEW_OF_BOTH = 8


@dataclass(frozen=True, slots=True)
class Crossing:
    """Consecutive rules of a list, *start* to *end*, whose *kinds* have fields of their own.

    kinds  by rule: the number of its kind, from 0
    drops  whether matches of the rules may drop broken headers, so that reading them early may drop more
    """

    start: int
    end: int
    kinds: tuple[int, ...]
    drops: bool = False

    def by_kind(self) -> list[list[int]]:
        """The rules of each kind, as indexes from *start*."""
        found: list[list[int]] = [[] for _ in range(max(self.kinds) + 1)]
        for at, kind in enumerate(self.kinds):
            found[kind].append(at)
        return found


def crossings(
    rules: Sequence[Rule], narrow: Sequence[int], table: Table, family: Family, bounds: Sequence[int]
) -> list[Crossing]:
    """The parts of *rules*, of a chain of *table*, in which rules of several kinds cross.

    narrow  by rule: the fields that it limits (narrow_fields.py)
    bounds  where a part ends in any case
    """
    found = _parts(narrow, bounds)
    if not found:
        return []
    states = table.states_written()
    parts = []
    for each in found:
        matches = {id(match): match for rule in rules[each.start : each.end] for match in rule.matches}
        if not _changes(matches.values(), states):
            drops = any(may_drop(match, family) for match in matches.values())
            parts.append(replace(each, drops=drops))
    return parts


def _changes(matches: Iterable[Match], states: frozenset[Metadata]) -> bool:
    """Whether writing *states* may change the answer of a match."""
    fields = frozenset(field for state in states for field in FIELDS_WRITTEN.get(state, ()))
    return any(
        (match.role is Role.CONSTANT and not match.reads.isdisjoint(states))
        or any(test.field in fields for test in match.tests)
        for match in matches
    )


def _parts(narrow: Sequence[int], bounds: Sequence[int]) -> list[Crossing]:
    """The longest parts that do not overlap, in their order."""
    if len(narrow) < 2 * GROUP:
        return []
    # As bytes, which are counted and split without a loop.
    every = sum(BITS.values())
    fields = bytes(each & every if each != BOUND else 0 for each in narrow)
    counts = {each: fields.count(each) for each in set(fields)}
    found: list[Crossing] = []
    for one, two in itertools.combinations(BITS.values(), 2):
        if min(_size(counts, one, two), _size(counts, two, one)) >= GROUP:
            found += _of_pair(fields.translate(_kinds(one, two)), bounds)
    found += _of_many(fields, bounds)
    chosen: list[Crossing] = []
    _choose(chosen, found)
    # Between those, there may be shorter ones.
    _choose(chosen, _of_many(fields, [*bounds, *(end for each in chosen for end in (each.start, each.end))]))
    return sorted(chosen, key=lambda each: each.start)


def _choose(chosen: list[Crossing], found: Iterable[Crossing]) -> None:
    """Add those of *found* that overlap none, the most worth first."""
    for part in sorted(found, key=lambda each: -_worth(each)):
        if all(part.end <= each.start or each.end <= part.start for each in chosen):
            chosen.append(part)


def _worth(part: Crossing) -> int:
    """A part of two kinds goes before one of more kinds that is less than twice as long."""
    return (part.end - part.start) * (2 if max(part.kinds) < 2 else 1)


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


def _of_many(fields: bytes, bounds: Sequence[int]) -> Iterator[Crossing]:
    """The parts whose rules all limit some field, and have three kinds or more, by turns."""
    for first, last in itertools.pairwise(sorted({0, *bounds, len(fields)})):
        start = first
        for own in fields[first:last].split(b"\0"):
            end = start + len(own)
            kind_of = _cover(own) if len(own) >= 2 * GROUP else {}
            if len(set(kind_of.values())) > 2:
                kinds = own.translate(bytes(kind_of.get(each, 0) for each in range(256)))
                if sum(map(int.__ne__, kinds, kinds[1:])) >= TURNS:
                    yield Crossing(start, end, tuple(kinds))
            start = end + 1


def _cover(fields: bytes) -> dict[int, int]:
    """By fields that rules limit: their kind, that of the one which most rules limit of those left over.

    Nothing where that are more than MOST_KINDS, or one of too few rules.
    """
    left = {each: fields.count(each) for each in set(fields)}
    kind_of: dict[int, int] = {}
    for kind in range(MOST_KINDS):
        sizes = {bit: sum(count for each, count in left.items() if each & bit) for bit in BITS.values()}
        bit = max(sizes, key=lambda each: sizes[each])
        if sizes[bit] < GROUP:
            return {}
        kind_of.update((each, kind) for each in left if each & bit)
        left = {each: count for each, count in left.items() if not each & bit}
        if not left:
            return kind_of
    return {}

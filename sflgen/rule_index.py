"""The list of a section, indexed so that the rules that may concern a region are found without a walk.

Invariant: row *i* holds, for five header fields, an interval outside of which rule *i* has no effect on
any packet.  The index may report rules that do not concern a region, never the reverse; region.py
decides about those it reports.  An update changes one column of the arrays and copies the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hitables.ir.fields import Family, Field, top
from hitables.ir.rule import Match, Metadata, Rule
from hitables.ir.semantics import FIELDS_WRITTEN

from .region import Region

_FIELDS = (Field.SRC, Field.DST, Field.PROTO, Field.IIF, Field.OIF)
_ROW = {field: row for row, field in enumerate(_FIELDS)}
_TOP = (1 << 64) - 1

Bounds = npt.NDArray[np.uint64]
Hull = dict[int, tuple[int, int]]  # by index of the field: lowest and highest value
# Of a match: field, lowest, highest value; and whether later matches add nothing.
MatchHull = tuple[tuple[tuple[int, int, int], ...], bool]
Writes = Callable[[Rule], frozenset[Metadata]]


def fields_written(written: Set[Metadata]) -> frozenset[Field]:
    """The header fields that writing *written* may change."""
    return frozenset().union(*(FIELDS_WRITTEN.get(item, frozenset()) for item in written))


@dataclass(frozen=True, slots=True)
class RuleIndex:
    """Rules in order.

    low, high  a row for each of FIELDS, a column for each rule
    acts       by rule: 0 if it neither enters a chain nor writes, else a number for its target and writes
    actors     one rule for each of these numbers; shared by all lists that were one, and only added to
    """

    FIELDS: ClassVar = _FIELDS

    rules: tuple[Rule, ...]
    family: Family
    low: Bounds
    high: Bounds
    acts: npt.NDArray[np.int64]
    actors: Actors

    @classmethod
    def of(cls, rules: Sequence[Rule], family: Family, actors: Actors | None = None) -> RuleIndex:
        low = np.zeros((len(_FIELDS), len(rules)), np.uint64)
        high = np.full((len(_FIELDS), len(rules)), _TOP, np.uint64)
        for at, rule in enumerate(rules):
            for row, (first, last) in hull(rule, family).items():
                low[row, at], high[row, at] = first, last
        actors = actors or Actors()
        acts = np.array([actors.number(rule) for rule in rules], np.int64)
        return cls(tuple(rules), family, low, high, acts, actors)

    def with_rule(self, at: int, rule: Rule) -> RuleIndex:
        """The list with *rule* inserted at index *at*."""
        single = RuleIndex.of([rule], self.family, self.actors)
        low, high = (
            np.concatenate((old[:, :at], new, old[:, at:]), axis=1)
            for old, new in ((self.low, single.low), (self.high, single.high))
        )
        rules = (*self.rules[:at], rule, *self.rules[at:])
        acts = np.insert(self.acts, at, single.acts[0])
        return RuleIndex(rules, self.family, low, high, acts, self.actors)

    def without(self, at: int) -> RuleIndex:
        """The list without the rule at index *at*."""
        low, high = (np.concatenate((old[:, :at], old[:, at + 1 :]), axis=1) for old in (self.low, self.high))
        rules = (*self.rules[:at], *self.rules[at + 1 :])
        return RuleIndex(rules, self.family, low, high, np.delete(self.acts, at), self.actors)

    def written_before(self, at: int, writes: Writes) -> frozenset[Field]:
        """The header fields that a rule before index *at* may change."""
        written: set[Metadata] = set()
        for rule in self.acting(at):
            written |= writes(rule)
        return fields_written(written)

    def acting(self, end: int | None = None) -> list[Rule]:
        """Of the rules before index *end* that enter a chain or write, one for each target and writes."""
        return [
            self.actors.rules[number] for number in np.flatnonzero(np.bincount(self.acts[:end])) if number
        ]

    def relevant(
        self, region: Region, writes: Writes, start: int = 0, deciding: Container[str] = ()
    ) -> tuple[list[int], bool]:
        """The indices, from *start*, of the rules that may have an effect on packets of *region*, up to the
        first that decides about all of them; and whether there is one that does.

        *deciding*: the user chains that surely decide.
        """
        indices: list[int] = []
        dirty: frozenset[Field] = frozenset()
        while True:
            near = self.near(region, dirty, start)
            may_end = self._covers(region, near).tolist()
            escaped = region.escaped((self.rules[at] for at in near), dirty)
            for at, ends, escapes in zip(near.tolist(), may_end, escaped, strict=True):
                if escapes:
                    continue
                rule = self.rules[at]
                indices.append(at)
                if ends and region.ends_in(rule, dirty, deciding):
                    return indices, True
                if self.acts[at]:
                    more = fields_written(writes(rule)) - dirty
                    dirty |= more
                    if more & frozenset(_FIELDS):
                        start = at + 1
                        break
            else:
                return indices, False

    def _covers(self, region: Region, near: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Which of the rules *near* cover the region in all fields; no other one decides about all of it."""
        covers = np.ones(len(near), bool)
        for row, field in enumerate(_FIELDS):
            values = region.values(field)
            highest = _upper_half(top(field, self.family), field, self.family)
            first, last = (
                (_upper_half(end, field, self.family) for end in values.hull()) if values else (0, highest)
            )
            covers &= (self.low[row, near] <= np.uint64(first)) & (self.high[row, near] >= np.uint64(last))
        return covers

    def with_bounds_of(self, at: int, near: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Those of the rules *near* whose intervals are those of the rule at index *at*."""
        same = (self.low[:, near] == self.low[:, [at]]) & (self.high[:, near] == self.high[:, [at]])
        return near[np.flatnonzero(same.all(axis=0))]

    def share(self, region: Region) -> float:
        """The estimated share of packets that are in *region*.

        Every rule weighs the same, with its packets spread evenly over its box in the five fields.
        """
        near = self.near(region, frozenset(), 0)
        inside = np.ones(len(near))
        for row, field in enumerate(_FIELDS):
            values = region.values(field)
            if not values:
                continue
            first, last = (float(_upper_half(end, field, self.family)) for end in values.hull())
            low, high = self.low[row, near].astype(float), self.high[row, near].astype(float)
            high = np.minimum(high, float(_upper_half(top(field, self.family), field, self.family)))
            inside *= np.clip((np.minimum(high, last) - np.maximum(low, first) + 1) / (high - low + 1), 0, 1)
        return float(inside.sum()) / max(1, len(self.rules))

    def near(self, region: Region, dirty: Set[Field], start: int = 0) -> npt.NDArray[np.intp]:
        """Indices from *start* of the rules whose intervals meet the region in fields other than *dirty*."""
        meets = np.ones(len(self.rules) - start, bool)
        for row, field in enumerate(_FIELDS):
            values = region.values(field)
            if values is None or field in dirty:
                continue
            if field is Field.PROTO and self.family is Family.IPV6 and not region.walked:
                continue  # the test of the protocol may drop the packet
            if not values:
                continue
            first, last = (np.uint64(_upper_half(end, field, self.family)) for end in values.hull())
            meets &= (self.low[row, start:] <= last) & (self.high[row, start:] >= first)
        return np.flatnonzero(meets) + start


def _upper_half(value: int, field: Field, family: Family) -> int:
    """The upper 64 bits of a field of 128 bits; other values unchanged."""
    is_wide = field in (Field.IIF, Field.OIF) or (family is Family.IPV6 and field in (Field.SRC, Field.DST))
    return value >> 64 if is_wide else value


def hull(rule: Rule, family: Family) -> Hull:
    """By field: the interval outside of which *rule* has no effect."""
    return joined([match_hull(match, family) for match in rule.matches])


def match_hull(match: Match, family: Family) -> MatchHull:
    """What a match adds to the hull of a rule."""
    if match.name:
        return (), True  # an extension may drop the packet or use memory; header options are tested first
    bounds: list[tuple[int, int, int]] = []
    if not match.either:
        for test in match.tests:
            row = _ROW.get(test.field)
            if row is not None and test.values:
                pairs = test.values.pairs
                low = _upper_half(pairs[0][0], test.field, family)
                bounds.append((row, low, _upper_half(pairs[-1][1], test.field, family)))
    return tuple(bounds), family is Family.IPV6 and match.is_protocol


def joined(hulls: Sequence[MatchHull]) -> Hull:
    """The hull of a rule whose matches have *hulls*."""
    hull: Hull = {}
    for bounds, is_last in hulls:
        for row, low, high in bounds:
            first, last = hull.get(row, (low, high))
            hull[row] = (max(low, first), min(high, last))
        if is_last:
            break
    return hull


class Actors:
    """Rules that enter a chain or write: numbers from 1, equal for the same target and writes."""

    def __init__(self) -> None:
        self.rules: list[Rule] = [Rule((), None)]
        self._numbers: dict[tuple[str, frozenset[Metadata]], int] = {}

    def number(self, rule: Rule) -> int:
        """The number of *rule*; 0 if it neither enters a chain nor writes."""
        target, writes = rule.target, rule.writes
        if not writes and rule.enters is None:
            return 0
        key = target.key if target is not None else "", writes
        if key not in self._numbers:
            self._numbers[key] = len(self.rules)
            self.rules.append(rule)
        return self._numbers[key]

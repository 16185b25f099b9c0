"""The list of a section, kept so that the rules that may meet a region are found at once.

Invariant: row *i* holds, for five header fields, an interval outside of which rule *i* does
nothing to any packet; what is not told apart by these is looked at by region.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hitables.ir.fields import Family, Field, top
from hitables.ir.rule import Kind, Rule, State
from hitables.ir.semantics import FIELDS_WRITTEN

from .region import Region

_FIELDS = (Field.SRC, Field.DST, Field.PROTO, Field.IIF, Field.OIF)
_COLUMN = {field: column for column, field in enumerate(_FIELDS)}
_TOP = (1 << 64) - 1

Rows = npt.NDArray[np.uint64]
Writes = Callable[[Rule], frozenset[State]]


def fields_written(states: Set[State]) -> frozenset[Field]:
    """The header fields that writing *states* may change."""
    return frozenset().union(*(FIELDS_WRITTEN.get(state, frozenset()) for state in states))


@dataclass(frozen=True, slots=True)
class Listing:
    """Rules in order.  *low*, *high*: a column per rule; *acts*: it jumps or writes."""

    FIELDS: ClassVar = _FIELDS

    rules: tuple[Rule, ...]
    family: Family
    low: Rows
    high: Rows
    acts: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, rules: Sequence[Rule], family: Family) -> Listing:
        low = np.zeros((len(_FIELDS), len(rules)), np.uint64)
        high = np.full((len(_FIELDS), len(rules)), _TOP, np.uint64)
        for at, rule in enumerate(rules):
            for column, (first, last) in hull(rule, family).items():
                low[column, at], high[column, at] = first, last
        return cls(tuple(rules), family, low, high, np.array([_acts(rule) for rule in rules], bool))

    def with_rule(self, at: int, rule: Rule) -> Listing:
        """The list with *rule* before place *at*."""
        one = Listing.of([rule], self.family)
        low, high = (
            np.concatenate((old[:, :at], new, old[:, at:]), axis=1)
            for old, new in ((self.low, one.low), (self.high, one.high))
        )
        rules = (*self.rules[:at], rule, *self.rules[at:])
        return Listing(rules, self.family, low, high, np.insert(self.acts, at, one.acts[0]))

    def without(self, at: int) -> Listing:
        """The list without the rule at place *at*."""
        low, high = (np.concatenate((old[:, :at], old[:, at + 1 :]), axis=1) for old in (self.low, self.high))
        rules = (*self.rules[:at], *self.rules[at + 1 :])
        return Listing(rules, self.family, low, high, np.delete(self.acts, at))

    def written_before(self, at: int, writes: Writes) -> frozenset[Field]:
        """The header fields that a rule before place *at* may change."""
        states: set[State] = set()
        for place in np.flatnonzero(self.acts[:at]):
            states |= writes(self.rules[place])
        return fields_written(states)

    def on(self, region: Region, writes: Writes, start: int = 0) -> tuple[list[int], bool]:
        """The places, from *start* on, of the rules that may do something to packets of *region*, up to the
        first that ends the way of them all; and whether there is one."""
        found: list[int] = []
        dirty: frozenset[Field] = frozenset()
        while True:
            for place in self.near(region, dirty, start):
                rule = self.rules[place]
                if region.escapes(rule, dirty):
                    continue
                found.append(int(place))
                if region.ends_in(rule, dirty):
                    return found, True
                if self.acts[place]:
                    more = fields_written(writes(rule)) - dirty
                    dirty |= more
                    if more & frozenset(_FIELDS):
                        start = int(place) + 1
                        break
            else:
                return found, False

    def share(self, region: Region) -> float:
        """The share of the packets that are in *region*: each rule's packets weigh alike, spread evenly over
        what the five fields say of its box."""
        near = self.near(region, frozenset(), 0)
        inside = np.ones(len(near))
        for column, field in enumerate(_FIELDS):
            known = region.values(field)
            if not known:
                continue
            first, last = (float(_short(end, field, self.family)) for end in known.hull())
            low, high = self.low[column, near].astype(float), self.high[column, near].astype(float)
            high = np.minimum(high, float(_short(top(field, self.family), field, self.family)))
            inside *= np.clip((np.minimum(high, last) - np.maximum(low, first) + 1) / (high - low + 1), 0, 1)
        return float(inside.sum()) / max(1, len(self.rules))

    def near(self, region: Region, dirty: Set[Field], start: int = 0) -> npt.NDArray[np.intp]:
        """Places from *start* on whose intervals meet the region, fields of *dirty* apart."""
        meets = np.ones(len(self.rules) - start, bool)
        for column, field in enumerate(_FIELDS):
            known = region.values(field)
            if known is None or field in dirty:
                continue
            if field is Field.PROTO and self.family is Family.IPV6 and not region.walked:
                continue  # asking for the protocol may drop
            if not known:
                continue
            first, last = (np.uint64(_short(end, field, self.family)) for end in known.hull())
            meets &= (self.low[column, start:] <= last) & (self.high[column, start:] >= first)
        return np.flatnonzero(meets) + start


def _short(value: int, field: Field, family: Family) -> int:
    """The upper half of what takes 128 bits."""
    wide = field in (Field.IIF, Field.OIF) or (family is Family.IPV6 and field in (Field.SRC, Field.DST))
    return value >> 64 if wide else value


def hull(rule: Rule, family: Family) -> dict[int, tuple[int, int]]:
    """By column: the interval outside of which *rule* does nothing."""
    found: dict[int, tuple[int, int]] = {}
    for match in rule.matches:
        if match.name:
            break  # an extension may drop or ask; header options come first
        if not match.either:
            for test in match.tests:
                column = _COLUMN.get(test.field)
                if column is not None and test.values:
                    pairs = test.values.pairs
                    low = _short(pairs[0][0], test.field, family)
                    high = _short(pairs[-1][1], test.field, family)
                    if column in found:
                        low, high = max(low, found[column][0]), min(high, found[column][1])
                    found[column] = (low, high)
        if family is Family.IPV6 and match.is_protocol:
            break
    return found


def _acts(rule: Rule) -> bool:
    target = rule.target
    return bool(rule.writes) or (target is not None and target.kind is Kind.JUMP)

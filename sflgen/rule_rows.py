"""Rules as rows of arrays, so that a proof selects thousands of them without a step of Python for each.

A rule gets a row when it is first asked for and keeps it; matches, tests and targets are numbered once,
equal ones alike.  region_encoding.py selects rows and hands them to the prover.

Invariant: a row is that of one rule object, which the table keeps alive; rows are only added.  So a table
may be shared by all states, and a chain's rows are those of its tuple of rules.  The owner begins a new
table when this one has become `is_large`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.core.prover import MOST_EVENTS, MOST_TESTS, ProveAction, ProveOp
from hitables.ir.fact import Fact
from hitables.ir.fields import Family, Field, top
from hitables.ir.packet import Backend
from hitables.ir.program import Table
from hitables.ir.rule import Kind, Match, Metadata, Role, Rule, Target
from hitables.verify.match_table import mask

from .chain_names import GeneratedNames
from .chain_rows import ChainRows, rows_after
from .rule_index import MatchHull, RuleIndex, joined, match_hull

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# A table with more rows holds mostly rules that are gone: 10,000 rules and their tree are 30,000 rows.
MOST_ROWS = 400_000

_WHOLE = 0, (1 << 64) - 1


class Column:
    """An array that grows at its end."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._room: npt.NDArray[Any] = np.zeros(1024, dtype)
        self._size = 0
        self.new: list[Any] = []  # to be added when the array is looked at

    @property
    def values(self) -> npt.NDArray[Any]:
        if self.new:
            size = self._size + len(self.new)
            if size > len(self._room):
                room = np.zeros(max(size, 2 * len(self._room)), self._room.dtype)
                room[: self._size] = self._room[: self._size]
                self._room = room
            self._room[self._size : size] = self.new
            self._size = size
            self.new = []
        return self._room[: self._size]


class Rows:
    """Sequences of numbers, one after the other: those of item *i* lie between starts[i] and starts[i+1]."""

    def __init__(self, dtype: npt.DTypeLike = np.int64) -> None:
        self._starts, self._items = Column(np.int64), Column(dtype)
        self._starts.new.append(0)
        self._end = 0

    def append(self, sequence: Sequence[Any]) -> None:
        self._items.new += sequence
        self._end += len(sequence)
        self._starts.new.append(self._end)

    def of(self, numbers: Ints) -> tuple[npt.NDArray[Any], Ints]:
        """The sequences of the items *numbers*, one after the other, and the length of each."""
        all_starts = self._starts.values
        starts = all_starts[numbers]
        sizes = all_starts[numbers + 1] - starts
        ends = np.cumsum(sizes)
        at = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
        return self._items.values[at], sizes


class MatchNumbers:
    """Numbers of matches and of their tests; equal ones have one number.

    field   by test: its field, or len(Field) for a fact
    pairs   by test: its intervals, as low, high + 1; those of a field wider than 63 bits are in `tests` alone
    code    by backend, by match: steps of the prover (core/prover.py, Op), with numbers of tests
    needs   by match: what packet_classes.needs_of reads of it; None: nothing
    hulls   by match: its share of the hull of a rule (rule_index.py)
    keys    of the matches with memory or chance
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.matches: list[Match] = []
        self.tests: list[tuple[int, Any]] = []
        self.fact_reads: dict[Fact, frozenset[Metadata]] = {}
        self.keys: dict[str, int] = {}
        self.field, self.pairs = Column(np.int64), Rows(np.int64)
        self.code = {backend: Rows(np.int64) for backend in Backend}
        self.role, self.writes = Column(np.int64), Column(np.int64)
        self.needs: list[tuple[Any, ...] | None] = []
        self.hulls: list[MatchHull] = []
        self._by_id: dict[int, int] = {}
        self._kept: list[Match] = []  # the objects of _by_id
        self._by_reading: dict[tuple[Any, ...], int] = {}
        self._test_of: dict[tuple[Any, ...], int] = {}

    def number(self, match: Match) -> int:
        known = self._by_id.get(id(match))
        if known is None:
            reading = (
                tuple((field, values.pairs) for field, values in match.tests), match.role, match.native,
                match.needs, match.strict, match.option, match.either, match.is_protocol,
                None if match.role is Role.SPACE else match.key, match.writes, not match.name,
            )  # fmt: skip
            known = self._by_reading.get(reading)
            if known is None:
                known = self._by_reading[reading] = len(self.matches)
                self._add(match)
            self._by_id[id(match)] = known
            self._kept.append(match)
        return known

    def is_wide(self, field: int) -> bool:
        """Whether the field's values do not fit in 63 bits."""
        return field < len(Field) and top(Field(field), self.family) >> 63 > 0

    def _test(self, field: int, content: Any) -> int:
        """The number of the test for intervals of a field, or for a fact."""
        number = self._test_of.get((field, content))
        if number is None:
            number = self._test_of[field, content] = len(self.tests)
            self.field.new.append(field)
            self.tests.append((field, content))
            is_narrow = field < len(Field) and not self.is_wide(field)
            self.pairs.append([end for low, high in content for end in (low, high + 1)] if is_narrow else ())
        return number

    def _add(self, match: Match) -> None:
        own = [self._test(int(field), values.pairs) for field, values in match.tests]
        fact = event = 0
        if match.role is Role.CONSTANT:
            self.fact_reads.setdefault(match.fact, match.reads)
            fact = self._test(len(Field), match.fact)
        elif match.role is not Role.SPACE:
            event = self.keys.setdefault(match.key, len(self.keys))
        for backend, codes in self.code.items():
            codes.append(_code(match, own, fact, event, backend))
        self.role.new.append(int(match.role))
        self.writes.new.append(mask(match.writes))
        self.needs.append(_need(match))
        self.hulls.append(match_hull(match, self.family))
        self.matches.append(match)


def _code(match: Match, own: list[int], fact: int, event: int, backend: Backend) -> list[int]:
    """The steps of a match, as in hitables/verify/match_table.py; tests have numbers of MatchNumbers."""
    code: list[int] = []
    native = match.native and backend is Backend.NFT
    if match.is_protocol:
        code += (ProveOp.CUT, 0)
    if match.needs and not native:
        code += (ProveOp.NEED, match.needs | match.strict << 16)
    if match.either:
        code += (ProveOp.EITHER, len(own)) if own else (ProveOp.NEVER, 0)
    for test in own:
        code += (ProveOp.NATIVE if native else ProveOp.TEST, test)
    if match.option:
        code += (ProveOp.OPTION, 0)
    if match.role is Role.CONSTANT:
        code += (ProveOp.TEST, fact)
    elif match.role is not Role.SPACE:
        code += (ProveOp.EVENT, event << 1 | (match.role is Role.ONCE))
        if match.writes:
            code += (ProveOp.WRITE, mask(match.writes))
    return code


class RuleRows:
    """The table: one row for each rule that was asked for.

    low, high  by field of RuleIndex.FIELDS, by row: the hull of the rule (rule_index.py)
    matches    by row: numbers of its matches
    kind       by row: what packet_classes.needs_of reads of the rule, as a number; 0: nothing
    needing    by kind: the matches of one such rule
    action     by row: what its target does; `argument`: the number of the verdict, effect or chain
    spelling   by row: a number, the same for rules with the same matches and target as they are spelt
    enters     by row: its target enters a chain
    leaves     by row: no packet that it matches reads the next rule
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.numbers = MatchNumbers(family)
        self.rules: list[Rule] = []
        fields = range(len(RuleIndex.FIELDS))
        self.low, self.high = ([Column(np.uint64) for _ in fields] for _ in range(2))
        self.matches = Rows()
        self.kind, self.too_long = Column(np.int64), Column(np.bool_)
        self.action, self.argument = Column(np.int64), Column(np.int64)
        self.writes, self.enters, self.leaves = Column(np.int64), Column(np.bool_), Column(np.bool_)
        self.spelling = Column(np.int64)
        self._spellings: dict[tuple[str, ...], int] = {}
        self.verdicts: dict[str, int] = {}
        self.effects: dict[str, int] = {}
        self.chains: dict[str, int] = {}
        self.chain_names: list[str] = []
        self.needing: list[tuple[Match, ...]] = [()]
        self._kind_of: dict[tuple[Any, ...], int] = {(): 0}
        self._row_of: dict[int, int] = {}
        self._rows_of_chain: dict[tuple[str, str], tuple[tuple[Rule, ...], Ints]] = {}
        self._of_table: dict[str, ChainRows] = {}
        self._generated: dict[str, Column] = {}

    @property
    def is_large(self) -> bool:
        return len(self.rules) > MOST_ROWS

    def of_chain(self, table: str, chain: str, rules: tuple[Rule, ...]) -> Ints:
        """The rows of a loaded chain, which has *rules*."""
        known = self._rows_of_chain.get((table, chain))
        if known is None or known[0] is not rules:
            rows = self.of(rules) if known is None else rows_after(*known, rules, self.of)
            known = self._rows_of_chain[table, chain] = rules, rows
        return known[1]

    def of_table(self, table: Table) -> ChainRows:
        """The rows of all chains of a loaded table."""
        known = self._of_table.get(table.name)
        if known is None:
            known = self._of_table[table.name] = ChainRows(self.of, self.chain)
        known.follow(table)
        return known

    def generated(self, names: GeneratedNames) -> Bools:
        """By number of a chain's name so far: whether it is that of a generated chain."""
        column = self._generated.setdefault(names.prefix, Column(np.bool_))
        column.new += [names.is_generated(name) for name in self.chain_names[len(column.values) :]]
        return column.values

    def of(self, rules: Sequence[Rule]) -> Ints:
        """The rows of *rules*."""
        row_of = self._row_of
        rows = [row_of.get(id(rule), -1) for rule in rules]
        if -1 in rows:
            for at, row in enumerate(rows):
                if row < 0:
                    rows[at] = self._row(rules[at])
        return np.array(rows, np.int64)

    def callees(self, rules: Ints) -> Bools:
        """By number of a chain's name: whether the rules in these rows enter it."""
        is_entered = np.zeros(len(self.chain_names), np.bool_)
        is_entered[self.argument.values[rules[self.enters.values[rules]]]] = True
        return is_entered

    def chain(self, name: str) -> int:
        """The number of a chain's name."""
        number = self.chains.get(name)
        if number is None:
            number = self.chains[name] = len(self.chain_names)
            self.chain_names.append(name)
        return number

    def verdict(self, key: str) -> int:
        """The number of a verdict."""
        return self.verdicts.setdefault(key, len(self.verdicts))

    def _row(self, rule: Rule) -> int:
        """The row of a rule, which is added if it has none."""
        known = self._row_of.get(id(rule))
        if known is not None:
            return known
        number = self._row_of[id(rule)] = len(self.rules)
        self.rules.append(rule)
        numbers = [self.numbers.number(match) for match in rule.matches]
        bounds = joined([self.numbers.hulls[each] for each in numbers])
        for field, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            first, last = bounds.get(field, _WHOLE)
            low.new.append(first)
            high.new.append(last)
        self.matches.append(numbers)
        self.kind.new.append(self._need_kind(rule.matches, numbers))
        self.too_long.new.append(_is_too_long(rule))
        action, argument, writes = self._action(rule.target)
        self.action.new.append(action)
        self.argument.new.append(argument)
        self.writes.new.append(writes)
        spelt = spelling(rule)
        self.spelling.new.append(self._spellings.setdefault(spelt, len(self._spellings)))
        self.enters.new.append(rule.enters is not None)
        self.leaves.new.append(rule.leaves)
        return number

    def _need_kind(self, matches: tuple[Match, ...], numbers: Sequence[int]) -> int:
        """A number for what packet_classes.needs_of reads of these matches."""
        needs = self.numbers.needs
        key = tuple([needs[number] for number in numbers if needs[number]])
        number = self._kind_of.get(key)
        if number is None:
            number = self._kind_of[key] = len(self.needing)
            self.needing.append(matches)
        return number

    def _action(self, target: Target | None) -> tuple[int, int, int]:
        """What a rule does, with which number, and what it writes (hitables/verify/encoding.py)."""
        if target is None:
            return ProveAction.EFFECT, self._effect("counts"), 0
        if target.enters:
            action = ProveAction.JUMP if target.kind is Kind.JUMP else ProveAction.GOTO
            return action, self.chain(target.name), 0
        if target.kind is Kind.RETURN:
            return ProveAction.RETURN, 0, 0
        if target.is_final:
            return ProveAction.VERDICT, self.verdict(target.key), 0
        return ProveAction.EFFECT, self._effect(f"fires {target.key}"), mask(target.writes)

    def _effect(self, key: str) -> int:
        return self.effects.setdefault(key, len(self.effects))


def spelling(rule: Rule) -> tuple[str, ...]:
    """The target and the matches of a rule as they are spelt."""
    return (rule.target.key if rule.target else "", *[match.key for match in rule.matches])


def _need(match: Match) -> tuple[Any, ...] | None:
    """What packet_classes.needs_of reads of a match; None: nothing."""
    protocols: tuple[Any, ...] = ()
    if match.role is Role.SPACE and not match.either:
        protocols = tuple(test.values.pairs for test in match.tests if test.field is Field.PROTO)
    if not (match.needs or match.option or protocols):
        return None
    return match.needs, match.native, match.strict, match.option, protocols


def _is_too_long(rule: Rule) -> bool:
    """Whether the rule has more tests than the prover holds."""
    if len(rule.matches) > MOST_EVENTS:
        return True
    return sum(len(match.tests) + 1 for match in rule.matches) > MOST_TESTS

"""Two tables of one name as input of the prover: rules, chains and classes of packets as numbers.

Idea: equal spellings in both tables get one number, so the prover compares numbers in place of texts.
match_table.py numbers tests and matches, coordinates.py the values of fields; this module numbers rules,
chains and targets.

Invariant: rules and chains of the first table have the lower numbers; within a table they keep their order.

Cost: linear in the rules, by whole arrays; per object only for distinct matches and targets.
"""

from __future__ import annotations

import copy
import functools
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain as row
from operator import attrgetter
from typing import Any

import numpy as np

from hitables.core.distinct import distinct
from hitables.core.prover import (
    MOST_EVENTS,
    MOST_TESTS,
    NONE,
    U32,
    ChainArrays,
    ClassWords,
    EffectArrays,
    ProveAction,
    Prover,
)
from hitables.errors import Unsupported
from hitables.ir.attributes import Attribute, common, made_of_all
from hitables.ir.fact import Assignment, Fact
from hitables.ir.fields import Family, Field
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Table, without_circles
from hitables.ir.rule import Ends, Kind, Match, Metadata, Role, Rule, Target
from hitables.ir.semantics import DROP, RETURNS

from .match_table import Ints, mask, number_matches
from .packet_classes import Need, PacketClass, classes, needs_of
from .told_facts import AttributeWords

_PROTO = int(Field.PROTO)


@dataclass(frozen=True)
class RuleRef:
    """A rule: its chain and its index there, from 0."""

    chain: str
    index: int
    rule: Rule


class Encoding:
    """Two tables of one name and family, as *backend* reads them.

    matches       all distinct matches; `rule_match` has their numbers, rule after rule
    rule_start    by rule: where its matches start; one entry more than rules
    rule_action   by rule: action, number, states written
    chain_start   by chain: its first rule; one entry more than chains
    chain_writes  by chain: mask of the states that it and all that it enters may write
    """

    def __init__(
        self,
        tables: tuple[Table, Table],
        family: Family,
        backend: Backend,
        verdict_only: bool = False,
        sure_answers: bool = False,
    ) -> None:
        tables = without_circles(tables[0]), without_circles(tables[1])
        self.tables, self.family, self.backend, self.verdict_only = tables, family, backend, verdict_only
        self.sure_answers = sure_answers
        self.chains_before = len(tables[0].chains)
        self._chains: list[Chain] = [chain for table in tables for chain in table.chains]
        self._chain_numbers = [{chain.name: at for at, chain in enumerate(table.chains)} for table in tables]
        rules = list(row.from_iterable(chain.rules for chain in self._chains))
        matches_of = list(map(attrgetter("matches"), rules))
        counts = np.fromiter(map(len, matches_of), np.int64, len(rules))
        matches, _, inverse = distinct(list(row.from_iterable(matches_of)))
        targets = list(map(attrgetter("target"), rules))
        makes = (target.makes for target in distinct(targets).objects if target is not None)
        self._assignments = dict.fromkeys(made for made in makes if made is not None)
        self.matches = number_matches(matches, family, self._assignments, sure_answers)
        self.chain_start = _starts(
            np.fromiter((len(chain.rules) for chain in self._chains), np.int64, len(self._chains))
        )
        self.rule_start = _starts(counts)
        self.rule_match = self.matches.numbers[inverse]
        self._needing = _rules_with_needs(matches, inverse, rules, self.rule_start)
        _refuse_long(matches, inverse, counts, self.rule_start)
        self._verdicts, self._effects = _Numbers(), _Numbers()
        self._makes: dict[int, Assignment] = {}  # by number of an effect
        self._words: dict[int, AttributeWords] = {}  # by dimension
        self.drop = self._verdicts(DROP)
        self.rule_action = self._actions(targets)
        self.chain_writes = self._writes_of_chains()

    def read_by(self, backend: Backend) -> Encoding:
        """The same tables, with the same numbers, as *backend* reads them."""
        encoding = copy.copy(self)
        encoding.backend = backend
        return encoding

    # ---- numbers back to values ----

    @property
    def attributes(self) -> list[Attribute]:
        """What the CONSTANT matches ask, in the order of their dimensions (after the fields)."""
        return self.matches.tests.attributes

    def chain(self, side: int, name: str) -> int:
        return self._chain_numbers[side][name] + side * self.chains_before

    def both(self, name: str) -> tuple[int, int]:
        """The chains of this name in the first and in the second table."""
        return self.chain(0, name), self.chain(1, name)

    def ends(self, name: str) -> tuple[int, int]:
        """In each table: the verdict of the packets that reach the end of the chain."""
        first, second = (self.end(table[name].policy) for table in self.tables)
        return first, second

    def end(self, policy: str | None) -> int:
        """The verdict of packets that a policy decides; None: they return."""
        return self._verdicts(policy or RETURNS)

    def verdict(self, number: int | None) -> str | None:
        """The verdict that has this number."""
        return None if number is None else self._verdicts.keys[number]

    def chain_name(self, number: int) -> str:
        return self._chains[number].name

    def rule(self, number: int | None) -> RuleRef | None:
        """The rule that has this number; None: the end of a chain."""
        if number is None:
            return None
        at = int(np.searchsorted(self.chain_start, number, "right")) - 1
        chain = self._chains[at]
        index = number - int(self.chain_start[at])
        return RuleRef(chain.name, index, chain.rules[index])

    # ---- classes of packets ----

    def classes(self) -> list[PacketClass]:
        """The classes of packets that the rules can distinguish."""
        return list(classes(self.needs, self.matches.tests.fields, self.family))

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset(need for matches in self._needing for need in needs_of(matches, self.backend))

    def class_words(self, packets: PacketClass, may_drop: bool) -> tuple[ClassWords, array[int]]:
        """A class for the prover, and the sets that its packets lie in.

        *may_drop*: the second program may drop packets that the first does not.
        """
        native_later = packets.later and self.backend is Backend.NFT
        frozen = (Field.SPORT, Field.DPORT, Field.FLAGS) if native_later else ()
        words = ClassWords(
            present=mask(packets.present),
            present_native=mask(packets.native),
            bytes=packets.bytes,
            frozen=mask(frozen),
            later=packets.later,
            bad_offset=packets.bad_offset,
            offset_one=packets.offset_one,
            cut_short=packets.cut_short,
            may_drop=may_drop,
            legacy=self.backend is Backend.LEGACY,
        )
        return words, self.set_words(packets.sets())

    def set_words(self, sets: dict[Field, Values]) -> array[int]:
        """dim, count, low, high, ... of each field."""
        words = array("I")
        for field, ends in self.ends_inside(sets).items():
            words.extend((field, len(ends) // 2, *ends))
        return words

    def ends_inside(self, sets: dict[Field, Values]) -> dict[Field, list[int]]:
        """low, high, ... of each field: the coordinates that lie in the values wholly."""
        coordinates = self.matches.tests.coordinates
        return {field: coordinates[field].inside(values) for field, values in sets.items()}

    def words_of(self, dim: int) -> AttributeWords:
        """How sets of cells of an attribute are told."""
        if dim not in self._words:
            self._words[dim] = AttributeWords(self.attributes[dim - len(Field)], self.matches.tests.keys)
        return self._words[dim]

    @property
    def follows(self) -> bool:
        """Whether it is known what some effect makes of an attribute."""
        return any(attribute.made for attribute in self.attributes)

    @functools.cached_property
    def coarse(self) -> dict[int, int]:
        """By dimension of an attribute: after how many writes it may have cells that no packet has.

        After none where its facts are not related, after one where what targets make of it is not followed.
        """

        def is_followed(attribute: Attribute) -> bool:
            makes = (made for made in self._assignments if made.attribute == attribute.name)
            return all(made in attribute.made for made in makes)

        dims = enumerate(self.attributes, len(Field))
        return {dim: int(not each.unrelated) for dim, each in dims if each.unrelated or not is_followed(each)}

    def made_by(self, effect: int, dim: int) -> Sequence[int]:
        """By cell of an attribute, the one that an effect makes of it."""
        attribute = self.attributes[dim - len(Field)]
        return made_of_all(attribute.made[self._makes[effect]], len(attribute.cells))

    def cells_of(self, facts: Iterable[Fact]) -> dict[int, tuple[int, ...]]:
        """By dimension: low, high, ... of the cells in which all these facts of CONSTANT matches hold."""
        tests = self.matches.tests
        found: dict[int, tuple[int, ...]] = {}
        for fact in facts:
            dim = int(tests.dims[tests.facts[fact]])
            cells = tests.attributes[dim - len(Field)].facts[fact]
            found[dim] = common(found[dim], cells) if dim in found else cells
        return found

    # ---- the prover ----

    def prover(self, max_memory: int | None, chains: ChainArrays | None = None) -> Prover:
        """A prover of both tables, or of other *chains* with the same matches."""
        arrays = self.matches.arrays(self.backend)
        effects = self._effect_arrays()
        return Prover(
            arrays, chains or self._chain_arrays(), self.drop, max_memory, self.tables[0].name, effects
        )

    def _effect_arrays(self) -> EffectArrays:
        starts, maps = array("I", [0]), array("I")
        for effect in range(len(self._effects.of)):
            made = self._makes.get(effect)
            for dim, attribute in enumerate(self.attributes, len(Field)) if made is not None else ():
                if made in attribute.made:
                    maps.extend((dim, len(attribute.made[made])))
                    maps.extend(attribute.made[made])
            starts.append(len(maps))
        return EffectArrays(starts, maps)

    def _chain_arrays(self) -> ChainArrays:
        return ChainArrays(
            self.rule_start,
            self.rule_match,
            self.rule_action,
            self.chain_start[:-1],
            self.chain_start[1:],
            self.chain_writes,
            self.partners(),
            np.full(len(self.chain_start) - 1, NONE, np.uint32),
            self.chains_before,
        )

    def namesakes(self) -> list[int]:
        """By chain: the chain of the same name in the other table; -1: there is none."""
        return [
            self.chain(1 - side, chain.name) if chain.name in self.tables[1 - side] else -1
            for side, table in enumerate(self.tables)
            for chain in table.chains
        ]

    def partners(self) -> U32:
        """By user chain: the one of the same name in the other table, or NONE."""
        partner = np.full(len(self._chains), NONE, np.uint32)
        for side, table in enumerate(self.tables):
            other = self.tables[1 - side]
            for number, user in enumerate(table.chains, side * self.chains_before):
                if user.policy is None and user.name in other and other[user.name].policy is None:
                    partner[number] = self.chain(1 - side, user.name)
        return partner

    # ---- targets ----

    def _actions(self, targets: list[Target | None]) -> U32:
        """Three words of each rule: what it does, with which number, and what it writes."""
        split = int(self.chain_start[self.chains_before])
        out = []
        for side, part in enumerate((targets[:split], targets[split:])):
            objects, first, inverse = distinct(part)
            actions = [
                self._action(side, target, side * split + at)
                for target, at in zip(objects, first.tolist(), strict=True)
            ]
            out.append(np.array(actions, np.uint32).reshape(-1, 3)[inverse])
        return self._with_policies(np.concatenate(out))

    def _with_policies(self, actions: U32) -> U32:
        """The actions, where RETURN of a built-in chain is the verdict that its policy gives."""
        for number, chain in enumerate(self._chains):
            if chain.end is not None:
                own = actions[self.chain_start[number] : self.chain_start[number + 1]]
                own[own[:, 0] == ProveAction.RETURN] = ProveAction.VERDICT, self._verdicts(chain.end), 0
        return actions

    def _action(self, side: int, target: Target | None, number: int) -> tuple[int, int, int]:
        """What rule *number* does, and all other rules of its table with the same target."""
        if target is None:
            return self._effect("counts", frozenset(), True)
        if target.enters:
            if target.name not in self._chain_numbers[side]:
                ref = self.rule(number)
                assert ref is not None
                where = f"table {self.tables[side].name}, chain {ref.chain}, line {ref.rule.line}"
                raise Unsupported(f"{where}: there is no chain {target.name}")
            action = ProveAction.JUMP if target.kind is Kind.JUMP else ProveAction.GOTO
            return action, self.chain(side, target.name), 0
        if target.kind is Kind.RETURN:
            return ProveAction.RETURN, 0, 0
        if target.is_final:
            return ProveAction.VERDICT, self._verdicts(target.key), 0
        silent = target.ends is Ends.NEVER and not target.writes
        return self._effect(f"fires {target.key}", target.writes, silent, target.makes)

    def _effect(
        self, effect: str, writes: frozenset[Metadata], silent: bool, makes: Assignment | None = None
    ) -> tuple[int, int, int]:
        if self.verdict_only and silent:
            return ProveAction.SILENT, 0, 0
        number = self._effects(effect)
        if makes is not None:
            self._makes[number] = makes
        return ProveAction.EFFECT, number, mask(writes)

    # ---- what chains write ----

    def _writes_of_chains(self) -> U32:
        count = len(self._chains)
        chain = np.repeat(np.arange(count), _sizes(self.chain_start))
        action, number, writes = self.rule_action.T
        enters = (action == ProveAction.JUMP) | (action == ProveAction.GOTO)
        own = np.zeros(count, np.uint32)
        np.bitwise_or.at(own, chain[~enters], writes[~enters])
        by_match = self.matches.writes[self.rule_match]
        owner = np.repeat(chain, _sizes(self.rule_start))
        np.bitwise_or.at(own, owner[by_match != 0], by_match[by_match != 0])
        if not own.any() and all(table.is_acyclic() for table in self.tables):
            return own
        entered: dict[int, list[int]] = {}
        # Not np.unique: without further results it imports numpy.ma, which takes 15 ms.
        for pair in sorted(set((chain[enters] << 32 | number[enters]).tolist())):
            entered.setdefault(pair >> 32, []).append(pair & NONE)
        masks = own.tolist()
        for each in self._callees_first(entered):
            for callee in entered.get(each, ()):
                masks[each] |= masks[callee]
        return np.array(masks, np.uint32)

    def _callees_first(self, entered: dict[int, list[int]]) -> list[int]:
        try:
            return list(TopologicalSorter(entered).static_order())
        except CycleError as error:
            numbers: list[int] = error.args[1]
            table = self.tables[int(numbers[0] >= self.chains_before)].name
            loop = " -> ".join(self._chains[number].name for number in numbers)
            raise Unsupported(f"table {table}: a loop of jumps: {loop}") from None


class _Numbers:
    """Numbers from 0 for keys, in the order in which they are met."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}
        self.keys: list[Any] = []  # by number

    def __call__(self, key: Any) -> int:
        number = self.of.setdefault(key, len(self.of))
        if number == len(self.keys):
            self.keys.append(key)
        return number


def _starts(counts: Ints) -> U32:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.uint32)


def _sizes(starts: U32) -> Ints:
    signed = starts.astype(np.int64)
    return signed[1:] - signed[:-1]


def _rules_with_needs(
    matches: list[Match], inverse: Ints, rules: list[Rule], rule_start: U32
) -> list[Sequence[Match]]:
    """The matches of one rule of each kind that needs bytes of layer 4 (`needs_of`)."""
    kinds = _Numbers()
    kind = np.fromiter((kinds(_need_kind(match)) for match in matches), np.uint32, len(matches))
    needs = np.fromiter((bool(match.needs or match.option) for match in matches), np.bool_, len(matches))
    some = np.add.reduceat(np.append(needs[inverse], False), rule_start[:-1], dtype=np.int64)
    some[rule_start[:-1] == rule_start[1:]] = 0
    data = kind[inverse].tobytes()
    starts = rule_start.tolist()
    one_of_kind = {data[4 * starts[at] : 4 * starts[at + 1]]: at for at in np.flatnonzero(some).tolist()}
    return [rules[at].matches for at in one_of_kind.values()]


def _need_kind(match: Match) -> tuple[object, ...]:
    """What `needs_of` reads of a match."""
    if not match.needs and not match.option and len(match.tests) == 1 and match.tests[0][0] != _PROTO:
        return ()
    protocols: tuple[Values, ...] = ()
    if match.role is Role.SPACE and not match.either:
        protocols = tuple(test.values for test in match.tests if test.field is Field.PROTO)
    return match.needs, match.native, match.strict, match.option, protocols


def _refuse_long(matches: list[Match], inverse: Ints, counts: Ints, starts: U32) -> None:
    """Unsupported when a rule may have more tests or events than the engine has room for.

    A match asks one event at most, and has one test besides its own if it is a predicate.
    """
    tests = np.fromiter((len(match.tests) + 1 for match in matches), np.int64, len(matches))
    total = np.concatenate(([0], np.cumsum(tests[inverse])))
    of_rule = total[starts[1:]] - total[starts[:-1]]
    for at in np.flatnonzero((of_rule > MOST_TESTS) | (counts > MOST_EVENTS)).tolist():
        raise Unsupported(f"a rule of {counts[at]} matches is too long to be proved")

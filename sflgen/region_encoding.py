"""The chains that packets of one region may reach, on both sides of a local proof, as input of the prover.

hitables/verify/encoding.py numbers two tables from their objects.  Here the rules are numbered already
(rule_rows.py), so whole arrays are selected and renumbered; the result is the same input.

Cost: about a microsecond for each rule.
"""

from __future__ import annotations

import numpy as np

from hitables.core.prover import (
    NO_EFFECTS,
    NONE,
    U32,
    ChainArrays,
    EffectArrays,
    ProveAction,
    ProveOp,
    Prover,
)
from hitables.errors import Unsupported
from hitables.ir.attributes import attributes_of
from hitables.ir.fact import Assignment
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Metadata, Role
from hitables.ir.semantics import DROP, RETURNS
from hitables.verify.coordinates import Coordinates
from hitables.verify.encoding import Encoding, RuleRef
from hitables.verify.match_table import MatchTable, TestTable

from .chain_rows import NearChains
from .rule_rows import Bools, Ints, MatchNumbers, RuleRows

# Of one proof: some seconds.  Where rules cross wildly, cutting their regions takes longer than the proof of
# the whole, which knows groups of rules.  The widest rules of fw1_10K, before 70 entries, take 3 million.
MOST_STEPS = 10_000_000

_NOTHING: Ints = np.empty(0, np.int64)


class RegionEncoding(Encoding):
    """Chains of two sides; the first of each is *chain*, which packets enter, with *policy*.

    Rules are not traced back: a difference is examined by the proof of the whole.
    """

    def __init__(
        self,
        rows: RuleRows,
        sides: tuple[NearChains, NearChains],
        table: str,
        policy: str | None,
        backend: Backend,
    ) -> None:
        self.family, self.backend, self.verdict_only = rows.family, backend, False
        chain = rows.chain_names[sides[0].numbers[0]]
        self.tables = (Table(table, (Chain(chain, policy),)),) * 2
        self.chains_before = len(sides[0].numbers)
        self._chain_numbers = [{chain: 0}, {chain: 0}]
        self._end = rows.verdict(policy or RETURNS)
        self.drop = rows.verdict(DROP)
        chains = NearChains.joined(*sides)
        selected = chains.rows
        if rows.too_long.values[selected].any():
            raise Unsupported("a rule has too many matches to be proved")
        self.chain_start = _starts(chains.sizes)
        numbers, sizes = rows.matches.of(selected)
        self.rule_start = _starts(sizes)
        used, self.rule_match = _renumbered(numbers, len(rows.numbers.matches))
        self.matches = _match_table(rows.numbers, used)
        kinds = np.flatnonzero(np.bincount(rows.kind.values[selected], minlength=1))
        self._needing = [rows.needing[kind] for kind in kinds.tolist() if kind]
        self.rule_action = self._selected_actions(rows, sides, selected)
        if self.rule_action[:, 2].any() or self.matches.writes.any():
            self._chains = [Chain(rows.chain_names[number], None) for number in chains.numbers.tolist()]
            self.chain_writes = self._writes_of_chains()
        else:
            self.chain_writes = np.zeros(len(chains.numbers), np.uint32)
        self._partner = self._same_names(rows, sides)
        self._assignments: dict[Assignment, None] = {}  # what targets make of numbers is not followed here
        self._provers: list[Prover] = []

    def _effect_arrays(self) -> EffectArrays:
        return NO_EFFECTS

    def prover(self, max_memory: int | None, chains: ChainArrays | None = None) -> Prover:
        prover = super().prover(max_memory, chains)
        prover.bound(MOST_STEPS)
        self._provers.append(prover)
        return prover

    @property
    def is_hard(self) -> bool:
        """Whether a proof took so long that it may have been stopped."""
        return any(prover.regions > MOST_STEPS // 10 for prover in self._provers)

    def ends(self, name: str) -> tuple[int, int]:
        return self._end, self._end

    def rule(self, number: int | None) -> RuleRef | None:
        return None

    def verdict(self, number: int | None) -> str | None:
        return None

    def namesakes(self) -> list[int]:
        """None: a local proof does not look for lists that are printed by groups."""
        return [-1] * (len(self.chain_start) - 1)

    def partners(self) -> U32:
        return self._partner

    def _selected_actions(self, rows: RuleRows, sides: tuple[NearChains, NearChains], selected: Ints) -> U32:
        """Three words of each rule, in which chains have their numbers on the rule's side."""
        action, argument = rows.action.values[selected], rows.argument.values[selected]
        enters = (action == ProveAction.JUMP) | (action == ProveAction.GOTO)
        split = int(self.chain_start[self.chains_before])
        for part, first, side in zip(
            (slice(0, split), slice(split, None)), (0, self.chains_before), sides, strict=True
        ):
            number_of = np.full(len(rows.chain_names), -1, np.int64)
            number_of[side.numbers] = np.arange(first, first + len(side.numbers))
            callees = number_of[argument[part][enters[part]]]
            assert (callees >= 0).all(), "a side holds every chain that its rules enter"
            argument[part][enters[part]] = callees
        writes = rows.writes.values[selected]
        return np.stack((action, argument, writes), axis=1).astype(np.uint32)

    def _same_names(self, rows: RuleRows, sides: tuple[NearChains, NearChains]) -> U32:
        """By chain but the first of each side: the one of the same name on the other side, or NONE."""
        own, others = (side.numbers[1:] for side in sides)
        place = np.full(len(rows.chain_names), -1, np.int64)
        place[others] = np.arange(self.chains_before + 1, self.chains_before + 1 + len(others))
        has_other = np.flatnonzero(place[own] >= 0)
        partner = np.full(self.chains_before + len(sides[1].numbers), NONE, np.uint32)
        partner[has_other + 1] = place[own[has_other]]
        partner[place[own[has_other]]] = has_other + 1
        return partner


# Tests and matches.


def _match_table(numbers: MatchNumbers, used: Ints) -> MatchTable:
    """The matches *used*, renumbered in their order, and the tests that they need."""
    selected = {backend: codes.of(used) for backend, codes in numbers.code.items()}
    words = {backend: code.reshape(-1, 2) for backend, (code, _) in selected.items()}
    is_test = {backend: _asks_test(code) for backend, code in words.items()}
    asked = np.concatenate([code[is_test[backend], 1] for backend, code in words.items()])
    tests, _ = _renumbered(asked, len(numbers.tests))
    # The prover reads the tests of a rule in the order of their numbers: by field, then facts.
    tests = tests[np.argsort(numbers.field.values[tests], kind="stable")]
    number_of = np.zeros(len(numbers.tests), np.int64)
    number_of[tests] = np.arange(len(tests))
    codes = {}
    for backend, code in words.items():
        code[is_test[backend], 1] = number_of[code[is_test[backend], 1]]
        codes[backend] = code.reshape(-1).astype(np.uint32), _starts(selected[backend][1] // 2)
    roles = numbers.role.values[used]
    return MatchTable(
        _test_table(numbers, tests),
        np.arange(len(used), dtype=np.uint32),
        list(numbers.keys),
        codes,
        bool((roles == Role.ONCE).any()),
        roles > Role.CONSTANT,
        roles == Role.ONCE,
        numbers.writes.values[used].astype(np.uint32),
        # What only the reader of groups asks (verify/group_reader.py), which looks at named chains.
        np.zeros(len(used), np.uint32),
        np.ones(len(used), np.bool_),
        _NOTHING,
        _NOTHING,
    )


def _asks_test(code: Ints) -> Bools:
    """Which steps have the number of a test as their argument."""
    asks: Bools = (code[:, 0] == ProveOp.TEST) | (code[:, 0] == ProveOp.NATIVE)
    return asks


def _test_table(numbers: MatchNumbers, tests: Ints) -> TestTable:
    """The tests, which are sorted by field, with their intervals as coordinates."""
    fields = numbers.field.values[tests]
    bounds, sizes = numbers.pairs.of(tests)
    interval_field = np.repeat(fields, sizes // 2)
    coordinates: dict[Field, Coordinates] = {}
    starts, ends = [np.zeros(1, np.int64)], []
    for field in Field:
        own = tests[fields == field]
        if numbers.is_wide(field):
            pairs = [numbers.tests[test][1] for test in own.tolist()]
            coordinates[field] = Coordinates(field, numbers.family, pairs)
            ends += [coordinates[field].ends_of_tests.astype(np.int64)]
            starts += [np.array([len(each) for each in pairs], np.int64)]
            continue
        of_field = bounds.reshape(-1, 2)[interval_field == field]
        coordinates[field] = pieces = _Pieces(field, numbers.family, of_field)
        ends += [pieces.ends_of(of_field)]
        starts += [sizes[fields == field] // 2]
    facts = [numbers.tests[test][1] for test in tests[fields == len(Field)].tolist()]
    attributes = attributes_of(facts)
    dims = {fact: dim for dim, each in enumerate(attributes, len(Field)) for fact in each.facts}
    cells = {fact: each.facts[fact] for each in attributes for fact in each.facts}
    fields = fields.copy()
    fields[fields == len(Field)] = [dims[fact] for fact in facts]
    ends += [np.array([end for fact in facts for end in cells[fact]], np.int64)]
    starts += [np.array([len(cells[fact]) // 2 for fact in facts], np.int64)]
    return TestTable(
        coordinates,
        {(field, ()): 0 for field in Field if (fields == field).any()},
        {fact: len(tests) - len(facts) + at for at, fact in enumerate(facts)},
        {},
        attributes,
        [
            frozenset[Metadata]().union(*(numbers.fact_reads[fact] for fact in each.facts))
            for each in attributes
        ],
        fields.astype(np.uint32),
        np.cumsum(np.concatenate(starts)).astype(np.uint32),
        np.concatenate(ends).astype(np.uint32),
    )


class _Pieces(Coordinates):
    """The pieces of a field whose values fit in 63 bits, cut at bounds low, high + 1."""

    def __init__(self, field: Field, family: Family, bounds: Ints) -> None:
        super().__init__(field, family, ())
        if len(bounds):
            cut = np.unique(np.concatenate((np.array(self.starts), bounds.reshape(-1))), return_counts=True)[
                0
            ]
            self._cuts: Ints = cut[cut <= self.top]
            self.starts = self._cuts.tolist()

    def ends_of(self, bounds: Ints) -> Ints:
        """low, high, low, high, ... of the intervals, as coordinates."""
        if not len(bounds):
            return _NOTHING
        found = np.searchsorted(self._cuts, bounds.reshape(-1)).reshape(-1, 2)
        found[:, 1] -= 1
        return found.reshape(-1)


# Numbers.


def _renumbered(numbers: Ints, count: int) -> tuple[Ints, U32]:
    """The distinct ones of *numbers*, which are less than *count*, sorted; and the index of each."""
    is_used = np.zeros(count, np.bool_)
    is_used[numbers] = True
    used = np.flatnonzero(is_used)
    index = np.zeros(count, np.uint32)
    index[used] = np.arange(len(used))
    return used, index[numbers]


def _starts(sizes: Ints | list[int]) -> U32:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.uint32)

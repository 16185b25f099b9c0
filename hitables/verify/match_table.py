"""The matches of two tables as the prover reads them: numbered tests, and a short code for each match.

Invariant: equal tests, equal matches and equal keys have equal numbers in both tables.  Matches that are
spelt otherwise but read alike have one number.

Cost: one step per distinct match object; the parser makes one object per spelling.

Users: encoding.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain as row
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.core.prover import U32, MatchArrays, Op
from hitables.ir.attributes import Attribute, attributes_of
from hitables.ir.fact import Assignment, Fact
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.rule import Match, Metadata, Role
from hitables.ir.semantics import FIELDS_WRITTEN

from .coordinates import Coordinates, Pairs

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def mask(bits: Iterable[int]) -> int:
    """A number in which these bits are set."""
    return sum(1 << bit for bit in bits)


# ---- tests ----


@dataclass(frozen=True)
class TestTable:
    """The tests of both tables, by field, then those of facts, by attribute.

    numbers     of tests of header fields
    facts       by fact: the number of the test that it holds
    keys        by fact: the key of a match that holds for the same packets, or for exactly the others (False)
    attributes  in the order of their dimensions (after the fields)
    reads       by attribute: the states that it depends on
    dims, starts, ends  by test: its dimension, and the coordinates of its values (struct prove_input)
    """

    coordinates: dict[Field, Coordinates]
    numbers: dict[tuple[Field, Pairs], int]
    facts: dict[Fact, int]
    keys: dict[Fact, tuple[str, bool]]
    attributes: list[Attribute]
    reads: list[frozenset[Metadata]]
    dims: array[int]
    starts: array[int]
    ends: array[int]

    @property
    def fields(self) -> frozenset[Field]:
        """The fields that some test looks at."""
        return frozenset(field for field, _ in self.numbers)


def number_tests(matches: list[Match], family: Family, assignments: Iterable[Assignment]) -> TestTable:
    """Cut the fields at the bounds of all tests, then number the tests by field."""
    distinct: dict[tuple[Field, Pairs], None] = {}
    reads: dict[Fact, frozenset[Metadata]] = {}
    keys: dict[Fact, tuple[str, bool]] = {}
    for match in matches:
        for field, values in match.tests:
            distinct[field, values.pairs] = None
        if match.role is Role.CONSTANT:
            reads.setdefault(match.fact, match.reads)
            keys.setdefault(match.fact, (match.negates, False) if match.negates else (match.key, True))
    # The prover reads the tests of a rule in the order of their numbers: by field, then facts.
    tests = sorted(distinct, key=itemgetter(0))
    by_field: dict[Field, list[Pairs]] = {field: [] for field in Field}
    for field, pairs in tests:
        by_field[field].append(pairs)
    coordinates = {field: Coordinates(field, family, bounds) for field, bounds in by_field.items()}
    dims, starts, ends = array("I", map(itemgetter(0), tests)), array("I", [0]), array("I")
    for field, pairs in tests:
        ends.extend(coordinates[field].ends(pairs))
        starts.append(len(ends) // 2)
    attributes = attributes_of(reads, assignments)
    facts: dict[Fact, int] = {}
    for dim, attribute in enumerate(attributes, len(Field)):
        for fact, cells in attribute.facts.items():
            facts[fact] = len(dims)
            dims.append(dim)
            ends.extend(cells)
            starts.append(len(ends) // 2)
    numbers = {test: number for number, test in enumerate(tests)}
    depends = [
        frozenset[Metadata]().union(*(reads[fact] for fact in attribute.facts)) for attribute in attributes
    ]
    return TestTable(coordinates, numbers, facts, keys, attributes, depends, dims, starts, ends)


# ---- matches ----


@dataclass(frozen=True)
class MatchTable:
    """The distinct matches of both tables, by number.

    numbers     of the match objects that the table was made of, in their order
    keys        of the matches with memory or chance, by number
    codes       by backend: the steps of all matches, and where those of each match start
    has_memory  whether some match has memory of its own
    asks        whether a match asks a memory or chance
    once        whether it has memory of its own
    writes      mask of the states that it may change
    reads       mask of the states on which its tests depend
    inexact     whether it asks more than its tests, all of which must hold
    test_start, test_list  the tests of each match that must all hold
    """

    tests: TestTable
    numbers: U32
    keys: list[str]
    codes: dict[Backend, tuple[array[int], array[int]]]
    has_memory: bool
    asks: Bools
    once: Bools
    writes: U32
    reads: U32
    inexact: Bools
    test_start: Ints
    test_list: Ints

    def arrays(self, backend: Backend) -> MatchArrays:
        """The matches as *backend* reads them, for the prover."""
        tests = self.tests
        sizes = array("I", (tests.coordinates[field].size for field in Field))
        states = array("I", (_WRITERS[field] for field in Field))
        for attribute, reads in zip(tests.attributes, tests.reads, strict=True):
            sizes.append(len(attribute.cells))
            states.append(mask(reads))
        code, starts = self.codes[backend]
        return MatchArrays(sizes, states, tests.dims, tests.starts, tests.ends, starts, code)


def number_matches(
    matches: list[Match], family: Family, assignments: Iterable[Assignment] = ()
) -> MatchTable:
    """Number the matches: one number for those that are read alike; *assignments*: of all targets."""
    tests = number_tests(matches, family, assignments)
    number_of: dict[tuple[Any, ...], int] = {}
    numbers: list[int] = []
    distinct: list[Match] = []
    own_tests: list[list[int]] = []
    number_of_test = tests.numbers
    for match in matches:
        own = [number_of_test[field, values.pairs] for field, values in match.tests]
        role = match.role
        reading = (
            *own, role, match.native, match.needs, match.strict, match.option, match.either,
            match.is_protocol, _asked(match), match.writes,
        )  # fmt: skip
        number = number_of.setdefault(reading, len(number_of))
        if number == len(distinct):
            distinct.append(match)
            own_tests.append(own)
        numbers.append(number)
    keys = {
        key: number
        for number, key in enumerate(
            dict.fromkeys(match.key for match in distinct if match.role > Role.CONSTANT)
        )
    }
    count = len(distinct)
    roles = np.fromiter((match.role for match in distinct), np.int64, count)
    either = np.fromiter((match.either for match in distinct), np.bool_, count)
    required = [[] if match.either else own for match, own in zip(distinct, own_tests, strict=True)]
    return MatchTable(
        tests,
        np.array(numbers, np.uint32),
        list(keys),
        {backend: _code(distinct, own_tests, tests, keys, backend) for backend in Backend},
        bool(np.any(roles == Role.ONCE)),
        roles > Role.CONSTANT,
        roles == Role.ONCE,
        np.array([mask(match.writes) for match in distinct], np.uint32),
        np.array([_reads(match) for match in distinct], np.uint32),
        either | (roles != Role.SPACE),
        np.concatenate(([0], np.cumsum(np.fromiter(map(len, required), np.int64, count)))),
        np.fromiter(row.from_iterable(required), np.int64),
    )


def _code(
    matches: list[Match], own_tests: list[list[int]], tests: TestTable, keys: dict[str, int], backend: Backend
) -> tuple[array[int], array[int]]:
    """The steps of the matches, and where those of each start."""
    code, starts = array("I"), array("I", [0])
    op_test, op_native = int(Op.TEST), int(Op.NATIVE)
    in_nft, space = backend is Backend.NFT, Role.SPACE
    for match, own in zip(matches, own_tests, strict=True):
        native = in_nft and match.native
        op = op_native if native else op_test
        if match.is_protocol:
            code.extend((Op.CUT, 0))
        if match.needs and not native:
            code.extend((Op.NEED, match.needs | match.strict << 16))
        if match.either:
            code.extend((Op.EITHER, len(own)) if own else (Op.NEVER, 0))
        for test in own:
            code.append(op)
            code.append(test)
        if match.option:
            code.extend((Op.OPTION, 0))
        if match.role is space:
            pass
        elif match.role is Role.CONSTANT:
            code.extend((op_test, tests.facts[match.fact]))
        else:
            code.extend((Op.EVENT, keys[match.key] << 1 | (match.role is Role.ONCE)))
            if match.writes:
                code.extend((Op.WRITE, mask(match.writes)))
        starts.append(len(code) // 2)
    return code, starts


def _asked(match: Match) -> object:
    """What the match asks besides its tests."""
    if match.role is Role.SPACE:
        return None
    return match.fact if match.role is Role.CONSTANT else match.key


def _reads(match: Match) -> int:
    states = mask(match.reads) if match.role is Role.CONSTANT else 0
    for field, _ in match.tests:
        states |= _WRITERS[field]
    return states


# By field: mask of the states whose writing changes the field.
_WRITERS = {
    field: mask(state for state, fields in FIELDS_WRITTEN.items() if field in fields) for field in Field
}

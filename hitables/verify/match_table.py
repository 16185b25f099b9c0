"""The matches of two tables as the prover reads them: numbered tests, and a short code for each match.

Invariant: equal tests, equal matches and equal keys have equal numbers in both tables.  Matches that are
spelt otherwise but read alike have one number.

Cost: some columns over the distinct match objects, of which the parser makes one per spelling.  Matches of a
single test that ask nothing else, such as addresses, are coded by whole arrays, all others one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain as row
from itertools import compress
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hitables.core.prover import U32, MatchArrays, ProveOp
from hitables.ir.attributes import Attribute, attributes_of
from hitables.ir.fact import Assignment, Fact
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.rule import Match, Metadata, Role
from hitables.ir.semantics import FIELDS_WRITTEN
from hitables.ir.sure_answers import sure_answer

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
    dims: U32
    starts: U32
    ends: U32

    @property
    def fields(self) -> frozenset[Field]:
        """The fields that some test looks at."""
        return frozenset(field for field, _ in self.numbers)


def number_tests(matches: list[Match], family: Family, assignments: Iterable[Assignment]) -> TestTable:
    """Cut the fields at the bounds of all tests, then number the tests by field."""
    reads: dict[Fact, frozenset[Metadata]] = {}
    keys: dict[Fact, tuple[str, bool]] = {}
    for match in _of_role(matches, Role.CONSTANT):
        reads.setdefault(match.fact, match.reads)
        keys.setdefault(match.fact, (match.negates, False) if match.negates else (match.key, True))
    # The prover reads the tests of a rule in the order of their numbers: by field, then facts.
    tests = sorted(dict.fromkeys(_test_keys(matches)), key=itemgetter(0))
    by_field: dict[Field, list[Pairs]] = {field: [] for field in Field}
    for field, pairs in tests:
        by_field[field].append(pairs)
    coordinates = {field: Coordinates(field, family, bounds) for field, bounds in by_field.items()}
    dims, ends = list(map(itemgetter(0), tests)), array("I")
    sizes = list(map(len, map(itemgetter(1), tests)))
    attributes = attributes_of(reads, assignments)
    facts: dict[Fact, int] = {}
    for dim, attribute in enumerate(attributes, len(Field)):
        for fact, cells in attribute.facts.items():
            facts[fact] = len(dims)
            dims.append(dim)
            ends.extend(cells)
            sizes.append(len(cells) // 2)
    numbers = {test: number for number, test in enumerate(tests)}
    depends = [
        frozenset[Metadata]().union(*(reads[fact] for fact in attribute.facts)) for attribute in attributes
    ]
    return TestTable(
        coordinates,
        numbers,
        facts,
        keys,
        attributes,
        depends,
        np.array(dims, np.uint32),
        np.cumsum([0, *sizes]).astype(np.uint32),
        np.concatenate([*(each.ends_of_tests for each in coordinates.values()), np.array(ends, np.uint32)]),
    )


def _test_keys(matches: Iterable[Match]) -> Iterator[tuple[Field, Pairs]]:
    """The tests of all *matches*, one after the other, as keys of `TestTable.numbers`."""
    tests = list(row.from_iterable(map(attrgetter("tests"), matches)))
    return zip(map(itemgetter(0), tests), map(attrgetter("values.pairs"), tests), strict=True)


def _of_role(matches: list[Match], role: Role) -> Iterator[Match]:
    return (match for match in matches if match.role is role)


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
    codes: dict[Backend, tuple[U32, U32]]
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
    matches: list[Match], family: Family, assignments: Iterable[Assignment] = (), sure: bool = False
) -> MatchTable:
    """Number the matches: one number for those that are read alike.

    *assignments*: of all targets.  *sure*: the prover knows the answers that each packet gets alike.
    """
    tests = number_tests(matches, family, assignments)
    sizes = np.fromiter(map(len, map(attrgetter("tests"), matches)), np.int64, len(matches))
    listed = np.fromiter(map(tests.numbers.__getitem__, _test_keys(matches)), np.int64, int(sizes.sum()))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    # Matches are read alike that have the same tests and are of one kind.
    own = np.empty(len(matches), np.int64)
    lone = sizes == 1
    own[lone] = listed[starts[:-1][lone]]
    others = [tuple(listed[starts[at] : starts[at + 1]].tolist()) for at in np.flatnonzero(~lone).tolist()]
    own[~lone] = len(tests.numbers) + _numbered(others)[1]
    kinds, kind = _numbered(_kinds(matches))
    _, first, number = np.unique(kind << 32 | own, return_index=True, return_inverse=True)
    # Numbers are given in the order in which the matches are met.
    rank = np.empty(len(first), np.uint32)
    rank[np.argsort(first)] = np.arange(len(first))
    is_first = np.zeros(len(matches), np.bool_)
    is_first[first] = True
    distinct = _Distinct(
        list(compress(matches, is_first.tolist())),
        [_Kind(*each) for each in kinds],
        kind[is_first],
        sizes[is_first],
        listed[np.repeat(is_first, sizes)],
    )
    roles, either = distinct.each(lambda kind: kind.role), distinct.each(lambda kind: kind.either) > 0
    asking = compress(distinct.matches, (roles > Role.CONSTANT).tolist())
    keys = {key: at for at, key in enumerate(dict.fromkeys(match.key for match in asking))}
    return MatchTable(
        tests,
        rank[number],
        list(keys),
        {backend: _codes(distinct, tests, keys, backend, sure) for backend in Backend},
        bool(np.any(roles == Role.ONCE)),
        roles > Role.CONSTANT,
        roles == Role.ONCE,
        distinct.each(lambda kind: mask(kind.writes)).astype(np.uint32),
        _reads(distinct, roles, tests),
        either | (roles != Role.SPACE),
        np.concatenate(([0], np.cumsum(np.where(either, 0, distinct.sizes)))),
        distinct.test_list[np.repeat(~either, distinct.sizes)],
    )


class _Kind(NamedTuple):
    """What matches have in common that are read alike if their tests are the same."""

    role: Role
    native: bool
    needs: int
    strict: bool
    option: bool
    either: bool
    writes: frozenset[Metadata]
    is_protocol: bool
    asks: object  # besides the tests

    @property
    def is_plain(self) -> bool:
        """Whether such a match holds if its tests do, and does nothing else."""
        return self.role is Role.SPACE and not any(self[2:])


_FIRST_OF_KIND = attrgetter(*_Kind._fields[:7])


def _kinds(matches: list[Match]) -> list[tuple[Any, ...]]:
    """The kind of each match, as a plain tuple."""
    return [
        (*first, not name and words[-2:-1] == ("-p",), None if first[0] is Role.SPACE else _asked(match))
        for first, name, words, match in zip(
            map(_FIRST_OF_KIND, matches),
            map(attrgetter("name"), matches),
            map(attrgetter("words"), matches),
            matches,
            strict=True,
        )
    ]


@dataclass(frozen=True)
class _Distinct:
    """Matches that are read differently; *kind*: of each the number of its kind.

    sizes, test_list  how many tests each has, and these, one match after the other
    """

    matches: list[Match]
    kinds: list[_Kind]
    kind: Ints
    sizes: Ints
    test_list: Ints

    def each(self, of_kind: Callable[[_Kind], int]) -> Ints:
        """By match: a number that depends on its kind."""
        return np.array(list(map(of_kind, self.kinds)), np.int64)[self.kind]


def _numbered(values: Sequence[Any]) -> tuple[list[Any], Ints]:
    """The values, each once, in the order in which they are met; and by value its number among these."""
    number_of = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(number_of), np.fromiter(map(number_of.__getitem__, values), np.int64, len(values))


def _codes(
    distinct: _Distinct, tests: TestTable, keys: dict[str, int], backend: Backend, sure: bool
) -> tuple[U32, U32]:
    """The steps of the matches, and where those of each start."""
    plain = distinct.each(lambda kind: kind.is_plain) > 0
    native = distinct.each(lambda kind: kind.native and backend is Backend.NFT)
    others = np.flatnonzero(~plain).tolist()
    first_test = np.cumsum(distinct.sizes) - distinct.sizes
    own_tests = (
        distinct.test_list[first_test[at] : first_test[at] + distinct.sizes[at]].tolist() for at in others
    )
    code_of_others, steps_of_others = _code(
        map(distinct.matches.__getitem__, others), own_tests, tests, keys, backend, sure
    )
    steps = distinct.sizes.copy()
    steps[~plain] = steps_of_others
    code = np.empty(2 * int(steps.sum()), np.uint32)
    is_plain = np.repeat(plain, 2 * steps)
    own = np.repeat(plain, distinct.sizes)
    code[~is_plain] = code_of_others
    code[is_plain] = np.stack(
        (
            np.where(np.repeat(native, distinct.sizes)[own], ProveOp.NATIVE, ProveOp.TEST),
            distinct.test_list[own],
        ),
        1,
    ).ravel()
    return code, np.cumsum(np.append(0, steps)).astype(np.uint32)


def _code(
    matches: Iterable[Match],
    own_tests: Iterable[list[int]],
    tests: TestTable,
    keys: dict[str, int],
    backend: Backend,
    sure: bool,
) -> tuple[array[int], list[int]]:
    """The steps of the matches, one match after the other, and how many each has."""
    code, counts = array("I"), []
    op_test, op_native = int(ProveOp.TEST), int(ProveOp.NATIVE)
    in_nft, space = backend is Backend.NFT, Role.SPACE
    for match, own in zip(matches, own_tests, strict=True):
        before = len(code)
        native = in_nft and match.native
        op = op_native if native else op_test
        if match.is_protocol:
            code.extend((ProveOp.CUT, 0))
        if match.needs and not native:
            code.extend((ProveOp.NEED, match.needs | match.strict << 16))
        if match.either:
            code.extend((ProveOp.EITHER, len(own)) if own else (ProveOp.NEVER, 0))
        for test in own:
            code.append(op)
            code.append(test)
        if match.option:
            code.extend((ProveOp.OPTION, 0))
        if match.role is space:
            pass
        elif match.role is Role.CONSTANT:
            code.extend((op_test, tests.facts[match.fact]))
        else:
            code.extend((ProveOp.EVENT, keys[match.key] << 1 | (match.role is Role.ONCE)))
            if match.writes:
                code.extend((ProveOp.WRITE, mask(match.writes)))
            if sure and (answer := sure_answer(match)) is not None:
                code.extend((ProveOp.SURE, answer))
        counts.append((len(code) - before) // 2)
    return code, counts


def _asked(match: Match) -> object:
    """What the match, of another role than SPACE, asks besides its tests."""
    return match.fact if match.role is Role.CONSTANT else match.key


def _reads(distinct: _Distinct, roles: Ints, tests: TestTable) -> U32:
    """Mask of the states on which the tests of each match depend."""
    writers = np.array([_WRITERS[field] for field in Field], np.uint32)
    reads = np.zeros(len(distinct.matches), np.uint32)
    owner = np.repeat(np.arange(len(reads)), distinct.sizes)
    np.bitwise_or.at(reads, owner, writers[tests.dims[distinct.test_list]])
    for at in np.flatnonzero(roles == Role.CONSTANT).tolist():
        reads[at] |= mask(distinct.matches[at].reads)
    return reads


# By field: mask of the states whose writing changes the field.
_WRITERS = {
    field: mask(state for state, fields in FIELDS_WRITTEN.items() if field in fields) for field in Field
}

"""The values of an attribute, put together where no fact of two programs separates them.

Idea: facts that look at disjoint bits of an attribute do not restrict each other, so each group of bits is
taken by itself.  Where all facts of a group compare the same bits, its values are cut at the ends of their
intervals.  Otherwise an interval is a union of cubes (some bits have given values), and the bits are decided
one by one, with the set of cubes that still may hold: few sets are met, as most bits are in few masks.
A fact behind targets that keep some bits is a question about the value before them, with cubes of its own; so
what a target makes of the values of a cell is in one cell, too.  Many targets lead to few questions: behind
`--set-xmark 7/0xff` and 200 like it, whether the mark is 0 is known.

Invariant: two values are in one cell only if the same facts hold for both, whatever targets made of them; no
cell is empty.  Targets that would make more than MOST_MADE questions of each fact are not in
`Attribute.made`; a group with more than MOST_CELLS sets of cubes has an attribute for each of its facts
instead, as if these were not related.  Encoding.coarse says so.
"""

from __future__ import annotations

import functools
import operator
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .fact import Assignment, Fact, ordinary
from .intervals import Values

MOST_CELLS = 4096  # or twice as many as there are cubes
MOST_MADE = 64  # questions for each fact: about the number before assignments, one after the other
MOST_ASKED = 1 << 14  # of these, for all facts: a third of a second
MOST_HELD = 1 << 16  # values for which it is looked up what assignments make of them
# Of numbers of 32 bits: that the packet lacks the number.  What compares other bits fails then (xt_connmark).
_LACKS = 1 << 32
Cube = tuple[int, int]  # value, and the bits that must have it
Made = tuple[int, int]  # bits that are kept, then bits that are flipped


@dataclass(frozen=True, eq=False)
class Attribute:
    """Some bits of an attribute.

    name       as in `Fact`
    mask       the bits
    cells      a value of each cell, over the bits of *mask*
    facts      by fact: the cells in which it holds, as low, high, low, high, ...
    ordinary   the cell of an ordinary packet
    made       by assignment of a target: the one cell that it makes of all, or by cell the one that it makes
               of it; without some of those of the rules these would make too many cells
    behind     of facts after assignments, one after the other, that keep some bits: the fact, the bits that
               are kept and those that are flipped, and the cells after which it holds
    unrelated  whether it stands for one fact and its negation, as cells 1 and 0, and the value of a cell
               is not one of the attribute
    """

    name: str
    mask: int
    cells: tuple[int, ...]
    facts: dict[Fact, tuple[int, ...]]
    ordinary: int
    made: dict[Assignment, tuple[int, ...]] = field(default_factory=dict)
    behind: tuple[tuple[Fact, Made, tuple[int, ...]], ...] = ()
    unrelated: bool = False

    def plainest(self, ends: Sequence[int]) -> int:
        """Of low, high, low, high, ... the cell of an ordinary packet, else the first."""
        own = self.ordinary
        is_inside = any(low <= own <= high for low, high in zip(ends[::2], ends[1::2], strict=True))
        return own if is_inside else ends[0]


def common(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The cells that are in both, each given as low, high, low, high, ...."""
    sets = (Values(tuple(zip(ends[::2], ends[1::2], strict=True))) for ends in (one, other))
    return tuple(end for pair in next(sets).intersect(next(sets)).pairs for end in pair)


def before_made(made: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
    """The cells of which *made* makes one of low, high, low, high, ...."""
    if made.count(made[0]) == len(made):  # usually an assignment makes one number of all
        is_wanted = any(low <= made[0] <= high for low, high in zip(ends[::2], ends[1::2], strict=True))
        return (0, len(made) - 1) if is_wanted else ()
    wanted = {cell for low, high in zip(ends[::2], ends[1::2], strict=True) for cell in range(low, high + 1)}
    return _runs_of(at for at, cell in enumerate(made) if cell in wanted)


def made_of_all(made: Sequence[int], count: int) -> Sequence[int]:
    """By cell, of *count* cells, the one that an assignment makes of it (Attribute.made)."""
    return made if len(made) == count else list(made) * count


def numbers_of(cells: Mapping[tuple[Attribute, int], int]) -> dict[tuple[str, int], int]:
    """A value of each attribute, by name and number of writes before, that is in these cells, if we find one.

    *cells*: by attribute and number of writes before.
    """
    numbers: dict[tuple[str, int], int] = {}
    hold: dict[tuple[str, int], list[Fact]] = {}  # facts that are not told by cells of their attribute
    for (attribute, epoch), cell in cells.items():
        if attribute.unrelated:
            for fact, ends in attribute.facts.items():
                if ends[0] == cell:
                    hold.setdefault((fact.attribute, epoch), []).append(fact)
        else:
            at = attribute.name, epoch
            rest = numbers.get(at, ordinary(attribute.name)) & ~attribute.mask
            numbers[at] = rest | attribute.cells[cell]
    for at, facts in hold.items():
        number = some_number(facts)
        if number is not None:
            mask = functools.reduce(operator.or_, (fact.mask for fact in facts))
            numbers[at] = numbers.get(at, ordinary(at[0])) & ~mask | number
    return numbers


def attributes_of(facts: Iterable[Fact], assignments: Iterable[Assignment] = ()) -> list[Attribute]:
    """The attributes that *facts* ask, in the order in which these come; *assignments*: of the targets."""
    by_name: dict[str, dict[Fact, None]] = {}
    for fact in facts:
        by_name.setdefault(fact.attribute, {})[fact] = None
    making: dict[str, list[Assignment]] = {name: [] for name in by_name}
    for assignment in dict.fromkeys(assignments):
        if assignment.attribute in making:
            making[assignment.attribute].append(assignment)
    return [
        attribute
        for name, own in by_name.items()
        for group in _groups(list(own))
        for attribute in _cut(*group, making[name])
    ]


def _groups(facts: list[Fact]) -> list[tuple[int, list[Fact]]]:
    """Facts of one attribute by groups that look at no common bit, each with its bits."""
    groups: list[tuple[int, list[Fact]]] = []
    for mask in dict.fromkeys(fact.mask for fact in facts):
        own = [fact for fact in facts if fact.mask == mask]
        common = [group for group in groups if group[0] & mask]
        groups = [group for group in groups if not group[0] & mask]
        for other, others in common:
            mask |= other
            own = [*others, *own]
        groups.append((mask, own))
    return groups


def _cut(mask: int, facts: list[Fact], making: list[Assignment]) -> list[Attribute]:
    name = facts[0].attribute
    if any(each.keep & mask and (each.keep & mask, each.flip & mask) != (mask, 0) for each in making):
        questions = _questions(mask, facts, making)
        attribute = _cut_by_cubes(name, mask, facts, making, questions) if questions is not None else None
        if attribute is not None:
            return [attribute]
        making = []
    if all(fact.mask == mask for fact in facts):
        return [_cut_at_ends(name, mask, facts, making)]
    for followed in (making, []):
        attribute = _cut_by_cubes(name, mask, facts, followed, _of_facts(mask, facts))
        if attribute is not None:
            return [attribute]
    return _unrelated(facts)


class _Question(NamedTuple):
    """Whether *fact* holds for what is made of a number: whether the number is in one of *cubes*."""

    fact: Fact
    made: Made
    cubes: tuple[Cube, ...]


def _of_facts(mask: int, facts: list[Fact]) -> list[_Question]:
    return [_Question(fact, (mask, 0), tuple(_cubes(fact))) for fact in facts]


def _questions(mask: int, facts: list[Fact], making: list[Assignment]) -> list[_Question] | None:
    """What *facts* ask of a number: first as they are, then behind assignments, one after the other.

    Without questions that all numbers answer alike.  None: there are too many (MOST_MADE, MOST_ASKED).
    """
    questions = _of_facts(mask, facts)
    found = {frozenset(each.cubes) for each in questions}
    steps = _Steps(mask, making)
    for fact, (kept, flipped), cubes in questions:  # which grow
        for keep, flip in steps.before(cubes):
            asked = tuple(dict.fromkeys(_cubes_before(cubes, keep, flip)))
            if frozenset(asked) in found or not all(bits for _, bits in asked):
                continue
            found.add(frozenset(asked))
            questions.append(_Question(fact, (kept & keep, flip & kept ^ flipped), asked))
            if len(questions) > len(facts) + min((MOST_MADE - 1) * len(facts), MOST_ASKED):
                return None
    return questions


class _Steps:
    """What assignments keep and flip of the bits of *mask*, by what they keep."""

    def __init__(self, mask: int, making: list[Assignment]) -> None:
        self._flips: dict[int, dict[int, None]] = {}
        for each in making:
            self._flips.setdefault(each.keep & mask, {})[each.flip & mask] = None
        self._by_bits: dict[tuple[int, int], dict[int, list[int]]] = {}

    def before(self, cubes: Iterable[Cube]) -> Iterable[Made]:
        """Those that make a number of *cubes* of some numbers and not of all."""
        found: dict[Made, None] = {}
        for value, bits in cubes:
            for keep in self._flips:
                if bits & keep:
                    set_by = bits & ~keep
                    found |= dict.fromkeys(
                        (keep, flip) for flip in self._setting(keep, set_by, value & set_by)
                    )
        return found

    def _setting(self, keep: int, bits: int, value: int) -> Iterable[int]:
        """The flips, of those that keep *keep*, which set these bits to *value*."""
        if (keep, bits) not in self._by_bits:
            by_value = self._by_bits[keep, bits] = {}
            for flip in self._flips[keep]:
                by_value.setdefault(flip & bits, []).append(flip)
        return self._by_bits[keep, bits].get(value, ())


def _cut_at_ends(name: str, mask: int, facts: list[Fact], making: list[Assignment]) -> Attribute:
    """Of facts that compare the same bits, and assignments that keep none of these, or change none."""
    starts = {0}
    for fact in facts:
        for low, high in fact.values.pairs:
            starts |= {low, high + 1}
    pieces = sorted(starts)
    cells: list[int] = []
    first_cell: dict[int, int] = {}
    for at, start in enumerate(pieces):
        first_cell[start] = len(cells)
        value = _next_under(start, mask)
        if value is not None and (at + 1 == len(pieces) or value < pieces[at + 1]):
            cells.append(value)
    return Attribute(
        name,
        mask,
        tuple(cells),
        {fact: _between(fact.values, first_cell) for fact in facts},
        bisect_right(cells, ordinary(name) & mask) - 1,
        {
            each: tuple(range(len(cells)))
            if each.keep & mask
            else (bisect_right(cells, each.flip & mask) - 1,)
            for each in making
        },
    )


def _between(values: Values, first_cell: dict[int, int]) -> tuple[int, ...]:
    ends: list[int] = []
    for low, high in values.pairs:
        first, behind = first_cell[low], first_cell[high + 1]
        if first < behind:
            if ends and ends[-1] == first - 1:
                ends.pop()
                ends.append(behind - 1)
            else:
                ends += (first, behind - 1)
    return tuple(ends)


def _next_under(start: int, mask: int) -> int | None:
    """The smallest number from *start* on with no bit outside *mask*."""
    value = start
    while stray := value & ~mask:
        top = stray.bit_length()
        value = (value >> top) + 1 << top
        if value > mask:
            return None
    return value if value <= mask else None


def _cut_by_cubes(
    name: str, mask: int, facts: list[Fact], making: list[Assignment], questions: list[_Question]
) -> Attribute | None:
    """None: there are more than MOST_CELLS sets of cubes.

    *questions*: those of `_questions`; cells differ if their numbers answer one differently.
    """
    cubes: list[Cube] = []
    asked: list[int] = []  # by cube: the number of the question of which it is a part
    for at, question in enumerate(questions):
        asked += [at] * len(question.cubes)
        cubes += question.cubes
    most = max(MOST_CELLS, 2 * len(cubes))  # of cubes within each other there are about as many cells
    steps = [
        (bit, _set_of(cubes, bit, 0), _set_of(cubes, bit, bit))
        for bit in (1 << at for at in reversed(range(mask.bit_length())) if mask >> at & 1)
    ]
    everything = (1 << len(cubes)) - 1
    alive = {everything: 0}  # sets of cubes that may hold: the bits that lead to them
    for bit, zero, one in steps:
        after: dict[int, int] = {}
        for cube_set, value in alive.items():
            after.setdefault(cube_set & zero, value)
            after.setdefault(cube_set & one, value | bit)
        alive = after
        if len(alive) > most:
            return None
    owner = np.array(asked, np.int64)

    def truth(held: int) -> tuple[int, ...]:
        """The numbers of the questions that are true where these cubes hold."""
        octets = np.frombuffer(held.to_bytes(len(cubes) // 8 + 1, "little"), np.uint8)
        return tuple(np.unique(owner[np.flatnonzero(np.unpackbits(octets, bitorder="little"))]).tolist())

    number: dict[tuple[int, ...], int] = {}
    values: list[int] = []
    held_in: list[list[int]] = [[] for _ in questions]  # by question: its cells
    for cube_set, value in alive.items():
        true_questions = truth(cube_set)
        if true_questions in number:
            continue
        for at in true_questions:
            held_in[at].append(len(values))
        number[true_questions] = len(values)
        values.append(value)
    if sum(len(values) if assignment.keep & mask else 1 for assignment in making) > MOST_HELD:
        return None

    def cell_of(value: int) -> int:
        held = everything
        for bit, zero, one in steps:
            held &= one if value & bit else zero
        return number[truth(held)]

    made_of = {
        assignment: tuple(
            cell_of(assignment.of(value)) for value in (values if assignment.keep & mask else (0,))
        )
        for assignment in making
    }
    behind = tuple(
        (question.fact, question.made, _runs_of(cells))
        for question, cells in list(zip(questions, held_in, strict=True))[len(facts) :]
    )
    holds = {fact: _runs_of(held_in[at]) for at, fact in enumerate(facts)}
    return Attribute(name, mask, tuple(values), holds, cell_of(ordinary(name)), made_of, behind)


def _set_of(cubes: Sequence[Cube], bit: int, wanted: int) -> int:
    """The cubes whose values may have *bit* as *wanted*, as bits."""
    fits = ("1" if not bits & bit or value & bit == wanted else "0" for value, bits in reversed(cubes))
    return int("".join(fits) or "0", 2)


def _cubes_before(cubes: Iterable[Cube], keep: int, flip: int) -> Iterable[Cube]:
    """The values that *keep* and *flip* turn into values of *cubes*."""
    for value, bits in cubes:
        if not (value ^ flip) & bits & ~keep:
            yield (value ^ flip) & bits & keep, bits & keep


def some_number(facts: Sequence[Fact]) -> int | None:
    """A number for which all these facts hold; None: there is none, or it was not found."""
    cubes: list[Cube] = []
    of_fact: list[int] = []
    for fact in facts:
        own = list(_cubes(fact))
        of_fact.append((1 << len(own)) - 1 << len(cubes))
        cubes += own
    alive = {(1 << len(cubes)) - 1: 0} if all(of_fact) else {}
    mask = 0
    for _, bits in cubes:
        mask |= bits
    for bit in (1 << at for at in reversed(range(mask.bit_length())) if mask >> at & 1):
        after: dict[int, int] = {}
        for wanted in (0, bit):
            fits = sum(
                1 << at for at, (value, bits) in enumerate(cubes) if not bits & bit or value & bit == wanted
            )
            for each, value in alive.items():
                if all(each & fits & own for own in of_fact):
                    after.setdefault(each & fits, value | wanted)
        alive = after
        if len(alive) > MOST_CELLS:
            return None
    return next(iter(alive.values()), None)


def behind_in_words(attribute: str, key: str, fact: Fact, made: Made) -> str:
    """A fact after assignments, as one of the number before them."""
    keep, flip = made
    cubes = list(_cubes_before(_cubes(fact), keep, flip))
    if len(cubes) == 1:
        ((value, bits),) = cubes
        if bits == _LACKS:
            return f"the packet has {'no' if value else 'a'} {attribute}"
        return f"{attribute} {value:#x}/{bits if value & _LACKS else bits & ~_LACKS:#x}"
    compared = fact.mask & ~_LACKS
    return f"{key} of ({attribute} & {keep & compared:#x} ^ {flip & compared:#x})"


def _cubes(fact: Fact) -> Iterable[Cube]:
    """The values of a fact as cubes; those that its mask makes empty are left out."""
    for low, high in fact.values.pairs:
        while low <= high:
            size = low & -low or 1 << (high + 1).bit_length()
            while low + size > high + 1:
                size >>= 1
            fixed = ~(size - 1)
            if not low & fixed & ~fact.mask:
                yield low & fact.mask, fact.mask & fixed
            low += size


def _runs_of(numbers: Iterable[int]) -> tuple[int, ...]:
    """Ascending *numbers* as low, high, low, high, ...."""
    ends: list[int] = []
    for number in numbers:
        if ends and ends[-1] == number - 1:
            ends[-1] = number
        else:
            ends += (number, number)
    return tuple(ends)


def _unrelated(facts: list[Fact]) -> list[Attribute]:
    """An attribute for each fact with its negation."""
    out: dict[Fact, Attribute] = {}
    for fact in facts:
        plain = min(fact, fact.negation, key=lambda each: each.values.pairs)
        if plain not in out:
            name = f"{fact.attribute} & {fact.mask:#x} in {plain.values.pairs}"
            out[plain] = Attribute(name, 1, (0, 1), {}, 0, unrelated=True)
        out[plain].facts[fact] = (1, 1) if fact == plain else (0, 0)
    return list(out.values())

"""Cells of an attribute: values are together only if no fact, and no target, tells them apart."""

from __future__ import annotations

import random
from itertools import product

import pytest
from support.scale import examples

from hitables.ir import attributes
from hitables.ir.attributes import (
    Attribute,
    attributes_of,
    before_made,
    common,
    made_of_all,
    numbers_of,
)
from hitables.ir.fact import Assignment, Fact
from hitables.ir.intervals import Values

BITS = 5
NUMBERS = range(1 << BITS)


def drawn_facts(rng: random.Random) -> list[Fact]:
    masks = [rng.randrange(1 << BITS) for _ in range(rng.choice([1, 1, 2, 3]))]
    facts = []
    for _ in range(rng.randint(1, 4)):
        pairs = []
        for _ in range(rng.randint(0, 3)):
            low, high = sorted(rng.choices(NUMBERS, k=2))
            pairs.append((low, rng.choice([low, high])))
        fact = Fact("n", Values.of(*pairs), rng.choice(masks))
        facts.append(rng.choice([fact, fact.negation]))
    return facts


def drawn_assignments(rng: random.Random) -> list[Assignment]:
    keeps = [~(NUMBERS.stop - 1), ~rng.choice(NUMBERS), -1]
    return [Assignment("n", rng.choice(keeps), rng.choice(NUMBERS)) for _ in range(rng.randint(0, 3))]


def inside(cell: int, ends: tuple[int, ...]) -> bool:
    return any(low <= cell <= high for low, high in zip(ends[::2], ends[1::2], strict=True))


def test_cells_are_exactly_the_answers_that_numbers_give() -> None:
    for seed in range(examples(600)):
        facts = drawn_facts(random.Random(seed))
        for attribute in attributes_of(facts):

            def answers(number: int, own: Attribute = attribute) -> tuple[bool, ...]:
                return tuple(fact.holds(number) for fact in own.facts)

            assert {answers(cell) for cell in attribute.cells} == {answers(number) for number in NUMBERS}
            assert answers(attribute.cells[attribute.ordinary]) == answers(0)
            for cell, number in enumerate(attribute.cells):
                assert not number & ~attribute.mask
                for fact, ends in attribute.facts.items():
                    assert inside(cell, ends) == fact.holds(number), (seed, fact)


def test_cells_behave_as_numbers_do_whatever_targets_make_of_them() -> None:
    for seed in range(examples(300)):
        rng = random.Random(seed)
        facts, made = drawn_facts(rng), drawn_assignments(rng)
        sequences = [each for length in range(4) for each in product(made, repeat=length)]
        for attribute in attributes_of(facts, made):

            def of_number(number: int, own: Attribute = attribute) -> tuple[bool, ...]:
                seen = []
                for sequence in sequences:  # noqa: B023 - called within this round
                    now = number
                    for step in sequence:
                        now = step.of(now)
                    seen += [fact.holds(now) for fact in own.facts]
                return tuple(seen)

            def of_cell(cell: int, own: Attribute = attribute) -> tuple[bool, ...]:
                seen = []
                for sequence in sequences:  # noqa: B023
                    now = cell
                    for step in sequence:
                        now = made_of_all(own.made[step], len(own.cells))[now]
                    seen += [inside(now, ends) for ends in own.facts.values()]
                return tuple(seen)

            assert {of_number(number) for number in NUMBERS} == {
                of_cell(cell) for cell in range(len(attribute.cells))
            }, seed


def test_bits_that_no_fact_compares_together_are_apart() -> None:
    facts = [Fact("mark", Values.only(1 << bit), 1 << bit) for bit in range(32)]
    assert [len(attribute.cells) for attribute in attributes_of(facts)] == [2] * 32
    numbers = numbers_of({(attribute, 0): 1 for attribute in attributes_of(facts)})
    assert numbers == {("mark", 0): 0xFFFFFFFF}


def test_many_values_of_one_number_are_one_attribute() -> None:
    facts = [Fact("mark", Values.only(mark), 0xFFFFFFFF) for mark in range(1, 6001, 2)]
    (attribute,) = attributes_of(facts)
    assert len(attribute.cells) == 6001  # those that are asked, and those between
    assert attribute.facts[facts[7]] == (15, 15)


def test_too_many_cells_become_facts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "MOST_CELLS", 16)
    bits = [Fact("mark", Values.only(1 << bit), 1 << bit) for bit in range(8)]
    whole = Fact("mark", Values.only(5), 0xFF)
    found = attributes_of([*bits, whole, whole.negation])
    assert len(found) == 9 and all(attribute.unrelated for attribute in found)
    assert sorted(found[-1].facts.values()) == [(0, 0), (1, 1)]
    assert set(found[-1].facts) == {whole, whole.negation}


def test_too_many_assignments_in_a_row_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [Fact("mark", Values.only(0xFF), 0xFF)]
    made = [Assignment("mark", ~(1 << bit), 1 << bit) for bit in range(8)]
    whole = Assignment("mark", ~0xFF, 5)
    (attribute,) = attributes_of(facts, [*made, whole])
    assert not attribute.made, "2**8 of them"
    (attribute,) = attributes_of(facts, [*made[:5], whole])
    assert len(attribute.made) == 6


def test_assignments_that_leave_few_questions_are_followed() -> None:
    fact, whole = Fact("mark", Values.only(0), 0xFFFF), 0xFFFF
    made = [Assignment("mark", whole & ~0xFF, mark) for mark in range(200)]
    (attribute,) = attributes_of([fact, fact.negation], made)
    assert len(attribute.cells) == 3, "0, other numbers of the low bits, all others"
    assert attribute.made.keys() == set(made)


def test_sets_of_cells() -> None:
    assert common((0, 3, 6, 9), (2, 7)) == (2, 3, 6, 7)
    assert common((0, 1), (2, 3)) == ()
    assert before_made((4, 4, 0, 4, 1), (4, 4)) == (0, 1, 3, 3)


def test_a_fact_implies_another_that_holds_for_all_its_numbers() -> None:
    small, all_of_it = Fact("mark", Values.only(1), 3), Fact("mark", Values.only(1, 2), 3)
    assert small.implies(all_of_it) and not all_of_it.implies(small)
    assert not small.implies(Fact("connmark", Values.only(1, 2), 3))
    assert not small.implies(Fact("mark", Values.only(1, 2), 7))  # 5 & 3 is 1, and 5 & 7 is not

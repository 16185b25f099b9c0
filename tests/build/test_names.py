"""Laws of cuts of names, tested on every name over a few letters; and how many rules they save."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from benchmarks.interfaces import fork_reads
from hitables.analyse.boxes import Axis, Boxes, Cut
from hitables.analyse.rule_boxes import axis
from hitables.build.expected_cost import rules_read
from hitables.build.grow import ALGORITHMS, PAPER, grow
from hitables.build.tree import NodeKind, Tree
from hitables.emit.tree_tests import matches
from hitables.emit.tree_tests import test_words as words_of_test
from hitables.ir.fields import Family, Field, interface_name, interface_number

pytestmark = pytest.mark.engine

LETTERS = b"ab+"
# Names of at most three letters, and of at most two: the last byte is the 0 that ends a name.
AXES = (Axis(Field.IIF, 32, False, Cut.NAME), Axis(Field.OIF, 24, False, Cut.NAME))
WIDE = (axis(Field.IIF, Family.IPV4), axis(Field.OIF, Family.IPV4))


def names(bits: int) -> list[int]:
    """Every name over LETTERS that an axis of *bits* bits holds, the empty one among them."""
    letters = bits // 8 - 1
    spelt = [bytes(each) for n in range(letters + 1) for each in itertools.product(LETTERS, repeat=n)]
    return [int.from_bytes(name.ljust(letters + 1, b"\0"), "big") for name in spelt]


POINTS = np.array(list(itertools.product(*(names(axis.bits) for axis in AXES))), np.uint64)
WORDS = np.stack([np.zeros_like(POINTS), POINTS], axis=-1)


def prefixes(bits: int) -> list[tuple[int, int]]:
    """The intervals of all tests that a rule may have: names, and beginnings of names with "+" behind."""
    size = bits // 8
    beginnings = [bytes(each) for n in range(size - 1) for each in itertools.product(LETTERS, repeat=n)]
    wild = [
        (int.from_bytes(each.ljust(size, b"\0"), "big"), int.from_bytes(each.ljust(size, b"\xff"), "big"))
        for each in beginnings
    ]
    plain = [name for name in names(bits) if not _ends_with_plus(name)]
    return wild + [(name, name) for name in plain if name]


def _ends_with_plus(name: int) -> bool:
    return name.to_bytes(16, "big").rstrip(b"\0").endswith(b"+")


TESTS = {each.field: prefixes(each.bits) for each in AXES}


@st.composite
def boxes(draw: st.DrawFn, most: int = 20) -> Boxes:
    """Rules that test names, beginnings and their negations; a few of intervals that no rule can spell."""

    def sides(each: Axis) -> list[tuple[int, int]]:
        low, high = draw(st.sampled_from(TESTS[each.field]))
        top = (1 << each.bits) - 1
        kind = draw(
            st.sampled_from(["plain", "plain", "plain", "plain", "negated", "between", "near", "none"])
        )
        match kind:
            case "negated":
                outside = [(0, low - 1)] * (low > 0) + [(high + 1, top)] * (high < top)
                return outside or [(0, top)]
            case "near":
                value = draw(st.sampled_from(names(each.bits)))
                return [(value, value + draw(st.sampled_from([0, 1, 255])))]
            case "between":
                other = draw(st.sampled_from(TESTS[each.field]))[1]
                return [(min(low, other), max(high, other))]
            case "none":
                return [(0, top)]
        return [(low, high)]

    rules = [
        [
            dict(zip((Field.IIF, Field.OIF), pair, strict=True))
            for pair in itertools.product(*map(sides, AXES))
        ]
        for _ in range(draw(st.integers(0, most)))
    ]
    final = draw(st.lists(st.booleans(), min_size=len(rules), max_size=len(rules)))
    weight = draw(st.lists(st.sampled_from([0.0, 1.0, 1.0, 9.0]), min_size=len(rules), max_size=len(rules)))
    return Boxes.of(AXES, rules, final, weight)


def intervals_of(tree: Tree) -> list[tuple[int, int, int]]:
    """Axis, low and high of every test of the tree."""
    found = []
    for node in tree.as_tests().nodes():
        if node.kind is NodeKind.TEST:
            assert node.axis is not None
            found.append((tree.boxes.axes.index(node.axis), node.edges[0].low, node.edges[0].high))
    return found


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, PAPER])
@settings(max_examples=examples(40))
@given(rules=boxes(), leaf_size=st.integers(1, 3))
def test_a_search_by_names_finds_the_first_rule_of_the_list(
    algorithm: str, rules: Boxes, leaf_size: int
) -> None:
    low, high = rules.low[:, :, 1], rules.high[:, :, 1]
    inside = ((POINTS[:, None] >= low) & (POINTS[:, None] <= high)).all(axis=2)
    first = np.full(len(POINTS), -1)
    for box in reversed(range(len(rules.rule))):
        first[inside[:, box]] = rules.rule[box]
    tree = grow(rules, algorithm=algorithm, leaf_size=leaf_size)
    assert tree.search(WORDS)[0].tolist() == first.tolist()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=examples(40))
@given(rules=boxes())
def test_only_names_and_beginnings_that_a_rule_can_spell_are_tested(algorithm: str, rules: Boxes) -> None:
    tree = grow(rules, algorithm=algorithm, leaf_size=1)
    for at, low, high in intervals_of(tree):
        assert (low, high) in TESTS[AXES[at].field]
        assert (low, high) != (0, (1 << AXES[at].bits) - 1), "every packet passes that test"


any_name = st.text(st.characters(codec="utf-8", exclude_characters="\0/: "), min_size=1).map(
    lambda text: text.encode()[:15].decode(errors="surrogateescape")
)


@settings(max_examples=examples(60))
@given(
    spelt=st.lists(any_name | st.sampled_from(["x" * 15, "x" * 14, "x" * 13 + "y+"]), min_size=3, max_size=12)
)
def test_the_words_of_a_test_mean_its_interval_whatever_the_names(spelt: list[str]) -> None:
    """Cut inside of a letter of several bytes, or behind 14 of 15 bytes, a beginning is still a test."""
    numbers = sorted({interface_number(name) for name in spelt if not name.endswith("+")})
    tree = grow(
        Boxes.of(WIDE[:1], [[{Field.IIF: (n, n)}] for n in numbers], [True] * len(numbers)), leaf_size=1
    )
    for _, low, high in intervals_of(tree):
        (match,) = matches(words_of_test(Field.IIF, low, high, False, None, Family.IPV4), Family.IPV4)
        assert match.tests[0].values.pairs == ((low, high),)
        assert len(match.words[-1].encode("utf-8", "surrogateescape")) <= 15


def test_names_that_differ_in_the_last_byte_only_are_told_apart_one_by_one() -> None:
    """`+` takes the place of the fifteenth byte, so no beginning is longer than fourteen."""
    spelt = [interface_number("x" * 14 + letter) for letter in "abcdefgh"]
    tree = grow(Boxes.of(WIDE[:1], [[{Field.IIF: (n, n)}] for n in spelt], [True] * 8), leaf_size=1)
    wild = [low for _, low, high in intervals_of(tree) if low != high]
    assert all(interface_name(low) == "x" * 14 for low in wild)
    assert {low for _, low, high in intervals_of(tree) if low == high} <= set(spelt)


def bridges(count: int) -> list[int]:
    """Names as a container host gives them: twelve digits that look drawn by lot."""
    return [interface_number(f"br-{n * 0x9E3779B97F4A7C15 % 16**12:012x}") for n in range(1, count + 1)]


@pytest.mark.parametrize("count", [70, 200])
def test_a_tree_of_names_reads_little_more_than_the_forks_of_their_letters_ask(count: int) -> None:
    spelt = bridges(count)
    rules = [[{Field.OIF: (n, n)}] for n in spelt]
    boxes = Boxes.of(WIDE[1:], rules, [True] * count)
    before, after = rules_read(boxes, grow(boxes))
    assert before > count / 2.5
    assert after <= 1.1 * fork_reads([interface_name(n) for n in spelt]) / count + 2
    assert after <= 16 / 2 * math.log(count, 16) + 2


def test_pairs_of_names_are_told_apart_name_by_name() -> None:
    spelt = bridges(40)
    rules = [[{Field.IIF: (a, a), Field.OIF: (b, b)}] for a in spelt for b in spelt if a != b]
    boxes = Boxes.of(WIDE, rules, [True] * len(rules))
    tree = grow(boxes)
    assert rules_read(boxes, tree)[1] < 20
    assert tree.printed_rules() < 1.5 * len(rules)


def test_an_axis_of_names_is_whole_bytes_and_every_packet_has_it() -> None:
    for broken in (Axis(Field.IIF, 33, False, Cut.NAME), Axis(Field.MAC, 48, True, Cut.NAME),
                   Axis(Field.IIF, 8, False, Cut.NAME)):  # fmt: skip
        with pytest.raises(ValueError, match="an axis is impossible"):
            grow(Boxes.of([broken], [], []))

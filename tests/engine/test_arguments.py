"""Wrong arguments of the engine are refused with their names, before C reads them."""

from __future__ import annotations

import builtins
from types import SimpleNamespace

import numpy as np
import pytest

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.errors import DatabaseError

LAYOUT = Layout((8, 8))
RULES = Rules.of_ranges([[(0, 9), (0, 255)], [(5, 20), (1, 1)]], LAYOUT)


def five_fields(**values: object) -> Rules:
    """A rule for each packet, and one that is the same but for *values*."""
    rule = {"src": (0, 5), "dst": (0, 5), "sport": (0, 5), "dport": (0, 5), "proto": 6}
    return Rules.of_filter([SimpleNamespace(**rule), SimpleNamespace(**rule | values)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: engine.open("hypersplat", RULES), "no algorithm is called hypersplat"),
        (lambda: engine.open("linear(", RULES), "no algorithm; write it as"),
        (lambda: engine.open("linear(linear)", RULES), "linear wraps no other"),
        (lambda: engine.open("linear(delta=2)", RULES), "no parameter delta"),
        (lambda: engine.open("sfl(tss(step=8, step=1))", RULES), "tss: step is given twice"),
        (lambda: Rules.of_ranges([[(9, 3), (0, 1)]], LAYOUT), "the range 9..3 is empty"),
        (lambda: Rules.of_ranges([[(0, 256), (0, 1)]], LAYOUT), "does not fit into 8 bits"),
        (lambda: Rules.of_ranges([[(0, 1)]], LAYOUT), "a rule of 1 ranges"),
        (lambda: Rules.of_ranges([[(0, 1), (0, 1)]] * 2, LAYOUT, [4, 4]), "priority 4 is given twice"),
        (lambda: Rules.of_ranges([[(0, 1), (0, 1)]], LAYOUT, [-4]), "a priority must lie in"),
        (lambda: Rules.of_ranges([[(0, 1), (0, 1)]] * 2, LAYOUT, [1.2, 1.7]), "a priority must be a whole number, not 1.2"),
        (lambda: Rules.of_ranges([[(0, 1), (0, 1)]], None), "the layout must be a Layout, not None"),
        (lambda: Rules((8, 8), RULES.boxes, RULES.priority), "the layout must be a Layout"),
        (lambda: Rules(LAYOUT, [[1]], [1]), "boxes must be an array of numpy, not list"),
        (lambda: Rules.of_ranges([[(0, 1), 1]], LAYOUT), "pairs of whole numbers"),
        (lambda: Rules.of_ranges([[(0, 1), (0, 1, 2)]], LAYOUT), "pairs of whole numbers"),
        (lambda: Rules.of_ranges([[(0, 1), (0.0, 1.0)]], LAYOUT), "pairs of whole numbers"),
        (lambda: Layout("88"), "the widths of fields are whole numbers"),
        (lambda: Layout((8.5,)), "the widths of fields are whole numbers"),
        (lambda: LAYOUT.headers([["1", 2]]), "header 0 has whole numbers"),
        (lambda: LAYOUT.headers([5]), "header 0 has whole numbers, one of each field, not 5"),
        (lambda: engine.open("linear", RULES).insert([(0, 1), (0, 1)], 1.5), "priority must be a whole number, not 1.5"),
        (lambda: engine.open("linear", RULES).remove("x"), "priority must be a whole number, not 'x'"),
        (lambda: engine.open("linear", RULES).insert_at(0.0, [(0, 1), (0, 1)]), "position must be a whole number"),
        (lambda: engine.open("linear", RULES).update([True], RULES.boxes, RULES.priority), "inserts must be an array"),
        (lambda: engine.Filters("linear", room=1.5), "room must be a whole number"),
        (lambda: engine.Filters("linear", [(1, 2)]), "a filter must be a Filter"),
        (lambda: engine.Filters("linear").insert((1, 2)), "a filter must be a Filter"),
        (lambda: Rules(LAYOUT, np.zeros((1, 2, 2), np.int64), np.zeros(1, np.uint32)), "must be uint32"),
        (lambda: Rules(LAYOUT, np.array([[[3, 1], [0, 0]]], np.uint32), np.zeros(1, np.uint32)), "box 0, dimension 0: the range is empty"),
        (lambda: Rules(LAYOUT, np.zeros((2, 2, 2), np.uint32), np.array([1, 0], np.uint32)), "priorities must rise"),
        (lambda: Layout((129,)), "1 to 128"),
        (lambda: engine.open("linear", RULES, limit=-1), r"limit must lie in 0\.\.\d+, not -1"),
        (lambda: engine.open("linear", RULES, limit=1e6), "limit must be a whole number, not 1000000.0"),
        (lambda: engine.open("linear", RULES, limit=10**30), "limit must lie in .* not 1000"),
        (lambda: engine.open(None, RULES), "not as None"),
        (lambda: engine.open(5, RULES), "not as 5"),
        (lambda: engine.open("linear", [1, 2]), "1 is no rule of five fields"),
        (lambda: five_fields(src=(0, -1)), r"rule 1: field 0: the range 0\.\.-1 is empty"),
        (lambda: five_fields(src=(0, 2**32 + 5)), "rule 1: field 0: .* does not fit into 32 bits"),
        (lambda: five_fields(proto=6.5), r"rule 1: .* pairs of whole numbers, .*6\.5"),
        (lambda: five_fields(dst=("0", "8")), "rule 1: .* pairs of whole numbers"),
        (lambda: five_fields(dport=(1, 2, 3)), "rule 1: .* pairs of whole numbers"),
        (lambda: five_fields(sport=(0, 70000)), "dimension 2: the range is wider"),
        (lambda: engine.EvolvingRules([1]), "evolving rules are those of Rules, not of list"),
        (lambda: engine.EvolvingRules(RULES, order=np.zeros(2)), "order is array"),
        (lambda: engine.Storm("linear", RULES, low=10**400), "low and high must rise"),
        (lambda: engine.open("linear", RULES).search([[1, 2]]), "must be an array of numpy, not list"),
        (lambda: engine.open("linear", RULES).search(None), "not NoneType"),
        (lambda: engine.Filter(1, ((0, 1),) * 5, "nope"), "'nope' is no action; there are DENY"),
        (lambda: engine.Filter(1, ((0, 1),), 7), "7 is no action"),
        (lambda: engine.Filters("linear").classify(None), "headers must be an array of numpy, not NoneType"),
        (lambda: engine.Filters("linear").classify(np.zeros((1, 5), np.uint32), [1]), "times must be an array of numpy"),
    ],
)  # fmt: skip
def test_bad_rules_and_plans_are_refused_with_a_reason(make: object, message: str) -> None:
    with pytest.raises(DatabaseError, match=message):
        make()  # type: ignore[operator]


def test_bad_headers_are_refused_with_a_reason() -> None:
    with engine.open("linear", RULES) as db:
        assert len(db.search(np.zeros((0, 2), np.uint32))) == 0
        for headers, message in (
            (np.zeros((3, 2), np.int64), "must be uint32"),
            (np.zeros((3, 5), np.uint32), r"\[headers\]\[2\]"),
            (np.zeros((2, 3), np.uint32).T, "row by row"),
        ):
            with pytest.raises(DatabaseError, match=message):
                db.search(headers)
        with pytest.raises(DatabaseError, match="out must be"):
            db.search(np.zeros((3, 2), np.uint32), np.zeros(3, np.int64))
        for out, message in (
            (np.frombuffer(bytes(12), np.int32), "out is read-only"),
            (np.zeros(6, np.int32)[::2], "out must lie row by row"),
            ([0, 0, 0], "out must be an array of numpy, not list"),
        ):
            with pytest.raises(DatabaseError, match=message):
                db.search(np.zeros((3, 2), np.uint32), out)
        with pytest.raises(DatabaseError, match="priority must lie in"):
            db.insert([(0, 1), (0, 1)], -1)
        with pytest.raises(DatabaseError, match="is empty"):
            db.insert([(1, 0), (0, 1)], 7)
        assert len(db) == 2
    with pytest.raises(DatabaseError, match="closed"):
        len(db)


def misaligned(array: np.ndarray) -> np.ndarray:
    """A copy whose values lie at odd addresses."""
    copy = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def test_values_at_odd_addresses_are_refused_and_of_rules_copied() -> None:
    """C may read a word only where it may stand; the sanitizer would tell."""
    boxes, priority = misaligned(RULES.boxes), misaligned(RULES.priority)
    headers = np.array([[3, 9]], np.uint32)
    with engine.open("linear", Rules(LAYOUT, boxes, priority)) as db:
        db.update(np.array([True]), boxes[:1], misaligned(np.array([7], np.uint32)))
        with pytest.raises(DatabaseError, match="headers must lie row by row in memory, its values aligned"):
            db.search(misaligned(headers))
        with pytest.raises(DatabaseError, match="out must lie"):
            db.search(headers, misaligned(np.zeros(1, np.int32)))
        assert db.search(headers).tolist() == [0]


@pytest.mark.parametrize("shape", [(4, 0), (4, 3), ()])
def test_updates_whose_flags_are_no_list_are_refused(shape: tuple[int, ...]) -> None:
    """C would read as many flags as there are rows."""
    with engine.open("linear", RULES) as db:
        with pytest.raises(DatabaseError, match=r"inserts must be bool \[updates\]"):
            db.update(np.ones(shape, bool), np.zeros((4, 2, 2), np.uint32), np.arange(4, dtype=np.uint32))
        assert len(db) == 2


def test_all_names_of_the_engine_can_be_imported_without_replacing_a_builtin() -> None:
    assert not set(engine.__all__) & set(dir(builtins))
    assert all(hasattr(engine, name) for name in [*engine.__all__, "open"])

"""Evolving rules: the five properties of the paper hold after any samples, and its examples come out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables import engine
from hitables.engine import EvolvingRules, Layout, Rules
from hitables.errors import DatabaseError, OutOfMemory

Ranges = list[tuple[int, int]]

# Tables 1 and 2 of the paper: eight rules on five fields, TCP 1 and UDP 0.
FIELDS = Layout((4, 4, 2, 2, 1))
TABLE_2: list[Ranges] = [
    [(0, 1), (14, 15), (2, 2), (0, 3), (0, 0)],
    [(0, 1), (8, 11), (1, 1), (2, 2), (1, 1)],
    [(0, 1), (4, 7), (0, 3), (3, 3), (1, 1)],
    [(0, 7), (8, 15), (0, 3), (1, 1), (0, 0)],
    [(0, 7), (0, 7), (2, 2), (0, 3), (0, 0)],
    [(0, 1), (0, 7), (0, 3), (1, 1), (0, 0)],
    [(0, 15), (0, 15), (0, 3), (0, 3), (0, 0)],
    [(0, 15), (0, 15), (0, 3), (0, 3), (1, 1)],
]
ACTIONS = np.array([0, 1, 0, 2, 1, 1, 3, 4], np.uint32)

# Table 3: four rules on two fields.
PLANE = Layout((4, 4))
TABLE_3: list[Ranges] = [
    [(1, 9), (4, 10)],
    [(7, 14), (3, 8)],
    [(3, 11), (1, 6)],
    [(0, 15), (0, 11)],
]


def every_packet(layout: Layout) -> np.ndarray:
    return layout.headers(list(itertools.product(*(range(1 << width) for width in layout.widths))))


def figure_5() -> EvolvingRules:
    return EvolvingRules(Rules.of_ranges(TABLE_2, FIELDS), ACTIONS, leaf=2, cuts="published")


def test_the_root_of_figure_5_cuts_fields_2_and_4_into_eight_children() -> None:
    with figure_5() as evolving:
        assert evolving.root() == {1: 4, 3: 2}


@pytest.mark.parametrize("prune", [True, False])
@pytest.mark.parametrize("cuts", ["copies", "published"])
def test_the_rule_of_figure_5_is_approved_by_rule_4_over_udp(cuts: str, prune: bool) -> None:
    udp: Ranges = [(4, 7), (4, 7), (2, 2), (0, 3), (0, 0)]
    either: Ranges = [*udp[:4], (0, 1)]
    rules = Rules.of_ranges(TABLE_2, FIELDS)
    with EvolvingRules(rules, ACTIONS, leaf=2, cuts=cuts, prune=prune) as evolving:
        found = evolving.approves(udp, 1)
        assert (found.approved, found.match) == (True, 4)
        assert found.conflict is None, "rule 6 is met, but read only up to rule 4"
        # As the paper prints the example, with any protocol: no rule holds it, and rule 7 decides a part.
        found = evolving.approves(either, 1)
        assert (found.approved, found.match) == (False, None)
        assert found.conflict in (6, 7)
        assert not evolving.approves(udp, 0).approved


def test_the_rule_of_figure_5_overlaps_children_2_and_3() -> None:
    with figure_5() as evolving:
        assert evolving.parts([(4, 7), (4, 7), (2, 2), (0, 3), (0, 0)]) == [2, 3]
        assert evolving.parts([(0, 15), (0, 15), (0, 3), (0, 3), (0, 1)]) == list(range(8))


def test_six_samples_make_the_three_rules_of_figure_4() -> None:
    """In R1, R1, R2, R2, R3 and R3, each the second of its kind near the first."""
    samples = [(13, 5), (14, 8), (5, 2), (10, 2), (1, 1), (2, 3)]
    with EvolvingRules(Rules.of_ranges(TABLE_3, PLANE)) as evolving:
        counts = []
        for x, y in samples:
            evolving.sample(np.array([[x, y]], np.uint32))
            evolving.check()
            counts.append(len(evolving.rules()))
        assert counts == [1, 1, 2, 2, 3, 3]
        assert evolving.rules() == [
            (((13, 14), (5, 8)), 1, 2),
            (((5, 10), (2, 2)), 2, 2),
            (((1, 2), (1, 3)), 3, 2),
        ]


def test_a_sample_of_another_rule_in_the_hull_makes_a_new_rule() -> None:
    """Both are of R3, and R0 is between them."""
    with EvolvingRules(Rules.of_ranges(TABLE_3, PLANE)) as evolving:
        evolving.sample(np.array([[0, 5], [15, 9]], np.uint32))
        assert [rule.weight for rule in evolving.rules()] == [1, 1]
        assert evolving.approves([(0, 15), (5, 9)], 3).conflict == 0


def test_packets_of_no_rule_have_an_action_of_their_own() -> None:
    with EvolvingRules(Rules.of_ranges(TABLE_3, PLANE)) as evolving:
        evolving.sample(np.array([[3, 12], [9, 15]], np.uint32))
        assert evolving.rules() == [(((3, 9), (12, 15)), -1, 2)]
        assert not evolving.approves([(3, 9), (11, 15)], -1).approved
        evolving.check()


@st.composite
def rule_sets(draw: st.DrawFn, layout: Layout) -> Rules:
    def side(width: int) -> tuple[int, int]:
        ends = sorted(draw(st.tuples(*[st.integers(0, (1 << width) - 1)] * 2)))
        return draw(st.sampled_from([(ends[0], ends[1]), (0, (1 << width) - 1), (ends[0], ends[0])]))

    count = draw(st.integers(0, 24))
    return Rules.of_ranges([[side(width) for width in layout.widths] for _ in range(count)], layout)


OPTIONS = st.fixed_dictionaries(
    {
        "window": st.integers(1, 40),
        "order": st.sampled_from(["weight", "age"]),
        "first": st.sampled_from(["contain", "expand"]),
        "tries": st.sampled_from([0, 0, 1, 3]),
        "prune": st.booleans(),
        "leaf": st.sampled_from([1, 2, 16]),
        "cuts": st.sampled_from(["copies", "published"]),
    }
)


@given(data=st.data(), options=OPTIONS)
@settings(max_examples=examples(60))
def test_after_any_samples_the_properties_hold_and_rules_answer_as_linear_search(
    data: st.DataObject, options: dict[str, object]
) -> None:
    layout = data.draw(st.sampled_from([PLANE, Layout((3, 3, 2)), Layout((6,)), Layout((2, 2, 2, 2, 1))]))
    rules = data.draw(rule_sets(layout))
    classes = data.draw(st.sampled_from([None, 1, 2, 8]))
    actions = None if classes is None else np.arange(len(rules.boxes), dtype=np.uint32) % np.uint32(classes)
    packets = every_packet(layout)
    with engine.open("linear", rules) as linear:
        right = linear.search(packets)
    if actions is not None:
        right = np.where(right < 0, -1, actions[right].astype(np.int32) if len(actions) else -1)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    with EvolvingRules(rules, actions, **options) as evolving:  # type: ignore[arg-type]
        for size in (1, 5, 60):
            evolving.sample(packets[rng.integers(0, len(packets), size)])
            evolving.check()
            listed = evolving.rules()
            assert len(listed) <= options["window"]
            assert sum(rule.weight for rule in listed) == min(
                evolving.statistics().samples, options["window"]
            )  # type: ignore[call-overload]
            for rule in listed:
                low, high = np.array(rule.box, np.uint32).T
                inside = ((low <= packets) & (packets <= high)).all(axis=1)
                assert inside.any() and (right[inside] == rule.action).all()


@given(data=st.data())
@settings(max_examples=examples(40))
def test_a_box_is_approved_exactly_if_one_rule_holds_it_and_decides_all_of_it(data: st.DataObject) -> None:
    """By the definition: the best rule of the action over all of the box is better than any other it meets."""
    layout = PLANE
    rules = data.draw(rule_sets(layout))
    box = [tuple(sorted(data.draw(st.tuples(*[st.integers(0, 15)] * 2)))) for _ in range(2)]
    action = data.draw(st.integers(-1, len(rules.boxes)))
    low, high = np.array(box).T
    meets = [not ((each[:, 0] > high).any() or (each[:, 1] < low).any()) for each in rules.boxes]
    holds = [bool((each[:, 0] <= low).all() and (each[:, 1] >= high).all()) for each in rules.boxes]
    match = min((i for i in range(len(meets)) if i == action and holds[i]), default=len(meets))
    conflict = min((i for i in range(len(meets)) if i != action and meets[i]), default=len(meets) + 1)
    wanted = match < conflict if match < len(meets) else action == -1 and conflict > len(meets)
    for prune in (True, False):
        for leaf in (1, 16):
            with EvolvingRules(rules, prune=prune, leaf=leaf) as evolving:
                assert evolving.approves(box, action).approved == wanted  # type: ignore[arg-type]


def test_rules_end_with_their_last_sample() -> None:
    with EvolvingRules(Rules.of_ranges(TABLE_3, PLANE), window=2) as evolving:
        for point in ([5, 5], [13, 5], [3, 2]):
            evolving.sample(np.array([point], np.uint32))
        assert [rule.action for rule in evolving.rules()] == [1, 2]


def test_a_tie_goes_to_the_older_rule_and_weight_to_the_front() -> None:
    with EvolvingRules(Rules.of_ranges(TABLE_3, PLANE)) as evolving:
        evolving.sample(np.array([[5, 5], [13, 5], [13, 5]], np.uint32))
        assert [rule.action for rule in evolving.rules()] == [1, 0]
        evolving.sample(np.array([[5, 5]], np.uint32))
        assert [rule.action for rule in evolving.rules()] == [0, 1]


@pytest.mark.parametrize("cache", [0, 1, 3, 20])
def test_the_cache_has_the_same_entries_in_every_form(cache: int) -> None:
    rng = np.random.default_rng(5)
    packets = every_packet(PLANE)[rng.integers(0, 256, 500)]
    with EvolvingRules(Rules.of_ranges(TABLE_3, PLANE), window=64) as evolving:
        evolving.sample(packets[:200])
        listed = evolving.rules()[:cache]
        expected = np.full(len(packets), len(listed))
        for place in reversed(range(len(listed))):
            low, high = np.array(listed[place].box, np.uint32).T
            expected[((low <= packets) & (packets <= high)).all(axis=1)] = place
        for form in ("columns", "rows", "list"):
            assert (evolving.look_up(packets, cache=cache, form=form) == expected).all(), form


def test_a_replay_hits_what_was_published_before() -> None:
    packets = np.array([[5, 5], [5, 5], [13, 5], [13, 5], [5, 5]], np.uint32)
    rules = Rules.of_ranges(TABLE_3, PLANE)
    with EvolvingRules(rules) as evolving:
        assert evolving.replay(packets, cache=2).tolist() == [2, 0, 2, 1, 0]
    with EvolvingRules(rules) as evolving:
        assert evolving.replay(packets, cache=2, publish=2).tolist() == [2, 2, 2, 2, 0]
    with EvolvingRules(rules) as evolving:
        assert evolving.replay(packets, cache=1, every=2).tolist() == [1, 1, 1, 1, 0]
        assert evolving.statistics().samples == 3


def test_pruning_visits_fewer_leaves_and_finds_the_same_rules() -> None:
    rng = np.random.default_rng(7)
    layout = Layout((8, 8))
    boxes = []
    for _ in range(150):
        low = rng.integers(0, 250, 2)
        boxes.append([(int(x), int(min(255, x + rng.integers(1, 40)))) for x in low])
    packets = rng.integers(0, 256, (1500, 2)).astype(np.uint32)
    leaves, lists = [], []
    for prune in (True, False):
        with EvolvingRules(Rules.of_ranges(boxes, layout), prune=prune, window=128, leaf=4) as evolving:
            evolving.sample(packets)
            leaves.append(evolving.statistics().leaves)
            lists.append(evolving.rules())
    assert lists[0] == lists[1]
    assert leaves[0] < leaves[1] / 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window must lie in 1"),
        ({"order": "size"}, "it is one of weight, age"),
        ({"first": "grow"}, "it is one of contain, expand"),
        ({"cuts": "ours"}, "it is one of copies, published"),
        ({"leaf": 0}, "leaf must lie in 1"),
        ({"limit": -1}, "limit must lie in 0.*, not -1"),
        ({"classes": np.zeros(3, np.uint32)}, r"classes must be uint32 \[4\]"),
    ],
)
def test_options_that_are_not_possible_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(DatabaseError, match=message):
        EvolvingRules(Rules.of_ranges(TABLE_3, PLANE), **options)  # type: ignore[arg-type]


def test_questions_that_are_not_possible_are_refused() -> None:
    packets = np.zeros((1, 2), np.uint32)
    evolving = EvolvingRules(Rules.of_ranges(TABLE_3, PLANE), window=4)
    for ask, message in (
        (lambda: evolving.replay(packets, cache=5), "a window of 4 samples"),
        (lambda: evolving.replay(packets, cache=2, every=0), "every must lie in 1"),
        (
            lambda: evolving.replay(packets, cache=2, publish=2**40),
            "publish must lie in 1.*, not 1099511627776",
        ),
        (lambda: evolving.look_up(packets, cache=2, times=2**40), "times must lie in 0.*, not 1099511627776"),
        (lambda: evolving.look_up(packets, cache=2, times=-1), "times must lie in 0.*, not -1"),
        (lambda: evolving.approves([(0, 1), (0, 1)], "x"), "action must be a whole number, not 'x'"),
        (lambda: evolving.sample([[1, 2]]), "headers must be an array of numpy, not list"),
        (lambda: evolving.look_up(packets, cache=2, form="tree"), "columns, rows, list"),
        (lambda: evolving.sample(packets + np.uint32(16)), "wider than its field"),
        (lambda: evolving.sample(np.zeros((1, 3), np.uint32)), r"must be uint32 \[headers\]\[2\]"),
    ):
        with pytest.raises(DatabaseError, match=message):
            ask()
    evolving.close()
    with pytest.raises(DatabaseError, match="closed"):
        evolving.rules()
    with pytest.raises(OutOfMemory, match="do not fit"):
        EvolvingRules(Rules.of_ranges(TABLE_3, PLANE), limit=1000)

"""Laws of the tree builders, tested on every point of a small space."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples
from support.worst_paths import worst

from hitables.analyse.boxes import Axis, Boxes, Cut
from hitables.build.grow import ALGORITHMS, PAPER, grow
from hitables.build.tree import EntryKind, Node, NodeKind, Tree, rejoined
from hitables.ir.fields import Field

AXES = (
    Axis(Field.SRC, 3, False, Cut.PREFIX),
    Axis(Field.PROTO, 2, False, Cut.POINT),
    Axis(Field.DPORT, 3, True, Cut.RANGE, (Field.PROTO, (1, 2))),
    Axis(Field.IIF, 2, False, Cut.SPELT),
    Axis(Field.FRAG, 1, False, Cut.NONE),
)
POINTS = np.array(list(itertools.product(*(range(axis.top + 1) for axis in AXES))))
WORDS = np.stack([np.zeros_like(POINTS), POINTS], axis=-1).astype(np.uint64)


@st.composite
def boxes(draw: st.DrawFn, most: int = 16) -> Boxes:
    """Rules of one to three boxes, many sides left open, some rules final."""

    def side(axis: Axis) -> tuple[int, int]:
        low = draw(st.integers(0, (1 << axis.bits) - 1))
        return low, draw(st.integers(low, (1 << axis.bits) - 1))

    rules = [
        [
            {axis.field: side(axis) for axis in AXES if draw(st.integers(0, 2)) == 0}
            for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3])))
        ]
        for _ in range(draw(st.integers(0, most)))
    ]
    final = draw(st.lists(st.booleans(), min_size=len(rules), max_size=len(rules)))
    weight = draw(st.lists(st.sampled_from([0.0, 1.0, 1.0, 9.0]), min_size=len(rules), max_size=len(rules)))
    return Boxes.of(AXES, rules, final, weight)


def matching(given: Boxes) -> np.ndarray:
    """Which rule matches which point."""
    low, high = given.low[:, :, 1], given.high[:, :, 1]
    inside = (POINTS[:, None] >= low) & (POINTS[:, None] <= high)
    held = np.zeros((len(POINTS), len(given.final)), bool)
    for box, rule in enumerate(given.rule):
        held[:, rule] |= inside[:, box].all(axis=1)
    return held


def path(tree: Tree, nodes: Sequence[Node], point: Sequence[int]) -> Iterator[Node]:
    """The nodes that a point comes through, told as the printed rules would decide."""
    at = tree.root
    while True:
        node = nodes[at]
        yield node
        if node.kind is NodeKind.LEAF:
            if not goes_on(tree, at):
                return
            at = int(tree.link[tree.node[at]["entry"]])
            continue
        assert node.axis is not None
        value = point[AXES.index(node.axis)] - node.axis.optional
        inside = [edge.low <= value <= edge.high for edge in node.edges]
        if node.kind in (NodeKind.CUTS, NodeKind.LOOKUPS, NodeKind.LONE_LOOKUPS):
            assert sum(inside) <= 1
            at = node.edges[inside.index(True) if any(inside) else -1].to
        else:
            at = node.taken if inside[0] != node.negated else node.other


def goes_on(tree: Tree, number: int) -> bool:
    """Whether the node is nothing but a jump to one that stands elsewhere."""
    first, entries = (int(tree.node[number][name]) for name in ("entry", "entries"))
    steps = tree.step[first : first + entries].tolist()
    assert set(steps) <= {EntryKind.RULE} or steps == [EntryKind.GO]
    return steps == [EntryKind.GO]


def up_to_final(given: Boxes, matched: Sequence[int]) -> list[int]:
    """The rules that a packet which matches them all is affected by."""
    ends = next((i + 1 for i, rule in enumerate(matched) if given.final[rule]), len(matched))
    return list(matched[:ends])


options = st.fixed_dictionaries(
    {
        "leaf_size": st.integers(1, 6),
        "max_nesting": st.integers(0, 6),
        "copy_penalty": st.sampled_from([0.0, 0.3, 2.0]),
        "spfac": st.sampled_from([1.0, 2.0, 4.0]),
        "unequal": st.booleans(),
        "least_max": st.booleans(),
        "lone_chains": st.booleans(),
        "first_cuts": st.integers(1, 4),
    }
)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, PAPER])
@settings(max_examples=examples(40))
@given(rules=boxes(), options=options, spare=st.integers(0, 40))
def test_the_path_of_every_point_has_its_rules_in_list_order(
    algorithm: str, rules: Boxes, options: dict[str, float], spare: int
) -> None:
    tree = grow(rules, algorithm=algorithm, budget=len(rules.final) + spare, **options)  # type: ignore[arg-type]
    nodes = list(tree.nodes())
    held = matching(rules)
    for point, holds in zip(POINTS[::5], held[::5], strict=True):
        listed = [
            rule for node in path(tree, nodes, point) for rule in node.entries if rule >= 0 and holds[rule]
        ]
        assert up_to_final(rules, listed) == up_to_final(rules, np.flatnonzero(holds).tolist())


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, PAPER])
@settings(max_examples=examples(40))
@given(rules=boxes(), options=options)
def test_searching_gives_what_reading_the_list_gives(
    algorithm: str, rules: Boxes, options: dict[str, float]
) -> None:
    tree = grow(rules, algorithm=algorithm, **options)  # type: ignore[arg-type]
    held = matching(rules)
    decided, reads = tree.search(WORDS)
    first = np.where(held.any(axis=1), held.argmax(axis=1) if held.shape[1] else -1, -1)
    assert np.array_equal(decided, first)
    assert reads.max() <= tree.longest_read()


@settings(max_examples=examples(60))
@given(rules=boxes(), options=options, spare=st.integers(0, 60))
def test_a_tree_over_boxes_as_rules_of_their_own_is_one_over_the_rules(
    rules: Boxes, options: dict[str, float], spare: int
) -> None:
    given_boxes = rules.box_by_box()
    grown = grow(given_boxes, algorithm="auto", budget=len(rules.rule) + spare, grouping=2**31, **options)  # type: ignore[arg-type]
    tree = rejoined(grown, rules)
    if tree is None:  # a node that several paths lead to, with a rule that some have read
        assert not rules.final.all()
        return
    assert tree.printed_rules() <= grown.printed_rules()
    nodes = list(tree.nodes())
    held = matching(rules)
    for node in nodes:
        assert all(one != two for one, two in itertools.pairwise(node.entries))
    for point, holds in zip(POINTS[::5], held[::5], strict=True):
        read = [
            rule for node in path(tree, nodes, point) for rule in node.entries if rule >= 0 and holds[rule]
        ]
        assert up_to_final(rules, read) == up_to_final(rules, np.flatnonzero(holds).tolist())
    decided, reads = tree.search(WORDS)
    assert np.array_equal(
        decided, np.where(held.any(axis=1), held.argmax(axis=1) if held.shape[1] else -1, -1)
    )
    assert not len(reads) or reads.max() <= tree.longest_read()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=examples(40))
@given(rules=boxes(), options=options)
def test_the_search_reads_as_many_rules_as_the_path_prints(
    algorithm: str, rules: Boxes, options: dict[str, float]
) -> None:
    tree = grow(rules, algorithm=algorithm, **options).as_tests()  # type: ignore[arg-type]
    held = matching(rules)
    _, reads = tree.search(WORDS[::7])
    nodes = list(tree.nodes())
    for point, holds, read in zip(POINTS[::7], held[::7], reads, strict=True):
        printed = 0
        for node in path(tree, nodes, point):
            stops = next((i + 1 for i, rule in enumerate(node.entries) if rule >= 0 and holds[rule]), None)
            if stops is not None:
                printed += stops
                break
            printed += len(node.entries) + (node.kind is NodeKind.TEST)
        assert printed == read


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=examples(40))
@given(rules=boxes(), options=options, spare=st.integers(0, 40))
def test_budget_and_nesting_are_kept(
    algorithm: str, rules: Boxes, options: dict[str, float], spare: int
) -> None:
    budget = len(rules.final) + spare
    tree = grow(rules, algorithm=algorithm, budget=budget, **options)  # type: ignore[arg-type]
    assert tree.printed_rules() <= budget
    assert tree.nesting() <= options["max_nesting"]
    tests = tree.as_tests()
    assert tests.printed_rules() == tree.printed_rules()
    assert tests.nesting() == tree.nesting()


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, PAPER])
@settings(max_examples=examples(40))
@given(rules=boxes(), options=options)
def test_the_depths_of_a_tree_are_those_of_its_worst_paths(
    algorithm: str, rules: Boxes, options: dict[str, float]
) -> None:
    tree = grow(rules, algorithm=algorithm, **options)  # type: ignore[arg-type]
    # Halving is told by the tests that it is printed as, look-ups are not.
    plain = tree if algorithm == PAPER else tree.as_tests()
    assert (tree.nesting(), tree.longest_read()) == worst(plain, tree.root)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=examples(40))
@given(rules=boxes(), options=options)
def test_only_allowed_intervals_are_tested(algorithm: str, rules: Boxes, options: dict[str, float]) -> None:
    tree = grow(rules, algorithm=algorithm, **options).as_tests()  # type: ignore[arg-type]
    low, high = rules.low[:, :, 1].astype(int), rules.high[:, :, 1].astype(int)

    def visit(number: int, protocols: frozenset[int]) -> None:
        node = tree[number]
        if node.kind is NodeKind.LEAF:
            return
        axis = node.axis
        assert axis is not None
        edge, at = node.edges[0], AXES.index(axis)
        shift = axis.optional
        spelt = (edge.low + shift, edge.high + shift) in zip(low[:, at], high[:, at], strict=True)
        assert 0 <= edge.low <= edge.high < 1 << axis.bits
        assert not (node.negated and axis.optional)
        size = edge.high - edge.low + 1
        assert not (axis.optional and size == 1 << axis.bits), "all values: nft reads that test otherwise"
        match axis.cut:
            case Cut.NONE:
                raise AssertionError(f"{axis.field.name} was tested")
            case Cut.PREFIX:
                assert size & (size - 1) == 0 and edge.low % size == 0
            case Cut.POINT:
                assert size == 1 and edge.low > 0
            case Cut.SPELT:
                assert spelt
        if axis.requires is not None:
            assert len(protocols) == 1 and protocols <= set(axis.requires[1])
        inside = outside = protocols
        if axis.field is Field.PROTO:
            inside = protocols & set(range(edge.low, edge.high + 1))
            outside = protocols - inside
        visit(node.taken, outside if node.negated else inside)
        visit(node.other, inside if node.negated else outside)

    visit(tree.root, frozenset(range(4)))


@settings(max_examples=examples(40))
@given(rules=boxes(), options=options)
def test_the_papers_trees_test_single_protocols_and_ports_where_the_protocol_is_known(
    rules: Boxes, options: dict[str, float]
) -> None:
    tree = grow(rules, algorithm=PAPER, **options)  # type: ignore[arg-type]

    def visit(number: int, protocol: int | None) -> None:
        node = tree[number]
        if node.axis is None:
            return
        assert (node.axis.field is Field.PROTO) == (node.kind is NodeKind.TEST)
        if node.kind is NodeKind.TEST:
            value = node.edges[0]
            assert protocol is None and value.low == value.high > 0
            visit(value.to, value.low)
            visit(node.other, None)
            return
        requires = node.axis.requires
        assert requires is None or hull == (1, 1) or hull == (2, 2) or protocol in requires[1]
        for edge in node.edges:
            visit(edge.to, protocol)

    # The root has the hull of all boxes, which may be one protocol.
    proto = AXES.index(next(axis for axis in AXES if axis.field is Field.PROTO))
    low, high = rules.low[:, proto, 1], rules.high[:, proto, 1]
    hull = (int(low.min(initial=3)), int(high.max(initial=0)))
    visit(tree.root, None)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, PAPER])
@given(rules=boxes(), options=options)
@settings(max_examples=examples(25))
def test_the_same_rules_give_the_same_tree(algorithm: str, rules: Boxes, options: dict[str, float]) -> None:
    one = grow(rules, algorithm=algorithm, **options)  # type: ignore[arg-type]
    two = grow(rules, algorithm=algorithm, **options)  # type: ignore[arg-type]
    assert one.node.tobytes() == two.node.tobytes()
    assert one.edge.tobytes() == two.edge.tobytes()
    assert one.entry.tobytes() == two.entry.tobytes()


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, PAPER])
def test_wide_fields_are_cut_like_narrow_ones(algorithm: str) -> None:
    axes = (Axis(Field.SRC, 128, False, Cut.PREFIX), Axis(Field.MAC, 48, True, Cut.SPELT))
    net = 0x20010DB8 << 96
    rules = [[{Field.SRC: (net + (i << 64), net + (i << 64) + 2**64 - 1)}] for i in range(40)]
    rules += [[{Field.MAC: (i, i)}] for i in (0, 2**48 - 1)] + [[{}]]
    given = Boxes.of(axes, rules, [True] * len(rules))
    tree = grow(given, algorithm=algorithm, leaf_size=2)
    packets = [{Field.SRC: net + (i << 64) + i} for i in range(42)]
    packets += [{Field.SRC: 2**128 - 1, Field.MAC: 2**48 - 1}, {Field.SRC: 0, Field.MAC: 0}]
    assert tree.search(given.points(packets))[0].tolist() == [*range(40), 42, 42, 41, 40]
    assert algorithm == PAPER or tree.longest_read() < 30


def test_first_rules_that_cover_everything_are_read_before_any_test() -> None:
    rules = [[{}], [{}], *([{Field.SRC: (i, i)}] for i in range(8))]
    tree = grow(Boxes.of(AXES, rules, [False] * 10), leaf_size=2)
    assert tree[tree.root].entries == (0, 1)
    assert tree.printed_rules() == 10 + int(np.sum(tree.node["kind"] == NodeKind.TEST))


def test_no_rules_give_one_empty_leaf() -> None:
    tree = grow(Boxes.of(AXES, [], []))
    assert list(tree.nodes()) == [Node(NodeKind.LEAF, ())]
    assert tree.search(WORDS[:5])[0].tolist() == [-1] * 5


def test_impossible_input_is_refused() -> None:
    given = Boxes.of(AXES, [[{Field.SRC: (0, 1)}]], [True])
    with pytest.raises(ValueError, match="no tree builder is called 'oak'"):
        grow(given, algorithm="oak")
    with pytest.raises(ValueError, match="a box is empty"):
        grow(Boxes(AXES, given.high, given.low * 0 + 99, [0], [True]))
    with pytest.raises(ValueError, match="an axis is impossible"):
        grow(Boxes.of([Axis(Field.MAC, 48, True, Cut.PREFIX)], [], []))
    with pytest.raises(ValueError, match="expected"):
        Boxes(AXES, given.low, given.high, [0, 1], [True])


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, PAPER])
def test_lack_of_memory_is_an_error(algorithm: str) -> None:
    given = Boxes.of(AXES, [[{Field.SRC: (i % 8, i % 8)}] for i in range(64)], [False] * 64)
    with pytest.raises(MemoryError):
        grow(given, algorithm=algorithm, memory=4096)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_test_that_separates_no_rule_is_not_repeated(algorithm: str) -> None:
    """Both sides of an inner interval may list a rule of several boxes; it was tested for again and again."""
    rules = [[{Field.IIF: (1, 2)}, {Field.IIF: (0, 3), Field.SRC: (0, 1)}]]
    rules += [[{Field.IIF: (end, end)}] for end in (0, 3)] * 4
    tree = grow(Boxes.of(AXES, rules, [False] * len(rules)), algorithm=algorithm, leaf_size=1)
    assert len(tree) < 40


def test_building_may_take_memory_for_each_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed bound of 2 GiB refused rule sets of a million rules."""
    given_memory: list[float] = []

    def build(algorithm: str, tree_input: object, **options: float) -> object:
        given_memory.append(options["memory"])
        raise MemoryError

    monkeypatch.setattr("hitables.build.grow.trees.grow", build)
    for count in (10, 1_000_000):
        none = np.zeros((count, 0, 2), np.uint64)
        monkeypatch.setattr(Boxes, "tree_input", lambda boxes: None)
        boxes = Boxes((), none, none, np.zeros(count, np.int32), np.zeros(count, np.uint8))
        with pytest.raises(MemoryError):
            grow(boxes)
    assert given_memory[0] < given_memory[1]
    assert 8 * 2**30 < given_memory[1] < 16 * 2**30

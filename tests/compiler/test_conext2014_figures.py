"""Figures 1, 3 and 4 of "Trees in the List" (CoNEXT 2014), to the letter."""

from __future__ import annotations

import pytest

from hitables import compile
from hitables.analyse.boxes import Axis, Boxes, Cut
from hitables.build.grow import PAPER, grow
from hitables.build.tree import NodeKind
from hitables.ir.fields import Field

pytestmark = pytest.mark.engine

# Figure 1a: X range and Y range of the rules 1 to 7.
FIGURE_1 = [
    ((2, 5), (10, 17)), ((9, 11), (12, 17)), ((14, 16), (15, 17)), ((1, 5), (1, 5)), ((7, 16), (2, 6)),
    ((14, 17), (11, 14)), ((6, 8), (4, 10)),
]  # fmt: skip
X, Y = Axis(Field.SRC, 5, False, Cut.RANGE), Axis(Field.DST, 5, False, Cut.RANGE)


def test_figure_1s_rules_grow_figure_1s_tree() -> None:
    """binth 2: the root is cut at X1 = 5|6 and X2 = 11|12, its second child at X3, its third at Y1."""
    boxes = Boxes.of((X, Y), [[{X.field: x, Y.field: y}] for x, y in FIGURE_1], [True] * 7)
    tree = grow(boxes, algorithm=PAPER, leaf_size=2, spfac=1.0, least_max=True, first_cuts=1)

    def rules(number: int) -> set[int]:
        assert tree[number].kind is NodeKind.LEAF
        return {entry + 1 for entry in tree[number].entries}

    assert len(tree) == 8  # N1 to N8
    root = tree[tree.root]
    assert root.axis == X
    (before_x1, x1, n2), (behind_x1, x2, n3), (behind_x2, _, n4) = (
        (edge.low, edge.high, edge.to) for edge in root.edges
    )
    assert (before_x1, x1, behind_x1, x2, behind_x2) == (1, 5, 6, 11, 12)
    assert rules(n2) == {1, 4}
    assert tree[n3].axis == X and tree[n4].axis == Y
    n5, n6 = tree[n3].edges
    assert (n5.low, n5.high, n6.low, n6.high) == (6, 8, 9, 11)  # X3
    assert (rules(n5.to), rules(n6.to)) == ({5, 7}, {2, 5})
    n7, n8 = tree[n4].edges
    assert (n7.low, n7.high, n8.low, n8.high) == (1, 8, 9, 17)  # Y1
    assert (rules(n7.to), rules(n8.to)) == ({5}, {3, 6})
    leaves = [node.entries for node in tree.nodes() if node.kind is NodeKind.LEAF]
    assert sum(4 in entries for entries in leaves) == 3, "R5 is in the leaves N5, N6 and N7"


# Figure 3: the children N1 to N5 of N0, along X.
CHILDREN = [(5, 7), (8, 10), (11, 13), (14, 16), (17, 19)]


def figure_3(dispatch: str) -> list[str]:
    """The rules printed for five rules whose tree is figure 3's node: X is the destination port."""
    lines = [f"-A INPUT -p udp -m udp --dport {low}:{high} -j ACCEPT" for low, high in CHILDREN]
    text = "\n".join(["*filter", ":INPUT DROP [0:0]", *lines, "COMMIT", ""])
    output = compile(
        text, scheme="paper", backend="legacy", leaf_size=1, spfac=1.0, min_length=5, dispatch=dispatch
    )
    return [line for line in output.text.splitlines() if line.startswith("-A")]


def with_names(lines: list[str], entry: str) -> list[str]:
    """The rules with X, the chain that *entry* enters as N0, and leaves by the rule that they hold."""
    names = {next(line.split()[-1] for line in lines if entry in line): "N0"}
    for number, (low, high) in enumerate(CHILDREN, 1):
        leaf = next(line for line in lines if f"--dport {low}:{high} -j ACCEPT" in line)
        names[leaf.split()[1]] = f"N{number}"
    return [
        " ".join(names.get(word, word) for word in line.split()).replace("-p udp -m udp --dport", "X")
        for line in lines
    ]


def test_figure_3s_node_is_printed_as_figure_4() -> None:
    """Seven rules in three chains: R5 and R7 go straight to N2 and N5."""
    lines = with_names(figure_3("paper"), "-p udp -g")
    start = next(line for line in lines if line.startswith("-A N0") and "X 5:10" in line).split()[-1]
    right = next(line for line in lines if line.startswith("-A N0") and "X" not in line).split()[-1]
    names = {start: "LEFT", right: "RIGHT"}
    search = [
        " ".join(names.get(word, word) for word in line.split())
        for line in lines
        if line.split()[1] in ("N0", start, right)
    ]
    assert search == [
        "-A N0 X 11:13 -g N3",
        "-A N0 X 5:10 -g LEFT",
        "-A N0 -g RIGHT",
        "-A LEFT X 5:7 -g N1",
        "-A LEFT -g N2",
        "-A RIGHT X 14:16 -g N4",
        "-A RIGHT -g N5",
    ]


def test_the_tool_of_2014_prints_two_rules_and_two_chains_more() -> None:
    paper, tool = figure_3("paper"), figure_3("tool")
    assert len(tool) == len(paper) + 2
    chains = [{line.split()[1] for line in lines} for lines in (paper, tool)]
    assert len(chains[1]) == len(chains[0]) + 2
    lone = [line for line in tool if [each.split()[1] for each in tool].count(line.split()[1]) == 1]
    assert sum(" -g " in line and "--dport" not in line for line in lone) >= 2

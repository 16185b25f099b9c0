"""How deep the chains of a tree nest, and how many rules are read in it, told node by node."""

from __future__ import annotations

from hitables.build.tree import EntryKind, NodeKind, Tree


def worst(tree: Tree, number: int) -> tuple[int, int]:
    """From a node on: how many chains nest at most, and how many rules a packet reads at most."""
    row, node = tree.node[number], tree[number]
    nesting = called = sent = deepest = 0
    for at, entry in enumerate(range(row["entry"], row["entry"] + row["entries"])):
        step = EntryKind(tree.step[entry])
        if step in (EntryKind.RULE, EntryKind.ACT):
            continue
        chains, rules = worst(tree, int(tree.link[entry]))
        nesting = max(nesting, 1 + chains)
        if step in (EntryKind.ASK, EntryKind.CALL):
            called += rules
        else:
            sent = max(sent, at + 1 + called + rules)
    for at, edge in enumerate(node.edges):
        taken = read = 0
        if node.kind in (NodeKind.LOOKUPS, NodeKind.LONE_LOOKUPS):
            taken, read = looked_up(at, len(node.edges), node.kind is NodeKind.LONE_LOOKUPS)
        elif node.kind is NodeKind.TEST:
            taken, read = int(at == 0), 1
        chains, rules = worst(tree, edge.to)
        nesting, deepest = max(nesting, taken + chains), max(deepest, read + rules)
    return nesting, max(sent, len(node.entries) + called + deepest)


def looked_up(edge: int, edges: int, lone: bool) -> tuple[int, int]:
    """The tests taken, and the rules read, between a node of look-ups and one of its edges."""
    middle = (edges - 1) // 2
    if edges == 1 or edge == middle:
        return 1, 1
    below = edge < middle
    read = 2 if below or not middle else 3
    edge, edges = (edge, middle) if below else (edge - middle - 1, edges - middle - 1)
    if edges == 1 and not lone:
        return 1, read
    taken, further = looked_up(edge, edges, lone)
    return 1 + taken, read + further

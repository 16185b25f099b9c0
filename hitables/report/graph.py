"""`hitables graph`: the call graph of a rule set as dot, graphml or svg.

Nodes are chains, generated ones too, so the graph of a compiled rule set shows its trees; an edge is labelled
with the tests of the jumps between two chains.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from ..analyse.callgraph import check_loops, reachable
from ..emit.text import match_text
from ..errors import MissingLibrary
from ..ir.program import Program
from ..ir.rule import Kind
from ..nouns import counted
from .svg import svg
from .xml_text import xml_name

# Edges of more jumps than this are labelled with their number instead of their tests.
MAX_TESTS = 2


def _graph(program: Program, tables: Sequence[str]) -> nx.DiGraph:
    graph = nx.DiGraph(name=program.name)
    for table in program:
        if tables and table.name not in tables:
            continue
        reached = reachable(table)
        for chain in table.chains:
            graph.add_node(
                f"{table.name}/{chain.name}",
                table=table.name,
                chain=chain.name,
                rules=len(chain.rules),
                policy=chain.policy or "",
                reached=chain.name in reached,
            )
        for chain in table.chains:
            jumps: dict[tuple[str, bool], list[str]] = {}
            for rule in chain.rules:
                if rule.target is not None and rule.target.enters:
                    tests = " ".join(match_text(match) for match in rule.matches) or "always"
                    jumps.setdefault((rule.target.name, rule.target.kind is Kind.GOTO), []).append(tests)
            for (target, goto), labels in jumps.items():
                label = "\n".join(labels) if len(labels) <= MAX_TESTS else f"{len(labels)} rules"
                graph.add_edge(
                    f"{table.name}/{chain.name}",
                    f"{table.name}/{target}",
                    label=label,
                    goto=goto,
                    jumps=len(labels),
                )
    return graph


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _dot(graph: nx.DiGraph) -> str:
    lines = ["digraph rules {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for name, of in graph.nodes(data=True):
        label = f"{of['chain']}\n{counted(of['rules'], 'rule')}" + (
            f"\npolicy {of['policy']}" if of["policy"] else ""
        )
        style = "" if of["reached"] else ", style=dashed"
        lines.append(f"  {_quoted(name)} [label={_quoted(label)}{style}];")
    for start, end, of in graph.edges(data=True):
        style = ", style=bold" if of["goto"] else ""
        lines.append(f"  {_quoted(start)} -> {_quoted(end)} [label={_quoted(of['label'])}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _svg(graph: nx.DiGraph) -> str:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingLibrary(
            "drawing svg needs matplotlib: pip install 'hitables[plot]', or use --format dot"
        ) from None
    flat = nx.DiGraph(graph)
    for loop in list(nx.strongly_connected_components(graph)):  # of unreachable chains
        flat.remove_edges_from(list(graph.subgraph(loop).edges))
    for layer, names in enumerate(nx.topological_generations(flat)):
        for name in names:
            graph.nodes[name]["layer"] = layer
    place = nx.multipartite_layout(graph, subset_key="layer", align="vertical")
    layers = max((of["layer"] for _, of in graph.nodes(data=True)), default=0) + 1
    tallest = max((len(each) for each in nx.topological_generations(flat)), default=1)
    figure = Figure(figsize=(max(6.0, 2.6 * layers), max(4.0, 0.45 * tallest)))
    axes = figure.subplots()
    nx.draw_networkx_edges(graph, place, ax=axes, edge_color="#888888", arrowsize=8, node_size=900)
    labels = {name: f"{of['chain']}\n{of['rules']}" for name, of in graph.nodes(data=True)}
    drawn = nx.draw_networkx_labels(
        graph,
        place,
        labels,
        ax=axes,
        font_size=7,
        bbox={"boxstyle": "round", "facecolor": "#eef3fa", "edgecolor": "#5a7ba6"},
    )
    for text in drawn.values():
        text.set_parse_math(False)  # a chain may be called $x$
    axes.set_axis_off()
    return svg(figure, tight=True)


def _printable(graph: nx.DiGraph) -> nx.DiGraph:
    """The graph with all texts as XML can hold them."""

    def plain(text: object) -> object:
        return xml_name(text) if isinstance(text, str) else text

    copy = nx.DiGraph(**{key: plain(value) for key, value in graph.graph.items()})
    for name, of in graph.nodes(data=True):
        copy.add_node(plain(name), **{key: plain(value) for key, value in of.items()})
    for start, end, of in graph.edges(data=True):
        copy.add_edge(plain(start), plain(end), **{key: plain(value) for key, value in of.items()})
    return copy


def draw(program: Program, form: str, tables: Sequence[str] = ()) -> str:
    """The graph of *tables* (none: all) as "dot", "graphml" or "svg" text."""
    check_loops(program)
    graph = _graph(program, tables)
    if form == "dot":
        return _dot(graph)
    graph = _printable(graph)
    if form == "graphml":
        return "\n".join(nx.generate_graphml(graph)) + "\n"
    return _svg(graph)

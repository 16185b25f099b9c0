"""The call graph as a picture: dot, graphml, or svg.

Of a compiled rule set the generated chains are nodes too, so the picture shows
the trees; the tests that lead from chain to chain stand on the edges.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import networkx as nx

from ..analyse.callgraph import check_loops, reachable
from ..emit.text import match_text
from ..errors import MissingLibrary
from ..ir.program import Program
from ..ir.rule import Kind

# More jumps than this between two chains are summed up on the edge.
SHOWN = 2


def _whole(program: Program, tables: Sequence[str]) -> nx.DiGraph:
    made = nx.DiGraph(name=program.name)
    for table in program:
        if tables and table.name not in tables:
            continue
        found = reachable(table)
        for chain in table.chains:
            made.add_node(
                f"{table.name}/{chain.name}",
                table=table.name,
                chain=chain.name,
                rules=len(chain.rules),
                policy=chain.policy or "",
                reached=chain.name in found,
            )
        for chain in table.chains:
            jumps: dict[tuple[str, bool], list[str]] = {}
            for rule in chain.rules:
                if rule.target is not None and rule.target.kind in (Kind.JUMP, Kind.GOTO):
                    said = " ".join(match_text(match) for match in rule.matches) or "always"
                    jumps.setdefault((rule.target.name, rule.target.kind is Kind.GOTO), []).append(said)
            for (target, goto), tests in jumps.items():
                label = "\n".join(tests) if len(tests) <= SHOWN else f"{len(tests)} rules"
                made.add_edge(
                    f"{table.name}/{chain.name}",
                    f"{table.name}/{target}",
                    label=label,
                    goto=goto,
                    jumps=len(tests),
                )
    return made


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _dot(made: nx.DiGraph) -> str:
    lines = ["digraph rules {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for name, of in made.nodes(data=True):
        label = f"{of['chain']}\n{of['rules']} rules" + (f"\npolicy {of['policy']}" if of["policy"] else "")
        style = "" if of["reached"] else ", style=dashed"
        lines.append(f"  {_quoted(name)} [label={_quoted(label)}{style}];")
    for start, end, of in made.edges(data=True):
        style = ", style=bold" if of["goto"] else ""
        lines.append(f"  {_quoted(start)} -> {_quoted(end)} [label={_quoted(of['label'])}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _svg(made: nx.DiGraph) -> str:
    try:
        import matplotlib
    except ImportError:
        raise MissingLibrary(
            "drawing svg needs matplotlib: pip install 'hitables[plot]', or use --format dot"
        ) from None
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "hitables"
    matplotlib.rcParams["svg.fonttype"] = "path"
    from matplotlib import pyplot

    flat = nx.DiGraph(made)
    for circle in list(nx.strongly_connected_components(made)):  # which no packet comes to
        flat.remove_edges_from(list(made.subgraph(circle).edges))
    for layer, names in enumerate(nx.topological_generations(flat)):
        for name in names:
            made.nodes[name]["layer"] = layer
    place = nx.multipartite_layout(made, subset_key="layer", align="vertical")
    layers = max((of["layer"] for _, of in made.nodes(data=True)), default=0) + 1
    tallest = max((len(each) for each in nx.topological_generations(flat)), default=1)
    figure, axes = pyplot.subplots(figsize=(max(6.0, 2.6 * layers), max(4.0, 0.45 * tallest)))
    nx.draw_networkx_edges(made, place, ax=axes, edge_color="#888888", arrowsize=8, node_size=900)
    labels = {name: f"{of['chain']}\n{of['rules']}" for name, of in made.nodes(data=True)}
    nx.draw_networkx_labels(
        made,
        place,
        labels,
        ax=axes,
        font_size=7,
        bbox={"boxstyle": "round", "facecolor": "#eef3fa", "edgecolor": "#5a7ba6"},
    )
    axes.set_axis_off()
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    return out.getvalue()


def _of_letters(made: nx.DiGraph) -> nx.DiGraph:
    """The graph with bytes that are no text written as \\xff: XML cannot hold them."""

    def plain(text: object) -> object:
        if not isinstance(text, str):
            return text
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

    again = nx.DiGraph(**{key: plain(value) for key, value in made.graph.items()})
    for name, of in made.nodes(data=True):
        again.add_node(plain(name), **{key: plain(value) for key, value in of.items()})
    for start, end, of in made.edges(data=True):
        again.add_edge(plain(start), plain(end), **{key: plain(value) for key, value in of.items()})
    return again


def draw(program: Program, form: str, tables: Sequence[str] = ()) -> str:
    """The graph of *tables* (none: all) as "dot", "graphml" or "svg" text."""
    check_loops(program)
    made = _whole(program, tables)
    if form == "dot":
        return _dot(made)
    made = _of_letters(made)
    if form == "graphml":
        return "\n".join(nx.generate_graphml(made)) + "\n"
    return _svg(made)

"""Draws chains as boxes of rules, jumps as arrows: python tools/picture.py RULES CHAIN PICTURE.svg

RULES is iptables-save text, compiled or not; CHAIN is the chain of table filter to start from.  Words that
only repeat their neighbours are left out of the picture (`-m tcp` behind `-p tcp`).
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

import hitables

CHARACTER, LINE, PAD = 6.05, 15.0, 9.0  # pixels, for a font of 10
GAP_X, GAP_Y, TITLE = 64.0, 18.0, 20.0
NOISE = re.compile(r" -m (?:tcp|udp|icmp|conntrack)\b| --reject-with \S+|^-A \S+")
JUMP = re.compile(r"-[jg] (\S+)")


def chains_of(text: str) -> dict[str, list[str]]:
    """The rules of table filter by chain, as they are shown."""
    program = hitables.read(text)
    printed = hitables.write(program).splitlines()
    start = printed.index("*filter")
    chains: dict[str, list[str]] = {chain.name: [] for chain in program.table("filter").chains}
    for line in printed[start : printed.index("COMMIT", start)]:
        if line.startswith("-A "):
            chains[line.split()[1]].append(NOISE.sub("", line).strip())
    return chains


def columns(chains: dict[str, list[str]], root: str) -> list[list[str]]:
    """Chains by their greatest distance from *root*, in the order in which they are met."""
    depth: dict[str, int] = {}

    def visit(name: str, at: int) -> None:
        if at <= depth.get(name, -1):
            return
        depth[name] = at
        for rule in chains[name]:
            found = JUMP.search(rule)
            if found and found[1] in chains:
                visit(found[1], at + 1)

    visit(root, 0)
    return [[name for name in depth if depth[name] == at] for at in range(max(depth.values()) + 1)]


def draw(chains: dict[str, list[str]], root: str) -> str:
    """The picture as svg text."""
    boxes: dict[str, tuple[float, float, float, float]] = {}  # x, y, width, height
    x = height = 0.0
    for column in columns(chains, root):
        width = max(len(rule) for name in column for rule in [name, *chains[name]]) * CHARACTER + 2 * PAD
        y = 0.0
        for name in column:
            tall = TITLE + LINE * max(1, len(chains[name])) + PAD
            boxes[name] = (x, y, width, tall)
            y += tall + GAP_Y
        height, x = max(height, y - GAP_Y), x + width + GAP_X
    frames, shapes, arrows = [], [], []
    for name, (left, top, width, tall) in boxes.items():
        frames.append(f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{tall:.0f}" rx="4"/>')
        shapes.append(f'<text class="name" x="{left + PAD:.0f}" y="{top + 14:.0f}">{escape(name)}</text>')
        for number, rule in enumerate(chains[name]):
            base = top + TITLE + LINE * number + 10.0
            found = JUMP.search(rule)
            to = boxes.get(found[1]) if found else None
            style = ' class="jump"' if to else ""
            shapes.append(f'<text{style} x="{left + PAD:.0f}" y="{base:.0f}">{escape(rule)}</text>')
            if to:
                begin, edge, level = left + PAD + len(rule) * CHARACTER + 3, left + width, base - 3
                end, bend = (to[0] - 2, to[1] + 10), (to[0] - edge) / 2
                arrows.append(
                    f'<path d="M{begin:.0f} {level:.0f} H{edge:.0f} C{edge + bend:.0f} {level:.0f} '
                    f'{end[0] - bend:.0f} {end[1]:.0f} {end[0]:.0f} {end[1]:.0f}"/>'
                )
    size = f"{x - GAP_X + 2:.0f} {height + 2:.0f}"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 {size}">',
            "<style>",
            "rect { fill: #f4f7fb; stroke: #5a7ba6 } path { fill: none; stroke: #d9a07c; marker-end: url(#tip) }",
            "text { font: 10px monospace; fill: #222; white-space: pre }",
            ".name { font-weight: bold; fill: #33557f }",
            ".jump { fill: #b4632d }",
            "</style>",
            '<marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="7" markerHeight="7" orient="auto">'
            '<path style="fill: #b4632d; stroke: none; marker-end: none" d="M0 0 L6 3 L0 6 z"/></marker>',
            *frames,
            *arrows,
            *shapes,
            "</svg>",
            "",
        )
    )


if __name__ == "__main__":
    rules, chain, picture = sys.argv[1:]
    Path(picture).write_text(draw(chains_of(Path(rules).read_text()), chain))

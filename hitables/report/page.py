"""What compile did, as one page for a browser: it asks nobody for anything and shows all of it.

The page is page.html with the data put in as JSON; what came from rules reaches the page as text
only.  Trees are sent whole, as chains of lines, and drawn where they are opened.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import numpy as np

from ..compiler.pipeline import Output
from ..emit.text import match_text, target_text
from ..ir.packet import Backend
from ..ir.program import Program
from ..ir.rule import Rule
from ..simulate.boundary_packets import draw_packets
from ..simulate.interpreter import Interpreter

# Packets drawn for a chain: its mean settles within a few per cent.
PACKETS = 4_000
# Of the compiled chains, those with the most rules get a picture of what packets read.
PICTURES = 12

_DATA = "/*DATA*/null"


def page(made: Output, backend: Backend) -> str:
    """The page; packets read the rules as *backend* does."""
    text = json.dumps(page_data(made, backend), ensure_ascii=True, separators=(",", ":"))
    # Inside <script> nothing may look like markup.
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    template = (files("hitables.report") / "page.html").read_text("utf-8")
    head, tail = template.split(_DATA)
    return head + text + tail


def page_data(made: Output, backend: Backend) -> dict[str, Any]:
    """All that the page shows, as plain data."""
    before, after = made.before, made.program
    compiled = sorted((each for each in made.reports if not each.why), key=lambda each: -each.before)
    pictured = {(each.table, each.chain) for each in compiled[:PICTURES]}
    origins = {
        (table["name"], chain["name"]): chain["origin"]
        for table in made.map["tables"]
        for chain in table["chains"]
    }
    return {
        "source": before.name,
        "says": made.text.split("\n", 1)[0].removeprefix("# "),
        "backend": backend.value,
        "weighed": made.weighed,
        "rules": before.rule_count(),
        "printed": after.rule_count(),
        "gone": sum(each.gone for each in made.reports),
        "compiled": [
            {
                "table": each.table,
                "chain": each.chain,
                "before": each.before,
                "after": each.after,
                "gone": each.gone,
                "read": [each.read_before, each.read_after],
                "longest": each.longest,
                "nesting": each.nesting,
                "ns": {name: [each.ns_before[name], spent] for name, spent in each.ns_after.items()},
                "reads": _reads(before, after, each.table, each.chain, backend)
                if (each.table, each.chain) in pictured
                else None,
            }
            for each in compiled
        ],
        "left": [
            {
                "table": each.table,
                "chain": each.chain,
                "rules": each.after,
                "gone": each.gone,
                "why": each.why,
            }
            for each in made.reports
            if each.why
        ],
        "tables": {
            table.name: {
                chain.name: {
                    "made": origins.get((table.name, chain.name), chain.name) != chain.name,
                    "end": chain.policy or "back to the caller",
                    "rules": [_line(rule) for rule in chain.rules],
                }
                for chain in table.chains
            }
            for table in after
        },
    }


def _line(rule: Rule) -> list[Any]:
    """Line of the input (0: made), matches, target, the chain that it enters ("": none)."""
    target = rule.target
    enters = target is not None and target.enters
    return [
        rule.line,
        " ".join(map(match_text, rule.matches)),
        target_text(target) if target else "",
        target.name if target and enters else "",
    ]


def _reads(before: Program, after: Program, table: str, chain: str, backend: Backend) -> dict[str, Any]:
    """How many of the packets aimed at a chain's rules read 1, 2 to 3, 4 to 7 ... rules of it."""
    batch = draw_packets(before, table, chain, PACKETS)
    reads = [Interpreter(each, backend).run(table, chain, batch).reads for each in (before, after)]
    most = max(int(each.max()) for each in reads).bit_length()
    shares = [np.bincount(np.frexp(each)[1], minlength=most + 1)[: most + 1] for each in reads]
    return {
        "packets": len(batch),
        "shares": [(each / len(batch)).round(4).tolist() for each in shares],
        "mean": [round(float(each.mean()), 1) for each in reads],
        "median": [int(np.median(each)) for each in reads],
        "most": [int(each.max()) for each in reads],
    }

"""`hitables compile --report`: the result of a compile as one page for a browser.

The page is page.html with the data inserted as JSON.  Invariants: it loads nothing from a network or another
file, and text of the rule set is inserted as text, never as markup.  It holds the trees whole, as chains of
lines, and draws a chain when the user opens it.
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

# Packets drawn for a chain: enough for a mean that is right to a few per cent.
PACKETS = 4_000
# The compiled chains with the most rules, as many as this, get a chart of the rules read.
PICTURES = 12

_DATA = "/*DATA*/null"


def page(output: Output, backend: Backend) -> str:
    """The page as HTML; packets are read as *backend* reads them."""
    text = json.dumps(page_data(output, backend), ensure_ascii=True, separators=(",", ":"))
    # Nothing inside <script> may look like markup.
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    template = (files("hitables.report") / "page.html").read_text("utf-8")
    head, tail = template.split(_DATA)
    return head + text + tail


def page_data(output: Output, backend: Backend) -> dict[str, Any]:
    """The data of the page, as JSON values."""
    before, after = output.before, output.program
    compiled = sorted((each for each in output.reports if not each.why), key=lambda each: -each.before)
    pictured = {(each.table, each.chain) for each in compiled[:PICTURES]}
    return {
        "source": before.name,
        "header": output.text.split("\n", 1)[0].removeprefix("# "),
        "backend": backend.value,
        "weighed": output.weighed,
        "rules": before.rule_count(),
        "printed": after.rule_count(),
        "removed": sum(each.gone for each in output.reports),
        "compiled": [
            {
                "table": each.table,
                "chain": each.chain,
                "before": each.before,
                "after": each.after,
                "removed": each.gone,
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
        "unchanged": [
            {
                "table": each.table,
                "chain": each.chain,
                "rules": each.after,
                "removed": each.gone,
                "why": each.why,
            }
            for each in output.reports
            if each.why
        ],
        "tables": {
            table.name: {
                chain.name: {
                    "end": chain.policy or "back to the caller",
                    "rules": [_line(rule) for rule in chain.rules],
                }
                for chain in table.chains
            }
            for table in after
        },
    }


def _line(rule: Rule) -> list[Any]:
    """Line of the input (0: generated), matches, target, the chain that the target enters ("": none)."""
    target = rule.target
    enters = target is not None and target.enters
    return [
        rule.line,
        " ".join(map(match_text, rule.matches)),
        target_text(target) if target else "",
        target.name if target and enters else "",
    ]


def _reads(before: Program, after: Program, table: str, chain: str, backend: Backend) -> dict[str, Any]:
    """The shares of packets aimed at the rules of a chain that read 1, 2 to 3, 4 to 7 ... rules."""
    batch = draw_packets(before, table, chain, PACKETS)
    reads = [Interpreter(each, backend).run(table, chain, batch).reads for each in (before, after)]
    bins = max(int(each.max()) for each in reads).bit_length() + 1
    shares = [np.bincount(np.frexp(each)[1], minlength=bins)[:bins] for each in reads]
    return {
        "packets": len(batch),
        "shares": [(each / len(batch)).round(4).tolist() for each in shares],
        "mean": [round(float(each.mean()), 1) for each in reads],
        "median": [int(np.median(each)) for each in reads],
        "most": [int(each.max()) for each in reads],
    }

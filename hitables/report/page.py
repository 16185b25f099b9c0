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
    compiled = sorted(
        (report for report in output.reports if not report.why), key=lambda report: -report.before
    )
    pictured = {(report.table, report.chain) for report in compiled[:PICTURES]}
    return {
        "source": before.name,
        "header": output.text.split("\n", 1)[0].removeprefix("# "),
        "backend": backend.value,
        "weighed": output.weighed,
        "rules": before.rule_count(),
        "printed": after.rule_count(),
        "removed": sum(report.gone for report in output.reports),
        "compiled": [
            {
                "table": report.table,
                "chain": report.chain,
                "before": report.before,
                "after": report.after,
                "removed": report.gone,
                "read": [report.read_before, report.read_after],
                "longest": report.longest,
                "nesting": report.nesting,
                "ns": {name: [report.ns_before[name], spent] for name, spent in report.ns_after.items()},
                "reads": _reads(before, after, report.table, report.chain, backend)
                if (report.table, report.chain) in pictured
                else None,
            }
            for report in compiled
        ],
        "unchanged": [
            {
                "table": report.table,
                "chain": report.chain,
                "rules": report.after,
                "removed": report.gone,
                "why": report.why,
            }
            for report in output.reports
            if report.why
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

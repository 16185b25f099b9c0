"""`hitables counters`: the counts of the rules of a source as iptables-save text, JSON or for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import __version__
from ..apply.counts import of_source
from ..emit.text import write
from ..ir.program import Program
from ..sources.known import Known, occurrences

_NO_TEXT = re.compile("[\udc80-\udcff]")
_LIKE_NO_TEXT = re.compile(r"\\x[0-9a-f]{2}")
_METRICS = (
    ("hitables_rule_packets_total", "Packets that matched the rule of the source, in all its copies.", 0),
    ("hitables_rule_bytes_total", "Bytes of the packets that matched the rule.", 1),
)
_POLICY_METRICS = (
    ("hitables_policy_packets_total", "Packets that the policy of the chain decided.", 0),
    ("hitables_policy_bytes_total", "Bytes of the packets that the policy decided.", 1),
)


def as_saved(known: Known) -> str:
    """The source for `iptables-restore -c`, as `write` spells rules; one without a copy has no counters."""
    counts = {
        (each.table, key): each.count for each, key in zip(known.counted(), _keys(known.source), strict=True)
    }
    keys, policies = of_source(known.source), known.policy_counts()
    tables = []
    for table in known.source:
        chains = []
        for chain in table.chains:
            rules = tuple(
                rule._replace(counters=counts[table.name, key])
                for rule, key in zip(chain.rules, keys[table.name][chain.name], strict=True)
            )
            count = (0, 0) if chain.policy is None else policies.get((table.name, chain.name))
            chains.append(replace(chain, rules=rules, counters=count))
        tables.append(replace(table, chains=tuple(chains)))
    return write(replace(known.source, tables=tuple(tables)))


def _keys(source: Program) -> list[str]:
    """The key of each rule, in order."""
    keys = of_source(source)
    return [key for table in source for chain in table.chains for key in keys[table.name][chain.name]]


def as_json(known: Known) -> dict[str, Any]:
    """The counts as data (hitables/schema/counters.json)."""
    policies = known.policy_counts()
    return {
        "format": "hitables-counters",
        "version": 1,
        "hitables": __version__,
        "source": known.source.name,
        "family": int(known.source.family),
        "rules": [
            {
                "table": each.table,
                "chain": each.chain,
                "line": each.rule.line,
                "rule": each.text,
                "packets": None if each.count is None else each.count[0],
                "bytes": None if each.count is None else each.count[1],
            }
            for each in known.counted()
        ],
        "policies": [
            {"table": table, "chain": chain, "packets": count[0], "bytes": count[1]}
            for (table, chain), count in policies.items()
        ],
    }


def as_prometheus(all_known: Sequence[Known]) -> str:
    """The counts in the text format of Prometheus, for the textfile collector of node_exporter.

    A rule is named by its text and its number among equal rules, not by its line, so that its series goes on
    when rules are inserted before it.
    """
    rules: list[tuple[str, tuple[int, int]]] = []
    policies: list[tuple[str, tuple[int, int]]] = []
    for known in all_known:
        family = str(int(known.source.family))
        counted = known.counted()
        for each, number in zip(counted, occurrences(counted), strict=True):
            if each.count is not None:
                place = {"family": family, "table": each.table, "chain": each.chain}
                labels = _labels({**place, "rule": each.text, "copy": str(number)})
                rules.append((labels, each.count))
        for (table, chain), count in known.policy_counts().items():
            policies.append((_labels({"family": family, "table": table, "chain": chain}), count))
    lines: list[str] = []
    for metrics, counts in ((_METRICS, rules), (_POLICY_METRICS, policies)):
        for name, meaning, part in metrics:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} counter"]
            lines += [f"{name}{labels} {count[part]}" for labels, count in counts]
    return "\n".join(lines) + "\n"


def _labels(values: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    """A label's value.

    Bytes that are not UTF-8, which Prometheus refuses, become \\xNN.  In a value that has them, or the text
    \\xNN, a backslash becomes two, so that different values stay different.
    """
    if _NO_TEXT.search(value) or _LIKE_NO_TEXT.search(value):
        value = _NO_TEXT.sub(lambda byte: rf"\x{ord(byte[0]) - 0xDC00:02x}", value.replace("\\", r"\\"))
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

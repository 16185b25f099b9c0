"""The text of iptables-save, cut into chains and rules, and put together again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..parse.lines import PRINTED_NAME, unquote
from ..rule_lines import with_ends
from .contents import ChainId

RULE = re.compile(rf"(?:\[\d+:\d+\] )?(-A ({PRINTED_NAME}).*)", re.DOTALL)
_HEAD = re.compile(r":(\S+) (\S+)")
_LABEL = 28  # bytes of the label of an idle timer


@dataclass(frozen=True, slots=True)
class Printed:
    """The output of a save tool: of each chain its policy (or `-`) and its rules, without counters."""

    chains: Mapping[ChainId, tuple[str, tuple[str, ...]]]
    tables: tuple[str, ...]

    def all_rules(self) -> dict[ChainId, range]:
        """The indexes of the rules of each chain."""
        return {chain_id: range(len(lines)) for chain_id, (_, lines) in self.chains.items()}


def parse_printed(text: str) -> Printed:
    policies: dict[ChainId, str] = {}
    rules: dict[ChainId, list[str]] = {}
    tables: list[str] = []
    for line in with_ends(text):
        if line.startswith("*"):
            tables.append(line[1:].strip())
        elif line.startswith(":"):
            head = _HEAD.match(line)
            if head and tables:
                policies[tables[-1], unquote(head[1])] = head[2]
        elif tables:
            rule = RULE.match(line)
            if rule:
                rules.setdefault((tables[-1], unquote(rule[2])), []).append(rule[1])
    chains = {chain_id: (policy, tuple(rules.get(chain_id, ()))) for chain_id, policy in policies.items()}
    return Printed(chains, tuple(tables))


def text_of(output: Printed, rules: Mapping[ChainId, Sequence[str]]) -> str:
    """The tables with these rules only; a table with rate estimators first, because others refer to them."""
    parts: list[tuple[bool, str]] = []
    for table in output.tables:
        chains = [(name, policy) for (at, name), (policy, _) in output.chains.items() if at == table]
        heads = "".join(f":{name} {policy} [0:0]\n" for name, policy in chains)
        lines = "".join(line for (at, _), lines in rules.items() if at == table for line in lines)
        parts.append(("-j RATEEST" not in lines, f"*{table}\n{heads}{lines}COMMIT\n"))
    return "".join(part for _, part in sorted(parts, key=lambda part: part[0]))


def with_other_timers(
    lines: Mapping[ChainId, Sequence[str]], fresh: Mapping[ChainId, Sequence[int]]
) -> tuple[dict[ChainId, list[str]], dict[tuple[ChainId, int], Callable[[bytes], bytes]]]:
    """*lines* with other labels of idle timers, and functions that rename the labels in the bytes of rules.

    Timers are global to the machine: a rule with a label that exists would restart that timer.
    """
    renamed = {chain_id: list(rules) for chain_id, rules in lines.items()}
    timers: dict[tuple[ChainId, int], Callable[[bytes], bytes]] = {}
    for chain_id, rules in renamed.items():
        for nth, line in enumerate(rules):
            label = re.search(r"-j IDLETIMER .*--label (\S+)", line)
            if label is None:
                continue
            different = f"hitables{os.getpid()}.{len(timers)}"
            rules[nth] = line[: label.start(1)] + different + line[label.end(1) :]
            old, new = (name.encode("utf-8", "surrogateescape") for name in (unquote(label[1]), different))
            timers[chain_id, fresh[chain_id][nth]] = partial(_relabelled, old, new)
    return renamed, timers


def _relabelled(old: bytes, new: bytes, rule: bytes) -> bytes:
    return rule.replace(old.ljust(_LABEL, b"\0"), new.ljust(_LABEL, b"\0"))


def unchanged(rule: bytes) -> bytes:
    return rule


def without_rules(text: str, left_out: Sequence[ChainId]) -> str:
    """*text* without the rules of the chains *left_out*."""
    if not left_out:
        return text
    lines, table = [], ""
    for line in with_ends(text):
        if line.startswith("*"):
            table = line[1:].strip()
        rule = RULE.match(line)
        if not rule or (table, unquote(rule[2])) not in left_out:
            lines.append(line)
    return "".join(lines)

"""Programs to iptables-save text.

Equal programs print as equal bytes.  A rule is printed with the words that it was read with, in the order in
which the kernel evaluates its matches, so the kernel's own listing of it does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ..ir.program import Chain, Program, Table
from ..ir.rule import FIRST_LOADED, Kind, Match, Rule, Target
from ..parse.lines import quote
from ..parse.named_memory import SHARING, Pieces, in_load_order


def _match_text(match: Match) -> str:
    words = [quote(word) for word in match.words]
    return " ".join(["-m", match.name, *words] if match.name else words)


@lru_cache(maxsize=1 << 16)
def match_text(match: Match) -> str:
    """One match as iptables-save writes it, without blanks around."""
    return _match_text(match)


def target_text(target: Target) -> str:
    """The target with its options."""
    option = "-g" if target.kind is Kind.GOTO else "-j"
    return " ".join([option, target.name, *(quote(word) for word in target.words)])


def rule_text(rule: Rule, chain: str) -> str:
    """The rule as one line that appends it to *chain*."""
    parts = ["-A", quote(chain), *(match_text(match) for match in rule.matches)]
    if rule.target is not None:
        parts.append(target_text(rule.target))
    line = " ".join(parts)
    return line if rule.counters is None else f"[{rule.counters[0]}:{rule.counters[1]}] {line}"


def chain_text(chain: Chain) -> str:
    """The chain's declaration."""
    counters = "" if chain.counters is None else f" [{chain.counters[0]}:{chain.counters[1]}]"
    policy = "-" if chain.policy is None or chain.kept else chain.policy
    return f":{chain.name} {policy}{counters}"  # iptables-restore reads no quotes here


def _rules(pieces: Pieces, shared: list[Match]) -> Iterator[str]:
    """The rules of *pieces* of chains; *shared* gets their matches that share a memory by name."""
    # Copies of a rule share its matches, and rules share equal matches and targets: each text is made once.
    texts: dict[int, str] = {}
    for name, rules in pieces:
        start = f"-A {quote(name)}"
        for matches, target, _, counters, notes in rules:
            if notes:
                yield from notes
            tests = texts.get(id(matches))
            if tests is None:
                words = []
                for match in matches:
                    word = texts.get(id(match))
                    if word is None:
                        word = texts[id(match)] = f" {_match_text(match)}"
                        if match.name in SHARING:
                            shared.append(match)
                    words.append(word)
                tests = texts[id(matches)] = "".join(words)
            action = ""
            if target is not None:
                action = texts.get(id(target), "")
                if not action:
                    action = texts[id(target)] = f" {target_text(target)}"
            line = f"{start}{tests}{action}"
            yield line if counters is None else f"[{counters[0]}:{counters[1]}] {line}"


def _table(table: Table) -> Iterator[str]:
    yield from table.notes
    yield f"*{table.name}"
    for chain in table.chains:
        if chain.declared:
            yield from chain.notes
            yield chain_text(chain)
    pieces = [(chain.name, chain.rules) for chain in table.chains]
    shared: list[Match] = []
    lines = list(_rules(pieces, shared))
    if any(FIRST_LOADED in match.key for match in shared):
        lines = list(_rules(in_load_order(pieces), shared))
    yield from lines
    yield from table.closing
    yield "COMMIT"


def write(program: Program) -> str:
    """The program as text for iptables-restore (with -c, when it has counters)."""
    lines: list[str] = []
    for table in program.tables:
        lines += _table(table)
    lines += program.closing
    return "\n".join(lines) + "\n"

"""Rules of one line as one text: `-s 10.0.0.1,10.0.0.2` makes two rules, which differ in their addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, product

from ..emit.text import rule_text
from ..ir.rule import Match, Rule

_LISTED = ("-s", "-d")


def by_line(rules: Sequence[Rule], chain: str) -> Iterator[tuple[int, str]]:
    """The lines of *rules*, each with the text of its rules; once for each rule where no list makes them."""
    for line, of_line in groupby(rules, key=lambda rule: rule.line):
        together = list(of_line)
        joined = as_list(together)
        for rule in together if joined is None else [joined]:
            yield line, rule_text(rule._replace(counters=None), chain)


def as_list(rules: Sequence[Rule]) -> Rule | None:
    """One rule with lists of addresses that makes all *rules* and no others; None: there is none."""
    first = rules[0]
    if len(rules) == 1:
        return first
    if any(len(rule.matches) != len(first.matches) or rule.target != first.target for rule in rules):
        return None
    columns = [list(dict.fromkeys(column)) for column in zip(*(rule.matches for rule in rules), strict=True)]
    if {rule.matches for rule in rules} != set(product(*columns)) or len(set(rules)) < len(rules):
        return None
    if not all(len(column) == 1 or _are_of_a_list(column) for column in columns):
        return None
    return first._replace(matches=tuple(map(_joined, columns)))


def _are_of_a_list(matches: Sequence[Match]) -> bool:
    return all(not match.name and match.words[0] in _LISTED for match in matches)


def _joined(matches: Sequence[Match]) -> Match:
    first = matches[0]
    if len(matches) == 1:
        return first
    return first._replace(words=(first.words[0], ",".join(match.words[-1] for match in matches)))

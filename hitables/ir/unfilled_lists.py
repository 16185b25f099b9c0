"""Rules that match no packet because they ask a list of recent addresses into which no rule puts one.

-A INPUT -p tcp --dport 22 -m recent --update --seconds 60 --hitcount 5 --name ssh -j DROP

without a rule of `-m recent --set --name ssh`.  IPv4 and IPv6 have entries of their own in a list.
"""

from __future__ import annotations

from collections.abc import Iterator

from .foreign import is_hidden
from .program import Program
from .rule import Match, Rule, word_behind
from .unmatched import Unmatched


def unfilled_lists(program: Program) -> Iterator[Unmatched]:
    """The rules of *program* whose lists stay empty; none if chains of other programs are hidden in it."""
    chains = [(table, chain) for table in program for chain in table.chains]
    if any(is_hidden(rule, chain.name) for _, chain in chains for rule in chain.rules):
        return
    filled = {list_of(match) for rule in program.rules() for match in _recent(rule) if "--set" in match.words}
    for table, chain in chains:
        for rule in chain.rules:
            for match in _recent(rule):
                if list_of(match) not in filled and "!" not in match.words:
                    yield Unmatched(table.name, chain.name, rule.line, _why(list_of(match)))
                    break


def list_of(match: Match) -> str:
    """The name of the list that a match `recent` uses."""
    return word_behind("--name", match.words, "DEFAULT")


def _recent(rule: Rule) -> Iterator[Match]:
    return (match for match in rule.matches if match.name == "recent")


def _why(name: str) -> str:
    return (
        f"no rule puts an address into list {name} (-m recent --set --name {name}), so it is empty unless a "
        f"program writes to /proc/net/xt_recent/{name}"
    )

"""Tables that a text gives again: iptables-restore loads the last one, and rules of the others are lost."""

from __future__ import annotations

from ..errors import HitablesError
from ..ir.program import Program
from ..nouns import counted
from .guess_family import states_both

SPLIT = "split the text into a file for each family"


def lost_rules(program: Program) -> list[str]:
    """A sentence for each table whose rules are lost."""
    return [
        f"{program.name}, line {table.line}: *{table.name} comes again, so iptables-restore drops that of "
        f"line {line}, with {counted(rules, 'rule')}"
        for table in program
        for line, rules in table.replaced
    ]


def remedy(text: str) -> str:
    """What to do with a *text* that gives a table again."""
    return SPLIT if states_both(text) else "join the two"


def refuse_lost(program: Program, text: str) -> None:
    """HitablesError if rules of *text*, which *program* was read from, are lost."""
    if lost := lost_rules(program):
        what_else = "" if states_both(text) else f", or, if one is of IPv4 and one of IPv6, {SPLIT}"
        raise HitablesError("\n".join([*lost, f"Nothing is changed; {remedy(text)}{what_else}"]))

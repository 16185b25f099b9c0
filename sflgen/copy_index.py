"""Where the rules of a list stand in the tree that is grown of it.

A tree that is grown as written holds rules as they are listed, each in the few leaves and lists
that it concerns.  So a rule that is deleted may be taken out where it stands: a line for each
copy, nothing to read in front of anything, nothing to fold.

That is right unless the rule hid others: rules that were left out of a leaf, or of everything,
because it decides all that they could.  What hides what is not written down; so whether a rule may
go like this is for a proof to say (local.py), and there are entries if it may not.

Invariant: an index names every chain of a tree in which a rule stands for as long as the tree
stands.  Rules leave a tree, and only entries, which are not in the index, come into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from hitables.ir.program import Table
from hitables.ir.rule import Rule

from .edits import jumps_to, rule_key

# By what a rule says, as it is spelt: the chains of a tree in which it stands.
Index = dict[tuple[str, ...], set[str]]

# A rule of more copies gets an entry, which is one line or the lines of one overlay.
MOST = 200


def index(table: Table, root: str, is_part: Callable[[str], bool], entries: Mapping[str, Set[int]]) -> Index:
    """The rules of the tree of chain *root*, whose other chains *is_part* tells; *entries*: rows without."""
    found: Index = {}
    seen = {root}
    todo = [root]
    while todo:
        name = todo.pop()
        skipped = entries.get(name, frozenset())
        for row, rule in enumerate(table[name].rules):
            to = jumps_to(rule)
            if row in skipped:
                continue
            if not is_part(to):
                found.setdefault(spelling(rule), set()).add(name)
            elif to not in seen:
                seen.add(to)
                todo.append(to)
    return found


def spelling(rule: Rule) -> tuple[str, ...]:
    """What a rule says, as it is spelt."""
    return (rule.target.key if rule.target else "", *(match.key for match in rule.matches))


def likeness(rule: Rule) -> Callable[[Rule], bool]:
    """Whether another rule says the same as *rule*."""
    key = rule_key(rule)

    def is_like(other: Rule) -> bool:
        # Most lead elsewhere, which is told faster.
        return (other.target.key if other.target else "") == key[1] and rule_key(other) == key

    return is_like

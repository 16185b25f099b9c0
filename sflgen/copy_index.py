"""Where the rules of a list have their copies in the tree that was grown for it.

Trees are grown from rules as they are written, so a leaf holds copies of the rules that concern it.  A
deleted rule can therefore be deleted at each copy: a line of the patch per copy, no entry to read, and
nothing to fold.

Invariant: an index names every chain of a tree that holds a copy of a rule, as long as the tree exists.
Rules are only deleted from a tree; entries, which are added to it, are not in the index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from hitables.ir.program import Table
from hitables.ir.rule import Rule

from .edits import jumps_to, rule_key

# By the spelling of a rule: the chains of a tree that hold it.
CopyIndex = dict[tuple[str, ...], set[str]]

# A rule with more copies gets an entry, which takes one line, or the lines of one overlay.
MAX_COPIES = 200


def index_copies(
    table: Table, root: str, is_tree_chain: Callable[[str], bool], entry_rows: Mapping[str, Set[int]]
) -> CopyIndex:
    """The rules of the tree of chain *root*, without the entries in *entry_rows* of its chains."""
    index: CopyIndex = {}
    seen = {root}
    pending = [root]
    while pending:
        chain = pending.pop()
        skipped = entry_rows.get(chain, frozenset())
        for row, rule in enumerate(table[chain].rules):
            callee = jumps_to(rule)
            if row in skipped:
                continue
            if not is_tree_chain(callee):
                index.setdefault(spelling(rule), set()).add(chain)
            elif callee not in seen:
                seen.add(callee)
                pending.append(callee)
    return index


def spelling(rule: Rule) -> tuple[str, ...]:
    """The target and the matches of a rule as they are spelt."""
    return (rule.target.key if rule.target else "", *(match.key for match in rule.matches))


def likeness(rule: Rule) -> Callable[[Rule], bool]:
    """A test whether another rule is equal to *rule*."""
    key = rule_key(rule)

    def is_like(other: Rule) -> bool:
        # Comparing targets first is faster: most rules differ there.
        return (other.target.key if other.target else "") == key[1] and rule_key(other) == key

    return is_like

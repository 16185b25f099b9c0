"""Where the rules of a list have their copies in the tree that was grown for it.

Trees are grown from rules as they are written, so a leaf holds copies of the rules that concern it.  A
deleted rule can therefore be deleted at each copy: a line of the patch per copy, no entry to read, and
nothing to fold.  Where rules of later groups go before the rule, its packets are led by -g to a chain of
these, which ends with its target: that jump is deleted.

Invariant: an index names every chain of a tree that holds a copy of a rule, or such a jump, as long as the
tree exists.
Rules are only deleted from a tree; entries, which are added to it, are not in the index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from hitables.ir.program import Table
from hitables.ir.rule import Kind, Rule

from .edits import jumps_to
from .rule_rows import spelling

# By the spelling of a rule, or `led` of it: the chains of a tree that hold it, or a jump with its matches.
CopyIndex = dict[tuple[str, ...], set[str]]

# A rule with more copies gets an entry, which takes one line, or the lines of one overlay; unless that may
# have as many lines, which packets would read besides.
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
            if row in skipped and rule.matches:  # without matches: a tree of entries
                continue
            if not is_tree_chain(callee):
                index.setdefault(spelling(rule), set()).add(chain)
                continue
            if rule.matches and rule.target is not None and rule.target.kind is Kind.GOTO:
                index.setdefault(led(rule), set()).add(chain)
            if callee not in seen:
                seen.add(callee)
                pending.append(callee)
    return index


def led(rule: Rule) -> tuple[str, ...]:
    """The key of jumps that lead the packets of *rule* to a chain of the tree."""
    return ("-g", *[match.key for match in rule.matches])

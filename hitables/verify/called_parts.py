"""The first program, cut into chains where the second calls a tree for a part of a list.

Rules that only count are printed in groups (ir/counting.py), each as a tree that the chain calls, as are
the rules in front of them.  Compared as one list, the parts would cut the header space into the product of
their fields.  So the first program gets a chain for each such part, of the name that the second gives to the
tree; the prover compares chains of one name once.

Law: a rule that matches all packets and enters a chain by -j does what the rules of the chain would do in its
place, if none of them leaves the chain by RETURN or -g.  Which chain is the tree of which part is a guess; a
wrong guess proves nothing.

Users: exact.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hitables.ir.counting import GROUP, Regrouped, regrouped
from hitables.ir.fields import Family
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Kind, Rule, Target


def with_called_parts(first: Table, second: Table, family: Family) -> Table | None:
    """*first* with a chain for each tree that *second* calls for a part of a list; None: there are none."""
    chains: list[Chain] = []
    added: list[Chain] = []
    for chain in first.chains:
        other = regrouped(chain.rules, family)
        cut = None
        if other is not None and chain.name in second:
            trees = [name for name in _called(second[chain.name].rules) if name not in first]
            cut = _cut(chain, trees, other)
        if cut is None:
            chains.append(chain)
        else:
            chains.append(chain.with_rules(tuple(cut[0])))
            added += cut[1]
    names = [chain.name for chain in added]
    if not added or len(set(names)) < len(names):
        return None
    return first.of({chain.name: chain for chain in [*chains, *added]})


def _cut(chain: Chain, trees: Sequence[str], other: Regrouped) -> tuple[list[Rule], list[Chain]] | None:
    """The rules of *chain*, and a chain for each part that is one of *trees*; None when that does not fit."""
    rules = [_by_policy(chain.rules[at], chain.end) for at in other.order]
    bounds = sorted({0, *other.cuts, len(rules)})
    parts = [rules[start:end] for start, end in pairwise(bounds)]
    inline: list[Rule] = []
    added: list[Chain] = []
    for at, part in enumerate(parts):
        if len(part) < GROUP or at + 1 == len(parts):
            inline += part
            continue
        if len(added) == len(trees) or any(_leaves_chain(rule) for rule in part):
            return None
        tree = trees[len(added)]
        inline.append(Rule((), Target(tree, Kind.JUMP, f"-j {tree}")))
        added.append(Chain(tree, None, tuple(part)))
    return (inline, added) if added else None


def _called(rules: Sequence[Rule]) -> list[str]:
    """The chains that rules without matches enter by -j."""
    return [
        rule.target.name
        for rule in rules
        if not rule.matches and rule.target is not None and rule.target.kind is Kind.JUMP
    ]


def _by_policy(rule: Rule, end: str | None) -> Rule:
    """RETURN of a built-in chain as the verdict that its policy gives."""
    if end is None or not rule.returns:
        return rule
    return rule._replace(target=Target(end, Kind.VERDICT, end))


def _leaves_chain(rule: Rule) -> bool:
    return rule.target is not None and rule.target.kind in (Kind.RETURN, Kind.GOTO)

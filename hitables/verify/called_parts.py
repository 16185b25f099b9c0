"""The first program, written in the parts that the second reads one behind the other.

Parts of a list are printed as trees that the chain calls, or goes on to: rules of one action, in groups,
rules of several kinds by turns, blocks of rules of one field, and what is before them (ir/arrangement.py).
Compared as one list, the parts would cut the header space into the product of their fields.  So the first
program gets a chain for each such part, of the name that the second gives to the tree; the prover compares
chains of one name once.

Law: a rule that matches all packets and enters a chain by -j does what the rules of the chain would do in its
place, if none of them leaves the chain by RETURN or -g.  One that enters it by -g does what they would do at
the end of its own chain, in any case.  Which chain is the tree of which part is a guess; a wrong guess
proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from hitables.ir.arrangement import Arrangement, arranged
from hitables.ir.crossing import Crossing
from hitables.ir.fields import Family
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Kind, Rule, Target, leaves_chain

from .crossing_lists import Entered, calling, going_to, keys, told_apart


def with_called_parts(first: Table, second: Table, family: Family, *, exact: bool) -> Table | None:
    """*first* in the parts that *second* reads one behind the other, or tells apart; None: there are none.

    exact  no packet may be dropped that the list accepts, whatever its header
    """
    chains: list[Chain] = []
    added: list[Chain] = []
    for chain in first.chains:
        other = arranged(chain, first, family) if chain.name in second else None
        cut = [] if other is None else _Cut(chain, other, first, second, exact).chains()
        chains.append(cut[0] if len(cut) > 1 else chain)
        added += cut[1:]
    names = [chain.name for chain in added]
    if not added or len(set(names)) < len(names):
        return None
    return first.of({chain.name: chain for chain in [*chains, *added]})


class _Cut:
    """A chain of the first program on its way to be cut into the parts that the second has.

    inline  the rules of the chain that is written: it, or a chain that it goes on to
    """

    def __init__(self, chain: Chain, other: Arrangement, first: Table, second: Table, exact: bool) -> None:
        self.exact = exact
        self.chain, self.other, self.first, self.second = chain, other, first, second
        self.entered = Entered(second, first)
        self.open = chain
        self.inline: list[Rule] = []
        # A rule that stays in the chain keeps its RETURN.
        self.printed = _Printed([_by_policy(rule, chain.end) for rule in second[chain.name].rules], first)
        self.written: list[Chain] = []
        self.called: list[Chain] = []

    def chains(self) -> list[Chain]:
        """The chain, and those that it enters; none when the second program has no such parts."""
        rules = [_by_policy(self.chain.rules[at], self.chain.end) for at in self.other.order]
        for start, end in pairwise(sorted({0, *self.other.cuts, len(rules)})):
            part, crossing = rules[start:end], self.other.crossing(start, end, exact=self.exact)
            if end == len(rules):
                self.inline += self.apart(part, crossing, self.open.name, None)
            elif not self.goes_on(part, crossing) and not self.calls(part, crossing):
                return []
        return [*self.written, self.open.with_rules(tuple(self.inline)), *self.called]

    def apart(self, rules: list[Rule], crossing: Crossing | None, root: str, then: str | None) -> list[Rule]:
        """*rules*, which the second program reads from chain *root* on, and goes on to chain *then*."""
        found = None
        if crossing is not None:
            start = self.printed.at if root == self.open.name else 0
            found = told_apart(rules, crossing, root, start, then, self.entered)
        if found is None:
            return rules if then is None else [*rules, going_to(then)]
        self.called += found[1]
        return found[0]

    def goes_on(self, part: list[Rule], crossing: Crossing | None) -> bool:
        """Whether the second program has a tree for *part* that goes on to a chain with the rest."""
        if not any(map(leaves_chain, part)) or self.printed.has(part):
            return False
        then = self.entered.rest(self.open.name, part)
        if then is None:
            return False
        self.inline += self.apart(part, crossing, self.open.name, then)
        self.written.append(self.open.with_rules(tuple(self.inline)))
        self.open, self.inline = Chain(then, None), []
        self.printed = _Printed(self.second[then].rules, self.first)
        return True

    def calls(self, part: list[Rule], crossing: Crossing | None) -> bool:
        """Whether the second program calls trees for *part*, or has it as it is."""
        for piece in _pieces(part):
            # A rule that leaves the chain would come back from a tree that is called.
            root = None if leaves_chain(piece[0]) else self.printed.called()
            if root is not None:
                own = self.apart(piece, crossing if len(piece) == len(part) else None, root, None)
                self.inline.append(calling(root))
                self.called.append(Chain(root, None, tuple(own)))
            elif self.printed.reads(piece):
                self.inline += piece
            else:
                return False
        return True


def _pieces(rules: Sequence[Rule]) -> Iterator[list[Rule]]:
    """*rules*, parted before and behind each one that leaves the chain: such a rule is in no called tree."""
    for leaves, group in groupby(rules, leaves_chain):
        piece = list(group)
        yield from ([rule] for rule in piece) if leaves else [piece]


class _Printed:
    """The rules of a chain of the second program, from the first one that was not read yet."""

    def __init__(self, rules: Sequence[Rule], first: Table) -> None:
        self.rules, self.first = rules, first
        self.at = 0

    def called(self) -> str | None:
        """The tree that the next rule calls for all packets; None, and nothing is read, if it calls none."""
        rule = self.rules[self.at] if self.at < len(self.rules) else None
        if rule is None or rule.matches or rule.target is None or rule.target.kind is not Kind.JUMP:
            return None
        if rule.target.name in self.first:
            return None
        self.at += 1
        return rule.target.name

    def has(self, rules: Sequence[Rule]) -> bool:
        """Whether *rules* follow."""
        return keys(self.rules[self.at : self.at + len(rules)]) == keys(rules)

    def reads(self, rules: Sequence[Rule]) -> bool:
        """Whether *rules* follow, which are read then."""
        has = self.has(rules)
        self.at += len(rules) if has else 0
        return has


def _by_policy(rule: Rule, end: str | None) -> Rule:
    """RETURN of a built-in chain as the verdict that its policy gives."""
    if end is None or not rule.returns:
        return rule
    return rule._replace(target=Target(end, Kind.VERDICT, end))

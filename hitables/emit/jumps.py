"""A tree as jump chains (DESIGN: one rule per decision, entered by -g only).

Invariant: every chain made here is entered by `-g`, and the tree covers the whole
rest of its chain; so falling off a leaf, and RETURN in a leaf, do what they did in
the chain that was compiled.  Rules with memory of their own stand in one chain
each, which leaves enter by `-j`.  Every rule of the chain is printed somewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..build.tree import Free, Step, Tree
from ..build.tree import Kind as NodeKind
from ..ir.fields import Family, Field
from ..ir.rule import Kind, Match, Role, Rule, Target
from .chains import Names, Planted, Planter, Written, goto, jump
from .spell import guard, matches, test_words

_PORTS = (Field.SPORT, Field.DPORT)
_RULE, _ONCE = int(Step.RULE), Role.ONCE  # looked for so often that finding the name counts


@dataclass(slots=True)
class Segment:
    """Rules in a row: with a tree over them, or read one by one (*tree* None).

    patient  match that drops nothing, so that it may be asked before its turn
    """

    rules: Sequence[Rule]
    tree: Tree | None
    guards: frozenset[int] = frozenset()
    patient: Callable[[Match], bool] = lambda match: True


def has_memory(rule: Rule) -> bool:
    """Whether the rule must exist once."""
    return any(match.role is Role.ONCE for match in rule.matches)


def any_memory(rules: Sequence[Rule]) -> bool:
    """Whether any of the rules must exist once."""
    return any(match.role is _ONCE for rule in rules for match in rule.matches)


def leaves_chain(rule: Rule) -> bool:
    """Whether the rule's target leaves the chain that it stands in, so that -j cannot stand for it."""
    return rule.target is not None and rule.target.kind in (Kind.RETURN, Kind.GOTO)


class _Planter(Planter):
    def plant(self, segments: Sequence[Segment]) -> Planted:
        first = here = Written("")
        for at, segment in enumerate(segments):
            if segment.tree is None:
                here.rules += [self.copy(rule) for rule in segment.rules]
                continue
            after = self.open() if at + 1 < len(segments) else None
            _Tree(self, segment, after).write(here)
            if after is not None:
                here = after
        return self.planted(first.rules)


class _Tree:
    """Writes one segment's tree.

    A node becomes a chain where a test takes packets to it or an entry leads to it; one chain,
    from however many places.  What stays behind a test is written in line.
    """

    def __init__(self, planter: _Planter, segment: Segment, after: Written | None) -> None:
        assert segment.tree is not None
        self.planter, self.segment, self.after = planter, segment, after
        self.tree = segment.tree.as_tests()
        self.grouped = bool(self.tree.step.any())
        called = np.isin(self.tree.step, (Step.ASK, Step.CALL, Step.SEND)).any()
        assert after is None or not called, "groups are not left by a jump to what follows"
        self.leaves: dict[tuple[tuple[int, int, int], ...], str] = {}
        self.chains: dict[int, str] = {}
        # (node, list to write to, protocol if known, protocols guarded already)
        self.todo: list[tuple[int, Written, int | None, frozenset[int]]] = []
        # Lists of what is read at each node: (step, rule, link).
        self.entries = list(
            zip(self.tree.step.tolist(), self.tree.entry.tolist(), self.tree.link.tolist(), strict=True)
        )
        printed = self.tree.entry[(self.tree.step == Step.RULE) | (self.tree.step == Step.ACT)]
        copies = np.bincount(printed, minlength=len(segment.rules))
        self.stand_ins: dict[int, Rule] = {}
        for number in np.flatnonzero(copies > 1).tolist() if any_memory(segment.rules) else ():
            if has_memory(segment.rules[number]):
                self.stand_ins[number] = self.share(segment.rules[number])
        # No packet comes to a rule that others cover everywhere; it and its counter are
        # the user's all the same, so it stands in a chain that nobody enters.
        covered = [rule for number, rule in enumerate(segment.rules) if not copies[number]]
        if covered:
            planter.open().rules += [planter.copy(rule) for rule in covered]

    def share(self, rule: Rule) -> Rule:
        """Put *rule* into a chain of its own; the rule that enters it tests what is free to test."""
        chain = self.planter.open()
        chain.rules.append(self.planter.copy(rule))
        # Up to the first match of another role: one behind it may drop what that keeps from it.
        free = itertools.takewhile(lambda match: match.role is Role.SPACE, rule.matches)
        return Rule(tuple(free), jump(chain.name))

    def entry(self, step: int, number: int, link: int, protocol: int | None) -> Rule:
        """What an entry is printed as (build.tree.Step); *protocol*: of its packets, if known."""
        if step == _RULE:
            return self.stand_ins.get(number) or self.planter.copy(self.segment.rules[number])
        if step == Step.ACT:
            return self.planter.copy(self.segment.rules[number])._replace(matches=())
        if step == Step.GO:
            return Rule((), goto(self.chain(link, protocol)))
        if step == Step.CALL:
            return Rule((), jump(self.chain(link)))
        rule = self.segment.rules[number]
        if step == Step.SEND:
            return Rule(rule.matches, goto(self.chain(link)))
        if self.tree.boxes.free[number] & Free.SENDABLE:
            return Rule(rule.matches, jump(self.chain(link)))
        patient = self.segment.patient
        free = itertools.takewhile(lambda match: match.role is Role.SPACE and patient(match), rule.matches)
        return Rule(tuple(free), jump(self.chain(link)))

    def chain(self, node: int, protocol: int | None = None) -> str:
        """The chain that an entry leads to.

        *protocol* is that of all packets that any entry leads there, or the tree asks for it again.
        """
        name = self.chains.get(node)
        if name is None:
            made = self.planter.open()
            name = self.chains[node] = made.name
            self.todo.append((node, made, protocol, frozenset()))
        return name

    def end(self, here: Written) -> None:
        """What stands behind a leaf: the rest of the chain, when there is one."""
        if self.after is not None:
            here.rules.append(Rule((), goto(self.after.name)))

    def nothing(self) -> Target:
        """Where a packet goes that no rule of the tree can match."""
        return goto(self.after.name) if self.after else Target("RETURN", Kind.RETURN, "RETURN")

    def write(self, here: Written) -> None:
        tree = self.tree
        node = tree.node.tolist()
        lows, highs, to = (tree.edge[name].tolist() for name in ("low", "high", "to"))
        axes = tree.boxes.axes
        rules = self.segment.rules
        # Copies of rules that carry nothing of their own are the rules.
        plain = not self.stand_ins and all(rule.counters is None and not rule.notes for rule in rules)
        tests: dict[tuple[object, ...], tuple[Match, ...]] = {}
        self.todo.append((tree.root, here, None, frozenset()))
        while self.todo:
            at, here, protocol, guarded = self.todo.pop()
            while True:
                first, entries, first_edge, edges, kind, axis_at, negated = node[at][:7]
                here.rules += [
                    rules[each[1]] if plain and each[0] == _RULE else self.entry(*each, protocol)
                    for each in self.entries[first : first + entries]
                ]
                if kind == NodeKind.LEAF or edges == 1:
                    if kind == NodeKind.LEAF:
                        if not entries or self.entries[first + entries - 1][0] != Step.GO:
                            self.end(here)
                        break
                    at = to[first_edge]
                    continue
                axis = axes[axis_at]
                taken, other = to[first_edge], to[first_edge + 1]
                low_value = (lows[first_edge][0] << 64 | lows[first_edge][1]) - axis.optional
                high_value = (highs[first_edge][0] << 64 | highs[first_edge][1]) - axis.optional
                if axis.field in _PORTS and protocol in self.segment.guards and protocol not in guarded:
                    assert protocol is not None
                    here.rules.append(Rule(guard(protocol, self.planter.family), None))
                    guarded |= {protocol}
                key = axis_at, low_value, high_value, negated, protocol
                test = tests.get(key)
                if test is None:
                    words = test_words(
                        axis.field, low_value, high_value, bool(negated), protocol, self.planter.family
                    )
                    test = tests[key] = matches(words, self.planter.family)
                inside = protocol
                if axis.field is Field.PROTO and not negated:
                    inside = low_value
                here.rules.append(Rule(test, self.taken(taken, node[taken], inside, guarded)))
                if axis.field is Field.PROTO and negated:
                    protocol = low_value
                at = other

    def taken(
        self, node: int, row: tuple[int, ...], protocol: int | None, guarded: frozenset[int]
    ) -> Target:
        """The target that leads to a taken side, whose chain is written later."""
        first, entries, _, _, kind, _, _ = row[:7]
        if node in self.chains:
            return goto(self.chains[node])
        listed: tuple[tuple[int, int, int], ...] = ()
        if kind == NodeKind.LEAF:
            listed = tuple(self.entries[first : first + entries])
            if not listed:
                return self.nothing()
            if listed[0][0] == Step.GO:
                return goto(self.chain(listed[0][2], protocol))
            if listed in self.leaves:
                return goto(self.leaves[listed])
        made = self.planter.open()
        self.chains[node] = made.name
        if listed:
            self.leaves[listed] = made.name
        # A chain that is entered from several places guards itself.
        self.todo.append((node, made, protocol, frozenset() if self.grouped else guarded))
        return goto(made.name)


def plant(segments: Sequence[Segment], family: Family, names: Names) -> Planted:
    """Write *segments*, one behind the other, as the rules of one chain and the chains they need."""
    return _Planter(family, names).plant(segments)

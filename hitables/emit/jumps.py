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

from ..analyse.boxes import Reorder
from ..build.tree import NodeKind, Step, Tree
from ..ir.fields import Family, Field
from ..ir.rule import Kind, Match, Role, Rule, Target
from .chain_writer import Names, Planted, Planter, Written, goto, jump
from .leaf_matches import Forms, Known, without
from .tree_tests import guard, matches, test_words

_PORTS = (Field.SPORT, Field.DPORT)
_RULE, _ONCE = int(Step.RULE), Role.ONCE  # looked for so often that finding the name counts
_LEADING = (Step.SEND, Step.ASK, Step.CALL, Step.GO)
_CALLING = (Step.SEND, Step.ASK, Step.CALL)

Pairs = tuple[tuple[int, int], ...]
Decidable = list[tuple[Match, list[tuple[int, Pairs]]]]


@dataclass(slots=True)
class Segment:
    """Rules in a row: with a tree over them, or read one by one (*tree* None).

    patient  match that drops nothing, so that it may be asked before its turn
    forms    cheaper forms of its rules (None: as they stand)
    """

    rules: Sequence[Rule]
    tree: Tree | None
    guards: frozenset[int] = frozenset()
    patient: Callable[[Match], bool] = lambda match: True
    forms: Forms | None = None

    @property
    def comes_back(self) -> bool:
        """Whether trees of its groups are called and come back."""
        return self.tree is not None and bool(np.isin(self.tree.step, _CALLING).any())


def any_memory(rules: Sequence[Rule]) -> bool:
    """Whether any of the rules must exist once."""
    return any(match.role is _ONCE for rule in rules for match in rule.matches)


def leaves_chain(rule: Rule) -> bool:
    """Whether the rule's target leaves the chain that it stands in, so that -j cannot stand for it."""
    return rule.target is not None and rule.target.kind in (Kind.RETURN, Kind.GOTO)


def stand_in(rule: Rule, chain: str) -> Rule:
    """The rule that enters *chain*, where *rule* with its memory is kept, by -j.

    It has the tests that *rule* begins with, up to the first match of another role: a test after that match
    may drop packets that the match would have kept from the test.
    """
    tests = itertools.takewhile(lambda match: match.role is Role.SPACE, rule.matches)
    return Rule(tuple(tests), jump(chain))


def read_through_xtables(rule: Rule) -> bool:
    """Whether a match of the rule drops packets whose header is cut off in nf_tables, too."""
    return any(match.needs and not match.native for match in rule.matches)


class _Planter(Planter):
    def plant(self, segments: Sequence[Segment]) -> Planted:
        first = here = Written("")
        for at, segment in enumerate(segments):
            if segment.tree is None:
                here.rules += [self.copy(rule) for rule in segment.rules]
                continue
            follows = at + 1 < len(segments)
            if follows and segment.comes_back:
                # What its groups call comes back to them, so all of it does: it is called, too.
                called = self.open()
                here.rules.append(Rule((), jump(called.name)))
                _Tree(self, segment, None).write(called)
                continue
            after = self.open() if follows else None
            _Tree(self, segment, after).write(here)
            if after is not None:
                here = after
        return self.planted(first.rules)


@dataclass(slots=True)
class _Place:
    """A chain still to be written: what all ways to it have in common, and how many are yet to be seen.

    guarded  protocols whose packets have met a guard
    """

    chain: Written
    ways: int
    known: Known | None = None
    guarded: frozenset[int] = frozenset()


class _Tree:
    """Writes one segment's tree.

    A node becomes a chain where a test takes packets to it or an entry leads to it; one chain,
    from however many places, written once all ways to it are known.  Leaves of equal lists that
    tests lead to are one.  What stays behind a test is written in line.
    """

    def __init__(self, planter: _Planter, segment: Segment, after: Written | None) -> None:
        assert segment.tree is not None
        self.planter, self.segment, self.after = planter, segment, after
        self.tree = segment.tree.as_tests()
        self.leads = bool(self.tree.step.any())
        assert after is None or not segment.comes_back, "groups are not left by a jump to what follows"
        self.axes = self.tree.boxes.axes
        self.place = {axis.field: at for at, axis in enumerate(self.axes)}
        self.nothing_known: Known = (None,) * len(self.axes)
        self.node = self.tree.node.tolist()
        self.lows, self.highs, self.to = (self.tree.edge[name].tolist() for name in ("low", "high", "to"))
        # Lists of what is read at each node: (step, rule, link).
        self.entries = list(
            zip(self.tree.step.tolist(), self.tree.entry.tolist(), self.tree.link.tolist(), strict=True)
        )
        self.leaves: dict[tuple[tuple[int, int, int], ...], int] = {}
        self.aims: dict[int, int | None] = {}
        self.ways = self.survey()
        self.places: dict[int, _Place] = {}
        self.todo: list[tuple[int, _Place]] = []
        # Of a rule's first so many matches: their order, and what the tree's tests may decide.
        self.asked: dict[tuple[int, int], tuple[tuple[Match, ...], Decidable]] = {}
        printed = self.tree.entry[(self.tree.step == Step.RULE) | (self.tree.step == Step.ACT)]
        copies = np.bincount(printed, minlength=len(segment.rules))
        self.tests: dict[tuple[object, ...], tuple[Match, ...]] = {}
        self.stand_ins: dict[int, Rule] = {}
        for number in np.flatnonzero(copies > 1).tolist() if any_memory(segment.rules) else ():
            if segment.rules[number].has_memory:
                self.stand_ins[number] = self.share(segment.rules[number])
        # No packet comes to a rule that others cover everywhere; it and its counter are
        # the user's all the same, so it stands in a chain that nobody enters.
        covered = [rule for number, rule in enumerate(segment.rules) if not copies[number]]
        if covered:
            planter.open().rules += [planter.copy(rule) for rule in covered]
        self.missed = frozenset(filter(self.may_miss_a_drop, segment.guards))

    def may_miss_a_drop(self, protocol: int) -> bool:
        """Whether a rule that drops packets without ports stands behind one that may cover it, and does not.

        nf_tables drops them where a rule is read through xtables; a native test of ports lets them by.
        A list may leave such a rule out, though no test on the way to the list asked for a port.
        """
        native = False
        for rule, final in zip(self.segment.rules, self.tree.boxes.final.tolist(), strict=True):
            asked = [test.values for match in rule.matches if match.is_protocol for test in match.tests]
            if not any(protocol in values for values in asked):
                continue
            if native and read_through_xtables(rule):
                return True
            native = native or (bool(final) and any(match.native for match in rule.matches))
        return False

    # -- ways --------------------------------------------------------------------------------------

    def survey(self) -> dict[int, int]:
        """How many ways lead to each node that has a chain."""
        ways: dict[int, int] = {}
        todo = [self.tree.root]

        def lead(at: int) -> None:
            ways[at] = ways.get(at, 0) + 1
            if ways[at] == 1:
                todo.append(at)

        while todo:
            at = todo.pop()
            while True:
                first, entries, first_edge, edges, kind = self.node[at][:5]
                if self.leads:
                    for step, _, link in self.entries[first : first + entries]:
                        if step in _LEADING:
                            lead(link)
                if kind == NodeKind.LEAF:
                    break
                if edges > 1:
                    taken = self.aim(self.to[first_edge])
                    if taken is not None:
                        lead(taken)
                    first_edge += 1
                at = self.to[first_edge]
        return ways

    def aim(self, node: int) -> int | None:
        """The node that a test leads to when *node* is what it takes; None: no rule is there."""
        if node in self.aims:
            return self.aims[node]
        first, entries, _, _, kind = self.node[node][:5]
        found: int | None = node
        if kind == NodeKind.LEAF:
            listed = tuple(self.entries[first : first + entries])
            if not listed:
                found = None
            elif listed[0][0] == Step.GO:
                found = listed[0][2]
            else:
                found = self.leaves.setdefault(listed, node)
        self.aims[node] = found
        return found

    def chain(self, node: int, known: Known, guarded: frozenset[int]) -> str:
        """The chain of *node*, to which a way leads by which so much is known."""
        place = self.places.get(node)
        if place is None:
            place = self.places[node] = _Place(self.planter.open(), self.ways[node], known, guarded)
        elif place.known != known or place.guarded != guarded:
            assert place.known is not None
            place.known = tuple(map(_either, place.known, known))
            place.guarded &= guarded
        place.ways -= 1
        assert place.ways >= 0, "a chain is written before all ways to it are known"
        if not place.ways:
            self.todo.append((node, place))
        return place.chain.name

    # -- rules -------------------------------------------------------------------------------------

    def share(self, rule: Rule) -> Rule:
        """Put *rule* into a chain of its own; returns the rule that enters the chain."""
        chain = self.planter.open()
        chain.rules.append(self.planter.copy(rule))
        return stand_in(rule, chain.name)

    def entry(self, step: int, number: int, link: int, known: Known, guarded: frozenset[int]) -> Rule:
        """What an entry is printed as (build.tree.Step)."""
        rule = self.segment.rules[number]
        if step == _RULE:
            stand_in = self.stand_ins.get(number)
            if stand_in is not None:
                return stand_in._replace(matches=self.left(number, stand_in.matches, stand_in.target, known))
            copied = self.planter.copy(rule)
            return copied._replace(matches=self.left(number, rule.matches, rule.target, known))
        if step == Step.ACT:
            return self.planter.copy(rule)._replace(matches=())
        name = self.chain(link, known, guarded)
        if step == Step.GO:
            return Rule((), goto(name))
        if step == Step.CALL:
            return Rule((), jump(name))
        target = goto(name) if step == Step.SEND else jump(name)
        matches = rule.matches
        if step == Step.ASK and not self.tree.boxes.reorder[number] & Reorder.SPLITTABLE:
            patient = self.segment.patient
            space = itertools.takewhile(lambda match: match.role is Role.SPACE, rule.matches)
            matches = tuple(itertools.takewhile(patient, space))
        return Rule(self.left(number, matches, target, known), target)

    def left(
        self, number: int, matches: tuple[Match, ...], target: Target | None, known: Known
    ) -> tuple[Match, ...]:
        """What is left to ask of *matches*, which begin those of the rule; cheap ones first."""
        forms = self.segment.forms
        if forms is None or not matches:
            return matches
        found = self.asked.get((number, len(matches)))
        if found is None:
            ordered = forms.ordered(matches)
            found = self.asked[number, len(matches)] = ordered, self.decidable(ordered)
        ordered, decidable = found
        gone: list[Match] = []
        for match, tests in decidable:
            for at, pairs in tests:
                values = known[at]
                if values is None or not _has(pairs, *values):
                    break
            else:
                gone.append(match)
        if not gone:
            return ordered
        return without(ordered, target, lambda match: any(match is each for each in gone))

    def decidable(self, matches: tuple[Match, ...]) -> Decidable:
        """The matches that this tree's tests may decide, with the axes and values that they ask for."""
        assert self.segment.forms is not None
        place = self.place
        return [
            (match, [(place[test.field], test.values.pairs) for test in match.tests])
            for match in self.segment.forms.decidable(matches)
            if all(test.field in place for test in match.tests)
        ]

    def end(self, here: Written) -> None:
        """What stands behind a leaf: the rest of the chain, when there is one."""
        if self.after is not None:
            here.rules.append(Rule((), goto(self.after.name)))

    def nothing(self) -> Target:
        """Where a packet goes that no rule of the tree can match."""
        return goto(self.after.name) if self.after else Target("RETURN", Kind.RETURN, "RETURN")

    def write(self, here: Written) -> None:
        here.rules += [Rule(guard(protocol, self.planter.family), None) for protocol in sorted(self.missed)]
        self.todo.append((self.tree.root, _Place(here, 0, self.nothing_known, self.missed)))
        while self.todo:
            at, place = self.todo.pop()
            assert place.known is not None
            self.write_from(at, place.chain, place.known, place.guarded)

    def write_from(self, at: int, here: Written, known: Known, guarded: frozenset[int]) -> None:
        """The node, and what stays in line behind it."""
        while True:
            first, entries, first_edge, edges, kind, axis_at, negated = self.node[at][:7]
            listed = self.entries[first : first + entries]
            here.rules += [self.entry(*each, known, guarded) for each in listed]
            if kind == NodeKind.LEAF:
                if not listed or listed[-1][0] != Step.GO:
                    self.end(here)
                return
            if edges == 1:
                at = self.to[first_edge]
                continue
            axis = self.axes[axis_at]
            taken, other = self.to[first_edge], self.to[first_edge + 1]
            values = (
                (self.lows[first_edge][0] << 64 | self.lows[first_edge][1]) - axis.optional,
                (self.highs[first_edge][0] << 64 | self.highs[first_edge][1]) - axis.optional,
            )
            protocol = self.protocol(known)
            if axis.field in _PORTS and protocol in self.segment.guards and protocol not in guarded:
                assert protocol is not None
                here.rules.append(Rule(guard(protocol, self.planter.family), None))
                guarded |= {protocol}
            key = axis_at, values, negated, protocol
            test = self.tests.get(key)
            if test is None:
                words = test_words(axis.field, *values, bool(negated), protocol, self.planter.family)
                test = self.tests[key] = matches(words, self.planter.family)
            inside = (*known[:axis_at], values, *known[axis_at + 1 :])
            aim = self.aim(taken)
            if aim is None:
                target = self.nothing()
            else:
                target = goto(self.chain(aim, known if negated else inside, guarded))
            here.rules.append(Rule(test, target))
            if negated:  # of a field that every packet has: builders negate no other
                known = inside
            at = other

    def protocol(self, known: Known) -> int | None:
        """The protocol of all packets, if that is known."""
        at = self.place.get(Field.PROTO)
        values = None if at is None else known[at]
        return values[0] if values is not None and values[0] == values[1] else None


def _has(pairs: Pairs, low: int, high: int) -> bool:
    """Whether one of the pairs has all from *low* to *high*."""
    # Leaves hold many rules: a loop takes half the time of any().
    for first, last in pairs:  # noqa: SIM110
        if first <= low and high <= last:
            return True
    return False


def _either(one: tuple[int, int] | None, two: tuple[int, int] | None) -> tuple[int, int] | None:
    """What is known of a value that one of two is known of."""
    if one is None or two is None:
        return None
    return min(one[0], two[0]), max(one[1], two[1])


def plant(segments: Sequence[Segment], family: Family, names: Names) -> Planted:
    """Write *segments*, one behind the other, as the rules of one chain and the chains they need."""
    return _Planter(family, names).plant(segments)

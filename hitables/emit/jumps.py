"""A tree written as chains: one rule per decision.

Invariant: every chain of a tree is entered by `-g`, and the tree covers the whole rest of its chain; so the
end of a leaf, and RETURN in a leaf, do what they did in the compiled chain.  Only the trees of groups are
entered by `-j`, and return to the leaf that called them.  A rule with memory of its own is kept in one chain,
which leaves enter by `-j`.  Every rule of the chain is written somewhere.

Cost: a few microseconds a rule written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from ..analyse.boxes import Reorder
from ..build.tree import EntryKind, NodeKind, Tree
from ..ir.fields import Family, Field
from ..ir.rule import Kind, Match, Role, Rule, Target
from .chain_writer import ChainWriter, FreshNames, OpenChain, WrittenChains, jump
from .leaf_matches import Forms, Known, without
from .tree_tests import guard, matches, test_words

_PORTS = (Field.SPORT, Field.DPORT)
# Used so often that the look-up of the attribute counts.
_RULE, _ACT, _GO = int(EntryKind.RULE), int(EntryKind.ACT), int(EntryKind.GO)
_CALL, _SEND, _ASK, _MEET = (
    int(kind) for kind in (EntryKind.CALL, EntryKind.SEND, EntryKind.ASK, EntryKind.MEET)
)
_ONCE, _LEAF, _PROTO, _SPLITTABLE = Role.ONCE, int(NodeKind.LEAF), Field.PROTO, int(Reorder.SPLITTABLE)
_LEADING = (_SEND, _ASK, _CALL, _GO, _MEET)
_CALLING = (_SEND, _ASK, _CALL)

Pairs = tuple[tuple[int, int], ...]
Decidable = list[tuple[Match, list[tuple[int, Pairs]]]]


@dataclass(slots=True)
class Segment:
    """Consecutive rules with a tree over them, or without (*tree* None: they are read one by one).

    guards   protocols whose packets must meet a guard before a test of ports (analyse.rule_boxes)
    first    protocols whose packets meet a guard in front of the tree in any case
    patient  whether a match drops nothing, so that it may be evaluated early
    forms    cheaper forms of its rules; None: the rules are written unchanged
    called   the tree is entered by -j, and packets come back to what follows; no rule leaves the chain
    """

    rules: Sequence[Rule]
    tree: Tree | None
    guards: frozenset[int] = frozenset()
    patient: Callable[[Match], bool] = lambda match: True
    forms: Forms | None = None
    called: bool = False
    first: frozenset[int] = frozenset()

    @property
    def comes_back(self) -> bool:
        """Whether it has trees of groups, which are called and return."""
        return self.tree is not None and bool(np.isin(self.tree.step, _CALLING).any())


def any_memory(rules: Sequence[Rule]) -> bool:
    """Whether any of the rules has memory of its own, and so must exist once."""
    return any(match.role is _ONCE for rule in rules for match in rule.matches)


def stand_in(rule: Rule, chain: str) -> Rule:
    """The rule that enters *chain*, where *rule* with its memory is kept, by -j.

    It has the tests that *rule* begins with, up to the first match of another role: a test after that match
    may drop packets that the match would have kept from the test.
    """
    tests = itertools.takewhile(lambda match: match.role is Role.SPACE, rule.matches)
    return Rule(tuple(tests), jump(chain))


def read_through_xtables(rule: Rule) -> bool:
    """Whether a match of the rule drops packets whose header is cut off, in nf_tables as in legacy."""
    return any(match.needs and not match.native for match in rule.matches)


class _SegmentWriter(ChainWriter):
    def write_segments(self, segments: Sequence[Segment]) -> WrittenChains:
        first = here = OpenChain("")
        for at, segment in enumerate(segments):
            if segment.tree is None:
                here.rules += [self.copy(rule) for rule in segment.rules]
                continue
            follows = at + 1 < len(segments)
            if segment.called or (follows and segment.comes_back):
                # The trees of groups return to their caller, so the whole segment must be called.
                called = self.open()
                here.rules.append(Rule((), called.jump))
                _Tree(self, segment, None).write(called)
                continue
            after = self.open() if follows else None
            _Tree(self, segment, after).write(here)
            if after is not None:
                here = after
        return self.written(first.rules)


@dataclass(slots=True)
class _PendingChain:
    """A chain that is written once all paths to it are known.

    paths    how many paths to it are not known yet
    known    values that the fields of packets can have there, on every path
    guarded  protocols whose packets have met a guard on every path
    """

    chain: OpenChain
    paths: int
    known: Known | None = None
    guarded: frozenset[int] = frozenset()


class _Tree:
    """Writes one segment's tree.

    A node that a test takes packets to, or that an entry leads to, becomes one chain; it is written once all
    paths to it are known.  Leaves with equal lists share a chain.  The node that continues a test is written
    in line.
    """

    def __init__(self, writer: _SegmentWriter, segment: Segment, after: OpenChain | None) -> None:
        assert segment.tree is not None
        self.writer, self.segment, self.after = writer, segment, after
        self.tree = segment.tree.as_tests()
        self.leads = bool(self.tree.step.any())
        assert after is None or not segment.comes_back, "groups are not left by a jump to the next segment"
        self.axes = self.tree.boxes.axes
        self.axis_of = {axis.field: at for at, axis in enumerate(self.axes)}
        self.nothing_known: Known = (None,) * len(self.axes)
        self.node = self.tree.node.tolist()
        self.lows, self.highs, self.to = (self.tree.edge[name].tolist() for name in ("low", "high", "to"))
        # The entries of all nodes: (step, rule, link).
        self.entries = list(
            zip(self.tree.step.tolist(), self.tree.entry.tolist(), self.tree.link.tolist(), strict=True)
        )
        self.leaves: dict[tuple[tuple[int, int, int], ...], int] = {}
        self.destinations: dict[int, int | None] = {}
        self.paths = self.count_paths()
        self.pending: dict[int, _PendingChain] = {}
        self.todo: list[tuple[int, _PendingChain]] = []
        # By rule and number of its first matches: their order, and those that tests of the tree may decide.
        self.ordered: dict[tuple[int, int], tuple[tuple[Match, ...], Decidable]] = {}
        printed = self.tree.entry[(self.tree.step == EntryKind.RULE) | (self.tree.step == EntryKind.ACT)]
        copies = np.bincount(printed, minlength=len(segment.rules))
        self.tests: dict[tuple[object, ...], tuple[Match, ...]] = {}
        self.stand_ins: dict[int, Rule] = {}
        for number in np.flatnonzero(copies > 1).tolist() if any_memory(segment.rules) else ():
            if segment.rules[number].has_memory:
                self.stand_ins[number] = self.share(segment.rules[number])
        # Whether each copy of a rule is the rule itself.
        bare = set(map(attrgetter("counters", "notes"), segment.rules)) <= {(None, ())}
        self.whole = segment.forms is None and bare and not self.stand_ins
        # A rule that other rules cover everywhere is in no leaf.  The user still expects the rule and its
        # counter, so it is kept in a chain without callers.
        covered = [rule for number, rule in enumerate(segment.rules) if not copies[number]]
        if covered:
            writer.open().rules += [writer.copy(rule) for rule in covered]
        self.missed = segment.first.union(filter(self.may_miss_a_drop, segment.guards))

    def may_miss_a_drop(self, protocol: int) -> bool:
        """Whether a leaf may omit a rule that drops packets without ports, because a native rule covers it.

        nf_tables drops them where it evaluates a rule through xtables; a native test of ports passes them.  A
        leaf may omit the rule even though no test on the path to the leaf tests a port.
        """
        native = False
        for rule, final in zip(self.segment.rules, self.tree.boxes.final.tolist(), strict=True):
            protocols = [test.values for match in rule.matches if match.is_protocol for test in match.tests]
            if not any(protocol in values for values in protocols):
                continue
            if native and read_through_xtables(rule):
                return True
            native = native or (bool(final) and any(match.native for match in rule.matches))
        return False

    # -- paths -------------------------------------------------------------------------------------

    def count_paths(self) -> dict[int, int]:
        """How many paths lead to each node that has a chain."""
        paths: dict[int, int] = {}
        todo = [self.tree.root]

        def lead(at: int) -> None:
            paths[at] = paths.get(at, 0) + 1
            if paths[at] == 1:
                todo.append(at)

        while todo:
            at = todo.pop()
            while True:
                first, entries, first_edge, edges, kind = self.node[at][:5]
                if self.leads:
                    for step, _, link in self.entries[first : first + entries]:
                        if step in _LEADING:
                            lead(link)
                if kind == _LEAF:
                    break
                if edges > 1:
                    taken = self.destination(self.to[first_edge])
                    if taken is not None:
                        lead(taken)
                    first_edge += 1
                at = self.to[first_edge]
        return paths

    def destination(self, node: int) -> int | None:
        """The node to which a test jumps if its edge leads to *node*; None if the test has no rule."""
        if node in self.destinations:
            return self.destinations[node]
        first, entries, _, _, kind = self.node[node][:5]
        destination: int | None = node
        if kind == _LEAF:
            listed = tuple(self.entries[first : first + entries])
            if not listed:
                destination = None
            elif listed[0][0] == _GO:
                destination = listed[0][2]
            else:
                destination = self.leaves.setdefault(listed, node)
        self.destinations[node] = destination
        return destination

    def chain(self, node: int, known: Known, guarded: frozenset[int]) -> OpenChain:
        """The chain of *node*, for one more path to it, with what is known on that path."""
        pending = self.pending.get(node)
        if pending is None:
            pending = self.pending[node] = _PendingChain(self.writer.open(), self.paths[node], known, guarded)
        elif pending.known != known or pending.guarded != guarded:
            assert pending.known is not None
            pending.known = tuple(map(_hull, pending.known, known))
            pending.guarded &= guarded
        pending.paths -= 1
        assert pending.paths >= 0, "a chain is written before all paths to it are known"
        if not pending.paths:
            self.todo.append((node, pending))
        return pending.chain

    # -- rules -------------------------------------------------------------------------------------

    def share(self, rule: Rule) -> Rule:
        """Put *rule* into a chain of its own; returns the rule that enters the chain."""
        chain = self.writer.open()
        chain.rules.append(self.writer.copy(rule))
        return stand_in(rule, chain.name)

    def entry(self, step: int, number: int, link: int, known: Known, guarded: frozenset[int]) -> Rule:
        """The rule that an entry is printed as (EntryKind)."""
        rule = self.segment.rules[number]
        if step == _RULE:
            stand_in = self.stand_ins.get(number)
            if stand_in is not None:
                return stand_in._replace(
                    matches=self.remaining(number, stand_in.matches, stand_in.target, known)
                )
            copy = self.writer.copy(rule)
            matches = self.remaining(number, rule.matches, rule.target, known)
            return copy if matches is rule.matches else copy._replace(matches=matches)
        if step == _ACT:
            # The chain is entered by packets that the matches held for; -p stays where the target needs it.
            needed = without(rule.matches, rule.target, lambda match: True)
            return self.writer.copy(rule)._replace(matches=needed)
        chain = self.chain(link, known, guarded)
        target = chain.goto if step in (_SEND, _GO, _MEET) else chain.jump
        if step in (_GO, _CALL):
            return Rule((), target)
        matches = rule.matches
        if step == _ASK and not self.tree.boxes.reorder[number] & _SPLITTABLE:
            patient = self.segment.patient
            space = itertools.takewhile(lambda match: match.role is Role.SPACE, rule.matches)
            matches = tuple(itertools.takewhile(patient, space))
        return Rule(self.remaining(number, matches, target, known), target)

    def remaining(
        self, number: int, matches: tuple[Match, ...], target: Target | None, known: Known
    ) -> tuple[Match, ...]:
        """Those of *matches*, the first of the rule, that its path does not decide; cheap ones first."""
        forms = self.segment.forms
        if forms is None or not matches:
            return matches
        entry = self.ordered.get((number, len(matches)))
        if entry is None:
            ordered = forms.ordered(matches)
            entry = self.ordered[number, len(matches)] = ordered, self.decidable(ordered)
        ordered, decidable = entry
        decided: list[Match] = []
        for match, tests in decidable:
            for at, pairs in tests:
                values = known[at]
                if values is None or not _contains(pairs, *values):
                    break
            else:
                decided.append(match)
        if not decided:
            return ordered
        return without(ordered, target, lambda match: any(match is each for each in decided))

    def decidable(self, matches: tuple[Match, ...]) -> Decidable:
        """The matches that tests of this tree may decide, with the axes and values of their tests."""
        assert self.segment.forms is not None
        axis_of = self.axis_of
        return [
            (match, [(axis_of[test.field], test.values.pairs) for test in match.tests])
            for match in self.segment.forms.decidable(matches)
            if all(test.field in axis_of for test in match.tests)
        ]

    def end(self, here: OpenChain) -> None:
        """End a leaf: go to the rest of the chain, if there is any."""
        if self.after is not None:
            here.rules.append(Rule((), self.after.goto))

    def nothing(self) -> Target:
        """The target for packets that no rule of the tree can match."""
        return self.after.goto if self.after else Target("RETURN", Kind.RETURN, "RETURN")

    def write(self, here: OpenChain) -> None:
        here.rules += [Rule(guard(protocol, self.writer.family), None) for protocol in sorted(self.missed)]
        self.todo.append((self.tree.root, _PendingChain(here, 0, self.nothing_known, self.missed)))
        while self.todo:
            at, pending = self.todo.pop()
            assert pending.known is not None
            self.write_from(at, pending.chain, pending.known, pending.guarded)

    def write_from(self, at: int, here: OpenChain, known: Known, guarded: frozenset[int]) -> None:
        """Write a node, and the nodes that continue it in line."""
        rules = self.segment.rules
        while True:
            first, entries, first_edge, edges, kind, axis_at, negated = self.node[at][:7]
            listed = self.entries[first : first + entries]
            if self.whole:
                here.rules += [
                    rules[number] if step == _RULE else self.entry(step, number, link, known, guarded)
                    for step, number, link in listed
                ]
            else:
                here.rules += [self.entry(*each, known, guarded) for each in listed]
            if kind == _LEAF:
                if not listed or listed[-1][0] != _GO:
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
                here.rules.append(Rule(guard(protocol, self.writer.family), None))
                guarded |= {protocol}
            key = axis_at, values, negated, protocol
            test = self.tests.get(key)
            if test is None:
                words = test_words(axis.field, *values, bool(negated), protocol, self.writer.family)
                test = self.tests[key] = matches(words, self.writer.family)
            inside = (*known[:axis_at], values, *known[axis_at + 1 :])
            destination = self.destination(taken)
            if destination is None:
                target = self.nothing()
            else:
                target = self.chain(destination, known if negated else inside, guarded).goto
            here.rules.append(Rule(test, target))
            if negated:  # builders negate only tests of a field that every packet has
                known = inside
            at = other

    def protocol(self, known: Known) -> int | None:
        """The protocol of all packets here, if it is known."""
        at = self.axis_of.get(_PROTO)
        values = None if at is None else known[at]
        return values[0] if values is not None and values[0] == values[1] else None


def _contains(pairs: Pairs, low: int, high: int) -> bool:
    """Whether one of the pairs contains all values from *low* to *high*."""
    # Leaves hold many rules: a loop takes half the time of any().
    for first, last in pairs:  # noqa: SIM110
        if first <= low and high <= last:
            return True
    return False


def _hull(one: tuple[int, int] | None, two: tuple[int, int] | None) -> tuple[int, int] | None:
    """The interval that contains both; None is the interval of all values."""
    if one is None or two is None:
        return None
    return min(one[0], two[0]), max(one[1], two[1])


def write_segments(segments: Sequence[Segment], family: Family, names: FreshNames) -> WrittenChains:
    """Write *segments*, one after the other, as the rules of one chain and the new chains that they need."""
    return _SegmentWriter(family, names).write_segments(segments)

"""Classes of packets that read two programs alike, proved equal in one run.

Idea: a class decides how matches are read: which fields exist, what drops the packet.  Most classes read
the rules as another class does, often one of the other backend; such classes form a group, and one run of
the prover compares the programs for all of them.  Where the second program prints a list by shape groups,
the lists of group_lists.py are compared first.

Invariant: a proof holds for each packet of the classes.  A group may contain packets that no class has, so
a difference in a group proves nothing: exact.py then examines each class by itself.

Cost: one run per group instead of one per class and backend.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hitables.core.prover import NONE, PairRun, ProveAction, Prover, ProveStatus
from hitables.ir.choices import Malformed
from hitables.ir.fields import PORT_PROTOCOLS, Family, Field, top
from hitables.ir.hooks import hook_box
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend

from .deadline import Deadline
from .encoding import Encoding
from .group_lists import GroupLists, group_lists
from .packet_classes import PacketClass
from .question import Question
from .third_program import MISSED

# Steps for each list of a group, and per rule: where the groups are read rightly, a rule takes one or two.
STEPS, STEPS_PER_RULE = 100_000, 50

# Of lists that are cut, where the lists of groups are not compared.
ITEMS = 1_000_000

# Why the lists of groups prove nothing, by the end of the run that compared them with the trees.
_WHY = {
    ProveStatus.DIFFER: "the lists of its groups are not equal to what is printed",
    ProveStatus.TOO_DEEP: "comparing the lists of its groups took too many steps",
    ProveStatus.PAIRS: "a memory of its groups has two partners",
}

BackendClass = tuple[Backend, PacketClass]


@dataclass
class ClassGroup:
    """Classes that read all matches alike.  *sets* holds the packets of all *members*."""

    sets: dict[Field, Values]
    may_drop: bool
    members: list[BackendClass] = field(default_factory=list)

    def add(self, member: BackendClass, may_drop: bool) -> None:
        own = member[1].sets()
        self.sets = {name: values.union(own[name]) for name, values in self.sets.items() if name in own}
        self.may_drop &= may_drop
        self.members.append(member)

    def by_protocol(self) -> Iterator[ClassGroup]:
        """The packets of each protocol that has ports, then those of the others."""
        protocols = self.sets.get(Field.PROTO, Values(()))
        others = Values.only(*PORT_PROTOCOLS).complement(top(Field.PROTO, Family.IPV4))
        for part in (*map(Values.only, sorted(PORT_PROTOCOLS)), others):
            own = protocols.intersect(part)
            if own:
                yield replace(self, sets=self.sets | {Field.PROTO: own})


class MergedClasses:
    """Two tables, and what is proved of them for groups of classes.

    chains      the built-in chains that are compared
    in_parts    makes, once, the names of the chains of the first program that may be printed in parts: these,
                and those that lead to them, are compared by lists of groups, and not by regions
    why         after `proved`: why lists that seem to be printed by groups were compared by regions
    differ      after `proved`: whether the programs differ for a packet of a group, which no class may have
    """

    def __init__(
        self,
        encoding: Encoding,
        question: Question,
        deadline: Deadline,
        chains: Sequence[str],
        in_parts: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.question, self.deadline, self.chains = question, deadline, chains
        self.encoding = encoding
        self._names_in_parts = in_parts
        self.readings = {backend: encoding.read_by(backend) for backend in question.backends}
        self.why: dict[str, str] = {}
        self.differ = False
        self._provers: dict[Backend, Prover] = {}
        self._list_provers: dict[tuple[bool, Backend], Prover] = {}
        self._proved: dict[str, tuple[int, frozenset[BackendClass]]] = {}
        self._groups: list[ClassGroup] | None = None

    def proved(self, chain: str) -> tuple[int, frozenset[BackendClass]]:
        """The number of regions compared, and the classes for which *chain* is proved equal."""
        if chain not in self._proved:
            if self.encoding.matches.has_memory:
                self._prove_together()
            else:
                self._proved[chain] = self._prove(chain)
        return self._proved[chain]

    @cached_property
    def in_parts(self) -> frozenset[int]:
        """The chains of the first program that may be printed in parts."""
        return frozenset(self.encoding.chain(0, name) for name in self._names_in_parts())

    @cached_property
    def lists(self) -> GroupLists:
        """The lists of groups, without rules that seem dead."""
        return group_lists(self.encoding)

    @cached_property
    def whole_lists(self) -> GroupLists:
        """The same with all rules."""
        return group_lists(self.encoding, leave_out=False)

    @property
    def _leaves_out(self) -> tuple[bool, ...]:
        """Whether to leave out dead rules: the ways to compare lists, in turn."""
        return (True, False) if any(each.dead for each in self.lists.checks.values()) else (True,)

    def _prove(self, chain: str) -> tuple[int, frozenset[BackendClass]]:
        """Prove one chain, by lists where it is printed by groups."""
        equal: list[BackendClass] = []
        before = self._regions()
        known = dict(self.why)
        by_lists = self._has_lists(chain)
        for group in self._class_groups() if by_lists or self._may_compare_regions(chain) else ():
            if not self._come_to(group, chain):
                equal += group.members
                continue
            status = ProveStatus.TOO_DEEP
            noted = dict(self.why)
            for leave_out in self._leaves_out if by_lists else ():
                if status == ProveStatus.TOO_DEEP:
                    status = self._prove_by_lists(group, chain, leave_out)
            if status == ProveStatus.EQUAL:
                self.why = noted
            if status == ProveStatus.TOO_DEEP and self._may_compare_regions(chain):
                status = self._compare_regions(group, chain)
            if status in (ProveStatus.NO_TIME, ProveStatus.NO_MEMORY, ProveStatus.STOPPED):
                break
            if status == ProveStatus.EQUAL:
                equal += group.members
        if self.why != known and not self._may_compare_regions(chain):  # nothing was compared by them
            self.why = known
        return self._regions() - before, frozenset(equal)

    def _prove_together(self) -> None:
        """Prove all chains, by lists alone; or none, as a memory has the same partner in all classes.

        The regions are those of exact.py, whose prover finds the partners anew.
        """
        self._proved = dict.fromkeys(self.chains, (0, frozenset()))
        reached = {chain: self._reached(chain) for chain in self.chains}
        if not any(self.lists.checks.keys() & each for each in reached.values()):
            self._note_unread(frozenset().union(*reached.values()))
            return
        if self._note_unread(frozenset().union(*reached.values())):
            return
        groups = self._class_groups()
        noted = dict(self.why)
        if not groups or not any(self._are_equal(groups, leave_out) for leave_out in self._leaves_out):
            return
        self.why = noted
        members = frozenset(member for group in groups for member in group.members)
        regions = self._regions()
        self._proved = {chain: (regions if not at else 0, members) for at, chain in enumerate(self.chains)}

    def _are_equal(self, groups: list[ClassGroup], leave_out: bool) -> bool:
        """Whether the lists of all chains are equal in all classes, with the same partners of memories."""
        return all(
            self._prove_by_lists(group, chain, leave_out) == ProveStatus.EQUAL
            for chain in self.chains
            for group in groups
            if self._come_to(group, chain)
        ) and self._partners_agree(leave_out)

    def _partners_agree(self, leave_out: bool) -> bool:
        """Whether each rule with memory has the same partner in all runs, by lists and without them."""
        partners = np.full(len(self.encoding.rule_action), NONE, np.uint32)
        sources = self._lists(leave_out).sources
        found = [prover.pairs() for prover in self._provers.values()]
        for (left_out, _), prover in self._list_provers.items():
            if left_out == leave_out:
                pairs = prover.pairs()
                rules = np.flatnonzero(pairs != NONE)
                if np.any(sources[rules] == NONE):
                    return False
                found.append(np.full(len(partners), NONE, np.uint32))
                found[-1][sources[rules]] = sources[pairs[rules]]
        for pairs in found:
            both = (pairs != NONE) & (partners != NONE)
            if np.any(pairs[both] != partners[both]):
                return False
            partners = np.where(partners == NONE, pairs, partners)
        return True

    def _reached(self, chain: str) -> frozenset[int]:
        """The chains of the first program that packets reach from *chain*."""
        encoding = self.encoding
        reached, front = set[int](), [encoding.chain(0, chain)]
        while front:
            here = front.pop()
            if here in reached:
                continue
            reached.add(here)
            start, end = encoding.chain_start[here : here + 2]
            kind, number = encoding.rule_action[start:end, 0], encoding.rule_action[start:end, 1]
            front += set(number[(kind == ProveAction.JUMP) | (kind == ProveAction.GOTO)].tolist())
        return frozenset(reached)

    def _has_lists(self, chain: str) -> bool:
        reached = self._reached(chain)
        return not self._note_unread(reached) and bool(self.lists.checks.keys() & reached)

    def _note_unread(self, reached: frozenset[int]) -> bool:
        """Whether some chain has calls that were not read as groups; note why."""
        unread = sorted(self.lists.why.keys() & reached)
        for each in unread:
            self.why[self.encoding.chain_name(each)] = self.lists.why[each]
        return bool(unread)

    def _regions(self) -> int:
        return sum(each.regions for each in (*self._list_provers.values(), *self._provers.values()))

    def _class_groups(self) -> list[ClassGroup]:
        """All classes of all backends, grouped by how they read matches; none when the budget runs out."""
        if self._groups is None:
            groups: dict[bytes, ClassGroup] = {}
            for backend, encoding in self.readings.items():
                prover = self._prover(backend)
                writes = bool(np.any(encoding.chain_writes))
                for packets in encoding.classes():
                    may_drop = packets.malformed and self.question.malformed is Malformed.STRICTER
                    words, sets = encoding.class_words(packets, may_drop)
                    if prover.enter(words, sets) != ProveStatus.EQUAL:
                        return []
                    # The fields that a write leaves alone matter only if some rule writes.
                    frozen = words.frozen if writes else 0
                    reading = frozen.to_bytes(4, "little") + prover.reading()
                    if packets.cut_short:
                        reading += b"cut short"
                    group = groups.setdefault(reading, ClassGroup(packets.sets(), may_drop))
                    group.add((backend, packets), may_drop)
            self._groups = list(groups.values())
        return self._groups

    def _prover(self, backend: Backend) -> Prover:
        if backend not in self._provers:
            self._provers[backend] = self.readings[backend].prover(self.question.max_memory)
        return self._provers[backend]

    def _list_prover(self, backend: Backend, leave_out: bool) -> Prover:
        key = leave_out, backend
        if key not in self._list_provers:
            chains = self._lists(leave_out).chains
            assert chains is not None
            prover = self.readings[backend].prover(self.question.max_memory, chains)
            prover.bound(STEPS + STEPS_PER_RULE * len(chains.rule_start))
            self._list_provers[key] = prover
        return self._list_provers[key]

    def _lists(self, leave_out: bool) -> GroupLists:
        return self.lists if leave_out else self.whole_lists

    def _run(self, group: ClassGroup, chain: str, prover: Prover, chains: tuple[int, int]) -> ProveStatus:
        if self.deadline.is_over():
            return ProveStatus.NO_TIME
        self.deadline.begin_part()
        backend, packets = group.members[0]
        encoding = self.readings[backend]
        words, _ = encoding.class_words(packets, group.may_drop)
        status = prover.enter(words, encoding.set_words(group.sets))
        if status != ProveStatus.EQUAL:
            return status
        region = self.encoding.set_words(self._region(group, chain))
        ends = self.encoding.ends(chain)
        return prover.run(PairRun(chains, ends, region, *self.deadline.left()))

    def _region(self, group: ClassGroup, chain: str) -> dict[Field, Values]:
        """What the packets of the group have at the hook of *chain*."""
        # The prover takes a set of the region in place of that of the group.
        return {
            field: values.intersect(group.sets.get(field, values))
            for field, values in hook_box(chain, self.encoding.family).items()
        }

    def _come_to(self, group: ClassGroup, chain: str) -> bool:
        """Whether some packets of the group can come to *chain*."""
        return all(self._region(group, chain).values())

    def _prove_by_lists(self, group: ClassGroup, chain: str, leave_out: bool) -> ProveStatus:
        """EQUAL when the lists of groups prove it, or those of most protocols; TOO_DEEP: they prove nothing.

        The second program may drop the malformed packets of a protocol before it comes to its groups.  Then
        their trees need not drop these, and are not equal to the lists; but few steps show that the programs
        are equal for this protocol, without any list.
        """
        status = self._compare_lists(group, chain, leave_out)
        if status != ProveStatus.TOO_DEEP or not group.may_drop:
            return status
        for part in group.by_protocol():
            status = self._compare_lists(part, chain, leave_out)
            if status == ProveStatus.TOO_DEEP:
                prover = self._prover(part.members[0][0])
                prover.bound_items(ITEMS)
                status = self._run(part, chain, prover, self.encoding.both(chain))
                prover.bound_items(0)
            if status != ProveStatus.EQUAL:
                break
        return ProveStatus.TOO_DEEP if status in (ProveStatus.DIFFER, ProveStatus.PAIRS) else status

    def _compare_lists(self, group: ClassGroup, chain: str, leave_out: bool) -> ProveStatus:
        """EQUAL when the lists of groups prove it; TOO_DEEP when they prove nothing."""
        lists = self._lists(leave_out)
        reached = sorted(lists.checks.keys() & self._reached(chain))
        if lists.chains is None:
            return ProveStatus.TOO_DEEP
        prover = self._list_prover(group.members[0][0], leave_out)
        status = self._run(group, chain, prover, lists.start(self.encoding, chain))
        why = {chain: _WHY.get(status, "the budget ran out")} if status != ProveStatus.EQUAL else {}
        for each in reached:
            name = self.encoding.chain_name(each)
            if status == ProveStatus.EQUAL:
                status = prover.is_ordered(lists.checks[each].order)
                if status != ProveStatus.EQUAL:
                    why[name] = "its groups may be in another order than the list"
        for each in reached:
            name = self.encoding.chain_name(each)
            for pair in lists.checks[each].dead:
                if status == ProveStatus.EQUAL:
                    # For all packets of the class: a rule may have written what the hook says of them.
                    ends = MISSED, MISSED
                    status = prover.run(PairRun(pair, ends, array("I"), *self.deadline.left()))
                    if status != ProveStatus.EQUAL:
                        why[name] = "a rule that is printed nowhere may decide packets"
        self.why |= why
        return ProveStatus.TOO_DEEP if status in (ProveStatus.DIFFER, ProveStatus.PAIRS) else status

    def _may_compare_regions(self, chain: str) -> bool:
        reached = self._reached(chain)
        sizes = np.diff(self.encoding.chain_start)
        # A chain of one rule has no parts; so most built-in chains need not look for any.
        return all(sizes[each] < 2 for each in reached) or self.in_parts.isdisjoint(reached)

    def _compare_regions(self, group: ClassGroup, chain: str) -> ProveStatus:
        prover = self._prover(group.members[0][0])
        status = self._run(group, chain, prover, self.encoding.both(chain))
        self.differ |= status == ProveStatus.DIFFER
        return status

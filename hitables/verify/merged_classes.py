"""Classes of packets that read two programs alike, proved equal in one run.

Idea: a class decides how matches are read: which fields exist, what drops the packet.  Most classes read
the rules as another class does, often one of the other backend; such classes form a group, and one run of
the prover compares the programs for all of them.  Where the second program is made of shape groups, the
lists of group_lists.py are compared first.

Invariant: a proof holds for each packet of the classes.  A group may contain packets that no class has, so
a difference in a group proves nothing: exact.py then examines each class by itself.

Cost: one run per group instead of one per class and backend.

Users: exact.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from hitables.core.prover import Prover, Run, Status
from hitables.ir.choices import Malformed
from hitables.ir.fields import Field
from hitables.ir.hooks import hook_box
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend

from .encoding import Encoding
from .group_lists import GroupLists, group_lists
from .packet_classes import PacketClass
from .question import Question

# Steps for each list of a group, and per rule: where the groups are read rightly, a rule takes one or two.
STEPS, STEPS_PER_RULE = 100_000, 50

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


class MergedClasses:
    """Two tables, and what is proved of them for groups of classes."""

    def __init__(self, encoding: Encoding, question: Question, deadline: float | None) -> None:
        self.question, self.deadline = question, deadline
        self.encoding = encoding
        self.readings = {backend: encoding.read_by(backend) for backend in question.backends}
        self._provers: dict[Backend, Prover] = {}
        self._proved: dict[str, tuple[int, frozenset[BackendClass]]] = {}
        self._groups: list[ClassGroup] | None = None

    def proved(self, chain: str) -> tuple[int, frozenset[BackendClass]]:
        """The number of regions compared, and the classes for which *chain* is proved equal."""
        if self.encoding.matches.has_memory:
            return 0, frozenset()  # the prover pairs rules with memory across classes
        if chain not in self._proved:
            self._proved[chain] = self._prove(chain)
        return self._proved[chain]

    def _prove(self, chain: str) -> tuple[int, frozenset[BackendClass]]:
        lists = group_lists(self.encoding, chain)
        list_provers: dict[Backend, Prover] = {}
        equal: list[BackendClass] = []
        for group in self._class_groups():
            backend = group.members[0][0]
            status = Status.TOO_DEEP
            if lists is not None:
                if backend not in list_provers:
                    list_provers[backend] = self._new(backend, lists)
                status = self._compare_lists(group, chain, list_provers[backend], lists)
            if status == Status.TOO_DEEP:
                status = self._compare_regions(group, chain)
            if status in (Status.NO_TIME, Status.NO_MEMORY):
                break
            if status == Status.EQUAL:
                equal += group.members
        regions = sum(prover.regions for prover in (*list_provers.values(), *self._provers.values()))
        return regions, frozenset(equal)

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
                    if prover.enter(words, sets) != Status.EQUAL:
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
            self._provers[backend] = self._new(backend, None)
        return self._provers[backend]

    def _new(self, backend: Backend, lists: GroupLists | None) -> Prover:
        chains = None if lists is None else lists.chains
        return self.readings[backend].prover(self.question.max_memory, chains)

    def _run(self, group: ClassGroup, chain: str, prover: Prover, chains: tuple[int, int]) -> Status:
        backend, packets = group.members[0]
        encoding = self.readings[backend]
        words, _ = encoding.class_words(packets, group.may_drop)
        status = prover.enter(words, encoding.set_words(group.sets))
        if status != Status.EQUAL:
            return status
        encoding = self.encoding
        hook = encoding.set_words(hook_box(chain, encoding.family))
        return prover.run(Run(chains, encoding.ends(chain), hook, seconds_left(self.deadline)))

    def _compare_lists(self, group: ClassGroup, chain: str, prover: Prover, lists: GroupLists) -> Status:
        """EQUAL when the lists of groups prove it; TOO_DEEP when they prove nothing."""
        prover.bound(STEPS + STEPS_PER_RULE * len(lists.chains.rule_start))
        status = self._run(group, chain, prover, lists.start)
        if status == Status.EQUAL:
            status = prover.is_ordered(lists.order)
        return Status.TOO_DEEP if status == Status.DIFFER else status

    def _compare_regions(self, group: ClassGroup, chain: str) -> Status:
        prover = self._prover(group.members[0][0])
        return self._run(group, chain, prover, self.encoding.both(chain))


def seconds_left(deadline: float | None) -> float:
    """Until the deadline; 0.0: there is none."""
    return 0.0 if deadline is None else max(1e-6, deadline - time.monotonic())

"""Classes of packets that read two programs alike, proved equal at once.

A class says how matches are read: which fields are there, what drops the packet.  Most read the
rules as another does, of the other backend too; such classes are held against the programs as
one, and by the lists of shape groups (regroup.py) where the second program has them.

Invariant: what is proved here is proved of each packet of the classes; more packets may have been
looked at than there can be, so nothing is said when a difference is found, and exact.py looks at
each class by itself.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hitables.core._engine import ffi, lib
from hitables.interrupts import in_thread
from hitables.ir.fields import Field
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend

from ..ir.hooks import hook_box
from .encoding import Lowering
from .group_lists import Regrouped, regroup
from .packet_classes import PacketClass
from .question import Question

# Steps for each list of a group, and per rule: a good guess takes one or two a rule.
STEPS, STEPS_PER_RULE = 100_000, 50

Which = tuple[Backend, PacketClass]


@dataclass
class _Alike:
    """Classes that read all matches alike.  *sets*: what their packets have, together; *which* they are."""

    sets: dict[Field, Values]
    may_drop: bool
    which: list[Which] = field(default_factory=list)

    def add(self, each: Which, may_drop: bool) -> None:
        own = each[1].sets()
        self.sets = {name: values.union(own[name]) for name, values in self.sets.items() if name in own}
        self.may_drop &= may_drop
        self.which.append(each)


class AtOnce:
    """What can be proved of two tables for many classes at once."""

    def __init__(self, lowering: Lowering, question: Question, deadline: float | None) -> None:
        self.question, self.deadline = question, deadline
        self.readings = {backend: lowering.read_by(backend) for backend in question.backends}
        self.lowering = lowering
        self._handles: dict[Backend, Any] = {}
        self._proved: dict[str, tuple[int, frozenset[Which]]] = {}
        self._alike: list[_Alike] | None = None

    def proved(self, chain: str) -> tuple[int, frozenset[Which]]:
        """The classes for which *chain* is proved equal; and in how many regions."""
        if self.lowering.has_memory:
            return 0, frozenset()  # whose memory is whose is noted from one class to the next
        if chain not in self._proved:
            self._proved[chain] = self._prove(chain)
        return self._proved[chain]

    def _prove(self, chain: str) -> tuple[int, frozenset[Which]]:
        regrouped = regroup(self.lowering, chain)
        handles: dict[Backend, Any] = {}
        found: list[Which] = []
        regions = 0
        for alike in self._kinds():
            backend = alike.which[0][0]
            status = lib.PROVE_TOO_DEEP
            if regrouped is not None:
                if backend not in handles:
                    handles[backend] = self._new(backend, regrouped)
                status = self._regrouped(alike, chain, handles[backend], regrouped)
            if status == lib.PROVE_TOO_DEEP:
                status = self._as_they_are(alike, chain)
            if status in (lib.PROVE_NO_TIME, lib.PROVE_NO_MEMORY):
                break
            if status == lib.PROVE_EQUAL:
                found += alike.which
        for handle in [*handles.values(), *self._handles.values()]:
            regions += int(lib.prover_regions(handle))
        return regions, frozenset(found)

    def _kinds(self) -> list[_Alike]:
        """All classes of all backends, those that are read alike together."""
        if self._alike is None:
            kinds: dict[bytes, _Alike] = {}
            for backend, low in self.readings.items():
                handle = self._handle(backend)
                for packets in low.classes():
                    made, sets = low.class_words(packets)
                    if lib.prover_enter(handle, made, *words(sets)) != lib.PROVE_EQUAL:
                        return []
                    may_drop = packets.malformed and self.question.malformed == "stricter"
                    # Which fields a write leaves alone matters only where something is written.
                    frozen = made.frozen if np.any(low.chain_writes) else 0
                    key = frozen.to_bytes(4, "little") + _reading(handle)
                    if packets.cut_short:
                        key += b"cut short"
                    kinds.setdefault(key, _Alike(packets.sets(), may_drop)).add((backend, packets), may_drop)
            self._alike = list(kinds.values())
        return self._alike

    def _handle(self, backend: Backend) -> Any:
        if backend not in self._handles:
            self._handles[backend] = self._new(backend, None)
        return self._handles[backend]

    def _new(self, backend: Backend, regrouped: Regrouped | None) -> Any:
        low = self.readings[backend]
        if regrouped is None:
            made, held = low.input()
        else:
            made, held = low.input_of(regrouped.input, regrouped.chains_before)
        handle = lib.prover_new(made, self.question.max_memory or 0)
        del held
        if handle == ffi.NULL:
            raise MemoryError(f"table {low.tables[0].name}")
        return ffi.gc(handle, lib.prover_free)

    def _enter(self, alike: _Alike, handle: Any) -> int:
        backend, packets = alike.which[0]
        low = self.readings[backend]
        made, _ = low.class_words(packets)
        made.may_drop = alike.may_drop
        return int(lib.prover_enter(handle, made, *words(low.set_words(alike.sets))))

    def _run(self, alike: _Alike, chain: str, handle: Any, first: int, second: int) -> int:
        low = self.lowering
        status = self._enter(alike, handle)
        if status != lib.PROVE_EQUAL:
            return status
        hook = low.set_words(hook_box(chain, low.family))
        return interruptible(
            handle,
            first,
            second,
            low.end(0, chain),
            low.end(1, chain),
            *words(hook),
            seconds_left(self.deadline),
            0,
            1,
        )

    def _regrouped(self, alike: _Alike, chain: str, handle: Any, regrouped: Regrouped) -> int:
        """Proved by the lists of groups; TOO_DEEP when they prove nothing."""
        rules = len(regrouped.input["rule_start"])
        lib.prover_bound(handle, STEPS + STEPS_PER_RULE * rules)
        status = self._run(alike, chain, handle, regrouped.start, regrouped.twin)
        if status == lib.PROVE_EQUAL:
            made, held = regrouped.order_words()
            status = int(lib.prover_ordered(handle, made))
            del held
        return lib.PROVE_TOO_DEEP if status == lib.PROVE_DIFFER else status

    def _as_they_are(self, alike: _Alike, chain: str) -> int:
        low = self.lowering
        handle = self._handle(alike.which[0][0])
        return self._run(alike, chain, handle, low.chain(0, chain), low.chain(1, chain))


def interruptible(handle: Any, *arguments: Any) -> int:
    """Run the search beside the main thread, so that the user can stop it."""
    return int(in_thread(lambda: lib.prover_run(handle, *arguments), lambda: lib.prover_stop(handle)))


def seconds_left(deadline: float | None) -> float:
    """Until the deadline; 0: there is none."""
    return 0.0 if deadline is None else max(1e-6, deadline - time.monotonic())


def words(numbers: array[int]) -> tuple[Any, int]:
    return ffi.from_buffer("uint32_t[]", numbers), len(numbers)


def _reading(handle: Any) -> bytes:
    """How the class that was entered reads each match."""
    size = lib.prover_reading(handle, ffi.NULL, 0)
    read = np.empty(size, np.uint32)
    lib.prover_reading(handle, ffi.from_buffer("uint32_t[]", read), size)
    return read.tobytes()

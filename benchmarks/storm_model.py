"""A discrete-event model of Storm's threads, for machines with a core for each of them.

The model has the pipeline of core/c/storm: streams of the input, cache threads that take batches, rings of
one producer and one consumer, classifiers that empty them, dynamic assignment.  It is fed with what a packet
finds in the cache (measured: EvolvingRules.replay over the traffic, with as many samples as the updater has
time for) and with the costs of each step (measured: storm_costs.py).  It has no memory: threads on different
cores do not slow each other down by sharing caches, so it is a bound where they would.

Invariant: each packet has exactly one end: offered = hits + classified + lost_input + lost_ring.  Times are
ns.  The time of an event never lies before that of the event that caused it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

HIT, CLASSIFIED, LOST_INPUT, LOST_RING = range(4)
# Packets of the trace that follow each other in one stream.
BLOCK = 128


@dataclass(frozen=True, slots=True)
class Costs:
    """ns of each step.

    cache_batch, cache_packet  of a batch that a cache thread takes, and of each packet in it
    entry                      of each entry of the cache that a packet is compared with
    push                       of each miss that is put into a ring and taken from it
    class_batch, class_packet  of a batch that is classified, and of each packet in it
    sample                     of each sample of the updater; publish: of each publication of the cache
    """

    cache_batch: float = 0.0
    cache_packet: float = 0.0
    entry: float = 0.0
    push: float = 0.0
    class_batch: float = 0.0
    class_packet: float = 0.0
    sample: float = 0.0
    publish: float = 0.0

    def times(self, factor: float) -> Costs:
        """All steps *factor* times as long."""
        return replace(self, **{name: factor * getattr(self, name) for name in self.__dataclass_fields__})

    def cache_ns(self, batch: int, entries: float) -> float:
        """A packet's share of a batch in a cache thread, compared with *entries* on average."""
        return self.cache_batch / batch + self.cache_packet + self.entry * entries

    def class_ns(self, batch: int) -> float:
        """A packet's share of a batch that is classified."""
        return self.class_batch / batch + self.class_packet


@dataclass(frozen=True, slots=True)
class Plan:
    """The threads and their rooms, as in `Storm`; *idle* above 0: dynamic assignment.

    cached  False: there is no cache, each packet misses, and taking it is part of its classification
    own     whether cache threads classify their misses (no classifiers), and take every *every*-th of their
            packets as a sample (0: none)
    one_copy  the cache has one copy, and one thread at a time reads it or publishes it
    publish samples after which the cache is published
    """

    caches: int
    classifiers: int
    idle: int = 0
    cached: bool = True
    every: int = 0
    one_copy: bool = False
    batch: int = 32
    rings: int = 1000
    inputs: int = 4096
    low: float = 0.2
    high: float = 0.8
    publish: int = 4

    @property
    def threads(self) -> int:
        """That run at a time, the updater apart."""
        return self.caches + self.classifiers - self.idle


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What the model did with the packets; *by* [packets]: HIT, CLASSIFIED, LOST_INPUT or LOST_RING."""

    by: npt.NDArray[np.uint8]
    ns: float
    switches: int

    @property
    def packets_per_s(self) -> float:
        """That were answered."""
        return float((self.by <= CLASSIFIED).sum() / self.ns * 1e9) if self.ns else 0.0

    @property
    def lost(self) -> int:
        return int((self.by > CLASSIFIED).sum())

    @property
    def hit_ratio(self) -> float:
        """Of the packets that were looked up."""
        return float((self.by == HIT).sum() / max(1, (self.by != LOST_INPUT).sum()))


def share(packets: int, streams: int, stream: int) -> npt.NDArray[np.int64]:
    """The numbers of a stream's packets: blocks of the trace in turn."""
    return np.flatnonzero(np.arange(packets) // BLOCK % streams == stream)


@dataclass(slots=True)
class _Stream:
    """The numbers of its packets; next: of them, the one to be taken."""

    number: int
    packets: list[int]
    next: int = 0

    @property
    def count(self) -> int:
        return len(self.packets)


@dataclass(slots=True)
class _Ring:
    room: int
    packets: deque[int] = field(default_factory=deque)


class _Model:
    """One run.  Threads are numbered: cache threads first, then classifiers; an event wakes one of them."""

    def __init__(
        self, plan: Plan, costs: Costs, place: npt.NDArray[np.uint32], entries: int, work: list[float] | None,
        rate: float, block: bool,
    ) -> None:  # fmt: skip
        self.plan, self.costs, self.rate, self.block, self.work = plan, costs, rate, block, work
        self.count = len(place)
        miss = place >= entries if plan.cached else np.ones(self.count, bool)
        self.miss: list[bool] = miss.tolist()
        searched = np.minimum(place + 1, entries) if plan.cached else np.zeros(self.count)
        # [packets + streams] sums of the cost of looking up, stream by stream.
        per_packet = (costs.cache_packet if plan.cached else 0.0) + costs.entry * searched
        shares = [share(self.count, plan.caches, stream) for stream in range(plan.caches)]
        self.sums = [
            np.concatenate(([0.0], np.cumsum(np.broadcast_to(per_packet, self.count)[of]))) for of in shares
        ]
        self.by: list[int] = [HIT] * self.count
        self.streams = [_Stream(number, of.tolist()) for number, of in enumerate(shares)]
        links = max(plan.caches, plan.classifiers) if plan.classifiers else 0
        self.rings = [_Ring(max(1, plan.rings // links + (i < plan.rings % links))) for i in range(links)]
        self.active = [plan.caches - plan.idle, plan.classifiers]
        self.events: list[tuple[float, int, int]] = []
        self.asleep = [False] * (plan.caches + plan.classifiers)
        # Misses of a cache thread that its rings had no room for, with *block*.
        self.waiting: list[list[int]] = [[] for _ in range(plan.caches)]
        # Misses of a batch that the thread is working on until its next event.
        self.holds: list[list[int]] = [[] for _ in range(plan.caches)]
        self.turns = [0] * (plan.caches + plan.classifiers)
        self.order = self.switches = 0
        self.end = 0.0
        # When the lock of the only copy is free.
        self.unlocked = 0.0

    # -- events --------------------------------------------------------------------------------

    def at(self, time: float, thread: int) -> None:
        self.order += 1
        heapq.heappush(self.events, (time, self.order, thread))

    def wake(self, time: float, threads: range) -> None:
        for thread in threads:
            if self.asleep[thread]:
                self.asleep[thread] = False
                self.at(time, thread)

    def run(self) -> Run:
        plan = self.plan
        for thread in range(plan.caches + plan.classifiers):
            self.at(0.0, thread)
        tick = self.costs.sample * plan.publish
        next_tick = tick if (plan.idle or plan.one_copy) and tick > 0 else float("inf")
        while self.events:
            time, _, thread = heapq.heappop(self.events)
            while time >= next_tick:
                if plan.one_copy:
                    self.unlocked = max(self.unlocked, next_tick) + self.costs.publish
                if plan.idle:
                    self.assign(next_tick)
                next_tick += tick
            self.end = max(self.end, time)
            if thread < plan.caches:
                self.cache_thread(time, thread)
            else:
                self.classifier(time, thread)
        return Run(np.array(self.by, np.uint8), self.end, self.switches)

    # -- cache threads -------------------------------------------------------------------------

    def arrived(self, stream: _Stream, time: float) -> int:
        """Packets of a stream that have arrived: packet i arrives (i + 1) / rate after the begin."""
        if not self.rate:
            return stream.count
        return bisect_left(stream.packets, int(time * 1e-9 * self.rate + 1e-9))

    def next_arrival(self, stream: _Stream) -> float:
        return (stream.packets[stream.next] + 1) / self.rate * 1e9

    def cache_thread(self, time: float, thread: int) -> None:
        plan = self.plan
        if self.holds[thread]:
            self.send(time, thread, self.holds[thread])
            self.holds[thread] = []
        if self.waiting[thread]:
            missed, self.waiting[thread] = self.waiting[thread], []
            self.send(time, thread, missed)
        if self.waiting[thread] or thread >= self.active[0]:
            self.asleep[thread] = True
            return
        mine = self.streams[thread :: self.active[0]]
        turn, self.turns[thread] = self.turns[thread], self.turns[thread] + 1
        for number in range(len(mine)):
            stream = mine[(turn + number) % len(mine)]
            there = self.arrived(stream, time)
            if self.rate and not self.block and there - stream.next > plan.inputs:
                self.lose_input(stream, there - plan.inputs)
            count = min(plan.batch, there - stream.next)
            if count > 0:
                self.look_up(time, thread, stream, count)
                return
        later = [self.next_arrival(stream) for stream in mine if stream.next < stream.count]
        if later:
            self.at(max(time, min(later)), thread)
        else:
            self.asleep[thread] = True

    def lose_input(self, stream: _Stream, until: int) -> None:
        for packet in stream.packets[stream.next : until]:
            self.by[packet] = LOST_INPUT
        stream.next = until

    def look_up(self, time: float, thread: int, stream: _Stream, count: int) -> None:
        """Take *count* packets; the thread is at work on them until its next event."""
        plan, costs, sums = self.plan, self.costs, self.sums[stream.number]
        first = stream.next
        stream.next += count
        missed = [packet for packet in stream.packets[first : stream.next] if self.miss[packet]]
        spent = float(sums[stream.next] - sums[first]) + (costs.cache_batch if plan.cached else 0.0)
        if plan.one_copy:
            begins = max(time, self.unlocked)
            self.unlocked = begins + spent
            spent += begins - time
        if plan.every:
            spent += costs.sample * (stream.next // plan.every - first // plan.every)
        if missed and plan.classifiers:
            spent += costs.push * len(missed)
            self.holds[thread] = missed
        elif missed:
            spent += self.classify(missed)
        self.at(time + spent, thread)

    def send(self, time: float, thread: int, missed: list[int]) -> None:
        """Put misses into the rings of the thread, each in turn first; without room they wait or are lost."""
        plan = self.plan
        active = self.active[0]
        mine = range(thread % active, len(self.rings), active)
        sent = 0
        for number in range(len(mine)):
            link = mine[(self.turns[thread] + number) % len(mine)]
            ring = self.rings[link]
            put = min(ring.room - len(ring.packets), len(missed) - sent)
            if put > 0:
                ring.packets.extend(missed[sent : sent + put])
                sent += put
                reader = plan.caches + link % self.active[1]
                self.wake(time, range(reader, reader + 1))
        if sent == len(missed):
            return
        if self.block:
            self.waiting[thread] = missed[sent:]
            return
        for packet in missed[sent:]:
            self.by[packet] = LOST_RING

    # -- classifiers ---------------------------------------------------------------------------

    def classify(self, packets: list[int]) -> float:
        """The ns of classifying a batch of packets."""
        for packet in packets:
            self.by[packet] = CLASSIFIED
        if self.work is None:
            own = self.costs.class_packet * len(packets)
        else:
            own = self.costs.class_packet * sum(self.work[packet] for packet in packets)
        return self.costs.class_batch + own

    def classifier(self, time: float, thread: int) -> None:
        """Read the next ring of the thread that has packets; its rings take turns."""
        plan, number = self.plan, thread - self.plan.caches
        mine = range(number, len(self.rings), self.active[1]) if number < self.active[1] else range(0)
        turn, self.turns[thread] = self.turns[thread], self.turns[thread] + 1
        for each in range(len(mine)):
            held = self.rings[mine[(turn + each) % len(mine)]].packets
            if held:
                batch = [held.popleft() for _ in range(min(plan.batch, len(held)))]
                if self.block:
                    self.wake(time, range(plan.caches))
                self.at(time + self.classify(batch), thread)
                return
        self.asleep[thread] = True

    # -- dynamic assignment --------------------------------------------------------------------

    def assign(self, time: float) -> None:
        """What the updater does after a publication: threads of one kind rest by the room in the rings."""
        plan = self.plan
        room = sum(ring.room for ring in self.rings)
        vacant = (room - sum(len(ring.packets) for ring in self.rings)) / room
        if plan.low <= vacant <= plan.high:
            return
        to_caches = vacant > plan.high
        wanted = [
            plan.caches - (0 if to_caches else plan.idle),
            plan.classifiers - (plan.idle if to_caches else 0),
        ]
        if wanted != self.active:
            self.active = wanted
            self.switches += 1
            self.wake(time, range(plan.caches + plan.classifiers))


def simulate(
    plan: Plan,
    costs: Costs,
    place: npt.NDArray[np.uint32],
    entries: int,
    *,
    rate: float = 0.0,
    block: bool = False,
    work: npt.NDArray[np.float64] | None = None,
) -> Run:
    """Send packets through the model.

    place    [packets] the entry of the cache that holds each packet, *entries* for none
    rate     packets a second that arrive; 0: all are there at once
    block    what a packet does that finds its ring full: wait, or be lost; with it, none is lost at the input
    work     [packets] the cost of classifying each packet as a share of class_packet; None: 1
    """
    return _Model(plan, costs, place, entries, None if work is None else work.tolist(), rate, block).run()


def saturated(
    plan: Plan, costs: Costs, place: npt.NDArray[np.uint32], entries: int,
    work: npt.NDArray[np.float64] | None = None,
) -> Run:  # fmt: skip
    """All packets there at once, and none lost."""
    return simulate(plan, costs, place, entries, block=True, work=work)


def lossless(
    plan: Plan, costs: Costs, place: npt.NDArray[np.uint32], entries: int,
    work: npt.NDArray[np.float64] | None = None, *, most: float,
) -> tuple[float, Run | None]:  # fmt: skip
    """The largest rate up to *most*, to 2 %, at which no packet of the second half is lost, and its run.

    The first half warms up.  0 and None where packets are lost at a 64th of *most*.
    """
    run = simulate(plan, costs, place, entries, rate=most, work=work)
    if not (run.by[len(place) // 2 :] > CLASSIFIED).any():
        return most, run
    low, high, kept = 0.0, most, None
    while high - low > 0.02 * high and high > most / 64:
        rate = (low + high) / 2
        run = simulate(plan, costs, place, entries, rate=rate, work=work)
        if (run.by[len(place) // 2 :] > CLASSIFIED).any():
            high = rate
        else:
            low, kept = rate, run
    return low, kept

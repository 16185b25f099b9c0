"""Storm (Ma, Lu, Banerjee and Estan, "Leveraging Parallelism for Multi-dimensional Packet Classification on
Software Routers"): threads that share the work of classifying packets.

Cache threads look packets up in evolving rules; classifiers search the rules for what misses; an updater
makes the evolving rules of the newest packets.  In one thread, and under updates, it is the plan `storm(A)`.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..core import pipeline
from ..core.evolve import FORMS
from ..errors import DatabaseError, OutOfMemory
from .algorithms import AlgorithmSpec
from .arguments import in_place, one_of, whole
from .closable import Closable
from .database import LIMIT, Database, Rules
from .evolving import checked_classes, checked_headers, evolve_options

Headers = npt.NDArray[np.uint32]


def optimal_caches(threads: int, cache_ns: float, classifier_ns: float, hit_ratio: float) -> float:
    """Formula (1): how many of *threads* should be cache threads, by the mean times of both and hit ratio.

    It counts the cache's time for hits only; `optimal_caches_of_all` counts it for misses, too.
    """
    return _optimal(threads, cache_ns * hit_ratio, classifier_ns * (1 - hit_ratio))


def optimal_caches_of_all(threads: int, cache_ns: float, classifier_ns: float, hit_ratio: float) -> float:
    """Formula (1) with each packet looked up in the cache, misses included."""
    return _optimal(threads, cache_ns, classifier_ns * (1 - hit_ratio))


def _optimal(threads: int, in_cache: float, in_classifier: float) -> float:
    if threads < 1 or in_cache < 0 or in_classifier < 0 or not in_cache + in_classifier:
        raise DatabaseError("the optimum is of one thread at least, of times that are not negative, and a "
                            "hit ratio from 0 to 1")  # fmt: skip
    return threads * math.sqrt(in_cache) / (math.sqrt(in_cache) + math.sqrt(in_classifier))


@dataclass(frozen=True, slots=True)
class Partition:
    """How many threads of each kind; *idle*: of cache threads or of classifiers, so many are idle in turn."""

    caches: int
    classifiers: int
    updaters: int
    idle: int = 0

    def __post_init__(self) -> None:
        counts = (self.caches, self.classifiers, self.updaters)
        if min(counts) < 0 or not any(counts):
            raise DatabaseError(f"the partition {self} has no threads")
        if not self.caches:
            raise DatabaseError(f"the partition {self} has no cache thread, which takes the packets")
        if max(counts) > pipeline.THREADS:
            raise DatabaseError(f"the partition {self}: at most {pipeline.THREADS} threads of a kind")
        if not 0 <= self.idle < max(1, min(self.caches, self.classifiers)):
            raise DatabaseError(f"the partition {self} leaves no thread of a kind that is not idle")
        if self.idle and not self.updaters:
            raise DatabaseError(
                f"the partition {self}: threads are assigned by the updater, and there is none"
            )

    def __str__(self) -> str:
        text = f"{self.caches}-{self.classifiers}-{self.updaters}"
        return f"{text} with {self.idle} idle" if self.idle else text

    @classmethod
    def read(cls, text: str) -> Self:
        """Cache threads, classifiers and updaters, as "4-2-1"; "dynamic": 4-4-1, of which two are idle, and
        "dynamic 8-8-1" a quarter of the others.  "n-0-0": each of n threads classifies its own packets.
        """
        pattern = r"(dynamic)?\s*(?:(\d{1,4})-(\d{1,4})-(\d{1,4}))?"
        found = re.fullmatch(pattern, text) if isinstance(text, str) else None
        if not found or not text.strip():
            raise DatabaseError(
                f"{text!r} is no partition; write it as 4-2-1, for 4 cache threads, 2 classifiers and an "
                "updater, or as dynamic"
            )
        counts = [int(count or usual) for count, usual in zip(found.groups()[1:], (4, 4, 1), strict=True)]
        idle = min(counts[:2]) // 2 if found[1] else 0
        if found[1] and not idle:
            raise DatabaseError(f"{text!r}: with fewer than two threads of a kind, none can be idle")
        caches, classifiers, updaters = counts
        return cls(caches, classifiers, updaters, idle)

    @property
    def threads(self) -> int:
        """That run at a time."""
        return self.caches + self.classifiers + self.updaters - self.idle


@dataclass(frozen=True, slots=True, eq=False)
class StormRun:
    """What a run of packets was like: offered = hits + classified + lost_input + lost_ring.

    answers    [packets] the class of each packet (the priority of its rule, where there are no classes), -1
               for none; of a lost packet it means nothing
    by         [packets] the kind of thread that answered, or where the packet was lost: a number of BY
    searched   [entries + 1] packets by the entries of the cache that they were compared with
    samples    taken; published, deferred: caches renewed, and put off since all copies were read
    to_caches, to_classifiers   switches of the dynamic assignment
    evolving   rules of the (first) updater at the end
    seconds    from the first packet to the last; bytes: of caches, rings and evolving rules
    threads    that ran at a time, on how many cores
    """

    answers: npt.NDArray[np.int32]
    by: npt.NDArray[np.uint8]
    searched: tuple[int, ...]
    offered: int
    hits: int
    classified: int
    lost_input: int
    lost_ring: int
    samples: int
    published: int
    deferred: int
    to_caches: int
    to_classifiers: int
    evolving: int
    seconds: float
    bytes: int
    threads: int
    cores: int

    @property
    def lost(self) -> int:
        return self.lost_input + self.lost_ring

    @property
    def hit_ratio(self) -> float:
        """Of the packets that were looked up in the cache."""
        return self.hits / max(1, self.offered - self.lost_input)

    @property
    def packets_per_s(self) -> float:
        """That were answered."""
        return (self.hits + self.classified) / self.seconds if self.seconds else 0.0

    @property
    def shares_cores(self) -> bool:
        """Whether there were more threads than cores, so that times are not those of parallel threads."""
        return self.threads > self.cores


class Storm(Closable[Database]):
    """A pipeline of threads over one rule set.

    plan       the classifier of misses, opened here, so that a plan that cannot take the rules is refused
    classes    [boxes] the class of each box of *rules*: evolving rules are larger, the fewer there are.
               None: each rule is a class of its own
    partition  as `Partition.read` has it; more threads than cores is allowed (StormRun.shares_cores)
    cache      entries; window: samples, as many as entries at least; publish: samples between caches
    copies     of the cache: 2 or 3, of which a pointer names the current one, or 1 under a spin lock
    form       of the cache: "columns", "rows", "list"
    full       what a packet does that finds its ring full: "wait", or be lost ("lose")
    rings      packets that all rings between cache threads and classifiers hold together
    inputs     packets that may wait in the input of one cache thread; more are lost
    queue      room of a queue of samples; 0: a mailbox, which holds the newest packet only
    own        no updater: each cache thread has evolving rules and a cache of its own (figure 3 of the
               paper), and takes every *every*-th of its packets as a sample
    low, high  shares of free room in the rings below and above which a dynamic partition switches; *literal*:
               in the direction that the paper's text has
    ring_locks rings under a spin lock; pin: each thread to a core; limit: bytes, 0 for any number
    """

    CLOSED = "the pipeline is closed"

    def __init__(
        self,
        plan: str | AlgorithmSpec,
        rules: Rules,
        classes: npt.NDArray[np.uint32] | None = None,
        *,
        partition: str | Partition = "1-1-1",
        cache: int = 20,
        window: int = 1024,
        publish: int = 1,
        copies: int = 2,
        form: str = "columns",
        order: str = "weight",
        first: str = "contain",
        tries: int = 0,
        cuts: str = "copies",
        full: str = "wait",
        batch: int = pipeline.BATCH,
        rings: int = 1000,
        inputs: int = 4096,
        queue: int = 0,
        own: bool = False,
        every: int = 16,
        low: float = 0.2,
        high: float = 0.8,
        literal: bool = False,
        ring_locks: bool = False,
        pin: bool = False,
        limit: int = 0,
    ) -> None:
        self.partition = partition if isinstance(partition, Partition) else Partition.read(partition)
        chosen = self.partition
        _check_numbers(chosen, cache, window, publish, copies, batch, rings, inputs, queue, every, limit)
        for name, value, known in (("form", form, FORMS), ("full", full, ("wait", "lose"))):
            one_of(name, value, known)
        if not all(isinstance(each, float | int) for each in (low, high)) or not 0 <= low < high <= 1:
            raise DatabaseError(f"low and high must rise from 0 to 1, not {low!r} and {high!r}")
        if own and (chosen.updaters or chosen.idle):
            raise DatabaseError(f"cache threads with rules of their own need no updater: not {chosen}")
        if queue and chosen.updaters > 1:
            raise DatabaseError(
                "a queue of samples has one reader: take one updater, or the mailbox (queue=0)"
            )
        self._evolve = evolve_options(window, order, first, tries, True, 16, cuts)
        self._classes = checked_classes(rules, classes)
        self._rules, self._limit = rules, limit
        self._options: dict[str, Any] = {
            "entries": cache,
            "form": FORMS.index(form),
            "copies": copies,
            "publish": publish,
            "threads": [chosen.caches, chosen.classifiers, chosen.updaters],
            "own": bool(own),
            "every": every,
            "idle": chosen.idle,
            "low": round(100 * low),
            "high": round(100 * high),
            "literal": bool(literal),
            "batch": batch,
            "ring_room": rings,
            "input_room": inputs,
            "queue_room": queue,
            "ring_locked": bool(ring_locks),
            "block": full == "wait",
            "pin": bool(pin),
            "fault_kind": len(pipeline.KINDS),
        }
        self._handle = Database(plan, rules, limit=limit)

    def run(
        self, headers: Headers, rate: float = 0.0, *, fault: tuple[str, int, int] | None = None
    ) -> StormRun:
        """Send *headers* [packets][dims] through the pipeline, *rate* of them a second; 0: all at once.

        A run lasts until the last packet has arrived at that rate; an interrupt ends it.
        fault  for tests: the thread of that kind and number fails at that turn
        DatabaseError when a thread fails; then nothing is running any more.
        """
        database = self._opened()
        if not isinstance(rate, float | int) or not rate >= 0 or math.isinf(rate):
            raise DatabaseError(f"rate must be a number of packets a second, 0 or more, not {rate!r}")
        rows = checked_headers(headers, self._rules.layout)
        options = self._options | {"rate": rate}
        if fault:
            one_of("the kind of a thread", fault[0], pipeline.KINDS)
            names = ("fault_kind", "fault_number", "fault_after")
            options |= dict(zip(names, (pipeline.KINDS.index(fault[0]), *fault[1:]), strict=True))
        answers, by = np.full(len(rows), -1, np.int32), np.empty(len(rows), np.uint8)
        status, stats = pipeline.run(
            options,
            self._evolve,
            self._rules.layout.bits,
            in_place(self._rules.boxes),
            in_place(self._rules.priority),
            self._classes,
            database.opened(),
            rows,
            answers,
            by,
            self._limit,
        )
        self._check(status, stats)
        return self._result(answers, by, stats)

    def _check(self, status: int, stats: dict[str, Any]) -> None:
        if status == pipeline.OK:
            return
        kind = stats["failed_kind"]
        thread = (
            f"{pipeline.KINDS[kind]} {stats['failed_number']}" if kind < len(pipeline.KINDS) else "the set-up"
        )
        ended = "; the pipeline has ended" if kind < len(pipeline.KINDS) else ""
        if status == pipeline.NO_THREAD:
            raise DatabaseError(
                f"the system gives no thread for {thread} of {self.partition}; nothing is running"
            )
        if status == pipeline.NO_MEMORY:
            raise OutOfMemory(f"{thread}: not enough memory, or not as much as is allowed{ended}")
        if status == pipeline.DISAGREE:
            raise DatabaseError(f"{thread}: the classifier and linear search gave different answers{ended}")
        raise DatabaseError(f"{thread}: the rules are too many for a tree of HyperCuts{ended}")

    def _result(
        self, answers: npt.NDArray[np.int32], by: npt.NDArray[np.uint8], stats: dict[str, Any]
    ) -> StormRun:
        names = (
            "offered", "hits", "classified", "lost_input", "lost_ring", "samples", "published", "deferred",
            "to_caches", "to_classifiers", "evolving", "bytes",
        )  # fmt: skip
        return StormRun(
            answers,
            by,
            tuple(stats["searched"][: self._options["entries"] + 1]),
            **{name: stats[name] for name in names},
            seconds=stats["ns"] / 1e9,
            threads=self.partition.threads,
            cores=len(os.sched_getaffinity(0)),
        )


def _check_numbers(
    partition: Partition,
    cache: int,
    window: int,
    publish: int,
    copies: int,
    batch: int,
    rings: int,
    inputs: int,
    queue: int,
    every: int,
    limit: int,
) -> None:
    most = 1 << 24
    for name, number, least, highest in (
        ("cache", cache, 1, pipeline.ENTRIES), ("window", window, 1, most), ("copies", copies, 1, 3),
        ("publish", publish, 1, 1 << 31),
        ("batch", batch, 1, pipeline.BATCH), ("rings", rings, 1, most), ("inputs", inputs, 1, most),
        ("queue", queue, 0, most), ("every", every, 1, most), ("limit", limit, 0, LIMIT),
    ):  # fmt: skip
        whole(name, number, least, highest)
    if window < cache:
        raise DatabaseError(f"a window of {window} samples never fills a cache of {cache} rules: widen it")
    count = max(partition.caches, partition.classifiers)
    if partition.classifiers and rings < count:
        raise DatabaseError(f"rings of {rings} packets together: the partition {partition} has {count} rings")

"""The prover of the C engine: its constants, its input as arrays, and one handle as an object.

Idea: a `Prover` holds two programs.  A caller enters a class of packets, then runs pairs of chains and
reads what differs.  This module only translates: include/prove.h and include/reorder.h define each number.

Invariant: an object of this module owns every array that the engine reads while a call lasts; the engine
keeps copies of its own (`prover_new`), so the caller may drop the input once a `Prover` is built.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ._engine import ffi, lib
from .arrays import pointer, sized
from .threads import stoppable

U32 = npt.NDArray[np.uint32]
U32s: TypeAlias = "U32 | array[int]"

NONE = 0xFFFFFFFF  # in place of the number of a rule or a chain
MOST_TESTS: int = lib.PROVE_MOST_TESTS  # of one rule: who makes the arrays refuses longer ones
MOST_EVENTS: int = lib.PROVE_MOST_EVENTS
# Programs of at most FEW rules are compared for QUICK seconds in the caller's thread: too short to interrupt.
FEW, QUICK = 500, 0.01


class ProveOp(enum.IntEnum):
    """The steps of a match (enum prove_op)."""

    TEST = lib.PROVE_TEST
    NATIVE = lib.PROVE_NATIVE
    EITHER = lib.PROVE_EITHER
    NEED = lib.PROVE_NEED
    OPTION = lib.PROVE_OPTION
    CUT = lib.PROVE_CUT
    EVENT = lib.PROVE_EVENT
    WRITE = lib.PROVE_WRITE
    SURE = lib.PROVE_SURE
    NEVER = lib.PROVE_NEVER


class ProveAction(enum.IntEnum):
    """What a rule does with the packets that it matches (enum prove_action)."""

    VERDICT = lib.PROVE_VERDICT
    EFFECT = lib.PROVE_EFFECT
    SILENT = lib.PROVE_SILENT
    JUMP = lib.PROVE_JUMP
    GOTO = lib.PROVE_GOTO
    RETURN = lib.PROVE_RETURN


class ProveStatus(enum.IntEnum):
    """How a call ended (enum prove_status)."""

    EQUAL = lib.PROVE_EQUAL
    DIFFER = lib.PROVE_DIFFER
    NO_TIME = lib.PROVE_NO_TIME
    NO_MEMORY = lib.PROVE_NO_MEMORY
    STOPPED = lib.PROVE_STOPPED
    TOO_DEEP = lib.PROVE_TOO_DEEP
    PAIRS = lib.PROVE_PAIRS  # rules with memory pair up in two ways: run again with *strict*


class ReadIn(enum.IntEnum):
    """Where a rule of an Order is read (enum order_place)."""

    ONCE = lib.ORDER_ONCE
    CALLED = lib.ORDER_CALLED
    SEARCHED = lib.ORDER_SEARCHED


class Alteration(enum.IntEnum):
    """A change of one rule for the runs that follow (enum prove_alteration)."""

    LEAVE_OUT = lib.PROVE_LEAVE_OUT
    MARK = lib.PROVE_MARK
    REMOVE = lib.PROVE_REMOVE


# ---- input ----


@dataclass(frozen=True, slots=True)
class MatchArrays:
    """The matches of both programs, and the coordinates that they test (struct prove_input)."""

    dim_size: U32s
    dim_states: U32s
    test_dim: U32s
    test_start: U32s
    set_ends: U32s
    match_start: U32s
    code: U32s


@dataclass(frozen=True, slots=True)
class ChainArrays:
    """The rules and chains of both programs (struct prove_input); *chains_before*: of the first program."""

    rule_start: U32s
    rule_match: U32s
    rule_action: U32s
    chain_start: U32s
    chain_end: U32s
    chain_writes: U32s
    chain_partner: U32s
    chain_whole: U32s
    chains_before: int


@dataclass(frozen=True, slots=True)
class EffectArrays:
    """What effects make of dimensions (struct prove_input)."""

    effect_start: U32s
    effect_maps: U32s


NO_EFFECTS = EffectArrays(array("I", [0]), array("I"))


class ClassWords(NamedTuple):
    """A class of packets (struct prove_class); sets of fields are masks."""

    present: int
    present_native: int
    bytes: int
    frozen: int
    later: bool
    bad_offset: bool
    offset_one: bool
    cut_short: bool
    may_drop: bool
    legacy: bool


@dataclass(frozen=True, slots=True)
class Order:
    """A list of rules that is read in another order (struct order)."""

    group_start: U32s
    place: U32s
    own: U32s
    form: U32s
    read_in: U32s
    proved: U32s
    asked: U32s
    listed_start: U32s
    listed: U32s


class PairRun(NamedTuple):
    """A pair of chains, for packets in *sets*, which lie in the class that was entered.

    chains, ends  of the first and of the second program: the chain, the verdict at its end
    seconds       of the wall; 0.0: no limit
    processor     seconds of the processor time of this process; 0.0: no limit
    limit         of the differences that are recorded; the run ends at the last
    """

    chains: tuple[int, int]
    ends: tuple[int, int]
    sets: array[int]
    seconds: float
    processor: float = 0.0
    limit: int = 1


class Mismatch(NamedTuple):
    """One region in which two chains differ.

    rules      rule of each program at which they part; None: the end of the chain
    extra      rule of each program that had an effect in that program only, before, or else asked a memory;
               None: none did
    acted      of each: whether it had an effect
    more       of each: whether more rules had an effect, or asked a memory, in that program only
    reordered  both had the same effects in another order: *extra* are the first that differ
    verdicts   number of the verdict of each program; None: not known, as the run was to find one difference,
               or what follows the rules of *extra* is the same
    sets       by dimension and number of writes before: low, high, low, high, ... as coordinates; facts that
               may hold or not are left out
    made       by dimension and number of writes before: the effect that made known values of it then
    answers    key of each match with memory that was asked so far, and whether it held
    asked_by   of each: the program that asked it, 0 or 1; None: both did
    """

    rules: tuple[int | None, int | None]
    extra: tuple[int | None, int | None]
    acted: tuple[bool, bool]
    more: tuple[bool, bool]
    reordered: bool
    verdicts: tuple[int | None, int | None]
    sets: dict[tuple[int, int], tuple[int, ...]]
    made: dict[tuple[int, int], int]
    answers: tuple[tuple[int, bool], ...]
    asked_by: tuple[int | None, ...]

    @property
    def as_entered(self) -> dict[int, tuple[int, ...]]:
        """By dimension, before any write: low, high, low, high, ... ."""
        return {dim: ends for (dim, epoch), ends in self.sets.items() if epoch == 0}


# ---- the handle ----


class Prover:
    """Two programs in the engine.  MemoryError, which names *table*, when no memory is left to copy them.

    *max_memory* bounds what is taken afterwards, with the copies: NO_MEMORY is returned beyond it.
    """

    def __init__(
        self,
        matches: MatchArrays,
        chains: ChainArrays,
        drop: int,
        max_memory: int | None,
        table: str,
        effects: EffectArrays = NO_EFFECTS,
    ) -> None:
        pointers = _pointers(matches) | _pointers(chains) | _pointers(effects)
        counts = {
            "dims": len(matches.dim_size), "tests": len(matches.test_dim),
            "matches": len(matches.match_start) - 1, "rules": len(chains.rule_start) - 1,
            "chains": len(chains.chain_start), "chains_before": chains.chains_before, "drop": drop,
            "effects": len(effects.effect_start) - 1,
        }  # fmt: skip
        self._rules = counts["rules"]
        handle = lib.prover_new(ffi.new("struct prove_input *", {**counts, **pointers}), max_memory or 0)
        if handle == ffi.NULL:
            raise MemoryError(f"table {table}")
        self._handle = ffi.gc(handle, lib.prover_free)

    def enter(self, words: ClassWords, sets: array[int]) -> ProveStatus:
        """Read the rules as the packets of a class in *sets* do, until the next call."""
        packets = ffi.new("struct prove_class *", words._asdict())
        return ProveStatus(lib.prover_enter(self._handle, packets, *sized("uint32_t", sets)))

    def run(self, run: PairRun, *, strict: bool = False, short: bool = False) -> ProveStatus:
        """Compare two chains.  An interrupt stops a run, unless it is *short* (`threads.stoppable`)."""
        if not short and self._rules <= FEW:  # most runs of few rules end before a thread would begin
            quick = min(run.seconds or QUICK, QUICK)
            status = self.run(run._replace(seconds=quick), strict=strict, short=True)
            if status != ProveStatus.NO_TIME:
                return status
        limits = run.seconds, run.processor, strict, run.limit
        arguments = (*run.chains, *run.ends, *sized("uint32_t", run.sets), *limits)
        return ProveStatus(
            stoppable(lambda: lib.prover_run(self._handle, *arguments), self.stop, short=short)
        )

    def stop(self) -> None:
        """From any thread: end the run that is under way, and each later one, as STOPPED."""
        lib.prover_stop(self._handle)

    def mismatches(self) -> Iterator[Mismatch]:
        """What the last run recorded."""
        size = ffi.new("size_t *")
        start = lib.prover_found(self._handle, size)
        if not size[0]:
            return
        words = np.frombuffer(ffi.buffer(start, 4 * size[0]), np.uint32).copy()
        at = 0
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        while at < len(words):
            after = at + int(words[at])
            yield _mismatch(words[at:after].tolist(), known)
            at = after

    def follow(self, follow: bool) -> None:
        """Whether the runs that follow know what effects make of dimensions; else they become anything."""
        lib.prover_follow(self._handle, follow)

    def bound(self, steps: int) -> None:
        """End each run as TOO_DEEP after *steps* steps; 0: no bound."""
        lib.prover_bound(self._handle, steps)

    def bound_items(self, items: int) -> None:
        """End each run as TOO_DEEP that cuts lists of more than *items* items, all together; 0: no bound."""
        lib.prover_bound_items(self._handle, items)

    def is_ordered(self, order: Order) -> ProveStatus:
        """EQUAL when the list in this order decides as the list does (after a run that was EQUAL)."""
        counts = {
            "groups": len(order.group_start) - 1, "rules": len(order.place),
            "proved_chains": len(order.proved),
        }  # fmt: skip
        pointers = _pointers(order)
        return ProveStatus(
            lib.prover_ordered(self._handle, ffi.new("struct order *", {**counts, **pointers}))
        )

    def reading(self) -> bytes:
        """How the class that was entered reads each match: equal bytes, equal reading."""
        size = lib.prover_reading(self._handle, ffi.NULL, 0)
        words = np.empty(size, np.uint32)
        lib.prover_reading(self._handle, pointer("uint32_t", words), size)
        return words.tobytes()

    def pairs(self) -> U32:
        """By rule: the rule of the other program that shares its memory, as all runs found; NONE: none."""
        words = lib.prover_pairs(self._handle)
        return np.frombuffer(ffi.buffer(words, 4 * self._rules), np.uint32).copy()

    # ---- one program against itself ----

    def treat_as_same(self) -> None:
        """From the next class on, chains of one name count as equal unless an alteration names them."""
        lib.prover_same(self._handle)

    def alter(self, rules: tuple[int, int], alteration: Alteration, touched: array[int]) -> ProveStatus:
        """Alter a rule, in both programs, for the runs that follow; *touched*: the chains that reach it."""
        return ProveStatus(lib.prover_alter(self._handle, *rules, alteration, *sized("uint32_t", touched)))

    def behind(self, returns: int, chains: array[int]) -> ProveStatus:
        """For the runs that follow: what leaves a list by the verdict *returns* goes on in these chains.

        chain, number of the first of its rules that they may come to, verdict at its end, ...; not while one
        is marked.
        """
        return ProveStatus(lib.prover_behind(self._handle, returns, *sized("uint32_t", chains)))

    def restore(self) -> None:
        """Undo the alterations that are not for good."""
        lib.prover_restore(self._handle)

    def rules_met(self, chain: int, before: int, sets: array[int], limit: int) -> list[int]:
        """The rules of *chain* that packets in *sets* may meet before a rule: the last *limit* ones, at most.

        *before* NONE: before the chain's end, the first ones.  None behind a rule that decides all of them.
        MemoryError where none is left.
        """
        rules = ffi.new("uint32_t[]", limit)
        count = lib.prover_front(self._handle, chain, before, *sized("uint32_t", sets), rules, limit)
        if count > limit:
            raise MemoryError("no memory is left for the rules that packets meet")
        return list(rules[0:count])

    # ---- counts ----

    @property
    def regions(self) -> int:
        """Regions compared by all runs."""
        return int(lib.prover_regions(self._handle))

    @property
    def rules_looked_at(self) -> int:
        """Rules put in lists, copied with them, and held against cuts, by all runs: their work."""
        return int(lib.prover_looked_at(self._handle))

    @property
    def share_done(self) -> float:
        """The share of the packets of the last run that it decided."""
        return float(lib.prover_done(self._handle))

    @property
    def bytes(self) -> int:
        """The most memory that the engine held."""
        return int(lib.prover_bytes(self._handle))


def _pointers(arrays: MatchArrays | ChainArrays | EffectArrays | Order) -> dict[str, Any]:
    """By field: a pointer to its array, which lives as long as the pointer."""
    values = ((each.name, getattr(arrays, each.name)) for each in fields(arrays))
    return {
        name: pointer(
            "uint32_t", words if isinstance(words, array) else np.ascontiguousarray(words, np.uint32)
        )
        for name, words in values
        if not isinstance(words, int)
    }


_ASKED_BY = (None, 0, 1)  # by enum asked


def _mismatch(words: list[int], known: dict[tuple[int, ...], tuple[int, ...]]) -> Mismatch:
    """A record: its length, four rules, two verdicts, flags, sets, answers.

    *known*: the ends of sets that earlier records have, as most have the same few.
    """
    given = [None if word == NONE else word for word in words[1:7]]
    sets: dict[tuple[int, int], tuple[int, ...]] = {}
    made: dict[tuple[int, int], int] = {}
    here = 9
    for _ in range(words[8]):
        dim, epoch, effect, pairs = words[here : here + 4]
        ends = tuple(words[here + 4 : here + 4 + 2 * pairs])
        sets[dim, epoch] = known.setdefault(ends, ends)
        if effect != NONE:
            made[dim, epoch] = effect
        here += 4 + 2 * pairs
    events = words[here + 1 : here + 1 + 2 * words[here]]
    # An event is a key and a bit: whether the memory is the rule's own; an answer is a bit and who asked.
    keys, given_answers = events[::2], events[1::2]
    answers = tuple((key >> 1, bool(answer & 1)) for key, answer in zip(keys, given_answers, strict=True))
    asked_by = tuple(_ASKED_BY[answer >> 1] for answer in given_answers)
    extra = [None if word is None else word >> 1 for word in given[2:4]]
    acted = [word is not None and bool(word & 1) for word in given[2:4]]
    rules, verdicts = (given[0], given[1]), (given[4], given[5])
    more, reordered = (bool(words[7] & 1), bool(words[7] & 2)), bool(words[7] & 4)
    return Mismatch(
        *(rules, (extra[0], extra[1]), (acted[0], acted[1]), more, reordered),
        *(verdicts, sets, made, answers, asked_by),
    )

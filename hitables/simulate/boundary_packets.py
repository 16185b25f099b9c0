"""Packets at the boundaries of a chain's boxes (boundary-value testing).

A packet is drawn for one rule, from a path condition that leads to it (path_conditions.py): in each interval
at the low end, the high end or inside.  Some packets then step just outside in one field, some take fields
from a second condition.  For rules that no packet reached, conditions are narrowed past the rules that
diverted the packets, and packets are drawn again.  All classes that rules can distinguish occur: fragments,
protocols that no rule names, short and broken headers, missing fields.

Invariant: every packet is possible (`headers.inconsistency`) and possible at the chain's hook.  The same
program, chain, backend, count and seed give the same packets.  Cost: a few microseconds a packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hitables.ir import fields
from hitables.ir.fact import Fact
from hitables.ir.fields import (
    ICMP,
    ICMPV6,
    PORT_PROTOCOLS,
    STATES,
    TCP,
    UDP,
    Family,
    Field,
    Fragment,
)
from hitables.ir.headers import FIELD_BYTES, TCP_OFFSET_BYTES
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.semantics import FIELDS_WRITTEN

from ..ir.hooks import NO_IIF, NO_OIF, hook_box
from .batch import BAD_OFFSET, CUT_SHORT, HALF, OFFSET_ONE, PACKET, RAW, RAW_BIT, PacketBatch, drawn_numbers
from .boundary_values import INTERFACES, MASK, Bools, Catalog, Ints, Wide
from .interpreter import Interpreter
from .number_pools import Pools, number_pools
from .path_conditions import EXAMINED, PathCondition, Reach

__all__ = ["BoundarySampler", "ConditionSampler", "PacketBatch", "PacketMaker", "draw_packets"]

CONDITIONS = 4  # of one rule: for its paths and its either-or tests
REMEMBERED = 1000  # predicates whose truths are kept, 16 KB each
SEEDS = 1 << 14  # candidates from which `_seeds_for` chooses the seeds that fulfil a condition's predicates
RETRIES = 12  # packets drawn for one condition before it is given up
RESTARTS = 4  # conditions of one rule that became empty before the rule is given up

SHORT_HEADERS = (0, 2, 5, 10, 30)
LONG_HEADERS = (64, 64, 64, 20, 100, 1400)


def draw_packets(
    program: Program, table: str, chain: str, count: int, seed: int = 0, backend: Backend = Backend.LEGACY
) -> PacketBatch:
    """*count* packets at the boundaries of the rules that *chain* reads."""
    return BoundarySampler(Interpreter(program, backend), table, chain, seed).draw(count)


class BoundarySampler:
    """Draws packets for one chain.

    numbers  of the rules that the chain can reach, as in `Interpreter.rule`
    reached  those that some packet drawn so far has matched
    """

    def __init__(
        self, interpreter: Interpreter, table: str, chain: str, seed: int = 0, pools: Pools | None = None
    ) -> None:
        self.family, self.chain = interpreter.program.family, chain
        self.reached: set[int] = set()
        self._interpreter, self._table = interpreter, table
        self._rng = np.random.default_rng(seed)
        first = interpreter.first_rules(table)
        self._reach = Reach(interpreter.program.table(table), chain, self.family, self._rng, first)
        self.numbers = self._reach.numbers
        own = number_pools([interpreter.program]) if pools is None else pools
        self._sampler = ConditionSampler(self.family, self._rng, own)
        self._packets = PacketMaker(chain, self._sampler, self._rng)
        self._of_rule: dict[int, list[int]] = {}  # by rule: its conditions, as numbers of the sampler
        self._anywhere = self._sampler.add(PathCondition(self.family, hook_box(chain, self.family)))

    def draw(self, count: int) -> PacketBatch:
        """*count* packets: half for all rules in turn, then for those not reached, then for all again."""
        batches = [self._draw(self.numbers, count - count // 2)]
        self._note_reached(batches[0])
        batches += self._draw_for_missed(count // 2)
        batches.append(self._draw(self.numbers, count - sum(map(len, batches))))
        self._note_reached(batches[-1])
        return PacketBatch.join(batches)

    def _draw(self, numbers: Sequence[int], count: int) -> PacketBatch:
        """*count* packets for the rules of *numbers* in turn."""
        rules = self._rng.permutation(np.array(numbers, np.int64))[:count]
        listed = [condition for number in rules for condition in self._conditions_of(int(number))]
        conditions = np.array(listed or [self._anywhere], np.int64)
        first = conditions[self._rng.permutation(np.arange(count) % len(conditions))]
        second = conditions[self._rng.integers(len(conditions), size=count)]
        for each in (first, second):  # some packets for no rule
            each[self._rng.random(count) < 0.06] = self._anywhere
        # 0, 1: in the box; 2: one field outside; 3: fields of two boxes mixed
        return self._packets.make(first, second, self._rng.integers(4, size=count), plain=False)

    def _note_reached(self, batch: PacketBatch) -> None:
        hits = self._interpreter.run(self._table, self.chain, batch, hits=True).hits
        assert hits is not None
        self.reached.update(np.flatnonzero(hits).tolist())

    def _conditions_of(self, number: int) -> list[int]:
        if number not in self._of_rule:
            conditions = self._reach.conditions(number, CONDITIONS)
            self._of_rule[number] = [self._sampler.add(condition) for condition in conditions]
        return self._of_rule[number]

    # ---- rules that no packet has reached ----

    def _draw_for_missed(self, most: int) -> list[PacketBatch]:
        """At most *most* packets for rules not yet reached; conditions are narrowed after each batch."""
        batches: list[PacketBatch] = []
        live: dict[int, _Attempt] = {}
        missed = np.array([number for number in self.numbers if number not in self.reached], np.int64)
        for number in self._rng.permutation(missed)[:most].tolist():
            self._restart(live, number, 0)
        while live and most > 0:
            numbers = [int(n) for n in self._rng.permutation(np.array(list(live), np.int64))[:most]]
            conditions = np.array([self._sampler.add(live[number].condition) for number in numbers], np.int64)
            style = np.zeros(len(conditions), np.int64)
            batch = self._packets.make(conditions, conditions, style, plain=True)
            batches.append(batch)
            most -= len(batch)
            result = self._interpreter.run(self._table, self.chain, batch, matched=EXAMINED)
            self.reached.update(np.unique(result.matched[result.matched >= 0]).tolist())
            for condition, number, matched in zip(conditions, numbers, result.matched.tolist(), strict=True):
                if number in matched:
                    self._of_rule[number] = [int(condition)]
                if number in self.reached:
                    del live[number]
                else:
                    self._narrow(live, number, matched)
        return batches

    def _narrow(self, live: dict[int, _Attempt], number: int, matched: list[int]) -> None:
        """Narrow the condition of rule *number* past a rule of *matched* that diverted its packet."""
        condition, tries, restarts = live[number]
        diverting = self._reach.diverting_rules(condition, matched)
        narrowed: PathCondition | None = condition
        if diverting:
            choices = (
                condition.past(diverting[at], self._rng) for at in self._rng.permutation(len(diverting))
            )
            narrowed = next((each for each in choices if each is not None), None)
        if narrowed is None or (narrowed is condition and tries == RETRIES):
            self._restart(live, number, restarts + 1)
        else:
            live[number] = _Attempt(narrowed, tries + (narrowed is condition), restarts)

    def _restart(self, live: dict[int, _Attempt], number: int, restarts: int) -> None:
        """Begin with a new condition for rule *number*, or give the rule up."""
        conditions = self._reach.conditions(number, 1) if restarts < RESTARTS else []
        if conditions:
            live[number] = _Attempt(conditions[0], 0, restarts)
        else:
            live.pop(number, None)


class PacketMaker:
    """Possible packets for pairs of conditions of *sampler*, at the hook of *chain* ("": any)."""

    def __init__(self, chain: str, sampler: ConditionSampler, rng: np.random.Generator) -> None:
        self.family, self.chain = sampler.family, chain
        self._sampler, self._rng = sampler, rng

    def make(self, first: Ints, second: Ints, style: Ints, plain: bool) -> PacketBatch:
        """A packet for each pair of conditions; *plain*: with common values of the free fields."""
        values, free, seeds = self._sampler.draw(first, second, style)
        rows = self._fit(values, free, plain)
        count = len(rows)
        fresh = self._rng.integers(1 << 64, size=count, dtype=np.uint64)
        rows["seed"] = np.where((style < 2) & (self._rng.random(count) < 0.9), seeds, fresh)
        return PacketBatch(self.family, rows, self._sampler.rewrites(), numbers=self._sampler.numbers)

    def _fit(self, values: dict[Field, Wide], free: Bools, plain: bool) -> Any:
        """Rows of possible packets near *values*; *free*: by field, whether it may be changed."""
        rng, count = self._rng, free.shape[1]
        proto = values[Field.PROTO][1].copy()
        ports = ~free[Field.SPORT] | ~free[Field.DPORT]
        detail = ports | ~free[Field.ICMP] | ~free[Field.FLAGS]
        proto[free[Field.PROTO] & ports & ~np.isin(proto, _PORTED)] = UDP
        icmp = ICMP if self.family is Family.IPV4 else ICMPV6
        proto[free[Field.PROTO] & ~free[Field.ICMP]] = icmp
        proto[free[Field.PROTO] & ~free[Field.FLAGS]] = TCP
        frag = values[Field.FRAG][1].copy()
        # Packets for a rule on ports are mostly whole.
        whole = rng.random(count) < np.where(detail | plain, 0.85 + 0.13 * plain, 0.7)
        frag[free[Field.FRAG] & whole] = Fragment.WHOLE
        for kind in Fragment:
            if kind not in hook_box(self.chain, self.family).get(Field.FRAG, _FRAGMENTS):
                frag[frag == kind] = Fragment.WHOLE
        later = frag == Fragment.LATER
        short = rng.random(count) < (0.01 if plain else 0.08)
        size = np.where(short, rng.choice(SHORT_HEADERS, count), rng.choice(LONG_HEADERS, count))
        odd = 0.003 if plain else 0.03
        cut_short = np.full(count, self.family is Family.IPV6) & (rng.random(count) < odd)
        has = {
            Field.PROTO: ~cut_short,
            Field.SPORT: ~cut_short & ~later & np.isin(proto, _PORTED) & (size >= FIELD_BYTES[Field.SPORT]),
            Field.DPORT: ~cut_short & ~later & np.isin(proto, _PORTED) & (size >= FIELD_BYTES[Field.DPORT]),
            Field.ICMP: ~cut_short & ~later & (proto == icmp) & (size >= FIELD_BYTES[Field.ICMP]),
            Field.FLAGS: ~cut_short & ~later & (proto == TCP) & (size >= FIELD_BYTES[Field.FLAGS]),
            Field.MAC: ~free[Field.MAC] | (rng.random(count) < 0.7),
        }
        self._set_interfaces(values, has)
        rows: Any = np.zeros(count, PACKET)
        rows["present"] = _ALWAYS
        for field, mask in has.items():
            rows["present"] |= mask.astype(np.uint16) << np.uint16(field)
        columns = {field: values[field][1] for field in Field} | {Field.PROTO: proto, Field.FRAG: frag}
        for field in Field:
            rows["low"][:, field] = np.where(rows["present"] >> np.uint16(field) & 1, columns[field], 0)
        for field, at in HALF.items():
            rows["high"][:, at] = values[field][0]
        for field, name in RAW.items():
            readable = later & ~cut_short & (size >= FIELD_BYTES[field])
            rows[name] = np.where(readable, columns[field], 0)
            rows["raw_present"] |= (readable * RAW_BIT[field]).astype(np.uint8)
        tcp = has[Field.PROTO] & (proto == TCP) & ~later & (size >= TCP_OFFSET_BYTES)
        rows["classes"] |= (tcp & (rng.random(count) < odd)) * np.uint8(BAD_OFFSET)
        rows["classes"] |= (later & (rng.random(count) < 0.1)) * np.uint8(OFFSET_ONE)
        rows["classes"] |= cut_short * np.uint8(CUT_SHORT)
        rows["l4_bytes"] = size
        return rows

    def _set_interfaces(self, values: dict[Field, Wide], has: dict[Field, Bools]) -> None:
        """Remove the interfaces that a packet lacks at the hook, and add those that it has."""
        count = len(values[Field.IIF][0])
        no_iif, no_oif = np.zeros(count, bool), np.zeros(count, bool)
        if self.chain in NO_OIF:
            no_oif[:] = True
        elif self.chain in NO_IIF:
            no_iif[:] = True
        elif self.chain == "POSTROUTING":  # forwarded packets have both
            no_iif = ((values[Field.IIF][0] | values[Field.IIF][1]) == 0) | (self._rng.random(count) < 0.5)
        elif self.chain != "FORWARD":  # a user chain: any hook
            hook = self._rng.integers(3, size=count)
            empty_iif, empty_oif = ((values[f][0] | values[f][1]) == 0 for f in (Field.IIF, Field.OIF))
            no_iif = ((hook == 1) | empty_iif) & ~empty_oif
            no_oif = ((hook == 2) | empty_oif) & ~no_iif
        has[Field.MAC] &= ~no_iif
        for field, without in ((Field.IIF, no_iif), (Field.OIF, no_oif)):
            high, low = values[field]
            high[without] = low[without] = 0
            nameless = ~without & ((high | low) == 0)
            high[nameless], low[nameless] = INTERFACES[0] >> 64, INTERFACES[0] & MASK


_FRAGMENTS = Values.only(*Fragment)
_PORTED = np.array(sorted(PORT_PROTOCOLS), np.uint64)
_ALWAYS = sum(1 << field for field in (Field.SRC, Field.DST, Field.FRAG, Field.STATE, *fields.INTERFACES))


class _Attempt(NamedTuple):
    """A condition for a rule, packets drawn for it in vain, and conditions given up before it."""

    condition: PathCondition
    tries: int
    restarts: int


class ConditionSampler:
    """Conditions, by number, from which many packets are drawn at once; *numbers* as in PacketBatch."""

    def __init__(self, family: Family, rng: np.random.Generator, numbers: Pools | None = None) -> None:
        self.family, self._rng, self.numbers = family, rng, numbers or {}
        self._catalogs = {field: Catalog(field, family) for field in Field}
        self._sets: list[list[int]] = []  # by condition: for each field, a set of its catalog or -1
        self._seeds: list[list[int]] = []  # by condition: seeds that fulfil its predicates
        candidates = rng.integers(1 << 64, size=SEEDS, dtype=np.uint64)
        self._candidates = candidates[np.argsort(candidates & np.uint64(3), kind="stable")]
        self._kinds = (self._candidates & np.uint64(3)).astype(int)
        self._bounds = np.searchsorted(self._kinds, np.arange(5))
        self._truths: dict[Fact, Bools] = {}

    def add(self, condition: PathCondition) -> int:
        """The number of *condition* from now on."""
        bound = {field: self._catalogs[field].number(values) for field, values in condition.box.items()}
        self._sets.append([bound.get(field, -1) for field in Field])
        self._seeds.append(self._seeds_for(condition))
        return len(self._sets) - 1

    def draw(self, first: Ints, second: Ints, style: Ints) -> tuple[dict[Field, Wide], Bools, Any]:
        """For each pair of conditions: values by field, which fields no box bounds, and a seed."""
        rng, count = self._rng, len(first)
        if not count:
            empty = np.zeros(0, np.uint64)
            return {field: (empty, empty) for field in Field}, np.zeros((len(Field), 0), bool), empty
        mine = np.array([self._sets[each] for each in first], np.int64).T
        other = np.array([self._sets[each] for each in second], np.int64).T
        coins = rng.integers(2, size=mine.shape).astype(bool)
        used = np.where(coins & ((mine < 0) | (style == 3)), other, mine)
        chance = rng.random(mine.shape, np.float32) * (mine >= 0)
        outside = (chance == chance.max(axis=0)) & (chance > 0) & (style == 2)
        values = {field: self._catalogs[field].draw(rng, used[field], outside[field]) for field in Field}
        kinds = rng.integers(4, size=count)
        seeds = np.array(
            [self._seeds[each][kind] for each, kind in zip(first, kinds, strict=True)], np.uint64
        )
        return values, used < 0, seeds

    def rewrites(self) -> dict[Field, tuple[int, ...]]:
        """Values that a target may write to a field."""
        fields = frozenset[Field]().union(*FIELDS_WRITTEN.values())
        rewrites = {field: self._catalogs[field].some_points() for field in sorted(fields)}
        return rewrites | {Field.STATE: tuple(range(len(STATES)))}

    def _holds(self, fact: Fact) -> Bools:
        """By candidate: whether its seed draws a number that the fact holds for."""
        pool = self.numbers.get(fact.attribute, ())
        numbers = drawn_numbers(self._candidates, fact.attribute, pool) & np.uint64(fact.mask)
        holds = np.zeros(len(numbers), bool)
        for low, high in fact.values.pairs:
            holds |= (numbers >= np.uint64(low)) & (numbers <= np.uint64(high))
        return holds

    def _seeds_for(self, condition: PathCondition) -> list[int]:
        """A seed of each of the four kinds (few other predicates hold; many do) for *condition*.

        Each seed gives the predicates of *condition* their required truths, or most of them if no seed can.
        """
        if not condition.facts:
            picks = self._rng.integers(self._bounds[:-1], self._bounds[1:])
            return self._candidates[picks].tolist()  # type: ignore[no-any-return]
        right = np.zeros(SEEDS, np.int16)
        for fact in condition.facts:
            if fact not in self._truths:
                if len(self._truths) == REMEMBERED:
                    self._truths.clear()
                self._truths[fact] = self._holds(fact)
            right += self._truths[fact]
        usable = np.flatnonzero(right == right.max())
        bounds = np.searchsorted(self._kinds[usable], np.arange(5))
        seeds = []
        for low, high in pairwise(bounds):
            at = self._rng.integers(low, high) if low < high else self._rng.integers(len(usable))
            seeds.append(int(self._candidates[usable[at]]))
        return seeds

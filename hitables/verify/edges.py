"""Packets at the edges of a chain's boxes.

A packet is aimed at one rule: it is drawn in the rule's box, cut with the boxes of the
rules that lead to its chain, at the low end, the high end or inside of each interval.
Some packets then step just outside in one field, some take fields from a second rule.
All classes that rules can tell apart occur: fragments, protocols that no rule names,
short and broken headers, missing fields.

Invariant: every packet is one that can be (`packets.inconsistency`) and that can come to
the chain's hook.  The same table, chain, count and seed give the same packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
from hitables.ir.geometry import Values
from hitables.ir.program import Program, Table
from hitables.ir.rule import Kind, Role, Rule
from hitables.ir.semantics import FIELDS_WRITTEN

from .packets import (
    BAD_OFFSET,
    CUT_SHORT,
    FIELD_BYTES,
    HALF,
    OFFSET_ONE,
    PACKET,
    RAW,
    RAW_BIT,
    TCP_OFFSET_BYTES,
    PacketBatch,
    drawn_facts,
)
from .points import INTERFACES, MASK, Bools, Catalog, Ints, Wide

__all__ = ["Edges", "PacketBatch", "draw_packets"]

Box = dict[Field, Values]

PATHS = 4  # ways to a chain that are kept; more would find little and cost time
VARIANTS = 4  # boxes of one rule: its ways and its either-or tests
SEEDS = 4096  # from which those are picked that make a rule's facts true

NO_OIF, NO_IIF = ("PREROUTING", "INPUT"), ("OUTPUT", "POSTROUTING")
SHORT_HEADERS = (0, 2, 5, 10, 30)
LONG_HEADERS = (64, 64, 64, 20, 100, 1400)


def draw_packets(program: Program, table: str, chain: str, count: int, seed: int = 0) -> PacketBatch:
    """*count* packets at the edges of what *chain* reads."""
    return Edges(program.table(table), chain, program.family, seed).draw(count)


@dataclass(frozen=True)
class _Aim:
    """A box, and the keys of the facts that must hold, for a rule to be reached and to match."""

    box: Box
    keys: tuple[str, ...] = ()

    def narrowed(self, rule: Rule, rng: np.random.Generator) -> _Aim | None:
        """This aim cut with the box of *rule*; None when nothing is left."""
        box, keys = dict(self.box), self.keys
        for match in rule.matches:
            tests = match.tests
            if match.either and tests:
                tests = (tests[int(rng.integers(len(tests)))],)
            for test in tests:
                before = box.get(test.field)
                values = test.values if before is None else before.intersect(test.values)
                if not values:
                    return None
                box[test.field] = values
            if match.role is Role.CONSTANT and match.key not in keys:
                keys += (match.key,)
        return _Aim(box, keys)


class Edges:
    """Draws packets for one chain.  *rules*: all that it can reach, as (chain, index)."""

    def __init__(self, table: Table, chain: str, family: Family, seed: int = 0) -> None:
        self.family, self.chain = family, chain
        self._table = table
        self._rng = np.random.default_rng(seed)
        order = _callers_first(table, chain)
        self.rules = [(name, at) for name in order for at in range(len(table[name].rules))]
        self._number = {place: number for number, place in enumerate(self.rules)}
        self._ways = self._find_ways(order)
        self._catalogs = {field: Catalog(field, family) for field in Field}
        self._variants: dict[int, list[int]] = {}  # by number of the rule
        self._sets: list[list[int]] = []  # by variant: for each field, a set of its catalog or -1
        self._seeds: list[list[int]] = []  # by variant: seeds under which its facts hold
        candidates = self._rng.integers(1 << 64, size=SEEDS, dtype=np.uint64)
        self._candidates = candidates[np.argsort(candidates & np.uint64(3), kind="stable")]
        self._truths: dict[str, Bools] = {}

    def draw(self, count: int, rules: Sequence[tuple[str, int]] | None = None) -> PacketBatch:
        """*count* packets, aimed at *rules* (default: all that the chain reaches) by turns."""
        rng = self._rng
        numbers = [self._number[place] for place in rules] if rules is not None else range(len(self.rules))
        chosen = rng.permutation(np.asarray(numbers, np.int64))[:count]
        variants = np.array([v for number in chosen for v in self._variants_of(int(number))], np.int64)
        if not len(variants):
            variants = np.array([self._variant(_Aim({}))], np.int64)
        first = variants[rng.permutation(np.arange(count) % len(variants))]
        second = variants[rng.integers(len(variants), size=count)]
        style = rng.integers(4, size=count)  # 0, 1: in the box; 2: one field outside; 3: two rules mixed
        sets = np.array(self._sets, np.int64)
        mine, other = sets[first].T, sets[second].T  # by field
        coins = rng.integers(2, size=mine.shape).astype(bool)
        used = np.where(coins & ((mine < 0) | (style == 3)), other, mine)
        chance = rng.random(mine.shape, np.float32) * (mine >= 0)
        outside = (chance == chance.max(axis=0)) & (chance > 0) & (style == 2)
        values = {field: self._catalogs[field].draw(rng, used[field], outside[field]) for field in Field}
        seeds = np.array(self._seeds, np.uint64)[first, rng.integers(4, size=count)]
        fresh = rng.integers(1 << 64, size=count, dtype=np.uint64)
        seeds = np.where((style < 2) & (rng.random(count) < 0.9), seeds, fresh)
        rows = self._rows(count, values, used)
        rows["seed"] = seeds
        return PacketBatch(self.family, rows, self._rewrites())

    # ---- aiming ----

    def _find_ways(self, order: list[str]) -> dict[str, list[_Aim]]:
        """For each chain some ways in which a packet comes there.  *order*: callers first."""
        entries: dict[str, list[tuple[str, Rule]]] = {name: [] for name in order}
        ways: dict[str, list[_Aim]] = {}
        for name in order:
            found: list[_Aim] = [_Aim({})] if name == self.chain else []
            for at in self._rng.permutation(len(entries[name])):
                if len(found) >= PATHS:
                    break
                caller, rule = entries[name][at]
                for way in ways[caller]:
                    aim = way.narrowed(rule, self._rng)
                    if aim is not None:
                        found.append(aim)
                        break
            ways[name] = found
            for rule in self._table[name].rules:
                if rule.target is not None and rule.target.kind in (Kind.JUMP, Kind.GOTO):
                    entries[rule.target.name].append((name, rule))
        return ways

    def _variants_of(self, number: int) -> list[int]:
        if number not in self._variants:
            chain, at = self.rules[number]
            rule = self._table[chain].rules[at]
            ways = self._ways[chain]
            either = any(match.either for match in rule.matches)
            tries = [ways[n % len(ways)] for n in range(VARIANTS if either else len(ways))] if ways else []
            aims = [way.narrowed(rule, self._rng) for way in tries]
            found = [aim for aim in aims if aim is not None]
            if not found:  # no packet comes there and matches; what does come may still differ
                found = ways[:1] or [_Aim({})]
            self._variants[number] = [self._variant(aim) for aim in found]
        return self._variants[number]

    def _variant(self, aim: _Aim) -> int:
        sets = [self._catalogs[field].number(aim.box[field]) if field in aim.box else -1 for field in Field]
        self._sets.append(sets)
        self._seeds.append(self._seeds_for(aim.keys))
        return len(self._sets) - 1

    def _seeds_for(self, keys: tuple[str, ...]) -> list[int]:
        """Four seeds under which all of *keys* hold (if such are at hand), of all four kinds:
        with few other facts that hold, and with many."""
        holds = np.ones(SEEDS, bool)
        for key in keys:
            if key not in self._truths:
                self._truths[key] = drawn_facts(self._candidates, key)
            holds &= self._truths[key]
        kinds = (self._candidates & np.uint64(3)).astype(int)
        usable = np.flatnonzero(holds) if holds.any() else np.arange(SEEDS)
        seeds = []
        for kind in range(4):
            fitting = usable[kinds[usable] == kind]
            fitting = fitting if len(fitting) else usable
            seeds.append(int(self._candidates[fitting[self._rng.integers(len(fitting))]]))
        return seeds

    def _rewrites(self) -> dict[Field, tuple[int, ...]]:
        fields = frozenset[Field]().union(*FIELDS_WRITTEN.values())
        rewrites = {field: self._catalogs[field].some_points() for field in sorted(fields)}
        rewrites[Field.STATE] = tuple(range(len(STATES)))
        return rewrites

    # ---- what can be ----

    def _rows(self, count: int, values: dict[Field, Wide], used: Ints) -> Any:
        """Rows of *values*, made such that a packet can be so.  *used*: -1 where a field is free."""
        rng = self._rng
        free = used < 0
        proto = values[Field.PROTO][1].copy()
        layer4 = ~free[Field.SPORT] | ~free[Field.DPORT]
        proto[free[Field.PROTO] & layer4 & ~np.isin(proto, _PORTED)] = UDP
        icmp = ICMP if self.family is Family.IPV4 else ICMPV6
        proto[free[Field.PROTO] & ~free[Field.ICMP]] = icmp
        proto[free[Field.PROTO] & ~free[Field.FLAGS]] = TCP
        detail = layer4 | ~free[Field.ICMP] | ~free[Field.FLAGS]
        frag = values[Field.FRAG][1].copy()
        # A rule on ports is aimed at with whole packets for the most part.
        dice = rng.random(count)
        whole = free[Field.FRAG] & (dice < np.where(detail, 0.85, 0.7))
        frag[whole] = Fragment.WHOLE
        later = frag == Fragment.LATER
        size = np.where(
            rng.random(count) < 0.08, rng.choice(SHORT_HEADERS, count), rng.choice(LONG_HEADERS, count)
        )
        cut = np.zeros(count, bool)
        if self.family is Family.IPV6:
            cut = rng.random(count) < 0.03
        rows: Any = np.zeros(count, PACKET)
        present = np.full(count, _ALWAYS, np.uint16)
        has = {
            Field.PROTO: ~cut,
            Field.SPORT: ~cut & ~later & np.isin(proto, _PORTED) & (size >= FIELD_BYTES[Field.SPORT]),
            Field.DPORT: ~cut & ~later & np.isin(proto, _PORTED) & (size >= FIELD_BYTES[Field.DPORT]),
            Field.ICMP: ~cut & ~later & (proto == icmp) & (size >= FIELD_BYTES[Field.ICMP]),
            Field.FLAGS: ~cut & ~later & (proto == TCP) & (size >= FIELD_BYTES[Field.FLAGS]),
            Field.MAC: ~free[Field.MAC] | (rng.random(count) < 0.7),
        }
        self._set_interfaces(values, has)
        for field, mask in has.items():
            present |= mask.astype(np.uint16) << np.uint16(field)
        columns = {field: values[field][1] for field in Field} | {Field.PROTO: proto, Field.FRAG: frag}
        for field in Field:
            rows["low"][:, field] = np.where(present >> np.uint16(field) & 1, columns[field], 0)
        for field, at in HALF.items():
            rows["high"][:, at] = values[field][0]
        for field, name in RAW.items():
            readable = later & ~cut & (size >= FIELD_BYTES[field])
            rows[name] = np.where(readable, columns[field], 0)
            rows["raw_present"] |= (readable * RAW_BIT[field]).astype(np.uint8)
        tcp = (proto == TCP) & ~later & ~cut & (size >= TCP_OFFSET_BYTES)
        rows["classes"] |= (tcp & (rng.random(count) < 0.03)) * np.uint8(BAD_OFFSET)
        rows["classes"] |= (later & (rng.random(count) < 0.1)) * np.uint8(OFFSET_ONE)
        rows["classes"] |= cut * np.uint8(CUT_SHORT)
        rows["l4_bytes"] = size
        rows["present"] = present
        return rows

    def _set_interfaces(self, values: dict[Field, Wide], has: dict[Field, Bools]) -> None:
        """Take away the interfaces that a packet has not got at the hook, and give it those that it has."""
        count = len(values[Field.IIF][0])
        if self.chain in NO_OIF:
            absent = {Field.IIF: np.zeros(count, bool), Field.OIF: np.ones(count, bool)}
        elif self.chain in NO_IIF:
            absent = {Field.IIF: np.ones(count, bool), Field.OIF: np.zeros(count, bool)}
        elif self.chain == "FORWARD":
            absent = {Field.IIF: np.zeros(count, bool), Field.OIF: np.zeros(count, bool)}
        else:
            which = self._rng.integers(3, size=count)
            empty = {field: (values[field][0] | values[field][1]) == 0 for field in (Field.IIF, Field.OIF)}
            absent = {
                Field.IIF: ((which == 1) | empty[Field.IIF]) & ~empty[Field.OIF],
                Field.OIF: ((which == 2) | empty[Field.OIF]) & (which != 1),
            }
        has[Field.MAC] &= ~absent[Field.IIF]
        for field, without in absent.items():
            high, low = values[field]
            high[without] = low[without] = 0
            nameless = ~without & ((high | low) == 0)
            high[nameless], low[nameless] = INTERFACES[0] >> 64, INTERFACES[0] & MASK


_PORTED = np.array(sorted(PORT_PROTOCOLS), np.uint64)
_ALWAYS = sum(1 << field for field in (Field.SRC, Field.DST, Field.FRAG, Field.IIF, Field.OIF, Field.STATE))


def _callers_first(table: Table, start: str) -> list[str]:
    """Every chain that *start* reaches, each behind all those that enter it."""
    order: list[str] = []
    seen = {start}
    path = [(start, _entered(table, start))]
    while path:
        name, rest = path[-1]
        if not rest:
            order.append(name)
            path.pop()
        elif (entered := rest.pop()) not in seen:
            seen.add(entered)
            path.append((entered, _entered(table, entered)))
    return order[::-1]


def _entered(table: Table, chain: str) -> list[str]:
    targets = [rule.target for rule in table[chain].rules if rule.target is not None]
    return [target.name for target in targets if target.kind in (Kind.JUMP, Kind.GOTO)]

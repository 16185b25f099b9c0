"""Rules that do nothing, found by holding a program against itself with one rule altered.

A rule never matches when marking it is never noticed; it changes nothing when leaving it out
is never noticed.  Each rule found is left out for good before the next is looked at, so all
of them may go together, and of two rules of which either could go only one is named.

Exact, like the prover it leans on: for every packet, as every backend asked for reads it.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

from hitables.core._engine import ffi, lib
from hitables.errors import UnknownName
from hitables.ir.fields import Field, top
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Ends, Kind, Match, Role, Rule
from hitables.ir.semantics import FIELDS_WRITTEN

from ..ir.hooks import hook_box
from . import merged_classes
from .encoding import Lowering
from .exact import WHY, Tell
from .packet_classes import PacketClass
from .question import Question

NEVER, NOTHING, EMPTY, UNREACHED = "never-matches", "changes-nothing", "empty-chain", "unreached-chain"
DROPS = "its matches still drop packets with broken headers"
ASKS = "its matches still ask a memory"
FRONT = 64  # rules in front of one that never matches that are looked at


@dataclass(frozen=True)
class Flaw:
    """kind: NEVER, NOTHING, EMPTY (a jump to a chain without rules) or UNREACHED (a chain).

    line     of the rule, or of the chain's declaration
    covering lines of the rules that keep packets from it, or decide them instead; none: see *why*
    """

    kind: str
    table: str
    chain: str
    line: int
    covering: tuple[int, ...] = ()
    why: str = ""


@dataclass
class Lint:
    """undecided: why some rules were not looked at; "" when all were."""

    flaws: list[Flaw] = field(default_factory=list)
    undecided: str = ""


def lint(program: Program, question: Question, *, tell: Tell) -> Lint:
    """All flaws, by table and line.  UnknownName for a table or chain that does not exist."""
    for name in question.tables:
        if all(table.name != name for table in program):
            raise UnknownName(f"{program.name}: there is no table {name}")
    for name in question.chains:
        if all(name not in table for table in program):
            raise UnknownName(f"{program.name}: there is no chain {name}")
    deadline = None if question.timeout is None else time.monotonic() + question.timeout
    out = Lint()
    for table in program:
        if question.tables and table.name not in question.tables:
            continue
        tell(f"table {table.name}")
        graph = _Graph(table)
        flaws = [flaw for flaw in _of_graph(table, graph) if _asked_for(question, flaw.chain)]
        empty = {flaw.line: flaw for flaw in flaws if flaw.kind == EMPTY}
        try:
            for flaw in _Linter(program, table, graph, question, deadline).flaws(tell):
                if flaw.line not in empty:
                    flaws.append(flaw)
                elif flaw.kind == NEVER:  # which says more: others may do nothing for its going
                    flaws[flaws.index(empty[flaw.line])] = flaw
        except _OutOfBudget as budget:
            out.undecided = f"{budget} in table {table.name}"
        out.flaws += sorted(flaws, key=lambda flaw: (flaw.line, flaw.kind))
    return out


def _asked_for(question: Question, chain: str) -> bool:
    return not question.chains or chain in question.chains


class _OutOfBudget(Exception):
    """The time or the memory ran out."""


# ---- what the call graph shows ----


class _Graph:
    """Which chain enters which.  reaching: by chain, all that reach it, itself among them."""

    def __init__(self, table: Table) -> None:
        callers: dict[str, set[str]] = {chain.name: set() for chain in table.chains}
        for chain in table.chains:
            for rule in chain.rules:
                if rule.target is not None and rule.target.kind in (Kind.JUMP, Kind.GOTO):
                    callers.setdefault(rule.target.name, set()).add(chain.name)
        self.reaching: dict[str, frozenset[str]] = {}
        for chain in table.chains:
            seen, rest = {chain.name}, [chain.name]
            while rest:
                new = callers[rest.pop()] - seen
                seen |= new
                rest += new
            self.reaching[chain.name] = frozenset(seen)
        self.roots = [chain.name for chain in table.chains if chain.policy is not None]
        self._callers = callers

    def callees_first(self) -> list[str]:
        """The chains that packets come to, each behind those that it enters."""
        reached = {name: self._callers[name] for name in self._callers if self.roots_of(name)}
        order = TopologicalSorter(
            {name: callers & reached.keys() for name, callers in reached.items()}
        ).static_order()
        return list(order)[::-1]

    def roots_of(self, chain: str) -> list[str]:
        """The built-in chains from which packets come to *chain*."""
        return [root for root in self.roots if root in self.reaching[chain]]


def _of_graph(table: Table, graph: _Graph) -> Iterator[Flaw]:
    for chain in table.chains:
        if chain.policy is None and not graph.roots_of(chain.name):
            yield Flaw(UNREACHED, table.name, chain.name, chain.line)
        for rule in chain.rules:
            target = rule.target
            enters = target is not None and target.kind in (Kind.JUMP, Kind.GOTO)
            if target is not None and enters and not table[target.name].rules:
                yield Flaw(EMPTY, table.name, chain.name, rule.line, why=target.name)


# ---- what the prover shows ----


_Placed = tuple[Chain, int, Rule]  # a rule, its chain, its index there


@dataclass(frozen=True)
class _Engine:
    """The program twice, entered in one class of packets."""

    lowering: Lowering
    packets: PacketClass
    handle: object


class _Linter:
    def __init__(
        self, program: Program, table: Table, graph: _Graph, question: Question, deadline: float | None
    ) -> None:
        self.table, self.graph, self.question, self.deadline = table, graph, question, deadline
        self.family = program.family
        self.engines = [engine for backend in question.backends for engine in self._engines(backend)]
        # Whole packets first: nearly every rule is seen to matter in the first class.
        self.engines.sort(key=lambda each: (each.packets.malformed, each.packets.later))
        self.written = self._written_fields()
        first = self.engines[0].lowering
        self.base = {}
        number = 0
        for chain in table.chains:
            self.base[chain.name] = number
            number += len(chain.rules)
        self.count = number
        self.numbers = {chain.name: first.chain(0, chain.name) for chain in table.chains}

    def _engines(self, backend: Backend) -> Iterator[_Engine]:
        lowering = Lowering((self.table, self.table), self.family, backend, self.question.verdict_only)
        for packets in lowering.classes():
            made, held = lowering.input()
            handle = lib.prover_new(made, self.question.max_memory or 0)
            del held
            if handle == ffi.NULL:
                raise MemoryError(f"table {self.table.name}")
            engine = _Engine(lowering, packets, ffi.gc(handle, lib.prover_free))
            lib.prover_same(engine.handle)
            class_words, sets = lowering.class_words(packets)
            class_words.may_drop = 0
            _check(lib.prover_enter(engine.handle, class_words, *_words(sets)))
            for root in self.graph.roots:
                _check(self._run(engine, root, {}))
            yield engine

    def _written_fields(self) -> set[Field]:
        """Fields that some rule of the table may change: their tests say nothing of the packet as it came."""
        states = {state for chain in self.table.chains for rule in chain.rules for state in rule.writes}
        return {which for state in states for which in FIELDS_WRITTEN.get(state, ())}

    def _run(self, engine: _Engine, root: str, box: dict[Field, Values]) -> int:
        """Hold the program against itself from *root* on, for packets in *box*."""
        seconds = 0.0 if self.deadline is None else self.deadline - time.monotonic()
        if seconds < 0:
            return int(lib.PROVE_NO_TIME)
        low = engine.lowering
        sets = _words(_box_words(low, box))
        arguments = (
            low.chain(0, root), low.chain(1, root), low.end(0, root), low.end(1, root), *sets, seconds,
        )  # fmt: skip
        # All packets may take seconds, those of a rule take less than a thread.
        run = lib.prover_run if box else merged_classes.interruptible
        status = run(engine.handle, *arguments, 0, 1)
        if status == lib.PROVE_PAIRS:
            status = run(engine.handle, *arguments, 1, 1)
        return int(status)

    def flaws(self, tell: Tell) -> Iterator[Flaw]:
        rules = [
            (chain, at, rule)
            for chain in self.table.chains
            if self.graph.roots_of(chain.name)
            for at, rule in enumerate(chain.rules)
        ]
        live = []
        for chain, at, rule in rules:
            tell(f"table {self.table.name}, line {rule.line}")
            still = self._still_does(chain, at, rule) if self._never(chain, at, rule) else ASKS
            if still == ASKS:
                live.append((chain, at, rule))
                continue
            if _asked_for(self.question, chain.name):
                flaw = self._never_flaw(chain, at, rule)
                yield replace(flaw, why="; ".join(filter(None, (flaw.why, still))))
            if not still:
                self._remove(chain, at)
        yield from self._needless(live, tell)

    def _needless(self, live: list[_Placed], tell: Tell) -> Iterator[Flaw]:
        """Rules of *live* that change nothing, taken out one after the other until none is left.

        From the end of each walk to its start: leaving out a rule can make another needless only if that
        one stands before it, or in a chain that it entered.
        """
        order = {name: place for place, name in enumerate(self.graph.callees_first())}
        while live:
            kept, entered = [], set[str]()
            for chain, at, rule in sorted(live, key=lambda each: (order[each[0].name], -each[1])):
                tell(f"table {self.table.name}, line {rule.line}")
                if not _asked_for(self.question, chain.name) or not _may_go(rule):
                    continue
                if not self._nothing(chain, at, rule):
                    kept.append((chain, at, rule))
                    continue
                self._remove(chain, at)
                if rule.target is not None and rule.target.enters:
                    entered.add(rule.target.name)
                yield Flaw(NOTHING, self.table.name, chain.name, rule.line, self._deciders(chain, at, rule))
            live = [each for each in kept if entered & self.graph.reaching[each[0].name]]

    def _numbers(self, chain: Chain, at: int) -> tuple[int, int]:
        number = self.base[chain.name] + at
        return number, number + self.count

    def _remove(self, chain: Chain, at: int) -> None:
        for engine in self.engines:
            _check(lib.prover_alter(engine.handle, *self._numbers(chain, at), lib.PROVE_REMOVE, ffi.NULL, 0))

    def _still_does(self, chain: Chain, at: int, rule: Rule) -> str:
        """What a rule that never matches does all the same: its matches may drop, or ask a memory."""
        packets = self._noticed(chain, at, lib.PROVE_LEAVE_OUT, _Boxes(self, _first_tests(rule.matches)))
        return "" if packets is None else DROPS if packets.malformed else ASKS

    def _noticed(self, chain: Chain, at: int, alteration: int, boxes: _Boxes) -> PacketClass | None:
        """The first class of packets for some of which altering a rule changes anything."""
        touched = array("I", (self.numbers[name] for name in self.graph.reaching[chain.name]))
        for engine in self.engines:
            for root in self.graph.roots_of(chain.name):
                box = boxes.of(engine, root)
                if box is None:
                    continue
                numbers = self._numbers(chain, at)
                _check(lib.prover_alter(engine.handle, *numbers, alteration, *_words(touched)))
                status = self._run(engine, root, box)
                lib.prover_restore(engine.handle)
                if status == lib.PROVE_DIFFER:
                    return engine.packets
                _check(status)
        return None

    def _never(self, chain: Chain, at: int, rule: Rule) -> bool:
        return self._noticed(chain, at, lib.PROVE_MARK, _Boxes(self, rule.matches)) is None

    def _nothing(self, chain: Chain, at: int, rule: Rule) -> bool:
        boxes = _Boxes(self, _first_tests(rule.matches))
        return self._noticed(chain, at, lib.PROVE_LEAVE_OUT, boxes) is None

    def _never_flaw(self, chain: Chain, at: int, rule: Rule) -> Flaw:
        """With the rules of its chain that stand in the way."""
        own = self.engines[0]
        boxes = _Boxes(self, rule.matches)
        possible = [
            (engine, box)
            for engine in self.engines
            for box in [boxes.of(engine, chain.name if chain.policy is not None else "")]
            if box is not None
        ]
        if not possible:
            return Flaw(NEVER, self.table.name, chain.name, rule.line, why="its matches exclude each other")
        own, box = possible[0]
        front = ffi.new("uint32_t[]", FRONT)
        number, _ = self._numbers(chain, at)
        sets = _box_words(own.lowering, box)
        count = lib.prover_front(own.handle, self.numbers[chain.name], number, *_words(sets), front, FRONT)
        inside = [chain.rules[front[i] - self.base[chain.name]] for i in range(count)]
        ending = [each for each in inside if _may_go(each)]
        whole = [each for each in ending[-1:] if self._covers(each, box, own)]
        chosen = whole or ending
        why = "" if chosen else f"no packet that comes to {chain.name} can match it"
        return Flaw(NEVER, self.table.name, chain.name, rule.line, tuple(each.line for each in chosen), why)

    def _covers(self, rule: Rule, box: dict[Field, Values], engine: _Engine) -> bool:
        full = {which: Values(((0, top(which, self.family)),)) for which in Field}
        tests = [(match, test) for match in rule.matches for test in match.tests]
        if any(match.role is not Role.SPACE or match.either for match in rule.matches):
            return False
        return all(test.values.covers(box.get(test.field, full[test.field])) for _, test in tests)

    def _deciders(self, chain: Chain, at: int, rule: Rule) -> tuple[int, ...]:
        """Lines of the rules behind it in its chain that decide its packets instead."""
        boxes = _Boxes(self, rule.matches)
        for engine in self.engines:
            box = boxes.of(engine, chain.name if chain.policy is not None else "")
            if box is None:
                continue
            front = ffi.new("uint32_t[]", FRONT)
            sets = _box_words(engine.lowering, box)
            number = self.numbers[chain.name]
            count = lib.prover_front(engine.handle, number, 0xFFFFFFFF, *_words(sets), front, FRONT)
            behind = [front[i] - self.base[chain.name] for i in range(count)]
            after = (chain.rules[index] for index in behind if index > at)
            return tuple(each.line for each in after if _may_go(each))
        return ()


def _may_go(rule: Rule) -> bool:
    """Whether leaving it out could change nothing: it neither counts nor has an effect."""
    target = rule.target
    return target is not None and (target.kind is not Kind.VERDICT or target.ends is Ends.SURELY)


def _first_tests(matches: Sequence[Match]) -> list[Match]:
    """The matches up to the first that may do more than hold or not, but for -p (`_Boxes`)."""
    out = []
    for match in matches:
        if match.role is not Role.SPACE or match.needs or match.option:
            break
        out.append(match)
    return out


class _Boxes:
    """Where a packet must lie, in each class, to match all of *matches* or be dropped by a -p of them."""

    def __init__(self, linter: _Linter, matches: Sequence[Match]) -> None:
        self.linter = linter
        self.tests: dict[Field, Values] = {}
        self.before_protocol: dict[Field, Values] | None = None
        for match in matches:
            if match.is_protocol and self.before_protocol is None:
                self.before_protocol = dict(self.tests)
            if match.either:
                continue
            for test in match.tests:
                if test.field not in linter.written and test.field is not Field.MAC:
                    known = self.tests.get(test.field)
                    self.tests[test.field] = test.values if known is None else known.intersect(test.values)

    def of(self, engine: _Engine, root: str) -> dict[Field, Values] | None:
        """The box of packets of the class that come to *root*; None: there are none."""
        packets = engine.packets
        box = dict(hook_box(root, self.linter.family))
        if packets.protocols is not None:
            box[Field.PROTO] = packets.protocols
        box[Field.FRAG] = Values(((2, 2),)) if packets.later else Values(((0, 1),))
        tests = self.tests
        if packets.cut_short and self.before_protocol is not None:
            tests = self.before_protocol
        for which, values in tests.items():
            if which in packets.present:
                box[which] = values.intersect(box[which]) if which in box else values
                if not box[which]:
                    return None
            elif which not in packets.native:
                return None
        return box


def _box_words(lowering: Lowering, box: dict[Field, Values]) -> array[int]:
    return lowering.set_words(box)


def _words(words: array[int]) -> tuple[object, int]:
    return ffi.from_buffer("uint32_t[]", words), len(words)


def _check(status: int) -> None:
    if status not in (lib.PROVE_EQUAL, lib.PROVE_DIFFER):
        raise _OutOfBudget(WHY[status])

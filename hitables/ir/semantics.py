"""The meaning of a program: program, packet, backend -> verdict, effects, rules read.

Slow and obvious on purpose; all faster code is tested against it.  It follows the kernel's ip_tables.c,
ip6_tables.c and nf_tables core; docs/semantics.md explains them in the same order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from .fact import Assignment
from .fields import BRIDGE_PORTS, INTERFACES, Field
from .packet import Backend, Outcome, Packet
from .program import Chain
from .rule import Ends, Kind, Match, Metadata, Role, Rule

# The header fields that a write to some state may change.
FIELDS_WRITTEN: dict[Metadata, frozenset[Field]] = {
    Metadata.CT: frozenset({Field.STATE}),
    Metadata.ADDRESSES: frozenset({Field.SRC, Field.DST}),
    Metadata.PAYLOAD: frozenset({Field.SPORT, Field.DPORT, Field.ICMP, Field.FLAGS}),
    Metadata.META: frozenset(INTERFACES),
}

# The numbers of a packet (fact.py) that trees cut bit by bit: the states that a test of each depends on.
CUT_NUMBERS: dict[str, frozenset[Metadata]] = {
    "mark": frozenset({Metadata.MARK}),
    "connmark": frozenset({Metadata.CT, Metadata.CONNMARK}),
    "tos": frozenset({Metadata.TOS}),
}

DROP = "DROP"
RETURNS = "returns"


def evaluation(key: str, outcome: Outcome | None = None) -> str:
    """The effect of a match with memory or chance that is evaluated, with *outcome* if that is told."""
    return f"evaluates {key}" + ("" if outcome is None else f": {outcome.name.lower()}")


@dataclass(frozen=True, slots=True)
class Step:
    """One rule that was read: its chain, its index there from 0, and the outcome of its matches."""

    chain: str
    index: int
    rule: Rule
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Walk:
    """A packet's path through one chain.

    verdict  key of the target that ended it, the policy, or "returns" (a user chain)
    effects  in order: non-final targets applied, rules without target that matched, evaluations of matches
             with memory or chance
    steps    every rule read, in order
    open     keys of matches whose truth is unknown for the packet; the walk took them as false
    asked    matches with memory or chance, in order: the key, and what it answered
    """

    verdict: str
    effects: tuple[str, ...]
    steps: tuple[Step, ...]
    open: frozenset[str]
    asked: tuple[tuple[str, Outcome], ...] = ()


class Chains(Protocol):
    """Chains by name, as a `Table` has them."""

    def __getitem__(self, name: str, /) -> Chain: ...


class _Walker:
    def __init__(self, table: Chains, packet: Packet, backend: Backend) -> None:
        self.table, self.packet, self.backend = table, packet, backend
        self.effects: list[str] = []
        self.steps: list[Step] = []
        self.open: set[str] = set()
        self.asked: list[tuple[str, Outcome]] = []
        self.writes: Counter[Metadata] = Counter()
        self.written: list[tuple[frozenset[Metadata], Assignment | None]] = []
        self.events = 0

    def value(self, field: Field, native: bool) -> int | None:
        """The field's current value, read natively or through xtables; None: the packet lacks it."""
        if native and self.packet.is_later_fragment and field in (Field.SPORT, Field.DPORT, Field.FLAGS):
            return self.packet.raw.get(field)
        value = self.packet.values.get(field, 0 if field in BRIDGE_PORTS else None)
        written = sum(self.writes[state] for state, fields in FIELDS_WRITTEN.items() if field in fields)
        if value is not None and written:
            after = self.packet.rewritten(field, written)
            return value if after is None else after
        return value

    def tests_hold(self, match: Match, native: bool) -> bool:
        truths = []
        for test in match.tests:
            value = self.value(test.field, native)
            truths.append(value is not None and value in test.values)
        return any(truths) if match.either else all(truths)

    def evaluate(self, match: Match) -> Outcome:
        packet, native = self.packet, match.native and self.backend is Backend.NFT
        legacy = self.backend is Backend.LEGACY
        if packet.cut_short and legacy and match.is_protocol:
            return Outcome.DROPPED
        if match.needs and not native:
            if packet.is_later_fragment:
                return Outcome.DROPPED if match.strict and packet.offset_one else Outcome.NO
            if packet.l4_bytes < match.needs:
                return Outcome.DROPPED
        if not self.tests_hold(match, native):
            return Outcome.NO
        if match.option and packet.bad_offset:
            return Outcome.DROPPED
        if match.role is Role.SPACE:
            return Outcome.YES
        if match.role is Role.CONSTANT:
            truth = self.truth(match)
            if truth is None:
                self.open.add(match.key)
            return Outcome.YES if truth else Outcome.NO
        outcome = packet.outcome(match, self.events)
        self.events += 1
        self.asked.append((match.key, outcome))
        self.effects.append(evaluation(match.key, outcome))
        self.write(match.writes, None)
        return outcome

    def write(self, states: frozenset[Metadata], makes: Assignment | None) -> None:
        self.writes.update(states)
        self.written.append((states, makes))

    def truth(self, match: Match) -> bool | None:
        """Whether a CONSTANT match holds; None: the packet does not tell."""
        fact, packet = match.fact, self.packet
        epoch = now = sum(self.writes[state] for state in match.reads)
        made = Assignment(fact.attribute, -1, 0)
        for states, last in reversed(self.written):
            if states.isdisjoint(match.reads):
                continue
            if last is None or last.attribute != fact.attribute:
                break
            made = Assignment(fact.attribute, last.keep & made.keep, last.flip & made.keep ^ made.flip)
            epoch -= len(states & match.reads)
        if epoch == now:
            return packet.fact(match, now)
        if not made.keep & fact.mask:
            return fact.holds(made.flip)
        number = packet.number(fact.attribute, epoch)
        return packet.fact(match, now) if number is None else fact.holds(made.of(number))

    def read(self, rule: Rule) -> Outcome:
        for match in rule.matches:
            outcome = self.evaluate(match)
            if outcome is not Outcome.YES:
                return outcome
        return Outcome.YES

    def walk(self, chain: Chain) -> str:
        """Run *chain*, which must be free of loops; returns the verdict."""
        start = chain
        callers: list[tuple[Chain, int]] = []
        at = 0
        while True:
            if at == len(chain.rules):
                if not callers:
                    return start.policy or RETURNS
                chain, at = callers.pop()
                continue
            rule = chain.rules[at]
            outcome = self.read(rule)
            self.steps.append(Step(chain.name, at, rule, outcome))
            at += 1
            if outcome is Outcome.DROPPED:
                return DROP
            if outcome is Outcome.NO:
                continue
            target = rule.target
            if target is None:
                self.effects.append("counts")
            elif target.kind is Kind.JUMP:
                callers.append((chain, at))
                chain, at = self.table[target.name], 0
            elif target.kind is Kind.GOTO:
                chain, at = self.table[target.name], 0
            elif target.kind is Kind.RETURN:
                at = len(chain.rules)
            elif target.ends is Ends.SURELY:
                return target.key
            else:
                self.effects.append(f"fires {target.key}")
                self.write(target.writes, target.makes)


def run(table: Chains, chain: str, packet: Packet, backend: Backend) -> Walk:
    """Send *packet* into *chain* of *table* as *backend* would; KeyError for an unknown chain.

    A target that may or may not end the packet's path (Ends.MAYBE) does not end it here.  It is one of the
    effects, so two programs that apply it alike behave alike.
    """
    walker = _Walker(table, packet, backend)
    verdict = walker.walk(table[chain])
    return Walk(
        verdict, tuple(walker.effects), tuple(walker.steps), frozenset(walker.open), tuple(walker.asked)
    )

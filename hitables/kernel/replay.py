"""A difference between two programs, shown by the kernel: the witness goes through both.

    result = replay(before, after, difference)

The packet is changed as little as possible so that it can be sent (interfaces that exist, a state that a
connection can have).  If `ir.semantics` still finds a difference, the packet is sent through the chain of
the difference, once with each rule set; the results are whether it passed and which rules counted it.

confirmed       the kernel executed both programs as ir.semantics does, and the two executions differ
not realisable  no scratch namespace can bring the packet to the chain, or the kernel gave other answers to
                questions that only it can answer (chance, time, memory); the reason names them
contradicted    no answers to the unknown questions explain the kernel's result: an alarm
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain as joined
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ..emit.text import rule_text, write
from ..errors import LiveError
from ..ir.answers import Answers
from ..ir.choices import Malformed
from ..ir.fields import BRIDGE_PORTS, STATES, Field, interface_name, interface_number
from ..ir.headers import is_malformed
from ..ir.packet import Backend, Outcome, Packet
from ..ir.packet_text import show_packet
from ..ir.program import BUILT_IN, Program, Table
from ..ir.rule import Ends, Match
from ..ir.semantics import Walk
from ..simulate.batch import NOT_GIVEN, PacketBatch
from ..verify.question import KERNEL_POLICY, Difference, differs
from .agreement import (
    NEW,
    alone,
    counted,
    follows_connections,
    passes,
    predicates_of,
    written_fields,
)
from .craft import Trim
from .experiment import PacketResult, Trial, furnish, prepare, send_trials, why_not
from .load_save import clear, ip_sets_named, load, make_ip_sets, save
from .make_sendable import interfaces_of, make_sendable, misread, open_connections
from .match_truth import Traits, address_text, arrange, options, truth
from .namespace import Namespace
from .outcomes import Execution, FixedAnswers, executions
from .stateful_truth import answer, asked
from .testbed import local_address, valid_name

T = TypeVar("T")

TRIES = 64  # if chance decides: both answers of an even chance fit one time in four
MAX_ROUNDS = 50  # of one packet, to spend a limit
_ALL = "before", "after"
# By attribute: the property of a packet to send; those that it surely has then (not: without a conntrack
# entry, or a socket).
_ARRANGED = {
    "mark": "mark",
    "connmark": "connection_mark",
    "tos": "tos",
    "ttl": "ttl",
    "hl": "ttl",
    "uid": "uid",
    "gid": "gid",
}
_SURE = frozenset({"mark", "tos", "ttl", "hl"})
_SPARE = "hit0"  # an interface that no rule names
_SYN, _ACK = 2, 16


class ReplayResult(enum.Enum):
    """The result of a replay."""

    CONFIRMED = "confirmed"
    NOT_REALISABLE = "not realisable"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Observation:
    """What one kernel did under one rule set: the packet's result, and the rules that counted it."""

    result: PacketResult
    counts: tuple[int, ...]  # rule by rule of the table
    rules: tuple[str, ...]  # those that counted, with their lines

    def describe(self) -> str:
        passed = "passes" if self.result.passed else "does not pass"
        return "\n".join([passed, *(f"  counted by {rule}" for rule in self.rules)])


@dataclass(frozen=True, slots=True)
class BackendReplay:
    """The replay in one backend, with the observations *before* and *after* if the packet was sent.

    *by_chance*: the packet may have been asked a question that chance answers, otherwise the next time.
    """

    backend: Backend
    finding: ReplayResult
    reason: str
    before: Observation | None = None
    after: Observation | None = None
    by_chance: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """The replay of a difference.  *packet*: as it was sent, in words; "" if none was sent."""

    finding: ReplayResult
    reason: str
    packet: str = ""
    shown: tuple[BackendReplay, ...] = ()

    def describe(self) -> str:
        """The kernel's two results in each backend, in words."""
        lines = [f"kernel: {self.finding.value}: {self.reason}"]
        if self.packet:
            lines.append(f"sent: {self.packet}")
        for shown in self.shown:
            lines.append(f"{shown.backend.value}: {shown.finding.value}: {shown.reason}")
            for name, observation in zip(_ALL, (shown.before, shown.after), strict=True):
                if observation is not None:
                    lines += [f"{name}: {observation.describe()}"]
        return "\n".join(lines)


def replay(
    before: Program,
    after: Program,
    difference: Difference,
    *,
    malformed: Malformed = Malformed.STRICTER,
    verdict_only: bool = False,
    backends: Iterable[Backend] = tuple(Backend),
) -> Replay:
    """Send the witness of *difference* through both programs, in each of *backends* and the witness's own.

    In a backend in which ir.semantics sees no difference, the kernel must show none either.
    LiveError if no namespace can be made, or a tool is missing.
    """
    packet, backend = difference.packet, difference.backend
    if packet is None or backend is None:
        return Replay(ReplayResult.NOT_REALISABLE, f"no packet shows it: {difference.reason}")
    chain, table = difference.chain, difference.table
    if any(
        walk is not None and walk.verdict == KERNEL_POLICY for walk in (difference.before, difference.after)
    ):
        reason = "the policy - is the one that the kernel has, and a scratch namespace has its own"
        return Replay(ReplayResult.NOT_REALISABLE, reason)
    if chain not in BUILT_IN[table]:
        return Replay(
            ReplayResult.NOT_REALISABLE, f"{chain} is a user chain, which no packet enters by itself"
        )
    programs = alone(before, table, chain), alone(after, table, chain)

    def tell_apart(was: Walk, now: Walk, packet: Packet) -> bool:
        may_drop = is_malformed(packet) and malformed is Malformed.STRICTER
        return differs(was, now, may_drop, verdict_only) is not None

    tried = tuple(dict.fromkeys([backend, *backends]))
    first: Replay | None = None
    for variant in _variants(packet):
        try:
            case = _Case(programs, table, chain, variant, difference.answers or Answers(), tell_apart)
            result = case.replay(tried)
        except _Unrealisable as error:
            result = Replay(ReplayResult.NOT_REALISABLE, str(error))
        if result.finding is not ReplayResult.NOT_REALISABLE:
            return result
        first = first or result
    assert first is not None
    return first


def _variants(packet: Packet) -> Iterator[Packet]:
    """The packet; then more ordinary packets like it, which may tell the programs apart as well."""
    seen: list[Mapping[Field, int]] = []

    def fresh(changes: Mapping[Field, int]) -> Iterator[Packet]:
        values = {**packet.values, **changes}
        if values not in seen:
            seen.append(values)
            yield replace(packet, values=values)

    values = packet.values
    # The number after that of "lo" is no name.  It represents any other name, or a longer one.
    nameless = [
        which
        for which in (Field.IIF, Field.OIF)
        if values[which] and not valid_name(interface_name(values[which]))
    ]
    other = {which: interface_number(_SPARE) for which in nameless}
    longer = {which: interface_number(_longer(interface_name(values[which]))) for which in nameless}
    yield from fresh({})
    yield from fresh(other)
    yield from fresh(longer)
    for state in (STATES[values[Field.STATE]], "NEW", "ESTABLISHED", "INVALID"):
        flags = {Field.FLAGS: _SYN if state == "NEW" else _ACK} if Field.FLAGS in values else {}
        for names in ({}, other, longer):
            yield from fresh({**names, **flags, Field.STATE: STATES.index(state)})


def _longer(name: str) -> str:
    """A longer name with the same beginning as *name*."""
    longer = name.split("\0")[0][:14] + "0"
    return longer if valid_name(longer) else _SPARE


class _Unrealisable(Exception):
    """The reason why the packet cannot be sent."""


class _Case:
    """A packet that can be sent, and the two programs to send it through."""

    def __init__(
        self,
        programs: tuple[Program, Program],
        table: str,
        chain: str,
        packet: Packet,
        preferred: Answers,
        tell_apart: Callable[[Walk, Walk, Packet], bool],
    ) -> None:
        self.programs, self.name, self.chain = programs, table, chain
        self.preferred, self.tell_apart, self.witness = preferred, tell_apart, packet
        self.tables = programs[0].table(table), programs[1].table(table)
        self.matches = {match.key: match for each in self.tables for match in _matches(each)}
        self.batch, self.interfaces = self._sendable(packet)
        own = frozenset(local_address(packet.family, at) for at in range(len(self.interfaces)))
        self.traits = Traits(self.batch, chain, own)
        self._wish()
        misread(self.batch, self.traits.tos)
        self.packet = self.batch.packet(0)
        refused = why_not(self.packet, chain, self.interfaces)
        if refused:
            raise _Unrealisable(f"no such packet reaches {chain}: {refused}")

    def _sendable(self, packet: Packet) -> tuple[PacketBatch, list[str]]:
        nat = self.name == "nat"
        if nat and is_malformed(packet):
            raise _Unrealisable("a broken header opens no connection, and nat sees no other packets")
        batch = PacketBatch.of(packet.family, [packet])
        batch = make_sendable(batch, self.chain, interfaces_of([batch]), fragments=not nat)
        if nat:
            open_connections(batch)
        values = batch.packet(0).values
        if any(packet.values.get(port) for port in BRIDGE_PORTS):
            raise _Unrealisable("it crosses a bridge, and there is none here")
        names = {interface_name(values[which]) for which in (Field.IIF, Field.OIF) if values[which]}
        return batch, sorted(names)

    def _wish(self) -> None:
        """Arrange that predicates hold or fail as in the witness, as far as possible."""
        asked = [
            (self.matches[key], holds)
            for (key, epoch), holds in self.preferred.facts.items()
            if epoch == 0 and key in self.matches
        ]
        # Predicates that are to hold come last, so that no other undoes them.
        for match, holds in sorted(asked, key=lambda each: each[1]):
            if truth(self.traits, match)[0] != holds:
                arrange(self.traits, match if holds else _inverted(match), np.array([True]))
        for (attribute, epoch), number in self.preferred.numbers.items():
            if epoch == 0 and attribute in _ARRANGED and number <= 0xFFFFFFFF:
                getattr(self.traits, _ARRANGED[attribute])[0] = number

    def replay(self, backends: Iterable[Backend]) -> Replay:
        """Send the packet in each of *backends*; the first is the witness's own."""
        with Namespace() as namespace:
            self._furnish(namespace)
            replays = tuple(self._ask(namespace, each) for each in backends)
        alarm = [each for each in replays if each.finding is ReplayResult.CONTRADICTED]
        decisive = alarm[0] if alarm else replays[0]
        sent = show_packet(self.packet, self.name, self.chain)
        return Replay(decisive.finding, f"{decisive.backend.value}: {decisive.reason}", sent, replays)

    def _furnish(self, namespace: Namespace) -> None:
        furnish(namespace, self.programs[0].family, self.interfaces)
        traits = self.traits
        one = Trial(
            self.packet,
            int(traits.mark[0]),
            int(traits.connection_mark[0]),
            (int(traits.uid[0]), int(traits.gid[0])),
            Trim(tos=int(traits.tos[0]), ttl=int(traits.ttl[0])),
        )
        follows = any(map(follows_connections, self.tables))
        prepare(namespace, self.name, self.chain, [one], follows)

    def _ask(self, namespace: Namespace, backend: Backend) -> BackendReplay:
        """The replay under *backend*, repeated while chance decides."""
        result = self._try(namespace, backend)
        for _ in range(TRIES):
            if result.finding is not ReplayResult.NOT_REALISABLE or not result.by_chance:
                break
            result = self._try(namespace, backend)
        return result

    def _try(self, namespace: Namespace, backend: Backend) -> BackendReplay:
        packet = self.packet
        if not any(self._differing(self._executions(packet, backend))):
            reason = f"what can be sent ({show_packet(packet)}) is treated alike: {self._why_alike()}"
            return BackendReplay(backend, ReplayResult.NOT_REALISABLE, reason)
        try:
            observations = tuple(self._send(namespace, program, backend) for program in self.programs)
        except LiveError as error:
            return BackendReplay(
                backend, ReplayResult.NOT_REALISABLE, f"the kernel does not take a rule set: {error}"
            )
        was, now = observations[0], observations[1]
        possible = self._executions(self._seen(was.result.state), backend)
        missing = self._missing(observations)
        if missing:
            dice = self._throws_dice(joined.from_iterable(possible))
            return BackendReplay(backend, ReplayResult.NOT_REALISABLE, missing, was, now, dice)
        fitting = [
            [execution for execution in side if _explains(execution.walk, one, table)]
            for side, one, table in zip(possible, observations, self.tables, strict=True)
        ]
        for name, side, all_ways in zip(_ALL, fitting, possible, strict=True):
            if side:
                continue
            uncertain = next(filter(None, (_may_end(execution.walk) for execution in all_ways)), "")
            if uncertain:
                reason = f"the semantics leaves open whether {uncertain} ends the traversal"
                dice = self._throws_dice(all_ways)
                return BackendReplay(backend, ReplayResult.NOT_REALISABLE, reason, was, now, dice)
            says = f"{name}: the kernel did not do what the program means ({all_ways[0].walk.verdict})"
            return BackendReplay(backend, ReplayResult.CONTRADICTED, says, was, now)
        if any(self._differing((fitting[0], fitting[1]))):
            by = "passing" if was.result.passed != now.result.passed else "the rules that count it"
            return BackendReplay(backend, ReplayResult.CONFIRMED, f"the two answers differ in {by}", was, now)
        unsure = {question for side in fitting for execution in side for question in execution.guessed}
        if unsure:
            named = ", ".join(sorted({f"{kind} {key!r}" for kind, key, _ in unsure}))
            reason = f"the kernel's answers differ from the witness's: {named}"
        else:
            reason = f"in state {STATES[was.result.state]}, which the kernel gives it, both treat it alike"
        dice = self._throws_dice(joined.from_iterable(fitting))
        return BackendReplay(backend, ReplayResult.NOT_REALISABLE, reason, was, now, dice)

    def _executions(self, packet: Packet, backend: Backend) -> tuple[list[Execution], list[Execution]]:
        fixed = [self._fixed(packet, table) for table in self.tables]
        executions_ = [
            list(executions(table, self.chain, packet, backend, answers, self.preferred))
            for table, answers in zip(self.tables, fixed, strict=True)
        ]
        return executions_[0], executions_[1]

    def _differing(self, both: tuple[list[Execution], list[Execution]]) -> Iterator[bool]:
        return (
            True
            for was in both[0]
            for now in both[1]
            if was.is_compatible(now) and self.tell_apart(was.walk, now.walk, self.packet)
        )

    def _fixed(self, packet: Packet, table: Table) -> FixedAnswers:
        traits = copy.copy(self.traits)
        traits.batch = PacketBatch.of(packet.family, [packet])
        facts = {key: truth(traits, match) for key, match in predicates_of(table).items()}
        sent = 1 + self._rounds_before()
        others = {match: sent * times for match, times in asked(table).items()}
        outcomes = {
            match.key: answer(match, traits.batch, others)
            for match in others
            if not (match.name == "recent" and self._remembered(match))
        }
        numbers = {name: int(getattr(traits, each)[0]) for name, each in _ARRANGED.items() if name in _SURE}
        return FixedAnswers(
            _certain(facts, bool), _certain(outcomes, Outcome), written_fields(table), numbers
        )

    def _seen(self, state: int) -> Packet:
        return replace(self.packet, values={**self.packet.values, Field.STATE: state})

    def _missing(self, observations: tuple[Observation, ...]) -> str:
        """Why the kernel did not evaluate the chain for the packet; "" if it did."""
        for name, one in zip(_ALL, observations, strict=True):
            if not one.result.arrived:
                return f"{name}: the packet did not reach {self.name} {self.chain}"
            if self.name == "nat" and one.result.state != NEW:
                return f"{name}: nat sees only NEW packets, and this one was {STATES[one.result.state]}"
        if observations[0].result.state != observations[1].result.state:
            states = " and ".join(STATES[one.result.state] for one in observations)
            return f"the kernel followed connections differently: states {states}"
        return ""

    def _why_alike(self) -> str:
        """The properties of the witness that could not be arranged."""
        fixed = self._fixed(self.packet, self.tables[0])
        other = self._fixed(self.packet, self.tables[1])
        lacking = []
        for (key, epoch), holds in self.preferred.facts.items():
            fact = fixed.facts.get(key, other.facts.get(key))
            if epoch == 0 and fact is not None and fact is not holds:
                lacking.append(f"{key!r} cannot be made to {'hold' if holds else 'fail'}")
        for (key, _), outcome in self.preferred.outcomes.items():
            actual = fixed.outcomes.get(key, other.outcomes.get(key))
            if actual is not None and actual is not outcome:
                lacking.append(f"{key!r} answers {actual.name.lower()}, not {outcome.name.lower()}")
        for (which, _), value in self.preferred.rewrites.items():
            if which in fixed.written and fixed.written[which] != value:
                lacking.append(f"{which.name} becomes {STATES[fixed.written[which]]} where it is written")
        was, now = self.witness.values, self.packet.values
        lacking += [
            f"its {which.name} could not be kept" for which in Field if was.get(which) != now.get(which)
        ]
        return "; ".join(lacking) or "its answers cannot be arranged"

    # Loading, sending, counting.

    def _send(self, namespace: Namespace, program: Program, backend: Backend) -> Observation:
        family, text = program.family, write(program)
        types = ip_sets_named(text)
        make_ip_sets(types, family, namespace, self.traits.entries(types))
        try:
            load(text, family, backend, namespace)
            for name, entry, times in self._memories(program.table(self.name)):
                namespace.call(_remember, name, entry, times)
            table = program.table(self.name)
            for _ in range(self._rounds_before()):
                send_trials(namespace)
            before = counted(save(family, backend, namespace, counters=True), table)
            (result,) = send_trials(namespace)
            after = counted(save(family, backend, namespace, counters=True), table)
        finally:
            clear(family, backend, namespace)
        counts = (after - before).tolist()
        rules = [(chain, at) for chain in table.chains for at in range(len(chain.rules))]
        moved = [
            f"line {chain.rules[at].line}: {rule_text(chain.rules[at], chain.name)}"
            for (chain, at), count in zip(rules, counts, strict=True)
            if count
        ]
        return Observation(result, tuple(counts), tuple(moved))

    def _rounds_before(self) -> int:
        """How often to send the packet before the observation, to spend a limit that must fail."""
        refused = {key for (key, _), outcome in self.preferred.outcomes.items() if outcome is Outcome.NO}
        spent = [0]
        for key in refused & self.matches.keys():
            match = self.matches[key]
            if match.name == "limit":
                values_of = {name: values for name, _, values in options(match)}
                spent.append(int(values_of.get("--limit-burst", ("5",))[0]))
        return min(max(spent), MAX_ROUNDS)

    def _throws_dice(self, ways: Iterable[Execution]) -> bool:
        """Whether chance answers a question of any of *ways*."""
        chancy = {key for key, match in self.matches.items() if match.name == "statistic"}
        return any(key in chancy for execution in ways for _, key, _ in execution.guessed)

    def _remembered(self, match: Match) -> bool:
        """Whether the witness needs an address in a list of `recent` beforehand."""
        held_keys = {key for (key, _), outcome in self.preferred.outcomes.items() if outcome is Outcome.YES}
        return match.key in held_keys and not any(name == "--set" for name, *_ in options(match))

    def _memories(self, table: Table) -> Iterator[tuple[str, str, int]]:
        """Lists of `recent` that need an address beforehand, and how often it was seen."""
        for match in dict.fromkeys(_matches(table)):
            if match.name == "recent" and self._remembered(match):
                values_of = {name: values for name, _, values in options(match)}
                side = Field.DST if "--rdest" in values_of else Field.SRC
                times = int(values_of.get("--hitcount", ("1",))[0])
                address = address_text(self.packet.family, self.packet.values[side])
                yield values_of.get("--name", ("DEFAULT",))[0], address, times


def _matches(table: Table) -> Iterator[Match]:
    return joined.from_iterable(rule.matches for chain in table.chains for rule in chain.rules)


def _inverted(match: Match) -> Match:
    """The match with its first option inverted."""
    words = match.words[1:] if match.words[:1] == ("!",) else ("!", *match.words)
    return match._replace(words=words)


def _certain(truths: Mapping[str, npt.NDArray[np.uint8]], kind: Callable[[int], T]) -> dict[str, T]:
    return {key: kind(int(one[0])) for key, one in truths.items() if one[0] != NOT_GIVEN}


def _explains(walk: Walk, observation: Observation, table: Table) -> bool:
    """Whether the walk explains the observation: the same verdict and the same counts of rules."""
    at, places = 0, {}
    for chain in table.chains:
        places[chain.name] = at
        at += len(chain.rules)
    counts = [0] * at
    for step in walk.steps:
        counts[places[step.chain] + step.index] += step.outcome is Outcome.YES
    return passes(walk.verdict) == observation.result.passed and tuple(counts) == observation.counts


def _may_end(walk: Walk) -> str:
    """A target of this walk that may end it, in words."""
    for step in walk.steps:
        target = step.rule.target
        if step.outcome is Outcome.YES and target is not None and target.ends is Ends.MAYBE:
            return target.key
    return ""


def _remember(name: str, entry: str, times: int) -> None:
    """In the helper process: add an address to a list of `recent`."""
    for _ in range(times):
        Path(f"/proc/net/xt_recent/{name}").write_text(f"+{entry}\n")

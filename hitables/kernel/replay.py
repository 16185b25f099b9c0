"""A difference between two programs, shown by the kernel: the witness goes through both.

    Replay = replay(before, after, difference)

The packet is changed as little as it takes to send it (interfaces that exist, a state that a
connection can have); what then tells the programs apart by ir.semantics is sent, through the one
chain alone, once with each rule set, and the kernel says whether it passed and which rules counted.

confirmed      the kernel went through both as ir.semantics says, and these two ways differ
not realisable no scratch namespace can bring the packet there, or the kernel answered otherwise
               what only it can answer (chance, time, memory); the reason says which
contradicted   no answers to what is not known explain what the kernel did: an alarm
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
from ..ir.choices import Malformed
from ..ir.fields import STATES, Field, interface_name, interface_number
from ..ir.headers import is_malformed
from ..ir.packet import Backend, Outcome, Packet
from ..ir.packet_text import Answers, show_packet
from ..ir.program import BUILT_IN, Program, Table
from ..ir.rule import Ends, Match, Role
from ..ir.semantics import Walk
from ..simulate.batch import NOT_GIVEN, PacketBatch
from ..verify.question import Difference, differs
from .agreement import NEW, alone, counted, facts_of, follows_connections, passes, written_fields
from .craft import Trim
from .experiment import Fate, Trial, fire, furnish, prepare, why_not
from .load_save import clear, ip_sets_named, load, make_ip_sets, save
from .make_sendable import interfaces_of, misread, open_connections, realise
from .match_truth import Traits, address_text, options, truth, wish
from .namespace import Namespace
from .outcomes import Known, Way, ways
from .stateful_truth import answer
from .testbed import local_address, valid_name

T = TypeVar("T")

TRIES = 64  # while the kernel throws dice: both answers of an even chance fit one time in four
MOST_ROUNDS = 50  # of the same packet, to spend a limit
_ALL = "before", "after"
_SPARE = "hit0"  # an interface that no rule names
_SYN, _ACK = 2, 16


class Finding(enum.Enum):
    """What a replay came to."""

    CONFIRMED = "confirmed"
    NOT_REALISABLE = "not realisable"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Told:
    """What one kernel said of one rule set: the packet's fate, and the rules that counted it."""

    fate: Fate
    counts: tuple[int, ...]  # rule by rule of the table
    rules: tuple[str, ...]  # those that counted, with their lines

    def describe(self) -> str:
        passed = "passes" if self.fate.passed else "does not pass"
        return "\n".join([passed, *(f"  counted by {rule}" for rule in self.rules)])


@dataclass(frozen=True, slots=True)
class Shown:
    """One backend: what the kernel said *before* and *after*, where it was asked."""

    backend: Backend
    finding: Finding
    reason: str
    before: Told | None = None
    after: Told | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """packet: as it was sent, in words; "" when nothing was sent."""

    finding: Finding
    reason: str
    packet: str = ""
    shown: tuple[Shown, ...] = ()

    def describe(self) -> str:
        """The kernel's two answers in each backend, in words."""
        lines = [f"kernel: {self.finding.value}: {self.reason}"]
        if self.packet:
            lines.append(f"sent: {self.packet}")
        for shown in self.shown:
            lines.append(f"{shown.backend.value}: {shown.finding.value}: {shown.reason}")
            for name, told in zip(_ALL, (shown.before, shown.after), strict=True):
                if told is not None:
                    lines += [f"{name}: {told.describe()}"]
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

    In a backend in which ir.semantics sees no difference the kernel must not see one either.
    LiveError where no namespace can be made, or a tool is missing.
    """
    packet, backend = difference.packet, difference.backend
    if packet is None or backend is None:
        return Replay(Finding.NOT_REALISABLE, f"no packet shows it: {difference.reason}")
    chain, table = difference.chain, difference.table
    if chain not in BUILT_IN[table]:
        return Replay(Finding.NOT_REALISABLE, f"{chain} is a user chain, which no packet enters by itself")
    programs = alone(before, table, chain), alone(after, table, chain)

    def tell_apart(was: Walk, now: Walk, packet: Packet) -> bool:
        may_drop = is_malformed(packet) and malformed == "stricter"
        return differs(was, now, may_drop, verdict_only) is not None

    asked = tuple(dict.fromkeys([backend, *backends]))
    first: Replay | None = None
    for variant in _variants(packet):
        try:
            case = _Case(programs, table, chain, variant, difference.answers or Answers(), tell_apart)
            found = case.replay(asked)
        except _Unrealisable as error:
            found = Replay(Finding.NOT_REALISABLE, str(error))
        if found.finding is not Finding.NOT_REALISABLE:
            return found
        first = first or found
    assert first is not None
    return first


def _variants(packet: Packet) -> Iterator[Packet]:
    """The packet; then the like of it that is more ordinary, and may tell the programs apart as well."""
    seen: list[Mapping[Field, int]] = []

    def fresh(changes: Mapping[Field, int]) -> Iterator[Packet]:
        values = {**packet.values, **changes}
        if values not in seen:
            seen.append(values)
            yield replace(packet, values=values)

    values = packet.values
    # The number behind "lo" is no name; what was meant is: any other, or a longer one.
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
    """A name that begins as *name* does, but is not what stands before its first zero."""
    longer = name.split("\0")[0][:14] + "0"
    return longer if valid_name(longer) else _SPARE


class _Unrealisable(Exception):
    """Why the packet cannot be sent, in words."""


class _Case:
    """A packet, made such that it can be sent, and the two programs that it goes through."""

    def __init__(
        self,
        programs: tuple[Program, Program],
        table: str,
        chain: str,
        packet: Packet,
        wished: Answers,
        tell_apart: Callable[[Walk, Walk, Packet], bool],
    ) -> None:
        self.programs, self.name, self.chain = programs, table, chain
        self.wished, self.tell_apart, self.witness = wished, tell_apart, packet
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
            raise _Unrealisable(f"no such packet comes to {chain}: {refused}")

    def _sendable(self, packet: Packet) -> tuple[PacketBatch, list[str]]:
        nat = self.name == "nat"
        if nat and is_malformed(packet):
            raise _Unrealisable("a broken header opens no connection, and nat is asked about nothing else")
        batch = PacketBatch.of(packet.family, [packet])
        batch = realise(batch, self.chain, interfaces_of([batch]), fragments=not nat)
        if nat:
            open_connections(batch)
        values = batch.packet(0).values
        names = {interface_name(values[which]) for which in (Field.IIF, Field.OIF) if values[which]}
        return batch, sorted(names)

    def _wish(self) -> None:
        """Make hold (or not) what the witness says of facts, as far as that can be arranged."""
        asked = [
            (self.matches[key], holds)
            for (key, epoch), holds in self.wished.facts.items()
            if epoch == 0 and key in self.matches
        ]
        # What is to hold comes last, so that nothing undoes it.
        for match, holds in sorted(asked, key=lambda each: each[1]):
            if truth(self.traits, match)[0] != holds:
                wish(self.traits, match if holds else _inverted(match), np.array([True]))

    def replay(self, backends: Iterable[Backend]) -> Replay:
        """Ask the kernel in each of *backends*; the first is the witness's own."""
        with Namespace() as namespace:
            self._furnish(namespace)
            shown = tuple(self._ask(namespace, each) for each in backends)
        alarm = [each for each in shown if each.finding is Finding.CONTRADICTED]
        says = alarm[0] if alarm else shown[0]
        sent = show_packet(self.packet, self.name, self.chain)
        return Replay(says.finding, f"{says.backend.value}: {says.reason}", sent, shown)

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

    def _ask(self, namespace: Namespace, backend: Backend) -> Shown:
        """The kernel's answers under *backend*, and what is to be made of them."""
        found = self._judge(namespace, backend)
        for _ in range(TRIES if self._throws_dice() else 0):
            if found.finding is not Finding.NOT_REALISABLE or found.before is None:
                break
            found = self._judge(namespace, backend)
        return found

    def _judge(self, namespace: Namespace, backend: Backend) -> Shown:
        packet = self.packet
        if not any(self._differing(self._ways(packet, backend))):
            reason = f"what can be sent ({show_packet(packet)}) is treated alike: {self._why_alike()}"
            return Shown(backend, Finding.NOT_REALISABLE, reason)
        try:
            told = tuple(self._send(namespace, program, backend) for program in self.programs)
        except LiveError as error:
            return Shown(backend, Finding.NOT_REALISABLE, f"the kernel does not take a rule set: {error}")
        was, now = told[0], told[1]
        missing = self._missing(told)
        if missing:
            return Shown(backend, Finding.NOT_REALISABLE, missing, was, now)
        seen = self._seen(was.fate.state)
        possible = self._ways(seen, backend)
        fitting = [
            [way for way in side if _explains(way.walk, one, table)]
            for side, one, table in zip(possible, told, self.tables, strict=True)
        ]
        for name, side, all_ways in zip(_ALL, fitting, possible, strict=True):
            if side:
                continue
            uncertain = next(filter(None, (_may_end(way.walk) for way in all_ways)), "")
            if uncertain:
                reason = f"semantics does not say whether {uncertain} ends the packet's way"
                return Shown(backend, Finding.NOT_REALISABLE, reason, was, now)
            says = f"{name}: the kernel did not do what the program means ({all_ways[0].walk.verdict})"
            return Shown(backend, Finding.CONTRADICTED, says, was, now)
        if any(self._differing((fitting[0], fitting[1]))):
            by = "passing" if was.fate.passed != now.fate.passed else "the rules that count it"
            return Shown(backend, Finding.CONFIRMED, f"the two answers differ in {by}", was, now)
        unsure = {question for side in fitting for way in side for question in way.guessed}
        if unsure:
            named = ", ".join(sorted({f"{kind} {key!r}" for kind, key, _ in unsure}))
            reason = f"the kernel answered otherwise than the witness: {named}"
        else:
            reason = f"in state {STATES[was.fate.state]}, which the kernel gives it, both treat it alike"
        return Shown(backend, Finding.NOT_REALISABLE, reason, was, now)

    def _ways(self, packet: Packet, backend: Backend) -> tuple[list[Way], list[Way]]:
        known = [self._known(packet, table) for table in self.tables]
        found = [
            list(ways(table, self.chain, packet, backend, told, self.wished))
            for table, told in zip(self.tables, known, strict=True)
        ]
        return found[0], found[1]

    def _differing(self, both: tuple[list[Way], list[Way]]) -> Iterator[bool]:
        return (
            True
            for was in both[0]
            for now in both[1]
            if was.goes_with(now) and self.tell_apart(was.walk, now.walk, self.packet)
        )

    def _known(self, packet: Packet, table: Table) -> Known:
        traits = copy.copy(self.traits)
        traits.batch = PacketBatch.of(packet.family, [packet])
        facts = {key: truth(traits, match) for key, match in facts_of(table).items()}
        chancy = [match for match in self.matches.values() if match.role in (Role.NAMED, Role.ONCE)]
        outcomes = {
            match.key: answer(match, traits.batch, chancy)
            for match in chancy
            if not (match.name == "recent" and self._remembered(match))
        }
        return Known(_certain(facts, bool), _certain(outcomes, Outcome), written_fields(table))

    def _seen(self, state: int) -> Packet:
        return replace(self.packet, values={**self.packet.values, Field.STATE: state})

    def _missing(self, told: tuple[Told, ...]) -> str:
        """Why the packet was not asked about; "" when it was."""
        for name, one in zip(_ALL, told, strict=True):
            if not one.fate.arrived:
                return f"{name}: the packet did not come as far as {self.name} {self.chain}"
            if self.name == "nat" and one.fate.state != NEW:
                return f"{name}: nat is asked about NEW packets alone, and it was {STATES[one.fate.state]}"
        if told[0].fate.state != told[1].fate.state:
            states = " and ".join(STATES[one.fate.state] for one in told)
            return f"the kernel followed connections differently: states {states}"
        return ""

    def _why_alike(self) -> str:
        """What of the witness was not arranged."""
        known = self._known(self.packet, self.tables[0])
        other = self._known(self.packet, self.tables[1])
        lacking = []
        for (key, epoch), holds in self.wished.facts.items():
            told = known.facts.get(key, other.facts.get(key))
            if epoch == 0 and told is not None and told is not holds:
                lacking.append(f"{key!r} cannot be made to {'hold' if holds else 'fail'}")
        for (key, _), outcome in self.wished.outcomes.items():
            given = known.outcomes.get(key, other.outcomes.get(key))
            if given is not None and given is not outcome:
                lacking.append(f"{key!r} answers {given.name.lower()}, not {outcome.name.lower()}")
        for (which, _), value in self.wished.rewrites.items():
            if which in known.written and known.written[which] != value:
                lacking.append(f"{which.name} becomes {STATES[known.written[which]]} where it is written")
        was, now = self.witness.values, self.packet.values
        lacking += [
            f"its {which.name} could not be kept" for which in Field if was.get(which) != now.get(which)
        ]
        return "; ".join(lacking) or "what it answers when it is asked cannot be arranged"

    # What goes into the kernel, and comes out of it.

    def _send(self, namespace: Namespace, program: Program, backend: Backend) -> Told:
        family, text = program.family, write(program)
        types = ip_sets_named(text)
        make_ip_sets(types, family, namespace, self.traits.entries(types))
        try:
            load(text, family, backend, namespace)
            for name, entry, times in self._memories(program.table(self.name)):
                namespace.call(_remember, name, entry, times)
            table = program.table(self.name)
            for _ in range(self._rounds_before()):
                fire(namespace)
            before = counted(save(family, backend, namespace, counters=True), table)
            (fate,) = fire(namespace)
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
        return Told(fate, tuple(counts), tuple(moved))

    def _rounds_before(self) -> int:
        """How often the packet is sent before it is looked at: a limit that must say no is spent."""
        refused = {key for (key, _), outcome in self.wished.outcomes.items() if outcome is Outcome.NO}
        spent = [0]
        for key in refused & self.matches.keys():
            match = self.matches[key]
            if match.name == "limit":
                given = {name: values for name, _, values in options(match)}
                spent.append(int(given.get("--limit-burst", ("5",))[0]))
        return min(max(spent), MOST_ROUNDS)

    def _throws_dice(self) -> bool:
        return any(match.name == "statistic" for match in self.matches.values())

    def _remembered(self, match: Match) -> bool:
        """Whether the witness wants an address to be in a list of `recent` already."""
        wanted = {key for (key, _), outcome in self.wished.outcomes.items() if outcome is Outcome.YES}
        return match.key in wanted and not any(name == "--set" for name, *_ in options(match))

    def _memories(self, table: Table) -> Iterator[tuple[str, str, int]]:
        """Lists of `recent` that must hold an address before, and how often it was seen."""
        for match in dict.fromkeys(_matches(table)):
            if match.name == "recent" and self._remembered(match):
                given = {name: values for name, _, values in options(match)}
                side = Field.DST if "--rdest" in given else Field.SRC
                times = int(given.get("--hitcount", ("1",))[0])
                address = address_text(self.packet.family, self.packet.values[side])
                yield given.get("--name", ("DEFAULT",))[0], address, times


def _matches(table: Table) -> Iterator[Match]:
    return joined.from_iterable(rule.matches for chain in table.chains for rule in chain.rules)


def _inverted(match: Match) -> Match:
    """A match with one option the other way round, to be wished for."""
    words = match.words[1:] if match.words[:1] == ("!",) else ("!", *match.words)
    return match._replace(words=words)


def _certain(told: Mapping[str, npt.NDArray[np.uint8]], kind: Callable[[int], T]) -> dict[str, T]:
    return {key: kind(int(one[0])) for key, one in told.items() if one[0] != NOT_GIVEN}


def _explains(walk: Walk, told: Told, table: Table) -> bool:
    """Whether the packet went this way in the kernel: it passed or not, and each rule counted so often."""
    at, places = 0, {}
    for chain in table.chains:
        places[chain.name] = at
        at += len(chain.rules)
    counts = [0] * at
    for step in walk.steps:
        counts[places[step.chain] + step.index] += step.outcome is Outcome.YES
    return passes(walk.verdict) == told.fate.passed and tuple(counts) == told.counts


def _may_end(walk: Walk) -> str:
    """A target on this way that may end it, in words."""
    for step in walk.steps:
        target = step.rule.target
        if step.outcome is Outcome.YES and target is not None and target.ends is Ends.MAYBE:
            return target.key
    return ""


def _remember(name: str, entry: str, times: int) -> None:
    """In the helper: put an address into a list of `recent`."""
    for _ in range(times):
        Path(f"/proc/net/xt_recent/{name}").write_text(f"+{entry}\n")

"""Two programs compared on every packet: a proof, for programs that are small enough.

One packet of each class that the tests of the two can distinguish, at the ends of their
intervals; and for each, every combination of answers to what semantics asks.  Uses no code of
any engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from hitables.ir import semantics
from hitables.ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, TCP, UDP, Family, Field, Fragment, top
from hitables.ir.headers import FIELD_BYTES, inconsistency, is_malformed
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.program import Program
from hitables.ir.rule import Match
from hitables.verify.question import Question, differs

RAW = (Field.SPORT, Field.DPORT, Field.FLAGS)
PORTED = {Field.SPORT, Field.DPORT, Field.FLAGS, Field.ICMP}


class TooMany(Exception):
    """There are more packets than the limit."""


@dataclass
class Script:
    """Answers to questions in the order in which they are first asked; `turn` writes the next script."""

    choices: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # which, of how many
    answers: dict[object, int] = dataclasses.field(default_factory=dict)

    def answer(self, question: object, count: int) -> int:
        if question not in self.answers:
            if len(self.answers) == len(self.choices):
                self.choices.append((0, count))
            self.answers[question] = self.choices[len(self.answers)][0]
        return self.answers[question]

    def turn(self) -> bool:
        """Become the next script; False when all were played."""
        del self.choices[len(self.answers) :]
        self.answers.clear()
        while self.choices:
            which, count = self.choices.pop()
            if which + 1 < count:
                self.choices.append((which + 1, count))
                return True
        return False


@dataclass(frozen=True)
class Both:
    """The walks of a packet through two programs, with one combination of answers."""

    malformed: bool
    before: semantics.Walk
    after: semantics.Walk


def every_walk(
    before: Program, after: Program, backends: tuple[Backend, ...], most: int = 20_000
) -> Iterator[Both]:
    """All walks of all packets; TooMany behind the first *most* walks through one chain, if there are more."""
    matches = {match for program in (before, after) for match in matches_of(program)}
    points = class_points(matches, before.family)
    for table in before:
        for chain in table.chains:
            if chain.policy is None:
                continue
            walks = 0
            tables = [each.table(table.name) for each in (before, after)]
            for packet in headers(matches, points, before.family, chain.name):
                malformed = is_malformed(packet)
                for backend in backends:
                    script, more = Script(), True
                    while more:
                        walks += 1
                        if walks > most:
                            raise TooMany
                        asked = answering(packet, script, points)
                        walks_of_both = (semantics.run(each, chain.name, asked, backend) for each in tables)
                        yield Both(malformed, *walks_of_both)
                        more = script.turn()


def difference(walks: Iterable[Both], question: Question) -> str | None:
    """How the two differ on the first packet that they treat differently; None when there is none."""
    for walk in walks:
        may_drop = question.malformed == "stricter" and walk.malformed
        reason = differs(walk.before, walk.after, may_drop, question.verdict_only)
        if reason is not None:
            return reason
    return None


def answering(packet: Packet, script: Script, points: dict[Field, list[int]]) -> Packet:
    def fact(match: Match, epoch: int) -> bool:
        asked = match.fact
        values = 2 if match.number is None else 8  # the numbers of drawn programs have three bits
        return asked.holds(script.answer(("fact", asked.attribute, epoch), values))

    def number(attribute: str, epoch: int) -> int:
        return script.answer(("fact", attribute, epoch), 8)

    def outcome(match: Match, ordinal: int) -> Outcome:
        return Outcome(script.answer(("outcome", match.key, ordinal), len(Outcome)))

    def rewritten(name: Field, epoch: int) -> int:
        return points[name][script.answer(("rewritten", name, epoch), len(points[name]))]

    return replace(packet, fact=fact, number=number, outcome=outcome, rewritten=rewritten)


def matches_of(program: Program) -> Iterator[Match]:
    for table in program:
        for chain in table.chains:
            for rule in chain.rules:
                yield from rule.matches


def class_points(matches: set[Match], family: Family) -> dict[Field, list[int]]:
    """By field, a value of each class; a single one where no test reads the field."""
    bounds: dict[Field, set[int]] = {field: {0} for field in Field}
    for match in matches:
        for test in match.tests:
            for low, high in test.values.pairs:
                bounds[test.field] |= {low, high + 1}
    if any(len(bounds[field]) > 1 for field in PORTED) or any(match.needs for match in matches):
        bounds[Field.PROTO] |= {TCP, UDP, ICMP if family is Family.IPV4 else ICMPV6}
        # Of each class of protocols, one with ports.
        tests = [test for match in matches for test in match.tests if test.field is Field.PROTO]
        ported = {
            tuple(number in test.values for test in tests): number for number in (*PORT_PROTOCOLS, TCP, UDP)
        }
        bounds[Field.PROTO] |= set(ported.values())
    return {
        field: sorted(value for value in values if value <= top(field, family))
        for field, values in bounds.items()
    }


def headers(
    matches: set[Match], points: dict[Field, list[int]], family: Family, chain: str
) -> Iterator[Packet]:
    """A packet of each class at *chain*."""
    sides = dict(points)
    for field, without in ((Field.IIF, ("OUTPUT",)), (Field.OIF, ("INPUT", "PREROUTING"))):
        sides[field] = [0] if chain in without else sorted({value or 1 for value in points[field]})
    if chain == "POSTROUTING":
        sides[Field.IIF] = sorted({0, *points[Field.IIF]})
    tested = {test.field for match in matches for test in match.tests}
    sized = bool(tested & PORTED) or any(match.needs for match in matches)
    reassembled = chain == "INPUT" and family is Family.IPV4
    fragmented = not reassembled and (sized or Field.FRAG in tested)
    sides[Field.FRAG] = [*Fragment] if fragmented else [Fragment.WHOLE]
    sizes = [0, 2, 4, 8, 12, 13, 14, 16, 20] if sized else [64]
    flags = [
        [False, True] if any(match.option for match in matches) else [False],
        [False, True] if any(match.strict for match in matches) else [False],
        [False, True] if family is Family.IPV6 else [False],
        [False, True] if Field.MAC in tested else [False],
    ]
    seen: set[tuple[object, ...]] = set()
    for values, size, (bad, one, cut, mac) in product(product(*sides.values()), sizes, product(*flags)):
        packet = _packet(family, dict(zip(sides, values, strict=True)), size, bad, one, cut, mac)
        if packet is not None:
            # Packets that differ only in fields that they lack are the same.
            shown = (tuple(packet.values.items()), tuple(packet.raw.items()), size, bad, one, cut)
            if shown not in seen:
                seen.add(shown)
                yield packet


def _packet(
    family: Family, values: dict[Field, int], size: int, bad: bool, one: bool, cut: bool, mac: bool
) -> Packet | None:
    """The packet, without the fields that such a packet lacks; None when there is none."""
    proto, later = values[Field.PROTO], values[Field.FRAG] == Fragment.LATER
    if (one and not later) or (bad and (later or proto != TCP)) or (cut and family is Family.IPV4):
        return None  # the common cases; `inconsistency` has the rest
    icmp = ICMP if family is Family.IPV4 else ICMPV6
    carriers = {
        Field.SPORT: PORT_PROTOCOLS,
        Field.DPORT: PORT_PROTOCOLS,
        Field.FLAGS: {TCP},
        Field.ICMP: {icmp},
    }
    raw = {}
    for field, protocols in carriers.items():
        value = values.pop(field)
        if cut or size < FIELD_BYTES[field]:
            continue
        if later and field in RAW:
            raw[field] = value
        elif not later and proto in protocols:
            values[field] = value
    if cut:
        del values[Field.PROTO]
    if not mac:
        del values[Field.MAC]
    packet = Packet(family, values, raw, size, bad, one, cut)
    return packet if inconsistency(packet) is None else None

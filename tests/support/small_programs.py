"""Programs of one or two fields, small enough to try every packet."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import cache

import numpy as np

from hitables.ir.fields import ICMP, STATES, TCP, UDP, Family, Field, Fragment
from hitables.ir.headers import FIELD_BYTES
from hitables.ir.intervals import Values
from hitables.ir.packet import Packet
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Ends, Kind, Match, Metadata, Role, Rule, Target
from hitables.ir.rule import Test as FieldTest
from hitables.simulate.batch import PacketBatch

ACCEPT = Target("ACCEPT", Kind.VERDICT, "ACCEPT")
DROPS = Target("DROP", Kind.VERDICT, "DROP")
RETURN = Target("RETURN", Kind.RETURN, "RETURN")
LOG = Target("LOG", Kind.VERDICT, "LOG", ends=Ends.NEVER)
MARK = Target("MARK", Kind.VERDICT, "MARK 1", ends=Ends.NEVER, writes=frozenset({Metadata.MARK}))
MARKED = Match("mark", ("--mark", "1"), Role.CONSTANT, "mark 1", reads=frozenset({Metadata.MARK}))
UNMARKED = MARKED._replace(words=("!", "--mark", "1"), key="! mark 1", negates="mark 1")


def jump(name: str) -> Target:
    return Target(name, Kind.JUMP, f"-j {name}")


def goto(name: str) -> Target:
    return Target(name, Kind.GOTO, f"-g {name}")


def on_field(field: Field, *pairs: tuple[int, int], name: str = "", **more: object) -> Match:
    return Match(name, (), Role.SPACE, f"{field} {pairs}", (FieldTest(field, Values.of(*pairs)),), **more)


def proto(number: int) -> Match:
    return on_field(Field.PROTO, (number, number), native=True)._replace(words=("-p", str(number)))


def dport(low: int, high: int) -> Match:
    return on_field(Field.DPORT, (low, high), name="tcp", native=True, needs=20, strict=True)


def source(low: int, high: int) -> Match:
    return on_field(Field.SRC, (low, high), native=True)


def program(
    *rules: Rule, policy: str = "ACCEPT", built_in: str = "INPUT", **chains: tuple[Rule, ...]
) -> Program:
    lined = tuple(rule._replace(line=at + 3) for at, rule in enumerate(rules))
    user = tuple(Chain(name, None, body) for name, body in chains.items())
    return Program(Family.IPV4, (Table("filter", (Chain(built_in, policy, lined), *user)),))


def rule(*parts: Match | Target) -> Rule:
    *matches, target = parts
    return Rule(tuple(matches), target)  # type: ignore[arg-type]


BITS = range(9)  # the fields have three bits: 8 stands for all values that no test names


PROTOCOLS = (TCP, UDP, ICMP)


def small_program(rng: random.Random) -> Program:
    """Rules of FORWARD, where fragments come, over three-bit fields, jumps of every kind, effects and one fact."""

    def interval() -> tuple[int, int]:
        low, high = rng.randrange(8), rng.randrange(8)
        return min(low, high), max(low, high)

    def match() -> Match:
        kind = rng.choice(("src", "dst", "proto", "dport", "not", "multiport", "fact", "frag"))
        if kind == "src":
            return source(*interval())
        if kind == "dst":
            return on_field(Field.DST, *(interval() for _ in range(rng.choice((1, 1, 2)))), native=True)
        if kind == "proto":
            return proto(rng.choice(PROTOCOLS))
        if kind == "dport":
            return dport(*interval())
        if kind == "not":
            values = Values.of(interval()).complement(65535)
            return on_field(Field.DPORT, *values.pairs, name="udp", native=True, needs=8)
        if kind == "multiport":
            tests = tuple(FieldTest(field, Values.of(interval())) for field in (Field.SPORT, Field.DPORT))
            return Match("multiport", (), Role.SPACE, "multiport", tests, either=True, needs=4)
        if kind == "fact":
            return rng.choice((MARKED, UNMARKED))
        return on_field(Field.FRAG, (1, 2) if rng.random() < 0.5 else (0, 0))

    def rules(chains: list[str]) -> tuple[Rule, ...]:
        drawn = []
        for _ in range(rng.randint(1, 6)):
            names = [jump, goto] if chains else []
            kind = rng.choice([ACCEPT, DROPS, RETURN, LOG, MARK, None, *names])
            target = kind(rng.choice(chains)) if callable(kind) else kind
            drawn.append(Rule(tuple(match() for _ in range(rng.choice((0, 1, 1, 2, 3)))), target))
        return tuple(drawn)

    first, policy = rules(["A", "B"]), rng.choice(("ACCEPT", "DROP"))
    return program(*first, policy=policy, built_in="FORWARD", A=rules(["B"]), B=rules([]))


@cache
def every_packet() -> PacketBatch:
    """All packets that come to FORWARD and that rules over three-bit fields can distinguish, with both truth
    values of the fact.
    """
    packets: list[Packet] = []
    for src, dst, proto_, frag, size in itertools.product(
        BITS, BITS, PROTOCOLS, (Fragment.WHOLE, Fragment.FIRST, Fragment.LATER), (64, 10, 5, 3, 0)
    ):
        base = {
            Field.SRC: src, Field.DST: dst, Field.PROTO: proto_, Field.FRAG: int(frag), Field.OIF: 1 << 120,
            Field.IIF: 1 << 120, Field.STATE: STATES.index("NEW"),
        }  # fmt: skip
        ported = proto_ in (TCP, UDP)
        later = frag is Fragment.LATER
        if later or ported:
            sports = BITS if size >= FIELD_BYTES[Field.SPORT] and not (later and src) else (0,)
            for sport, dport_ in itertools.product((2, 8) if len(sports) > 1 else (2,), BITS):
                raw = (
                    {
                        Field.SPORT: sport,
                        Field.DPORT: dport_,
                        Field.FLAGS: 2,
                    }
                    if later
                    else {}
                )
                raw = {field: value for field, value in raw.items() if size >= FIELD_BYTES[field]}
                values = dict(base)
                if not later:
                    seen = {Field.SPORT: sport, Field.DPORT: dport_}
                    if proto_ == TCP:
                        seen[Field.FLAGS] = 2
                    values |= {f: v for f, v in seen.items() if size >= FIELD_BYTES[f]}
                packets.append(Packet(Family.IPV4, values, raw, size, offset_one=later and sport == 2))
        else:
            icmp = {Field.ICMP: 8 << 8} if size >= 2 else {}
            packets.append(Packet(Family.IPV4, {**base, **icmp}, {}, size))
    batch = PacketBatch.of(Family.IPV4, packets, [0] * len(packets))
    both = PacketBatch.join([batch, batch])
    truths = np.repeat(np.array([0, 1], np.uint8), len(packets))
    return replace(both, facts={("mark 1", epoch): truths for epoch in range(20)}, seeded=False)

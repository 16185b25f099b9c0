"""A packet of a region, and the plainest packet that two programs still treat differently.

Idea: a `Draft` holds all that may be chosen of a packet.  It is made plainer part by part, as long as the
two programs differ on it.

Invariant: every draft gives a packet that can exist: its protocol and bytes decide which fields it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hitables.ir.answers import Answers
from hitables.ir.fields import (
    BRIDGE_PORTS,
    ICMP,
    ICMPV6,
    INTERFACES,
    PORT_PROTOCOLS,
    STATES,
    TCP,
    Family,
    Field,
    Fragment,
    interface_number,
    top,
)
from hitables.ir.headers import FIELD_BYTES, TCP_OFFSET_BYTES
from hitables.ir.intervals import Values
from hitables.ir.packet import Outcome, Packet

from ..ir.hooks import NO_IIF, NO_OIF
from .packet_classes import ORDINARY_BYTES

K = TypeVar("K")
V = TypeVar("V")
_PAYLOAD = (Field.SPORT, Field.DPORT, Field.FLAGS)
_DOCUMENTATION = {  # addresses for examples: RFC 5737, RFC 3849
    Family.IPV4: (0xC0000201, 0xC6336401),
    Family.IPV6: (0x20010DB8 << 96 | 1, 0x20010DB8 << 96 | 1 << 64 | 1),
}


@dataclass(frozen=True)
class Draft:
    """
    values   by field; all but MAC must be there, even if the packet will not have the field
    numbers  of attributes, by name and number of writes before; those of an ordinary packet are not given
    """

    family: Family
    values: Mapping[Field, int]
    bytes: int = ORDINARY_BYTES
    bad_offset: bool = False
    offset_one: bool = False
    cut_short: bool = False
    numbers: Mapping[tuple[str, int], int] = field(default_factory=dict)
    outcomes: Mapping[tuple[str, int], Outcome] = field(default_factory=dict)
    rewrites: Mapping[tuple[Field, int], int] = field(default_factory=dict)

    def packet(self) -> Packet:
        """The packet, with the draft's answers."""
        values = dict(self.values)
        proto = values[Field.PROTO]
        later = values[Field.FRAG] == Fragment.LATER
        payload = {each: values.pop(each) for each in FIELD_BYTES}
        for each in BRIDGE_PORTS:
            if not values.get(each):
                values.pop(each, None)
        if self.cut_short:
            del values[Field.PROTO]
        elif not later:
            icmp = ICMP if self.family is Family.IPV4 else ICMPV6
            carried = {
                Field.SPORT: proto in PORT_PROTOCOLS,
                Field.DPORT: proto in PORT_PROTOCOLS,
                Field.ICMP: proto == icmp,
                Field.FLAGS: proto == TCP,
            }
            values |= {
                each: value
                for each, value in payload.items()
                if carried[each] and self.bytes >= FIELD_BYTES[each]
            }
        raw = {}
        if later and not self.cut_short:
            raw = {each: payload[each] for each in _PAYLOAD if self.bytes >= FIELD_BYTES[each]}
        bad_offset = self.bad_offset and proto == TCP and not later and self.bytes >= TCP_OFFSET_BYTES
        packet = Packet(
            self.family,
            values,
            raw,
            self.bytes,
            bad_offset and not self.cut_short,
            self.offset_one and later,
            self.cut_short,
        )
        answers = Answers(
            outcomes=dict(self.outcomes),
            rewrites=dict(self.rewrites),
            numbers=dict(self.numbers),
            closed=True,
        )
        return answers.given_by(packet)


def ordinary(family: Family, chain: str) -> Draft:
    """The first packet of a tcp connection to port 443, whole and well-formed, at *chain*."""
    source, target = _DOCUMENTATION[family]
    values = {
        Field.SRC: source, Field.DST: target, Field.PROTO: TCP, Field.FRAG: int(Fragment.WHOLE),
        Field.SPORT: 40000, Field.DPORT: 443, Field.ICMP: 8 << 8 if family is Family.IPV4 else 128 << 8,
        Field.FLAGS: 2, Field.STATE: STATES.index("NEW"),
        Field.IIF: 0 if chain in (*NO_IIF, "POSTROUTING") else interface_number("eth0"),
        Field.OIF: 0 if chain in NO_OIF else interface_number("eth1"),
        **dict.fromkeys(BRIDGE_PORTS, 0),
    }  # fmt: skip
    return Draft(family, values)


def pick(values: Values, wanted: int) -> int:
    """*wanted* when it is one of *values*, else the nearest one."""
    if wanted in values:
        return wanted
    ends = (end for pair in values.pairs for end in pair)
    return min(ends, key=lambda end: (abs(end - wanted), end))


def pick_interface(values: Values, wanted: int) -> int:
    """An interface name that can be typed, if there is one."""
    if wanted in values:
        return wanted
    for low, high in values.pairs:
        if low == high:
            return low
        for name in _names(low):
            if low <= name <= high:
                return name
    return pick(values, wanted)


def _names(low: int) -> Iterator[int]:
    """Names from *low* on: itself, itself with one more digit, common names, single letters."""
    stem = low.to_bytes(16, "big").rstrip(b"\0")
    for tail in (b"", b"0", b"1", b"9"):
        if len(stem + tail) < 16:
            yield int.from_bytes((stem + tail).ljust(16, b"\0"), "big")
    for name in ("eth0", "eth9", "lan0", "wan0", "ppp0", "tun0", "br0", "wlan0", "a", "m", "z", "~"):
        yield interface_number(name)


def plainer(draft: Draft, plain: Draft, differs: Callable[[Draft], bool]) -> Draft:
    """*draft* with parts of *plain*, until no further part can be taken while the programs differ."""
    changed = True
    while changed:
        changed = False
        for simpler in _simpler(draft, plain):
            if simpler != draft and differs(simpler):
                draft, changed = simpler, True
                break
    return draft


def _simpler(draft: Draft, plain: Draft) -> Iterator[Draft]:
    """Drafts one step nearer to *plain*; the least ordinary part is replaced first."""
    yield replace(draft, cut_short=False)
    yield replace(draft, offset_one=False, bad_offset=False)
    yield replace(draft, values={**draft.values, Field.FRAG: int(Fragment.WHOLE)}, offset_one=False)
    yield replace(draft, bytes=plain.bytes)
    for asked in draft.outcomes:
        yield replace(draft, outcomes=_without(draft.outcomes, asked))
    for number in draft.numbers:
        yield replace(draft, numbers=_without(draft.numbers, number))
    for written in draft.rewrites:
        yield replace(draft, rewrites=_without(draft.rewrites, written))
    if Field.MAC in draft.values and Field.MAC not in plain.values:
        yield replace(draft, values=_without(draft.values, Field.MAC))
    nearest = (
        Field.PROTO, Field.STATE, *INTERFACES, Field.FLAGS, Field.ICMP, Field.SPORT, Field.DPORT,
        Field.SRC, Field.DST,
    )  # fmt: skip
    for each in nearest:
        if draft.values[each] != plain.values[each]:
            yield replace(draft, values={**draft.values, each: plain.values[each]})


def _without(mapping: Mapping[K, V], key: K) -> dict[K, V]:
    return {each: value for each, value in mapping.items() if each != key}


def choose(
    sets: Mapping[tuple[Field, int], tuple[Values, bool]], plain: Draft, without_protocol: bool
) -> tuple[dict[Field, int], dict[tuple[Field, int], int]]:
    """A value for each field of a region: those of the packet as it enters, and those that writes give it.

    sets  by field and number of writes before: its values, and whether the packet may lack it
    """
    values: dict[Field, int] = {}
    rewrites: dict[tuple[Field, int], int] = {}
    for (name, epoch), (allowed, lacking) in sets.items():
        if name is Field.PROTO and without_protocol:
            values[name] = TCP
        elif not allowed or (lacking and name not in plain.values):
            continue
        else:
            wanted = plain.values.get(name, top(name, plain.family) // 2)
            chooser = pick_interface if name in INTERFACES else pick
            chosen = chooser(allowed, wanted)
            if epoch:
                rewrites[name, epoch] = chosen
            else:
                values[name] = chosen
    return values, rewrites

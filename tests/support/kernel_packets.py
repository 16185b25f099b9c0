"""Packets for tests of the kernel, and what rules make of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from hitables.ir.fields import GRE, ICMP, ICMPV6, SCTP, STATES, TCP, UDP, UDPLITE, Family, Field, Fragment
from hitables.ir.fields import interface_number as interface
from hitables.ir.packet import Backend, Packet
from hitables.kernel import Namespace, load, save
from hitables.kernel.craft import Trim
from hitables.kernel.experiment import Trial, prepare, send_trials

HOOKS = ("INPUT", "FORWARD", "OUTPUT")
SYN, ACK, SYN_ACK, PUSH_ACK = 2, 16, 18, 24
ADDRESSES = {Family.IPV4: (0x0A000005, 0x0A000006), Family.IPV6: (0x2001 << 112 | 5, 0x2001 << 112 | 6)}
ECHO = {Family.IPV4: (ICMP, 8 << 8), Family.IPV6: (ICMPV6, 128 << 8)}
ECHO_REPLY = {Family.IPV4: (ICMP, 0), Family.IPV6: (ICMPV6, 129 << 8)}
TIME_EXCEEDED = {Family.IPV4: (ICMP, 11 << 8), Family.IPV6: (ICMPV6, 3 << 8)}


def packet(
    family: Family,
    protocol: int | None = UDP,
    chain: str = "FORWARD",
    state: str = "NEW",
    *,
    iif: str = "eth0",
    oif: str = "eth1",
    flags: int = SYN,
    icmp: int | None = None,
    fragment: Fragment = Fragment.WHOLE,
    l4_bytes: int = 64,
    sport: int = 1000,
    dport: int = 53,
    **classes: bool,
) -> Packet:
    """A packet that can come to *chain*."""
    source, target = ADDRESSES[family]
    values = {
        Field.SRC: source, Field.DST: target, Field.FRAG: fragment, Field.STATE: STATES.index(state),
        Field.IIF: 0, Field.OIF: 0,
    }  # fmt: skip
    raw: dict[Field, int] = {}
    if chain in ("INPUT", "FORWARD", "PREROUTING") or (chain == "POSTROUTING" and iif):
        values[Field.IIF] = interface(iif)
        values[Field.MAC] = 0x020000000001
    if chain in ("FORWARD", "OUTPUT", "POSTROUTING"):
        values[Field.OIF] = interface(oif)
    if protocol is not None:
        values[Field.PROTO] = protocol
    held = {Field.SPORT: (sport, 2), Field.DPORT: (dport, 4), Field.FLAGS: (flags, 14)}
    if fragment == Fragment.LATER:
        raw = {field: value for field, (value, size) in held.items() if l4_bytes >= size}
    elif protocol in (TCP, UDP, UDPLITE, SCTP, 33):
        mine = held if protocol == TCP else {field: held[field] for field in (Field.SPORT, Field.DPORT)}
        values |= {field: value for field, (value, size) in mine.items() if l4_bytes >= size}
    elif protocol in (ICMP, ICMPV6) and l4_bytes >= 2:
        values[Field.ICMP] = ECHO[family][1] if icmp is None else icmp
    return Packet(family, values, raw, l4_bytes, **classes)


def varied_trials(family: Family, chain: str) -> list[Trial]:
    """Packets that differ in marks, owners, sizes, states, tos and ttl."""
    echo = ECHO[family][0]
    states = ("NEW", "ESTABLISHED", "RELATED", "UNTRACKED", "INVALID")
    plain = [
        packet(family, protocol, chain, state)
        for protocol, state in product((TCP, UDP, echo, GRE), states)
        if protocol != GRE or state not in ("INVALID", "RELATED")
    ]
    plain += [packet(family, UDP, chain, l4_bytes=size) for size in (8, 12, 400)]
    if chain in ("FORWARD", "OUTPUT"):  # elsewhere the kernel reassembles, if it follows connections
        plain.append(packet(family, UDP, chain, "UNTRACKED", fragment=Fragment.LATER))
    common = packet(family, chain=chain)
    different = [Trial(common, mark=mark) for mark in (1, 4, 5, 7)]
    different += [Trial(common, connection_mark=mark) for mark in (1, 4, 7)]
    different += [Trial(common, trim=Trim(tos=tos, ttl=ttl)) for tos, ttl in ((0x10, 3), (0xB8, 64), (3, 9))]
    if chain == "OUTPUT":
        different += [Trial(common, owner=owner) for owner in ((1234, 0), (0, 99), (1234, 99))]
    return [*map(Trial, plain), *different]


def counts(family: Family, backend: Backend, namespace: Namespace) -> list[int]:
    """How many packets each rule has counted, in the order in which they are printed."""
    saved = save(family, backend, namespace, counters=True)
    return [int(count) for count in re.findall(r"^\[(\d+):\d+\] -A", saved, re.MULTILINE)]


def treat(
    namespace: Namespace,
    backend: Backend,
    rules: str,
    packets: Sequence[Packet],
    chain: str = "OUTPUT",
    tracked: bool = False,
) -> list[str]:
    """What *rules* (-A lines of the filter table, all for *chain*) make of each packet alone.

    "drop", or how many rules counted it.
    """
    family = packets[0].family
    load(f"*filter\n{rules}\nCOMMIT\n", family, backend, namespace)
    said = []
    before = sum(counts(family, backend, namespace))
    for one in packets:
        prepare(namespace, "filter", chain, [Trial(one)], tracked)
        (fate,) = send_trials(namespace)
        assert fate.arrived
        after = sum(counts(family, backend, namespace))
        said.append(str(after - before) if fate.passed else "drop")
        before = after
    return said

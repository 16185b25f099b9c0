"""Packets of a program turned into packets that can be sent to a kernel.

Boundary packets may be impossible: interfaces with invalid names, hardware addresses on a tunnel, fragments
where the kernel reassembles them.  `make_sendable` changes such a packet as little as possible.  Its result
can be sent: `experiment.why_not` finds no reason against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.fields import (
    BRIDGE_PORTS,
    GRE,
    PORT_PROTOCOLS,
    STATES,
    TCP,
    Family,
    Field,
    Fragment,
    interface_name,
    interface_number,
)
from ..ir.headers import FIELD_BYTES
from ..simulate.batch import HALF, OFFSET_ONE, RAW, RAW_BIT, PacketBatch
from .testbed import has_hardware, valid_name

Bools = npt.NDArray[np.bool_]

MAX_NAMES = 100  # of interfaces, in one experiment
_LEAVING, _ARRIVING = ("OUTPUT",), ("PREROUTING", "INPUT")
_SPARE = "hit0"
# Extension headers: the kernel skips them, so none is a packet's protocol (AH is skipped in legacy and a
# protocol in nft).
_NO_PROTOCOLS = {Family.IPV4: (), Family.IPV6: (0, 43, 44, 51, 60)}
_UNASSIGNED = 253
# For each state of a RELATED connection, with nat or without, that of an ESTABLISHED one.
_RELATED = {
    at: STATES.index(state.replace("RELATED", "ESTABLISHED"))
    for at, state in enumerate(STATES)
    if state.startswith("RELATED")
}
_WORD = (1 << 64) - 1


def interfaces_of(batches: Iterable[PacketBatch]) -> dict[int, str]:
    """For each interface number that occurs, a name that the kernel accepts; at most MAX_NAMES names."""
    seen: Counter[int] = Counter()
    for batch in batches:
        for which in (Field.IIF, Field.OIF):
            low, high = batch.rows["low"][:, which], batch.rows["high"][:, HALF[which]]
            for pair, count in Counter(zip(high.tolist(), low.tolist(), strict=True)).items():
                seen[pair[0] << 64 | pair[1]] += count
    names = {number: _nearest(number) for number in seen if number}
    common = Counter[str]()
    for number, name in names.items():
        common[name] += seen[number]
    chosen = [name for name, _ in common.most_common(MAX_NAMES - 1)]
    chosen += [_SPARE] * (_SPARE not in chosen)
    return {number: name if name in chosen else _SPARE for number, name in names.items()}


def make_sendable(
    batch: PacketBatch, chain: str, interfaces: Mapping[int, str], fragments: bool = True
) -> PacketBatch:
    """The packets of *batch*, changed so that they can reach *chain*.

    *interfaces*: from `interfaces_of`.  Without *fragments* all packets are whole.
    """
    rows = batch.rows.copy()
    _interfaces(rows, chain, interfaces)
    for port in BRIDGE_PORTS:  # no packet crosses a bridge here
        rows["low"][:, port] = rows["high"][:, HALF[port]] = 0
    present = rows["present"]
    if not fragments or (batch.family is Family.IPV4 and chain == "INPUT"):
        _make_whole(rows, batch.family)
    has_protocol = (present >> Field.PROTO & 1).astype(bool)
    low = rows["low"]
    low[has_protocol & np.isin(low[:, Field.PROTO], _NO_PROTOCOLS[batch.family]), Field.PROTO] = _UNASSIGNED
    tunnelled = has_protocol & (low[:, Field.PROTO] == GRE)
    for related, established in _RELATED.items():
        low[tunnelled & (low[:, Field.STATE] == related), Field.STATE] = established
    if batch.family is Family.IPV6:
        # There the offset is in bytes, and no match tests for 1.
        rows["classes"] &= ~np.uint8(OFFSET_ONE)
    return replace(batch, rows=rows)


def misread(batch: PacketBatch, service: npt.NDArray[np.int64]) -> None:
    """Set what native nft expressions read in later IPv6 fragments: bytes of the IP header.

    They read layer 4 from the start of the packet.  Packets are numbered from 1 in their flow label.
    *service*: the traffic class of each packet.
    """
    if batch.family is not Family.IPV6:
        return
    rows = batch.rows
    later = (rows["low"][:, Field.FRAG] == Fragment.LATER) & (rows["present"] >> Field.PROTO & 1).astype(bool)
    rows["raw_present"][later] = sum(RAW_BIT.values())
    rows[RAW[Field.SPORT]][later] = (0x6000 | service << 4)[later]
    rows[RAW[Field.DPORT]][later] = np.arange(1, len(rows) + 1)[later]
    sixth = rows["high"][:, HALF[Field.SRC]] >> np.uint64(16) & np.uint64(0x3F)
    rows[RAW[Field.FLAGS]][later] = sixth[later]


def open_connections(batch: PacketBatch) -> None:
    """Change packets so that each is the first of a connection: nat sees no others."""
    low, has = batch.rows["low"], batch.rows["present"]
    low[:, Field.STATE] = STATES.index("NEW")
    middle = (has >> Field.FLAGS & 1 != 0) & ~np.isin(low[:, Field.FLAGS] & 0x17, (0x02, 0x10))
    low[middle, Field.FLAGS] = 0x02
    batch.rows["classes"][:] = 0
    new = (8, 13, 15, 17) if batch.family is Family.IPV4 else (128,)
    late = (has >> Field.ICMP & 1 != 0) & ~np.isin(low[:, Field.ICMP] >> 8, new)
    low[late, Field.ICMP] = new[0] << 8


def _nearest(number: int) -> str:
    """A valid name with the longest possible beginning of *number*."""
    name = interface_name(number).split("\0")[0]
    if number and valid_name(interface_name(number)):
        return interface_name(number)
    valid = "".join(letter for letter in name if letter.isprintable() and letter not in " /:%")
    valid = valid.encode("ascii", "ignore").decode()[:15]
    return valid if valid_name(valid) else _SPARE


def _interfaces(rows: Any, chain: str, names: Mapping[int, str]) -> None:
    for which in (Field.IIF, Field.OIF):
        low, high = rows["low"][:, which], rows["high"][:, HALF[which]]
        absent = chain in (_LEAVING if which is Field.IIF else _ARRIVING)
        numbers = [int(h) << 64 | int(lo) for h, lo in zip(high, low, strict=True)]
        # In POSTROUTING, locally generated packets have no input interface; forwarded ones have theirs.
        optional = chain == "POSTROUTING" and which is Field.IIF
        mapped = [
            0 if absent or (optional and not number) else interface_number(names.get(number, _SPARE))
            for number in numbers
        ]
        low[:] = np.array([number & _WORD for number in mapped], np.uint64)
        high[:] = np.array([number >> 64 for number in mapped], np.uint64)
        if which is Field.IIF:
            hard = np.array([bool(n) and has_hardware(interface_name(n)) for n in mapped], bool)
            _hardware(rows, hard)


def _hardware(rows: Any, has: Bools) -> None:
    bit = np.uint16(1 << Field.MAC)
    missing = has & (rows["present"] & bit == 0)
    rows["low"][missing, Field.MAC] = 0x020000000000 | np.flatnonzero(missing)
    rows["present"] = np.where(has, rows["present"] | bit, rows["present"] & ~bit)
    rows["low"][~has, Field.MAC] = 0


def _make_whole(rows: Any, family: Family) -> None:
    """Make all packets whole; later fragments get the ports that nft misread in them."""
    low, present = rows["low"], rows["present"]
    broken = low[:, Field.FRAG] != Fragment.WHOLE
    later = low[:, Field.FRAG] == Fragment.LATER
    protocol, size = low[:, Field.PROTO], rows["l4_bytes"]
    walked = (present >> Field.PROTO & 1).astype(bool)
    icmp = protocol == (1 if family is Family.IPV4 else 58)
    has = {
        Field.SPORT: np.isin(protocol, list(PORT_PROTOCOLS)),
        Field.DPORT: np.isin(protocol, list(PORT_PROTOCOLS)),
        Field.FLAGS: protocol == TCP,
        Field.ICMP: icmp,
    }
    for which, right in has.items():
        gains = later & walked & right & (size >= FIELD_BYTES[which])
        if which in RAW:
            low[gains, which] = rows[RAW[which]][gains]
        present[gains] |= np.uint16(1 << which)
    low[broken, Field.FRAG] = Fragment.WHOLE
    rows["raw_present"][later] = 0
    rows["classes"][later] &= ~np.uint8(OFFSET_ONE)

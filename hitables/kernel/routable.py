"""Packets for measurements: those of a batch that a router forwards, all of one size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..ir.fields import Family, Field, Fragment
from ..simulate.batch import PacketBatch
from .craft import craft

# Enough of layer 4 for every match; one size, because the sender requires it.
L4_BYTES = 20

# First bytes of IPv4 addresses from or to which a router does not forward packets.
_THIS_NETWORK, _LOOPBACK, _MULTICAST = 0, 127, 224


def routable(batch: PacketBatch) -> npt.NDArray[np.bool_]:
    """Which packets can be sent through a router: whole ones between addresses of single hosts."""
    rows = batch.rows
    good: npt.NDArray[np.bool_] = rows["low"][:, Field.FRAG] == Fragment.WHOLE
    good &= (rows["classes"] == 0) & (rows["present"] >> Field.PROTO & 1).astype(bool)
    for field in (Field.SRC, Field.DST):
        if batch.family is Family.IPV4:
            first = rows["low"][:, field] >> np.uint64(24)
            good &= (first != _THIS_NETWORK) & (first != _LOOPBACK) & (first < _MULTICAST)
        else:
            first = rows["high"][:, field] >> np.uint64(61)
            good &= first == 1  # 2000::/3, the global unicast addresses
    return good


def crafted(batch: PacketBatch) -> tuple[bytes, PacketBatch]:
    """The packets concatenated, and as a batch with their changes: L4_BYTES of layer 4."""
    rows = batch.rows.copy()
    rows["l4_bytes"] = L4_BYTES
    sent = PacketBatch(batch.family, rows, seeded=False)
    packets = []
    for number, packet in enumerate(sent):
        source, target = packet.values[Field.SRC], packet.values[Field.DST]
        packets.append(craft(packet, number % 60_000 + 1, source, target))
    return b"".join(packets), sent

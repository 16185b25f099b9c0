"""Headers of five fields (a ClassBench trace) as packets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.ir.fields import ICMP, PORT_PROTOCOLS, STATES, TCP, Family, Field, Fragment, interface_number

from .batch import HALF, PACKET, PacketBatch

L4_BYTES = 64


def batch_of(headers: npt.NDArray[Any]) -> PacketBatch:
    """Rows of (source, destination, source port, destination port, protocol) as whole IPv4 packets.

    Ports are read only for protocols that have them.  All packets are NEW, without interfaces, a mac, or tcp
    flags but SYN; those of ICMP have type and code 0.  What else a match may ask, as a mark or a limit, is
    not known of them.
    """
    rows = np.zeros(len(headers), PACKET)
    low = rows["low"]
    protocol = headers[:, 4].astype(np.uint64)
    low[:, Field.SRC], low[:, Field.DST], low[:, Field.PROTO] = headers[:, 0], headers[:, 1], protocol
    low[:, Field.FRAG] = int(Fragment.WHOLE)
    low[:, Field.STATE] = STATES.index("NEW")
    always = 0
    for field in (Field.SRC, Field.DST, Field.PROTO, Field.FRAG, Field.IIF, Field.OIF, Field.STATE):
        always |= 1 << field
    present = np.full(len(headers), always, np.uint16)
    with_ports = np.isin(protocol, sorted(PORT_PROTOCOLS))
    low[:, Field.SPORT], low[:, Field.DPORT] = headers[:, 2] * with_ports, headers[:, 3] * with_ports
    present[with_ports] |= 1 << Field.SPORT | 1 << Field.DPORT
    tcp = protocol == TCP
    low[tcp, Field.FLAGS] = 2
    present[tcp] |= 1 << Field.FLAGS
    present[protocol == ICMP] |= 1 << Field.ICMP
    rows["present"], rows["l4_bytes"] = present, L4_BYTES
    return PacketBatch(Family.IPV4, rows, seeded=False)


def set_interface(batch: PacketBatch, field: Field, name: str) -> None:
    """Set the interface of all packets of *batch* to *name*; *field*: IIF or OIF."""
    number = interface_number(name)
    batch.rows["low"][:, field] = number & (1 << 64) - 1
    batch.rows["high"][:, HALF[field]] = number >> 64

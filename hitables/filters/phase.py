"""What a packet does to a TCP connection, as a field of headers and filters."""

from __future__ import annotations

import enum

WIDTH = 3  # bits of the field


class Phase(enum.IntEnum):
    """OTHER: neither begins nor ends one, or is not of TCP.  SYN: asks for one; SYNACK: is granted one.
    FIN: ends one direction; RST: ends both.
    """

    OTHER = 0
    SYN = 1
    SYNACK = 2
    FIN = 3
    RST = 4


_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16


def of_flags(flags: int) -> Phase:
    """The phase of a TCP header's flags."""
    if flags & _RST:
        return Phase.RST
    if flags & _SYN:
        return Phase.SYNACK if flags & _ACK else Phase.SYN
    return Phase.FIN if flags & _FIN else Phase.OTHER

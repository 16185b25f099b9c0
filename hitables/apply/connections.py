"""New connections to this host: what shows that a new session still gets through."""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path

_ESTABLISHED = "01"
_FILES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

Connections = frozenset[tuple[str, int]]  # address and port of the client


def established(client: str, server_port: int) -> Connections:
    """The established TCP connections from *client* to *server_port* of this network namespace."""
    found = set()
    for file in _FILES:
        try:
            lines = file.read_text().splitlines()[1:]
        except OSError:
            continue  # a kernel without IPv6
        for line in lines:
            _, local, remote, state, *_ = line.split()
            address, port = _end(remote)
            if state == _ESTABLISHED and _end(local)[1] == server_port and address == client:
                found.add((address, port))
    return frozenset(found)


def _end(text: str) -> tuple[str, int]:
    """Address and port of one end, as in 0100007F:0016: words of 32 bits in the order of this machine."""
    words, _, port = text.partition(":")
    data = bytes.fromhex(words)
    if sys.byteorder == "little":
        data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    address = ipaddress.ip_address(data)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)

"""New connections to this host: what shows that a new session still gets through.

A connection shows it only if its first packet passed the new rules.  The kernel lists the connections and not
when they began, so what counts are those that were not listed at the first look, in any state: the answer to
a SYN that the old rules let in passes as part of a known connection.
"""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path

# The states that follow a complete handshake (include/net/tcp_states.h); TCP Fast Open gets to FIN_WAIT1
# without one.
_FIN_WAIT2, _TIME_WAIT, _CLOSE_WAIT, _LAST_ACK = "05", "06", "08", "09"
_COMPLETE = frozenset({"01", _FIN_WAIT2, _TIME_WAIT, _CLOSE_WAIT, _LAST_ACK})
_FILES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_COUNTERS = Path("/proc/net/netstat")

Connections = frozenset[tuple[str, int]]  # address and port of the client


class NewConnections:
    """The TCP connections from *client* to *server_port* of this network namespace, from the first look on.

    A handshake by a SYN cookie is not listed before its last packet.  So if cookies were used since the last
    look, all connections that are there count as old.
    """

    def __init__(self, client: str, server_port: int) -> None:
        self.client, self.server_port = client, server_port
        self._old: Connections | None = None
        self._cookies = 0  # that were used before the last look

    def look(self) -> bool:
        """Whether a connection has been established that began after the first look; OSError if unknown."""
        cookies = _cookies_used()
        listed, complete = self._listed()
        if self._old is None:
            self._old = listed
        elif _cookies_used() != self._cookies:
            self._old |= listed
        self._cookies = cookies
        return not complete <= self._old

    def begin_again(self) -> None:
        """Take the connections of now for old ones; OSError if they are unknown."""
        self._old = None
        self.look()

    def _listed(self) -> tuple[Connections, Connections]:
        """The connections in any state, and those of a complete handshake, also if they are closed since."""
        listed, complete = set(), set()
        for file in _FILES:
            try:
                lines = file.read_text().splitlines()[1:]
            except FileNotFoundError:
                continue  # a kernel without IPv6
            for line in lines:
                _, local, remote, state, *_ = line.split()
                address, port = _end(remote)
                if _end(local)[1] == self.server_port and address == self.client:
                    listed.add((address, port))
                    if state in _COMPLETE:
                        complete.add((address, port))
        return frozenset(listed), frozenset(complete)


def _cookies_used() -> int:
    """The handshakes that SYN cookies have completed in this network namespace."""
    names, values = (
        line.split() for line in _COUNTERS.read_text().splitlines() if line.startswith("TcpExt:")
    )
    return int(dict(zip(names, values, strict=True))["SyncookiesRecv"])


def _end(text: str) -> tuple[str, int]:
    """Address and port of one end, as in 0100007F:0016: words of 32 bits in the order of this machine."""
    words, _, port = text.partition(":")
    data = bytes.fromhex(words)
    if sys.byteorder == "little":
        data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    address = ipaddress.ip_address(data)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)

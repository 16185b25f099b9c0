"""The SSH session that loads new rules, as SSH_CONNECTION and the connection table tell it, and its packets.

The packets of a session are its next one, a new connection from the same host, and the answers to both.  If
nat of this host translates the session, as its entry in the connection table tells, a packet has one form up
to nat and another one behind it; if the server is not the one that the client has named, a new connection
must be translated to it, too.  A connection of this host to itself is translated before it comes in, in chain
OUTPUT; that is taken to stay.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ..errors import InvalidOption
from ..ir.fields import Family
from ..ir.rule import Target
from .known_connection import KnownConnection
from .translation import ConnectionEnds, as_sent, may_lead_to

_Places: TypeAlias = tuple[tuple[str, str], ...]
# In the order of the kernel: the tables and chains of packets to this host, and of its answers.
_IN = (("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("nat", "PREROUTING"), ("mangle", "INPUT"),
       ("filter", "INPUT"), ("security", "INPUT"), ("nat", "INPUT"))  # fmt: skip
_OUT = (("raw", "OUTPUT"), ("mangle", "OUTPUT"), ("filter", "OUTPUT"), ("security", "OUTPUT"),
        ("mangle", "POSTROUTING"))  # fmt: skip
# nat is consulted for the first packet of a connection only.
_FOLLOWED = tuple(place for place in _IN if place[0] != "nat")
_SYN = " flags=SYN"


@dataclass(frozen=True, slots=True)
class SshSession:
    """A connection to this host: addresses, ports, and the interface; "" if that is unknown.

    sent      the connection as the client has sent it, if nat of this host translates it
    is_known  whether the connection table has it: else its first direction may be that of an answer
    """

    client: str
    client_port: int
    server: str
    server_port: int
    interface: str = ""
    sent: ConnectionEnds | None = None
    is_known: bool = False

    @property
    def family(self) -> Family:
        return Family.IPV6 if ":" in self.client else Family.IPV4

    @property
    def arrived(self) -> ConnectionEnds:
        """The connection as the socket of the server has it."""
        return ConnectionEnds(self.client, self.client_port, self.server, self.server_port)

    def packets(self) -> tuple[SessionPacket, SessionPacket, SessionPacket, SessionPacket]:
        """The next packet and a new connection, each before its answer."""
        new_port = 40_000 if self.client_port != 40_000 else 40_001
        arrived, sent = self.arrived, self.sent or self.arrived
        new = arrived._replace(client_port=new_port), sent._replace(client_port=new_port)
        following = self._request("the session", "ESTABLISHED", arrived, sent, _FOLLOWED)
        its_answer = self._answer("the answers of the session", arrived, sent)
        opening = self._request("a new connection", "NEW", *new, _IN)
        opening_answer = self._answer("the answers to a new connection", *new)
        known = KnownConnection(sent, arrived) if self.is_known else None
        known_new = KnownConnection(new[1], new[0])
        return (
            following._replace(connection=known),
            its_answer._replace(connection=known and known._replace(is_answer=True)),
            opening._replace(connection=known_new._replace(arrived=None) if self.sent else known_new),
            opening_answer._replace(connection=known_new._replace(is_answer=True)),
        )

    def _request(
        self, what: str, state: str, arrived: ConnectionEnds, sent: ConnectionEnds, places: _Places
    ) -> SessionPacket:
        """A packet of the client, in a connection that is *sent* so and has *arrived* so."""
        is_own = self.sent is not None and self.interface == "lo"  # nat is behind it when it comes in
        client = arrived if is_own else sent

        def fields(server: str, port: int) -> str:
            interface = f" in={self.interface}" if self.interface else ""
            syn = _SYN if state == "NEW" and self.sent else ""  # also where it is NEW+DNAT
            return (
                f"src={client.client} dst={server} proto=tcp dport={port}{interface} "
                f"sport={client.client_port}{syn}"
            )

        fields_arrived = fields(arrived.server, arrived.server_port)
        if self.sent is None:
            return SessionPacket(what, fields_arrived, state, places)
        if is_own:
            return SessionPacket(what, fields_arrived, state + self._nat(), _FOLLOWED)
        state_behind = state + self._nat(new=state == "NEW")
        return SessionPacket(
            what,
            fields(sent.server, sent.server_port),
            state if state == "NEW" else state_behind,
            places,
            (fields_arrived, state_behind),
            self._leads_here if self._is_dnat else None,
        )

    def _answer(self, what: str, arrived: ConnectionEnds, sent: ConnectionEnds) -> SessionPacket:
        """A packet of this host to the client of `_request`."""

        def fields(client: str, port: int) -> str:
            interface = f" out={self.interface}" if self.interface else ""
            return (
                f"src={arrived.server} dst={client} proto=tcp sport={arrived.server_port}{interface} "
                f"dport={port}"
            )

        state = f"ESTABLISHED{self._nat()}"
        behind = (fields(sent.client, sent.client_port), state) if self.sent else None
        return SessionPacket(what, fields(arrived.client, arrived.client_port), state, _OUT, behind)

    def _nat(self, new: bool = False) -> str:
        """What nat has changed of the connection, as in its state; of a *new* one only its destination."""
        if self.sent is None:
            return ""
        is_snat = (self.client, self.client_port) != (self.sent.client, self.sent.client_port)
        return ("+SNAT" if is_snat and not new else "") + ("+DNAT" if self._is_dnat else "")

    @property
    def _is_dnat(self) -> bool:
        sent = self.sent or self.arrived
        return (self.server, self.server_port) != (sent.server, sent.server_port)

    def _leads_here(self, target: Target) -> bool:
        """Whether a target of table nat may translate a new connection as it has this one."""
        return may_lead_to(target, self.sent or self.arrived, self.arrived)


class SessionPacket(NamedTuple):
    """A packet of a session: what it is, its fields and state, the tables and chains that it traverses.

    behind      its fields and state behind nat; None: nat does not translate it
    leads_here  whether a target of table nat translates its destination so; None: nat leaves it as it is
    connection  the connection that it belongs to; None: it is not known
    """

    what: str
    fields: str
    state: str
    places: _Places
    behind: tuple[str, str] | None = None
    leads_here: Callable[[Target], bool] | None = None
    connection: KnownConnection | None = None

    @property
    def text(self) -> str:
        return f"{self.fields} state={self.state}"

    @property
    def text_behind(self) -> str:
        """The text behind nat."""
        return self.text if self.behind is None else f"{self.behind[0]} state={self.behind[1]}"

    @property
    def needs_nat(self) -> bool:
        """Whether its connection fails where nat leaves it as it is.

        A new connection needs no other client, and nor does the answer to one that was left as it was.
        """
        return self.behind is not None and (
            self.leads_here is not None or self.state not in ("NEW", "INVALID")
        )

    def once_answered(self) -> SessionPacket:
        """The packet that follows a request when that has been answered."""
        return self._replace(what=f"{self.what}, once answered", places=_FOLLOWED)

    def of_no_connection(self) -> SessionPacket:
        """The packet, if conntrack has not seen both halves of its connection."""
        fields = self.fields.removesuffix(_SYN)
        behind = self.behind and (self.behind[0].removesuffix(_SYN), "INVALID")
        return self._replace(fields=fields, state="INVALID", behind=behind)


def session_of(environment: Mapping[str, str]) -> SshSession | None:
    """The session that `ssh_connection` tells; None if there is none."""
    connection = ssh_connection(environment)
    words = connection.split()
    if not words:
        return None
    try:
        client, client_port, server, server_port = words
        arrived = ConnectionEnds(_address(client), int(client_port), _address(server), int(server_port))
    except ValueError:
        raise InvalidOption(
            f"SSH_CONNECTION={connection!r} is not CLIENT PORT SERVER PORT; set it to nothing "
            "(SSH_CONNECTION=) if this is no SSH session"
        ) from None
    sent = as_sent(arrived)
    interface = client.partition("%")[2] or _interface((sent or arrived).client, arrived.server)
    return SshSession(*arrived, interface, None if sent == arrived else sent, sent is not None)


def ssh_connection(environment: Mapping[str, str]) -> str:
    """SSH_CONNECTION in *environment*, or ""."""
    return _set_connection(environment) or ""


def _set_connection(environment: Mapping[str, str]) -> str | None:
    """SSH_CONNECTION in *environment* or of a process above; None: it is set nowhere.

    A user sets it to nothing to say that there is no session.
    sudo, doas and `su -` take it away; then it is that of the nearest process above this one that has it.
    A process that was left to init has left the session that started it, too, as a server of tmux has.
    """
    if "SSH_CONNECTION" in environment:
        return environment["SSH_CONNECTION"]
    process = os.getppid()
    with contextlib.suppress(OSError):
        while process > 1:
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            parent, session = _parent_and_session(process)
            if parent == 1 and session != _parent_and_session(1)[1]:
                break
            for variable in variables:
                name, _, value = variable.partition(b"=")
                if name == b"SSH_CONNECTION":
                    return value.decode("ascii", "replace")
            process = parent
    return None


def _parent_and_session(process: int) -> tuple[int, int]:
    """The parent of *process*, and its session, which setsid begins."""
    stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
    _, parent, _, session, *_ = stat.rpartition(")")[2].split()
    return int(parent), int(session)


def may_be_remote(environment: Mapping[str, str]) -> bool:
    """Whether this is a terminal other than a console, and SSH_CONNECTION is set nowhere.

    run0 and machinectl let init start the commands of a session, so `ssh_connection` does not find it.
    """
    try:
        return _set_connection(environment) is None and os.ttyname(0).startswith("/dev/pts/")
    except OSError:
        return False


def _address(text: str) -> str:
    """The address without its zone, the interface of a link-local one (fe80::1%eth0)."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _interface(client: str, server: str) -> str:
    """The interface by which this host reaches *client*; "" if it cannot be found out."""
    try:
        route = subprocess.run(
            ["ip", "-o", "route", "get", client, "from", server], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    device = re.search(r"\bdev (\S+)", route.stdout)
    return device[1] if device and route.returncode == 0 else ""

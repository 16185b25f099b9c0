"""Whether new rules would cut off the session that loads them, or packets that must pass.

The packets of a session are those of $SSH_CONNECTION: its next packet, a new connection from the same host,
and the answers to both.  If nat of this host translates the session, as its entry in the connection table
tells, a packet is traced as it was sent up to nat and as it arrives behind that; if the server is not the one
that the client has named, a new connection must be translated to it, too.  A connection of this host to
itself is translated before it comes in, in chain OUTPUT; that is taken to stay.  Each is traced through the
chains that it traverses in this kernel, with what the rules on its way write (way.py), also those of tables
that stay as they are.  The kernel is asked for the members of ipsets and the types of addresses, and limits
are taken as fresh (kernel_answers.py).  Other conditions that are not part of a packet are assumed not to
hold; they are named in a refusal, and in a caution where a packet passes only so.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ..errors import HitablesError, InvalidOption
from ..ir.fields import Family, Field
from ..ir.packet import Backend
from ..ir.packet_text import read_packet
from ..ir.program import BUILT_IN, Program
from ..ir.rule import Target
from ..ir.semantics import Walk
from ..ir.unasked import unasked
from ..parse.rule_parts import nearest
from ..verify.question import decided_by, show_rule
from .translation import Ends, as_sent, may_lead_to
from .way import Way, table_of

_Places: TypeAlias = tuple[tuple[str, str], ...]
# In the order of the kernel: the tables and chains of packets to this host, and of its answers.
_IN = (("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("nat", "PREROUTING"), ("mangle", "INPUT"),
       ("filter", "INPUT"), ("security", "INPUT"), ("nat", "INPUT"))  # fmt: skip
_OUT = (("raw", "OUTPUT"), ("mangle", "OUTPUT"), ("filter", "OUTPUT"), ("security", "OUTPUT"),
        ("mangle", "POSTROUTING"))  # fmt: skip
# nat is consulted for the first packet of a connection only.
_FOLLOWED = tuple(place for place in _IN if place[0] != "nat")
_SYN = " flags=SYN"
_NAT_OF_REQUESTS = ("nat", "PREROUTING")
# The first places behind the translation: of the destination of a request, and of that of its answers.
_BEHIND_NAT = {("mangle", "INPUT"), ("filter", "OUTPUT")}
# By chain of table filter: what a packet has traversed before, in tables that write marks.
_BEFORE = {
    "INPUT": (("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("mangle", "INPUT")),
    "FORWARD": (("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("mangle", "FORWARD")),
    "OUTPUT": (("raw", "OUTPUT"), ("mangle", "OUTPUT")),
}
# By chain: the address of a packet there that is one of this host.
_LOCAL = {"INPUT": Field.DST, "OUTPUT": Field.SRC}


@dataclass(frozen=True, slots=True)
class Session:
    """A connection to this host: addresses, ports, and the interface; "" if that is unknown.

    sent  the connection as the client has sent it, if nat of this host translates it
    """

    client: str
    client_port: int
    server: str
    server_port: int
    interface: str = ""
    sent: Ends | None = None

    @property
    def family(self) -> Family:
        return Family.IPV6 if ":" in self.client else Family.IPV4

    @property
    def arrived(self) -> Ends:
        """The connection as the socket of the server has it."""
        return Ends(self.client, self.client_port, self.server, self.server_port)

    def packets(self) -> tuple[_Sent, _Sent, _Sent, _Sent]:
        """The next packet and a new connection, each before its answer."""
        new_port = 40_000 if self.client_port != 40_000 else 40_001
        arrived, sent = self.arrived, self.sent or self.arrived
        first = arrived._replace(client_port=new_port), sent._replace(client_port=new_port)
        return (
            self._request("the session", "ESTABLISHED", arrived, sent, _FOLLOWED),
            self._answer("the answers of the session", arrived, sent),
            self._request("a new connection", "NEW", *first, _IN),
            self._answer("the answers to a new connection", *first),
        )

    def _request(self, what: str, state: str, arrived: Ends, sent: Ends, places: _Places) -> _Sent:
        is_own = self.sent is not None and self.interface == "lo"  # nat is behind it when it comes in
        client = arrived if is_own else sent

        def fields(server: str, port: int) -> str:
            came = f" in={self.interface}" if self.interface else ""
            syn = _SYN if state == "NEW" and self.sent else ""  # also where it is NEW+DNAT
            ends = f"src={client.client} dst={server} proto=tcp dport={port}{came} sport={client.client_port}"
            return ends + syn

        if self.sent is None:
            return _Sent(what, fields(arrived.server, arrived.server_port), state, places)
        there = fields(arrived.server, arrived.server_port)
        if is_own:
            return _Sent(what, there, state + self._nat(), _FOLLOWED)
        behind = there, state + self._nat(new=state == "NEW")
        before = state if state == "NEW" else behind[1]
        leads_here = self._leads_here if self._is_dnat else None
        return _Sent(what, fields(sent.server, sent.server_port), before, places, behind, leads_here)

    def _answer(self, what: str, arrived: Ends, sent: Ends) -> _Sent:
        def fields(client: str, port: int) -> str:
            goes = f" out={self.interface}" if self.interface else ""
            return (
                f"src={arrived.server} dst={client} proto=tcp sport={arrived.server_port}{goes} dport={port}"
            )

        state = f"ESTABLISHED{self._nat()}"
        behind = (fields(sent.client, sent.client_port), state) if self.sent else None
        return _Sent(what, fields(arrived.client, arrived.client_port), state, _OUT, behind)

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


class _Sent(NamedTuple):
    """A packet of a session: what it is, its fields and state, the tables and chains that it traverses.

    behind      its fields and state behind nat; None: nat does not translate it
    leads_here  whether a target of table nat translates its destination so; None: nat leaves it as it is
    """

    what: str
    fields: str
    state: str
    places: _Places
    behind: tuple[str, str] | None = None
    leads_here: Callable[[Target], bool] | None = None

    @property
    def text(self) -> str:
        return f"{self.fields} state={self.state}"

    @property
    def text_behind(self) -> str:
        """The text behind nat."""
        return self.text if self.behind is None else f"{self.behind[0]} state={self.behind[1]}"

    def of_no_connection(self) -> _Sent:
        """The packet, if conntrack has not seen both halves of its connection."""
        fields = self.fields.removesuffix(_SYN)
        behind = self.behind and (self.behind[0].removesuffix(_SYN), "INVALID")
        return self._replace(fields=fields, state="INVALID", behind=behind)


def session_of(environment: Mapping[str, str]) -> Session | None:
    """The session that `ssh_connection` tells; None if there is none."""
    connection = ssh_connection(environment)
    words = connection.split()
    if not words:
        return None
    try:
        client, client_port, server, server_port = words
        arrived = Ends(_address(client), int(client_port), _address(server), int(server_port))
    except ValueError:
        raise InvalidOption(
            f"SSH_CONNECTION={connection!r} is not CLIENT PORT SERVER PORT; set it to nothing "
            "(SSH_CONNECTION=) if this is no SSH session"
        ) from None
    sent = as_sent(arrived)
    interface = client.partition("%")[2] or _interface(sent.client, arrived.server)
    return Session(*arrived, interface, None if sent == arrived else sent)


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


_HOLDS = {True: "holds", False: "does not hold"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A packet that would not pass: what it is, and what decides about it, for the user."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(slots=True)
class Rules:
    """The rules whose packets are traced.

    program  all tables that the kernel will have
    own      the names of those that are loaded; of the others, verdicts are not looked at
    name_of  the place of a line of a table, for the user
    """

    program: Program
    own: Collection[str]
    backend: Backend
    name_of: Callable[[str, int], str]
    refusals: list[Refusal] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)

    def trace_session(self, session: Session) -> None:
        """Add the packets of *session* that would not pass to the refusals."""
        packet, its_answer, first, first_answer = session.packets()
        self._trace_connection(packet, its_answer, connmark=None)
        came, went = self._trace_connection(first, first_answer, connmark=0)
        if came.is_tracked and not went.is_tracked:  # conntrack has not seen what the client answers then
            second = first._replace(what=f"{first.what}, once answered", places=_FOLLOWED)
            self._trace(second.of_no_connection(), Field.DST, None)

    def _trace_connection(self, request: _Sent, answer: _Sent, connmark: int | None) -> tuple[Way, Way]:
        """The ways of a packet and of its answer; *connmark*: of the connection before, None if unknown."""
        came = self._trace(request, Field.DST, connmark)
        if not came.is_tracked:
            answer = answer.of_no_connection()
        return came, self._trace(answer, Field.SRC, came.marks["connmark"])

    def _trace(self, packet: _Sent, local: Field, connmark: int | None) -> Way:
        way = Way(packet.text, self.program.family, {"mark": 0, "connmark": connmark}, local)
        for table, chain in packet.places:
            if table == "nat" and not way.is_tracked:
                continue
            if packet.behind and (table, chain) in _BEHIND_NAT and way.is_tracked:
                way.text = packet.text_behind
            what = f"{packet.what} ({way.text})"
            if packet.leads_here and (table, chain) == _NAT_OF_REQUESTS:
                passes = self._is_translated(way, packet.leads_here, what)
            else:
                passes = self._passes(way, table, chain, what)
            if not passes:
                break
        return way

    def _is_translated(self, way: Way, leads_here: Callable[[Target], bool], what: str) -> bool:
        """Whether table nat translates a new connection as it has the session; if not, it is refused.

        A table that stays is taken to do so, as it has before.
        """
        table, chain = _NAT_OF_REQUESTS
        passage = way.enter(self.program, table, chain, self.backend)
        if passage is None or table not in self.own:
            return True
        step = decided_by(passage.walk)
        target = step.rule.target if step is not None else None
        if target is not None and leads_here(target):
            return True
        why = self._decider(passage.walk, table, chain)
        self.refusals.append(Refusal(f"{what} is not translated as the session is", why))
        return False

    def trace_must(self, packets: Sequence[str]) -> None:
        """Add those of *packets*, each with its chain, that would not pass to the refusals.

        InvalidOption for a table or chain that neither the kernel nor the program has.
        """
        for packet in packets:
            spelled = read_packet(packet, self.program.family)
            _check_place(packet, spelled.table, spelled.chain, self.program)
            before = _BEFORE.get(spelled.chain, ()) if spelled.table == "filter" else ()
            text = re.sub(r"\bchain=\S+\s*", "", packet) if before else packet
            marks = {"mark": 0, "connmark": None} if before else {}
            way = Way(text, self.program.family, marks, _LOCAL.get(spelled.chain))
            for table, chain in before:
                way.enter(self.program, table, chain, self.backend)
            self._passes(way, spelled.table, spelled.chain, packet)

    def _passes(self, way: Way, table: str, chain: str, what: str) -> bool:
        """Whether the packet passes one chain; if not, it is refused."""
        passage = way.enter(self.program, table, chain, self.backend)
        if passage is None or table not in self.own:
            return True
        if not passage.passes:
            self.refusals.append(Refusal(what, self._decider(passage.walk, table, chain)))
        self.cautions += (
            f"{what} passes table {table}, chain {chain}, only if this {_HOLDS[held]}: {key}"
            for key, held in passage.crucial
        )
        return passage.passes

    def _decider(self, walk: Walk, table: str, chain: str) -> str:
        step = decided_by(walk)
        if step is None:
            text = f"{walk.verdict} by the policy of chain {chain}, table {table}"
        else:
            rule = f"-A {step.chain} {show_rule(step.rule)}"
            text = f"{self.name_of(table, step.rule.line)}: {rule} (table {table})"
        if walk.open:
            text += f"; assumed not to hold: {', '.join(sorted(walk.open))}"
        return text


def family_of(packet: str) -> Family | None:
    """The family of a packet as text, by its addresses; None if it has none."""
    address = re.search(r"\b(?:src|dst)=(\S+)", packet)
    return None if address is None else Family.IPV6 if ":" in address[1] else Family.IPV4


def check_must(packets: Sequence[str], families: Iterable[Family]) -> None:
    """InvalidOption if one of *packets* cannot be read, or is of none of *families*."""
    families = list(families)
    for packet in packets:
        family = family_of(packet) or min(families)
        if family not in families:
            raise InvalidOption(
                f"--must: {packet}\nThis is a packet of IPv{int(family)}, and no rules of that family are "
                "applied: give their file too, or leave the packet out"
            )
        try:
            read_packet(packet, family)
        except HitablesError as error:
            raise InvalidOption(f"--must: {error}\nWrite the packet as for hitables trace") from None


def must_unasked(packets: Sequence[str], programs: Sequence[Program]) -> Iterator[str]:
    """For each of *packets*: the words with an answer that no match of its table asks for, in any family."""
    for packet in packets:
        read_by = [program for program in programs if family_of(packet) in (program.family, None)]
        if read_by:
            spelled = read_packet(packet, read_by[0].family)
            tables = (table_of(program, spelled.table) for program in read_by)
            for word in unasked(spelled.answers, filter(None, tables)):
                yield f"--must {packet}: no match of table {spelled.table} asks for {word}"


def _check_place(packet: str, table: str, chain: str, program: Program) -> None:
    content = table_of(program, table)
    if content is None and table not in BUILT_IN:
        raise InvalidOption(f"--must {packet}: there is no table {table}; {' '.join(BUILT_IN)} are tables")
    known = [*BUILT_IN.get(table, ()), *(() if content is None else content.by_name())]
    if chain not in known:
        hint = nearest(chain, known)
        raise InvalidOption(
            f"--must {packet}: table {table} has no chain {chain}{'; ' if hint else ''}{hint}"
        )


def check(refusals: Sequence[Refusal]) -> None:
    """HitablesError if there are refusals."""
    if refusals:
        shown = "\n".join(f"  {each}" for each in refusals)
        raise HitablesError(
            f"these packets would not pass; nothing is loaded (--force loads the rules anyway)\n{shown}"
        )

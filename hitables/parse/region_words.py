"""Sets of packets as an administrator writes them: to 10.1.9.7:22, from 10.0.0.0/8, tcp, state NEW.

    ADDRESS[:PORT]   192.0.2.7:ssh, 192.0.2.0/24, 192.0.2.1-192.0.2.9, :22, [2001:db8::7]:443, :1000-2000
    PROTOCOL         tcp, udp, 47, or several behind commas
    STATE            NEW, ESTABLISHED ..., or any; left out: first packets of connections

Every mistake is a ParseError that names the option.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from functools import partial

from ..errors import ParseError
from ..ir.connection_states import (
    ICMP_OF,
    LOOPBACK,
    REQUESTS,
    STATE_NAMES,
    first_state,
    states_of,
    why_no_state,
)
from ..ir.fields import ICMPV6, PORT_PROTOCOLS, Family, Field
from ..ir.hooks import hook_box
from ..ir.intervals import Values
from ..ir.packet_text import PROTOCOLS
from ..syntax import values

Box = dict[Field, Values]

_BRACKETED = re.compile(r"\[([^\]]*)\](?::(.*))?")


def region(
    family: Family,
    *,
    source: str = "",
    destination: str = "",
    protocols: str = "",
    iif: str = "",
    oif: str = "",
    state: str = "",
    table: str = "filter",
) -> Box:
    """The packets of *table* that all words describe; "" where a word is left out.

    Without a state, and of NEW packets, those of tcp have the flags of a first packet: SYN, and neither ACK,
    RST nor FIN; and those of ICMP are requests.  Of several states, those are left out that no packet of the
    table has.
    """
    box: Box = {}
    for option, text, address, port in (
        ("--from", source, Field.SRC, Field.SPORT),
        ("--to", destination, Field.DST, Field.DPORT),
    ):
        if family is Family.IPV4 and _is_ipv6(text):
            raise _wrong(option, text, "an address of IPv6, where the rules are of IPv4", "name their file")
        host, service = _parted(text, family)
        if re.fullmatch(r"[\w-]+", host):  # iptables takes 22 for 22.0.0.0
            raise _wrong(option, text, "not an address", _hint_at_word(option, host))
        if "," in service:
            raise _wrong(option, text, "a list of ports", "ask once for each port")
        if host:
            box[address] = _read(option, text, partial(_addresses, host, family))
        if service:
            box[port] = _read(option, text, partial(_ports, service))
    if protocols:
        box[Field.PROTO] = _read("--proto", protocols, lambda: _protocols(protocols))
    ports = Values.only(*PORT_PROTOCOLS)
    if Field.SPORT in box or Field.DPORT in box:
        box[Field.PROTO] = box.get(Field.PROTO, ports).intersect(ports)
        if not box[Field.PROTO]:
            raise _wrong(
                "--proto", protocols, "protocols without ports", "leave out the port, or give tcp or udp"
            )
    for option, text, interface in (("--in", iif, Field.IIF), ("--out", oif, Field.OIF)):
        if text:
            box[interface] = _read(option, text, partial(values.interface, text))
    is_loopback = box.get(Field.IIF) == Values.only(LOOPBACK)
    if not state or state.upper() == "NEW":
        box[Field.FLAGS] = values.tcp_flags("SYN,ACK,RST,FIN", "SYN")
        if Field.PROTO not in box or ICMP_OF[family] in box[Field.PROTO]:
            box[Field.ICMP] = Values.of(*((kind << 8, kind << 8 | 255) for kind in REQUESTS[family]))
    state = state or first_state(table, is_loopback)
    if state != "any" or table == "nat":
        box[Field.STATE] = _states(state, table, is_loopback)
    return box


def leaves_out_discovery(box: Box, family: Family, state: str) -> bool:
    """Whether first packets are asked for, of ICMPv6 by name."""
    protocols = box.get(Field.PROTO)
    return family is Family.IPV6 and not state and protocols is not None and ICMPV6 in protocols


def without_packets(box: Box, chains: Iterable[str], family: Family) -> list[str]:
    """The interfaces of *box*, as "in" and "out", that no packet has in any of *chains*."""
    hooks = [hook_box(chain, family) for chain in chains]
    named = (("in", Field.IIF), ("out", Field.OIF))
    return [
        word
        for word, field in named
        if field in box
        and hooks
        and all(field in hook and not hook[field].intersect(box[field]) for hook in hooks)
    ]


def _hint_at_word(option: str, word: str) -> str:
    """A hint at a word in place of an address: that of a port, or else of an interface."""
    if word[0].isdigit() or values.is_service(word):
        return f"write :{word} for a port"
    return f"write --{'in' if option == '--from' else 'out'} {word} for an interface"


def _states(text: str, table: str, is_loopback: bool) -> Values:
    """The states that packets of *table* have, of those in *text*."""
    asked = STATE_NAMES if text == "any" else text.split(",")
    found = _read("--ctstate", text, lambda: values.states(",".join(asked), STATE_NAMES))
    present = found.intersect(values.states(",".join(states_of(table, is_loopback)), STATE_NAMES))
    if not present:
        why = why_no_state(table, is_loopback, asked[0].upper())
        hint = "leave it out to ask for first packets" + (", or say any" if table == "raw" else "")
        raise _wrong("--ctstate", text, why, hint)
    return present


def _parted(text: str, family: Family) -> tuple[str, str]:
    """Address and port; either may be ""."""
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed:
        return bracketed[1], bracketed[2] or ""
    if family is Family.IPV6:
        return ("", text[1:]) if re.fullmatch(r":[^:]+", text) else (text, "")
    host, _, service = text.partition(":")
    return host, service


def _is_ipv6(text: str) -> bool:
    """Whether the text is an address of IPv6, with or without brackets, a network or a range of these."""
    first = text.removeprefix("[").partition("]")[0].partition("-")[0].partition("/")[0]
    try:
        return bool(ipaddress.IPv6Address(first))
    except ValueError:
        return False


def _addresses(text: str, family: Family) -> Values:
    return values.address_range(text, family) if "-" in text else values.network(text, family)


def _ports(text: str) -> Values:
    return values.port_range(text.replace("-", ":", 1) if re.fullmatch(r"\d+-\d+", text) else text)


def _protocols(text: str) -> Values:
    numbers = [
        PROTOCOLS[word] if word in PROTOCOLS else values.protocol(word) for word in text.lower().split(",")
    ]
    return Values.only(*numbers)


def _read(option: str, text: str, read: Callable[[], Values]) -> Values:
    try:
        found = read()
    except (ValueError, OverflowError) as error:
        raise _wrong(option, text, str(error), "") from None
    if not found:
        raise _wrong(option, text, "no packet: the range is reversed", "write the lower end first")
    return found


def _wrong(option: str, text: str, reason: str, hint: str) -> ParseError:
    return ParseError(f"{option} {text}: {reason}", source="question", hint=hint)

"""How option values are spelt: text to sets of integers.

Each reader takes the value as the user wrote it and returns its meaning.  It raises ValueError, with a reason
for the user, if iptables 1.8.9 refuses the value.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable

from ..ir.fields import STATES, Family, Fragment, interface_number
from ..ir.intervals import Values, masked

PROTOCOLS = {
    "icmp": 1, "igmp": 2, "ipencap": 4, "ipv4": 4, "tcp": 6, "cbt": 7, "egp": 8, "igp": 9, "udp": 17, "dccp": 33, "ipv6": 41,
    "ipv6-route": 43, "ipv6-frag": 44, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51, "ipv6-icmp": 58,
    "icmpv6": 58, "ipv6-nonxt": 59, "ipv6-opts": 60, "eigrp": 88, "ospf": 89, "ospfigp": 89, "ipip": 94,
    "etherip": 97, "pim": 103, "ipcomp": 108, "vrrp": 112, "pgm": 113, "l2tp": 115, "isis": 124, "sctp": 132, "mobility-header": 135,
    "ipv6-mh": 135, "mh": 135, "udplite": 136, "mptcp": 262,
}  # fmt: skip

ICMP_TYPES = {
    "echo-reply": (0, None), "pong": (0, None), "destination-unreachable": (3, None),
    "network-unreachable": (3, 0), "host-unreachable": (3, 1), "protocol-unreachable": (3, 2),
    "port-unreachable": (3, 3), "fragmentation-needed": (3, 4), "source-route-failed": (3, 5),
    "network-unknown": (3, 6), "host-unknown": (3, 7), "network-prohibited": (3, 9),
    "host-prohibited": (3, 10), "TOS-network-unreachable": (3, 11), "TOS-host-unreachable": (3, 12),
    "communication-prohibited": (3, 13), "host-precedence-violation": (3, 14), "precedence-cutoff": (3, 15),
    "source-quench": (4, None), "redirect": (5, None), "network-redirect": (5, 0), "host-redirect": (5, 1),
    "TOS-network-redirect": (5, 2), "TOS-host-redirect": (5, 3), "echo-request": (8, None),
    "ping": (8, None), "router-advertisement": (9, None), "router-solicitation": (10, None),
    "time-exceeded": (11, None), "ttl-exceeded": (11, None), "ttl-zero-during-transit": (11, 0),
    "ttl-zero-during-reassembly": (11, 1), "parameter-problem": (12, None), "ip-header-bad": (12, 0),
    "required-option-missing": (12, 1), "timestamp-request": (13, None), "timestamp-reply": (14, None),
    "address-mask-request": (17, None), "address-mask-reply": (18, None),
}  # fmt: skip

ICMPV6_TYPES = {
    "destination-unreachable": (1, None), "no-route": (1, 0), "communication-prohibited": (1, 1),
    "beyond-scope": (1, 2), "address-unreachable": (1, 3), "port-unreachable": (1, 4),
    "failed-policy": (1, 5), "reject-route": (1, 6), "packet-too-big": (2, None),
    "time-exceeded": (3, None), "ttl-exceeded": (3, None), "ttl-zero-during-transit": (3, 0),
    "ttl-zero-during-reassembly": (3, 1), "parameter-problem": (4, None), "bad-header": (4, 0),
    "unknown-header-type": (4, 1), "unknown-option": (4, 2), "echo-request": (128, None),
    "ping": (128, None), "echo-reply": (129, None), "pong": (129, None),
    "mld-listener-query": (130, None), "mld-listener-report": (131, None),
    "mld-listener-done": (132, None), "mld-listener-reduction": (132, None),
    "router-solicitation": (133, None), "router-advertisement": (134, None),
    "neighbour-solicitation": (135, None), "neighbor-solicitation": (135, None),
    "neighbour-advertisement": (136, None), "neighbor-advertisement": (136, None),
    "redirect": (137, None),
}  # fmt: skip

FLAG_BITS = {"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32, "ALL": 63, "NONE": 0}

# What is free in an address behind a prefix of each length.
_SIZES = {str(length): (1 << 32 - length) - 1 for length in range(33)}
ADDRESS_RANGE = re.compile(r"[0-9.]+-[0-9.]+|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*-[0-9a-fA-F:.]*")
_NUMBER = re.compile(r"\+?(?:0[xX][0-9a-fA-F]+|[0-9]+)")


def number(text: str, low: int, high: int) -> int:
    """An integer from *low* to *high*: decimal, 0x hexadecimal or 0 octal, as strtoul reads it."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"not a number: {text!r}")
    try:
        digits = text.removeprefix("+")
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" and len(digits) > 1 else 10
        value = int(digits, base)
    except ValueError:
        raise ValueError(f"not a number: {text!r}") from None
    if not low <= value <= high:
        raise ValueError(f"{text} is not between {low} and {high}")
    return value


def _no_address(version: int, text: str) -> ValueError:
    """What to say of a text in place of an address."""
    if ADDRESS_RANGE.fullmatch(text):
        return ValueError(f"not an IPv{version} address: {text!r}")
    why = "iptables-restore replaces no variables" if "$" in text else "host names are not looked up"
    return ValueError(f"not an IPv{version} address: {text!r} ({why}: write the address)")


def _ipv4(text: str, looked_up: bool) -> int:
    """Dotted numbers, octal ones behind a 0; fewer than four are filled up with zeros on the right: as
    iptables does.

    *looked_up*: what iptables does not read so, it looks up there, and the C library takes a large last
    number for several bytes.
    """
    parts = text.split(".")
    if not 1 <= len(parts) <= 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        raise _no_address(4, text)
    if looked_up and len(parts) < 4 and not any(part.startswith("+") for part in parts):
        try:
            packed = int.from_bytes(socket.inet_aton(text), "big")
        except OSError:
            packed = 0
        if packed and any(
            int(part, 0 if part[:1] != "0" or part[1:2] in "xX" else 8) > 255 for part in parts if part
        ):
            return packed
    value = 0
    for part in parts + ["0"] * (4 - len(parts)):
        try:
            value = value << 8 | number(part, 0, 255)
        except ValueError as error:
            raise ValueError(f"not an IPv4 address: {text!r} ({error})") from None
    return value


def ipv4_prefix(text: str) -> tuple[int, int] | None:
    """Lowest and highest address of A.B.C.D or A.B.C.D/LENGTH; None for any other spelling."""
    host, slash, length = text.partition("/")
    size = _SIZES.get(length) if slash else 0
    if size is None:
        return None
    try:
        packed = socket.inet_aton(host)
    except (OSError, UnicodeError):
        return None
    # The C library reads octal numbers and short forms in ways of its own.
    if socket.inet_ntoa(packed) != host:
        return None
    base = int.from_bytes(packed, "big") & ~size
    return base, base | size


def _ipv6(text: str) -> int:
    try:
        if "%" in text:
            raise ValueError
        return int(ipaddress.IPv6Address(text))
    except ValueError:
        raise _no_address(6, text) from None


def address(text: str, family: Family, looked_up: bool = False) -> int:
    """One address as an integer; *looked_up*: where iptables takes names of hosts."""
    if family is Family.IPV4:
        if ":" in text:
            raise ValueError(f"an IPv6 address in an IPv4 rule set: {text!r}")
        return _ipv4(text, looked_up)
    if re.fullmatch(r"[0-9]+(\.[0-9]+)+", text):
        raise ValueError(f"an IPv4 address in an IPv6 rule set: {text!r}")
    return _ipv6(text)


def network(text: str, family: Family) -> Values:
    """ADDRESS, ADDRESS/LENGTH or ADDRESS/MASK; OverflowError for a mask of too many intervals."""
    width = 32 if family is Family.IPV4 else 128
    host, slash, length = text.partition("/")
    if slash and _is_zero(length, family):
        return Values(((0, (1 << width) - 1),))  # as any/0: the address is not looked at
    value = address(host, family, looked_up=True)
    if not slash:
        return Values.only(value)
    if _NUMBER.fullmatch(length):
        try:
            free = width - number(length, 0, width)
        except ValueError as error:
            raise ValueError(f"not a prefix length: {error}") from None
        base = value >> free << free
        return Values(((base, base | (1 << free) - 1),))
    try:
        if family is Family.IPV4 and length.count(".") != 3:
            raise ValueError
        mask = address(length, family)
    except ValueError:
        raise ValueError(f"neither a prefix length nor a mask: {length!r}") from None
    return masked(value, mask, width)


def _is_zero(length: str, family: Family) -> bool:
    """Whether a mask or prefix length leaves every bit free."""
    return (length.strip("+0") == "" and "0" in length) or length == (
        "0.0.0.0" if family is Family.IPV4 else "::"
    )


def protocol(text: str) -> int:
    """A protocol's number; 0 means any protocol."""
    if _NUMBER.fullmatch(text):
        try:
            return number(text, 0, 255)
        except ValueError as error:
            raise ValueError(f"unknown protocol {text!r}: {error}") from None
    name = text.lower()
    if name == "all":
        return 0
    try:
        found = PROTOCOLS[name] if name in PROTOCOLS else socket.getprotobyname(name)
    except OSError:
        raise ValueError(f"unknown protocol {text!r}") from None
    if found > 255:
        raise ValueError(
            f"protocol {text!r} is number {found}, which no packet has; iptables-nft takes it for {found & 255}"
        )
    return found


def port(text: str) -> int:
    """A port's number or its name in the services database."""
    if _NUMBER.fullmatch(text):
        try:
            return number(text, 0, 65535)
        except ValueError:
            raise ValueError(f"invalid port {text!r}: ports go from 0 to 65535") from None
    return _service(text)


def _service(text: str) -> int:
    try:
        return socket.getservbyname(text)
    except (OSError, UnicodeError):
        hint = ""
        if "," in text:
            hint = "; a list of ports needs -m multiport"
        elif re.fullmatch(r"\d+-\d+", text):
            hint = f"; a range is {text.replace('-', ':')}"
        raise ValueError(f"invalid port or unknown service {text!r}{hint}") from None


def is_service(text: str) -> bool:
    """Whether the services database has this name."""
    try:
        return bool(_service(text))
    except ValueError:
        return False


def decimal_port(text: str) -> int:
    """A port as getaddrinfo reads it, for udp and dccp.

    A 0 in front makes no octal number, there are no hexadecimal ones, and of a number that is too large
    sixteen bits are kept.
    """
    if not text:
        return 0
    if not re.fullmatch(r"[ \t]*\+?[0-9]+", text):
        return _service(text)
    value = int(text)
    if value >= 1 << 64 or value >> 31 & 1:
        raise ValueError(f"invalid port {text!r}: ports go from 0 to 65535")
    return value & 0xFFFF


def port_range(text: str, read: Callable[[str], int] = port) -> Values:
    """PORT or LOW:HIGH, either end may be left out; a reversed range is empty."""
    low, colon, high = text.partition(":")
    if not colon:
        return Values.only(read(low))
    first, last = read(low) if low else 0, read(high) if high else 65535
    return Values.of((first, last))


def decimal_port_range(text: str) -> Values:
    """As port_range, of decimal ports."""
    return port_range(text, decimal_port)


def port_list(text: str) -> Values:
    """PORT or LOW:HIGH, separated by commas; at most 15 ports, a range counting as two."""
    parts = text.split(",")
    if sum(2 if ":" in part else 1 for part in parts) > 15:
        raise ValueError("too many ports: multiport takes 15, a range counting as two")
    pairs = []
    for part in parts:
        low, colon, high = part.partition(":")
        first = port(low)
        last = port(high) if colon else first
        if colon and first >= last:
            raise ValueError(f"invalid port range {part!r}: multiport needs a low end below the high end")
        pairs.append((first, last))
    return Values.of(*pairs)


def _icmp(text: str, names: dict[str, tuple[int, int | None]]) -> Values:
    if text[:1].isdigit():
        kind, slash, code = text.partition("/")
        first = number(kind, 0, 255)
        if slash:
            return Values.only(first << 8 | number(code, 0, 255))
        return Values.of((first << 8, first << 8 | 255))
    matching = {pair for name, pair in names.items() if name.lower() == text.lower()} or {
        pair for name, pair in names.items() if name.lower().startswith(text.lower())
    }
    if len(matching) != 1:
        if not matching:
            raise ValueError(f"unknown ICMP type {text!r}")
        begun = [name for name in names if name.lower().startswith(text.lower())]
        raise ValueError(f"ambiguous ICMP type {text!r}: one of {', '.join(begun)}")
    kind_number, code_number = matching.pop()
    if code_number is None:
        return Values.of((kind_number << 8, kind_number << 8 | 255))
    return Values.only(kind_number << 8 | code_number)


ICMP_ANY = 0xFF00


def icmp_type(text: str, family: Family) -> Values:
    """TYPE, TYPE/CODE, a name, or (IPv4) "any", as values of Field.ICMP."""
    if family is Family.IPV6:
        return _icmp(text, ICMPV6_TYPES)
    chosen = Values.of((0, 0xFFFF)) if text.lower() == "any" else _icmp(text, ICMP_TYPES)
    # The kernel takes type 255 for any, however it is spelt.
    return Values.of((0, 0xFFFF)) if chosen.pairs[0][0] >= ICMP_ANY else chosen


def _flag_set(text: str) -> int:
    bits = 0
    for word in filter(None, text.split(",")):
        if word.upper() not in FLAG_BITS:
            raise ValueError(f"unknown TCP flag {word!r}; use one of {', '.join(FLAG_BITS)}")
        bits |= FLAG_BITS[word.upper()]
    return bits


def tcp_flags(mask: str, wanted: str) -> Values:
    """All flag bytes that have, of the flags *mask*, exactly the flags *wanted*."""
    look, want = _flag_set(mask), _flag_set(wanted)
    return Values.only(*(flags for flags in range(64) if flags & look == want))


LONGEST_PATTERN = 128


def hex_pattern(text: str) -> bytes:
    """Text with bytes in hexadecimal between |; a backslash makes the next character a plain one.

    The steps are those of parse_hex_string of iptables 1.8.9, which takes the character behind a | for one of
    the text, whatever it is, and refuses a byte 128 that a | is behind.
    """
    signs, out, at = text.encode("utf-8", "surrogateescape"), bytearray(), 0
    hexadecimal = False
    while at < len(signs):
        if len(out) >= LONGEST_PATTERN:
            raise ValueError(f"{text[:40]!r}… has more than {LONGEST_PATTERN} bytes")
        plain = signs[at : at + 1] == b"\\"
        if plain and hexadecimal:
            raise ValueError("a backslash in hexadecimal data")
        if signs[at : at + 1] == b"|":
            hexadecimal = not hexadecimal
            while hexadecimal and signs[at + 1 : at + 2] == b" ":
                at += 1
            at += 1
            if at >= len(signs):
                break
        if plain:
            if at + 1 >= len(signs):
                raise ValueError("a backslash at the end")
            out.append(signs[at + 1])
            at += 2
        elif hexadecimal:
            digits = signs[at : at + 2]
            if not re.fullmatch(b"[0-9a-fA-F]{2}", digits):
                shown = digits.decode("utf-8", "replace")
                raise ValueError(f"not hexadecimal: {shown!r}; write pairs of digits, as in |0d 0a|")
            if at + 2 >= len(signs):
                raise ValueError("a | that is never closed")
            out.append(int(digits, 16))
            at += 3 if signs[at + 2 : at + 3] == b" " else 2
        else:
            out.append(signs[at])
            at += 1
    if not out:
        raise ValueError("an empty pattern")
    return bytes(out)


# The names of interfaces; 0 is none.
ANY_PORT = Values.interval(1, (1 << 128) - 1)


def interface(text: str) -> Values:
    """A name, or a beginning of names with "+" behind it."""
    if len(text.encode("utf-8", "surrogateescape")) > 15:
        raise ValueError(f"interface name {text!r} is longer than 15 bytes")
    if not text:
        raise ValueError("an empty interface name")
    if text.endswith("+"):
        low = interface_number(text[:-1])
        free = 16 - len(text[:-1].encode("utf-8", "surrogateescape"))
        return Values.of((low, low | (1 << 8 * free) - 1))
    return Values.only(interface_number(text))


def bridge_port(text: str) -> Values:
    """As an interface, of a packet that crosses a bridge; "+" and "" are any port."""
    return interface(text or "+").intersect(ANY_PORT)


def mac(text: str) -> Values:
    """Six bytes in hexadecimal, separated by colons."""
    parts = text.split(":")
    if len(parts) != 6 or not all(re.fullmatch(r"[0-9a-fA-F]{0,2}", part) for part in parts):
        raise ValueError(f"not a MAC address: {text!r}")
    return Values.only(int("".join(part.rjust(2, "0") for part in parts), 16))


def states(text: str, words: tuple[str, ...]) -> Values:
    """A list of connection states, of which *words* are allowed, as values of Field.STATE."""
    members: set[int] = set()
    for word in text.split(","):
        name = word.upper()
        if name not in words:
            raise ValueError(f"unknown state {word!r}; use one of {', '.join(words)}")
        members |= {at for at, state in enumerate(STATES) if name in state.split("+")}
    return Values.only(*members)


def address_range(text: str, family: Family) -> Values:
    """FIRST-LAST, or one address; a reversed range is empty."""
    first, dash, last = text.partition("-")
    low = address(first, family)
    return Values.of((low, address(last, family) if dash else low))


LATER = Values.only(Fragment.LATER)

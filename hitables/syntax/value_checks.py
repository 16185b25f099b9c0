"""Checks of option values, by the kinds that grammars name: which values iptables 1.8.9 accepts.

Each check takes a value as written and the family, and raises ValueError with the reason if the value is
refused. `KINDS` names them all; those of numbers are in number_checks.py.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from functools import partial

from ..ir.fact import ADDRESS_TYPES
from ..ir.fields import Family
from . import number_checks as numeric
from . import values as spelt

Check = Callable[[str, Family], None]


def _string(text: str, family: Family, shortest: int = 0, longest: int = 1 << 20) -> None:
    size = len(text.encode("utf-8", "surrogateescape"))
    if size < shortest:
        raise ValueError("an empty value")
    if size > longest:
        raise ValueError(f"{text[:40]!r}… is longer than {longest} bytes")


def _words(text: str, family: Family, allowed: str, listed: bool = False, fold: bool = False) -> None:
    known = allowed.split()
    for word in text.split(",") if listed else [text]:
        if listed and not word:  # strtok passes over it
            continue
        if (word.lower() if fold else word) not in ([w.lower() for w in known] if fold else known):
            raise ValueError(f"unknown value {word!r}; use one of {', '.join(known)}")


def _host(text: str, family: Family) -> None:
    """An address; every name is accepted, as only the system that loads it can resolve it."""
    try:
        if family is Family.IPV4:
            if re.search(r"\s", text):
                raise OSError
            socket.inet_aton(text)
        else:
            socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    except (OSError, UnicodeError):
        label = r"[A-Za-z0-9_](?:[\w-]*[A-Za-z0-9_])?"
        name = re.fullmatch(rf"(?:{label}\.)*{label}\.?", text, re.ASCII)
        if name is None or not re.search(r"[A-Za-z_]", text):
            raise ValueError(f"not an IPv{family.value} address: {text!r}") from None


def _host_mask(text: str, family: Family) -> None:
    host, slash, mask = text.partition("/")
    _host(host, family)
    if slash:
        _prefix_mask(mask, family)


def _prefix(text: str, family: Family) -> None:
    if numeric.integer(text) == (0xFFFFFFFF, ""):
        return  # iptables takes it for a length that it has not read
    numeric.number(text, family, 0, 32 if family is Family.IPV4 else 128)


def _prefix_mask(text: str, family: Family) -> None:
    try:
        _prefix(text, family)
    except ValueError:
        try:
            (socket.inet_aton if family is Family.IPV4 else partial(socket.inet_pton, socket.AF_INET6))(text)
        except (OSError, UnicodeError):
            raise ValueError(f"{text!r} is neither a prefix length nor a mask") from None


def _service(text: str, family: Family) -> None:
    """A port as getaddrinfo reads it: a name, or decimal digits, of which it keeps sixteen bits."""
    spelt.decimal_port(text)


def _port_range(text: str, family: Family) -> None:
    pieces = text.split(":")
    if len(pieces) > 2:
        raise ValueError(f"{text!r} has more than two ports")
    for piece in pieces:
        if piece:
            _service(piece, family)


def _protocol(text: str, family: Family) -> None:
    spelt.protocol(text)


def _mac(text: str, family: Family) -> None:
    spelt.mac(text)


def _tos(text: str, family: Family) -> None:
    if not re.match(r"[ \t]*\+?[0-9]", text):
        _words(
            text,
            family,
            "Minimize-Delay Maximize-Throughput Maximize-Reliability Minimize-Cost Normal-Service",
            fold=True,
        )
        return
    numeric.mark(text, family, 0xFF)


_LEVELS = "alert crit debug emerg error info notice panic warning"


def _log_level(text: str, family: Family) -> None:
    if not re.fullmatch(r"[ \t]*\+?(0[xX])?0*[0-7]", text):
        _words(text, family, _LEVELS)


_DSCP = "CS0 CS1 CS2 CS3 CS4 CS5 CS6 CS7 BE AF11 AF12 AF13 AF21 AF22 AF23 AF31 AF32 AF33 AF41 AF42 AF43 EF"


def _address_types(text: str, family: Family) -> None:
    for word in text.split(","):
        if not any(name.lower().startswith(word.lower()) for name in ADDRESS_TYPES):
            raise ValueError(f"unknown address type {word!r}; use one of {', '.join(ADDRESS_TYPES)}")


_REJECTS = {
    Family.IPV4: "icmp-net-unreachable net-unreach icmp-host-unreachable host-unreach icmp-proto-unreachable proto-unreach "
    "icmp-port-unreachable port-unreach icmp-net-prohibited net-prohib icmp-host-prohibited host-prohib "
    "tcp-reset tcp-rst icmp-admin-prohibited admin-prohib",
    Family.IPV6: "icmp6-no-route no-route icmp6-adm-prohibited adm-prohibited icmp6-addr-unreachable addr-unreach "
    "icmp6-port-unreachable port-unreach tcp-reset icmp6-policy-fail policy-fail icmp6-reject-route reject-route",
}  # fmt: skip


def _reject(text: str, family: Family) -> None:
    if not any(name.startswith(text.lower()) for name in _REJECTS[family].split()):
        raise ValueError(
            f"unknown reject type {text!r}; use one of {', '.join(_REJECTS[family].split()[::2])}"
        )


def _nat_ports(text: str, family: Family) -> None:
    match = re.match(r"[^-/:]*", text)
    assert match is not None
    first, rest = match[0], text[match.end() :]
    low, behind = numeric.integer(first)
    if low is None or low > 0xFFFF or behind:
        if (rest and low is None) or (low is not None and behind):
            raise ValueError(f"bad port {text!r}")
        spelt.port(first)
        low = 0
    if rest.startswith(":"):
        raise ValueError(f"bad ports {text!r}; a range is written LOW-HIGH")
    if rest.startswith("-"):
        last, slash, base = rest[1:].partition("/")
        high, behind = numeric.integer(last)
        if high is None or behind or high > 0xFFFF or high < low:
            raise ValueError(f"bad port range {text!r}")
        if slash:
            spelt.port(base)
    elif rest:
        raise ValueError(f"bad ports {text!r}")


def _nat_address(text: str, family: Family) -> None:
    """ADDRESS[-ADDRESS][:PORTS], in IPv6 with ports [ADDRESS]:PORTS."""
    start, colon, ports = text, "", ""
    if "[" in text:
        match = re.match(r".*?\[(.*?)\](.*)", text, re.DOTALL)
        if family is Family.IPV4 or not match:
            raise ValueError(f"bad address {text!r}")
        start = match[1]
        _, colon, ports = match[2].partition(":")
    elif text.count(":") == 1:
        start, colon, ports = text.partition(":")
    if colon:
        _nat_ports(ports, family)
        if not start:
            return
    kind = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
    for address in start.split("-", 1):
        try:
            socket.inet_pton(kind, address)
        except (OSError, UnicodeError):
            raise ValueError(f"not an IPv{family.value} address: {address!r}") from None


def _class(text: str, family: Family) -> None:
    if not re.match(r"\s*(0[xX])?[0-9a-fA-F]+:\s*(0[xX])?[0-9a-fA-F]+", text):
        raise ValueError(f"not a class: {text!r}; write MAJOR:MINOR in hexadecimal")


_TCP_OPTIONS = ("wscale", "mss", "sack-permitted", "sack", "timestamp", "md5")


def _strip(text: str, family: Family) -> None:
    for word in text.split(","):
        if word not in _TCP_OPTIONS:
            try:
                numeric.number(word, family, 2, 255)
            except ValueError:
                known = ", ".join(_TCP_OPTIONS)
                raise ValueError(
                    f"{word!r} is no TCP option; a number from 2 on, or one of {known}"
                ) from None


def _u32(text: str, family: Family) -> None:
    number = r"\s*(?:0[xX][0-9a-fA-F]+|[0-9]+)\s*"
    place = rf"{number}(?:(?:&|<<|>>|@){number})*"
    test = rf"{place}={number}(?::{number})?(?:,{number}(?::{number})?)*"
    if not re.fullmatch(rf"{test}(?:&&{test})*", text):
        raise ValueError(f"not a u32 test: {text[:40]!r}; write PLACE=VALUES, as in 0>>22&0x3C@0=1:5")


def _hex_string(text: str, family: Family) -> None:
    spelt.hex_pattern(text)


def _bytecode(text: str, family: Family) -> None:
    match = re.fullmatch(r"\s*([0-9]+)\s*,(.*)", text, re.DOTALL)
    if not match or not 1 <= int(match[1]) <= 64:
        raise ValueError("not a program: write its length (1 to 64) and its instructions, as in 1,6 0 0 0")
    codes = [code for code in match[2].split(",") if code.strip()]
    if len(codes) != int(match[1]) or not all(
        re.match(r"\s*[0-9]+ [0-9]+ [0-9]+ [0-9]+", code) for code in codes
    ):
        raise ValueError(f"not a program of {match[1]} instructions of four numbers")


def _events(text: str, family: Family, known: str) -> None:
    _words(text, family, known, listed=True)


def _hash_modes(text: str, family: Family) -> None:
    for word in re.split(r"[,|]", text):
        if word:
            _words(word, family, "srcip dstip srcport dstport")


def _set_name(text: str, family: Family) -> None:
    _string(text, family, 0, 31)


def _directions(text: str, family: Family) -> None:
    _words(text, family, "src dst", listed=True)
    if text.count(",") > 5:
        raise ValueError(f"{text!r} has more than six directions")


def _addresses(text: str, family: Family) -> None:
    parts = text.split(",")
    if len(parts) > 16:
        raise ValueError("more than 16 addresses")
    for part in parts:
        _host(part, family)


def _header_options(text: str, family: Family) -> None:
    parts = text.split(",") if text else []
    if len(parts) > 16:
        raise ValueError("more than 16 options")
    for part in parts:
        # Numbers that are too large are cut to eight bits.
        if not re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|[0-9]+)(:(-?(0[xX][0-9a-fA-F]+|[0-9]+))?)?", part):
            raise ValueError(f"{part!r} is no TYPE or TYPE:LENGTH")


_HEADERS = "hop dst route frag ah esp none hop-by-hop ipv6-opts ipv6-route ipv6-frag ipv6-nonxt protocol"


def _headers(text: str, family: Family) -> None:
    for word in text.split(","):
        if word.lower() in ("hop", "hop-by-hop", "dst", "route", "frag", "ah", "esp", "none", "prot", "auth"):
            continue
        if word not in _HEADERS.split() and numeric.integer(word) not in [
            (n, "") for n in (0, 43, 44, 50, 51, 59, 60, 255)
        ]:
            try:
                socket.getprotobyname(word)
            except OSError:
                raise ValueError(f"unknown header {word!r}") from None


_MH = ("binding-refresh-request brr home-test-init hoti careof-test-init coti home-test hot careof-test cot "
       "binding-update bu binding-acknowledgement ba binding-error be")  # fmt: skip


def _mh_type(text: str, family: Family) -> None:
    pieces = text.split(":", 1)
    for piece in pieces:
        if piece and not any(name.startswith(piece.lower()) for name in _MH.split()):
            numeric.number(piece, family, 0, 255)
    low, high = numeric.integer(pieces[0])[0], numeric.integer(pieces[-1])[0]
    if low is not None and high is not None and low > high:
        raise ValueError(f"bad range {text!r}: its low end is above its high end")


def _tuple(text: str, family: Family) -> None:
    _words(text, family, "src dst sport dport spi proto ct", listed=True)


_SCTP_CHUNKS = (
    "data init init_ack sack heartbeat heartbeat_ack abort shutdown shutdown_ack error cookie_echo cookie_ack "
    "ecn_ecne ecn_cwr shutdown_complete asconf asconf_ack forward_tsn i_data re_config pad i_forward_tsn"
)


def _chunks(text: str, family: Family) -> None:
    if text.lower() in ("all", "none"):
        return
    for word in text.split(","):
        if word.partition(":")[0].lower() not in ["", *_SCTP_CHUNKS.split()]:
            raise ValueError(f"unknown chunk type {word!r}")


def _file_name(text: str, family: Family) -> None:
    """What the kernel makes a file of in /proc."""
    _string(text, family, 1)
    if "/" in text or text in (".", ".."):
        raise ValueError(f"{text!r} cannot be the name of a file")


def _any(text: str, family: Family) -> None:
    """Whatever it is."""


KINDS: dict[str, Check] = {
    "label": numeric.label, "user": numeric.user, "file": _file_name, "positive": numeric.positive_seconds,
    "any": _any, "u64": partial(numeric.number, high=(1 << 64) - 1), "range8": partial(numeric.number_range, high=0xFF),
    "range16": partial(numeric.number_range, high=0xFFFF), "range32": partial(numeric.number_range, high=0xFFFFFFFF),
    "range64": partial(numeric.number_range, high=(1 << 64) - 1), "ordered16": partial(numeric.number_range, high=0xFFFF, ordered=True),
    "ordered64": partial(numeric.number_range, high=(1 << 64) - 1, ordered=True),
    "balance": partial(numeric.number_range, high=0xFFFE, ordered=True),
    "mark": numeric.mark, "named": numeric.named_mark, "host": _host, "net": _host_mask, "prefix": _prefix,
    "mask": _prefix_mask, "port": _service, "ports": _port_range, "protocol": _protocol, "mac": _mac, "tos": _tos,
    "level": _log_level, "chance": partial(numeric.fraction, low=0, high=1), "rate": numeric.limit_rate, "hashrate": numeric.hash_rate,
    "burst": numeric.hash_burst, "seconds": numeric.seconds_count, "time": numeric.time_of_day, "date": numeric.date, "monthdays": numeric.month_days,
    "weekdays": numeric.week_days, "dscp": partial(_words, allowed=_DSCP, fold=True), "addresstypes": _address_types,
    "reject": _reject, "natports": _nat_ports, "nat": _nat_address, "class": _class, "strip": _strip, "tests": _u32,
    "hex": _hex_string, "bytecode": _bytecode, "zone": numeric.zone, "hashmodes": _hash_modes,
    "ctevents": partial(_events, known="new related destroy reply assured protoinfo helper mark natseqinfo secmark"),
    "expevents": partial(_events, known="new"), "addresses": _addresses, "options": _header_options,
    "headers": _headers, "mh": _mh_type, "tuple": _tuple, "estimate": numeric.duration, "bits": numeric.bit_rate,
    "delay": numeric.led_delay,
    "nonempty": partial(_string, shortest=1), "setname": _set_name, "directions": _directions, "chunks": _chunks,
    "status": partial(_words, allowed="NONE EXPECTED SEEN_REPLY ASSURED CONFIRMED", listed=True, fold=True),
    "ctdir": partial(_words, allowed="ORIGINAL REPLY", fold=True),
    "inout": partial(_words, allowed="in out"), "pol": partial(_words, allowed="none ipsec"),
    "tunnel": partial(_words, allowed="transport tunnel"), "statistic": partial(_words, allowed="random nth"),
    "bytesdir": partial(_words, allowed="original reply both"),
    "bytesmode": partial(_words, allowed="packets bytes avgpkt"), "algo": partial(_words, allowed="bm kmp fsm"),
    "pkttype": partial(_words, allowed="unicast broadcast multicast host bcast mcast otherhost", fold=True),
    "audit": partial(_words, allowed="accept drop reject", fold=True),
    "hashmode": partial(_words, allowed="sourceip sourceip-sourceport sourceip-sourceport-destport"),
    "vdir": partial(_words, allowed="ORIGINAL REPLY", fold=True), "vmethod": partial(_words, allowed="GATE IPIP MASQ", fold=True),
    "dccp": partial(_words, allowed="REQUEST RESPONSE DATA ACK DATAACK CLOSEREQ CLOSE RESET SYNC SYNCACK INVALID",
                    listed=True, fold=True),
    "anyall": partial(_words, allowed="any all only", fold=True),
}  # fmt: skip


_BITS = {"u8": 0xFF, "u16": 0xFFFF, "u32": 0xFFFFFFFF}


def check_of_kind(text: str) -> Check:
    match = re.fullmatch(r"(u8|u16|u32)(?:\(([0-9]+),([0-9]+)\))?", text)
    if match:
        return partial(numeric.number, low=int(match[2] or 0), high=int(match[3] or _BITS[match[1]]))
    match = re.fullmatch(r"string\(([0-9]+),([0-9]+)\)", text)
    if match:
        return partial(_string, shortest=int(match[1]), longest=int(match[2]))
    return KINDS[text]

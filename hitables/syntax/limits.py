"""Which values and combinations of options iptables 1.8.9 takes, for each match and target.

A table beside that of options.py: there is what the words mean, here is what is refused.  An
extension that is not here takes anything.  What both iptables-legacy and iptables-nft refuse is
refused; where one of them takes the words, they are taken (`make accepts` compares).

Per option: NAME:KIND, and a "!" behind it where the option may be negated, a "*" where it may stand
more than once.  A KIND is a name in KINDS, or an integer type with its bounds, as in u8(1,255).
"""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from ..ir.fields import Family
from . import values as spelt

Check = Callable[[str, Family], None]
Said = Mapping[str, Sequence[tuple[bool, tuple[str, ...]]]]

V4, V6 = Family.IPV4, Family.IPV6


class Refusal(ValueError):
    """What is wrong, and with which option (its place among the uses), None: with all of it."""

    def __init__(self, reason: str, use: int | None = None, value: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.use, self.value = reason, use, value


# Kinds of values.


def _integer(text: str) -> tuple[int | None, str]:
    """The number that *text* begins with, as strtoul reads it with base 0, and the rest; None: there is none."""
    found = re.match(r"[ \t]*\+?(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))", text)
    if found is None:
        return None, text
    digits = found[1] or found[2] or found[3]
    return int(digits, 16 if found[1] else 8 if found[2] else 10), text[found.end() :]


def _number(text: str, family: Family, low: int = 0, high: int = 0xFFFFFFFF) -> None:
    value, rest = _integer(text)
    if value is None or rest or not low <= value <= high:
        raise ValueError(f"{text!r} is no number from {low} to {high}")


def _range(text: str, family: Family, high: int, ordered: bool = False) -> None:
    """NUMBER, or NUMBER:NUMBER, of which either may be left out; *ordered*: not reversed."""
    low = 0
    pieces = text.split(":")
    if len(pieces) > 2:
        raise ValueError(f"{text!r} has more than two numbers")
    for piece in pieces:
        if piece:
            try:
                _number(piece, family, low, high)
            except ValueError:
                raise ValueError(f"{piece!r} of {text!r} is no number from {low} to {high}") from None
            low = (_integer(piece)[0] or 0) if ordered else 0


def _mark(text: str, family: Family, high: int = 0xFFFFFFFF) -> None:
    """VALUE or VALUE/MASK."""
    for piece in text.split("/", 1):
        try:
            _number(piece, family, 0, high)
        except ValueError:
            raise ValueError(f"{text!r} is not VALUE or VALUE/MASK, numbers up to {high:#x}") from None


def _named_mark(text: str, family: Family) -> None:
    """As _mark, or a name that a file of the system has."""
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", text):
        _mark(text, family)


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
            raise ValueError(f"unknown value {word!r}; there are {', '.join(known)}")


def _host(text: str, family: Family) -> None:
    """An address; a name passes, as only the system that loads it can tell whether it resolves."""
    try:
        if family is V4:
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
    if _integer(text) == (0xFFFFFFFF, ""):
        return  # iptables takes it for a length that it has not read
    _number(text, family, 0, 32 if family is V4 else 128)


def _prefix_mask(text: str, family: Family) -> None:
    try:
        _prefix(text, family)
    except ValueError:
        try:
            (socket.inet_aton if family is V4 else partial(socket.inet_pton, socket.AF_INET6))(text)
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
    _mark(text, family, 0xFF)


_LEVELS = "alert crit debug emerg error info notice panic warning"


def _log_level(text: str, family: Family) -> None:
    if not re.fullmatch(r"[ \t]*\+?(0[xX])?0*[0-7]", text):
        _words(text, family, _LEVELS)


def _float(text: str, family: Family, low: float, high: float) -> None:
    found = re.fullmatch(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX][0-9a-fA-F]+", text)
    value = (float(int(text, 16)) if text[:2].lower() == "0x" else float(text)) if found else None
    if value is None or not low <= value <= high:
        raise ValueError(f"{text!r} is no number from {low:g} to {high:g}")


_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def _rate(text: str, family: Family, scale: int, bits: int) -> None:
    """COUNT, or COUNT/UNIT with any beginning of second, minute, hour, day."""
    count, slash, unit = text.partition("/")
    seconds = 1
    if slash:
        named = [size for name, size in _UNITS.items() if unit and name.startswith(unit.lower())]
        if not named:
            raise ValueError(f"bad rate {text!r}: the unit is second, minute, hour or day")
        seconds = named[0]
    found = re.match(r"\s*([+-]?[0-9]+)", count)
    times = int(found[1]) % (1 << bits) if found else 0
    if times == 0:
        raise ValueError(f"bad rate {text!r}: write COUNT/UNIT")
    if scale * seconds // times == 0:
        raise ValueError(f"bad rate {text!r}: it is too fast")


def _limit_rate(text: str, family: Family) -> None:
    _rate(text, family, 10_000, 32)


def _hash_rate(text: str, family: Family) -> None:
    at = text.find("b/s")
    if at > 0:
        if not re.match(r"\s*[+-]?0*[1-9]", text):
            raise ValueError(f"bad rate {text!r}: write BYTESb/s")
        return
    _rate(text, family, 1_000_000, 64)


def _hash_burst(text: str, family: Family) -> None:
    value, rest = _integer(text)
    if not value or (not rest and value > 1_000_000) or value >= 1 << 64:
        raise ValueError(f"bad burst {text!r}: a number from 1 to 1000000, or bytes as in 10kb")


def _seconds(text: str, family: Family) -> None:
    value, rest = _integer(text)
    if value is None or rest or value >= 1 << 32:
        raise ValueError(f"{text!r} is no number of seconds")


def _time(text: str, family: Family) -> None:
    found = re.fullmatch(r"([0-9]*):([0-9]*)(?::([0-9]*))?", text)
    if not found or any(
        int(part or 0) > most for part, most in zip(found.groups(), (23, 59, 59), strict=True)
    ):
        raise ValueError(f"not a time: {text!r}; write HH:MM or HH:MM:SS")


def _date(text: str, family: Family) -> None:
    found = re.fullmatch(
        r"([0-9]+)(?:-([0-9]*)(?:-([0-9]*)(?:T([0-9]*)(?::([0-9]*)(?::([0-9]*))?)?)?)?)?", text
    )
    if (
        not found
        or not 1970 <= int(found[1]) <= 2038
        or any(
            int(part or 0) > most for part, most in zip(found.groups()[1:], (12, 31, 23, 59, 59), strict=True)
        )
    ):
        raise ValueError(
            f"not a date from 1970 to 2038: {text!r}; write YYYY-MM-DDTHH:MM:SS or a beginning of it"
        )


def _month_days(text: str, family: Family) -> None:
    for day in text.split(","):
        value, rest = _integer(day[:2])
        if (rest and rest != day[:2]) or (value or 0) > 31 or (rest and value is None):
            raise ValueError(f"{day!r} is no day of a month")


def _week_days(text: str, family: Family) -> None:
    for day in text.removesuffix(",").split(",") if text else ():
        if re.fullmatch(r"-[1-9]", day):
            continue  # strtoul reads it
        if not day:
            raise ValueError("an empty day")
        value, rest = _integer(day[:3])
        if rest == "" and value == 0:
            raise ValueError("a week does not begin with day 0; days go from 1 (Monday) to 7")
        if rest and day[:2] not in ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"):
            raise ValueError(f"{day!r} is no day of the week; write Mon or 1")


_DSCP = "CS0 CS1 CS2 CS3 CS4 CS5 CS6 CS7 BE AF11 AF12 AF13 AF21 AF22 AF23 AF31 AF32 AF33 AF41 AF42 AF43 EF"
_ADDRESS_TYPES = (
    "UNSPEC UNICAST LOCAL BROADCAST ANYCAST MULTICAST BLACKHOLE UNREACHABLE PROHIBIT THROW NAT XRESOLVE"
)


def _address_types(text: str, family: Family) -> None:
    for word in text.split(","):
        if not any(name.lower().startswith(word.lower()) for name in _ADDRESS_TYPES.split()):
            raise ValueError(f"unknown address type {word!r}; there are {', '.join(_ADDRESS_TYPES.split())}")


_REJECTS = {
    V4: "icmp-net-unreachable net-unreach icmp-host-unreachable host-unreach icmp-proto-unreachable proto-unreach "
    "icmp-port-unreachable port-unreach icmp-net-prohibited net-prohib icmp-host-prohibited host-prohib "
    "tcp-reset tcp-rst icmp-admin-prohibited admin-prohib",
    V6: "icmp6-no-route no-route icmp6-adm-prohibited adm-prohibited icmp6-addr-unreachable addr-unreach "
    "icmp6-port-unreachable port-unreach tcp-reset icmp6-policy-fail policy-fail icmp6-reject-route reject-route",
}  # fmt: skip


def _reject(text: str, family: Family) -> None:
    if not any(name.startswith(text.lower()) for name in _REJECTS[family].split()):
        raise ValueError(
            f"unknown reject type {text!r}; there are {', '.join(_REJECTS[family].split()[::2])}"
        )


def _nat_ports(text: str, family: Family) -> None:
    found = re.match(r"[^-/:]*", text)
    assert found is not None
    first, rest = found[0], text[found.end() :]
    low, behind = _integer(first)
    if low is None or low > 0xFFFF or behind:
        if (rest and low is None) or (low is not None and behind):
            raise ValueError(f"bad port {text!r}")
        spelt.port(first)
        low = 0
    if rest.startswith(":"):
        raise ValueError(f"bad ports {text!r}; a range is written LOW-HIGH")
    if rest.startswith("-"):
        last, slash, base = rest[1:].partition("/")
        high, behind = _integer(last)
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
        found = re.match(r".*?\[(.*?)\](.*)", text, re.DOTALL)
        if family is V4 or not found:
            raise ValueError(f"bad address {text!r}")
        start = found[1]
        _, colon, ports = found[2].partition(":")
    elif text.count(":") == 1:
        start, colon, ports = text.partition(":")
    if colon:
        _nat_ports(ports, family)
        if not start:
            return
    kind = socket.AF_INET if family is V4 else socket.AF_INET6
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
                _number(word, family, 2, 255)
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
    plain = True
    for at, piece in enumerate(re.split(r"(?<!\\)\|", text)):
        plain = at % 2 == 0
        if not plain and not re.fullmatch(r"\s*([0-9a-fA-F]{2}\s*)*", piece):
            raise ValueError(f"not hexadecimal: {piece[:40]!r}; write pairs of digits, as in |0d 0a|")
    if not plain:
        raise ValueError("a | that is never closed")


def _bytecode(text: str, family: Family) -> None:
    found = re.fullmatch(r"\s*([0-9]+)\s*,(.*)", text, re.DOTALL)
    if not found or not 1 <= int(found[1]) <= 64:
        raise ValueError("not a program: write its length (1 to 64) and its instructions, as in 1,6 0 0 0")
    codes = [code for code in found[2].split(",") if code.strip()]
    if len(codes) != int(found[1]) or not all(
        re.match(r"\s*[0-9]+ [0-9]+ [0-9]+ [0-9]+", code) for code in codes
    ):
        raise ValueError(f"not a program of {found[1]} instructions of four numbers")


def _events(text: str, family: Family, known: str) -> None:
    _words(text, family, known, listed=True)


def _zone(text: str, family: Family) -> None:
    if text.lower() != "mark":
        _number(text, family, 0, 0xFFFF)


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


_HEADERS = (
    "hop dst route frag ah esp none proto hop-by-hop ipv6-opts ipv6-route ipv6-frag ipv6-nonxt protocol"
)


def _headers(text: str, family: Family) -> None:
    for word in text.split(","):
        if word.lower() in ("hop", "hop-by-hop", "dst", "route", "frag", "ah", "esp", "none", "prot", "auth"):
            continue
        if word not in _HEADERS.split() and _integer(word) not in [
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
            _number(piece, family, 0, 255)
    low, high = _integer(pieces[0])[0], _integer(pieces[-1])[0]
    if low is not None and high is not None and low > high:
        raise ValueError(f"bad range {text!r}: its low end is above its high end")


def _tuple(text: str, family: Family) -> None:
    _words(text, family, "src dst sport dport spi proto ct", listed=True)


_TIME = re.compile(
    r"\s*([+-]?(?:0x[0-9a-f]+|[0-9]+\.?[0-9]*|\.[0-9]+))(s|sec|secs|ms|msec|msecs|us|usec|usecs)?", re.I
)
_MICROSECONDS = {"s": 1_000_000, "m": 1_000, "u": 1, "": 1}


def _estimate(text: str, family: Family) -> None:
    if not _TIME.fullmatch(text):
        raise ValueError(f"not a time: {text!r}; write it as in 250ms")


def _microseconds(text: str) -> int:
    found = _TIME.fullmatch(text)
    assert found is not None
    value = float(int(found[1], 16)) if "x" in found[1].lower() else float(found[1])
    return int(value * _MICROSECONDS[(found[2] or "")[:1].lower()])


def _rate_estimator(said: Said, family: Family) -> None:
    """The kernel has six intervals, from 250 ms to 8 s, and thirty weights."""
    interval = _microseconds(said["--rateest-interval"][0][1][0])
    if interval > 8_000_000:
        raise ValueError("--rateest-interval is longer than 8s")
    weight = _microseconds(said["--rateest-ewmalog"][0][1][0])
    steps = 1
    while steps < 32 and interval / -math.log(1 - 1 / (1 << steps)) <= weight:
        steps += 1
    if weight >= 0 and not 0 < steps - 1 < 31:
        raise ValueError("--rateest-ewmalog is out of range for --rateest-interval")


def _bit_rate(text: str, family: Family) -> None:
    if not re.fullmatch(
        r"\s*[+-]?(0x[0-9a-f]+|[0-9]+\.?[0-9]*|\.[0-9]+)([kmgt]?i?b(it|ps)|bps|bit)?", text, re.I
    ):
        raise ValueError(f"not a rate: {text!r}; write it as in 100kbit")


def _led_delay(text: str, family: Family) -> None:
    if text.lower() != "inf":
        _number(text, family)


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


def _label(text: str, family: Family) -> None:
    """A number, or a name of a file of the system."""
    if not re.match(r"[A-Za-z_]", text):
        _number(text, family, 0, (1 << 64) - 1)
        if (_integer(text)[0] or 0) & 0xFFFF > 127:
            raise ValueError(f"{text} is above 127")


def _user(text: str, family: Family) -> None:
    """A number or a range of them; a name passes, as only the system that loads it knows its users."""
    if re.match(r"[A-Za-z_]", text):
        return
    pieces = re.split(r"[:-]", text, maxsplit=1)
    for piece in pieces:
        _number(piece, family, 0, 0xFFFFFFFE)
    if len(pieces) == 2 and (_integer(pieces[0])[0] or 0) > (_integer(pieces[1])[0] or 0):
        raise ValueError(f"bad range {text!r}: its low end is above its high end")


def _file_name(text: str, family: Family) -> None:
    """What the kernel makes a file of in /proc."""
    _string(text, family, 1)
    if "/" in text or text in (".", ".."):
        raise ValueError(f"{text!r} cannot be the name of a file")


def _burst_seconds(text: str, family: Family) -> None:
    found = re.match(r"\s*\+?([0-9]+)", text)
    if not found or not 0 < int(found[1]) < 1 << 31:
        raise ValueError(f"{text!r} is no number of seconds from 1 on")


def _any(text: str, family: Family) -> None:
    """Whatever it is."""


KINDS: dict[str, Check] = {
    "label": _label, "user": _user, "file": _file_name, "positive": _burst_seconds,
    "any": _any, "u64": partial(_number, high=(1 << 64) - 1), "range8": partial(_range, high=0xFF),
    "range16": partial(_range, high=0xFFFF), "range32": partial(_range, high=0xFFFFFFFF),
    "range64": partial(_range, high=(1 << 64) - 1), "ordered16": partial(_range, high=0xFFFF, ordered=True),
    "ordered64": partial(_range, high=(1 << 64) - 1, ordered=True),
    "balance": partial(_range, high=0xFFFE, ordered=True),
    "mark": _mark, "named": _named_mark, "host": _host, "net": _host_mask, "prefix": _prefix,
    "mask": _prefix_mask, "port": _service, "ports": _port_range, "protocol": _protocol, "mac": _mac, "tos": _tos,
    "level": _log_level, "chance": partial(_float, low=0, high=1), "rate": _limit_rate, "hashrate": _hash_rate,
    "burst": _hash_burst, "seconds": _seconds, "time": _time, "date": _date, "monthdays": _month_days,
    "weekdays": _week_days, "dscp": partial(_words, allowed=_DSCP, fold=True), "addresstypes": _address_types,
    "reject": _reject, "natports": _nat_ports, "nat": _nat_address, "class": _class, "strip": _strip, "tests": _u32,
    "hex": _hex_string, "bytecode": _bytecode, "zone": _zone, "hashmodes": _hash_modes,
    "ctevents": partial(_events, known="new related destroy reply assured protoinfo helper mark natseqinfo secmark"),
    "expevents": partial(_events, known="new"), "addresses": _addresses, "options": _header_options,
    "headers": _headers, "mh": _mh_type, "tuple": _tuple, "estimate": _estimate, "bits": _bit_rate,
    "delay": _led_delay,
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


def _kind(text: str) -> Check:
    found = re.fullmatch(r"(u8|u16|u32)(?:\(([0-9]+),([0-9]+)\))?", text)
    if found:
        return partial(_number, low=int(found[2] or 0), high=int(found[3] or _BITS[found[1]]))
    found = re.fullmatch(r"string\(([0-9]+),([0-9]+)\)", text)
    if found:
        return partial(_string, shortest=int(found[1]), longest=int(found[2]))
    return KINDS[text]


@dataclass(frozen=True, slots=True)
class Taken:
    """How one option may stand: what its values must be, whether negated, whether more than once."""

    kinds: tuple[Check, ...]
    negated: bool
    several: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """What one extension takes.

    one_of: groups of which at most one option may stand.  needed: groups of which one must.
    with_: an option, and the one that must stand beside it.  family: the only one that has it.
    check: what no table says; it gets the values of each option and raises ValueError.
    """

    options: dict[str, Taken]
    one_of: tuple[tuple[str, ...], ...] = ()
    needed: tuple[tuple[str, ...], ...] = ()
    with_: dict[str, str] = field(default_factory=dict)
    family: Family | None = None
    check: Callable[[Said, Family], None] | None = None


def _limits(
    options: str = "", *, one: str = "", need: str = "", with_: str = "", family: Family | None = None,
    check: Callable[[Said, Family], None] | None = None,
) -> Limits:  # fmt: skip
    table = {}
    for item in options.split():
        found = re.fullmatch(r"(--[\w-]+)((?::[\w(),]+)*)(!?)(\*?)", item)
        assert found is not None, item
        said = found[2].split(":")[1:]
        kinds = () if all(kind == "any" for kind in said) else tuple(_kind(kind) for kind in said)
        table[found[1]] = Taken(kinds, bool(found[3]), bool(found[4]))
    return Limits(
        table,
        tuple(tuple(group.split()) for group in one.split("|") if group.split()),
        tuple(tuple(group.split()) for group in need.split("|") if group.split()),
        {option: wanted for option, wanted in (pair.split(">") for pair in with_.split())},
        family,
        check,
    )


def _statistic(said: Said, family: Family) -> None:
    mode = said["--mode"][0][1][0]
    if mode == "random" and "--probability" not in said:
        raise ValueError("--mode random needs --probability")
    if mode == "nth" and "--every" not in said:
        raise ValueError("--mode nth needs --every and --packet")
    if "--every" in said and "--packet" in said:
        every, packet = (_integer(said[name][0][1][0])[0] or 0 for name in ("--every", "--packet"))
        if packet > every - 1:
            raise ValueError(f"--packet must be below --every, so at most {every - 1}")


def _contiguous(said: Said, family: Family) -> None:
    def seconds(name: str, absent: int) -> int:
        if name not in said:
            return absent
        parts = [int(part or 0) for part in said[name][0][1][0].split(":")]
        return parts[0] * 3600 + parts[1] * 60 + sum(parts[2:])

    if "--contiguous" in said and seconds("--timestart", 0) < seconds("--timestop", 86399):
        raise ValueError("--contiguous wants a --timestop that is earlier than --timestart")


def _cluster(said: Said, family: Family) -> None:
    total = _integer(said["--cluster-total-nodes"][0][1][0])[0] or 0
    if "--cluster-local-node" in said:
        if (_integer(said["--cluster-local-node"][0][1][0])[0] or 0) > total:
            raise ValueError("--cluster-local-node is above --cluster-total-nodes")
    elif (_integer(said["--cluster-local-nodemask"][0][1][0])[0] or 0) >= 1 << total:
        raise ValueError("--cluster-local-nodemask is too large for --cluster-total-nodes")


def _policy(said: Said, family: Family) -> None:
    elements = [
        name
        for name in ("--reqid", "--spi", "--proto", "--mode", "--tunnel-src", "--tunnel-dst")
        if name in said
    ]
    if ("--pol", "none") in [(name, use[1][0]) for name in said for use in said[name] if name == "--pol"]:
        if "--strict" in said:
            raise ValueError("--pol none and --strict cannot stand together")
        if "--next" in said:
            raise ValueError("--pol none and --next cannot stand together")
    for name in elements:
        if "--next" not in said and len(said[name]) > 1:
            raise ValueError(f"a second {name} without --next between them")
    if "--strict" in said and not elements:
        raise ValueError("--strict needs --reqid, --spi, --tunnel-src, --tunnel-dst, --proto or --mode")
    for _, value in said.get("--proto", ()):
        if spelt.protocol(value[0]) not in (50, 51, 108):
            raise ValueError("--proto is esp, ah or ipcomp")
    if "--next" not in said and ("--tunnel-src" in said or "--tunnel-dst" in said):
        # Nothing said is mode transport.
        inverted, mode = (False, ("transport",)) if "--mode" not in said else said["--mode"][0]
        if inverted == (mode[0] == "tunnel"):
            raise ValueError("--tunnel-src and --tunnel-dst need --mode tunnel")


def _hmark(said: Said, family: Family) -> None:
    if "--hmark-spi-mask" in said and ("--hmark-sport-mask" in said or "--hmark-dport-mask" in said):
        raise ValueError("--hmark-spi-mask and a port mask cannot stand together")
    masks = (
        "src-prefix",
        "dst-prefix",
        "sport-mask",
        "dport-mask",
        "spi-mask",
        "sport",
        "dport",
        "spi",
        "proto-mask",
        "tuple",
    )
    if not any(f"--hmark-{name}" in said for name in masks):
        raise ValueError("HMARK needs --hmark-tuple")


def _clusterip(said: Said, family: Family) -> None:
    full = ("--new", "--hashmode", "--clustermac", "--total-nodes", "--local-node")
    if said and not all(name in said for name in full):
        raise ValueError(f"CLUSTERIP needs none of its options, or all of {', '.join(full)}")


def _recent(said: Said, family: Family) -> None:
    hits = _integer(said["--hitcount"][0][1][0])[0] if "--hitcount" in said else 0
    for name in ("--set", "--remove"):
        if name in said and ("--seconds" in said or hits):
            raise ValueError(f"{name} cannot stand beside --seconds or --hitcount")
    if (hits or 0) > 0xFFFF:
        raise ValueError("--hitcount is above 65535")


def _routing(said: Said, family: Family) -> None:
    if any(name in said for name in ("--rt-0-res", "--rt-0-addrs", "--rt-0-not-strict")):
        kinds = [_integer(words[0])[0] for negated, words in said.get("--rt-type", ()) if not negated]
        if kinds != [0]:
            raise ValueError("--rt-0-res, --rt-0-addrs and --rt-0-not-strict need --rt-type 0")
        if "--rt-0-not-strict" in said and "--rt-0-addrs" not in said:
            raise ValueError("--rt-0-not-strict needs --rt-0-addrs")


def _auth_header(said: Said, family: Family) -> None:
    for name in ("--ahlen", "--ahres"):
        if name in said and family is V4:
            raise ValueError(f"{name} exists for IPv6 only")


def _segment_size(said: Said, family: Family) -> None:
    if "--set-mss" in said and family is V6:
        _number(said["--set-mss"][0][1][0], family, 0, 65495)


def _gateway(said: Said, family: Family) -> None:
    try:
        zero = not any((socket.inet_aton if family is V4 else partial(socket.inet_pton, socket.AF_INET6))(
            said["--gateway"][0][1][0]))  # fmt: skip
    except (OSError, UnicodeError):
        return
    if zero:
        raise ValueError("--gateway is the address 0")


def _multicast(said: Said, family: Family) -> None:
    _clusterip(said, family)
    if "--clustermac" in said and not int(said["--clustermac"][0][1][0].split(":")[0], 16) & 1:
        raise ValueError("--clustermac is no multicast address: its first byte is even")


def _translated(said: Said, family: Family) -> None:
    for name in ("--src-pfx", "--dst-pfx"):
        _, slash, length = said[name][0][1][0].partition("/")
        size = _integer(length)
        if not slash or (size[1] == "" and (size[0] or 0) > 64):
            raise ValueError(f"{name} is longer than 64 bits")


def _set_match(said: Said, family: Family) -> None:
    for kind in ("--packets", "--bytes"):
        for name in (f"{kind}-lt", f"{kind}-gt"):
            if any(inverted for inverted, _ in said.get(name, ())):
                raise ValueError(f"{name} cannot be negated")


def _set_target(said: Said, family: Family) -> None:
    if "--exist" in said and "--add-set" not in said:
        raise ValueError("--exist needs --add-set")
    if "--timeout" in said and "--add-set" not in said:
        raise ValueError("--timeout needs --add-set")
    if any(name in said for name in ("--map-mark", "--map-prio", "--map-queue")) and "--map-set" not in said:
        raise ValueError("--map-mark, --map-prio and --map-queue need --map-set")
    if "--map-set" in said and not any(name in said for name in ("--map-mark", "--map-prio", "--map-queue")):
        raise ValueError("--map-set needs --map-mark, --map-prio or --map-queue")


_PORTS = "--sport:any! --dport:any!"
_MULTIPORT = "--sports --dports --ports"
_MARKS = "--set-mark --set-xmark --and-mark --or-mark --xor-mark"
_SHIFTED = f"{_MARKS} --save-mark --restore-mark"
_TOSES = "--set-tos --and-tos --or-tos --xor-tos"
_OPERATIONS = "--set --rcheck --update --remove"

MATCH_LIMITS = {
    "ah": _limits("--ahspi:range32! --ahlen:u32! --ahres", check=_auth_header),
    "addrtype": _limits("--src-type:addresstypes! --dst-type:addresstypes! --limit-iface-in --limit-iface-out",
                        one="--limit-iface-in --limit-iface-out", need="--src-type --dst-type"),
    "bpf": _limits("--bytecode:bytecode --object-pinned:any", one="--bytecode --object-pinned", need="--bytecode --object-pinned"),
    "cgroup": _limits("--cgroup:u32! --path:any!", one="--cgroup --path", need="--cgroup --path"),
    "cluster": _limits("--cluster-total-nodes:u32(1,32) --cluster-local-node:u32(1,32)! "
                       "--cluster-local-nodemask:u32(1,32)! --cluster-hash-seed:u32",
                       one="--cluster-local-node --cluster-local-nodemask",
                       need="--cluster-total-nodes | --cluster-local-node --cluster-local-nodemask | "
                       "--cluster-hash-seed", check=_cluster),
    "comment": _limits("--comment:any"),
    "connbytes": _limits("--connbytes:ordered64! --connbytes-dir:bytesdir --connbytes-mode:bytesmode",
                         need="--connbytes | --connbytes-dir | --connbytes-mode"),
    "connlabel": _limits("--label:label! --set", need="--label"),
    "connlimit": _limits("--connlimit-upto:u32! --connlimit-above:u32! --connlimit-mask:mask --connlimit-saddr "
                         "--connlimit-daddr", one="--connlimit-upto --connlimit-above | --connlimit-saddr "
                         "--connlimit-daddr", need="--connlimit-upto --connlimit-above"),
    "connmark": _limits("--mark:mark!", need="--mark"),
    "conntrack": _limits("--ctstate:any! --ctproto:protocol! --ctorigsrc:net! --ctorigdst:net! --ctreplsrc:net! "
                         "--ctrepldst:net! --ctorigsrcport:ports! --ctorigdstport:ports! --ctreplsrcport:ports! "
                         "--ctrepldstport:ports! --ctstatus:status! --ctexpire:range32! --ctdir:ctdir",
                         need="--ctstate --ctproto --ctorigsrc --ctorigdst --ctreplsrc --ctrepldst --ctorigsrcport "
                         "--ctorigdstport --ctreplsrcport --ctrepldstport --ctstatus --ctexpire --ctdir"),
    "cpu": _limits("--cpu:u32!", need="--cpu"),
    "dccp": _limits(_PORTS + " --dccp-types:dccp! --dccp-option:u8(1,255)!"),
    "devgroup": _limits("--src-group:named! --dst-group:named!", need="--src-group --dst-group"),
    "dscp": _limits("--dscp:u8(0,63)! --dscp-class:dscp!", one="--dscp --dscp-class", need="--dscp --dscp-class"),
    "dst": _limits("--dst-len:u32! --dst-opts:options", family=V6),
    "ecn": _limits("--ecn-tcp-cwr! --ecn-tcp-ece! --ecn-ip-ect:u8(0,3)!",
                   need="--ecn-tcp-cwr --ecn-tcp-ece --ecn-ip-ect"),
    "esp": _limits("--espspi:range32!"),
    "eui64": _limits(family=V6),
    "frag": _limits("--fragid:range32! --fraglen:u32! --fragres --fragfirst --fragmore --fraglast",
                    one="--fragmore --fraglast", family=V6),
    "hashlimit": _limits("--hashlimit:hashrate! --hashlimit-above:hashrate! --hashlimit-burst:burst "
                         "--hashlimit-mode:hashmodes --hashlimit-srcmask:prefix --hashlimit-dstmask:prefix "
                         "--hashlimit-name:file --hashlimit-htable-size:u32 --hashlimit-htable-max:u32 "
                         "--hashlimit-htable-expire:u32(1,4294967295) --hashlimit-htable-gcinterval:u32(1,4294967295) --hashlimit-rate-match "
                         "--hashlimit-rate-interval:positive", one="--hashlimit --hashlimit-above",
                         need="--hashlimit-name | --hashlimit --hashlimit-above"),
    "hbh": _limits("--hbh-len:u32! --hbh-opts:options", family=V6),
    "helper": _limits("--helper:any!", need="--helper"),
    "hl": _limits("--hl-eq:u8! --hl-lt:u8 --hl-gt:u8", one="--hl-eq --hl-lt --hl-gt", need="--hl-eq --hl-lt --hl-gt",
                  family=V6),
    "icmp": _limits("--icmp-type:any!", family=V4),
    "icmp6": _limits("--icmpv6-type:any!", family=V6),
    "ipcomp": _limits("--ipcompspi:range32! --compres"),
    "iprange": _limits("--src-range:any! --dst-range:any!", need="--src-range --dst-range"),
    "ipv6header": _limits("--header:headers! --soft", need="--header", family=V6),
    "ipvs": _limits("--ipvs! --vproto:protocol! --vaddr:net! --vport:port! --vdir:vdir --vmethod:vmethod! "
                    "--vportctl:port!", need="--ipvs --vproto --vaddr --vport --vdir --vmethod --vportctl"),
    "length": _limits("--length:range16!", need="--length"),
    "limit": _limits("--limit:rate --limit-burst:u32(0,10000)"),
    "mac": _limits("--mac-source:any!"),
    "mark": _limits("--mark:mark!", need="--mark"),
    "mh": _limits("--mh-type:mh!", family=V6),
    "multiport": _limits("--sports:any! --dports:any! --ports:any!", one=_MULTIPORT, need=_MULTIPORT),
    "nfacct": _limits("--nfacct-name:nonempty", need="--nfacct-name"),
    "osf": _limits("--genre:any! --ttl:u32(0,2) --log:u32(0,2)", need="--genre"),
    "owner": _limits("--uid-owner:user! --gid-owner:user! --socket-exists! --suppl-groups",
                     need="--uid-owner --gid-owner --socket-exists", with_="--suppl-groups>--gid-owner"),
    "physdev": _limits("--physdev-in:string(0,15)! --physdev-out:string(0,15)! --physdev-is-in! --physdev-is-out! "
                       "--physdev-is-bridged!", need="--physdev-in --physdev-out --physdev-is-in --physdev-is-out "
                       "--physdev-is-bridged"),
    "pkttype": _limits("--pkt-type:pkttype!", need="--pkt-type"),
    "policy": _limits("--dir:inout --pol:pol --strict --reqid:u32!* --spi:u32!* --proto:protocol!* --mode:tunnel!* "
                      "--tunnel-src:net!* --tunnel-dst:net!* --next*", need="--dir", with_="--next>--strict",
                      check=_policy),
    "quota": _limits("--quota:u64!", need="--quota"),
    # iptables-save prints the relation twice, which iptables-restore refuses.
    "rateest": _limits("--rateest-delta --rateest:any --rateest1:any --rateest2:any --rateest-lt!* --rateest-gt!* "
                       "--rateest-eq!* --rateest-bps:bits --rateest-bps1:bits --rateest-bps2:bits --rateest-pps:u32 "
                       "--rateest-pps1:u32 --rateest-pps2:u32", one="--rateest --rateest1 | --rateest-bps --rateest-bps2 | "
                       "--rateest-pps --rateest-pps2"),
    "realm": _limits("--realm:named!", need="--realm", family=V4),
    "recent": _limits("--set! --rcheck! --update! --remove! --seconds:u32(1,4294967295) --reap --hitcount:u32 --rttl "
                      "--name:file --rsource --rdest --mask:host",
                      one=f"{_OPERATIONS} | --rttl --set | --rttl --remove", need=_OPERATIONS,
                      with_="--reap>--seconds", check=_recent),
    "rpfilter": _limits("--loose --validmark --accept-local --invert"),
    "rt": _limits("--rt-type:u32! --rt-segsleft:range32! --rt-len:u32! --rt-0-res --rt-0-addrs:addresses "
                  "--rt-0-not-strict", family=V6, check=_routing),
    "sctp": _limits(_PORTS + " --chunk-types:anyall:chunks!"),
    "set": _limits("--match-set:setname:directions! --return-nomatch --update-counters! --update-subcounters! "
                   "--packets-eq:u64! --packets-lt:u64 --packets-gt:u64 --bytes-eq:u64! --bytes-lt:u64 --bytes-gt:u64",
                   one="--packets-eq --packets-lt --packets-gt | --bytes-eq --bytes-lt --bytes-gt",
                   need="--match-set", check=_set_match),
    "socket": _limits("--transparent --nowildcard --restore-skmark"),
    "srh": _limits(" ".join(f"--srh-{name}:u8!" for name in ["next-hdr", "hdr-len-eq", "hdr-len-gt", "hdr-len-lt", "segs-left-eq", "segs-left-gt", "segs-left-lt", "last-entry-eq", "last-entry-gt", "last-entry-lt"])
        + " --srh-tag:u16! --srh-psid:net! --srh-nsid:net! --srh-lsid:net!", family=V6),
    "state": _limits("--state:any!"),
    "statistic": _limits("--mode:statistic --probability:chance! --every:u32(1,4294967295)! --packet:u32",
                         one="--probability --every | --probability --packet", need="--mode",
                         with_="--every>--packet --packet>--every", check=_statistic),
    "string": _limits("--from:u16 --to:u16 --algo:algo --string:string(1,128)! --hex-string:hex! --icase",
                      one="--string --hex-string", need="--algo | --string --hex-string"),
    "tcp": _limits(_PORTS + " --tcp-flags:any:any! --syn! --tcp-option:u8(1,255)!", one="--tcp-flags --syn"),
    "tcpmss": _limits("--mss:ordered16!", need="--mss"),
    "time": _limits("--datestart:date --datestop:date --timestart:time --timestop:time --contiguous "
                    "--monthdays:monthdays! --weekdays:weekdays! --kerneltz --utc --localtz",
                    one="--utc --localtz | --utc --kerneltz", check=_contiguous),
    "tos": _limits("--tos:tos!", need="--tos"),
    "ttl": _limits("--ttl-eq:u8! --ttl-lt:u8 --ttl-gt:u8", one="--ttl-eq --ttl-lt --ttl-gt",
                   need="--ttl-eq --ttl-lt --ttl-gt", family=V4),
    "u32": _limits("--u32:tests!", need="--u32"),
    "udp": _limits(_PORTS),
}  # fmt: skip

TARGET_LIMITS = {
    "ACCEPT": _limits(), "DROP": _limits(), "QUEUE": _limits(), "TRACE": _limits(), "NOTRACK": _limits(),
    "AUDIT": _limits("--type:audit", need="--type"),
    "CHECKSUM": _limits("--checksum-fill", need="--checksum-fill"),
    "CLASSIFY": _limits("--set-class:class", need="--set-class"),
    "CLUSTERIP": _limits("--new --hashmode:hashmode --clustermac:mac --total-nodes:u16(0,16) --local-node:u16(0,16) "
                         "--hash-init:u32", family=V4, check=_multicast),
    "CONNMARK": _limits("--set-mark:mark --set-xmark:mark --save-mark --restore-mark --and-mark:u32 --or-mark:u32 "
                        "--xor-mark:u32 --left-shift-mark:u8(0,32) --right-shift-mark:u8(0,32) --mask:u32 "
                        "--nfmask:u32 --ctmask:u32", one=f"{_SHIFTED} | --mask --nfmask | --mask --ctmask",
                        need=_SHIFTED),
    "CONNSECMARK": _limits("--save --restore", one="--save --restore", need="--save --restore"),
    "CT": _limits("--notrack --helper:any --timeout:any --ctevents:ctevents --expevents:expevents --zone:zone "
                  "--zone-orig:zone --zone-reply:zone"),
    "DNAT": _limits("--to-destination:nat --random --persistent", need="--to-destination"),
    "DNPT": _limits("--src-pfx:net --dst-pfx:net", need="--src-pfx | --dst-pfx", family=V6, check=_translated),
    "DSCP": _limits("--set-dscp:u8(0,63) --set-dscp-class:dscp", one="--set-dscp --set-dscp-class",
                    need="--set-dscp --set-dscp-class"),
    "ECN": _limits("--ecn-tcp-remove --ecn-tcp-cwr:u8(0,1) --ecn-tcp-ece:u8(0,1) --ecn-ip-ect:u8(0,3)",
                   one="--ecn-tcp-remove --ecn-tcp-cwr | --ecn-tcp-remove --ecn-tcp-ece",
                   need="--ecn-tcp-remove --ecn-tcp-cwr --ecn-tcp-ece --ecn-ip-ect", family=V4),
    "HL": _limits("--hl-set:u8 --hl-dec:u8(1,255) --hl-inc:u8(1,255)", one="--hl-set --hl-dec --hl-inc",
                  need="--hl-set --hl-dec --hl-inc", family=V6),
    "HMARK": _limits("--hmark-tuple:tuple --hmark-mod:u32(1,4294967295) --hmark-offset:u32 --hmark-src-prefix:mask "
                     "--hmark-dst-prefix:mask --hmark-sport-mask:u16 --hmark-dport-mask:u16 --hmark-sport:u16 "
                     "--hmark-dport:u16 --hmark-spi-mask:u32 --hmark-spi:u32 --hmark-rnd:u32 --hmark-proto-mask:u16",
                     need="--hmark-mod | --hmark-rnd", check=_hmark),
    "IDLETIMER": _limits("--timeout:u32(1,2147483) --label:file --alarm", need="--timeout | --label"),
    "LED": _limits("--led-trigger-id:string(0,16) --led-delay:delay --led-always-blink", need="--led-trigger-id"),
    "LOG": _limits("--log-level:level --log-prefix:nonempty --log-tcp-sequence --log-tcp-options --log-ip-options "
                   "--log-uid --log-macdecode"),
    "MARK": _limits("--set-mark:mark --set-xmark:mark --and-mark:u32 --or-mark:u32 --xor-mark:u32", one=_MARKS,
                    need=_MARKS),
    "MASQUERADE": _limits("--to-ports:natports --random --random-fully"),
    "NETMAP": _limits("--to:net", need="--to"),
    "NFLOG": _limits("--nflog-group:u16 --nflog-prefix:nonempty --nflog-range:u32 --nflog-size:u32 "
                     "--nflog-threshold:u16", one="--nflog-range --nflog-size"),
    "NFQUEUE": _limits("--queue-num:u16 --queue-balance:balance --queue-bypass --queue-cpu-fanout",
                       one="--queue-num --queue-balance", with_="--queue-cpu-fanout>--queue-balance"),
    "RATEEST": _limits("--rateest-name:any --rateest-interval:estimate --rateest-ewmalog:estimate",
                       need="--rateest-name | --rateest-interval | --rateest-ewmalog",
                       check=_rate_estimator),
    "REDIRECT": _limits("--to-ports:natports --random"),
    "REJECT": _limits("--reject-with:reject"),
    "SECMARK": _limits("--selctx:any", need="--selctx"),
    "SET": _limits("--add-set:setname:directions! --del-set:setname:directions! --map-set:setname:directions! "
                   "--timeout:u32(0,4294967294)! --exist! --map-mark!* --map-prio!* --map-queue!*",
                   need="--add-set --del-set --map-set", check=_set_target),
    "SNAT": _limits("--to-source:nat --random --random-fully --persistent", need="--to-source"),
    "SNPT": _limits("--src-pfx:net --dst-pfx:net", need="--src-pfx | --dst-pfx", family=V6, check=_translated),
    "SYNPROXY": _limits("--sack-perm --timestamp --wscale:u32 --mss:u32 --ecn"),
    "TCPMSS": _limits("--set-mss:u16(0,65515) --clamp-mss-to-pmtu", need="--set-mss --clamp-mss-to-pmtu",
                      check=_segment_size),
    "TCPOPTSTRIP": _limits("--strip-options:strip"),
    "TEE": _limits("--gateway:host --oif:any", need="--gateway", check=_gateway),
    "TOS": _limits("--set-tos:tos --and-tos:u8 --or-tos:u8 --xor-tos:u8", one=_TOSES, need=_TOSES),
    "TPROXY": _limits("--on-port:port --on-ip:host --tproxy-mark:mark", need="--on-port"),
    "TTL": _limits("--ttl-set:u8 --ttl-dec:u8(1,255) --ttl-inc:u8(1,255)", one="--ttl-set --ttl-dec --ttl-inc",
                   need="--ttl-set --ttl-dec --ttl-inc", family=V4),
    "ULOG": _limits("--ulog-nlgroup:u8(1,32) --ulog-prefix:nonempty --ulog-cprange:u64 --ulog-qthreshold:u32(1,50)",
                    family=V4),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where the kernel takes an extension: in these tables, below these built-in chains; empty: in all."""

    tables: frozenset[str]
    chains: frozenset[str]


def _place(tables: str, chains: str = "") -> Place:
    return Place(frozenset(tables.split()), frozenset(chains.split()))


_ENTERING, _LEAVING = _place("", "PREROUTING INPUT FORWARD"), _place("", "FORWARD OUTPUT POSTROUTING")
_MANGLE = _place("mangle")

# By extension, or extension and option.
PLACES = {
    "CHECKSUM": _MANGLE, "DSCP": _MANGLE, "ECN": _MANGLE, "HL": _MANGLE, "TTL": _MANGLE, "TOS": _MANGLE,
    "TCPOPTSTRIP": _MANGLE, "CLASSIFY": _LEAVING, "CONNSECMARK": _place("mangle security"),
    "CT": _place("raw"), "NOTRACK": _place("raw"),
    "DNAT": _place("nat", "PREROUTING OUTPUT"), "REDIRECT": _place("nat", "PREROUTING OUTPUT"),
    "SNAT": _place("nat", "POSTROUTING INPUT"), "MASQUERADE": _place("nat", "POSTROUTING"),
    "NETMAP": _place("nat"), "DNPT": _place("mangle", "PREROUTING OUTPUT"),
    "SNPT": _place("mangle", "INPUT POSTROUTING"), "REJECT": _place("filter"),
    "SYNPROXY": _place("", "INPUT FORWARD"), "TPROXY": _place("mangle", "PREROUTING"),
    "DROP": _place("filter mangle raw security"), "TCPMSS --clamp-mss-to-pmtu": _LEAVING,
    "cgroup": _place("", "INPUT OUTPUT POSTROUTING"), "devgroup --src-group": _ENTERING,
    "devgroup --dst-group": _LEAVING, "eui64": _ENTERING, "mac": _ENTERING, "osf": _ENTERING,
    "owner": _place("", "OUTPUT POSTROUTING"), "realm": _place("", "INPUT FORWARD OUTPUT POSTROUTING"),
    "rpfilter": _place("raw mangle", "PREROUTING"), "socket": _place("", "PREROUTING INPUT"),
    "addrtype --limit-iface-in": _ENTERING, "addrtype --limit-iface-out": _LEAVING,
    "policy --dir in": _ENTERING, "policy --dir out": _LEAVING,
}  # fmt: skip


def places(name: str, words: Sequence[str]) -> list[Place]:
    """The places that an extension with these words is bound to."""
    if name not in PLACED:
        return []
    looks = [name, *(f"{name} {word}" for word in words), *(f"{name} {a} {b}" for a, b in pairwise(words))]
    return [PLACES[look] for look in looks if look in PLACES]


PLACED = frozenset(look.split()[0] for look in PLACES)

# Protocols of which one must stand behind -p, not negated, by extension, or extension and option.
PROTOCOLS = {
    "SYNPROXY": (6,), "TCPOPTSTRIP": (6,), "TCPMSS": (6,), "TPROXY": (6, 17), "ah": (51,),
    "ECN --ecn-tcp-remove": (6,), "ECN --ecn-tcp-cwr": (6,), "ECN --ecn-tcp-ece": (6,),
    "ecn --ecn-tcp-cwr": (6,), "ecn --ecn-tcp-ece": (6,),
}  # fmt: skip
# Protocols with ports for an address translation; a negated one is taken too.
NAT_PROTOCOLS = (6, 17, 132, 33, 1)


def passes(limits: Limits, option: str, negated: bool) -> bool:
    """Whether the option alone, with any value, is all right: most ports of a large rule set are asked for so."""
    taken = limits.options.get(option)
    plain = not (limits.needed or limits.with_ or limits.check or limits.family)
    return plain and taken is not None and not taken.kinds and (taken.negated or not negated)


def check(
    name: str, limits: Limits, uses: Sequence[tuple[str, bool, tuple[str, ...]]], family: Family
) -> None:
    """Raise Refusal when iptables would refuse the *uses* (option, negated, values) of extension *name*."""
    if limits.family not in (None, family):
        raise Refusal(f"{name} exists for IPv{'4' if limits.family is V4 else '6'} only")
    said: dict[str, list[tuple[bool, tuple[str, ...]]]] = {}
    places: dict[str, int] = {}
    for place, (option, negated, words) in enumerate(uses):
        taken = limits.options.get(option)
        if taken is None:
            raise Refusal(f"{name} has no option {option}", place)
        if negated and not taken.negated:
            raise Refusal(f"{option} cannot be negated", place)
        if option in said and not taken.several:
            raise Refusal(f"a second {option}: {name} takes one", place)
        for at, (kind, word) in enumerate(zip(taken.kinds, words, strict=False)):
            try:
                kind(word, family)
            except ValueError as error:
                raise Refusal(f"{option}: {error}", place, at) from None
        said.setdefault(option, []).append((negated, words))
        places.setdefault(option, place)
    for group in limits.one_of:
        found = [option for option in group if option in said]
        if len(found) > 1:
            last = max(found, key=lambda option: places[option])
            other = next(option for option in found if option != last)
            raise Refusal(f"{last} cannot stand beside {other}", places[last])
    for option, wanted in limits.with_.items():
        if option in said and wanted not in said:
            raise Refusal(f"{option} needs {wanted}", places[option])
    for group in limits.needed:
        if not any(option in said for option in group):
            raise Refusal(f"{name} needs {' or '.join(group)}")
    if limits.check is not None:
        try:
            limits.check(said, family)
        except ValueError as error:
            raise Refusal(str(error)) from None

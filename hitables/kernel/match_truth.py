"""What holds of a packet besides its header fields: marks, owners, lengths, address types ...

Each match that is no test of header fields and has no memory can be asked for twice: a *wish*
sets what the match reads so that it holds (or not), and its *truth* is computed, for all packets
of a batch at once, from what they really are.  A match that is not in the table, or reads what
we do not know, has no truth (NOT_GIVEN).
"""

from __future__ import annotations

import calendar
import ipaddress
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.fields import TCP, Family, Field, Fragment
from ..ir.rule import Match
from ..simulate.batch import HALF, NOT_GIVEN, PacketBatch

Bools = npt.NDArray[np.bool_]
Truths = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Option = tuple[str, bool, tuple[str, ...]]

_HEADER = {Family.IPV4: 20, Family.IPV6: 40}
_SHORTEST_WISHED = 20  # bytes of layer 4: a wished length leaves no header truncated
_NOBODY = 4242  # the owner of packets that are to have none in particular
_DAY, _SOON = 86400, 900  # seconds
_WEEKDAYS, _MONTHDAYS = frozenset(calendar.day_abbr), frozenset(map(str, range(1, 32)))


@dataclass
class Traits:
    """What the packets of *batch* are besides their header fields; one array entry each.

    own      the addresses of the host itself
    members  of sets, by the set's name
    """

    batch: PacketBatch
    chain: str
    own: frozenset[int]
    mark: Numbers = field(init=False)
    connection_mark: Numbers = field(init=False)
    tos: Numbers = field(init=False)
    ttl: Numbers = field(init=False)
    uid: Numbers = field(init=False)
    gid: Numbers = field(init=False)
    members: dict[str, set[int]] = field(default_factory=dict)
    began: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        count = len(self.batch)
        self.mark, self.connection_mark, self.tos = (np.zeros(count, np.int64) for _ in range(3))
        self.ttl = np.full(count, 64, np.int64)
        self.uid, self.gid = np.full(count, _NOBODY, np.int64), np.full(count, _NOBODY, np.int64)

    def column(self, which: Field) -> npt.NDArray[Any]:
        return self.batch.rows["low"][:, which]

    def addresses(self, which: Field) -> list[int]:
        return addresses(self.batch, which)

    def entries(self, types: Mapping[str, str]) -> dict[str, list[str]]:
        """What the sets of these *types* hold, as ipset takes it."""
        return {
            name: [address_text(self.batch.family, address) for address in sorted(members)]
            for name, members in self.members.items()
            if types.get(name) == "hash:net"
        }

    def length(self) -> Numbers:
        """Of the whole packet."""
        later_header = 0
        if self.batch.family is Family.IPV6:
            later_header = 8 * (self.column(Field.FRAG) != Fragment.WHOLE)
        return self.batch.rows["l4_bytes"].astype(np.int64) + _HEADER[self.batch.family] + later_header


def addresses(batch: PacketBatch, which: Field) -> list[int]:
    """The source or destination of each packet."""
    low, high = batch.rows["low"][:, which], batch.rows["high"][:, HALF[which]]
    return [a | b << 64 for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def address_text(family: Family, address: int) -> str:
    return str((ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address)(address))


def options(match: Match) -> list[Option]:
    """The options of a match, each with whether a ! stands before it and its values."""
    found: list[tuple[str, bool, list[str]]] = []
    inverted = False
    for word in match.words:
        if word == "!":
            inverted = True
        elif word.startswith("--") and len(word) > 2:
            found.append((word, inverted, []))
            inverted = False
        elif found:
            found[-1][2].append(word)
    return [(name, inverted, tuple(values)) for name, inverted, values in found]


def wish(traits: Traits, match: Match, want: Bools) -> None:
    """Make the packets such that *match* holds where *want* says so, if we can."""
    maker = _WISHES.get(match.name)
    if maker is not None and want.any():
        for option in options(match):
            maker(traits, option, want)


def truth(traits: Traits, match: Match) -> Truths:
    """Whether *match* holds, for each packet: 0, 1 or NOT_GIVEN."""
    teller = _TRUTHS.get(match.name)
    count = len(traits.batch)
    try:
        told = teller(traits, options(match)) if teller is not None else None
    except ValueError:  # spelt in a way that we do not read
        told = None
    if told is None:
        return np.full(count, NOT_GIVEN, np.uint8)
    return np.broadcast_to(np.asarray(told), (count,)).astype(np.uint8)


def facts_known() -> frozenset[str]:
    """The matches that can be told, by name."""
    return frozenset(_TRUTHS)


# Values with masks, and ranges.

Told = Bools | bool | None


def _masked(text: str, full: int) -> tuple[int, int]:
    value, _, mask = text.partition("/")
    return int(value, 0), int(mask, 0) if mask else full


def _range(text: str, separator: str = ":", top: int = 0xFFFFFFFF) -> tuple[int, int]:
    low, found, high = text.partition(separator)
    return int(low or "0", 0), (int(high or str(top), 0) if found else int(low, 0))


def _agrees(values: Numbers, option: Option, full: int) -> Bools:
    value, mask = _masked(option[2][0], full)
    held: Bools = (values & mask == value) ^ option[1]
    return held


def _agreeing(option: Option, full: int) -> int:
    """A value for which the option holds."""
    value, mask = _masked(option[2][0], full)
    return value ^ (mask & -mask) if option[1] else value


def _known(given: list[Option], *names: str) -> bool:
    """Whether there are no options but *names*."""
    return all(name in names for name, *_ in given)


def _all(parts: Iterable[Told]) -> Told:
    """Whether all hold; None when one is not known."""
    held: Bools | bool = True
    for part in parts:
        if part is None:
            return None
        held = held & part
    return held


# Marks, service, hop limits, lengths.


def _mark(traits: Traits, given: list[Option]) -> Told:
    return _agrees(traits.mark, given[0], 0xFFFFFFFF) if _known(given, "--mark") else None


def _wish_mark(traits: Traits, option: Option, want: Bools) -> None:
    traits.mark[want] = _agreeing(option, 0xFFFFFFFF)


def _connmark(traits: Traits, given: list[Option]) -> Told:
    if not _known(given, "--mark"):
        return None
    # Without a connection the match fails, inverted or not.
    return _agrees(traits.connection_mark, given[0], 0xFFFFFFFF) & (traits.column(Field.STATE) >= 2)


def _wish_connmark(traits: Traits, option: Option, want: Bools) -> None:
    traits.connection_mark[want] = _agreeing(option, 0xFFFFFFFF)


def _tos(traits: Traits, given: list[Option]) -> Told:
    return _agrees(traits.tos, given[0], 0xFF) if _known(given, "--tos") else None


def _wish_tos(traits: Traits, option: Option, want: Bools) -> None:
    traits.tos[want] = _agreeing(option, 0xFF) & 0xFF


def _dscp(traits: Traits, given: list[Option]) -> Told:
    return _agrees(traits.tos >> 2, given[0], 0x3F) if _known(given, "--dscp") else None


def _wish_dscp(traits: Traits, option: Option, want: Bools) -> None:
    if option[0] == "--dscp":
        traits.tos[want] = _agreeing(option, 0x3F) << 2


def _ecn(traits: Traits, given: list[Option]) -> Told:
    return _agrees(traits.tos & 3, given[0], 3) if _known(given, "--ecn-ip-ect") else None


def _ttl(traits: Traits, given: list[Option]) -> Told:
    held = []
    seen = traits.ttl - (traits.chain == "FORWARD")  # where one is taken off before the rules
    for name, inverted, (value, *_) in given:
        kind, number = name.rpartition("-")[2], int(value)
        compared = {"eq": seen == number, "lt": seen < number, "gt": seen > number}.get(kind)
        if compared is None:
            return None
        held.append(compared ^ inverted)
    return _all(held)


def _wish_ttl(traits: Traits, option: Option, want: Bools) -> None:
    name, inverted, (value, *_) = option
    step = {"eq": 0, "lt": -1, "gt": 1}.get(name.rpartition("-")[2], 0)
    wanted = int(value) + step + inverted + (traits.chain == "FORWARD")
    if 2 <= wanted <= 255:
        traits.ttl[want] = wanted


def _length(traits: Traits, given: list[Option]) -> Told:
    low, high = _range(given[0][2][0], top=0xFFFF)
    length = traits.length()
    held: Bools = ((length >= low) & (length <= high)) ^ given[0][1]
    return held


def _wish_length(traits: Traits, option: Option, want: Bools) -> None:
    low, high = _range(option[2][0], top=0xFFFF)
    wanted = max(low, _HEADER[traits.batch.family] + _SHORTEST_WISHED)
    if option[1] or wanted > min(high, 1400):
        return
    rows = traits.batch.rows
    enough = want & (rows["l4_bytes"] >= _SHORTEST_WISHED)
    rows["l4_bytes"][enough] = wanted - _HEADER[traits.batch.family]


# Who sends, and to whom.


def _owner(traits: Traits, given: list[Option]) -> Told:
    held: list[Told] = []
    for name, inverted, values in given:
        if name == "--socket-exists":
            held.append(not inverted)
            continue
        ids = {"--uid-owner": traits.uid, "--gid-owner": traits.gid}.get(name)
        if ids is None:
            return None
        low, high = _range(_id(values[0], name), "-")
        held.append(((ids >= low) & (ids <= high)) ^ inverted)
    return _all(held)


def _wish_owner(traits: Traits, option: Option, want: Bools) -> None:
    name, inverted, values = option
    if name == "--socket-exists" or inverted:
        return
    low, _ = _range(_id(values[0], name), "-")
    (traits.uid if name == "--uid-owner" else traits.gid)[want] = low


def _id(text: str, option: str) -> str:
    """Names become numbers, as the system has them."""
    if text.replace("-", "").isdigit():
        return text
    import grp
    import pwd

    try:
        return str(pwd.getpwnam(text).pw_uid if option == "--uid-owner" else grp.getgrnam(text).gr_gid)
    except KeyError as error:
        raise ValueError(text) from error


def _address_type(traits: Traits, address: int) -> frozenset[str]:
    """What the routing tables here call *address*."""
    if traits.batch.family is Family.IPV6:
        if address >> 120 == 0xFF:
            return frozenset({"MULTICAST"})
        return frozenset({"LOCAL", "UNICAST"} if address in traits.own or address == 1 else {"UNICAST"})
    first = address >> 24
    if address in traits.own or first == 127:
        return frozenset({"LOCAL"}) if address != 0x7FFFFFFF else frozenset({"BROADCAST"})
    if address in (0, 0xFFFFFFFF) or (address & ~0xFF | 1 in traits.own and address & 0xFF == 0xFF):
        return frozenset({"BROADCAST"})
    return frozenset({"MULTICAST"}) if 224 <= first <= 239 else frozenset({"UNICAST"})


def _addrtype(traits: Traits, given: list[Option]) -> Told:
    sides = {"--src-type": Field.SRC, "--dst-type": Field.DST}
    if not _known(given, *sides):
        return None
    held = []
    for name, inverted, values in given:
        wanted = frozenset(values[0].upper().split(","))
        if not wanted <= {"LOCAL", "UNICAST", "BROADCAST", "MULTICAST", "ANYCAST", "BLACKHOLE", "PROHIBIT"}:
            return None
        types = [_address_type(traits, address) for address in traits.addresses(sides[name])]
        held.append(np.array([bool(wanted & type_) for type_ in types], bool) ^ inverted)
    return _all(held)


def _wish_addrtype(traits: Traits, option: Option, want: Bools) -> None:
    name, inverted, values = option
    which = {"--src-type": Field.SRC, "--dst-type": Field.DST}.get(name)
    if which is None or inverted:
        return
    v4 = traits.batch.family is Family.IPV4
    address = {
        "LOCAL": min(traits.own),
        "BROADCAST": 0xFFFFFFFF if v4 else None,
        "MULTICAST": 0xE0000001 if v4 else 0xFF02 << 112 | 1,
    }.get(values[0].upper().split(",")[0])
    if address is not None:
        rows = traits.batch.rows
        rows["low"][want, which] = address & 0xFFFFFFFFFFFFFFFF
        rows["high"][want, HALF[which]] = address >> 64


def _set(traits: Traits, given: list[Option]) -> Told:
    if not _known(given, "--match-set", "--return-nomatch") or given[0][2][1] not in ("src", "dst"):
        return None
    (name, side), inverted = given[0][2], given[0][1]
    held = traits.members.get(name, set())
    sides = traits.addresses(Field.SRC if side == "src" else Field.DST)
    return np.array([address in held for address in sides], bool) ^ inverted


def _wish_set(traits: Traits, option: Option, want: Bools) -> None:
    name, inverted, values = option
    if name != "--match-set" or inverted or values[1] not in ("src", "dst"):
        return
    addresses = traits.addresses(Field.SRC if values[1] == "src" else Field.DST)
    members = traits.members.setdefault(values[0], set())
    # A set of networks takes no network of everything, hence not 0.
    members |= {address for address, wanted in zip(addresses, want, strict=True) if wanted and address}


# What is the same for all packets here.


def _policy(traits: Traits, given: list[Option]) -> Told:
    """No packet here was or will be encrypted."""
    kind = [values[0] for name, _, values in given if name == "--pol"]
    return kind == ["none"]


def _physdev(traits: Traits, given: list[Option]) -> Told:
    """No packet here crosses a bridge; then only options that are all inverted hold."""
    return all(inverted for _, inverted, _ in given)


def _pkttype(traits: Traits, given: list[Option]) -> Told:
    return (given[0][2][0].lower() in ("unicast", "host")) ^ given[0][1]


def _helper(traits: Traits, given: list[Option]) -> Told:
    """No helper follows any connection here."""
    return None if given[0][1] or not given[0][2][0] else False


def _realm(traits: Traits, given: list[Option]) -> Told:
    try:
        value, mask = _masked(given[0][2][0], 0xFFFFFFFF)
    except ValueError:
        return None  # a name that the system's table of realms may know
    return (value & mask == 0) ^ given[0][1]


def _tcpmss(traits: Traits, given: list[Option]) -> Told:
    """No packet here has tcp options; a truncated or later one is read otherwise or dropped."""
    whole = (traits.column(Field.FRAG) != Fragment.LATER) & (traits.column(Field.PROTO) == TCP)
    fine = whole & (traits.batch.rows["l4_bytes"] >= 20) & (traits.batch.rows["classes"] == 0)
    return given[0][1] if fine.all() else None


def _string(traits: Traits, given: list[Option]) -> Told:
    """Payloads here are zeros; no text of letters is in there or in a header of ours."""
    for name, inverted, values in given:
        if name == "--string" and len(values[0]) >= 4 and values[0].isprintable():
            return inverted
    return None


def _time(traits: Traits, given: list[Option]) -> Told:
    """Not known where the kernel's answer may change before the packets are sent."""
    now = time.gmtime(traits.began)
    second = now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec
    held: list[bool] = []
    edges: list[float] = []  # seconds from now
    bounds = {"--timestart": 0, "--timestop": _DAY - 1}
    for name, inverted, values in given:
        if name in ("--datestart", "--datestop"):
            try:
                away = calendar.timegm(time.strptime(values[0], "%Y-%m-%dT%H:%M:%S")) - traits.began
            except ValueError:
                return None  # a shorter form, which iptables takes and does not print
            held.append(away <= 0 if name == "--datestart" else away >= 0)
            edges.append(away)
        elif name in bounds:
            try:
                hour, minute, *rest = map(int, values[0].split(":"))
            except ValueError:
                return None
            bounds[name] = hour * 3600 + minute * 60 + (rest[0] if rest else 0)
            edges += [bounds[name] + days * _DAY - second for days in (-1, 0, 1)]
        elif name in ("--weekdays", "--monthdays"):
            days = values[0].split(",")
            names = _WEEKDAYS if name == "--weekdays" else _MONTHDAYS
            if not names.issuperset(days):
                return None
            today = calendar.day_abbr[now.tm_wday] if name == "--weekdays" else str(now.tm_mday)
            held.append((today in days) ^ inverted)
            edges += [-second, _DAY - second]
        else:
            return None
    if any(abs(edge) < _SOON for edge in edges):
        return None
    start, stop = bounds.values()
    held.append(start <= second <= stop if start < stop else second >= start or second <= stop)
    return all(held)


_TRUTHS: dict[str, Callable[[Traits, list[Option]], Told]] = {
    "addrtype": _addrtype, "connmark": _connmark, "dscp": _dscp, "ecn": _ecn, "helper": _helper,
    "hl": _ttl, "length": _length, "mark": _mark, "owner": _owner, "physdev": _physdev,
    "pkttype": _pkttype, "policy": _policy, "realm": _realm, "set": _set, "string": _string,
    "tcpmss": _tcpmss, "time": _time, "tos": _tos, "ttl": _ttl,
}  # fmt: skip
_WISHES: dict[str, Callable[[Traits, Option, Bools], None]] = {
    "addrtype": _wish_addrtype, "connmark": _wish_connmark, "dscp": _wish_dscp, "hl": _wish_ttl,
    "length": _wish_length, "mark": _wish_mark, "owner": _wish_owner, "set": _wish_set, "tos": _wish_tos,
    "ttl": _wish_ttl,
}  # fmt: skip

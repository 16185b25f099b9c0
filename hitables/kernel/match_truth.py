"""Predicates of a packet besides its header fields: marks, owners, lengths, address types ...

For a match that neither tests header fields nor has memory, `arrange` changes the packets so that the match
holds, and `truth` computes for all packets of a batch whether it holds, from their properties (`Traits`).
A match that this module does not know, or that reads something unknown, has no truth (NOT_GIVEN).  Used by
replay.py and agreement.py.
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
_SHORTEST_ARRANGED = 20  # bytes of layer 4: an arranged length truncates no header
_NOBODY = 4242  # the owner of packets whose owner does not matter
_DAY, _SOON = 86400, 900  # seconds
_WEEKDAYS, _MONTHDAYS = frozenset(calendar.day_abbr), frozenset(map(str, range(1, 32)))


@dataclass
class Traits:
    """The properties of the packets of *batch* besides their header fields; one array entry each.

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
        """The members of the sets of these *types*, as ipset reads them."""
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
    """The options of a match, each with whether a ! precedes it, and its values."""
    uses: list[tuple[str, bool, list[str]]] = []
    inverted = False
    for word in match.words:
        if word == "!":
            inverted = True
        elif word.startswith("--") and len(word) > 2:
            uses.append((word, inverted, []))
            inverted = False
        elif uses:
            uses[-1][2].append(word)
    return [(name, inverted, tuple(values)) for name, inverted, values in uses]


def arrange(traits: Traits, match: Match, where: Bools) -> None:
    """Change the packets where *where* is true so that *match* holds for them, if that is possible."""
    arranger = _ARRANGERS.get(match.name)
    if arranger is not None and where.any():
        for option in options(match):
            arranger(traits, option, where)


def truth(traits: Traits, match: Match) -> Truths:
    """Whether *match* holds, for each packet: 0, 1 or NOT_GIVEN."""
    compute = _TRUTHS.get(match.name)
    count = len(traits.batch)
    try:
        holds = compute(traits, options(match)) if compute is not None else None
    except ValueError:  # a spelling that we do not read
        holds = None
    if holds is None:
        return np.full(count, NOT_GIVEN, np.uint8)
    return np.broadcast_to(np.asarray(holds), (count,)).astype(np.uint8)


def predicates_known() -> frozenset[str]:
    """The names of the matches whose truth can be computed."""
    return frozenset(_TRUTHS)


# Values with masks, and ranges.

Truth = Bools | bool | None


def _masked(text: str, full: int) -> tuple[int, int]:
    value, _, mask = text.partition("/")
    return int(value, 0), int(mask, 0) if mask else full


def _range(text: str, separator: str = ":", top: int = 0xFFFFFFFF) -> tuple[int, int]:
    low, is_range, high = text.partition(separator)
    return int(low or "0", 0), (int(high or str(top), 0) if is_range else int(low, 0))


def _agrees(values: Numbers, option: Option, full: int) -> Bools:
    value, mask = _masked(option[2][0], full)
    holds: Bools = (values & mask == value) ^ option[1]
    return holds


def _agreeing(option: Option, full: int) -> int:
    """A value for which the option holds."""
    value, mask = _masked(option[2][0], full)
    return value ^ (mask & -mask) if option[1] else value


def _known(uses: list[Option], *names: str) -> bool:
    """Whether there are no options but *names*."""
    return all(name in names for name, *_ in uses)


def _all(parts: Iterable[Truth]) -> Truth:
    """Whether all hold; None if one is unknown."""
    holds: Bools | bool = True
    for part in parts:
        if part is None:
            return None
        holds = holds & part
    return holds


# Marks, service, hop limits, lengths.


def _mark(traits: Traits, uses: list[Option]) -> Truth:
    return _agrees(traits.mark, uses[0], 0xFFFFFFFF) if _known(uses, "--mark") else None


def _arrange_mark(traits: Traits, option: Option, where: Bools) -> None:
    traits.mark[where] = _agreeing(option, 0xFFFFFFFF)


def _connmark(traits: Traits, uses: list[Option]) -> Truth:
    if not _known(uses, "--mark"):
        return None
    # Without a connection the match fails, inverted or not.
    return _agrees(traits.connection_mark, uses[0], 0xFFFFFFFF) & (traits.column(Field.STATE) >= 2)


def _arrange_connmark(traits: Traits, option: Option, where: Bools) -> None:
    traits.connection_mark[where] = _agreeing(option, 0xFFFFFFFF)


def _tos(traits: Traits, uses: list[Option]) -> Truth:
    return _agrees(traits.tos, uses[0], 0xFF) if _known(uses, "--tos") else None


def _arrange_tos(traits: Traits, option: Option, where: Bools) -> None:
    traits.tos[where] = _agreeing(option, 0xFF) & 0xFF


def _dscp(traits: Traits, uses: list[Option]) -> Truth:
    return _agrees(traits.tos >> 2, uses[0], 0x3F) if _known(uses, "--dscp") else None


def _arrange_dscp(traits: Traits, option: Option, where: Bools) -> None:
    if option[0] == "--dscp":
        traits.tos[where] = _agreeing(option, 0x3F) << 2


def _ecn(traits: Traits, uses: list[Option]) -> Truth:
    return _agrees(traits.tos & 3, uses[0], 3) if _known(uses, "--ecn-ip-ect") else None


def _ttl(traits: Traits, uses: list[Option]) -> Truth:
    holds = []
    seen = traits.ttl - (traits.chain == "FORWARD")  # where it is decremented before the rules
    for name, inverted, (value, *_) in uses:
        kind, number = name.rpartition("-")[2], int(value)
        compared = {"eq": seen == number, "lt": seen < number, "gt": seen > number}.get(kind)
        if compared is None:
            return None
        holds.append(compared ^ inverted)
    return _all(holds)


def _arrange_ttl(traits: Traits, option: Option, where: Bools) -> None:
    name, inverted, (value, *_) = option
    step = {"eq": 0, "lt": -1, "gt": 1}.get(name.rpartition("-")[2], 0)
    ttl = int(value) + step + inverted + (traits.chain == "FORWARD")
    if 2 <= ttl <= 255:
        traits.ttl[where] = ttl


def _length(traits: Traits, uses: list[Option]) -> Truth:
    low, high = _range(uses[0][2][0], top=0xFFFF)
    length = traits.length()
    holds: Bools = ((length >= low) & (length <= high)) ^ uses[0][1]
    return holds


def _arrange_length(traits: Traits, option: Option, where: Bools) -> None:
    low, high = _range(option[2][0], top=0xFFFF)
    length = max(low, _HEADER[traits.batch.family] + _SHORTEST_ARRANGED)
    if option[1] or length > min(high, 1400):
        return
    rows = traits.batch.rows
    enough = where & (rows["l4_bytes"] >= _SHORTEST_ARRANGED)
    rows["l4_bytes"][enough] = length - _HEADER[traits.batch.family]


# Owners and addresses.


def _owner(traits: Traits, uses: list[Option]) -> Truth:
    holds: list[Truth] = []
    for name, inverted, values in uses:
        if name == "--socket-exists":
            holds.append(not inverted)
            continue
        ids = {"--uid-owner": traits.uid, "--gid-owner": traits.gid}.get(name)
        if ids is None:
            return None
        low, high = _range(_id(values[0], name), "-")
        holds.append(((ids >= low) & (ids <= high)) ^ inverted)
    return _all(holds)


def _arrange_owner(traits: Traits, option: Option, where: Bools) -> None:
    name, inverted, values = option
    if inverted or not values:  # of --socket-exists and --suppl-groups
        return
    low, _ = _range(_id(values[0], name), "-")
    (traits.uid if name == "--uid-owner" else traits.gid)[where] = low


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
    """The types that the routing tables here give to *address*."""
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


def _addrtype(traits: Traits, uses: list[Option]) -> Truth:
    sides = {"--src-type": Field.SRC, "--dst-type": Field.DST}
    if not _known(uses, *sides):
        return None
    holds = []
    for name, inverted, values in uses:
        types_asked = frozenset(values[0].upper().split(","))
        if not types_asked <= {
            "LOCAL",
            "UNICAST",
            "BROADCAST",
            "MULTICAST",
            "ANYCAST",
            "BLACKHOLE",
            "PROHIBIT",
        }:
            return None
        types = [_address_type(traits, address) for address in traits.addresses(sides[name])]
        holds.append(np.array([bool(types_asked & type_) for type_ in types], bool) ^ inverted)
    return _all(holds)


def _arrange_addrtype(traits: Traits, option: Option, where: Bools) -> None:
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
        rows["low"][where, which] = address & 0xFFFFFFFFFFFFFFFF
        rows["high"][where, HALF[which]] = address >> 64


def _set(traits: Traits, uses: list[Option]) -> Truth:
    if not _known(uses, "--match-set", "--return-nomatch") or uses[0][2][1] not in ("src", "dst"):
        return None
    (name, side), inverted = uses[0][2], uses[0][1]
    # With --return-nomatch only members with nomatch match, and none is arranged.
    only_nomatch = any(option == "--return-nomatch" for option, _, _ in uses)
    members = set() if only_nomatch else traits.members.get(name, set())
    sides = traits.addresses(Field.SRC if side == "src" else Field.DST)
    return np.array([address in members for address in sides], bool) ^ inverted


def _arrange_set(traits: Traits, option: Option, where: Bools) -> None:
    name, inverted, values = option
    if name != "--match-set" or inverted or values[1] not in ("src", "dst"):
        return
    addresses = traits.addresses(Field.SRC if values[1] == "src" else Field.DST)
    members = traits.members.setdefault(values[0], set())
    # A set of networks does not accept 0, the network of all addresses.
    members |= {address for address, arranged in zip(addresses, where, strict=True) if arranged and address}


# Predicates that have one truth for all packets here.


def _policy(traits: Traits, uses: list[Option]) -> Truth:
    """No packet here was or will be encrypted."""
    kind = [values[0] for name, _, values in uses if name == "--pol"]
    return kind == ["none"]


def _physdev(traits: Traits, uses: list[Option]) -> Truth:
    """No packet here crosses a bridge; then only options that are all inverted hold."""
    return all(inverted for _, inverted, _ in uses)


def _pkttype(traits: Traits, uses: list[Option]) -> Truth:
    return (uses[0][2][0].lower() in ("unicast", "host")) ^ uses[0][1]


def _helper(traits: Traits, uses: list[Option]) -> Truth:
    """No helper follows any connection here."""
    return None if uses[0][1] or not uses[0][2][0] else False


def _realm(traits: Traits, uses: list[Option]) -> Truth:
    try:
        value, mask = _masked(uses[0][2][0], 0xFFFFFFFF)
    except ValueError:
        return None  # a name that the system's table of realms may know
    return (value & mask == 0) ^ uses[0][1]


def _tcpmss(traits: Traits, uses: list[Option]) -> Truth:
    """No packet here has tcp options; a truncated or later one is read otherwise or dropped."""
    whole = (traits.column(Field.FRAG) != Fragment.LATER) & (traits.column(Field.PROTO) == TCP)
    fine = whole & (traits.batch.rows["l4_bytes"] >= 20) & (traits.batch.rows["classes"] == 0)
    return uses[0][1] if fine.all() else None


def _string(traits: Traits, uses: list[Option]) -> Truth:
    """Payloads here are zeros; no text of letters is in there or in a header of ours."""
    for name, inverted, values in uses:
        if name == "--string" and len(values[0]) >= 4 and values[0].isprintable():
            return inverted
    return None


def _time(traits: Traits, uses: list[Option]) -> Truth:
    """Unknown if the kernel's answer may change before the packets are sent."""
    now = time.gmtime(traits.began)
    second = now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec
    holds: list[bool] = []
    edges: list[float] = []  # seconds from now
    bounds = {"--timestart": 0, "--timestop": _DAY - 1}
    for name, inverted, values in uses:
        if name in ("--datestart", "--datestop"):
            try:
                away = calendar.timegm(time.strptime(values[0], "%Y-%m-%dT%H:%M:%S")) - traits.began
            except ValueError:
                return None  # a shorter form, which iptables accepts and does not print
            holds.append(away <= 0 if name == "--datestart" else away >= 0)
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
            holds.append((today in days) ^ inverted)
            edges += [-second, _DAY - second]
        else:
            return None
    if any(abs(edge) < _SOON for edge in edges):
        return None
    start, stop = bounds.values()
    holds.append(start <= second <= stop if start < stop else second >= start or second <= stop)
    return all(holds)


_TRUTHS: dict[str, Callable[[Traits, list[Option]], Truth]] = {
    "addrtype": _addrtype, "connmark": _connmark, "dscp": _dscp, "ecn": _ecn, "helper": _helper,
    "hl": _ttl, "length": _length, "mark": _mark, "owner": _owner, "physdev": _physdev,
    "pkttype": _pkttype, "policy": _policy, "realm": _realm, "set": _set, "string": _string,
    "tcpmss": _tcpmss, "time": _time, "tos": _tos, "ttl": _ttl,
}  # fmt: skip
_ARRANGERS: dict[str, Callable[[Traits, Option, Bools], None]] = {
    "addrtype": _arrange_addrtype, "connmark": _arrange_connmark, "dscp": _arrange_dscp, "hl": _arrange_ttl,
    "length": _arrange_length, "mark": _arrange_mark, "owner": _arrange_owner, "set": _arrange_set,
    "tos": _arrange_tos, "ttl": _arrange_ttl,
}  # fmt: skip

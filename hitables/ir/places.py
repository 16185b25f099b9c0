"""Places: what an address of IPv4 and one of IPv6 have in common.

No address is in both families, so a rule set of one and a rule set of the other are compared by places: the
Internet, and each pair of networks that the user names.  A place stands for those addresses of its network
that no smaller network of a rule, or of another place, has.

-A INPUT -s 10.0.0.0/8 -p tcp --dport 22 -j ACCEPT
-A INPUT -s fd00::/8 -p tcp --dport 22 -j ACCEPT

With the pair 10.0.0.0/8=fd00::/8, both rules are for that place; without it, neither is for the Internet.

Invariant: the cells of places share no address, and have every address of IPv4.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..errors import InvalidOption, NotComparable
from .fields import Family, Field, top
from .intervals import Values
from .rule import Match, Test

UNNAMED = "addresses that no rule names"
_EVERY = Values.interval(0, top(Field.SRC, Family.IPV4))
_GLOBAL = ipaddress.ip_network("2000::/3")  # the addresses of IPv6 that are routed on the Internet
_OPTIONS = {Field.SRC: ("-s", "--src-range"), Field.DST: ("-d", "--dst-range")}


@dataclass(frozen=True, slots=True)
class Place:
    """*networks*: its addresses by family; *cell*: the addresses of IPv4 that stand for it."""

    name: str
    networks: Mapping[Family, Values]
    cell: Values


def places_of(pairs: Sequence[str]) -> tuple[Place, ...]:
    """The Internet, and the place of each of *pairs* (10.0.0.0/8=fd00::/8); InvalidOption if one is wrong.

    A pair with 0.0.0.0/0 stands for the Internet.
    """
    named = [_place(pair) for pair in pairs]
    if all(place.networks[Family.IPV4] != _EVERY for place in named):
        named.insert(0, Place(UNNAMED, {Family.IPV4: _EVERY, Family.IPV6: _values(_GLOBAL)}, _EVERY))
    for family in Family:
        first: dict[Values, str] = {}
        for place in named:
            twin = first.setdefault(place.networks[family], place.name)
            if twin != place.name:
                raise InvalidOption(f"{twin} and {place.name} have the same network of IPv{int(family)}")
    return tuple(replace(place, cell=_alone(place, named)) for place in named)


def _place(pair: str) -> Place:
    words = pair.split("=")
    try:
        one, other = (ipaddress.ip_network(word.strip()) for word in words)
    except ValueError as error:
        why = str(error) if len(words) == 2 else "it needs one network of IPv4 and one of IPv6"
        raise InvalidOption(f"pair {pair!r}: {why}; write it as in 10.0.0.0/8=fd00::/8") from None
    networks = {Family(each.version): _values(each) for each in (one, other)}
    if len(networks) != 2:
        raise InvalidOption(f"pair {pair!r}: both networks are of IPv{one.version}")
    return Place(pair, networks, networks[Family.IPV4])


def _values(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> Values:
    return Values.interval(int(network.network_address), int(network.broadcast_address))


def _alone(place: Place, places: Iterable[Place]) -> Values:
    """The addresses of IPv4 of *place* that no smaller one of *places* has."""
    whole = place.networks[Family.IPV4]
    smaller = [each.networks[Family.IPV4] for each in places]
    taken = Values.of(*(pair for each in smaller if not each.covers(whole) for pair in each.pairs))
    return whole.intersect(taken.complement(top(Field.SRC, Family.IPV4)))


def _network(place: Place, family: Family) -> str:
    ((low, high),) = place.networks[family].pairs
    kind = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
    return str(next(ipaddress.summarize_address_range(kind(low), kind(high))))


# ---- tests of addresses ----


def tests_addresses(match: Match) -> bool:
    return any(test.field in _OPTIONS for test in match.tests)


def on_places(match: Match, places: Sequence[Place], family: Family) -> tuple[Test, ...]:
    """The tests of *match*, of a rule of *family*, with places in place of addresses."""
    return tuple(
        Test(test.field, _cells(match, test, places, family)) if test.field in _OPTIONS else test
        for test in match.tests
    )


def _cells(match: Match, test: Test, places: Sequence[Place], family: Family) -> Values:
    named, is_negated = _named(match, test, family)
    held = (place.cell for place in places if named.covers(place.networks[family]) != is_negated)
    return Values.of(*(pair for cell in held for pair in cell.pairs))


def _named(match: Match, test: Test, family: Family) -> tuple[Values, bool]:
    """The addresses that *test* names, and whether it holds for all others."""
    is_negated = any(
        first == "!" and option in _OPTIONS[test.field] for first, option in pairwise(match.words)
    )
    return (test.values.complement(top(test.field, family)) if is_negated else test.values), is_negated


def check_places(places: Sequence[Place], matches: Collection[Match], family: Family, name: str) -> None:
    """NotComparable if the rules of *name*, which have *matches*, name all addresses of a place in parts."""
    for field in _OPTIONS:
        named = [
            _named(match, test, family)[0] for match in matches for test in match.tests if test.field is field
        ]
        named += [place.networks[family] for place in places]
        for place in places:
            whole = place.networks[family]
            parts = Values.of(*(pair for each in named if not each.covers(whole) for pair in each.pairs))
            if parts.covers(whole):
                raise NotComparable(
                    f"{name}: its rules name parts of {_network(place, family)} that together are all of "
                    "it, so no address stands for the whole; name a pair for each of these parts"
                )

"""Places: what an address of IPv4 and one of IPv6 have in common.

No address is in both families, so a rule set of one and a rule set of the other are compared by places: the
Internet, and each pair of networks that the user names.  A place stands for those addresses of its network
that no smaller network of a rule, or of another place, has.

-A INPUT -s 10.0.0.0/8 -p tcp --dport 22 -j ACCEPT
-A INPUT -s fd00::/8 -p tcp --dport 22 -j ACCEPT

With the pair 10.0.0.0/8=fd00::/8, both rules are for that place; without it, neither is for the Internet.

Invariant: the cells of places share no address, and have every address of IPv4.

Cost: each test of addresses looks at the places inside its networks.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..errors import InvalidOption, NotComparable
from .fields import Family, Field, top
from .intervals import Values
from .rule import Match, Test

UNNAMED = "addresses of the Internet that no rule names"
_TOP = top(Field.SRC, Family.IPV4)
_OPTIONS = {Field.SRC: ("-s", "--src-range"), Field.DST: ("-d", "--dst-range")}
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _values(*networks: _Network) -> Values:
    return Values.of(*((int(each.network_address), int(each.broadcast_address)) for each in networks))


_NONE = Values(())
# The addresses of hosts that are routed on the Internet.
_ELSEWHERE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.168.0.0/16", "224.0.0.0/3"),
)
_INTERNET = {
    Family.IPV4: _values(*map(ipaddress.IPv4Network, _ELSEWHERE)).complement(_TOP),
    Family.IPV6: _values(ipaddress.IPv6Network("2000::/3")),
}


@dataclass(frozen=True, slots=True)
class Place:
    """*networks*: its addresses by family; *cell*: the addresses of IPv4 that stand for it."""

    name: str
    networks: Mapping[Family, Values]
    cell: Values


def places_of(pairs: Sequence[str]) -> tuple[Place, ...]:
    """The Internet, and the place of each of *pairs* (10.0.0.0/8=fd00::/8); InvalidOption if one is wrong.

    A pair whose network of IPv6 has the Internet stands for it.
    """
    named = list({tuple(place.networks.values()): place for place in map(_place, pairs)}.values())
    for family in Family:
        first: dict[Values, str] = {}
        for place in named:
            twin = first.setdefault(place.networks[family], place.name)
            if twin != place.name:
                raise InvalidOption(f"{twin} and {place.name} have the same network of IPv{int(family)}")
    internet = [place for place in named if place.networks[Family.IPV6].covers(_INTERNET[Family.IPV6])]
    if not internet:
        internet = [Place(UNNAMED, _INTERNET, _NONE)]
        named = [*internet, *named]
    # The largest one has what no other place has.
    internet.sort(key=lambda place: place.networks[Family.IPV6].count)
    return tuple(replace(place, cell=_alone(place, named, place is internet[-1])) for place in named)


def _place(pair: str) -> Place:
    words = pair.split("=")
    try:
        networks = [ipaddress.ip_network(word.strip()) for word in words]
    except ValueError as error:
        why = str(error) if len(words) == 2 else "it needs one network of IPv4 and one of IPv6"
        raise InvalidOption(f"pair {pair!r}: {why}; write it as in 10.0.0.0/8=fd00::/8") from None
    if len(networks) != 2:
        raise InvalidOption(
            f"pair {pair!r}: it needs one network of IPv4 and one of IPv6; write it as in 10.0.0.0/8=fd00::/8"
        )
    if networks[0].version == networks[1].version:
        raise InvalidOption(f"pair {pair!r}: both networks are of IPv{networks[0].version}")
    one, other = sorted(networks, key=lambda network: network.version)
    place = Place(f"{one}={other}", {Family.IPV4: _values(one), Family.IPV6: _values(other)}, _NONE)
    has_internet = [place.networks[family].covers(_INTERNET[family]) for family in Family]
    if has_internet == [True, False]:
        raise InvalidOption(f"pair {pair!r}: {one} has the Internet, and {other} has not (2000::/3)")
    return place


def _alone(place: Place, places: Iterable[Place], has_the_rest: bool) -> Values:
    """The addresses of IPv4 of *place*, or all, that no smaller one of *places* has."""
    whole = Values.interval(0, _TOP) if has_the_rest else place.networks[Family.IPV4]
    others = (each.networks[Family.IPV4] for each in places if each is not place)
    taken = Values.of(*(pair for each in others if not each.covers(whole) for pair in each.pairs))
    return whole.intersect(taken.complement(_TOP))


# ---- tests of addresses ----


def tests_addresses(match: Match) -> bool:
    return any(test.field in _OPTIONS for test in match.tests)


class PlacesOfFamily:
    """*places*, for the rules of one family."""

    def __init__(self, places: Sequence[Place], family: Family) -> None:
        self._family = family
        self._places = sorted(places, key=lambda place: place.networks[family].pairs[0])
        self._lows = [place.networks[family].pairs[0][0] for place in self._places]

    def tests(self, match: Match) -> tuple[Test, ...]:
        """The tests of *match* with places in place of addresses."""
        return tuple(
            Test(test.field, self._cells(match, test)) if test.field in _OPTIONS else test
            for test in match.tests
        )

    def _cells(self, match: Match, test: Test) -> Values:
        named, is_negated = _named(match, test, self._family)
        held: list[tuple[int, int]] = []
        for low, high in named.pairs:
            for place in self._places[bisect_left(self._lows, low) : bisect_right(self._lows, high)]:
                if named.covers(place.networks[self._family]):
                    held += place.cell.pairs
        cells = Values.of(*held)
        return cells.complement(_TOP) if is_negated else cells

    def check(self, matches: Collection[Match], name: str) -> dict[Field, list[tuple[Values, int]]]:
        """By field the cell of each place, and the first address of its network that nothing names.

        NotComparable if the rules of *name*, which have *matches*, name all addresses of a place in parts.
        """
        found: dict[Field, list[tuple[Values, int]]] = {}
        for field in _OPTIONS:
            named = [
                pair
                for match in matches
                for test in match.tests
                if test.field is field
                for pair in _named(match, test, self._family)[0].pairs
            ]
            # A network of a place is a part of the larger ones.
            named += [pair for place in self._places if place.name != UNNAMED for pair in self._pairs(place)]
            named.sort()
            # Networks lie inside each other or apart; only ranges overlap otherwise.
            ranges = [pair for pair in named if not _is_network(pair)]
            found[field] = [(place.cell, self._unnamed(place, named, ranges, name)) for place in self._places]
        return found

    def _pairs(self, place: Place) -> tuple[tuple[int, int], ...]:
        return place.networks[self._family].pairs

    def _unnamed(
        self, place: Place, named: Sequence[tuple[int, int]], ranges: Sequence[tuple[int, int]], name: str
    ) -> int:
        """The first address of *place* that is in none of *named* but those that have all of it."""
        whole = place.networks[self._family]
        if len(whole.pairs) == 1:
            ((low, high),) = whole.pairs
            inside = {*ranges, *named[bisect_left(named, (low, 0)) : bisect_right(named, (high, high))]}
        else:
            inside = set(named)
        parts = Values.of(*(pair for pair in inside if not Values.of(pair).covers(whole)))
        rest = whole.intersect(parts.complement(top(Field.SRC, self._family)))
        if not rest:
            raise NotComparable(
                f"{name}: its rules name each address of {_shown(place, self._family)} in smaller networks, "
                "so no address stands for the whole; a pair with one of these networks may stand for it"
            )
        return rest.pairs[0][0]


def _named(match: Match, test: Test, family: Family) -> tuple[Values, bool]:
    """The addresses that *test* names, and whether it holds for all others."""
    options = _OPTIONS[test.field]
    is_negated = any(first == "!" and word in options for first, word in pairwise(match.words))
    return (test.values.complement(top(test.field, family)) if is_negated else test.values), is_negated


def _is_network(pair: tuple[int, int]) -> bool:
    low, size = pair[0], pair[1] - pair[0] + 1
    return size & (size - 1) == 0 and low % size == 0


def _shown(place: Place, family: Family) -> str:
    if place.name == UNNAMED:
        return "the Internet"
    return place.name.split("=")[family is Family.IPV6]

"""A rule set of IPv4 and one of IPv6, written so that they can be compared: both as programs of IPv4.

What has the same meaning in both families stays as it is: interfaces, protocols, ports, states, marks.

- Addresses become places (places.py).  An address is in no ipset that only one of the rule sets asks, and is
  none that a match names in another way.
- ICMP and its types become their twins (`TWINS`), and `hl` is `ttl`.
- What only one family has matches nothing: broadcasts, extension headers and AH.
- A match with memory or chance (limit, recent) is a fact: equal ones hold for the same packets.  A list of
  `recent` that rules of the other one fill, and none of its own, has no address.
- A REJECT is a REJECT, whatever error of ICMP it sends.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .fact import ADDRESS_TYPES, Fact
from .fields import ICMP, ICMPV6, Family, Field, top
from .intervals import Values
from .places import Place, PlacesOfFamily, tests_addresses
from .program import Program, Table
from .rule import Kind, Match, Metadata, Role, Rule, Target, Test, word_behind
from .set_counters import set_of
from .unfilled_lists import list_of

# Type and code of ICMP, and of ICMPv6.
TWINS = {
    (0, 0): (129, 0),  # echo reply
    (8, 0): (128, 0),  # echo request
    (3, 0): (1, 0),  # no route to the network
    (3, 1): (1, 3),  # host, or address, unreachable
    (3, 3): (1, 4),  # port unreachable
    (3, 13): (1, 1),  # prohibited
    (3, 4): (2, 0),  # fragmentation needed; packet too big
    (11, 0): (3, 0),  # time exceeded on the way
    (11, 1): (3, 1),  # time exceeded while fragments were awaited
    (12, 0): (4, 0),  # parameter problem
}
# Matches of headers that are extension headers in IPv6.
_EXTENSION_MATCHES = ("rt", "frag", "hbh", "dst", "mh", "srh", "ah")
_BY_OFFSET = ("u32", "bpf", "string")  # matches of bytes counted from the IP header
_MASK = re.compile(r" --(?:\w+-)?(?:src|dst)?mask (\S+)")
_WHOLE = {Family.IPV4: ("255.255.255.255", "32"), Family.IPV6: (":".join(["ffff"] * 8), "128")}
_ADDRESS_OPTIONS = (
    *("--ctorigsrc", "--ctorigdst", "--ctreplsrc", "--ctrepldst", "--tunnel-src", "--tunnel-dst", "--vaddr"),
    *("-s", "-d"),
)
TYPE_OPTIONS = {"--src-type": "src type", "--dst-type": "dst type"}
TYPE_MASK = 15
_CTPROTO = re.compile(rf"(?<= --ctproto )(?:{ICMP}|{ICMPV6})(?!\S)")
_ADDRESSES = (Field.SRC, Field.DST)
_EVERY_ADDRESS = Values.interval(0, top(Field.SRC, Family.IPV4))
_NEVER = (Test(Field.PROTO, Values(())),)
LEFT_OUT_TABLES = ("nat",)  # what it writes are addresses


@dataclass(frozen=True, slots=True)
class Written:
    """*program* as one of IPv4, without guards.

    elsewhere  how many of its rules are for no place; *sets*: the ipsets that such rules ask
    unnamed    by field for each place its cell, and an address of its own family that no rule names
    """

    program: Program
    elsewhere: int
    sets: tuple[str, ...]
    unnamed: Mapping[Field, Sequence[tuple[Values, int]]]


def written_alike(
    before: Program, after: Program, places: Sequence[Place], tables: Collection[str]
) -> tuple[Written, Written]:
    """Two programs, of two families; NotComparable if the rules of one name a place in parts.

    Without LEFT_OUT_TABLES, and without all but *tables* if there are some.
    """
    both = tuple(
        replace(
            each,
            tables=tuple(
                table
                for table in each
                if table.name not in LEFT_OUT_TABLES and (not tables or table.name in tables)
            ),
        )
        for each in (before, after)
    )
    sets = [{set_of(match) for rule in each.rules() for match in rule.matches} for each in both]
    shared = (sets[0] & sets[1]) - {None}
    written = [_Writing(each.family, places, shared, ()).written(each) for each in both]
    filled = [_filled_lists(each, made.program) for each, made in zip(both, written, strict=True)]
    for at, own in enumerate(filled):
        empty = (filled[0] | filled[1]) - own
        if empty:
            written[at] = _Writing(both[at].family, places, shared, empty).written(both[at])
    one, other = written
    return one, other


def _filled_lists(program: Program, written: Program) -> frozenset[str]:
    """The lists of `recent` into which rules of *program* put addresses of some place."""
    filled = set()
    for table, made in zip(program, written, strict=True):
        entered: dict[str, None] = {}
        for chain in table.chains:
            if chain.policy is not None:
                entered |= dict.fromkeys(table.callers_first(chain.name))
        for name in entered:
            for rule, copy in zip(table[name].rules, made[name].rules, strict=True):
                lists = {
                    list_of(each) for each in rule.matches if each.name == "recent" and "--set" in each.words
                }
                if lists and not any(map(_is_never, copy.matches)):
                    filled |= lists
    return frozenset(filled)


@dataclass
class _Writing:
    """One program that is written as one of IPv4.

    sets   the ipsets that the other one asks, too
    empty  the lists of `recent` that rules of the other one fill, and none of its own
    """

    family: Family
    places: Sequence[Place]
    sets: Collection[str | None]
    empty: Collection[str]
    # Rules share their matches: what stands for each, by its id; (): it matches every packet.
    done: dict[int, tuple[Match, ...]] = field(default_factory=dict)

    def written(self, program: Program) -> Written:
        matches = {id(match): match for rule in program.rules() for match in rule.matches}
        by_place = PlacesOfFamily(self.places, self.family)
        unnamed = by_place.check([each for each in matches.values() if tests_addresses(each)], program.name)
        self.done = {key: self.match(match, by_place) for key, match in matches.items()}
        nowhere = {
            key: match
            for key, match in matches.items()
            if any(map(_is_never, self.done[key])) and (tests_addresses(match) or _names_addresses(match))
        }
        elsewhere = sum(any(id(match) in nowhere for match in rule.matches) for rule in program.rules())
        sets = dict.fromkeys(set_of(match) for match in nowhere.values())
        tables = tuple(self.table(table) for table in program)
        asked = tuple(name for name in sets if name is not None)
        return Written(replace(program, family=Family.IPV4, tables=tables), elsewhere, asked, unnamed)

    def table(self, table: Table) -> Table:
        seen: Counter[object] = Counter()
        return table.of(
            {
                chain.name: chain.with_rules(tuple(self.rule(rule, seen) for rule in chain.rules))
                for chain in table.chains
            }
        )

    def rule(self, rule: Rule, seen: Counter[object]) -> Rule:
        """*seen*: how many rules before it in its table ask the same chance, or are the same rule."""
        target = _target(rule.target)
        matches = tuple(each for match in rule.matches for each in self.done[id(match)])
        if any(match.role in (Role.NAMED, Role.ONCE) for match in rule.matches):
            is_chance = any(match.name == "statistic" for match in rule.matches)
            keys = tuple(match.key for match in matches if match.name == "statistic" or not is_chance)
            same = keys, target.key if target and not is_chance else ""
            seen[same] += 1
            if seen[same] > 1:  # asked once more, it may answer otherwise
                matches = tuple(_asked_again(match, rule, seen[same]) for match in matches)
        return rule._replace(matches=matches, target=target)

    def match(self, match: Match, by_place: PlacesOfFamily) -> tuple[Match, ...]:
        if match.name == "addrtype":
            return tuple(_types_of_addresses(match, self.family))
        one = self.one_match(match, by_place)
        return () if one is None else (one,)

    def one_match(self, match: Match, by_place: PlacesOfFamily) -> Match | None:
        """What stands for *match*; None: it matches every packet."""
        is_negated = "!" in match.words
        if match.name in _EXTENSION_MATCHES:
            return _never(match)
        if match.name == "recent" and ("--set" in match.words or list_of(match) in self.empty):
            holds = ("--set" in match.words) != is_negated
            return None if holds else _never(match)
        if set_of(match) is None and _names_addresses(match):
            return self.of_other_address(match)
        if set_of(match) is not None and set_of(match) not in self.sets:
            at = match.words.index("--match-set")
            return None if match.words[at - 1 : at] == ("!",) else _never(match)
        if match.role in (Role.NAMED, Role.ONCE):
            return self.as_fact(match)
        if match.role is Role.CONSTANT:
            return self.constant(match)
        return self.of_header(match, by_place)

    def of_other_address(self, match: Match) -> Match | None:
        words = match.words
        options = [at for at, word in enumerate(words) if word in _ADDRESS_OPTIONS]
        if any(words[at - 1 : at] != ("!",) for at in options):
            return _never(match)
        is_all = len(words) == 3 * len(options)
        return None if is_all else match._replace(key=self.own(match.key), negates="")

    def as_fact(self, match: Match) -> Match:
        """A match with memory or chance as one that holds for some packets, or not, for good."""
        masks = _MASK.findall(match.key)
        is_whole = all(mask in _WHOLE[self.family] for mask in masks)
        key = _MASK.sub("", match.key) + ("" if is_whole else " of networks")
        return match._replace(role=Role.CONSTANT, key=key, reads=frozenset(), writes=frozenset())

    def constant(self, match: Match) -> Match:
        is_anywhere = " --from 0 " in match.key and match.key.endswith(" --to 65535")
        if match.name in _BY_OFFSET and not is_anywhere:
            return match._replace(key=self.own(match.key), negates="")
        if match.number is not None and match.number.attribute == "hl":
            number = match.number._replace(attribute="ttl")
            return match._replace(key=match.key.replace("hl", "ttl"), number=number)
        if self.family is Family.IPV6 and "--ctproto" in match.words:
            return match._replace(
                key=_CTPROTO.sub(_twin, match.key), negates=_CTPROTO.sub(_twin, match.negates)
            )
        return match

    def of_header(self, match: Match, by_place: PlacesOfFamily) -> Match | None:
        tests = by_place.tests(match)
        if self.family is Family.IPV6:
            tests = tuple(_of_icmp(test) for test in tests)
        if tests == match.tests:
            return match
        asked = tuple(test for test in tests if test.field not in _ADDRESSES or test.values != _EVERY_ADDRESS)
        return match._replace(tests=asked, key=self.own(match.key)) if asked else None

    def own(self, key: str) -> str:
        return f"IPv{int(self.family)} {key}"


def _never(match: Match) -> Match:
    return Match(match.name, match.words, Role.SPACE, f"never {match.key}", _NEVER)


def _is_never(match: Match) -> bool:
    return any(not test.values for test in match.tests)


def _names_addresses(match: Match) -> bool:
    """Whether it names addresses in a way that no place is compared with: an ipset, a mask of any bits."""
    is_named = match.role is Role.CONSTANT and not set(_ADDRESS_OPTIONS).isdisjoint(match.words)
    return set_of(match) is not None or is_named


def _asked_again(match: Match, rule: Rule, number: int) -> Match:
    """*match*, if it stands for one with memory or chance, as its evaluation *number*."""
    has_memory = {each.words for each in rule.matches if each.role in (Role.NAMED, Role.ONCE)}
    return match._replace(key=f"{match.key} #{number}") if match.words in has_memory else match


def _types_of_addresses(match: Match, family: Family) -> Iterator[Match]:
    """The match `addrtype` as one match for each of its two options."""
    words = match.key.split()  # where names of types have capital letters
    limits = [f" {word}" for word in words if word.startswith("--limit-iface")]
    for at, word in enumerate(words):
        if word in TYPE_OPTIONS:
            types = {ADDRESS_TYPES.index(name) for name in words[at + 1].split(",")}
            values = Values.only(*(types if family is Family.IPV4 else _types_of_ipv6(types)))
            fact = Fact("".join([TYPE_OPTIONS[word], *limits]), values, TYPE_MASK)
            no = words[at - 1] == "!"
            key = f"addrtype{' !' * no} {word} {words[at + 1]}{''.join(limits)}"
            if family is Family.IPV6 and types != set(values.members()):
                key = f"IPv6 {key}"
            yield match._replace(key=key, number=fact.negation if no else fact, negates="")


def _types_of_ipv6(types: Collection[int]) -> set[int]:
    """The types by the numbers of IPv4 of the addresses of IPv6 that have all of *types*, as its kernel asks.

    UNICAST is each address that is neither MULTICAST nor UNSPEC there; of LOCAL, ANYCAST and UNREACHABLE one
    has to be (netfilter/xt_addrtype.c).
    """
    unspecified, unicast, multicast = (
        ADDRESS_TYPES.index(name) for name in ("UNSPEC", "UNICAST", "MULTICAST")
    )
    having = set(range(len(ADDRESS_TYPES)))
    for one in {unspecified, multicast}.intersection(types):
        having &= {one}
    if unicast in types:
        having -= {unspecified, multicast}
    routed = set(types) - {unspecified, unicast, multicast}
    return having & routed if routed else having


def _twin(protocol: re.Match[str]) -> str:
    return str(ICMP if protocol[0] == str(ICMPV6) else ICMPV6)


def _of_icmp(test: Test) -> Test:
    """A test of IPv6 with the protocol, or the types, of ICMP in place of those of ICMPv6."""
    if test.field is Field.PROTO:
        return Test(test.field, _swapped(test.values))
    if test.field is Field.ICMP:
        twins = (at for at, (kind, code) in TWINS.items() if kind << 8 | code in test.values)
        return Test(test.field, Values.only(*(kind << 8 | code for kind, code in twins)))
    return test


def _swapped(protocols: Values) -> Values:
    """*protocols* with ICMP in place of ICMPv6, and the other way around."""
    if (ICMP in protocols) == (ICMPV6 in protocols):
        return protocols
    present, absent = (ICMP, ICMPV6) if ICMP in protocols else (ICMPV6, ICMP)
    rest = protocols.intersect(Values.only(present).complement(top(Field.PROTO, Family.IPV4)))
    return rest.union(Values.only(absent))


def _target(target: Target | None) -> Target | None:
    if target is None or target.kind is not Kind.VERDICT:
        return target
    if target.name == "REJECT":
        is_reset = word_behind("--reject-with", target.words) in ("tcp-reset", "tcp-rst")
        return replace(target, key="REJECT --reject-with tcp-reset" if is_reset else "REJECT")
    if target.name == "TPROXY":
        key = re.sub(r" --on-ip (?:::|0\.0\.0\.0)(?!\S)", "", target.key)
        return replace(target, key=re.sub(r" --on-ip (?:::1|127\.0\.0\.1)(?!\S)", " --on-ip localhost", key))
    if target.name in ("TTL", "HL"):
        makes = target.makes._replace(attribute="ttl") if target.makes is not None else None
        key = target.key.replace("HL --hl", "TTL --ttl")
        return replace(target, key=key, makes=makes, writes=frozenset({Metadata.TTL}))
    return target

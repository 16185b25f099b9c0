"""A rule set of IPv4 and one of IPv6, written so that they can be compared: both as programs of IPv4.

What has the same meaning in both families stays as it is: interfaces, protocols, ports, states, marks.

- Addresses become places (places.py).  An address is in no ipset that only one of the rule sets asks.
- ICMP and its types become their twins (`_TWINS`).
- What only one family has matches nothing: fragments (-f), broadcasts, extension headers.
- A match with memory or chance (limit, recent) is a fact: equal ones hold for the same packets.
- A REJECT is a REJECT, whatever error of ICMP it sends.

`as_compared` leaves out what makes no difference to the verdict, and packets that are not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from .fields import ICMP, ICMPV6, TCP, Family, Field, Fragment, top
from .headers import HEADER_BYTES
from .intervals import Values
from .places import Place, check_places, on_places, tests_addresses
from .program import Chain, Program, Table
from .rule import Ends, Kind, Match, Role, Rule, Target, Test, word_behind
from .set_counters import set_of

# Type and code of ICMP, and of ICMPv6.
_TWINS = {
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
    (5, 1): (137, 0),  # redirect for a host
}
_EXTENSION_HEADERS = ("rt", "frag", "hbh", "dst", "mh")
_BROADCAST = (
    ("addrtype", ("--dst-type", "BROADCAST")),
    ("addrtype", ("--src-type", "BROADCAST")),
    ("pkttype", ("--pkt-type", "broadcast")),
)
_ADDRESSES = (Field.SRC, Field.DST)
_EVERY_ADDRESS = Values.interval(0, top(Field.SRC, Family.IPV4))
# Masks of whole addresses, in the keys of matches that keep addresses.
_WHOLE_ADDRESS = re.compile(
    r" --(?:\w+-)?(?:src|dst)?mask (?:255\.255\.255\.255|32|(?:ffff:){7}ffff|128)(?!\S)"
)
_NEVER = (Test(Field.PROTO, Values(())),)
LEFT_OUT_TABLES = ("nat",)  # what it writes are addresses


@dataclass(frozen=True, slots=True)
class Written:
    """*program* as one of IPv4, without guards; *elsewhere*: how many of its rules are for no place."""

    program: Program
    elsewhere: int


def written_alike(before: Program, after: Program, places: Sequence[Place]) -> tuple[Written, Written]:
    """Two programs, of two families, without LEFT_OUT_TABLES; NotComparable as `check_places` says."""
    both = tuple(
        replace(each, tables=tuple(table for table in each if table.name not in LEFT_OUT_TABLES))
        for each in (before, after)
    )
    sets = [{set_of(match) for rule in each.rules() for match in rule.matches} for each in both]
    shared = (sets[0] & sets[1]) - {None}
    one, other = (_Writing(each.family, places, shared).written(each) for each in both)
    return one, other


@dataclass
class _Writing:
    """One program that is written as one of IPv4.  *sets*: the ipsets that the other one asks, too."""

    family: Family
    places: Sequence[Place]
    sets: Collection[str | None]
    # Rules share their matches: what stands for each, by its id; None: it matches every packet.
    done: dict[int, Match | None] = field(default_factory=dict)

    def written(self, program: Program) -> Written:
        matches = {id(match): match for rule in program.rules() for match in rule.matches}
        of_addresses = [match for match in matches.values() if tests_addresses(match)]
        check_places(self.places, of_addresses, self.family, program.name)
        self.done = {key: self.match(match) for key, match in matches.items()}
        nowhere = {
            key
            for key, match in matches.items()
            if _is_never(self.done[key]) and (tests_addresses(match) or _names_addresses(match))
        }
        elsewhere = sum(
            any(id(match) in nowhere for match in rule.matches) for table in program for rule in _rules(table)
        )
        tables = tuple(
            replace(table, chains=tuple(self.chain(chain) for chain in table.chains)) for table in program
        )
        return Written(replace(program, family=Family.IPV4, tables=tables), elsewhere)

    def chain(self, chain: Chain) -> Chain:
        return chain.with_rules(tuple(self.rule(rule) for rule in chain.rules))

    def rule(self, rule: Rule) -> Rule:
        matches = (self.done[id(match)] for match in rule.matches)
        return rule._replace(
            matches=tuple(match for match in matches if match is not None), target=_target(rule.target)
        )

    def match(self, match: Match) -> Match | None:
        is_negated = "!" in match.words
        if _is_of_one_family(match):
            return None if is_negated and match.name not in _EXTENSION_HEADERS else _never(match)
        if _names_addresses(match) and set_of(match) not in self.sets:
            return None if is_negated else _never(match)
        if match.number is not None and match.number.attribute == "hl":
            key = match.key.replace("hl", "ttl")
            return match._replace(name="ttl", key=key, number=match.number._replace(attribute="ttl"))
        if match.role in (Role.NAMED, Role.ONCE):
            return _as_fact(match)
        tests = on_places(match, self.places, self.family)
        if self.family is Family.IPV6:
            tests = tuple(_of_icmp(test) for test in tests)
        if tests == match.tests:
            return match
        asked = tuple(test for test in tests if test.field not in _ADDRESSES or test.values != _EVERY_ADDRESS)
        if not asked:
            return None
        return match._replace(tests=asked, key=f"IPv{int(self.family)} {match.key}")


def _rules(table: Table) -> list[Rule]:
    return [rule for chain in table.chains for rule in chain.rules]


def _never(match: Match) -> Match:
    return Match(match.name, match.words, Role.SPACE, f"never {match.key}", _NEVER)


def _is_never(match: Match | None) -> bool:
    return match is not None and any(not test.values for test in match.tests)


def _is_of_one_family(match: Match) -> bool:
    """Whether it asks for something that packets of one family alone have."""
    plain = tuple(word for word in match.words if word != "!")
    if not match.name:
        return plain in (("-f",), ("--fragment",))
    return match.name in _EXTENSION_HEADERS or (match.name, plain) in _BROADCAST


def _as_fact(match: Match) -> Match:
    """A match with memory or chance as one that holds for some packets, or not, for good."""
    key = _WHOLE_ADDRESS.sub("", match.key)
    return match._replace(role=Role.CONSTANT, key=key, reads=frozenset(), writes=frozenset())


def _names_addresses(match: Match) -> bool:
    """Whether it names addresses in a way that no place is compared with: an ipset, a mask of any bits."""
    return set_of(match) is not None or (
        match.role is Role.CONSTANT and not match.name and bool({"-s", "-d"} & set(match.words))
    )


def _of_icmp(test: Test) -> Test:
    """A test of IPv6 with the protocol, or the types, of ICMP in place of those of ICMPv6."""
    if test.field is Field.PROTO:
        return Test(test.field, _swapped(test.values))
    if test.field is Field.ICMP:
        twins = (at for at, (kind, code) in _TWINS.items() if kind << 8 | code in test.values)
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
    if target is None or target.name != "REJECT" or target.kind is not Kind.VERDICT:
        return target
    is_reset = word_behind("--reject-with", target.words) in ("tcp-reset", "tcp-rst")
    return replace(target, key="REJECT --reject-with tcp-reset" if is_reset else "REJECT")


# ---- what is compared ----


def as_compared(program: Program, chains: Collection[str]) -> Program:
    """*program* without rules that only log or count; it drops the packets that are not compared.

    Those are fragments, packets with broken headers, and packets of ICMP whose type has no twin.  The rules
    that drop them are in front of the built-in chains and of *chains*.
    """
    guards = tuple(_guards())
    tables = (
        replace(table, chains=tuple(_as_compared(chain, guards, chains) for chain in table.chains))
        for table in program
    )
    return replace(program, tables=tuple(tables))


def _as_compared(chain: Chain, guards: tuple[Rule, ...], chains: Collection[str]) -> Chain:
    is_asked = chain.policy is not None or chain.name in chains
    rules = tuple(rule for rule in chain.rules if not _is_silent(rule))
    return chain.with_rules((*guards, *rules) if is_asked else rules)


def _is_silent(rule: Rule) -> bool:
    target = rule.target
    return target is None or (target.kind is Kind.VERDICT and target.ends is Ends.NEVER and not target.writes)


def _guards() -> list[Rule]:
    twins = Values.only(*(kind << 8 | code for kind, code in _TWINS))
    no_twin = twins.complement(top(Field.ICMP, Family.IPV4))
    guards = [
        _drop(_asking(Test(Field.FRAG, Values.only(Fragment.FIRST, Fragment.LATER)))),
        _drop(_asking(Test(Field.PROTO, Values.only(ICMP)), Test(Field.ICMP, no_twin))),
        _drop(_asking(Test(Field.PROTO, Values.only(ICMPV6)))),  # ICMP, in a packet of IPv6
    ]
    for protocol, size in HEADER_BYTES.items():
        # The first match drops what is too short or has a bad data offset; the second stops all others.
        asked = _asking(Test(Field.PROTO, Values.only(protocol)))
        guards.append(_drop(asked._replace(needs=size, option=protocol == TCP), _asking(*_NEVER)))
    return guards


def _asking(*tests: Test) -> Match:
    return Match("", ("not compared",), Role.SPACE, f"not compared: {tests}", tests)


def _drop(*matches: Match) -> Rule:
    return Rule(matches, Target("DROP", Kind.VERDICT, "DROP", ends=Ends.SURELY))

"""Rules: matches in the order in which the kernel evaluates them, then a target.

A `Match` has the words it is printed with, and its meaning.  Rules share equal matches: the parser makes one
object per distinct spelling.

Types of which a large rule set has many objects are named tuples: immutable as data classes, and made three
times as fast.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from .fact import Assignment, Fact
from .fields import Field
from .intervals import Values


class Role(enum.IntEnum):
    """How a match may be used in a tree (docs/semantics.md, "Roles")."""

    SPACE = 0  # header fields decide it: a side of the rule's box
    CONSTANT = 1  # one truth value per packet, while nothing writes what it reads: an uninterpreted predicate
    NAMED = 2  # memory or chance that copies share: it may be in many leaves
    ONCE = 3  # memory of the rule itself: it must exist once


class Ends(enum.IntEnum):
    """Whether a target ends the packet's path through the table."""

    NEVER = 0
    MAYBE = 1
    SURELY = 2


class Kind(enum.IntEnum):
    """How the packet continues after a target."""

    VERDICT = 0  # a target extension or a standard verdict, ACCEPT to ZZZ
    JUMP = 1  # -j to a user chain: returns to the next rule
    GOTO = 2  # -g to a user chain: returns to this chain's caller
    RETURN = 3  # back to the caller, or the policy


# Read for every rule: the look-up of a member in its class would take longer than the comparison.
_SURELY = Ends.SURELY
_VERDICT, _JUMP, _GOTO, _RETURN = Kind


class Metadata(enum.IntEnum):
    """State that targets and matches write and matches read, besides tests of header fields.

    The C engine uses the same numbers (interp.h: how many there are).
    """

    CT = 0  # the packet's connection, and all that conntrack records of it
    MARK = 1
    CONNMARK = 2
    TOS = 3  # the whole byte: DSCP and ECN; in IPv6 the traffic class
    TTL = 4
    TCP = 5  # the tcp header besides ports and the six flags: options, data offset, ECN bits
    SETS = 6
    ADDRESSES = 7
    LABELS = 8
    CLASS = 9  # the packet's priority
    SECMARK = 10
    LENGTH = 11  # of the IP packet
    CHECKSUM = 12  # checksums, and the header that an ICMP error quotes
    PKTTYPE = 13  # unicast, broadcast, multicast, by the link layer
    PAYLOAD = 14  # all other bytes after the IP header: ports, ICMP, extension headers, data
    META = 15  # interfaces, macs, route, socket, processor, clock: no target of the kernel writes them
    RATES = 16  # estimators of RATEEST


# An unknown extension reads and writes all of them.
EVERYTHING = frozenset(Metadata)
_NOTHING = frozenset[Metadata]()


class Test(NamedTuple):
    """The field's value is one of *values*; a packet that lacks the field fails."""

    field: Field
    values: Values


def word_behind(option: str, words: tuple[str, ...], default: str = "") -> str:
    """The word behind *option* in the words of a match or target; *default* if it lacks the option."""
    return words[words.index(option) + 1] if option in words[:-1] else default


# In the keys of matches of one named memory for which rules differ in parameters; those in effect follow.
FIRST_LOADED = "first loaded:"


class Match(NamedTuple):
    """One `-m` extension with its options, or one header option (then *name* is "").

    words    as printed after `-m NAME`, without quotes
    tests    role SPACE: the tests that must hold (all; with *either*, one)
    native   iptables-nft makes native expressions of it instead of calling xtables
    needs    bytes of layer 4: the xtables match drops a packet that has fewer; 0: it drops none
    strict   the match drops a packet of fragment offset 1 (tcp)
    option   the match drops a packet with a broken tcp data offset (--tcp-option)
    reads    state that a CONSTANT match reads
    writes   state that each evaluation may change; empty unless the role is NAMED or ONCE
    key      normal spelling: matches with equal keys mean the same
    negates  of a CONSTANT match with a "!": the key of the match that holds for exactly the other packets;
             "": none is known
    number   of a CONSTANT match: which values of a number of the packet it holds for; None: it compares none
    """

    name: str
    words: tuple[str, ...]
    role: Role
    key: str
    tests: tuple[Test, ...] = ()
    either: bool = False
    native: bool = False
    needs: int = 0
    strict: bool = False
    option: bool = False
    reads: frozenset[Metadata] = EVERYTHING
    writes: frozenset[Metadata] = frozenset()
    negates: str = ""
    number: Fact | None = None

    @property
    def fact(self) -> Fact:
        """Of role CONSTANT: what it asks of the packet."""
        if self.number is not None:
            return self.number
        return Fact.of_key(self.negates, False) if self.negates else Fact.of_key(self.key, True)

    @property
    def is_protocol(self) -> bool:
        """Whether it is -p.  Even at `-p all` legacy drops a packet that hides its protocol (IPv6)."""
        return not self.name and self.words[-2:-1] == ("-p",)


@dataclass(frozen=True, slots=True)
class Target:
    """`-j NAME` or `-g NAME` with its options.

    words  as printed after the name, without quotes
    key    normal spelling: targets with equal keys do the same
    makes  what it makes of a number of the packet, which depends on states that it writes; None: not known
    """

    name: str
    kind: Kind
    key: str
    words: tuple[str, ...] = ()
    ends: Ends = Ends.SURELY
    writes: frozenset[Metadata] = frozenset()
    makes: Assignment | None = None

    @property
    def enters(self) -> bool:
        """Whether it enters a user chain, by -j or by -g."""
        return self.kind is _JUMP or self.kind is _GOTO

    @property
    def is_final(self) -> bool:
        """Whether it surely ends the packet's path through the table, by a verdict of its own."""
        return self.kind is _VERDICT and self.ends is _SURELY

    @property
    def leaves(self) -> bool:
        """Whether no packet that it is applied to reaches the next rule of its chain."""
        return self.kind is _GOTO or self.kind is _RETURN or self.is_final


class Rule(NamedTuple):
    """One rule.  *target* None: it only counts.  *line* 0: it was not read from a file."""

    matches: tuple[Match, ...]
    target: Target | None
    line: int = 0
    counters: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()  # comment lines before it in the file

    @property
    def enters(self) -> str | None:
        """The name of the user chain that its target enters; None when there is none."""
        target = self.target
        return target.name if target is not None and target.enters else None

    @property
    def is_final(self) -> bool:
        """Whether it surely decides every packet that it matches, by a verdict of its own."""
        return self.target is not None and self.target.is_final

    @property
    def leaves(self) -> bool:
        """Whether no packet that it matches reaches the next rule of its chain."""
        return self.target is not None and self.target.leaves

    @property
    def returns(self) -> bool:
        """Whether its target is RETURN."""
        return self.target is not None and self.target.kind is _RETURN

    @property
    def has_memory(self) -> bool:
        """Whether it must exist once, because one of its matches has memory of its own."""
        return any(match.role is Role.ONCE for match in self.matches)

    @property
    def writes(self) -> frozenset[Metadata]:
        """State that its matches or its target may have written when a packet reaches the next rule.

        It excludes what the rules of a chain write that it enters.  A target that surely ends the packet's
        path writes nothing, since the packet reaches no further rule.
        """
        target = self.target
        by_target = target.writes if target and target.ends is not _SURELY else _NOTHING
        by_matches = [match.writes for match in self.matches if match.writes]
        return by_target.union(*by_matches) if by_matches else by_target


def leaves_chain(rule: Rule) -> bool:
    """Whether the target leaves the chain of the rule (RETURN, -g), so that no -j can replace it."""
    return rule.target is not None and rule.target.kind in (_RETURN, _GOTO)

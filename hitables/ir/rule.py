"""Rules: matches in the order in which the kernel tries them, then a target.

A `Match` keeps the words it is printed with and what it means, side by side.
Equal matches are shared: the parser makes one object per distinct spelling.

What a large rule set has many of is a named tuple, which is made three times as
fast as a data class and is as immutable.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from .fields import Field
from .intervals import Values


class Role(enum.IntEnum):
    """What may be done with a match (docs/semantics.md, "Roles")."""

    SPACE = 0  # a side of the rule's box: its truth follows from header fields
    CONSTANT = 1  # one truth value per packet, while nothing writes what it reads
    NAMED = 2  # memory or chance that copies share: may stand in many leaves
    ONCE = 3  # memory that belongs to the rule: must exist once


class Ends(enum.IntEnum):
    """Whether a target ends the packet's way through the table."""

    NEVER = 0
    MAYBE = 1
    SURELY = 2


class Kind(enum.IntEnum):
    """What a target does with the walk through the chains."""

    VERDICT = 0  # a target extension or a standard verdict, ACCEPT to ZZZ
    JUMP = 1  # -j to a user chain: comes back
    GOTO = 2  # -g to a user chain: comes back to this chain's caller
    RETURN = 3  # back to the caller, or the policy


class State(enum.IntEnum):
    """What a target or a match writes and a match reads, besides tests of header fields.

    The numbers are shared with the C engine (interp.h: how many there are).
    """

    CT = 0  # the connection that the packet belongs to, and what conntrack knows of it
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
    PKTTYPE = 13  # unicast, broadcast, multicast: as the link layer said
    PAYLOAD = 14  # all other bytes behind the IP header: ports, ICMP, extension headers, data
    META = 15  # interfaces, macs, route, socket, processor, clock: no target of the kernel writes them
    RATES = 16  # estimators of RATEEST


# An extension that is not known reads and writes all of them.
EVERYTHING = frozenset(State)


class Test(NamedTuple):
    """The field's value is one of *values*; a packet that lacks the field fails."""

    field: Field
    values: Values


class Match(NamedTuple):
    """One `-m` extension with its options, or one header option (then *name* is "").

    words    as printed behind `-m NAME`, quoting taken off
    tests    for role SPACE: what must hold (all of them; with *either*, one)
    native   iptables-nft turns it into native expressions instead of calling xtables
    needs    bytes of layer 4 that the xtables match drops the packet for the lack of;
             0 when it never does that
    strict   the match drops a packet of fragment offset 1 (tcp)
    option   the match drops a packet with a broken tcp data offset (--tcp-option)
    reads    state that a CONSTANT match looks at
    writes   state that it may change whenever it is asked; empty unless it is NAMED or ONCE
    key      normal spelling: equal keys, equal meaning
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
    reads: frozenset[State] = EVERYTHING
    writes: frozenset[State] = frozenset()

    @property
    def is_protocol(self) -> bool:
        """Whether it is -p; at that, even at `-p all`, legacy drops what hides its protocol (IPv6)."""
        return not self.name and self.words[-2:-1] == ("-p",)


@dataclass(frozen=True, slots=True)
class Target:
    """`-j NAME` or `-g NAME` with its options.

    words  as printed behind the name, quoting taken off
    key    normal spelling: equal keys, equal effect
    """

    name: str
    kind: Kind
    key: str
    words: tuple[str, ...] = ()
    ends: Ends = Ends.SURELY
    writes: frozenset[State] = frozenset()

    @property
    def enters(self) -> bool:
        """Whether it leads into a user chain, by -j or by -g."""
        return self.kind in (Kind.JUMP, Kind.GOTO)

    @property
    def is_final(self) -> bool:
        """Whether it surely ends the packet's way through the table, by a verdict of its own."""
        return self.kind is Kind.VERDICT and self.ends is Ends.SURELY

    @property
    def leaves(self) -> bool:
        """Whether no packet that it is applied to comes to the next rule of its chain."""
        return self.kind in (Kind.GOTO, Kind.RETURN) or self.is_final


class Rule(NamedTuple):
    """One rule.  *target* None: it only counts.  *line* 0: made by a program."""

    matches: tuple[Match, ...]
    target: Target | None
    line: int = 0
    counters: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()  # comment lines that stand before it in the file

    @property
    def enters(self) -> str | None:
        """The name of the user chain that its target leads into; None when there is none."""
        target = self.target
        return target.name if target is not None and target.enters else None

    @property
    def is_final(self) -> bool:
        """Whether it surely ends the way of every packet that it matches, by a verdict of its own."""
        return self.target is not None and self.target.is_final

    @property
    def leaves(self) -> bool:
        """Whether no packet that it matches comes to the next rule of its chain."""
        return self.target is not None and self.target.leaves

    @property
    def has_memory(self) -> bool:
        """Whether it must exist once: one of its matches has memory that belongs to the rule."""
        return any(match.role is Role.ONCE for match in self.matches)

    @property
    def writes(self) -> frozenset[State]:
        """States that the rules behind it may find written by its matches or its target.

        Without those of a chain that it enters.  Behind a target that surely ends the packet's way there
        is no rule.
        """
        target = self.target
        by_target = target.writes if target and target.ends is not Ends.SURELY else frozenset[State]()
        by_matches = [match.writes for match in self.matches if match.writes]
        return by_target.union(*by_matches) if by_matches else by_target

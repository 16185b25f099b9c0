"""Matches and targets of xtables-addons, as far as their code tells what they read, write and decide.

Idea: their options have no table, so the words behind them are kept byte for byte, as those of any extension
without a row (`extensions/`).  Without an entry here such an extension may read and write every state, and a
target may end the path of the packet or not.

Invariant: an entry promises no more than the module's code in xtables-addons (up to 3.27, and the patches for
older kernels from which it came).  `lscan`, which writes marks though it is a match, has none; nor have those
that rewrite packets.

No kernel at hand has these modules, so `make matrix` does not try them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.rule import EVERYTHING, Ends, Metadata, Role


@dataclass(frozen=True, slots=True)
class OtherMatch:
    """A match that writes no state; *reads*, *role*: as in `Match`."""

    reads: frozenset[Metadata]
    role: Role


@dataclass(frozen=True, slots=True)
class OtherTarget:
    """A target; *ends*, *writes*: as in `Target`."""

    ends: Ends
    writes: frozenset[Metadata] = frozenset()


OTHER_MATCHES = {
    # A variable that a user sets, by its name; the search of the countries of an address; flags of a device.
    "condition": OtherMatch(frozenset({Metadata.META}), Role.CONSTANT),
    "geoip": OtherMatch(frozenset({Metadata.ADDRESSES}), Role.CONSTANT),
    "iface": OtherMatch(frozenset({Metadata.META}), Role.CONSTANT),
    # It looks at lengths, flags and bytes of the packet, and keeps nothing.
    "ipp2p": OtherMatch(EVERYTHING, Role.CONSTANT),
    # A memory of addresses or rates; length2 may drop an IPv6 packet whose headers are cut short.
    "fuzzy": OtherMatch(EVERYTHING, Role.ONCE),
    "length2": OtherMatch(EVERYTHING, Role.ONCE),
    "pknock": OtherMatch(EVERYTHING, Role.ONCE),
    "psd": OtherMatch(EVERYTHING, Role.ONCE),
}

OTHER_TARGETS = {
    "ACCOUNT": OtherTarget(Ends.NEVER),
    "IPMARK": OtherTarget(Ends.NEVER, frozenset({Metadata.MARK})),
    "LOGMARK": OtherTarget(Ends.NEVER),
    # They answer, and the packet goes no further; CHAOS chooses among REJECT, TARPIT, DELUDE and DROP.
    "CHAOS": OtherTarget(Ends.SURELY),
    "DELUDE": OtherTarget(Ends.SURELY),
    "ECHO": OtherTarget(Ends.SURELY),
    "TARPIT": OtherTarget(Ends.SURELY),
}

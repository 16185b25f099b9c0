"""Rules of a leaf in their cheapest form: without matches that the path decides, expensive matches last.

A match is left out only where every path to the rule *took* a test of the same field, evaluated in the same
way (natively, or through xtables), for values that the match accepts.  A test that was not taken decides
little, since a packet may lack the field.  A match of a field that a rule of the list may write stays.

Only stateless matches are reordered, and a match that may drop a packet never moves later: a malformed packet
may be dropped earlier than in the input, never later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.fields import Field
from ..ir.rule import Kind, Match, Role, Target

# What every path to a rule decides: per axis of its tree the values that a packet can have there; None: any.
Known = tuple[tuple[int, int] | None, ...]

# Extensions that load without -p.  (Others may, but keeping -p costs almost nothing.)
_FREE_OF_PROTOCOL = frozenset(
    {"addrtype", "comment", "conntrack", "iprange", "limit", "mac", "mark", "pkttype", "recent", "state"}
)
# Targets that load without -p; REJECT does, unless it answers with a reset.
_LOADING_ALONE = frozenset({"ACCEPT", "DROP", "LOG", "NFLOG", "MARK", "CONNMARK"})


class Forms:
    """The forms of the rules of one list.

    native   for nf_tables, too, which evaluates the tree's tests natively: they decide no other matches
    written  fields that the list may write
    cost     of a match that fails
    early    whether a match may be evaluated before its turn
    """

    def __init__(
        self,
        *,
        native: bool,
        written: frozenset[Field],
        cost: Callable[[Match], float],
        early: Callable[[Match], bool],
    ) -> None:
        self.native, self.written, self.cost, self.early = native, written, cost, early
        self.orders: dict[tuple[int, ...], tuple[Match, ...]] = {}

    def ordered(self, matches: tuple[Match, ...]) -> tuple[Match, ...]:
        """The matches in their cheapest order that does the same."""
        named = [at for at, match in enumerate(matches) if match.name]
        if len(named) < 2:
            return matches
        key = tuple(map(id, matches))
        if key not in self.orders:
            order = [matches[at] for at in named]
            for end in range(1, len(order)):
                at = end
                while at and self.goes_before(order[at], order[at - 1]):
                    order[at - 1], order[at] = order[at], order[at - 1]
                    at -= 1
            placed = list(matches)
            for at, match in zip(named, order, strict=True):
                placed[at] = match
            self.orders[key] = tuple(placed)
        return self.orders[key]

    def goes_before(self, later: Match, earlier: Match) -> bool:
        """Whether *later*, the match after *earlier*, may be evaluated first and is cheaper."""
        stateless = (Role.SPACE, Role.CONSTANT)
        if (
            later.role not in stateless
            or earlier.role not in stateless
            or earlier.needs
            or not self.early(later)
        ):
            return False
        # A comment matches every packet, so it saves nothing in front of another match.
        if later.name == "comment" or earlier.name == "comment":
            return later.name != "comment"
        return self.cost(later) < self.cost(earlier)

    def decidable(self, matches: Sequence[Match]) -> list[Match]:
        """Those of *matches* that a tree's tests may decide."""
        return [
            match
            for match in matches
            if match.role is Role.SPACE
            and match.tests
            and not (match.either or match.option)
            and (not match.name or match.native or not self.native)
            and not any(test.field in self.written for test in match.tests)
        ]


def without(
    matches: tuple[Match, ...], target: Target | None, decided: Callable[[Match], bool]
) -> tuple[Match, ...]:
    """The matches that are not *decided*; -p stays as long as the rule would not load without it."""
    kept = tuple(match for match in matches if match.is_protocol or not decided(match))
    bound = any(match.name and match.name not in _FREE_OF_PROTOCOL for match in kept)
    if bound or not _loads_without_protocol(target):
        return kept
    return tuple(match for match in kept if not (match.is_protocol and decided(match)))


def _loads_without_protocol(target: Target | None) -> bool:
    """Whether the target loads without -p; some extensions do not (REJECT with a reset, DNAT to a port)."""
    if target is None or target.kind is not Kind.VERDICT or target.name in _LOADING_ALONE:
        return True
    return target.name == "REJECT" and "tcp-reset" not in target.key

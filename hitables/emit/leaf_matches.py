"""Rules in their cheapest form: what the way to them has decided is not asked again, what is dear comes last.

A match is left out only where every way to the rule *took* a test of the same field in the same
reading, for values that the match lets through (docs/semantics.md, "Readings"): a test that was
not taken says little, since a packet may lack the field.  A field that a rule of the list may
write is asked for again.

Among the matches of a rule only such change places as have no memory, and none comes later than
it stood that may drop a packet: a malformed packet may be dropped earlier than it was, never later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.fields import Field
from ..ir.rule import Kind, Match, Role, Target

# What every way to a place has told: per axis of its tree the values that a packet can have there.
Known = tuple[tuple[int, int] | None, ...]

# Extensions that load without -p.  (Others may; keeping -p costs next to nothing.)
_FREE_OF_PROTOCOL = frozenset(
    {"addrtype", "comment", "conntrack", "iprange", "limit", "mac", "mark", "pkttype", "recent", "state"}
)


class Forms:
    """The forms of the rules of one list.

    native   for nf_tables, too: only what it reads natively is read as the tree's tests are
    written  fields that the list may write
    cost     of asking a match in vain
    early    whether a match may be asked before its turn
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
        """The matches, cheap ones first where that changes nothing."""
        named = [at for at, match in enumerate(matches) if match.name]
        if len(named) < 2:
            return matches
        key = tuple(map(id, matches))
        if key not in self.orders:
            found = [matches[at] for at in named]
            for end in range(1, len(found)):
                at = end
                while at and self.goes_before(found[at], found[at - 1]):
                    found[at - 1], found[at] = found[at], found[at - 1]
                    at -= 1
            placed = list(matches)
            for at, match in zip(named, found, strict=True):
                placed[at] = match
            self.orders[key] = tuple(placed)
        return self.orders[key]

    def goes_before(self, later: Match, earlier: Match) -> bool:
        free = (Role.SPACE, Role.CONSTANT)
        if later.role not in free or earlier.role not in free or earlier.needs or not self.early(later):
            return False
        # A comment lets every packet through, so it saves nothing where it stands in front.
        if later.name == "comment" or earlier.name == "comment":
            return later.name != "comment"
        return self.cost(later) < self.cost(earlier)

    def decidable(self, matches: Sequence[Match]) -> list[Match]:
        """Those that a tree's tests may decide."""
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
    """Whether the target asks for no -p; extensions may (REJECT with a reset, DNAT to a port)."""
    return target is None or target.kind is not Kind.VERDICT or target.name in ("ACCEPT", "DROP", "LOG")

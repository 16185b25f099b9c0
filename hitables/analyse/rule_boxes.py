"""Rules as boxes: which headers a rule can match at all.

Invariant: a packet that a rule does anything to (match, be charged for by a
memory, be dropped by a match) lies in one of the rule's boxes.  The boxes may be
too large, never too small, so a leaf that lists all rules whose boxes meet its
region misses none.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ir.choices import Malformed
from ..ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, TCP, UDP, Family, Field, Fragment, top
from ..ir.intervals import Values
from ..ir.rule import Ends, Kind, Match, Role, Rule, State
from ..ir.semantics import FIELDS_WRITTEN
from ..syntax.values import ICMP_ANY
from .boxes import Axis, Boxes, Cut

# More boxes than this for one rule cost more than they save: its hull stands for them.
MOST_BOXES = 16


_ADDRESSES = (Field.SRC, Field.DST)


@dataclass(frozen=True, slots=True)
class Side:
    """A rule's boxes (fields left out: unconstrained) and whether it surely ends a packet's way in them."""

    boxes: tuple[dict[Field, tuple[int, int]], ...]
    final: bool


@dataclass(frozen=True, slots=True)
class _Plain:
    """What a match tests, one interval of each field, and says no more; whether it may drop the packet."""

    box: dict[Field, tuple[int, int]]
    drops: bool


def _ends(rule: Rule) -> bool:
    target = rule.target
    if target is None or target.kind is Kind.JUMP:
        return False
    return target.kind in (Kind.GOTO, Kind.RETURN) or target.ends is Ends.SURELY


def _foreign_reading(match: Match, nft: bool) -> bool:
    """Whether the match is read through xtables where the tree's own tests are read natively."""
    return nft and not match.native and match.needs > 0


class Sides:
    """Turns the rules of one chain into boxes, front to back.

    nft    whether the result is (also) for nf_tables, which reads some fields in two ways
    dirty  fields that a rule before may have written: no sides any more
    guards protocols for which a rule is read through xtables; in nft a packet whose
           header is cut off must meet such a match before a port is asked for (emit)
    """

    def __init__(self, family: Family, *, nft: bool, malformed: Malformed) -> None:
        self.family, self.nft, self.malformed = family, nft, malformed
        self.dirty: set[Field] = set()
        self.guards: set[int] = set()
        # What is said of a match wherever it stands (id: None if that depends on where); matches stay alive.
        self._plain: dict[int, tuple[Match, _Plain | None]] = {}

    def sides(self, rules: Sequence[Rule], writes: dict[str, frozenset[State]]) -> list[Side]:
        """The sides of *rules*; *writes*: what each user chain may write (analyse.callgraph)."""
        out = []
        for rule in rules:
            out.append(self.side(rule))
            self.note_writes(rule, writes)
        return out

    def note_writes(self, rule: Rule, writes: dict[str, frozenset[State]]) -> None:
        target = rule.target
        written = rule.writes
        if target is not None and target.kind is Kind.JUMP:
            written |= writes.get(target.name, frozenset())
        for state in written:
            self.dirty |= FIELDS_WRITTEN.get(state, frozenset())

    def side(self, rule: Rule) -> Side:
        return self.plain_side(rule) or self.any_side(rule)

    def plain_side(self, rule: Rule) -> Side | None:
        """The side of a rule whose matches test a field each, one interval of it; None of others."""
        if self.dirty or self.malformed is Malformed.EXACT:
            return None
        box: dict[Field, tuple[int, int]] = {}
        asked = False
        for match in rule.matches:
            known = self._plain.get(id(match))
            if known is None:
                known = self._plain[id(match)] = match, self.plain(match)
            plain = known[1]
            if plain is None:
                return None
            for field, pair in plain.box.items():
                if field in box or (asked and field in _ADDRESSES):
                    return None
                box[field] = pair
            asked = asked or plain.drops
        return Side((box,), _ends(rule))

    def plain(self, match: Match) -> _Plain | None:
        if match.role is not Role.SPACE or match.either or _foreign_reading(match, self.nft):
            return None
        if self.is_broken_chain_dropped_by(match) or not match.tests:
            return None
        box: dict[Field, tuple[int, int]] = {}
        for test in match.tests:
            pairs = test.values.pairs
            if len(pairs) != 1 or test.field is Field.ICMP or test.field in box:
                return None
            if self.nft and not match.native and pairs == ((0, top(test.field, self.family)),):
                return None
            box[test.field] = pairs[0]
        return _Plain(box, match.needs > 0)

    def any_side(self, rule: Rule) -> Side:
        allowed: dict[Field, Values] = {}
        exact = True
        asked: list[Match] = []  # matches so far that may have dropped the packet
        for match in rule.matches:
            if match.role in (Role.NAMED, Role.ONCE):
                exact = False
                break
            if self.malformed is Malformed.EXACT and self.may_drop(match):
                exact = exact and match.role is Role.SPACE and not match.tests and not match.needs
                continue
            dropping = match.needs > 0 or self.is_broken_chain_dropped_by(match)
            # One that is not SPACE may drop for the sake of more than its tests: chunks, options.
            before = [*asked, match] if dropping and match.role is not Role.SPACE else asked
            exact = self.narrow(allowed, match, before) and exact
            asked += [match] if dropping else []
        boxes, whole = self.split(allowed)
        return Side(boxes, exact and whole and _ends(rule))

    def may_drop(self, match: Match) -> bool:
        """Whether asking this match earlier than the input did could drop a malformed packet."""
        return bool(match.name) or self.is_broken_chain_dropped_by(match)

    def is_broken_chain_dropped_by(self, match: Match) -> bool:
        """Whether the match asks for the protocol where a chain of headers may hide it."""
        return self.family is Family.IPV6 and match.is_protocol

    def still_dropped(self, field: Field, asked: Sequence[Match]) -> bool:
        """Whether what *asked* drop is dropped, too, when the tree asks for *field* before them."""
        if field in (Field.SRC, Field.DST):
            return not asked
        if field in (Field.SPORT, Field.DPORT, Field.ICMP):
            if any(_foreign_reading(match, self.nft) for match in asked):
                self.guards |= {TCP, UDP}
            return all(match.role is Role.SPACE for match in asked)
        return True  # the tree never asks for the others, or they are asked for before any match

    def narrow(self, allowed: dict[Field, Values], match: Match, asked: Sequence[Match]) -> bool:
        """Intersect with the match's tests; whether they say all that it says.

        A rule's box must hold what *asked*, the matches before, drop.
        """
        exact = match.role is Role.SPACE
        if (
            match.needs
            and (_foreign_reading(match, self.nft) or not (match.tests or match.native))
            and self.family is Family.IPV4
        ):
            # Such a match never holds for a later fragment, whatever the tree found in its ports.
            exact = self.add(allowed, Field.FRAG, Values.of((Fragment.WHOLE, Fragment.FIRST))) and exact
        elif (match.needs and not match.tests) or _foreign_reading(match, self.nft):
            exact = False
        if match.either:
            return False
        for test in match.tests:
            full = test.values.pairs == ((0, top(test.field, self.family)),)
            unread = test.field in self.dirty or (self.nft and full and not match.native)
            if unread or not self.still_dropped(test.field, asked):
                exact = False
            else:
                if _foreign_reading(match, self.nft) and test.field in (Field.SPORT, Field.DPORT):
                    self.guards |= {TCP, UDP}
                exact = self.add(allowed, test.field, test.values) and exact
        return exact

    @staticmethod
    def add(allowed: dict[Field, Values], field: Field, values: Values) -> bool:
        """Narrow *field*; a rule that can never match keeps its box, as it may still drop or count."""
        narrowed = allowed[field].intersect(values) if field in allowed else values
        if not narrowed:
            return False
        allowed[field] = narrowed
        return True

    def split(self, allowed: dict[Field, Values]) -> tuple[tuple[dict[Field, tuple[int, int]], ...], bool]:
        """The product of the intervals as boxes, or hulls where there are too many."""
        many = sorted(allowed, key=lambda field: len(allowed[field].pairs))
        pairs: dict[Field, tuple[tuple[int, int], ...]] = {}
        count, whole = 1, True
        for field in many:
            found = allowed[field].pairs
            # The part of `! --icmp-type 254` that is type 255 could not be asked for by itself.
            untold = field is Field.ICMP and self.family is Family.IPV4 and found[-1][0] >= ICMP_ANY
            if count * len(found) > MOST_BOXES or untold:
                found, whole = (allowed[field].hull(),), False
            count *= len(found)
            pairs[field] = found
        boxes = tuple(dict(zip(pairs, chosen, strict=True)) for chosen in itertools.product(*pairs.values()))
        return boxes, whole


# Ports and ICMP types may be asked for only where the protocol is known.
_PORTS = (Field.PROTO, tuple(sorted(PORT_PROTOCOLS)))


def axis(field: Field, family: Family) -> Axis:
    """How the tree may cut *field*."""
    v4 = family is Family.IPV4
    cuts: dict[Field, Axis] = {
        Field.SRC: Axis(Field.SRC, 32 if v4 else 128, False, Cut.PREFIX),
        Field.DST: Axis(Field.DST, 32 if v4 else 128, False, Cut.PREFIX),
        Field.PROTO: Axis(Field.PROTO, 8, not v4, Cut.POINT),
        Field.FRAG: Axis(Field.FRAG, 2, False, Cut.NONE),
        Field.SPORT: Axis(Field.SPORT, 16, True, Cut.RANGE, _PORTS),
        Field.DPORT: Axis(Field.DPORT, 16, True, Cut.RANGE, _PORTS),
        Field.ICMP: Axis(Field.ICMP, 16, True, Cut.SPELT, (Field.PROTO, (ICMP if v4 else ICMPV6,))),
        Field.FLAGS: Axis(Field.FLAGS, 6, True, Cut.NONE),
        Field.IIF: Axis(Field.IIF, 128, False, Cut.SPELT),
        Field.OIF: Axis(Field.OIF, 128, False, Cut.SPELT),
        Field.MAC: Axis(Field.MAC, 48, True, Cut.NONE),
        Field.STATE: Axis(Field.STATE, 4, False, Cut.NONE),
    }
    return cuts[field]


def as_boxes(sides: Sequence[Side], family: Family, weights: Sequence[float] | None = None) -> Boxes:
    """The sides in the form that the builders take; only fields that some rule constrains become axes."""
    used = {field for side in sides for box in side.boxes for field in box}
    axes = [axis(field, family) for field in Field if field in used]
    # Without the field that it requires (a tree that may not ask for it) an axis cannot be cut.
    axes = [
        Axis(each.field, each.bits, each.optional, Cut.NONE)
        if each.requires and each.requires[0] not in used
        else each
        for each in axes
    ]
    place = {made.field: at for at, made in enumerate(axes)}
    count = sum(len(side.boxes) for side in sides)
    low = np.zeros((count, len(axes), 2), np.uint64)
    high = np.empty((count, len(axes), 2), np.uint64)
    for at, made in enumerate(axes):
        high[:, at] = (made.top >> 64, made.top & (1 << 64) - 1)
    owner = np.repeat(np.arange(len(sides), dtype=np.int32), [len(side.boxes) for side in sides])
    all_boxes = [box for side in sides for box in side.boxes]
    for field, at in place.items():
        rows = [number for number, box in enumerate(all_boxes) if field in box]
        ends = [all_boxes[number][field] for number in rows]
        shift = axes[at].optional
        low[rows, at] = _words([first for first, _ in ends], axes[at].bits, shift)
        high[rows, at] = _words([last for _, last in ends], axes[at].bits, shift)
    return Boxes(axes, low, high, owner, [side.final for side in sides], weights)


def _words(values: list[int], bits: int, shift: int) -> npt.NDArray[np.uint64]:
    """Coordinates in two words, the high one first; *shift* more than the values."""
    if bits < 64:
        made = np.zeros((len(values), 2), np.uint64)
        made[:, 1] = values
        made[:, 1] += np.uint64(shift)
        return made
    word = (1 << 64) - 1
    pairs = [(value + shift >> 64, value + shift & word) for value in values]
    return np.array(pairs, np.uint64).reshape(-1, 2)

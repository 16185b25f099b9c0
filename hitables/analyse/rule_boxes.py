"""Rules as boxes: which packets a rule can affect, as intervals of header fields.

Invariant: every packet that a rule affects (the rule matches it, a match counts it in its memory, a match
drops it) lies in one of the rule's boxes.  The boxes may be too large, never too small; so a leaf of a tree
that lists all rules whose boxes meet its region misses none.

A `BoxReader` reads the rules of one chain from the first to the last, because a rule may write fields that
later rules test.  Cost: a few microseconds a rule; rules of plain tests take a shorter path.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from itertools import chain as row
from itertools import compress, repeat
from operator import attrgetter, contains, itemgetter
from typing import NamedTuple

import numpy as np

from ..core.distinct import distinct
from ..ir.choices import Malformed
from ..ir.fact import Fact
from ..ir.fields import BRIDGE_PORTS, ICMP, ICMPV6, PORT_PROTOCOLS, TCP, UDP, Family, Field, Fragment, top
from ..ir.intervals import Values
from ..ir.narrow_fields import may_drop
from ..ir.rule import Match, Metadata, Role, Rule
from ..ir.semantics import FIELDS_WRITTEN
from ..syntax.values import ICMP_ANY
from .asked_marks import asked_behind
from .boxes import Axis, Boxes, Cut, RuleBoxes, Words, to_words
from .mark_bits import Dimension, MarkBits, is_changed, told_apart
from .written import states_written

# A rule of more boxes than this gets its hull instead: more boxes cost more than they save.
MOST_BOXES = 16

# A tree cuts these, and a rule may test them behind a match that drops packets: `-m tcp -m iprange`,
# `-m tcp -m physdev`.
_TESTED_LATE = (Field.SRC, Field.DST, *BRIDGE_PORTS)
# Read for every match: the look-up of a member in its class would take longer than the comparison.
_SPACE, _ICMP, _IPV6 = Role.SPACE, Field.ICMP, Family.IPV6


class _Plain(NamedTuple):
    """A match that only tests one interval of each field: the intervals; whether it may drop packets."""

    box: tuple[tuple[Field, tuple[int, int]], ...]
    drops: bool


def _foreign_reading(match: Match, nft: bool) -> bool:
    """Whether nf_tables evaluates the match through xtables, while it evaluates the tree's tests natively."""
    return nft and not match.native and match.needs > 0


# No tree cuts these, and a rule tests them behind matches that drop packets.
_NEVER_CUT = frozenset({Field.STATE, Field.MAC, Field.FLAGS})


def drops_first(rule: Rule, family: Family) -> bool:
    """Whether a match of the rule may drop a packet before another one tests a field that no tree cuts."""
    dropping = False
    for match in rule.matches:
        if dropping and any(test.field in _NEVER_CUT for test in match.tests):
            return True
        dropping = dropping or may_drop(match, family)
    return False


# Bytes that a match of ports needs at least: both ports, as multiport; tcp and udp need a whole header.
_PORTS_ALONE = 4


def lets_short_by(rule: Rule) -> bool:
    """Whether the rule tests ports by a match that takes packets which -m tcp and -m udp of legacy drop."""
    return any(0 < match.needs <= _PORTS_ALONE for match in rule.matches)


def drops_short(rule: Rule) -> bool:
    """Whether a match of the rule drops, in legacy, packets with ports that `lets_short_by` speaks of."""
    return any(match.needs > _PORTS_ALONE for match in rule.matches)


def short_dropped(rules: Sequence[Rule]) -> frozenset[int]:
    """The protocols of whose packets some rules drop, in legacy, those with a cut header that others take."""
    if not any(map(lets_short_by, rules)):
        return frozenset()
    needs = (match for rule in filter(drops_short, rules) for match in rule.matches if match.is_protocol)
    values = [test.values for match in needs for test in match.tests]
    return frozenset(protocol for protocol in (TCP, UDP) if any(protocol in each for each in values))


class BoxReader:
    """Reads the rules of one chain as boxes, from the first to the last.

    nft       whether the result is (also) for nf_tables, which reads some fields in two ways
    deciding  user chains that surely decide each packet that enters them (analyse.callgraph)
    dirty     fields that an earlier rule may have written; boxes do not constrain them
    guards    protocols with rules that nf_tables evaluates through xtables.  There a packet whose header is
              cut off must meet such a match before any test of a port (emit/jumps.py)
    marks     whether boxes limit marks, too, of lists that tell many of them apart
    written_before  states that an earlier rule of the list may have written, if marks are told apart
    """

    def __init__(
        self,
        family: Family,
        *,
        nft: bool,
        malformed: Malformed,
        deciding: frozenset[str] = frozenset(),
        marks: bool = False,
    ) -> None:
        self.family, self.nft, self.malformed, self.deciding = family, nft, malformed, deciding
        self.marks = marks
        self.told: tuple[MarkBits, ...] = ()  # of the rules that are read
        self.dirty: set[Field] = set()
        self.written_before: set[Metadata] = set()
        self.guards: set[int] = set()
        # By id of a match: the match, which keeps the id valid, and its intervals if they depend on nothing
        # else.
        self._plain: dict[int, tuple[Match, _Plain | None]] = {}

    def read(self, rules: Sequence[Rule], writes: dict[str, frozenset[Metadata]]) -> list[RuleBoxes]:
        """The boxes of each of *rules*; *writes*: what each user chain may write (analyse.callgraph)."""
        boxes = []
        self.told = told_apart(rules) if self.marks else ()
        self.written_before.clear()  # tests of a tree are read behind the rules before the list
        # By id of a target: whether no packet reaches the next rule, and the fields that it may write.
        by_target: dict[int, tuple[bool, frozenset[Field]]] = {}
        for rule in rules:
            box = self.plain_box(rule)
            if box is None:
                boxes.append(self.general_boxes(rule))
                self.dirty |= self.written(rule, writes)
                if self.told:
                    self.written_before |= states_written(rule, writes)
                continue
            target = rule.target
            known = by_target.get(id(target))
            if known is None:
                alone = Rule((), target)  # plain matches write nothing
                known = by_target[id(target)] = self.leaves(alone), self.written(alone, writes)
            boxes.append(RuleBoxes((box,), known[0]))
            if known[1]:
                self.dirty |= known[1]
            if self.told:
                self.written_before |= states_written(rule, writes)
        return asked_behind(rules, boxes, writes, self.leaves, self.family)

    def boxes(
        self,
        rules: Sequence[Rule],
        writes: dict[str, frozenset[Metadata]],
        weights: Sequence[float] | None = None,
    ) -> Boxes:
        """What `as_boxes` makes of what `read` says; by columns, in half of the time, if all are plain."""
        found = self.plain_boxes(rules, writes, weights)
        return found or as_boxes(self.read(rules, writes), self.family, weights)

    def plain_boxes(
        self,
        rules: Sequence[Rule],
        writes: dict[str, frozenset[Metadata]],
        weights: Sequence[float] | None,
    ) -> Boxes | None:
        """The boxes of rules that all have a `plain_box` and write no field; None for other rules."""
        if self.dirty or self.malformed is Malformed.EXACT:
            return None
        targets = distinct([rule.target for rule in rules])
        alone = [Rule((), target) for target in targets.objects]
        if any(self.written(rule, writes) for rule in alone):
            return None
        matches_of = list(map(attrgetter("matches"), rules))
        matches = distinct(list(row.from_iterable(matches_of)))
        plain = list(map(self.plain, matches.objects))
        if None in plain:
            return None
        # By distinct match: how many fields it tests, and where they are in `tests`.
        known = [box for box in plain if box is not None]
        sizes = np.fromiter((len(plain_box.box) for plain_box in known), np.int64, len(known))
        first = np.cumsum(sizes) - sizes
        tests = list(row.from_iterable(map(itemgetter(0), known)))
        tested = np.fromiter(map(itemgetter(0), tests), np.int64, len(tests))
        # The tests of all rules: of which rule and of which match, and the index in `tests`.
        counts = np.fromiter(map(len, matches_of), np.int64, len(rules))
        times = sizes[matches.number]
        match = np.repeat(np.arange(len(times)), times)
        test = np.arange(len(match)) - (np.cumsum(times) - times - first[matches.number])[match]
        owner = np.repeat(np.arange(len(rules)), counts)[match]
        field = tested[test]
        twice = np.bincount(owner * len(Field) + field, minlength=1).max() > 1
        drops = np.fromiter((plain_box.drops for plain_box in known), np.int64, len(known))[matches.number]
        before = np.concatenate(([0], np.cumsum(drops)))  # by match: the matches before it that may drop
        may_drop = before[match] > before[np.cumsum(counts) - counts][owner]
        if twice or np.isin(field[may_drop], _TESTED_LATE).any():
            return None
        axes = _axes(set(map(Field, set(tested.tolist()))), self.family)
        low, high = _everything(len(rules), axes)
        for at, axis in enumerate(axes):
            places = np.flatnonzero(tested == axis.field)
            words = _words(list(row.from_iterable(tests[place][1] for place in places.tolist())), axis)
            of_rule = np.flatnonzero(field == axis.field)
            word = np.searchsorted(places, test[of_rule])
            low[owner[of_rule], at], high[owner[of_rule], at] = words[0][word], words[1][word]
        final = np.array([self.leaves(rule) for rule in alone])[targets.number]
        return Boxes(axes, low, high, np.arange(len(rules)), final, weights)

    def written(self, rule: Rule, writes: dict[str, frozenset[Metadata]]) -> frozenset[Field]:
        """The fields that the rule may write before a packet reaches the next one."""
        states = states_written(rule, writes)
        return frozenset(field for state in states for field in FIELDS_WRITTEN.get(state, ()))

    def decides(self, rule: Rule) -> bool:
        """Whether the rule's target surely decides: by a verdict of its own, or by a chain that it enters."""
        return rule.is_final or rule.enters in self.deciding

    def leaves(self, rule: Rule) -> bool:
        """Whether no packet that the rule matches reaches the next rule of its chain."""
        return rule.leaves or rule.enters in self.deciding

    def plain_box(self, rule: Rule) -> dict[Dimension, tuple[int, int]] | None:
        """The box of a rule whose matches each test one interval of their fields; None for other rules."""
        if self.dirty or self.malformed is Malformed.EXACT:
            return None
        box: dict[Dimension, tuple[int, int]] = {}
        may_drop = False
        for match in rule.matches:
            known = self._plain.get(id(match))
            if known is None:
                known = self._plain[id(match)] = match, self.plain(match)
            plain = known[1]
            if plain is None:
                return None
            for field, pair in plain[0]:
                if field in box or (may_drop and field in _TESTED_LATE):
                    return None
                box[field] = pair
            may_drop = may_drop or plain[1]
        return box

    def plain(self, match: Match) -> _Plain | None:
        """The intervals of a match that tests nothing else; None for other matches."""
        _, _, role, _, tests, either, native, needs, *_ = match
        if role is not _SPACE or either or not tests:
            return None
        foreign = self.nft and not native
        if (foreign and needs) or (self.family is _IPV6 and self.is_broken_chain_dropped_by(match)):
            return None
        box: list[tuple[Field, tuple[int, int]]] = []
        for field, values in tests:
            pairs = values.pairs
            if len(pairs) != 1 or field is _ICMP:
                return None
            if foreign and pairs[0][0] == 0 and pairs[0][1] == top(field, self.family):
                return None
            box.append((field, pairs[0]))
        if len(box) > 1 and len(dict(box)) < len(box):
            return None
        return _Plain(tuple(box), needs > 0)

    def general_boxes(self, rule: Rule) -> RuleBoxes:
        """The boxes of any rule."""
        allowed: dict[Dimension, Values] = {}
        exact = True
        droppers: list[Match] = []  # earlier matches that may have dropped the packet
        passed_over = False  # whether one of these is not read
        for match in rule.matches:
            if match.role in (Role.NAMED, Role.ONCE):
                exact = False
                break
            if self.malformed is Malformed.EXACT and self.may_drop(match):
                if self.told and match.number is not None and not passed_over:
                    exact = self.narrow_mark(allowed, match.number) and exact
                    continue
                passed_over = True
                exact = exact and match.role is Role.SPACE and not match.tests and not match.needs
                continue
            dropping = match.needs > 0 or self.is_broken_chain_dropped_by(match)
            # A match of another role than SPACE drops by more than its tests read: chunks, options.
            before = [*droppers, match] if dropping and match.role is not Role.SPACE else droppers
            exact = self.narrow(allowed, match, before) and exact
            droppers += [match] if dropping else []
        boxes, whole = self.split(allowed)
        return RuleBoxes(boxes, exact and whole and self.leaves(rule))

    def may_drop(self, match: Match) -> bool:
        """Whether this match could drop a malformed packet when evaluated earlier than in the input."""
        return bool(match.name) or self.is_broken_chain_dropped_by(match)

    def is_broken_chain_dropped_by(self, match: Match) -> bool:
        """Whether the match tests the protocol, which a broken chain of IPv6 headers may hide."""
        return self.family is Family.IPV6 and match.is_protocol

    def still_dropped(self, field: Field, droppers: Sequence[Match]) -> bool:
        """Whether the packets that *droppers* drop are still dropped when the tree tests *field* first."""
        if field in _TESTED_LATE:
            return not droppers
        if field in (Field.SPORT, Field.DPORT, Field.ICMP):
            if any(_foreign_reading(match, self.nft) for match in droppers):
                self.guards |= {TCP, UDP}
            return all(match.role is Role.SPACE for match in droppers)
        return True  # the tree never tests the other fields, or rules test them before any match

    def narrow(self, allowed: dict[Dimension, Values], match: Match, droppers: Sequence[Match]) -> bool:
        """Intersect *allowed* with the match's tests; whether the result is exactly the match.

        The packets that *droppers*, the matches before, drop must stay in the rule's boxes.
        """
        if self.told and match.number is not None and not droppers:
            return self.narrow_mark(allowed, match.number)
        exact = match.role is Role.SPACE
        if (
            match.needs
            and (_foreign_reading(match, self.nft) or not (match.tests or match.native))
            and self.family is Family.IPV4
        ):
            # Such a match never holds for a later fragment, whatever the tree reads as its ports.
            exact = self.add(allowed, Field.FRAG, Values.of((Fragment.WHOLE, Fragment.FIRST))) and exact
        elif (match.needs and not match.tests) or _foreign_reading(match, self.nft):
            exact = False
        if match.either:
            return False
        for test in match.tests:
            full = test.values.pairs == ((0, top(test.field, self.family)),)
            unread = test.field in self.dirty or (self.nft and full and not match.native)
            if unread or not self.still_dropped(test.field, droppers):
                exact = False
            else:
                if _foreign_reading(match, self.nft) and test.field in (Field.SPORT, Field.DPORT):
                    self.guards |= {TCP, UDP}
                exact = self.add(allowed, test.field, test.values) and exact
        return exact

    def narrow_mark(self, allowed: dict[Dimension, Values], fact: Fact) -> bool:
        """As `narrow`, of a match that compares a number of the packet."""
        for bits in self.told:
            interval = bits.interval(fact)
            if interval is not None and not is_changed(bits, self.written_before):
                return self.add(allowed, bits, Values.of(interval)) and bits.tells(fact)
        return False

    @staticmethod
    def add(allowed: dict[Dimension, Values], field: Dimension, values: Values) -> bool:
        """Narrow *field*.  A rule that can never match keeps its box, because it may still drop or count."""
        narrowed = allowed[field].intersect(values) if field in allowed else values
        if not narrowed:
            return False
        allowed[field] = narrowed
        return True

    def split(
        self, allowed: dict[Dimension, Values]
    ) -> tuple[tuple[dict[Dimension, tuple[int, int]], ...], bool]:
        """The product of the intervals as boxes, hulls where there are too many; whether it has no hulls."""
        fields = sorted(allowed, key=lambda field: len(allowed[field].pairs))
        pairs: dict[Dimension, tuple[tuple[int, int], ...]] = {}
        count, whole = 1, True
        for field in fields:
            intervals = allowed[field].pairs
            # No option of iptables tests for type 255 alone, a part of `! --icmp-type 254`.
            untestable = field is Field.ICMP and self.family is Family.IPV4 and intervals[-1][0] >= ICMP_ANY
            if count * len(intervals) > MOST_BOXES or untestable:
                intervals, whole = (allowed[field].hull(),), False
            count *= len(intervals)
            pairs[field] = intervals
        boxes = tuple(dict(zip(pairs, chosen, strict=True)) for chosen in itertools.product(*pairs.values()))
        return boxes, whole


# Ports and ICMP types may be tested only where the protocol is known.
_PORTS = (Field.PROTO, tuple(sorted(PORT_PROTOCOLS)))


def axis(field: Dimension, family: Family) -> Axis:
    """The axis of *field*: its width, and how a tree may cut it."""
    if isinstance(field, MarkBits):
        return Axis(field, field.bits, False, Cut.PREFIX, negatable=field.is_of_all)
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
        Field.IIF: Axis(Field.IIF, 128, False, Cut.NAME),
        Field.OIF: Axis(Field.OIF, 128, False, Cut.NAME),
        Field.MAC: Axis(Field.MAC, 48, True, Cut.NONE),
        Field.STATE: Axis(Field.STATE, 4, False, Cut.NONE),
        Field.PHYSIN: Axis(Field.PHYSIN, 128, False, Cut.NAME),
        Field.PHYSOUT: Axis(Field.PHYSOUT, 128, False, Cut.NAME, negatable=False),
    }
    return cuts[field]


def as_boxes(rules: Sequence[RuleBoxes], family: Family, weights: Sequence[float] | None = None) -> Boxes:
    """The rules in the form that tree builders take; only fields that some rule constrains become axes."""
    all_boxes = list(row.from_iterable(map(attrgetter("boxes"), rules)))
    axes = _axes(set(row.from_iterable(all_boxes)), family)
    low, high = _everything(len(all_boxes), axes)
    owner = np.repeat(np.arange(len(rules), dtype=np.int32), [len(rule.boxes) for rule in rules])
    for at, each in enumerate(axes):
        has_field = list(map(contains, all_boxes, repeat(each.field)))
        rows = np.flatnonzero(has_field)
        ends = list(row.from_iterable(map(itemgetter(each.field), compress(all_boxes, has_field))))
        low[rows, at], high[rows, at] = _words(ends, each)
    return Boxes(axes, low, high, owner, [rule.final for rule in rules], weights)


def _axes(used: Collection[Dimension], family: Family) -> list[Axis]:
    """An axis for each used field, and for marks; one whose required field is no axis cannot be cut."""
    marks = sorted(each for each in used if isinstance(each, MarkBits))
    fields: list[Dimension] = [*(each for each in Field if each in used), *marks]
    return [
        Axis(each.field, each.bits, each.optional, Cut.NONE)
        if each.requires and each.requires[0] not in used
        else each
        for each in (axis(field, family) for field in fields)
    ]


def _everything(count: int, axes: Sequence[Axis]) -> tuple[Words, Words]:
    """The low and the high ends of so many boxes without constraints."""
    low = np.zeros((count, len(axes), 2), np.uint64)
    high = np.empty((count, len(axes), 2), np.uint64)
    for at, each in enumerate(axes):
        high[:, at] = to_words(each.top)
    return low, high


def _words(ends: list[int], axis: Axis) -> tuple[Words, Words]:
    """The lows and the highs of *ends*, low, high, ...: coordinates of two words, the high one first."""
    if axis.bits < 64:
        words = np.zeros((len(ends), 2), np.uint64)
        words[:, 1] = ends
        words[:, 1] += np.uint64(axis.optional)
    else:
        words = np.array([to_words(end + axis.optional) for end in ends], np.uint64).reshape(-1, 2)
    return words[::2], words[1::2]

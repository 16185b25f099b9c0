"""Rules that ask for a mark which packets can have only by an earlier rule of the list.

    -A chain -s 10.0.1.0/24 -j MARK --set-xmark 0x10000/0x10000
    -A chain -m mark --mark 0x10000/0x10000 -j RETURN
    -A chain -s 10.0.2.0/24 -j MARK --set-xmark 0x10000/0x10000
    -A chain -m mark --mark 0x10000/0x10000 -j RETURN

No packet with the mark is left behind the second rule.  So the fourth matches none but those that the third
matches, and gets its boxes: in a tree over sources it stands where the third does, and not everywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import chain as row
from itertools import takewhile

from ..ir.fact import Fact
from ..ir.fields import Family
from ..ir.narrow_fields import may_drop
from ..ir.rule import Match, Metadata, Role, Rule
from ..ir.semantics import CUT_NUMBERS
from .boxes import Box, RuleBoxes
from .written import states_written

# A rule keeps its boxes if those of the rules that may set the mark are more.
MOST = 4


def asked_behind(
    rules: Sequence[Rule],
    boxes: list[RuleBoxes],
    writes: Mapping[str, frozenset[Metadata]],
    leaves: Callable[[Rule], bool],
    family: Family,
) -> list[RuleBoxes]:
    """*boxes* of *rules*, smaller where only earlier rules can have made what a rule asks for.

    *writes*: what each user chain may write (callgraph.writes).  *leaves*: whether no packet that a rule
    matches reaches the next one.
    """
    numbers = {id(match): match.number for match in row.from_iterable(rule.matches for rule in rules)}
    facts = {key: fact for key, fact in numbers.items() if fact is not None and fact.attribute in CUT_NUMBERS}
    if not facts:
        return boxes
    narrowed = list(boxes)
    gone: dict[Fact, int] = {}  # the last rule behind which it holds for no packet
    # By attribute: the rules that may write it, and the last of them that does so even if it does not match.
    makers: dict[str, list[int]] = {fact.attribute: [] for fact in facts.values()}
    always = dict.fromkeys(makers, -1)
    for at, rule in enumerate(rules):
        asked = _asked(rule.matches, facts, family)
        for fact in asked:
            if gone.get(fact, -1) <= always[fact.attribute]:
                continue
            of_fact = makers[fact.attribute]
            first = bisect_right(of_fact, gone[fact])
            since = of_fact[first : first + MOST + 1]
            making_boxes = [box for maker in since for box in narrowed[maker].boxes]
            if 0 < len(making_boxes) * len(narrowed[at].boxes) <= MOST:
                narrowed[at] = _within(narrowed[at], making_boxes)
        if len(asked) == 1 and leaves(rule) and _asks_only(rule.matches, facts):
            gone[asked[0]] = at
        written = states_written(rule, writes)
        for attribute in makers if written else ():
            if CUT_NUMBERS[attribute] & written:
                makers[attribute].append(at)
                if any(CUT_NUMBERS[attribute] & match.writes for match in rule.matches):
                    always[attribute] = at
    return narrowed


def _asked(matches: Sequence[Match], facts: Mapping[int, Fact], family: Family) -> list[Fact]:
    """The facts that a rule asks for before it uses a memory, or may drop a packet."""
    plain = takewhile(
        lambda match: match.role in (Role.SPACE, Role.CONSTANT) and not may_drop(match, family), matches
    )
    return [facts[id(match)] for match in plain if id(match) in facts]


def _asks_only(matches: Sequence[Match], facts: Mapping[int, Fact]) -> bool:
    """Whether a rule matches all packets of its fact."""
    return all(
        id(match) in facts or (match.role is Role.SPACE and not match.tests and not match.needs)
        for match in matches
    )


def _within(rule: RuleBoxes, makers: Sequence[Box]) -> RuleBoxes:
    """The rule, limited to what *makers* contain; as it was if that is nothing."""
    parts = [part for box in rule.boxes for maker in makers if (part := _common(box, maker)) is not None]
    return RuleBoxes(tuple(parts), rule.final) if parts else rule


def _common(one: Box, two: Box) -> Box | None:
    common = dict(one)
    for field, (low, high) in two.items():
        before = common.get(field, (low, high))
        common[field] = max(low, before[0]), min(high, before[1])
        if common[field][0] > common[field][1]:
            return None
    return common

"""Matches of which apply cannot know whether they hold for a packet, and how a walk of it took them.

A match with a memory or chance is taken not to hold, unless a first packet answers it (kernel_answers.py).  A
set, or a list of recent addresses, is read as it is now; a rule on the packet's own way may change it before.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace

from ..ir.fields import Family, Field
from ..ir.packet import Outcome, Packet
from ..ir.rule import Match, Rule, word_behind
from ..ir.semantics import Walk
from ..ir.unfilled_lists import list_of
from .kernel_answers import is_member, of_fresh_memory, sets_behind


@dataclass(slots=True)
class ChangedMemory:
    """The ipsets and the lists of recent addresses, by name, that rules on a packet's way have changed."""

    sets: set[str] = field(default_factory=set)
    recent: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.sets or self.recent)

    def copy(self) -> ChangedMemory:
        return ChangedMemory(set(self.sets), set(self.recent))

    def add(self, other: ChangedMemory) -> None:
        """Add what *other* has."""
        self.sets |= other.sets
        self.recent |= other.recent

    def note(self, rule: Rule) -> None:
        """The packet has met all matches of *rule*."""
        for match in rule.matches:
            if match.name == "recent" and "--set" in match.words:
                self.recent.add(list_of(match))
        target = rule.target
        if target is not None and target.name == "SET":
            for option in ("--add-set", "--del-set"):
                if option in target.words:
                    self.sets |= sets_behind(word_behind(option, target.words))

    def has_changed(self, match: Match) -> bool:
        """Whether a match `set` reads one of the ipsets."""
        return bool(self.sets) and not self.sets.isdisjoint(
            sets_behind(word_behind("--match-set", match.words))
        )


def unsure_answers(
    walk: Walk, packet: Packet, family: Family, given: Set[str], written: ChangedMemory
) -> dict[str, bool]:
    """By key of a match: how *walk* took it, though it may be otherwise.  Notes what the rules have written.

    packet  that walked
    given   the keys of which the user has told the answer
    """
    asked = {key: outcome is Outcome.YES for key, outcome in walk.asked}
    unsure = dict.fromkeys(walk.open, False)
    for step in walk.steps:
        for match in step.rule.matches:
            key = match.key
            if key in given or key in unsure:
                continue
            if match.name == "set":
                member = is_member(match, packet, family)
                if member is None and key in asked:
                    unsure[key] = False
                elif member is not None and written.has_changed(match):
                    unsure[key] = member
            elif match.name == "recent" and list_of(match) in written.recent and _asks_once(match):
                unsure[key] = asked.get(key, False)
            elif key in asked and of_fresh_memory(match) is None:
                unsure[key] = asked[key]
            elif Field.MAC not in packet.values and any(test.field is Field.MAC for test in match.tests):
                unsure[key] = False
        if step.outcome is Outcome.YES:
            written.note(step.rule)
    return unsure


def assuming(packet: Packet, match: Match, held: bool) -> Packet:
    """The packet, for which *match* holds, or does not."""

    def fact(other: Match, epoch: int) -> bool | None:
        return held if other.key == match.key else packet.fact(other, epoch)

    def outcome(other: Match, ordinal: int) -> Outcome:
        if other.key != match.key:
            return packet.outcome(other, ordinal)
        return Outcome.YES if held else Outcome.NO

    addresses: dict[Field, int] = {
        test.field: test.values.pairs[0][0] for test in match.tests if test.field is Field.MAC
    }
    return replace(packet, fact=fact, outcome=outcome, values={**packet.values, **addresses})


def _asks_once(match: Match) -> bool:
    """Whether one earlier packet of the address is enough for a match of recent addresses."""
    return "--set" not in match.words and word_behind("--hitcount", match.words, "1") in ("0", "1")

"""Why a rule has a flaw: which rules keep packets from it, or decide them instead.

Idea: the prover lists the rules that the packets of a rule meet before it, or behind it, for each class of
packets.  The lines of all classes are named, as far as `MOST_MET` and `MOST_ASKED` go; beyond, those of the
first class.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hitables.core.prover import NONE
from hitables.ir.dependence import rule_may_change
from hitables.ir.fields import Family, Field, top
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Ends, Kind, Match, Role, Rule

from .altered import AlteredTable, ClassProver, RuleAt
from .hook_reasons import shown, why_not_at_hooks
from .match_box import NOWHERE, MatchBox, PacketSet, TableWrites
from .reachability import Reachability
from .region_words import RegionWords

MOST_MET = 64  # rules that packets of a rule meet first, as far as they are examined
MOST_ASKED = 2_000  # questions of a table about rules that packets meet, besides one for each flaw

TO_END = "packets reach the end of the chain, too"
BY_PAYLOAD = "nft reads the ports and flags of later fragments in their payload"


@dataclass(frozen=True, slots=True)
class Reason:
    """*rules* that keep packets from the rule or decide them instead, and *why*, as in `Flaw`."""

    rules: tuple[Rule, ...] = ()
    why: str = ""

    @property
    def lines(self) -> tuple[int, ...]:
        """Each line once: of a line that lists addresses there are several rules."""
        return tuple(dict.fromkeys(rule.line for rule in self.rules))


class Reasons:
    """The reasons of one table, from which *altered* loses rules.

    entry       by chain: tests that all packets pass before they reach it (`entry_tests`)
    """

    def __init__(
        self,
        table: Table,
        family: Family,
        reach: Reachability,
        altered: AlteredTable,
        written: TableWrites,
        entry: Mapping[str, Mapping[Field, Values]],
    ) -> None:
        self._table, self._family, self._reach = table, family, reach
        self._altered, self._written, self._entry = altered, written, entry
        self._replaced = set[str]()  # chains of removed rules that decided packets as later rules do
        self._left_to_ask = self._left_to_compare = MOST_ASKED

    def never_matches(self, at: RuleAt) -> Reason:
        """Of a rule that never matches: the rules of its chain that keep packets from it."""
        covering: dict[int, Rule] = {}
        any_packets = unreached = False
        for each, region in self._asked(at, covering):
            any_packets = True
            earlier = self._met(each, at, at.number, region)
            ending = {index: rule for index, rule in earlier.items() if self._decides(rule, each, region)}
            if not ending and each.packets.malformed:  # a match of a chain that only logs may drop it
                ending = {index: rule for index, rule in earlier.items() if rule.enters}
            if ending:
                ending = self._that_match(each, at, region, ending, len(earlier) < MOST_MET)
            unreached |= not ending
            equal = next((index for index, rule in ending.items() if self._takes_as_many(at, index)), None)
            covering |= ending if equal is None else {equal: ending[equal]}
        if not any_packets and (why := self._why_no_packets(at)):
            return Reason(why=why)
        unreached |= not any_packets
        other = "other " if covering else ""
        why = f"no {other}packet that reaches {at.chain.name} can match it" if unreached else ""
        return Reason(_in_order(covering), why)

    def changes_nothing(self, at: RuleAt) -> Reason:
        """Of a rule that changes nothing, and is removed already: what decides its packets instead."""
        if self._all_come_back(at):
            return Reason(why=f"all packets come back from {at.rule.enters}")
        if not at.rule.returns and self._may_decide(at.rule):
            self._replaced.add(at.chain.name)
        deciding: dict[int, Rule] = {}
        to_end = by_payload = False
        for each, region in self._asked(at, deciding):
            later = self._deciding_later(each, at, region)
            to_end |= not later
            if each.packets.later and each.encoding.backend is Backend.NFT and not _reads_payload(at.rule):
                by_payload |= any(map(_reads_payload, later.values()))
            deciding |= later
        why = (TO_END if deciding and to_end else "", BY_PAYLOAD if by_payload else "")
        return Reason(_in_order(deciding), "; ".join(filter(None, why)))

    def _why_no_packets(self, at: RuleAt) -> str:
        """Why no packet that may come to the chain has what the rule asks; "": some have it."""
        if not self._have_packets(at.rule.matches):
            alone = (match for match in at.rule.matches if not self._have_packets((match,)))
            impossible = next(alone, None)
            if impossible is None:
                return "its matches exclude each other"
            return f"no packet matches {shown(impossible)}"
        return why_not_at_hooks(at.rule, at.chain, self._reach.roots_of(at.chain.name), self._family)

    def _have_packets(self, matches: Sequence[Match]) -> bool:
        """Whether some packet has what *matches* ask, wherever it is."""
        box = MatchBox(matches, self._written, self._family, NOWHERE)
        return any(each.inside(box, "") is not None for each in self._altered.provers)

    def _possible(self, at: RuleAt) -> Iterator[tuple[ClassProver, RegionWords]]:
        """The classes that have packets in the rule's box that may reach its chain, and these."""
        box = MatchBox(at.rule.matches, self._written, self._family, self._entry[at.chain.name])
        roots = self._reach.roots_of(at.chain.name)
        for each in self._altered.provers:
            root = at.chain.name if at.chain.policy is not None else ""
            region = each.inside(box, root)
            if region is not None and any(each.inside(box, hook) is not None for hook in roots):
                yield each, region

    def _asked(self, at: RuleAt, named: dict[int, Rule]) -> Iterator[tuple[ClassProver, RegionWords]]:
        """The classes of `_possible` to ask for rules: not those that one of *named*, by index, covers.

        Packets with broken headers are asked if there are no others.
        """
        asked = 0
        for each, region in self._possible(at):
            if asked and (each.packets.malformed or self._left_to_ask <= 0):
                return
            if any(_reads_alike(rule) and self._covers(rule, region.inside) for rule in named.values()):
                continue
            self._left_to_ask -= asked > 0
            asked += 1
            yield each, region

    def _met(self, each: ClassProver, at: RuleAt, before: int, region: RegionWords) -> dict[int, Rule]:
        """The rules of the chain, by index, that packets in *region* may meet before the rule *before*."""
        chain, first = at.chain, self._altered.first_rule[at.chain.name]
        number = self._altered.chain_numbers[chain.name]
        numbers = each.prover.rules_met(number, before, region.all(), MOST_MET)
        return {number - first: chain.rules[number - first] for number in numbers}

    def _met_in(self, name: str, each: ClassProver, region: RegionWords, most: int) -> list[Rule]:
        """The first rules of a chain, at most so many, that packets in *region* may meet if they enter it."""
        rules, first = self._table[name].rules, self._altered.first_rule[name]
        numbers = each.prover.rules_met(self._altered.chain_numbers[name], NONE, region.all(), most)
        return [rules[number - first] for number in numbers]

    def _may_decide(self, rule: Rule) -> bool:
        """Whether it may keep a packet that it matches from the rules behind it."""
        return rule.leaves or rule.enters in self._deciding

    def _decides(self, rule: Rule, each: ClassProver, region: RegionWords) -> bool:
        """`_may_decide`, of packets of the region."""
        if rule.leaves or rule.enters not in self._deciding or self._left_to_ask <= 0:
            return self._may_decide(rule)
        self._left_to_ask -= 1
        return not self._return(rule.enters, each, region)

    def _that_match(
        self, each: ClassProver, at: RuleAt, region: RegionWords, ending: dict[int, Rule], are_all: bool
    ) -> dict[int, Rule]:
        """Those of the rules *ending*, by index, that match packets which the rule could match.

        Where any does, and one would take all of these packets by itself: that one, the first of such.  Of
        packets with broken headers, which a rule may drop that they do not match, the last one counts as
        matching.

        are_all  whether no other rule keeps packets from the rule
        """
        last = max(ending)
        matching = (index for index in sorted(ending, reverse=True) if self._may_meet(each, at, index))
        first_found = last if each.packets.malformed else next(matching, None)
        if first_found is None:
            return {} if are_all and at.chain.policy is None else ending
        taking = (index for index in sorted(ending) if self._takes_all(ending[index], each, region))
        alone = next(taking, None)
        if alone is not None:
            return {alone: ending[alone]}
        return (
            ending if each.packets.malformed else {index: ending[index] for index in (*matching, first_found)}
        )

    def _may_meet(self, each: ClassProver, at: RuleAt, index: int) -> bool:
        """Whether packets that the rule could match reach an earlier rule of its chain, which matches them.

        True also where that is not shortly known.
        """
        if self._left_to_compare <= 0:
            return True
        self._left_to_compare -= 1
        matches = (*at.rule.matches, *at.chain.rules[index].matches)
        box = MatchBox(matches, self._written, self._family, self._entry[at.chain.name])
        return self._altered.may_match(each, RuleAt(at.chain, index, at.number - at.index + index), box)

    def _takes_as_many(self, at: RuleAt, index: int) -> bool:
        """Whether an earlier rule of its chain would leave it with all packets that the rule could match: it
        has no other matches, and what these read is not written between the two, as far as is shortly known.
        """
        rules = at.chain.rules
        own = {match.key for match in at.rule.matches if not match.writes}
        if not rules[index].leaves or at.index - index > MOST_MET or len(own) < len(at.rule.matches):
            return False
        if any(match.role > Role.CONSTANT or match.key not in own for match in rules[index].matches):
            return False
        between = rules[index + 1 : at.index]
        if self._written.states and any(rule.enters for rule in between):
            return False
        return not any(rule_may_change(rule, rules[index]) for rule in between)

    def _takes_all(self, rule: Rule, each: ClassProver, region: RegionWords) -> bool:
        """Whether no packet of the region reaches the next rule, as far as is shortly known."""
        last: Rule | None = rule
        while last is not None and self._covers(last, region.inside):
            name = last.enters
            if last.is_final or name is None or rule.leaves:
                return last.is_final or rule.leaves
            if self._left_to_ask <= 0:
                return False
            self._left_to_ask -= 1
            met = self._met_in(name, each, region, MOST_MET)
            last = met[-1] if met and len(met) < MOST_MET else None
            if any(each.leaves and not each.is_final for each in met):
                return False
        return False

    @functools.cached_property
    def _deciding(self) -> set[str]:
        """The chains in which the way of a packet may end."""
        deciding: set[str] = set()
        for name in self._reach.callees_first():
            if any(rule.is_final or rule.enters in deciding for rule in self._table[name].rules):
                deciding.add(name)
        return deciding

    def _covers(self, rule: Rule, inside: PacketSet) -> bool:
        holds = (
            match.role is Role.SPACE
            or (match.role is Role.CONSTANT and any(fact.implies(match.fact) for fact in inside.facts))
            for match in rule.matches
        )
        if not all(holds) or any(match.either for match in rule.matches):
            return False
        full = {field: Values(((0, top(field, self._family)),)) for field in Field}
        tests = (test for match in rule.matches for test in match.tests)
        return all(test.values.covers(inside.box.get(test.field, full[test.field])) for test in tests)

    def _deciding_later(self, each: ClassProver, at: RuleAt, region: RegionWords) -> dict[int, Rule]:
        """The later rules of its chain that decide its packets instead, up to one that takes all of them, and
        without those at the end of which the one behind them, or the end of the chain, does the same.
        """
        later: dict[int, Rule] = {}
        whole = False  # the last of them takes all packets
        for index, rule in sorted(self._met(each, at, NONE, region).items()):
            if index > at.index and self._decides(rule, each, region):
                later[index] = rule
                whole = self._takes_all(rule, each, region)
                if whole:
                    break
        last = max(later, default=0)
        end = self._verdict(later[last], at.chain) if whole else at.chain.end
        for index in sorted(later, reverse=True):
            if index == last and whole:
                continue
            if (later[index].enters and not whole) or self._verdict(later[index], at.chain) != end:
                break
            del later[index]
        return later

    def _verdict(self, rule: Rule, chain: Chain) -> str | None:
        """What a rule that leaves the chain does; None: packets return."""
        assert rule.target is not None, "it decides"
        return chain.end if rule.returns else rule.target.key

    def _all_come_back(self, at: RuleAt) -> bool:
        """Whether it is a jump, and each packet that takes it comes back, as far as is shortly known."""
        name = at.rule.enters
        if name is None or at.rule.leaves:
            return False
        return all(self._return(name, each, region) for each, region in self._possible(at))

    def _return(self, name: str, each: ClassProver, region: RegionWords) -> bool:
        """Whether all packets of the region that enter the chain leave it by its end or by RETURN."""
        waiting, seen, room = [name], {name}, MOST_MET
        while waiting:
            entered = waiting.pop()
            if entered in self._replaced:
                return False
            met = self._met_in(entered, each, region, room)
            room -= len(met)
            if room <= 0:
                return False
            for rule in met:
                target = rule.target
                if target is not None and target.kind is Kind.VERDICT and target.ends is not Ends.NEVER:
                    return False
                if rule.enters is not None and rule.enters not in seen:
                    seen.add(rule.enters)
                    waiting.append(rule.enters)
        return True


def _reads_alike(rule: Rule) -> bool:
    """Whether it leaves its chain with the same packets whatever their class, if these have what it reads."""
    return rule.leaves and all(match.role is Role.SPACE and not match.needs for match in rule.matches)


def _reads_payload(rule: Rule) -> bool:
    """Whether nft reads its ports or flags wherever a whole packet has them."""
    return any(match.native and match.needs for match in rule.matches)


def _in_order(rules: dict[int, Rule]) -> tuple[Rule, ...]:
    """Rules, given by index, in the order of their chain."""
    return tuple(rules[index] for index in sorted(rules))

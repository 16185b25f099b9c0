"""Rules that do nothing, each proved so by comparing a program with itself, one rule altered.

Idea: a rule never matches when marking it changes nothing for any packet; it is needless when leaving it
out changes nothing.  Each such rule is removed for good before the next is examined, so all of them may be
removed together, and of two rules of which either could be removed only one is reported.  A needless rule may
keep packets from another one with a flaw: the two are needless together (`Flaw.together`).  Rules that act by
being loaded are kept as the caller asks (`OneRemains`).

Invariant: exact, as the prover is: for every packet, as every backend in question reads it.

Cost: two comparisons per rule, class of packets, backend and built-in chain (altered.py).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from hitables.core.prover import NONE, Alteration
from hitables.ir.fields import Field, top
from hitables.ir.foreign import is_hidden
from hitables.ir.intervals import Values
from hitables.ir.marker import is_marker
from hitables.ir.program import Chain, Program, Table, check_names, with_undeclared_kept
from hitables.ir.rule import Ends, Kind, Role, Rule

from .altered import AlteredTable, ClassProver, OutOfBudget, RuleAt
from .deadline import Deadline
from .exact import Tell
from .match_box import NOWHERE, MatchBox, PacketSet, entry_tests, written_by
from .question import Question, with_open_policies
from .reachability import Reachability
from .region_words import RegionWords

NEVER, NOTHING, EMPTY, UNREACHED = "never-matches", "changes-nothing", "empty-chain", "unreached-chain"
DROPS = "its matches still drop packets with broken headers"
ASKS = "its matches still ask a memory"
MOST_MET = 64  # rules that packets of a rule meet first, as far as they are examined
MOST_ASKED = 2_000  # questions of a table about rules that packets meet, besides one for each flaw


@dataclass(frozen=True)
class Flaw:
    """kind: NEVER, NOTHING, EMPTY (a jump to a chain without rules) or UNREACHED (a chain).

    line      of the rule, or of the chain's declaration
    covering  lines of the rules that keep packets from it, or decide them instead; none: see *why*
    why       of EMPTY: the name of the chain that it enters; behind "; " what its matches still do;
              of NOTHING: what besides *covering* makes it needless, if that is not what all others get
    together  lines of other rules with flaws: while they stay, the rule is needed
    """

    kind: str
    table: str
    chain: str
    line: int
    covering: tuple[int, ...] = ()
    why: str = ""
    together: tuple[int, ...] = ()


@dataclass(frozen=True)
class Kept:
    """A rule, or a chain with its rules, that would be a flaw if it did not act by being loaded.

    entered_by  a chain that is kept, which enters this one, maybe through others; "": it acts itself
    configures  whether other rules read what it configures (configuring.py); False: it makes the kernel track
                connections or reassemble fragments (analyse/tracking.py)
    """

    table: str
    chain: str
    line: int
    entered_by: str = ""
    configures: bool = False


@dataclass
class Lint:
    """undecided: why some rules were not examined; "" when all were."""

    flaws: list[Flaw] = field(default_factory=list)
    undecided: str = ""
    kept: list[Kept] = field(default_factory=list)


class OneRemains:
    """Rules with an effect by being loaded: one of each group that has any must remain, and all of *needed*.

    *tracking*: groups of rules that track; *makers*: groups of rules that make what other rules read
    """

    def __init__(
        self,
        tracking: Iterable[Iterable[Rule]] = (),
        makers: Iterable[Iterable[Rule]] = (),
        needed: Iterable[Rule] = (),
    ) -> None:
        self._tracking, self._makers = (
            [{id(rule) for rule in group} for group in groups] for groups in (tracking, makers)
        )
        self._needed = {id(rule) for rule in needed}
        self.kept = set[Kept]()

    def remove(self, rules: Iterable[Rule], place: Kept) -> bool:
        """Whether all of *rules* may be removed with those before; if so, they are, else *place* is kept."""
        gone = {id(rule) for rule in rules}
        configures = not self._needed.isdisjoint(gone) or _has_all_of_one(gone, self._makers)
        if configures or _has_all_of_one(gone, self._tracking):
            self.kept.add(replace(place, configures=configures))
            return False
        for group in (*self._tracking, *self._makers):
            group -= gone
        return True


def _has_all_of_one(gone: set[int], groups: list[set[int]]) -> bool:
    return any(group and group <= gone for group in groups)


def lint(program: Program, question: Question, *, tell: Tell, one_remains: OneRemains | None = None) -> Lint:
    """All flaws, by table and line.  UnknownName for a table or chain that does not exist.

    *one_remains* names the rules by those of *program*.
    """
    one_remains = one_remains or OneRemains()
    check_names(program, question.tables, question.chains)
    deadline = Deadline(question.timeout, question.processor)
    out = Lint()
    for table in with_undeclared_kept(program):
        if question.tables and table.name not in question.tables:
            continue
        tell(f"table {table.name}")
        reach = Reachability(table)
        flaws = [*_unreached(table, reach, question, one_remains), *_empty(table, question, one_remains)]
        empty: dict[int, list[Flaw]] = {}  # by line, which several rules may have
        for flaw in flaws:
            if flaw.kind == EMPTY:
                empty.setdefault(flaw.line, []).append(flaw)
        try:
            opened = with_open_policies(table)
            linter = _TableLinter(program, opened, reach, question, deadline, one_remains)
            for flaw in linter.flaws(tell):
                if not empty.get(flaw.line):
                    flaws.append(flaw)
                    continue
                jump = empty[flaw.line].pop()
                if flaw.kind == NEVER:  # the stronger fact: removing the rule may make others needless
                    flaws[flaws.index(jump)] = flaw
            for jump in itertools.chain.from_iterable(empty.values()):
                if linter.may_list(table[jump.chain]):  # then it was examined, and found to change something
                    flaws[flaws.index(jump)] = replace(jump, why=f"{jump.why}; {DROPS}")
        except OutOfBudget as budget:
            out.undecided = f"{budget} in table {table.name}"
        out.flaws += sorted(flaws, key=lambda flaw: (flaw.line, flaw.kind))
    out.kept = sorted(one_remains.kept, key=lambda each: each.line)
    return out


def _in_question(question: Question, chain: str) -> bool:
    return not question.chains or chain in question.chains


def _unreached(table: Table, reach: Reachability, question: Question, one_remains: OneRemains) -> list[Flaw]:
    """The chains that packets do not reach, as the jumps show, without those that a chain enters which stays:
    one that is kept, or that the question is not about.
    """
    unreached = [
        chain
        for chain in table.chains
        if chain.policy is None and not reach.roots_of(chain.name) and not is_marker(chain.name)
    ]
    others = [chain.name for chain in unreached if not _in_question(question, chain.name)]
    entered = [name for place, name in question.entered if place == table.name]
    stay = reach.reached_from([*others, *entered])
    chains = [chain for chain in unreached if chain.name not in stay]
    keepers: dict[str, str] = {}  # by chain that is kept, or entered from there
    for chain in sorted(chains, key=lambda each: len(reach.reaching(each.name))):  # callers first
        place = Kept(table.name, chain.name, chain.line)
        if chain.name not in keepers and not one_remains.remove(chain.rules, place):
            keepers |= {name: chain.name for name in reach.reached_from([chain.name])}
    for chain in chains:
        if keepers.get(chain.name, chain.name) != chain.name:
            one_remains.kept.add(Kept(table.name, chain.name, chain.line, keepers[chain.name]))
    return [
        Flaw(UNREACHED, table.name, chain.name, chain.line) for chain in chains if chain.name not in keepers
    ]


def _empty(table: Table, question: Question, one_remains: OneRemains) -> Iterator[Flaw]:
    """The jumps (-j) to chains without rules: all that they can do is to drop broken headers by a match.

    Not those with a match that has a memory, nor gotos, which leave their chain.  These are examined as all
    rules are.
    """
    for chain in table.chains:
        if not _in_question(question, chain.name):
            continue
        for rule in chain.rules:
            if rule.enters is None or table[rule.enters].rules:
                continue
            if rule.leaves or any(match.role in (Role.NAMED, Role.ONCE) for match in rule.matches):
                continue
            if one_remains.remove((rule,), Kept(table.name, chain.name, rule.line)):
                yield Flaw(EMPTY, table.name, chain.name, rule.line, why=rule.enters)


# ---- one table ----


class _TableLinter:
    """One table, held in a prover for each class of packets of each backend."""

    def __init__(
        self,
        program: Program,
        table: Table,
        reach: Reachability,
        question: Question,
        deadline: Deadline,
        one_remains: OneRemains,
    ) -> None:
        self.table, self.reach, self.question = table, reach, question
        self.one_remains = one_remains
        self.family = program.family
        self.written = written_by(table)
        self.altered = AlteredTable(table, self.family, reach, question, deadline)
        self.first_rule: dict[str, int] = {}
        rules = 0
        for chain in table.chains:
            self.first_rule[chain.name] = rules
            rules += len(chain.rules)
        self.entry = entry_tests(table, reversed(reach.callees_first()), self.written)
        entered = (chain for place, chain in question.entered if place == table.name)
        self.entered_by_foreign = reach.reached_from(entered)
        self.removed: list[RuleAt] = []
        self.replaced = set[str]()  # chains of removed rules that decided packets as later rules do
        self.left_to_ask = MOST_ASKED

    # ---- flaws ----

    def flaws(self, tell: Tell) -> Iterator[Flaw]:
        rules = [
            RuleAt(chain, index, self.first_rule[chain.name] + index)
            for chain in self.table.chains
            if self.may_list(chain)
            for index in range(len(chain.rules))
        ]
        live = []
        for at in rules:
            tell(f"table {self.table.name}, line {at.rule.line}")
            remaining = self._remaining_effect(at) if self._never_matches(at) else ASKS
            if remaining == ASKS:
                live.append(at)
                continue
            if not self._may_go(at):
                continue
            flaw = self._never_flaw(at)
            yield replace(flaw, why="; ".join(filter(None, (flaw.why, remaining))))
            if not remaining:
                self._remove(at)
        yield from self._needless(live, tell)

    def may_list(self, chain: Chain) -> bool:
        """Whether rules of *chain* may be listed.  All others stay, so none of them may be removed.

        The rules of a foreign chain are not known, nor the packets that it sends to chains that it enters.
        """
        return (
            _in_question(self.question, chain.name)
            and bool(self.reach.roots_of(chain.name))
            and chain.name not in self.entered_by_foreign
            and not any(is_hidden(rule, chain.name) for rule in chain.rules)
        )

    def _needless(self, live: list[RuleAt], tell: Tell) -> Iterator[Flaw]:
        """Rules of *live* that change nothing, removed one after the other until none is left.

        Each walk is examined from its end to its start: removing a rule can make another needless only if the
        other is before it, or in a chain that it enters.
        """
        order = {name: rank for rank, name in enumerate(self.reach.callees_first())}
        while live:
            needed: list[RuleAt] = []
            entered = set[str]()
            for at in sorted(live, key=lambda each: (order[each.chain.name], -each.index)):
                tell(f"table {self.table.name}, line {at.rule.line}")
                if not _is_removable(at.rule):
                    continue
                if not self._changes_nothing(at):
                    needed.append(at)
                    continue
                if not self._may_go(at):
                    continue
                together = self._needed_while(at)
                self._remove(at)
                if at.rule.enters is not None:
                    entered.add(at.rule.enters)
                yield replace(self._nothing_flaw(at), together=together)
            reached = self.reach.reached_from(entered)
            live = [at for at in needed if at.chain.name in reached]

    def _may_go(self, at: RuleAt) -> bool:
        """Whether the rule may be removed with those that are listed already; if not, it is kept."""
        return self.one_remains.remove((at.rule,), Kept(self.table.name, at.chain.name, at.rule.line))

    # ---- altered rules ----

    def _remove(self, at: RuleAt) -> None:
        self.removed.append(at)
        self.altered.remove(at)

    def _never_matches(self, at: RuleAt) -> bool:
        return self.altered.class_affected(at, Alteration.MARK, self._box(at, on_the_way=True)) is None

    def _changes_nothing(self, at: RuleAt, provers: Iterable[ClassProver] | None = None) -> bool:
        return self.altered.class_affected(at, Alteration.LEAVE_OUT, self._box_of_acts(at), provers) is None

    @functools.cached_property
    def _as_given(self) -> list[ClassProver]:
        """Provers in which no rule is removed."""
        return list(self.altered.fresh())

    def _needed_while(self, at: RuleAt) -> tuple[int, ...]:
        """Lines of the removed rules because of which a rule that changes nothing now changed something.

        These are the ones whose packets the rule decides otherwise; in a small table, if they do not
        suffice, all that are removed.
        """
        if not self.removed or self._changes_nothing(at, self._as_given):
            return ()
        others = [each for each in self.removed if _decides_otherwise(at, each)]
        few = self.altered.is_small
        if not others or (few and not self._changes_nothing(at, self.altered.fresh(without=others))):
            others = self.removed
        return tuple(sorted({each.rule.line for each in others}))

    def _remaining_effect(self, at: RuleAt) -> str:
        """The effect of a rule that never matches: its matches may drop packets, or use a memory."""
        acts = self._box_of_acts(at, only_acts=True)
        packets = self.altered.class_affected(at, Alteration.LEAVE_OUT, acts)
        return "" if packets is None else DROPS if packets.malformed else ASKS

    def _box(self, at: RuleAt, *, on_the_way: bool = False) -> MatchBox:
        entry = self.entry[at.chain.name] if on_the_way else NOWHERE
        return MatchBox(at.rule.matches, self.written, self.family, entry)

    def _box_of_acts(self, at: RuleAt, *, only_acts: bool = False) -> MatchBox:
        entry = self.entry[at.chain.name]
        return MatchBox(at.rule.matches, self.written, self.family, entry, may_act=True, only_acts=only_acts)

    # ---- why ----

    def _possible(self, at: RuleAt) -> Iterator[tuple[ClassProver, RegionWords]]:
        """The classes that have packets in the rule's box, and these."""
        box = self._box(at)
        for each in self.altered.provers:
            root = at.chain.name if at.chain.policy is not None else ""
            region = each.inside(box, root)
            if region is not None:
                yield each, region

    def _asked(self, at: RuleAt, named: dict[int, Rule]) -> Iterator[tuple[ClassProver, RegionWords]]:
        """The classes of `_possible` to ask for rules: not those that one of *named*, by index, covers.

        Packets with broken headers are asked if there are no others.
        """
        asked = 0
        for each, region in self._possible(at):
            if asked and (each.packets.malformed or self.left_to_ask <= 0):
                return
            if any(_reads_alike(rule) and self._covers(rule, region.inside) for rule in named.values()):
                continue
            self.left_to_ask -= asked > 0
            asked += 1
            yield each, region

    def _met(self, each: ClassProver, at: RuleAt, before: int, region: RegionWords) -> dict[int, Rule]:
        """The rules of the chain, by index, that packets in *region* may meet before the rule *before*."""
        chain, first = at.chain, self.first_rule[at.chain.name]
        number = self.altered.chain_numbers[chain.name]
        numbers = each.prover.rules_met(number, before, region.all(), MOST_MET)
        return {number - first: chain.rules[number - first] for number in numbers}

    def _met_in(self, name: str, each: ClassProver, region: RegionWords, most: int) -> list[Rule]:
        """The first rules of a chain, at most so many, that packets in *region* may meet if they enter it."""
        rules, first = self.table[name].rules, self.first_rule[name]
        numbers = each.prover.rules_met(self.altered.chain_numbers[name], NONE, region.all(), most)
        return [rules[number - first] for number in numbers]

    def _never_flaw(self, at: RuleAt) -> Flaw:
        """A rule that never matches, with the rules of its chain that keep packets from it."""
        chain, line = at.chain.name, at.rule.line
        covering: dict[int, Rule] = {}
        any_packets = unreached = False
        for each, region in self._asked(at, covering):
            any_packets = True
            earlier = self._met(each, at, at.number, region)
            ending = {index: rule for index, rule in earlier.items() if self._decides(rule, each, region)}
            if not ending:  # a match of a chain that only logs may drop a packet
                ending = {index: rule for index, rule in earlier.items() if rule.enters}
            unreached |= not ending
            last = max(ending, default=0)
            whole = bool(ending) and self._takes_all(ending[last], each, region)
            covering |= {last: ending[last]} if whole else ending
        if not any_packets:
            return Flaw(NEVER, self.table.name, chain, line, why="its matches exclude each other")
        other = "other " if covering else ""
        why = f"no {other}packet that reaches {chain} can match it" if unreached else ""
        return Flaw(NEVER, self.table.name, chain, line, _lines_of(covering), why)

    def _may_decide(self, rule: Rule) -> bool:
        """Whether it may keep a packet that it matches from the rules behind it."""
        return rule.leaves or rule.enters in self._deciding

    def _decides(self, rule: Rule, each: ClassProver, region: RegionWords) -> bool:
        """`_may_decide`, of packets of the region."""
        if rule.leaves or rule.enters not in self._deciding or self.left_to_ask <= 0:
            return self._may_decide(rule)
        self.left_to_ask -= 1
        return not self._return(rule.enters, each, region)

    def _takes_all(self, rule: Rule, each: ClassProver, region: RegionWords) -> bool:
        """Whether no packet of the region reaches the next rule, as far as is shortly known."""
        last: Rule | None = rule
        while last is not None and self._covers(last, region.inside):
            name = last.enters
            if last.is_final or name is None or rule.leaves:
                return last.is_final or rule.leaves
            if self.left_to_ask <= 0:
                return False
            self.left_to_ask -= 1
            met = self._met_in(name, each, region, MOST_MET)
            last = met[-1] if met and len(met) < MOST_MET else None
            if any(each.leaves and not each.is_final for each in met):
                return False
        return False

    @functools.cached_property
    def _deciding(self) -> set[str]:
        """The chains in which the way of a packet may end."""
        deciding: set[str] = set()
        for name in self.reach.callees_first():
            if any(rule.is_final or rule.enters in deciding for rule in self.table[name].rules):
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
        full = {field: Values(((0, top(field, self.family)),)) for field in Field}
        tests = (test for match in rule.matches for test in match.tests)
        return all(test.values.covers(inside.box.get(test.field, full[test.field])) for test in tests)

    def _nothing_flaw(self, at: RuleAt) -> Flaw:
        """A rule that changes nothing, with what decides its packets instead; it is removed already."""
        flaw = Flaw(NOTHING, self.table.name, at.chain.name, at.rule.line)
        if self._all_come_back(at):
            return replace(flaw, why=f"all packets come back from {at.rule.enters}")
        if not at.rule.returns and self._may_decide(at.rule):
            self.replaced.add(at.chain.name)
        deciding: dict[int, Rule] = {}
        to_end = False
        for each, region in self._asked(at, deciding):
            later = self._deciding_later(each, at, region)
            to_end |= not later
            deciding |= later
        why = "packets reach the end of the chain, too" if deciding and to_end else ""
        return replace(flaw, covering=_lines_of(deciding), why=why)

    def _deciding_later(self, each: ClassProver, at: RuleAt, region: RegionWords) -> dict[int, Rule]:
        """The later rules of its chain that decide its packets instead, without those at the end of which the
        one behind them, or the end of the chain, does the same.
        """
        met = self._met(each, at, NONE, region)
        behind = ((index, rule) for index, rule in met.items() if index > at.index)
        later = {index: rule for index, rule in behind if self._decides(rule, each, region)}
        last = max(later, default=0)
        whole = bool(later) and self._takes_all(later[last], each, region)
        end = self._verdict(later[last], at.chain) if whole else at.chain.end
        for index in sorted(later, reverse=True):
            if index == last and whole:
                continue
            if later[index].enters or self._verdict(later[index], at.chain) != end:
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
            if entered in self.replaced:
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


def _lines_of(rules: dict[int, Rule]) -> tuple[int, ...]:
    """The lines of rules, given by index, in the order of their chain."""
    return tuple(rules[index].line for index in sorted(rules))


def _decides_otherwise(first: RuleAt, later: RuleAt) -> bool:
    """Whether *first* may decide packets of *later* in another way."""
    if first.chain is later.chain and later.index < first.index:
        return False
    targets = first.rule.target, later.rule.target
    if targets[0] is not None and targets[1] is not None and targets[0].key == targets[1].key:
        return False
    return not _exclude(first.rule, later.rule)


def _exclude(one: Rule, other: Rule) -> bool:
    """Whether no packet can match both, by what they test of one field."""
    return any(
        not mine.values.intersect(yours.values)
        for match in one.matches
        if match.role is Role.SPACE and not match.either
        for mine in match.tests
        for against in other.matches
        if against.role is Role.SPACE and not against.either
        for yours in against.tests
        if mine.field is yours.field
    )


def _is_removable(rule: Rule) -> bool:
    """Whether removing it could change nothing: it neither counts nor has an effect."""
    target = rule.target
    return target is not None and (target.kind is not Kind.VERDICT or target.is_final)

"""Rules that do nothing, each proved so by comparing a program with itself, one rule altered.

Idea: a rule never matches when marking it changes nothing for any packet; it is needless when leaving it
out changes nothing.  Each such rule is removed for good before the next is examined, so all of them may be
removed together, and of two rules of which either could be removed only one is reported.  A needless rule may
keep packets from another one with a flaw: the two are needless together (`Flaw.together`).  Rules whose
matches only drop packets with broken headers come last, and are removed for all others
(`Flaw.is_for_broken`).  Rules that act by being loaded are kept as the caller asks (`OneRemains`).

Invariant: exact, as the prover is: for every packet, as every backend in question reads it.

Cost: two comparisons per rule, class of packets, backend and built-in chain (altered.py).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from hitables.core.prover import Alteration
from hitables.ir.foreign import is_hidden
from hitables.ir.idle_limits import IdleLimit, idle_limits
from hitables.ir.marker import is_marker
from hitables.ir.no_target import NoTarget, no_targets
from hitables.ir.program import Chain, Program, Table, check_names, with_undeclared_kept
from hitables.ir.rule import Kind, Role, Rule
from hitables.ir.unfilled_lists import unfilled_lists
from hitables.ir.unmatched import Unmatched, unmatched

from .altered import AlteredTable, ClassProver, OutOfBudget, RuleAt
from .deadline import Deadline
from .exact import Tell
from .lint_reasons import BY_PAYLOAD, Reason, Reasons
from .match_box import NOWHERE, MatchBox, entry_tests, written_by
from .needed_packets import Stopped, stopped
from .packet_classes import PacketClass
from .question import Question, with_open_policies
from .reachability import Reachability
from .unforwarded import Unforwarded, unforwarded

NEVER, NOTHING, EMPTY, UNREACHED = "never-matches", "changes-nothing", "empty-chain", "unreached-chain"
DROPS = "its matches still drop packets with broken headers"
ASKS = "its matches still ask a memory"


@dataclass(frozen=True)
class Flaw:
    """kind: NEVER, NOTHING, EMPTY (a jump to a chain without rules) or UNREACHED (a chain).

    line      of the rule, or of the chain's declaration
    covering  lines of the rules that keep packets from it, or decide them instead; none: see *why*
    why       of EMPTY: the name of the chain that it enters; behind "; " what its matches still do;
              of NOTHING: what besides *covering* makes it needless, if that is not what all others get;
              behind "; " what else is to say (`why_and_caveats`)
    together  lines of other rules with flaws: while they stay, the rule is needed
    rule      that has the flaw, of those of its line, which may list addresses; None: a chain has it
    by        the rules in the lines of *covering*
    """

    kind: str
    table: str
    chain: str
    line: int
    covering: tuple[int, ...] = ()
    why: str = ""
    together: tuple[int, ...] = ()
    rule: Rule | None = None
    by: tuple[Rule, ...] = ()

    @property
    def is_for_broken(self) -> bool:
        """Whether it still drops packets with broken headers by its matches, and does nothing to others."""
        return DROPS in self.why

    def why_and_caveats(self) -> tuple[str, list[str]]:
        """The parts of *why* of NOTHING: what makes the rule needless, and what else is to say."""
        parts = self.why.split("; ")
        caveats = [part for part in parts if part in (BY_PAYLOAD, DROPS)]
        return "; ".join(part for part in parts if part not in caveats), caveats


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
    """undecided: why some rules were not examined; "" when all were.

    examined     how many rules were: not those of foreign chains, nor of chains that no packet reaches
    unmatched    rules that are no flaws, as the proofs know packets that they match, but the kernel has none
    idle_limits  rules that are no flaws, as they ask a memory, whose limit changes no verdict
    stopped      packets of ICMP of which a chain lets none pass, and without which hosts work badly
    unforwarded  rules of nat that lead connections to where table filter lets none of them in
    no_targets   rules that only count, of chains that decide packets
    """

    flaws: list[Flaw] = field(default_factory=list)
    undecided: str = ""
    examined: int = 0
    kept: list[Kept] = field(default_factory=list)
    unmatched: list[Unmatched] = field(default_factory=list)
    idle_limits: list[IdleLimit] = field(default_factory=list)
    stopped: list[Stopped] = field(default_factory=list)
    unforwarded: list[Unforwarded] = field(default_factory=list)
    no_targets: list[NoTarget] = field(default_factory=list)


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
    unfilled = list(unfilled_lists(program))
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
            out.examined += sum(len(chain.rules) for chain in opened.chains if linter.may_list(chain))
            for flaw in linter.flaws(tell):
                jump = next((each for each in empty.get(flaw.line, ()) if each.rule == flaw.rule), None)
                if jump is None:
                    flaws.append(flaw)
                    continue
                if flaw.kind == NOTHING and flaw.is_for_broken:
                    continue  # what its matches drop is told below
                empty[flaw.line].remove(jump)
                if flaw.kind == NEVER:  # the stronger fact: removing the rule may make others needless
                    flaws[flaws.index(jump)] = flaw
            for jump in itertools.chain.from_iterable(empty.values()):
                if linter.may_list(table[jump.chain]):  # then it was examined, and found to change something
                    flaws[flaws.index(jump)] = replace(jump, why=f"{jump.why}; {DROPS}")
        except OutOfBudget as budget:
            out.undecided = f"{budget} in table {table.name}"
        listed = {flaw.line for flaw in flaws}
        may_note = [chain.name for chain in table.chains if _in_question(question, chain.name)]
        found = (*unmatched(table, program.family), *(each for each in unfilled if each.table == table.name))
        out.unmatched += (
            each
            for each in sorted(found, key=lambda each: each.line)
            if each.chain in may_note and each.line not in listed
        )
        out.idle_limits += (
            each for each in idle_limits(table) if each.chain in may_note and each.line not in listed
        )
        out.no_targets += (
            replace(each, lines=lines)
            for each in no_targets(table)
            if each.chain in may_note and (lines := tuple(line for line in each.lines if line not in listed))
        )
        out.flaws += sorted(flaws, key=lambda flaw: (flaw.line, flaw.kind))
    out.kept = sorted(one_remains.kept, key=lambda each: each.line)
    if not out.undecided:
        question = replace(question, timeout=deadline.left()[0] or None)
        out.stopped += stopped(program, question, tell)
        out.unforwarded += unforwarded(program, question, tell)
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
                yield Flaw(EMPTY, table.name, chain.name, rule.line, why=rule.enters, rule=rule)


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
        self.entry = entry_tests(table, reversed(reach.callees_first()), self.written)
        entered = (chain for place, chain in question.entered if place == table.name)
        self.entered_by_foreign = reach.reached_from(entered)
        self.removed: list[RuleAt] = []
        self._for_broken: dict[int, RuleAt] = {}  # by number: whose matches only drop broken headers
        self.reasons = Reasons(table, self.family, reach, self.altered, self.written, self.entry)

    # ---- flaws ----

    def flaws(self, tell: Tell) -> Iterator[Flaw]:
        rules = [
            RuleAt(chain, index, self.altered.first_rule[chain.name] + index)
            for chain in self.table.chains
            if self.may_list(chain)
            for index in range(len(chain.rules))
        ]
        live: list[RuleAt] = []
        unmatched: list[tuple[RuleAt, Flaw]] = []
        try:
            yield from self._unmatched(rules, live, unmatched, tell)
            yield from self._needless(live, tell)
        except OutOfBudget:
            yield from (flaw for _, flaw in unmatched)
            raise
        yield from self._needless_but_for_broken(unmatched, tell)

    def _unmatched(
        self,
        rules: list[RuleAt],
        live: list[RuleAt],
        for_broken: list[tuple[RuleAt, Flaw]],
        tell: Tell,
    ) -> Iterator[Flaw]:
        """Those of *rules* that never match; *live* gets the others.

        *for_broken*: gets those that stay, as they drop packets with broken headers.
        """
        for at in rules:
            tell(f"table {self.table.name}, line {at.rule.line}")
            remaining = self._remaining_effect(at) if self._never_matches(at) else ASKS
            if remaining == ASKS:
                live.append(at)
                continue
            if not self._may_go(at):
                continue
            reason = self.reasons.never_matches(at)
            why = "; ".join(filter(None, (reason.why, remaining)))
            flaw = self._flaw(NEVER, at, reason, why)
            if remaining:
                for_broken.append((at, flaw))
                continue
            yield flaw
            self._remove(at)

    def _flaw(self, kind: str, at: RuleAt, reason: Reason, why: str, together: tuple[int, ...] = ()) -> Flaw:
        place = self.table.name, at.chain.name, at.rule.line
        return Flaw(kind, *place, reason.lines, why, together, at.rule, reason.rules)

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
        while live:
            needed: list[RuleAt] = []
            entered = set[str]()
            for at in sorted(live, key=self._from_end_to_start):
                tell(f"table {self.table.name}, line {at.rule.line}")
                if not _is_removable(at.rule):
                    continue
                affected = self._class_that_needs(at)
                self._for_broken.pop(at.number, None)
                if affected is not None:
                    needed.append(at)
                    if affected.malformed and self._drops(at):
                        self._for_broken[at.number] = at
                    continue
                if not self._may_go(at):
                    continue
                together = self._needed_while(at)
                self._remove(at)
                if at.rule.enters is not None:
                    entered.add(at.rule.enters)
                reason = self.reasons.changes_nothing(at)
                yield self._flaw(NOTHING, at, reason, reason.why, together)
            reached = self.reach.reached_from(entered)
            live = [at for at in needed if at.chain.name in reached]

    def _needless_but_for_broken(self, unmatched: list[tuple[RuleAt, Flaw]], tell: Tell) -> Iterator[Flaw]:
        """Rules whose matches only drop packets with broken headers, removed one by one for all others.

        *unmatched*: those of them that never matched, as long as all rules stood that are needless.
        """
        well_formed = self.altered.well_formed
        for at, flaw in unmatched:
            tell(f"table {self.table.name}, line {at.rule.line}")
            if self._class_that_needs(at, well_formed) is None:
                self._remove(at, well_formed)
                yield flaw
        for at in sorted(self._for_broken.values(), key=self._from_end_to_start):
            tell(f"table {self.table.name}, line {at.rule.line}")
            if self._class_that_needs(at, well_formed) is not None or not self._may_go(at):
                continue
            together = self._needed_while(at, well_formed=True)
            self._remove(at, well_formed)
            reason = self.reasons.changes_nothing(at)
            yield self._flaw(NOTHING, at, reason, "; ".join(filter(None, (reason.why, DROPS))), together)

    def _may_go(self, at: RuleAt) -> bool:
        """Whether the rule may be removed with those that are listed already; if not, it is kept."""
        return self.one_remains.remove((at.rule,), Kept(self.table.name, at.chain.name, at.rule.line))

    # ---- altered rules ----

    @functools.cached_property
    def _callees_first(self) -> dict[str, int]:
        return {name: rank for rank, name in enumerate(self.reach.callees_first())}

    def _from_end_to_start(self, at: RuleAt) -> tuple[int, int]:
        return self._callees_first[at.chain.name], -at.index

    def _remove(self, at: RuleAt, provers: Iterable[ClassProver] | None = None) -> None:
        self.removed.append(at)
        self.altered.remove(at, provers)

    def _never_matches(self, at: RuleAt) -> bool:
        return self.altered.class_affected(at, Alteration.MARK, self._box(at, on_the_way=True)) is None

    def _class_that_needs(
        self, at: RuleAt, provers: Iterable[ClassProver] | None = None
    ) -> PacketClass | None:
        """Packets for which the rule changes something: with broken headers, if it does for no others."""
        return self.altered.class_affected(at, Alteration.LEAVE_OUT, self._box_of_acts(at), provers)

    def _drops(self, at: RuleAt) -> bool:
        """Whether a match of the rule may drop packets with broken headers."""
        box = self._box_of_acts(at, only_acts=True)
        return any(
            each.packets.malformed and each.inside(box, root) is not None
            for each in self.altered.provers
            for root in self.reach.roots_of(at.chain.name)
        )

    @functools.cached_property
    def _as_given(self) -> list[ClassProver]:
        """Provers in which no rule is removed."""
        return list(self.altered.fresh())

    def _needed_while(self, at: RuleAt, *, well_formed: bool = False) -> tuple[int, ...]:
        """Lines of the removed rules because of which a rule that changes nothing now changed something.

        These are the ones whose packets the rule decides otherwise; in a small table, if they do not
        suffice, all that are removed.  *well_formed*: of packets without broken headers alone.
        """

        def needed(provers: Iterable[ClassProver]) -> bool:
            asked = (each for each in provers if not (well_formed and each.packets.malformed))
            return self._class_that_needs(at, asked) is not None

        if not self.removed or not needed(self._as_given):
            return ()
        others = [each for each in self.removed if _decides_otherwise(at, each)]
        few = self.altered.is_small
        if not others or (few and needed(self.altered.fresh(without=others))):
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

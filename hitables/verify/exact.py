"""Exact equivalence of two programs: a proof, or a packet that they treat differently.

Idea: core/c/prove/prove.c compares one pair of chains, as one backend reads them, for one class of packets
(packet_classes.py).  Classes that read the rules alike are first proved together (merged_classes.py).  A
region of the header space in which the two differ is turned into a packet here (witness.py).

Invariant: ir/semantics.py confirms every packet before it is returned.  Equality is that of
docs/semantics.md: the same verdict and the same effects in the same order, whatever the facts and the
answers of matches with memory or chance; a match with a memory of its own corresponds to one match of the
other program.

Cost: about what compiling cost, for a program and its compiled form (docs/decisions/prover.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hitables.core.prover import Mismatch, PairRun, Prover, ProveStatus
from hitables.errors import Disagreement
from hitables.ir import semantics
from hitables.ir.answers import listening
from hitables.ir.attributes import MOST_CELLS, MOST_MADE, Attribute, before_made, common, numbers_of
from hitables.ir.choices import Malformed
from hitables.ir.commuting import grouped
from hitables.ir.fields import Field
from hitables.ir.headers import is_malformed
from hitables.ir.hooks import hook_box
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend, Outcome
from hitables.ir.packet_text import show_packet
from hitables.ir.program import Program, Table

from .called_parts import with_called_parts
from .deadline import Deadline
from .encoding import Encoding, RuleRef
from .merged_classes import MergedClasses
from .packet_classes import PacketClass
from .question import (
    Answer,
    ByRegions,
    Difference,
    Equal,
    Question,
    Undecided,
    chain_pairs,
    differs,
    with_open_policies,
)
from .witness import Draft, choose, ordinary, plainer

Ends = tuple[int, ...]  # low, high, low, high, ... as coordinates
Tell = Callable[[str], None]  # is called with the name of each step before it begins

WHY = {
    ProveStatus.NO_TIME: "out of time",
    ProveStatus.NO_MEMORY: "out of memory",
    ProveStatus.STOPPED: "stopped",
    ProveStatus.TOO_DEEP: "the rules nest too deep",
}


def _silent(step: str) -> None:
    """Report no progress."""


def check(before: Program, after: Program, question: Question, *, tell: Tell = _silent) -> Answer:
    """Compare *after* with *before*.

    Equal is a proof.  A Difference has the plainest packet found that the two treat differently.  Undecided:
    the budget of *question* ran out.  HitablesError when the two cannot be compared (`question.chain_pairs`).
    """
    regions = 0
    by_regions: dict[ByRegions, None] = {}
    for comparison in comparisons(before, after, question):
        tell(f"{comparison.table} {comparison.chain}, {comparison.backend.value}")
        answer = comparison.first_difference()
        for chain, why in comparison.why.items():
            by_regions[ByRegions(comparison.table, chain, why)] = None
        if isinstance(answer, Undecided):
            return replace(answer, by_regions=tuple(by_regions))
        if not isinstance(answer, Equal):
            return answer
        regions += answer.looked_at
    return Equal(True, regions, tuple(by_regions))


def comparisons(before: Program, after: Program, question: Question) -> Iterator[Comparison]:
    """Each pair of chains, as each backend reads it."""
    deadline = Deadline(question.timeout, question.processor, question.each_class)
    pairs = chain_pairs(before, after, question)
    encodings: dict[str, Encoding] = {}
    at_once: dict[str, AtOnce] = {}
    for backend in question.backends:
        tables: TableProver | None = None
        parts: Parts | None = None
        for table, chain in pairs:
            if tables is None or tables.table != table:
                pair = with_open_policies(before.table(table)), with_open_policies(after.table(table))
                chains = [each for name, each in pairs if name == table]
                if table not in encodings:
                    encodings[table] = Encoding(
                        pair, before.family, backend, question.verdict_only, question.sure_answers
                    )
                    at_once[table] = AtOnce(encodings[table], question, deadline, chains)
                tables = TableProver(pair, encodings[table].read_by(backend), question, deadline)
                parts = Parts(at_once[table], backend)
            assert parts is not None
            yield Comparison(tables, chain, parts)


# Of attributes, as "mark" or "dscp".
TOO_MANY_VALUES = (
    "too many values of {} are told apart, or made by one target behind the other "
    f"(limits: {MOST_CELLS:,} and {MOST_MADE})"
)


# ---- two tables ----


@dataclass(frozen=True)
class DifferingRegion:
    """Packets that two chains treat differently, all in the same way.

    sets       by dimension and number of writes before: low, high, low, high, ... as coordinates; attributes
               that may have any value are left out, and those that follow from their values before
    answers    keys of the matches with memory that were asked so far, and whether they held
    asked_by   of each: the program that asked it, 0 or 1; None: both did
    rules      the rules at which the two programs part; None: the end of the chain
    extra      rules that had an effect in one program only, before that, or else asked a memory; None: none
    acted      of each: whether it had an effect
    more       of each: whether more rules had an effect, or asked a memory, in one program only
    reordered  both had the same effects in another order: *extra* are the first that differ
    verdicts   of the two programs; None: not known, or what follows the rules of *extra* is the same
    """

    packets: PacketClass
    sets: dict[tuple[int, int], tuple[int, ...]]
    answers: tuple[tuple[str, bool], ...]
    rules: tuple[RuleRef | None, RuleRef | None]
    extra: tuple[RuleRef | None, RuleRef | None] = (None, None)
    acted: tuple[bool, bool] = (False, False)
    more: tuple[bool, bool] = (False, False)
    reordered: bool = False
    verdicts: tuple[str | None, str | None] = (None, None)
    asked_by: tuple[int | None, ...] = ()


class TableProver:
    """Two tables of one name in the prover, as one backend reads them.

    within  set by those who know that the tables decide all packets outside alike: values by field, of the
            packets that have the field
    """

    def __init__(
        self, tables: tuple[Table, Table], encoding: Encoding, question: Question, deadline: Deadline
    ) -> None:
        self.table, self.tables, self.encoding = tables[0].name, tables, encoding
        self.question, self.deadline = question, deadline
        self.backend, self.family = encoding.backend, encoding.family
        self.classes = encoding.classes()
        self.within: Mapping[Field, Values] = {}
        self._strict = False
        self._runs: list[tuple[str, PacketClass]] = []

    @cached_property
    def prover(self) -> Prover:
        return self.encoding.prover(self.question.max_memory)

    def run(self, chain: str, packets: PacketClass, limit: int) -> tuple[ProveStatus, list[DifferingRegion]]:
        """Compare the two chains for packets of a class: a status, and up to *limit* regions that differ."""
        if self.deadline.is_over():
            return ProveStatus.NO_TIME, []
        if not all(self._region(chain, packets).values()):
            return ProveStatus.EQUAL, []
        self.deadline.begin_part()
        status = self._run(chain, packets, limit)
        if status == ProveStatus.PAIRS:
            # The pairs of rules with memory included rules that may be unreachable.  Run again from the first
            # run on, and pair only the rules that are evaluated.
            self._strict = True
            for earlier in self._runs:
                status = self._run(*earlier, limit)
                if status != ProveStatus.EQUAL and (limit == 1 or status != ProveStatus.DIFFER):
                    return status, list(self._regions(earlier[1]))
            status = self._run(chain, packets, limit)
        self._runs.append((chain, packets))
        return status, list(self._regions(packets))

    def _run(self, chain: str, packets: PacketClass, limit: int) -> ProveStatus:
        """Compare as if effects wrote any value; if that is not equal, follow the values that they write."""
        if not self.encoding.follows:
            return self._run_once(chain, packets, limit)
        status = self._run_once(chain, packets, 1)
        if status == ProveStatus.DIFFER:
            self.prover.follow(True)
            status = self._run_once(chain, packets, limit)
            self.prover.follow(False)
        return status

    def _run_once(self, chain: str, packets: PacketClass, limit: int) -> ProveStatus:
        encoding = self.encoding
        may_drop = packets.malformed and self.question.malformed is Malformed.STRICTER
        words, sets = encoding.class_words(packets, may_drop)
        status = self.prover.enter(words, sets)
        if status != ProveStatus.EQUAL:
            return status
        region = encoding.set_words(self._region(chain, packets))
        run = PairRun(encoding.both(chain), encoding.ends(chain), region, *self.deadline.left(), limit)
        return self.prover.run(run, strict=self._strict)

    def _region(self, chain: str, packets: PacketClass) -> dict[Field, Values]:
        """The packets of a class to compare, as far as values of fields tell."""
        region = dict(hook_box(chain, self.family))
        of_class = packets.sets()
        # The prover takes a set of the region in place of that of the class.
        region |= {
            field: values.intersect(region[field]) for field, values in of_class.items() if field in region
        }
        for field, values in self.within.items():
            # Packets without a hardware address are of the classes that have the field.
            if field in packets.present and field is not Field.MAC:
                for others in (region, of_class):
                    values = values.intersect(others.get(field, values))
                region[field] = values
        return region

    def _regions(self, packets: PacketClass) -> Iterator[DifferingRegion]:
        """What the last run recorded."""
        keys, rule, verdict = self.encoding.matches.keys, self.encoding.rule, self.encoding.verdict
        for mismatch in self.prover.mismatches():
            answers = tuple((keys[key], held) for key, held in mismatch.answers)
            rules = rule(mismatch.rules[0]), rule(mismatch.rules[1])
            extra = rule(mismatch.extra[0]), rule(mismatch.extra[1])
            verdicts = verdict(mismatch.verdicts[0]), verdict(mismatch.verdicts[1])
            asked = mismatch.acted, mismatch.more, mismatch.reordered, verdicts, mismatch.asked_by
            yield DifferingRegion(packets, self._given(mismatch), answers, rules, extra, *asked)

    def _given(self, mismatch: Mismatch) -> dict[tuple[int, int], Ends]:
        """The sets of a mismatch, of which those that effects make of others are told by these."""
        given: dict[tuple[int, int], Ends] = {}
        behind: dict[int, tuple[int, Ends]] = {}  # by dimension: the next number of writes, and the set then
        for (dim, epoch), ends in sorted(mismatch.sets.items(), reverse=True):
            effect = mismatch.made.get((dim, epoch))
            # A set that stands open is not recorded: then what is behind was made by another effect.
            if effect is not None and dim in behind and behind[dim][0] == epoch + 1:
                after, made = behind[dim]
                given.pop((dim, after), None)
                ends = common(ends, before_made(self.encoding.made_by(effect, dim), made))
            behind[dim] = epoch, ends
            if dim < len(Field) or ends != (0, len(self.encoding.attributes[dim - len(Field)].cells) - 1):
                given[dim, epoch] = ends
        return given


# ---- all chains of a table at once ----


class AtOnce:
    """The ways to prove many classes, or all chains, of a table at once.

    Rules of one action may be printed in groups, or in the order of the list (ir/commuting.py), and lists in
    parts (ir/arrangement.py).  Compared in the wrong way they would cut the header space into the product of
    their fields.
    """

    def __init__(
        self, encoding: Encoding, question: Question, deadline: Deadline, chains: Sequence[str]
    ) -> None:
        self.encoding, self.question, self.deadline, self.chains = encoding, question, deadline, chains
        self._encodings: dict[int, Encoding] = {}
        self._merged: list[MergedClasses] = []
        self._is_regrouped = False  # set with `forms`

    @cached_property
    def forms(self) -> list[tuple[Table, Table]]:
        """The tables in each form that avoids the product of the fields, the likeliest first."""
        first, second = self.encoding.tables
        family = self.encoding.family
        exact = self.question.malformed is Malformed.EXACT
        cut = with_called_parts(first, second, family, exact=exact)
        # What the second program drops beyond the first must be dropped by it, not by its parts alone.
        cut_second = with_called_parts(second, first, family, exact=True)
        in_groups = grouped(first, family), grouped(second, family)
        self._is_regrouped = in_groups[0] is not first or in_groups[1] is not second
        forms = [] if cut is None else [(cut, second)]
        forms += [] if cut_second is None else [(first, cut_second)]
        forms += [in_groups] if self._is_regrouped else []
        return forms

    def by_parts(self) -> Iterator[Encoding]:
        """The tables in each of these forms."""
        return (self._encoded(form) for form in range(len(self.forms)))

    def merged(self) -> Iterator[MergedClasses]:
        """Classes that read the rules alike: in turn, until all are proved."""
        if not self._merged:
            self._merged.append(self._classes(self.encoding, self._names_in_parts))
        yield self._merged[0]
        encodings: list[Callable[[], Encoding]]
        encodings = [functools.partial(self._encoded, form) for form in range(len(self.forms))]
        if self.forms and not self._is_regrouped:
            encodings.append(lambda: self.encoding)
        for at, encoding in enumerate(encodings, 1):
            if at == len(self._merged):
                self._merged.append(self._classes(encoding(), frozenset))
            yield self._merged[at]

    def _names_in_parts(self) -> frozenset[str]:
        """The chains of the first table that some form has in parts, or in another order."""
        first = self.encoding.tables[0]
        return frozenset(
            each.name
            for form in self.forms
            for mine, other in zip(self.encoding.tables, form, strict=True)
            for each in mine.chains
            if each.name in first and each.rules is not other[each.name].rules
        )

    def _encoded(self, form: int) -> Encoding:
        if form not in self._encodings:
            encoding = self.encoding
            self._encodings[form] = Encoding(
                self.forms[form],
                encoding.family,
                encoding.backend,
                encoding.verdict_only,
                encoding.sure_answers,
            )
        return self._encodings[form]

    def _classes(self, encoding: Encoding, in_parts: Callable[[], frozenset[str]]) -> MergedClasses:
        return MergedClasses(encoding, self.question, self.deadline, self.chains, in_parts)


class Parts:
    """All chains of a table as one backend reads them, the programs cut into parts or put in groups.

    They are equal together or not at all: a memory has the same partner in all of them.
    """

    def __init__(self, at_once: AtOnce, backend: Backend) -> None:
        self.at_once, self.backend = at_once, backend

    @cached_property
    def regions(self) -> int | None:
        """The number of regions compared if all chains are equal; None if that is not shown."""
        return next(
            (found for found in map(self._regions, self.at_once.by_parts()) if found is not None), None
        )

    def _regions(self, encoding: Encoding) -> int | None:
        tables = TableProver(
            encoding.tables, encoding.read_by(self.backend), self.at_once.question, self.at_once.deadline
        )
        for chain in self.at_once.chains:
            for packets in tables.classes:
                status, differing = tables.run(chain, packets, 1)
                if differing or status != ProveStatus.EQUAL:
                    return None
        return tables.prover.regions


# ---- one pair of chains ----


class Comparison:
    """One pair of chains, as one backend reads them."""

    def __init__(self, tables: TableProver, chain: str, parts: Parts) -> None:
        self.tables, self.chain, self.parts = tables, chain, parts
        self.table, self.backend = tables.table, tables.backend
        self.why: dict[str, str] = {}  # after `first_difference`: as of MergedClasses

    def first_difference(self) -> Equal | Difference | Undecided:
        regions, rest = 0, list(self.tables.classes)
        for merged in self.parts.at_once.merged():
            looked_at, proved = merged.proved(self.chain)
            regions += looked_at
            rest = [packets for packets in rest if (self.backend, packets) not in proved]
            self.why = merged.why
            if not rest:
                return Equal(True, regions)
        if self.parts.regions is not None:
            self.why = {}
            return Equal(True, regions + self.parts.regions)
        before = self.tables.prover.regions
        for packets in rest:
            status, differing = self.tables.run(self.chain, packets, 1)
            if differing:
                return self.confirm(differing[0])
            if status != ProveStatus.EQUAL:
                return self.undecided(status, packets)
        return Equal(True, regions + self.tables.prover.regions - before)

    def undecided(self, status: ProveStatus, packets: PacketClass) -> Undecided:
        """The answer when the budget ran out in a class of packets."""
        classes = self.tables.classes
        done = (classes.index(packets) + self.tables.prover.share_done) / len(classes)
        return Undecided(WHY[status], self.table, self.chain, self.backend, done)

    def too_many_values(self, packets: PacketClass, names: Sequence[str]) -> Undecided:
        """The answer when a difference may be one of numbers of these attributes that no packet has."""
        reason = TOO_MANY_VALUES.format(" and ".join(names))
        return replace(self.undecided(ProveStatus.TOO_DEEP, packets), reason=reason)

    def doubtful_numbers(self, region: DifferingRegion) -> list[str]:
        """The attributes of which the region has numbers that perhaps no packet has."""
        coarse, attributes = self.tables.encoding.coarse, self.tables.encoding.attributes
        dims = (dim for dim, writes in region.sets if dim in coarse and writes >= coarse[dim])
        return sorted({fact.attribute for dim in dims for fact in attributes[dim - len(Field)].facts})

    # ---- a region as a packet ----

    def draft(self, region: DifferingRegion, side: int | None = None) -> Draft:
        """The plainest packet of a region, with the answers that the program *side* gets (None: both)."""
        encoding, family, packets = self.tables.encoding, self.tables.family, region.packets
        plain = ordinary(family, self.chain)
        fields: dict[tuple[Field, int], tuple[Values, bool]] = {}
        cells: dict[tuple[Attribute, int], int] = {}
        coordinates = encoding.matches.tests.coordinates
        for (dim, epoch), ends in region.sets.items():
            if dim >= len(Field):
                attribute = encoding.attributes[dim - len(Field)]
                cells[attribute, epoch] = attribute.plainest(ends)
            else:
                fields[Field(dim), epoch] = coordinates[Field(dim)].values(ends)
        values, rewrites = choose(fields, plain, packets.cut_short)
        answers = zip(region.answers, region.asked_by, strict=True)
        given = (answer for answer, by in answers if by in (None, side))
        outcomes = {(key, at): Outcome.YES for at, (key, held) in enumerate(given) if held}
        return Draft(
            family,
            values,
            packets.bytes,
            packets.bad_offset,
            packets.offset_one,
            packets.cut_short,
            numbers_of(cells),
            outcomes,
            rewrites,
        )

    def confirm(self, region: DifferingRegion) -> Difference | Undecided:
        """The difference that a packet of *region* shows, as plain as possible.

        Undecided or Disagreement when semantics does not see it.
        """
        draft = self.draft(region)
        if self.reason(draft) is None:
            copied = self._copied_memory(region)
            if copied is not None:
                return copied
            doubtful = self.doubtful_numbers(region)
            if doubtful:
                return self.too_many_values(region.packets, doubtful)
            packet = draft.packet()
            raise Disagreement(
                "the prover finds a difference that semantics does not; this is a fault of hitables, "
                f"please report it with the rule sets ({self.backend.value}: "
                f"{show_packet(packet, self.table, self.chain)})"
            )
        draft = plainer(
            draft, ordinary(self.tables.family, self.chain), lambda each: self.reason(each) is not None
        )
        asked, answers = listening(draft.packet())
        walks = [semantics.run(table, self.chain, asked, self.backend) for table in self.tables.tables]
        reason = self.reason(draft)
        assert reason is not None
        packet = answers.given_by(draft.packet())
        return Difference(self.table, self.chain, reason, self.backend, packet, answers, walks[0], walks[1])

    def reason(self, draft: Draft) -> str | None:
        """How the two programs differ on the packet; None when they do not."""
        packet = draft.packet()
        question = self.tables.question
        walks = [semantics.run(table, self.chain, packet, self.backend) for table in self.tables.tables]
        may_drop = is_malformed(packet) and question.malformed is Malformed.STRICTER
        return differs(walks[0], walks[1], may_drop, question.verdict_only)

    def _copied_memory(self, region: DifferingRegion) -> Difference | None:
        """The difference when one memory became two, which no packet shows; None: the memories match."""
        first, second = region.rules
        if first is None or second is None or not (first.rule.has_memory and second.rule.has_memory):
            return None
        reason = (
            f"the memory of the rule in line {first.rule.line} of the first is not one memory in the second: "
            f"the rule in chain {second.chain}, line {second.rule.line} shares it for some packets and not "
            "for others"
        )
        return Difference(self.table, self.chain, reason)

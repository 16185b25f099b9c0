"""All that two programs treat differently, as a short list of disjoint regions of headers.  Packets that no
kernel has (ir/unreal.py) are left out.

Idea: the prover cuts the header space where the rules do, so one changed rule may give many regions.
Regions in which the same rules decide, in the same way, are joined while the union is one set of values
per field.

Invariant: the regions of whole packets are disjoint and contain every packet that the two programs treat
differently, unless `Changes.complete` is False.  Regions of fragments and of broken headers may overlap, as
they do not give the number of bytes.

Cost: one run of the prover per class of packets, chain and backend, then joining up to MOST regions, and a
walk through both programs for each explanation, which reads few rules of long chains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain as row
from itertools import product
from math import prod

from hitables.core.prover import ProveStatus
from hitables.ir import semantics
from hitables.ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, Family, Field, top
from hitables.ir.hooks import hook_box
from hitables.ir.intervals import Values
from hitables.ir.limits_above import differ_in_above, up_to
from hitables.ir.packet import Backend, Outcome
from hitables.ir.packet_text import show_values
from hitables.ir.program import Program
from hitables.ir.rule import Kind, Role, Rule
from hitables.ir.semantics import Walk

from .deciders import Candidates, Deciders, deciders
from .exact import Comparison, DifferingRegion, Tell, comparisons
from .join_boxes import Box, join
from .packet_classes import PacketClass
from .question import Question, Undecided, comparable
from .rules_for_packet import LongChains
from .told_facts import Told
from .unentered import Unentered, unentered
from .unreal_regions import is_unreal

# Regions of one chain and class of packets, before they are joined: more than a person reads.
MOST = 4_000

WHOLE, FRAGMENTS, BROKEN = "whole", "later fragments", "broken headers"


@dataclass(frozen=True)
class RegionOutcome:
    """What one program does with the packets of a region.

    verdict  None: the same as in the other program; it varies within the region
    line     of the rule that decides; 0: the policy, or a rule without a line
    also     more lines that decide some of the packets; 0 is as of *line*
    unsure   whether rules of the same verdict may decide some of them that are not named
    effects  the first that only this program has: (effect, line)
    more     whether this program has more effects that the other one has not
    """

    verdict: str | None
    line: int
    effects: tuple[tuple[str, int], ...] = ()
    more: bool = False
    also: tuple[int, ...] = ()
    unsure: bool = False

    def without_more(self) -> RegionOutcome:
        """This outcome without the lines that decide but some of the packets."""
        return dataclasses.replace(self, also=(), unsure=False)

    def with_more_of(self, other: RegionOutcome) -> RegionOutcome:
        """This outcome, of packets that some backends decide as *other*; such lines alone differ."""
        also = tuple(sorted({*self.also, *other.also}))
        return dataclasses.replace(self, also=also, unsure=self.unsure or other.unsure)

    def decided_by(self, found: Deciders | None, box: Mapping[Field, Values]) -> RegionOutcome:
        """This outcome of the packets of *box*, with all lines that decide some; None: not known."""
        if found is None:
            return dataclasses.replace(self, unsure=True)
        lines = found.of(box)
        if not lines:
            return self
        line = self.line if self.line in lines else 0 if 0 in lines else lines[0]
        return dataclasses.replace(self, line=line, also=tuple(each for each in lines if each != line))


@dataclass(frozen=True)
class Change:
    """Packets that the two programs treat differently, all in the same way.

    packets  WHOLE, FRAGMENTS (later ones) or BROKEN (headers cut off)
    box      values by field; a missing field may have any value
    facts    CONSTANT matches, and whether they hold
    asked    matches with memory or chance that were asked, and whether they held
    headers  how many: addresses, protocol, and ports or icmp type
    reordered  both programs have the same effects in another order: their *effects* are the first that differ
    """

    table: str
    chain: str
    backends: tuple[Backend, ...]
    packets: str
    box: Mapping[Field, Values]
    facts: tuple[tuple[str, bool], ...]
    asked: tuple[tuple[str, bool], ...]
    headers: int
    before: RegionOutcome
    after: RegionOutcome
    reordered: bool = False


@dataclass
class Changes:
    """All changes, or some of them when the budget ran out or there were too many.

    regions    the changes, the largest first
    chains     table and chain of those that were compared
    undecided  chains for which the budget ran out
    cut_off    some chain has MOST regions or more
    scope      what is compared, and what is left out, where the two are of two families; a line each
    unentered  chains that differ and that no packet enters
    """

    family: Family
    regions: list[Change] = dataclasses.field(default_factory=list)
    chains: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    undecided: list[Undecided] = dataclasses.field(default_factory=list)
    cut_off: bool = False
    scope: tuple[str, ...] = ()
    unentered: tuple[Unentered, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.undecided and not self.cut_off


def changes(before: Program, after: Program, question: Question, *, tell: Tell) -> Changes:
    """Every difference, the largest region first.  Raises as `hitables.compare.check` does."""
    not_compared = tuple(unentered(before, after, question))
    before, after = comparable(before, after)
    out = _changes(before, after, question, tell)
    out.unentered = not_compared
    if out.regions and differ_in_above(before, after):
        alike = _changes(up_to(before), up_to(after), question, tell)
        differing = {(change.table, change.chain) for change in alike.regions}
        if alike.complete:
            out.regions = [each for each in out.regions if (each.table, each.chain) in differing]
    return out


def _changes(before: Program, after: Program, question: Question, tell: Tell) -> Changes:
    out = Changes(before.family)
    merged: dict[tuple[object, ...], Change] = {}
    for comparison in comparisons(before, after, question):
        tell(f"{comparison.table} {comparison.chain}, {comparison.backend.value}")
        if (comparison.table, comparison.chain) not in out.chains:
            out.chains.append((comparison.table, comparison.chain))
        for change in _changes_of_chain(comparison, out):
            content = (
                change.table, change.chain, change.packets, tuple(change.box.items()), change.facts,
                change.asked, change.before.without_more(), change.after.without_more(), change.reordered,
            )  # fmt: skip
            same = merged.get(content)
            if same is not None:
                backends = tuple(dict.fromkeys((*same.backends, *change.backends)))
                change = dataclasses.replace(
                    same,
                    backends=backends,
                    before=same.before.with_more_of(change.before),
                    after=same.after.with_more_of(change.after),
                )
            merged[content] = change
    order = {WHOLE: 0, FRAGMENTS: 1, BROKEN: 2}
    out.regions = sorted(merged.values(), key=lambda each: (order[each.packets], -each.headers))
    return out


def _kind(packets: PacketClass) -> str:
    return BROKEN if packets.malformed else FRAGMENTS if packets.later else WHOLE


def _changes_of_chain(comparison: Comparison, out: Changes) -> Iterator[Change]:
    """The changes of one pair of chains; notes in *out* why some are missing."""
    tables = [LongChains(table) for table in comparison.tables.tables]
    candidates: dict[tuple[int, str], Candidates] = {}
    for regions in explained(comparison, out):
        real = [region for region in regions if not is_unreal(comparison, region)]
        if real:
            yield from joined(comparison, real, tables, candidates)


def explained(
    comparison: Comparison,
    out: Changes,
    kinds: Collection[str] = (WHOLE, FRAGMENTS, BROKEN),
    most: int = MOST,
) -> list[list[DifferingRegion]]:
    """The regions of one pair of chains, in lists of those with one explanation.

    Only of packets of these *kinds*, and *most* of each class; none if the budget ran out.  Notes in *out*
    why some are missing.
    """
    if comparison.parts.regions is not None:
        return []  # equal, which the regions of two lists of rules that only count would take long to show
    groups: dict[tuple[object, ...], list[DifferingRegion]] = {}
    for packets in comparison.tables.classes:
        if _kind(packets) not in kinds:
            continue
        if out.cut_off and _kind(packets) != WHOLE:
            break
        status, regions = comparison.tables.run(comparison.chain, packets, most)
        if status not in (ProveStatus.EQUAL, ProveStatus.DIFFER):
            out.undecided.append(comparison.undecided(status, packets))
            return []
        doubtful = next(filter(None, map(comparison.doubtful_numbers, regions)), [])
        if doubtful:
            out.undecided.append(comparison.too_many_values(packets, doubtful))
            return []
        out.cut_off |= len(regions) >= most
        for region in regions:
            groups.setdefault(_explanation(region), []).append(region)
    return list(groups.values())


def _explanation(region: DifferingRegion) -> tuple[object, ...]:
    """All of a region but its packets: regions with one explanation may be joined."""
    rules = (None if ref is None else (ref.chain, ref.index) for ref in (*region.rules, *region.extra))
    asked = region.answers, region.asked_by
    effects = *region.acted, *region.more, region.reordered
    return _kind(region.packets), *rules, *effects, *region.verdicts, *asked


def joined(
    comparison: Comparison,
    regions: list[DifferingRegion],
    tables: Sequence[LongChains],
    candidates: dict[tuple[int, str], Candidates],
) -> Iterator[Change]:
    """The changes of regions with one explanation, as few as they can be joined to.

    *tables*: those of the comparison.  *candidates*: as of `deciders`.
    """
    first = regions[0]
    outcomes = [_outcome(comparison, first, side, tables[side]) for side in (0, 1)]
    found = [deciders(comparison, regions, side, is_unreal, candidates) for side in (0, 1)]
    for area in areas(comparison, regions):
        yield Change(
            comparison.table,
            comparison.chain,
            (comparison.backend,),
            _kind(first.packets),
            area.box,
            area.facts,
            first.answers,
            area.headers,
            outcomes[0].decided_by(found[0], area.box),
            outcomes[1].decided_by(found[1], area.box),
            first.reordered,
        )


@dataclass(frozen=True)
class Area:
    """A part of the header space; *box*, *facts* and *headers* as in `Change`.

    no_mac  whether packets without a mac address are in it
    """

    box: Mapping[Field, Values]
    no_mac: bool
    facts: tuple[tuple[str, bool], ...]
    headers: int


def areas(comparison: Comparison, regions: list[DifferingRegion]) -> Iterator[Area]:
    """Regions with one explanation as areas, as few as they can be joined to."""
    attributes = comparison.tables.encoding.attributes
    dims = len(Field) + len(attributes)
    cells = {dim: (0, len(each.cells) - 1) for dim, each in enumerate(attributes, len(Field))}
    hook = hook_box(comparison.chain, comparison.tables.family)
    kind = _kind(regions[0].packets)
    # What a rule reads after writes is a dimension of its own.
    boxes = [{dim + dims * writes: ends for (dim, writes), ends in each.sets.items()} for each in regions]
    spans = {at: cells[at % dims] for box in boxes for at in box if at % dims in cells}
    for box in join(boxes, spans):
        values = _values(comparison, box, hook, kind)
        macs = comparison.tables.encoding.matches.tests.coordinates[Field.MAC]
        _, no_mac = macs.values(box[Field.MAC])
        headers = _headers(comparison, box)
        for facts in _facts(comparison, box):
            yield Area(values, no_mac, facts, headers)


# ---- what each program does ----


def _outcome(comparison: Comparison, region: DifferingRegion, side: int, chains: LongChains) -> RegionOutcome:
    extra, verdict = region.extra[side], region.verdicts[side]
    effects = () if extra is None else ((_effect(extra.rule, region.acted[side]), extra.rule.line),)
    more = region.more[side]
    if verdict is None:
        return RegionOutcome(None, 0, effects, more)
    packet = comparison.draft(region, side).packet()
    walk = semantics.run(chains.of(packet), comparison.chain, packet, comparison.backend)
    if walk.verdict == verdict:
        return RegionOutcome(verdict, _deciding_line(walk), effects, more)
    decider = region.rules[side]  # where values are written that no packet shows
    return RegionOutcome(verdict, 0 if decider is None else decider.rule.line, effects, more)


def _effect(rule: Rule, acted: bool) -> str:
    """What a rule does to the packets that it does not decide; *acted*: its matches with memory held."""
    target = rule.target
    if acted and target is not None and target.kind is Kind.VERDICT and not target.is_final:
        return target.key
    asked = [match.key for match in rule.matches if match.role in (Role.NAMED, Role.ONCE)]
    return semantics.evaluation(asked[0]) if asked else "counts"


def _deciding_line(walk: Walk) -> int:
    if not walk.steps or walk.verdict == semantics.RETURNS:
        return 0
    last = walk.steps[-1]
    target = last.rule.target
    ends = target is not None and target.key == walk.verdict and last.outcome is Outcome.YES
    return last.rule.line if ends or last.outcome is Outcome.DROPPED else 0


# ---- boxes ----


def _values(comparison: Comparison, box: Box, hook: Mapping[Field, Values], kind: str) -> dict[Field, Values]:
    """The values of the fields that the box restricts."""
    coordinates, family = comparison.tables.encoding.matches.tests.coordinates, comparison.tables.family
    restricted: dict[Field, Values] = {}
    for field in Field:
        values, may_lack = coordinates[field].values(box[field])
        full = hook.get(field, Values(((0, top(field, family)),)))
        if field is Field.FRAG:
            of_kind = Values(((2, 2),)) if kind == FRAGMENTS else Values(((0, 1),))
            full = of_kind.intersect(hook.get(field, of_kind))
        # A packet may lack a mac, no other field.
        restricts = values != full or (field is Field.MAC and not may_lack)
        if restricts and not (kind == BROKEN and field in (Field.FRAG, Field.PROTO) and not values):
            restricted[field] = values
    return restricted


def _facts(comparison: Comparison, box: Box) -> Iterator[tuple[tuple[str, bool], ...]]:
    """The box as sets of facts that have one truth value: one set, or more if the facts cannot tell it so."""
    encoding = comparison.tables.encoding
    dims = len(Field) + len(encoding.attributes)
    sides: list[list[Told]] = []
    for at in sorted(box):
        writes, dim = divmod(at, dims)
        if dim >= len(Field):
            told = encoding.words_of(dim).told(box[at])
            sides.append([tuple((_after(key, writes), holds) for key, holds in each) for each in told])
        elif writes:
            values, _ = encoding.matches.tests.coordinates[Field(dim)].values(box[at])
            if values != Values.interval(0, top(Field(dim), encoding.family)):
                key = show_values(Field(dim), values, encoding.family)
                sides.append([((_after(key, writes), True),)])
    for sets in product(*sides):
        yield tuple(row.from_iterable(sets))


def _after(key: str, writes: int) -> str:
    """*key* of a condition that is read after so many writes, as `trace` counts them."""
    return f"{key} after {writes} write{'s' * (writes > 1)} of what it reads" if writes else key


def _headers(comparison: Comparison, box: Box) -> int:
    coordinates, family = comparison.tables.encoding.matches.tests.coordinates, comparison.tables.family

    def count(field: Field) -> int:
        return coordinates[field].count(box[field])

    icmp = ICMP if family is Family.IPV4 else ICMPV6
    ports = count(Field.SPORT) * count(Field.DPORT)
    protocols, _ = coordinates[Field.PROTO].values(box[Field.PROTO])
    numbers = (number for low, high in protocols.pairs for number in range(low, high + 1))
    carried = sum(
        ports if number in PORT_PROTOCOLS else count(Field.ICMP) if number == icmp else 1
        for number in numbers
    )
    return prod((count(Field.SRC), count(Field.DST), carried))

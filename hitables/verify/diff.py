"""All that two programs treat differently, as a short list of disjoint regions of headers.

The prover cuts the header space where the rules do, so one change of a rule may come out in
many pieces: those with the same story on both sides are joined again, as long as what
comes out is one set of values per field.

Invariant: the regions of whole packets are disjoint, and hold all that the two programs treat
differently, unless `Changes.complete` is False.  Those of fragments and of broken headers may meet, as they
say nothing of the number of bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from hitables.core._engine import lib
from hitables.ir import semantics
from hitables.ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, Family, Field, top
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend, Outcome
from hitables.ir.program import Program
from hitables.ir.rule import Role, Rule
from hitables.ir.semantics import Walk

from ..ir.hooks import hook_box
from .encoding import Place
from .exact import Comparison, Region, Tell, comparisons
from .packet_classes import PacketClass
from .question import Question, Undecided, with_all_tables

# Regions of one chain and class of packets, before they are joined: more than a person will read.
MOST = 4_000

WHOLE, FRAGMENTS, BROKEN = "whole", "later fragments", "broken headers"

Ends = tuple[int, ...]
Box = tuple[Ends, ...]


@dataclass(frozen=True)
class Fate:
    """What becomes of the packets of a region in one program.

    verdict  None: it is as in the other program, and differs within the region
    line     of the rule that decides; 0: none does, the policy or a made rule
    effects  what alone happens here: (effect, line)
    """

    verdict: str | None
    line: int
    effects: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Change:
    """Packets that the two programs treat differently, all in the same way.

    packets  WHOLE, FRAGMENTS (later ones) or BROKEN (headers cut off)
    box      values by field; a field left out is not constrained
    facts    truth of CONSTANT matches that it takes; asked: answers of matches with memory
    headers  how many: addresses, protocol, and ports or icmp type
    """

    table: str
    chain: str
    backends: tuple[Backend, ...]
    packets: str
    box: Mapping[Field, Values]
    facts: tuple[tuple[str, bool], ...]
    asked: tuple[tuple[str, bool], ...]
    headers: int
    before: Fate
    after: Fate


@dataclass
class Changes:
    """complete: these are all; else *undecided* says where the budget ran out, or there were too many."""

    family: Family
    found: list[Change] = field(default_factory=list)
    chains: list[tuple[str, str]] = field(default_factory=list)  # table and chain of those looked at
    undecided: list[Undecided] = field(default_factory=list)
    cut_off: bool = False

    @property
    def complete(self) -> bool:
        return not self.undecided and not self.cut_off


def changes(before: Program, after: Program, question: Question, *, tell: Tell) -> Changes:
    """Every difference, the largest region first.  Raises as `hitables.compare.check` does."""
    before, after = with_all_tables(before, after)
    out = Changes(before.family)
    found: dict[tuple[object, ...], Change] = {}
    for comparison in comparisons(before, after, question):
        tell(f"{comparison.table} {comparison.chain}, {comparison.backend.value}")
        if (comparison.table, comparison.chain) not in out.chains:
            out.chains.append((comparison.table, comparison.chain))
        for change in _of_chain(comparison, out):
            what = (
                change.table, change.chain, change.packets, tuple(change.box.items()), change.facts,
                change.asked, change.before, change.after,
            )  # fmt: skip
            known = found.get(what)
            if known is not None:
                change = _with_backends(known, (*known.backends, *change.backends))
            found[what] = change
    order = {WHOLE: 0, FRAGMENTS: 1, BROKEN: 2}
    out.found = sorted(found.values(), key=lambda each: (order[each.packets], -each.headers))
    return out


def _with_backends(change: Change, backends: tuple[Backend, ...]) -> Change:
    return Change(
        change.table,
        change.chain,
        tuple(dict.fromkeys(backends)),
        change.packets,
        change.box,
        change.facts,
        change.asked,
        change.headers,
        change.before,
        change.after,
    )


def _kind(packets: PacketClass) -> str:
    return BROKEN if packets.malformed else FRAGMENTS if packets.later else WHOLE


def _of_chain(comparison: Comparison, out: Changes) -> Iterator[Change]:
    groups: dict[tuple[object, ...], list[Region]] = {}
    for packets in comparison.prover.classes:
        if out.cut_off and _kind(packets) != WHOLE:
            break
        status, regions = comparison.prover.run(comparison.chain, packets, MOST)
        if status not in (lib.PROVE_EQUAL, lib.PROVE_DIFFER):
            out.undecided.append(comparison.undecided(status, packets))
            return
        out.cut_off |= len(regions) >= MOST
        for region in regions:
            groups.setdefault(_story(region), []).append(region)
    for regions in groups.values():
        yield from _joined(comparison, regions)


def _story(region: Region) -> tuple[object, ...]:
    """Regions with one story may be told together."""
    rest = tuple(sorted((at, ends) for at, ends in region.sets.items() if at[1]))
    rules = (_where(each) for each in (*region.places, *region.alone))
    return _kind(region.packets), *rules, region.same, region.asked, rest


def _where(place: Place | None) -> tuple[str, int] | None:
    return None if place is None else (place.chain, place.index)


def _joined(comparison: Comparison, regions: list[Region]) -> Iterator[Change]:
    prover = comparison.prover
    dims = len(Field) + len(prover.lowering.facts)
    boxes = join({tuple(region.sets[dim, 0] for dim in range(dims)) for region in regions})
    first = regions[0]
    draft = comparison.draft(first)
    packet = draft.packet()
    walks = [semantics.run(table, comparison.chain, packet, comparison.backend) for table in prover.tables]
    fates = [_fate(walk, first, side) for side, walk in enumerate(walks)]
    hook = hook_box(comparison.chain, prover.family)
    for box in boxes:
        values, facts = _values(comparison, box, hook, _kind(first.packets))
        yield Change(
            comparison.table,
            comparison.chain,
            (comparison.backend,),
            _kind(first.packets),
            values,
            facts,
            first.asked,
            _headers(comparison, box),
            fates[0],
            fates[1],
        )


def _fate(walk: Walk, region: Region, side: int) -> Fate:
    effects: tuple[tuple[str, int], ...] = ()
    alone = region.alone[side]
    if alone is not None:
        effects = ((_effect(alone.rule), alone.rule.line),)
    if region.same:
        return Fate(None, 0, effects)
    parted = region.places[side]
    if parted is not None and not effects:
        asked = _asked_at(parted, walk)
        if asked is not None:
            effects = ((f"asks {asked}", parted.rule.line),)
    return Fate(walk.verdict, _deciding_line(walk), effects)


def _effect(rule: Rule) -> str:
    return "counts" if rule.target is None else rule.target.key


def _asked_at(place: Place, walk: Walk) -> str | None:
    """The match with memory that the walk asked at *place*."""
    for step in walk.steps:
        if (step.chain, step.index) == (place.chain, place.index):
            asked = [match.key for match in step.rule.matches if match.role in (Role.NAMED, Role.ONCE)]
            return asked[0] if asked else None
    return None


def _deciding_line(walk: Walk) -> int:
    if not walk.steps or walk.verdict == semantics.RETURNS:
        return 0
    last = walk.steps[-1]
    target = last.rule.target
    ends = target is not None and target.key == walk.verdict and last.outcome is Outcome.YES
    return last.rule.line if ends or last.outcome is Outcome.DROPPED else 0


def join(boxes: Iterable[Box]) -> list[Box]:
    """Fewer boxes with the same points: those that differ in one dimension alone become one.

    The boxes must be disjoint.
    """
    current = list(boxes)
    while True:
        count = len(current)
        for dim in range(len(current[0]) if current else 0):
            if len({box[dim] for box in current}) == 1:
                continue
            groups: dict[Box, list[Ends]] = {}
            for box in current:
                groups.setdefault((*box[:dim], *box[dim + 1 :]), []).append(box[dim])
            current = [(*rest[:dim], _union(parts), *rest[dim:]) for rest, parts in groups.items()]
        if len(current) == count:
            return current


def _union(parts: list[Ends]) -> Ends:
    if len(parts) == 1:
        return parts[0]
    pairs = (pair for ends in parts for pair in zip(ends[::2], ends[1::2], strict=True))
    return tuple(end for pair in Values.of(*pairs).pairs for end in pair)


def _values(
    comparison: Comparison, box: Box, hook: Mapping[Field, Values], kind: str
) -> tuple[dict[Field, Values], tuple[tuple[str, bool], ...]]:
    lowering, family = comparison.prover.lowering, comparison.prover.family
    found: dict[Field, Values] = {}
    for which in Field:
        coordinates, ends = lowering.coordinates[which], box[which]
        parts = [coordinates.values(ends[at], ends[at + 1]) for at in range(0, len(ends), 2)]
        values = Values.of(*(pair for each, _ in parts for pair in each.pairs))
        lacks = which is Field.MAC and any(none for _, none in parts)
        full = hook.get(which, Values(((0, top(which, family)),)))
        if which is Field.FRAG:
            full = Values(((2, 2),)) if kind == FRAGMENTS else Values(((0, 1),))
        told = values != full if which is not Field.MAC else not (lacks and values == full)
        if told and not (kind == BROKEN and which in (Field.FRAG, Field.PROTO) and not values):
            found[which] = values
    facts = tuple(
        (key, box[len(Field) + at] == (1, 1))
        for at, key in enumerate(lowering.facts)
        if box[len(Field) + at] in ((0, 0), (1, 1))
    )
    return found, facts


def _headers(comparison: Comparison, box: Box) -> int:
    lowering, family = comparison.prover.lowering, comparison.prover.family

    def count(which: Field) -> int:
        ends = box[which]
        coordinates = lowering.coordinates[which]
        return sum(len(coordinates.values(ends[at], ends[at + 1])[0]) for at in range(0, len(ends), 2))

    icmp = ICMP if family is Family.IPV4 else ICMPV6
    ports = count(Field.SPORT) * count(Field.DPORT)
    ends = box[Field.PROTO]
    protocols: list[int] = []
    for at in range(0, len(ends), 2):
        values, _ = lowering.coordinates[Field.PROTO].values(ends[at], ends[at + 1])
        protocols += (number for low, high in values.pairs for number in range(low, high + 1))
    carried = sum(
        ports if number in PORT_PROTOCOLS else count(Field.ICMP) if number == icmp else 1
        for number in protocols
    )
    return prod((count(Field.SRC), count(Field.DST), carried))

"""The result of `hitables diff` as text, as JSON and as a `Report`.

The changes (regions of headers) that the same lines decide form a `Group`, and each group becomes one
finding.  The text describes a group by its largest regions; it lists fragments and broken headers separately
only where they are not treated like whole packets.  Where there are more groups than it may list, it joins
those that differ in one line alone.  Changed verdicts come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..emit.text import rule_text
from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.program import Program, Table
from ..ir.rule import Rule
from ..ir.semantics import evaluation
from ..nouns import counted
from ..verify.diff import BROKEN, FRAGMENTS, WHOLE, Change, Changes, RegionOutcome
from ..verify.question import KERNEL_POLICY, Undecided
from .finding import Case, Finding, Report, SourceLine
from .region_text import conditions, describe, describe_conditions
from .unentered import note

AT_END = ("returns", KERNEL_POLICY)  # the verdicts of the ends of chains that are no policies
_KINDS = {WHOLE: "", FRAGMENTS: "later fragments, ", BROKEN: "packets with broken headers, "}


REGIONS = 3  # of one group that the text describes
LINES = 3  # that the text names of those which decide the packets of one group


@dataclass(frozen=True, eq=False)
class ChangeGroup:
    """Changes of one chain and one kind of packets that the same lines decide; the largest region first.

    before, after  what the two rule sets do, of a joined group in its first region
    reordered      as of its changes
    """

    table: str
    chain: str
    packets: str
    before: RegionOutcome
    after: RegionOutcome
    reordered: bool
    regions: tuple[Change, ...]

    @property
    def place(self) -> tuple[str, str]:
        return self.table, self.chain

    @property
    def headers(self) -> int:
        return sum(change.headers for change in self.regions)

    @property
    def changes_verdict(self) -> bool:
        return self.before.verdict != self.after.verdict

    @property
    def outcomes(self) -> tuple[list[RegionOutcome], list[RegionOutcome]]:
        """Those of each region in each rule set."""
        return [change.before for change in self.regions], [change.after for change in self.regions]

    @property
    def lines(self) -> tuple[list[int], list[int]]:
        """The lines that decide in each rule set; 0: the policy."""
        before = {line for change in self.regions for line in (change.before.line, *change.before.also)}
        after = {line for change in self.regions for line in (change.after.line, *change.after.also)}
        return sorted(before), sorted(after)


def show(
    changes: Changes,
    names: tuple[str, str],
    limit: int | None,
    rest: str = "--limit",
    *,
    lines_of: tuple[str, str] = ("", ""),
    tells_backend: bool = True,
) -> str:
    """An entry for each group, changed verdicts first, then that of most headers; the groups beyond *limit*
    are only counted.

    rest           how the user lists those
    lines_of       for each rule set, what has the lines that are named; "": the file that the user gave
    tells_backend  whether the backend is named where only one treats the packets differently
    """
    every = _groups(changes.regions)
    described = {id(each): describe(each.box, changes.family) for each in changes.regions}
    groups, also = _without_repetition(every, described)
    for key in (_but_line_before, _but_line_after):
        if limit is not None and len(groups) > limit:
            every = _joined(every, key)
            groups, also = _without_repetition(every, described)
    shown = groups[:limit]
    lines: list[str] = []
    place: tuple[str, str] | None = None
    for group in _by_chain(shown):
        if group.place != place:
            place = group.place
            lines.append(f"table {group.table}, chain {group.chain}:")
        lines += [f"  {what(change, changes.family)}" for change in group.regions[:REGIONS]]
        if len(group.regions) > REGIONS:
            lines.append(f"  … and {counted(len(group.regions) - REGIONS, 'smaller region')}")
        backend = _backend(group.regions[0]) if tells_backend else []
        notes = "; ".join([*backend, *(f"also {kind}" for kind in also[group])])
        lines.append(f"    {_treatment(group, lines_of)}" + (f"  ({notes})" if notes else ""))
    if len(shown) < len(groups):
        lines.append(f"… and {counted(len(groups) - len(shown), 'more change')} ({rest})")
    if changes.cut_off:
        lines.append("There are more differences than can be listed; these are some of them.")
    lines += [_trouble(each) for each in changes.undecided]
    if not lines:
        families = ", as far as both families can be compared" if changes.scope else ""
        lines.append(f"{names[0]} and {names[1]} treat every packet the same{families}.")
    return "\n".join(lines)


def _groups(changes: list[Change]) -> list[ChangeGroup]:
    """Groups of whole packets first, then of fragments and broken headers; in each kind changed verdicts
    first, then by headers.
    """
    regions: dict[tuple[str, str, str, RegionOutcome, RegionOutcome, bool], list[Change]] = {}
    for change in changes:
        # What decides some packets of one region alone, of those that a line decides, makes no group.
        treatment = change.before.without_more(), change.after.without_more()
        key = change.table, change.chain, change.packets, *treatment, change.reordered
        regions.setdefault(key, []).append(change)
    groups = [ChangeGroup(*key, tuple(of_key)) for key, of_key in regions.items()]
    return _in_order(groups)


def _in_order(groups: list[ChangeGroup]) -> list[ChangeGroup]:
    kinds = [WHOLE, FRAGMENTS, BROKEN]
    return sorted(
        groups, key=lambda group: (kinds.index(group.packets), not group.changes_verdict, -group.headers)
    )


def _but_line_before(group: ChangeGroup) -> object:
    """All of a group but the line that decided its packets."""
    return group.place, group.packets, group.reordered, replace(group.before, line=0), group.after


def _but_line_after(group: ChangeGroup) -> object:
    """All of a group but the lines that decide its packets."""
    but_lines = replace(group.before, line=0), replace(group.after, line=0)
    return group.place, group.packets, group.reordered, *but_lines


def _joined(groups: list[ChangeGroup], key: Callable[[ChangeGroup], object]) -> list[ChangeGroup]:
    """Groups of one key as one; of those that change no verdict, each stays as it is."""
    of_key: dict[object, list[ChangeGroup]] = {}
    for group in groups:
        of_key.setdefault(key(group) if group.changes_verdict else group, []).append(group)
    return _in_order([_as_one(each) for each in of_key.values()])


def _as_one(groups: list[ChangeGroup]) -> ChangeGroup:
    """Groups that differ in lines alone, as one with the lines of the first: the largest regions first."""
    if len(groups) == 1:
        return groups[0]
    regions = [change for group in groups for change in group.regions]
    return replace(groups[0], regions=tuple(sorted(regions, key=lambda change: -change.headers)))


def _without_repetition(
    groups: list[ChangeGroup], described: Mapping[int, str]
) -> tuple[list[ChangeGroup], dict[ChangeGroup, list[str]]]:
    """The groups that repeat no other, and for each the kinds of packets of those that repeat it.

    *described*: the boxes of changes in words, by the id of the change.
    """
    first: dict[object, ChangeGroup] = {}
    also: dict[ChangeGroup, list[str]] = {}
    for group in groups:
        regions = frozenset(
            (described[id(each)], each.facts, each.asked, each.backends) for each in group.regions
        )
        treatment = group.before, group.after, group.reordered, *map(tuple, group.lines)
        original = first.setdefault((group.place, treatment, regions), group)
        if original is group:
            also[group] = []
        else:
            also[original].append(group.packets)
    return list(also), also


def _by_chain(groups: list[ChangeGroup]) -> list[ChangeGroup]:
    """Chain by chain, in the order of their largest groups."""
    places = list(dict.fromkeys(group.place for group in groups))
    return sorted(groups, key=lambda group: places.index(group.place))


def what(change: Change, family: Family) -> str:
    """The packets of *change* in words."""
    asked = dict.fromkeys(change.asked)  # both rule sets may ask, each a rule of its own
    words = describe_conditions(conditions(change.facts, asked))
    return _KINDS[change.packets] + describe(change.box, family) + words


def _treatment(group: ChangeGroup, lines_of: tuple[str, str]) -> str:
    """How the two rule sets treat a region: verdicts, then the effects of one of them alone.

    *lines_of*: as of `show`.
    """
    before, after = group.before, group.after
    asked = {evaluation(key) for change in group.regions for key, _ in change.asked}
    parts = []
    if group.changes_verdict:
        unsure = [any(each.unsure for each in side) for side in group.outcomes]
        was, now = map(_decided, (before, after), group.lines, lines_of, unsure)
        parts.append(f"was {was}, now {now}")
    if group.reordered:
        was, now = (
            f"first {effect}{_at(line, file)}"
            for (effect, line), file in zip((before.effects[0], after.effects[0]), lines_of, strict=True)
        )
        return "; ".join([*parts, f"the same effects in another order: {was}, now {now}"])
    for words, outcome, file in (("no longer", before, lines_of[0]), ("now also", after, lines_of[1])):
        for effect, line in outcome.effects:
            if not (group.changes_verdict and effect in asked):  # which the packets are told by
                more = " and more" if outcome.more else ""
                parts.append(f"{words} {effect}{_at(line, file)}{more}")
    return "; ".join(parts)


def _decided(outcome: RegionOutcome, lines: list[int], file: str, unsure: bool) -> str:
    named = [str(line) for line in lines if line]
    at_end = [] if all(lines) else ["at the end" if outcome.verdict in AT_END else "by policy"]
    rest = [f"{len(named) - LINES} more"] if len(named) > LINES + 1 else []
    named = named[:LINES] if rest else named
    by_lines = [f"by line{'s' * (len(named) > 1)} {_listed([*named, *rest])}{_of(file)}"] if named else []
    # Rules behind which the same verdict follows were not looked for.
    others = ["perhaps by rules before"] if unsure else []
    return f"{outcome.verdict} {_listed([*by_lines, *at_end, *others])}"


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _at(line: int, file: str) -> str:
    return f" (line {line}{_of(file)})" if line else ""


def _of(file: str) -> str:
    return f" of {file}" if file else ""


def _backend(change: Change) -> list[str]:
    return [] if set(change.backends) == set(Backend) else [f"{change.backends[0].value} only"]


def report(changes: Changes, before: Program, after: Program, limit: int | None, seconds: float) -> Report:
    """All groups as findings; the text leaves out those beyond *limit*."""
    names = before.name, after.name
    found = findings(changes, names, (before, after))
    cases = [
        Case(table, f"chain {chain}", 0.0, tuple(each for each in found if each.scope == (table, chain)))
        for table, chain in changes.chains
    ]
    cases += [Case(each.table, f"chain {each.chain}", trouble=_trouble(each)) for each in changes.undecided]
    status = 1 if found else 2 if changes.undecided else 0
    notes = [f"note: {each}" for each in _notes(changes)]
    text = "\n".join([show(changes, names, limit), *changes.scope, *notes]) + "\n"
    return Report("diff", names, status, tuple(found), tuple(cases), seconds, as_json(changes, names), text)


def _notes(changes: Changes) -> list[str]:
    # The rules of two families are never spelled alike.
    return [] if changes.scope else note(changes.unentered)


def findings(
    changes: Changes,
    names: tuple[str, str],
    programs: tuple[Program | None, Program | None] = (None, None),
    lines_of: tuple[str, str] = ("", ""),
) -> list[Finding]:
    """A finding for each group of *changes* between the rule sets of these *names*.

    Without *programs*, its places have verdicts in place of rules.  *lines_of*: as of `show`.
    """
    before, after = (_Rules(program) for program in programs)
    return [
        _finding(group, changes.family, names, (before, after), lines_of)
        for group in _groups(changes.regions)
    ]


class _Rules:
    """The rules of a program by their lines."""

    def __init__(self, program: Program | None) -> None:
        self._tables = {table.name: table for table in program or ()}
        self._by_line: dict[str, dict[int, tuple[str, Rule]]] = {}

    def table(self, name: str) -> Table | None:
        return self._tables.get(name)

    def at(self, table: Table, line: int) -> tuple[str, Rule] | None:
        """The first rule of *line* of *table*, after the name of its chain."""
        if table.name not in self._by_line:
            by_line = self._by_line[table.name] = {}
            for chain in table.chains:
                for rule in chain.rules:
                    by_line.setdefault(rule.line, (chain.name, rule))
        return self._by_line[table.name].get(line)


def _finding(
    group: ChangeGroup,
    family: Family,
    names: tuple[str, str],
    rules: tuple[_Rules, _Rules],
    lines_of: tuple[str, str],
) -> Finding:
    regions = [what(change, family) for change in group.regions[:REGIONS]]
    treatment = _treatment(group, lines_of)
    return Finding(
        "different-verdict" if group.changes_verdict else "different-effects",
        "warning",
        f"table {group.table}, chain {group.chain}: {regions[0]}: {treatment}",
        (
            _place(names[1], group, group.after, "after", rules[1]),
            _place(names[0], group, group.before, "before", rules[0]),
        ),
        group.place,
        details={"regions": regions, "headers": str(group.headers)},
        text="\n".join([*regions, treatment]),
        marks=(
            *(what(change, family) for change in group.regions),
            *(effect for outcome in (group.before, group.after) for effect, _ in outcome.effects),
        ),
    )


def _place(name: str, group: ChangeGroup, outcome: RegionOutcome, role: str, rules: _Rules) -> SourceLine:
    """The rule that has the effect, else the rule or the policy that decides."""
    line = outcome.effects[0][1] if outcome.effects else outcome.line
    table = rules.table(group.table)
    if table is None or group.chain not in table:
        return SourceLine(name, line, outcome.verdict or "", role)
    found = rules.at(table, line) if line else None
    if found is not None:
        of, rule = found
        return SourceLine(name, line, rule_text(rule._replace(counters=None), of), role)
    chain = table[group.chain]
    return SourceLine(name, chain.line or table.line, f":{chain.name} {chain.end or '-'}", role)


def _trouble(undecided: Undecided) -> str:
    return (
        f"undecided: {undecided.reason} in table {undecided.table}, chain {undecided.chain}, "
        f"{undecided.backend.value}: {undecided.done:.0%} done"
    )


def as_json(changes: Changes, names: tuple[str, str]) -> dict[str, Any]:
    """All changes; *headers* as a decimal string, since it may exceed 64 bits."""
    return {
        "before": names[0],
        "after": names[1],
        "family": int(changes.family),
        "complete": changes.complete,
        "scope": list(changes.scope),
        "notes": _notes(changes),
        "changes": [_change(change, changes.family) for change in changes.regions],
    }


def _change(change: Change, family: Family) -> dict[str, Any]:
    return {
        "table": change.table,
        "chain": change.chain,
        "backends": [backend.value for backend in change.backends],
        "packets": change.packets,
        "words": what(change, family),
        "box": {
            field.name.lower(): [[str(low), str(high)] for low, high in values.pairs]
            for field, values in change.box.items()
        },
        "facts": [{"key": key, "holds": holds} for key, holds in change.facts],
        "asked": [{"key": key, "yes": yes} for key, yes in change.asked],
        "headers": str(change.headers),
        "reordered": change.reordered,
        "before": _outcome(change.before),
        "after": _outcome(change.after),
    }


def _outcome(outcome: RegionOutcome) -> dict[str, Any]:
    effects = [{"effect": effect, "line": line} for effect, line in outcome.effects]
    return {
        "verdict": outcome.verdict,
        "line": outcome.line,
        "also": list(outcome.also),
        "unsure": outcome.unsure,
        "effects": effects,
        "more": outcome.more,
    }

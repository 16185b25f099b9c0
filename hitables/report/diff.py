"""What `hitables diff` tells: every change in a few lines, and as a `Report` for the other formats."""

from __future__ import annotations

from typing import Any

from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.program import Program
from ..verify.diff import BROKEN, FRAGMENTS, WHOLE, Change, Changes, RegionOutcome
from ..verify.question import Undecided
from .finding import Case, Finding, Place, Report
from .region_text import describe

_WHAT = {WHOLE: "", FRAGMENTS: "later fragments, ", BROKEN: "packets with broken headers, "}


REGIONS = 3  # of one story that are told in words

Story = tuple[str, str, str, RegionOutcome, RegionOutcome]


def show(found: Changes, names: tuple[str, str], limit: int | None) -> str:
    """One entry per story, the one of most headers first; how many were left out."""
    lines: list[str] = []
    stories, alike = _folded(_stories(found.regions), found.family)
    shown = stories[:limit]
    place: tuple[str, str] | None = None
    for story, regions in _by_chain(shown):
        if story[:2] != place:
            place = story[:2]
            lines.append(f"table {place[0]}, chain {place[1]}:")
        lines += [f"  {what(change, found.family)}" for change in regions[:REGIONS]]
        if len(regions) > REGIONS:
            lines.append(f"  … and {len(regions) - REGIONS} smaller regions")
        headers = sum(change.headers for change in regions)
        told = f"{_count(headers)} headers{_backend(regions[0])}"
        also = "".join(f"; {kind} alike" for kind in alike[story])
        lines.append(f"    {_tell(regions[0])}  ({told}{also})")
    if len(shown) < len(stories):
        lines.append(f"… and {len(stories) - len(shown)} changes more (--limit)")
    if found.cut_off:
        lines.append("There are more differences than can be told; these are some of them.")
    lines += [_trouble(each) for each in found.undecided]
    if not lines:
        lines.append(f"{names[0]} and {names[1]} treat every packet alike.")
    return "\n".join(lines)


def _stories(changes: list[Change]) -> list[tuple[Story, list[Change]]]:
    """Regions that the same lines decide, together; those of whole packets first, then by headers."""
    groups: dict[Story, list[Change]] = {}
    for change in changes:
        story = change.table, change.chain, change.packets, change.before, change.after
        groups.setdefault(story, []).append(change)
    order = [WHOLE, FRAGMENTS, BROKEN]
    return sorted(
        groups.items(), key=lambda each: (order.index(each[0][2]), -sum(one.headers for one in each[1]))
    )


def _folded(
    stories: list[tuple[Story, list[Change]]], family: Family
) -> tuple[list[tuple[Story, list[Change]]], dict[Story, list[str]]]:
    """Stories, less those that fragments or broken headers have in common with whole packets;
    and which kinds of packets share each."""
    first: dict[object, Story] = {}
    kept: list[tuple[Story, list[Change]]] = []
    alike: dict[Story, list[str]] = {}
    for story, regions in stories:
        words = frozenset(
            (describe(each.box, family), each.facts, each.asked, each.backends) for each in regions
        )
        known = first.setdefault((story[:2], story[3:], words), story)
        if known is story:
            kept.append((story, regions))
            alike[story] = []
        else:
            alike[known].append(story[2])
    return kept, alike


def _by_chain(stories: list[tuple[Story, list[Change]]]) -> list[tuple[Story, list[Change]]]:
    """Chain by chain, in the order of their largest stories."""
    places = list(dict.fromkeys(story[:2] for story, _ in stories))
    return sorted(stories, key=lambda each: places.index(each[0][:2]))


def what(change: Change, family: Family) -> str:
    """The packets, in words."""
    words = _WHAT[change.packets] + describe(change.box, family)
    for key, holds in change.facts:
        words += f', where "{key}" {"holds" if holds else "does not hold"}'
    for key, yes in change.asked:
        words += f', when "{key}" says {"yes" if yes else "no"}'
    return words


def _tell(change: Change) -> str:
    before, after = change.before, change.after
    parts = []
    if before.verdict != after.verdict:
        parts.append(f"was {_verdict(before)}, now {_verdict(after)}")
    elif before.verdict is not None:
        parts.append(f"{_verdict(before)}, now {_line(after)}")
    parts += [f"no longer {effect}{_at(line)}" for effect, line in before.effects]
    parts += [f"now also {effect}{_at(line)}" for effect, line in after.effects]
    return "; ".join(parts)


def _verdict(fate: RegionOutcome) -> str:
    return f"{fate.verdict} {_line(fate)}"


def _line(fate: RegionOutcome) -> str:
    return f"by line {fate.line}" if fate.line else "by policy" if fate.verdict != "returns" else "at the end"


def _at(line: int) -> str:
    return f" (line {line})" if line else ""


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**7 else f"{number:.1e}"


def _backend(change: Change) -> str:
    return "" if set(change.backends) == set(Backend) else f", {change.backends[0].value} alone"


def report(found: Changes, before: Program, after: Program, limit: int | None, seconds: float) -> Report:
    """All stories as findings; the text leaves out those beyond *limit*."""
    names = before.name, after.name
    findings = [_finding(story, regions, found.family, names) for story, regions in _stories(found.regions)]
    cases = [
        Case(table, f"chain {chain}", 0.0, tuple(each for each in findings if each.scope == (table, chain)))
        for table, chain in found.chains
    ]
    cases += [Case(each.table, f"chain {each.chain}", trouble=_trouble(each)) for each in found.undecided]
    status = 1 if findings else 2 if found.undecided else 0
    return Report(
        "diff",
        status,
        tuple(findings),
        tuple(cases),
        seconds,
        as_json(found, names),
        show(found, names, limit) + "\n",
    )


def _finding(story: Story, regions: list[Change], family: Family, names: tuple[str, str]) -> Finding:
    first = regions[0]
    table, chain = story[:2]
    verdict = first.before.verdict != first.after.verdict
    told = [what(change, family) for change in regions]
    message = f"table {table}, chain {chain}: {told[0]}: {_tell(first)}"
    return Finding(
        "different-verdict" if verdict else "different-effects",
        "warning",
        message,
        (_place(names[1], first.after, "after"), _place(names[0], first.before, "before")),
        (table, chain),
        details={"regions": told[:REGIONS], "headers": str(sum(change.headers for change in regions))},
        text="\n".join([*told[:REGIONS], _tell(first)]),
    )


def _place(name: str, fate: RegionOutcome, role: str) -> Place:
    """The rule that has the effect, else the one that decides."""
    line = fate.effects[0][1] if fate.effects else fate.line
    return Place(name, line, fate.verdict or "", role)


def _trouble(undecided: Undecided) -> str:
    return (
        f"undecided: {undecided.reason} in table {undecided.table}, chain {undecided.chain}, "
        f"{undecided.backend.value}: {undecided.done:.0%} done"
    )


def as_json(found: Changes, names: tuple[str, str]) -> dict[str, Any]:
    """All changes; *headers* as a decimal string, since it may exceed 64 bits."""
    return {
        "before": names[0],
        "after": names[1],
        "family": int(found.family),
        "complete": found.complete,
        "changes": [_change(change, found.family) for change in found.regions],
    }


def _change(change: Change, family: Family) -> dict[str, Any]:
    return {
        "table": change.table,
        "chain": change.chain,
        "backends": [backend.value for backend in change.backends],
        "packets": change.packets,
        "words": what(change, family),
        "box": {
            which.name.lower(): [[str(low), str(high)] for low, high in values.pairs]
            for which, values in change.box.items()
        },
        "facts": [{"key": key, "holds": holds} for key, holds in change.facts],
        "asked": [{"key": key, "yes": yes} for key, yes in change.asked],
        "headers": str(change.headers),
        "before": _fate(change.before),
        "after": _fate(change.after),
    }


def _fate(fate: RegionOutcome) -> dict[str, Any]:
    effects = [{"effect": effect, "line": line} for effect, line in fate.effects]
    return {"verdict": fate.verdict, "line": fate.line, "effects": effects}

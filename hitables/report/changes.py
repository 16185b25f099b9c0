"""What `hitables diff` prints: every change in a few lines, or as JSON (schema/diff.json)."""

from __future__ import annotations

from typing import Any

from ..ir.fields import Family
from ..ir.packet import Backend
from ..verify.changes import BROKEN, FRAGMENTS, WHOLE, Change, Changes, Fate
from .words import describe

_WHAT = {WHOLE: "", FRAGMENTS: "later fragments, ", BROKEN: "packets with broken headers, "}


REGIONS = 3  # of one story that are told in words

Story = tuple[str, str, str, Fate, Fate]


def show(found: Changes, names: tuple[str, str], limit: int | None) -> str:
    """One entry per story, the one of most headers first; how many were left out."""
    lines: list[str] = []
    stories = _stories(found.found)
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
        lines.append(f"    {_tell(regions[0])}  ({_count(headers)} headers{_backend(regions[0])})")
    if len(shown) < len(stories):
        lines.append(f"… and {len(stories) - len(shown)} changes more (--limit)")
    if found.cut_off:
        lines.append("There are more differences than can be told; these are some of them.")
    for each in found.undecided:
        lines.append(
            f"undecided: {each.reason} in table {each.table}, chain {each.chain}, "
            f"{each.backend.value}: {each.done:.0%} done"
        )
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


def _verdict(fate: Fate) -> str:
    return f"{fate.verdict} {_line(fate)}"


def _line(fate: Fate) -> str:
    return f"by line {fate.line}" if fate.line else "by policy" if fate.verdict != "returns" else "at the end"


def _at(line: int) -> str:
    return f" (line {line})" if line else ""


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**7 else f"{number:.1e}"


def _backend(change: Change) -> str:
    return "" if set(change.backends) == set(Backend) else f", {change.backends[0].value} alone"


def as_json(found: Changes, names: tuple[str, str]) -> dict[str, Any]:
    """All changes; *headers* as a decimal string, since it may exceed 64 bits."""
    return {
        "version": 1,
        "before": names[0],
        "after": names[1],
        "complete": found.complete,
        "changes": [_change(change, found.family) for change in found.found],
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


def _fate(fate: Fate) -> dict[str, Any]:
    effects = [{"effect": effect, "line": line} for effect, line in fate.effects]
    return {"verdict": fate.verdict, "line": fate.line, "effects": effects}

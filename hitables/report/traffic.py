"""`hitables traffic`: the report as text of 80 columns, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import MissingLibrary
from ..locality import QUANTILES, REASONS, TOPS, WINDOW, Repetition, TrafficReport
from .svg import svg

WIDTH = 80


def to_text(report: TrafficReport) -> str:
    """The report, lines of at most WIDTH columns (the name of the file may be longer)."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: TrafficReport) -> Iterator[str]:
    flows = report.flows
    about = "about " if flows.sample > 1 else ""
    yield f"{report.source}:"
    time = "" if report.seconds is None else f" in {_number(report.seconds)} s"
    size = "" if report.bytes is None else f", {report.bytes:,} bytes"
    yield f"{report.packets:,} packets of {about}{flows.keys:,} flows{time}{size} ({report.form})"
    yield from _noted("skipped", report.skipped)
    yield from _noted("noted", report.noted)
    if report.cut_off:
        yield f"  the file ends in mid-record: {report.cut_off:,} bytes of it are left out"
    if flows.sample > 1:
        yield f"  flows are a sample: {flows.followed:,} of them, 1 in {flows.sample:,}"
    yield ""
    yield from _sizes("flow", flows)
    yield from _active(report)
    columns = [("flows", flows)]
    if report.rules:
        columns.append(("rules", report.rules))
        yield f"The packets match {report.rules.keys - bool(report.unmatched):,} rules; " + (
            f"{report.unmatched:,} match none (counted as a rule)."
            if report.unmatched
            else "each matches one."
        )
        yield ""
    yield from _popular(columns)
    yield from _distances(columns)
    yield "Burst length: mean run of packets of one flow in a bucket of a hash table"
    yield "  buckets " + "".join(f"{buckets:>10,}" for buckets, _ in report.bursts)
    yield "  length  " + "".join(f"{_number(length):>10}" for _, length in report.bursts)


def _noted(title: str, counts: dict[str, int] | None) -> Iterator[str]:
    """The counts that are not 0, each on a line."""
    for name, count in (counts or {}).items():
        if count:
            yield f"  {title}: {count:,} {REASONS[name]}"


def _number(value: float) -> str:
    """Three figures, or all those before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %" if value < 0.9995 or value == 1 else f"{100 * value:.3f} %"


def _sizes(name: str, of: Repetition) -> Iterator[str]:
    yield f"Packets per {name}: mean {_number(of.mean)}, at most {of.most:,}"
    yield "  share of flows   " + "".join(f"{f'{100 * at:g} %':>8}" for at in QUANTILES)
    yield "  at most packets  " + "".join(f"{value:>8,.0f}" for value in of.quantiles)
    yield ""


def _active(report: TrafficReport) -> Iterator[str]:
    unit = "packet" if report.seconds is None else "second"
    yield f"Active flows by {unit}: begun before the interval ends, not ended before it"
    highest = max(each.flows for each in report.active)
    for each in report.active:
        bar = "#" * round(40 * each.flows / highest) if highest else ""
        yield f"  from {_number(each.begin):>11} {each.flows:>14,} {bar}"
    yield ""


def _popular(columns: Sequence[tuple[str, Repetition]]) -> Iterator[str]:
    yield "Share of packets of the most popular" + "".join(f"{top:>10}" for top in TOPS)
    for name, of in columns:
        yield f"  {f'{name}, all packets':<34}" + "".join(f"{_share(share):>10}" for share in of.shares)
        if of.sample > 1:
            yield f"  {'  or more by at most':<34}" + "".join(
                f"{_share(share):>10}" for share in of.shares_error
            )
        if of.window_shares is not None:
            title = f"{name}, per {WINDOW:,} packets"
            yield f"  {title:<34}" + "".join(f"{_share(share):>10}" for share in of.window_shares)
    for name, of in columns:
        if of.window_keys is not None:
            yield f"  {name} in {WINDOW:,} packets: {_number(of.window_keys)}"
    yield ""


def _distances(columns: Sequence[tuple[str, Repetition]]) -> Iterator[str]:
    yield "Stack distance: others since the last packet of the same; share of packets below"
    yield "  below        " + "".join(f"{name:>10}" for name, _ in columns)
    longest = max(len(of.distances) for _, of in columns)
    for power in range(0, longest, 1 if longest <= 12 else 2):
        shares = (of.distances[min(power, len(of.distances) - 1)] for _, of in columns)
        yield f"  {1 << power:<13,}" + "".join(f"{_share(share):>10}" for share in shares)
    yield "  first packets" + "".join(f"{_share(of.first):>10}" for _, of in columns)
    yield ""


def to_svg(report: TrafficReport) -> str:
    """Packets per flow, active flows, stack distances, burst lengths; MissingLibrary without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingLibrary("drawing a picture needs matplotlib: pip install 'hitables[plot]'") from None
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    (sizes, active), (distance, burst) = figure.subplots(2, 2)
    columns = [("flows", report.flows)] + ([("rules", report.rules)] if report.rules else [])
    for name, of in columns:
        left = [sum(each.keys for each in of.sizes[number:]) / of.keys for number in range(len(of.sizes))]
        sizes.plot([each.least for each in of.sizes], left, marker="o", markersize=3, label=name)
        below = [1 << power for power in range(len(of.distances))]
        distance.plot(below, of.distances, marker="o", markersize=3, label=name)
    sizes.set(xscale="log", yscale="log", xlabel="packets", ylabel="share with at least as many")
    sizes.set_title("packets per flow" + (", per rule" if report.rules else ""))
    distance.set(xscale="log", ylim=(0, 1), xlabel="stack distance", ylabel="share of packets below")
    distance.set_title("stack distance")
    if report.rules:
        sizes.legend()
        distance.legend()
    edges = [report.active[0].begin, *(each.end for each in report.active)]
    active.stairs([each.flows for each in report.active], edges, fill=True)
    active.set(
        xlabel="packets" if report.seconds is None else "seconds", ylabel="flows", title="active flows"
    )
    burst.plot(*zip(*report.bursts, strict=True), marker="o", markersize=3)
    burst.set(
        xscale="log", ylim=(0, None), xlabel="buckets", ylabel="packets", title="burst length per bucket"
    )
    return svg(figure)

"""Trees in the List (Hager, Selent, Scheuermann): the paper beside the data of benchmarks.conext2014."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ..conext2014 import TOOL, gains
from ..conext2014_tables import PUBLISHED_SECONDS
from .page import Paper, Result, Row, chosen, number, span, the

# Figure 5d: the longest path of the synthetic sets, and of all.
LONGEST_SYNTHETIC, LONGEST = 40.0, 1939.0
GROWTH_FW1_10K = 208.0


def results(hitables: Row, saturation: Row) -> Iterator[Result]:
    """Each figure of the paper, and the claims of its text that have a number."""
    yield Result(
        "figures 1, 3, 4",
        "worked examples: a tree, a dispatch, a binary search",
        "listed",
        "the same, to the letter",
        "`tests/compiler/test_conext2014_figures.py`",
    )
    yield Result(
        "figure 2",
        "runs and other rules in turn",
        "a drawing",
        "built",
        "`tests/compiler/test_conext2014.py`",
    )
    yield from paths(hitables)
    yield from growth(hitables)
    yield from building(hitables)
    yield from times(hitables, saturation)


def paths(hitables: Row) -> Iterator[Result]:
    tool = [
        (row, TOOL[row["set"], row["binth"], row["cuts"]])
        for row in chosen(hitables["public"], scheme="tool")
        if (row["set"], row["binth"], row["cuts"]) in TOOL
    ]
    yield Result(
        "figure 5a",
        "mean path over that of the tool of 2014, public sets",
        1.0,
        span(row["mean"] / found[1] for row, found in tool),
        "`--dispatch tool`; the paper gives curves, the tool gives numbers",
    )
    for scheme, called in (("paper", "the paper's scheme"), ("tree", "the default")):
        rows = chosen(hitables["public"], scheme=scheme)
        yield Result(
            "figure 5a",
            f"times shorter paths, public sets, {called}",
            "grows with the set",
            span(row["linear"] / row["mean"] for row in rows),
        )
        sizes = chosen(hitables["sizes"], scheme=scheme)
        yield Result(
            "figure 5a",
            f"times shorter paths, s_100 and s_{max(row['rules'] for row in sizes)}, {called}",
            "grows with the set",
            "; ".join(
                number(statistics.fmean(row["linear"] / row["mean"] for row in chosen(sizes, rules=rules)))
                for rules in (100, max(row["rules"] for row in sizes))
            ),
        )
        yield Result(
            "figure 5d",
            f"longest path of a synthetic set, {called}",
            LONGEST_SYNTHETIC,
            float(max(row["longest"] for row in sizes)),
        )
    for scheme, called in (("tool", "the paper's scheme, as the tool printed it"), ("tree", "the default")):
        rows = [row for row in chosen(hitables["public"], scheme=scheme) if row["set"] == "fw1_10K"]
        binth = max(row["binth"] for row in rows)
        yield Result(
            "figure 5d",
            f"longest path of fw1_10K, {called}",
            LONGEST,
            float(the(rows, binth=binth)["longest"]),
            f"binth {binth}"
            if scheme == "tool"
            else "groups of rules by the addresses in which they are specific",
        )


def growth(hitables: Row) -> Iterator[Result]:
    for scheme, called in (("tool", "as the tool printed it"), ("paper", "figure 4 to the letter")):
        row = the(hitables["public"], scheme=scheme, set="fw1_10K", binth=20)
        yield Result("figure 5e", f"growth of fw1_10K, {called}", GROWTH_FW1_10K, row["growth"], "binth 20")
        others = [
            each for each in chosen(hitables["public"], scheme=scheme) if not each["set"].startswith("fw1")
        ]
        yield Result(
            "figure 5e",
            f"growth of the other public sets, {called}",
            "most below 10",
            span(each["growth"] for each in others),
        )
    yield Result(
        "figure 5e",
        "growth of the public sets, the default",
        "",
        span(row["growth"] for row in chosen(hitables["public"], scheme="tree")),
        "bounded by `--max-expansion`",
    )


def building(hitables: Row) -> Iterator[Result]:
    for row in hitables["build"]:
        if row["set"] == "fw1_10K":
            yield Result(
                "figure 5f",
                f"s to transform fw1_10K at binth {row['binth']}",
                PUBLISHED_SECONDS[row["binth"]],
                row["seconds"],
                f"its trees alone take {number(row['trees'])} s; the rest prints "
                f"{number(row['growth'])} times its rules",
            )


def times(hitables: Row, saturation: Row) -> Iterator[Result]:
    """Figures 5b and 5c by processor time and by packets received."""
    for scheme, called in (("paper", "the paper's scheme"), ("tree", "the default")):
        sizes = chosen(hitables["sizes"], scheme=scheme)
        for rules in (100, max(row["rules"] for row in sizes)):
            measured = [gains(row["ns"])[0] for row in chosen(sizes, rules=rules) if "ns" in row]
            received = the(saturation["sizes"], rules=rules, scheme=scheme)
            yield Result(
                "figure 5b",
                f"times faster without I/O, {rules:,} rules, {called}",
                "below 1" if rules == 100 else "over ten",
                span(measured),
                f"by processor time; in packets received at saturation with I/O {mean(received['with_io'])}, "
                f"by the processor clock of that run {mean(received['cpu_without_io'])}",
            )
        barred = chosen(hitables["barred"], scheme=scheme)
        for count in (0, max(row["barred"] for row in barred)):
            measured = [gains(row["ns"])[0] for row in chosen(barred, barred=count) if "ns" in row]
            received = the(saturation["barred"], barred=count, scheme=scheme)
            yield Result(
                "figure 5c",
                f"times faster without I/O, 1,000 rules, {count} that cannot be transformed, {called}",
                "falls with their number" if count else "as in figure 5b",
                span(measured),
                f"by processor time; in packets received with I/O {mean(received['with_io'])}",
            )


def mean(value: Row) -> str:
    """Mean and deviation, where there are several runs."""
    shown = number(value["mean"])
    return f"{shown} ± {number(value['deviation'])}" if value["deviation"] is not None else shown


PAPER = Paper(
    "hitables",
    {"hitables": "make papers-hitables", "hitables-saturation": "make papers-hitables-saturation"},
    results,
    tuple(f"figure {at}" for at in (1, 2, 3, 4, "5a", "5b", "5c", "5d", "5e", "5f")),
)

"""SFL (Hager, Brack, Scheuermann): its figures and tables beside the data of benchmarks.lcn2016."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..lcn2016_sets import FORMS, STATIC
from .page import Paper, Result, Row, chosen, number, span, the

# Table II: millions of headers in ten seconds, and updates done, with 100 and 600 insertions asked for.
PAPER = {
    "linear": ((1.2, 100.0), (0.8, 599.7)),
    "tss": ((2.4, 100.0), (2.3, 557.2)),
    "hypersplit": ((4.5, 75.6), (1.9, 81.1)),
    "sfl(hypersplit)": ((28.7, 100.0), (11.2, 560.1)),
    "rfc": ((16.0, 44.1), (4.5, 64.1)),
    "sfl(rfc)": ((43.6, 75.7), (21.8, 288.2)),
    "bit_vector": ((17.8, 100.0), (5.4, 264.3)),
    "sfl(bit_vector)": ((31.0, 100.0), (23.0, 599.7)),
}
ASKED = (100, 600)
PAPER_SECONDS = 10
# Figure 8: the least delta with which all 100 updates are done in ten seconds.
PAPER_DELTAS = {"hypersplit": 10.0, "rfc": 50.0, "bit_vector": 0.0}
# Table I: the exponent of the rules in the worst case of a build.
PAPER_BUILDS = {"rfc": 5.0, "hypersplit": 5.0, "bit_vector": 2.0}


def results(sfl: Row, kernel: Row) -> Iterator[Result]:
    """Each figure and table of the paper, and the claims of its text that have a number."""
    yield Result(
        "figures 1, 2, 3, 4",
        "control flow; the structure after updates",
        "drawings",
        "built",
        "`hitables/core/c/classify/sfl.c`, `tests/engine/test_sfl.py`",
    )
    yield from complexities(sfl["table1"])
    yield from isolated(sfl["figure5"])
    yield from updates_and_headers(sfl["table2"], sfl["runs"]["table2"]["parameters"]["sets"])
    yield from over_delta(sfl["deltas"])
    yield from in_the_kernel(kernel)


def complexities(rows: list[Row]) -> Iterator[Result]:
    for name, worst in PAPER_BUILDS.items():
        there = chosen(rows, case="rules", plan=FORMS["paper"][name])
        fitted = [each for row in there for each in row["exponents"].get("spawn", {}).get("runs", ())]
        sizes = [size for row in there for size in row["sizes"]]
        yield Result(
            "table I",
            f"exponent of the rules in a build, {name}",
            worst,
            span(fitted),
            f"the paper's is the worst case, ours is fitted from {min(sizes):,} to {max(sizes):,} generated "
            "rules",
        )
    deleted = [
        each
        for inner in STATIC
        for row in chosen(rows, case="deleted", plan=FORMS["paper"][f"sfl({inner})"])
        for each in row["exponents"].get("classify", {}).get("runs", ())
    ]
    yield Result(
        "table I",
        "exponent of the rules in a search whose rule was deleted, SFL in the paper's form",
        1.0,
        span(deleted),
        "the rules behind the deleted one are read one by one; beyond the caches each costs more",
    )


def isolated(rows: list[Row]) -> Iterator[Result]:
    most = max(row["updates"] for row in rows)
    for place, kind in (("figure 5a", "insert"), ("figure 5b", "delete")):
        for form, called in (("paper", "the paper's form"), ("ours", "ours")):
            gains = [
                seconds(rows, form, inner, kind, most) / seconds(rows, form, f"sfl({inner})", kind, most)
                for inner in STATIC
            ]
            yield Result(
                place,
                f"time of {most} {kind}s, A over SFL(A), {called}",
                "orders of magnitude",
                span(gains),
                "A is rebuilt for each",
            )
    for place, kind in (("figure 5c", "insert"), ("figure 5d", "delete")):
        for form, called in (("paper", "the paper's form"), ("ours", "ours")):
            slower = [
                the(rows, plan=FORMS[form][f"sfl({inner})"], kind=kind, updates=most)["ns"]["mean"]
                / the(rows, plan=FORMS[form][inner], kind=kind, updates=most)["ns"]["mean"]
                for inner in STATIC
            ]
            tss = the(rows, plan=FORMS[form]["tss"], kind=kind, updates=most)["ns"]["mean"]
            fastest = the(rows, plan=FORMS[form]["sfl(rfc)"], kind=kind, updates=most)["ns"]["mean"]
            yield Result(
                place,
                f"ns of a search after {most} {kind}s, SFL(A) over A, {called}",
                "above 1",
                span(slower),
                f"tuple space search takes {number(tss / fastest)} times what SFL(RFC) does",
            )


def seconds(rows: list[Row], form: str, name: str, kind: str, updates: int) -> float:
    return float(the(rows, plan=FORMS[form][name], kind=kind, updates=updates)["seconds"]["mean"])


def updates_and_headers(rows: list[Row], sets: int) -> Iterator[Result]:
    for at, asked in enumerate(ASKED):
        for name, published in PAPER.items():
            millions, done = published[at]
            paper, ours = (
                the(rows, plan=FORMS[form][name], kind="insert", updates=asked) for form in FORMS_IN_TURN
            )
            yield Result(
                "table II",
                f"{name}: million headers a second, {asked} inserts in {ours['seconds']:g} s, {sets} sets",
                millions / PAPER_SECONDS,
                per_second(paper),
                f"the paper's form; ours {number(per_second(ours))}. Inserts done: {number(done)} in the "
                f"paper, {number(paper['done']['mean'])} and {number(ours['done']['mean'])} here",
            )
    for other, called in (("tss", "tuple space search"), ("A", "A")):
        for form, named in (("paper", "the paper's form"), ("ours", "ours")):
            gains, published_gains = [], []
            for inner in STATIC:
                against = inner if other == "A" else other
                mine, theirs = (
                    per_second(the(rows, plan=FORMS[form][name], kind="insert", updates=100))
                    for name in (f"sfl({inner})", against)
                )
                gains.append(mine / theirs)
                published_gains.append(PAPER[f"sfl({inner})"][0][0] / PAPER[against][0][0])
            yield Result(
                "figure 6, table II",
                f"headers of SFL(A) over those of {called}, 100 inserts, {named}",
                span(published_gains),
                span(gains),
                "of HyperSplit, RFC and bit vectors the least and the most"
                + (f"; {_built_often(rows, form)}" if other == "A" else ""),
            )


def _built_often(rows: list[Row], form: str) -> str:
    """How often A is built anew without SFL, where updates come faster than it is."""
    asked = max(row["updates"] for row in rows)
    counts = [
        the(rows, plan=FORMS[form][inner], kind="insert", updates=asked)["done"]["mean"] for inner in STATIC
    ]
    slowest = the(rows, plan=FORMS[form]["linear"], kind="insert", updates=asked)["seconds"] / min(counts)
    return (
        f"a build of A takes at most {number(1000 * slowest)} ms here, so that the list, which SFL replaces, "
        "seldom answers"
    )


FORMS_IN_TURN = ("paper", "ours")


def per_second(row: Row) -> float:
    """Million headers a second."""
    return headers(row) / float(row["seconds"])


def over_delta(rows: list[Row]) -> Iterator[Result]:
    for seconds in whole_durations(rows):
        for inner in STATIC:
            for form in FORMS_IN_TURN:
                yield from of_one(chosen(rows, seconds=seconds, kind="insert"), inner, form)


def whole_durations(rows: list[Row]) -> list[float]:
    """The durations that are measured at every delta, the shortest first."""
    counts = Counter(row["seconds"] for row in rows)
    return sorted(seconds for seconds, count in counts.items() if count == max(counts.values()))


def of_one(rows: list[Row], inner: str, form: str) -> Iterator[Result]:
    """Figures 7 and 8 for one classifier, from rows of one duration."""
    there = chosen(rows, algorithm=inner, form=form)
    without = the(rows, plan=FORMS[form][inner], delta=0)
    seconds, sets = without["seconds"], min(len(row["rebuilds"]) for row in there)
    measured = f"in {seconds:g} s, {sets} set{'s' if sets > 1 else ''}, {inner}, {form}"
    all_done = [row["delta"] for row in there if row["done"]["mean"] >= row["updates"]]
    yield Result(
        "figure 8",
        f"least delta with which all 100 inserts are done {measured}",
        PAPER_DELTAS[inner],
        float(min(all_done)) if all_done else "none",
        f"A alone does {number(without['done']['mean'])}; an insert comes every "
        f"{1000 * seconds / without['updates']:.0f} ms",
    )
    best = max(there, key=headers)
    widest = max(there, key=lambda row: row["delta"])
    yield Result(
        "figure 7",
        f"headers with the best delta over those of A {measured}",
        "above 1 up to delta 10",
        headers(best) / headers(without),
        f"the best delta is {best['delta']}; with {widest['delta']} it is "
        f"{number(headers(widest) / headers(without))}",
    )


def headers(row: Row) -> float:
    """Millions."""
    return float(row["millions"]["mean"])


def in_the_kernel(kernel: Row) -> Iterator[Result]:
    for backend in ("legacy", "nft"):
        rows = kernel["parts"][f"rules-{backend}"]
        rate = max(row["rate"] for row in rows)
        for row in chosen(rows, rate=rate):
            if not row["asked"]:
                continue
            done = 100 * row["done"]["mean"] / row["asked"]
            yield Result(
                "(beyond)",
                f"table II in the kernel, {backend}, {row['way']}: packets a second, {rate} updates a second",
                "",
                row["per_second"]["mean"],
                f"{number(done)} % of the updates done in {row['seconds']:g} s",
            )


RECORD = Paper(
    "sfl",
    {"sfl": "make papers-sfl", "sfl-kernel": "make papers-sfl-kernel"},
    results,
    (
        *(f"figure {at}" for at in (1, 2, 3, 4, "5a", "5b", "5c", "5d", 6, 7, 8)),
        "table I",
        "table II",
    ),
)

"""The layer-4 comparison (Sahasranaman, Buddhikot): the paper beside the data of benchmarks.layer4."""

from __future__ import annotations

from collections.abc import Iterator

from .page import Paper, Result, Row, chosen, number, span, the, words

# The paper's structures, by the plan that is as near to them as parameters lead.
GRID, TSS, PACARS = "grid_of_tries", "tss_tries(table=1)", "pacars(cascade=0, list=1)"
CASCADING = "pacars(list=1)"
NAMES = {GRID: "Grid-of-Tries", TSS: "TSS", PACARS: "PACARS"}
# Table 2, F1 to F3: µs of a search, µs of a build, KB.
SEARCH = {GRID: (1.63, 2.017, 1.798), TSS: (6.25, 6.72, 6.07), PACARS: (5.511, 6.608, 5.38)}
BUILD = {GRID: (1212.0, 3033.0, 781.0), TSS: (53.39, 54.60, 56.41), PACARS: (52.11, 88.34, 51.34)}
SPACE = {GRID: (32.06, 63.376, 25.88), TSS: (229.48, 257.44, 224.88), PACARS: (13.7, 34.989, 9.30)}
FIREWALLS = ("F1", "F2", "F3")
TUPLES_F2, HASHES_F2 = 22.0, 2.5  # section 4.2
# Table 3: filters at the root, µs of a search.
ROOT = {59: 3.412, 117: 4.287, 206: 5.004, 408: 6.089}
ONE_FILTER = 1.88  # µs, Grid-of-Tries
LINES = {"grid_of_tries": 1074.0, "tss_tries": 1385.0, "pacars": 3854.0}  # table 4
LARGE = 32000


def results(layer4: Row, events: Row) -> Iterator[Result]:
    """Each figure and table of the paper, and the claims of its text that have a number."""
    yield Result(
        "figures 1, 2, 3, 4, 5",
        "the structures, the operating-system extensions, the test setup",
        "drawings",
        "built, in user space",
        "`hitables/core/c/classify/`, `tests/engine/test_database.py`, `tests/engine/test_filters.py`",
    )
    yield from compression(layer4["compression"])
    yield from firewalls(layer4["firewall"])
    yield from random_filters(layer4)
    yield from dynamic(layer4)
    yield from size_of_code(layer4["lines"])
    yield from answers(events)


def compression(rows: list[Row]) -> Iterator[Result]:
    def row(factor: int, form: str, filters: int) -> Row:
        return the(rows, algorithm="pacars", factor=factor, form=form, filters=filters)

    for factor in (2, 4, 8):
        plain, bitmap = (row(factor, form, LARGE)["bytes"] for form in ("plain", "bitmap"))
        yield Result(
            "table 1, figure 6",
            f"% that bitmaps save of a quadtree with {LARGE:,} filters, factor {factor}",
            97.0 if factor == 8 else "",
            100 * (1 - bitmap / plain),
            "the paper's is of the pointers of a node; a tree has lists besides" if factor == 8 else "",
        )
    for filters in (2000, LARGE):
        sizes = [row(factor, "plain", filters)["bytes"] for factor in (2, 4, 8)]
        yield Result(
            "figure 6",
            f"bytes of a plain quadtree at factors 4 and 8 over those at 2, {filters:,} filters",
            "about 1; a blow-up",
            f"{number(sizes[1] / sizes[0])}; {number(sizes[2] / sizes[0])}",
        )
        for kind, named in (("walk_us", "in batches"), ("walk_alone_us", "one header at a time")):
            walks = [row(factor, "plain", filters)[kind] for factor in (2, 4, 8)]
            yield Result(
                "figure 7",
                f"time of the descent alone at factors 4 and 8 over that at 2, {filters:,} filters, {named}",
                "far below 1",
                f"{number(walks[1] / walks[0])}; {number(walks[2] / walks[0])}",
            )
            slower = [
                row(factor, "bitmap", filters)[kind] / row(factor, "plain", filters)[kind]
                for factor in (2, 4, 8)
            ]
            counted = [
                row(factor, "bitmap, counted by an instruction", filters)[kind]
                / row(factor, "plain", filters)[kind]
                for factor in (2, 4, 8)
            ]
            yield Result(
                "figure 7",
                f"time of the descent with bitmaps over that without, {filters:,} filters, {named}",
                (3.0, 4.0),
                span(slower),
                f"with an instruction that counts bits {words(span(counted))}",
            )


def firewalls(rows: list[Row]) -> Iterator[Result]:
    for quantity, published, key, scale in (
        ("µs of a search, one at a time", SEARCH, "alone_us", 1),
        ("µs of a build", BUILD, "build_us", 1),
        ("KB", SPACE, "bytes", 1024),
    ):
        for plan, name in NAMES.items():
            there = [the(rows, set=each, plan=plan)[key] / scale for each in FIREWALLS]
            yield Result(
                "table 2",
                f"{quantity}, {name}, F1 to F3",
                span(published[plan]),
                span(there),
                "the paper's firewalls are not public: made ones of as many filters, on a processor of today",
            )
    for plan in (TSS, PACARS):
        slower = [
            the(rows, set=each, plan=plan)["alone_us"] / the(rows, set=each, plan=GRID)["alone_us"]
            for each in FIREWALLS
        ]
        yield Result(
            "table 2",
            f"search of {NAMES[plan]} over that of Grid-of-Tries",
            span(one / other for one, other in zip(SEARCH[plan], SEARCH[GRID], strict=True)),
            span(slower),
        )
    second = the(rows, set="F2", plan=TSS)
    yield Result("section 4.2", "tuples of F2", TUPLES_F2, float(second["tuples"]))
    yield Result("section 4.2", "hashes of a search in F2, TSS", HASHES_F2, second["hashes"])


def random_filters(layer4: Row) -> Iterator[Result]:
    rows = layer4["random"]
    for plan, name in NAMES.items():
        times = [the(rows, plan=plan, filters=filters)["alone_us"] for filters in (1000, 8000)]
        yield Result(
            "figure 8",
            f"search of 8,000 random filters over that of 1,000, {name}",
            "almost 1" if plan == GRID else "above 1",
            times[1] / times[0],
            f"{number(times[0])} and {number(times[1])} µs, one header at a time",
        )
    for occupancy, published in ROOT.items():
        row = the(layer4["root"], occupancy=occupancy, lists="skip lists")
        yield Result(
            "table 3",
            f"µs of a search, {occupancy} filters at the root",
            published,
            row["alone_us"],
            f"the root's skip lists alone; empty ones take {number(row['empty_alone_us'])}",
        )
    for filters in (8000, LARGE):
        plain, woven = (the(rows, plan=plan, filters=filters)["alone_us"] for plan in (PACARS, CASCADING))
        yield Result(
            "section 4.2",
            f"search of PACARS with cascading over that without, skip lists, {filters:,} random filters",
            "significantly below 1",
            woven / plain,
        )
    for row in chosen(layer4["correlation"], plan=TSS):
        yield Result(
            "section 4.2",
            f"correlation of time and hashes, TSS, {row['over']}",
            1.0,
            row["r"],
            f"{row['points']} points",
        )
    one = the(layer4["one"], plan=GRID, filters=1)["alone_us"]
    many = the(layer4["one"], plan=GRID, filters=8000)["alone_us"]
    yield Result(
        "section 4.2",
        "µs of a search of one fully specified filter, Grid-of-Tries",
        ONE_FILTER,
        one,
        f"with 8,000 filters {number(many)}",
    )


def dynamic(layer4: Row) -> Iterator[Result]:
    rows = layer4["dynamic"]
    for kind, named in (("routed", "routed addresses"), ("edge", "filters of the edge")):
        for filters in (1000, LARGE):
            tss, pacars = (the(rows, kind=kind, plan=plan, filters=filters) for plan in (TSS, PACARS))
            yield Result(
                "figure 9",
                f"search of TSS over that of PACARS, {filters:,} filters and flows, {named}",
                "about 1" if kind == "routed" else "above 1",
                tss["alone_us"] / pacars["alone_us"],
                f"{number(tss['alone_us'])} and {number(pacars['alone_us'])} µs, one header at a time",
            )
            for update in ("insert", "remove"):
                yield Result(
                    "figure 10",
                    f"{update} of TSS over that of PACARS, {filters:,} filters, {named}",
                    "above 1",
                    tss[f"{update}_us"] / pacars[f"{update}_us"],
                    f"{number(tss[f'{update}_us'])} and {number(pacars[f'{update}_us'])} µs; in the paper "
                    "below 100",
                )


def size_of_code(lines: Row) -> Iterator[Result]:
    for name, published in LINES.items():
        yield Result(
            "table 4",
            f"lines of C, {name}",
            published,
            float(lines[name]),
            f"besides {number(lines['shared'])} that they share",
        )


def answers(events: Row) -> Iterator[Result]:
    """The second operating-system extension (section 3.2), which the paper does not measure."""
    for part, named in (
        ("latency", "in one process"),
        ("socket", "by a Unix socket"),
        ("connections", "connections between two namespaces"),
    ):
        there = [row for row in events[part] if row["plan"] != GRID]
        yield Result(
            "figure 4",
            f"µs from a packet to the filter that answers it in force, {named}",
            "",
            span(row["insert_median_us"] for row in there),
            "medians; Grid-of-Tries, which is rebuilt for each filter, aside",
        )


PAPER = Paper(
    "layer4",
    {"layer4": "make papers-layer4", "events": "make papers-events"},
    results,
    tuple(f"figure {at}" for at in range(1, 11)) + tuple(f"table {at}" for at in range(1, 5)),
)

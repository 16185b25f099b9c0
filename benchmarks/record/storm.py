"""Storm (Ma, Lu, Banerjee, Estan): its figures and tables beside the data of benchmarks.storm."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from .page import Paper, Result, Row, chosen, number, span, the, words

# The preset whose packets are as local as those of the paper's traces, and the one that is least so.
LOCAL, SPREAD = "edge, s 2.2", "backbone"
# Nine rules of ten permit, the others deny.
CLASSES = "90"
PAPER_D2 = 2000.0  # ns of a search of HyperCuts
SETS = tuple(f"R{number}" for number in range(1, 8))
PAPER_WARM_UP = {"R1": 5, "R2": 4, "R3": 13, "R4": 12, "R5": 1, "R6": 26, "R7": 79}  # ms, 4-2-1
PAPER_SIZES = {10: (95.21, 93.92), 20: (82.01, 96.55), 30: (96.52, 96.52)}  # entries: ns a packet, % of hits
PAPER_COPIES = (1.55, 4.16)  # two copies over one: 55 to 316 % more


def results(storm: Row, cores: Row, hot: Row) -> Iterator[Result]:
    """Each figure and table of the paper, and the claims of its text that have a number."""
    yield from examples()
    yield from hits(storm)
    yield from searches(storm)
    yield from rates(storm)
    yield from real_rates(cores)
    yield from lessons(storm)
    yield from real_lessons(cores)
    yield from in_the_kernel(hot)


def examples() -> Iterator[Result]:
    """What the paper draws or lists and does not measure."""
    yield Result("figure 1", "SRC's framework", "a drawing", "not built", "it is another system's hardware")
    yield Result(
        "tables 1, 2, 3; figures 4, 5",
        "worked examples",
        "listed",
        "the same but for two slips of the paper",
        "`tests/engine/test_evolving.py`: the unique elements 3, 6, 3, 4, 2 have the mean 3.6, not 3.2, and "
        "the rule of figure 5 is approved by rule 4 only over UDP",
    )
    yield Result(
        "figure 2",
        "the pipeline",
        "a drawing",
        "built",
        "`hitables/core/c/storm/pipeline.c`, `tests/engine/test_storm.py`",
    )
    yield Result(
        "table 4",
        "the rule sets",
        "R1 to R7",
        "R1 to R5 generated, R6 and R7 of WUSTL",
        "R1 to R5 are not public",
    )


def hits(storm: Row) -> Iterator[Result]:
    own = chosen(storm["hits"], classes=CLASSES, every=16)
    for preset, paper, why in (
        (
            LOCAL,
            (95.0, 98.0),
            "the 20 most popular rules hold nearly all packets there, as in the paper's traces",
        ),
        (
            SPREAD,
            (95.0, 98.0),
            "an evolving rule lies in one original rule, so that hits are bounded by the share of the 20 "
            "most popular rules. The paper's traces are not public",
        ),
    ):
        steady = span(100 * row["steady"] for row in chosen(own, preset=preset))
        yield Result("figure 9", f"hit ratio in %, R1 to R7, 20 entries, {preset}", paper, steady, why)
    originals = {
        name: 100 * the(storm["unevolved"], set=name, preset=LOCAL, classes=CLASSES)["steady"]
        for name in SETS
    }
    lost = {name: 100 * the(own, set=name, preset=LOCAL)["steady"] - originals[name] for name in SETS}
    overlapping = [name for name in SETS if lost[name] > 3]
    others = [name for name in SETS if lost[name] <= 3]
    yield Result(
        "section 3.2",
        f"hit ratio in % with 20 original rules, {LOCAL}",
        "fewer hits",
        span(originals.values()),
        f"{words(span(lost[name] for name in overlapping))} points fewer than evolving rules where rules "
        f"overlap ({', '.join(overlapping)}), at most {number(max(lost[name] for name in others))} on the "
        "other sets",
    )
    for name in ("R3", "R7"):
        ramp = the(storm["ramp"], set=name, preset=LOCAL)
        above = next(at for at, ratio in enumerate(ramp["by_ms"], 1) if ratio > 0.9)
        yield Result(
            "figure 8",
            f"ms until a millisecond has 90 % of hits, {name}, {LOCAL}",
            30.0,
            float(above),
            f"a sample takes {number(ramp['sample_ns'] / 1000)} µs here",
        )
    windows = chosen(storm["windows"], window=1024, classes=CLASSES)
    yield Result(
        "section 3.2.3",
        f"evolving rules of 1,024 samples, {LOCAL}",
        (20.0, 30.0),
        span(row["evolving"] for row in chosen(windows, preset=LOCAL)),
        f"{words(span(row['evolving'] for row in chosen(windows, preset=SPREAD)))} on {SPREAD}",
    )
    for entries, (_, paper_hits) in PAPER_SIZES.items():
        row = the(storm["cache"], preset=LOCAL, cache=entries)
        yield Result(
            "table 5",
            f"hit ratio in % with {entries} entries, R3, {LOCAL}",
            paper_hits,
            100 * row["hit_ratio"],
        )
    behind = the(storm["delays"], set="R3", preset=LOCAL, inner="hypercuts")["d2_batch_ns"]
    delay = {
        row["cache"]: row["columns_ns"] + (1 - row["hit_ratio"]) * behind
        for row in chosen(storm["cache"], preset=LOCAL)
        if row["cache"]
    }
    best = min(delay, key=lambda entries: delay[entries])
    yield Result(
        "table 5",
        "entries with the least delay",
        20.0,
        float(best),
        f"a packet takes {number(delay[20])} ns with 20 entries, "
        f"{'' if best == 20 else f'{number(delay[best])} with {best} and '}"
        f"{number(delay[100])} with 100: sixteen headers at a time, a longer cache costs hardly more",
    )


def searches(storm: Row) -> Iterator[Result]:
    row = the(storm["hits"], set="R2", preset=LOCAL, classes=CLASSES, every=16)
    yield Result(
        "figure 10",
        f"searches that end at entry 1 or 2, in %, R2, {LOCAL}",
        "most",
        100 * sum(row["entries"][:2]),
        "entries stand in the order of their weights",
    )
    yield Result("figure 10", "searches of all 20 entries in vain, in %", 5.0, 100 * (1 - row["steady"]))
    delays = chosen(storm["delays"], preset=LOCAL, inner="hypercuts")
    best = chosen(storm["delays"], preset=LOCAL, inner="best")
    yield Result(
        "section 5.1.1",
        "d1, ns of a search of the cache, one by one",
        200.0,
        span(each["d1_ns"] for each in delays),
        f"{words(span(each['d1_batch_ns'] for each in delays))} ns in batches",
    )
    yield Result(
        "section 5.1.1",
        "d2, ns of a search of HyperCuts, one by one",
        PAPER_D2,
        span(each["d2_ns"] for each in delays),
        f"{words(span(each['d2_batch_ns'] for each in delays))} ns in batches. `best` takes "
        f"{words(span(each['d2_ns'] for each in best))} ns, as long as the cache, so that a cache of 20 does "
        "not pay before it",
    )


def rates(storm: Row) -> Iterator[Result]:
    partitions = chosen(storm["partitions"], preset=LOCAL)

    delays = chosen(storm["delays"], preset=LOCAL, inner="hypercuts")
    faster = words(span(PAPER_D2 / row["d2_ns"] for row in delays))

    def rate(name: str, costs: str, plan: str) -> float:
        return float(the(partitions, set=name, costs=costs, plan=plan)["lossless_per_s"])

    for costs, why in (
        ("paper", "the model with the paper's d1 and d2"),
        (
            "measured",
            f"the model with costs measured here, where HyperCuts is {faster} times as fast as the paper's",
        ),
    ):
        gigabits = [the(partitions, set=name, costs=costs, plan="4-2-1")["gigabits"] for name in SETS]
        yield Result(
            "figure 6", "Gb/s of 4-2-1 without loss, packets of 128 bytes", (12.0, 17.0), span(gigabits), why
        )
        gains = [rate(name, costs, "4-2-1") / rate(name, costs, "HyperCuts-7") for name in SETS]
        yield Result("figure 6", "4-2-1 over as many threads of HyperCuts", (2.0, 3.0), span(gains), why)
        dynamic = [rate(name, costs, "dynamic") / rate(name, costs, "4-2-1") for name in SETS]
        yield Result("figure 6", "dynamic assignment over 4-2-1", "a little below 1", span(dynamic), why)
        others = [
            max(rate(name, costs, "2-4-1"), rate(name, costs, "3-3-1")) / rate(name, costs, "4-2-1")
            for name in SETS
        ]
        yield Result("figure 6", "the better of 2-4-1 and 3-3-1 over 4-2-1", "below 1", span(others), why)
        scaling = [rate(name, costs, "8-8-1") / rate(name, costs, "1-1-1") for name in SETS]
        yield Result("figure 7", "8-8-1 over 1-1-1", "nearly 8", span(scaling), why)
        alone = [rate(name, costs, "figure 3, 7 threads") / rate(name, costs, "4-2-1") for name in SETS]
        yield Result(
            "figure 3",
            "seven threads that each do everything, over 4-2-1",
            "below 1",
            span(alone),
            why + ("; none waits for another" if costs == "paper" else "; each takes samples of its own"),
        )
    samples = span(row["sample"] / 1000 for row in chosen(partitions, costs="measured", plan="costs"))
    warm = [the(partitions, set=name, costs="measured", plan="4-2-1")["warm_up_ms"] for name in SETS]
    yield Result(
        "table 6",
        "ms of warm-up, 4-2-1, R1 to R7",
        span(map(float, PAPER_WARM_UP.values())),
        span(warm),
        f"the model, at nine tenths of the rate without loss: a sample takes {words(samples)} µs here",
    )
    real = [row["real_per_s"] / row["model_per_s"] for row in chosen(storm["agreement"], threads=1)]
    two = [row["real_per_s"] / row["model_per_s"] for row in chosen(storm["agreement"], threads=2)]
    yield Result(
        "(the model)",
        "real rate over that of the model, one thread; two threads",
        "1",
        f"{words(span(real))}; {words(span(two))}",
        "two busy cores of this machine do not do twice the work of one; rates of the model for several "
        "threads are upper bounds",
    )
    formula = chosen(storm["formula"], threads=7)
    yield Result(
        "section 3.1.1",
        "cache threads of 7 by formula (1); the best in the model",
        "4.06",
        "; ".join(words(span(float(row[name]) for row in formula)) for name in ("formula_1", "best")),
        "it minimises the sum of both delays, but threads side by side are as fast as the slower kind",
    )


def real_rates(cores: Row) -> Iterator[Result]:
    """Figures 3, 6 and 7 with real threads, a core for each."""
    where = f"real, {cores['machine']['cores']} cores"

    def rate(name: str, partition: str) -> float:
        return float(the(cores["threads"], set=name, partition=partition)["lossless_per_s"])

    def over(one: str, other: str, names: tuple[str, ...] = ("R3", "R7")) -> tuple[float, float]:
        return span(rate(name, one) / rate(name, other) for name in names)

    yield Result(
        "figure 6",
        f"Gb/s of 4-2-1 without loss, packets of 128 bytes ({where})",
        (12.0, 17.0),
        span(the(cores["threads"], set=name, partition="4-2-1")["gigabits"] for name in ("R3", "R7")),
        f"HyperCuts in one thread does {words(span(rate(name, '1-0-0') / 1e6 for name in ('R3', 'R7')))} "
        "million packets a second",
    )
    yield Result(
        "figure 6", f"4-2-1 over as many threads of HyperCuts ({where})", (2.0, 3.0), over("4-2-1", "7-0-0")
    )
    yield Result(
        "figure 6",
        f"dynamic assignment over 4-2-1, R3 ({where})",
        "a little below 1",
        over("dynamic", "4-2-1", ("R3",)),
    )
    others = span(
        max(rate(name, "2-4-1"), rate(name, "3-3-1")) / rate(name, "4-2-1") for name in ("R3", "R7")
    )
    yield Result("figure 6", f"the better of 2-4-1 and 3-3-1 over 4-2-1 ({where})", "below 1", others)
    yield Result(
        "figure 7", f"7-7-1 over 1-1-1, R3 ({where})", "nearly 7", over("7-7-1", "1-1-1", ("R3",)),
        "the one updater takes fewer samples of more packets, and fewer packets hit",
    )  # fmt: skip
    real = {
        name: {row["plan"]: row["real_per_s"] for row in chosen(cores["agreement"], set=name)}
        for name in ("R3", "R7")
    }
    yield Result(
        "figure 3",
        f"seven threads that each do everything, over 4-2-1, from an empty cache ({where})",
        "below 1",
        span(of["figure 3, 7 threads"] / of["4-2-1"] for of in real.values()),
        "each takes samples of its own",
    )
    several = [row for row in cores["agreement"] if row["threads"] > 2]
    yield Result(
        "(the model)",
        f"real rate over that of the model, three threads and more ({where})",
        "1",
        span(row["real_per_s"] / row["model_per_s"] for row in several),
        "the costs are those of one thread; they vary from run to run on that virtual machine, and threads "
        "in company are slower",
    )


def real_lessons(cores: Row) -> Iterator[Result]:
    """Section 4 with four cache threads, two classifiers and an updater."""
    where = f"4-2-1, real, {cores['machine']['cores']} cores"

    def over(way: str, other: str) -> tuple[float, float]:
        return span(
            the(cores["lessons"], set=name, way=f"4-2-1, {way}")["per_s"]
            / the(cores["lessons"], set=name, way=f"4-2-1, {other}")["per_s"]
            for name in ("R3", "R7")
        )

    best = "two copies, mailbox, columns"
    yield Result(
        "section 4",
        f"two copies over one under a lock ({where})",
        PAPER_COPIES,
        over(best, "one copy under a lock"),
    )
    yield Result(
        "section 4",
        f"an array over a list ({where})",
        "above 1",
        over("an array, one header at a time", "a list"),
    )
    yield Result(
        "section 4",
        f"rings without a lock over rings with one ({where})",
        "above 1",
        over(best, "rings under locks"),
    )


def lessons(storm: Row) -> Iterator[Result]:
    def over(way: str, other: str) -> tuple[float, float]:
        return span(
            the(storm["lessons"], set=name, way=way)["per_s"]
            / the(storm["lessons"], set=name, way=other)["per_s"]
            for name in ("R3", "R7")
        )

    best = "two copies, mailbox, columns"
    yield Result(
        "section 4",
        "two copies over one under a lock, one cache thread (real)",
        PAPER_COPIES,
        over(best, "one copy under a lock"),
        "one reader hardly meets the writer",
    )
    modelled = [
        the(storm["partitions"], set=name, costs="measured", plan="4-2-1")["lossless_per_s"]
        / the(storm["partitions"], set=name, costs="measured", plan="4-2-1, one copy")["lossless_per_s"]
        for name in SETS
    ]
    yield Result("section 4", "the same with four cache threads (model)", PAPER_COPIES, span(modelled))
    yield Result(
        "section 4",
        "an array over a list (real)",
        "above 1",
        over("an array, one header at a time", "a list"),
        f"both lie in the caches; columns do {words(over(best, 'a list'))} times what a list does",
    )
    yield Result(
        "section 4",
        "rings without a lock over rings with one (real)",
        "above 1",
        over("a classifier behind a ring, no cache", "a classifier behind a ring under a lock, no cache"),
    )
    worth = [
        row["storm_per_s"] / row["alone_per_s"]
        for row in chosen(storm["worth"], inner="hypercuts", preset=LOCAL)
    ]
    spread = [
        row["storm_per_s"] / row["alone_per_s"]
        for row in chosen(storm["worth"], inner="hypercuts", preset=SPREAD)
    ]
    yield Result(
        "(beyond)",
        f"storm(hypercuts) over HyperCuts, one thread (real), {LOCAL}",
        "",
        span(worth),
        f"{words(span(spread))} on {SPREAD}, where misses and samples cost more than hits save",
    )


def in_the_kernel(hot: Row) -> Iterator[Result]:
    edge = chosen(hot["cases"], preset="edge")
    for backend in ("legacy", "nft"):
        there = chosen(edge, backend=backend)
        traced = statistics.fmean(row["traced_ns"] / row["hot_ns"] for row in there)
        yield Result(
            "(beyond)",
            f"a compiled set over the same with --hot, ns a packet in {backend}, edge",
            "",
            span(row["compiled_ns"] / row["hot_ns"] for row in there),
            f"a tree weighed by the same trace has most of that: over it {number(traced)} (mean of the sets)",
        )


PAPER = Paper(
    "storm",
    {"storm": "make papers-storm", "storm-cores": "make papers-storm-cores", "hot": "make bench-hot"},
    results,
    tuple(f"figure {at}" for at in range(1, 11)) + tuple(f"table {at}" for at in range(1, 7)),
)

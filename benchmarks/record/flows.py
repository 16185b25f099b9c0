"""Flow state tables (Peng, Leckie, Ramamohanarao): the paper beside the data of benchmarks.flow_tables."""

from __future__ import annotations

from collections.abc import Iterator

from .page import Paper, Result, Row, chosen, number, span, the, words

SCHEMES = ("normal", "circular", "move_front", "insert_move_front")
OURS = SCHEMES[1:]
SMALL, MIDDLE = 1024, 4096  # buckets
PAPER_COMPARISONS = {
    "normal": 110.0,
    "circular": 46.0,
    "move_front": 8.4,
    "insert_move_front": 4.5,
}  # millions
PLACES = {"uplink": "Auckland", "department": "Melbourne"}


def results(flows: Row) -> Iterator[Result]:
    """Each figure and table of the paper, and the claims of its text that have a number."""
    yield Result(
        "figures 1, 2, 3",
        "the table, its worst case, the circular list",
        "drawings",
        "built",
        "`hitables/core/c/classify/flow_schemes.h`, `tests/engine/test_flows.py`, "
        "`tests/engine/test_flows_of_rules.py`",
    )
    yield from traces(flows)
    yield from comparisons(flows)
    yield from times(flows)
    yield from sizes(flows)
    yield from model(flows)
    yield from beyond(flows)


def day(flows: Row, preset: str, kind: str, scheme: str, buckets: int, part: str = "purged") -> Row:
    return the(flows["day"], part=part, preset=preset, kind=kind, scheme=scheme, buckets=buckets)


def traces(flows: Row) -> Iterator[Result]:
    for preset, paper in (("uplink", 43_226_495), ("department", 153_399_408)):
        row = day(flows, preset, "ip", "normal", SMALL)
        there = chosen(flows["day"], part="purged", preset=preset, kind="ip", scheme="normal")
        bursts = span(each["k"] for each in there)
        yield Result(
            "table 1",
            f"packets of {PLACES[preset]} (here the preset {preset})",
            float(paper),
            float(row["packets"]),
            "the traces are not public; the preset has the traits that the paper states "
            f"([traffic](traffic.md)); bursts of k = {words(bursts)} packets, by the size of the table",
        )


def comparisons(flows: Row) -> Iterator[Result]:
    normal = PAPER_COMPARISONS["insert_move_front"]
    ours = day(flows, "uplink", "ip", "insert_move_front", SMALL)["beyond_first"]
    first = day(flows, "uplink", "ip", "normal", SMALL)
    begins = 100 * first["inserts"] / first["packets"]
    ssh = {row["scheme"]: row["beyond_first"] for row in chosen(flows["kinds"], part="class", preset="ssh")}
    for scheme in SCHEMES:
        row = day(flows, "uplink", "ip", scheme, SMALL)
        yield Result(
            "figure 4",
            f"{scheme}: millions of keys compared on hits beyond the first, uplink, {SMALL:,} buckets",
            PAPER_COMPARISONS[scheme],
            row["beyond_first"] / 1e6,
            f"to insert_move_front {number(row['beyond_first'] / ours)} to 1, in the paper "
            f"{number(PAPER_COMPARISONS[scheme] / normal)}; all keys compared: "
            f"{number(row['comparisons'] / 1e6)}",
        )
    yield Result(
        "figure 4",
        "the order of the schemes",
        "normal, circular, move_front, insert_move_front",
        ", ".join(sorted(SCHEMES, key=lambda name: -day(flows, "uplink", "ip", name, SMALL)["beyond_first"])),
        "the paper's last two numbers are fewer than its packets, so calls of memcmp cannot be meant. "
        "`move_front` inserts at the end, so each second packet of a flow searches the whole chain, and "
        f"{number(begins)} % of the packets of uplink begin a flow; `circular` is slow where flows of one "
        "bucket alternate, as in the class ssh, where keys beyond the first are, to those of "
        "insert_move_front, "
        f"{', '.join(number(ssh[scheme] / ssh['insert_move_front']) for scheme in SCHEMES[:3])}",
    )
    for preset, kind, place, saved in (
        ("department", "ip", "figure 6", None),
        ("uplink", "tcp", "figure 8", 55.0),
        ("department", "tcp", "figure 10", 40.0),
    ):
        normal_keys = day(flows, preset, kind, "normal", SMALL)["beyond_first"]
        gains = [normal_keys / day(flows, preset, kind, scheme, SMALL)["beyond_first"] for scheme in OURS]
        yield Result(
            place,
            f"keys beyond the first: normal over each of the three, {preset}, {kind}",
            "above 1",
            span(gains),
        )
        if saved:
            rows = [
                day(flows, preset, kind, scheme, SMALL)["comparisons"] for scheme in ("normal", "circular")
            ]
            yield Result(
                "section 5",
                f"comparisons that circular saves, in %, {preset}, {kind}",
                saved,
                100 * (1 - rows[1] / rows[0]),
                "of all keys compared; a new flow reads its whole chain in every scheme",
            )


def times(flows: Row) -> Iterator[Result]:
    for preset, kind, place in (
        ("uplink", "ip", "figure 5"),
        ("department", "ip", "figure 7"),
        ("uplink", "tcp", "figure 9"),
        ("department", "tcp", "figure 11"),
    ):
        for buckets in (SMALL, MIDDLE):
            normal = day(flows, preset, kind, "normal", buckets)["ns"]
            others = span(day(flows, preset, kind, scheme, buckets)["ns"] for scheme in OURS)
            yield Result(
                place,
                f"time of the three over that of normal, {preset}, {kind}, {buckets:,} buckets",
                0.7 if kind == "ip" else "below 1",
                (others[0] / normal, others[1] / normal),
                f"{number(normal)} ns a packet, and {words(others)}; misses read whole chains in all schemes",
            )


def sizes(flows: Row) -> Iterator[Result]:
    for preset in PLACES:
        rows = {buckets: day(flows, preset, "ip", "normal", buckets) for buckets in (SMALL, 65536, 1 << 20)}
        fewer = rows[65536]["comparisons"] / rows[SMALL]["comparisons"]
        yield Result(
            "section 4.3",
            f"ns of normal, 1,024 buckets to 65,536, {preset}",
            "hardly any change",
            rows[65536]["ns"] / rows[SMALL]["ns"],
            f"comparisons fall to {number(fewer)} of theirs, "
            "but chains of ended flows outgrow the caches; with a million buckets the time is "
            f"{number(rows[1 << 20]['ns'])} ns, with 1,024 {number(rows[SMALL]['ns'])}",
        )
    for buckets, paper in ((4096, "above 1, insert_move_front flat"), (16384, "above 1"), (1 << 20, "1")):
        there = {row["scheme"]: row["ns"] for row in chosen(flows["day"], part="unpurged", buckets=buckets)}
        gains = span(there["normal"] / there[scheme] for scheme in OURS)
        yield Result(
            "figure 12",
            f"normal over each of the three, nothing purged, {buckets:,} buckets",
            paper,
            gains,
            f"normal {number(there['normal'])} ns, insert_move_front {number(there['insert_move_front'])}; a "
            "new flow reads its whole chain in each scheme, so none is flat while new flows come",
        )


def model(flows: Row) -> Iterator[Result]:
    crowded = [
        row["predicted_comparisons"] / row["comparisons"]
        for row in flows["model"]
        if row["buckets"] in (SMALL, 16384) and row["scheme"] != "normal"
    ]
    normal = [
        row["predicted_comparisons"] / row["comparisons"]
        for row in flows["model"]
        if row["buckets"] in (SMALL, 16384) and row["scheme"] == "normal"
    ]
    spans = [row["predicted_ns"] / row["ns"] for row in flows["model"] if row["ns"]]
    yield Result(
        "table 2",
        "comparisons predicted over counted, 1,024 and 16,384 buckets",
        1.0,
        span(crowded),
        f"with X and Y measured at 4,096 buckets; normal {words(span(normal))}",
    )
    yield Result(
        "table 2",
        "time predicted over measured, all sizes",
        1.0,
        span(spans),
        "the model has no misses of the cache",
    )
    x = {
        scheme: span(
            row["fixed_x"] for row in chosen(flows["model"], scheme=scheme, buckets=MIDDLE, kind="ip")
        )
        for scheme in SCHEMES
    }
    yield Result(
        "table 2",
        "X of normal, circular, move_front, insert_move_front",
        "X0 ≈ X2 > X1 > X3",
        "; ".join(words(x[scheme]) for scheme in SCHEMES),
        "`move_front` puts new flows last, so X1 is not below X2",
    )


def beyond(flows: Row) -> Iterator[Result]:
    for name, quantity in (("ssh", "ssh"), ("scan", "scans")):
        there = {
            row["scheme"]: row["beyond_first"] / row["packets"]
            for row in chosen(flows["kinds"], part="class", preset=name)
        }
        yield Result(
            "section 5",
            f"keys beyond the first a packet, normal and insert_move_front, {quantity}",
            "no gain",
            f"{number(there['normal'])}, {number(there['insert_move_front'])}",
            "slow flows alternate, which is what the schemes are for"
            if name == "ssh"
            else "every packet is a new flow",
        )
    variances = span(row["variance"] for row in flows["hashes"])
    yield Result(
        "section 4",
        "variance of chains over that of chance, five hashes",
        "Zobel's alone",
        variances,
        "; ".join(f"{row['hash']} {number(row['ns'])} ns" for row in flows["hashes"])
        + " a look-up in groups",
    )
    for flows_in, place in ((1000, "in the caches"), (3_000_000, "beyond them")):
        batches = chosen(flows["batches"], flows=flows_in)
        paper = the(batches, table="the paper's normal")["lookups_per_s"]
        best = max(row["lookups_per_s"] for row in batches)
        yield Result(
            "(beyond)",
            f"look-ups in groups over the paper's loop of normal, {place}",
            "",
            best / paper,
            f"{number(best / 1e6)} and {number(paper / 1e6)} million a second",
        )


PAPER = Paper(
    "flows",
    {"flows": "make papers-flows"},
    results,
    tuple(f"figure {at}" for at in range(1, 13)) + ("table 1", "table 2"),
)

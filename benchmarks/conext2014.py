"""The evaluation of "Trees in the List" (CoNEXT 2014, section 6), repeated: `make papers-hitables`.

The twelve WUSTL sets with their whole traces, in scheme paper and in the default, compared with the results
of the 2014 tool; then the paper's own protocol of figures 5a to 5f: synthetic sets of 100 to 3,500 rules
(random /24 sources, one destination, random UDP port ranges of at most 1,000), ten runs, with and without
I/O, and zero to ten rules among 1,000 that the paper cannot transform.  The C interpreter counts path
lengths, and must find that the same rule decides each packet of a trace; times are the kernel's (legacy, as
in the paper).  Besides: times of building at two sizes of leaves, and the variants of the scheme
(`conext2014_variants`).

A whole run writes docs/evaluation/hitables.json, the figure beside it, and the tables of docs/conext2014.md;
one of some parts (`--only`) keeps the figures of the others.  Without the WUSTL sets, sets of the project's
own seeds take their place, and the data go to out/.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.conext2014 import transform
from hitables.compiler.options import Options
from hitables.compiler.result import Compiled
from hitables.emit.text import write
from hitables.files import read_text
from hitables.ir.fields import Family, Field, Fragment
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.machine import machine
from hitables.kernel.stopwatch import EMPTY, compare
from hitables.parse import classbench
from hitables.parse import trace as traces
from hitables.simulate.batch import PACKET, PacketBatch
from hitables.simulate.interpreter import Interpreter

from . import command_line, made_sets
from .doc_tables import DOCS
from .kernel import RandomRule, random_rules
from .public_sets import WUSTL

CHAIN = "OUTPUT"
OUTPUT = DOCS / "evaluation" / "hitables.json"
PARTS = ("public", "variants", "build", "sizes", "barred", "limited")
SETS = Path("../shared/rulesets/wustl")
# The sets of a short run: public, and made.
FEW = ("acl1_100", "acl1_1K", "fw1_100"), ("acl_100", "acl_1K", "fw_100")
SIZES = range(100, 3501, 200)
SEED = 1
PERCENTILES = list(range(101))

# What the 2014 tool gives: growth, mean path, longest path, build seconds, peak MB.  Runs of
# ten rules at least, spfac 4; binth and cuts are part of the case.
TOOL = {
    ("acl1_1K", 16, "unequal"): (2.2, 44, 246, 0.00, 5),
    ("acl1_5K", 16, "equal"): (4.7, 154, 1115, 0.67, 11),
    ("acl1_10K", 16, "equal"): (4.3, 338, 2574, 1.87, 19),
    ("fw1_1K", 16, "equal"): (71.7, 113, 245, 0.07, 18),
    ("fw1_5K", 16, "equal"): (157, 338, 1071, 0.80, 207),
    ("fw1_10K", 16, "equal"): (251, 586, 1931, 2.51, 614),
    ("fw1_10K", 20, "equal"): (208.5, 591, 1939, 2.14, 495),
    ("ipc1_1K", 16, "equal"): (1.7, 98, 413, 0.04, 4),
    ("ipc1_5K", 16, "equal"): (4.4, 358, 1770, 0.13, 10),
    ("ipc1_10K", 16, "equal"): (1.7, 663, 3477, 0.54, 11),
}  # fmt: skip
MIN_LENGTH = 10

Row = dict[str, Any]


# -- one rule set in one scheme --------------------------------------------------------------------


def options(binth: int, cuts: str = "equal", **choices: str) -> Options:
    """Of scheme paper."""
    return Options(
        backend=Backend.LEGACY,
        leaf_size=binth,
        min_length=MIN_LENGTH,
        unequal_cuts=cuts == "unequal",
        **choices,  # type: ignore[arg-type]
    )


def compiled_by(scheme: str, program: Program, binth: int, cuts: str) -> Compiled:
    """paper: as the paper prints a node; tool: as its tool of 2014 does; tree: the default of hitables."""
    if scheme == "tree":
        return compile_rules(program, Options(backend=Backend.LEGACY))
    return transform(program, options(binth, cuts, dispatch=scheme))


def batch_of(headers: Any) -> PacketBatch:
    """Whole packets with the five fields of each row."""
    rows = np.zeros(len(headers), PACKET)
    for column, which in enumerate((Field.SRC, Field.DST, Field.SPORT, Field.DPORT, Field.PROTO)):
        rows["low"][:, which] = headers[:, column]
        rows["present"] |= np.uint16(1 << which)
    rows["low"][:, Field.FRAG] = Fragment.WHOLE
    rows["present"] |= np.uint16(1 << Field.FRAG)
    rows["l4_bytes"] = 64
    return PacketBatch(Family.IPV4, rows)


def decided(program: Program, batch: PacketBatch) -> tuple[Any, Any]:
    """Per packet: the line of the rule that decides (0: the policy, or a rule for it), and rules read."""
    result = Interpreter(program, Backend.LEGACY).run("filter", CHAIN, batch)
    lines = [rule.line for chain in program.table("filter").chains for rule in chain.rules]
    return np.array([*lines, 0])[result.rule], result.reads


def in_scheme(scheme: str, program: Program, batch: PacketBatch, binth: int, cuts: str) -> Row:
    """Compile and count; the row also has the number of packets that another rule decides."""
    before, linear = decided(program, batch)
    started = time.process_time()
    compiled = compiled_by(scheme, program, binth, cuts)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    after, reads = decided(compiled.program, batch)
    return {
        "scheme": scheme,
        "rules": program.rule_count(),
        "packets": len(batch),
        "growth": compiled.program.rule_count() / program.rule_count(),
        "linear": float(linear.mean()),
        "mean": float(reads.mean()),
        "deviation": float(reads.std()),
        "longest": int(reads.max()),
        "seconds": seconds,
        "megabytes": peak,
        "differ": int(np.count_nonzero(before != after)),
        "percentiles": np.percentile(reads, PERCENTILES).tolist(),
    }


def set_of(folder: Path | None, name: str) -> tuple[Program, Any]:
    """A public set and the headers of its whole trace; without a folder a made one (`made_sets.MADE`)."""
    if folder is None:
        filters, headers = made_sets.made(name)
    else:
        filters = classbench.parse(read_text(str(folder / f"{name}.gz")), name)
        headers = traces.parse(read_text(str(folder / f"{name}_trace.gz")), name).headers
    return read(classbench.to_text(filters, chain=CHAIN), name=name), headers


def public_case(task: tuple[Path | None, str, str, int, str]) -> Row:
    """A set with its whole trace, in a process of its own: its peak memory is the case's."""
    folder, name, scheme, binth, cuts = task
    program, headers = set_of(folder, name)
    row = in_scheme(scheme, program, batch_of(headers), binth, cuts)
    return {"set": name, "binth": binth, "cuts": cuts, **row}


def in_processes(measure: Callable[[Any], Row], tasks: Iterable[Any]) -> Iterator[Row]:
    """What *measure* finds of each task, each in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        yield from pool.imap(measure, tasks)


def public(folder: Path | None, names: Iterable[str]) -> Iterator[Row]:
    """Each set as the tool of 2014 prints it, with its parameters, as the paper does, and by default."""
    print(HEAD)
    for name in names:
        cases = [key for key in TOOL if key[0] == name] or [(name, 16, "equal")]
        tasks = [(folder, name, "tool", binth, cuts) for _, binth, cuts in cases]
        _, binth, cuts = cases[-1]
        tasks += [(folder, name, "paper", binth, cuts), (folder, name, "tree", 8, "equal")]
        for row in in_processes(public_case, tasks):
            print(line_of(row), flush=True)
            yield row


HEAD = (
    f"{'set':<10}{'scheme':<8}{'binth':>5} {'cuts':<8}{'growth':>8}{'linear':>8}{'mean':>8}{'longest':>9}"
    f"{'build s':>9}{'MB':>6}{'differ':>8}   the 2014 tool: growth, mean, longest, build s, MB"
)


def line_of(row: Row) -> str:
    tool = TOOL.get((row["set"], row["binth"], row["cuts"])) if row["scheme"] == "tool" else None
    cuts = row["cuts"] if row["scheme"] != "tree" else ""
    beside = "   " + ", ".join(f"{figure:g}" for figure in tool) if tool else ""
    case = f"{row['set']:<10}{row['scheme']:<8}{row['binth']:>5} {cuts:<8}"
    paths = f"{row['growth']:>8.2f}{row['linear']:>8.0f}{row['mean']:>8.1f}{row['longest']:>9}"
    return f"{case}{paths}{row['seconds']:>9.2f}{row['megabytes']:>6.0f}{row['differ']:>8}{beside}"


def failures(rows: Sequence[Row]) -> list[str]:
    """What should have come out and did not."""
    misses = [
        f"{row['set']}, {row['scheme']}: {row['differ']} packets are decided by another rule"
        for row in rows
        if row["differ"]
    ]
    best = {row["set"]: row["mean"] for row in rows if row["scheme"] == "tree"}
    for row in rows:
        if row["scheme"] == "tree":
            continue
        if best[row["set"]] >= row["mean"]:
            misses.append(
                f"{row['set']}: the default reads {best[row['set']]:.1f} rules, the {row['scheme']} "
                f"{row['mean']:.1f}"
            )
        tool = TOOL.get((row["set"], row["binth"], row["cuts"])) if row["scheme"] == "tool" else None
        if tool and best[row["set"]] >= tool[1]:
            misses.append(
                f"{row['set']}: the default reads {best[row['set']]:.1f} rules, the 2014 tool {tool[1]}"
            )
        if tool and (row["set"], row["binth"]) == ("fw1_10K", 20):
            for what, wanted in (("growth", tool[0]), ("longest", tool[2])):
                if abs(row[what] - wanted) > 0.05 * wanted:
                    misses.append(f"fw1_10K at binth 20: {what} is {row[what]:.1f}, published is {wanted}")
    return misses


# -- synthetic sets --------------------------------------------------------------------------------


# Matches that no header answers: of no memory, and of the memory that a rule must not be copied for.
LENGTH, LIMIT = "-m length --length 0:65535", "-m limit --limit 10000/sec --limit-burst 10000"
# What ten rules with a limit among 1,000 may take of the gain.
LOSS = 0.1
# How often a synthetic set is timed.
ROUNDS = 5


def synthetic_text(rules: Sequence[RandomRule], barred: int = 0, match: str = LENGTH) -> str:
    """*barred* rules, evenly spaced, carry a match that no header answers, so the paper leaves them."""
    places = {len(rules) * (at + 1) // (barred + 1) for at in range(barred)}
    lines = [
        rule.text().replace("-j ACCEPT", f"{match} -j ACCEPT") if at in places else rule.text()
        for at, rule in enumerate(rules)
    ]
    return "\n".join(["*filter", f":{CHAIN} ACCEPT [0:0]", *lines, "COMMIT", ""])


def headers_of(packets: Sequence[bytes]) -> Any:
    """The five fields of IPv4 UDP packets without options."""
    raw = np.frombuffer(b"".join(packets), np.uint8).reshape(len(packets), -1).astype(np.uint32)
    word = [raw[:, at] << 24 | raw[:, at + 1] << 16 | raw[:, at + 2] << 8 | raw[:, at + 3] for at in (12, 16)]
    half = [raw[:, at] << 8 | raw[:, at + 1] for at in (20, 22)]
    return np.stack([*word, *half, raw[:, 9]], axis=1)


def synthetic_case(
    count: int, barred: int, run: int, seed: int, kernel: bool, match: str = LENGTH
) -> list[Row]:
    """One synthetic set in both schemes: counted with ten packets a rule, and timed."""
    rng = random.Random(f"{seed}/{count}/{run}")
    rules = random_rules(count, [24], rng)
    text = synthetic_text(rules, barred, match)
    program = read(text, family=Family.IPV4)
    batch = batch_of(headers_of([rule.packet(rng) for rule in rules for _ in range(10)]))
    rows, texts = [], {"empty": EMPTY, "input": text}
    for scheme in ("paper", "tree"):
        row = in_scheme(scheme, program, batch, 8, "equal")
        rows.append({"run": run, "barred": barred, **row})
        texts[scheme] = write(compiled_by(scheme, program, 8, "equal").program)
    if kernel:
        flows = [rule.packet(rng) for rule in rng.sample(rules, min(count, 1000))]
        measured = compare(texts, b"".join(flows), len(flows), Backend.LEGACY, ROUNDS)
        # Other work on the machine only adds to the time, and the default takes little above the empty set.
        times = {name: min(each) for name, each in measured.items()}
        for row in rows:
            row["ns"] = {"empty": times["empty"], "input": times["input"], "output": times[row["scheme"]]}
    return rows


def synthetic(
    cases: Iterable[tuple[int, int]], runs: int, seed: int, kernel: bool, match: str = LENGTH
) -> Iterator[Row]:
    """Rows of *runs* sets for each case: a number of rules, and of barred ones among them."""
    print(f"\n{SYNTHETIC_HEAD}")
    for count, barred in cases:
        case_rows = [
            row for run in range(runs) for row in synthetic_case(count, barred, run, seed, kernel, match)
        ]
        for scheme in ("paper", "tree"):
            print(synthetic_line([row for row in case_rows if row["scheme"] == scheme]), flush=True)
        yield from case_rows


SYNTHETIC_HEAD = (
    f"{'rules':>6}{'barred':>7} {'scheme':<8}{'growth':>8}{'linear':>8}{'mean':>8}{'longest':>9}"
    f"{'build s':>9}{'differ':>8}{'times faster':>14}{'with I/O':>10}"
)


def synthetic_line(rows: Sequence[Row]) -> str:
    def mean(what: str) -> float:
        return statistics.fmean(row[what] for row in rows)

    first = rows[0]
    case = f"{first['rules']:>6}{first['barred']:>7} {first['scheme']:<8}"
    longest, differ = max(row["longest"] for row in rows), sum(row["differ"] for row in rows)
    paths = f"{mean('growth'):>8.2f}{mean('linear'):>8.0f}{mean('mean'):>8.1f}{longest:>9}"
    faster = ""
    if "ns" in first:
        without, whole = zip(*(gains(row["ns"]) for row in rows), strict=True)
        faster = f"{statistics.median(without):>14.1f}{statistics.median(whole):>10.2f}"
    return f"{case}{paths}{mean('seconds'):>9.3f}{differ:>8}{faster}"


def lost(rows: Sequence[Row], scheme: str) -> dict[str, float]:
    """What share of the gain rules with a limit take: in rules read, and in time where that was taken."""

    def middle(barred: bool, what: Callable[[Row], float]) -> float:
        return statistics.median(
            what(row) for row in rows if row["scheme"] == scheme and bool(row["barred"]) == barred
        )

    def saved(row: Row) -> float:
        return float(row["linear"] / row["mean"])

    def faster(row: Row) -> float:
        return gains(row["ns"])[0]

    shares = {"rules read": 1 - middle(True, saved) / middle(False, saved)}
    if all("ns" in row for row in rows):
        shares["time"] = 1 - middle(True, faster) / middle(False, faster)
    return shares


def losses(rows: Sequence[Row]) -> list[str]:
    """What rules with a limit take of the gain of the default, where that is more than LOSS."""
    for scheme in ("paper", "tree"):
        shares = ", ".join(f"{share:.1%} in {what}" for what, share in lost(rows, scheme).items())
        print(f"ten rules with -m limit in 1000 take of the gain of scheme {scheme}: {shares}")
    return [
        f"ten rules with -m limit take {share:.0%} of the gain in {what}"
        for what, share in lost(rows, "tree").items()
        if share > LOSS
    ]


def gains(ns: dict[str, float]) -> tuple[float, float]:
    """How many times faster: above the empty rule set, and with all that a packet costs."""
    above = max(ns["output"] - ns["empty"], 1.0)
    return (ns["input"] - ns["empty"]) / above, ns["input"] / ns["output"]


# -- all of it -------------------------------------------------------------------------------------


def measured(
    part: str,
    folder: Path | None,
    names: Sequence[str],
    runs: int,
    kernel: bool,
    sizes: Sequence[int],
    barred: Sequence[int],
) -> Iterator[Row]:
    """The rows of one of PARTS."""
    from . import conext2014_variants as variants

    if part == "public":
        yield from public(folder, names)
    elif part == "variants":
        yield from variants.variants(folder, names)
    elif part == "build":
        largest = next((name for name in reversed(names) if name.startswith("fw")), names[-1])
        yield from variants.build_times(folder, largest, runs)
    elif part == "sizes":
        yield from synthetic(((count, 0) for count in sizes), runs, SEED, kernel)
    elif part == "barred":
        yield from synthetic(((1000, number) for number in barred), runs, SEED, kernel)
    else:
        yield from synthetic(((1000, 0), (1000, 10)), runs, SEED, kernel, LIMIT)


def minutes(
    parts: Iterable[str], runs: int, kernel: bool, sizes: Sequence[int], barred: Sequence[int]
) -> float:
    """About how long a whole run of *parts* takes on an idle machine, from the times of single cases."""

    def cases(rules: Iterable[int]) -> float:
        return runs * sum((5.0 if kernel else 0.0) + 0.0007 * count for count in rules)

    seconds = {
        "public": 150.0,
        "variants": 210.0,
        "build": min(runs, 5) * 55.0,
        "sizes": cases(sizes),
        "barred": cases([1000] * len(barred)),
        "limited": cases([1000] * 2),
    }
    return sum(seconds[part] for part in parts) / 60


def misses_of(data: Row) -> list[str]:
    """What should have come out and did not."""
    misses = failures(data.get("public", []))
    misses += [
        f"{row['rules']} rules, {row['scheme']}: a packet is decided by another rule"
        for part in ("sizes", "barred", "limited")
        for row in data.get(part, [])
        if row["differ"]
    ]
    return misses + (losses(data["limited"]) if data.get("limited") else [])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path, default=SETS, help="the WUSTL sets")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these, and keep the other figures")
    parser.add_argument("--runs", type=int, default=10, help="sets of each size, and times of building")
    parser.add_argument(
        "--names", nargs="+", choices=WUSTL, default=WUSTL, help="public sets, all by default"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="rules of the synthetic sets")
    parser.add_argument("--barred", type=int, nargs="+", default=range(11), help="barred rules of figure 5c")
    parser.add_argument("--short", action="store_true", help="few sets, sizes and runs; into out/ or -o")
    parser.add_argument("--no-kernel", action="store_true", help="count only: needs no root; into out/ or -o")
    parser.add_argument("--draw", action="store_true", help="tables and figures from the data that is there")
    parser.add_argument("-o", "--output", type=Path, help="write the data here, the figure beside, no tables")
    args = parser.parse_args()
    if args.draw:
        write_pages(json.loads((args.output or OUTPUT).read_text()), args.output)
        return
    folder = args.sets if args.sets.is_dir() else None
    if folder is None:
        print(f"{args.sets} is missing: sets drawn from rulesets/seeds stand in for the paper's")
    # The figures of the docs are of the whole run, with the paper's sets.
    if folder is None or args.short or args.no_kernel:
        args.output = args.output or Path("out/papers-hitables/hitables.json")
    path = args.output or OUTPUT
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = 2 if args.short else args.runs
    names: Sequence[str] = made_sets.MADE if folder is None else args.names
    if args.short:
        names, args.sizes, args.barred = FEW[folder is None], (100, 1500), (0, 10)
    parts = args.only or PARTS
    if args.short:
        print("a short run: about a minute")
    else:
        took = minutes(parts, runs, not args.no_kernel, args.sizes, args.barred)
        print(f"about {took:.0f} minutes on an idle machine")
    data: Row = json.loads(path.read_text()) if args.only and path.exists() else {}
    for part in parts:
        started = time.monotonic()
        counted = part in ("public", "variants")  # in one run: the figures follow from the sets
        few = 1 if counted or (args.short and part in ("barred", "limited")) else runs
        kernel = not args.no_kernel
        rows = list(measured(part, folder, names, few, kernel, args.sizes, args.barred))
        about = {"machine": machine(), "runs": few, "seed": SEED, "short": args.short}
        about["sets"] = "WUSTL" if folder else "drawn from rulesets/seeds in place of WUSTL"
        if part in ("public", "variants", "build"):
            about["names"] = sorted({row["set"] for row in rows}, key=list(names).index)
        about["seconds"] = round(time.monotonic() - started)
        data |= {"machine": about["machine"], part: rows}
        of_parts = {**data.get("measured", {}), part: about}
        data["measured"] = {part: of_parts[part] for part in PARTS if part in of_parts}
        path.write_text(json.dumps(data, indent=1) + "\n")
    write_pages(data, args.output)
    misses = misses_of(data)
    for line in misses:
        print(line, file=sys.stderr)
    sys.exit(1 if misses else 0)


def write_pages(data: Row, output: Path | None) -> None:
    """The figure, and the tables of the docs unless the data are those of *output*, from the data alone."""
    from .figures.conext2014 import draw

    path = output or OUTPUT
    draw(data, path.parent)
    print(f"\nfigure and data: {path.parent}/")
    if output is None:
        fill(data)


def fill(data: Row) -> None:
    """The tables of docs/conext2014.md."""
    from .conext2014_tables import fill_page

    fill_page(data)


if __name__ == "__main__":
    command_line.run(main)

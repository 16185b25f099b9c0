"""Table II of "The Small, the Fast and the Lazy" once more, in the kernel: `make papers-sfl-kernel`.

Packets per second through a real chain while updates arrive, and how many of these are done: the paper's
table II with FORWARD of iptables in the place of its classifiers, for the ways of kernel_updaters.py.

One processor does nothing but send, receive and filter packets (wire.py); the updater, and all that it
starts, run on the others.  Updates fall due in fixed intervals, insertions and deletions in random order,
so a set keeps its size; each is done if the kernel has it before the measurement ends.  There are two
workloads, each with a rule set of its own in each run:

    rules    ClassBench rules of our generator (acl.seed), accepting or dropping; updates at random positions,
             insertions are rules of the same set that were held back; packets of all rules that a router
             may forward
    sources  rules that drop a source network each, none in another: updates that a set can take, too

Rates and their intervals are over the sets, as in the paper (90 %).  Parts: workload and backend.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hitables.engine import Rules
from hitables.errors import HitablesError
from hitables.generate import rules as made
from hitables.generate import seed as seeds
from hitables.generate import trace as traces
from hitables.ir.packet import Backend
from hitables.kernel.machine import machine
from hitables.kernel.routable import crafted, routable
from hitables.parse import classbench
from hitables.simulate.five_tuple import batch_of

from . import command_line, kernel_updaters
from .doc_tables import DOCS, fill, markdown
from .figures.lcn2016_kernel import draw
from .intervals import mean_interval
from .kernel_updaters import MAX_UPDATES, OUTSTANDING, Done, Update
from .wire import Sent, Wire, frames, processors, shown_processors

OUTPUT, PAGE = DOCS / "evaluation" / "sfl-kernel.json", DOCS / "sflgen.md"
TABLE = "kernel-updates"
SEED = Path(__file__).resolve().parents[1] / "rulesets/seeds/acl.seed"
RULES = 2000
RATES = (0, 1, 10, 30, 60, 100, 300)
SHORT_RATES = (0, 30, 300)
PACKETS = 5000
WAYS = {
    "rules-legacy": ("linear", "reload", "overlay", "graft"),
    "rules-nft": ("linear", "reload", "overlay", "graft"),
    "sources-legacy": ("linear", "reload", "overlay", "graft", "ipset"),
    "sources-nft": ("linear", "reload", "overlay", "graft", "ipset", "nft set"),
}
# Seconds of a measurement besides its length: namespaces and processes; for each rule: compiling, loading.
BESIDES, EACH_RULE = 0.5, 0.0005

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Work:
    """A set of *rules* rules, updates of it in order, and *count* packets of one size, as frames."""

    rules: int
    text: str
    updates: tuple[Update, ...]
    data: bytes
    count: int


def rules_work(number: int, size: int, updates: int) -> Work:
    """Workload *rules*."""
    rng = random.Random(number)
    every = made.rules(seeds.parse(SEED.read_text(), SEED.name), size + updates, number)
    lines = [line for line in classbench.to_text(every).splitlines() if line.startswith("-A ")]
    verdicts = ("ACCEPT", "DROP")
    bodies = [line[len("-A FORWARD ") :].replace("-j ACCEPT", f"-j {rng.choice(verdicts)}") for line in lines]
    held = set(rng.sample(range(len(bodies)), updates))
    loaded = [body for at, body in enumerate(bodies) if at not in held]
    later = [bodies[at] for at in sorted(held, key=lambda at: rng.random())]
    batch = batch_of(traces.headers(Rules.of_filter(every), 2 * PACKETS, number))
    packets, sent = crafted(batch.pick(np.flatnonzero(routable(batch))[:PACKETS]))
    found = tuple(drawn(rng, len(loaded), later))
    return Work(size, text_of(loaded), found, frames(packets, len(sent)), len(sent))


def drawn(rng: random.Random, count: int, bodies: Sequence[str]) -> Iterator[Update]:
    """As many updates as *bodies*, of a chain of *count* rules: insertions of these, and deletions."""
    for body in bodies:
        if rng.random() < 0.5:
            yield Update(f"-I FORWARD {rng.randint(1, count + 1)} {body}")
            count += 1
        else:
            yield Update(f"-D FORWARD {rng.randint(1, count)}")
            count -= 1


def sources_work(number: int, size: int, updates: int) -> Work:
    """Workload *sources*: hosts and networks of /28 to /24, each in a /24 of its own."""
    rng = random.Random(number)
    numbers = [
        place << 8 | rng.randrange(256) for place in rng.sample(range(1 << 16, 126 << 16), size + updates)
    ]
    networks = []
    for each in numbers:
        length = rng.choice((24, 26, 28, 32))
        networks.append((each >> (32 - length) << (32 - length), length))
    present = [f"{_dotted(address)}/{length}" for address, length in networks[:size]]
    later = iter([f"{_dotted(address)}/{length}" for address, length in networks[size:]])
    text = text_of([f"-s {each} -j DROP" for each in present])
    found = []
    for _ in range(updates):
        if rng.random() < 0.5:
            address, at = next(later), rng.randint(0, len(present))
            present.insert(at, address)
            found.append(Update(f"-I FORWARD {at + 1} -s {address} -j DROP", address))
        else:
            at = rng.randrange(len(present))
            found.append(Update(f"-D FORWARD {at + 1}", present.pop(at)))
    headers = np.zeros((PACKETS, 5), np.uint32)
    chosen = [rng.choice(networks[:size]) for _ in range(PACKETS)]
    headers[:, 0] = [address | rng.getrandbits(32 - length) if length < 32 else address
                     for address, length in chosen]  # fmt: skip
    headers[:, 1] = 198 << 24 | 18 << 16 | 1
    headers[:, 2:4], headers[:, 4] = 4000, 17
    packets, sent = crafted(batch_of(headers))
    return Work(size, text, tuple(found), frames(packets, len(sent)), len(sent))


def _dotted(address: int) -> str:
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


def text_of(bodies: Sequence[str]) -> str:
    rules = "".join(f"-A FORWARD {body}\n" for body in bodies)
    return f"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{rules}COMMIT\n"


WORKLOADS = {"rules": rules_work, "sources": sources_work}


def measured(work: Work, way: str, backend: Backend, rate: int, seconds: float) -> tuple[Sent, Done]:
    """One measurement: packets and updates at the same time."""
    packets, others = processors()
    with tempfile.TemporaryDirectory() as folder, Wire("FORWARD") as wire:
        inside = wire.receiver
        inside.call(kernel_updaters.make, way, work.text, backend, Path(folder) / "state", others)
        try:
            inside.begin(kernel_updaters.drive, work.updates[: int(rate * seconds)], rate, seconds)
            sent = wire.send(work.data, work.count, seconds, packets)
            done: Done = inside.finish()
        finally:
            inside.call(kernel_updaters.end)
    return sent, done


def point(part: str, way: str, rate: int, works: Sequence[Work], seconds: float) -> Row:
    """One cell of the table: over all rule sets."""
    workload, backend = part.split("-")
    runs = [measured(work, way, Backend(backend), rate, seconds) for work in works]
    latencies = sorted(latency for _, done in runs for latency in done.latencies)
    first, _ = runs[0]
    rebuilds = [done.rebuilds for _, done in runs if done.rebuilds is not None]
    waits = {"median": latencies[len(latencies) // 2], "p95": latencies[int(0.95 * (len(latencies) - 1))],
             "max": latencies[-1]} if latencies else None  # fmt: skip
    return {
        "workload": workload, "backend": backend, "way": way, "rules": works[0].rules, "seconds": seconds,
        "rate": rate, "asked": int(rate * seconds),
        "per_second": mean_interval([sent.per_second for sent, _ in runs]),
        "cpu_ns": mean_interval([sent.cpu_ns for sent, _ in runs]),
        "done": mean_interval([len(done.latencies) for _, done in runs]),
        "latency_ms": waits,
        "load": os.getloadavg()[0],
        "rebuilds": mean_interval(rebuilds) if rebuilds else None,
        "ticks": list(first.ticks),
    }  # fmt: skip


def line_of(row: Row) -> str:
    what = f"{row['workload']:<8} {row['backend']:<7} {row['way']:<8} {row['rate']:>4}/s"
    packets, done, waits = row["per_second"], row["done"], row["latency_ms"]
    rebuilds = f", {row['rebuilds']['mean']:.1f} rebuilds" if row["rebuilds"] else ""
    late = f", {waits['median']:.0f} ms, at most {waits['max']:.0f}" if waits else ""
    spread = f" ± {packets['ci90'] / 1000:.1f}" if packets["ci90"] is not None else ""
    return (
        f"{what}: {packets['mean'] / 1000:.1f}{spread} thousand packets/s, "
        f"{done['mean']:.0f} of {row['asked']} updates{late}{rebuilds}"
    )


def table(parts: dict[str, list[Row]]) -> str:
    """Thousands of packets per second with their intervals; the share of updates done if some were not.

    A line behind it has the sets and the length of the measurements.
    """
    rates = list(dict.fromkeys(row["rate"] for rows in parts.values() for row in rows))
    lines = []
    for rows in parts.values():
        for way in dict.fromkeys(row["way"] for row in rows):
            mine = {row["rate"]: row for row in rows if row["way"] == way}
            first = next(iter(mine.values()))
            cells = [cell(mine[rate]) if rate in mine else "–" for rate in rates]
            lines.append([f"{first['workload']}, {first['backend']}, {way}", *cells])
    shown = markdown(("packets, kernel, way", *(f"{rate}/s" for rate in rates)), lines)
    return f"{shown}\n{measurements([row for rows in parts.values() for row in rows])}\n"


def measurements(rows: Sequence[Row]) -> str:
    """How many sets, of how many rules, measured for how long; what the machine had to do."""

    def span(values: Sequence[float]) -> str:
        return " to ".join(dict.fromkeys(f"{value:,g}" for value in (min(values), max(values))))

    sets = span([row["per_second"]["runs"] for row in rows])
    return (
        f"Sets of each workload: {sets}, of {span([row['rules'] for row in rows])} rules; seconds of each "
        f"measurement: {span([row['seconds'] for row in rows])}; load of the machine, these processes "
        f"included: {span([round(row['load'], 1) for row in rows])}."
    )


def cell(row: Row) -> str:
    packets, done = row["per_second"], row["done"]["mean"]
    spread = f" ± {packets['ci90'] / 1000:.0f}" if packets["ci90"] is not None else ""
    share = f" ({done / row['asked']:.0%})" if row["asked"] and done < 0.995 * row["asked"] else ""
    return f"{packets['mean'] / 1000:.0f}{spread}{share}"


def planned(left: int, sets: int, rules: int, seconds: float) -> float:
    """Seconds that *left* cells take, on a machine that does nothing else."""
    return left * sets * (seconds + BESIDES + EACH_RULE * rules)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (10, as the paper)")
    parser.add_argument("--sets", type=int, default=3, help="rule sets of each workload (3; the paper: 10)")
    parser.add_argument("--rules", type=int, default=RULES, help=f"of each set ({RULES}, as the paper)")
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="updates a second")
    parser.add_argument("--short", action="store_true", help="few cells, a minute; into out/ or -o")
    parser.add_argument("--only", nargs="+", choices=WAYS, help="measure these, and keep the other figures")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was cut short")
    parser.add_argument("--draw", action="store_true", help="table and figure from the data that is there")
    parser.add_argument("-o", "--output", type=Path, help="write data and figure here, and no table")
    args = parser.parse_args()
    if args.short and not args.draw:  # the data of the docs are of the whole run
        args.output = args.output or Path("out/sfl-kernel.json")
        args.sets, args.seconds, args.rules, args.rates = 1, 0.5, 300, list(SHORT_RATES)
    path = args.output or OUTPUT
    if not args.draw:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            measure(args, path)
        except HitablesError as error:
            raise SystemExit(str(error)) from error
    data = json.loads(path.read_text())
    draw(data, path.parent)
    if not args.output:
        fill(PAGE, TABLE, table(data["parts"]))
    print(f"data and figure: {path.parent}/")


def measured_cells(part: str, cells: Sequence[tuple[str, int]], args: argparse.Namespace) -> Iterator[Row]:
    """The *cells* of a part, each a way and a rate."""
    make, updates = WORKLOADS[part.split("-")[0]], int(max(args.rates) * args.seconds)
    works = [make(number, args.rules, updates) for number in range(args.sets)]
    for way, rate in cells:
        yield point(part, way, rate, works, args.seconds)


def measure(args: argparse.Namespace, path: Path) -> None:
    """Measure what *args* say, into *path* after each cell."""
    parameters = {
        "seconds": args.seconds, "sets": args.sets, "rules": args.rules, "rates": args.rates,
        "max_updates": MAX_UPDATES, "outstanding": OUTSTANDING, "processors": shown_processors(),
    }  # fmt: skip
    data: dict[str, Any] = {"parts": {}}
    if (args.only or args.resume) and path.exists():
        data = json.loads(path.read_text())
    if args.resume and any(data.get(name, value) != value for name, value in parameters.items()):
        raise SystemExit(f"{path} is of a run with other parameters; go on with those, or begin anew")
    data |= {"machine": machine(), **parameters}
    parts = {part: [(way, rate) for way in WAYS[part] for rate in args.rates] for part in args.only or WAYS}
    done = {
        part: {(row["way"], row["rate"]) for row in data["parts"].get(part, ())} if args.resume else set()
        for part in parts
    }
    left = sum(each not in done[part] for part, cells in parts.items() for each in cells)
    minutes = planned(left, args.sets, args.rules, args.seconds) / 60
    print(f"{left} cells × {args.sets} sets × {args.seconds:g} s: {minutes:.0f} minutes")
    began = time.monotonic()
    for part, cells in parts.items():
        rows = data["parts"][part] = data["parts"].get(part, []) if args.resume else []
        for row in measured_cells(part, [each for each in cells if each not in done[part]], args):
            rows.append(row)
            print(line_of(row), flush=True)
            path.write_text(json.dumps(data, indent=1) + "\n")
        path.write_text(json.dumps(data, indent=1) + "\n")
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    command_line.run(main)

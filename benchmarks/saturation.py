"""Figures 5b and 5c of "Trees in the List" by their own protocol: `make papers-hitables-saturation`.

Minimum-size UDP packets of a trace that covers all rules are sent as fast as possible, and the packets that
the receiver has completely classified are counted: T_orig, T_mod and T_IO are the seconds of a measurement
over the packets received, for the rule set as it is, compiled, and empty.  The speed-up is T_orig / T_mod
with I/O and (T_orig - T_IO) / (T_mod - T_IO) without.  Every rule and the policy are ACCEPT, so the packets
that INPUT delivers must be those received.

    sizes   5b: 100 to 3,500 rules in steps of 200
    barred  5c: zero to ten rules among 1,000 that the paper does not transform

Each point is repeated with a rule set of its own in each run; mean and standard deviation, as in the paper.
Other than there, sender and receiver are two namespaces of one machine that share a processor (wire.py), so
T_IO has the cost of sending too, and the speed-up with I/O is lower for it; that without is not concerned.
Beside these times are those of the sender's thread by its processor clock, on which other load has little
influence: the form of benchmarks/conext2014.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.conext2014 import transform
from hitables.compiler.options import Options
from hitables.emit.text import write
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load
from hitables.kernel.machine import machine

from . import command_line
from .conext2014 import CHAIN as SENDERS_CHAIN
from .conext2014 import MIN_LENGTH, synthetic_text
from .doc_tables import DOCS
from .figures.saturation import draw
from .intervals import mean_interval
from .kernel import random_rules
from .wire import Sent, Wire, frames, processors, shown_processors, total

OUTPUT = DOCS / "evaluation" / "hitables-saturation.json"
CHAIN = "INPUT"
SIZES = range(100, 3501, 200)
SHORT_SIZES = (100, 1500, 3500)
BARRED, BARRED_RULES = range(11), 1000
PARTS = ("sizes", "barred")
SCHEMES = ("paper", "tree")
PACKETS_PER_RULE = 10
# Seconds of a slice: rule sets take turns, so that a disturbance of the machine affects all of them.
SLICE = 0.25
BINTH = 8
# Seconds that one run takes besides its measurements: rule sets are drawn, compiled and loaded.
BESIDES = 2.0

Row = dict[str, Any]
Case = tuple[int, int]  # rules, and how many of them are barred


def texts(case: Case, seed: str, backend: Backend) -> tuple[dict[str, str], bytes, int]:
    """The rule sets by name, packets that match all rules in random order, and their number."""
    count, barred = case
    rng = random.Random(seed)
    rules = random_rules(count, [24], rng)
    plain = synthetic_text(rules, barred).replace(SENDERS_CHAIN, CHAIN)
    program = read(plain, family=Family.IPV4)
    paper = transform(program, Options(backend=backend, leaf_size=BINTH, min_length=MIN_LENGTH))
    tree = compile_rules(program, Options(backend=backend))
    packets = [rule.packet(rng) for rule in rules for _ in range(PACKETS_PER_RULE)]
    rng.shuffle(packets)
    found = {
        "empty": f"*filter\n:{CHAIN} ACCEPT [0:0]\nCOMMIT\n",
        "input": plain,
        "paper": write(paper.program),
        "tree": write(tree.program),
    }
    return found, b"".join(packets), len(packets)


def measured(case: Case, run: int, seed: int, seconds: float, backend: Backend) -> dict[str, Sent]:
    """One run: each rule set for *seconds* with the same packets, in slices that take turns."""
    sets, packets, count = texts(case, f"{seed}/{case[0]}/{case[1]}/{run}", backend)
    data, slices = frames(packets, count), max(1, round(seconds / SLICE))
    parts: dict[str, list[Sent]] = {name: [] for name in sets}
    with ExitStack() as stack:
        wires = {name: stack.enter_context(Wire(CHAIN)) for name in sets}
        for name, wire in wires.items():
            load(sets[name], Family.IPV4, backend, wire.receiver)
        for _ in range(slices):
            for name, wire in wires.items():
                parts[name].append(wire.send(data, count, seconds / slices, processors()[0]))
    results = {name: total(each) for name, each in parts.items()}
    for name, sent in results.items():
        if sent.delivered != sent.received:
            raise HitablesError(
                f"{case[0]} rules, {name}: of {sent.received:,} packets received {sent.delivered:,} were "
                "delivered, and all rules accept"
            )
    return results


def gains(times: dict[str, float], scheme: str) -> tuple[float, float | None]:
    """Speed-up with I/O, and without; None where the scheme takes no more time than the empty rule set."""
    original, modified, empty = times["input"], times[scheme], times["empty"]
    without = (original - empty) / (modified - empty) if modified > empty else None
    return original / modified, without


def points(case: Case, runs: Sequence[dict[str, Sent]]) -> Iterator[Row]:
    """For each scheme: speed-ups and times over *runs*."""
    clocks: dict[str, Callable[[Sent], float]] = {"": lambda sent: sent.ns, "cpu_": lambda sent: sent.cpu_ns}
    for scheme in SCHEMES:
        row: Row = {"rules": case[0], "barred": case[1], "scheme": scheme}
        for clock, take in clocks.items():
            times = [{name: take(sent) for name, sent in run.items()} for run in runs]
            pairs = [gains(each, scheme) for each in times]
            without = [pair[1] for pair in pairs if pair[1] is not None]
            row |= {
                f"{clock}with_io": mean_interval([pair[0] for pair in pairs]),
                f"{clock}without_io": mean_interval(without) if without else None,
                f"{clock}t_orig": mean_interval([each["input"] for each in times]),
                f"{clock}t_mod": mean_interval([each[scheme] for each in times]),
                f"{clock}t_io": mean_interval([each["empty"] for each in times]),
            }
        row["load"] = os.getloadavg()[0]
        row["received"] = [
            {name: run[key].received for name, key in (("orig", "input"), ("mod", scheme), ("io", "empty"))}
            for run in runs
        ]
        yield row


def line_of(row: Row) -> str:
    def shown(what: str) -> str:
        value = row[what]
        return "–" if value is None else f"{value['mean']:.2f} ± {value['deviation'] or 0:.2f}"

    what = f"{row['rules']:>6}{row['barred']:>7} {row['scheme']:<6}"
    columns = ("without_io", "with_io", "cpu_without_io", "cpu_with_io")
    return what + "".join(f"{shown(each):>18}" for each in columns)


HEAD = f"{'rules':>6}{'barred':>7} {'scheme':<6}" + "".join(
    f"{each:>18}" for each in ("without I/O", "with I/O", "cpu, without", "cpu, with")
)


def cases_of(part: str, short: bool) -> list[Case]:
    if part == "sizes":
        return [(count, 0) for count in (SHORT_SIZES if short else SIZES)]
    return [(BARRED_RULES, number) for number in (BARRED[::10] if short else BARRED)]


def planned(cases: Iterable[Case], runs: int, seconds: float) -> float:
    """Seconds that the whole takes, on a machine that does nothing else."""
    return sum(runs * (seconds * (2 + len(SCHEMES)) + BESIDES) for _ in cases)


def measured_points(cases: Sequence[Case], args: argparse.Namespace) -> Iterator[Row]:
    backend = Backend(args.backend)
    for case in cases:
        runs = [measured(case, run, args.seed, args.seconds, backend) for run in range(args.runs)]
        yield from points(case, runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.5, help="of each measurement (2.5; the paper: 10)")
    parser.add_argument("--runs", type=int, default=10, help="of each point (10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--backend", choices=["legacy", "nft"], default="legacy", help="(legacy, as the paper)"
    )
    parser.add_argument("--short", action="store_true", help="few points, a minute; into out/ or -o")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these, and keep the other figures")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was cut short")
    parser.add_argument("--draw", action="store_true", help="the figure from the data that is there")
    parser.add_argument("-o", "--output", type=Path, help="write the data and the figure here")
    args = parser.parse_args()
    if args.short and not args.draw:  # the data of the docs are of the whole run
        args.output = args.output or Path("out/hitables-saturation.json")
        args.runs, args.seconds = 2, 0.5
    path = args.output or OUTPUT
    if args.draw:
        draw(json.loads(path.read_text()), path.parent)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    parameters = {
        "seconds": args.seconds, "runs": args.runs, "seed": args.seed, "backend": args.backend,
        "slice": SLICE, "binth": BINTH, "packets_per_rule": PACKETS_PER_RULE,
        "processors": shown_processors(),
    }  # fmt: skip
    data: dict[str, Any] = {}
    if (args.only or args.resume) and path.exists():
        data = json.loads(path.read_text())
    if args.resume and any(data.get(name, value) != value for name, value in parameters.items()):
        raise SystemExit(f"{path} is of a run with other parameters; go on with those, or begin anew")
    data |= {"machine": machine(), **parameters}
    parts = args.only or PARTS
    cases = {part: cases_of(part, args.short) for part in parts}
    done = {
        part: {(row["rules"], row["barred"]) for row in data.get(part, ())} if args.resume else set()
        for part in parts
    }
    left = [case for part in parts for case in cases[part] if case not in done[part]]
    minutes = planned(left, args.runs, args.seconds) / 60
    print(f"{len(left)} points × {args.runs} runs × 4 rule sets × {args.seconds:g} s: {minutes:.0f} minutes")
    print(HEAD)
    began = time.monotonic()
    for part in parts:
        rows = data[part] = data.get(part, []) if args.resume else []
        for row in measured_points([each for each in cases[part] if each not in done[part]], args):
            rows.append(row)
            print(line_of(row), flush=True)
            path.write_text(json.dumps(data, indent=1) + "\n")
        path.write_text(json.dumps(data, indent=1) + "\n")
    draw(data, path.parent)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes; data and figure: {path.parent}/")


if __name__ == "__main__":
    command_line.run(main)

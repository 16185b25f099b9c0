"""The evaluation of "The Small, the Fast and the Lazy" (section V), repeated: `make papers-sfl`.

table1   exponents of build, update and search (lcn2016_growth)
figure5  k = 10, 20 … 100 updates, without rebuilds of SFL: seconds, and nanoseconds per header afterwards
table2   10 to 600 updates in ten seconds: headers classified and updates done; figure 6 is its rows of 100
deltas   figures 7 and 8: 100 updates in 10 and in 25 seconds, delta = 0, 5 … 100; 0 is A without SFL.
         Our usual form is measured at six deltas, beside the paper's at all

Each classifier is measured in our usual form and in the paper's (lcn2016_sets).  Rule sets are from our
generator, 2,000 rules each; as many sets as `--sets` says, where the paper has ten.  Headers are drawn evenly
from the rules.  The threads of table2 and deltas are of C: classify, feed, update and count, and a fifth for
builds; `machine` says how many cores they share.

Rows that the data has already are not measured again, as long as the parameters of their part are the same:
a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hitables import engine
from hitables.core.update_run import UpdateRun, update_run
from hitables.files import write_text
from hitables.kernel.machine import machine

from . import command_line, lcn2016_growth, lcn2016_tables
from .confidence import spread
from .doc_tables import DOCS, fill
from .lcn2016_growth import ns_per_packet, timed_updates, unbuilt
from .lcn2016_sets import (
    DELTA,
    FORMS,
    KINDS,
    PACKETS,
    PLANS,
    RULES,
    SEED,
    STATIC,
    Workload,
    with_delta,
    workload,
)

OUTPUT = DOCS / "evaluation" / "sfl.json"
PARTS = ("table1", "figure5", "table2", "deltas")
TICKS_PER_SECOND = 10
# The updates of table II whose rows are drawn over time (figure 6).
DRAWN = 100

Row = dict[str, Any]


@dataclass(frozen=True)
class Protocol:
    """How much is measured: updates of figure 5 and of table II, deltas, durations."""

    sets: int = 3
    seconds: float = 10.0
    counts: tuple[int, ...] = tuple(range(10, 101, 10))
    asked: tuple[int, ...] = (10, 100, 300, 600)
    deltas: tuple[int, ...] = tuple(range(0, 101, 5))  # of the paper's form
    our_deltas: tuple[int, ...] = (0, 5, 10, 20, 50, 100)
    durations: tuple[float, ...] = (10.0, 25.0)
    issued: int = 100
    forms: tuple[str, ...] = tuple(FORMS)  # of the deltas
    short: bool = False

    def minutes(self, part: str) -> float:
        """About how long a part takes; where the protocol sets no time, as it was on two cores at 2.8 GHz."""
        if part == "table2":
            return len(PLANS) * len(KINDS) * len(self.asked) * self.sets * (self.seconds + 0.2) / 60
        if part == "deltas":
            each = sum(seconds + 0.2 for seconds in self.durations)
            of_each = [self.deltas_of(form) for form in self.forms]
            # Without delta 0, which both forms of RFC share.
            shared = sum(0 in deltas for deltas in of_each[1:])
            runs = (len(STATIC) * sum(map(len, of_each)) - shared) * len(KINDS)
            return runs * self.sets * each / 60
        if part == "figure5":
            return self.sets * sum(self.counts) / sum(range(10, 101, 10)) * 2
        return self.sets * (0.3 if self.short else 5)

    def deltas_of(self, form: str) -> tuple[int, ...]:
        return self.deltas if form == "paper" else self.our_deltas


SHORT = Protocol(
    sets=1, seconds=0.5, counts=(10, 30), asked=(100,), deltas=(0, 10, 50), our_deltas=(0, 10, 50),
    durations=(0.5,), short=True,
)  # fmt: skip


def isolated(protocol: Protocol, known: Sequence[Row]) -> Iterator[Row]:
    """Figure 5."""
    there = {(row["plan"], row["kind"], row["updates"]) for row in known}
    for count in protocol.counts:
        for plan in PLANS:
            for kind in KINDS:
                if (plan, kind, count) in there:
                    continue
                took, each = [], []
                for number in range(1, protocol.sets + 1):
                    work = workload(number, count)
                    with engine.open(unbuilt(plan), work.rules) as db:
                        took.append(timed_updates(db, work, kind, count))
                        each.append(ns_per_packet(db, work.headers))
                row: Row = {"plan": plan, "kind": kind, "updates": count}
                yield row | {"seconds": spread(took), "ns": spread(each)}


def simulate(plan: str, work: Workload, kind: str, count: int, seconds: float) -> UpdateRun:
    """Four threads for *seconds*, with *count* updates at even distances."""
    boxes, priority = work.updates(kind, count)
    parts = max(1, round(seconds * TICKS_PER_SECOND))
    with engine.open(plan, work.rules) as db:
        return update_run(db.opened(), work.headers, kind == "insert", boxes, priority, seconds, parts, plan)


def simulated(
    plan: str, kind: str, count: int, seconds: float, sets: Sequence[int], before: Row | None = None
) -> Row:
    """One run for each set: millions of headers, updates done, rebuilds; headers a part, of the first run.

    before  the row of the sets that were measured earlier, whose runs stand in front
    """
    runs = [simulate(plan, workload(number, count), kind, count, seconds) for number in sets]
    millions, done, rebuilds = (
        (before["millions"]["runs"], before["done"]["runs"], before["rebuilds"]) if before else ([], [], [])
    )
    return {
        "plan": plan, "kind": kind, "updates": count, "seconds": seconds,
        "millions": spread([*millions, *(run.processed / 1e6 for run in runs)]),
        "done": spread([*done, *(run.done for run in runs)]),
        "rebuilds": [*rebuilds, *(run.rebuilds for run in runs)],
        "ticks": runs[0].ticks.tolist(),
    }  # fmt: skip


def table_two(protocol: Protocol, known: Sequence[Row]) -> Iterator[Row]:
    """Table II; figure 6 is its rows of 100 updates."""
    there = {(row["plan"], row["kind"], row["updates"]) for row in known}
    for asked in protocol.asked:
        for plan in PLANS:
            for kind in KINDS:
                if (plan, kind, asked) in there:
                    continue
                row = simulated(plan, kind, asked, protocol.seconds, range(1, protocol.sets + 1))
                if asked != DRAWN:
                    del row["ticks"]
                yield row


def over_delta(protocol: Protocol, known: Sequence[Row]) -> Iterator[Row]:
    """Figures 7 and 8: plans by delta; delta 0 is the classifier without SFL.

    It goes set by set, so that a run that is stopped leaves rows of as many sets each; a row that is there
    is given again with one more set.
    """
    there = {delta_key(row): row for row in known}
    for seconds in protocol.durations:
        for number in range(1, protocol.sets + 1):
            for inner, form, delta, plan in delta_plans(protocol):
                for kind in KINDS:
                    row: Row = {"algorithm": inner, "form": form, "delta": delta}
                    before = there.get((plan, kind, seconds))
                    if before and len(before["rebuilds"]) >= number:
                        continue
                    row |= simulated(plan, kind, protocol.issued, seconds, (number,), before)
                    del row["ticks"]
                    there[delta_key(row)] = row
                    yield row


def delta_plans(protocol: Protocol) -> Iterator[tuple[str, str, int, str]]:
    """Algorithm, form, delta and plan; a plan that two forms share comes once."""
    seen = set()
    for delta in sorted({*protocol.deltas, *protocol.our_deltas}):
        for form in protocol.forms:
            for inner in STATIC if delta in protocol.deltas_of(form) else ():
                plan = delta_plan(FORMS[form][f"sfl({inner})"], delta) if delta else FORMS[form][inner]
                if plan not in seen:
                    seen.add(plan)
                    yield inner, form, delta, plan


def delta_key(row: Row) -> tuple[str, str, float]:
    """What a row of figures 7 and 8 is measured of."""
    return row["plan"], row["kind"], row["seconds"]


def delta_plan(plan: str, delta: int) -> str:
    return plan if delta == DELTA else with_delta(plan, delta)


def never_rebuilt(data: dict[str, Any]) -> list[str]:
    """The rows in which SFL did more updates than delta and never built A again: that is not SFL."""
    found = []
    for part in ("table2", "deltas"):
        for row in data.get(part, []):
            delta = row.get("delta", DELTA)
            if not row["plan"].startswith("sfl") or delta == 0:
                continue
            for number, (done, rebuilds) in enumerate(
                zip(row["done"]["runs"], row["rebuilds"], strict=True), 1
            ):
                if done > delta and not rebuilds:
                    what = f"{row['updates']} × {row['kind']} in {row['seconds']:g} s, set {number}"
                    found.append(
                        f"{part}: {row['plan']}, {what}: {done:g} updates done with a delta of {delta}, and "
                        "A was never built again"
                    )
    return found


def parameters(part: str, protocol: Protocol) -> dict[str, Any]:
    """What the rows of a part depend on: rows of other parameters are not kept."""
    common: dict[str, Any] = {
        "sets": protocol.sets,
        "confidence": 0.9,
        "rules": RULES,
        "packets": PACKETS,
        "seed": SEED,
    }
    if part == "table1":
        effort = {name: list(values) for name, values in asdict(effort_of(protocol)).items()}
        del common["seed"], common["rules"]
        return common | {"packets": lcn2016_growth.PACKETS} | effort
    values = asdict(protocol)
    names = {
        "figure5": ("counts",),
        "table2": ("asked", "seconds"),
        "deltas": ("deltas", "our_deltas", "durations", "issued"),
    }[part]
    chosen = {name: list(values[name]) if isinstance(values[name], tuple) else values[name] for name in names}
    return common | ({} if part == "figure5" else {"delta": DELTA}) | chosen


def speed(machine: Row) -> Row:
    """What the figures depend on, which are of user space: not the day, nor the patches of the kernel."""
    release = str(machine.get("kernel", "")).partition("-")[0]
    return {name: machine.get(name) for name in ("cpu", "cores", "python")} | {"release": release}


def effort_of(protocol: Protocol) -> lcn2016_growth.Effort:
    return lcn2016_growth.SHORT if protocol.short else lcn2016_growth.Effort()


def measure(part: str, protocol: Protocol, data: dict[str, Any], path: Path) -> None:
    """Add the rows of a part that *data* lacks, and write it to *path* after each."""
    stages: dict[str, Callable[[Sequence[Row]], Iterator[Row]]] = {
        "table1": lambda known: lcn2016_growth.growth(effort_of(protocol), protocol.sets, known),
        "figure5": lambda known: isolated(protocol, known),
        "table2": lambda known: table_two(protocol, known),
        "deltas": lambda known: over_delta(protocol, known),
    }
    head: dict[str, Any] = {"machine": machine(), "parameters": parameters(part, protocol)}
    runs = data.setdefault("runs", {})
    before = runs.get(part, {})
    # Rows of other days are of the same run, if the machine and the parameters are the same.
    if (speed(before.get("machine", {})), before.get("parameters")) == (
        speed(head["machine"]),
        head["parameters"],
    ):
        head["since"] = before.get("since", before["machine"]["date"])
    else:
        data[part] = []
        runs.pop(part, None)
    load = os.getloadavg()[0]
    for row in stages[part](tuple(data[part])):
        if part == "deltas":
            data[part] = [old for old in data[part] if delta_key(old) != delta_key(row)]
        data[part].append(row)
        data |= {"machine": head["machine"]}
        runs[part] = head | {"load_at_start": load}
        print(part, len(data[part]), row["plan"], row.get("kind", row.get("case")), flush=True)
        write_text(str(path), json.dumps(data, indent=1) + "\n")


def write_pages(data: dict[str, Any]) -> None:
    """The tables and figures of the docs, from the data alone."""
    from .figures.lcn2016 import draw

    draw(data, OUTPUT.parent)
    page = DOCS / "classifiers.md"
    for name, (part, show) in lcn2016_tables.TABLES.items():
        if data.get(part):
            fill(page, name, show(data[part]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Protocol()
    parser.add_argument("--sets", type=int, help=f"rule sets of each figure (the paper: 10; {usual.sets})")
    parser.add_argument(
        "--seconds", type=float, help="of each run of table2, and of the only one of deltas (10; 10, 25)"
    )
    parser.add_argument("--deltas", type=int, nargs="+", help="of figures 7 and 8, both forms (0, 5 … 100)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, help="of figures 7 and 8 (both)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these, and keep the other figures")
    parser.add_argument(
        "--short", action="store_true", help="a minute and a half: one set, half seconds; into out/ or -o"
    )
    parser.add_argument("--again", action="store_true", help="measure rows again that are in the data")
    parser.add_argument("--draw", action="store_true", help="tables and figures from the data that is there")
    parser.add_argument("-o", "--output", type=Path, help="write the data here, and no pages")
    args = parser.parse_args(arguments)
    protocol = protocol_of(args)
    if args.short and not args.draw:  # the figures of the docs are of the whole run
        args.output = args.output or Path("out/sfl.json")
    path = args.output or OUTPUT
    path.parent.mkdir(parents=True, exist_ok=True)
    data = recorded(path)
    if not args.draw:
        chosen = args.only or PARTS
        times = {part: protocol.minutes(part) for part in chosen}
        print(
            f"about {sum(times.values()):.0f} minutes on an idle machine: "
            + ", ".join(f"{part} {minutes:.0f}" for part, minutes in times.items())
            + "; rows that are there already are not measured again",
            flush=True,
        )
        for part in chosen:
            if args.again:
                data.pop(part, None)
                data.get("runs", {}).pop(part, None)
            measure(part, protocol, data, path)
    if args.output:
        print(f"data: {path}")
    else:
        write_pages(data)
    print(lcn2016_tables.table_two(data.get("table2", [])))
    wrong = never_rebuilt(data)
    if wrong:
        sys.exit("\n".join(wrong))


def recorded(path: Path) -> dict[str, Any]:
    """The parts that are there, in the form that this writes."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    runs = found.get("runs", {})
    kept = {part: found[part] for part in PARTS if part in runs and part in found}
    return ({"machine": found["machine"]} if runs else {}) | {"runs": runs} | kept


def protocol_of(args: argparse.Namespace) -> Protocol:
    """The protocol that the options choose."""
    base = asdict(SHORT if args.short else Protocol())
    if args.sets is not None:
        if args.sets < 1:
            sys.exit(f"--sets {args.sets}: at least one rule set is needed")
        base["sets"] = args.sets
    if args.seconds is not None:
        if not args.seconds > 0:
            sys.exit(f"--seconds {args.seconds:g}: a run takes more than no time")
        base |= {"seconds": args.seconds, "durations": (args.seconds,)}
    if args.forms:
        base["forms"] = tuple(args.forms)
    if args.deltas is not None:
        if min(args.deltas) < 0:
            sys.exit(f"--deltas {min(args.deltas)}: delta counts updates, from 0")
        base["deltas"] = base["our_deltas"] = tuple(sorted(set(args.deltas)))
    return Protocol(**base)


if __name__ == "__main__":
    command_line.run(main)

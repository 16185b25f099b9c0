"""`make bench-traffic`: what generated traffic is like, and how fast packets are made, read and measured.

With --write: docs/evaluation/traffic.json, with machine and seed, and the tables of docs/traffic.md.  The
rule set of the presets that need one is generated from a seed in rulesets/seeds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from hitables import engine, locality
from hitables.generate import rules as drawn_rules
from hitables.generate import seed as seeds
from hitables.generate.traffic import to_pcap, to_trace, traffic
from hitables.generate.traffic_presets import PRESETS
from hitables.ir.fields import Family
from hitables.kernel.machine import machine
from hitables.parse.packet_stream import open_packets

from . import command_line
from .doc_tables import fill, markdown

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = ROOT / "docs/evaluation/traffic.json"
PAGE = ROOT / "docs/traffic.md"
SEED_FILE, RULES = "rulesets/seeds/acl.seed", 5000
# Sizes of hash tables in the table of presets.
BUCKETS = (1 << 10, 1 << 14, 1 << 18)
# The goal for reading a capture from the page cache, in packets per second.
READ_GOAL = 2_000_000


def rule_set() -> engine.Rules:
    seed = seeds.parse((ROOT / SEED_FILE).read_text(), SEED_FILE)
    return engine.Rules.of_filter(drawn_rules.rules(seed, RULES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packets", type=int, default=4_000_000, help="of each preset")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="record the figures, and fill the docs")
    args = parser.parse_args()
    rules = rule_set()
    presets: list[dict[str, Any]] = []
    rates: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, preset in PRESETS.items():
            bound = rules if preset.of_rules else None
            pcap, trace = Path(folder) / "x.pcap", Path(folder) / "x.trace"
            pcap.write_bytes(b"".join(map(bytes, to_pcap(traffic(name, args.packets, rules=bound)))))
            presets.append({"preset": name, **describe(pcap, bound)})
            source = partial(traffic, name, args.packets, rules=bound)
            generated = rate(args.packets, args.runs, source)
            rates.append({"what": f"generate {name}", "packets_per_s": generated})
            print(json.dumps(rates[-1]))
            if name == "department":
                write_files(name, args.packets, pcap, trace)
                rates += of_files(args, name, pcap, trace)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    record = {
        "machine": machine(), "packets": args.packets, "seed": 0, "rules": f"{RULES} of {SEED_FILE}",
        "presets": presets, "rates": rates, "peak_mib": memory,
    }  # fmt: skip
    if args.write:
        WRITTEN.write_text(json.dumps(record, indent=1) + "\n")
        fill(PAGE, "presets", preset_table(presets))
        fill(PAGE, "rates", rate_table(rates))
    print(preset_table(presets) + rate_table(rates))
    (read,) = (row["packets_per_s"] for row in rates if row["what"] == "read pcap")
    if read < READ_GOAL:
        raise SystemExit(f"reading pcap: {read:,} packets per second, the goal is {READ_GOAL:,}")


def write_files(name: str, packets: int, pcap: Path, trace: Path) -> None:
    trace.write_bytes(b"".join(map(bytes, to_trace(traffic(name, packets)))))
    pcap.with_suffix(".gz").write_bytes(gzip.compress(pcap.read_bytes(), 1))


def describe(path: Path, rules: engine.Rules | None) -> dict[str, Any]:
    """What the argument for flow tables and rule caches rests on (docs/traffic.md)."""
    if rules is None:
        report = locality.measure(open_packets(str(path), family=Family.IPV4))
    else:
        with engine.open("best", rules) as db:
            report = locality.measure(open_packets(str(path), family=Family.IPV4), db.search)
    return locality.as_data(report) | {"source": path.name}


def of_files(args: argparse.Namespace, name: str, pcap: Path, trace: Path) -> list[dict[str, Any]]:
    """Rates of writing, reading and measuring one preset; files are in the page cache."""

    def read(path: Path) -> Callable[[], Iterable[Any]]:
        return lambda: open_packets(str(path), family=Family.IPV4)

    def measured() -> Iterable[Any]:
        locality.measure(open_packets(str(pcap), family=Family.IPV4))
        return ()

    steps: dict[str, Callable[[], Iterable[Any]]] = {
        f"generate {name} as pcap": lambda: to_pcap(traffic(name, args.packets)),
        f"generate {name} as trace": lambda: to_trace(traffic(name, args.packets)),
        "read pcap": read(pcap),
        "read pcap.gz": read(pcap.with_suffix(".gz")),
        "read trace": read(trace),
        "measure pcap": measured,
    }
    rows = [
        {"what": what, "packets_per_s": rate(args.packets, args.runs, step)} for what, step in steps.items()
    ]
    print(*map(json.dumps, rows), sep="\n")
    return rows


def rate(packets: int, runs: int, step: Callable[[], Iterable[Any]]) -> int:
    """Packets per second of the median run; what the step gives is read to its end."""
    times = []
    for _ in range(runs):
        began = time.process_time()
        for _ in step():
            pass
        times.append(time.process_time() - began)
    return round(packets / statistics.median(times))


def preset_table(presets: list[dict[str, Any]]) -> str:
    head = ["preset", "flows", "packets per flow", "flows in 1,024 packets", "top 20 flows", "top 20 rules"]
    head += [f"k at {buckets:,}" for buckets in BUCKETS]
    lines = []
    for row in presets:
        flows, bursts = row["flows"], {each["buckets"]: each["length"] for each in row["bursts"]}
        top = [of["windows"]["shares"]["20"] if of else None for of in (flows, row["rules"])]
        lines.append(
            [
                row["preset"],
                flows["count"],
                f"{flows['packets_each']['mean']:.1f}",
                f"{flows['windows']['mean_keys']:.0f}",
                *("–" if share is None else f"{100 * share:.0f} %" for share in top),
                *(f"{bursts[buckets]:.2f}" for buckets in BUCKETS),
            ]
        )
    return markdown(head, lines)


def rate_table(rates: list[dict[str, Any]]) -> str:
    rows = [[row["what"], f"{row['packets_per_s'] / 1e6:.1f}"] for row in rates]
    return markdown(["step", "million packets a second"], rows)


if __name__ == "__main__":
    command_line.run(main)

"""The cost of a rule set in the kernel: `python -m benchmarks.kernel`.

The time of one UDP packet through OUTPUT above an empty rule set, for the rule set as it is and compiled,
interleaved in one run.  The rules are those of section 6 of the CoNEXT 2014 paper: random sources, one
destination, random ranges of source and destination ports.  Packets are drawn evenly over the rules: few
flows in turn, whose path through the tree stays in the cache, and many, whose leaves do not; the goals are
for the few.

Then the public sets of 10,000 rules (../shared), routed through FORWARD, with the packets of their traces
that a router forwards; in nft also a native map of five fields, where one is possible.  The last set has what
real firewalls have besides (benchmarks.decorations); connections are tracked there, before and after.

`-o docs/evaluation/kernel.json` also fills the table of docs/costs.md: the cost model beside the figures.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import random
import statistics
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.emit.text import write
from hitables.errors import LiveError
from hitables.files import read_text
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.machine import machine
from hitables.kernel.rivals import Cannot, load_map, verdict_map
from hitables.kernel.stopwatch import EMPTY, Stopwatch
from hitables.kernel.user_bench import measure
from hitables.parse import classbench, trace
from hitables.simulate.five_tuple import batch_of

from . import command_line
from .decorations import decorate
from .doc_tables import DOCS, fill, markdown
from .public_sets import verdicts_drawn

DESTINATION = "10.99.0.1"

FEW, MANY = 64, 2000  # flows that take turns


@dataclass(frozen=True, slots=True)
class RandomRule:
    """One rule: a source prefix and two port ranges."""

    source: ipaddress.IPv4Network
    sport: tuple[int, int]
    dport: tuple[int, int]

    def text(self) -> str:
        ports = f"--sport {self.sport[0]}:{self.sport[1]} --dport {self.dport[0]}:{self.dport[1]}"
        return f"-A OUTPUT -s {self.source} -d {DESTINATION} -p udp -m udp {ports} -j ACCEPT"

    def packet(self, rng: random.Random) -> bytes:
        """A UDP packet that the rule matches."""
        source = int(self.source.network_address) + rng.randrange(self.source.num_addresses)
        sport, dport = rng.randint(*self.sport), rng.randint(*self.dport)
        udp = struct.pack("!HHHH", sport, dport, 8, 0)
        to = int(ipaddress.IPv4Address(DESTINATION))
        return struct.pack("!BBHHHBBHII", 0x45, 0, 28, 0, 0, 64, 17, 0, source, to) + udp


def random_rules(count: int, lengths: Sequence[int], rng: random.Random) -> list[RandomRule]:
    """*count* rules with sources of one of *lengths* and port ranges of at most 1,000."""

    def ports() -> tuple[int, int]:
        low = rng.randrange(65536)
        return low, min(65535, low + rng.randrange(1000))

    def source() -> ipaddress.IPv4Network:
        length = rng.choice(lengths)
        # 1.0.0.0 to 126.255.255.255: addresses that a packet may come from.
        number = rng.randrange(1 << 24, 127 << 24) >> (32 - length) << (32 - length)
        return ipaddress.IPv4Network((number, length))

    return [RandomRule(source(), ports(), ports()) for _ in range(count)]


def rules_text(rules: Sequence[RandomRule]) -> str:
    return "*filter\n:OUTPUT ACCEPT [0:0]\n" + "".join(rule.text() + "\n" for rule in rules) + "COMMIT\n"


def case(
    name: str, rules: int, lengths: Sequence[int], flows: int, backend: Backend, runs: int, seed: int
) -> dict[str, Any]:
    """One line of the table: times above the empty rule set, and how many times less."""
    rng = random.Random(seed)
    drawn = random_rules(rules, lengths, rng)
    text = rules_text(drawn)
    compiled = compile_rules(read(text, family=Family.IPV4), Options(backend=backend))
    chosen = rng.sample(drawn, min(len(drawn), flows))
    packets = b"".join(rule.packet(rng) for rule in chosen)
    texts = {"empty": EMPTY, "input": text, "compiled": write(compiled.program)}
    why = ""
    with Stopwatch(backend) as watch:
        for each, label in texts.items():
            watch.add(each, label, packets, len(chosen))
        if backend is Backend.NFT:
            try:
                scripts = verdict_map(read(text, family=Family.IPV4), "OUTPUT")
                load_map(scripts, watch.namespace("native", packets, len(chosen)))
            except (Cannot, LiveError) as error:
                watch.forget("native")
                why = str(error).splitlines()[0]
        measured = watch.run(runs)
    median = {each: statistics.median(times) for each, times in measured.items()}
    above = {each: median[each] - median["empty"] for each in ("input", "compiled")}
    return {
        "case": name,
        "rules": rules,
        "flows": len(chosen),
        "backend": backend.value,
        "seed": seed,
        "runs": runs,
        "growth": compiled.program.rule_count() / rules,
        "empty_ns": median["empty"],
        "input_ns": above["input"],
        "compiled_ns": above["compiled"],
        "ratio": above["input"] / above["compiled"],
        "ratio_with_io": median["input"] / median["compiled"],
        "nft_set_ns": median["native"] - median["empty"] if "native" in median else None,
        "nft_set_why": why,
        "all_ns": measured,
    }


def set_case(name: str, decorations: str, flows: int, backend: Backend, runs: int) -> dict[str, Any]:
    """One public set, its packets routed: times above the empty rule set, and how many times less."""
    if decorations:
        text = decorate(verdicts_drawn(f"wustl/{name}"), decorations)
    else:
        text = classbench.to_text(classbench.parse(read_text(str(SHARED / f"{name}.gz")), name))
    program = read(text, family=Family.IPV4, name=name)
    batch = batch_of(trace.parse(read_text(str(SHARED / f"{name}_trace.gz")), name).headers)
    against = ["nft-set"] if backend is Backend.NFT else []
    measured = measure(program, "FORWARD", batch, backend, against=against, runs=runs, flows=flows)
    lines = {line.name: line for line in measured.lines}
    original, compiled = lines["input"], lines["compiled"]
    native = lines.get("nft-set")
    return {
        "case": f"{name} {decorations}".strip(),
        "rules": original.rules,
        "flows": measured.packets,
        "backend": backend.value,
        "runs": runs,
        "growth": compiled.rules / original.rules,
        "empty_ns": measured.empty,
        "input_ns": original.above,
        "compiled_ns": compiled.above,
        "doubt_ns": compiled.doubt,
        "input_modelled_ns": original.modelled,
        "compiled_modelled_ns": compiled.modelled,
        "ratio": original.above / compiled.above,
        "ratio_with_io": (original.above + measured.empty) / (compiled.above + measured.empty),
        "nft_set_ns": native.above if native and not native.why else None,
        "nft_set_why": native.why if native else "",
    }


OUTPUT, PAGE = DOCS / "evaluation" / "kernel.json", DOCS / "costs.md"
FAR_OFF = 0.2  # of the measured time
DECORATED = "fw1_10K", "est+docker+logdrop"
SETS = {"acl1_10K": (110, 90), "ipc1_10K": (38, 50), "fw1_10K": (12, 20)}  # goals: legacy, nft
SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "rulesets" / "wustl"
GOALS = {("/24", "legacy"): 40, ("/24", "nft"): 150, ("/22 to /30", "legacy"): 35, ("/22 to /30", "nft"): 50}


def goal_of(row: dict[str, Any]) -> float:
    """How many times less time; 0: there is no goal."""
    if row["case"] in SETS:
        return SETS[row["case"]][row["backend"] == "nft"]
    return GOALS.get((row["case"], row["backend"]), 0)


def line_of(row: dict[str, Any]) -> str:
    goal = f"{goal_of(row):g}" if row["flows"] == FEW and goal_of(row) else ""
    native = row.get("nft_set_ns")
    beside = f"  native map {native:.0f}" if native else "  no native map" if row.get("nft_set_why") else ""
    return (
        f"{row['case']:<28}{row['flows']:>6}  {row['backend']:<8}{row['empty_ns']:>8.0f}"
        f"{row['input_ns']:>12.0f}{row['compiled_ns']:>10.0f}{row['ratio']:>12.1f}{goal:>6}{beside}"
    )


def modelled_table(rows: Sequence[dict[str, Any]]) -> str:
    """The modelled and the measured time of the public sets, and a line that sums up the errors."""
    there = [row for row in rows if "input_modelled_ns" in row]
    lines = [
        (
            f"{row['case']}, {row['backend']}",
            f"{row['flows']:,}",
            f"{row['input_modelled_ns'] / 1000:.1f} µs, {row['input_ns'] / 1000:.1f} µs",
            f"{row['compiled_modelled_ns']:.0f} ns, {row['compiled_ns']:.0f} ns",
        )
        for row in there
    ]
    lists, compiled = (
        [abs(row[f"{kind}_modelled_ns"] / row[f"{kind}_ns"] - 1) for row in there]
        for kind in ("input", "compiled")
    )
    off = sum(error > FAR_OFF for error in lists + compiled)
    median, list_most, compiled_most, far_off = (
        f"{100 * share:.0f} %"
        for share in (statistics.median(lists + compiled), max(lists), max(compiled), FAR_OFF)
    )
    return markdown(("set", "flows", "as it is", "compiled"), lines) + (
        f"\nThe median error is {median}; lists are off by at most {list_most}, compiled sets by at most "
        f"{compiled_most}.\n{off} of the {2 * len(there)} figures are off by more than {far_off}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = []
    print("nanoseconds per packet above an empty rule set, medians")
    columns = f"{'empty':>8}{'input':>12}{'compiled':>10}{'times less':>12}{'goal':>6}"
    print(f"{'sources':<28}{'flows':>6}  {'backend':<8}{columns}")
    for name, lengths in (("/24", [24]), ("/22 to /30", range(22, 31))):
        for backend in Backend:
            for flows in (FEW, MANY):
                row = case(name, args.rules, list(lengths), flows, backend, args.runs, args.seed)
                rows.append(row)
                print(line_of(row), flush=True)
    sets = [(name, "") for name in SETS] + [DECORATED]
    if not SHARED.is_dir():
        print(f"the public rule sets are not at hand ({SHARED}): they are not measured")
        sets = []
    for name, decorations in sets:
        for backend in Backend:
            for flows in (FEW, MANY):
                row = set_case(name, decorations, flows, backend, args.runs)
                rows.append(row)
                print(line_of(row), flush=True)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps({"machine": machine(), "cases": rows}, indent=1) + "\n")
        if args.output.resolve() == OUTPUT and SHARED.is_dir():
            fill(PAGE, "modelled", modelled_table(rows))
    aimed = [row for row in rows if row["flows"] == FEW]
    missed = [row for row in aimed if row["ratio"] < goal_of(row)]
    if missed:
        print(f"{len(missed)} goals missed", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    command_line.run(main)

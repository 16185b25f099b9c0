"""What a rule set costs in the kernel: `python -m hitables.bench.kernel`.

One UDP packet through OUTPUT, time above an empty rule set, the rule set as it is and
compiled, interleaved in one run.  The rules are those of the CoNEXT 2014 paper's
section 6: random sources, one destination, random ranges of source and destination
ports.  Packets are drawn evenly over the rules: few flows in turn, whose way through the
tree stays in the cache, and many, whose leaves do not; the goals are for the few.
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

from ..compile import Options, compile_rules
from ..emit.text import write
from ..ir.fields import Family
from ..ir.packet import Backend
from ..library import read
from ..live.stopwatch import EMPTY, compare
from .machine import machine

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
    compiled = compile_rules(read(text, family=Family.IPV4), Options(backend=backend.value))
    chosen = rng.sample(drawn, min(len(drawn), flows))
    packets = b"".join(rule.packet(rng) for rule in chosen)
    texts = {"empty": EMPTY, "input": text, "compiled": write(compiled.program)}
    found = compare(texts, packets, len(chosen), backend, runs)
    median = {each: statistics.median(times) for each, times in found.items()}
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
        "all_ns": found,
    }


GOALS = {("/24", "legacy"): 40, ("/24", "nft"): 150, ("/22 to /30", "legacy"): 35, ("/22 to /30", "nft"): 50}


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
    print(f"{'sources':<12}{'flows':>6}  {'backend':<8}{columns}")
    for name, lengths in (("/24", [24]), ("/22 to /30", range(22, 31))):
        for backend in Backend:
            for flows in (FEW, MANY):
                row = case(name, args.rules, list(lengths), flows, backend, args.runs, args.seed)
                rows.append(row)
                goal = GOALS[name, backend.value] if flows == FEW else ""
                print(
                    f"{name:<12}{flows:>6}  {backend.value:<8}{row['empty_ns']:>8.0f}{row['input_ns']:>12.0f}"
                    f"{row['compiled_ns']:>10.0f}{row['ratio']:>12.1f}{goal:>6}",
                    flush=True,
                )
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps({"machine": machine(), "cases": rows}, indent=1) + "\n")
    aimed = [row for row in rows if row["flows"] == FEW]
    missed = [row for row in aimed if row["ratio"] < GOALS[row["case"], row["backend"]]]
    if missed:
        print(f"{len(missed)} goals missed", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()

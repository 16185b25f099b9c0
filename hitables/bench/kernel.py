"""What a rule set costs in the kernel: `python -m hitables.bench.kernel`.

One UDP packet through OUTPUT, time above an empty rule set, the rule set as it is and
compiled, interleaved in one run.  The rules are those of the CoNEXT 2014 paper's
section 6: random sources, one destination, random ranges of source and destination
ports.  Packets are drawn evenly over the rules: few flows in turn, whose way through the
tree stays in the cache, and many, whose leaves do not; the goals are for the few.
"""

from __future__ import annotations

import argparse
import fcntl
import ipaddress
import json
import os
import random
import socket
import statistics
import struct
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..compile import Options, compile_rules
from ..emit.text import write
from ..ir.fields import Family
from ..ir.packet import Backend
from ..library import read
from ..live.namespace import Namespace
from ..live.tables import load
from .machine import machine

DESTINATION = "10.99.0.1"
DEVICE = "sink0"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
EMPTY = "*filter\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"

FEW, MANY = 64, 2000  # flows that take turns

# Seconds that one measurement of one rule set lasts, about.
SLICE = 0.15


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


_sinks: list[int] = []


def prepare() -> None:
    """Run inside: a tunnel that nobody reads; once its queue is full it forgets every packet."""
    from ..live.namespace import run

    sink = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(sink, TUNSETIFF, struct.pack("16sH14x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    _sinks.append(sink)  # the device lives as long as the helper
    for command in (
        f"ip link set {DEVICE} txqueuelen 1 up",
        "ip link set lo up",
        f"ip route add default dev {DEVICE}",
    ):
        run(command.split())


def measure(packets: bytes, count: int, rounds: int, cpu: int | None) -> float:
    """Run inside: nanoseconds per packet."""
    from ..engine._engine import ffi, lib

    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        size = len(packets) // count
        spent = lib.sender_time(sender.fileno(), ffi.from_buffer("uint8_t *", packets), size, count, rounds)
    if spent < 0:
        raise OSError(-spent, os.strerror(-spent))
    return float(spent) / (count * rounds)


def compare(
    texts: dict[str, str], packets: bytes, count: int, backend: Backend, runs: int
) -> dict[str, list[float]]:
    """Nanoseconds per packet of each rule set, *runs* times, in turn."""
    cpu = max(os.sched_getaffinity(0))
    with ExitStack() as stack:
        spaces = {}
        for name, text in texts.items():
            spaces[name] = stack.enter_context(Namespace())
            spaces[name].call(prepare)
            load(text, Family.IPV4, backend, spaces[name])
        rounds = {}
        for name, space in spaces.items():
            once = space.call(measure, packets, count, 1, cpu)
            rounds[name] = max(1, int(SLICE * 1e9 / (once * count)))
        found: dict[str, list[float]] = {name: [] for name in texts}
        for _ in range(runs):
            for name, space in spaces.items():
                found[name].append(space.call(measure, packets, count, rounds[name], cpu))
        return found


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

"""The kernel's own flow table in front of rules: what a rule for ESTABLISHED packets is worth.

Connection tracking is a flow table, and `-m conntrack --ctstate ESTABLISHED -j ACCEPT` as the first rule of a
chain is the plan `flows(A)` with the chain for A.  One packet is timed through OUTPUT: the chain as it is and
compiled, without tracking, with tracking that no rule uses, and with that rule in front; by the share of
packets whose flow is established.  The rules and packets are UDP, as in benchmarks/kernel.py.

Before each measurement the connection table is emptied and given the established flows, and each other packet
is the first of its flow, so that a miss costs what it costs in a firewall: a new entry, and the chain.
"""

from __future__ import annotations

import os
import random
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.emit.text import write
from hitables.ir.fields import UDP, Family
from hitables.ir.packet import Backend
from hitables.kernel.conntrack import Flow, Tuple, forget_flows, make_flows
from hitables.kernel.load_save import load, save
from hitables.kernel.namespace import Namespace
from hitables.kernel.netlink import Netfilter
from hitables.kernel.stopwatch import EMPTY, measure, prepare

from .doc_tables import markdown
from .kernel import RandomRule, random_rules, rules_text

ESTABLISHED = "-A OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
# A chain that no packet traverses: its rule makes the kernel track connections.
TRACKED = "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
HIT_RATIOS = (0.0, 0.5, 0.8, 0.95, 0.99, 1.0)
RULES = (100, 1_000, 10_000)
PACKETS, FLOWS = 4_000, 1_000
WAYS = ("no tracking", "tracked", "established first")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """Packets of one size; *known*: the flows that are established before the first of them."""

    packets: bytes
    count: int
    known: tuple[Flow, ...]
    hits: int


def drawn(rules: Sequence[RandomRule], ratio: float, rng: random.Random) -> Sent:
    """PACKETS packets of rules drawn evenly, *ratio* of them of FLOWS established flows."""
    known = [rng.choice(rules).packet(rng) for _ in range(FLOWS)]
    hits = round(ratio * PACKETS)
    packets = [known[number % FLOWS] for number in range(hits)]
    packets += [rng.choice(rules).packet(rng) for _ in range(PACKETS - hits)]
    rng.shuffle(packets)
    return Sent(b"".join(packets), PACKETS, tuple(map(flow_of, known)) if hits else (), hits)


def flow_of(packet: bytes) -> Flow:
    """The established flow of a UDP packet without IP options."""
    source, target = (int.from_bytes(packet[at : at + 4], "big") for at in (12, 16))
    ports = (int.from_bytes(packet[at : at + 2], "big") for at in (20, 22))
    return Flow(Tuple(source, target, UDP, *ports), replied=True)


def timed(sent: Sent, cpu: int) -> float:
    """Run inside: ns per packet, from a connection table that holds the known flows and no other."""
    netfilter = Netfilter()
    try:
        forget_flows(netfilter, Family.IPV4)
        make_flows(netfilter, Family.IPV4, sent.known)
    finally:
        netfilter.close()
    return measure(sent.packets, sent.count, 1, cpu)


def texts(rules: Sequence[RandomRule], backend: Backend) -> dict[tuple[str, str], str]:
    """The rule sets by chain and way."""
    plain = rules_text(rules)
    first = plain.replace("[0:0]\n", "[0:0]\n" + ESTABLISHED, 1)

    def tracked(text: str) -> str:
        return text.replace("*filter\n", "*filter\n:INPUT ACCEPT [0:0]\n", 1).replace(
            "COMMIT", TRACKED + "COMMIT", 1
        )

    def compiled(text: str) -> str:
        return write(compile_rules(read(text, family=Family.IPV4), Options(backend=backend)).program)

    both = {"as it is": (plain, first), "compiled": (compiled(plain), compiled(first))}
    found = {("empty", "no tracking"): EMPTY, ("empty", "tracked"): tracked(EMPTY)}
    for chain, (alone, with_rule) in both.items():
        found |= {(chain, "no tracking"): alone, (chain, "tracked"): tracked(alone)}
        found[chain, "established first"] = with_rule
    return found


def established_packets(space: Namespace, backend: Backend) -> int:
    """How many packets the first rule of OUTPUT has accepted."""
    saved = save(Family.IPV4, backend, space, counters=True)
    (count,) = re.findall(r"^\[(\d+):\d+\] " + re.escape(ESTABLISHED.strip()), saved, re.MULTILINE)
    return int(count)


def measured(rules: int, backend: Backend, runs: int, ratios: Sequence[float], seed: int) -> Iterator[Row]:
    """A row for each share of established packets: ns above a packet's way without rules."""
    rng = random.Random(seed)
    drawn_rules = random_rules(rules, [24], rng)
    cpu = max(os.sched_getaffinity(0))
    first = ("as it is", "established first")
    with ExitStack() as stack:
        spaces: dict[tuple[str, str], Namespace] = {}
        for name, text in texts(drawn_rules, backend).items():
            spaces[name] = stack.enter_context(Namespace())
            spaces[name].call(prepare)
            load(text, Family.IPV4, backend, spaces[name])
        for ratio in ratios:
            sent = drawn(drawn_rules, ratio, rng)
            times: dict[tuple[str, str], list[float]] = {name: [] for name in spaces}
            before = established_packets(spaces[first], backend)
            for _ in range(runs):
                for name, space in spaces.items():
                    times[name].append(space.call(timed, sent, cpu))
            hits = established_packets(spaces[first], backend) - before
            median = {name: statistics.median(each) for name, each in times.items()}
            empty = median["empty", "no tracking"]
            yield {
                "rules": rules, "backend": backend.value, "ratio": ratio, "packets": sent.count,
                "flows": len(sent.known), "runs": runs, "seed": seed, "empty_ns": empty,
                "hit_ratio": hits / (sent.count * runs),
                "tracking_ns": median["empty", "tracked"] - empty,
                "ns": [
                    {"chain": chain, "way": way, "ns": value - empty}
                    for (chain, way), value in median.items() if chain != "empty"
                ],
            }  # fmt: skip


def kernel(short: bool, runs: int) -> Iterator[Row]:
    """Both backends, all sizes and shares; short: one size and two shares."""
    for backend in Backend:
        for rules in RULES[1:2] if short else RULES:
            yield from measured(rules, backend, 3 if short else runs, (0.5, 0.95) if short else HIT_RATIOS, 1)


def table(rows: Sequence[Row]) -> str:
    """ns above an empty rule set without tracking: medians over all shares, then by share of established."""
    lines = []
    for backend, rules in dict.fromkeys((row["backend"], row["rules"]) for row in rows):
        there = [row for row in rows if (row["backend"], row["rules"]) == (backend, rules)]
        for chain in ("as it is", "compiled"):
            alone, tracked, first = (
                [
                    each["ns"]
                    for row in there
                    for each in row["ns"]
                    if (each["chain"], each["way"]) == (chain, way)
                ]
                for way in WAYS
            )
            cells = [statistics.median(alone), statistics.median(tracked), *first]
            lines.append([f"{backend}, {rules:,} rules, {chain}", *(f"{ns:,.0f}" for ns in cells)])
    ratios = dict.fromkeys(row["ratio"] for row in rows)
    return markdown(("chain", "no tracking", "tracked", *(f"{ratio:.0%} first" for ratio in ratios)), lines)

"""Lists of the kinds of rules that public filter sets lack: `make bench-kinds`.

Shaping, accounting, address translation, tracking, matches that no tree can test: for each kind a chain of
COUNT rules as administrators write them, compiled with proof.  Rules read on the mean by packets of the
rules, in the list and compiled; and by packets that no rule decides, drawn from the whole space.  Exit
status 1 if a list reads more than GOAL rules, unless it is one of READ_THROUGH, or is proved by regions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np

from hitables.compiler.options import NESTING, Options
from hitables.compiler.pipeline import Output, compile_text
from hitables.ir.choices import backend_choice
from hitables.ir.packet import Backend
from hitables.kernel.machine import machine
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter

from . import command_line
from .doc_tables import fill, markdown

OUTPUT = Path("docs/evaluation/kinds.json")
PAGE = Path("docs/trees.md")
COUNT = 1000
# Most rules that packets read, where nothing keeps a tree from it; of others: no goal.
GOAL = 60.0
BUILT_IN = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")


def host(n: int, net: str = "10.20") -> str:
    return f"{net}.{n // 250}.{n % 250 + 1}"


def port(n: int) -> int:
    return 1024 + 7 * n


def drawn_ports(n: int, count: int) -> str:
    return ",".join(map(str, sorted(Random(n).sample(range(1, 65536), count))))


def anywhere(n: int) -> str:
    """A host of its own network."""
    drawn = Random(n)
    return (
        f"{drawn.randrange(1, 224)}.{drawn.randrange(256)}.{drawn.randrange(256)}.{drawn.randrange(1, 255)}"
    )


def tap(n: int) -> str:
    """The port of a bridge, as OpenStack names it."""
    drawn = Random(n)
    return f"tap{drawn.getrandbits(32):08x}-{drawn.getrandbits(8):02x}"


# By name: the table, the chain, and the rules that the number n stands for, without "-A CHAIN".
KINDS: dict[str, tuple[str, str, Callable[[int], Sequence[str]]]] = {
    "accounting by host": ("filter", "FORWARD", lambda n: [f"-s {host(n)}", f"-d {host(n)}"]),
    "accounting by interface": ("filter", "FORWARD", lambda n: [f"-i ppp{n}", f"-o ppp{n}"]),
    "shaping, CLASSIFY": ("mangle", "POSTROUTING", lambda n: [
        f"-d {host(n)} -j CLASSIFY --set-class 1:{n + 1:x}"]),
    "shaping, MARK and RETURN": ("mangle", "FORWARD", lambda n: [
        f"-d {host(n)} -j MARK --set-mark {n + 1}", f"-d {host(n)} -j RETURN"]),
    "MARK, and RETURN if marked": ("filter", "FORWARD", lambda n: [
        f"-s {host(n)} -j MARK --set-xmark 0x10000/0x10000", "-m mark --mark 0x10000/0x10000 -j RETURN"]),
    "DNAT of ports": ("nat", "PREROUTING", lambda n: [
        f"-d 192.0.2.{n % 200 + 1} -p tcp --dport {port(n)} -j DNAT --to-destination {host(n)}:80"]),
    "SNAT of hosts": ("nat", "POSTROUTING", lambda n: [
        f"-s {host(n)} -o eth0 -j SNAT --to-source 198.51.100.{n % 250 + 1}"]),
    "no tracking": ("raw", "PREROUTING", lambda n: [
        f"-s {host(n)} -p udp --dport {port(n)} -j CT --notrack"]),
    "proxied ports": ("mangle", "PREROUTING", lambda n: [
        f"-p tcp -d {host(n)} --dport 80 -j TPROXY --on-port {port(n)} --tproxy-mark 0x1/0x1"]),
    "ranges of addresses": ("filter", "FORWARD", lambda n: [
        f"-m iprange --src-range {host(4 * n)}-{host(4 * n + 2)} -j DROP"]),
    "multiport": ("filter", "FORWARD", lambda n: [
        f"-d {host(n)} -p tcp -m multiport --dports 22,80,443,{port(n)} -j ACCEPT"]),
    "ports far apart": ("filter", "FORWARD", lambda n: [
        f"-p tcp -m multiport --dports {drawn_ports(n, 3)} -j DROP"]),
    "seven ports far apart": ("filter", "FORWARD", lambda n: [
        f"-p tcp -m multiport --dports {drawn_ports(n, 7)} -j DROP"]),
    "seven ports, of some hosts": ("filter", "FORWARD", lambda n: [
        f"{f'-s {anywhere(n)} ' if n % 10 else ''}-p tcp -m multiport --dports {drawn_ports(n, 7)} -j DROP"]),
    "limits of connections": ("filter", "FORWARD", lambda n: [
        f"-s {host(n)} -p tcp --syn -m connlimit --connlimit-above {n % 50 + 1} -j REJECT"]),
    "limits of rate": ("filter", "FORWARD", lambda n: [
        f"-d {host(n)} -m hashlimit --hashlimit-above {n % 90 + 1}/sec --hashlimit-name h{n} -j DROP"]),
    "quotas": ("filter", "FORWARD", lambda n: [f"-d {host(n)} -m quota --quota {10**9 + n} -j ACCEPT"]),
    "hours": ("filter", "FORWARD", lambda n: [
        f"-s {host(n)} -m time --timestart 08:00 --timestop {9 + n % 12:02}:00 -j ACCEPT"]),
    "hardware addresses and hosts": ("filter", "FORWARD", lambda n: [
        f"-s {host(n)} -m mac --mac-source 02:00:00:00:{n // 256:02x}:{n % 256:02x} -j ACCEPT"]),
    "ports of a bridge": ("filter", "FORWARD", lambda n: [
        f"-m physdev --physdev-in tap{n} -j ACCEPT",
        f"-m physdev --physdev-out tap{n} --physdev-is-bridged -j DROP"]),
    "security groups": ("filter", "FORWARD", lambda n: [
        f"-m physdev --physdev-out {tap(n)} --physdev-is-bridged -j DROP",
        f"-m physdev --physdev-in {tap(n)} --physdev-is-bridged -j DROP"]),
    "hosts blocked both ways": ("filter", "FORWARD", lambda n: [
        f"-s {anywhere(n)} -j DROP", f"-d {anywhere(n)} -j DROP"]),
    "hosts logged both ways": ("filter", "FORWARD", lambda n: [
        f"-s {anywhere(n)} -j LOG", f"-d {anywhere(n)} -j LOG"]),
    "ports both ways": ("filter", "FORWARD", lambda n: [
        f"-p tcp --dport {port(n)} -j ACCEPT", f"-p tcp --sport {port(n)} -j ACCEPT"]),
    "sources, ports, destinations": ("filter", "FORWARD", lambda n: [
        f"-s {anywhere(n)} -j DROP", f"-p tcp --dport {port(n)} -j ACCEPT", f"-d {anywhere(n)} -j DROP"]),
    "hosts, then ports": ("filter", "FORWARD", lambda n: [
        f"-s {anywhere(n)} -j DROP" if n < COUNT // 2 else f"-p tcp --dport {port(n)} -j ACCEPT"]),
    "interfaces in, then out": ("filter", "FORWARD", lambda n: [
        f"-i ppp{n} -j ACCEPT" if n < COUNT // 2 else f"-o ppp{n - COUNT // 2} -j DROP"]),
    "strings of DNS": ("filter", "FORWARD", lambda n: [
        f"-p udp --dport 53 -m string --hex-string |{n:08x}| --algo bm -j DROP"]),
    "owners": ("filter", "OUTPUT", lambda n: [f"-o eth0 -m owner --uid-owner {1000 + 2 * n} -j REJECT"]),
    "original destinations": ("filter", "FORWARD", lambda n: [
        f"-i eth1 -m conntrack --ctorigdst {host(n)} -j ACCEPT"]),
    "marks": ("filter", "FORWARD", lambda n: [f"-s 10.0.0.0/8 -m mark --mark {n + 1} -j ACCEPT"]),
    "shaping by marks": ("mangle", "POSTROUTING", lambda n: [
        f"-m mark --mark {n << 8:#x}/0xffff00 -j CLASSIFY --set-class 1:{n + 1:x}"]),
    "marks of connections": ("mangle", "PREROUTING", lambda n: [
        f"-m connmark --mark {n + 1} -j MARK --set-mark {n + 1}"]),
    "ipsets": ("filter", "FORWARD", lambda n: [f"-i eth0 -m set --match-set s{n} src -j DROP"]),
    "ipsets and hosts": ("filter", "FORWARD", lambda n: [
        f"-d {host(n)} -m set --match-set s{n} src -j ACCEPT"]),
    "IPv6 hosts": ("filter", "FORWARD", lambda n: [
        f"-d 2001:db8::{n:x}:1 -p tcp --dport {port(n % 9)} -j ACCEPT"]),
}  # fmt: skip
# Their own packets read the list, since no tree tests what the rules differ in; others may be turned away.
READ_THROUGH = frozenset({"strings of DNS", "owners", "original destinations", "ipsets"})


@dataclass(frozen=True, slots=True)
class Row:
    """One list for one backend; *passing*: of packets that no rule decides (0: none was found)."""

    kind: str
    backend: str
    rules: int
    printed: int
    read: float
    reads: float
    passing: float
    passing_reads: float
    longest: int
    by_regions: bool
    seconds: float

    def missed(self) -> list[str]:
        misses = ["proof by regions"] if self.by_regions else []
        over = self.reads > GOAL and self.kind not in READ_THROUGH
        return misses + ([f"reads over {GOAL:.0f}"] if over else [])


def text_of(kind: str, count: int) -> str:
    """A rule set with one long chain, among *count* rules of the kind."""
    table, chain, rules = KINDS[kind]
    lines = [line for n in range(count) for line in rules(n)][:count]
    built_in = {"filter": BUILT_IN[1:4], "raw": ("PREROUTING", "OUTPUT"), "nat": (BUILT_IN[0], BUILT_IN[4])}
    heads = "".join(f":{name} ACCEPT [0:0]\n" for name in built_in.get(table, BUILT_IN))
    return f"*{table}\n{heads}" + "".join(f"-A {chain} {line}\n" for line in lines) + "COMMIT\n"


def passing(output: Output, table: str, chain: str, backend: Backend) -> tuple[float, float]:
    """Mean rules that packets read which no rule decides, before and after; zeros if none is drawn."""
    before, after = (Interpreter(program, backend) for program in (output.before, output.program))
    batch = BoundarySampler(before, table, chain, seed=1).draw(2000)
    batch = batch.pick(np.flatnonzero(~batch.malformed()))
    walks = [each.run(table, chain, batch) for each in (before, after)]
    ends = len(output.before.table(table)[chain].rules)
    passes = walks[0].reads >= ends
    if not passes.any():
        return 0.0, 0.0
    return float(walks[0].reads[passes].mean()), float(walks[1].reads[passes].mean())


def measure(kind: str, backend: str, count: int) -> Row:
    table, chain, _ = KINDS[kind]
    started = time.process_time()
    output = compile_text(text_of(kind, count), Options(backend=backend_choice(backend)))
    seconds = time.process_time() - started
    (report,) = (each for each in output.reports if (each.table, each.chain) == (table, chain))
    reader = Backend.LEGACY if backend == "legacy" else Backend.NFT
    read, reads = (report.read_before, report.read_after) if not report.why else (count, count)
    return Row(
        kind, backend, report.before, report.after, read, reads, *passing(output, table, chain, reader),
        report.longest, bool(output.by_regions), seconds,
    )  # fmt: skip


def page_table(rows: Sequence[Row]) -> str:
    lines = [
        [
            row.kind, row.rules, f"{row.printed / row.rules:.2f}", f"{row.read:.0f}", f"{row.reads:.1f}",
            f"{row.passing:.0f}" if row.passing else "–", f"{row.passing_reads:.1f}" if row.passing else "–",
            row.longest, f"{row.seconds:.1f}",
        ]
        for row in rows if row.backend == "nft"
    ]  # fmt: skip
    head = ["kind", "rules", "growth", "list", "mean", "no rule: list", "mean", "longest", "s"]
    return markdown(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=COUNT, help="rules of a list")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    parser.add_argument("--backends", nargs="*", default=["nft", "any", "legacy"], choices=list(NESTING))
    parser.add_argument("-o", "--output", type=Path, help=f"write the figures there; {OUTPUT} fills {PAGE}")
    args = parser.parse_args()
    rows: list[Row] = []
    for kind in args.kinds:
        for backend in args.backends:
            row = measure(kind, backend, args.count)
            rows.append(row)
            missed = row.missed()
            print(
                f"{kind:<30}{backend:<7}{row.rules:>5} ->{row.printed:>6}  read {row.read:>7.1f} ->"
                f"{row.reads:>7.1f}, no rule {row.passing:>7.1f} ->{row.passing_reads:>7.1f}, longest "
                f"{row.longest:>5}, {row.seconds:.1f} s  "
                f"{'NOT REACHED: ' + ', '.join(missed) if missed else 'reached'}",
                flush=True,
            )
    if args.output:
        data = {"machine": machine(), "rows": [asdict(row) for row in rows]}
        args.output.write_text(json.dumps(data) + "\n")
        if args.output == OUTPUT:
            fill(PAGE, "kinds", page_table(rows))
    sys.exit(1 if any(row.missed() for row in rows) else 0)


if __name__ == "__main__":
    command_line.run(main)

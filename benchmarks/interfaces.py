"""Trees of interfaces: `make bench-interfaces`.

Bridges that must not reach each other, as one rule for each ordered pair and in the two stages of Docker, and
the ports of a bridge with a virtual machine behind each, with names of three styles. For each backend: rules
printed, rules read on the mean by packets drawn evenly over the rules, before and after, and what a tree
reads that tests whole names only (where every test costs 1). *forks* is the mean when letter after letter is
told apart, each test splitting off one branch of a fork: tests of beginnings can do little better. Exit
status 1 when a tree grows to more than twice its list, or reads over SLACK times that.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hitables.analyse.boxes import Boxes, Cut
from hitables.analyse.rule_boxes import BoxReader, as_boxes
from hitables.build.expected_cost import rules_read
from hitables.build.grow import grow
from hitables.compiler.options import NESTING, Options
from hitables.compiler.pipeline import compile_text
from hitables.ir.choices import Malformed, backend_choice
from hitables.ir.fields import Family
from hitables.kernel.machine import machine
from hitables.parse.iptables import read

from . import command_line
from .doc_tables import fill, markdown

OUTPUT = Path("docs/evaluation/interfaces.json")
PAGE = Path("docs/trees.md")
COUNTS = (70, 200)
# A leaf of rules that decide nothing, as in the first stage, is read to its end.
GROWTH, SLACK = 2.0, 1.4
HEAD = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
BY_IN, BY_OUT = "PORTS-IN", "PORTS-OUT"
ONE, TWO = "DOCKER-ISOLATION-STAGE-1", "DOCKER-ISOLATION-STAGE-2"


def names(style: str, count: int) -> list[str]:
    """*count* names: `docker` has twelve digits of a hash, `numbers` and `vlans` count up."""
    if style == "docker":
        return [f"br-{hashlib.sha256(str(n).encode()).hexdigest()[:12]}" for n in range(count)]
    return [f"br-{n + 1}" if style == "numbers" else f"eth1.{1000 + n}" for n in range(count)]


def pairs(bridges: Sequence[str]) -> str:
    """A rule for each ordered pair of bridges."""
    rules = [f"-A FORWARD -i {a} -o {b} -j DROP" for a in bridges for b in bridges if a != b]
    return HEAD + "\n".join(rules) + "\nCOMMIT\n"


def stages(bridges: Sequence[str]) -> str:
    """A rule for each bridge that packets come from, and one for each that they go to."""
    rules = [f"-A FORWARD -j {ONE}", *(f"-A {ONE} -i {name} ! -o {name} -j {TWO}" for name in bridges)]
    rules += [f"-A {ONE} -j RETURN", *(f"-A {TWO} -o {name} -j DROP" for name in bridges)]
    return HEAD + f":{ONE} - [0:0]\n:{TWO} - [0:0]\n" + "\n".join(rules) + f"\n-A {TWO} -j RETURN\nCOMMIT\n"


def machines(ports: Sequence[str]) -> str:
    """For each port a chain of what comes in by it, and one of what leaves by it."""
    chains = "".join(f":{way}-{name} - [0:0]\n" for name in ports for way in ("in", "out"))
    rules = [f"-A FORWARD -j {BY_IN}", f"-A FORWARD -j {BY_OUT}"]
    rules += [f"-A {BY_IN} -m physdev --physdev-in {name} -j in-{name}" for name in ports]
    rules += [
        f"-A {BY_OUT} -m physdev --physdev-out {name} --physdev-is-bridged -j out-{name}" for name in ports
    ]
    rules += [f"-A {way}-{name} -j DROP" for name in ports for way in ("in", "out")]
    return HEAD + f":{BY_IN} - [0:0]\n:{BY_OUT} - [0:0]\n{chains}" + "\n".join(rules) + "\nCOMMIT\n"


def fork_reads(bridges: Sequence[str], depth: int = 0) -> float:
    """Tests that all *bridges* together take to be told apart, where a test splits off a branch of a fork."""
    if len(bridges) == 1:
        return 0
    forks: dict[str, list[str]] = {}
    for name in bridges:
        forks.setdefault(name[depth : depth + 1], []).append(name)
    branches = sorted(forks.values(), key=len, reverse=True)
    reads = sum(len(branch) * min(at, len(branches) - 1) for at, branch in enumerate(branches, 1))
    return reads + sum(fork_reads(branch, depth + 1) for branch in branches)


@dataclass(frozen=True, slots=True)
class Row:
    """One chain for one backend; *seconds*: compiling the whole text, proof included."""

    chain: str
    style: str
    bridges: int
    backend: str
    rules: int
    printed: int
    read: float
    whole_names: float
    reads: float
    forks: float
    longest: int
    seconds: float

    def missed(self) -> list[str]:
        """What is not reached."""
        misses = ["growth"] if self.printed > GROWTH * self.rules else []
        return misses + (["reads"] if self.reads > SLACK * self.forks else [])


def of_whole_names(text: str, chain: str) -> float:
    """Rules read by a tree that tests whole names only (any backend: every test costs 1)."""
    listed = read(text, family=Family.IPV4).table("filter")[chain].rules
    reader = BoxReader(Family.IPV4, nft=False, malformed=Malformed.STRICTER)
    boxes = as_boxes(reader.read(listed, {}), Family.IPV4)
    axes = [replace(axis, cut=Cut.SPELT_NAME) for axis in boxes.axes]
    spelt = Boxes(axes, boxes.low, boxes.high, boxes.rule, boxes.final, boxes.weight)
    return min(rules_read(spelt, grow(spelt, budget=4 * len(listed))))


def measure(style: str, count: int, backends: Sequence[str]) -> list[Row]:
    bridges = names(style, count)
    one_side = fork_reads(bridges) / count
    rows = []
    # The rule that decides is read as well; in the first stage also those behind it, up to RETURN.
    for text, bounds in ((pairs(bridges), {"FORWARD": 2 * one_side + 1}),
                         (stages(bridges), {ONE: one_side + 2, TWO: one_side + 1}),
                         (machines(bridges), {BY_IN: one_side + 1, BY_OUT: one_side + 1})):  # fmt: skip
        whole = {chain: of_whole_names(text, chain) for chain in bounds}
        for backend in backends:
            started = time.process_time()
            result = compile_text(text, Options(backend=backend_choice(backend)))
            seconds = time.process_time() - started
            rows += [
                Row(each.chain, style, count, backend, each.before, each.after, each.read_before,
                    whole[each.chain], each.read_after, bounds[each.chain], each.longest, seconds)
                for each in result.reports if each.chain in bounds
            ]  # fmt: skip
    return rows


def table(rows: Sequence[Row]) -> str:
    """The table of the page: names as Docker gives them."""
    lines = [
        [
            f"{row.bridges} bridges, {row.chain}, {row.backend}", row.rules, f"{row.printed / row.rules:.2f}",
            f"{row.read:.0f}", f"{row.whole_names:.1f}", f"{row.reads:.1f}", f"{row.forks:.1f}", row.longest,
        ]
        for row in rows if row.style == "docker"
    ]  # fmt: skip
    head = ["chain, backend", "rules", "growth", "list", "whole names", "mean", "forks", "longest"]
    return markdown(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bridges", nargs="*", type=int, default=COUNTS)
    parser.add_argument("--styles", nargs="*", default=["docker", "numbers", "vlans"])
    parser.add_argument("--backends", nargs="*", default=["legacy", "nft", "any"], choices=list(NESTING))
    parser.add_argument("-o", "--output", type=Path, help=f"write the figures there; {OUTPUT} fills {PAGE}")
    args = parser.parse_args()
    rows: list[Row] = []
    for count in args.bridges:
        for style in args.styles:
            for row in measure(style, count, args.backends):
                missed = row.missed()
                print(
                    f"{row.bridges:>4} {row.style:<8}{row.chain:<26}{row.backend:<7}{row.rules:>6} ->"
                    f"{row.printed:>6}  read {row.read:>8.1f}, whole names {row.whole_names:>6.1f}, now "
                    f"{row.reads:>5.1f}, forks {row.forks:>5.1f}, longest {row.longest:>3}, "
                    f"{row.seconds:.1f} s  {'NOT REACHED: ' + ', '.join(missed) if missed else 'reached'}",
                    flush=True,
                )
                rows.append(row)
    if args.output:
        data = {"machine": machine(), "rows": [asdict(row) for row in rows]}
        args.output.write_text(json.dumps(data) + "\n")
        if args.output == OUTPUT:
            fill(PAGE, "interfaces", table(rows))
    sys.exit(1 if any(row.missed() for row in rows) else 0)


if __name__ == "__main__":
    command_line.run(main)

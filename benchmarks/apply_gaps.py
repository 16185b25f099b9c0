"""How long packets meet new rules of one table and old ones of another: `python -m benchmarks.apply_gaps`.

Tables nat and filter of both families are replaced, in turn by iptables-restore of the compiled text (one
call for each family) and by `hitables apply`; visible_changes.py sees from outside when each table shows
its new rules. With --large N, one IPv4 rule set of N rules is also applied, confirmed, taken back, and its
seconds are given.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.visible_changes import Watch
from hitables.files import read_text
from hitables.generate.rules import rules as draw
from hitables.generate.seed import parse as parse_seed
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace, run
from hitables.parse.classbench import to_text

from . import command_line

ROOT = Path(__file__).parents[1]
OUTPUT = Path("docs/evaluation/apply-gaps.json")
HITABLES = str(Path(sys.executable).parent / "hitables")
TOOLS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
SETS = {Family.IPV4: "campus.rules.gz", Family.IPV6: "campus6.rules"}


def two_tables(family: Family, number: int) -> str:
    """Table nat of 50 rules, and table filter of rulesets/; some rules depend on *number*, 0 or 1."""
    text = read_text(str(ROOT / "rulesets" / SETS[family]))
    filter_table = text[text.index("*filter\n") :].replace("--dport 22 ", f"--dport {22 + number} ")
    return _nat(family, number) + _with_marker(filter_table, family, number)


def _nat(family: Family, number: int) -> str:
    net = "10.{}.0.0/16" if family is Family.IPV4 else "fd00:{}::/32"
    rules = "".join(f"-A POSTROUTING -s {net.format(n)} -o eth{number} -j MASQUERADE\n" for n in range(50))
    return _with_marker(f"*nat\n:POSTROUTING ACCEPT [0:0]\n{rules}COMMIT\n", family, number)


def _with_marker(table: str, family: Family, number: int) -> str:
    """Chain OUTPUT gets one rule more if *number* is 1: its size shows in legacy which set is loaded."""
    here = "198.51.100.1/32" if family is Family.IPV4 else "2001:db8::1/128"
    rules = "".join(
        f"-A OUTPUT -d {here} -p udp -m udp --dport {9 + n} -j ACCEPT\n" for n in range(1 + number)
    )
    return table.replace("COMMIT\n", f"{rules}COMMIT\n")


# ---- gaps ----


def gap(backend: Backend, runs: int) -> dict[str, Any]:
    """Milliseconds between the visible commits: medians, and the most."""
    with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
        for family in Family:
            for number in range(2):
                Path(folder, f"{number}.{int(family)}").write_text(two_tables(family, number))
        found = namespace.call(_gaps, folder, backend, runs)
    return {"backend": backend.value, "runs": runs, **found}


def _gaps(folder: str, backend: Backend, runs: int) -> dict[str, Any]:
    found: dict[str, list[float]] = defaultdict(list)
    apply = [HITABLES, "apply", "--backend", backend.value, "--state", f"{folder}/state", "--confirm", "0"]
    sources = [[f"{folder}/{number}.{int(family)}" for family in Family] for number in range(2)]
    for path in (each for both in sources for each in both):
        run([HITABLES, "compile", "--quiet", "--backend", backend.value, path, "-o", f"{path}.compiled"])
    restore = " && ".join(
        f"{TOOLS[family]}-{backend.value}-restore < {folder}/%d.{int(family)}.compiled" for family in Family
    )
    run(["sh", "-c", restore % (1, 1)])

    def measure(name: str, command: Sequence[str]) -> None:
        with Watch(backend, tuple(Family)) as watch:
            run(command)
        found[f"{name}: nat and filter of IPv4"].append(watch.milliseconds(Family.IPV4))
        found[f"{name}: all tables of both families"].append(watch.milliseconds())

    for _ in range(runs):
        measure("iptables-restore", ["sh", "-c", restore % (0, 0)])
        measure("hitables apply", [*apply, *sources[1]])
    return {
        name: {"median_ms": round(statistics.median(each), 2), "most_ms": round(max(each), 2)}
        for name, each in found.items()
    }


# ---- a large rule set ----


def large(backend: Backend, count: int) -> dict[str, Any]:
    """A rule set of *count* rules applied, confirmed, changed and taken back: seconds, and milliseconds
    between the visible commits of its two tables.
    """
    with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
        for number in range(2):
            Path(folder, f"{number}.rules").write_text(_large_text(count, number))
        found = namespace.call(_large, folder, backend)
    return {"backend": backend.value, "rules": count, **found}


def _large_text(count: int, number: int) -> str:
    """Rules drawn from a seed of rulesets/; every hundredth depends on *number*."""
    seed = parse_seed(read_text(str(ROOT / "rulesets" / "seeds" / "acl.seed")))
    lines = to_text(draw(seed, count), "FORWARD", "ACCEPT").splitlines(keepends=True)
    for at in range(10, len(lines), 100):
        if lines[at].startswith("-A "):
            lines[at] = lines[at].replace("-j ACCEPT", "-j DROP" if number else "-j ACCEPT")
    return _nat(Family.IPV4, number) + _with_marker("".join(lines), Family.IPV4, number)


def _large(folder: str, backend: Backend) -> dict[str, Any]:
    state = ["--state", f"{folder}/state"]
    apply = [HITABLES, "apply", "--backend", backend.value, *state]
    sources = [f"{folder}/{number}.rules" for number in range(2)]
    tool = f"iptables-{backend.value}"
    steps: list[tuple[str, bool, list[str]]] = [
        ("iptables-restore of the source", False, ["sh", "-c", f"{tool}-restore < {sources[1]}"]),
        ("the first apply", False, [*apply, sources[0], "--confirm", "600"]),
        ("confirm", False, [HITABLES, "confirm", *state]),
        ("apply of the same file", False, [*apply, sources[0], "--confirm", "600"]),
        ("apply of a file in which 1 % of the rules differ", True, [*apply, sources[1], "--confirm", "600"]),
        ("rollback", True, [HITABLES, "rollback", *state]),
        ("status", False, [HITABLES, "status", *state]),
    ]
    found: dict[str, Any] = {}
    for name, is_visible, command in steps:
        began = time.monotonic()
        if is_visible:
            with Watch(backend, (Family.IPV4,)) as watch:
                run(command)
                seconds = time.monotonic() - began
            found[name] = {"seconds": round(seconds, 2), "gap_ms": round(watch.milliseconds(), 2)}
        else:
            run(command)
            found[name] = {"seconds": round(time.monotonic() - began, 2)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="Measure each gap so many times.")
    parser.add_argument("--large", type=int, default=0, help="Apply a rule set of so many rules, too.")
    parser.add_argument("--json", type=Path, help=f"Write the figures to this file ({OUTPUT}).")
    args = parser.parse_args()
    data: dict[str, Any] = {"machine": machine()}
    for backend in Backend:
        if args.runs:
            data.setdefault("gaps", []).append(gap(backend, args.runs))
            print(json.dumps(data["gaps"][-1]), flush=True)
        if args.large:
            data.setdefault("large", []).append(large(backend, args.large))
            print(json.dumps(data["large"][-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    command_line.run(main)

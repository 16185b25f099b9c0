"""The cost of reading a kernel and comparing the output with it: `make bench-reading`.

For each backend, in scratch namespaces: `iptables-save` alone; a first reading, which loads everything
once more; a second reading by the same reader, as in `sflgen stream`.  Seconds, medians of --runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

from hitables.files import read_text
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.checked_save import KernelReader
from hitables.kernel.load_save import load
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace, run

from . import command_line

RULES = 13_500  # as many as acl1_10K has, compiled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", help=f"IPv4 rules to load; {RULES} plain ones when left out")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    text = read_text(args.file) if args.file else plain(RULES)
    figures = {}
    for backend in Backend:
        with Namespace() as namespace:
            load(text, Family.IPV4, backend, namespace)
            figures[backend.value] = namespace.call(measure, backend, args.runs)
    if args.json:
        print(json.dumps({"machine": machine(), "seconds": figures}, indent=1))
    for backend_name, times in figures.items() if not args.json else ():
        print(f"{backend_name:6}  " + "  ".join(f"{what} {seconds:.2f} s" for what, seconds in times.items()))


def measure(backend: Backend, runs: int) -> dict[str, float]:
    """In the namespace that holds the rules."""
    seconds: dict[str, list[float]] = {}
    for _ in range(runs):
        reader = KernelReader(Family.IPV4, f"iptables-{backend.value}")
        steps: dict[str, Callable[[], object]] = {
            "iptables-save": lambda: run([f"iptables-{backend.value}-save"]),
            "read": reader.read,
            "read again": reader.read,
        }
        for what, step in steps.items():
            began = time.perf_counter()
            step()
            seconds.setdefault(what, []).append(time.perf_counter() - began)
    return {what: round(statistics.median(times), 3) for what, times in seconds.items()}


def plain(count: int) -> str:
    lines = (
        f"-A FORWARD -s 10.{n >> 8}.{n & 255}.0/24 -p tcp -m tcp --dport {n % 60_000 + 1} -j ACCEPT\n"
        for n in range(count)
    )
    return "*filter\n" + "".join(lines) + "COMMIT\n"


if __name__ == "__main__":
    command_line.run(main)

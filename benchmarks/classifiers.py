"""The classifiers compared with DPDK's rte_acl, in one run: `make bench-engine`.

One thread searches each set with a million headers, drawn evenly from its rules in random order.  A rate is
that of the fastest pass over each 32,768 headers, for ours and for rte_acl, because others use the machine,
too.  The results of rte_acl are checked against linear search on some headers, those of every classifier
against rte_acl on all.  `--short` takes two classifiers and a quarter of the headers.

With `--published` the headers are the traces of the sets, repeated: 8,000 headers for a thousand rules,
which stay in the caches.  Other publications measure with them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables import engine
from hitables.engine import Rules
from hitables.errors import HitablesError
from hitables.files import read_text
from hitables.generate import trace
from hitables.kernel.machine import machine
from hitables.parse import classbench
from hitables.parse import trace as traces

from . import command_line
from .doc_tables import DOCS, fill, markdown
from .public_sets import SHARED

OUTPUT = DOCS / "evaluation" / "engine.json"
SETS = [
    *(f"wustl/{kind}_{size}" for size in ("1K", "10K") for kind in ("acl1", "fw1", "ipc1")),
    *(f"classbench/{kind}_100k" for kind in ("acl1", "fw1", "ipc1")),
]
# Times rte_acl's rate, most seconds of a build, by the size of the set.
GOALS = {"1K": (4.0, 1.0), "10K": (2.0, 1.0), "100k": (3.0, 10.0)}
# Times rte_acl's memory, at most.
MEMORY = 2.0
SHORT = ("best", "tss")
PART = 32768
# What a classifier may take for one set: bytes, and seconds, after which it has no row.
LIMIT = 2 << 30
PATIENCE = 6.0
HARNESS = Path(__file__).resolve().parents[1] / "tools" / "rte_acl_bench.c"


@dataclass(frozen=True, slots=True)
class Row:
    """One classifier on one set; *wrong* counts headers that were answered in another way than by rte_acl."""

    set: str
    algorithm: str
    rules: int
    build_s: float
    bytes: int
    lookups_per_s: float
    wrong: int


def load(name: str) -> Rules:
    path = SHARED / "rulesets" / f"{name}.gz"
    return Rules.of_filter(classbench.parse(read_text(str(path)), path.name))


def published(name: str, least: int) -> npt.NDArray[np.uint32]:
    """The trace of a set, repeated until it has *least* headers."""
    path = SHARED / "rulesets" / f"{name}_trace.gz"
    headers = traces.parse(read_text(str(path)), path.name).headers
    return np.ascontiguousarray(np.tile(headers, (-(-least // len(headers)), 1)), np.uint32)


def rate(
    db: engine.Database, headers: npt.NDArray[np.uint32], seconds: float
) -> tuple[float, npt.NDArray[np.int32]]:
    """Lookups a second, of the fastest passes over the parts, and the answers."""
    matches = np.empty(len(headers), np.int32)
    parts = [(headers[at : at + PART], matches[at : at + PART]) for at in range(0, len(headers), PART)]
    least = [float("inf")] * len(parts)
    start = time.process_time()
    while True:
        for number, (packets, out) in enumerate(parts):
            before = time.perf_counter()
            db.search(packets, out)
            least[number] = min(least[number], time.perf_counter() - before)
        if time.process_time() - start > seconds:
            return len(headers) / sum(least), matches


def measure(algorithm: str, rules: Rules, headers: npt.NDArray[np.uint32], seconds: float) -> dict[str, Any]:
    start = time.process_time()
    with engine.open(algorithm, rules, limit=LIMIT) as db:
        built = time.process_time() - start
        lookups, matches = rate(db, headers, seconds)
        return {"build_s": built, "bytes": db.bytes, "lookups_per_s": lookups, "found": matches}


def _child(pipe: Connection, *what: Any) -> None:
    try:
        pipe.send(measure(*what))
    except HitablesError:
        pipe.send(None)


def measured(
    algorithm: str, rules: Rules, headers: npt.NDArray[np.uint32], seconds: float, patience: float = PATIENCE
) -> dict[str, Any] | None:
    """In a process of its own, which ends when it takes too long; None then, or where it cannot be built."""
    ours, theirs = multiprocessing.Pipe(False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_child, args=(theirs, algorithm, rules, headers, seconds))
    process.start()
    result: dict[str, Any] | None = ours.recv() if ours.poll(patience + 3 * seconds) else None
    process.kill()
    process.join()
    return result


def harness(folder: Path) -> Path:
    """rte_acl_bench, built against the package libdpdk-dev."""
    if (
        not shutil.which("pkg-config")
        or subprocess.run(["pkg-config", "--exists", "libdpdk"], check=False).returncode
    ):
        raise HitablesError("rte_acl is missing: apt install libdpdk-dev")
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libdpdk"], capture_output=True, text=True, check=True
    )
    binary = folder / "rte_acl_bench"
    subprocess.run(
        ["cc", "-O3", "-march=native", str(HARNESS), "-o", str(binary), *flags.stdout.split()], check=True
    )
    return binary


def rte_acl(
    binary: Path, rules: Rules, headers: npt.NDArray[np.uint32], seconds: float
) -> tuple[dict[str, Any], npt.NDArray[np.int32]]:
    folder = binary.parent
    rules.boxes.tofile(folder / "rules")
    headers.tofile(folder / "headers")
    paths = [str(folder / name) for name in ("rules", "headers", "found")]
    ran = subprocess.run([str(binary), *paths, str(seconds)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise HitablesError(f"rte_acl: {ran.stderr.strip()}")
    return json.loads(ran.stdout.splitlines()[-1]), np.fromfile(folder / "found", np.int32)


def compare(
    names: list[str], algorithms: list[str], count: int, seconds: float, number: int | None
) -> list[Row]:
    """A row for each set and algorithm; *number* is that of the headers, None takes published traces."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        binary = harness(Path(folder))
        for name in names:
            rules = load(name)
            headers = published(name, count) if number is None else trace.headers(rules, count, number)
            theirs, wanted = rte_acl(binary, rules, headers, seconds)
            some = headers[: max(200, 20_000_000 // len(rules.boxes) // 10)]
            with engine.open("linear", rules) as linear:
                wrong = int((linear.search(some) != wanted[: len(some)]).sum())
            figures = {key: theirs[key] for key in ("build_s", "bytes", "lookups_per_s")}
            rows.append(Row(name, "rte_acl", len(rules), **figures, wrong=wrong))
            for algorithm in algorithms:
                ours = measured(algorithm, rules, headers, seconds)
                if ours:
                    wrong = int((ours.pop("found") != wanted).sum())
                    rows.append(Row(name, algorithm, len(rules), **ours, wrong=wrong))
                    print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The best classifier beside rte_acl; the goals in brackets."""
    lines = []
    for name in SETS:
        there = {row["algorithm"]: row for row in rows if row["set"] == name}
        if "rte_acl" not in there or "best" not in there:
            continue
        rival, best = there["rte_acl"], there["best"]
        times, seconds = GOALS[name.rpartition("_")[2]]
        ratio = best["lookups_per_s"] / rival["lookups_per_s"]
        lines.append(
            [
                name.partition("/")[2],
                f"{rival['lookups_per_s'] / 1e6:.1f}",
                f"{best['lookups_per_s'] / 1e6:.1f}",
                f"{ratio:.1f} ({times:g})",
                f"{rival['build_s']:.2f}",
                f"{best['build_s']:.3f} ({seconds:g})",
                f"{rival['bytes'] / 1e6:.1f}",
                f"{best['bytes'] / 1e6:.1f} ({MEMORY * rival['bytes'] / 1e6:.1f})",
            ]
        )
    head = (
        "set",
        "rte_acl M/s",
        "best M/s",
        "times",
        "rte_acl build s",
        "best build s",
        "rte_acl MB",
        "best MB",
    )
    return markdown(head, lines)


def all_rates(rows: list[dict[str, Any]]) -> str:
    """Million lookups a second of every classifier."""
    names = [name for name in SETS if any(row["set"] == name for row in rows)]
    rates = {(row["algorithm"], row["set"]): row["lookups_per_s"] / 1e6 for row in rows}
    algorithms = dict.fromkeys(row["algorithm"] for row in rows)
    return markdown(
        ("classifier", *(name.partition("/")[2] for name in names)),
        [
            [
                algorithm,
                *(f"{rates[algorithm, name]:.1f}" if (algorithm, name) in rates else "–" for name in names),
            ]
            for algorithm in algorithms
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--algorithms", help="separated by commas; by default all but wrappers")
    parser.add_argument("--number", type=int, default=1, help="of the traces, for others")
    parser.add_argument("--published", action="store_true", help="the traces that come with the sets")
    parser.add_argument(
        "-o", "--output", type=Path, help="write the figures here, and draw no pages; of a part: out/"
    )
    args = parser.parse_args()
    if args.short or args.algorithms:  # the figures of the docs are of the whole run
        args.output = args.output or Path("out/engine.json")
        args.output.parent.mkdir(parents=True, exist_ok=True)
    every = [
        name for name, algorithm in engine.ALGORITHMS.items() if not algorithm.wraps and name != "linear"
    ]
    algorithms = args.algorithms.split(",") if args.algorithms else list(SHORT) if args.short else every
    count, seconds = (1 << 18, 0.2) if args.short else (1 << 20, 0.5)
    number = None if args.published else args.number
    rows = [asdict(row) for row in compare(SETS, algorithms, count, seconds, number)]
    data = {"machine": machine(), "number": number, "headers": count, "rows": rows}
    written = OUTPUT.with_name("engine-published.json") if args.published else OUTPUT
    (args.output or written).write_text(json.dumps(data, indent=1) + "\n")
    if args.published and not args.output:
        fill(DOCS / "classifiers.md", "engine-published", all_rates(rows))
    elif not args.output:
        fill(DOCS / "classifiers.md", "engine", table(rows))
        fill(DOCS / "classifiers.md", "engine-all", all_rates(rows))
    print(table(rows))
    if wrong := [row for row in rows if row["wrong"]]:
        raise SystemExit(f"wrong answers: {wrong}")


if __name__ == "__main__":
    command_line.run(main)

"""The time and memory of reading and compiling: `python -m benchmarks.compile_speed`.

Reading is compared with `iptables-legacy-restore --test` on the same file, in turn, by the CPU time of the
process, so that other load counts little.  Compiling is timed as a whole process, text to text, proof
included, and by stage.  The figures are in docs/evaluation/compile.json and, from there, in docs/proof.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.errors import HitablesError
from hitables.files import read_text
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace
from hitables.parse.classbench import parse, to_text
from hitables.parse.iptables import read

from . import command_line
from .doc_tables import DOCS, fill, markdown

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"
FIGURES = DOCS / "evaluation" / "compile.json"
STAGES = ("reading", "compiling", "printing", "proving")

# Seconds and MB allowed, by size of the set.
SMALL, LARGE = (1.5, 400), (12.0, 2048)
COMPILED = {
    "wustl/acl1_10K": SMALL, "wustl/fw1_10K": SMALL, "wustl/ipc1_10K": SMALL,
    "classbench/acl3_10k": SMALL, "classbench/fw1_10k": SMALL,
    "classbench/acl1_100k": LARGE, "classbench/ipc1_100k": LARGE, "classbench/fw1_100k": LARGE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds on the wall, CPU seconds, peak memory in MB."""

    wall: float
    cpu: float
    peak: float


def spend(command: Sequence[str]) -> Spent:
    """Run *command* to its end, which must be a good one."""
    began = time.perf_counter()
    pid = os.posix_spawnp(command[0], list(command), dict(os.environ))
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: status {status}")
    return Spent(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def campus_lines(rules: int, seed: int) -> str:
    """A firewall of *rules* rules in the manner of the campus gateway: its table filter again and
    again, with the addresses moved."""
    text = read_text(str(REPOSITORY / "rulesets" / "campus.rules.gz"))
    start = text.index("*filter")
    lines = text[start : text.index("COMMIT", start)].splitlines()
    head = [line for line in lines if not line.startswith("-")]
    body = [line for line in lines if line.startswith("-")]
    rng = random.Random(seed)
    out: list[str] = []
    while len(out) < rules:
        shift = rng.randrange(1, 223)
        for line in body[: rules - len(out)]:
            words = line.split(" ")
            for at, word in enumerate(words[:-1]):
                if word in ("-s", "-d") and words[at + 1][:1].isdigit():
                    first, _, rest = words[at + 1].partition(".")
                    words[at + 1] = f"{(int(first) + shift) % 223 + 1}.{rest}"
            out.append(" ".join(words))
    return "\n".join([*head, *out, "COMMIT"]) + "\n"


def _cpu(action: Callable[[], object]) -> float:
    before = time.process_time()
    action()
    return time.process_time() - before


def test_by_restore(text: str) -> float:
    """Run inside of a namespace: CPU seconds that iptables-legacy-restore --test takes."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["iptables-legacy-restore", "--test"], stdin=file, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def reading(name: str, text: str, runs: int) -> dict[str, Any]:
    """Ours and theirs in turn."""
    ours, theirs = [], []
    with Namespace() as space:
        for _ in range(runs):
            ours.append(_cpu(lambda: read(text)))
            theirs.append(space.call(test_by_restore, text))
    mine, restore = statistics.median(ours), statistics.median(theirs)
    return {"what": f"read {name}", "cpu_s": mine, "restore_cpu_s": restore, "ratio": mine / restore}


def compile_by_stage(source: str, output: str) -> None:
    """In a process of its own: compile as the command does; the CPU seconds of each stage on standard output.

    What a process takes before its first stage, Python's start among it, is "start".
    """
    gc.disable()  # as the command does
    began: list[tuple[str, float]] = [("start", 0.0)]
    compilation = compile_text(
        read_text(source), Options(), tell=lambda stage: began.append((stage, time.process_time()))
    )
    if compilation.faults or compilation.by_regions:
        raise HitablesError(f"{source}: {(*compilation.faults, *compilation.by_regions)[0]}")
    Path(output).write_text(compilation.text)
    ends = [*(at for _, at in began[1:]), time.process_time()]
    stages = {name: round(end - at, 3) for (name, at), end in zip(began, ends, strict=True)}
    print(json.dumps({"stages": stages, "printed": compilation.program.rule_count()}))


def compiling(name: str, text: str, folder: Path) -> dict[str, Any]:
    """The whole, text to text, in a process of its own."""
    source, log = folder / "in.rules", folder / "said"
    source.write_text(text)
    code = (
        f"from benchmarks.compile_speed import compile_by_stage as run; run({str(source)!r}, {os.devnull!r})"
    )
    spent = spend(["sh", "-c", f'exec "$0" -c "$1" > "{log}"', sys.executable, code])
    seconds, megabytes = COMPILED.get(name, (None, None))
    return {
        "what": f"compile {name}",
        "rules": text.count("\n-A "),
        **json.loads(log.read_text()),
        "wall_s": round(spent.wall, 2),
        "cpu_s": round(spent.cpu, 2),
        "peak_mb": round(spent.peak),
        "cpu_s_allowed": seconds,
        "peak_mb_allowed": megabytes,
    }


def compile_table(rows: Sequence[dict[str, Any]]) -> str:
    """For the docs: what compiling took, text to text."""
    head = ("set", "rules", "printed", *STAGES, "CPU s", "allowed", "MB", "allowed")
    return markdown(
        head,
        [
            (
                row["what"].rpartition("/")[2],
                row["rules"],
                row["printed"],
                *(f"{row['stages'][stage]:.2f}" for stage in STAGES),
                f"{row['cpu_s']:.2f}",
                row["cpu_s_allowed"],
                row["peak_mb"],
                row["peak_mb_allowed"],
            )
            for row in rows
        ],
    )


def compile_all(only: str, output: Path | None) -> None:
    """Compile each of COMPILED, text to text, and write down what it took."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in COMPILED:
            path = SHARED / "rulesets" / f"{name}.gz"
            if only not in name:
                continue
            if not path.exists():
                print(f"{name}: left out, the folder ../shared is missing", file=sys.stderr)
                continue
            row = compiling(name, to_text(parse(read_text(str(path)), name)), Path(folder))
            stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in row["stages"].items())
            print(f"{row['what']:<32}{row['cpu_s']:8.2f} s CPU, {row['peak_mb']} MB: {stages}", flush=True)
            rows.append(row)
    if output is None and len(rows) == len(COMPILED):
        output = FIGURES
    if output is not None:
        output.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    if output == FIGURES:
        fill(DOCS / "proof.md", "compile", compile_table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--compile", action="store_true", help="measure compiling alone")
    parser.add_argument("--only", default="", help="with --compile: sets whose name holds this")
    args = parser.parse_args()
    if args.compile:
        compile_all(args.only, args.output)
        return
    filters = {
        "acl1_10K": SHARED / "rulesets/wustl/acl1_10K.gz",
        "acl1_100k": SHARED / "rulesets/classbench/acl1_100k.gz",
    }
    texts = {"campus, 100,000 rules": campus_lines(100_000, 1)}
    for name, path in filters.items():
        if path.exists():
            texts[name] = to_text(parse(read_text(str(path)), name))
        else:
            print(f"{name}: left out, the folder ../shared is missing", file=sys.stderr)
    rows = [reading(name, text, args.runs) for name, text in texts.items()]
    for row in rows:
        theirs = f"restore --test {row['restore_cpu_s']:.2f} s; {row['ratio']:.2f} times"
        print(f"{row['what']:<32}{row['cpu_s']:8.2f} s CPU; {theirs}")
    with tempfile.TemporaryDirectory() as folder:
        for name in filters:
            if name in texts:
                row = compiling(name, texts[name], Path(folder))
                rows.append(row)
                rest = f"{row['wall_s']:.2f} s; {row['peak_mb']:.0f} MB"
                print(f"{row['what']:<32}{row['cpu_s']:8.2f} s CPU, {rest}")
    started = min(
        spend([sys.executable, "-c", "from hitables.cli.main import main; main(['--version'])"]).wall
        for _ in range(5)
    )
    rows.append({"what": "start", "wall_s": started})
    print(f"{'hitables --version':<32}{started * 1000:8.0f} ms")
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    command_line.run(main)

"""How long reading and compiling take, and in how much memory: `python -m hitables.bench.speed`.

Reading is compared with `iptables-legacy-restore --test` on the same file, in turn; CPU
time of the process, so that other load counts little.  Compiling is timed as a whole
command, text to text, checks included.
"""

from __future__ import annotations

import argparse
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

from ..files import read_text
from ..live.namespace import Namespace
from ..parse.classbench import parse, to_text
from ..parse.iptables import read
from .machine import machine

REPOSITORY = Path(__file__).parents[2]
SHARED = REPOSITORY.parent / "shared"


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


def compiling(name: str, text: str, folder: Path) -> dict[str, Any]:
    """The whole command."""
    source = folder / "in.rules"
    source.write_text(text)
    command = [sys.executable, "-c", "from hitables.cli import main; main()"]
    spent = spend([*command, "compile", str(source), "-o", str(folder / "out.rules")])
    return {"what": f"compile {name}", "wall_s": spent.wall, "cpu_s": spent.cpu, "peak_mb": spent.peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
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
        spend([sys.executable, "-c", "from hitables.cli import main; main(['--version'])"]).wall
        for _ in range(5)
    )
    rows.append({"what": "start", "wall_s": started})
    print(f"{'hitables --version':<32}{started * 1000:8.0f} ms")
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Runs the tests repeatedly in other orders, then lists the failures: which, how often, how to repeat them.

Each run has a seed of its own, from which follow the order of the tests, what Hypothesis draws, the hashes
of strings, the time zone and the width of the terminal.  Every second run ignores SIGINT, as shells have it
for what runs in the background.  Exit 0: no test failed in any run; 1: one did, or a run broke off.

    python tools/flaky.py --runs 20 --load 2 tests/cli/test_interrupts.py
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
ZONES = ("UTC", "Asia/Kathmandu", "America/Los_Angeles")
COLUMNS = ("60", "80", "200")

# Ends when its parent process has ended.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"


@dataclass(frozen=True)
class Run:
    """How the tests are run once: a function of the seed."""

    seed: int
    environment: dict[str, str]
    in_background: bool

    @classmethod
    def of(cls, seed: int) -> Run:
        drawn = random.Random(seed)
        environment = {
            "PYTHONHASHSEED": str(seed % 2**32),
            "TZ": drawn.choice(ZONES),
            "COLUMNS": drawn.choice(COLUMNS),
        }
        return cls(seed, environment, in_background=seed % 2 == 1)

    def command(self, arguments: Sequence[str]) -> list[str]:
        said = [f"--shuffle={self.seed}", f"--hypothesis-seed={self.seed}"]
        return [sys.executable, "-m", "pytest", "-q", *said, *arguments]

    def shown(self, arguments: Sequence[str]) -> str:
        """As a line for the shell."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        line = shlex.join([*variables, "python", *self.command(arguments)[1:]])
        return f"(trap '' INT; {line})" if self.in_background else line

    def failures(self, arguments: Sequence[str], log: Path) -> list[str]:
        """Run the tests, with their output in *log*; return the names of those that failed."""
        with tempfile.TemporaryDirectory() as folder, log.open("wb") as said:
            report = Path(folder, "report.xml")
            done = subprocess.run(
                [*self.command(arguments), f"--junitxml={report}"],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                check=False,
                preexec_fn=_ignore_interrupts if self.in_background else _hear_interrupts,
            )
            found = _failed(report) if report.exists() else []
        if done.returncode not in (0, 1) or (done.returncode and not found):
            found.append(f"the run itself: exit status {done.returncode}")
        return found


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _hear_interrupts() -> None:
    """Also where this program runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _failed(report: Path) -> list[str]:
    """Names of tests, as pytest takes them."""
    names = []
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            names.append(f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}")
    return names


@contextmanager
def busy(count: int) -> Iterator[None]:
    """*count* processes that compute."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        allow_abbrev=False,
        epilog="All other arguments go to pytest.",
    )
    parser.add_argument("--runs", type=int, default=10, help="default: 10")
    parser.add_argument("--seed", type=int, help="of the first run; the others count on from there")
    parser.add_argument("--load", type=int, default=0, help="busy loops beside the tests; default: 0")
    parser.add_argument("--logs", type=Path, default=ROOT / "out" / "flaky", help="default: out/flaky")
    given, arguments = parser.parse_known_args()
    if given.runs < 1 or given.load < 0:
        parser.error("--runs is 1 or more, --load 0 or more")
    if not any(each.startswith(("-n", "--numprocesses", "-p")) for each in arguments):
        arguments = ["-n", "2", *arguments]
    first = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    given.logs.mkdir(parents=True, exist_ok=True)
    seeds: dict[str, list[int]] = defaultdict(list)
    broken_off = False
    try:
        with busy(given.load):
            for seed in range(first, first + given.runs):
                began = time.monotonic()
                failures = Run.of(seed).failures(arguments, given.logs / f"{seed}.log")
                print(f"seed {seed}: {len(failures)} failed in {time.monotonic() - began:.0f} s", flush=True)
                for name in failures:
                    seeds[name].append(seed)
    except KeyboardInterrupt:
        broken_off = True
        print("interrupted", flush=True)
    for name, those in sorted(seeds.items(), key=lambda item: -len(item[1])):
        print(f"\n{name}\n    failed in {len(those)} of {given.runs} runs: seeds {' '.join(map(str, those))}")
        print(f"    log: {given.logs / f'{those[0]}.log'}\n    again: {Run.of(those[0]).shown(arguments)}")
    print(f"\n{len(seeds)} tests failed" + " ".join(f"\n  {name}" for name in sorted(seeds)))
    return 130 if broken_off else int(bool(seeds))


if __name__ == "__main__":
    sys.exit(main())

"""Each allocation of the C engine refused in turn: python -m benchmarks.failing_malloc [--short]

A library in front of the system's allocator (failing_malloc.c) refuses one allocation of the engine, or that
one and all that follow.  What was asked of the engine must then get its right answer, or be told that memory
is lacking; a classifier must hold the rules that it said it took.  Anything else is a failure: exit status 1.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from . import command_line
from .failing_malloc_trials import NO_MEMORY, PLANS, RIGHT, Trial, subjects

SOURCE = Path(__file__).with_suffix(".c")
LIBRARY = "HITABLES_FAILING_MALLOC"  # the environment variable with the path of the built library
END = 1 << 60  # behind every allocation


class Allocator:
    """The library in front of the system's allocator, which knows where the engine lies in memory."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.fail_inside.argtypes = [ctypes.c_size_t] * 2
        self._library.fail_between.argtypes = [ctypes.c_long] * 2
        self._library.fail_asked.restype = ctypes.c_long
        mapped = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
        parts = [words[0] for words in mapped if Path(words[-1]).name.startswith("_engine.")]
        ends = [int(end, 16) for part in parts for end in part.split("-")]
        self._library.fail_inside(min(ends), max(ends))

    @contextmanager
    def refusing(self, first: int, last: int) -> Iterator[None]:
        """Refuse the allocations with these numbers, counted from 1."""
        self._library.fail_between(first, last)
        try:
            yield
        finally:
            self.asked = int(self._library.fail_asked())
            self._library.fail_between(END, END)


def spread(count: int, most: int) -> list[int]:
    """The numbers from 1 to *count*, or *most* of them."""
    return sorted({1 + at * (count - 1) // max(1, min(count, most) - 1) for at in range(min(count, most))})


def outcome(trial: Trial, refusing: AbstractContextManager[None]) -> str:
    try:
        return trial(refusing)
    except MemoryError:
        return NO_MEMORY
    except Exception as error:  # whatever else comes is what is looked for
        return f"{type(error).__name__}: {error}"


def tried(allocator: Allocator, trial: Trial, most: int) -> Counter[str]:
    """The outcomes with each allocation refused, alone and with all behind it: *most* at most."""
    counts: Counter[str] = Counter({outcome(trial, allocator.refusing(END, END)): 1})
    for first in spread(allocator.asked, most):
        for last in (first, END):
            counts[outcome(trial, allocator.refusing(first, last))] += 1
    return counts


def run(allocator: Allocator, programs: int, plans: Sequence[str], most: int) -> dict[str, Counter[str]]:
    """How often what was asked ended in which way, by what was asked."""
    totals: dict[str, Counter[str]] = {}
    for name, trial in subjects(programs, plans):
        totals[name] = totals.get(name, Counter()) + tried(allocator, trial, most)
    return totals


def show(totals: dict[str, Counter[str]]) -> None:
    table = Table("what was asked", "tries", RIGHT, NO_MEMORY, "wrong")
    for name, counts in totals.items():
        tries, right, no_memory = counts.total(), counts[RIGHT], counts[NO_MEMORY]
        table.add_row(name, *(f"{count:,}" for count in (tries, right, no_memory, tries - right - no_memory)))
    Console().print(table)


@click.command(help=__doc__)
@click.option("--short", is_flag=True, help="Fewer programs, plans and allocations: some seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def main(short: bool, as_json: bool) -> None:
    if LIBRARY not in os.environ:
        sys.exit(with_library())
    allocator = Allocator(os.environ[LIBRARY])
    totals = run(allocator, 1, PLANS[:2], 5) if short else run(allocator, 30, PLANS, 100)
    if as_json:
        click.echo(json.dumps(totals, indent=1))
    else:
        show(totals)
    wrong = [f"FAIL {name}: {end}" for name, ends in totals.items() for end in set(ends) - {RIGHT, NO_MEMORY}]
    click.echo("".join(f"{line}\n" for line in wrong), err=True, nl=False)
    sys.exit(bool(wrong))


def with_library() -> int:
    """Build the library, and run this command again with it in front of the allocator."""
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "failing_malloc.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, str(SOURCE)], check=True)
        environment = {**os.environ, "LD_PRELOAD": library, LIBRARY: library}
        return subprocess.run(
            [sys.executable, "-m", __spec__.name, *sys.argv[1:]], check=False, env=environment
        ).returncode


if __name__ == "__main__":
    command_line.run(main)

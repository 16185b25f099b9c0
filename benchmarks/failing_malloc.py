"""Each allocation of the C engine refused in turn: python -m benchmarks.failing_malloc [--short]

A library in front of the system's allocator (failing_malloc.c) refuses one allocation of the engine, or that
one and all that follow.  What was asked of the engine must then get its right answer, or be told that memory
is lacking; a classifier must hold the rules that it said it took.  Anything else is a failure: exit status 1.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import hitables
from hitables import engine
from hitables.core import _engine
from hitables.engine import Layout, Rules
from hitables.engine.layout import Range
from hitables.errors import OutOfMemory
from hitables.ir.choices import Equivalence
from hitables.verify import exact
from hitables.verify.question import Answer, Equal, Question, Undecided
from sflgen import proof
from sflgen.commands import read_commands
from sflgen.planner import start_unproved
from sflgen.settings import Settings, Strategy

from . import writes

SOURCE = Path(__file__).with_suffix(".c")
LIBRARY = "HITABLES_FAILING_MALLOC"  # the environment variable with the path of the built library
END = 1 << 60  # behind every allocation

RIGHT, NO_MEMORY = "right", "no memory"

# What is asked, with allocations refused inside the context; RIGHT, NO_MEMORY, or what went wrong.
Trial = Callable[[AbstractContextManager[None]], str]


class Allocator:
    """The library in front of the system's allocator, which knows where the engine lies in memory."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.fail_inside.argtypes = [ctypes.c_size_t] * 2
        self._library.fail_between.argtypes = [ctypes.c_long] * 2
        self._library.fail_asked.restype = ctypes.c_long
        mapped = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines()
                  if line.endswith(str(Path(_engine.__file__).name))]  # fmt: skip
        ends = [int(end, 16) for part in mapped for end in part.split("-")]
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


# ---- proofs ----


def answer(before: str, after: str) -> Answer:
    return exact.check(hitables.read(before), hitables.read(after), Question())


def compared(before: str, after: str, refusing: AbstractContextManager[None]) -> str:
    """`check` of two rule sets that are known to be alike, or not to be."""
    right = answer(before, after)
    with refusing:
        found = answer(before, after)
    if isinstance(found, Undecided):
        return NO_MEMORY
    return RIGHT if isinstance(found, type(right)) else f"check says {type(found).__name__}"


def listed(before: str, after: str, refusing: AbstractContextManager[None]) -> str:
    """`diff` of two rule sets."""
    right = hitables.diff(before, after)
    with refusing:
        found = hitables.diff(before, after)
    return NO_MEMORY if not found.complete else RIGHT if found == right else "diff lists other regions"


def linted(text: str, refusing: AbstractContextManager[None]) -> str:
    right = hitables.lint(text)
    with refusing:
        found = hitables.lint(text)
    return NO_MEMORY if found.undecided else RIGHT if found == right else "lint lists other rules"


def compiled(text: str, equivalence: Equivalence, refusing: AbstractContextManager[None]) -> str:
    """`compile`: a tree that did not fit may be another one, but not one that does something else."""
    with refusing:
        output = hitables.compile(text, equivalence=equivalence)
    if output.faults:
        return f"compile found a fault: {output.faults[0].why}"
    return RIGHT if isinstance(answer(text, output.text), Equal) else "compile prints what is not equal"


def planned(text: str, refusing: AbstractContextManager[None]) -> str:
    """Updates by sflgen, proved; one that lacked memory is planned again from the state before it."""
    state = start_unproved(hitables.read(text), Settings(delta=3)).after
    ended = RIGHT
    with refusing:
        for number in range(6):
            command = f"-I FORWARD {9 * number + 1} -s 10.{number}.0.0/14 -p tcp -j DROP"
            updates = read_commands(command, state.master)
            try:
                state = proof.plan(state, updates, Strategy.OVERLAY).after
            except MemoryError:
                ended = NO_MEMORY
                state = proof.plan(state, updates, Strategy.OVERLAY).after
    return ended if isinstance(proof.verify(state), Equal) else "the state is not equal to its rules"


# ---- classifiers ----

PLANS = [name for name, algorithm in engine.ALGORITHMS.items() if not algorithm.wraps]
PLANS += [f"{name}(tss)" for name, algorithm in engine.ALGORITHMS.items() if algorithm.wraps]
PLANS += [
    "sfl(rfc, delta=2, background=2)",
    "checked(classic(hypersplit))",
    "flows(tss, scheme=4, buckets=3)",
]
PLANS += [
    "storm(tss, cache=3, window=5, every=1, publish=1)",
    "storm(sfl(rfc), window=200, every=1, publish=3)",
]
PLANS += ["pacars(list=1)", "pacars(cascade=0, list=2)", "tss_tries(table=1)", "tss(vector=0)"]


def layout_of(plan: str) -> Layout:
    """Of five dimensions, or of two where the plan takes no more, and of few bits."""
    read: engine.AlgorithmSpec | None = engine.AlgorithmSpec.read(plan)
    most = 5
    while read:
        most, read = min(most, read.algorithm.dims[1]), read.inner
    return Layout((4, 4, 3, 3, 2)) if most == 5 else Layout((6, 6))


def drawn_rule(layout: Layout, rng: random.Random) -> list[Range]:
    """A prefix in each dimension."""
    free = [rng.choice((0, width // 2, width)) for width in layout.widths]
    starts = [
        rng.randrange(1 << width) >> bits << bits for width, bits in zip(layout.widths, free, strict=True)
    ]
    return [(start, start | (1 << bits) - 1) for start, bits in zip(starts, free, strict=True)]


def opened(plan: str, rules: dict[int, list[Range]], layout: Layout) -> engine.Database:
    return engine.open(plan, Rules.of_ranges(list(rules.values()), layout, list(rules)))


def answers_rightly(db: engine.Database, rules: dict[int, list[Range]], layout: Layout) -> bool:
    """Whether it answers some of all packets as linear search does."""
    packets = layout.headers(list(itertools.product(*(range(1 << width) for width in layout.widths)))[::37])
    with opened("linear", rules, layout) as read_in_order:
        return len(db) == len(rules) and bool((db.search(packets) == read_in_order.search(packets)).all())


def built(plan: str, refusing: AbstractContextManager[None]) -> str:
    layout, rng = layout_of(plan), random.Random(5)
    rules = {priority: drawn_rule(layout, rng) for priority in rng.sample(range(30), 12)}
    with refusing:
        db = opened(plan, rules, layout)
    with db:
        return RIGHT if answers_rightly(db, rules, layout) else "it answers wrongly after it was built"


def updated(plan: str, refusing: AbstractContextManager[None]) -> str:
    """Some updates are refused; the classifier then has the others, and takes further ones."""
    layout, rng = layout_of(plan), random.Random(7)
    rules = {priority: drawn_rule(layout, rng) for priority in rng.sample(range(30), 12)}
    refused = 0
    with opened(plan, rules, layout) as db:
        with refusing:
            for _ in range(24):
                refused += not is_updated(db, rules, rng.randrange(30), layout, rng)
        if not answers_rightly(db, rules, layout):
            return "it answers wrongly after a refused update"
        for priority in range(30):
            is_updated(db, rules, priority, layout, rng)
        if not answers_rightly(db, rules, layout):
            return "it answers wrongly after further updates"
    return NO_MEMORY if refused else RIGHT


def is_updated(
    db: engine.Database, rules: dict[int, list[Range]], priority: int, layout: Layout, rng: random.Random
) -> bool:
    """Remove the rule of this priority, or insert one where there is none; False: memory is lacking."""
    rule = drawn_rule(layout, rng)
    try:
        if priority in rules:
            db.remove(priority)
            del rules[priority]
        else:
            db.insert(rule, priority)
            rules[priority] = rule
    except OutOfMemory:
        return False
    return True


# ---- the campaign ----


def subjects(programs: int, plans: Sequence[str]) -> Iterator[tuple[str, Trial]]:
    """What is tried, by name."""
    for number in range(programs):
        drawn = writes.draw(random.Random(f"refused {number}"))
        yield "check", partial(compared, drawn.before, drawn.after)
        yield "diff", partial(listed, drawn.before, drawn.after)
        yield "lint", partial(linted, drawn.before)
        for equivalence in Equivalence:
            yield f"compile --equivalence {equivalence}", partial(compiled, addresses(number), equivalence)
        yield "plan an update", partial(planned, addresses(number))
    for plan in plans:
        yield f"build {plan}", partial(built, plan)
        yield f"update {plan}", partial(updated, plan)


def addresses(number: int) -> str:
    """A rule set that gets a tree."""
    rng = random.Random(number)
    rules = (
        f"-A FORWARD -s 10.{rng.randrange(8)}.{rng.randrange(256)}.0/{rng.choice((16, 24))} "
        f"-p tcp -m tcp --dport {rng.choice((22, 80, 443))} -j {rng.choice(('ACCEPT', 'DROP'))}\n"
        for _ in range(60)
    )
    return f"*filter\n:FORWARD DROP [0:0]\n{''.join(rules)}COMMIT\n"


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
    totals = run(allocator, 2, PLANS[:3], 10) if short else run(allocator, 30, PLANS, 100)
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
    main()

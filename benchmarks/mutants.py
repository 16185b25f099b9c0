"""Rule sets with one mistake each: python -m benchmarks.mutants [-n MUTANTS] [--seed SEED]

Every mutant differs by one edit (mutations.py) from a real rule set, or from its compiled form, and the
exact checker compares it with the original.  Each must be

caught        with a packet, which ir.semantics confirms and, for a sample, the kernel in both backends; or
proved equal  by the exact checker and by decision diagrams.

Anything else, and a kernel that contradicts, is a failure: exit status 1.  Equal seeds give equal mutants.
The figures are in docs/evaluation/mutants.json and, from there, in docs/proof.md.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import click

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.emit.text import write
from hitables.errors import HitablesError
from hitables.ir import semantics
from hitables.ir.headers import is_malformed
from hitables.ir.program import Program
from hitables.kernel.machine import machine
from hitables.kernel.replay import ReplayResult, replay
from hitables.verify import bdd, exact
from hitables.verify.question import Difference, Equal, Question, chain_pairs, differs

from . import command_line, public_sets
from .doc_tables import DOCS, fill, markdown
from .mutations import MUTATIONS, Sheet, mutate

FIGURES = DOCS / "evaluation" / "mutants.json"
MUTANTS, SEED = 3000, 1
REPLAYED = 0.15  # share of the caught mutants that are sent to the kernel
CONFIRMED = 200  # at least, of MUTANTS
TRIES = 12  # edits until one gives a text that can be read, and is new
CHUNK = 10  # mutants of a base at once
TELL_EVERY = 250  # mutants
ROUNDS = 6  # of planning, while some kinds find no new mutants
LARGE = 2000  # rules; such sets get fewer mutants, as each takes seconds
TIMEOUT = 600.0  # seconds for one comparison, of which the machine may give few
COLUMNS = ("mutants", "caught", "proved equal", "kernel confirmed", "not realisable")


@dataclass(frozen=True, slots=True)
class Base:
    """A rule set and what it was compiled to; *places*: by kind, how many there are in both."""

    name: str
    text: str
    compiled: str
    rules: int
    places: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Order:
    """A mutant to create from a base: its kind, whether of the compiled text, whether to replay it."""

    kind: str
    compiled: bool
    seed: int
    kernel: bool


@dataclass(slots=True)
class Line:
    """What became of an order.

    digest   of the mutant's text; "" when none could be made
    failure  what is wrong, in words
    """

    base: str
    order: Order
    digest: str = ""
    answer: str = ""
    finding: str = ""
    reason: str = ""
    failure: str = ""
    seconds: float = 0.0


def prepare(task: tuple[str, str]) -> Base:
    """Read and compile one set, and look for places."""
    name, text = task
    before = read(text, name=name)
    printed = write(compile_rules(before, Options(backend="any")).program)
    both = _sheets(name, text, printed)
    counts = {
        kind: (0 if mutation.compiled else len(mutation.places(both[0])), len(mutation.places(both[1])))
        for kind, mutation in MUTATIONS.items()
    }
    return Base(name, text, printed, before.rule_count(), counts)


def plan(bases: Sequence[Base], count: int, rng: random.Random) -> dict[str, list[Order]]:
    """As many mutants of each kind, spread over the sets; both of originals and of compiled sets."""
    orders: dict[str, list[Order]] = {base.name: [] for base in bases}
    sites = {kind: list(_sites(bases, kind)) for kind in MUTATIONS}
    kinds = [kind for kind, places in sites.items() if places]
    for at in range(count):
        kind = kinds[at % len(kinds)]
        turn = at // len(kinds) % len(sites[kind])
        if turn == 0:
            rng.shuffle(sites[kind])
        base, compiled = sites[kind][turn]
        orders[base.name].append(Order(kind, compiled, rng.randrange(1 << 32), rng.random() < REPLAYED))
    return orders


def _sites(bases: Sequence[Base], kind: str) -> Iterator[tuple[Base, bool]]:
    for base in bases:
        for compiled in (False, True):
            # A large set stands for one in the shuffled order, a small one for four.
            if base.places[kind][compiled]:
                yield from [(base, compiled)] * (1 if base.rules > LARGE else 4)


def try_orders(task: tuple[Base, Sequence[Order], frozenset[str]]) -> list[Line]:
    """Make and judge the mutants of one base, but none that was made before (by their digests)."""
    base, orders, before = task
    sheets, seen, lines = _sheets(base.name, base.text, base.compiled), set(before), []
    for order in orders:
        line = try_order(base.name, sheets, order, seen)
        seen.add(line.digest)
        lines.append(line)
    return lines


def try_order(name: str, sheets: tuple[Sheet, Sheet], order: Order, seen: Set[str] = frozenset()) -> Line:
    line = Line(name, order)
    began = time.perf_counter()
    try:
        mutant, line.digest = make(sheets, order, seen)
        if mutant is not None:
            _judge(sheets[0].program, mutant, line)
    except Exception:  # a mutant that ends in a fault is a failure as any other
        line.failure = traceback.format_exc()
    line.seconds = time.perf_counter() - began
    return line


def make(sheets: tuple[Sheet, Sheet], order: Order, seen: Set[str]) -> tuple[Program | None, str]:
    """A mutant that can be read, that can be compared, and that was not seen, and its digest."""
    rng = random.Random(order.seed)
    sheet, mutation = sheets[order.compiled], MUTATIONS[order.kind]
    original = sheets[0].program
    for _ in range(TRIES):
        text = mutate(sheet, mutation, rng)
        if text is None:
            continue
        digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        if digest in seen:
            continue
        try:
            mutant = read(text, family=original.family, name="the mutant")
            chain_pairs(original, mutant, Question())  # an ipset that one of them alone names is refused
        except HitablesError:
            continue
        return mutant, digest
    return None, ""


def _judge(original: Program, mutant: Program, line: Line) -> None:
    question = Question(timeout=TIMEOUT)
    answer = exact.check(original, mutant, question)
    if isinstance(answer, Difference):
        line.answer = "caught"
        if not _is_shown(original, mutant, answer):
            line.failure = f"ir.semantics does not confirm it: {answer.describe()}"
        elif line.order.kernel:
            replayed = replay(original, mutant, answer)
            line.finding, line.reason = replayed.finding.value, replayed.reason
            if replayed.finding is ReplayResult.CONTRADICTED:
                line.failure = f"the kernel contradicts: {replayed.describe()}\n{answer.describe()}"
        return
    if not isinstance(answer, Equal) or not answer.proved:
        line.failure = f"the exact checker did not decide: {answer}"
        return
    second = bdd.check(original, mutant, question)
    if isinstance(second, Equal) and second.proved:
        line.answer = "proved equal"
    else:
        second_text = second.describe() if isinstance(second, Difference) else str(second)
        line.failure = f"equal says the exact checker, but decision diagrams: {second_text}"


def _is_shown(original: Program, mutant: Program, difference: Difference) -> bool:
    """Whether semantics sees the difference; without a packet: whether a rule's memory is there twice."""
    packet, backend = difference.packet, difference.backend
    if packet is None or backend is None:
        return "memory" in difference.reason
    walks = [
        semantics.run(program.table(difference.table), difference.chain, packet, backend)
        for program in (original, mutant)
    ]
    return differs(walks[0], walks[1], is_malformed(packet)) is not None


@lru_cache(maxsize=2)
def _sheets(name: str, text: str, printed: str) -> tuple[Sheet, Sheet]:
    before = read(text, name=name)
    return Sheet(text, before), Sheet(printed, read(printed, family=before.family, name="the compiled set"))


def count(lines: Sequence[Line]) -> dict[str, dict[str, int]]:
    """The table: kind by column."""
    counts = {kind: Counter[str]() for kind in MUTATIONS}
    for line in lines:
        row = counts[line.order.kind]
        row["mutants"] += 1
        row[line.answer] += 1
        row["kernel confirmed"] += line.finding == ReplayResult.CONFIRMED.value
        row["not realisable"] += line.finding == ReplayResult.NOT_REALISABLE.value
    return {kind: {column: row[column] for column in COLUMNS} for kind, row in counts.items()}


def table(figures: Mapping[str, Any]) -> str:
    """For the docs."""
    rows = [(kind, *row.values()) for kind, row in figures["kinds"].items()]
    total = [sum(row[column] for row in figures["kinds"].values()) for column in COLUMNS]
    return markdown(("edit", *COLUMNS), [*rows, ("all", *total)])


def _run(bases: Sequence[Base], mutants: int, seed: int, pool: Any) -> list[Line]:
    """Mutants in rounds: where a kind has no new ones left, others take its share."""
    by_name, rng, lines = {base.name: base for base in bases}, random.Random(seed), list[Line]()
    seen: dict[str, set[str]] = {base.name: set() for base in bases}
    reported = 0
    for _ in range(ROUNDS):
        if len(lines) == mutants:
            break
        orders = plan(bases, mutants - len(lines), rng)
        jobs = [
            (by_name[name], mine[at : at + CHUNK], frozenset(seen[name]))
            for name, mine in orders.items()
            for at in range(0, len(mine), CHUNK)
        ]
        jobs.sort(key=lambda job: -job[0].rules)
        # In order, so that of two mutants that are the same always the same one is kept.
        for done in pool.imap(try_orders, jobs, chunksize=1):
            for line in done:
                if line.failure:
                    click.echo(f"FAIL {line.base}: {line.order}: {line.failure}")
                if line.failure or (line.digest and line.digest not in seen[line.base]):
                    lines.append(line)
                    seen[line.base].add(line.digest)
            if len(lines) >= reported + TELL_EVERY:
                reported = len(lines)
                click.echo(f"{reported} of {mutants} mutants made and judged")
    return lines


@click.command()
@click.option("-n", "--mutants", default=MUTANTS, show_default=True)
@click.option("--seed", default=SEED, show_default=True)
@click.option("--only", default="", help="Only sets whose name holds this.")
@click.option("-j", "--jobs", default=2, show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write the figures there.")
def main(mutants: int, seed: int, only: str, jobs: int, output: Path | None) -> None:
    """Make mutants, and see that each is caught or proved equal."""
    began = time.monotonic()
    rule_sets = [
        each
        for each in (*public_sets.dumps(), *public_sets.filters(), *public_sets.raw_tables())
        if only in each[0]
    ]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        bases = pool.map(prepare, rule_sets, chunksize=1)
        click.echo(f"{len(bases)} sets read and compiled: {time.monotonic() - began:.0f} s")
        lines = _run(bases, mutants, seed, pool)
    rows = count(lines)
    failures = sum(bool(line.failure) for line in lines)
    confirmed = sum(row["kernel confirmed"] for row in rows.values())
    seconds = time.monotonic() - began
    figures = {
        "machine": machine(), "seed": seed, "jobs": jobs, "sets": len(bases), "seconds": round(seconds, 1),
        "failures": failures, "kinds": rows,
    }  # fmt: skip
    click.echo(table(figures))
    reasons = Counter(line.reason for line in lines if line.finding == ReplayResult.NOT_REALISABLE.value)
    for reason, times in reasons.most_common():
        click.echo(f"not realisable, {times}: {reason}")
    click.echo(f"{len(lines)} mutants of {len(bases)} sets, {failures} failures, {seconds:.0f} s")
    if output is None and not only and mutants == MUTANTS:
        output = FIGURES
    if output is not None:
        output.write_text(json.dumps(figures, indent=1) + "\n")
    if output == FIGURES:
        fill(DOCS / "proof.md", "mutants", table(figures))
    few = not only and confirmed < CONFIRMED * mutants // MUTANTS
    if few:
        click.echo(f"the kernel confirmed {confirmed} only")
    sys.exit(1 if failures or few or len(lines) < mutants else 0)


if __name__ == "__main__":
    command_line.run(main)

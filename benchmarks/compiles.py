"""Whether compile accepts every valid rule set: `make compiles`.

Rule sets of every style (firewalls.py) are compiled with options of every kind, text to text.  Each result
must be proved equal, with every chain replaced by the tree that was built for it; or the set must be
refused for one of the reasons in REFUSALS, which the docs state.  Anything else (a difference, a chain left
unchanged, an exception) is a fault of hitables: the rule set is reduced as far as possible (shrink.py) and
saved with its options, and the run fails.  A seed always draws the same sets and options.  The figures are
in docs/evaluation/compiles.json.

    python -m benchmarks.compiles --count 200 --seed 7
    python -m benchmarks.compiles --again out/compiles/7-31.rules
"""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import click

from hitables.build.grow import ALGORITHMS
from hitables.compiler.options import NESTING, PAPER_CHOICES, Options
from hitables.compiler.pipeline import compile_text
from hitables.errors import HitablesError, NotEquivalent, ParseError
from hitables.ir.choices import Equivalence
from hitables.ir.fields import Family
from hitables.kernel.machine import machine

from . import command_line
from .doc_tables import DOCS
from .firewalls import NAMES, draw
from .shrink import shrink

FIGURES = DOCS / "evaluation" / "compiles.json"
SAVED = Path("out/compiles")

SMALLEST, USUAL, MORE, LARGE, LARGEST = 10, 100, 500, 2000, 10_000
# One compile in ONE_MORE has USUAL to MORE rules, one in ONE_LARGE has LARGE or more, one in ONE_LARGEST
# has LARGEST.
ONE_MORE, ONE_LARGE, ONE_LARGEST = 15, 250, 1500

# For one proof, far above what the largest set takes: running out of it is a fault, too.
TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class Task:
    """What to compile, and how; *options* as `Options` takes them, and the scheme, as plain data."""

    style: str
    family: int
    size: int
    text: str
    scheme: str
    options: Mapping[str, Any]

    def chosen(self) -> Options:
        return Options(**self.options)

    @property
    def known(self) -> dict[str, str]:
        """What a tally counts by."""
        names = ("backend", "algorithm", "equivalence", "malformed", "effort")
        return {
            "style": self.style,
            "family": f"IPv{self.family}",
            "scheme": self.scheme,
            "rules": _size_class(self.size),
            **{name: str(self.options[name]) for name in names},
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is refused on purpose: the tasks that it concerns, and how the error begins."""

    name: str
    concerns: Callable[[Task], bool]
    begins: str


REFUSALS = (
    Refusal(
        "scheme paper prints every rule",
        lambda task: task.scheme == "paper" and task.options["equivalence"] == "verdict",
        "scheme paper prints every rule: equivalence verdict needs scheme tree",
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a task.

    fault   what went wrong, in a few words that name its kind; "" when nothing did
    detail  more about it
    refused name of the refusal, "" when there was none
    trees   chains that got a tree; chains: those with rules
    """

    fault: str = ""
    detail: str = ""
    refused: str = ""
    trees: int = 0
    chains: int = 0
    rules: int = 0
    printed: int = 0


def attempt(task: Task) -> Outcome:
    """Compile it, and return the result; only a fault of the campaign itself raises."""
    refusal = next((each for each in REFUSALS if each.concerns(task)), None)
    try:
        compilation = compile_text(
            task.text, task.chosen(), family=Family(task.family), scheme=task.scheme, timeout=TIMEOUT
        )
    except NotEquivalent as error:
        return Outcome(fault="not equal", detail=str(error))
    except ParseError as error:
        return Outcome(fault="not read", detail=str(error))
    except HitablesError as error:
        if refusal is not None and str(error).startswith(refusal.begins):
            return Outcome(refused=refusal.name)
        return Outcome(fault="refused for no stated reason", detail=str(error))
    except Exception as error:
        return Outcome(fault=f"exception {type(error).__name__}", detail=str(error))
    if refusal is not None:
        return Outcome(fault="not refused", detail=f"expected: {refusal.begins}")
    if compilation.faults:
        first = compilation.faults[0]
        return Outcome(fault=f"left as it was: {first.why.partition(':')[0]}", detail=first.detail)
    if "; proved " not in compilation.text.partition("\n")[0]:
        return Outcome(fault="not proved", detail=compilation.text.partition("\n")[0])
    trees = sum(not each.why for each in compilation.reports)
    before, after = compilation.before.rule_count(), compilation.program.rule_count()
    return Outcome(trees=trees, chains=len(compilation.reports), rules=before, printed=after)


# ---- drawing ----


def task_of(seed: int, number: int, styles: tuple[str, ...] = NAMES, most: int = LARGEST) -> Task:
    """Task *number* of the campaign with that seed, of *most* rules or fewer."""
    rng = Random(f"{seed}/{number}")
    style = styles[number % len(styles)]
    if number % ONE_LARGEST == ONE_LARGEST - 1:
        size = LARGEST
    elif number % ONE_LARGE == ONE_LARGE - 1:
        size = rng.randint(LARGE, LARGEST // 2)
    else:
        low, high = (USUAL, MORE) if rng.random() < 1 / ONE_MORE else (SMALLEST, USUAL)
        size = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    size = min(size, most)
    text, family = draw(style, rng, size)
    return Task(style, int(family), size, text, *_options(rng))


def _options(rng: Random) -> tuple[str, dict[str, Any]]:
    """A scheme, and options: the defaults oftenest, every combination now and then."""
    scheme = "paper" if rng.random() < 0.05 else "tree"
    options: dict[str, Any] = {
        "backend": rng.choices(list(NESTING), [2, 1, 1])[0],
        "algorithm": "auto" if rng.random() < 0.6 else rng.choice(ALGORITHMS),
        "equivalence": rng.choices(list(Equivalence), [2, 1])[0],
        "malformed": rng.choices(["stricter", "exact"], [2, 1])[0],
        "effort": rng.choices(["normal", "fast", "best"], [6, 2, 1])[0],
    }
    if rng.random() < 0.4:
        return scheme, options
    options |= {
        "leaf_size": rng.choice([8, 8, 8, 1, 2, 4, 16]),
        "min_length": rng.choice([8, 8, 4, 2, 1]),
        "max_expansion": rng.choice([4.0, 4.0, 1.0, 1.2, 2.0, 20.0]),
        "max_depth": rng.choice([None, None, None, 1, 2, 5]),
        "as_written": rng.random() < 0.1,
    }
    if scheme == "paper":
        options |= {name: rng.choice(PAPER_CHOICES[name]) for name in ("dispatch", "runs", "dim_choice")}
        options["unequal_cuts"] = options["dim_choice"] != "least-max" and rng.random() < 0.3
    return scheme, options


# ---- running ----


@dataclass
class Tally:
    """The results of all tasks so far."""

    compiles: int = 0
    by: dict[str, Counter[str]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[dict[str, Any]] = field(default_factory=list)
    rules: int = 0
    printed: int = 0
    chains: int = 0
    trees: int = 0
    with_tree: int = 0

    def add(self, task: Task, outcome: Outcome) -> None:
        self.compiles += 1
        for name, value in task.known.items():
            self.by.setdefault(name, Counter())[value] += 1
        if outcome.refused:
            self.refused[outcome.refused] += 1
        self.rules += outcome.rules
        self.printed += outcome.printed
        self.chains += outcome.chains
        self.trees += outcome.trees
        self.with_tree += outcome.trees > 0

    def merge(self, other: Tally) -> None:
        """Count what the other counted, too."""
        self.compiles += other.compiles
        for name, counts in other.by.items():
            self.by.setdefault(name, Counter()).update(counts)
        self.refused.update(other.refused)
        self.faults = sorted([*self.faults, *other.faults], key=lambda fault: fault["number"])
        self.rules += other.rules
        self.printed += other.printed
        self.chains += other.chains
        self.trees += other.trees
        self.with_tree += other.with_tree

    def figures(self) -> dict[str, Any]:
        return {
            "compiles": self.compiles,
            "proved": self.compiles - sum(self.refused.values()) - len(self.faults),
            "refused as stated": dict(self.refused),
            "faults": self.faults,
            "compiles with a tree": self.with_tree,
            "chains with rules": self.chains,
            "chains with a tree": self.trees,
            "rules": self.rules,
            "rules printed": self.printed,
            "by": {name: dict(sorted(counts.items())) for name, counts in self.by.items()},
        }


def _size_class(size: int) -> str:
    bounds = (10, 30, 100, 300, 1000, 3000, 10_000)
    at = sum(bound <= size for bound in bounds)
    if not at:
        return f"below {bounds[0]}"
    return f"{bounds[at - 1]:,} to {bounds[at] - 1:,}" if at < len(bounds) else f"{bounds[-1]:,}"


def smaller(task: Task, outcome: Outcome, seconds: float) -> Task:
    """The task with as few rules as show the same kind of fault."""

    def shows(text: str) -> bool:
        return attempt(replace(task, text=text)).fault == outcome.fault

    return replace(task, text=shrink(task.text, shows, seconds))


_HEAD = "# compiles: "


def save(task: Task, outcome: Outcome, path: Path) -> None:
    """The rule set, with the options of the task in its first line; `read_saved` reads it back."""
    header = {
        "family": task.family,
        "style": task.style,
        "scheme": task.scheme,
        "options": dict(task.options),
    }
    comment = "".join(f"# {line}\n" for line in (outcome.fault, *outcome.detail.splitlines()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{_HEAD}{json.dumps(header)}\n{comment}{task.text}")


def read_saved(path: Path) -> Task:
    """What `save` wrote."""
    first, _, rest = path.read_text().partition("\n")
    if not first.startswith(_HEAD):
        raise HitablesError(f"{path}:1: no set of this campaign: it begins with {_HEAD!r}")
    header = json.loads(first.removeprefix(_HEAD))
    text = "".join(line for line in rest.splitlines(keepends=True) if not line.startswith("#"))
    return Task(
        header["style"], header["family"], text.count("-A "), text, header["scheme"], header["options"]
    )


def run(
    seed: int,
    count: int,
    seconds: float = math.inf,
    *,
    first: int = 0,
    step: int = 1,
    styles: tuple[str, ...] = NAMES,
    most: int = LARGEST,
    saved: Path = SAVED,
    patience: float = 120.0,
    tell: Callable[[str], None] = lambda line: None,
) -> Tally:
    """*count* tasks of *seed*, every *step*-th from number *first* on, until *seconds* are over.

    Faults go to the folder *saved*; *patience*: seconds for making one fault smaller.  A task that ends the
    process leaves its rule set there, in the file under-way-FIRST.rules.
    """
    tally, began, last_report = Tally(), time.monotonic(), time.monotonic()
    under_way = saved / f"under-way-{first}.rules"
    for number in range(first, first + count * step, step):
        if time.monotonic() - began > seconds:
            break
        task = task_of(seed, number, styles, most)
        save(task, Outcome(fault="under way"), under_way)
        outcome = attempt(task)
        if outcome.fault:
            small = smaller(task, outcome, patience)
            path = saved / f"{seed}-{number}.rules"
            save(small, attempt(small), path)
            tally.faults.append(
                {
                    "number": number,
                    "style": task.style,
                    "fault": outcome.fault,
                    "options": dict(task.options),
                    "scheme": task.scheme,
                    "file": path.name,
                    "rules": small.text.count("-A "),
                }
            )
            tell(f"FAULT {path}: {task.style}, {outcome.fault}: {outcome.detail.partition(chr(10))[0]}")
        tally.add(task, outcome)
        if time.monotonic() - last_report > 10:
            last_report = time.monotonic()
            tell(f"{tally.compiles} compiled, {len(tally.faults)} faults, {last_report - began:.0f} s")
    under_way.unlink(missing_ok=True)
    return tally


def _job(arguments: dict[str, Any]) -> Tally:
    return run(**arguments, tell=click.echo)


def run_jobs(seed: int, count: int, seconds: float, *, first: int, jobs: int, **arguments: Any) -> Tally:
    """As `run`, by several processes; HitablesError when one of them ends before its tasks do."""
    each = [
        {
            "seed": seed,
            "count": len(range(job, count, jobs)),
            "seconds": seconds,
            "first": first + job,
            "step": jobs,
            **arguments,
        }
        for job in range(min(jobs, count))
    ]
    tally = Tally()
    try:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            for done in pool.map(_job, each):
                tally.merge(done)
    except BrokenProcessPool:
        raise HitablesError(
            f"a process has died; what it was compiling is one of {arguments['saved']}/under-way-*.rules"
        ) from None
    return tally


_path = click.Path(path_type=Path)


@click.command()
@click.option("--count", default=5000, show_default=True, type=click.IntRange(1), help="Compiles.")
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="Number of the first.")
@click.option("--seconds", default=math.inf, type=float, help="Stop after this long.  [default: no bound]")
@click.option("--seed", default=1, show_default=True)
@click.option("-j", "--jobs", default=1, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option("--style", "styles", multiple=True, type=click.Choice(NAMES), help="Only this; repeatable.")
@click.option("--most", default=LARGEST, show_default=True, type=click.IntRange(1), help="Rules of a set.")
@click.option("--saved", default=SAVED, show_default=True, type=_path, help="Folder for faults.")
@click.option("--again", type=_path, help="Compile a saved set again.")
@click.option("--json", "output", type=_path, help="For the figures.  [default: when complete, the docs]")
def main(
    count: int,
    first: int,
    seconds: float,
    seed: int,
    jobs: int,
    styles: tuple[str, ...],
    most: int,
    saved: Path,
    again: Path | None,
    output: Path | None,
) -> None:
    """Compile rule sets of every style with options of every kind.

    Exit status 1 when one of them is not proved equal and there is no stated reason for it.
    """
    if again is not None:
        outcome = attempt(read_saved(again))
        message = f"{outcome.fault}\n{outcome.detail}" if outcome.fault else outcome.refused
        click.echo(message or "proved equal")
        sys.exit(1 if outcome.fault else 0)
    began = time.monotonic()
    tally = run_jobs(
        seed, count, seconds, first=first, jobs=jobs, styles=styles or NAMES, most=most, saved=saved
    )
    took = time.monotonic() - began
    figures = {"machine": machine(), "seed": seed, "seconds": round(took, 1), **tally.figures()}
    whole = tally.compiles == count and not styles and most == LARGEST and not first
    if output is None and whole:
        output = FIGURES
    if output is not None:
        output.write_text(json.dumps(figures, indent=1) + "\n")
        click.echo(f"data: {output}")
    click.echo(
        f"{tally.compiles} compiles in {took:.0f} s: {figures['proved']} proved equal, "
        f"{sum(tally.refused.values())} refused as stated, {len(tally.faults)} faults; "
        f"{tally.trees} trees in {tally.with_tree} rule sets"
    )
    sys.exit(1 if tally.faults or not tally.compiles else 0)


if __name__ == "__main__":
    command_line.run(main)

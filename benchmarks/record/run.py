"""All experiments of the five papers, one after the other, then the page: `make evaluation`.

The total time is said first.  A stage that has ended is not run again by the next call, so that a run which
was stopped goes on; `--again` begins anew.  `--short` runs the short form of each stage into
out/evaluation/short and leaves the recorded data and the page as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ..doc_tables import DOCS
from .page import write
from .papers import PAPERS

OUT = Path("out/evaluation")


@dataclass(frozen=True)
class Stage:
    """A command that records data; minutes are those of an idle machine of two cores."""

    name: str
    module: str
    minutes: float
    short_minutes: float
    options: tuple[str, ...] = ()
    short_options: tuple[str, ...] = ("--short",)
    # 1 where a missed goal is no reason to measure again.
    fine: tuple[int, ...] = (0,)

    def command(self, short: bool) -> list[str]:
        """The whole run, or the short form, which writes into out/."""
        form = (
            [*self.short_options, "-o", str(OUT / "short" / f"{self.name}.json")] if short else self.options
        )
        return [sys.executable, "-m", f"benchmarks.{self.module}", *form]


STAGES = (
    Stage("flows", "flow_tables", 60, 1),
    Stage("storm", "storm", 40, 2),
    Stage(
        "hot",
        "hot",
        15,
        1.5,
        ("-o", str(DOCS / "evaluation" / "hot.json")),
        ("--only", "acl1_10K", "--runs", "2"),
        (0, 1),
    ),
)


class Done:
    """The stages that have ended, kept in a file: a name, and the seconds that it took."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = round(seconds, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.seconds, indent=1) + "\n")

    def forget(self) -> None:
        self.seconds = {}
        self.path.unlink(missing_ok=True)


def run(stages: Sequence[Stage], done: Done, short: bool, console: Console) -> list[str]:
    """Run what is not done yet; the names of the stages that failed."""
    left = [stage for stage in stages if stage.name not in done.seconds]
    total = sum(stage.short_minutes if short else stage.minutes for stage in left)
    console.print(f"{len(left)} of {len(stages)} stages are to be run: about {total:.0f} minutes.")
    failed = []
    for at, stage in enumerate(left, 1):
        minutes = stage.short_minutes if short else stage.minutes
        console.print(
            f"[{at}/{len(left)}] {stage.name}: about {minutes:g} minutes", style="bold", markup=False
        )
        log = OUT / ("short" if short else "") / f"{stage.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with log.open("w") as output, console.status(f"{stage.name}, output in {log}"):
            status = subprocess.run(
                stage.command(short), stdout=output, stderr=output, check=False
            ).returncode
        took = time.monotonic() - began
        if status not in stage.fine:
            failed.append(stage.name)
            console.print(f"  failed with exit {status} after {took / 60:.1f} minutes: see {log}")
            continue
        done.add(stage.name, took)
        console.print(f"  done in {took / 60:.1f} minutes")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="make evaluation", description=__doc__)
    names = [stage.name for stage in STAGES]
    parser.add_argument("--short", action="store_true", help="short forms, into out/evaluation/short")
    parser.add_argument("--only", nargs="+", choices=names, metavar="STAGE", help=", ".join(names))
    parser.add_argument("--again", action="store_true", help="run stages that have ended, too")
    parser.add_argument("--list", action="store_true", help="the stages, their minutes, and which have ended")
    args = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    stages = [stage for stage in STAGES if not args.only or stage.name in args.only]
    done = Done(OUT / ("short.json" if args.short else "done.json"))
    if args.list:
        for stage in stages:
            ended = (
                f"ended, {done.seconds[stage.name] / 60:.1f}" if stage.name in done.seconds else "to be run"
            )
            minutes = stage.short_minutes if args.short else stage.minutes
            console.print(f"{stage.name}: about {minutes:g} minutes; {ended}")
        return
    if args.again:
        done.forget()
    failed = run(stages, done, args.short, console)
    if not args.short:
        write(PAPERS)
    if failed:
        sys.exit(f"{', '.join(failed)} failed; the next call tries them again")


if __name__ == "__main__":
    main()

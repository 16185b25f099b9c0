"""All experiments of the five papers, one after the other, then the page: `make evaluation`.

The total time is said first.  A stage that has ended is not run again by the next call, so that a run which
was stopped goes on; `--again` begins anew.  `--short` runs the short form of each stage into
out/evaluation/short and leaves the recorded data and the page as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from .. import command_line
from ..doc_tables import DOCS
from .page import write
from .papers import PAPERS

OUT = Path("out/evaluation")


@dataclass(frozen=True)
class Stage:
    """A command that records data; minutes are those of an idle machine of two cores.

    options   of a whole run; those of the short form are --short and -o
    resuming  besides, where a run of this stage was begun and did not end
    fine      exit statuses with which the figures are whole: 1 where a missed goal gives 1
    cores     that it needs: a machine with fewer leaves it out
    """

    name: str
    module: str
    minutes: float
    short_minutes: float
    options: tuple[str, ...] = ()
    short_options: tuple[str, ...] = ("--short",)
    resuming: tuple[str, ...] = ()
    fine: tuple[int, ...] = (0,)
    cores: int = 1

    def command(self, short: bool, was_begun: bool) -> list[str]:
        """The whole run, or the short form, which writes into out/."""
        form = [*self.options, *(self.resuming if was_begun else ())]
        if short:
            form = [*self.short_options, "-o", str(OUT / "short" / f"{self.name}.json")]
        return [sys.executable, "-m", f"benchmarks.{self.module}", *form]


STAGES = (
    Stage("hitables", "conext2014", 43, 0.6),
    Stage("hitables-saturation", "saturation", 58, 0.9, resuming=("--resume",)),
    Stage("sfl", "lcn2016", 80, 0.8, ("--only", "table1", "figure5", "table2")),
    Stage("sfl-kernel", "lcn2016_kernel", 75, 1, resuming=("--resume",)),
    Stage("layer4", "layer4", 6, 0.4),
    Stage("events", "events", 8, 1),
    Stage("flows", "flow_tables", 60, 1),
    Stage("storm", "storm", 40, 2),
    Stage(
        "storm-cores",
        "storm",
        2,
        1,
        ("--cores", "--packets", "600000", "--runs", "8"),
        ("--cores", "--short"),
        cores=8,
    ),
    Stage(
        "hot",
        "hot",
        20,
        1.5,
        ("-o", str(DOCS / "evaluation" / "hot.json")),
        ("--only", "acl1_10K", "--runs", "2"),
        fine=(0, 1),
    ),
    # The short form of SFL has all its parts.
    Stage("sfl-deltas", "lcn2016", 284, 0, ("--only", "deltas")),
)


class Done:
    """The stages that were begun, and the seconds of those that have ended, kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float | None] = json.loads(path.read_text()) if path.exists() else {}

    def note(self, name: str, seconds: float | None) -> None:
        """The stage has ended after so many seconds; None: it has begun."""
        self.seconds[name] = None if seconds is None else round(seconds, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.seconds, indent=1) + "\n")

    def forget(self) -> None:
        self.seconds = {}
        self.path.unlink(missing_ok=True)


def run(stages: Sequence[Stage], done: Done, short: bool, console: Console) -> list[str]:
    """Run what has not ended yet; the names of the stages that failed."""
    left = [stage for stage in stages if done.seconds.get(stage.name) is None]
    total = sum(stage.short_minutes if short else stage.minutes for stage in left)
    console.print(f"{len(left)} of {len(stages)} stages are to be run: about {duration(total)}.")
    failed = []
    for at, stage in enumerate(left, 1):
        minutes = stage.short_minutes if short else stage.minutes
        console.print(
            f"[{at}/{len(left)}] {stage.name}: about {duration(minutes)}", style="bold", markup=False
        )
        log = OUT / ("short" if short else "") / f"{stage.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = stage.command(short, was_begun=stage.name in done.seconds)
        done.note(stage.name, None)
        began = time.monotonic()
        with log.open("w") as output, console.status(f"{stage.name}, output in {log}"):
            status = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
        took = time.monotonic() - began
        if status in stage.fine:
            done.note(stage.name, took)
            console.print(f"  done in {duration(took / 60)}")
        else:
            failed.append(stage.name)
            console.print(f"  failed with exit status {status} after {duration(took / 60)}: see {log}")
    return failed


def duration(minutes: float) -> str:
    if minutes < 100:
        return f"{minutes:.1f} minutes"
    return f"{minutes / 60:.1f} hours"


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
    cores = len(os.sched_getaffinity(0))
    for stage in (stage for stage in stages if stage.cores > cores):
        console.print(f"left out: {stage.name} needs {stage.cores} cores, and this machine has {cores}")
    stages = [stage for stage in stages if stage.cores <= cores]
    done = Done(OUT / ("short.json" if args.short else "done.json"))
    if args.short:
        stages = [stage for stage in stages if stage.short_minutes]
    if args.list:
        for stage in stages:
            seconds = done.seconds.get(stage.name)
            ended = "to be run" if seconds is None else f"ended, {duration(seconds / 60)}"
            minutes = stage.short_minutes if args.short else stage.minutes
            console.print(f"{stage.name}: about {duration(minutes)}; {ended}")
        return
    if args.again:
        done.forget()
    failed = run(stages, done, args.short, console)
    if not args.short:
        write(PAPERS)
    if failed:
        sys.exit(f"{', '.join(failed)} failed; the next call tries them again")


if __name__ == "__main__":
    command_line.run(main)

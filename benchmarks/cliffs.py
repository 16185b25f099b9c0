"""Time and memory of each command as a rule set grows along each axis: `make bench-cliffs`.

`python -m benchmarks.cliffs [--short] [--axis AXIS]... [--command COMMAND]...`

The rule sets come from seeds (cliffs_inputs.py, cliffs_firewalls.py).  Each command runs in a process of its
own; its CPU seconds, those of the programs that it starts, and the memory that it adds are fitted by a power
of the size.  Those of COMMANDS are calls, and have read the rule set already; those of MORE
(cliffs_commands.py) are run as on the command line.  A command that takes more than PATIENCE is stopped, and
gets no larger set of that axis.  Those that load rules run in a network namespace of their own, as root, for
the axes of LOADED.  The exit status is 1 when an
exponent is above GOAL, a command was stopped, or the memory is above MOST_MB.

The figures are in docs/evaluation/cliffs.json and, from there, in docs/limits.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import hitables
from hitables.ir.program import Program
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace

from . import command_line
from .cliffs_commands import KERNEL, MORE, more_actions
from .cliffs_firewalls import FIREWALL_AXES
from .cliffs_inputs import AXES
from .doc_tables import DOCS, fill, markdown

OUTPUT = DOCS / "evaluation" / "cliffs.json"
COMMANDS = ("read", "compile", "prove", "print", "check", "diff", "lint", "stats")
# What a command reads of an earlier one.
NEEDED = {
    "prove": "compile", "check": "compile", "counters": "map", "source": "map", "dry-run": "apply",
    "status": "apply", "history": "apply",
}  # fmt: skip
# nf_tables refuses deep nesting, and sets that are not there; iptables-nft-restore is slow with many chains.
LOADED = ("rules", "returns", *(axis for axis in FIREWALL_AXES if axis != "sets"))
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
SHORT = (300, 1_000, 3_000)
GOAL = 1.3
PATIENCE, SHORT_PATIENCE = 300, 20  # CPU seconds of one command
MOST_MB = 16 * 1024
FLOOR_S, FLOOR_MB = 0.1, 10.0  # below, the start of a command counts for more than its input

Point = dict[str, Any]


def measured(action: Callable[[], object], patience: int) -> Point:
    """Run *action* in a fork: CPU seconds and added memory in MB, or under "failed" why it did not end."""
    reading, writing = os.pipe()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = os.fork()
    if not child:
        os.close(reading)
        _run(action, patience, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    _, _, used = os.wait4(child, 0)
    if not told:
        return {"failed": f"not done after {patience} s"}
    answer: Point = json.loads(told)
    if "failed" not in answer:
        answer["mb"] = round(max(0, used.ru_maxrss - before) / 1024, 1)
    return answer


def _run(action: Callable[[], object], patience: int, writing: int) -> None:
    """In the child: run *action*, tell the parent, and end."""
    resource.setrlimit(resource.RLIMIT_CPU, (patience, patience + 1))
    began = _spent()
    try:
        action()
        answer: Point = {"cpu_s": round(_spent() - began, 3)}
    except BaseException as error:  # whatever it is, the parent records it
        answer = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
    os.write(writing, json.dumps(answer).encode())
    os._exit(0)


def _spent() -> float:
    """CPU seconds of this process and of those that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def actions(text: str, compiled: Path) -> dict[str, Callable[[], object]]:
    """Each command on *text*.  compile writes the file *compiled*, which the later ones read."""
    program = hitables.read(text)

    def compile_it() -> None:
        compiled.write_text(hitables.compile_unproved(program).text)

    def prove() -> None:
        if not hitables.check(program, _after()).proved:
            raise AssertionError("the compiled rule set is not proved equal")

    def check() -> None:
        if not hitables.check(text, compiled.read_text()).proved:
            raise AssertionError("the compiled rule set is not proved equal")

    after: list[Program] = []

    def _after() -> Program:
        if not after:
            after.append(hitables.read(compiled.read_text()))
        return after[0]

    return {
        "read": lambda: hitables.read(text),
        "compile": compile_it,
        "prove": prove,
        "print": lambda: hitables.write(program),
        "check": check,
        "diff": lambda: hitables.diff(program, hitables.read(_with_another_rule(text))),
        "lint": lambda: hitables.lint(program),
        "stats": lambda: hitables.stats(program),
    }


def _with_another_rule(text: str) -> str:
    """*text* with a rule more at the end of its last chain, which drops what the others leave."""
    lines = text.splitlines(keepends=True)
    chain = lines[-2].split()[1]
    host = "2001:db8::7/128" if _family(text) == 6 else "198.51.100.7/32"
    return "".join([*lines[:-1], f"-A {chain} -s {host} -j DROP\n", lines[-1]])


def _family(text: str) -> int:
    return int(hitables.read(text).family)


def grown(
    axes: Sequence[str], commands: Sequence[str], sizes: Sequence[int], patience: int
) -> list[dict[str, Any]]:
    """A line for each axis and command: its points by size, and the fitted exponents."""
    lines: dict[tuple[str, str], dict[str, Any]] = {
        (axis, command): {"axis": axis, "command": command, "points": []}
        for axis in axes
        for command in commands
        if command not in KERNEL or axis in LOADED
    }
    for axis in axes:
        for size in sizes:
            able = [each for each in commands if (axis, each) in lines and not _stopped(lines[axis, each])]
            done: set[str] = set()
            for command, action in _ready(axis, size, able, (stack := ExitStack())):
                if NEEDED.get(command, command) not in {command, *done}:
                    continue
                point = {"size": size, **measured(action, patience)}
                if "failed" not in point:
                    done.add(command)
                lines[axis, command]["points"].append(point)
                print(axis, command, point, flush=True)
            stack.close()
    return [{**line, **exponents(line["points"])} for line in lines.values()]


def _ready(
    axis: str, size: int, commands: Sequence[str], stack: ExitStack
) -> list[tuple[str, Callable[[], object]]]:
    """These commands on the rule set of one size; *stack* keeps their files and their namespace."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    text = AXES[axis](size)
    process = stack.enter_context(Namespace()).call(os.getpid) if set(KERNEL) & set(commands) else None
    more = more_actions(text, _with_another_rule(text), _family(text), folder, process)
    ready = {**actions(text, folder / "compiled"), **more}
    return [(command, ready[command]) for command in commands]


def _stopped(line: Mapping[str, Any]) -> bool:
    return bool(line["points"]) and "failed" in line["points"][-1]


def exponents(points: Sequence[Point]) -> dict[str, float | None]:
    """The e of y = c * size ** e, by least squares of the logarithms, for CPU seconds and MB.

    Over the points that are not below the floor; None: there are fewer than two.
    """
    return {
        name: _exponent([(p["size"], p[key]) for p in points if p.get(key, 0) >= floor])
        for name, key, floor in (("time", "cpu_s", FLOOR_S), ("memory", "mb", FLOOR_MB))
    }


def _exponent(points: Sequence[tuple[float, float]]) -> float | None:
    if len(points) < 2:
        return None
    sizes, costs = np.log(np.array(points, float)).T
    return round(float(np.polyfit(sizes, costs, 1)[0]), 2)


def missed(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The goals that are missed, each as a sentence."""
    out = []
    for line in lines:
        name = f"{line['command']} by {line['axis']}"
        for kind in ("time", "memory"):
            if line[kind] is not None and line[kind] > GOAL:
                out.append(f"{name}: exponent {line[kind]} of {kind}, the goal is {GOAL}")
        for point in line["points"]:
            if "failed" in point:
                out.append(f"{name}, {point['size']:,}: {point['failed']}")
            elif point["mb"] > MOST_MB:
                out.append(f"{name}, {point['size']:,}: {point['mb']:,.0f} MB, the goal is {MOST_MB:,}")
    return out


def table(lines: Sequence[Mapping[str, Any]], commands: Sequence[str] = COMMANDS) -> str:
    """A row for each axis, a column for each command: seconds at the largest size, and the exponent."""
    rows = []
    for axis in dict.fromkeys(line["axis"] for line in lines):
        there = {line["command"]: line for line in lines if line["axis"] == axis}
        if not there.keys() & set(commands):
            continue
        largest = max((p["size"] for line in there.values() for p in line["points"]), default=0)
        rows.append([axis, largest, *(_cell(there.get(command), largest) for command in commands)])
    return markdown(("axis", "up to", *commands), rows)


def more_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """The same of the other commands."""
    return table(lines, MORE)


def _cell(line: Mapping[str, Any] | None, largest: int) -> str:
    if line is None or not line["points"]:
        return "–"
    done = [point for point in line["points"] if "failed" not in point]
    if not done:
        return "not done"
    last = done[-1]
    fitted = "" if line["time"] is None else f" ({line['time']})"
    until = "" if last["size"] == largest else f" at {last['size']:,}, then not done"
    return f"{last['cpu_s']:.3g} s{fitted}{until}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes, and less patience")
    parser.add_argument("--axis", action="append", choices=AXES, help="this axis only; may be repeated")
    parser.add_argument("--command", action="append", choices=(*COMMANDS, *MORE), help="this command only")
    parser.add_argument("--sizes", help="separated by commas")
    parser.add_argument("--patience", type=int, help="CPU seconds of one command")
    parser.add_argument("-o", "--output", type=Path, help="write the figures here, and fill no page")
    args = parser.parse_args()
    sizes: tuple[int, ...] = SHORT if args.short else SIZES
    if args.sizes:
        sizes = tuple(int(size) for size in args.sizes.split(","))
    patience = args.patience or (SHORT_PATIENCE if args.short else PATIENCE)
    lines = grown(args.axis or list(AXES), args.command or (*COMMANDS, *MORE), sizes, patience)
    data = {"machine": machine(), "sizes": sizes, "patience_s": patience, "goal": GOAL, "lines": lines}
    whole = not (args.axis or args.command or args.sizes or args.patience or args.short)
    if args.output or whole:
        (args.output or OUTPUT).write_text(json.dumps(data, indent=1) + "\n")
    if whole and not args.output:
        fill(DOCS / "limits.md", "cliffs", table(lines))
        fill(DOCS / "limits.md", "cliffs-more", more_table(lines))
    print(table(lines), more_table(lines), sep="\n")
    reasons = missed(lines)
    for reason in reasons:
        print(reason)
    sys.exit(1 if reasons else 0)


if __name__ == "__main__":
    command_line.run(main)

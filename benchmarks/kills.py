"""`sflgen stream --live` killed at random moments: `python -m benchmarks.kills`.

After each kill -9 the next start must find that state and kernel agree.  Both must have every answered
update, then a prefix of the updates under way, in order, and nothing else.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitables.api import read
from hitables.emit.text import write
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.load_save import load
from hitables.kernel.namespace import Namespace, run
from hitables.verify.question import Equal
from sflgen.commands import read_commands
from sflgen.commit import finish_commit
from sflgen.edits import apply, rule_key
from sflgen.kernel import Kernel
from sflgen.proof import verify
from sflgen.session import MAX_AHEAD
from sflgen.state import State
from sflgen.store import Store

from . import command_line

SFLGEN = str(Path(sys.executable).parent / "sflgen")

# Some commits, and with so few rules some folds in the background too.
DELTA, RULES, LONGEST = 4, 200, 0.1


def kills(backend: Backend, count: int, seed: int) -> dict[str, Any]:
    """Kill *count* streams; the counts.  HitablesError if state and kernel do not agree."""
    rng = random.Random(seed)
    rules = "".join(
        f"-A INPUT -s 10.{rng.randrange(256)}.{rng.randrange(256)}.0/24 -p tcp -m tcp "
        f"--dport {rng.randrange(1, 9999)} -j {rng.choice(['ACCEPT', 'DROP'])}\n"
        for _ in range(RULES)
    )
    program = read(f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n")
    with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
        load(write(program), Family.IPV4, backend, namespace)
        return namespace.call(_killed, Path(folder) / "state", backend, count, seed)


def _killed(folder: Path, backend: Backend, count: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    run([SFLGEN, "init", "--live", "--backend", backend.value, "--delta", str(DELTA), "--state", str(folder)])
    under_way = updates = 0
    proved = None
    master = state_after_kill(folder).master
    for number in range(count):
        commands, answered = _until_killed(folder, rng, number)
        state = state_after_kill(folder)
        done = done_of(commands, master, state.master, answered)
        under_way += done - answered
        updates += done
        master = state.master
        if number % 20 == 0 or number + 1 == count:
            proved = verify(state)
            if not isinstance(proved, Equal):
                raise HitablesError("the loaded rule set is not equal to the list")
    return {
        "backend": backend.value,
        "kills": count,
        "seed": seed,
        "lost": 0,
        "under_way": under_way,
        "updates": updates,
    }


def done_of(commands: Sequence[str], before: Program, after: Program, answered: int) -> int:
    """How many of *commands* lead from *before* to *after*, which has at least those *answered*;
    HitablesError where it has anything else."""
    for number, command in enumerate([*commands, ""][: answered + 2 * MAX_AHEAD]):
        if number >= answered and _lists(before) == _lists(after):
            return number
        before = apply(before, read_commands(command, before))
    raise HitablesError(
        f"after {answered} answers the rule list is not that of the answered commands, and of those under way"
    )


def _lists(program: Program) -> list[object]:
    return [(chain.name, [*map(rule_key, chain.rules)]) for table in program for chain in table.chains]


def _until_killed(folder: Path, rng: random.Random, number: int) -> tuple[list[str], int]:
    """The commands sent to a stream, and the number that it answered before it was killed."""
    commands = []
    for at in range(100):
        where = f"-s 10.{rng.randrange(256)}.{number % 256}.{at}"
        place = rng.randint(1, 90)
        commands.append(f"-D INPUT {place}" if at % 2 else f"-I INPUT {place} {where} -j DROP")
    return commands, answered_until_killed(folder, commands, rng.randrange(4), rng.random() * LONGEST)


def answered_until_killed(folder: Path, commands: Sequence[str], count: int, seconds: float) -> int:
    """How many of *commands* a stream answers if it is killed *seconds* after *count* answers."""
    command = [SFLGEN, "stream", "--live", "--state", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdin is not None and stream.stdout is not None
        stream.stdin.write("status\n")
        stream.stdin.flush()
        answers = [stream.stdout.readline() for _ in range(2)]
        stream.stdin.write("".join(f"{each}\n" for each in commands))
        stream.stdin.flush()
        while sum(each.startswith("ok ") for each in answers) <= count:
            answers.append(stream.stdout.readline())
            if not answers[-1].startswith(("ok ", "-", "*", "COMMIT")):
                raise HitablesError(f"the stream printed {answers[-1]!r}")
        time.sleep(seconds)
        os.kill(stream.pid, signal.SIGKILL)
        answers += stream.stdout.read().split("\n")
    return sum(each.startswith("ok ") for each in answers) - 1


def state_after_kill(folder: Path) -> State:
    """The state that the next start finds, and that the kernel holds then."""
    with open(folder / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the tool that loads the last patch outlives who called it
    with Store.open(folder) as store:
        kernel = Kernel(store.state.master.family, store.state.settings)
        finish_commit(store, kernel)
        kernel.check(store.state)
        return store.state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=200, help="Kill so many streams, half of them on either backend."
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for backend in Backend:
        print(kills(backend, args.kills // 2, args.seed), flush=True)


if __name__ == "__main__":
    command_line.run(main)

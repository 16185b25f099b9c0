"""`sflgen stream --live` killed at random moments: `python -m hitables.bench.sflgen_kills`.

After each kill -9 the next start has to find state and kernel agreeing, with every update that was
answered in it and at most one more: the one that was under way.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sflgen.live import Kernel, committed
from sflgen.state import verify
from sflgen.store import Store

from ..emit.text import write
from ..errors import HitablesError
from ..ir.fields import Family
from ..ir.packet import Backend
from ..library import read
from ..live.namespace import Namespace, run
from ..live.tables import load
from ..verify.answer import Equal

SFLGEN = str(Path(sys.executable).parent / "sflgen")

# Some commits, and with so few rules some folds in the background too.
DELTA, RULES, LONGEST = 4, 200, 0.1


def kills(backend: Backend, count: int, seed: int) -> dict[str, Any]:
    """Kill *count* streams; what was found.  HitablesError where state and kernel do not agree."""
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
    lost = under_way = updates = 0
    proved = None
    for number in range(count):
        answered = _until_killed(folder, rng, number)
        state = _after(folder)
        version = state.version
        lost += max(0, answered - version)
        under_way += version > answered
        if version > answered + 2:  # an update, and a fold taken over behind it
            raise HitablesError(f"version {version}, though {answered} was the last answer")
        updates = version
        if number % 20 == 0 or number + 1 == count:
            proved = verify(state)
            if not isinstance(proved, Equal):
                raise HitablesError("what is loaded is not the list")
    return {
        "backend": backend.value, "kills": count, "seed": seed, "lost": lost, "under_way": under_way,
        "versions": updates,
    }  # fmt: skip


def _until_killed(folder: Path, rng: random.Random, number: int) -> int:
    """The last version that a stream answered with before it was killed."""
    command = [SFLGEN, "stream", "--live", "--state", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdin is not None and stream.stdout is not None
        stream.stdin.write("status\n")
        stream.stdin.flush()
        said = [stream.stdout.readline() for _ in range(2)]
        for at in range(100):
            where = f"-s 10.{rng.randrange(256)}.{number % 256}.{at}"
            place = rng.randint(1, 90)
            line = f"-D INPUT {place}" if at % 2 else f"-I INPUT {place} {where} -j DROP"
            stream.stdin.write(line + "\n")
        stream.stdin.flush()
        answers = rng.randrange(4)  # on a busy machine the first takes long
        while sum(each.startswith("ok ") for each in said) <= answers:
            said.append(stream.stdout.readline())
        time.sleep(rng.random() * LONGEST)
        os.kill(stream.pid, signal.SIGKILL)
        said += stream.stdout.read().split("\n")
    words = (each.split() for each in said if each.startswith("ok "))
    return max(int(each[1]) for each in words if len(each) == 2)


def _after(folder: Path) -> Any:
    """The state after the next start, whose kernel holds what it says."""
    for _ in range(200):
        try:
            store = Store.open(folder)
        except HitablesError as error:
            if "in use" not in str(error):
                raise
            time.sleep(0.05)  # the tool that loads the last patch outlives who called it
            continue
        with store:
            kernel = Kernel(store.state.master.family, store.state.settings)
            committed(store, kernel)
            kernel.check(store.state)
            return store.state
    raise HitablesError("the lock of a process that was killed stays")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="Half of them on either backend.")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for backend in Backend:
        print(kills(backend, args.kills // 2, args.seed), flush=True)


if __name__ == "__main__":
    main()

"""`sflgen stream` on the public sets as they are, and with what real firewalls add to them.

Updates come at random positions and are as wide as the set's own rules: half are deletions of random rules;
an inserted rule has the tests of a random rule, with addresses of the same length from other rules.  The
stream is sent commands as fast as it answers, three at a time, without a kernel and live on nft.  At some
moments the rules that packets of the set's trace read are counted, beside those of the same list folded.

../shared/tools/decorate.py adds what public sets lack.  They have no DROP rule either; before LOGDROP takes
the place of each DROP, every third rule becomes one.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sflgen
from hitables.api import read
from hitables.emit.text import write
from hitables.files import read_text
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Rule
from hitables.kernel.load_save import load
from hitables.kernel.namespace import Namespace, run
from hitables.parse import classbench
from hitables.parse import trace as traces
from hitables.simulate.interpreter import Interpreter
from sflgen.proof import prove
from sflgen.session import Session
from sflgen.store import Store

from . import command_line
from .conext2014 import batch_of
from .public_sets import SHARED

SETS = ("acl1_10K", "fw1_10K", "ipc1_10K")
KINDS = ("plain", "est+log", "docker+logdrop", "ret")
CHAIN = "FORWARD"

# Commands sent and not answered: one is planned while the kernel loads another.
OUTSTANDING = 3
SFLGEN = str(Path(sys.executable).parent / "sflgen")


@dataclass(frozen=True, slots=True)
class Case:
    """A public set, what is added to it, and the targets of inserted rules."""

    name: str
    kind: str
    program: Program

    @property
    def targets(self) -> tuple[str, str]:
        return ("ACCEPT", "LOGDROP") if "logdrop" in self.kind else ("ACCEPT", "DROP")

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.program.table("filter")[CHAIN].rules


def public_set(name: str, kind: str, seed: int) -> Case:
    filters = classbench.parse(read_text(str(SHARED / "rulesets" / "wustl" / f"{name}.gz")), name)
    text = classbench.to_text(filters, chain=CHAIN)
    if "logdrop" in kind:
        rng = random.Random(seed)
        lines = (
            line.replace("-j ACCEPT", "-j DROP") if rng.random() < 1 / 3 else line
            for line in text.splitlines()
        )
        text = "\n".join([*lines, ""])
    if kind != "plain":
        with tempfile.TemporaryDirectory() as folder:
            plain, decorated = Path(folder) / "plain.rules", Path(folder) / "decorated.rules"
            plain.write_text(text)
            tool = str(SHARED / "tools" / "decorate.py")
            subprocess.run([sys.executable, tool, str(plain), str(decorated), kind], check=True)
            text = decorated.read_text()
    return Case(name, kind, read(text, name=f"{name} {kind}"))


class OwnUpdates:
    """Commands for the chain of *case*, as wide as its rules."""

    def __init__(self, case: Case, seed: int) -> None:
        self.rng, self.count, self.targets = random.Random(seed), len(case.rules), case.targets
        self.drawn = [rule for rule in case.rules if rule.matches and "conntrack" not in _names(rule)]
        self.networks = {
            option: [
                match.words[-1]
                for rule in self.drawn
                for match in rule.matches
                if match.words[-2:-1] == (option,)
            ]
            for option in ("-s", "-d")
        }

    def next(self) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            at = rng.randint(1, self.count)
            self.count -= 1
            return f"-D {CHAIN} {at}"
        at = rng.randint(1, self.count + 1)
        self.count += 1
        words: list[str] = []
        for match in rng.choice(self.drawn).matches:
            words += ["-m", match.name] if match.name else []
            words += match.words
            if match.words[-2:-1] in (("-s",), ("-d",)):
                words[-1] = self.network(match.words[-2], words[-1])
        return f"-I {CHAIN} {at} {' '.join(words)} -j {rng.choice(self.targets)}"

    def network(self, option: str, old: str) -> str:
        """A network as long as *old* around an address of another rule."""
        length = int(old.partition("/")[2] or 32)
        address, _, other = self.rng.choice(self.networks[option]).partition("/")
        number = int.from_bytes(bytes(map(int, address.split("."))), "big")
        if int(other or 32) < length:
            number |= self.rng.getrandbits(32 - int(other)) & (1 << 32 - int(other)) - 1
        number &= -1 << 32 - length
        return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0)) + f"/{length}"


def _names(rule: Rule) -> list[str]:
    return [match.name for match in rule.matches]


def sustained(case: Case, live: bool, seconds: float, seed: int, looks: int = 2) -> dict[str, Any]:
    """One row: *case* updated for some *seconds*, in the kernel (nft) if *live*."""
    with tempfile.TemporaryDirectory() as folder:
        results = _in_folder(Path(folder), case, live, seconds, seed, looks)
        reads = [_reads(Path(folder) / f"look{number}", case) for number in range(results["looks"])]
        last = str(Path(folder) / "state")
        subprocess.run([SFLGEN, "verify", "--state", last], check=True, capture_output=True)
    results["reads"] = reads
    results["mean_reads"] = statistics.mean(each["reads"] for each in reads)
    results["mean_folded"] = statistics.mean(each["folded"] for each in reads)
    results["ratio"] = results["mean_reads"] / results["mean_folded"]
    print(
        f"{case.name} {case.kind}, {'nft' if live else 'no kernel'}: "
        f"{results['per_second']:.1f} updates/s for {results['seconds']:.0f} s, "
        f"answers {results['answer_ms']['median']:.1f} ms (max {results['answer_ms']['max']:.0f}), "
        f"{results['mean_reads']:.1f} rules read, folded "
        f"{results['mean_folded']:.1f}, {results['cpu_ms_per_update']:.1f} ms of processor each",
        flush=True,
    )
    return {"set": case.name, "kind": case.kind, "kernel": "nft" if live else "none", "seed": seed, **results}


def _in_folder(folder: Path, case: Case, live: bool, seconds: float, seed: int, looks: int) -> dict[str, Any]:
    if not live:
        rules = folder / "rules"
        rules.write_text(write(case.program))
        command = [SFLGEN, "init", str(rules), "--backend", "nft", "--state", str(folder / "state")]
        subprocess.run(command, check=True, capture_output=True)
        return _streamed(folder, case, [], seconds, seed, looks)
    with Namespace() as namespace:
        load(write(case.program), Family.IPV4, Backend.NFT, namespace)
        namespace.call(run, [SFLGEN, "init", "--live", "--backend", "nft", "--state", str(folder / "state")])
        return namespace.call(_streamed, folder, case, ["--live"], seconds, seed, looks)


def _streamed(
    folder: Path, case: Case, options: list[str], seconds: float, seed: int, looks: int
) -> dict[str, Any]:
    state = str(folder / "state")
    updates, spent, taken = OwnUpdates(case, seed), [], 0
    load_before, used_before = os.getloadavg()[0], _processor_seconds()
    command = [SFLGEN, "stream", *options, "--state", state]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdin is not None and stream.stdout is not None

        sent: deque[float] = deque()

        def send(line: str) -> None:
            assert stream.stdin is not None
            stream.stdin.write(line + "\n")
            stream.stdin.flush()
            sent.append(time.perf_counter())

        def receive() -> None:
            assert stream.stdout is not None
            answer = next((each for each in stream.stdout if each.startswith(("ok ", "error "))), "the end")
            if not answer.startswith("ok "):
                raise RuntimeError(answer)
            spent.append(time.perf_counter() - sent.popleft())

        for line in ("status", updates.next()):
            send(line)
            receive()
        spent.clear()
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            if now - began > (taken + 1) * seconds / (looks + 1):
                while sent:
                    receive()
                shutil.copytree(state, folder / f"look{taken}")
                taken += 1
            while len(sent) < OUTSTANDING:
                send(updates.next())
            receive()
        while sent:
            receive()
        lasted = time.perf_counter() - began
        stream.stdin.close()
        stream.wait()
    if not taken:  # one answer took all the time
        shutil.copytree(state, folder / "look0")
        taken = 1
    return {
        "seconds": lasted,
        "updates": len(spent),
        "per_second": len(spent) / lasted,
        "answer_ms": spread(spent),
        "looks": taken,
        "load": [load_before, os.getloadavg()[0]],
        "nice": os.nice(0),
        "cpu_ms_per_update": 1000 * (_processor_seconds() - used_before) / max(1, len(spent)),
    }


def _processor_seconds() -> float:
    """Of all child processes so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds."""
    ordered = sorted(1000 * each for each in seconds)
    return {
        "median": statistics.median(ordered),
        "mean": statistics.mean(ordered),
        "p95": ordered[int(0.95 * (len(ordered) - 1))],
        "max": ordered[-1],
    }


def _reads(folder: Path, case: Case) -> dict[str, float]:
    """Mean rules read by packets of the trace in a state, and in the state folded."""
    with Store.open(folder, to_write=False) as store:
        state = store.state
    folded = sflgen.fold_unproved(state).after
    path = SHARED / "rulesets" / "wustl" / f"{case.name}_trace.gz"
    batch = batch_of(traces.parse(read_text(str(path)), case.name).headers)
    counts = [
        float(Interpreter(each.loaded, Backend.NFT).run("filter", CHAIN, batch).reads.mean())
        for each in (state, folded)
    ]
    return {"pending": state.pending(), "reads": counts[0], "folded": counts[1]}


def processor_times(case: Case, updates: int, seed: int) -> dict[str, Any]:
    """Seconds of processor that a session without a kernel takes for each of some *updates*.

    Folds run in processes of their own, whose time is `fold_ms_per_update`.  `longest` are the slowest
    updates: milliseconds, number, command.
    """
    drawn, spent, slowest = OwnUpdates(case, seed), [], []
    state = sflgen.start(case.program, sflgen.Settings(backend=Backend.NFT)).after
    used_before = _processor_seconds()
    with tempfile.TemporaryDirectory() as folder, sflgen.create(f"{folder}/state", state) as store:
        gc.freeze()  # as sflgen/cli/serve.py
        gc.set_threshold(200_000, 20, 100)
        session = Session(store, None)
        for number in range(updates + 1):
            line = drawn.next()
            began = time.process_time()
            answer = session.answer(line)
            seconds = time.process_time() - began
            if not answer.splitlines()[-1].startswith("ok "):
                raise RuntimeError(answer)
            if number:  # the first one fills caches
                spent.append(seconds)
                slowest.append((round(1000 * seconds, 1), number, line))
        session.close()
        last = store.state
        shutil.copytree(f"{folder}/state", f"{folder}/look")
        reads = _reads(Path(folder) / "look", case)
    prove(last)
    ordered = sorted(spent)
    return {
        "set": case.name,
        "kind": case.kind,
        "updates": updates,
        "processor_ms": {**spread(spent), "p99": 1000 * ordered[int(0.99 * (len(ordered) - 1))]},
        "fold_ms_per_update": 1000 * (_processor_seconds() - used_before) / updates,
        "reads": reads,
        "longest": sorted(slowest, reverse=True)[:10],
    }


def main() -> None:
    """One row: `python -m benchmarks.streams SET KIND live|none SECONDS`; or what each of
    UPDATES in a session costs: `python -m benchmarks.streams SET KIND processor UPDATES`."""
    name, kind, way, amount = sys.argv[1:]
    case = public_set(name, kind, 1)
    if way == "processor":
        row = processor_times(case, int(amount), 1)
    else:
        row = sustained(case, way == "live", float(amount), 1)
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    command_line.run(main)

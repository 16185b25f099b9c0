"""`hitables apply` cut short, again and again: `python -m benchmarks.applies`.

Each apply loads IPv4 and IPv6 rules of two tables, on a terminal of its own, beside a program like docker
that makes and removes chains. At a random moment, from its start to some time after it has loaded, it is
ended: by kill -9, HUP, TERM, QUIT or INT, to the process or to all of its session, or by closing the
terminal. In half of the cuts `hitables confirm` is then called from elsewhere.

Afterwards the kernel must hold the confirmed rules or the old ones, in every table and both families, with
the counters that the rules had; the state directory must say which; and each command of the other program
must have succeeded. Packets that are sent all the time (probes.py) say how long other rules than the
confirmed ones were in force, which must not be longer than the time for the confirmation and the loading of
the old rules (GUARD).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.probes import Probes, Seen
from hitables.api import check
from hitables.apply.records import CONFIRMED, WAITING
from hitables.apply.status import Level, compare, look
from hitables.apply.store import StateDirectory
from hitables.compare import Result
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.legacy_lock import legacy_lock
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace, run

from . import command_line

OUTPUT = Path("docs/evaluation/applies.json")
HITABLES = str(Path(sys.executable).parent / "hitables")
TOOLS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
WAYS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT", "closed terminal")
CONFIRM = 2  # seconds
GUARD = 15  # seconds within which the old rules must be back: CONFIRM, and the loading on a busy machine
PATIENCE = 120
LONGEST = 1.0  # seconds from the first change of the state to the cut, at most
EARLY = 4  # one of so many cuts comes before the state is changed
PACKETS = 50
RULES = (1000, 2001)  # a number by which the two rule sets differ
PROBES = 7000  # added to it: the port of the probes


def rules(family: Family, port: int, count: int = 60) -> str:
    net = "10.{}.0.0/16" if family is Family.IPV4 else "fd00:{}::/32"
    here = "127.0.0.1/32" if family is Family.IPV4 else "::1/128"
    listed = "".join(
        f"-A INPUT -s {net.format(n)} -p tcp -m tcp --dport {port + n} -j ACCEPT\n" for n in range(count)
    )
    return (
        f"*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth{port % 10} -j MASQUERADE\nCOMMIT\n"
        f"*filter\n:INPUT DROP [0:0]\n{listed}-A INPUT -s {here} -p udp -m udp --dport 53 -j ACCEPT\n"
        f"-A INPUT -s {here} -p udp -m udp --dport {port + PROBES} -j ACCEPT\nCOMMIT\n"
    )


def saved(family: Family, backend: Backend) -> str:
    """The rules of the namespace of the caller."""
    return run([f"{TOOLS[family]}-{backend.value}-save"])


def counted(family: Family, backend: Backend) -> int:
    """The packets that the copies of one rule have counted."""
    with legacy_lock(backend is Backend.LEGACY):
        text = run([f"{TOOLS[family]}-{backend.value}-save", "-c"])
    return sum(int(count) for count in re.findall(r"^\[(\d+):\d+\] -A .*--dport 53 ", text, re.MULTILINE))


# ---- cuts ----


@dataclass(slots=True)
class Found:
    """What the cuts have shown.

    ends      by way of the cut and by how the rule set ended, how often
    between   for each cut: seconds in which packets met rules that were not confirmed
    mixed     for each cut: milliseconds in which they met the rules of one family or port only, at most
    """

    ends: Counter[str] = field(default_factory=Counter)
    between: list[float] = field(default_factory=list)
    mixed: list[float] = field(default_factory=list)


def cuts(backend: Backend, count: int, seed: int) -> dict[str, Any]:
    """Cut *count* applies; the figures.  HitablesError at the first cut after which anything is wrong."""
    with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
        return namespace.call(_cuts, folder, backend, count, seed)


def _cuts(folder: str, backend: Backend, count: int, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    run(["ip", "link", "set", "lo", "up"])
    files = {}
    for port in RULES:
        files[port] = [str(Path(folder, f"{family.name}.{port}")) for family in Family]
        for family, path in zip(Family, files[port], strict=True):
            Path(path).write_text(rules(family, port))
    command = [HITABLES, "apply", "--backend", backend.value, "--leave", "docker"]
    command += ["--state", str(Path(folder, "state"))]
    loaded = {}
    for port in reversed(RULES):
        run([*command, "--confirm", "0", *files[port]])
        loaded[port] = {family: saved(family, backend) for family in Family}
    _count_packets(backend)
    found, others, probes = Found(), Others(backend), Probes((RULES[0] + PROBES, RULES[1] + PROBES))
    rng, present = random.Random(seed), RULES[0]
    with others.running():
        for number in range(count):
            other = RULES[present == RULES[0]]
            way = WAYS[number % len(WAYS)]
            probes.start()
            applying = [*command, "--confirm", str(CONFIRM), *files[other]]
            _, last = _end(folder)
            _cut(applying, folder, way, rng)
            confirmed_at = _confirm(folder, rng) if rng.random() < 0.5 else None
            end, record = _wait(folder)
            seen = probes.stop()
            if record == last:
                end = "nothing was begun"
            if (end == CONFIRMED) != (confirmed_at is not None):
                raise HitablesError(f"cut {number} by {way}: {end}, confirmed by a command at {confirmed_at}")
            present = other if end == CONFIRMED else present
            found.ends[f"{way}: {end}"] += 1
            _check(loaded[present], folder, backend, f"cut {number} by {way}, {end}")
            _measure(found, seen, present + PROBES, confirmed_at)
    probes.close()
    return {
        "backend": backend.value,
        "cuts": count,
        "seed": seed,
        "confirm_s": CONFIRM,
        "ends": dict(sorted(found.ends.items())),
        "unconfirmed_s": _spread([each for each in found.between if each], 2),
        "mixed_ms": _spread([each for each in found.mixed if each], 1),
        "commands_of_others": others.changes,
        "failures": 0,  # the first one ends the run
        "seconds": round(time.monotonic() - began),
    }


def _spread(values: Sequence[float], digits: int) -> dict[str, float]:
    """How many, their median, and the most."""
    if not values:
        return {"times": 0}
    median, most = statistics.median(values), max(values)
    return {"times": len(values), "median": round(median, digits), "most": round(most, digits)}


def _count_packets(backend: Backend) -> None:
    for family, kind, to in (
        (Family.IPV4, socket.AF_INET, "127.0.0.1"),
        (Family.IPV6, socket.AF_INET6, "::1"),
    ):
        with socket.socket(kind, socket.SOCK_DGRAM) as sender:
            for _ in range(PACKETS):
                sender.sendto(b"x", (to, 53))
        if counted(family, backend) != PACKETS:
            raise HitablesError(f"IPv{int(family)}: the packets were not counted before the first cut")


def _cut(command: list[str], folder: str, way: str, rng: random.Random) -> None:
    """Run *command* on a terminal of its own, and end its session at a random moment."""
    state = Path(folder, "state", "state.json")
    before = state.read_bytes()
    child, terminal = pty.fork()
    if not child:
        os.execv(command[0], command)
    is_early = rng.randrange(EARLY) == 0
    while not is_early and state.read_bytes() == before:
        if os.waitpid(child, os.WNOHANG)[0]:
            raise HitablesError(f"apply ended before it changed anything: {os.read(terminal, 4000)!r}")
        time.sleep(0.001)
    time.sleep(rng.uniform(0, LONGEST))
    to_all = rng.random() < 0.5
    if way != "closed terminal":
        (os.killpg if to_all else os.kill)(child, getattr(signal, way))
    os.close(terminal)
    if is_early and way != "SIGKILL":
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # a signal that arrives while Python starts may be lost
    os.waitpid(child, 0)


def _confirm(folder: str, rng: random.Random) -> float | None:
    """Call `hitables confirm` from elsewhere; when it had succeeded."""
    time.sleep(rng.uniform(0, CONFIRM / 2))
    command = [HITABLES, "confirm", "--state", str(Path(folder, "state"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2) or "Traceback" in done.stderr:
        raise HitablesError(f"hitables confirm: exit status {done.returncode}: {done.stderr}")
    return time.monotonic() if not done.returncode else None


def _end(folder: str) -> tuple[str, int]:
    """How the last record ended, and its number."""
    with StateDirectory.open(str(Path(folder, "state")), wait=PATIENCE) as store:  # its holders have ended
        state = store.state()
        return state.status[state.last], state.last


def _wait(folder: str) -> tuple[str, int]:
    """Wait until nothing waits for a confirmation; as `_end`."""
    deadline = time.monotonic() + PATIENCE
    while (found := _end(folder))[0] == WAITING:
        if time.monotonic() > deadline:
            raise HitablesError(f"rule set {found[1]} still waits")
        time.sleep(0.02)
    return found


def _check(wanted: dict[Family, str], folder: str, backend: Backend, where: str) -> None:
    """HitablesError unless the kernel holds *wanted*, and its counters."""
    for family in Family:
        compared = check(
            wanted[family], saved(family, backend), backend=backend, family=family, leave="docker"
        )
        if compared.result is not Result.EQUAL:
            raise HitablesError(f"{where}: the kernel holds other rules of IPv{int(family)}")
        if counted(family, backend) != PACKETS:
            raise HitablesError(f"{where}, IPv{int(family)}: {counted(family, backend)} packets counted")
    with StateDirectory.open(str(Path(folder, "state"))) as store:
        if (level := compare(look(store)).level) is not Level.SAME:
            raise HitablesError(f"{where}: hitables status says {level.name}")


def _measure(found: Found, seen: Sequence[Seen], present: int, confirmed_at: float | None) -> None:
    """Add how long packets met other rules than those of port *present*, which are confirmed now.

    If they were confirmed at *confirmed_at*, rules count as unconfirmed until then.
    """
    if seen[-1].which != present:
        raise HitablesError(f"packets meet the rules of port {seen[-1].which}, not those of {present}")
    ends = [each.begin for each in seen[1:]] + [seen[-1].end]
    if seen[0].which == present:  # the old ones are back
        between = sum(end - each.begin for each, end in zip(seen, ends, strict=True) if each.which != present)
    else:
        assert confirmed_at is not None, "other rules are present"
        changed = next(end for each, end in zip(seen, ends, strict=True) if each.which == seen[0].which)
        between = confirmed_at - changed
    mixed = [end - each.begin for each, end in zip(seen, ends, strict=True) if not each.which]
    if between > GUARD:
        raise HitablesError(f"rules were in force for {between:.1f} s without being confirmed")
    found.between.append(between)
    found.mixed.append(1000 * max(mixed, default=0.0))


class Others:
    """A program like docker: chains of its own, which it makes, fills and removes with iptables."""

    def __init__(self, backend: Backend) -> None:
        self.tool = f"iptables-{backend.value}"
        self.changes = 0
        self._stop = threading.Event()
        self._failed: list[str] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        if self._failed:
            raise HitablesError("; ".join(self._failed))

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.2):
                self._start_and_stop_a_container()
        except HitablesError as error:
            self._failed.append(str(error))

    def _start_and_stop_a_container(self) -> None:
        rule = ("-d", "172.17.0.2", "-p", "tcp", "--dport", "80", "-j", "ACCEPT")
        steps = (
            ("-N", "DOCKER"), ("-I", "FORWARD", "-o", "docker0", "-j", "DOCKER"), ("-A", "DOCKER", *rule),
            ("-C", "DOCKER", *rule), ("-D", "DOCKER", *rule),
            ("-D", "FORWARD", "-o", "docker0", "-j", "DOCKER"), ("-F", "DOCKER"), ("-X", "DOCKER"),
        )  # fmt: skip
        for step in steps:
            run([self.tool, "-w", *step])
            self.changes += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cuts", type=int, default=200, help="Cut so many applies, half of them on either backend."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help=f"Write the figures to this file ({OUTPUT}).")
    args = parser.parse_args()
    results = []
    for backend in Backend:
        results.append(cuts(backend, args.cuts // 2, args.seed))
        print(json.dumps(results[-1]), flush=True)
    if args.json:
        data = {"machine": machine(), "backends": results}
        args.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    command_line.run(main)

"""`hitables apply` cut short, and its visible step measured: `python -m benchmarks.applies`.

Cuts: apply is ended at a random moment, by kill -9, SIGTERM, SIGHUP or a closing terminal, while a program
like docker makes and removes chains of its own.  Afterwards the kernel must hold the rules from before, in
every table and both families, with their counters; and each command of the other program must succeed.

Gap: how long packets meet the new rules of one table and the old ones of another, for iptables-restore of a
compiled file of two tables, by the events that nf_tables sends for each commit, and for apply, by its log:
one commit, or the time of the tool that changes both tables.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import pty
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hitables.api import check
from hitables.apply.store import WAITING, Store
from hitables.compare import Result
from hitables.errors import HitablesError
from hitables.files import read_text
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.namespace import Namespace, run

NETLINK_NETFILTER, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES = 12, 1, 7
SOL_NETLINK, SO_RCVBUFFORCE = 270, 33
HITABLES = str(Path(sys.executable).parent / "hitables")
ROOT = Path(__file__).parents[1]
TOOLS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
WAYS = ("SIGKILL", "SIGTERM", "SIGHUP", "closed terminal")
CONFIRM = 1  # seconds
PATIENCE = 120
LONGEST = 0.4  # seconds from the first change of the state to the cut, at most
PACKETS = 50


def rules(family: Family, port: int, count: int = 60) -> str:
    net = "10.{}.0.0/16" if family is Family.IPV4 else "fd00:{}::/32"
    here = "127.0.0.1/32" if family is Family.IPV4 else "::1/128"
    listed = "".join(
        f"-A INPUT -s {net.format(n)} -p tcp -m tcp --dport {port + n} -j ACCEPT\n" for n in range(count)
    )
    return (
        f"*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth{port % 10} -j MASQUERADE\nCOMMIT\n"
        f"*filter\n:INPUT DROP [0:0]\n{listed}-A INPUT -s {here} -p udp -m udp --dport 53 -j ACCEPT\nCOMMIT\n"
    )


def saved(family: Family, backend: Backend) -> str:
    """The rules of the namespace of the caller."""
    return run([f"{TOOLS[family]}-{backend.value}-save"])


def counted(family: Family, backend: Backend) -> int:
    """The packets that the copies of one rule have counted."""
    text = run([f"{TOOLS[family]}-{backend.value}-save", "-c"])
    return sum(int(count) for count in re.findall(r"^\[(\d+):\d+\] -A .*--dport 53 ", text, re.MULTILINE))


# ---- cuts ----


def cuts(backend: Backend, count: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
        return namespace.call(_cuts, folder, backend, count, seed)


def _cuts(folder: str, backend: Backend, count: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    run(["ip", "link", "set", "lo", "up"])
    files = {}
    for port in (1000, 2001):
        files[port] = [str(Path(folder, f"{family.name}.{port}")) for family in Family]
        for family, path in zip(Family, files[port], strict=True):
            Path(path).write_text(rules(family, port))
    command = [HITABLES, "apply", "--backend", backend.value, "--leave", "docker"]
    command += ["--state", str(Path(folder, "state"))]
    run([*command, "--confirm", "0", *files[1000]])
    for family, kind, to in (
        (Family.IPV4, socket.AF_INET, "127.0.0.1"),
        (Family.IPV6, socket.AF_INET6, "::1"),
    ):
        with socket.socket(kind, socket.SOCK_DGRAM) as sender:
            for _ in range(PACKETS):
                sender.sendto(b"x", (to, 53))
        if counted(family, backend) != PACKETS:
            raise HitablesError(f"IPv{int(family)}: the packets were not counted before the first cut")
    before = {family: saved(family, backend) for family in Family}
    ends: Counter[str] = Counter()
    others = _Others(backend)
    longest = 0.0
    with others.running():
        for number in range(count):
            way = WAYS[number % len(WAYS)]
            cut_at = _cut([*command, "--confirm", str(CONFIRM), *files[2001]], folder, way, rng)
            ends[f"{way}: {_wait(folder)}"] += 1
            longest = max(longest, time.monotonic() - cut_at)
            for family in Family:
                compared = check(
                    before[family], saved(family, backend), backend=backend, family=family, leave="docker"
                )
                if compared.result is not Result.EQUAL:
                    raise HitablesError(f"cut {number} by {way}: the kernel does not hold the old rules")
            for family in Family:
                if counted(family, backend) != PACKETS:
                    raise HitablesError(
                        f"cut {number} by {way}, IPv{int(family)}: {counted(family, backend)} packets counted"
                    )
    return {
        "backend": backend.value,
        "cuts": count,
        "ends": dict(sorted(ends.items())),
        "longest_s": round(longest, 1),
        "changes_of_others": others.changes,
    }


def _cut(command: list[str], folder: str, way: str, rng: random.Random) -> float:
    """Run *command* on a terminal of its own, and end its session at a random moment; when that was."""
    state = Path(folder, "state", "state.json")
    before = state.read_bytes()
    child, terminal = pty.fork()
    if not child:
        os.execv(command[0], command)
    while state.read_bytes() == before:
        if os.waitpid(child, os.WNOHANG)[0]:
            raise HitablesError(f"apply ended before it changed anything: {os.read(terminal, 4000)!r}")
        time.sleep(0.001)
    time.sleep(rng.uniform(0, LONGEST))
    cut_at = time.monotonic()
    if way != "closed terminal":
        os.kill(child, getattr(signal, way))
    os.close(terminal)
    os.waitpid(child, 0)
    return cut_at


def _wait(folder: str) -> str:
    """Wait until nothing waits for a confirmation; how the last record ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        state = Store(Path(folder, "state"), -1).state()
        if state.status[state.last] != WAITING:
            with Store.open(str(Path(folder, "state"))):  # the guard has released the lock
                return state.status[state.last]
        if time.monotonic() > deadline:
            raise HitablesError(f"rule set {state.last} still waits")
        time.sleep(0.02)


class _Others:
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


# ---- the gap ----


def gap(backend: Backend, runs: int) -> dict[str, Any]:
    """Milliseconds between the visible commits of two tables: medians, and the most."""
    with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
        for number in range(2):
            Path(folder, f"{number}.rules").write_text(_two_tables(number))
        found = namespace.call(_gaps, folder, backend, runs)
    return {
        "backend": backend.value,
        **{
            name: {"median_ms": round(sorted(each)[len(each) // 2], 1), "most_ms": round(max(each), 1)}
            for name, each in found.items()
        },
    }


def _two_tables(number: int) -> str:
    """Table nat of 50 rules and table filter of 5,000, of which a few depend on *number*."""
    nat = "".join(f"-A POSTROUTING -s 10.{n}.0.0/16 -o eth{number} -j MASQUERADE\n" for n in range(50))
    text = read_text(str(ROOT / "rulesets" / "campus.rules.gz"))
    return f"*nat\n:POSTROUTING ACCEPT [0:0]\n{nat}COMMIT\n" + text.replace(
        "--dport 22 ", f"--dport {22 + number} "
    )


def _gaps(folder: str, backend: Backend, runs: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    restore = f"iptables-{backend.value}-restore"
    apply = [HITABLES, "apply", "--backend", backend.value, "--state", f"{folder}/state", "--confirm", "0"]
    for number in range(2):
        compile_ = [HITABLES, "compile", "--quiet", "--backend", backend.value, f"{folder}/{number}.rules"]
        run([*compile_, "-o", f"{folder}/{number}.compiled"])
    for at in range(runs):
        if backend is Backend.NFT:
            with _Watch() as watch:
                run(["sh", "-c", f"{restore} < {folder}/{at % 2}.compiled"])
            found.setdefault("iptables-restore", []).append(watch.milliseconds())
        run([*apply, f"{folder}/{(at + 1) % 2}.rules"])
        log = Path(folder, "state", "log").read_text()
        how = re.findall(r"all tables changed (.*)", log)[-1]
        within = re.fullmatch(r"within ([\d.]+) ms", how)
        found.setdefault("hitables apply", []).append(float(within[1]) if within else 0.0)
    return found


class _Watch:
    """Sees when POSTROUTING and FORWARD get rules, by the events that the kernel sends after each commit."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Watch:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def milliseconds(self) -> float:
        if len(self.times) < 2:
            raise HitablesError(f"only {sorted(self.times)} changed")
        return (max(self.times.values()) - min(self.times.values())) * 1000

    def _run(self) -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as events:
            events.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            events.bind((0, 0))
            events.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES)
            events.settimeout(0.2)
            self._ready.set()
            while True:
                try:
                    data = events.recv(1 << 20)
                except TimeoutError:
                    if self._stop.is_set():
                        return
                    continue
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    continue  # events were lost, of thousands of new chains
                now = time.monotonic()
                for name in (b"POSTROUTING", b"FORWARD"):
                    # An attribute of a rule, its chain.
                    if (len(name) + 5).to_bytes(2, "little") + b"\x02\0" + name + b"\0" in data:
                        self.times.setdefault(name.decode(), now)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cuts", type=int, default=200, help="Cut so many applies, half of them on either backend."
    )
    parser.add_argument("--gaps", type=int, default=10, help="Measure the gap so many times.")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for backend in Backend:
        if args.gaps:
            print(json.dumps(gap(backend, args.gaps)), flush=True)
        if args.cuts:
            print(json.dumps(cuts(backend, args.cuts // 2, args.seed)), flush=True)


if __name__ == "__main__":
    main()

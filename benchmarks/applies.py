"""`hitables apply` cut short, and its visible step measured: `python -m benchmarks.applies`.

Cuts: apply is ended at a random moment, by kill -9, SIGTERM, SIGHUP or a terminal that closes, while a program
like docker makes and removes chains of its own.  Afterwards the kernel must hold the rules from before, in
every table and both families, with the counters that they had; and the other program's chains as it left them.

Gap: how long packets meet the new rules of one table and the old ones of another, for iptables-restore of a
file of two tables and for apply.  In nf_tables the kernel announces each commit; in legacy the table's blocks
are read again and again.
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
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hitables.apply.store import WAITING, Store
from hitables.errors import HitablesError
from hitables.files import read_text
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.contents_legacy import option
from hitables.kernel.namespace import Namespace, run

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
    """The rules of the namespace of the caller, without those of the other program."""
    text = run([f"{TOOLS[family]}-{backend.value}-save"])
    lines = (line for line in text.splitlines() if not line.startswith("#") and "DOCKER" not in line)
    return "\n".join(re.sub(r" \[\d+:\d+\]$", "", line) for line in lines)


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
    for family, kind, to in ((Family.IPV4, socket.AF_INET, "127.0.0.1"), (Family.IPV6, socket.AF_INET6, "::1")):
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
            now = {family: saved(family, backend) for family in Family}
            if now != before:
                raise HitablesError(f"cut {number} by {way}: the kernel does not hold the old rules")
            for family in Family:
                if counted(family, backend) != PACKETS:
                    raise HitablesError(f"cut {number} by {way}: {counted(family, backend)} packets counted")
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


def gap(backend: Backend, runs: int, seed: int) -> dict[str, Any]:
    """Milliseconds between the first and the last visible commit of two tables, medians and most."""
    text = read_text(str(ROOT / "rulesets" / "campus.rules.gz"))
    nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n" + "".join(
        f"-A POSTROUTING -s 10.{n}.0.0/16 -o eth{{}} -j MASQUERADE\n" for n in range(50)
    )
    found: dict[str, list[float]] = {"iptables-restore": [], "hitables apply": []}
    with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
        names = []
        for number in range(2):
            path = Path(folder, f"{number}.rules")
            dropped = "".join(line for line in text.splitlines(True) if number == 0 or not line.endswith("7\n"))
            filtered = dropped.replace("-j ACCEPT", "-j ACCEPT", 1)
            changed = re.sub(r"--dport 22 ", f"--dport {2200 + number} ", filtered)
            path.write_text(nat.format(number) + "COMMIT\n" + changed)
            names.append(str(path))
        namespace.call(_gaps, backend, names, folder, runs, found)
        found = namespace.call(_gaps, backend, names, folder, runs, found)
    return {
        "backend": backend.value,
        **{name: {"median_ms": _median(each), "most_ms": round(max(each), 1)} for name, each in found.items()},
    }


def _median(values: list[float]) -> float:
    return round(sorted(values)[len(values) // 2], 1)


def _gaps(
    backend: Backend, names: list[str], folder: str, runs: int, found: dict[str, list[float]]
) -> dict[str, list[float]]:
    tool = f"iptables-{backend.value}-restore"
    apply = [HITABLES, "apply", "--backend", backend.value, "--state", str(Path(folder, "state"))]
    for number in range(runs):
        name = names[number % 2]
        for what, command in (
            ("iptables-restore", ["sh", "-c", f"{tool} < {folder}/compiled{number % 2}"]),
            ("hitables apply", [*apply, "--confirm", "0", name]),
        ):
            compiled = Path(folder, f"compiled{number % 2}")
            if not compiled.exists():
                run([HITABLES, "compile", "--quiet", "--backend", backend.value, name, "-o", str(compiled)])
            with _Watch(backend) as watch:
                run(command)
            found[what].append(watch.milliseconds())
    return found


class _Watch:
    """Sees when POSTROUTING of nat and FORWARD of filter change.

    In nf_tables by `nft monitor`, whose lines are timed as they come: an event for each commit.  In legacy by
    reading the sizes of both tables, some thousand times a second.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.times: dict[str, float] = {}
        self._stop = threading.Event()

    def __enter__(self) -> _Watch:
        self._thread = threading.Thread(target=self._nft if self.backend is Backend.NFT else self._legacy)
        self._ready = threading.Event()
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        time.sleep(0.3)
        self._stop.set()
        self._thread.join()

    def milliseconds(self) -> float:
        if len(self.times) < 2:
            raise HitablesError(f"only {sorted(self.times)} changed")
        return (max(self.times.values()) - min(self.times.values())) * 1000

    def _nft(self) -> None:
        # One datagram has the events of one commit.
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as events:
            events.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
            events.bind((0, 0))
            events.setsockopt(270, 1, 7)  # NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES
            events.settimeout(0.05)
            self._ready.set()
            while not self._stop.is_set():
                try:
                    data = events.recv(1 << 20)
                except TimeoutError:
                    continue
                now = time.monotonic()
                for name in ("POSTROUTING", "FORWARD"):
                    if b"\x08\x00\x02\x00" in data and name.encode() + b"\0" in data:
                        self.times[name] = now

    def _legacy(self) -> None:
        import struct

        before: dict[str, bytes] = {}
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as reader:
            self._ready.set()
            while not self._stop.is_set():
                for table in ("nat", "filter"):
                    request = struct.pack("=32s13I", table.encode(), *(0,) * 13)
                    try:
                        info = option(reader, socket.IPPROTO_IP, 64, request, 0)
                    except OSError:
                        continue
                    if before.setdefault(table, info) != info:
                        self.times[table] = time.monotonic()
                        before[table] = info


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=200, help="Cut so many applies, half of them on either backend.")
    parser.add_argument("--gaps", type=int, default=10, help="Measure the gap so many times.")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for backend in Backend:
        if args.gaps:
            print(json.dumps(gap(backend, args.gaps, args.seed)), flush=True)
        if args.cuts:
            print(json.dumps(cuts(backend, args.cuts // 2, args.seed)), flush=True)


if __name__ == "__main__":
    main()

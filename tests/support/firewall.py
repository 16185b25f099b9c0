"""A firewall in a network namespace of its own: commands of hitables, what the kernel holds, packets."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from support.forked import read_again

import hitables.apply.neighbours
import hitables.apply.run
import hitables.apply.status
import hitables.cli.main
import hitables.report.diff
import hitables.start
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load, save
from hitables.kernel.namespace import Namespace

BACKENDS = pytest.mark.parametrize("backend", list(Backend), ids=lambda backend: backend.value)
PATIENCE = 60.0


def _command(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a fork of the process that this runs in, which has imported it."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            _become(command, environment, out.fileno(), err.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return subprocess.CompletedProcess(command, status, read_again(out), read_again(err))


def _become(command: list[str], environment: Mapping[str, str], out: int, err: int) -> NoReturn:
    status: object = 1
    try:
        os.environ.update(environment)
        for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, err)):
            os.dup2(file, number)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", closefd=False)
        sys.argv = command
        # What is set up on this host (ufw, firewalld) is no matter of the tests.
        hitables.apply.neighbours.ETC = hitables.apply.neighbours.PROC = Path("/nonexistent")
        hitables.start.hitables()
    except SystemExit as end:
        status = end.code
    finally:
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 0 if status is None else 1)


def _packets(count: int, port: int, family: Family) -> None:
    kind, to = (socket.AF_INET, "127.0.0.1") if family is Family.IPV4 else (socket.AF_INET6, "::1")
    with socket.socket(kind, socket.SOCK_DGRAM) as sender:
        for _ in range(count):
            sender.sendto(b"x", (to, port))


class Firewall:
    """*folder*: for files and for the state directory."""

    def __init__(self, namespace: Namespace, folder: Path, backend: Backend) -> None:
        self.namespace, self.folder, self.backend = namespace, folder, backend
        self.state = folder / "state"
        namespace.run(["ip", "link", "set", "lo", "up"])

    def file(self, text: str, name: str = "office.rules") -> Path:
        path = self.folder / name
        path.write_text(text, errors="surrogateescape")
        return path

    def hitables(
        self, *arguments: object, status: int = 0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with the state directory; apply takes the backend, if no other is given."""
        command = ["hitables", *map(str, arguments), "--state", str(self.state)]
        if arguments[0] == "apply" and "--backend" not in arguments:
            command += ["--backend", self.backend.value]
        done = self.namespace.call(_command, command, dict(environment or {}))
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert "fault of hitables" not in done.stderr, done.stderr
        return done

    def apply(self, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        """Apply and confirm at once."""
        return self.hitables("apply", *arguments, "--confirm", 0, **options)  # type: ignore[arg-type]

    def load(self, text: str, family: Family = Family.IPV4, noflush: bool = False) -> None:
        load(text, family, self.backend, self.namespace, noflush)

    def save(self, family: Family = Family.IPV4, counters: bool = False) -> str:
        return save(family, self.backend, self.namespace, counters)

    def iptables(self, *arguments: str) -> str:
        return self.namespace.run([f"iptables-{self.backend.value}", *arguments])

    def send(self, count: int, port: int, family: Family = Family.IPV4) -> None:
        """Send packets to this host itself."""
        self.namespace.call(_packets, count, port, family)

    def counted(self, words: str, family: Family = Family.IPV4) -> int:
        """The packets that all rules with *words* have counted."""
        lines = [line for line in self.save(family, counters=True).splitlines() if words in line]
        return sum(int(count[1]) for line in lines if (count := re.match(r"\[(\d+):", line)))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for an event."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def log(self) -> str:
        path = self.state / "log"
        return path.read_text() if path.exists() else ""


def office(count: int = 10, port: int = 1000, policy: str = "DROP", more: str = "") -> str:
    """Rules of *count* networks for ports of UDP, from *port* on, behind the lines *more*."""
    rules = "".join(
        f"-A INPUT -s 10.{n}.0.0/16 -p udp -m udp --dport {port + n} -j ACCEPT\n" for n in range(count)
    )
    return (
        f"*filter\n:INPUT {policy} [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:audit - [0:0]\n{more}"
        f"{rules}-A INPUT -s 127.0.0.0/8 -p udp -m udp --dport 53 -j audit\n-A audit -j ACCEPT\nCOMMIT\n"
    )


def plain(text: str) -> str:
    """The output of iptables-save without counters, and without tables that do nothing."""
    text = re.sub(r" \[\d+:\d+\]$", "", text, flags=re.MULTILINE)
    tables = re.findall(r"^\*.*?^COMMIT\n", text, flags=re.MULTILINE | re.DOTALL)
    busy = [table for table in tables if re.search(r"^-A |^:\S+ (?!ACCEPT)", table, flags=re.MULTILINE)]
    return "".join(sorted(busy))

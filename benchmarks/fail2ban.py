"""The real fail2ban in a folder of its own, and packets that ask whether its bans are in force.

It runs in the namespace of the caller, from its package, without systemd and without files outside the
folder. Its jail reads a log file. The action is that of the package (iptables.conf); besides, each ban is
written into a file of claims when its command has succeeded, and each unban before its command begins. So
an address is claimed to be banned only while its rule must be in the kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from hitables.errors import HitablesError
from hitables.kernel.namespace import run

JAIL, PORT, BAN_TIME = "office", 9999, 4  # a jail, the UDP port of the probes, seconds
PATIENCE = 60.0
ENVIRONMENT = "HITABLES_FAIL2BAN"  # a folder into which the package was extracted (dpkg -x)
_DRAIN = 0.02  # seconds in which a packet over loopback arrives

_ACTION = """\
[INCLUDES]
before = iptables.conf

[Definition]
type = allports
actionflush = echo flush >> {claims}
              <iptables> -F f2b-<name>
actionban = <iptables> -I f2b-<name> 1 -s <ip> -j <blocktype>
            echo ban <ip> >> {claims}
actionunban = echo unban <ip> >> {claims}
              <iptables> -D f2b-<name> -s <ip> -j <blocktype>

[Init]
iptables = {tool} <lockingopt>
protocol = udp
blocktype = DROP
"""
_JAIL = """\
[DEFAULT]
backend = polling
bantime = {ban_time}
findtime = 60
maxretry = 1
ignoreip =
ignoreself = false
[{jail}]
enabled = true
filter = office
logpath = {log}
action = office[name={jail}]
"""
_FILTER = "[Definition]\nfailregex = ^ refused from <ADDR>$\ndatepattern = {^LN-BEG}\n"
_MAIN = "[Definition]\ndbfile = None\nloglevel = INFO\nlogtarget = {log}\nsyslogsocket = none\n"


@dataclass(frozen=True, slots=True)
class Package:
    """Where fail2ban is: the programs, its configuration, its Python package ("": where Python looks)."""

    programs: Path
    configuration: Path
    modules: str


def package() -> Package | None:
    """fail2ban as installed, or extracted into the folder that $HITABLES_FAIL2BAN names; None if neither."""
    folder = os.environ.get(ENVIRONMENT)
    if folder:
        root = Path(folder)
        return Package(root / "usr/bin", root / "etc/fail2ban", str(root / "usr/lib/python3/dist-packages"))
    found = shutil.which("fail2ban-server")
    return Package(Path(found).parent, Path("/etc/fail2ban"), "") if found else None


def downloaded(folder: Path) -> Package:
    """fail2ban from the package archive of the system, extracted into *folder* and not installed."""
    for command in (["apt-get", "download", "fail2ban"], ["sh", "-c", "dpkg -x fail2ban_*.deb ."]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HitablesError(f"{' '.join(command)}: {done.stderr.strip()}")
    os.environ[ENVIRONMENT] = str(folder)
    found = package()
    assert found is not None, "it was extracted"
    return found


class Fail2ban:
    """A server with one jail, whose rules are made by *tool*, from entering to leaving."""

    def __init__(self, package: Package, folder: Path, tool: str) -> None:
        self.package, self.folder, self.tool = package, folder, tool
        self.refused, self.log, self.claims = (folder / name for name in ("refused", "log", "claims"))
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Fail2ban:
        settings = self.folder / "settings"
        shutil.copytree(self.package.configuration, settings)
        shutil.rmtree(settings / "jail.d", ignore_errors=True)
        self.refused.touch()
        self.claims.touch()
        texts = {
            "fail2ban.local": _MAIN.format(log=self.log),
            "jail.conf": _JAIL.format(jail=JAIL, log=self.refused, ban_time=BAN_TIME),
            "filter.d/office.conf": _FILTER,
            "action.d/office.conf": _ACTION.format(claims=self.claims, tool=self.tool),
        }
        for name, text in texts.items():
            (settings / name).write_text(text)
        command = self._command("fail2ban-server", "-f", "-x", "start")
        with open(self.folder / "output", "wb") as output:
            self._server = subprocess.Popen(
                command, stdout=output, stderr=output, env=self._environment(), start_new_session=True
            )
        self._until("Jail 'office' started", "Server ready")
        return self

    def __exit__(self, *error: object) -> None:
        assert self._server is not None, "it was started"
        self._server.terminate()
        self._server.wait(PATIENCE)

    def refuse(self, address: str) -> None:
        """Write the line for which *address* is banned."""
        with open(self.refused, "a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} refused from {address}\n")

    def restart_jail(self) -> None:
        """Remove the jail's chain with all its bans, and begin anew."""
        self.client("restart", JAIL)

    def client(self, *words: str) -> str:
        return run(self._command("fail2ban-client", *words), env=self._environment())

    def banned(self) -> set[str]:
        """The addresses that are claimed to be banned at this moment."""
        banned: set[str] = set()
        for line in self.claims.read_text().splitlines():
            word, _, address = line.partition(" ")
            if word == "ban":
                banned.add(address)
            elif word == "unban":
                banned.discard(address)
            else:
                banned.clear()
        return banned

    def bans(self) -> int:
        return self.claims.read_text().count("\nban ")

    def errors(self) -> list[str]:
        """Its lines about errors; a command that failed is one."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if re.search(r"\b(ERROR|CRITICAL)\b", line)]

    def _command(self, program: str, *words: str) -> list[str]:
        places = ["-c", str(self.folder / "settings"), "-s", str(self.folder / "socket")]
        return [sys.executable, str(self.package.programs / program), *places,
                "-p", str(self.folder / "pid"), *words]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": self.package.modules}

    def _until(self, *messages: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            text = self.log.read_text() if self.log.exists() else ""
            if any(message in text for message in messages):
                return
            assert self._server is not None, "it was started"
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise HitablesError(f"fail2ban does not start: {(self.folder / 'output').read_text()}{text}")
            time.sleep(0.05)


class BanProbes:
    """Packets from addresses that are claimed to be banned, and from one that never is (CONTROL)."""

    CONTROL = "127.0.0.1"

    def __init__(self, fail2ban: Fail2ban) -> None:
        self.fail2ban = fail2ban
        self.sent = self.arrived = 0  # from banned addresses, from the other one
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> BanProbes:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
                listener.bind(("127.0.0.1", PORT))
                listener.setblocking(False)
                while not self._stop.is_set():
                    self._round(listener)
        except OSError as error:
            self.failures.append(f"the probes ended: {error}")

    def _round(self, listener: socket.socket) -> None:
        before = self.fail2ban.banned()
        at = time.strftime("%H:%M:%S")
        for address in (self.CONTROL, *before):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind((address, 0))
                sender.sendto(b"x", ("127.0.0.1", PORT))
        time.sleep(_DRAIN)
        arrived = set()
        while True:
            try:
                arrived.add(listener.recvfrom(8)[1][0])
            except BlockingIOError:
                break
        throughout = before & self.fail2ban.banned()
        self.sent += len(throughout)
        self.arrived += self.CONTROL in arrived
        if self.CONTROL not in arrived:
            self.failures.append(f"{at}: a packet from {self.CONTROL} was lost, which is not banned")
        self.failures += [f"{at}: {address} is banned, and passes" for address in arrived & throughout]

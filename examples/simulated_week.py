#!/usr/bin/env python3
"""A week with a compiled firewall, in a few minutes: try it with your own rules before you load them.

    simulated_week.py RULES [--backend legacy|nft] [--seed N]

RULES is the output of iptables-save or ip6tables-save.  The week runs in network namespaces of its own, as
root; nothing of this host is changed.  Each day the rules are edited as an administrator would, and applied.
Besides: another program edits the kernel, which is found and repaired; a rule set is not confirmed and is
taken back; fail2ban comes and goes; a file has a mistake; and on Sunday Monday's rules come back.  Then the
same week is lived with sflgen, by daily patches.  After each step it is proved that the kernel treats every
packet as the file of the day does.

Exit status: 0 all went as it should; 1 something did not, and is named; 2 trouble with the arguments.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(sys.executable).parent


class Failed(Exception):
    """A step that did not go as it should."""


class Host:
    """The commands of one week, in the namespace of this process."""

    def __init__(self, folder: Path, rules: str, backend: str, seed: int) -> None:
        self.folder, self.backend, self.random = folder, backend, random.Random(seed)
        is_ipv6 = re.search(
            r"^-A .*(?:-s|-d) [0-9a-f]*:|icmpv6|^\[.*-A .*(?:-s|-d) \S*::", rules, re.MULTILINE
        )
        self.family, self.tool = ("6", "ip6tables") if is_ipv6 else ("4", "iptables")
        self.file = folder / "today.rules"
        self.file.write_text(rules)

    # Commands.

    def run(self, *words: str, status: int | None = 0) -> str:
        """The output of a command, which must end with *status* (None: any)."""
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if status is not None and done.returncode != status:
            raise Failed(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def hitables(self, *words: str, status: int | None = 0) -> str:
        return self.run(str(PROGRAMS / "hitables"), *words, status=status)

    def apply(self, *words: str, status: int = 0) -> str:
        state = ["--state", str(self.folder / "state"), "--backend", self.backend]
        return self.hitables("apply", str(self.file), *state, *words, status=status)

    def of_state(self, *words: str, status: int = 0) -> str:
        return self.hitables(*words, "--state", str(self.folder / "state"), status=status)

    def sflgen(self, *words: str, status: int = 0) -> str:
        return self.run(str(PROGRAMS / "sflgen"), *words, "--state", str(self.folder / "sf"), status=status)

    def iptables(self, *words: str) -> str:
        return self.run(f"{self.tool}-{self.backend}", "-w", *words)

    # The file of the day.

    def edit(self) -> None:
        """Delete one rule of table filter, and ban an address in front of one of its chains."""
        head, filter_table, rest = self._parts()
        lines = filter_table.splitlines(keepends=True)
        plain = [at for at, line in enumerate(lines) if re.match(r"(\[\d+:\d+\] )?-A ", line)]
        if len(plain) > 3:
            del lines[self.random.choice(plain)]
        banned = f"{self.random.randrange(256)}.{self.random.randrange(1, 255)}"
        address = f"192.0.{banned}" if self.family == "4" else f"2001:db8::{banned.replace('.', ':')}"
        built_in = self.random.choice(["INPUT", "FORWARD"])
        first = next((at for at, line in enumerate(lines) if f"-A {built_in} " in line), len(lines) - 1)
        lines.insert(first, f"-A {built_in} -s {address} -j DROP\n")
        self.file.write_text(head + "".join(lines) + rest)

    def _parts(self) -> tuple[str, str, str]:
        text = self.file.read_text()
        found = re.search(r"^\*filter\n.*?^COMMIT\n", text, re.MULTILINE | re.DOTALL)
        if found is None:
            text += "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
            self.file.write_text(text)
            return self._parts()
        return text[: found.start()], found[0], text[found.end() :]

    def agrees(self, file: Path | None = None) -> None:
        """Prove that the kernel treats every packet as the file does, chains of fail2ban aside."""
        held = self.folder / "held.rules"
        held.write_text(self.hitables("save", "--backend", self.backend, "--family", self.family))
        words = ["--backend", self.backend, "--leave", "fail2ban", "--family", self.family]
        tables = [f"--table={name}" for name in re.findall(r"^\*(\S+)", self.file.read_text(), re.MULTILINE)]
        self.hitables("check", str(file or self.file), str(held), *words, *tables)


# ---- a week with apply ----


def monday(host: Host) -> str:
    host.apply("--confirm", "60")
    host.of_state("confirm")
    (host.folder / "monday.rules").write_text(host.file.read_text())
    return "applied, and confirmed"


def tuesday(host: Host) -> str:
    host.edit()
    host.apply("--confirm", "0")
    host.iptables("-I", "INPUT", "-p", "tcp", "--dport", "6666", "-j", "ACCEPT")
    host.of_state("status", status=1)
    host.of_state("status", "--repair")
    return "somebody's rule in the kernel was found, and taken back"


def wednesday(host: Host) -> str:
    before = host.file.read_text()
    host.edit()
    host.apply("--confirm", "1")
    log = host.folder / "state" / "log"
    deadline = time.monotonic() + 120
    while "not confirmed in time" not in log.read_text():
        if time.monotonic() > deadline:
            raise Failed("rules that were not confirmed are still there")
        time.sleep(0.1)
    host.file.write_text(before)
    return "rules that were not confirmed were taken back"


def thursday(host: Host) -> str:
    host.iptables("-N", "f2b-sshd")
    host.iptables("-A", "f2b-sshd", "-j", "RETURN")
    host.iptables("-I", "INPUT", "-p", "tcp", "-m", "multiport", "--dports", "22", "-j", "f2b-sshd")
    ban = ("f2b-sshd", "-s", "192.0.2.99" if host.family == "4" else "2001:db8::99", "-j", "DROP")
    host.iptables("-I", *ban)
    host.edit()
    host.apply("--leave", "fail2ban", "--confirm", "0")
    host.iptables("-C", *ban)
    host.iptables("-D", *ban)
    return "fail2ban's chain and its ban stayed"


def friday(host: Host) -> str:
    before = host.file.read_text()
    host.file.write_text(before.replace("COMMIT\n", "-A INPUT --sprot 22 -j ACCEPT\nCOMMIT\n", 1))
    said = host.apply("--leave", "fail2ban", "--confirm", "0", status=2)
    if "--sprot" not in said:
        raise Failed(f"the mistake was not named: {said}")
    host.file.write_text(before)
    return "a mistake in the file was named, and nothing changed"


def saturday(host: Host) -> str:
    said = host.apply("--leave", "fail2ban", "--confirm", "0")
    if "nothing to do" not in said:
        raise Failed(f"the same file again was not recognised: {said}")
    host.iptables("-D", "INPUT", "-p", "tcp", "-m", "multiport", "--dports", "22", "-j", "f2b-sshd")
    host.iptables("-F", "f2b-sshd")
    host.iptables("-X", "f2b-sshd")
    host.of_state("status")
    return "the same file again: nothing to do; fail2ban went"


def sunday(host: Host) -> str:
    history = host.of_state("history")
    monday = next(line.split()[0] for line in history.replace("*", " ").splitlines() if "confirmed" in line)
    host.of_state("rollback", monday)
    host.file.write_text((host.folder / "monday.rules").read_text())
    return "Monday's rules came back"


# ---- a week with sflgen ----


def begin_patches(host: Host) -> str:
    host.run(f"{host.tool}-{host.backend}-restore", str(host.file))
    live = ["--live", "--backend", host.backend, "--family", host.family]
    host.sflgen("init", *live)
    return "sflgen began with the rules in the kernel"


def patch(host: Host) -> str:
    host.edit()
    said = host.sflgen("sync", "--live", str(host.file))
    return f"synchronised: {said.splitlines()[-1]}"


def take(host: Host) -> str:
    address = "192.0.2.77" if host.family == "4" else "2001:db8::77"
    host.iptables("-I", "INPUT", "-s", address, "-j", "DROP")
    host.sflgen("repair", "--take", "--dry-run", status=1)
    host.sflgen("repair", "--take")
    host.file.write_text(host.sflgen("print"))
    return "somebody's ban in the kernel was taken into the list"


def undo(host: Host) -> str:
    host.iptables(
        "-P", "INPUT", "DROP" if host.iptables("-S", "INPUT").startswith("-P INPUT A") else "ACCEPT"
    )
    host.sflgen("repair", "--undo")
    return "somebody's policy was taken back"


def end_patches(host: Host) -> str:
    host.sflgen("fold", "--live")
    host.sflgen("verify")
    return "folded, and proved as a whole"


WEEKS = {
    "apply": (monday, tuesday, wednesday, thursday, friday, saturday, sunday),
    "sflgen": (begin_patches, patch, patch, take, patch, undo, end_patches),
}


def live(week: str, path: Path, backend: str, seed: int) -> int:
    """Live a *week*; runs in a namespace of its own."""
    with tempfile.TemporaryDirectory() as folder:
        host = Host(Path(folder), path.read_text(errors="surrogateescape"), backend, seed)
        host.run("ip", "link", "set", "lo", "up")
        for number, day in enumerate(WEEKS[week], 1):
            began = time.monotonic()
            try:
                said = day(host)
                host.agrees()
            except Failed as error:
                print(f"{week}, day {number} ({day.__name__}): {error}", flush=True)
                return 1
            print(f"{week}, day {number}: {said} ({time.monotonic() - began:.1f} s)", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Live a week with a compiled firewall, in namespaces.")
    parser.add_argument("rules", type=Path)
    parser.add_argument("--backend", choices=["legacy", "nft"], default="nft")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--week", choices=sorted(WEEKS), help="live only this one, in this namespace")
    args = parser.parse_args()
    if not args.rules.is_file():
        parser.error(f"{args.rules}: no such file")
    if args.week:
        return live(args.week, args.rules, args.backend, args.seed)
    for week in WEEKS:
        words = [sys.executable, __file__, *sys.argv[1:], "--week", week]
        status = subprocess.run(["unshare", "-n", *words], check=False).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())

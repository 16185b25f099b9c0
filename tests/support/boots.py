"""Boots: rules that are confirmed before, and a program that runs in the namespace of the host."""

from __future__ import annotations

import os
import subprocess

from hitables.ir.fields import Family


def rules(family: Family, base: int, extra: str = "") -> str:
    """Enough rules for a tree, in two tables."""
    network = "10.{}.0.0/16" if family is Family.IPV4 else "2001:db8:{}::/48"
    accepts = "".join(
        f"-A INPUT -s {network.format(n)} -p tcp -m tcp --dport {base + n} -j ACCEPT\n" for n in range(1, 41)
    )
    return (
        f"*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n{accepts}{extra}-A INPUT -i lo -j ACCEPT\nCOMMIT\n"
        f"*mangle\n-A PREROUTING -s {network.format(base // 1000)} -j MARK --set-mark 0x{base:x}\nCOMMIT\n"
    )


def execute(command: list[str], path: str = "") -> tuple[int, str]:
    environment = {"PATH": path or os.environ["PATH"], "XTABLES_LOCKFILE": os.environ["XTABLES_LOCKFILE"]}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stderr

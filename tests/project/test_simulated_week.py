"""The week of examples/simulated_week.py, with a small rule set; other rule sets are its user's business."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import command_clients

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "simulated_week.py"

RULES = """\
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -o eth0 -j MASQUERADE
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
""" + "".join(
    f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {1000 + n} -j ACCEPT\n" for n in range(12)
) + "-A INPUT -j LOG\nCOMMIT\n"  # fmt: skip


PROGRAMS = "PROGRAMS = Path(sys.executable).parent\n"


def week(
    path: Path, *words: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script with commands that are forked: it runs some eighty."""
    text = SCRIPT.read_text()
    assert text.count(PROGRAMS) == 1
    script = path.with_name(SCRIPT.name)
    script.write_text(text.replace(PROGRAMS, f"PROGRAMS = Path({command_clients.folder()!r})\n"))
    return subprocess.run(
        [sys.executable, script, path, *words],
        capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})},
    )  # fmt: skip


@pytest.mark.needs_kernel
def test_a_week_goes_as_it_should(tmp_path: Path) -> None:
    path = tmp_path / "office.rules"
    path.write_text(RULES)
    done = week(path)
    assert done.returncode == 0, done.stdout + done.stderr
    days = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert days == [f"{name}, day {number}" for name in ("apply", "sflgen") for number in range(1, 8)]
    assert path.read_text() == RULES


@pytest.mark.needs_kernel
def test_a_kernel_that_does_not_hold_the_rules_ends_the_week(tmp_path: Path) -> None:
    """iptables-nft loads a rule less than it is given."""
    path, tool = tmp_path / "office.rules", tmp_path / "iptables-nft"
    path.write_text(RULES)
    tool.write_text('#!/bin/sh\ncase "$*" in *6666*) exit 0 ;; esac\nexec /usr/sbin/iptables-nft "$@"\n')
    tool.chmod(0o755)
    done = week(path, environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 1
    assert "apply, day 2 (tuesday): " in done.stdout
    assert "exit status 0" in done.stdout  # of `hitables status`, which finds nothing to repair


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = week(tmp_path / "missing.rules")
    assert done.returncode == 2
    assert "missing.rules: no such file" in done.stderr

"""The commands of cliffs.py that are run as their users run them: words in, a file read, text out.

A command runs in the process that calls it.  Those of KERNEL need a network namespace to load rules in.

Invariant: a command that ends with a status that its case does not expect raises, with what it said.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from hitables.cli.main import main as hitables_command
from hitables.kernel.unshare import CLONE_NEWNET

# In the order in which they run: map writes what counters and source read; apply loads what the next ask for.
FILES = ("sample", "trace", "reach", "map", "counters", "source")
KERNEL = ("apply", "dry-run", "status", "history")
MORE = (*FILES, *KERNEL)
ANSWERS = {"reach": (0, 1), "dry-run": (1,), "status": (0, 1)}  # exit statuses; of the others 0

ADDRESSES = {4: ("198.51.100.9", "192.0.2.7"), 6: ("2001:db8::9", "2001:db8::7")}


def _packet(family: int) -> str:
    source, destination = ADDRESSES[family]
    ends = f"src={source} dst={destination} proto=tcp sport=1024 dport=22"
    return f"chain=FORWARD in=eth0 out=eth1 {ends} state=NEW"


def more_actions(
    text: str, longer: str, family: int, folder: Path, namespace: int | None
) -> dict[str, Callable[[], object]]:
    """Each command of MORE on *text*; without a *namespace*, the id of a process in it, those of FILES.

    longer  *text* and a rule more, for dry-run
    folder  an empty one, for the files of the commands
    """
    rules, edited, state = folder / "rules", folder / "edited", folder / "state"
    compiled, sources = folder / "more.compiled", folder / "more.map"
    rules.write_text(text)
    edited.write_text(longer)
    to = ADDRESSES[family][1]
    known = [compiled, "--map", sources]
    words: dict[str, list[object]] = {
        "sample": ["check", "--engine", "sample", "--packets", 2000, rules, rules],
        "trace": ["trace", "--packet", _packet(family), rules],
        "reach": ["reach", "--to", to, "--proto", "tcp", "--chain", "FORWARD", rules],
        "map": ["compile", "--quiet", rules, "-o", compiled, "--map", sources],
        "counters": ["counters", *known],
        "source": ["source", *known],
        "apply": ["apply", rules, "--confirm", 0, "--force", "--state", state],
        "dry-run": ["apply", edited, "--dry-run", "--force", "--state", state],
        "status": ["status", "--state", state],
        "history": ["history", "--state", state],
    }

    def action(name: str) -> Callable[[], object]:
        place = namespace if name in KERNEL else None
        return lambda: command(list(map(str, words[name])), ANSWERS.get(name, (0,)), folder, place)

    return {name: action(name) for name in MORE if namespace is not None or name in FILES}


def command(words: Sequence[str], expected: Sequence[int], folder: Path, namespace: int | None) -> None:
    """Run `hitables` with *words* in this process, which then has no standard output of its own any more."""
    if namespace is not None:
        _enter(namespace)
        os.environ["XTABLES_LOCKFILE"] = str(folder / "xtables.lock")
    said = folder / "said"
    for number, path in ((1, os.devnull), (2, str(said))):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    status = 0
    try:
        hitables_command(list(words), prog_name="hitables")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    if status not in expected:
        raise AssertionError(f"{words[0]}: exit status {status}: {said.read_text()[-150:]}")


def _enter(process: int) -> None:
    """Enter the network namespace of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{process}/ns/net") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter the network namespace")

"""The command hitables as a process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support import forked


def run(*arguments: str | Path, text: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    done = forked.run(["hitables", *map(str, arguments)], text)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done

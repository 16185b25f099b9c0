"""Commands as a user without rights."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# All modules are imported before the rights are gone: a clone in /root can be read by root alone.
SCRIPT = """
import encodings.idna, importlib, os, pathlib, pkgutil, sys
import hitables, sflgen
for package in hitables, sflgen:
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
# As since Python 3.14: "no" where permission is missing.
pathlib.Path.exists = lambda path: os.path.exists(path)
pathlib.Path.is_dir = lambda path: os.path.isdir(path)
pathlib.Path.is_file = lambda path: os.path.isfile(path)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.argv[:] = sys.argv[1:]
getattr(hitables.start, sys.argv[0])()
"""


def powerless(*command: str) -> subprocess.CompletedProcess[str]:
    """The result of hitables or sflgen, called by a user without rights (uid 65534)."""
    if os.geteuid():
        pytest.skip("only root becomes another user")
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *command], capture_output=True, text=True, check=False
    )


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that every user may enter, for a while."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)

"""Commands as a user without rights."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import forked

UID_OF_NOBODY = 65534
# Python code.  It imports all modules while root runs it: another user may not read a clone in /root.
IMPORT_ALL_MODULES = """
import encodings.idna, importlib, pathlib, pkgutil
import hitables, sflgen
for package in hitables, sflgen:
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
# As since Python 3.14: "no" where permission is missing.
pathlib.Path.exists = lambda path: os.path.exists(path)
pathlib.Path.is_dir = lambda path: os.path.isdir(path)
pathlib.Path.is_file = lambda path: os.path.isfile(path)
"""


def powerless(*command: str) -> subprocess.CompletedProcess[str]:
    """Run hitables or sflgen as the user `nobody`, who has no rights of root.

    Returns the exit status of the command and what it printed.
    """
    if os.geteuid():
        pytest.skip("only root becomes another user")
    return forked.run(command, uid=UID_OF_NOBODY, preload=IMPORT_ALL_MODULES)


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that every user may enter, for a while."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)

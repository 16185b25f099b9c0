"""The commands of docs/operations.md and docs/faq.md do what the pages say, one after the other."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import command_clients
from support.small_namespace import Namespace

pytestmark = pytest.mark.needs_kernel
ROOT = Path(__file__).parents[2]


# What a small system, such as a container, may lack.
OPTIONAL = {"systemd-analyze"}


def _missing(command: str) -> bool:
    program = command.split()[0]
    return program in OPTIONAL and shutil.which(program) is None


def run_page(page: str, folder: str, programs: str) -> list[str]:
    """The commands that were run, in the namespace that this runs in; *programs* is a folder for the PATH.

    A command of a program in OPTIONAL that is not installed is left out.
    """
    blocks = re.findall(r"^```shell-session\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    env = os.environ | {
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HITABLES_STATE": f"{folder}/state",
        "COLUMNS": "110",
    }
    commands = []
    for part in re.split(r"^\$ ", "".join(blocks), flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        if _missing(command):
            continue
        # Messages come first, as on a terminal they may.
        done = subprocess.run(
            ["/bin/bash", "-c", command], cwd=folder, env=env, text=True, capture_output=True, check=False
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 0, f"$ {command}\n{printed}"
        equal = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
        assert equal, f"$ {command}\n--- on the page\n{expected}--- it printed\n{printed}"
        commands.append(command)
    return commands


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("operations", {"apply", "confirm", "rollback", "status", "history", "persist"}),
        ("faq", {"apply", "bench", "check", "save", "status"}),
    ],
)
def test_the_commands_of_the_page_do_what_it_says(name: str, needed: set[str], tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "example" / "office.rules", tmp_path / "office.rules")
    page = (ROOT / "docs" / f"{name}.md").read_text()
    programs = command_clients.folder()
    with Namespace() as namespace:
        commands = namespace.call(run_page, page, str(tmp_path), programs)
    assert {command.split()[1] for command in commands if command.startswith("hitables ")} >= needed
    missing = [program for program in OPTIONAL if f"\n$ {program} " in page and _missing(program)]
    if missing:
        pytest.skip(f"run but for commands of {', '.join(missing)}, which is not installed")

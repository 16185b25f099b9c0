"""The command sflgen, run in a scratch namespace."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support import command_clients
from support.planned_updates import prefixes

import hitables
from hitables.errors import LiveError
from sflgen.cli import main
from sflgen.commit import loader
from sflgen.kernel import Kernel
from sflgen.planner import Plan
from sflgen.store import Store

SFLGEN = str(Path(sys.executable).parent / "sflgen")


both = pytest.mark.parametrize("backend", ["legacy", "nft"])


def step(folder: str, plan: Plan) -> bool:
    """Commit a plan in the current namespace, and check the kernel; whether it accepts the patch.

    The kernel then holds the new state; or, if it refuses a rule, the old one.
    """
    with Store.open(Path(folder)) as store:
        before = store.state
        kernel = Kernel(before.master.family, before.settings)
        kernel.check(before)
        plan = replace(plan, before=before)
        try:
            store.commit(plan, loader(kernel, store, plan))
        except LiveError:
            assert store.state is before
        kernel.check(store.state)
        return store.state is not before


def forked() -> str:
    """The path of a script that runs the command in a process that need not import it."""
    return f"{command_clients.folder()}/sflgen"


def sflgen(*arguments: str, text: str = "") -> Result:
    """Run a command in this process; tests that kill it or connect to it run the installed one."""
    return CliRunner().invoke(main, arguments, input=text)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    rules = tmp_path / "plain.rules"
    rules.write_text(hitables.write(prefixes(20)))
    done = sflgen("init", str(rules), "--state", str(tmp_path / "st"))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("*filter\n-N sf1\n")
    return str(tmp_path / "st")

"""The command sflgen, run in a scratch namespace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.planned_updates import prefixes

import hitables
from hitables.errors import LiveError
from sflgen.cli import main
from sflgen.kernel import Kernel, loader
from sflgen.planner import Plan
from sflgen.store import Store

SFLGEN = str(Path(sys.executable).parent / "sflgen")


both = pytest.mark.parametrize("backend", ["legacy", "nft"])


def step(folder: str, made: Plan) -> bool:
    """Commit in the kernel of the namespace that this runs in; whether it is taken.

    The kernel then holds the new state; or, if it refuses a rule, the old one.
    """
    with Store.open(Path(folder)) as store:
        before = store.state
        kernel = Kernel(before.master.family, before.settings)
        kernel.check(before)
        made = Plan(before, made.after, made.updates, made.edits, made.chosen)
        try:
            store.commit(made, loader(kernel, store, made))
        except LiveError:
            assert store.state is before
        kernel.check(store.state)
        return store.state is not before


def sflgen(*arguments: str, text: str = "") -> Result:
    """One command, in this process; the installed one is run where it is to be killed or listens."""
    return CliRunner().invoke(main, arguments, input=text)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    rules = tmp_path / "plain.rules"
    rules.write_text(hitables.write(prefixes(40)))
    made = sflgen("init", str(rules), "--state", str(tmp_path / "st"))
    assert made.exit_code == 0, made.stderr
    assert made.stdout.startswith("*filter\n-N sf1\n")
    return str(tmp_path / "st")

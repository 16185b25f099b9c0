"""Two versions of iptables: one that reads a test of the mark otherwise stands in for the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.small_namespace import Namespace

from benchmarks import versions
from benchmarks.saves import furnished
from benchmarks.spellings import SECTIONS, Section
from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = pytest.mark.needs_kernel

(MARK,) = (section for section in SECTIONS if section.begin == "-m mark")


@pytest.mark.parametrize("backend", Backend)
def test_a_rule_that_is_loaded_otherwise_is_told(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    load_with = versions.load_with

    def other(
        root: str, section: Section, rule: str, kind: tuple[Family, Backend], within: Namespace
    ) -> object:
        if root != "/":
            rule = {"-A INPUT -m mark --mark 01": "-A INPUT -m mark --mark 7"}.get(rule, rule)
            rule = {"-A INPUT -m mark --mark 0": "-A INPUT -m mark --mark none"}.get(rule, rule)
        return load_with("/", section, rule, kind, within)

    monkeypatch.setattr(versions, "load_with", other)
    kind = Family.IPV4, backend
    with furnished(*kind) as namespace:
        told = dict(versions.differences(MARK, kind, 0, "/other", namespace))
    assert told.pop("-A INPUT -m mark --mark 01") == "the kernel holds something else"
    assert told.pop("-A INPUT -m mark --mark 0").startswith("refused there: ")
    assert not told


def test_a_version_agrees_with_itself() -> None:
    command = [sys.executable, "-m", "benchmarks.versions", "/", "--only", "-m mark", "-n", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout.splitlines()[-1] == "0 rules are loaded otherwise"

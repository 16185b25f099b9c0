"""The report of `hitables lint`: its status, its cases, and what stays the same beside counters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import junitparser
import pytest
from click.testing import CliRunner, Result

from hitables.cli.main import main

pytestmark = pytest.mark.engine

HEAD = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
UNREACHED = f"{HEAD}:alone - [0:0]\n-A INPUT -s 192.0.2.1/32 -j ACCEPT\n-A alone -j DROP\nCOMMIT\n"


def lint(path: Path, text: str, *options: str) -> Result:
    path.write_text(text)
    return CliRunner().invoke(main, ["lint", *options, str(path)])


def test_a_flaw_that_is_found_before_the_time_is_over_is_told_with_what_was_not_checked(
    tmp_path: Path,
) -> None:
    done = lint(tmp_path / "host.rules", UNREACHED, "--timeout", "0.000001")
    assert done.exit_code == 1
    first, *_, last = done.stdout.splitlines()
    assert first.endswith(":5: chain alone is unreachable")
    assert "not all rules were checked: out of time in table filter" in last


def test_an_empty_chain_with_a_flaw_is_a_case_of_its_own(tmp_path: Path) -> None:
    text = UNREACHED.replace("-A alone -j DROP\n", "")
    done = lint(tmp_path / "host.rules", text, "--format", "junit")
    suites = junitparser.JUnitXml.fromstring(done.stdout.encode())
    failed = {case.name for suite in suites for case in suite if not case.is_passed}
    assert failed == {"chain alone"} and suites.failures == 1


def test_counters_change_neither_the_text_nor_the_fingerprints(tmp_path: Path) -> None:
    rules = ["-A INPUT -s 192.0.2.1/32 -j ACCEPT\n"] * 2
    texts = ["".join([HEAD, *(before + rule for rule in rules), "COMMIT\n"]) for before in ("", "[5:300] ")]
    plain, counted = (lint(tmp_path / "host.rules", text).stdout for text in texts)
    assert plain == counted and "never matches" in plain
    logs = [json.loads(lint(tmp_path / "host.rules", text, "--format", "sarif").stdout) for text in texts]
    ((one,), (other,)) = (log["runs"][0]["results"] for log in logs)
    assert one["partialFingerprints"] == other["partialFingerprints"] and one["message"] == other["message"]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda text: text.removesuffix("\n"), "its last line has no line end: iptables-legacy-restore"),
        (lambda text: text.replace("\n", "\r\n"), "its lines end as those of Windows (CR LF)"),
        (lambda text: text, ""),
    ],
)
def test_line_ends_that_iptables_refuses_are_noted(
    tmp_path: Path, change: Callable[[str], str], note: str
) -> None:
    path = tmp_path / "host.rules"
    path.write_bytes(change(f"{HEAD}-A INPUT -s 192.0.2.1 -j ACCEPT\nCOMMIT\n").encode())
    done = CliRunner().invoke(main, ["lint", "--format", "json", str(path)])
    found = [each for each in json.loads(done.stdout)["notes"] if "line" in each and "end" in each]
    assert len(found) == bool(note) and all(note in each for each in found)

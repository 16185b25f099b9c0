"""The report of `hitables lint`: its status, its cases, and what stays the same beside counters."""

from __future__ import annotations

import json
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


def test_each_program_that_has_chains_with_findings_is_noted_once(tmp_path: Path) -> None:
    declared = "".join(f":{name} - [0:0]\n" for name in ("DOCKER-USER", "ufw-user-input", "ufw-user-output"))
    text = f"{HEAD}{declared}-A FORWARD -j DOCKER-USER\n-A ufw-user-input -p tcp -j ACCEPT\nCOMMIT\n"
    docker = "docker changes its chains itself (DOCKER-USER); --leave docker checks none of them"
    ufw = "ufw changes its chains itself (ufw-user-input and others); --leave ufw checks none of them"
    for options, notes in (
        ((), [docker, ufw]),
        (("--leave", "docker"), [ufw]),
        (("--leave", "docker", "--leave", "ufw"), []),
    ):
        done = lint(tmp_path / "host.rules", text, "--format", "json", *options)
        assert json.loads(done.stdout)["notes"] == notes
    assert not json.loads(lint(tmp_path / "host.rules", UNREACHED, "--format", "json").stdout)["notes"]

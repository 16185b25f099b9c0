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


def listed(path: Path, rules: str) -> list[tuple[str, list[str]]]:
    """The messages of the findings, without their place, and the texts of their lines."""
    done = lint(path, f"{HEAD}{rules}COMMIT\n", "--format", "json")
    return [
        (each["message"].partition(": ")[2], [place["text"] for place in each["places"]])
        for each in json.loads(done.stdout)["findings"]
    ]


def test_the_useless_part_of_a_line_that_lists_addresses_is_named(tmp_path: Path) -> None:
    """Not its first rule, for which the whole line may be needed."""
    drops = "-A INPUT -s {} -j ACCEPT"
    within = listed(tmp_path / "rules", drops.format("0.0.0.0/8,240.0.0.0/4,255.255.255.255/32") + "\n")
    assert within == [
        (
            "never matches: line 5 covers it (only this part of the line: 1 of its 3 rules)",
            [drops.format("255.255.255.255/32"), drops.format("240.0.0.0/4")],
        )
    ]
    lines = ["240.0.0.0/4", "250.1.0.0/16,10.0.0.0/8,255.255.255.255/32"]
    behind = listed(tmp_path / "rules", "".join(drops.format(each) + "\n" for each in lines))
    assert behind == [
        (
            "never matches: line 5 covers it (only this part of the line: 2 of its 3 rules)",
            [drops.format("250.1.0.0/16,255.255.255.255/32"), drops.format("240.0.0.0/4")],
        )
    ]


def test_a_line_that_lists_addresses_is_told_once_where_all_its_rules_are_useless(tmp_path: Path) -> None:
    both = "-A INPUT -s 10.1.1.1/32,10.2.2.2/32 -d 1.1.1.1/32,2.2.2.2/32 -j ACCEPT"
    wide = "-A INPUT -s 10.0.0.0/8 -j REJECT"
    assert listed(tmp_path / "rules", f"{wide}\n{both}\n") == [
        ("never matches: line 5 covers it", [both, wide])
    ]
    jump = "-A INPUT -s 3.3.3.3/32,4.4.4.4/32 -j none"
    assert listed(tmp_path / "rules", f":none -\n{jump}\n") == [
        ("chain none is empty: entering it does nothing", [jump])
    ]


def test_the_rules_of_a_line_that_are_useless_for_several_reasons_are_told_one_by_one(tmp_path: Path) -> None:
    one, other = "-A INPUT -s 10.0.0.0/8 -j REJECT", "-A INPUT -s 11.0.0.0/8 -j REJECT"
    accept = "-A INPUT -s {} -j ACCEPT"
    rules = f"{one}\n{other}\n{accept.format('10.1.1.1/32,11.1.1.1/32')}\n"
    part = "(this part of the line: 1 of its 2 rules)"
    assert listed(tmp_path / "rules", rules) == [
        (f"never matches: line 5 covers it {part}", [accept.format("10.1.1.1/32"), one]),
        (f"never matches: line 6 covers it {part}", [accept.format("11.1.1.1/32"), other]),
    ]


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

"""`hitables diff` and `hitables lint`: what they print, their exit status, every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from click.testing import CliRunner, Result
from support.compared_rules import SARIF

from hitables.cli.main import main

ROOT = Path(__file__).parents[2]
BEFORE = """\
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -s 10.0.0.0/8 -j ACCEPT
-A INPUT -s 10.1.0.0/16 -p tcp --dport 22 -j REJECT
-A INPUT -s 172.16.0.0/12 -p udp -j DROP
COMMIT
"""
AFTER = BEFORE.replace("10.0.0.0/8", "10.0.0.0/9").replace("-p udp", "-p udp -m limit --limit 1/sec")
TIDY = BEFORE.replace(
    "-A INPUT -s 10.1.0.0/16 -p tcp --dport 22 -j REJECT\n-A INPUT -s 172.16.0.0/12 -p udp -j DROP\n", ""
)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    paths = {}
    for name, text in (("before", BEFORE), ("after", AFTER), ("tidy", TIDY)):
        (tmp_path / f"{name}.rules").write_text(text)
        paths[name] = str(tmp_path / f"{name}.rules")
    return paths


def run(*arguments: str, status: int) -> Result:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == status, done.output
    return done


def test_diff_lists_packets_lines_and_verdicts(files: dict[str, str]) -> None:
    text = run("diff", files["before"], files["after"], status=1).stdout
    assert text.splitlines()[0] == "table filter, chain INPUT:"
    assert ("  any protocol from 10.128.0.0/9\n    was ACCEPT by line 5, now DROP by policy") in text
    assert "now also evaluates limit --limit 1/sec" in text
    assert "treat every packet the same" in run("diff", files["before"], files["tidy"], status=0).stdout


def test_diff_tells_what_a_rule_with_a_new_ipset_changes(tmp_path: Path) -> None:
    (tmp_path / "before").write_text(BEFORE)
    (tmp_path / "after").write_text(
        BEFORE.replace("-A INPUT", "-A INPUT -m set --match-set blocked src -j DROP\n-A INPUT", 1)
    )
    text = run("diff", str(tmp_path / "before"), str(tmp_path / "after"), status=1).stdout
    assert (
        '  any protocol from 10.0.0.0/8, where "set --match-set blocked src" holds\n'
        "    was ACCEPT by line 5, now DROP by line 5"
    ) in text


def test_the_limit_of_diff_applies_to_the_text_only(files: dict[str, str]) -> None:
    short = run("diff", "--limit", "1", files["before"], files["after"], status=1).stdout
    assert "1 more change (--limit)" in short
    every = json.loads(
        run("diff", "--limit", "1", "--format", "json", files["before"], files["after"], status=1).stdout
    )
    assert len(every["findings"]) > 1 and every["complete"]


def test_lint_lists_rules_and_the_rules_that_cover_them(files: dict[str, str]) -> None:
    text = run("lint", files["before"], status=1).stdout
    assert text.splitlines() == [
        f"{files['before']}:6: never matches: line 5 covers it",
        "    -A INPUT -s 10.1.0.0/16 -p tcp -m tcp --dport 22 -j REJECT",
        "    line 5: -A INPUT -s 10.0.0.0/8 -j ACCEPT",
        f"{files['before']}:7: changes nothing: the policy does the same",
        "    -A INPUT -s 172.16.0.0/12 -p udp -j DROP",
    ]
    assert "no useless rules (rules checked: 1)" in run("lint", files["tidy"], status=0).stdout


def test_lint_counts_no_rules_of_chains_that_are_left(tmp_path: Path) -> None:
    rules = tmp_path / "banned.rules"
    rules.write_text(
        "*filter\n:INPUT ACCEPT [0:0]\n:f2b-sshd - [0:0]\n-A INPUT -p tcp -j f2b-sshd\n"
        "-A f2b-sshd -s 192.0.2.9/32 -j REJECT\n-A f2b-sshd -j RETURN\nCOMMIT\n"
    )
    said = run("lint", "--leave", "fail2ban", str(rules), status=0).stdout
    assert said == f"{rules}: no useless rules (rules checked: 1 of 3)\n"


def test_what_a_user_chain_need_not_do_is_not_done_by_a_policy(tmp_path: Path) -> None:
    rules = tmp_path / "jail.rules"
    rules.write_text(
        "*filter\n:INPUT ACCEPT [0:0]\n:jail - [0:0]\n-A INPUT -p tcp -j jail\n-A INPUT -s 10.0.0.0/8 -j DROP\n"
        "-A jail -s 192.0.2.9/32 -j REJECT\n-A jail -j RETURN\nCOMMIT\n"
    )
    first = run("lint", str(rules), status=1).stdout.splitlines()[0]
    assert first == f"{rules}:7: changes nothing: packets that return from jail are treated the same"


def report(command: str, form: str, files: dict[str, str]) -> Any:
    names = [files["before"], files["after"]] if command == "diff" else [files["before"]]
    return run(command, "--format", form, *names, status=1).stdout


@pytest.mark.parametrize("command", ["diff", "lint"])
def test_json_fits_its_schema(command: str, files: dict[str, str]) -> None:
    schema = json.loads((ROOT / f"hitables/schema/{command}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(report(command, "json", files))
    jsonschema.validate(document, schema)
    for spoilt in (
        {**document, "command": "x"},
        {**document, "findings": [{}]},
        {k: v for k, v in document.items() if k != "complete"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(spoilt, schema)


@pytest.mark.parametrize("command", ["diff", "lint"])
def test_sarif_fits_the_schema_of_the_standard(command: str, files: dict[str, str]) -> None:
    log = json.loads(report(command, "sarif", files))
    jsonschema.Draft7Validator(SARIF, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER).validate(log)
    assert len(log["runs"][0]["results"]) >= 2


def regions(command: str, *files: str) -> list[tuple[int, str, str]]:
    """Line, snippet and fingerprint of each result."""
    log = json.loads(run(command, "--format", "sarif", *files, status=1).stdout)
    results = log["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"]["region"] for result in results]
    prints = [result["partialFingerprints"]["hitables/v1"] for result in results]
    return [
        (place["startLine"], place["snippet"]["text"], each)
        for place, each in zip(places, prints, strict=True)
    ]


@pytest.mark.parametrize("command", ["diff", "lint"])
def test_a_sarif_result_has_the_text_of_its_line_and_a_fingerprint_of_its_own(
    command: str, tmp_path: Path
) -> None:
    head = "*filter\n:INPUT DROP\n:FORWARD ACCEPT [0:0]\n"
    rules = "".join(f"-A INPUT  -s 10.0.0.{at} -j DROP\n" for at in (1, 2, 3))
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text(f"{head}{rules}COMMIT\n")
    after.write_text(
        f"{head}{rules.replace('DROP', 'ACCEPT')}COMMIT\n".replace("FORWARD ACCEPT", "FORWARD DROP")
    )
    files = [str(before), str(after)] if command == "diff" else [str(before)]
    found = regions(command, *files)
    lines = Path(files[-1]).read_text().split("\n")
    assert len(found) >= 3 and all(text == lines[line - 1] for line, text, _ in found)
    if command == "diff":
        assert {line for line, _, _ in found} == {3, 4, 5, 6}  # 3: the policy
    assert len({each for _, _, each in found}) == len(found)
    moved = Path(files[-1])
    moved.write_text("# a note\n" + moved.read_text())
    assert [each for _, _, each in regions(command, *files)] == [each for _, _, each in found]


def test_a_comment_of_any_characters_is_one_line_of_the_text_of_lint(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    comment = "a\x85b\u2028c\u2029d"
    rule = f'-A INPUT -m comment --comment "{comment}" -j DROP'
    rules.write_text(f"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j DROP\n{rule}\nCOMMIT\n")
    assert f"    {rule}\n" in run("lint", str(rules), status=1).stdout


@pytest.mark.parametrize("command", ["diff", "lint"])
def test_junit_is_read_by_a_real_reader(command: str, files: dict[str, str], tmp_path: Path) -> None:
    suites = junitparser.JUnitXml.fromstring(report(command, "junit", files).encode())
    names = [case.name for suite in suites for case in suite]
    assert suites.failures == len([name for name in names if "line" in name]) >= 2  # of one chain of three
    assert len(set(names)) == len(names) == suites.tests
    assert all(len(case.result) <= 1 for suite in suites for case in suite)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diff", "{before}", "/nowhere"], "/nowhere"),
        (["diff", "-", "-"], "are both standard input; name a file"),
        (["diff", "--chain", "X", "{before}", "{after}"], "no chain X"),
        (["lint", "--table", "raw", "{before}"], "no table raw"),
        (["lint", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_input_gives_a_message_and_exits_with_2(
    arguments: list[str], message: str, files: dict[str, str]
) -> None:
    done = run(*(each.format(**files) for each in arguments), status=2)
    assert message in done.stderr and "Traceback" not in done.output


def test_the_answer_is_undecided_when_the_time_is_over(files: dict[str, str]) -> None:
    assert (
        "undecided: out of time"
        in run("diff", "--timeout", "1e-9", files["before"], files["tidy"], status=2).stdout
    )
    assert "not all rules were checked" in run("lint", "--timeout", "1e-9", files["tidy"], status=2).stdout


def test_two_days_of_one_site_give_a_readable_diff(shared: Path) -> None:
    """A pair of the corpus: a firewall of mac addresses that changed its protection against floods."""
    stem = "diekmann_net-network__d-Services-iptables-save-2015-05-15-"
    names = [str(shared / "corpus/dumps" / f"{stem}{time}.rules") for time in ("14-14-46", "15-23-41")]
    text = run("diff", *names, status=1).stdout.splitlines()
    assert len(text) < 100
    assert any("was ACCEPT by lines" in line and "more, now DROP by line 238" in line for line in text)
    assert any("no longer evaluates recent" in line and "now also LOG" in line for line in text)


@pytest.mark.parametrize("command", [["lint"], ["compile"], ["stats"]])
@pytest.mark.parametrize("lost", [1, 2])
def test_rules_of_a_table_that_comes_again_are_told_of(command: list[str], lost: int, tmp_path: Path) -> None:
    path = tmp_path / "joined.rules"
    first = "*filter\n" + "-A INPUT -p tcp -j DROP\n" * lost + "COMMIT\n"
    path.write_text(first + "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n")
    said = CliRunner().invoke(main, [*command, str(path)]).stderr
    rules = "1 rule" if lost == 1 else "2 rules"
    assert (
        f"{path}, line {lost + 3}: *filter comes again, so iptables-restore drops that of line 1, with {rules}"
        in said
    )
    assert "; join the two\n" in said
    path.write_text(f"# Generated by ip6tables-save\n{first}# Generated by iptables-save\n{first}")
    said = CliRunner().invoke(main, [*command, str(path)]).stderr
    assert "join the two" not in said and "--family" not in said
    assert said.count("split the text into a file for each family") == 2
    path.write_text("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n*filter\n-A INPUT -j ACCEPT\nCOMMIT\n")
    assert "comes again" not in CliRunner().invoke(main, [*command, str(path)]).stderr


def test_lint_and_check_name_the_last_rule_for_which_connections_are_tracked(tmp_path: Path) -> None:
    path, bare = tmp_path / "rules", tmp_path / "bare"
    bare.write_text(TIDY)
    path.write_text(TIDY.replace("COMMIT", "-A INPUT -j DROP\n-A INPUT -m state --state NEW -j DROP\nCOMMIT"))
    told = run("lint", str(path), status=1).stdout
    assert f"{path}: note: line 7 (table filter, chain INPUT) affects no verdict, but is not listed" in told
    data = json.loads(run("lint", str(path), "--format", "json", status=1).stdout)
    assert [finding["places"][0]["line"] for finding in data["findings"]] == [6] and len(data["notes"]) == 1
    told = run("check", str(path), str(bare), status=0).stdout
    assert f"note: only {path} has rules that make the kernel track connections" in told
    data = json.loads(run("check", str(bare), str(path), "--format", "json", status=0).stdout)
    assert data["answer"] == "equal" and f"only {path} has" in data["notes"][0]
    assert not json.loads(run("check", str(path), str(path), "--format", "json", status=0).stdout)["notes"]

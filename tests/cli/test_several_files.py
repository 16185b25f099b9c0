"""`check --against`, `lint` and `stats` with several files: one document, and the exit status of all together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from click.testing import CliRunner, Result
from support import forked
from support.compared_rules import SARIF

from hitables.cli.main import main
from hitables.report.formats import FORMATS

ROOT = Path(__file__).parents[2]
REVIEWED = """\
*filter
:INPUT DROP [0:0]
-A INPUT -s 10.0.0.0/8 -j ACCEPT
COMMIT
"""
EQUAL = REVIEWED.replace("COMMIT", "-A INPUT -s 10.1.0.0/16 -j ACCEPT\nCOMMIT")  # with a useless rule
DIFFERENT = REVIEWED.replace("10.0.0.0/8", "10.0.0.0/9")
TEXTS = {"reviewed": REVIEWED, "equal": EQUAL, "different": DIFFERENT, "broken": "no rules\n"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command in a folder that holds a file for each of TEXTS."""
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)

    def do(*arguments: str, status: int, text: str = "") -> Result:
        done = CliRunner().invoke(main, list(arguments), input=text)
        assert done.exit_code == status, done.output
        return done

    return do


CHECK = "check", "--engine", "sample", "--against", "reviewed"


@pytest.mark.parametrize(
    ("files", "status"),
    [
        (["equal"], 0),
        (["equal", "reviewed"], 0),
        (["equal", "different"], 1),
        (["different", "different", "equal"], 1),
        (["equal", "broken"], 2),
        (["different", "broken"], 2),
        (["equal", "nowhere"], 2),
        (["-", "-"], 2),
    ],
)
def test_check_compares_each_file_with_one(run: Any, files: list[str], status: int) -> None:
    done = run(*CHECK, *files, status=status, text=EQUAL)
    answers = [line for line in done.stdout.splitlines() if line.startswith("reviewed and ")]
    expected = {"different": "they differ"}
    if status == 2:
        assert done.stdout == "" and done.stderr, "a file that cannot be read leaves all uncompared"
    else:
        assert len(answers) == len(files)
        assert all(
            line.startswith(f"reviewed and {file}: {expected.get(file, 'no difference found')}")
            for line, file in zip(answers, files, strict=True)
        )


def test_a_difference_in_one_file_outweighs_an_undecided_other(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hitables.compare import ENGINES, Sampling
    from hitables.verify.question import Undecided

    def half(before: Any, after: Any, *rest: Any) -> Any:
        if after.name == "equal":
            return Undecided("out of time", "filter", "INPUT", rest[0].backends[0], 0.0)
        return ENGINES["sample"](before, after, rest[0], Sampling(), lambda stage: None)

    monkeypatch.setitem(ENGINES, "exact", half)
    run("check", "--against", "reviewed", "equal", status=2)
    run("check", "--against", "reviewed", "equal", "different", status=1)


def test_lint_names_each_file(run: Any) -> None:
    done = run("lint", "equal", "reviewed", status=1)
    lines = done.stdout.splitlines()
    assert lines[0] == "equal:4: never matches: line 3 covers it"
    assert lines[-1] == "reviewed: no useless rules (rules checked: 1)"
    run("lint", "reviewed", "different", status=0)
    run("lint", "reviewed", "broken", status=2)
    assert "-:4: never matches" in run("lint", status=1, text=EQUAL).stdout


def test_stats_shows_a_table_for_each_file(run: Any) -> None:
    text = run("stats", "reviewed", "equal", status=0).stdout
    assert "reviewed: 1 rule," in text and "equal: 2 rules" in text
    single = json.loads(run("stats", "--json", "equal", status=0).stdout)
    several = json.loads(run("stats", "--format", "json", "reviewed", "equal", status=0).stdout)
    assert [each["source"] for each in several] == ["reviewed", "equal"] and several[1] == single
    schema = json.loads((ROOT / "hitables/schema/stats.json").read_text())
    for each in several:
        jsonschema.validate(each, schema)


SEVERAL = {"check": (*CHECK, "equal", "different"), "lint": ("lint", "equal", "reviewed")}
each_command = pytest.mark.parametrize("command", SEVERAL)


@each_command
def test_json_is_an_array_of_the_documents(run: Any, command: str) -> None:
    schema = json.loads((ROOT / f"hitables/schema/{command}.json").read_text())
    documents = json.loads(run(*SEVERAL[command], "--format", "json", status=1).stdout)
    assert sorted(each["status"] for each in documents) == [0, 1]
    for each in documents:
        jsonschema.validate(each, schema)


@each_command
def test_sarif_is_one_run_with_an_artifact_for_each_file(run: Any, command: str) -> None:
    log = json.loads(run(*SEVERAL[command], "--format", "sarif", status=1).stdout)
    jsonschema.Draft7Validator(SARIF, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER).validate(log)
    (only,) = log["runs"]
    assert len(only["results"]) == 1 and only["invocations"][0]["exitCode"] == 1
    files = {each["location"]["uri"] for each in only["artifacts"]}
    assert files == ({"reviewed", "equal", "different"} if command == "check" else {"equal", "reviewed"})
    assert len(only["properties"]["reports"]) == 2


@each_command
def test_junit_has_the_suites_of_each_file(run: Any, command: str) -> None:
    text = run(*SEVERAL[command], "--format", "junit", status=1).stdout
    suites = junitparser.JUnitXml.fromstring(text.encode())
    names = [suite.name for suite in suites]
    assert names == (
        ["equal filter", "different filter"] if command == "check" else ["equal filter", "reviewed filter"]
    )
    assert suites.tests == sum(suite.tests for suite in suites) and suites.failures >= 1


@pytest.mark.parametrize("form", FORMATS)
def test_o_writes_one_file_and_never_over_one_that_is_read(run: Any, form: str, tmp_path: Path) -> None:
    done = run("lint", "equal", "reviewed", "--format", form, "-o", "report", status=1)
    assert (tmp_path / "report").read_text() and "equal:4: never matches" in done.stderr
    refused = run("lint", "equal", "reviewed", "-o", "reviewed", status=2)
    assert "would overwrite FILE reviewed" in refused.stderr
    assert (tmp_path / "reviewed").read_text() == REVIEWED


@pytest.mark.parametrize("command", [["check"], ["diff"], ["check", "--against"]])
def test_rules_without_a_sign_of_their_family_are_of_that_of_the_others(
    command: list[str], tmp_path: Path
) -> None:
    """As in `hitables check rules.v6 <(sed ... rules.v6)`."""
    text = "*filter\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n{}COMMIT\n"
    (tmp_path / "rules.v6").write_text(text.format(""))
    (tmp_path / "edited").write_text(text.format(""))
    done = forked.run(["hitables", *command, "rules.v6", "edited"], folder=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "hitables: warning: edited is read as IPv6, as rules.v6 is: --family says of which family both are\n"
    )
    (tmp_path / "rules.v4").write_text(text.format(""))
    for sign in (
        "-A INPUT -p icmp -j DROP\n",
        "-A INPUT -s 192.0.2.1 -j DROP\n",
        "",
        "# Generated by iptables-save\n",
    ):
        named = "edited" if sign else "rules.v4"
        (tmp_path / named).write_text(text.format(sign))
        done = forked.run(["hitables", *command, "rules.v6", named], folder=str(tmp_path))
        assert done.returncode == 2 and "where this is guessed wrongly, --family names it" in done.stderr, (
            sign
        )


def test_rules_of_a_doubtful_family_are_read_as_ipv4_with_a_warning(run: Any) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n"
    for name, doubtful in (
        ("office6.rules", text), ("office6", text), ("one", text.replace("tcp", "ipv6-icmp"))
    ):  # fmt: skip
        for content, is_told in (
            (doubtful, True),
            (f"# Generated by iptables-save v1.8.9\n{text}", False),
            (f"{doubtful}*raw\n:PREROUTING ACCEPT\n-A PREROUTING -s 10.0.0.1 -j DROP\nCOMMIT\n", False),
        ):
            Path(name).write_text(content)
            for command in (["compile", name], ["check", "--engine", "sample", name, name]):
                assert ("is read as IPv4, but" in run(*command, status=0).stderr) == is_told, content
                assert "warning" not in run(*command, "--family", "4", status=0).stderr
    Path("office16.rules").write_text(text)
    assert "warning" not in run("compile", "office16.rules", status=0).stderr

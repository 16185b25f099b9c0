"""`hitables check` and `diff` with --across-families, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import hitables
from hitables.cli.main import main

SCHEMAS = Path(hitables.__file__).parent / "schema"
SSH, WEB = "-A INPUT {} -p tcp -m tcp --dport 22 -j ACCEPT", "-A INPUT -p tcp -m tcp --dport 80 -j ACCEPT"
FILES = {
    "v4": [SSH.format("-s 10.0.0.0/8"), WEB],
    "same": [SSH.format("-s fd00::/8"), WEB],
    "open": [SSH.format(""), WEB],
    "doubtful": [WEB],
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    for name, rules in FILES.items():
        Path(name).write_text("\n".join(["*filter", ":INPUT DROP [0:0]", *rules, "COMMIT\n"]))

    def call(*arguments: str, status: int) -> Result:
        result = CliRunner().invoke(main, [*arguments])
        assert result.exit_code == status, result.output
        return result

    return call


ACROSS = ("--across-families", "--pair", "10.0.0.0/8=fd00::/8")


def test_check_names_the_lines_of_both_files(run: Any) -> None:
    assert "v4 and same: proved equal, as far as both" in run("check", *ACROSS, "v4", "same", status=0).stdout
    said = run("check", *ACROSS, "v4", "open", "--family", "4", status=2).stderr
    assert "--family names one family" in said
    Path("open6").write_text(Path("open").read_text())  # of which nothing says that it is of IPv6
    said = run("check", *ACROSS, "v4", "open6", status=1).stdout
    assert "verdict DROP becomes ACCEPT" in said
    assert "open6: ACCEPT, rules read: 1\n  line 3: -A INPUT -p tcp -m tcp --dport 22 -j ACCEPT" in said
    assert "packets of addresses of the Internet that no rule names, 10.0.0.0/8=fd00::/8; without" in said


def test_several_files_are_compared_with_one(run: Any) -> None:
    said = run("check", *ACROSS, "--against", "v4", "same", "open", "doubtful", status=1).stdout
    answers = [
        line.partition(": ")[2].partition(",")[0] for line in said.splitlines() if " and " in line[:20]
    ]
    assert answers == ["proved equal", "they differ", "they differ"]


def test_the_first_file_may_be_of_either_family(run: Any) -> None:
    assert "v4: 1 rule left out" in run("diff", ACROSS[0], "doubtful", "v4", status=0).stdout
    assert "same: 1 rule left out" in run("diff", ACROSS[0], "doubtful", "same", status=0).stdout
    assert "both for IPv4" in run("diff", ACROSS[0], "v4", "v4", status=2).stderr
    assert "or of both with --across-families" in run("diff", "v4", "same", status=2).stderr


@pytest.mark.parametrize("command", ["check", "diff"])
def test_json_tells_what_is_compared(run: Any, command: str) -> None:
    document = json.loads(run(command, *ACROSS, "v4", "open", "--format", "json", status=1).stdout)
    jsonschema.validate(document, json.loads((SCHEMAS / f"{command}.json").read_text()))
    assert "10.0.0.0/8=fd00::/8" in document["scope"][0]
    places = [place for finding in document["findings"] for place in finding["places"]]
    assert {(place["file"], place["line"]) for place in places} == {("open", 3), ("v4", 2)}
    assert json.loads(run(command, "v4", "v4", "--format", "json", status=0).stdout)["scope"] == []


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["check", "v4", "same", "--pair", "10.0.0.0/8=fd00::/8"], "--pair is for"),
        (["check", ACROSS[0], "v4", "same", "--pair", "10.0.0.0/8"], "10.0.0.0/8"),
        (["check", ACROSS[0], "v4", "same", "--table", "nat"], "table nat changes addresses"),
        (["diff", ACROSS[0], "v4", "same", "--equivalence", "full"], "only verdicts are compared"),
        (["check", ACROSS[0], "v4", "same", "--replay"], "--replay: no packet is of both families"),
    ],
)
def test_wrong_calls(run: Any, arguments: list[str], words: str) -> None:
    assert words in run(*arguments, status=2).stderr

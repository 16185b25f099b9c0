"""`check` and `diff` note chains that differ and that no packet enters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hitables.cli.main import main

pytestmark = pytest.mark.engine

HEAD = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n"
ACCEPTS = "-A DOCKER-USER -i eth0 -p tcp -m tcp --dport 443 -j ACCEPT\n"
DROPS = "-A DOCKER-USER -i eth0 -j DROP\n"
DECLARED = ":DOCKER-USER - [0:0]\n"
NOTE = "chain DOCKER-USER (table filter) differs, and no packet enters it in these files"
HINT = "; --chain DOCKER-USER compares it by itself"


def run(folder: Path, before: str, after: str, *words: str) -> tuple[int, str]:
    for name, text in (("a", before), ("b", after)):
        (folder / name).write_text(f"{HEAD}{text}COMMIT\n")
    found = CliRunner().invoke(main, [*words, str(folder / "a"), str(folder / "b")])
    return found.exit_code, found.output


@pytest.mark.parametrize("command", ["check", "diff"])
@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        (DECLARED + ACCEPTS + DROPS, DECLARED + ACCEPTS, NOTE + HINT),
        (DECLARED + ACCEPTS, "", NOTE),
        (":X - [0:0]\n" + DECLARED + ACCEPTS, DECLARED + ":X - [0:0]\n" + ACCEPTS, ""),
        (DECLARED + "[1:2] " + ACCEPTS, DECLARED + ACCEPTS, ""),
        (DECLARED, ":other - [0:0]\n", ""),
        (":x1 - [0:0]\n" + DECLARED, DECLARED + ":ht-source-1 - [0:0]\n", ""),
    ],
)
def test_a_chain_without_a_jump_is_noted(
    tmp_path: Path, command: str, before: str, after: str, note: str
) -> None:
    status, text = run(tmp_path, before, after, command)
    assert status == 0
    assert ("note: " + note in text) if note else ("note" not in text)
    status, text = run(tmp_path, before, after, command, "--format", "json")
    assert (status, json.loads(text)["notes"]) == (0, [note] if note else [])


@pytest.mark.parametrize("command", ["check", "diff"])
def test_a_chain_that_is_compared_is_not_noted(tmp_path: Path, command: str) -> None:
    jump = "-A FORWARD -j DOCKER-USER\n"
    changed = DECLARED + ACCEPTS + DROPS, DECLARED + ACCEPTS
    for texts, words, status in (
        ([jump + each for each in changed], (), 0),
        (changed, ("--chain", "DOCKER-USER"), 1),
        (changed, ("--leave", "docker"), 0),
        (changed, ("--chain", "INPUT"), 0),
    ):
        texts = [each.replace(jump, "") + jump * (jump in each) for each in texts]
        found, text = run(tmp_path, *texts, command, *words)
        assert (found, "note: " in text) == (status, False), text


def test_three_chains_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    declared = "".join(f":c{at} - [0:0]\n" for at in range(5))
    rules = "".join(f"-A c{at} -p tcp -j DROP\n" for at in range(5))
    _, text = run(tmp_path, declared, declared + rules, "diff")
    assert text.endswith(
        "note: chains c0 (table filter), c1 (table filter), c2 (table filter) and 2 more differ, and no packet "
        "enters them in these files; --chain c0 compares one by itself\n"
    )

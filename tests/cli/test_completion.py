"""What a shell completes: commands, options, values with a list, files, folders and tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from hitables.cli.main import main
from sflgen.cli import main as sflgen

# Values that are neither files nor folders nor tables, as the help names them.
OTHER_VALUES = {
    "ADDRESS", "ADDRESS[:PORT]", "CHAIN", "[CHAIN]...", "COMMAND", "[COMMAND...]", "FIELDS", "IPV4=IPV6",
    "MODE", "NAME", "NAMES", "PACKET", "PATTERN", "PLAN", "[POSITION] RULE...", "POSITION|RULE...", "STATES", "TARGET",
}  # fmt: skip


def completions(line: str) -> list[tuple[str, str]]:
    """(type, value) of what the shell may put for the last word of *line*."""
    name, *words, last = line.split(" ")
    group = {"hitables": main, "sflgen": sflgen}[name]
    items = ShellComplete(group, {}, name, "_COMPLETE").get_completions(words, last)
    return [(item.type, item.value) for item in items]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("hitables compi", [("plain", "compile")]),
        ("hitables bench c", [("plain", "classify")]),
        ("sflgen re", [("plain", "repair")]),
        ("hitables compile --repo", [("plain", "--report")]),
        ("hitables compile --backend n", [("plain", "nft")]),
        ("hitables compile off", [("file", "off")]),
        ("hitables compile a.rules -o ", [("file", "")]),
        ("hitables compile --report c", [("file", "c")]),
        ("hitables check a b", [("file", "b")]),
        ("hitables check --against a.rules b", [("file", "b")]),
        ("hitables stats a b ", [("file", "")]),
        ("hitables apply a b", [("file", "b")]),
        ("hitables check --state /var", [("dir", "/var")]),
        ("hitables release n", [("plain", "nat")]),
        ("hitables diff --table m", [("plain", "mangle")]),
        ("sflgen sync new", [("file", "new")]),
        ("sflgen init --state d", [("dir", "d")]),
        ("hitables compile --chain F", []),
    ],
)
def test_a_word_is_completed(line: str, expected: list[tuple[str, str]]) -> None:
    assert completions(line) == expected


def parameters(group: click.Group) -> Iterator[tuple[click.Command, click.Parameter]]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from parameters(command)
        else:
            yield from ((command, parameter) for parameter in command.params)


@pytest.mark.parametrize("group", [main, sflgen], ids=["hitables", "sflgen"])
def test_every_value_of_text_completes_or_is_no_path(group: click.Group) -> None:
    for command, parameter in parameters(group):
        if isinstance(parameter.type, click.types.StringParamType) and not getattr(
            parameter, "hidden", False
        ):
            items = parameter.shell_complete(click.Context(command), "")
            shown = parameter.metavar or (parameter.name or "").upper()
            assert items or shown in OTHER_VALUES, (command.name, shown)


def test_bash_completes_a_command(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("hitables")
    script = f"""
        eval "$(_HITABLES_COMPLETE=bash_source {command})"
        COMP_WORDS=({command} comp) COMP_CWORD=1
        _hitables_completion {command}
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert (done.stdout, done.stderr) == ("compile\n", "")

"""The help of every command of sflgen: options in sections, explained by verbs, examples, 80 columns."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from hitables.cli.help import Command, Group, Option
from sflgen.cli import SECTIONS, main

each_command = pytest.mark.parametrize("name", main.commands)
COMMANDS: dict[str, click.Command] = {"": main, **main.commands}


def help_of(name: str) -> str:
    arguments = [name, "--help"] if name else ["--help"]
    done = CliRunner().invoke(main, arguments, prog_name="sflgen", terminal_width=80)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_cuts_no_sentence_off(name: str) -> None:
    lines = help_of(name).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith("...") for line in lines[1:])


@each_command
def test_every_option_has_a_section_and_an_explanation(name: str) -> None:
    options = [each for each in main.commands[name].params if isinstance(each, click.Option)]
    for each in options:
        assert isinstance(each, Option) and each.help, each
        assert each.help[0].isupper() and each.help.endswith("."), each
        assert each.is_flag or isinstance(each.type, click.Choice) or each.metavar, each
    assert all(f"\n{each.section}:\n" in help_of(name) for each in options if isinstance(each, Option))


@each_command
def test_the_state_is_required_unless_the_environment_names_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The help does not call it required and give a default at once."""
    assert "required unless" in help_of(name) and "[required]" not in help_of(name)
    words = ["INPUT", "-j", "DROP"] if name in ("insert", "delete") else ["none"]
    words = [] if name in ("status", "print", "verify", "stream", "repair", "hot") else words
    monkeypatch.delenv("SFLGEN_STATE", raising=False)
    done = CliRunner().invoke(main, [name, *words])
    assert done.exit_code == 2 and "'--state'. Give it, or set SFLGEN_STATE." in done.stderr, done.stderr
    monkeypatch.setenv("SFLGEN_STATE", "there")
    with main.commands[name].make_context(name, words) as context:
        assert context.params["folder"] == "there"


def test_every_command_has_a_section() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(main.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_two_examples_of_each_command_are_valid(name: str) -> None:
    """Their words are parsed, options and all; the files need not exist."""
    shown = COMMANDS[name]
    assert isinstance(shown, Command | Group) and len(shown.examples) == 2
    for _, line in shown.examples:
        words = shlex.split(
            line.partition("sflgen ")[2].partition(" | ")[0].partition(" <")[0].partition(" >")[0]
        )
        assert words[0] == name or not name
        main.commands[words[0]].make_context("sflgen", words[1:])

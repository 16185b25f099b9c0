"""The help of every command: options in sections, explained by verbs, examples that can be given, 80 columns."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from hitables.cli.help import Command, Group, Option
from hitables.cli.main import SECTIONS, main


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, each in group.commands.items():
        if isinstance(each, click.Group):
            yield from commands(each, (*path, name))
        else:
            yield (*path, name), each


COMMANDS = dict(commands(main))
GROUPS = {(name,): each for name, each in main.commands.items() if isinstance(each, click.Group)}
each_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


def help_of(*path: str) -> str:
    done = CliRunner().invoke(main, [*path, "--help"], prog_name="hitables", terminal_width=80)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("path", [(), *GROUPS, *COMMANDS], ids=" ".join)
def test_help_fits_80_columns_and_cuts_no_sentence_off(path: tuple[str, ...]) -> None:
    lines = help_of(*path).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith("...") for line in lines[1:])


@each_command
def test_every_option_shown_has_a_section_and_an_explanation(path: tuple[str, ...]) -> None:
    options = [each for each in COMMANDS[path].params if isinstance(each, click.Option) and not each.hidden]
    for each in options:
        assert (
            isinstance(each, Option) and each.help and each.help[0].isupper() and each.help.endswith(".")
        ), each
        assert each.is_flag or isinstance(each.type, click.Choice) or each.metavar, (
            f"{each.name} has no metavar"
        )
    titles = {each.section for each in options}
    assert all(f"\n{title}:\n" in help_of(*path) for title in titles)


def test_every_command_has_a_section() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(main.commands)


def test_a_backend_can_be_found() -> None:
    assert '"iptables -V"' in help_of()
    for path, each in COMMANDS.items():
        if any(parameter.name == "backend" for parameter in each.params):
            assert '"iptables -V" prints yours' in " ".join(help_of(*path).split())


@pytest.mark.parametrize("path", [(), *GROUPS, *COMMANDS], ids=" ".join)
def test_two_examples_of_each_command_can_be_given(path: tuple[str, ...]) -> None:
    """Their words are parsed, options and all; the files need not exist."""
    shown = {(): main, **GROUPS, **COMMANDS}[path]
    assert isinstance(shown, Command | Group) and len(shown.examples) == 2
    for _, line in shown.examples:
        named = [parse(words[1:]) for words in in_pipeline(line) if words[0] == "hitables"]
        assert any(each[: len(path)] == path for each in named)


def in_pipeline(line: str) -> Iterator[list[str]]:
    """The words of each command of a pipeline; files that it writes are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, "|"]:
        if word in ("|", ">"):
            yield words
            words = []
        else:
            words.append(word)


def parse(words: list[str]) -> tuple[str, ...]:
    """The command that *words* name; click.UsageError for an option that it does not have."""
    path = next(path for path in COMMANDS if words[: len(path)] == list(path))
    COMMANDS[path].make_context("hitables", words[len(path) :])
    return path


@pytest.mark.parametrize(
    ("path", "alias", "name"),
    [
        (("compile",), "--no-verify", "--no-prove"),
        (("compile",), "--binth", "--leaf-size"),
        (("compile",), "--alike", "--uniform"),
        (("check",), "--seed", "--random-seed"),
        (("generate",), "--random", "--random-seed"),
        (("stats",), "--chain", "--through"),
        (("bench", "kernel"), "--against", "--rivals"),
    ],
)
def test_an_old_spelling_is_taken_and_not_shown(path: tuple[str, ...], alias: str, name: str) -> None:
    (option,) = (each for each in COMMANDS[path].params if name in each.opts)
    assert alias in option.opts
    text = help_of(*path)
    assert name in text and alias not in text.replace(name, "").split()


@pytest.mark.parametrize(
    ("path", "option"),
    [
        (("check",), "--verdict-only"),
        (("stats",), "--json"),
        (("convert",), "--from"),
        (("convert",), "--to"),
    ],
)
def test_an_option_that_was_replaced_is_hidden(path: tuple[str, ...], option: str) -> None:
    (hidden,) = (each for each in COMMANDS[path].params if option in each.opts)
    assert isinstance(hidden, click.Option) and hidden.hidden and option not in help_of(*path)

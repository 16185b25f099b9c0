"""Write a manual page of each command of hitables and sflgen: `python tools/man_pages.py FOLDER`.

A page says what `--help` says, so it is made of the command itself: hitables(1) lists the commands, and
hitables-compile(1) has the options of one.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from hitables.cli.help import Group
from hitables.cli.main import main as hitables
from hitables.version import __version__
from sflgen.cli import main as sflgen

PROGRAMS = {"hitables": hitables, "sflgen": sflgen}

SECTION_OF_HELP = "Help"  # the options that every command has, behind all others

# What the exit status of any command means; the help of a command may say more.
EXIT_STATUS = (
    ("0", "Done, and nothing was found."),
    ("1", "Something was found: rule sets differ, a rule is useless, the kernel holds other rules."),
    ("2", "An error, or no answer could be found. The message says why."),
    ("130", "The command was interrupted by Ctrl-C."),
)


def quoted(text: str) -> str:
    """*text* as it is printed: no character of it is a command of roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha")
    text = text.replace("~", "\\(ti").replace("`", "\\(ga").replace('"', "\\(dq")
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in text.split("\n"))


def paragraphs(help_text: str | None) -> Iterator[str]:
    """The paragraphs of a help text, each in one line."""
    for paragraph in textwrap.dedent(help_text or "").strip().split("\n\n"):
        yield " ".join(paragraph.split())


def page(context: click.Context) -> str:
    """The page of one command."""
    command, name = context.command, context.command_path.replace(" ", "-")
    described = list(paragraphs(command.help))
    lines = [
        f'.TH {quoted(name.upper())} 1 "" "hitables {__version__}" "User Commands"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{quoted(name)} \\- {quoted(described[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {quoted(context.command_path)}",
        quoted(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *(line for text in described for line in (".PP", quoted(text))),
    ]
    if isinstance(command, Group):
        lines += commands(command, context)
    sections: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            title = SECTION_OF_HELP if parameter.is_eager else getattr(parameter, "section", "Options")
            names, text = record
            sections.setdefault(title, []).extend((".TP", f".B {quoted(names)}", quoted(text)))
    lines.append(".SH OPTIONS")
    for title in sorted(sections, key=lambda title: title == SECTION_OF_HELP):
        lines += [f".SS {quoted(title)}", *sections[title]]
    examples = getattr(command, "examples", ())
    if examples:
        lines.append(".SH EXAMPLES")
        for purpose, line in examples:
            lines += [".PP", f"{quoted(purpose)}:", ".PP", ".RS 4", ".nf", quoted(line), ".fi", ".RE"]
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT_STATUS:
        lines += [".TP", f".B {status}", quoted(meaning)]
    lines += [".SH SEE ALSO", see_also(context)]
    return "\n".join(lines) + "\n"


def commands(group: Group, context: click.Context) -> Iterator[str]:
    """The commands of a program, by the sections of its help."""
    yield ".SH COMMANDS"
    titles = {name: title for title, names in group.sections.items() for name in names}
    shown = ""
    for name in group.list_commands(context):
        if group.commands[name].hidden:
            continue
        title = titles.get(name, "Commands")
        if title != shown:
            yield f".SS {quoted(title)}"
            shown = title
        yield from (".TP", f".B {quoted(name)}", quoted(group.commands[name].get_short_help_str(limit=200)))


def see_also(context: click.Context) -> str:
    """Pages beside this one: of the commands of a group, or of the program of a command."""
    command = context.command
    if isinstance(command, Group):
        path = context.command_path.replace(" ", "-")
        below = [f"{path}-{name}" for name in command.list_commands(context)]
        others = [name for name in PROGRAMS if name != context.command_path]
        names = [*below, *others] if context.parent is None else below
    else:
        assert context.parent is not None, "a program has commands"
        names = [context.parent.command_path.replace(" ", "-")]
    *first, last = names
    return "\n".join([*(f".BR {quoted(name)} (1)," for name in first), f".BR {quoted(last)} (1)"])


def every(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """The contexts of a command and of all commands below."""
    context = click.Context(command, parent, info_name=name, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            if not command.commands[below].hidden:
                yield from every(command.commands[below], below, context)


def write(folder: Path) -> list[Path]:
    """Write all pages into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, program in PROGRAMS.items():
        for context in every(program, name):
            path = folder / f"{context.command_path.replace(' ', '-')}.1"
            path.write_text(page(context), encoding="utf-8")
            written.append(path)
    return written


if __name__ == "__main__":
    print(f"{len(write(Path(sys.argv[1])))} manual pages in {sys.argv[1]}")

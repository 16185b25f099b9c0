"""Help of the commands of hitables and sflgen: options under titles, then examples.

`argument`, `option` and `section` give a command its parameters; `Command` and `Group` write the help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from .completion import Completed

# Option names wider than this get a line of their own, as click has it.
NAMES_WIDTH = 26

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Argument(Completed, click.Argument):
    """An argument of a command."""


class Option(Completed, click.Option):
    """An option with a *section* of the help, and *aliases*: old spellings that work but are not shown."""

    def __init__(self, names: Sequence[str], aliases: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__([*names, *aliases], **attributes)
        self.section = "Options"
        self.aliases = frozenset(aliases)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        # click shows all of self.opts.
        every, self.opts = self.opts, [name for name in self.opts if name not in self.aliases]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = every

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Refuse an empty value, and the next option as the value: a variable of a script was not set."""
        given = opts.get(self.name or "")
        values = given if isinstance(given, list | tuple) else (given,)
        if not ctx.resilient_parsing and "" in values:
            raise click.BadParameter("an empty value; leave the option out if you mean none", ctx, self)
        for taken in _option_names(ctx.command).intersection(filter(_is_text, values)):
            raise click.BadParameter(f"its value is missing: {taken} is the next option", ctx, self)
        return super().handle_parse_result(ctx, opts, args)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The option's name in an error message: the one that the help shows."""
        shown = [name for name in self.opts if name not in self.aliases]
        return " / ".join(f"'{name}'" for name in shown)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _option_names(command: click.Command) -> set[str]:
    """The names of all its options, as in --format."""
    return {name for each in command.params if isinstance(each, click.Option) for name in each.opts}


def argument(name: str, **attributes: Any) -> Decorator:
    """Like click.argument; the shell completes files and tables."""
    return click.argument(name, cls=Argument, **attributes)


def option(*names: str, aliases: Sequence[str] = (), **attributes: Any) -> Decorator:
    """Like click.option; *aliases* are further spellings that the help does not show."""
    return click.option(*names, cls=Option, aliases=aliases, **attributes)


def section(title: str, *options: Decorator) -> Decorator:
    """Give a command these options, which its help lists under *title*."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for add_option in reversed(options):
            function = add_option(function)
            added = function.__click_params__[-1]  # type: ignore[attr-defined]
            assert isinstance(added, Option), "a section takes what `option` returns"
            added.section = title
        return function

    return add


class _Help(click.Command):
    """A command whose help lists options by section, and then examples.

    examples  pairs of a purpose and the command line that serves it
    """

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record is not None:
                title = "Help" if parameter.is_eager else getattr(parameter, "section", "Options")
                sections.setdefault(title, []).append(record)
        general = {title: sections.pop(title) for title in ("Help",) if title in sections}
        _write_sections(sections | general, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for purpose, line in self.examples:
                    formatter.write_text(f"{purpose}:")
                    formatter.write(f"{'':{formatter.current_indent + 2}}{line}\n")
        super().format_epilog(ctx, formatter)


def _write_sections(
    sections: Mapping[str, Sequence[tuple[str, str]]], formatter: click.HelpFormatter
) -> None:
    """Write titled lists of names and explanations, with the explanations of all lists in one column."""
    names = [name for records in sections.values() for name, _ in records]
    width = min(NAMES_WIDTH, max(map(len, names), default=0))
    for title, records in sections.items():
        (name, text), *others = records
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), text), *others], col_max=NAMES_WIDTH)


class Command(_Help):
    """One command of a program."""


def command(
    name: str | None = None, cls: type[Command] = Command, **attributes: Any
) -> Callable[[Callable[..., Any]], Command]:
    """Like click.command, with *examples*."""
    return click.command(name, cls=cls, **attributes)


class Group(_Help, click.Group):
    """A group of commands whose help lists them by section; *sections* maps titles to names of commands."""

    command_class = Command

    def __init__(
        self, *args: Any, sections: Mapping[str, Sequence[str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the help: by section, then those that are in none."""
        ordered = [name for names in self.sections.values() for name in names if name in self.commands]
        return [*ordered, *sorted(set(self.commands) - set(ordered))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titles = {name: title for title, names in self.sections.items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            each = self.commands[name]
            if not each.hidden:
                sections.setdefault(titles.get(name, "Commands"), []).append(
                    (name, each.get_short_help_str(limit=formatter.width - NAMES_WIDTH))
                )
        _write_sections(sections, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        formatter.write(f'\n"{ctx.command_path} COMMAND --help" shows the options of a command.\n')


Group.group_class = Group

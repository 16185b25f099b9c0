"""Shared by the commands of hitables and sflgen: exit statuses, help in sections, common options.

`Commands` is the group of a program; it turns every error into a message and an exit status.  Invariant:
exit status 1 is an answer ("they differ") and only `Differ` causes it; an error is 2, an interrupt 130.
`Command` and `section` write the help: options under titles, then examples.  Nothing here loads what a
command needs, because `--help` must stay quick.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from .. import interrupts
from ..errors import HitablesError
from ..interrupts import INTERRUPTED
from .streams import all_written, discard, open_streams, system_error

if TYPE_CHECKING:
    from ..ir.fields import Family
    from ..ir.program import Program
    from ..simulate.batch import PacketBatch

TROUBLE = 2  # the exit status of every error


class Differ(SystemExit):
    """The only exception that ends a command with status 1, which callers read as an answer."""

    def __init__(self) -> None:
        super().__init__(1)


# ---- help ----

# Option names wider than this get a line of their own, as click has it.
NAMES_WIDTH = 26

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Option(click.Option):
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
        """Refuse an empty value: a variable of a script that was not set."""
        given = opts.get(self.name or "")
        if not ctx.resilient_parsing and (given == "" or (isinstance(given, list | tuple) and "" in given)):
            raise click.BadParameter("an empty value; leave the option out if you mean none", ctx, self)
        return super().handle_parse_result(ctx, opts, args)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The option's name in an error message: the one that the help shows."""
        shown = [name for name in self.opts if name not in self.aliases]
        return " / ".join(f"'{name}'" for name in shown)


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


# ---- errors and exit statuses ----


class Commands(Group):
    """The commands of a program, named like it: every error becomes a message and an exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        open_streams()
        kwargs["standalone_mode"] = False  # messages and exit status are chosen here, not by click
        try:
            status = super().main(*args, **kwargs)
        except Differ:
            raise
        except click.ClickException as error:  # an error in the arguments of the group itself
            status = self._show(error)
        except (click.Abort, KeyboardInterrupt):
            status = self._interrupted()
        except SystemExit as end:
            # click exits with 1 when a pipe breaks while it prints an error.
            status = TROUBLE if end.code == 1 else end.code
        except OSError as error:
            # Standard output cannot take the help or the version; or standard error is full.
            with contextlib.suppress(OSError):
                self.warn(str(system_error(error) or error))
            discard(sys.stdout)
            status = self._without_message()
        if status != INTERRUPTED and not all_written():
            status = TROUBLE
        raise SystemExit(status)

    def _show(self, error: click.ClickException) -> int:
        try:
            error.show()
        except OSError:
            return self._without_message()
        return TROUBLE

    def _interrupted(self) -> int:
        interrupts.answered()
        try:
            self.warn("interrupted")
        except OSError:
            self._without_message()
        return INTERRUPTED

    def _without_message(self) -> int:
        """The status for an error when standard error is full or closed."""
        discard(sys.stderr)
        return TROUBLE

    def invoke(self, ctx: click.Context) -> Any:
        # The process ends after one command, so the collector would only walk live objects
        # (a sixth of the time of compiling 10,000 rules).
        collecting = gc.isenabled()
        gc.disable()
        try:
            super().invoke(ctx)
            interrupts.check()
            return None  # click would return a status here
        except HitablesError as error:
            self.warn(str(error))
        except BrokenPipeError:
            discard(sys.stdout)
            self.warn("the reader of the output closed it")
        except MemoryError:
            self.warn("out of memory")
        except RecursionError:
            self.warn("the rule set nests too deep")
        except click.exceptions.Exit:
            raise
        except click.ClickException as error:
            error.show()
        except (click.Abort, KeyboardInterrupt):
            ctx.exit(self._interrupted())
        except Exception as error:
            if interrupts.is_pending():
                ctx.exit(self._interrupted())
            known = system_error(error)
            if known is not None:
                self.warn(str(known))
                ctx.exit(TROUBLE)
            if os.environ.get("HITABLES_DEBUG"):
                raise
            self.warn(
                f"a fault of {self.name}, not of your rules: {type(error).__name__}: {error}; "
                "please report it (HITABLES_DEBUG=1 shows where it happened)"
            )
        finally:
            if collecting:
                gc.enable()
        ctx.exit(TROUBLE)

    def warn(self, message: str) -> None:
        """Print a message to standard error, after the name of the program."""
        click.echo(f"{self.name}: {message}", err=True)


def keep(value: object) -> None:
    """Never free *value* if the process is that of a command, which is about to end.

    Freeing a large rule set object by object takes up to half a second.
    """
    if interrupts.is_watched():
        circle = [value]
        circle.append(circle)  # no count of references comes to 0,
        gc.freeze()  # and the collector, which runs at the end, does not look


# ---- values of options ----


def family_of(choice: str | None) -> Any:
    """The `Family` that --family names; None: guess it."""
    from ..ir.fields import Family

    return None if choice is None else Family(int(choice))


def read_program(file: str, family: str | None) -> Any:
    """The rule set in *file* ("-": standard input), as --family reads it."""
    from ..files import read_text

    return program_of(read_text(file), file, family)


def program_of(text: str, file: str, family: str | None) -> Any:
    """The rule set in *text*, that of *file*, as --family reads it."""
    from ..reader import read

    program = read(text, family=family_of(family), name=file)
    warn_of_unknown(program)
    warn_of_lost(program)
    return program


def read_packets(trace_file: str | None, pcap_file: str | None, family: Family) -> tuple[PacketBatch, str]:
    """The packets of the trace or else of the capture, and their source; what was left out is told."""
    from ..nouns import counted
    from ..simulate.traffic import pcap_batch, trace_batch

    if trace_file:
        return trace_batch(trace_file, family), trace_file
    assert pcap_file, "one of the two is given"
    batch, losses = pcap_batch(pcap_file, family)
    name = "standard input" if pcap_file == "-" else pcap_file
    if losses:
        program = click.get_current_context().find_root().command.name
        read = counted(len(batch), "packet")
        click.echo(f"{program}: {name}: {read} read; left out: {losses}", err=True)
    return batch, f"{name} (left out: {losses})" if losses else name


def warn_of_lost(program: Program) -> None:
    """Tell of tables that the text gives again, by which the rules of the earlier ones are lost."""
    from ..nouns import counted

    for table in program:
        for line, rules in table.replaced:
            click.echo(
                f"hitables: warning: {program.name}, line {table.line}: *{table.name} comes again, so "
                f"iptables-restore drops that of line {line}, with {counted(rules, 'rule')}; join the two",
                err=True,
            )


def warn_of_unknown(program: Program) -> None:
    """Tell of extensions that hitables keeps without knowing them, and whose names resemble known ones."""
    from ..parse.near_names import near_names

    for option, name, known in near_names(program):
        click.echo(
            f"hitables: warning: {program.name}: {option} {name} is not known, and kept as it is; "
            f"did you mean {known}?",
            err=True,
        )


class Number(click.FloatRange):
    """A number from *min* to 1e9: no nan, no inf, and none that makes a product overflow."""

    def __init__(self, min: float, min_open: bool = False) -> None:
        super().__init__(min, 1e9, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number: float = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):  # which compares as neither below nor above the bounds
            kind = "number of seconds" if param is not None and param.metavar == "SECONDS" else "number"
            bounds = f"above {self.min:g}, and up to 1e9" if self.min_open else f"from {self.min:g} to 1e9"
            self.fail(f"{value!r} is no {kind} {bounds}", param, ctx)
        return number

    def _describe_range(self) -> str:
        """For the help."""
        return f"{self.min:g}{'<' if self.min_open else '<='}x<=1e9"


class WholeNumber(click.IntRange):
    """A number without a fraction from *min* to *max*, or without end."""

    def __init__(self, min: int, max: int | None = None) -> None:
        super().__init__(min, max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            bounds = f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"{value!r} is no whole number {bounds}", param, ctx)
        return number


_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
LARGEST_SIZE = 1 << 50


class Size(click.ParamType[int]):
    """Bytes, as in 512M or 2G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT])(?:i?B)?", str(value), re.IGNORECASE)
        if match is None:
            self.fail(f"{value!r} is no size; write a number and K, M, G or T, as in 512M or 2G", param, ctx)
        size = float(match[1]) * (1 << _UNITS[match[2].upper()])
        if size < 1 << 20:
            self.fail(f"{value!r} is less than 1M, which is too little for anything", param, ctx)
        if size > LARGEST_SIZE:
            self.fail(f"{value!r} is more than 1024T, which no machine has", param, ctx)
        return int(size)


# ---- options that several commands have ----

# The help of every --backend ends with this hint.
FIND_BACKEND = '"iptables -V" prints yours.'

family_option = option(
    "--family",
    type=click.Choice(["4", "6"]),
    help="Read the rules as IPv4 or IPv6; by default this is guessed from the text and its name.",
)


def backend_option(
    help: str, choices: Sequence[str] = ("any", "legacy", "nft"), default: str = "any"
) -> Decorator:
    """--backend: which variant of iptables a command takes rules for; *help* is completed by FIND_BACKEND."""
    return option(
        "--backend",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help=f"{help} {FIND_BACKEND}",
    )


def output_option(help: str) -> Decorator:
    """-o, with standard output as the default."""
    return option("-o", "--output", default="-", metavar="FILE", help=f'{help}; "-": standard output.')


def timeout_option(help: str) -> Decorator:
    return option("--timeout", type=Number(0, min_open=True), metavar="SECONDS", help=help)


def max_memory_option(help: str) -> Decorator:
    return option("--max-memory", type=Size(), metavar="SIZE", help=f"{help} (512M, 2G).")


def costs_option(help: str = 'Model times with this profile of "hitables calibrate".') -> Decorator:
    return option("--costs", "costs_file", metavar="FILE", help=help)


# For commands that print a table or its data as JSON; `is_json` reads these options.
data_options = section(
    "Output",
    option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Print a table (text), or its data.",
    ),
    option("--json", "as_json", is_flag=True, hidden=True),
)


def is_json(form: str, as_json: bool) -> bool:
    """Whether --format json was given, or --json, its old spelling."""
    return as_json or form == "json"


leave_option = option(
    "--leave",
    metavar="PATTERN",
    multiple=True,
    help="Leave chains of this name to the program that manages them (DOCKER*, f2b-*), or those of docker, "
    "fail2ban, kube, calico, podman, libvirt, ufw, firewalld, crowdsec; may be repeated.",
)


def warn_of_leave(words: Sequence[str], programs: Sequence[Program]) -> None:
    """Tell of names of --leave that no chain of *programs* has."""
    from ..ir.foreign import unmatched

    tool = click.get_current_context().find_root().info_name
    for word, preset in unmatched(words, programs):
        hint = f"; did you mean {preset}?" if preset else ""
        click.echo(f"{tool}: warning: --leave {word}: no chain has this name{hint}", err=True)


state_option = option(
    "--state",
    "folder",
    default="/var/lib/hitables",
    show_default=True,
    envvar="HITABLES_STATE",
    metavar="DIR",
    help="Use the state in this directory ($HITABLES_STATE).",
)

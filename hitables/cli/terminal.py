"""Shared by the commands of hitables and sflgen: exit statuses, help in sections, progress, options.

`Commands` is the group of a program; it turns every error into a message and an exit status.  Invariant:
exit status 1 is an answer ("they differ") and only `Differ` causes it; an error is 2, an interrupt 130.
`Command` and `section` write the help: options under titles, then examples.  Nothing here loads what a
command needs, because `--help` must stay quick.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click

from .. import interrupts
from ..errors import HitablesError
from ..files import trouble
from ..interrupts import INTERRUPTED

TROUBLE = 2


BYTES_OR_ESCAPES = "hitables-bytes"


def _bytes_or_escapes(error: UnicodeError) -> tuple[str | bytes, int]:
    """Bytes that are no text as they came; a letter that the terminal's encoding lacks as its escape."""
    assert isinstance(error, UnicodeEncodeError)
    letter = error.object[error.start]
    if "\udc80" <= letter <= "\udcff":
        return letter.encode("utf-8", "surrogateescape"), error.start + 1
    return letter.encode("ascii", "backslashreplace"), error.start + 1


codecs.register_error(BYTES_OR_ESCAPES, _bytes_or_escapes)


class Differ(SystemExit):
    """The only way to exit with 1: whoever reads the status takes it for an answer."""

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
        every, self.opts = self.opts, [name for name in self.opts if name not in self.aliases]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = every


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
                sections.setdefault(getattr(parameter, "section", "Help"), []).append(record)
        general = {"Help": sections.pop("Help")}
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


def command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Like click.command, with *examples*."""
    return click.command(name, cls=Command, **attributes)


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
        _hold_streams()
        kwargs["standalone_mode"] = False  # what click would say, and the status, are ours
        try:
            status = super().main(*args, **kwargs)
        except Differ:
            raise
        except click.ClickException as error:  # in what the group itself was given
            status = self._shown(error)
        except (click.Abort, KeyboardInterrupt):
            status = self._interrupted()
        except SystemExit as end:
            # click has 1 for a pipe that breaks while it tells of an error.
            status = TROUBLE if end.code == 1 else end.code
        except OSError as error:
            # Help or version that standard output does not take; or standard error is full.
            with contextlib.suppress(OSError):
                self.tell(str(_named_trouble(error) or error))
            _unheard(sys.stdout)
            status = self._unheard_of()
        if status != INTERRUPTED and not _all_written():
            status = TROUBLE
        raise SystemExit(status)

    def _shown(self, error: click.ClickException) -> int:
        try:
            error.show()
        except OSError:
            return self._unheard_of()
        return TROUBLE

    def _interrupted(self) -> int:
        interrupts.answered()
        try:
            self.tell("interrupted")
        except OSError:
            self._unheard_of()
        return INTERRUPTED

    def _unheard_of(self) -> int:
        """Standard error is full or closed: the status alone tells."""
        _unheard(sys.stderr)
        return TROUBLE

    def invoke(self, ctx: click.Context) -> Any:
        # One command, then the process ends; the collector would only walk what stays
        # (a sixth of the time of compiling 10,000 rules).
        collecting = gc.isenabled()
        gc.disable()
        try:
            super().invoke(ctx)
            interrupts.check()
            return None  # a status would be given back in its place
        except HitablesError as error:
            self.tell(str(error))
        except BrokenPipeError:
            _unheard(sys.stdout)  # nobody reads any more
            self.tell("the reader of the output closed it")
        except MemoryError:
            self.tell("out of memory")
        except RecursionError:
            self.tell("the rule set nests too deep")
        except click.exceptions.Exit:
            raise
        except click.ClickException as error:
            error.show()
        except (click.Abort, KeyboardInterrupt):
            ctx.exit(self._interrupted())
        except Exception as error:
            said = _named_trouble(error)
            if said is not None:
                self.tell(str(said))
                ctx.exit(TROUBLE)
            if os.environ.get("HITABLES_DEBUG"):
                raise
            self.tell(
                f"a fault of {self.name}, not of your rules: {type(error).__name__}: {error}; "
                "please report it (HITABLES_DEBUG=1 shows where it happened)"
            )
        finally:
            if collecting:
                gc.enable()
        ctx.exit(TROUBLE)

    def tell(self, said: str) -> None:
        """On standard error, as the program's word."""
        click.echo(f"{self.name}: {said}", err=True)


def _hold_streams() -> None:
    """Put something behind the standard streams that are closed, and let bytes that are no text through them.

    A closed descriptor would be given to the next file that is opened, and that would get what is
    meant for the stream.  Writing to a closed standard output fails from now on; what is told on a
    closed standard error is lost.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            held = os.open(os.devnull, flags)  # the lowest that is free is this one
            if held != number:
                os.dup2(held, number)
                os.close(held)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(1, "standard output", sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(2, "standard error", sys.stderr)


class _Named(io.FileIO):
    """A descriptor whose errors say which stream it is: `OSError.filename`."""

    def __init__(self, number: int, label: str) -> None:
        super().__init__(number, "w", closefd=False)
        self.label = label

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.label
            raise


def _stream(number: int, label: str, before: TextIO | None) -> TextIO:
    """A text stream to the descriptor *number*, of the encoding that Python's own had."""
    encoding = before.encoding if before is not None else "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(_Named(number, label)),
        encoding,
        BYTES_OR_ESCAPES,
        line_buffering=number == 2 or os.isatty(number),
    )


def _named_trouble(error: BaseException) -> HitablesError | None:
    """The message for an error of the system that names its file or stream; None for any other."""
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return trouble(os.fsdecode(error.filename), error)
    return None


def _all_written() -> bool:
    """Whether standard output has taken all that it was given; if not, Python's end must not fail by it."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _unheard(sys.stdout)
        return False
    return True


def _unheard(stream: TextIO | None) -> None:
    """What is left to write, or written later, must not fail again at exit, which would be another status."""
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):  # it is closed, or no file of the system
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Stages:
    """Hears which stage runs, and how much of it is done."""

    def __call__(self, stage: str) -> None:
        """The stage begins."""

    def done(self, share: float) -> None:
        """So much of it is done, of 1."""


class _Bar(Stages):
    """Shows it, once the command takes more than a second."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.progress.add_task("starting", total=None)
        self.began = time.monotonic()

    def __call__(self, stage: str) -> None:
        self.progress.reset(self.task, start=False, total=None, description=stage)
        self.progress.start_task(self.task)
        self.show()

    def done(self, share: float) -> None:
        self.progress.update(self.task, total=1.0, completed=share)
        self.show()

    def show(self) -> None:
        if not self.progress.live.is_started and time.monotonic() - self.began > 1:
            self.progress.start()


@contextmanager
def stages(quiet: bool = False) -> Iterator[Stages]:
    """Tells which stage runs: on a terminal only, and not when *quiet*."""
    if quiet or not sys.stderr.isatty():
        yield Stages()
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.progress.stop()


def family_of(choice: str | None) -> Any:
    """The `Family` that --family names; None: guess it."""
    from ..ir.fields import Family

    return None if choice is None else Family(int(choice))


def read_program(file: str, family: str | None) -> Any:
    """The rule set in *file* ("-": standard input), as --family reads it."""
    from ..files import read_text
    from ..reader import read

    return read(read_text(file), family=family_of(family), name=file)


class Number(click.FloatRange):
    """A number from *min* to 1e9: no nan, no inf, and none that makes a product overflow."""

    def __init__(self, min: float, min_open: bool = False) -> None:
        super().__init__(min, 1e9, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if number != number:  # nan, which compares as neither below nor above the bounds
            self.fail(f"{value!r} is no number", param, ctx)
        return number

    def _describe_range(self) -> str:
        """For the help: the lower bound alone, as the upper one only excludes nonsense."""
        return f"x{'>' if self.min_open else '>='}{self.min:g}"


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

# Where a command has a backend, its help says how to find one's own.
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


# Commands that print a table for people, or its data as JSON; `is_json` says which.
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

"""What the commands of hitables and sflgen share: exit statuses, what is told while they work, options.

Every error becomes a message and an exit status.  Exit 1 is an answer ("they differ") and is left to
`Differ` alone; trouble is 2, an interrupt (Ctrl-C) 130.
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
from collections.abc import Iterator
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


class Commands(click.Group):
    """Turns every error into a message and an exit status; the group's name is the program's."""

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
    from ..ir.fields import Family

    return None if choice is None else Family(int(choice))


family_option = click.option(
    "--family", type=click.Choice(["4", "6"]), help="IP version of the rule set; guessed when left out."
)


class Number(click.FloatRange):
    """A number from *least* to 1e9: no nan, no inf, and none that makes a product overflow."""

    def __init__(self, least: float, min_open: bool = False) -> None:
        super().__init__(least, 1e9, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if found != found:  # nan, which is below nothing and above nothing
            self.fail(f"{value!r} is no number", param, ctx)
        return found


_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}


LARGEST_SIZE = 1 << 50


class Size(click.ParamType[int]):
    """Bytes, as in 512M or 2G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT])(?:i?B)?", str(value), re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is no size; write a number and K, M, G or T, as in 512M or 2G", param, ctx)
        size = float(found[1]) * (1 << _UNITS[found[2].upper()])
        if size < 1 << 20:
            self.fail(f"{value!r} is less than 1M, which is too little for anything", param, ctx)
        if size > LARGEST_SIZE:
            self.fail(f"{value!r} is more than 1024T, which no machine has", param, ctx)
        return int(size)

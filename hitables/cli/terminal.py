"""How a program of this package ends: its messages and its exit statuses.

`Commands` is the group of a program; it turns every error into a message and an exit status.  Invariant:
exit status 1 is an answer ("they differ") and only `Differ` causes it; an error is 2, an interrupt 130, and
a closed output of a command that only prints 141.
Nothing here loads what a command needs, because `--help` must stay quick.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import Any

import click

from .. import interrupts
from ..errors import HitablesError
from ..interrupts import INTERRUPTED
from .help import Command, Group
from .streams import STANDARD_OUTPUT, all_written, discard, open_streams, system_error

_BIN = ("/usr/local/bin", "/usr/bin", "/bin")
TROUBLE = 2  # the exit status of every error
ENOUGH_READ = 128 + signal.SIGPIPE  # as a shell reports a program that a closed pipe ended


class Differ(SystemExit):
    """The only exception that ends a command with status 1, which callers read as an answer."""

    def __init__(self) -> None:
        super().__init__(1)


class Printer(Command):
    """A command that only prints: it ends without a message when a reader such as `head` has enough.

    With --repair it does more, and a closed output is told like that of other commands.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if error.filename != STANDARD_OUTPUT or ctx.params.get("repair"):
                raise
            discard(sys.stdout)
            raise SystemExit(ENOUGH_READ) from None


def _find_tools_of_root() -> None:
    """Look into the sbin beside each usual bin of the path: cron's has none, where iptables is."""
    folders = (os.environ.get("PATH") or os.defpath).split(os.pathsep)
    beside = [f"{each.removesuffix('bin')}sbin" for each in folders if each in _BIN]
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys((*folders, *beside)))


class Commands(Group):
    """The commands of a program, named like it: every error becomes a message and an exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        open_streams()
        _find_tools_of_root()
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

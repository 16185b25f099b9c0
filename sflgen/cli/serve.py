"""`sflgen stream`: the state in memory, and a session that answers commands."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hitables import interrupts
from hitables.cli.help import command, option, section

from .options import live_option, state_section, warn

# Seconds after which a thread yields to the other; Python's 5 ms are half an update.
SWITCH_INTERVAL = 2e-4


@command(
    short_help="Answer commands line by line, with the state in memory.",
    examples=(
        (
            "Load each update into the kernel, from many clients",
            "sflgen stream --live --state /var/lib/sflgen --socket /run/sflgen.sock",
        ),
        (
            "Print the patch of each command of a file",
            "sflgen stream --state office < changes.txt",
        ),
    ),
)
@state_section
@section(
    "Input",
    option(
        "--socket", "path", metavar="PATH", help="Listen on a Unix socket instead of reading standard input."
    ),
)
@section(
    "Patch",
    live_option,
    option(
        "--prove/--no-prove",
        "proving",
        default=True,
        show_default=True,
        help="Prove each patch before it is printed or loaded, or skip the proofs.",
    ),
)
def stream(folder: str, live: bool, path: str | None, proving: bool) -> None:
    """Answer each command of the input with its patch and "ok VERSION", and keep the state in memory.

    A line is an iptables command, "begin" or "commit" around the commands of one patch, "fold [TABLE
    CHAIN]", "status" or "quit". From "begin" to "commit" only "commit" is answered, for all of them; "quit"
    is not. What cannot be performed is answered with "error REASON", and changes nothing.
    """
    import gc

    from hitables.files import check_standard_output, write_text

    from ..commit import finish_commit
    from ..kernel import Kernel
    from ..repair import check
    from ..server import over_lines, over_socket
    from ..session import Session
    from ..store import Store

    def report(message: str) -> None:
        click.echo(message, err=True)

    if path is None:
        check_standard_output()
    with Store.open(Path(folder)) as store:
        kernel = Kernel(store.state.master.family, store.state.settings, stays=True) if live else None
        if kernel is not None:
            warn(kernel)
            finish_commit(store, kernel)
            check(kernel, store, report, [])
        # Short commands run without the garbage collector.  This one may run for months; but updates
        # leave no reference cycles, so a collection is rarely needed.
        gc.freeze()
        gc.set_threshold(200_000, 20, 100)
        gc.enable()
        sys.setswitchinterval(SWITCH_INTERVAL)
        session = Session(store, kernel, proving, report)
        try:
            with interrupts.terminated():
                if path is not None:
                    over_socket(session, Path(path), lambda: click.echo(f"listening on {path}", err=True))
                elif sys.stdin is None:
                    raise click.UsageError("standard input is closed: give commands there, or a --socket")
                else:
                    over_lines(session, sys.stdin, lambda answer: write_text("-", answer))
        except KeyboardInterrupt:
            interrupts.answered()
            click.echo("stopped", err=True)
        finally:
            session.close()

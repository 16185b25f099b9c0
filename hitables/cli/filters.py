"""`hitables filters`: filters with actions and events, on a Unix socket."""

from __future__ import annotations

import shlex
from typing import Any

import click

from ..errors import HitablesError
from .help import argument, command, option, section
from .options import max_memory_option
from .values import IntParam


class Mode(IntParam):
    """The mode of a file, as in 0660."""

    name = "mode"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        digits = str(value)
        if not (3 <= len(digits) <= 4 and set(digits) <= set("01234567") and int(digits, 8) <= 0o777):
            self.fail(f"{value!r} is no mode of a file; write it as 0600 or 0660", param, ctx)
        return int(digits, 8)


socket_option = option(
    "--socket", "path", required=True, metavar="PATH", help="Use the Unix socket at this path."
)


@command(
    short_help="Keep filters in memory, and answer clients on a socket.",
    examples=(
        (
            "Let the group adm control these filters",
            "hitables filters serve --socket f.sock --mode 0660 --group adm web.filters",
        ),
        (
            "Decide on the packets of eth0, in user space",
            "hitables filters serve --socket f.sock --capture eth0 web.filters",
        ),
    ),
)
@argument("filters_file", metavar="[FILTERS]", required=False)
@section(
    "Socket",
    socket_option,
    option(
        "--mode",
        type=Mode(),
        default="0600",
        show_default=True,
        metavar="MODE",
        help="Give the socket this mode: who may write to it may connect.",
    ),
    option("--group", metavar="NAME", help="Give the socket this group."),
)
@section(
    "Filters",
    option(
        "--algorithm",
        metavar="PLAN",
        default="tss",
        show_default=True,
        help='Search with this plan of "hitables algorithms".',
    ),
    option(
        "--family",
        type=click.Choice(["4", "6"]),
        default="4",
        show_default=True,
        help="Take filters and packets of IPv4 or IPv6.",
    ),
    option(
        "--room",
        metavar="N",
        type=click.IntRange(1, 1 << 24),
        default=65536,
        show_default=True,
        help="Keep this many events for clients that are late; older ones are lost, and counted.",
    ),
    max_memory_option("Use at most this much memory for filters and events"),
)
@section(
    "Packets",
    option("--capture", "interface", metavar="NAME", help="Decide on the packets of this interface."),
)
def serve(
    filters_file: str | None,
    path: str,
    mode: int,
    group: str | None,
    algorithm: str,
    family: str,
    room: int,
    max_memory: int | None,
    interface: str | None,
) -> None:
    """Keep filters with actions in memory, and answer the clients of a Unix socket.

    A line of FILTERS is PRIORITY ACTION FIELD VALUE..., as in "10 allow dst
    192.0.2.0/24 proto tcp dport 80". Actions: allow, deny, add_event, allow_event;
    a packet that matches no filter is dropped. Commands: insert, delete,
    change, list, classify, monitor, status, quit. With --capture, packets of an interface are
    classified and cause events; they themselves go their way.
    """
    from pathlib import Path

    from .. import interrupts
    from ..engine import Filters
    from ..files import read_text
    from ..filters.capture import InterfaceCapture
    from ..filters.service import FilterService
    from ..filters.text import Syntax, read_filters
    from ..line_server import over_socket

    syntax = Syntax(int(family))
    listed = read_filters(read_text(filters_file), syntax, filters_file) if filters_file else []
    number = _group(group)
    with Filters(algorithm, listed, layout=syntax.layout, room=room, limit=max_memory or 0) as filters:
        capture = InterfaceCapture(interface, syntax.family, syntax.layout) if interface else None
        service = FilterService(filters, syntax, capture)
        try:
            with interrupts.terminated():
                over_socket(
                    service, Path(path), lambda: click.echo(f"listening on {path}", err=True), mode, number
                )
        except KeyboardInterrupt:
            interrupts.answered()
            click.echo("stopped", err=True)
        finally:
            service.close()
            if capture is not None:
                capture.close()


def _group(name: str | None) -> int | None:
    import grp

    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise HitablesError(f"--group {name}: there is no such group") from None


@command(
    short_help="Send commands to a server, and print its answers.",
    examples=(
        (
            "Let packets to web servers pass",
            "hitables filters send --socket f.sock insert 10 allow proto tcp dport 80",
        ),
        ("List the filters", "hitables filters send --socket f.sock list"),
    ),
)
@argument("words", metavar="[COMMAND...]", nargs=-1)
@section("Socket", socket_option)
def send(words: tuple[str, ...], path: str) -> None:
    """Send COMMAND to the server, or each line of standard input, and print the answers.

    Exit status 2: a command was refused.
    """
    import sys

    from ..filters.client import Client

    refused = 0
    with Client(path) as client:
        if words:
            lines = iter([" ".join(words)])
        elif sys.stdin is None:
            raise click.UsageError("standard input is closed: give a command there, or as words")
        else:
            lines = iter(sys.stdin)
        for line in lines:
            name = line.split()[:1]
            if name == ["monitor"]:
                monitor = f"hitables filters monitor --socket {shlex.quote(path)}"
                raise HitablesError(f"events are for this: {monitor}")
            if name == ["quit"]:
                break
            answer, reason = client.ask(line.rstrip("\n"))
            for each in answer:
                click.echo(each)
            if reason is not None:
                click.echo(f"error {reason}", err=True)
                refused += 1
    if refused:
        raise HitablesError(f"{path}: refused {refused} command{'s' if refused > 1 else ''}")


@command(
    short_help="Print the events of a server as they come.",
    examples=(
        ("Print events until Ctrl-C", "hitables filters monitor --socket f.sock"),
        ("Wait for one event", "hitables filters monitor --socket f.sock --count 1"),
    ),
)
@section("Socket", socket_option)
@section(
    "Output",
    option("--count", metavar="N", type=click.IntRange(1), help="End after this many events."),
)
def monitor(path: str, count: int | None) -> None:
    """Print each event as NUMBER TIME PRIORITY ACTION FIELD VALUE..., until Ctrl-C or the server's end.

    Events that the server could not keep until they were read are reported on
    standard error.
    """
    from ..filters.client import Client

    lost = 0
    with Client(path) as client:
        client.monitor()
        while count is None or count > 0:
            for event in client.read()[:count]:
                click.echo(client.syntax.show_event(event))
                count = None if count is None else count - 1
            if client.lost > lost:
                click.echo(f"lost {client.lost - lost} events", err=True)
                lost = client.lost

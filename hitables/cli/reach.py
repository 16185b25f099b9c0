"""`hitables reach`: which packets pass, by which lines."""

from __future__ import annotations

import json

import click

from .help import argument, command, option, section
from .inputs import read_program, warn_of_leave
from .options import (
    backend_option,
    data_options,
    family_option,
    is_json,
    leave_option,
    max_memory_option,
    timeout_option,
)
from .progress import progress_bar
from .source import known_source, source_options
from .terminal import Printer


@command(
    cls=Printer,
    short_help="List the packets that pass, and the rules that let them.",
    examples=(
        ("Say who can open a connection to a server's ssh", "hitables reach --to 10.1.9.7:22 office.rules"),
        (
            "List what of a network is forwarded, and what is dropped, as JSON",
            "hitables reach --from 10.1.0.0/22 --chain FORWARD --dropped --format json",
        ),
    ),
)
@argument("file", default="-")
@section(
    "Packets",
    option(
        "--to",
        "destination",
        metavar="ADDRESS[:PORT]",
        default="",
        help="Packets to this address, network or range, and port: 10.1.9.7:22, 10.0.0.0/8, :443, "
        "[2001:db8::7]:22.",
    ),
    option("--from", "source", metavar="ADDRESS[:PORT]", default="", help="Packets from there."),
    option(
        "--proto",
        "protocols",
        metavar="NAMES",
        default="",
        help="Packets of these protocols (tcp,udp); with a port, by default all that have ports.",
    ),
    option("--in", "iif", metavar="NAME", default="", help="Packets that come in there (eth0, eth+)."),
    option("--out", "oif", metavar="NAME", default="", help="Packets that go out there."),
    option(
        "--ctstate",
        "state",
        metavar="STATES",
        default="",
        help="Packets of connections in these states (NEW,ESTABLISHED), or any. By default first packets of "
        "connections: they are NEW, but in table raw INVALID, have SYN without ACK, RST and FIN if they are "
        "of tcp, and are requests if they are of ICMP. NEW alone means these, too, but in table raw. "
        "Neighbour discovery of IPv6 is UNTRACKED.",
    ),
)
@section(
    "Rule set",
    option("--table", metavar="TABLE", default="filter", show_default=True, help="Examine this table."),
    option(
        "--chain",
        "chains",
        metavar="CHAIN",
        multiple=True,
        help="Examine this chain; may be repeated. By default all built-in chains.",
    ),
    backend_option("Read the rules as this iptables does; any: as legacy and as nft."),
    family_option,
    leave_option,
    *source_options,
)
@section(
    "Limits",
    timeout_option("Give up after this long; what was not found by then is undecided."),
    max_memory_option("Give up beyond this much memory"),
    option(
        "--limit",
        metavar="N",
        type=click.IntRange(1),
        default=20,
        show_default=True,
        help="Print this many rules in format text; JSON has all.",
    ),
)
@section("Output", option("--dropped", is_flag=True, help="List the packets that do not pass, too."))
@data_options
def reach(
    file: str,
    source: str,
    destination: str,
    protocols: str,
    iif: str,
    oif: str,
    state: str,
    table: str,
    chains: tuple[str, ...],
    backend: str,
    family: str | None,
    leave: tuple[str, ...],
    map_file: str | None,
    folder: str | None,
    timeout: float | None,
    max_memory: int | None,
    limit: int,
    dropped: bool,
    form: str,
    as_json: bool,
) -> None:
    """List the packets that the rules in FILE let pass, as regions of headers, with the rules that decide.

    The answer is exact: it has every packet of the question. Only whole packets are meant, no later
    fragments and none with broken headers; and only one table. Notes name rules of earlier tables that drop
    such packets, change their destination, leave them untracked, or set a mark that the answer speaks of.
    The chains of --leave, and targets that hitables does not know, may let a packet pass. Exit status 0:
    some packet passes, or may; 1: none; 2: undecided, or an error.
    """
    from ..errors import HitablesError
    from ..files import check_outputs
    from ..ir.choices import backend_choice, backends_of
    from ..ir.earlier_tables import translated_by
    from ..ir.foreign import hide, patterns_of
    from ..ir.program import check_names
    from ..nouns import lines_named
    from ..parse.region_words import leaves_out_discovery, region, without_packets
    from ..report import reach as report
    from ..verify.earlier_rules import earlier_rules
    from ..verify.question import Question
    from ..verify.reach import reach as find
    from .terminal import TROUBLE, Differ

    check_outputs({}, {"FILE": file, "--map": map_file})
    program = read_program(file, family)
    known = known_source(program, map_file, folder)
    check_names(program, [table], chains)
    warn_of_leave(leave, [program])
    box = region(
        program.family,
        source=source,
        destination=destination,
        protocols=protocols,
        iif=iif,
        oif=oif,
        state=state,
        table=table,
    )
    if leaves_out_discovery(box, program.family, state):
        click.echo(
            "hitables: first packets have no neighbour discovery among them, which is UNTRACKED: "
            "ask for it with --ctstate UNTRACKED",
            err=True,
        )
    asked = chains or tuple(chain.name for chain in program.table(table).chains if chain.policy is not None)
    for word in without_packets(box, asked, program.family):
        raise HitablesError(f"packets of {' and '.join(asked)} have no --{word}: leave it out")
    may_be_translated = destination and table == "filter" and not {"INPUT", "FORWARD"}.isdisjoint(asked)
    if may_be_translated and (lines := translated_by(program, box)):
        click.echo(
            f"hitables: {lines_named(lines)} (table nat) may change the destination of such packets before "
            "table filter sees them: ask for the new one",
            err=True,
        )
    question = Question(
        backends_of(backend_choice(backend)),
        tables=frozenset({table}),
        chains=frozenset(asked),
        timeout=timeout,
        max_memory=max_memory,
    )
    with progress_bar() as progress:
        hidden = hide(program, patterns_of(leave))
        reached = find(hidden, box, question, progress, dropped)
        earlier = list(earlier_rules(hidden, box, question, reached, progress))
    for each in earlier:
        click.echo(f"hitables: {report.describe_earlier(each)}", err=True)
    if is_json(form, as_json):
        click.echo(json.dumps(report.as_json(reached, program, box, known), indent=1))
    else:
        click.echo(report.show(reached, program, box, limit, known))
    if not any(outcome.passes for outcome in reached.outcomes):
        raise Differ if reached.complete else SystemExit(TROUBLE)
    if reached.undecided:
        raise SystemExit(TROUBLE)

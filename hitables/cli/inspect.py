"""`hitables trace`, `stats`, `graph` and `convert`: commands that show a rule set or rewrite it.

They compare nothing, and end with exit status 0, or 2 for an error.
"""

from __future__ import annotations

import shlex
from typing import Any

import click

from ..errors import HitablesError
from .help import argument, command, option, section
from .inputs import read_program
from .options import backend_option, costs_option, data_options, family_option, is_json, output_option
from .source import known_source, source_options
from .terminal import Printer


@command(
    cls=Printer,
    short_help="Print the rules that a packet reads, and its verdict.",
    examples=(
        (
            "Show the rules that a connection to a web server reads",
            'hitables trace --packet "$PACKET" office.rules',
        ),
        (
            "Name the rule of your file that decides a packet of the log",
            'hitables save | hitables trace --map office.map --packet "$LINE"',
        ),
    ),
)
@argument("file", default="-")
@option(
    "--packet",
    required=True,
    metavar="FIELDS",
    help='Trace this packet, as in "chain=FORWARD in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=1024 '
    'dport=ssh state=NEW"; table, in, out and state may be left out. Or the packet of this line of the '
    "kernel's log (IN=eth0 OUT= SRC=10.0.0.1 ...), to which such words may be added.",
)
@section(
    "Rule set",
    backend_option("Read the rules as this iptables does.", ("legacy", "nft"), "legacy"),
    family_option,
    *source_options,
)
@data_options
def trace(
    file: str,
    packet: str,
    backend: str,
    family: str | None,
    map_file: str | None,
    folder: str | None,
    form: str,
    as_json: bool,
) -> None:
    """Print the verdict of a packet, and every rule of FILE that it reads, with its line.

    If FILE is compiled, --map or --state names the rules of its source too.
    """
    import json

    from ..files import check_outputs
    from ..ir.assumed_walk import run_assuming
    from ..ir.earlier_tables import untracked_by
    from ..ir.left_out import assumed_state, missing_words
    from ..ir.log_prefix import place
    from ..ir.packet import Backend
    from ..ir.packet_log import is_log_line, read_log_line
    from ..ir.packet_reader import NAMES, read_packet
    from ..ir.program import check_names
    from ..ir.sure_answers import answer_surely
    from ..ir.unasked import impossible, impossible_state, unasked
    from ..report import trace as report
    from ..verify.question import with_open_policies

    check_outputs({}, {"FILE": file, "--map": map_file})
    program = read_program(file, family)
    known = known_source(program, map_file, folder)
    placed = None
    if is_log_line(packet):
        placed = place(read_log_line(packet, program.family), program, Backend(backend))
        packet, spelled = placed.line.words, placed.spelled
    else:
        spelled = read_packet(packet, program.family)
    check_names(program, [spelled.table], [spelled.chain])
    table = with_open_policies(program.table(spelled.table))
    assumed = report.assumed_of_log(placed, table) if placed else ()
    if placed and (note := report.not_written(placed)):
        click.echo(f"hitables: {note}", err=True)
    for word in unasked(spelled.answers, [table], logged=placed.line.numbers if placed else ()):
        click.echo(f"hitables: no match of table {spelled.table} asks for {word}", err=True)
    for word in impossible(spelled):
        click.echo(f"hitables: packets of {spelled.chain} have no {word}", err=True)
    if why := impossible_state(spelled):
        click.echo(f"hitables: {why}", err=True)
    if placed is None and (why := assumed_state(spelled)):
        click.echo(f"hitables: assumed: {why}", err=True)
    entered = spelled.table, spelled.chain
    answer_surely(spelled.answers, program, spelled.packet)
    traced = run_assuming(table, spelled.chain, spelled.packet, Backend(backend))
    walk = traced.walk
    says_state = "state" in (placed.line.own if placed else frozenset(NAMES) - spelled.left_out)
    if not says_state and (line := untracked_by(program, spelled, Backend(backend))):
        click.echo(
            f"hitables: line {line} (table raw) leaves this packet untracked: add state=UNTRACKED", err=True
        )
    for word, lines in missing_words(spelled, walk):
        click.echo(f"hitables: {report.missing(word, lines, spelled.chain)}", err=True)
    unknown = report.open_conditions(walk, spelled.answers)
    if is_json(form, as_json):
        document = report.as_json(
            walk, program.name, entered, packet, Backend(backend), unknown, assumed, known
        )
        click.echo(json.dumps(document, indent=1))
        return
    if assumed:
        click.echo(f"packet: {packet}\nassumed: {'; '.join(assumed)}")
    click.echo(report.describe_walk(walk, entered, known))
    if unknown:
        click.echo("these conditions are not part of the packet; they are assumed not to hold:", err=True)
        as_it_enters = {key for key, epoch in spelled.answers.facts if not epoch} & walk.open
        for key in unknown:
            note = f"  (told of the packet as it enters; behind a rule that may change it: {key}=yes/1)"
            click.echo(f"  {key}" + (note if key in as_it_enters else ""), err=True)
    if traced.implied:
        click.echo("these conditions hold then:", err=True)
        for key in traced.implied:
            click.echo(f"  {key}", err=True)


@command(
    cls=Printer,
    short_help="Print rules, rules read per packet and modelled time per chain.",
    examples=(
        ("Show the cost of each chain", "hitables stats office.rules"),
        (
            "Compare a rule set with its compiled form on a trace",
            "hitables stats --trace acl1.trace acl1.rules acl1.compiled",
        ),
    ),
)
@argument("files", metavar="[FILE]...", nargs=-1)
@section(
    "Rule set",
    backend_option("Read the rules as this iptables does.", ("legacy", "nft"), "legacy"),
    family_option,
    costs_option(),
)
@section(
    "Traffic",
    option(
        "--trace",
        "trace_file",
        metavar="FILE",
        help="Run the packets of this ClassBench trace through a chain.",
    ),
    option(
        "--through",
        aliases=["--chain"],
        metavar="CHAIN",
        help="Send them through this built-in chain of table filter; by default the longest of the first "
        "FILE.",
    ),
)
@data_options
def stats(
    files: tuple[str, ...],
    backend: str,
    family: str | None,
    costs_file: str | None,
    trace_file: str | None,
    through: str | None,
    form: str,
    as_json: bool,
) -> None:
    """Print, for each chain of each FILE: rules, their roles, rules read per packet, modelled time."""
    import json

    from .. import costs
    from ..costs.stats import profile, read_over_trace
    from ..files import check_outputs, named_inputs, read_text
    from ..ir.packet import Backend
    from ..report.stats import show_stats

    files = files or ("-",)
    check_outputs({}, named_inputs("FILE", files) | {"--trace": trace_file, "--costs": costs_file})
    if through is not None and trace_file is None:
        raise HitablesError("--through names the chain for the packets of --trace: give a trace")
    figures = costs.load(costs_file) if costs_file else costs.default()
    read_as = Backend(backend)
    trace_text = read_text(trace_file) if trace_file is not None else ""
    documents: list[dict[str, Any]] = []
    for program in [read_program(file, family) for file in files]:
        document = profile(program, read_as, figures)
        reads = None
        if trace_file is not None:
            reads = read_over_trace(program, trace_text, trace_file, through, read_as, figures)
            through = reads["chain"]  # of the others, too: their longest may be another one
        documents.append({**document, "trace": reads})
    if is_json(form, as_json):
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=1))
    else:
        for document in documents:
            show_stats(document)


@command(
    cls=Printer,
    short_help="Draw the jumps between chains, or the trees of a compiled set.",
    examples=(
        ("Draw the call graph with Graphviz", "hitables graph office.rules | dot -Tsvg >office.svg"),
        (
            "Draw the trees of a compiled table",
            "hitables graph --table filter --format svg -o trees.svg office.compiled",
        ),
    ),
)
@argument("file", default="-")
@section("Rule set", family_option)
@section(
    "Output",
    option(
        "--table", "tables", metavar="TABLE", multiple=True, help="Draw this table only; may be repeated."
    ),
    option(
        "--format",
        "form",
        type=click.Choice(["dot", "graphml", "svg"]),
        help="Write the graph in this format; svg needs matplotlib. By default that of the name (.svg, "
        ".graphml), else dot.",
    ),
    output_option("Write the graph to FILE"),
)
def graph(file: str, form: str | None, output: str, tables: tuple[str, ...], family: str | None) -> None:
    """Draw the jumps between the chains of FILE; in a compiled rule set these are the trees."""
    from ..files import check_outputs, write_text
    from ..report.graph import draw

    check_outputs({"--output": output}, {"FILE": file})
    ending = output.rpartition(".")[2].lower()
    if form is None and ending in ("png", "pdf", "jpg", "ps", "eps"):
        graphviz = f"hitables graph {shlex.quote(file)} | dot -T{ending} -o {shlex.quote(output)}"
        raise HitablesError(f"{output}: not a format of graph; let Graphviz draw it: {graphviz}")
    form = form or (ending if ending in ("svg", "graphml") else "dot")
    program = read_program(file, family)
    for name in tables:
        if all(table.name != name for table in program):
            raise HitablesError(f"{file}: there is no table {name}")
    write_text(output, draw(program, form, tables))


@command(
    short_help="Write a ClassBench filter set as iptables rules.",
    examples=(
        ("Write a filter set as iptables rules", "hitables convert acl1.filter -o acl1.rules"),
        ("Drop what the filters match, in INPUT", "hitables convert --chain INPUT --action DROP acl1.filter"),
    ),
)
@argument("source", metavar="FILTERS")
@option("--from", "source_format", type=click.Choice(["classbench"]), default="classbench", hidden=True)
@option("--to", "target_format", type=click.Choice(["iptables"]), default="iptables", hidden=True)
@section(
    "Output",
    option(
        "--chain",
        metavar="CHAIN",
        default="FORWARD",
        show_default=True,
        help="Append the rules to this chain.",
    ),
    option(
        "--action", metavar="TARGET", default="ACCEPT", show_default=True, help="Give every rule this target."
    ),
    output_option("Write the rules to FILE"),
)
def convert(
    source: str, source_format: str, target_format: str, output: str, chain: str, action: str
) -> None:
    """Write the filters of FILTERS, a ClassBench filter set, as iptables rules, one for each."""
    from ..files import check_outputs, read_text, write_text
    from ..parse.classbench import parse, to_text

    del source_format, target_format  # each has one value so far
    check_outputs({"--output": output}, {"FILTERS": source})
    _check_chain(chain)
    _check_action(chain, action)
    write_text(output, to_text(parse(read_text(source), source), chain, action))


def _check_chain(chain: str) -> None:
    """Refuse a name of a chain that iptables refuses."""
    from ..ir.program import BUILT_IN
    from ..parse.lines import Fault
    from ..parse.rule_parts import check_chain_name

    if chain not in BUILT_IN["filter"]:
        try:
            check_chain_name(chain, 0)
        except Fault as fault:
            raise HitablesError(f"--chain: {fault.reason}") from None


def _check_action(chain: str, action: str) -> None:
    """Refuse what is no target, with its options, of a rule in *chain*."""
    from ..errors import ParseError
    from ..ir.fields import Family
    from ..parse.iptables import read
    from ..parse.lines import quote

    if "\n" in action:
        raise HitablesError(f"--action: not a target: {action!r}")
    if action == chain:
        raise HitablesError(f"--action: chain {chain} cannot jump to itself")
    text = f"*filter\n:{chain} - [0:0]\n-A {quote(chain)} -j {action}\nCOMMIT\n"
    try:
        (rule,) = read(text, family=Family.IPV4).table("filter")[chain].rules
    except ParseError as error:
        raise HitablesError(f"--action: {error.reason}" + (f"; {error.hint}" if error.hint else "")) from None
    if rule.matches:
        raise HitablesError(f"--action: {action!r} has tests; a target and its options are expected")

"""`hitables traffic`: flows and locality of a capture or a trace; and `hitables generate --traffic`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import HitablesError
from .help import argument, command, option, section
from .options import data_options, is_json
from .progress import progress_bar

if TYPE_CHECKING:
    from ..locality import Classify

FORMATS = ("auto", "pcap", "pcapng", "erf", "dag-atm", "dag-ethernet", "dag-pos", "trace")


@command(
    short_help="Print flows and locality of a capture or a trace.",
    examples=(
        ("Show how flows repeat, and how full a flow table gets", "hitables traffic eth0.pcap"),
        (
            "Show how many rules serve most packets, with a picture",
            "hitables traffic --rules office.rules --picture locality.svg eth0.pcap.gz",
        ),
    ),
)
@argument("file", default="-")
@section(
    "Packets",
    option(
        "--input",
        "read_as",
        type=click.Choice(FORMATS),
        default="auto",
        show_default=True,
        help="Read FILE as this format; by default its first bytes tell.",
    ),
    option("--family", type=click.Choice(["4", "6"]), help="Count only IPv4 or only IPv6 packets."),
    option(
        "--incomplete", is_flag=True, help="Read a capture that ends in mid-record up to the last whole one."
    ),
    option(
        "--max-flows",
        type=click.IntRange(2, (1 << 31) - 1),
        metavar="N",
        default=1 << 21,
        show_default=True,
        help="Follow at most this many flows; beyond that, follow a random sample of them.",
    ),
)
@section(
    "Rules",
    option(
        "--rules",
        "rules_file",
        metavar="FILE",
        help="Count the rules that packets match, too: iptables-save output, or a ClassBench filter set.",
    ),
    option(
        "--through",
        metavar="CHAIN",
        help="Send the packets through this built-in chain of table filter (of --rules); by default the "
        "longest.",
    ),
)
@section("Picture", option("--picture", metavar="FILE", help="Draw the report as svg; needs matplotlib."))
@data_options
def traffic(
    file: str,
    read_as: str,
    family: str | None,
    incomplete: bool,
    max_flows: int,
    rules_file: str | None,
    through: str | None,
    picture: str | None,
    form: str,
    as_json: bool,
) -> None:
    """Print flows, packets per flow, active flows, popular flows, stack distances and bursts of FILE.

    FILE is a capture (pcap, pcapng, ERF, legacy DAG) or a ClassBench trace, plain or gzip. A flow is one
    direction: the packets of the same addresses, ports and protocol.
    """
    import json

    from .. import locality
    from ..files import check_outputs, write_text
    from ..ir.fields import Family
    from ..parse.packet_stream import open_packets
    from ..report.traffic import to_svg, to_text

    check_outputs({"--picture": picture}, {"FILE": file, "--rules": rules_file})
    if picture and Path(picture).suffix not in ("", ".svg"):
        raise HitablesError(f"--picture {picture}: the picture is svg; name a file that ends in .svg")
    if through and not rules_file:
        raise HitablesError("--through names a chain of --rules: give a rule set")
    if rules_file and family == "6":
        raise HitablesError("the rules that packets match are found for IPv4 only: leave out --family 6")
    classify = _classify(rules_file, through) if rules_file else None
    chosen = Family.IPV4 if rules_file else Family(int(family)) if family else None
    stream = open_packets(file, family=chosen, form=read_as, incomplete=incomplete)
    with progress_bar() as progress:
        progress(f"reading {stream.source}")
        report = locality.measure(stream, classify, limit=max_flows)
    if picture:
        write_text(picture, to_svg(report))
    if is_json(form, as_json):
        head = {"format": "hitables-traffic", "version": 1}
        click.echo(json.dumps({**head, **locality.as_data(report)}, indent=1))
    else:
        click.echo(to_text(report), nl=False)


def _classify(path: str, through: str | None) -> Classify:
    """The rule of each header in the rule set of *path*: numbers from 0, -1 for none."""
    from .. import engine
    from ..files import read_text
    from ..ir.fields import Family
    from ..ir.packet import Backend
    from ..parse import classbench
    from ..reader import read
    from ..simulate.five_tuple import batch_of
    from ..simulate.interpreter import Interpreter
    from ..simulate.traffic import busiest_chain

    text = read_text(path)
    if text.lstrip().startswith("@"):
        if through:
            raise HitablesError("--through names a chain, and a filter set has none")
        return engine.open("best", classbench.parse(text, path)).search
    program = read(text, name=path)
    if program.family is not Family.IPV4:
        raise HitablesError(f"{path}: the rules that packets match are found for IPv4 only")
    chain = busiest_chain(program, through)
    interpreter = Interpreter(program, Backend.LEGACY)
    return lambda headers: interpreter.run("filter", chain, batch_of(headers)).rule


def generate_traffic(
    preset: str,
    filters_file: str | None,
    packets: int,
    seed: int,
    both: bool | None,
    written_as: str,
    output: str,
) -> None:
    """Write the packets of `hitables generate --traffic`."""
    from .. import engine
    from ..files import check_outputs, read_text, write_chunks
    from ..generate.traffic import to_pcap, to_trace, traffic
    from ..parse import classbench

    check_outputs({"--output": output}, {"--filters": filters_file})
    rules = None
    if filters_file:
        rules = engine.Rules.of_filter(classbench.parse(read_text(filters_file), filters_file))
    blocks = traffic(preset, packets, seed=seed, rules=rules, both=both)
    if written_as == "auto":
        written_as = "pcap" if output.endswith((".pcap", ".cap")) else "trace"
    with progress_bar() as progress:
        progress(f"writing {packets:,} packets")
        write_chunks(output, to_pcap(blocks) if written_as == "pcap" else to_trace(blocks))

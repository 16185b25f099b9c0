"""`hitables save`, `calibrate` and `bench kernel`: commands that use the running kernel.

`save` reads the rules of this host; the others measure, in scratch network namespaces of their own.
"""

from __future__ import annotations

import click

from ..errors import HitablesError
from .progress import progress_bar
from .terminal import (
    backend_option,
    command,
    costs_option,
    data_options,
    family_of,
    family_option,
    is_json,
    option,
    output_option,
    read_program,
    section,
)


@command(
    short_help="Measure what rules cost in this kernel, for compile --costs.",
    examples=(
        (
            "Measure this kernel, for compile --costs",
            "hitables calibrate -o here.json",
        ),
        ("Measure nft only", "hitables calibrate --backend nft"),
    ),
)
@section(
    "Measurement",
    backend_option("Measure this iptables, or both.", ("both", "legacy", "nft"), "both"),
    output_option("Write the profile to FILE"),
)
def calibrate(output: str, backend: str) -> None:
    """Measure the time of each kind of rule in this kernel, and print a profile for --costs.

    This takes up to a minute, in scratch network namespaces, as root; the machine should be idle.
    """
    import json

    from ..files import write_text
    from ..ir.packet import Backend
    from ..kernel.calibrate import calibrate as measure
    from ..kernel.machine import machine

    backends = list(Backend) if backend == "both" else [Backend(backend)]
    with progress_bar() as progress:
        profile = measure(backends, progress, machine())
    write_text(output, json.dumps(profile.as_data(), indent=1) + "\n")


@command(
    short_help="Print the rules of this host, checked against the kernel.",
    examples=(
        (
            "Compare the rules of this host with the reviewed ones",
            "hitables save | hitables check reviewed.rules -",
        ),
        ("Save the IPv6 rules with their counters", "hitables save -c --family 6 -o office6.rules"),
    ),
)
@section(
    "Rule set",
    backend_option(
        "Read the rules of this iptables; auto: of the one that iptables-save is.",
        ("auto", "legacy", "nft"),
        "auto",
    ),
    option(
        "--family",
        type=click.Choice(["4", "6"]),
        default="4",
        show_default=True,
        help="Read the IPv4 or the IPv6 rules.",
    ),
)
@section(
    "Output",
    option("-c", "--counters", is_flag=True, help="Print the counters of the rules too."),
    output_option("Write the rules to FILE"),
)
def save(backend: str, family: str, counters: bool, output: str) -> None:
    """Print the rules of this kernel as iptables-save does, after checking that the text is what is loaded.

    The text of iptables-save is loaded into a scratch network namespace and compared with the kernel, rule by
    rule. Where they differ the exit status is 2, and the message names the chain and the rule. Of a kernel
    without tables an empty table filter is printed.
    """
    from ..files import write_text
    from ..kernel.checked_save import Reader, also_present

    reader = Reader(family_of(family), tool_of(backend, family))
    warning = also_present(reader.family, reader.backend)
    if warning:
        click.echo(f"hitables: {warning}", err=True)
    write_text(output, reader.read(counters).text or NO_TABLES)


# A text without tables would be none that check, diff and compile take.
NO_TABLES = """\
# The kernel has no tables: all packets pass.
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
"""


def tool_of(backend: str, family: str) -> str:
    """The name of the tool before `-save`: ip6tables-nft."""
    return ("ip6tables" if family == "6" else "iptables") + ("" if backend == "auto" else f"-{backend}")


@command(
    "kernel",
    short_help="Measure packets under a rule set, plain and compiled.",
    examples=(
        ("Measure a rule set and its compiled form", "hitables bench kernel office.rules"),
        (
            "Compare with an ipset and nft sets, on the packets of a capture",
            "hitables bench kernel --rivals ipset,nft-set --pcap office.pcap office.rules",
        ),
    ),
)
@click.argument("file", default="-")
@section(
    "Rule set",
    backend_option("Load the rules with this iptables.", ("legacy", "nft"), "nft"),
    family_option,
    option(
        "--chain",
        metavar="CHAIN",
        help="Measure this built-in chain of table filter; by default the longest.",
    ),
    option(
        "--rivals",
        aliases=["--against"],
        default="",
        metavar="NAMES",
        help="Measure these too, separated by commas: ipset, nft-set (a map of five fields), nft-o (nft -o).",
    ),
    costs_option(),
)
@section(
    "Traffic",
    option("--trace", "trace_file", metavar="FILE", help="Send the packets of this ClassBench trace."),
    option("--pcap", "pcap_file", metavar="FILE", help="Send the packets of this capture."),
    option(
        "--flows",
        metavar="N",
        type=click.IntRange(1, 60_000),
        default=2000,
        show_default=True,
        help="Send this many packets in turn.",
    ),
    option(
        "--runs",
        metavar="N",
        type=click.IntRange(3),
        default=10,
        show_default=True,
        help="Repeat each measurement this often.",
    ),
)
@data_options
def bench_kernel(
    file: str,
    chain: str | None,
    trace_file: str | None,
    pcap_file: str | None,
    backend: str,
    rivals: str,
    flows: int,
    runs: int,
    costs_file: str | None,
    form: str,
    as_json: bool,
    family: str | None,
) -> None:
    """Measure the time of a packet under FILE, as it is and compiled, and under alternatives such as ipset.

    Without --trace or --pcap the packets are aimed evenly at the rules. Run it as root.
    """
    import json

    from .. import costs
    from ..ir.packet import Backend
    from ..kernel.rivals import NAMES
    from ..kernel.user_bench import default_batch, measure
    from ..report.bench import show_bench
    from ..simulate import traffic

    wanted = [name for name in rivals.split(",") if name]
    for name in wanted:
        if name not in NAMES:
            raise HitablesError(f"--rivals {name}: unknown name; known are {', '.join(NAMES)}")
    if trace_file and pcap_file:
        raise HitablesError("packets come from --trace or from --pcap, not from both")
    figures = costs.load(costs_file) if costs_file else costs.default()
    program = read_program(file, family)
    chain = traffic.busiest_chain(program, chain)
    if not program.table("filter")[chain].rules:
        raise HitablesError(f"{file}: chain {chain} of table filter has no rules")
    source = trace_file or pcap_file
    if source is None:
        batch = default_batch(program, chain)
    else:
        batch = (traffic.trace_batch if trace_file else traffic.pcap_batch)(source, program.family)
        traffic.from_packets(program, "filter", chain, batch, Backend(backend), source)
    with progress_bar() as progress:
        result = measure(
            program,
            chain,
            batch,
            Backend(backend),
            against=wanted,
            runs=runs,
            flows=flows,
            costs=figures,
            progress=progress,
        )
    if is_json(form, as_json):
        click.echo(json.dumps(result.as_data(), indent=1))
    else:
        show_bench(result.as_data())

"""`hitables save`, `calibrate` and `bench kernel`: commands that use the running kernel.

`save` reads the rules of this host; the others measure, in scratch network namespaces of their own.
"""

from __future__ import annotations

from contextlib import suppress

import click

from ..errors import HitablesError, LiveError
from .help import argument, command, option, section
from .inputs import family_of, read_packets, read_program
from .options import (
    backend_option,
    costs_option,
    data_options,
    family_option,
    is_json,
    leave_option,
    output_option,
)
from .progress import progress_bar
from .terminal import Printer


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

    from ..files import check_outputs, write_text
    from ..ir.packet import Backend
    from ..kernel.calibrate import calibrate as measure
    from ..kernel.machine import machine

    check_outputs({"--output": output}, {})
    backends = list(Backend) if backend == "both" else [Backend(backend)]
    with progress_bar() as progress:
        profile = measure(backends, progress, machine())
    write_text(output, json.dumps(profile.as_data(), indent=1) + "\n")


@command(
    cls=Printer,
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
    leave_option,
)
@section(
    "Output",
    option("-c", "--counters", is_flag=True, help="Print the counters of the rules too."),
    output_option("Write the rules to FILE"),
)
def save(backend: str, family: str, leave: tuple[str, ...], counters: bool, output: str) -> None:
    """Print the rules of this kernel as iptables-save does, after checking that the text is what is loaded.

    The text of iptables-save is loaded into a scratch network namespace and compared with the kernel, rule by
    rule. Where they differ the exit status is 2, and the message names the chain and the rule. Of a kernel
    without tables an empty table filter is printed. A chain that matches --leave may differ: it is then
    printed without its rules, and named on standard error.
    """
    from ..files import write_text
    from ..ir.foreign import is_foreign, patterns_of
    from ..ir.packet import Backend
    from ..kernel.checked_save import KernelReader, also_present
    from ..kernel.other_tables import native_tables
    from ..parse.guess_family import stating_family

    patterns, tool = patterns_of(leave), tool_of(backend, family)
    reader = KernelReader(family_of(family), tool, lambda name: is_foreign(name, patterns))
    warning = also_present(reader.family, reader.backend)
    if warning:
        click.echo(f"hitables: {warning}", err=True)
    with suppress(LiveError):  # as without nft, which iptables does not need
        for message in native_tables([reader.family]):
            click.echo(f"hitables: warning: {message}; iptables-save does not print its rules", err=True)
    reading = reader.read(counters)
    for table, chain in reading.left_out:
        click.echo(
            f"hitables: table {table}, chain {chain}: matches --leave; its rules are left out, because what "
            f"{reader.tool}-save prints of them cannot be compared with the kernel",
            err=True,
        )
    if warning and not reading.text:
        other = "legacy" if reader.backend is Backend.NFT else "nft"
        click.echo(f"hitables: {tool}-save prints no table; --backend {other} reads the others", err=True)
    program = "ip6" if family == "6" else "ip"
    text = reading.text or NO_TABLES.format(program, program)
    write_text(output, stating_family(text, reader.family))


# A text without tables would be none that check, diff and compile take.
NO_TABLES = """\
# Generated by {}tables-save
# The kernel has no tables of {}tables.
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
@argument("file", default="-")
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
    from ..files import check_outputs
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
    check_outputs({}, {"FILE": file, "--costs": costs_file, "--trace": trace_file, "--pcap": pcap_file})
    figures = costs.load(costs_file) if costs_file else costs.default()
    program = read_program(file, family)
    chain = traffic.busiest_chain(program, chain)
    if not program.table("filter")[chain].rules:
        raise HitablesError(f"{file}: chain {chain} of table filter has no rules")
    if not trace_file and not pcap_file:
        batch = default_batch(program, chain)
    else:
        batch, named = read_packets(trace_file, pcap_file, program.family)
        traffic.from_packets(program, "filter", chain, batch, Backend(backend), named)
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

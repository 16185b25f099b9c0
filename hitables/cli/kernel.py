"""The commands that measure in the running kernel, in scratch network namespaces."""

from __future__ import annotations

import click

from ..errors import HitablesError
from .terminal import family_of, family_option, stages


@click.command()
@click.option("-o", "--output", default="-", help='Where the profile goes; "-" is standard output.')
@click.option("--backend", type=click.Choice(["both", "legacy", "nft"]), default="both", show_default=True)
def calibrate(output: str, backend: str) -> None:
    """Measure what rules cost in the running kernel, and print it as a profile for --costs.

    Takes up to a minute, in scratch network namespaces; the machine should have little else to do.
    """
    import json

    from ..files import write_text
    from ..ir.packet import Backend
    from ..kernel.calibrate import calibrate as measure
    from ..kernel.machine import machine

    backends = list(Backend) if backend == "both" else [Backend(backend)]
    with stages() as progress:
        found = measure(backends, progress, machine())
    write_text(output, json.dumps(found.as_data(), indent=1) + "\n")


@click.command()
@click.option(
    "--backend",
    type=click.Choice(["auto", "legacy", "nft"]),
    default="auto",
    show_default=True,
    help="Whose rules are read; auto: those of `iptables-save`.",
)
@click.option("--family", type=click.Choice(["4", "6"]), default="4", show_default=True, help="IP version.")
@click.option("-c", "--counters", is_flag=True, help="Print the counters of rules too.")
@click.option("-o", "--output", default="-", help='Where the rules go; "-" is standard output.')
def save(backend: str, family: str, counters: bool, output: str) -> None:
    """Print the rules of this kernel as iptables-save does, once they are shown to be what is loaded.

    What iptables-save prints is loaded into a scratch network namespace and compared with the kernel, rule by
    rule.  Exit 2 where it is not the same, with the chain and the rule.
    """
    from ..files import write_text
    from ..kernel.checked_save import Reader, also_present

    reader = Reader(family_of(family), tool_of(backend, family))
    said = also_present(reader.family, reader.backend)
    if said:
        click.echo(f"hitables: {said}", err=True)
    write_text(output, reader.read(counters).text)


def tool_of(backend: str, family: str) -> str:
    """The name of the tool before `-save`: ip6tables-nft."""
    return ("ip6tables" if family == "6" else "iptables") + ("" if backend == "auto" else f"-{backend}")


@click.command("kernel")
@click.argument("file", default="-")
@click.option("--chain", default=None, help="Built-in chain of table filter; the longest when left out.")
@click.option("--trace", "trace_file", help="ClassBench trace whose packets are sent.")
@click.option("--pcap", "pcap_file", help="Capture whose packets are sent.")
@click.option("--backend", type=click.Choice(["legacy", "nft"]), default="nft", show_default=True)
@click.option(
    "--against",
    default="",
    metavar="NAMES",
    help="What else to measure, with commas: ipset, nft-set (one map of five fields), nft-o (nft -o).",
)
@click.option(
    "--flows", type=click.IntRange(1, 60_000), default=2000, show_default=True, help="Packets in turn."
)
@click.option("--runs", type=click.IntRange(3), default=10, show_default=True)
@click.option("--costs", "costs_file", help="Profile to model costs by; the shipped one when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@family_option
def bench_kernel(
    file: str,
    chain: str | None,
    trace_file: str | None,
    pcap_file: str | None,
    backend: str,
    against: str,
    flows: int,
    runs: int,
    costs_file: str | None,
    as_json: bool,
    family: str | None,
) -> None:
    """What a packet costs under FILE, as it is and compiled, and under what else could be done.

    Without --trace or --pcap packets are aimed evenly at the rules.
    """
    import json

    from .. import costs
    from ..api import read
    from ..files import read_text
    from ..ir.packet import Backend
    from ..kernel.rivals import NAMES
    from ..kernel.user_bench import default_batch, measure
    from ..report.bench import show_bench
    from ..simulate import traffic

    wanted = [name for name in against.split(",") if name]
    for name in wanted:
        if name not in NAMES:
            raise HitablesError(f"--against {name}: not known; one of {', '.join(NAMES)}")
    if trace_file and pcap_file:
        raise HitablesError("packets come from --trace or from --pcap, not from both")
    figures = costs.load(costs_file) if costs_file else costs.default()
    program = read(read_text(file), family=family_of(family), name=file)
    chain = traffic.busiest_chain(program, chain)
    if not program.table("filter")[chain].rules:
        raise HitablesError(f"{file}: chain {chain} of table filter has no rules")
    source = trace_file or pcap_file
    if source is None:
        batch = default_batch(program, chain)
    else:
        batch = (traffic.trace_batch if trace_file else traffic.pcap_batch)(source, program.family)
        traffic.from_packets(program, "filter", chain, batch, Backend(backend), source)
    with stages() as progress:
        found = measure(
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
    if as_json:
        click.echo(json.dumps(found.as_data(), indent=1))
    else:
        show_bench(found.as_data())

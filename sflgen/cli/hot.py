"""`sflgen hot`: hot rules in front of trees, chosen anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hitables.cli.help import command, option, section
from hitables.cli.inputs import read_packets
from hitables.errors import HitablesError

from .options import live_option, no_prove_option, state_section
from .updates import update_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hitables.analyse.weights import Weights

    from ..edits import Edit
    from ..planner import Plan
    from ..state import State


@command(
    short_help="Put copies of the rules that decide most packets in front of the trees.",
    examples=(
        (
            "Choose hot rules by the counters of this kernel, and load the difference",
            "sflgen hot --live --state /var/lib/sflgen",
        ),
        ("Print the patch for the packets of a capture", "sflgen hot --state office --pcap eth0.pcap"),
    ),
)
@state_section
@section(
    "Traffic",
    option("--trace", "trace_file", metavar="FILE", help="Choose by the packets of this ClassBench trace."),
    option("--pcap", "pcap_file", metavar="FILE", help="Choose by the packets of this capture."),
    option(
        "--through",
        metavar="CHAIN",
        help="Send these packets through this built-in chain of table filter; by default the longest.",
    ),
    option(
        "--hot",
        "most",
        metavar="N",
        type=click.IntRange(0, 256),
        default=20,
        show_default=True,
        help="Put at most N in front of each tree; 0 removes all.",
    ),
)
@section("Patch", live_option, no_prove_option)
def hot(
    folder: str,
    trace_file: str | None,
    pcap_file: str | None,
    through: str | None,
    most: int,
    live: bool,
    no_prove: bool,
) -> None:
    """Choose the hot rules of all trees anew, and produce one patch: those that pay no more go, others come.

    A hot rule is a copy of a rule of the list that decides many packets. It stands in front of the tree, as
    long as the cost model says that it pays. The packets are those of --trace or --pcap, else those that the
    rules in the kernel have counted, which needs --live.

    An update that may concern the packets of a hot rule withdraws it, and a fold withdraws all.
    """
    from ..edits import Op
    from ..hot_rules import hot as proved
    from ..hot_rules import hot_unproved

    if trace_file and pcap_file:
        raise HitablesError("--trace and --pcap exclude each other: give one of them")
    source = trace_file or pcap_file
    if through and not source:
        raise HitablesError(
            "--through names the chain for the packets of --trace or --pcap: give one of them"
        )
    if not source and not live and most:
        raise HitablesError(
            "no packets are known: give --trace or --pcap, or --live for the counters of this kernel"
        )

    def make_plan(state: State, taken: Sequence[Edit]) -> Plan | None:
        weights = _weights(state, trace_file, pcap_file, through, most)
        plan = (hot_unproved if no_prove else proved)(state, weights, most)
        return plan if plan.edits else None

    plan = update_store(folder, live, make_plan)
    if plan is None:
        click.echo("the hot rules stay as they are", err=True)
        return
    for table, chain in dict.fromkeys((edit.table, edit.chain) for edit in plan.edits):
        ops = [edit.op for edit in plan.edits if (edit.table, edit.chain) == (table, chain)]
        gone, come = ops.count(Op.DELETE), ops.count(Op.INSERT)
        click.echo(f"{table} {chain}: {gone} hot rules gone, {come} new", err=True)


def _weights(
    state: State,
    trace_file: str | None,
    pcap_file: str | None,
    through: str | None,
    most: int,
) -> Weights:
    """The packets of each rule of the list."""
    from hitables.analyse.weights import Weights
    from hitables.ir.packet import Backend
    from hitables.simulate import traffic

    from ..hot_rules import chains_of_trees, check_trees, weights_by_counters
    from ..kernel import Kernel

    if not most:
        return Weights("", {})
    check_trees(state)
    if not trace_file and not pcap_file:
        kernel = Kernel(state.master.family, state.settings)
        return weights_by_counters(state, kernel.counters(chains_of_trees(state)))
    chain = traffic.busiest_chain(state.master, through)
    batch, named = read_packets(trace_file, pcap_file, state.master.family)
    read_as = Backend.NFT if state.settings.backend == "nft" else Backend.LEGACY
    return traffic.from_packets(state.master, "filter", chain, batch, read_as, named)

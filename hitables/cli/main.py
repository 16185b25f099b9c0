"""The group `hitables`: its commands, and the titles under which `hitables --help` lists them.

Exit status 0: done; 1: an answer (the rule sets or the kernel differ, `lint` found something, no packet of
`reach` passes, `apply --dry-run` has something to do), and nothing else; 2: an error; 130: interrupted
(Ctrl-C); 141: the reader of what a command only prints closed it (`| head`).  Results go to standard output,
messages to standard error.  A command imports what it needs when it runs, so that `hitables --help` is quick.
"""

from __future__ import annotations

import click

from .. import __version__
from .apply import apply, confirm, history, release, rollback, status
from .classify import algorithms, bench_classify, classify, generate, seed
from .compare import check, diff, lint
from .compile import compile_command
from .filters import monitor, send, serve
from .inspect import convert, graph, stats, trace
from .kernel import bench_kernel, calibrate, save
from .persist import persist
from .reach import reach
from .source import counters, source
from .terminal import Commands
from .traffic import traffic

SECTIONS = {
    "Daily use": ("compile", "check", "diff", "lint", "save"),
    "Living with a firewall": (
        "apply",
        "confirm",
        "rollback",
        "status",
        "history",
        "release",
        "counters",
        "source",
        "persist",
    ),
    "Understanding a rule set": ("trace", "reach", "stats", "graph"),
    "Measuring": ("calibrate", "bench"),
    "Research on packet classification": (
        "algorithms",
        "classify",
        "generate",
        "seed",
        "convert",
        "traffic",
        "filters",
    ),
}


@click.group(
    name="hitables",
    cls=Commands,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        (
            "Compile the rules of this host, and load the result",
            "hitables save | hitables compile | iptables-restore",
        ),
        ("Prove that an edit changed nothing", "hitables check before.rules after.rules"),
    ),
)
@click.version_option(__version__, prog_name="hitables")
def main() -> None:
    """Compile iptables rule sets into equivalent trees of jumps that the kernel reads faster.

    FILE is the output of iptables-save or ip6tables-save, plain or gzip; "-" is
    standard input. Many commands have a --backend: "iptables -V" prints which
    one a host uses, "legacy" or "nf_tables" (which is nft).
    """


@main.group(
    short_help="Measure packets in this kernel, or classifiers in memory.",
    examples=(
        (
            "Compare a rule set with its compiled form and with ipset",
            "hitables bench kernel office.rules --rivals ipset",
        ),
        ("Compare all classifiers on one trace", "hitables bench classify acl1.filter acl1.trace"),
    ),
)
def bench() -> None:
    """Measure packets per rule set in this kernel, or lookups per classifier in memory."""


@main.group(
    short_help="Filters with actions and events, for other programs.",
    examples=(
        ("Answer clients on a socket", "hitables filters serve --socket f.sock web.filters"),
        ("Print events as they come", "hitables filters monitor --socket f.sock"),
    ),
)
def filters() -> None:
    """Keep filters with actions in memory, for programs that change them and wait for events."""


for each in (compile_command, check, diff, lint, save, trace, reach, stats, graph, calibrate):
    main.add_command(each)
for each in (apply, confirm, rollback, status, history, release, counters, source, persist):
    main.add_command(each)
for each in (algorithms, classify, generate, seed, convert, traffic):
    main.add_command(each)
for each in (bench_classify, bench_kernel):
    bench.add_command(each)
for each in (serve, send, monitor):
    filters.add_command(each)

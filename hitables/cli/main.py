"""The command line: arguments in, exit status out.

Exit 0: done; 1: the rule sets differ, and nothing else; 2: trouble; 130: interrupted (Ctrl-C).  Results go to
standard output, messages to standard error.  What a command needs is imported when it runs,
so that `hitables --help` is quick.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from .. import __version__
from ..errors import HitablesError
from .classify import algorithms, bench_classify, classify, generate, seed
from .kernel import bench_kernel, calibrate, save
from .terminal import Commands, Differ, Number, Size, family_of, family_option, stages


@click.group(name="hitables", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hitables")
def main() -> None:
    """Compile iptables rule sets into equivalent jump trees.

    FILE is iptables-save or ip6tables-save text, plain or gzip; "-" is standard input.
    """


def _question_options(command: Callable[..., None]) -> Callable[..., None]:
    """What commands that compare two rule sets have in common; see `_question`."""
    for option in reversed(
        (
            click.option(
                "--backend",
                type=click.Choice(["any", "legacy", "nft"]),
                default="any",
                show_default=True,
                help="As which iptables the rules are read; any: as both, and each must hold.",
            ),
            click.option(
                "--malformed",
                type=click.Choice(["stricter", "exact"]),
                default="stricter",
                show_default=True,
                help="Packets with cut-off headers: B may drop them, or must treat them as A does.",
            ),
            click.option(
                "--verdict-only",
                is_flag=True,
                help="Leave aside what rules do besides deciding: LOG, counters.",
            ),
            click.option(
                "--table", "tables", multiple=True, help="Compare this table only; may be repeated."
            ),
            click.option(
                "--chain", "chains", multiple=True, help="Compare this chain only; may be repeated."
            ),
            click.option(
                "--timeout",
                type=Number(0, min_open=True),
                metavar="SECONDS",
                help="Then what was not decided is undecided.",
            ),
            click.option(
                "--max-memory", type=Size(), help="As in 512M or 2G; then what was not decided is undecided."
            ),
        )
    ):
        command = option(command)
    return command


def _format_options(command: Callable[..., None]) -> Callable[..., None]:
    """What commands that report findings have in common; see `_give`."""
    for option in (
        click.option(
            "-o",
            "--output",
            default="-",
            help="Where the result goes; the text is then told on standard error, whatever the format.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(["text", "json", "sarif", "junit"]),
            default="text",
            show_default=True,
            help="Of the result.",
        ),
    ):
        command = option(command)
    return command


def _question(options: dict[str, Any]) -> Any:
    """The `Question` that `_question_options` say; takes them out of *options*."""
    from ..ir.choices import Equivalence, backend_choice, backends_of
    from ..verify.question import Question

    return Question(
        backends_of(backend_choice(options.pop("backend"))),
        equivalence=Equivalence.VERDICT if options.pop("verdict_only") else Equivalence.FULL,
        tables=frozenset(options.pop("tables")),
        chains=frozenset(options.pop("chains")),
        **{name: options.pop(name) for name in ("malformed", "timeout", "max_memory")},
    )


def _read_two(before: str, after: str, family: str | None, tell: Callable[[str], None]) -> tuple[Any, Any]:
    from ..api import read
    from ..files import read_text

    if before == after == "-":
        raise HitablesError("both rule sets cannot come from standard input")
    programs = []
    for file in (before, after):
        tell(f"reading {file}")
        programs.append(read(read_text(file), family=family_of(family), name=file))
    return programs[0], programs[1]


@main.command("compile")
@click.argument("file", default="-")
@click.option("-o", "--output", default="-", help='Where the compiled rule set goes; "-" is standard output.')
@click.option(
    "--backend",
    type=click.Choice(["any", "legacy", "nft"]),
    default="any",
    show_default=True,
    help="Which iptables will load the result; any: right and loadable in both.",
)
@click.option(
    "--scheme",
    type=click.Choice(["tree", "paper"]),
    default="tree",
    show_default=True,
    help="tree: whole chains, any rule; paper: the transformation of CoNEXT 2014.",
)
@click.option("--algorithm", default=None, help="Tree builder; see hitables algorithms.")
@click.option(
    "--binth",
    type=click.IntRange(1),
    default=None,
    help="Rules that a leaf may hold before it is split; algorithm auto finds that by itself.",
)
@click.option(
    "--spfac",
    type=Number(1),
    default=4.0,
    show_default=True,
    help="Space factor of HiCuts and HyperCuts.",
)
@click.option(
    "--cuts",
    type=click.Choice(["equal", "unequal"]),
    default="equal",
    show_default=True,
    help="Scheme paper: cut in equal parts, or between rules.",
)
@click.option(
    "--min-length",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Chains (paper: runs) of fewer rules stay as they are.",
)
@click.option(
    "--max-expansion",
    type=Number(1),
    default=4.0,
    show_default=True,
    help="Rules printed over rules read, per chain, at most.",
)
@click.option(
    "--malformed",
    type=click.Choice(["stricter", "exact"]),
    default="stricter",
    show_default=True,
    help="Packets with cut-off headers: treat them alike or drop them, or treat them alike.",
)
@click.option(
    "--costs", "costs_file", metavar="PROFILE", help="What rules cost (hitables calibrate); else as shipped."
)
@click.option("--trace", "trace_file", help="ClassBench trace: rules weigh as its packets match them.")
@click.option("--pcap", "pcap_file", help="Capture, likewise.")
@click.option("--through", help="Built-in chain that those packets come to; the longest when left out.")
@click.option("--alike", is_flag=True, help="All rules weigh alike, whatever the counters of FILE say.")
@click.option(
    "--equivalence",
    type=click.Choice(["full", "verdict"]),
    default="full",
    show_default=True,
    help="full: every rule stays; verdict: rules that change no verdict go, others may change places.",
)
@click.option("--table", "tables", multiple=True, help="Compile this table only; may be repeated.")
@click.option("--chain", "chains", multiple=True, help="Compile this chain only; may be repeated.")
@click.option("--map", "map_file", help="Write the source map (JSON): generated rule -> line of FILE.")
@click.option("--summary", is_flag=True, help="Tell on standard error what was done to each chain.")
@click.option(
    "--max-depth",
    type=int,
    default=None,
    help="Chains that nest below a compiled one, at most; as many as the backend takes when left out.",
)
@click.option(
    "--effort",
    type=click.Choice(["fast", "normal", "best"]),
    default="normal",
    show_default=True,
    help="How hard to look for the cheapest tree; bounded by work, so trees are the same on every machine.",
)
@click.option("--quiet", is_flag=True, help="No progress bar.")
@click.option("--report", metavar="FILE.html", help="Write a page for a browser: before, after, the trees.")
@click.option("--no-verify", is_flag=True, help="Print without a proof; the output says so.")
@click.option(
    "--timeout",
    type=Number(0, min_open=True),
    metavar="SECONDS",
    help="For the proof; when it runs out nothing is printed.",
)
@click.option("--max-memory", type=Size(), help="For the proof, as in 512M or 2G.")
@family_option
def compile_command(
    file: str,
    output: str,
    backend: str,
    scheme: str,
    algorithm: str | None,
    binth: int | None,
    spfac: float,
    cuts: str,
    min_length: int,
    max_expansion: float,
    max_depth: int | None,
    effort: str,
    quiet: bool,
    malformed: str,
    costs_file: str | None,
    trace_file: str | None,
    pcap_file: str | None,
    through: str | None,
    alike: bool,
    equivalence: str,
    tables: tuple[str, ...],
    chains: tuple[str, ...],
    map_file: str | None,
    summary: bool,
    report: str | None,
    no_verify: bool,
    timeout: float | None,
    max_memory: int | None,
    family: str | None,
) -> None:
    """Compile the long chains of FILE into decision trees, and print the result.

    What is to be printed is read again and proved equal to FILE; without a proof nothing is printed.
    A chain whose tree turns out wrong is printed as it was, with a warning.

    Rules weigh as much as packets match them: by --trace, by --pcap, or else by the counters of FILE
    (iptables-save -c); when there are none, all alike.
    """
    import json

    from .. import costs
    from ..compiler.compile import Options
    from ..compiler.pipeline import compile_text
    from ..files import check_outputs, read_text, write_texts
    from ..ir.choices import Equivalence, Malformed, backend_choice

    check_outputs(
        {"--output": output, "--map": map_file, "--report": report},
        {"FILE": file, "--costs": costs_file, "--trace": trace_file, "--pcap": pcap_file},
    )
    weigh: Callable[[Any], Any] | None = _weighing(trace_file, pcap_file, through, alike, backend)
    if report is not None and not report.lower().endswith((".html", ".htm")):
        raise HitablesError(
            f"--report {report}: the report is a page for a browser, so name it FILE.html; "
            "what was done to each chain, on the terminal, is --summary"
        )
    if scheme == "paper":
        binth = binth or 16
        if trace_file or pcap_file:
            raise HitablesError("scheme paper weighs all rules alike: it takes neither --trace nor --pcap")
        weigh = None
    options = Options(
        backend=backend_choice(backend),
        malformed=Malformed(malformed),
        algorithm=algorithm or "auto",
        leaf_size=binth or 8,
        spfac=spfac,
        min_length=min_length,
        max_expansion=max_expansion,
        max_depth=max_depth,
        effort=effort,
        costs=costs.load(costs_file) if costs_file else None,
        unequal_cuts=cuts == "unequal",
        equivalence=Equivalence(equivalence),
        tables=frozenset(tables),
        chains=frozenset(chains),
    )
    with stages(quiet) as tell:
        made = compile_text(
            read_text(file),
            options,
            family=family_of(family),
            name=file,
            scheme=scheme,
            prove=not no_verify,
            timeout=timeout,
            max_memory=max_memory,
            tell=tell,
            done=tell.done,
            weigh=weigh,
        )
    for fault in made.faults:
        click.echo(
            f"hitables: warning: table {fault.table}, chain {fault.chain} is printed as it was: {fault.why}\n"
            "(this is a fault of hitables: please report it with the rule set; the output is sound)",
            err=True,
        )
        if fault.detail:
            click.echo(fault.detail, err=True)
    if summary:
        _show_reports(made.reports)
        if made.weighed:
            click.echo(f"rules weigh by {made.weighed}", err=True)
    texts = [(map_file, json.dumps(made.source_map, indent=1) + "\n")] if map_file else []
    if report is not None:
        from ..ir.packet import Backend
        from ..report.page import page

        texts.append((report, page(made, Backend.NFT if backend == "nft" else Backend.LEGACY)))
    write_texts([*texts, (output, made.text)])


def _weighing(
    trace_file: str | None, pcap_file: str | None, through: str | None, alike: bool, backend: str
) -> Callable[[Any], Any]:
    """How much rules weigh, for a program: as one of the sources says."""
    from ..analyse import weights
    from ..ir.packet import Backend
    from ..simulate import traffic

    source = trace_file or pcap_file
    if sum(map(bool, (trace_file, pcap_file, alike))) > 1:
        raise HitablesError("rules weigh by --trace, by --pcap or --alike, not by several of them")
    if through and not source:
        raise HitablesError("--through says where the packets of --trace or --pcap come to; there are none")

    def weigh(program: Any) -> Any:
        if alike:
            return None
        if source is None:
            return weights.counted(program)
        chain = traffic.busiest_chain(program, through)
        batch = (traffic.trace_batch if trace_file else traffic.pcap_batch)(source, program.family)
        read_as = Backend.LEGACY if backend == "any" else Backend(backend)
        return traffic.from_packets(program, "filter", chain, batch, read_as, source)

    return weigh


def _show_reports(reports: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    left: dict[str, int] = {}
    for each in reports:
        if each.why.startswith("short") and not each.gone:
            left[each.why] = left.get(each.why, 0) + 1
    shown = Table(title="chains", title_justify="left")
    went = any(each.gone for each in reports)
    gone = ["gone"] if went else []
    in_time = sorted({backend for each in reports for backend in each.ns_after})
    timed = [name for backend in in_time for name in (f"{backend} ns", "then")]
    reads = ("printed", "read", "then", "longest", "nested")
    for name in ("table", "chain", "rules", *gone, *reads, *timed, ""):
        shown.add_column(name, justify="left" if name in ("table", "chain", "") else "right")
    for each in reports:
        if each.why in left and not each.gone:
            continue
        first = [each.table, each.chain, str(each.before), *([str(each.gone or "")] if went else [])]
        if each.why:
            printed = str(each.after) if each.gone else ""
            shown.add_row(*first, printed, *[""] * (4 + len(timed)), each.why)
            continue
        shown.add_row(
            *first,
            str(each.after),
            f"{each.read_before:.1f}",
            f"{each.read_after:.1f}",
            str(each.longest),
            str(each.nesting),
            *(
                f"{spent[backend]:.0f}" if spent else ""
                for backend in in_time
                for spent in (each.ns_before, each.ns_after)
            ),
            "compiled",
        )
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 140)
    if shown.row_count:
        console.print(shown)
    for why, count in left.items():
        console.print(f"{count} chains left alone: {why}")
    if went:
        console.print(f"{sum(each.gone for each in reports)} rules went: no verdict depends on them")


@main.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@_question_options
@click.option(
    "--engine",
    type=click.Choice(["exact", "diagrams", "sample"]),
    default="exact",
    show_default=True,
    help="exact: prove it; diagrams: prove it another way, slowly; sample: look for a packet, prove nothing.",
)
@click.option(
    "--packets", type=click.IntRange(1), default=None, help="Engine sample: packets drawn for each chain."
)
@click.option("--seed", type=int, default=None, help="Engine sample: of the packets.")
@click.option(
    "--replay",
    is_flag=True,
    help="Send what is found through both rule sets in scratch network namespaces (as root).",
)
@_format_options
@family_option
def check(
    before: str,
    after: str,
    engine: str,
    packets: int | None,
    seed: int | None,
    replay: bool,
    form: str,
    output: str,
    family: str | None,
    **options: Any,
) -> None:
    """Prove that rule sets A and B treat every packet alike, or show one that they do not.

    Exit 0: they do; 1: they differ; 2: undecided, or they could not be compared.
    """
    from ..compare import Sampling
    from ..compare import check as compare
    from ..files import check_outputs
    from ..report.check import report

    check_outputs({"--output": output}, {"A": before, "B": after})
    drawn = {name: value for name, value in (("packets", packets), ("seed", seed)) if value is not None}
    if drawn and engine != "sample":
        raise click.UsageError(f"--{next(iter(drawn))}: engine {engine} draws no packets")
    if engine == "sample" and options["max_memory"] is not None:
        raise click.UsageError("--max-memory: engine sample keeps no bound; draw fewer --packets")
    with stages() as tell:
        programs = _read_two(before, after, family, tell)
        checked = compare(*programs, _question(options), engine=engine, sampling=Sampling(**drawn), tell=tell)
        replays = _replay(checked, tell) if replay else {}
    _give(report(checked, replays), form, output)


def _replay(checked: Any, tell: Callable[[str], None]) -> dict[int, Any]:
    """What the kernel makes of each witness, by number of its case."""
    from ..kernel.replay import replay
    from ..verify.question import Difference

    question = checked.question
    found = {}
    for at, case in enumerate(checked.cases):
        if isinstance(case.answer, Difference):
            tell(f"replaying {case.table} {case.answer.chain}")
            found[at] = replay(
                checked.before,
                checked.after,
                case.answer,
                malformed=question.malformed,
                verdict_only=question.verdict_only,
                backends=question.backends,
            )
    return found


def _give(said: Any, form: str, output: str) -> None:
    """Write a report where it is wanted, and end with its status."""
    from ..files import write_text
    from ..report.formats import FORMATS

    write_text(output, FORMATS[form](said))
    if output != "-":
        click.echo(said.text, err=True, nl=False)
    raise Differ if said.status == 1 else SystemExit(said.status)


@main.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@_question_options
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Changes that the text tells of; the other formats have all.",
)
@_format_options
@family_option
def diff(
    before: str, after: str, limit: int, form: str, output: str, family: str | None, **options: Any
) -> None:
    """Tell all that rule sets A and B treat differently: which packets, which lines, the largest first.

    Exit 0: nothing; 1: what is told; 2: undecided, or they could not be compared.
    """
    from ..files import check_outputs
    from ..report.diff import report
    from ..verify.diff import changes

    check_outputs({"--output": output}, {"A": before, "B": after})
    began = time.monotonic()
    with stages() as tell:
        programs = _read_two(before, after, family, tell)
        found = changes(*programs, _question(options), tell=tell)
    _give(report(found, *programs, limit, time.monotonic() - began), form, output)


@main.command()
@click.argument("file", default="-")
@click.option(
    "--backend",
    type=click.Choice(["any", "legacy", "nft"]),
    default="any",
    show_default=True,
    help="As which iptables the rules are read; any: a rule must do nothing in both to be named.",
)
@click.option("--table", "tables", multiple=True, help="This table only; may be repeated.")
@click.option("--chain", "chains", multiple=True, help="Rules of this chain only; may be repeated.")
@click.option("--timeout", type=Number(0, min_open=True), metavar="SECONDS", help="Then rules are left over.")
@_format_options
@family_option
def lint(
    file: str,
    backend: str,
    tables: tuple[str, ...],
    chains: tuple[str, ...],
    timeout: float | None,
    form: str,
    output: str,
    family: str | None,
) -> None:
    """Name the rules of FILE that never match or change nothing, and chains that are empty or not reached.

    All that is named may go together.  Exit 0: nothing is named; 1: something is; 2: trouble.
    """
    from ..api import read
    from ..files import check_outputs, read_text
    from ..ir.choices import backend_choice, backends_of
    from ..report.lint import report
    from ..verify.lint import lint as find_flaws
    from ..verify.question import Question

    check_outputs({"--output": output}, {"FILE": file})
    began = time.monotonic()
    question = Question(
        backends_of(backend_choice(backend)),
        tables=frozenset(tables),
        chains=frozenset(chains),
        timeout=timeout,
    )
    with stages() as tell:
        program = read(read_text(file), family=family_of(family), name=file)
        found = find_flaws(program, question, tell=tell)
    _give(report(found, program, time.monotonic() - began), form, output)


@main.command()
@click.argument("file", default="-")
@click.option(
    "--packet",
    required=True,
    help='As in "chain=FORWARD in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=1024 dport=22 state=NEW".',
)
@click.option("--backend", type=click.Choice(["legacy", "nft"]), default="legacy", show_default=True)
@family_option
def trace(file: str, packet: str, backend: str, family: str | None) -> None:
    """Show the verdict of a packet and every rule of FILE that it reads, by line."""
    from ..api import read
    from ..api import trace as walk_through
    from ..files import read_text
    from ..ir.packet import Backend
    from ..ir.packet_text import read_packet
    from ..report.trace import describe_walk

    program = read(read_text(file), family=family_of(family), name=file)
    wanted = read_packet(packet, program.family)
    for table in (wanted.table,):
        if all(each.name != table for each in program):
            raise HitablesError(f"{file}: there is no table {table}")
    if wanted.chain not in program.table(wanted.table):
        raise HitablesError(f"{file}: table {wanted.table} has no chain {wanted.chain}")
    walk = walk_through(
        program, wanted.packet, table=wanted.table, chain=wanted.chain, backend=Backend(backend)
    )
    click.echo(describe_walk(walk))
    if walk.open:
        click.echo("the packet does not say whether these hold; they were taken for no:", err=True)
        for key in sorted(walk.open):
            click.echo(f"  {key}", err=True)


@main.command()
@click.argument("file", default="-")
@click.option("--trace", "trace_file", help="ClassBench trace to run through the chain.")
@click.option("--chain", default=None, help="Built-in chain that the trace runs through.")
@click.option("--backend", type=click.Choice(["legacy", "nft"]), default="legacy", show_default=True)
@click.option("--costs", "costs_file", help="Profile to model costs by; the shipped one when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@family_option
def stats(
    file: str,
    trace_file: str | None,
    chain: str | None,
    backend: str,
    costs_file: str | None,
    as_json: bool,
    family: str | None,
) -> None:
    """Per chain of FILE: rules, roles, rules read per packet, modelled cost."""
    import json

    from .. import costs
    from ..api import read
    from ..costs.stats import profile, read_over_trace
    from ..files import read_text
    from ..ir.packet import Backend
    from ..report.stats import show_stats

    figures = costs.load(costs_file) if costs_file else costs.default()
    program = read(read_text(file), family=family_of(family), name=file)
    found = profile(program, Backend(backend), figures)
    over = None
    if trace_file is not None:
        over = read_over_trace(program, read_text(trace_file), trace_file, chain, Backend(backend), figures)
    if as_json:
        click.echo(json.dumps({**found, "trace": over}, indent=1))
    else:
        show_stats(found, over)


@main.command()
@click.argument("source")
@click.option("--from", "given", type=click.Choice(["classbench"]), required=True)
@click.option("--to", "wanted", type=click.Choice(["iptables"]), required=True)
@click.option("-o", "--output", default="-")
@click.option("--chain", default="FORWARD", show_default=True)
@click.option("--action", default="ACCEPT", show_default=True)
def convert(source: str, given: str, wanted: str, output: str, chain: str, action: str) -> None:
    """Turn ClassBench filters into iptables rules, one each."""
    from ..files import check_outputs, read_text, write_text
    from ..parse.classbench import parse, to_text

    del given, wanted  # one of each so far
    check_outputs({"--output": output}, {"SOURCE": source})
    write_text(output, to_text(parse(read_text(source), source), chain, action))


@main.command()
@click.argument("file", default="-")
@click.option(
    "--format", "form", type=click.Choice(["dot", "graphml", "svg"]), default="dot", show_default=True
)
@click.option("-o", "--output", default="-")
@click.option("--table", "tables", multiple=True, help="This table only; may be repeated.")
@family_option
def graph(file: str, form: str, output: str, tables: tuple[str, ...], family: str | None) -> None:
    """Draw which chain jumps where; of a compiled rule set, the trees."""
    from ..files import check_outputs, read_text, write_text
    from ..parse.iptables import read
    from ..report.graph import draw

    check_outputs({"--output": output}, {"FILE": file})
    program = read(read_text(file), family=family_of(family), name=file)
    for name in tables:
        if all(table.name != name for table in program):
            raise HitablesError(f"{file}: there is no table {name}")
    write_text(output, draw(program, form, tables))


@main.group()
def bench() -> None:
    """Measure: in the running kernel, in scratch network namespaces, or in memory."""


for command in (algorithms, classify, generate, seed, calibrate, save):
    main.add_command(command)
for command in (bench_classify, bench_kernel):
    bench.add_command(command)

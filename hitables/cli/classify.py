"""`hitables algorithms`, `classify`, `generate`, `seed`, `bench classify`: research on classifiers in memory.

These commands read and write the formats of ClassBench: filter sets, seeds and traces.
"""

from __future__ import annotations

import click

from ..errors import HitablesError
from .help import argument, command, option, section
from .options import data_options, is_json, max_memory_option, output_option
from .progress import progress_bar
from .terminal import Printer
from .traffic import generate_traffic
from .values import Size

# Packets of --traffic, unless another number is given.
TRAFFIC_PACKETS = 1_000_000


@command(
    cls=Printer,
    short_help="List the tree builders and the classifiers.",
    examples=(
        ("List all algorithms", "hitables algorithms"),
        (
            "Print the names of the classifiers",
            "hitables algorithms --format json | jq -r '.classifiers[].name'",
        ),
    ),
)
@data_options
def algorithms(form: str, as_json: bool) -> None:
    """List the tree builders of compile, and the classifiers with their parameters."""
    import json

    from .. import engine
    from ..build.grow import ALGORITHMS
    from ..report.classify import show_algorithms

    if is_json(form, as_json):
        listed = [each.as_data() for each in engine.ALGORITHMS.values()]
        head = {"format": "hitables-algorithms", "version": 1}
        click.echo(json.dumps({**head, "builders": list(ALGORITHMS), "classifiers": listed}, indent=1))
    else:
        show_algorithms(ALGORITHMS, engine.ALGORITHMS.values())


@command(
    short_help="Draw a filter set with a trace from a seed, or draw traffic.",
    examples=(
        (
            "Draw 10,000 rules, and packets that match them",
            "hitables generate acl1.seed -n 10000 -o acl1.filter --trace acl1.trace",
        ),
        (
            "Draw the packets of flows of these rules",
            "hitables generate --traffic backbone --filters acl1.filter -o backbone.pcap",
        ),
    ),
)
@argument("seed_file", metavar="[SEED]", required=False)
@section(
    "Rules",
    option("-n", "--rules", "count", metavar="N", type=int, help="Draw this many rules."),
    option(
        "--smoothness",
        metavar="BITS",
        type=click.IntRange(0, 32),
        default=0,
        show_default=True,
        help="Spread the prefix lengths by up to this many bits.",
    ),
    option(
        "--random-seed",
        "number",
        aliases=["--random"],
        metavar="N",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Draw another rule set from the same statistics, or other traffic of the same preset.",
    ),
    output_option("Write the rules, or the traffic, to FILE"),
)
@section(
    "Trace",
    option(
        "--trace",
        "trace_file",
        metavar="FILE",
        help="Write packets that match the rules, each with its first rule.",
    ),
    option(
        "--packets",
        metavar="N",
        type=int,
        help="Draw this many packets; by default ten for each rule, and a million of --traffic.",
    ),
    option(
        "--pareto",
        type=float,
        nargs=2,
        default=(1.0, 0.0),
        metavar="SHAPE SCALE",
        help="Repeat a packet more than x times with probability (SCALE/x)**SHAPE: seldom with 1 0.1, often "
        "with 1 1.",
    ),
)
@section(
    "Traffic",
    option(
        "--traffic",
        "preset",
        type=click.Choice(["uplink", "department", "backbone", "edge", "drifting", "uniform"]),
        help="Draw the packets of flows of this preset, not rules; all but the first two need --filters.",
    ),
    option(
        "--filters",
        "filters_file",
        metavar="FILE",
        help="Bind the flows to the rules of this ClassBench filter set.",
    ),
    option(
        "--directions",
        type=click.Choice(["one", "both"]),
        help="Draw the packets of clients only, or also those of servers; by default as the preset has it.",
    ),
    option(
        "--as",
        "written_as",
        type=click.Choice(["auto", "pcap", "trace"]),
        default="auto",
        show_default=True,
        help='Write the traffic in this format; auto: pcap if FILE ends with ".pcap", else a trace.',
    ),
)
def generate(
    seed_file: str | None,
    count: int | None,
    output: str,
    smoothness: int,
    trace_file: str | None,
    packets: int | None,
    pareto: tuple[float, float],
    number: int,
    preset: str | None,
    filters_file: str | None,
    directions: str | None,
    written_as: str,
) -> None:
    """Draw a filter set from the statistics in SEED, a ClassBench seed file ("hitables seed" writes one).

    With --traffic, draw packets of flows: of hosts (uplink, department), or of the rules of --filters.
    """
    if preset:
        given = {"SEED": seed_file, "--rules": count, "--smoothness": smoothness, "--trace": trace_file}
        given["--pareto"] = pareto != (1.0, 0.0)
        for name, value in given.items():
            if value:
                raise HitablesError(f"--traffic draws no rules: leave out {name}")
        packets = TRAFFIC_PACKETS if packets is None else packets
        both = {None: None, "one": False, "both": True}[directions]
        return generate_traffic(preset, filters_file, packets, number, both, written_as, output)
    if filters_file or directions or written_as != "auto":
        raise HitablesError("--filters, --directions and --as are for --traffic")
    if trace_file is None:
        for name, changed in (("--packets", packets is not None), ("--pareto", pareto != (1.0, 0.0))):
            if changed:
                raise HitablesError(f"{name} is for the packets of --trace or --traffic: give one of them")
    if seed_file is None or count is None:
        raise HitablesError("rules are drawn from a SEED, as many as --rules has: give both, or --traffic")
    return _generate_rules(seed_file, count, output, smoothness, trace_file, packets, pareto, number)


def _generate_rules(
    seed_file: str,
    count: int,
    output: str,
    smoothness: int,
    trace_file: str | None,
    packets: int | None,
    pareto: tuple[float, float],
    number: int,
) -> None:
    from .. import engine
    from ..files import check_outputs, read_text, write_texts
    from ..generate import rules as drawn_rules
    from ..generate import seed as seeds
    from ..generate import trace as traces
    from ..parse import classbench

    check_outputs({"--output": output, "--trace": trace_file}, {"SEED": seed_file})
    filters = drawn_rules.rules(seeds.parse(read_text(seed_file), seed_file), count, number, smoothness)
    texts = []
    if trace_file:
        rules = engine.Rules.of_filter(filters)
        headers = traces.headers(rules, 10 * count if packets is None else packets, number, *pareto)
        with engine.open("linear", rules) as db:
            texts.append((trace_file, traces.to_text(headers, db.search(headers))))
    write_texts([*texts, (output, classbench.to_filter_text(filters))])


@command(
    short_help="Learn a seed from a filter set.",
    examples=(
        ("Learn from a filter set", "hitables seed acl1.filter -o acl1.seed"),
        ("Draw a set twice as large", "hitables seed acl1.filter | hitables generate - -n 20000"),
    ),
)
@argument("rules_file", metavar="FILTERS")
@output_option("Write the seed to FILE")
def seed(rules_file: str, output: str) -> None:
    """Write the statistics of FILTERS, a ClassBench filter set, as a seed for "hitables generate"."""
    from ..files import check_outputs, read_text, write_text
    from ..generate.seed import learn, to_text
    from ..parse import classbench

    check_outputs({"--output": output}, {"FILTERS": rules_file})
    write_text(output, to_text(learn(classbench.parse(read_text(rules_file), rules_file))))


@command(
    short_help="Look up the packets of a trace with one classifier in memory.",
    examples=(
        (
            "Look up the packets of a trace, and check each result",
            "hitables classify acl1.filter acl1.trace --check",
        ),
        (
            "Measure one classifier, and count what its searches read",
            'hitables classify --time --work --algorithm "sfl(tss)" acl.filter acl.trace',
        ),
    ),
)
@argument("rules_file", metavar="FILTERS")
@argument("trace_file", metavar="TRACE")
@section(
    "Classifier",
    option(
        "--algorithm",
        metavar="NAME",
        default="linear",
        show_default=True,
        help='Use this classifier, as in "sfl(linear, delta=20)"; "hitables algorithms" lists them.',
    ),
    option("--check", is_flag=True, help="Compare each result with linear search, and count the mismatches."),
    option("--time", "timed", is_flag=True, help="Measure searches, in batches and one by one."),
    option(
        "--work",
        "counted",
        is_flag=True,
        help="Count what a search reads: nodes, lists, hashes, tuples, rules, flows.",
    ),
    max_memory_option("Refuse a classifier beyond this much memory"),
)
@section(
    "Output",
    option(
        "-o",
        "--output",
        metavar="FILE",
        help='Write the rule of each packet, one per line, from 0, -1 for none; "-": standard output.',
    ),
)
@data_options
def classify(
    rules_file: str,
    trace_file: str,
    algorithm: str,
    check: bool,
    timed: bool,
    counted: bool,
    max_memory: int | None,
    output: str | None,
    form: str,
    as_json: bool,
) -> None:
    """Look up the packets of TRACE in FILTERS (both in ClassBench format) with one classifier in memory."""
    import json

    from ..engine import AlgorithmSpec
    from ..engine.run import classify as run
    from ..files import check_outputs, read_text, write_text
    from ..parse import classbench
    from ..parse import trace as traces
    from ..report.classify import show_classified

    outputs = {"--output": output, "--format json": "-" if is_json(form, as_json) else None}
    check_outputs(outputs, {"FILTERS": rules_file, "TRACE": trace_file})
    plan = AlgorithmSpec.read(algorithm)
    filters = classbench.parse(read_text(rules_file), rules_file)
    packets = traces.parse(read_text(trace_file), trace_file)
    done = run(plan, filters, packets, check=check, timed=timed, counted=counted, limit=max_memory or 0)
    if output:
        write_text(output, "".join(f"{rule}\n" for rule in done.found.tolist()))
    if is_json(form, as_json):
        head = {"format": "hitables-classify", "version": 1}
        click.echo(json.dumps({**head, **done.as_data()}, indent=1))
    elif output != "-":
        show_classified([done])
    if done.mismatches:
        raise HitablesError(
            f"{plan} and linear search disagree on {done.mismatches} packets; please report this"
        )


@command(
    "classify",
    short_help="Check and time all classifiers on one trace.",
    examples=(
        ("Measure all classifiers", "hitables bench classify acl1.filter acl1.trace"),
        (
            "Measure two of them",
            'hitables bench classify acl1.filter acl1.trace --algorithms "tss;hypersplit"',
        ),
    ),
)
@argument("rules_file", metavar="FILTERS")
@argument("trace_file", metavar="TRACE")
@section(
    "Classifiers",
    option(
        "--algorithms",
        "names",
        metavar="NAMES",
        help="Measure these, separated by semicolons; by default all.",
    ),
    option(
        "--max-memory",
        type=Size(),
        metavar="SIZE",
        default="2G",
        show_default=True,
        help="Leave out a classifier beyond this much memory.",
    ),
)
@data_options
def bench_classify(
    rules_file: str, trace_file: str, names: str | None, max_memory: int, form: str, as_json: bool
) -> None:
    """Check and time every classifier on the packets of TRACE and the rules of FILTERS."""
    import json

    from .. import engine
    from ..engine.run import classify as run
    from ..errors import DatabaseError
    from ..files import check_outputs, read_text
    from ..parse import classbench
    from ..parse import trace as traces
    from ..report.classify import show_classified

    check_outputs({}, {"FILTERS": rules_file, "TRACE": trace_file})
    single = [each.name for each in engine.ALGORITHMS.values() if not each.wraps]
    plans = [engine.AlgorithmSpec.read(name) for name in (names.split(";") if names else single)]
    filters = classbench.parse(read_text(rules_file), rules_file)
    packets = traces.parse(read_text(trace_file), trace_file)
    rows = []
    with progress_bar() as progress:
        for plan in plans:
            progress(str(plan))
            try:
                rows.append(
                    run(plan, filters, packets, check=True, timed=True, counted=True, limit=max_memory)
                )
            except DatabaseError as error:
                click.echo(f"hitables: left out: {error}", err=True)
    if is_json(form, as_json):
        head = {"format": "hitables-bench-classify", "version": 1}
        click.echo(json.dumps({**head, "rows": [row.as_data() for row in rows]}, indent=1))
    else:
        show_classified(rows)
    if any(row.mismatches for row in rows):
        raise HitablesError("an algorithm and linear search disagree; please report this")

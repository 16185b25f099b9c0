"""The commands about classifiers in memory, and about rule sets to measure them with."""

from __future__ import annotations

import click

from ..errors import HitablesError
from .terminal import Size, stages


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def algorithms(as_json: bool) -> None:
    """List the tree builders, and the classifiers with what each can do."""
    import json

    from .. import engine
    from ..build.grow import ALGORITHMS
    from ..report.classify import show_algorithms

    if as_json:
        listed = [each.as_data() for each in engine.ALGORITHMS.values()]
        head = {"format": "hitables-algorithms", "version": 1}
        click.echo(json.dumps({**head, "builders": list(ALGORITHMS), "classifiers": listed}, indent=1))
    else:
        show_algorithms(ALGORITHMS, engine.ALGORITHMS.values())


@click.command()
@click.argument("seed_file", metavar="SEED")
@click.option("-n", "--rules", "count", type=int, required=True, help="How many rules.")
@click.option("-o", "--output", default="-", help='Where the rules go; "-" is standard output.')
@click.option("--smoothness", type=click.IntRange(0, 32), default=0, help="Spread of prefix lengths.")
@click.option("--trace", "trace_file", help="Write packets of the rules there, with the first rule of each.")
@click.option("--packets", type=int, help="How many; ten for each rule when left out.")
@click.option(
    "--pareto",
    type=float,
    nargs=2,
    default=(1.0, 0.0),
    metavar="SHAPE SCALE",
    help="Repeat packets: more than x times with chance (SCALE/x)**SHAPE; 1 0.1 is little, 1 1 much.",
)
@click.option("--random", "number", type=click.IntRange(0), default=0, help="Another number, another set.")
def generate(
    seed_file: str,
    count: int,
    output: str,
    smoothness: int,
    trace_file: str | None,
    packets: int | None,
    pareto: tuple[float, float],
    number: int,
) -> None:
    """Make a rule set from the statistics in SEED, a ClassBench seed file (see hitables seed)."""
    from .. import engine
    from ..files import check_outputs, read_text, write_texts
    from ..generate import rules as made
    from ..generate import seed as seeds
    from ..generate import trace as traces
    from ..parse import classbench

    check_outputs({"--output": output, "--trace": trace_file}, {"SEED": seed_file})
    filters = made.rules(seeds.parse(read_text(seed_file), seed_file), count, number, smoothness)
    texts = []
    if trace_file:
        rules = engine.Rules.of_filter(filters)
        headers = traces.headers(rules, 10 * count if packets is None else packets, number, *pareto)
        with engine.open("linear", rules) as db:
            texts.append((trace_file, traces.to_text(headers, db.search(headers))))
    write_texts([*texts, (output, classbench.to_filter_text(filters))])


@click.command()
@click.argument("rules_file", metavar="RULES")
@click.option("-o", "--output", default="-", help='Where the seed goes; "-" is standard output.')
def seed(rules_file: str, output: str) -> None:
    """Learn the statistics of RULES, a ClassBench filter set, for hitables generate."""
    from ..files import check_outputs, read_text, write_text
    from ..generate.seed import learn, to_text
    from ..parse import classbench

    check_outputs({"--output": output}, {"RULES": rules_file})
    write_text(output, to_text(learn(classbench.parse(read_text(rules_file), rules_file))))


@click.command()
@click.argument("rules_file", metavar="RULES")
@click.argument("trace_file", metavar="TRACE")
@click.option("--algorithm", default="linear", show_default=True, help="As in sfl(linear, delta=20).")
@click.option("--check", is_flag=True, help="Ask linear search too, and count where they part.")
@click.option("--time", "timed", is_flag=True, help="Measure lookups per second.")
@click.option("--max-memory", type=Size(), help="For the structure, as in 512M or 2G.")
@click.option("-o", "--output", help="Write the rule of each packet, a line each, from 0, -1: none.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def classify(
    rules_file: str,
    trace_file: str,
    algorithm: str,
    check: bool,
    timed: bool,
    max_memory: int | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Classify the packets of TRACE by RULES (both as ClassBench writes them), in memory."""
    import json

    from ..engine import AlgorithmSpec
    from ..engine.run import classify as run
    from ..files import check_outputs, read_text, write_text
    from ..parse import classbench
    from ..parse import trace as traces
    from ..report.classify import show_classified

    check_outputs({"--output": output}, {"RULES": rules_file, "TRACE": trace_file})
    plan = AlgorithmSpec.read(algorithm)
    filters = classbench.parse(read_text(rules_file), rules_file)
    packets = traces.parse(read_text(trace_file), trace_file)
    done = run(plan, filters, packets, check=check, timed=timed, limit=max_memory or 0)
    if output:
        write_text(output, "".join(f"{rule}\n" for rule in done.found.tolist()))
    if as_json:
        head = {"format": "hitables-classify", "version": 1}
        click.echo(json.dumps({**head, **done.as_data()}, indent=1))
    elif output != "-":
        show_classified([done])
    if done.mismatches:
        raise HitablesError(f"{plan} and linear search part on {done.mismatches} packets; please report this")


@click.command("classify")
@click.argument("rules_file", metavar="RULES")
@click.argument("trace_file", metavar="TRACE")
@click.option("--algorithms", "names", help="Plans, with semicolons; every classifier when left out.")
@click.option("--max-memory", type=Size(), default="2G", help="For each structure; 2G when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench_classify(
    rules_file: str, trace_file: str, names: str | None, max_memory: int, as_json: bool
) -> None:
    """Every classifier on the packets of TRACE and the RULES: checked, timed, side by side."""
    import json

    from .. import engine
    from ..engine.run import classify as run
    from ..errors import DatabaseError
    from ..files import read_text
    from ..parse import classbench
    from ..parse import trace as traces
    from ..report.classify import show_classified

    single = [each.name for each in engine.ALGORITHMS.values() if not each.wraps]
    plans = [engine.AlgorithmSpec.read(name) for name in (names.split(";") if names else single)]
    filters = classbench.parse(read_text(rules_file), rules_file)
    packets = traces.parse(read_text(trace_file), trace_file)
    rows = []
    with stages() as tell:
        for plan in plans:
            tell(str(plan))
            try:
                rows.append(run(plan, filters, packets, check=True, timed=True, limit=max_memory))
            except DatabaseError as error:
                click.echo(f"hitables: left out: {error}", err=True)
    if as_json:
        head = {"format": "hitables-bench-classify", "version": 1}
        click.echo(json.dumps({**head, "rows": [row.as_data() for row in rows]}, indent=1))
    else:
        show_classified(rows)
    if any(row.mismatches for row in rows):
        raise HitablesError("an algorithm and linear search part; please report this")

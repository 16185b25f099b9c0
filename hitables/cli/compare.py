"""`hitables check`, `diff` and `lint`: commands that prove something of rule sets and report findings.

All three end through `_give`, which writes the report and ends with its exit status.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from .help import argument, command, option, section
from .inputs import program_of, warn, warn_of_leave
from .options import (
    backend_option,
    family_option,
    leave_option,
    max_memory_option,
    output_option,
    timeout_option,
)
from .progress import progress_bar
from .source import known_source, source_options
from .terminal import Differ, Printer

_backend = backend_option("Read the rules as this iptables does; any: as legacy and as nft, each must hold.")

_scope_section = section(
    "Rule sets",
    _backend,
    family_option,
    option(
        "--across-families",
        is_flag=True,
        help="Compare a rule set of IPv4 with one of IPv6: verdicts for packets of the Internet.",
    ),
    option(
        "--pair",
        "pairs",
        metavar="IPV4=IPV6",
        multiple=True,
        help="With --across-families: two networks that stand for the same hosts; may be repeated.",
    ),
    option(
        "--table", "tables", metavar="TABLE", multiple=True, help="Compare this table only; may be repeated."
    ),
    option(
        "--chain", "chains", metavar="CHAIN", multiple=True, help="Compare this chain only; may be repeated."
    ),
    leave_option,
    option(
        "--equivalence",
        type=click.Choice(["full", "verdict"]),
        default="full",
        show_default=True,
        help="Compare verdicts, logs and counters (full), or verdicts only.",
    ),
    option("--verdict-only", is_flag=True, hidden=True),
    option(
        "--malformed",
        type=click.Choice(["stricter", "exact"]),
        default="stricter",
        show_default=True,
        help="Allow B to drop packets with cut-off headers (stricter), or require the verdict of A.",
    ),
)

_limits_section = section(
    "Limits",
    timeout_option("Give up after this long; unfinished comparisons count as undecided."),
    max_memory_option("Give up beyond this much memory; unfinished comparisons count as undecided"),
)

_report_section = section(
    "Output",
    option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "sarif", "junit"]),
        default="text",
        show_default=True,
        help="Write the report in this format.",
    ),
    output_option("Write the report to FILE, and its text to standard error"),
)


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """The options for scope and limits as arguments of `hitables.check` and `hitables.diff`."""
    arguments = dict(options)
    if arguments["pairs"] and not arguments["across_families"]:
        raise click.UsageError("--pair is for a comparison with --across-families")
    if arguments["across_families"] and arguments["equivalence"] == "full":
        source = click.get_current_context().get_parameter_source("equivalence")
        if source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--equivalence full: with --across-families only verdicts are compared")
    if arguments.pop("verdict_only"):  # the former spelling of --equivalence verdict
        arguments["equivalence"] = "verdict"
    return arguments


def _read_programs(
    files: Sequence[str], family: str | None, progress: Callable[[str], None]
) -> tuple[list[Any], dict[str, str]]:
    """The rule sets of *files*, and their texts; one at most is standard input (files.check_outputs)."""
    texts = _read_texts(files, progress)
    return [program_of(text, file, family) for file, text in texts], dict(texts)


def _read_compared(
    files: Sequence[str], family: str | None, across_families: bool, progress: Callable[[str], None]
) -> tuple[list[Any], dict[str, str]]:
    """As `_read_programs`; a text without a sign of its family is of IPv6 where another of *files* is.

    *across_families*: of the family that none of the others is of.
    """
    from ..ir.fields import Family
    from ..parse.guess_family import guess_family, says_no_family

    if across_families:
        if family is not None:
            raise click.UsageError("--family names one family, and --across-families compares two")
        return _read_both_families(files, progress)
    texts = _read_texts(files, progress)
    of_ipv6 = [file for file, text in texts if guess_family(text, file) is Family.IPV6]
    programs = []
    for file, text in texts:
        as_another = family is None and of_ipv6 and says_no_family(text, file)
        if as_another:
            warn(f"{file} is read as IPv6, as {of_ipv6[0]} is: --family says of which family both are")
        programs.append(program_of(text, file, "6" if as_another else family))
    return programs, dict(texts)


def _read_both_families(
    files: Sequence[str], progress: Callable[[str], None]
) -> tuple[list[Any], dict[str, str]]:
    """As `_read_compared`: a text without a sign of its family is of that which the first file is not of."""
    from ..parse.guess_family import guess_family, says_no_family

    texts = _read_texts(files, progress)
    (first, first_text), *others = texts
    told = [guess_family(text, file) for file, text in others if not says_no_family(text, file)]
    of_first = guess_family(first_text, first)
    if told and says_no_family(first_text, first):
        of_first = _other(told[0])
    programs = [program_of(first_text, first, str(int(of_first)))]
    for file, text in others:
        family = _other(of_first) if says_no_family(text, file) else guess_family(text, file)
        programs.append(program_of(text, file, str(int(family))))
    return programs, dict(texts)


def _other(family: Any) -> Any:
    from ..ir.fields import Family

    return Family.IPV4 if family is Family.IPV6 else Family.IPV6


def _read_texts(files: Sequence[str], progress: Callable[[str], None]) -> list[tuple[str, str]]:
    """Each of *files*, which may be named twice, and its text."""
    from ..files import read_text

    texts = []
    for file in files:
        progress(f"reading {file}")
        texts.append((file, read_text(file)))
    return texts


def _give(reports: Sequence[Any], texts: dict[str, str], form: str, output: str) -> None:
    """Write *reports* as one document, and end with their exit status."""
    from ..files import write_text
    from ..report.formats import FORMATS, status

    write_text(output, FORMATS[form]([replace(report, texts=texts) for report in reports]))
    if output != "-":
        click.echo(FORMATS["text"](reports), err=True, nl=False)
    raise Differ if status(reports) == 1 else SystemExit(status(reports))


@command(
    cls=Printer,
    short_help="Prove that rule sets are equal, or show a packet that differs.",
    examples=(
        (
            "Compare the rules of this host with the reviewed ones",
            "hitables save | hitables check reviewed.rules -",
        ),
        (
            "Compare several generated rule sets with one",
            "hitables check --against reviewed.rules build/*.rules",
        ),
    ),
)
@argument("files", metavar="[A] B...", nargs=-1, required=True)
@section(
    "Rule sets",
    option("--against", metavar="A", help="Compare each B with this rule set; without it, name A and one B."),
    *source_options,
)
@_scope_section
@section(
    "Method",
    option(
        "--engine",
        type=click.Choice(["exact", "diagrams", "sample"]),
        default="exact",
        show_default=True,
        help="Prove equality (exact), prove it by decision diagrams (slow), or only try packets (sample).",
    ),
    option(
        "--packets",
        metavar="N",
        type=click.IntRange(1),
        help="Try this many packets per chain (engine sample).",
    ),
    option(
        "--random-seed",
        "seed",
        aliases=["--seed"],
        metavar="N",
        type=int,
        help="Draw other packets (engine sample).",
    ),
    option(
        "--replay",
        is_flag=True,
        help="Send each packet found through both rule sets in scratch network namespaces (root).",
    ),
)
@_limits_section
@_report_section
def check(
    files: tuple[str, ...],
    against: str | None,
    engine: str,
    packets: int | None,
    seed: int | None,
    replay: bool,
    map_file: str | None,
    folder: str | None,
    form: str,
    output: str,
    family: str | None,
    **options: Any,
) -> None:
    """Prove that rule set B treats every packet as A does, or show a packet that it does not.

    Exit status 0: equal; 1: different; 2: undecided, or an error. Of several B, one that differs makes it 1.
    """
    from .. import api
    from ..files import check_outputs, named_inputs
    from ..report.check import report

    if against is None:
        if len(files) != 2:
            raise click.UsageError("name two rule sets, A and B; or --against A and one B or more")
        against, *files_after = files
    else:
        files_after = list(files)
    check_outputs({"--output": output}, {"A": against, "--map": map_file} | named_inputs("B", files_after))
    for name, value in (("packets", packets), ("seed", seed)):
        if value is not None and engine != "sample":
            raise click.UsageError(f"--{name}: engine {engine} draws no packets")
    if engine == "sample" and options["max_memory"] is not None:
        raise click.UsageError("--max-memory: engine sample keeps no bound; draw fewer --packets")
    if replay and options["across_families"]:
        raise click.UsageError("--replay: no packet is of both families")
    arguments = _arguments(options) | {"engine": engine, "packets": packets, "seed": seed}
    reports = []
    with progress_bar() as progress:
        (before, *programs), texts = _read_compared(
            [against, *files_after], family, options["across_families"], progress
        )
        warn_of_leave(options["leave"], [before, *programs])
        for after in programs:
            checked = api.check(before, after, progress=progress, **arguments)
            known = _known_sources(before, after, map_file, folder)
            reports.append(report(checked, _replays(checked, progress) if replay else {}, known))
    _give(reports, texts, form, output)


def _known_sources(before: Any, after: Any, map_file: str | None, folder: str | None) -> Any:
    """The rule set of the two that is compiled, with its source; None in place of the other."""
    from ..analyse.compiled_text import why_compiled

    return tuple(
        known_source(program, map_file, folder) if why_compiled(program) else None
        for program in (before, after)
    )


def _replays(checked: Any, progress: Callable[[str], None]) -> dict[int, Any]:
    """What the kernel does with the witness of each differing case, by the number of the case."""
    from ..kernel.replay import replay
    from ..verify.question import Difference

    question = checked.question
    replays = {}
    for number, case in enumerate(checked.cases):
        if isinstance(case.answer, Difference):
            progress(f"replaying {case.table} {case.answer.chain}")
            replays[number] = replay(
                checked.before,
                checked.after,
                case.answer,
                malformed=question.malformed,
                verdict_only=question.verdict_only,
                backends=question.backends,
            )
    return replays


@command(
    cls=Printer,
    short_help="List all packets that two rule sets treat differently.",
    examples=(
        ("Show what a change of rules changes", "hitables diff before.rules after.rules"),
        (
            "Compare all changes of one chain, for a program",
            "hitables diff --chain FORWARD --format json before.rules after.rules",
        ),
    ),
)
@argument("before", metavar="A")
@argument("after", metavar="B")
@_scope_section
@_limits_section
@_report_section
@section(
    "Output",
    option(
        "--limit",
        metavar="N",
        type=click.IntRange(1),
        default=20,
        show_default=True,
        help="Print this many changes in format text; the other formats have all.",
    ),
)
def diff(
    before: str, after: str, limit: int, form: str, output: str, family: str | None, **options: Any
) -> None:
    """List the packets that rule sets A and B treat differently, and the rules that decide.

    Changed verdicts are listed first, and of these the largest set of headers.
    Exit status 0: none; 1: some; 2: undecided, or an error.
    """
    from .. import api
    from ..files import check_outputs
    from ..report.diff import report

    check_outputs({"--output": output}, {"A": before, "B": after})
    began = time.monotonic()
    with progress_bar() as progress:
        (first, second), texts = _read_compared([before, after], family, options["across_families"], progress)
        warn_of_leave(options["leave"], [first, second])
        differences = api.diff(first, second, progress=progress, **_arguments(options))
    _give([report(differences, first, second, limit, time.monotonic() - began)], texts, form, output)


@command(
    cls=Printer,
    short_help="List useless rules and unreachable chains.",
    examples=(
        ("List the useless rules of this host", "hitables save | hitables lint"),
        ("Check several rule sets, for code scanning", "hitables lint --format sarif -o lint.sarif *.rules"),
    ),
)
@argument("files", metavar="[FILE]...", nargs=-1)
@section(
    "Rule sets",
    backend_option(
        "Read the rules as this iptables does; any: name a rule that is useless in legacy and nft."
    ),
    family_option,
    option(
        "--table", "tables", metavar="TABLE", multiple=True, help="Check this table only; may be repeated."
    ),
    option(
        "--chain",
        "chains",
        metavar="CHAIN",
        multiple=True,
        help="Check the rules of this chain only; may be repeated.",
    ),
    leave_option,
)
@section("Limits", timeout_option("Stop after this long for each FILE; remaining rules are not checked."))
@_report_section
def lint(
    files: tuple[str, ...],
    backend: str,
    tables: tuple[str, ...],
    chains: tuple[str, ...],
    leave: tuple[str, ...],
    timeout: float | None,
    form: str,
    output: str,
    family: str | None,
) -> None:
    """List rules that never match or change nothing, and chains that are empty or unreachable.

    All of them may be removed together; where a message says so, packets with broken headers alone are then
    treated otherwise. One rule that makes the kernel track connections or reassemble fragments remains, and
    a note names it. Exit status 0: nothing found; 1: something found; 2: not all rules
    were checked, or an error. Of several FILEs, one with something found makes it 1.

    Thousands of rules in chains that enter one another may take minutes; --timeout lists what was found by
    then.
    """
    from .. import api
    from ..files import check_outputs, named_inputs
    from ..parse.text_checks import refused_line_ends
    from ..report.lint import report

    files = files or ("-",)
    check_outputs({"--output": output}, named_inputs("FILE", files))
    reports = []
    with progress_bar() as progress:
        programs, texts = _read_programs(files, family, progress)
        warn_of_leave(leave, programs)
        for program in programs:
            began = time.monotonic()
            flaws = api.lint(
                program,
                backend=backend,
                tables=tables,
                chains=chains,
                leave=leave,
                timeout=timeout,
                progress=progress,
            )
            ends = refused_line_ends(texts[program.name])
            reports.append(report(flaws, program, time.monotonic() - began, ends))
    _give(reports, texts, form, output)

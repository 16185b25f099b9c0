"""`hitables compile`: its options, and the sources of rule weights.

The help lists the options by section; sections Output and Traffic have a class here, which checks and uses
their options.  The work itself is `compiler.pipeline.compile_program`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click

from ..errors import HitablesError
from .compile_messages import show_result, show_summary, warn_of_faults
from .help import argument, command, option, section
from .inputs import family_of, read_packets, warn_of_leave, warn_of_text
from .options import (
    backend_option,
    costs_option,
    family_option,
    leave_option,
    max_memory_option,
    output_option,
    timeout_option,
)
from .progress import progress_bar
from .terminal import keep
from .values import Number

Section = TypeVar("Section")

# A packet that no hot rule decides reads all of them.
MOST_HOT = 256


def choice_of_paper(name: str, words: Sequence[str], text: str) -> Callable[..., Any]:
    """An option of scheme paper (compiler.options.PAPER_CHOICES); the first word is the default."""
    return option(
        name, type=click.Choice(words), default=words[0], show_default=True, help=f"{text} (scheme paper)."
    )


def take(kind: type[Section], options: dict[str, Any]) -> Section:
    """A *kind* (a dataclass) of the options that its fields name; they are removed from *options*."""
    return kind(**{each.name: options.pop(each.name) for each in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Section Output: what is written, and where."""

    output: str
    map_file: str | None
    report: str | None
    summary: bool
    quiet: bool

    def check(self, inputs: dict[str, str | None]) -> None:
        """HitablesError when one output would overwrite another or one of *inputs*, or has a wrong name."""
        from ..files import check_outputs

        check_outputs({"--output": self.output, "--map": self.map_file, "--report": self.report}, inputs)
        if self.report is not None and not self.report.lower().endswith((".html", ".htm")):
            raise HitablesError(
                f"--report {self.report}: the report is a page for a browser, so name it FILE.html; "
                "--summary prints the changes of each chain on the terminal"
            )


@dataclass(frozen=True, slots=True)
class TrafficOptions:
    """Section Traffic: how often packets match each rule."""

    trace_file: str | None
    pcap_file: str | None
    through: str | None
    uniform: bool

    def weigh(self, backend: str) -> Callable[[Any], Any]:
        """The function that weighs the rules of a program; HitablesError for options that contradict."""
        from ..analyse import weights
        from ..ir.packet import Backend
        from ..simulate import traffic

        source = self.trace_file or self.pcap_file
        if sum(map(bool, (self.trace_file, self.pcap_file, self.uniform))) > 1:
            raise HitablesError("--trace, --pcap and --uniform exclude each other: give one of them")
        if self.through and not source:
            raise HitablesError(
                "--through names the chain for the packets of --trace or --pcap: give one of them"
            )

        def weigh(program: Any) -> Any:
            if self.uniform:
                return None
            if source is None:
                return weights.counted(program)
            chain = traffic.busiest_chain(program, self.through)
            batch, named = read_packets(self.trace_file, self.pcap_file, program.family)
            read_as = Backend.LEGACY if backend == "any" else Backend(backend)
            return traffic.from_packets(program, "filter", chain, batch, read_as, named)

        return weigh


@command(
    "compile",
    short_help="Compile long chains into decision trees, and prove the result.",
    examples=(
        (
            "Compile for this host's iptables and show what changed",
            "hitables compile --backend nft --summary office.rules -o office.compiled",
        ),
        (
            "Compile the rules of this host with their counters, and load the result",
            "iptables-save -c | hitables compile | iptables-restore",
        ),
    ),
)
@argument("file", default="-")
@section(
    "Output",
    output_option("Write the compiled rule set to FILE"),
    option(
        "--map",
        "map_file",
        metavar="FILE",
        help="Write the line number in FILE of each printed rule, as JSON.",
    ),
    option(
        "--report",
        metavar="FILE.html",
        help="Write a page for a browser: each chain before and after, and its tree.",
    ),
    option("--summary", is_flag=True, help="Print a table of the compiled chains to standard error."),
    option(
        "--quiet",
        is_flag=True,
        help="Show no progress bar, and no notes of chains that are not compiled; warnings stay.",
    ),
)
@section(
    "Rule set",
    backend_option("Make the result right for this iptables; any: for legacy and nft."),
    family_option,
    option(
        "--table", "tables", metavar="TABLE", multiple=True, help="Compile this table only; may be repeated."
    ),
    option(
        "--chain", "chains", metavar="CHAIN", multiple=True, help="Compile this chain only; may be repeated."
    ),
    leave_option,
    option(
        "--equivalence",
        type=click.Choice(["full", "verdict"]),
        default="full",
        show_default=True,
        help="Keep every rule (full), or only verdicts: remove rules that affect none, reorder others.",
    ),
    option(
        "--malformed",
        type=click.Choice(["stricter", "exact"]),
        default="stricter",
        show_default=True,
        help="Allow the result to drop packets with cut-off headers (stricter), or treat them as FILE does.",
    ),
)
@section(
    "Traffic",
    option(
        "--trace", "trace_file", metavar="FILE", help="Weigh rules by the packets of this ClassBench trace."
    ),
    option("--pcap", "pcap_file", metavar="FILE", help="Weigh rules by the packets of this capture."),
    option(
        "--through",
        metavar="CHAIN",
        help="Send these packets through this built-in chain of table filter; by default the longest.",
    ),
    option(
        "--uniform",
        aliases=["--alike"],
        is_flag=True,
        help="Give all rules the same weight, and ignore the counters of FILE.",
    ),
    option(
        "--hot",
        metavar="N",
        type=click.IntRange(0, MOST_HOT),
        default=0,
        help="Put copies of the rules that decide most packets in front of each tree: at most N, those that "
        "pay.",
    ),
    costs_option('Minimise time by this profile of "hitables calibrate".'),
)
@section(
    "Limits",
    option(
        "--min-length",
        metavar="N",
        type=click.IntRange(1),
        default=8,
        show_default=True,
        help="Leave chains of fewer rules as they are.",
    ),
    option(
        "--max-expansion",
        metavar="FACTOR",
        type=Number(1),
        default=4.0,
        show_default=True,
        help="Print at most this many rules per rule of a chain; a rule of several ports counts as one "
        "for each two of them.",
    ),
    option(
        "--max-depth",
        metavar="N",
        type=int,
        help="Nest at most this many chains; by default as many as the backend can.",
    ),
    option(
        "--effort",
        type=click.Choice(["fast", "normal", "best"]),
        default="normal",
        show_default=True,
        help="Search this hard for the cheapest tree. Steps are counted, so every machine finds the same.",
    ),
)
@section(
    "Proof",
    option(
        "--no-prove",
        aliases=["--no-verify"],
        is_flag=True,
        help="Print the result unproved; its first line says so.",
    ),
    timeout_option("Give up the proof after this long, and print nothing."),
    max_memory_option("Give up the proof beyond this much memory, and print nothing"),
)
@section(
    "Research",
    option(
        "--scheme",
        type=click.Choice(["tree", "paper"]),
        default="tree",
        show_default=True,
        help="Compile whole chains (tree), or apply the transformation of CoNEXT 2014 (paper).",
    ),
    option(
        "--algorithm",
        metavar="NAME",
        help='Build trees with this algorithm; "hitables algorithms" lists them.',
    ),
    option(
        "--leaf-size",
        aliases=["--binth"],
        metavar="N",
        type=click.IntRange(1),
        help="Split leaves of more rules (binth); the default algorithm chooses the size.",
    ),
    option(
        "--spfac",
        metavar="FACTOR",
        type=Number(1),
        default=4.0,
        show_default=True,
        help="Set the space factor of HiCuts and HyperCuts.",
    ),
    choice_of_paper("--cuts", ("equal", "unequal"), "Cut boxes into equal parts, or between rules"),
    choice_of_paper(
        "--dispatch", ("paper", "tool"), "Enter a lone child at once, or by a chain, as the tool of 2014"
    ),
    choice_of_paper(
        "--runs", ("tool", "paper"), "Transform rules of tcp and udp, or all rules of five fields"
    ),
    choice_of_paper(
        "--dim-choice",
        ("max-dist", "least-max"),
        "Cut where most rules lie apart, or where the largest part is least",
    ),
)
def compile_command(
    file: str, family: str | None, scheme: str, costs_file: str | None, **options: Any
) -> None:
    """Compile the long chains of FILE into decision trees, and print the result.

    The result is read again and proved equal to FILE; without a proof nothing is printed. A chain whose
    tree turns out wrong is printed unchanged, with a warning.

    Trees favour the rules that match most packets. The packets that match each rule are counted in --trace
    or --pcap, else by the counters of FILE (iptables-save -c); without counters all rules weigh the same.

    --hot puts copies of the rules that decide most packets in front of the trees, cut to the packets that
    each of these rules decides, as long as the cost model says that they pay.
    """
    from ..analyse.compiled_text import refuse_compiled
    from ..compiler.pipeline import compile_program
    from ..files import read_text
    from ..parse.iptables import Vocabulary
    from ..reader import read

    outputs, weights = take(Outputs, options), take(TrafficOptions, options)
    no_prove, timeout, max_memory = (options.pop(name) for name in ("no_prove", "timeout", "max_memory"))
    outputs.check(
        {"FILE": file, "--costs": costs_file, "--trace": weights.trace_file, "--pcap": weights.pcap_file}
    )
    if options["hot"] and weights.uniform:
        raise HitablesError(
            "--hot needs to know which rules decide most packets, which --uniform hides: drop one"
        )
    weigh: Callable[[Any], Any] | None = weights.weigh(options["backend"])
    if scheme == "paper":
        if weights.trace_file or weights.pcap_file:
            raise HitablesError("scheme paper weighs all rules the same: leave out --trace and --pcap")
        weigh = None
    compile_options = _compile_options(scheme, costs_file, options)
    with progress_bar(outputs.quiet) as progress:
        text, known = read_text(file), Vocabulary()
        progress("reading")
        program = read(text, family=family_of(family), name=file, known=known)
        refuse_compiled(program, file)
        warn_of_text(program, text, family)
        warn_of_leave(options["leave"], [program])
        result = compile_program(
            program,
            compile_options,
            scheme=scheme,
            known=known,
            prove=not no_prove,
            timeout=timeout,
            max_memory=max_memory,
            tell=progress,
            done=progress.done,
            weigh=weigh,
            source_text=text,
        )
    # Files first: standard error may be a closed pipe, and a message that fails must not lose the result.
    _write(result, outputs, options["backend"])
    keep((program, known, result))
    warn_of_faults(result.faults)
    if not outputs.quiet:
        show_result(result, compile_options, outputs.output)
    if outputs.summary:
        show_summary(result)


def _compile_options(scheme: str, costs_file: str | None, options: dict[str, Any]) -> Any:
    """The compiler's `Options` for the options that remain of the command line."""
    from .. import costs
    from ..compiler.options import LEAF_SIZE, Options
    from ..ir.choices import Equivalence, Malformed, backend_choice
    from ..ir.foreign import patterns_of

    same = (
        "spfac",
        "min_length",
        "max_expansion",
        "max_depth",
        "effort",
        "hot",
        "dispatch",
        "runs",
        "dim_choice",
    )
    return Options(
        **{name: options[name] for name in same},
        backend=backend_choice(options["backend"]),
        equivalence=Equivalence(options["equivalence"]),
        malformed=Malformed(options["malformed"]),
        algorithm=options["algorithm"] or "auto",
        leaf_size=options["leaf_size"] or LEAF_SIZE[scheme],
        costs=costs.load(costs_file) if costs_file else None,
        unequal_cuts=options["cuts"] == "unequal",
        tables=frozenset(options["tables"]),
        chains=frozenset(options["chains"]),
        leave=patterns_of(options["leave"]),
    )


def _write(result: Any, outputs: Outputs, backend: str) -> None:
    """Write the source map, the page and the rule set: all of them, or none."""
    import json

    from ..files import write_texts

    texts = [(outputs.map_file, json.dumps(result.source_map, indent=1) + "\n")] if outputs.map_file else []
    if outputs.report is not None:
        from ..ir.packet import Backend
        from ..report.page import page

        texts.append((outputs.report, page(result, Backend.NFT if backend == "nft" else Backend.LEGACY)))
    write_texts([*texts, (outputs.output, result.text)])

"""The whole compiler: text -> program -> compiled program -> text, proved before it is returned.

Idea: the proof trusts nothing of the compiler.  The text that would be printed is read again, as a kernel
tool would read it, and the prover (verify/) compares the two programs.

Invariant: with *prove*, the text that is returned was proved equal to the input.  A chain whose tree is
wrong is printed as it was read, the whole is proved again, and the chain is listed in `Output.faults`.

Cost: compiling and proving take about the same time; *timeout* and *max_memory* bound the proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from ..analyse.weights import Weights
from ..emit.sourcemap import source_map, with_own_lines, with_true_lines
from ..emit.text import write
from ..errors import HitablesError, InvalidOption
from ..ir.choices import Equivalence, backends_of
from ..ir.fields import Family
from ..ir.foreign import entered_from, hide, is_foreign, show
from ..ir.marker import with_markers
from ..ir.meaning import Digests
from ..ir.program import Program, with_undeclared_kept
from ..nouns import counted
from ..parse.iptables import Vocabulary
from ..reader import read
from ..verify.question import ByRegions, Equal, Question
from ..version import __version__
from .compile import compile_rules
from .fault_search import fault_of
from .options import LEFT, PAPER_CHOICES, Options
from .result import MIXED, ChainFault, ChainReport, Compiled, left_alone
from .text_proof import mismatch_of, not_equivalent

Weigh = Callable[[Program], Weights | None]  # the weights of a program's rules; None: all alike
OnStage = Callable[[str], None]  # receives the name of each stage as it begins
OnShare = Callable[[float], None]  # receives the share of the compiling that is done, from 0 to 1


@dataclass(frozen=True)
class Output:
    """A compiled rule set.

    text        the compiled rule set as iptables-save text; its first line names options and proof
    program     the same as a Program
    reports     per chain: what was done to it, and why
    before      the input as a Program
    weighed     the source of the rules' weights; "" when all rules weigh alike
    faults      chains that are printed as they were read because of a fault in hitables; report them
    proved      whether the text was proved equal to the input
    by_regions  chains whose proof did not use their groups, which may take much longer; and why
    map_now     makes `source_map`
    """

    text: str
    program: Program
    reports: tuple[ChainReport, ...]
    before: Program
    weighed: str = ""
    faults: tuple[ChainFault, ...] = ()
    proved: bool = True
    by_regions: tuple[ByRegions, ...] = ()
    map_now: Callable[[], dict[str, Any]] = field(default=dict, repr=False, compare=False)

    @cached_property
    def source_map(self) -> dict[str, Any]:
        """For each rule of the output its line in the input (hitables/schema/map.json).

        Made when it is asked for, since it takes as long as printing the rule set.
        """
        return self.map_now()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy in another process has: the map itself in place of what makes it."""
        return {**self.__dict__, "map_now": partial(dict, self.source_map)}


def _ignore(progress: object) -> None:
    """The default of the functions that receive progress."""


# ---- the first line of the output ----

_COMPILED, _LACKS = "# Compiled by hitables ", ", equivalence verdict "


def lacks_rules(program: Program) -> bool:
    """Whether the first line says that compiling removed rules: such a rule set is no source for updates."""
    notes = program.tables[0].notes if program.tables else ()
    return bool(notes) and notes[0].startswith(_COMPILED) and _LACKS in notes[0]


def _header(options: Options, scheme: str, prove: bool, compiled: Compiled) -> str:
    """The first line.  What depends on policies is said, as they may be changed in the kernel alone.

    It names ip6tables, by which the family is known again (parse/guess_family.py) where no address tells it.
    """
    tool = " for ip6tables" if compiled.program.family is Family.IPV6 else ""
    removed = len(compiled.gone)
    returning = [f"{each.chain} ({each.table})" for each in compiled.reports if each.returns]
    policies = f"RETURN of {', '.join(returning)} as its policy; " if returning else ""
    verdicts = options.equivalence is Equivalence.VERDICT
    equal = "to give every packet the verdict of its input" if verdicts else "equal to its input"
    proof = f"proved {equal}" if prove else f"NOT PROVED {equal} (--no-prove)"
    lacks = f"{_LACKS}({counted(removed, 'rule')} went)" if verdicts else ""
    return (
        f"{_COMPILED}{__version__}{tool}: scheme {scheme}, backend {options.backend}, "
        f"malformed packets {options.malformed}{lacks}; {policies}{proof}\n"
    )


# ---- compiling ----


def compile_text(
    text: str,
    options: Options,
    *,
    family: Family | None = None,
    name: str = "-",
    scheme: str = "tree",
    prove: bool = True,
    timeout: float | None = None,
    max_memory: int | None = None,
    tell: OnStage = _ignore,
    weigh: Weigh | None = None,
    done: OnShare = _ignore,
) -> Output:
    """Read *text*, then `compile_program`."""
    tell("reading")
    known = Vocabulary()
    program = read(text, family=family, name=name, known=known)
    return compile_program(
        program,
        options,
        scheme=scheme,
        prove=prove,
        timeout=timeout,
        max_memory=max_memory,
        tell=tell,
        weigh=weigh,
        done=done,
        known=known,
        source_text=text,
    )


def compile_program(
    program: Program,
    options: Options,
    *,
    scheme: str = "tree",
    prove: bool = True,
    timeout: float | None = None,
    max_memory: int | None = None,
    tell: OnStage = _ignore,
    weigh: Weigh | None = None,
    done: OnShare = _ignore,
    known: Vocabulary | None = None,
    source_text: str = "",
) -> Output:
    """Compile *program*, print it, read the text again, prove the two equal.

    HitablesError for hot rules without weights of the rules;
    NotEquivalent, with a packet, when the result differs even after the chains at fault were put back;
    OutOfBudget when *timeout* (seconds, for all proofs together) or *max_memory* (bytes) ends a proof.
    Without *prove* the first line of the output says that it was not proved.
    *known* is the vocabulary that *program* was read with, *source_text* its text, which the source map gets.
    """
    if weigh is not None:
        tell("weighing")
        options = replace(options, traffic=weigh(program))
    _check_hot(program, options, scheme)
    tell("compiling")
    given = program
    original, lines = with_own_lines(given)
    program = with_undeclared_kept(hide(original, options.leave))
    options = _with_unchanged(original, options)
    compiled = _transform(program, options, scheme, done)
    deadline = None if timeout is None else time.monotonic() + timeout
    question = Question(
        backends_of(options.backend),
        options.malformed,
        equivalence=options.equivalence,
        timeout=timeout,
        max_memory=max_memory,
    )
    by_regions: tuple[ByRegions, ...] = ()
    digests = Digests()
    while True:
        tell("printing")
        shown = _shown(compiled, original, options, digests)
        output_text = _header(options, scheme, prove, compiled) + write(shown)
        if not prove:
            break
        tell("proving")
        mismatch = mismatch_of(program, output_text, question, known, options.leave, compiled.changed())
        if isinstance(mismatch, Equal):
            by_regions = mismatch.by_regions
            break
        if deadline is not None:
            question = replace(question, timeout=max(1e-3, deadline - time.monotonic()))
        fault = fault_of(program, compiled, output_text, mismatch, question, options.leave)
        if fault is None:
            raise not_equivalent(mismatch)
        without_hot, place = compiled.without_hot(fault), (fault.table, fault.chain)
        may_be_careful = scheme == "tree" and fault.why != MIXED and place not in options.careful
        if without_hot is None and may_be_careful:
            tell("compiling")
            options = replace(options, careful=options.careful | {place})
            compiled = _transform(program, options, scheme, done)
        else:
            compiled = without_hot or compiled.leaving(program, fault)
    return Output(
        output_text,
        with_true_lines(shown, lines),
        _reports(compiled.reports, original, options),
        given,
        options.traffic.source if options.traffic else "",
        compiled.faults,
        prove,
        by_regions,
        lambda: _map(shown, compiled, original, lines, options, digests) | {"text": source_text},
    )


def _check_hot(program: Program, options: Options, scheme: str) -> None:
    if options.hot and options.traffic is None and scheme == "tree":
        raise HitablesError(
            f"{program.name}: hot rules are those of most packets, and there are no packets: give a trace or "
            "a capture (--trace, --pcap), or save the rule set with its counters (iptables-save -c)"
        )


def _shown(compiled: Compiled, original: Program, options: Options, digests: Digests) -> Program:
    """The compiled program as it is printed: with the foreign chains of *original*, and with markers."""
    shown = with_undeclared_kept(show(compiled.program, original, options.leave), kept=False)
    if not options.marked:
        return shown
    return with_markers(shown, original, {table for table, _ in compiled.changed()}, digests)


def _map(
    shown: Program,
    compiled: Compiled,
    original: Program,
    lines: Mapping[int, int],
    options: Options,
    digests: Digests,
) -> dict[str, Any]:
    """The source map, with the true *lines* of rules that share one."""
    gone = [replace(each, line=lines.get(each.line, each.line)) for each in compiled.gone]
    plain = source_map(shown, compiled.origins, original.name, gone, original, options.leave, digests)
    for table in plain["tables"] if lines else ():
        for chain in table["chains"]:
            chain["lines"] = [lines.get(line, line) for line in chain["lines"]]
    return plain


def _with_unchanged(program: Program, options: Options) -> Options:
    """The options, with the chains that are printed as they are because of foreign chains."""
    foreign = {
        (table.name, chain.name): LEFT
        for table in program
        for chain in table.chains
        if is_foreign(chain.name, options.leave)
    }
    reached = {
        place: f"entered from {origin}, which is {LEFT}"
        for place, origin in entered_from(program, options.leave).items()
    }
    return replace(options, unchanged={**reached, **foreign}) if foreign else options


def _reports(reports: tuple[ChainReport, ...], program: Program, options: Options) -> tuple[ChainReport, ...]:
    """The reports, with the rules that foreign chains really have."""
    return tuple(
        left_alone(each.table, program.table(each.table)[each.chain], each.why)
        if is_foreign(each.chain, options.leave)
        else each
        for each in reports
    )


def _transform(program: Program, options: Options, scheme: str, done: OnShare) -> Compiled:
    if scheme == "tree":
        _refuse_paper_choices(options)
        return compile_rules(program, options, done, spare=True)
    if scheme != "paper":
        raise InvalidOption(f"unknown scheme {scheme!r}; use tree or paper")
    if options.equivalence is not Equivalence.FULL:
        raise InvalidOption("scheme paper prints every rule: equivalence verdict needs scheme tree")
    if options.hot:
        raise InvalidOption("scheme paper has no hot rules: they need scheme tree")
    if options.leave:
        raise InvalidOption(
            "scheme paper moves rules that enter chains of other programs: leave needs scheme tree"
        )
    from .conext2014 import transform

    return transform(program, options)


def _refuse_paper_choices(options: Options) -> None:
    """InvalidOption for a choice that scheme tree does not have, so that none is ignored."""
    cuts = PAPER_CHOICES["cuts"][options.unequal_cuts]
    chosen = {"cuts": cuts} | {name: getattr(options, name) for name in PAPER_CHOICES if name != "cuts"}
    for name, word in chosen.items():
        if word != PAPER_CHOICES[name][0]:
            raise InvalidOption(f"{name.replace('_', '-')} {word} needs scheme paper")

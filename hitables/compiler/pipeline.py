"""The whole compiler: text -> program -> compiled program -> text, proved before it is returned.

Idea: the proof trusts nothing of the compiler.  The text that would be printed is read again, as a kernel
tool would read it, and the prover (verify/) compares the two programs.

Invariant: with *prove*, the text that is returned was proved equal to the input.  A chain whose tree is
wrong is printed as it was read, the whole is proved again, and the chain is listed in `Output.faults`.

Cost: compiling and proving take about the same time; *timeout* and *max_memory* bound the proof.

Callers: the command `hitables compile`, and `hitables.compile` (api.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain as row
from typing import Any

from ..analyse.weights import Weights
from ..emit.sourcemap import source_map, with_own_lines, with_true_lines
from ..emit.text import write
from ..errors import HitablesError, InvalidOption, NotEquivalent, OutOfBudget, ParseError
from ..ir.choices import Equivalence, backends_of
from ..ir.fields import Family
from ..ir.foreign import entered_from, hide, is_foreign, show, with_appended
from ..ir.marker import with_markers
from ..ir.meaning import Digests
from ..ir.program import Chain, Program, with_undeclared_kept
from ..ir.rule import Match
from ..nouns import counted
from ..parse.iptables import Vocabulary
from ..parse.named_memory import NamedMemory, loaded_first, named_memory
from ..reader import read
from ..rule_lines import lines_of
from ..verify.question import ByRegions, Difference, Equal, Question, Undecided
from ..version import __version__
from .compile import compile_rules
from .options import LEFT, PAPER_CHOICES, Options
from .result import MIXED, ChainFault, ChainReport, Compiled, left_alone

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
        mismatch = _mismatch(program, output_text, question, known, options.leave, compiled.changed())
        if isinstance(mismatch, Equal):
            by_regions = mismatch.by_regions
            break
        if deadline is not None:
            question = replace(question, timeout=max(1e-3, deadline - time.monotonic()))
        fault = _fault(program, compiled, output_text, mismatch, question, options.leave)
        if fault is None:
            raise _not_equivalent(mismatch)
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


# ---- proving ----


def prove_equal(program: Program, text: str, question: Question, known: Vocabulary | None = None) -> None:
    """Compare *program*, read with *known*, with *text* once that is read again.

    NotEquivalent on a difference, OutOfBudget when the budget of *question* ends the proof.
    """
    mismatch = _mismatch(program, text, question, known)
    if not isinstance(mismatch, Equal):
        raise _not_equivalent(mismatch)


_PRINTED = "the compiled rule set"

# Why a text does not mean what its source means: a packet, or a line that cannot be read back.
_Mismatch = Difference | ParseError


def _mismatch(
    program: Program,
    text: str,
    question: Question,
    known: Vocabulary | None,
    leave: tuple[str, ...] = (),
    changed: Sequence[tuple[str, str]] = (),
) -> _Mismatch | Equal:
    """How the rules of *text* differ from *program*, in which the chains *leave* are hidden, if they do.

    Both are compared with the jumps that other programs append (ir.foreign.with_appended).
    The *changed* chains are compared even where no built-in chain enters them.
    """
    from ..verify.portfolio import check_with_unreached

    try:
        reread = hide(read(text, family=program.family, name=_PRINTED, known=known), leave)
    except ParseError as error:
        return error
    before, after = (with_appended(with_undeclared_kept(each), leave) for each in (program, reread))
    answer = check_with_unreached(before, after, question, changed)
    if isinstance(answer, Undecided):
        raise OutOfBudget(
            f"{answer.reason} while proving the compiled rule set (table {answer.table}, chain "
            f"{answer.chain}, {answer.done:.0%} done); nothing is printed.  Give it more (--timeout, "
            "--max-memory), or do without the proof (--no-prove)"
        )
    return answer


def _not_equivalent(mismatch: _Mismatch) -> NotEquivalent:
    verb = "cannot be read back" if isinstance(mismatch, ParseError) else "would treat a packet differently"
    return NotEquivalent(
        f"the compiled rule set {verb}; nothing is printed "
        "(this is a fault of hitables: please report it with the rule set)",
        _details(mismatch),
    )


def _details(mismatch: _Mismatch) -> str:
    return str(mismatch) if isinstance(mismatch, ParseError) else mismatch.describe()


# ---- finding the chain at fault ----


def _fault(
    program: Program,
    compiled: Compiled,
    text: str,
    mismatch: _Mismatch,
    question: Question,
    leave: tuple[str, ...],
) -> ChainFault | None:
    """The chain at fault; None when no chain that was changed can have caused *mismatch*."""
    if isinstance(mismatch, ParseError):
        suspects = _chains_in_line(compiled, text, mismatch.line)
        why = "its tree, once printed, cannot be read back"
    else:
        fault = _mixing(program, compiled, text, _details(mismatch))
        if fault is not None:
            return fault
        suspects = _chains_on_path(compiled, mismatch)
        why = "its tree would treat a packet differently"
    first = None
    for table, chain in suspects:
        fault = ChainFault(table, chain, why, _details(mismatch))
        # If putting this chain back suffices, the other suspects keep their trees.
        candidate = compiled.leaving(program, fault).program
        if len(suspects) == 1 or _is_repaired(program, candidate, mismatch, question, leave):
            return fault
        first = first or fault
    return first


def _mixing(program: Program, compiled: Compiled, text: str, details: str) -> ChainFault | None:
    """A chain whose tree lets another rule of a shared memory be loaded first; None: all are as in *program*.

    Packets notice it in any chain that has rules of that memory, whether or not they come to the tree.
    """
    before = loaded_first(program)

    def others(text: str) -> set[NamedMemory]:
        after = loaded_first(read(text, family=program.family, name=_PRINTED)) if before else {}
        return {memory for memory in before.keys() & after.keys() if before[memory] != after[memory]}

    moved = others(text)
    first = None
    for table, chain in compiled.changed() if moved else ():
        if moved.isdisjoint(map(named_memory, _matches(program.table(table)[chain]))):
            continue
        fault = ChainFault(table, chain, MIXED, details)
        if not others(write(compiled.leaving(program, fault).program)):
            return fault
        first = first or fault
    return first


def _matches(chain: Chain) -> Iterator[Match]:
    return row.from_iterable(rule.matches for rule in chain.rules)


def _is_repaired(
    program: Program,
    candidate: Program,
    mismatch: _Mismatch,
    question: Question,
    leave: tuple[str, ...],
) -> bool:
    """Whether *candidate* does not have the *mismatch*."""
    from ..verify.portfolio import check

    if isinstance(mismatch, Difference):
        chains = frozenset({mismatch.chain} if mismatch.chain else ())
        narrow = replace(question, tables=frozenset({mismatch.table}), chains=chains)
        before, after = (with_appended(each, leave) for each in (program, candidate))
        return isinstance(check(before, after, narrow), Equal)
    try:
        read(write(candidate), family=program.family, name=_PRINTED)
    except ParseError:
        return False
    return True


def _chains_on_path(compiled: Compiled, difference: Difference) -> list[tuple[str, str]]:
    """The changed chains on the packet's path; without a packet, all changed chains of the table."""
    changed = [place for place in compiled.changed() if place[0] == difference.table]
    if difference.before is None or difference.after is None:
        return changed
    steps = (*difference.before.steps, *difference.after.steps)
    entered = {compiled.origins.get((difference.table, step.chain), step.chain) for step in steps}
    return [place for place in changed if place[1] in entered | {difference.chain}]


def _chains_in_line(compiled: Compiled, text: str, line: int) -> list[tuple[str, str]]:
    """The changed chain that *line* of *text* (from 1; 0: unknown) names; all when it names none."""
    lines = lines_of(text)[:line]
    table = next((each[1:].strip() for each in reversed(lines) if each.startswith("*")), "")
    words = lines[-1].split() if lines else []
    if words and words[0].startswith(":"):
        chain = words[0][1:]
    elif "-A" in words[:-1]:
        chain = words[words.index("-A") + 1]
    else:
        chain = ""
    place = table, compiled.origins.get((table, chain), chain)
    if place in compiled.changed():
        return [place]
    known = any(each.table == table and each.chain == chain for each in compiled.reports)
    return [] if known else compiled.changed()

"""The stages in a row: text -> program -> compiled program -> text, proved before it is given out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .. import __version__
from ..analyse.weights import Weights
from ..api import read
from ..emit.sourcemap import source_map
from ..emit.text import write
from ..errors import HitablesError, NotEquivalent, ParseError
from ..ir.choices import backends_of
from ..ir.fields import Family
from ..ir.program import Program
from ..parse.iptables import Vocabulary
from ..verify.question import Difference, Equal, Question, Undecided
from .compile import ChainReport, Compiled, Fault, Options, compile_rules

Stage = Callable[[str], None]
Share = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Output:
    """What compile gives: the text, its source map (hitables/schema/map.json), a report per chain.

    before   what was read
    weighed  whose packets said how much rules weigh; "" when all weighed alike
    faults   chains that are printed as they were because of a fault in hitables, each to be told to the user
    """

    text: str
    program: Program
    map: dict[str, Any]
    reports: tuple[ChainReport, ...]
    before: Program
    weighed: str = ""
    faults: tuple[Fault, ...] = ()


def _silent(stage: str) -> None:
    """Nobody is told how far it came."""


_COMPILED, _LACKS = "# Compiled by hitables ", ", equivalence verdict "


def lacks_rules(program: Program) -> bool:
    """Whether the first line says that rules went when it was compiled: it is no source to go on with."""
    notes = program.tables[0].notes if program.tables else ()
    return bool(notes) and notes[0].startswith(_COMPILED) and _LACKS in notes[0]


def _header(options: Options, scheme: str, proves: bool, gone: int) -> str:
    verdicts = options.equivalence == "verdict"
    equal = "to give every packet the verdict of its input" if verdicts else "equal to its input"
    proved = f"proved {equal}" if proves else f"NOT PROVED {equal} (--no-verify)"
    went = f"{_LACKS}({gone} rules went)" if verdicts else ""
    return (
        f"{_COMPILED}{__version__}: scheme {scheme}, backend {options.backend}, "
        f"malformed packets {options.malformed.value}{went}; {proved}\n"
    )


def _silent_share(share: float) -> None:
    """Nobody is told how much is done."""


def _transform(program: Program, options: Options, scheme: str, done: Share) -> Compiled:
    if scheme == "tree":
        return compile_rules(program, options, done, spare=True)
    if options.equivalence != "full":
        raise HitablesError("scheme paper prints every rule: equivalence verdict goes with scheme tree only")
    from .conext2014 import transform

    return transform(program, options)


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
    tell: Stage = _silent,
    weigh: Callable[[Program], Weights | None] | None = None,
    done: Share = _silent_share,
) -> Output:
    """Read, compile, print, read again, prove the two equal.

    Where the proof finds a difference in one chain, or compiling the chain breaks off, the chain is
    printed as it was read, the whole is proved again, and the chain stands among the output's faults.
    NotEquivalent, with a packet, when that does not help either; HitablesError when *timeout* (seconds,
    for all proofs together) or *max_memory* (bytes) do not suffice to tell.  Without *prove* the output
    says that it was not proved.  *tell* hears the name of each stage, *done* how much of the compiling is
    done.  *weigh* says how much the program's rules weigh.
    """
    tell("reading")
    known = Vocabulary()
    program = read(text, family=family, name=name, known=known)
    if weigh is not None:
        tell("weighing")
        options = replace(options, traffic=weigh(program))
    tell("compiling")
    compiled = _transform(program, options, scheme, done)
    ends = None if timeout is None else time.monotonic() + timeout
    question = Question(
        backends_of(options.backend),
        options.malformed,
        options.equivalence,
        timeout=timeout,
        max_memory=max_memory,
    )
    while True:
        tell("printing")
        printed = _header(options, scheme, prove, len(compiled.gone)) + write(compiled.program)
        if not prove:
            break
        tell("proving")
        found = _unequal(program, printed, question, known)
        if found is None:
            break
        if ends is not None:
            question = replace(question, timeout=max(1e-3, ends - time.monotonic()))
        fault = _fault(program, compiled, printed, found, question)
        if fault is None:
            raise _not_equivalent(found)
        compiled = compiled.leaving(program, fault)
    mapped = source_map(compiled.program, compiled.origins, name, compiled.gone)
    weighed = options.traffic.source if options.traffic else ""
    return Output(printed, compiled.program, mapped, compiled.reports, program, weighed, compiled.faults)


def prove_equal(program: Program, printed: str, question: Question, known: Vocabulary | None = None) -> None:
    """Hold what *printed* says, once it is read again, against *program*, which was read with *known*.

    NotEquivalent on a difference, HitablesError when the budget of *question* runs out.
    """
    found = _unequal(program, printed, question, known)
    if found is not None:
        raise _not_equivalent(found)


_PRINTED = "the compiled rule set"

# Why a set is not what it was read as: a packet, or a line that cannot be read back.
_Found = Difference | ParseError


def _unequal(program: Program, printed: str, question: Question, known: Vocabulary | None) -> _Found | None:
    """How what *printed* says differs from *program*; HitablesError when the budget runs out."""
    from ..verify.portfolio import check

    try:
        again = read(printed, family=program.family, name=_PRINTED, known=known)
    except ParseError as error:
        return error
    answer = check(program, again, question)
    if isinstance(answer, Undecided):
        raise HitablesError(
            f"{answer.reason} while proving the compiled rule set (table {answer.table}, chain "
            f"{answer.chain}, {answer.done:.0%} done); nothing is printed.  Give it more (--timeout, "
            "--max-memory), or do without the proof (--no-verify)"
        )
    return answer if isinstance(answer, Difference) else None


def _not_equivalent(found: _Found) -> NotEquivalent:
    what = "cannot be read back" if isinstance(found, ParseError) else "would treat a packet differently"
    return NotEquivalent(
        f"the compiled rule set {what}; nothing is printed "
        "(this is a fault of hitables: please report it with the rule set)",
        _detail(found),
    )


def _detail(found: _Found) -> str:
    return str(found) if isinstance(found, ParseError) else found.describe()


def _fault(
    program: Program, compiled: Compiled, printed: str, found: _Found, question: Question
) -> Fault | None:
    """The chain at fault; None when no chain that was changed has to do with it."""
    if isinstance(found, ParseError):
        places, why = _named(compiled, printed, found.line), "its tree, once printed, cannot be read back"
    else:
        places, why = _met(compiled, found), "its tree would treat a packet differently"
    faults = [Fault(table, chain, why, _detail(found)) for table, chain in places]
    if len(faults) > 1:
        for fault in faults:
            # Alone as it was: where that mends it, the others are not to blame.
            if _mended(program, compiled.leaving(program, fault).program, found, question):
                return fault
    return faults[0] if faults else None


def _mended(program: Program, made: Program, found: _Found, question: Question) -> bool:
    """Whether *made* does not have the difference, or the line, that was *found*."""
    from ..verify.portfolio import check

    if isinstance(found, Difference):
        chains = frozenset({found.chain} if found.chain else ())
        narrow = replace(question, tables=frozenset({found.table}), chains=chains)
        return isinstance(check(program, made, narrow), Equal)
    try:
        read(write(made), family=program.family, name=_PRINTED)
    except ParseError:
        return False
    return True


def _met(compiled: Compiled, found: Difference) -> list[tuple[str, str]]:
    """The changed chains that the packet came through; without a packet, all of the table."""
    changed = [place for place in compiled.changed() if place[0] == found.table]
    if found.before is None or found.after is None:
        return changed
    steps = (*found.before.steps, *found.after.steps)
    met = {compiled.origins.get((found.table, step.chain), step.chain) for step in steps} | {found.chain}
    return [place for place in changed if place[1] in met]


def _named(compiled: Compiled, printed: str, line: int) -> list[tuple[str, str]]:
    """The changed chain that the line of *printed* (from 1; 0: unknown) names; all when it names none."""
    lines = printed.splitlines()[:line]
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

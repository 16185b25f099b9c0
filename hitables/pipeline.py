"""The stages in a row: text -> program -> compiled program -> text, proved before it is given out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import __version__
from .compile import BACKENDS, ChainReport, Compiled, Options, compile_rules
from .emit.sourcemap import source_map
from .emit.text import write
from .errors import HitablesError, NotEquivalent
from .ir.fields import Family
from .ir.program import Program
from .library import read
from .parse.iptables import Vocabulary
from .traffic import Weights
from .verify.answer import Difference, Question, Undecided

Stage = Callable[[str], None]
Share = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Output:
    """What compile gives: the text, its source map (hitables/schema/map.json), a report per chain.

    before   what was read
    weighed  whose packets said how much rules weigh; "" when all weighed alike
    """

    text: str
    program: Program
    map: dict[str, Any]
    reports: tuple[ChainReport, ...]
    before: Program
    weighed: str = ""


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
        return compile_rules(program, options, done)
    if options.equivalence != "full":
        raise HitablesError("scheme paper prints every rule: equivalence verdict goes with scheme tree only")
    from .paper import transform

    return transform(program, options)


def compile_text(
    text: str, options: Options, *, family: Family | None = None, name: str = "-", scheme: str = "tree",
    prove: bool = True, timeout: float | None = None, max_memory: int | None = None, tell: Stage = _silent,
    weigh: Callable[[Program], Weights | None] | None = None, done: Share = _silent_share,
) -> Output:  # fmt: skip
    """Read, compile, print, read again, prove the two equal.

    NotEquivalent, with a packet, when they differ; HitablesError when *timeout* (seconds) or
    *max_memory* (bytes) do not suffice to tell.  Without *prove* the output says that it was
    not proved.  *tell* hears the name of each stage, *done* how much of the
    compiling is done.  *weigh* says how much the program's rules weigh.
    """
    tell("reading")
    known = Vocabulary()
    program = read(text, family=family, name=name, known=known)
    if weigh is not None:
        tell("weighing")
        options = replace(options, traffic=weigh(program))
    tell("compiling")
    compiled = _transform(program, options, scheme, done)
    tell("printing")
    printed = _header(options, scheme, prove, len(compiled.gone)) + write(compiled.program)
    if prove:
        tell("proving")
        question = Question(
            BACKENDS[options.backend], options.malformed.value, options.equivalence == "verdict",
            timeout=timeout, max_memory=max_memory,
        )  # fmt: skip
        prove_equal(program, printed, question, known)
    mapped = source_map(compiled.program, compiled.origins, name, compiled.gone)
    weighed = options.traffic.source if options.traffic else ""
    return Output(printed, compiled.program, mapped, compiled.reports, program, weighed)


def prove_equal(
    program: Program, printed: str, question: Question, known: Vocabulary | None = None
) -> None:  # fmt: skip
    """Hold what *printed* says, once it is read again, against *program*, which was read with *known*.

    NotEquivalent on a difference, HitablesError when the budget of *question* runs out.
    """
    from .verify.portfolio import check

    again = read(printed, family=program.family, name="the compiled rule set", known=known)
    answer = check(program, again, question)
    if isinstance(answer, Difference):
        raise NotEquivalent(
            "the compiled rule set would treat a packet differently; nothing is printed "
            "(this is a fault of hitables: please report it with the rule set)",
            answer.describe(),
        )
    if isinstance(answer, Undecided):
        raise HitablesError(
            f"{answer.reason} while proving the compiled rule set (table {answer.table}, chain "
            f"{answer.chain}, {answer.done:.0%} done); nothing is printed.  Give it more (--timeout, "
            "--max-memory), or do without the proof (--no-verify)"
        )

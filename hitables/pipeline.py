"""The stages in a row: text -> program -> compiled program -> text, proved before it is given out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import __version__
from .compile import ChainReport, Compiled, Options, compile_rules
from .emit.sourcemap import source_map
from .emit.text import write
from .errors import HitablesError, NotEquivalent
from .ir.fields import Family
from .ir.packet import Backend
from .ir.program import Program
from .library import read
from .traffic import Weights
from .verify.answer import Difference, Question, Undecided

BACKENDS = {"any": (Backend.LEGACY, Backend.NFT), "legacy": (Backend.LEGACY,), "nft": (Backend.NFT,)}

Stage = Callable[[str], None]
Share = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Output:
    """What compile gives: the text, its source map (hitables/schema/map.json), a report per chain.

    weighed  whose packets said how much rules weigh; "" when all weighed alike
    """

    text: str
    program: Program
    map: dict[str, Any]
    reports: tuple[ChainReport, ...]
    weighed: str = ""


def _silent(stage: str) -> None:
    """Nobody is told how far it came."""


def _header(options: Options, scheme: str, proves: bool) -> str:
    proved = "proved equal to its input" if proves else "NOT PROVED equal to its input (--no-verify)"
    return (
        f"# Compiled by hitables {__version__}: scheme {scheme}, backend {options.backend}, "
        f"malformed packets {options.malformed.value}; {proved}\n"
    )


def _silent_share(share: float) -> None:
    """Nobody is told how much is done."""


def _transform(program: Program, options: Options, scheme: str, done: Share) -> Compiled:
    if scheme == "tree":
        return compile_rules(program, options, done)
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
    program = read(text, family=family, name=name)
    if weigh is not None:
        tell("weighing")
        options = replace(options, traffic=weigh(program))
    tell("compiling")
    compiled = _transform(program, options, scheme, done)
    tell("printing")
    printed = _header(options, scheme, prove) + write(compiled.program)
    if prove:
        tell("proving")
        question = Question(
            BACKENDS[options.backend], options.malformed.value, timeout=timeout, max_memory=max_memory
        )
        prove_equal(program, printed, question)
    return Output(
        printed, compiled.program, source_map(compiled.program, compiled.origins, name), compiled.reports,
        options.traffic.source if options.traffic else "",
    )  # fmt: skip


def prove_equal(program: Program, printed: str, question: Question) -> None:
    """Hold what *printed* says, once it is read again, against *program*.

    NotEquivalent on a difference, HitablesError when the budget of *question* runs out.
    """
    from .verify.portfolio import check

    again = read(printed, family=program.family, name="the compiled rule set")
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

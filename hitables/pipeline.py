"""The stages in a row: text -> program -> compiled program -> text, checked before it is given out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import __version__
from .compile import ChainReport, Compiled, Options, compile_rules
from .emit.sourcemap import source_map
from .emit.text import write
from .errors import NotEquivalent
from .ir.fields import Family
from .ir.packet import Backend
from .ir.program import Program
from .library import read

BACKENDS = {"any": (Backend.LEGACY, Backend.NFT), "legacy": (Backend.LEGACY,), "nft": (Backend.NFT,)}

# Packets drawn per built-in chain for the check; more find no more in practice, as
# they are aimed at the edges of every box (bench/mutants.py measures what is found).
PACKETS = 20_000

Stage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Output:
    """What compile gives: the text, its source map (hitables/schema/map.json), a report per chain."""

    text: str
    program: Program
    map: dict[str, Any]
    reports: tuple[ChainReport, ...]


def _silent(stage: str) -> None:
    """Nobody is told how far it came."""


def _header(options: Options, scheme: str, packets: int) -> str:
    checked = f"checked with {packets} packets per chain" if packets else "not checked"
    return (
        f"# Compiled by hitables {__version__}: scheme {scheme}, backend {options.backend}, "
        f"malformed packets {options.malformed.value}, {checked}\n"
    )


def _transform(program: Program, options: Options, scheme: str) -> Compiled:
    if scheme == "tree":
        return compile_rules(program, options)
    from .paper import transform

    return transform(program, options)


def compile_text(
    text: str, options: Options, *, family: Family | None = None, name: str = "-", scheme: str = "tree",
    packets: int = PACKETS, seed: int = 0, tell: Stage = _silent,
) -> Output:  # fmt: skip
    """Read, compile, print, read again, compare; NotEquivalent, with a packet, on a difference.

    *packets* 0: do not compare (the output says so).  *tell* hears the name of each stage.
    """
    tell("reading")
    program = read(text, family=family, name=name)
    tell("compiling")
    compiled = _transform(program, options, scheme)
    tell("printing")
    printed = _header(options, scheme, packets) + write(compiled.program)
    if packets:
        tell("checking")
        check_equal(program, printed, options, packets=packets, seed=seed)
    return Output(
        printed, compiled.program, source_map(compiled.program, compiled.origins, name), compiled.reports
    )


def check_equal(program: Program, printed: str, options: Options, *, packets: int, seed: int) -> None:
    """Compare *program* with what *printed* says once it is read again; NotEquivalent on a difference."""
    from .verify.sampled import compare

    again = read(printed, family=program.family, name="the compiled rule set")
    difference = compare(
        program, again, backends=BACKENDS[options.backend], malformed=options.malformed.value,
        packets=packets, seed=seed,
    )  # fmt: skip
    if difference is not None:
        raise NotEquivalent(
            "the compiled rule set would treat a packet differently; nothing is printed "
            "(this is a fault of hitables: please report it with the rule set)",
            difference.describe(),
        )

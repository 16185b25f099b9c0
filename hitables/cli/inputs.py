"""Rule sets and packets that the options of a command name, and warnings of what was found in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..ir.fields import Family
    from ..ir.program import Program
    from ..simulate.batch import PacketBatch


def family_of(choice: str | None) -> Any:
    """The `Family` that --family names; None: guess it."""
    from ..ir.fields import Family

    return None if choice is None else Family(int(choice))


def read_program(file: str, family: str | None) -> Any:
    """The rule set in *file* ("-": standard input), as --family reads it."""
    from ..files import read_text

    return program_of(read_text(file), file, family)


def program_of(text: str, file: str, family: str | None) -> Any:
    """The rule set in *text*, that of *file*, as --family reads it."""
    from ..reader import read

    program = read(text, family=family_of(family), name=file)
    warn_of_text(program, text, family)
    return program


def warn_of_text(program: Program, text: str, family: str | None) -> None:
    """Tell of what *program*, read from *text* as --family says, has that its author may not have meant."""
    if family is None:
        _warn_of_family(program, text)
    _warn_of_unknown(program)
    _warn_of_lost(program, text)


def _warn_of_family(program: Program, text: str) -> None:
    """Tell of which family *program* is taken to be by its *text*, where that is doubtful."""
    from ..parse.guess_family import doubt, states_both
    from ..parse.lost_rules import SPLIT

    if reason := doubt(text, program.name):
        advice = SPLIT if states_both(text) else "--family says of which family it is"
        warn(f"{program.name} is read as IPv{int(program.family)}, but {reason}: {advice}")


def read_packets(trace_file: str | None, pcap_file: str | None, family: Family) -> tuple[PacketBatch, str]:
    """The packets of the trace or else of the capture, and their source; what was left out is told."""
    from ..nouns import counted
    from ..simulate.traffic import pcap_batch, trace_batch

    if trace_file:
        return trace_batch(trace_file, family), trace_file
    assert pcap_file, "one of the two is given"
    batch, losses = pcap_batch(pcap_file, family)
    name = "standard input" if pcap_file == "-" else pcap_file
    if losses:
        program = click.get_current_context().find_root().command.name
        read = counted(len(batch), "packet")
        click.echo(f"{program}: {name}: {read} read; left out: {losses}", err=True)
    return batch, f"{name} (left out: {losses})" if losses else name


def _warn_of_lost(program: Program, text: str) -> None:
    """Tell of tables that the *text* gives again, by which the rules of the earlier ones are lost."""
    from ..parse.lost_rules import lost_rules, remedy

    for lost in lost_rules(program):
        warn(f"{lost}; {remedy(text)}")


def _warn_of_unknown(program: Program) -> None:
    """Tell of extensions that hitables keeps without knowing them, and whose names resemble known ones."""
    from ..parse.near_names import near_names

    for option, name, known in near_names(program):
        warn(f"{program.name}: {option} {name} is not known, and kept as it is; did you mean {known}?")


def warn_of_leave(words: Sequence[str], programs: Sequence[Program]) -> None:
    """Tell of names of --leave that no chain of *programs* has."""
    from ..ir.foreign import unmatched

    for word, preset in unmatched(words, programs):
        hint = f"; did you mean {preset}?" if preset else ""
        warn(f"--leave {word}: no chain has this name{hint}")


def warn(message: str) -> None:
    """Tell a warning, under the name of the command."""
    tool = click.get_current_context().find_root().command.name
    click.echo(f"{tool}: warning: {message}", err=True)

"""Which chain is at fault where the printed rules do not mean what was read.

A suspect is put back as it was read, and the question is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain as row

from ..emit.text import write
from ..errors import ParseError
from ..ir.foreign import with_appended
from ..ir.program import Chain, Program
from ..ir.rule import Match
from ..parse.named_memory import NamedMemory, loaded_first, named_memory
from ..reader import read
from ..rule_lines import lines_of
from ..verify.question import Difference, Equal, Question
from .result import MIXED, ChainFault, Compiled
from .text_proof import PRINTED, Mismatch, details_of


def fault_of(
    program: Program,
    compiled: Compiled,
    text: str,
    mismatch: Mismatch,
    question: Question,
    leave: tuple[str, ...],
) -> ChainFault | None:
    """The chain at fault; None when no chain that was changed can have caused *mismatch*."""
    if isinstance(mismatch, ParseError):
        suspects = _chains_in_line(compiled, text, mismatch.line)
        why = "its tree, once printed, cannot be read back"
    else:
        fault = _mixing(program, compiled, text, details_of(mismatch))
        if fault is not None:
            return fault
        suspects = _chains_on_path(compiled, mismatch)
        why = "its tree would treat a packet differently"
    first = None
    for table, chain in suspects:
        fault = ChainFault(table, chain, why, details_of(mismatch))
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
        after = loaded_first(read(text, family=program.family, name=PRINTED)) if before else {}
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
    mismatch: Mismatch,
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
        read(write(candidate), family=program.family, name=PRINTED)
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

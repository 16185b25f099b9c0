"""A chain cut into runs of rules, each with a tree of its own.

It is cut at its jumps to chains of other programs (--leave).  The program that inserted such a jump will look
for it in this chain, and delete it by its text.  So the jump stays there, and trees stand around it: one that
is called (-j) over each long run of rules before the last jump, from which packets come back to the next rule
of the chain; and those behind it, as in any chain.  In a chain to which others append their jumps
(ir.foreign.appended) all trees are called, as one may come at any time.  A rule that leaves the chain
(RETURN, -g) cannot be in a tree that is called.  The parts of a list (ir/arrangement.py) have such trees,
too; a part behind the last jump whose rules leave the chain has one that goes on to the next part.  The rules
in front that packets of connections read (ir/established.py) stay there.

Invariant: the runs, one behind the other, are the rules of the chain.  Nothing is relied on here of what the
rules of other programs do; what they may write is the business of analyse.reorderable and of the proof.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from ..emit.jumps import any_memory
from ..ir.foreign import is_foreign
from ..ir.rule import Rule, leaves_chain

# Why a chain has no tree.
SHORT_BEHIND = "few rules follow the one that decides packets of established connections"


class RunPlace(enum.Enum):
    """Where the rules of a run are read."""

    CHAIN = "in the chain, one by one"
    CALLED = "in a tree that the chain calls"
    REST = "in a tree that goes on to the rest of the chain, if there is any"


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rules of a chain."""

    rules: list[Rule]
    place: RunPlace


def jumps_to_others(rules: Sequence[Rule], patterns: Sequence[str]) -> list[int]:
    """Where *rules* enter chains of other programs."""
    return [at for at, rule in enumerate(rules) if rule.enters and is_foreign(rule.enters, patterns)]


def rules_in_place(rules: Sequence[Rule], patterns: Sequence[str]) -> int:
    """How many of *rules* show where jumps to chains of others stand: those up to the last such jump.

    Jumps behind all other rules do not count.  They are at the end, whatever those are.
    """
    jumps = jumps_to_others(rules, patterns)
    end = len(rules)
    while jumps and jumps[-1] == end - 1:
        end = jumps.pop()
    return jumps[-1] + 1 if jumps else 0


def runs_of(
    rules: Sequence[Rule],
    patterns: Sequence[str],
    min_length: int,
    calls: bool,
    cuts: Sequence[int] = (),
    *,
    head: int = 0,
    is_open: bool = False,
) -> list[Run]:
    """The runs of *rules*; with *calls* False those of `rules_in_place` are read in the chain.

    *cuts*: where a run ends in any case, ascending.  *head*: so many rules in front are read in the chain.
    *is_open*: others may append jumps.
    """
    jumps = jumps_to_others(rules, patterns)
    in_place = 0 if calls else rules_in_place(rules, patterns)
    last_jump = len(rules) if is_open else jumps[-1] + 1 if jumps else 0
    runs = [Run(list(rules[:head]), RunPlace.CHAIN)] if head else []
    start = head
    for end in sorted(each for each in {in_place, last_jump, *cuts} if each > head):
        part = rules[start:end]
        if start >= last_jump and len(part) >= min_length and any(map(leaves_chain, part)):
            runs += [Run(run, RunPlace.REST) for run in _cut_at_memory(part)]
        else:
            own_jumps = [at - start for at in jumps if at >= start]
            _add_before(runs, part, own_jumps, min_length if start >= in_place else len(rules) + 1)
        start = end
    return [*runs, *(Run(run, RunPlace.REST) for run in _cut_at_memory(rules[start:]))]


def _add_before(runs: list[Run], rules: Sequence[Rule], jumps: Sequence[int], min_length: int) -> None:
    """Add *rules*, which others of the chain follow, with its *jumps* to chains of other programs."""
    waiting: list[Rule] = []

    def flush() -> None:
        if waiting:
            _add(runs, waiting, RunPlace.CALLED if len(waiting) >= min_length else RunPlace.CHAIN)
            waiting.clear()

    for at, rule in enumerate(rules):
        if at in jumps or leaves_chain(rule):
            flush()
            _add(runs, [rule], RunPlace.CHAIN)
        else:
            waiting.append(rule)
    flush()


def _add(runs: list[Run], rules: Sequence[Rule], place: RunPlace) -> None:
    """Add *rules*; those that are read in the chain form one run with such rules before them."""
    if place is RunPlace.CHAIN and runs and runs[-1].place is RunPlace.CHAIN:
        runs[-1].rules.extend(rules)
    else:
        runs.append(Run(list(rules), place))


def _cut_at_memory(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Cut before and after each rule that has memory and leaves the chain.

    Such a rule can neither be copied nor be entered by -j.
    """
    if not any_memory(rules):
        return [list(rules)] if rules else []
    runs: list[list[Rule]] = [[]]
    for rule in rules:
        if rule.has_memory and leaves_chain(rule):
            runs += [[rule], []]
        else:
            runs[-1].append(rule)
    return [run for run in runs if run]


def too_short(rules: Sequence[Rule], patterns: Sequence[str], calls: bool, *, is_open: bool = False) -> str:
    """Why a chain whose runs are all short has no tree."""
    names = dict.fromkeys(rules[at].enters or "" for at in jumps_to_others(rules, patterns))
    if not names and is_open:
        return "its rules that leave the chain are too close to each other, and another program appends to it"
    if not names:
        return "its rules with memory that leave the chain are too close to each other"
    in_place = 0 if calls else rules_in_place(rules, patterns)
    if in_place:
        return (
            f"its last jump to a chain of another program ({rules[in_place - 1].enters}) has too few rules "
            "behind it; those before it stay in the chain"
        )
    return (
        f"its jumps to chains of other programs ({', '.join(names)}) leave too few rules before, "
        "between and behind them that a tree may hold"
    )

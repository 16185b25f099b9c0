"""Least edits: the shortest sequence of edits that turns one program, or one chain, into another.

Rules are compared by `rule_key`; those of a longest common subsequence (lcs.py) stay, others are
deleted, inserted, or replaced where both happens at one position.  The module is not called `sync`,
because `sflgen.sync` is the function.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hitables.errors import HitablesError
from hitables.ir.program import Chain, Program
from hitables.ir.rule import Rule

from .edits import Edit, Op, empty_table, rule_key
from .lcs import gaps


def sync(
    old: Program,
    new: Program,
    keep: Callable[[str], bool] = lambda chain: False,
    moves: Callable[[Rule], bool] | None = None,
) -> list[Edit]:
    """The least edits that turn *old* into *new*; chains for which *keep* is true are left out.

    Where the rules of a chain for which *moves* is false are the same in both, in their order, they stay.
    """
    if old.family is not new.family:
        raise HitablesError(f"{new.name} is for IPv{int(new.family)}, the state for IPv{int(old.family)}")
    edits: list[Edit] = []
    for name in dict.fromkeys([table.name for program in (old, new) for table in program]):
        before, after = (program.find(name) or empty_table(name) for program in (old, new))
        kept = {chain.name for chain in (*before.chains, *after.chains) if keep(chain.name)}
        removed = [c.name for c in before.chains if c.name not in after and c.name not in kept]
        added = [c.name for c in after.chains if c.name not in before and c.name not in kept]
        edits += [Edit(Op.NEW, name, chain) for chain in added]
        for chain in after.chains:
            if chain.name in kept:
                continue
            was = before[chain.name] if chain.name in before else Chain(chain.name, chain.policy)
            if was is chain:
                continue
            if was.policy != chain.policy and chain.policy is not None and not chain.kept:
                edits.append(Edit(Op.POLICY, name, chain.name, policy=chain.policy))
            edits += rule_edits(name, chain.name, was.rules, chain.rules, moves)
        edits += [Edit(Op.FLUSH, name, chain) for chain in removed if before[chain].rules]
        edits += [Edit(Op.REMOVE, name, chain) for chain in removed]
    return edits


def with_others(old: Program, new: Program, is_foreign: Callable[[str], bool]) -> Program:
    """*new* with what is not its own in *old*: the tables that it lacks, and rules that enter foreign chains.

    Such a rule stays behind the rules before it that *new* has, too.
    """
    tables = []
    for table in new:
        was = old.find(table.name)
        if was is not None:
            table = table.of(
                {
                    chain.name: chain.with_rules(_with_jumps(was[chain.name].rules, chain.rules, is_foreign))
                    if chain.name in was
                    else chain
                    for chain in table.chains
                }
            )
        tables.append(table)
    names = {table.name for table in new}
    return replace(new, tables=(*tables, *(table for table in old if table.name not in names)))


def _with_jumps(
    old: Sequence[Rule], new: Sequence[Rule], is_foreign: Callable[[str], bool]
) -> tuple[Rule, ...]:
    missing = Counter(rule_key(rule) for rule in old if is_foreign(rule.enters or ""))
    missing -= Counter(rule_key(rule) for rule in new if is_foreign(rule.enters or ""))
    if not missing:
        return tuple(new)
    places: dict[object, deque[int]] = {}
    for place, rule in enumerate(new):
        places.setdefault(rule_key(rule), deque()).append(place)
    before: dict[int, list[Rule]] = {}  # by place in *new*: the rules of *old* that go in front of it
    at = 0
    for rule in old:
        key = rule_key(rule)
        if missing[key]:
            missing[key] -= 1
            before.setdefault(at, []).append(rule)
            continue
        same = places.get(key, deque())
        while same and same[0] < at:
            same.popleft()
        at = same.popleft() + 1 if same else at
    rules = itertools.chain.from_iterable((*before.get(place, ()), rule) for place, rule in enumerate(new))
    return (*rules, *before.get(len(new), ()))


def rule_edits(
    table: str,
    chain: str,
    old: Sequence[Rule],
    new: Sequence[Rule],
    moves: Callable[[Rule], bool] | None = None,
) -> list[Edit]:
    """The least edits of one chain; a deletion and an insertion at one position are a replacement.

    *moves*: as of `sync`.
    """
    edits: list[Edit] = []
    if old is new:
        return edits
    if not old:  # nothing to compare: a fold has thousands of new chains
        return [Edit(Op.APPEND, table, chain, at, rule) for at, rule in enumerate(new)]
    for removed, added in _gaps(old, new, moves):
        at = added.start  # the rules before are equal to those of *new* already
        size = len(old) - removed.start + at  # of the chain after the edits so far
        for rule in new[added.start : added.start + min(len(removed), len(added))]:
            edits.append(Edit(Op.REPLACE, table, chain, at, rule))
            at += 1
        edits += [Edit(Op.DELETE, table, chain, at) for _ in range(len(removed) - len(added))]
        for rule in new[at : added.stop]:
            edits.append(Edit(Op.APPEND if at == size else Op.INSERT, table, chain, at, rule))
            at, size = at + 1, size + 1
    return edits


def _gaps(
    old: Sequence[Rule], new: Sequence[Rule], moves: Callable[[Rule], bool] | None
) -> Iterator[tuple[range, range]]:
    """The ranges of *old* and of *new* between the rules that stay."""
    before, after = [rule_key(rule) for rule in old], [rule_key(rule) for rule in new]
    if moves is None or not any(map(moves, itertools.chain(old, new))):
        yield from gaps(before, after)
        return
    kept_old, kept_new = ([at for at, rule in enumerate(rules) if not moves(rule)] for rules in (old, new))
    if [before[at] for at in kept_old] != [after[at] for at in kept_new]:
        yield from gaps(before, after)
        return
    first, start = 0, 0
    for end, stop in zip([*kept_old, len(old)], [*kept_new, len(new)], strict=True):
        for removed, added in gaps(before[first:end], after[start:stop]):
            yield (
                range(first + removed.start, first + removed.stop),
                range(start + added.start, start + added.stop),
            )
        first, start = end + 1, stop + 1

"""A proof that a program of shape groups decides as its list: the groups, written as lists of their own.

Idea: a program of shape groups (docs/decisions/groups.md) is compared with its list in two steps.  Between
the two we construct a third program: for each chain that the second program enters by `-j`, the plain list
of the rules that it decides, each behind its *form*, the rules of later groups that are decided first.  The
prover compares each list with its chain; the groups do not cross there, because a form calls its list by
name.  The law below, and core/c/prove/reorder.c, compare the lists with the one list that their rules were
taken from.

group_reader.py reads the groups off the second program.  That is a guess; a wrong guess proves nothing.

Law: let X be a chain of the third program and L the rules of the first group that X has rules of and of all
later groups.  X decides a packet that one of its rules matches as the first rule of L that matches the
packet; any other packet passes X.  By induction along the jumps, if
- for each rule of a segment (the first rules of one group): the list rules before it that are in an earlier
  group of L were decided by calls; those in a later group are called or listed by its form, or share no
  packet with it, or have the same verdict (reorder.c);
- for each call: the rules of L that it lacks, before its last rule, were decided by earlier calls;
- for each form: all rules that it calls or lists are before its own rule in the list, and in later groups.
The chain that packets enter has all rules, so it decides as the list does.

Cost: linear in the rules of the third program.

Users: merged_classes.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hitables.core.prover import NONE, U32, Action, ChainArrays, Order

from .encoding import Encoding
from .group_reader import (
    Copies,
    GroupedRules,
    Groups,
    Ints,
    ListChain,
    NotGrouped,
    find_copies,
    list_chains,
    number_groups,
    ranges,
    read_rules,
)


@dataclass(frozen=True)
class GroupLists:
    """The third program, to be compared with the second, and the order of its rules.

    start  the chain that packets enter, in the third and in the second program
    """

    start: tuple[int, int]
    chains: ChainArrays
    order: Order


def group_lists(encoding: Encoding, chain: str) -> GroupLists | None:
    """The third program for *chain* of both tables; None when the second table has no provable groups."""
    first, root = encoding.both(chain)
    try:
        rules = read_rules(encoding, first, root)
        copies = find_copies(rules)
        groups = number_groups(rules, copies, root)
        chains = list_chains(rules, copies, groups, root)
        check_law(rules, copies, groups, chains, root)
    except NotGrouped:
        return None
    return _third_program(rules, copies, groups, chains, root)


# ---- the law ----


def check_law(
    rules: GroupedRules, copies: Copies, groups: Groups, chains: dict[int, ListChain], root: int
) -> None:
    """Check all of the law but what reorder.c checks; NotGrouped when it does not hold."""
    for chain in chains.values():
        _check_calls(chain, groups, chains)
    for rule, called in copies.call_before.items():
        form = chains[called]
        later = min(form.owned) > groups.group[rule]
        if form.last >= rule or not later or rule in copies.listed_before:
            raise NotGrouped
    for rule, listed in copies.listed_before.items():
        if listed != sorted(set(listed)) or any(
            each >= rule or groups.group[each] <= groups.group[rule] or not rules.live[each]
            for each in listed
        ):
            raise NotGrouped
    sizes = np.diff(groups.group_start).tolist()
    if groups.group_start[0] != 0 or sum(sizes) != np.count_nonzero(rules.live):
        raise NotGrouped
    if chains[root].owned != dict(enumerate(sizes)):
        raise NotGrouped


def _check_calls(chain: ListChain, groups: Groups, chains: dict[int, ListChain]) -> None:
    """Check that all rules that a call, or the segment, leaves out are decided before it."""
    first_group = min(chain.owned)
    decided: dict[int, int] = {}
    for number in chain.calls:
        called = chains[number]
        _check_decided(range(first_group, min(called.owned)), decided, groups, called.last)
        for group, size in called.owned.items():
            decided[group] = max(size, decided.get(group, 0))
    last = groups.last_position(chain.group, chain.size)
    _check_decided(range(first_group, chain.group), decided, groups, last)


def _check_decided(group_range: range, decided: dict[int, int], groups: Groups, position: int) -> None:
    """Check that of these groups all rules before *position* are *decided*."""
    for group in group_range:
        if decided.get(group, 0) < groups.before(position, group):
            raise NotGrouped


# ---- the third program ----


@dataclass
class _Lines:
    """Rules of the third program.  A rule has the matches of up to two list rules; -1: of none.

    ends  by number of a list rule (Groups): where its form and its copy end; one entry more, the first 0
    """

    one: list[int] = field(default_factory=list)
    two: list[int] = field(default_factory=list)
    actions: list[tuple[int, int, int]] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])

    def add(self, one: int, two: int, action: Action, number: int) -> None:
        self.one.append(one)
        self.two.append(two)
        self.actions.append((action, number, 0))


@dataclass(frozen=True)
class _Segments:
    """By chain of the third program: its first rule, and the end of its last."""

    starts: list[int]
    ends: list[int]


def _third_program(
    rules: GroupedRules, copies: Copies, groups: Groups, chains: dict[int, ListChain], root: int
) -> GroupLists:
    number_of = {chain: number for number, chain in enumerate(chains)}
    lines = _copies_with_forms(rules, copies, groups, number_of)
    segments = _segments(groups, chains, number_of, lines)
    count = len(segments.starts)
    return GroupLists(
        (number_of[root], root - rules.encoding.chains_before + count),
        _joined(rules, number_of, lines, segments, root),
        _order(copies, groups, chains, lines),
    )


def _copies_with_forms(
    rules: GroupedRules, copies: Copies, groups: Groups, number_of: dict[int, int]
) -> _Lines:
    """Each list rule in the order of its number, behind its form."""
    lines = _Lines()
    verdict = rules.verdict.tolist()
    for rule in groups.position.tolist():
        called = copies.call_before.get(rule)
        if called is not None:
            lines.add(rule, -1, Action.JUMP, number_of[called])
        for each in copies.listed_before.get(rule, ()):
            lines.add(rule, each, Action.VERDICT, verdict[each])
        lines.add(rule, -1, Action.VERDICT, verdict[rule])
        lines.ends.append(len(lines.one))
    return lines


def _segments(
    groups: Groups, chains: dict[int, ListChain], number_of: dict[int, int], lines: _Lines
) -> _Segments:
    """One chain per list: its segment; or its calls, then `-g` to a chain with the segment.

    The rules that call are added to *lines*.
    """
    starts, ends = [], []
    behind_calls: list[tuple[int, int]] = []
    for chain in chains.values():
        first = int(groups.group_start[chain.group])
        segment = lines.ends[first], lines.ends[first + chain.size]
        if chain.calls:
            start = len(lines.one)
            for called in chain.calls:
                lines.add(-1, -1, Action.JUMP, number_of[called])
            lines.add(-1, -1, Action.GOTO, len(chains) + len(behind_calls))
            behind_calls.append(segment)
            segment = start, len(lines.one)
        starts.append(segment[0])
        ends.append(segment[1])
    starts += [start for start, _ in behind_calls]
    ends += [end for _, end in behind_calls]
    return _Segments(starts, ends)


def _order(copies: Copies, groups: Groups, chains: dict[int, ListChain], lines: _Lines) -> Order:
    """The order of the rules in the lists, for reorder.c."""
    called_first = np.zeros((len(groups.position), groups.count), np.uint32)
    listed_start, listed = [0], []
    for number, rule in enumerate(groups.position.tolist()):
        called = copies.call_before.get(rule)
        if called is not None:
            for group, size in chains[called].owned.items():
                called_first[number, group] = size
        listed += [int(groups.number_of[each]) for each in copies.listed_before.get(rule, ())]
        listed_start.append(len(listed))
    return Order(
        group_start=_u32(groups.group_start),
        place=_u32(groups.position),
        form=_u32(np.array(lines.ends)),
        asked=called_first.reshape(-1),
        listed_start=_u32(np.array(listed_start)),
        listed=_u32(np.array(listed or [0])),
    )


def _joined(
    rules: GroupedRules, number_of: dict[int, int], lines: _Lines, segments: _Segments, root: int
) -> ChainArrays:
    """The rules and chains of the third program, then those of the second."""
    encoding = rules.encoding
    rule_start = encoding.rule_start.astype(np.int64)
    own_start, own_match = _matches_of(rules, lines, rule_start)
    chains, split, shift = len(segments.starts), rules.split, len(lines.one) - rules.split
    actions = encoding.rule_action[split:].copy()
    enters = (actions[:, 0] == Action.JUMP) | (actions[:, 0] == Action.GOTO)
    actions[enters, 1] += np.uint32((chains - encoding.chains_before) % (1 << 32))
    chain_start = encoding.chain_start[encoding.chains_before :].astype(np.int64) + shift
    partner = np.full(chains + len(chain_start) - 1, NONE, np.uint32)
    for chain, number in number_of.items():
        if chain != root:
            second = chain - encoding.chains_before + chains
            partner[number], partner[second] = second, number
    return ChainArrays(
        rule_start=_u32(
            np.concatenate((own_start[:-1], rule_start[split:] - rule_start[split] + own_start[-1]))
        ),
        rule_match=np.concatenate((own_match, encoding.rule_match[rule_start[split] :])),
        rule_action=np.concatenate((np.array(lines.actions, np.uint32), actions)),
        chain_start=_u32(np.concatenate((np.array(segments.starts), chain_start[:-1]))),
        chain_end=_u32(np.concatenate((np.array(segments.ends), chain_start[1:]))),
        chain_writes=np.concatenate(
            (np.zeros(chains, np.uint32), encoding.chain_writes[encoding.chains_before :])
        ),
        chain_partner=partner,
        chains_before=chains,
    )


def _matches_of(rules: GroupedRules, lines: _Lines, rule_start: Ints) -> tuple[Ints, U32]:
    """Where the matches of each line start, and the matches."""
    pieces = np.stack((np.array(lines.one), np.array(lines.two)), axis=1).reshape(-1)
    of_encoding = np.maximum(pieces, 0) + rules.offset
    sizes = np.where(pieces >= 0, rule_start[of_encoding + 1] - rule_start[of_encoding], 0)
    matches = rules.encoding.rule_match[ranges(rule_start[of_encoding], sizes)]
    return np.concatenate(([0], np.cumsum(sizes.reshape(-1, 2).sum(axis=1)))), matches


def _u32(values: Ints) -> U32:
    return values.astype(np.uint32)

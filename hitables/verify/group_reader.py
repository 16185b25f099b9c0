"""How a program of shape groups groups the rules of a list, read off the program.

Idea: the second program has a chain (the *root*) that first calls one chain per group (the *trees*), then
decides the rules of the last group itself.  A rule of the second program is a *copy* of a rule of the list
when it has the same matches and the same verdict.  The group of a list rule is the last tree that contains
a copy of it.  A rule may be preceded by a *form*, which decides rules of later groups first: a call of a
list (`-j`, the *call before* the rule) or the rules spelled out in a chain of their own (`-g`, *listed
before* it).

The result is a guess: nothing here is proved.  group_lists.py checks all that a proof needs of it, so a wrong
guess makes a proof fail and never makes it wrong.

Each stage is a function from values to values: `read_rules`, `find_copies`, `number_groups`, `list_chains`.
Each raises NotGrouped when the second program does not have this form.

Cost: linear in the rules of both programs, by whole arrays, times the number of groups.

Users: group_lists.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.core.prover import NONE, U32, Action

from .encoding import Encoding

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# More list rules without a copy than this are not searched for an earlier rule that covers them.
MOST_UNCOPIED = 4000


class NotGrouped(Exception):
    """The second program is not one of shape groups, or its grouping proves nothing."""


# ---- the rules of both programs ----


@dataclass(frozen=True)
class GroupedRules:
    """The list of the first program, and the rules of the second, numbered from its first rule.

    offset     number of the list's first rule in the encoding; list rules are numbered from it
    verdict    by list rule
    live       by list rule: no earlier rule has the same matches
    split      number of the second program's first rule in the encoding
    list_rule  by rule: the list rule with the same matches; -1: none
    matchless  by rule: it has no matches
    action, number  by rule: what it does
    chain      by rule: its chain
    """

    encoding: Encoding
    offset: int
    verdict: U32
    live: Bools
    split: int
    list_rule: Ints
    matchless: Bools
    action: U32
    number: Ints
    chain: Ints

    @property
    def count(self) -> int:
        """Rules of the list."""
        return len(self.live)

    def rules_of(self, chain: int) -> range:
        start = self.encoding.chain_start
        return range(int(start[chain]) - self.split, int(start[chain + 1]) - self.split)

    def calls(self, chain: int) -> list[int]:
        """The chains that every packet enters before any other rule of *chain*."""
        calls = []
        for rule in self.rules_of(chain):
            if not (self.matchless[rule] and self.action[rule] == Action.JUMP):
                break
            calls.append(int(self.number[rule]))
        return calls


def read_rules(encoding: Encoding, list_chain: int, root: int) -> GroupedRules:
    """Find, for each rule of the second program, the rule of the list that has its matches."""
    first, end = (int(encoding.chain_start[at]) for at in (list_chain, list_chain + 1))
    action = encoding.rule_action[first:end, 0]
    if first == end or np.any(action != Action.VERDICT) or _asks_memory(encoding, first, end):
        raise NotGrouped
    if not _begins_with_call(encoding, root):
        raise NotGrouped
    data = encoding.rule_match.tobytes()
    start = (encoding.rule_start.astype(np.int64) * 4).tolist()
    by_matches: dict[bytes, int] = {}
    for rule in range(end - 1, first - 1, -1):
        by_matches[data[start[rule] : start[rule + 1]]] = rule - first
    live = np.zeros(end - first, np.bool_)
    live[list(by_matches.values())] = True
    split = int(encoding.chain_start[encoding.chains_before])
    total = len(start) - 1
    get = by_matches.get
    list_rule = np.fromiter(
        (get(data[start[rule] : start[rule + 1]], -1) for rule in range(split, total)),
        np.int64,
        total - split,
    )
    start_of = encoding.chain_start[encoding.chains_before :].astype(np.int64)
    sizes = start_of[1:] - start_of[:-1]
    return GroupedRules(
        encoding,
        first,
        encoding.rule_action[first:end, 1],
        live,
        split,
        list_rule,
        encoding.rule_start[split + 1 :] == encoding.rule_start[split:-1],
        encoding.rule_action[split:, 0],
        encoding.rule_action[split:, 1].astype(np.int64),
        np.repeat(np.arange(len(sizes)) + encoding.chains_before, sizes),
    )


def _begins_with_call(encoding: Encoding, chain: int) -> bool:
    """Whether the first rule of *chain* sends every packet to another chain."""
    rule, end = (int(encoding.chain_start[at]) for at in (chain, chain + 1))
    if rule == end or encoding.rule_start[rule] != encoding.rule_start[rule + 1]:
        return False
    return bool(encoding.rule_action[rule, 0] == Action.JUMP)


def _asks_memory(encoding: Encoding, first: int, end: int) -> bool:
    start = encoding.rule_start
    return bool(np.any(encoding.matches.asks[encoding.rule_match[start[first] : start[end]]]))


# ---- copies and forms ----


@dataclass(frozen=True)
class Copies:
    """Where the second program contains the rules of the list.

    rules          of the second program, each a copy of its list rule, or a `-g` to a chain that ends in one
    call_before    by list rule: the chain that its copy calls first, for the packets that the rule matches
    listed_before  by list rule: the list rules that its copy decides first, spelled out
    """

    rules: Ints
    call_before: dict[int, int]
    listed_before: dict[int, list[int]]


def find_copies(rules: GroupedRules) -> Copies:
    """The copies of all rules of the list, with their forms."""
    same_verdict = rules.number == rules.verdict[np.maximum(rules.list_rule, 0)]
    is_copy = (rules.action == Action.VERDICT) & (rules.list_rule >= 0) & same_verdict
    has_copy = np.zeros(rules.count, np.bool_)
    has_copy[rules.list_rule[is_copy]] = True
    branches, listed_before = _branches(rules, has_copy)
    # The last rule of a chain behind a branch is no copy of a matchless rule of the list.
    is_copy &= ~(rules.matchless & np.isin(rules.chain, rules.number[branches]))
    return Copies(
        np.concatenate((np.flatnonzero(is_copy), branches)), _calls_before(rules, has_copy), listed_before
    )


def _branches(rules: GroupedRules, has_copy: Bools) -> tuple[Ints, dict[int, list[int]]]:
    """Rules that go (`-g`) to a chain of copies of earlier list rules, which ends in their own verdict."""
    action, list_rule = rules.action, rules.list_rule
    branches: list[int] = []
    listed_before: dict[int, list[int]] = {}
    gotos = np.flatnonzero((action == Action.GOTO) & (list_rule >= 0) & ~rules.matchless)
    for at in gotos[~has_copy[list_rule[gotos]]].tolist():
        rule = int(list_rule[at])
        *others, last = rules.rules_of(int(rules.number[at])) or [-1]
        if last < 0 or not rules.matchless[last] or action[last] != Action.VERDICT:
            continue
        listed = [int(list_rule[each]) for each in others]
        are_copies = all(
            action[each] == Action.VERDICT and copied >= 0 and rules.number[each] == rules.verdict[copied]
            for each, copied in zip(others, listed, strict=True)
        )
        if (
            rules.number[last] == rules.verdict[rule]
            and are_copies
            and listed_before.setdefault(rule, listed) == listed
        ):
            branches.append(at)
    return np.array(branches, np.int64), listed_before


def _calls_before(rules: GroupedRules, has_copy: Bools) -> dict[int, int]:
    calls = np.flatnonzero((rules.action == Action.JUMP) & (rules.list_rule >= 0) & ~rules.matchless)
    callers = rules.list_rule[calls]
    wanted = has_copy[callers]
    return dict(zip(callers[wanted].tolist(), rules.number[calls][wanted].tolist(), strict=True))


# ---- groups ----


@dataclass(frozen=True)
class Groups:
    """The live rules of the list, numbered by group and then by position in the list.

    count        of groups
    group        by position: the group of the rule there
    position     by number: where the rule is in the list
    number_of    by position: the rule's number; -1: it is not live
    group_start  by group: the number of its first rule; one entry more than groups
    uncopied     by position: live, but the second program has no copy
    """

    count: int
    group: Ints
    position: Ints
    number_of: Ints
    group_start: Ints
    uncopied: Bools

    def before(self, position: int, group: int) -> int:
        """How many rules of the group are before the position."""
        first, end = self.group_start[group], self.group_start[group + 1]
        return int(np.searchsorted(self.position[first:end], position))

    def last_position(self, group: int, size: int) -> int:
        """The position of the last of the group's first *size* rules."""
        return int(self.position[self.group_start[group] + size - 1])


def number_groups(rules: GroupedRules, copies: Copies, root: int) -> Groups:
    """Group each live rule of the list by the tree that contains its copy."""
    trees = [*rules.calls(root), root]
    group = _groups_of_copies(rules, copies.rules, trees)
    uncopied = rules.live & (group < 0)
    group = _with_uncopied(rules, group, np.flatnonzero(uncopied), len(trees) - 1)
    order = np.lexsort((np.arange(rules.count), group))
    position = order[rules.live[order]]
    number_of = np.full(rules.count, -1)
    number_of[position] = np.arange(len(position))
    group_start = np.searchsorted(group[position], np.arange(len(trees) + 1))
    return Groups(len(trees), group, position, number_of, group_start, uncopied)


def _groups_of_copies(rules: GroupedRules, copies: Ints, trees: list[int]) -> Ints:
    """By list rule: the last tree that contains a copy; -1: none does."""
    group = np.full(rules.count, -1)
    gotos = _gotos(rules)
    for number, tree in enumerate(trees):
        inside = copies[_reached_by_goto(rules, gotos, tree)[rules.chain[copies]]]
        group[rules.list_rule[inside]] = number
    return group


def _gotos(rules: GroupedRules) -> tuple[Ints, Ints]:
    """The chains left and entered by each `-g`, sorted by the chain left."""
    is_goto = rules.action == Action.GOTO
    source, entered = rules.chain[is_goto], rules.number[is_goto]
    order = np.argsort(source, kind="stable")
    return source[order], entered[order]


def _reached_by_goto(rules: GroupedRules, gotos: tuple[Ints, Ints], chain: int) -> Bools:
    """By chain: whether packets reach it from *chain* by `-g` alone."""
    source, entered = gotos
    reached = np.zeros(len(rules.encoding.chain_start) - 1, np.bool_)
    reached[chain] = True
    front = np.array([chain])
    while len(front):
        low, high = np.searchsorted(source, front, "left"), np.searchsorted(source, front, "right")
        front = np.unique(entered[ranges(low, high - low)])
        front = front[~reached[front]]
        reached[front] = True
    return reached


def _with_uncopied(rules: GroupedRules, group: Ints, uncopied: Ints, last_group: int) -> Ints:
    """*group*, where a rule without a copy gets the group of an earlier rule that covers it, or the last."""
    if not len(uncopied):
        return group
    if len(uncopied) > MOST_UNCOPIED:
        raise NotGrouped
    lows, highs, exact = _boxes(rules)
    group = group.copy()
    for rule in uncopied.tolist():
        covers = exact[:rule] & (group[:rule] >= 0)
        for low, high in zip(lows, highs, strict=True):
            covers &= (low[:rule] <= low[rule]) & (high[:rule] >= high[rule])
        covering = np.flatnonzero(covers)
        group[rule] = group[covering[0]] if len(covering) else last_group
    return group


def _boxes(rules: GroupedRules) -> tuple[list[U32], list[U32], Bools]:
    """By dimension, then list rule: the bounds of its box.  By list rule: whether it tests nothing else."""
    encoding, count = rules.encoding, rules.count
    matches, tests = encoding.matches, encoding.matches.tests
    start = encoding.rule_start[rules.offset : rules.offset + count + 1].astype(np.int64)
    of_list = encoding.rule_match[start[0] : start[-1]].astype(np.int64)
    rule = np.repeat(np.arange(count), np.diff(start))
    sizes = np.diff(matches.test_start)[of_list]
    of_rule, test = np.repeat(rule, sizes), matches.test_list[ranges(matches.test_start[of_list], sizes)]
    ends = np.array(tests.ends, np.uint32)
    test_start, test_dim = np.array(tests.starts, np.int64), np.array(tests.dims, np.int64)
    exact = np.ones(count, np.bool_)
    exact[rule[matches.inexact[of_list]]] = False
    exact[of_rule[np.diff(test_start)[test] != 1]] = False
    lows, highs = [], []
    for dim in np.unique(test_dim[test]).tolist():
        here = test_dim[test] == dim
        low, high = np.zeros(count, np.uint32), np.full(count, NONE, np.uint32)
        np.maximum.at(low, of_rule[here], ends[2 * test_start[test[here]]])
        np.minimum.at(high, of_rule[here], ends[2 * test_start[test[here] + 1] - 1])
        lows.append(low)
        highs.append(high)
    return lows, highs, exact


# ---- chains as lists ----


@dataclass(frozen=True)
class ListChain:
    """A chain of the second program as a list: its calls, then the first *size* rules of *group*.

    owned  by group: how many of its first rules the chain decides, those of its calls included
    last   position of the last of them
    """

    calls: list[int]
    group: int
    size: int
    owned: dict[int, int]
    last: int


def list_chains(rules: GroupedRules, copies: Copies, groups: Groups, root: int) -> dict[int, ListChain]:
    """The root, and each chain that a form or one of these chains calls."""
    calls, limits = _calls(rules, copies, root)
    latest = _latest_copies(rules, copies.rules, groups)
    segments: dict[int, tuple[int, int]] = {}
    for chain in calls:
        present = np.flatnonzero(latest[chain] >= 0)
        if not len(present):
            raise NotGrouped
        group = int(present[0])
        segments[chain] = group, _segment_size(groups, group, int(latest[chain, group]), limits.get(chain))
    chains: dict[int, ListChain] = {}
    for chain in calls:
        _add_chain(chain, calls, segments, groups, chains, frozenset())
    return {chain: chains[chain] for chain in calls}


def _calls(rules: GroupedRules, copies: Copies, root: int) -> tuple[dict[int, list[int]], dict[int, int]]:
    """By chain: the chains that it calls, and the first list rule before which it is called."""
    limits: dict[int, int] = {}
    for rule, chain in copies.call_before.items():
        limits[chain] = min(rule, limits.get(chain, rules.count))
    calls: dict[int, list[int]] = {}
    waiting = [root, *limits]
    while waiting:
        chain = waiting.pop()
        if chain in calls:
            continue
        calls[chain] = rules.calls(chain)
        for called in calls[chain]:
            limits[called] = min(limits.get(chain, rules.count), limits.get(called, rules.count))
        waiting += calls[chain]
    return calls, limits


def _latest_copies(rules: GroupedRules, copies: Ints, groups: Groups) -> Ints:
    """By chain and group: the last position with a copy in the chain or one reached by `-g`; or -1."""
    latest = np.full((len(rules.encoding.chain_start) - 1, groups.count), -1)
    rule = rules.list_rule[copies]
    np.maximum.at(latest, (rules.chain[copies], groups.group[rule]), rule)
    is_goto = rules.action == Action.GOTO
    source, entered = rules.chain[is_goto], rules.number[is_goto]
    while True:
        more = latest.copy()
        np.maximum.at(more, source, latest[entered])
        if np.array_equal(more, latest):
            return latest
        latest = more


def _segment_size(groups: Groups, group: int, last: int, limit: int | None) -> int:
    """How many of the group's rules a chain decides whose last copy is at position *last*.

    Rules without a copy that follow it belong to the chain, as far as they are before *limit*.
    """
    first = int(groups.group_start[group])
    size = int(groups.number_of[last]) + 1 - first
    most = groups.before(len(groups.group) if limit is None else limit, group)
    while size < most and groups.uncopied[groups.position[first + size]]:
        size += 1
    return size


def _add_chain(
    chain: int,
    calls: dict[int, list[int]],
    segments: dict[int, tuple[int, int]],
    groups: Groups,
    chains: dict[int, ListChain],
    callers: frozenset[int],
) -> ListChain:
    """Add *chain* to *chains*, behind all that it calls."""
    if chain in chains:
        return chains[chain]
    if chain not in calls or chain in callers:
        raise NotGrouped
    group, size = segments[chain]
    owned = {group: size}
    for called in calls[chain]:
        for each, most in _add_chain(
            called, calls, segments, groups, chains, callers | {chain}
        ).owned.items():
            owned[each] = max(most, owned.get(each, 0))
    last = max(groups.last_position(each, most) for each, most in owned.items())
    chains[chain] = ListChain(calls[chain], group, size, owned, last)
    return chains[chain]


def ranges(starts: Any, sizes: Any) -> Ints:
    """starts[0], starts[0] + 1, ... sizes[0] of them, then those of starts[1], ..."""
    sizes = np.asarray(sizes, np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    shift: Ints = np.repeat(np.asarray(starts, np.int64) - (ends - sizes), sizes)
    return np.arange(total) + shift

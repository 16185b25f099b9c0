"""How a program of shape groups prints the rules of a list: copies of them, and what is searched before them.

Idea: the second program prints one chain of the first in many: its own (the *root*) and *new* chains, whose
names the first program lacks.  A rule of these is a *copy* of a rule of the list when it has the same
matches and the same target; a rule with memory is kept in a new chain of its own, and the `-j` to that chain
counts as the copy.  A copy may have a *form*, which decides rules of later groups first: a `-j` to a new
chain in front of it (the *call before* the rule), for at least the packets that the rule matches; or the
rules spelled out in a new chain that is entered by `-g` and ends in the rule's own target (*listed before*
it).

The result is a guess: nothing here is proved.  group_lists.py checks all that a proof needs of it, so a wrong
guess makes a proof fail and never makes it wrong.

Cost: linear in the rules of the list and of the chains that it is printed in, by whole arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.core.prover import ProveAction

from .encoding import Encoding

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ENTERS = (ProveAction.JUMP, ProveAction.GOTO)


class NotGrouped(Exception):
    """The second program does not print the list by groups that can be proved; the message says why."""


def ranges(starts: Any, sizes: Any) -> Ints:
    """starts[0], starts[0] + 1, ... sizes[0] of them, then those of starts[1], ..."""
    sizes = np.asarray(sizes, np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    shift: Ints = np.repeat(np.asarray(starts, np.int64) - (ends - sizes), sizes)
    return np.arange(total) + shift


# ---- both tables ----


class Tables:
    """The rules of both tables, and the chains that only the second has.

    rule_start, chain_start, action  as in Encoding, wide enough to calculate with
    namesake   by chain: the chain of the same name in the other table; -1: a new chain
    matchless  by rule: it has no matches
    """

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.rule_start = encoding.rule_start.astype(np.int64)
        self.chain_start = encoding.chain_start.astype(np.int64)
        self.action = encoding.rule_action.astype(np.int64)
        self.matchless = self.rule_start[1:] == self.rule_start[:-1]
        self.namesake = np.array(encoding.namesakes(), np.int64)
        self._match_bytes = encoding.rule_match.tobytes()
        self._ending: dict[int, bool] = {}

    def rules_of(self, chain: int) -> range:
        return range(int(self.chain_start[chain]), int(self.chain_start[chain + 1]))

    @cached_property
    def enters_new(self) -> Bools:
        """By rule: it sends packets to a new chain."""
        kind, number = self.action[:, 0], self.action[:, 1]
        enters = np.isin(kind, _ENTERS)
        return enters & (self.namesake[np.where(enters, number, 0)] < 0)

    def match_keys(self, rules: Ints) -> list[bytes]:
        """For each rule: equal keys, equal matches."""
        data = self._match_bytes
        starts, ends = (4 * self.rule_start[rules]).tolist(), (4 * self.rule_start[rules + 1]).tolist()
        return [data[start:end] for start, end in zip(starts, ends, strict=True)]

    def target_keys(self, rules: Ints) -> list[bytes]:
        """For each rule: equal keys, equal targets; a chain and its namesake are equal."""
        kind, number = self.action[rules, 0], self.action[rules, 1]
        enters = np.isin(kind, _ENTERS)
        entered = np.where(enters, number, 0)
        first = self.encoding.chains_before
        old = enters & (entered >= first) & (self.namesake[entered] >= 0)
        number = np.where(old, self.namesake[entered], number)
        data = np.stack((kind, number), axis=1).astype(np.uint32).tobytes()
        return [data[at : at + 8] for at in range(0, len(data), 8)]

    def has_memory(self, rule: int) -> bool:
        """Whether the rule has a memory of its own."""
        used = self.encoding.rule_match[self.rule_start[rule] : self.rule_start[rule + 1]]
        return bool(np.any(self.encoding.matches.once[used]))

    def surely_ends(self, chain: int) -> bool:
        """Whether no packet that enters the chain comes back, for reasons that all packets share."""
        known = self._ending.get(chain)
        if known is None:
            self._ending[chain] = False
            known = self._ending[chain] = self._finds_end(chain)
        return known

    def _finds_end(self, chain: int) -> bool:
        for rule in self.rules_of(chain):
            kind, number = int(self.action[rule, 0]), int(self.action[rule, 1])
            ends = kind == ProveAction.VERDICT or (kind in _ENTERS and self.surely_ends(number))
            if kind == ProveAction.RETURN or (kind == ProveAction.GOTO and not ends):
                return False
            if ends and self.matchless[rule]:
                return True
        return False


# ---- the list ----


@dataclass(frozen=True)
class ListRules:
    """The rules of a chain of the first program, numbered from its first, *offset*.

    final       by rule: it surely ends the packet's way, or returns, and asks no memory
    has_memory  by rule: it has a memory of its own, so it is printed once
    changing    by rule: what the chain writes may change whether it matches
    live        by rule: it is kept; not where an earlier rule has the same matches and decides their packets
    match_keys, target_keys  by rule
    """

    tables: Tables
    offset: int
    final: Bools
    has_memory: Bools
    changing: Bools
    live: Bools
    match_keys: list[bytes]
    target_keys: list[bytes]

    @property
    def count(self) -> int:
        return len(self.final)


def read_list(tables: Tables, chain: int) -> ListRules:
    """The rules of *chain* of the first program."""
    numbers = np.array(tables.rules_of(chain), np.int64)
    matches = tables.encoding.matches
    of_rule = tables.rule_start[numbers], tables.rule_start[numbers + 1] - tables.rule_start[numbers]
    owner = np.repeat(np.arange(len(numbers)), of_rule[1])
    used = tables.encoding.rule_match[ranges(*of_rule)]
    has_memory = np.zeros(len(numbers), np.bool_)
    has_memory[owner[matches.once[used]]] = True
    asks = np.zeros(len(numbers), np.bool_)
    asks[owner[matches.asks[used]]] = True
    # What the chain writes may change the answer of a match: then equal matches decide nothing.
    written = int(tables.encoding.chain_writes[chain])
    changing = np.zeros(len(numbers), np.bool_)
    changing[owner[matches.reads[used] & written != 0]] = True
    kind = tables.action[numbers, 0]
    final = np.isin(kind, (ProveAction.VERDICT, ProveAction.RETURN))
    for at in np.flatnonzero(np.isin(kind, _ENTERS)).tolist():
        final[at] = tables.surely_ends(int(tables.action[numbers[at], 1]))
    final &= ~asks
    keys = tables.match_keys(numbers)
    live = np.ones(len(numbers), np.bool_)
    decided: set[bytes] = set()
    for at, (key, decides) in enumerate(zip(keys, (final & ~changing).tolist(), strict=True)):
        if key in decided:
            live[at] = False
        elif decides:
            decided.add(key)
    return ListRules(
        tables, int(numbers[0]), final, has_memory, changing, live, keys, tables.target_keys(numbers)
    )


# ---- the chains that a list is printed in ----


@dataclass(frozen=True)
class PrintedChains:
    """The root and the new chains that packets reach from it.  Chains are numbered from 0, and rules from 0.

    chains   by chain: its number in the encoding
    start    by chain: its first rule; one entry more than chains
    rules    by rule: its number in the encoding
    chain    by rule: its chain
    kind     by rule: its Action
    entered  by rule: the new chain that it enters; -1: none
    """

    tables: Tables
    root: int
    chains: Ints
    start: Ints
    rules: Ints
    chain: Ints
    kind: Ints
    entered: Ints
    matchless: Bools

    def rules_of(self, chain: int) -> range:
        return range(int(self.start[chain]), int(self.start[chain + 1]))

    def matches(self, rule: int) -> set[int]:
        """The numbers of the rule's matches."""
        number = self.rules[rule]
        rule_start = self.tables.rule_start
        return set(self.tables.encoding.rule_match[rule_start[number] : rule_start[number + 1]].tolist())

    def match_count(self, rule: int) -> int:
        number = self.rules[rule]
        return int(self.tables.rule_start[number + 1] - self.tables.rule_start[number])


def read_output(tables: Tables, root: int) -> PrintedChains:
    """The chains that *root*, of the second program, is printed in."""
    reached, front = {root}, [root]
    enters_new, number = tables.enters_new, tables.action[:, 1]
    while front:
        chain = front.pop()
        start, end = int(tables.chain_start[chain]), int(tables.chain_start[chain + 1])
        for entered in set(number[start:end][enters_new[start:end]].tolist()) - reached:
            reached.add(entered)
            front.append(entered)
    chains = np.array(sorted(reached), np.int64)
    sizes = tables.chain_start[chains + 1] - tables.chain_start[chains]
    rules = ranges(tables.chain_start[chains], sizes)
    entered = np.where(enters_new[rules], np.searchsorted(chains, number[rules]), -1)
    return PrintedChains(
        tables,
        int(np.searchsorted(chains, root)),
        chains,
        np.concatenate(([0], np.cumsum(sizes))),
        rules,
        np.repeat(np.arange(len(chains)), sizes),
        tables.action[rules, 0],
        entered,
        tables.matchless[rules],
    )


# ---- copies and forms ----


@dataclass(frozen=True)
class Copies:
    """Where the output contains the rules of the list.

    of             by rule of the output: the rule of the list that it is a copy of, of equal ones the first;
                   -1: it is none, or it is a form's
    equal          by rule of the list with equal ones behind it: all of them
    is_shared      by chain: it keeps a rule with memory, which other rules enter by `-j`
    listed_before  by list rule: the list rules that its copies decide first, spelled out
    calls          rules of the output that call a new chain in front of a copy
    """

    of: Ints
    equal: dict[int, list[int]]
    is_shared: Bools
    listed_before: dict[int, list[int]]
    calls: list[int]


def find_copies(rules: ListRules, output: PrintedChains) -> Copies:
    """The copies of all rules of the list, with their forms."""
    match_keys = rules.tables.match_keys(output.rules)
    target_keys = rules.tables.target_keys(output.rules)
    of, equal = _same_rules(rules, match_keys, target_keys)
    is_shared = _shared_chains(rules, output, of)
    enters_shared = (output.kind == ProveAction.JUMP) & (output.entered >= 0) & is_shared[output.entered]
    of = np.where(is_shared[output.chain], -1, of)
    kept = output.entered[enters_shared]
    of[enters_shared] = _same_rules(
        rules,
        [match_keys[at] for at in output.start[kept].tolist()],
        [target_keys[at] for at in output.start[kept].tolist()],
    )[0]
    listed_before = _listed(rules, output, of, match_keys, target_keys)
    return Copies(of, equal, is_shared, listed_before, _calls(rules, output, of, is_shared, match_keys))


def _same_rules(
    rules: ListRules, match_keys: list[bytes], target_keys: list[bytes]
) -> tuple[Ints, dict[int, list[int]]]:
    """For each pair of keys: the first rule of the list that has them; and the rules with equal keys.

    Not a decider that is not live: its keys may be those of a rule that is.
    """
    by_keys: dict[tuple[bytes, bytes], int] = {}
    equal: dict[int, list[int]] = {}
    for at in np.flatnonzero(rules.live | ~rules.final).tolist():
        first = by_keys.setdefault((rules.match_keys[at], rules.target_keys[at]), at)
        if first != at:
            equal.setdefault(first, [first]).append(at)
    get = by_keys.get
    same = np.fromiter(
        (get(keys, -1) for keys in zip(match_keys, target_keys, strict=True)), np.int64, len(match_keys)
    )
    return same, equal


def _shared_chains(rules: ListRules, output: PrintedChains, same: Ints) -> Bools:
    """By chain: it is new, and its only rule is one of the list with memory."""
    alone = np.diff(output.start) == 1
    alone[output.root] = False
    first = same[np.minimum(output.start[:-1], len(same) - 1)]
    shared: Bools = alone & (first >= 0) & rules.has_memory[np.maximum(first, 0)]
    return shared


def _listed(
    rules: ListRules, output: PrintedChains, of: Ints, match_keys: list[bytes], target_keys: list[bytes]
) -> dict[int, list[int]]:
    """Find the rules that go (`-g`) to a chain of copies which ends in their own target; change *of*.

    The target may have some of their matches, but not all: some do not load without `-p`.

    A chain behind a test may look so by chance.  Then the rule has copies elsewhere.
    """
    final = {rules.match_keys[at]: at for at in np.flatnonzero(rules.live & rules.final).tolist()}
    last = output.start[1:] - 1
    filled = np.diff(output.start) > 0
    gotos = (
        (output.kind == ProveAction.GOTO) & (output.entered >= 0) & ~output.matchless & filled[output.entered]
    )
    candidates: list[tuple[int, int, int, list[int]]] = []
    for at in np.flatnonzero(gotos).tolist():
        rule, chain = final.get(match_keys[at], -1), int(output.entered[at])
        if rule < 0 or target_keys[last[chain]] != rules.target_keys[rule]:
            continue
        if not output.matchless[last[chain]] and not output.matches(last[chain]) < output.matches(at):
            continue
        # Of rules with the same matches, the first decides.
        firsts: dict[bytes, int] = {}
        for before in range(int(output.start[chain]), int(last[chain])):
            firsts.setdefault(match_keys[before], before)
        listed = of[np.array(list(firsts.values()), np.int64)].tolist()
        if all(list_rule >= 0 and rules.final[list_rule] for list_rule in listed):
            candidates.append((at, rule, chain, listed))
    while True:
        inside = np.zeros(len(output.chains), np.bool_)
        inside[[chain for _, _, chain, _ in candidates]] = True
        elsewhere = np.zeros(rules.count, np.bool_)
        elsewhere[of[(of >= 0) & ~inside[output.chain]]] = True
        kept = [candidate for candidate in candidates if not elsewhere[candidate[1]]]
        if len(kept) == len(candidates):
            break
        candidates = kept
    listed_before: dict[int, list[int]] = {}
    of[inside[output.chain]] = -1
    for at, rule, _, listed in candidates:
        if listed_before.setdefault(rule, listed) == listed:
            of[at] = rule
    return listed_before


def _calls(
    rules: ListRules, output: PrintedChains, of: Ints, is_shared: Bools, match_keys: list[bytes]
) -> list[int]:
    """The rules that call a new chain, right before a copy with at least their matches."""
    jumps = (output.kind == ProveAction.JUMP) & (output.entered >= 0) & ~is_shared[output.entered]
    calls = np.flatnonzero(jumps[:-1] & (of[1:] >= 0) & (output.chain[1:] == output.chain[:-1]))
    return [at for at in calls.tolist() if rules.match_keys[int(of[at + 1])].startswith(match_keys[at])]


def with_copied(rules: ListRules, copies: Copies) -> ListRules:
    """The list, where a rule that acts on no packet is kept if the output has a copy of it."""
    live = rules.live.copy()
    live[copies.of[copies.of >= 0]] = True
    for equal in copies.equal.values():
        live[equal] |= live[equal[0]]
    return replace(rules, live=live)


def has_calls(tables: Tables, chain: int) -> bool:
    """Whether *chain*, of the second program, may be printed by groups.

    It is if it calls new chains, other than those that keep one rule with memory.
    """
    if not np.any(tables.enters_new[tables.chain_start[chain] : tables.chain_start[chain + 1]]):
        return False
    output = read_output(tables, chain)
    called = output.entered[(output.kind == ProveAction.JUMP) & (output.entered >= 0)]
    if np.any(np.diff(output.start)[called] != 1):
        return True
    return any(not tables.has_memory(int(output.rules[output.start[each]])) for each in set(called.tolist()))

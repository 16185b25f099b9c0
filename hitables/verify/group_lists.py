"""A proof that a program of shape groups does what its lists do: the groups, written as lists of their own.

Idea: a program of shape groups (docs/decisions/groups.md) is compared with its lists in two steps.  Between
the two we construct a third program (third_program.py).  It is the first one, except that a list that the
second prints by groups becomes a chain of parts: the plain *list* of the rules of each group, in the order of
the input, each behind its *form*, the rules of later groups that are decided first.  For each chain that the
second program enters by `-j` the third has the list of the rules that the chain decides.  The prover compares
the third program with the second; groups do not cross there, because a form calls its list by name.  The law
below, and core/c/prove/reorder.c, compare the lists with the one list that their rules were taken from.

group_reader.py and group_frames.py read the groups off the second program.  That is a guess; a wrong guess
proves nothing.

Terms.  A *decider* is a rule that asks no memory, whose tests read nothing that any rule of the list which
lets packets pass may write, and that surely ends the packet's way: by a verdict, by a chain that surely ends
(two are of one verdict when they enter one chain), or by RETURN.  Any other rule *stays*.  Whether a decider
matches a packet does not depend on when it is read; reading one that does not match has no effect.

Law 1, of a chain X that a form calls, with L the rules of the first group that X has rules of and of all
later groups: X decides a packet that a decider of X matches as the first decider of L that matches the
packet, after the effects of the rules of X that stay, match the packet and precede that decider; any other
packet passes X with the effects of all rules of X that stay and match it.  By induction along the jumps, if
- X has deciders, none of them RETURN, which would return to the caller of X; and rules that stay, if these
are in the last group, which X and each chain that it calls has once, as the last part: before, a packet might
meet them there and then in the form of a rule that follows;
- a form that searches rules that stay is before a decider, and called for the packets that this decider
matches, so that these packets end there;
- for each rule of a segment (the first rules of one group): the list rules before it that are in an earlier
group of L were decided by calls; those in a later group are called or listed by its form, or share no packet
with it, or only packets that listed rules before them decide, or have the same verdict and it has no form
(reorder.c);
- for each call: the rules of L that it lacks, before its last rule, were decided by earlier calls;
- for each form: all rules that it calls or lists are before its own rule in the list, and in later groups.

Law 2, of the root: it does what the list does.  The root reads every group once, in turn.  Let a packet have
met in the list the rules that stay s1, s2, ... and then the decider d (or the end).  Suppose that the root
has done s1 ... sj so far, so that what is written is as it was in the list, and that x is the next rule of
the root that acts: its tests hold, or its form is called.  Then
- no rule sk, k > j, that precedes x in the list is left: it would be in a later group, and reorder.c has
shown that no packet meets both, by tests that nothing writes, or that each such packet meets a decider before
sk, which d would not follow;
- if d precedes x in the list, d is in a later group, too.  Either x has no form, and is a decider of the
same verdict.  Or the form of x searches d: its chain decides the packet as d, by law 1, as d is the first
decider of the list; the rules that it lists are in list order, so d is the first that matches;
- else no decider that the form of x searches matches, and x is s(j+1) or d.
If the form searches rules that stay, x is a decider, and the root has not read the last group yet: the form
does s(j+1) ... up to d or x, as it searches all that precede x and share a packet with it.
A form may be called for more packets than its rule matches (the first matches of a rule that stays):
reorder.c compares those packets with the rules that the form does not search.  RETURN and `-g` mean in the
root what they mean in the list; in a chain that the root calls no rule may leave the chain.  A memory is
asked once, as a rule that stays is in one group, which is read once.  Where the second program may drop
malformed packets, a decider that drops may come early: the effects so far are the first ones of the list.

The list of a version may stand for a smaller version by the tree of that version, which does what the list of
the smaller version does where the two were proved equal; reorder.c checks that they were.

Rules of the list that no packet meets may be left out: dead_rules.py.

The chains that the list enters are chains of the third program, and of the same name in the second; they are
proved equal like all others, so a jump to one is a jump to the other.

Cost: linear in the rules of the third program.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from hitables.core.prover import U32, ChainArrays

from .dead_rules import without_dead
from .encoding import Encoding
from .group_frames import ChainFrames, ChainPart, GroupForms, Groups, ListChain, number_groups, read_forms
from .group_reader import (
    ListRules,
    NotGrouped,
    Tables,
    find_copies,
    has_calls,
    read_list,
    read_output,
    with_copied,
)
from .third_program import Checks, PrintedList, third_program


@dataclass(frozen=True)
class GroupLists:
    """The third program, to be compared with the second, and what else must hold for its lists.

    chains   both programs; None: no list is printed by groups
    checks   by chain of the first program that is printed by groups
    why      by chain that has calls, but is not read as groups: the reason
    sources  by rule of *chains*: the rule of the encoding that it is (third_program.py)
    """

    chains: ChainArrays | None
    checks: dict[int, Checks]
    why: dict[int, str]
    sources: U32

    def start(self, encoding: Encoding, chain: str) -> tuple[int, int]:
        """The chain of this name in the third and in the second program."""
        assert self.chains is not None
        first, second = encoding.both(chain)
        return first, second - encoding.chains_before + self.chains.chains_before


def group_lists(encoding: Encoding, *, leave_out: bool = True) -> GroupLists:
    """The third program for the lists of the first table that the second prints by groups.

    leave_out  without rules that seem dead (dead_rules.py)
    """
    tables = Tables(encoding)
    lists: list[PrintedList] = []
    why: dict[int, str] = {}
    for chain in range(encoding.chains_before):
        root = int(tables.namesake[chain])
        if root < 0 or not has_calls(tables, root):
            continue
        try:
            lists.append(read_printed(tables, chain, root, leave_out=leave_out))
        except NotGrouped as reason:
            why[chain] = str(reason)
    if not lists:
        return GroupLists(None, {}, why, np.zeros(0, np.uint32))
    arrays, checks, sources = third_program(tables, lists)
    by_chain = {each.chain: check for each, check in zip(lists, checks, strict=True)}
    return GroupLists(arrays, by_chain, why, sources)


def read_printed(tables: Tables, chain: int, root: int, *, leave_out: bool) -> PrintedList:
    """How *root*, of the second program, prints *chain*; NotGrouped when that proves nothing."""
    if not len(tables.rules_of(chain)):
        raise NotGrouped("the list is empty")
    rules = read_list(tables, chain)
    output = read_output(tables, root)
    copies = find_copies(rules, output)
    rules = with_copied(rules, copies)
    dead: dict[int, list[int]] = {}
    if leave_out:
        rules, dead = without_dead(rules, copies)
    frames = ChainFrames(rules, output, copies)
    groups = number_groups(rules, frames)
    forms = read_forms(rules, frames, groups)
    check_law(rules, groups, forms, output.root)
    return PrintedList(chain, rules, output, groups, forms, dead)


# ---- the law ----


def check_law(rules: ListRules, groups: Groups, forms: GroupForms, root: int) -> None:
    """Check all of the laws but what reorder.c checks; NotGrouped when they do not hold."""
    if groups.group_start[0] != 0 or sum(groups.sizes) != np.count_nonzero(rules.live):
        raise NotGrouped("the groups do not have all rules of the list")
    _check_root(groups, root)
    last = groups.count - 1
    of_last = groups.position[groups.group_start[last] :]
    has_stayers = not (rules.final & ~rules.changing)[of_last].all()
    for number, chain in forms.chains.items():
        _check_version(chain, groups, forms.chains)
        if has_stayers and any(last in _owned(part, forms.chains) for part in chain.parts[:-1]):
            raise NotGrouped("a chain that is called before a rule reads rules that stay too early")
        once = groups.chains.get(number)
        if once is not None and once.owned != chain.owned:
            raise NotGrouped("a group that is called before a rule has rules that follow it")
    for rule, call in forms.call_before.items():
        form = forms.chains[call.chain]
        if form.last >= rule or min(form.owned) <= groups.group[rule]:
            raise NotGrouped("a rule is called before one that precedes it, or stands in an earlier group")
        if rule in forms.listed_before:
            raise NotGrouped("rules are both called and listed before a rule")
    for rule, listed in forms.listed_before.items():
        if listed != sorted(set(listed)) or any(
            each >= rule or groups.group[each] <= groups.group[rule] or not rules.live[each]
            for each in listed
        ):
            raise NotGrouped("rules are listed before a rule in another order than the list's")


def _owned(part: ChainPart, chains: dict[int, ListChain]) -> Collection[int]:
    """The groups that a part of a version has rules of."""
    return chains[part.called].owned if part.called >= 0 else (part.group,)


def _check_root(groups: Groups, root: int) -> None:
    """Check that the root reads each group once, in turn and whole."""
    read: list[int] = []

    def follow(chain: int) -> None:
        for part in groups.chains[chain].parts:
            if part.called >= 0:
                follow(part.called)
            else:
                read.append(part.group if part.size == groups.sizes[part.group] else -1)

    follow(root)
    if read != list(range(groups.count)):
        raise NotGrouped("a group is not read once")


def _check_version(chain: ListChain, groups: Groups, chains: dict[int, ListChain]) -> None:
    """Check that all rules that a call, or the segment, leaves out are decided before it."""
    first_group = min(chain.owned)
    decided: dict[int, int] = {}

    def check(part: ChainPart) -> None:
        called = chains.get(part.called)
        owned = {part.group: part.size} if called is None else called.owned
        last = groups.last_position(part.group, part.size) if called is None else called.last
        for group in range(first_group, min(owned)):
            if decided.get(group, 0) < groups.before(last, group):
                raise NotGrouped("a chain that is called before a rule lacks rules of a group")
        for group, size in owned.items():
            decided[group] = max(size, decided.get(group, 0))

    for part in chain.parts:
        check(part)

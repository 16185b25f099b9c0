"""The groups of a printed list, and its chains as parts: segments of groups, and calls of other chains.

Idea: packets enter the root.  It reads parts in turn: rules of the list in line, `-j` to chains that are
read in the same way, a tree in line.  A tree may end in a `-g` to the chain of the parts that follow it, a
*stage*.  Each segment in line and each tree is a group; a list rule belongs to the last group that contains
a copy of it.  The chains that forms call (`-j`) are read in the same way, as calls and first rules of a
group.

All this is a guess, as in group_reader.py.

Cost: linear in the rules of the output, times the number of groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hitables.core.prover import ProveAction

from .dead_rules import MOST_UNCOPIED, boxes_of
from .group_reader import Bools, Copies, Ints, ListRules, NotGrouped, PrintedChains, ranges

# ---- chains as parts ----


@dataclass(frozen=True)
class ChainPart:
    """One part of a chain: a call, or the first *size* rules of a group in line.

    called  the chain; -1: no call
    stage   the chain that begins with this part and is entered by `-g`; -1: none does
    """

    called: int = -1
    group: int = -1
    size: int = 0
    stage: int = -1


@dataclass(frozen=True)
class ListChain:
    """A chain of the output as parts.

    owned  by group: how many of its first rules the chain decides, those of its calls included
    last   position of the last of them
    """

    parts: tuple[ChainPart, ...]
    owned: dict[int, int]
    last: int


@dataclass(frozen=True)
class _Frame:
    """A chain, entered once: calls, and the list rules that are copied in line (an array), in turn."""

    chain: int
    parts: list[_Frame | Ints]
    stages: list[int]


class ChainFrames:
    """The chains of the output by their `-g` and their leading calls."""

    def __init__(self, rules: ListRules, output: PrintedChains, copies: Copies) -> None:
        self.rules, self.output, self.copies = rules, output, copies
        goes = (output.kind == ProveAction.GOTO) & (output.entered >= 0)
        source, entered = output.chain[goes], output.entered[goes]
        order = np.argsort(source, kind="stable")
        self.gotos = source[order], entered[order]
        self.is_stage = np.zeros(len(output.chains), np.bool_)
        self.is_stage[output.entered[goes & output.matchless]] = True
        self._frames: dict[int, list[int]] = {}

    def leading(self, chain: int) -> list[int]:
        """The rules with which *chain* begins, up to the last of its first calls: calls and copies."""
        known = self._frames.get(chain)
        if known is not None:
            return known
        output, of = self.output, self.copies.of
        found: list[int] = []
        length = 0
        for rule in output.rules_of(chain):
            if self.is_call(rule):
                length = len(found) + 1
            elif output.kind[rule] in (ProveAction.EFFECT, ProveAction.SILENT) and of[rule] < 0:
                continue  # a guard, which only drops packets whose header is cut off
            elif of[rule] < 0 and not length and self.may_be_hot(rule):
                continue
            elif of[rule] < 0:
                break
            found.append(rule)
        self._frames[chain] = found[:length]
        return found[:length]

    def may_be_hot(self, rule: int) -> bool:
        """Whether the rule may be one in front of all groups that decides some packets early.

        The lists of the groups are compared with the root as it is printed, such rules included.
        """
        output = self.output
        ends = output.kind[rule] == ProveAction.VERDICT or output.kind[rule] in (
            ProveAction.JUMP,
            ProveAction.GOTO,
        )
        in_root = output.chain[rule] == output.root and output.entered[rule] < 0
        return bool(in_root and ends and not output.matchless[rule])

    def is_call(self, rule: int) -> bool:
        """Whether the rule sends every packet to a new chain that may return."""
        output = self.output
        return bool(
            output.matchless[rule]
            and output.kind[rule] == ProveAction.JUMP
            and output.entered[rule] >= 0
            and not self.copies.is_shared[output.entered[rule]]
        )

    def reached(self, chain: int, *, beyond_stages: bool) -> Bools:
        """By chain: whether packets reach it from *chain* by `-g`; stages are reached, and perhaps left."""
        source, entered = self.gotos
        reached = np.zeros(len(self.output.chains), np.bool_)
        reached[chain] = True
        front = np.array([chain])
        while len(front):
            low, high = np.searchsorted(source, front, "left"), np.searchsorted(source, front, "right")
            front = np.unique(entered[ranges(low, high - low)])
            front = front[~reached[front]]
            reached[front] = True
            if not beyond_stages:
                front = front[~self.is_stage[front]]
        return reached

    def contents(self, chain: int) -> set[int]:
        """The list rules that *chain* and the chains that it calls first contain copies of."""
        of = self.copies.of[self.reached(chain, beyond_stages=True)[self.output.chain]]
        contents = set(of[of >= 0].tolist())
        for rule in self.leading(chain):
            if self.is_call(rule):
                contents |= self.contents(int(self.output.entered[rule]))
        return contents


def _read_frame(frames: ChainFrames, chain: int, callers: frozenset[int] = frozenset()) -> _Frame:
    """The parts of *chain*, which is entered once."""
    if chain in callers:
        raise NotGrouped("its chains call each other in a circle")
    output, of = frames.output, frames.copies.of
    frame = _Frame(chain, [], [])
    stage: int | None = chain
    while stage is not None:
        reached = frames.reached(stage, beyond_stages=False)
        later = np.flatnonzero(reached & frames.is_stage)
        later = later[later != stage]
        if len(later) > 1 or stage in frame.stages:
            raise NotGrouped("a tree ends in more than one chain")
        following = int(later[0]) if len(later) else None
        reached[later] = False
        head: list[int] = []
        tree = reached[output.chain] & (of >= 0)
        begins = len(frame.parts)
        for rule in _leading_in_frame(frames, stage, following):
            if not frames.is_call(rule):
                tree[rule] = False
                head.append(int(of[rule]))
                continue
            if head:
                frame.parts.append(np.array(head))
            head = []
            frame.parts.append(_read_frame(frames, int(output.entered[rule]), callers | {chain}))
        frame.parts.append(of[tree])
        frame.stages.extend([stage, *[-1] * (len(frame.parts) - begins - 1)])
        stage = following
    return frame


def _leading_in_frame(frames: ChainFrames, chain: int, following: int | None) -> list[int]:
    """The leading rules of *chain* without those from a call on that is the form of the copy behind it."""
    leading = frames.leading(chain)
    for at, rule in enumerate(leading):
        after = rule + 1
        if following is None or not frames.is_call(rule) or after == frames.output.start[chain + 1]:
            continue
        copied = int(frames.copies.of[after])
        if copied < 0 or frames.rules.final[copied]:
            continue
        called = frames.contents(int(frames.output.entered[rule]))
        if not called.isdisjoint(frames.contents(following)):
            calls = [each for each in range(at) if frames.is_call(leading[each])]
            return leading[: calls[-1] + 1] if calls else []
    return leading


# ---- groups ----


@dataclass(frozen=True)
class Groups:
    """The live rules of the list, numbered by group and then by position in the list.

    group        by position: the group of the rule there
    position     by number: where the rule is in the list
    number_of    by position: the rule's number; -1: it is not live
    group_start  by group: the number of its first rule; one entry more than groups
    uncopied     by position: live, but the output has no copy
    is_called    by group: it is read in a chain that is entered by `-j`
    chains       the root, and the chains that are entered from it once
    """

    group: Ints
    position: Ints
    number_of: Ints
    group_start: Ints
    uncopied: Bools
    is_called: list[bool]
    chains: dict[int, ListChain]

    @property
    def count(self) -> int:
        return len(self.is_called)

    def before(self, position: int, group: int) -> int:
        """How many rules of the group are before the position."""
        first, end = self.group_start[group], self.group_start[group + 1]
        return int(np.searchsorted(self.position[first:end], position))

    def last_position(self, group: int, size: int) -> int:
        """The position of the last of the group's first *size* rules; -1 when there is none."""
        return int(self.position[self.group_start[group] + size - 1]) if size else -1

    @cached_property
    def sizes(self) -> list[int]:
        sizes: list[int] = np.diff(self.group_start).tolist()
        return sizes


def number_groups(rules: ListRules, frames: ChainFrames) -> Groups:
    """Group each live rule of the list by the part of the root that contains its copy."""
    frame = _read_frame(frames, frames.output.root)
    group = np.full(rules.count, -1)
    is_called: list[bool] = []

    def mark(frame: _Frame, called: bool) -> None:
        for part in frame.parts:
            if isinstance(part, _Frame):
                mark(part, True)
                continue
            group[part] = len(is_called)
            is_called.append(called)

    mark(frame, False)
    for first, equal in frames.copies.equal.items():
        group[equal] = group[first]
    uncopied = rules.live & (group < 0)
    group = _with_versions_alone(frames, group)
    group = _with_uncopied(rules, group, np.flatnonzero(rules.live & (group < 0)), len(is_called) - 1)
    order = np.lexsort((np.arange(rules.count), group))
    position = order[rules.live[order]]
    number_of = np.full(rules.count, -1)
    number_of[position] = np.arange(len(position))
    start = np.searchsorted(group[position], np.arange(len(is_called) + 1))
    chains: dict[int, ListChain] = {}
    groups = Groups(group, position, number_of, start, uncopied, is_called, chains)
    _add_frame(frame, groups, 0)
    return groups


def _add_frame(frame: _Frame, groups: Groups, first: int) -> int:
    """Add the chains of *frame*, whose first group is *first*; the group behind its last."""
    parts: list[ChainPart] = []
    owned: dict[int, int] = {}
    for part, stage in zip(frame.parts, frame.stages, strict=True):
        if isinstance(part, _Frame):
            first = _add_frame(part, groups, first)
            parts.append(ChainPart(called=part.chain, stage=stage))
            owned |= groups.chains[part.chain].owned
            continue
        parts.append(ChainPart(group=first, size=groups.sizes[first], stage=stage))
        owned[first] = groups.sizes[first]
        first += 1
    if frame.chain in groups.chains:
        raise NotGrouped("a chain of groups is entered twice")
    groups.chains[frame.chain] = _list_chain(parts, owned, groups)
    return first


def _list_chain(parts: list[ChainPart], owned: dict[int, int], groups: Groups) -> ListChain:
    last = max((groups.last_position(each, size) for each, size in owned.items()), default=-1)
    return ListChain(tuple(parts), owned, last)


def _with_versions_alone(frames: ChainFrames, group: Ints) -> Ints:
    """*group*, where a rule that only versions have copies of gets the group of rules beside its copies."""
    output, of = frames.output, frames.copies.of
    copied = np.flatnonzero(of >= 0)
    of_chain = np.full(len(output.chains), -1)
    np.maximum.at(of_chain, output.chain[copied], group[of[copied]])
    group = group.copy()
    alone = copied[group[of[copied]] < 0]
    np.maximum.at(group, of[alone], of_chain[output.chain[alone]])
    for first, equal in frames.copies.equal.items():
        group[equal] = group[first]
    return group


def _with_uncopied(rules: ListRules, group: Ints, uncopied: Ints, last_group: int) -> Ints:
    """*group*, where a rule without a copy gets the group of an earlier rule that covers it, or the last."""
    if not len(uncopied):
        return group
    if len(uncopied) > MOST_UNCOPIED:
        raise NotGrouped("too many of its rules are printed nowhere")
    boxes = boxes_of(rules)
    group = group.copy()
    for rule in uncopied.tolist():
        covering = boxes.first_covering(rule, group >= 0)
        group[rule] = last_group if covering is None else group[covering]
    return group


# ---- what forms search ----


@dataclass(frozen=True)
class Call:
    """A form: the chain that is called, for packets that the first *matches* of the rule accept."""

    chain: int
    matches: int


@dataclass(frozen=True)
class GroupForms:
    """What is searched before the rules of the list.

    call_before    by list rule
    listed_before  by list rule: list rules, spelled out
    chains         the chains that forms call, and those that these call, callees first
    """

    call_before: dict[int, Call]
    listed_before: dict[int, list[int]]
    chains: dict[int, ListChain]


def read_forms(rules: ListRules, frames: ChainFrames, groups: Groups) -> GroupForms:
    """The forms of all rules, and the chains that they call."""
    output, copies = frames.output, frames.copies
    latest = _latest_copies(frames, groups)
    call_before = _calls_before(frames, latest.max(axis=1, initial=-1))
    limits: dict[int, int] = {}
    for rule, call in call_before.items():
        limits[call.chain] = min(rule, limits.get(call.chain, rules.count))
    calls: dict[int, list[int]] = {}
    waiting = list(limits)
    while waiting:
        chain = waiting.pop()
        if chain in calls:
            continue
        leading = frames.leading(chain)
        if not all(map(frames.is_call, leading)):
            raise NotGrouped("a chain that is called before a rule does not begin with its calls")
        calls[chain] = [int(output.entered[rule]) for rule in leading]
        for called in calls[chain]:
            limits[called] = min(limits[chain], limits.get(called, rules.count))
        waiting += calls[chain]
    chains: dict[int, ListChain] = {}
    for chain in calls:
        _add_version(chain, calls, latest, limits, groups, chains, frozenset())
    return GroupForms(call_before, copies.listed_before, chains)


def _calls_before(frames: ChainFrames, latest: Ints) -> dict[int, Call]:
    """The form of each rule that has one; *latest*: by chain, the last position that it has a copy of."""
    output, copies = frames.output, frames.copies
    entries = np.zeros(len(output.chains), np.bool_)
    entries[output.root] = True
    entries[output.entered[(output.kind == ProveAction.JUMP) & (output.entered >= 0)]] = True
    entries |= frames.is_stage
    leads: set[int] = set()
    for chain in np.unique(output.chain[copies.calls]).tolist():
        if entries[chain]:
            leads.update(_leads_of(frames, chain))
    found: dict[int, dict[int, int]] = {}
    for at in copies.calls:
        if at not in leads:
            of_rule = found.setdefault(int(copies.of[at + 1]), {})
            of_rule[int(output.entered[at])] = output.match_count(at)
    call_before: dict[int, Call] = {}
    rules = frames.rules
    repeated = {rules.match_keys[at] for at in np.flatnonzero(~rules.live).tolist()}
    for first, candidates in found.items():
        for rule in copies.equal.get(first, [first]):
            # Of equal rules, each is behind the version that has most of the rules before it.
            fitting = [chain for chain in candidates if latest[chain] < rule]
            if not fitting and rules.match_keys[rule] in repeated:
                continue  # the form is that of a rule behind it, which decides none of the packets
            chain = max(fitting or candidates, key=lambda chain: int(latest[chain]))
            call_before[rule] = Call(chain, candidates[chain])
    return call_before


def _leads_of(frames: ChainFrames, chain: int) -> list[int]:
    """The leading calls of a chain that is a frame, or that a form calls."""
    following = None
    if frames.is_stage[chain] or chain == frames.output.root:
        reached = frames.reached(chain, beyond_stages=False) & frames.is_stage
        later = np.flatnonzero(reached)
        later = later[later != chain]
        following = int(later[0]) if len(later) else None
    return [rule for rule in _leading_in_frame(frames, chain, following) if frames.is_call(rule)]


def _latest_copies(frames: ChainFrames, groups: Groups) -> Ints:
    """By chain and group: the last position with a copy in the chain or one reached by `-g`; or -1."""
    output, of = frames.output, frames.copies.of
    latest = np.full((len(output.chains), groups.count), -1)
    copied = np.flatnonzero(of >= 0)
    last = of[copied]
    np.maximum.at(latest, (output.chain[copied], groups.group[last]), last)
    source, entered = frames.gotos
    while True:
        more = latest.copy()
        np.maximum.at(more, source, latest[entered])
        if np.array_equal(more, latest):
            return latest
        latest = more


def _add_version(
    chain: int,
    calls: dict[int, list[int]],
    latest: Ints,
    limits: dict[int, int],
    groups: Groups,
    chains: dict[int, ListChain],
    callers: frozenset[int],
) -> ListChain:
    """Add *chain* to *chains*, behind all that it calls."""
    if chain in chains:
        return chains[chain]
    if chain in callers:
        raise NotGrouped("its chains call each other in a circle")
    present = np.flatnonzero(latest[chain] >= 0)
    if not len(present):
        raise NotGrouped("a chain that is called before a rule has no rule of the list")
    group = int(present[0])
    size = _segment_size(groups, group, int(latest[chain, group]), limits[chain])
    parts = [ChainPart(called=called) for called in calls[chain]]
    owned = {group: size}
    for called in calls[chain]:
        below = _add_version(called, calls, latest, limits, groups, chains, callers | {chain})
        for each, most in below.owned.items():
            owned[each] = max(most, owned.get(each, 0))
    chains[chain] = _list_chain([*parts, ChainPart(group=group, size=size)], owned, groups)
    return chains[chain]


def _segment_size(groups: Groups, group: int, last: int, limit: int) -> int:
    """How many of the group's rules a chain decides whose last copy is at position *last*.

    Rules without a copy that follow it belong to the chain, as far as they are before *limit*.
    """
    first = int(groups.group_start[group])
    size = int(groups.number_of[last]) + 1 - first
    most = groups.before(limit, group)
    while size < most and groups.uncopied[groups.position[first + size]]:
        size += 1
    return size

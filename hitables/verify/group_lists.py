"""The rules of a list in the order in which a program of shape groups reads them.

Idea: a program that keeps rules in groups (docs/decisions/groups.md) is held against its list in
two steps.  Between the two stands a third program, made here: for each chain that the second
program enters by `-j`, a plain list of rules of the first, some of them behind a *form*: what
stands before the rule, in later groups, asked for by `-j` or spelt out.  core/c/prove/prove.c holds
each list against its chain; the groups cross there no more, since what is asked for has a name.
core/c/prove/reorder.c and the laws below hold the lists against the one list they were taken from.

How the rules are grouped is read off the second program, and no more than a guess: what was
guessed wrong is not proved, and then nothing is said.

Law: let X be a chain made here and L the rules of the first group that X has rules of and of all
later groups.  A packet that some rule of X matches is decided by X as the first of L that it
matches says; any other falls off X.  By induction along the jumps, as
- a segment, the first rules of one group: what stands before a rule in an earlier group that X
  has rules of was called before; in later groups it was asked for, or listed, or matches no
  packet that the rule does, or comes to the same (order.c);
- a call: what it leaves out of L was called before;
- a form: all that it asks for stands before its rule, and in later groups.
The chain that the packets enter has all rules, so it decides as the list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.core._engine import ffi, lib

from .encoding import NOTHING, Lowering, Words

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Rules that none of the second program's chains prints are looked for below others; more are not.
MOST_UNPRINTED = 4000


@dataclass(frozen=True)
class Regrouped:
    """The third program, held against the second: words for core/include/prove.h and order.h.

    start, twin   the chain that the packets enter, in the third and in the second program
    chains_before chains of the third program
    """

    start: int
    twin: int
    chains_before: int
    input: dict[str, Words]
    order: dict[str, Words]
    groups: int

    def order_words(self) -> tuple[Any, list[Any]]:
        """A struct order, and what must live as long as it does."""
        held = {name: ffi.from_buffer("uint32_t[]", words) for name, words in self.order.items()}
        rules = len(self.order["place"])
        made = ffi.new("struct order *", {"groups": self.groups, "rules": rules, **held})
        return made, [held, self.order]


class _Unfit(Exception):
    """The second program is not read as one of shape groups."""


def regroup(low: Lowering, chain: str) -> Regrouped | None:
    """The third program for *chain* of both tables; None when the second is not of groups."""
    try:
        return _Guess(low, low.chain(0, chain), low.chain(1, chain)).made()
    except _Unfit:
        return None


@dataclass
class _Chain:
    """A chain of the third program: what it calls, then the first *size* rules of *group*.

    own   by group: so many of its rules this chain has, with what it calls
    last  place of the last of them
    """

    calls: list[int]
    group: int = -1
    size: int = 0
    own: dict[int, int] = field(default_factory=dict)
    last: int = -1


class _Guess:
    def __init__(self, low: Lowering, first: int, second: int) -> None:
        self.low, self.second = low, second
        start, end = (int(low.chain_start[at]) for at in (first, first + 1))
        self.offset = start
        self.count = end - start
        op = low.rule_action[start:end, 0]
        if not self.count or np.any(op != lib.PROVE_VERDICT) or self._asks_memory(start, end):
            raise _Unfit
        self.verdict = low.rule_action[start:end, 1]
        self._read_second(start, end)
        self.trees = self.calls(second)
        if not self.trees:
            raise _Unfit

    def _asks_memory(self, start: int, end: int) -> bool:
        low = self.low
        return bool(np.any(low.match_asks[low.rule_match[low.rule_start[start] : low.rule_start[end]]]))

    # ---- the second program ----

    def _read_second(self, start: int, end: int) -> None:
        """Which rule of the list each rule of the second program is spelt as."""
        low = self.low
        data = low.rule_match.tobytes()
        place = (low.rule_start.astype(np.int64) * 4).tolist()
        spelt: dict[bytes, int] = {}
        for at in range(end - 1, start - 1, -1):
            spelt[data[place[at] : place[at + 1]]] = at - start
        self.kept = np.zeros(self.count, np.bool_)  # not those spelt as an earlier one, which never match
        self.kept[list(spelt.values())] = True
        split = int(low.chain_start[low.chains_before])
        total = len(place) - 1
        get = spelt.get
        self.split = split
        self.spelt_as = np.fromiter(
            (get(data[place[at] : place[at + 1]], -1) for at in range(split, total)),
            np.int64,
            total - split,
        )
        self.bare = low.rule_start[split + 1 :] == low.rule_start[split:-1]
        self.op = low.rule_action[split:, 0]
        self.number = low.rule_action[split:, 1].astype(np.int64)
        starts = low.chain_start[low.chains_before :].astype(np.int64)
        sizes = starts[1:] - starts[:-1]
        self.chain = np.repeat(np.arange(len(sizes)) + low.chains_before, sizes)

    def rules_of(self, chain: int) -> range:
        """Of the second program, counted from its first rule."""
        start = self.low.chain_start
        return range(int(start[chain]) - self.split, int(start[chain + 1]) - self.split)

    def calls(self, chain: int) -> list[int]:
        """What is entered, whatever the packet, before anything else in the chain."""
        found = []
        for at in self.rules_of(chain):
            if not (self.bare[at] and self.op[at] == lib.PROVE_JUMP):
                break
            found.append(int(self.number[at]))
        return found

    def _sent(self, printed: Bools) -> Ints:
        """Where rules stand in two places: what they match is sent to a chain that ends with what they
        do; what that chain has before is *listed*."""
        op, spelt = self.op, self.spelt_as
        self.listed: dict[int, list[int]] = {}
        found = []
        goes = np.flatnonzero((op == lib.PROVE_GOTO) & (spelt >= 0) & ~self.bare)
        for at in goes[~printed[spelt[goes]]].tolist():
            rule = int(spelt[at])
            rules = self.rules_of(int(self.number[at]))
            *before, last = rules or [-1]
            if last < 0 or not self.bare[last] or op[last] != lib.PROVE_VERDICT:
                continue
            listed = [int(spelt[each]) for each in before]
            if (
                self.number[last] == self.verdict[rule]
                and all(
                    op[each] == lib.PROVE_VERDICT and which >= 0 and self.number[each] == self.verdict[which]
                    for each, which in zip(before, listed, strict=True)
                )
                and self.listed.setdefault(rule, listed) == listed
            ):
                found.append(at)
        return np.array(found, np.int64)

    # ---- groups ----

    def made(self) -> Regrouped:
        op, spelt = self.op, self.spelt_as
        known = np.maximum(spelt, 0)
        is_print = (op == lib.PROVE_VERDICT) & (spelt >= 0) & (self.number == self.verdict[known])
        printed = np.zeros(self.count, np.bool_)
        printed[spelt[is_print]] = True
        sent = self._sent(printed)
        # What ends a chain that packets are sent to is not the rule of the list that matches all packets.
        is_print &= ~(self.bare & np.isin(self.chain, self.number[sent]))
        shown = np.concatenate((np.flatnonzero(is_print), sent))
        self.asks = self._asks(printed)
        group = self._groups(shown)
        dead = self.kept & (group < 0)
        self._cover(dead, group)
        self._number(group)
        self._chains(shown, group, dead)
        self._check()
        return self._words()

    def _asks(self, printed: Bools) -> dict[int, int]:
        """By rule: the chain that is entered before it, for what it matches."""
        at = np.flatnonzero((self.op == lib.PROVE_JUMP) & (self.spelt_as >= 0) & ~self.bare)
        rules = self.spelt_as[at]
        asking = printed[rules]
        return dict(zip(rules[asking].tolist(), self.number[at][asking].tolist(), strict=True))

    def _reached(self, chain: int) -> Bools:
        """By chain: whether it is reached by -g alone."""
        if not hasattr(self, "_edges"):
            goes = self.op == lib.PROVE_GOTO
            source, to = self.chain[goes], self.number[goes]
            order = np.argsort(source, kind="stable")
            self._edges = source[order], to[order]
        source, to = self._edges
        found = np.zeros(len(self.low.chain_start) - 1, np.bool_)
        found[chain] = True
        front = np.array([chain])
        while len(front):
            low, high = np.searchsorted(source, front, "left"), np.searchsorted(source, front, "right")
            front = np.unique(to[_ranges(low, high - low)])
            front = front[~found[front]]
            found[front] = True
        return found

    def _groups(self, shown: Ints) -> Ints:
        """By rule: the last tree that shows it; -1: none does."""
        group = np.full(self.count, -1)
        for number, tree in enumerate([*self.trees, self.second]):
            inside = shown[self._reached(tree)[self.chain[shown]]]
            group[self.spelt_as[inside]] = number
        return group

    def _cover(self, dead: Bools, group: Ints) -> None:
        """Rules that are shown nowhere go to the group of an earlier rule that lets no packet to them."""
        wanted = np.flatnonzero(dead)
        if not len(wanted):
            return
        if len(wanted) > MOST_UNPRINTED:
            raise _Unfit
        lows, highs, exact = self._boxes()
        for rule in wanted.tolist():
            above = exact[:rule] & (group[:rule] >= 0)
            for low, high in zip(lows, highs, strict=True):
                above &= (low[:rule] <= low[rule]) & (high[:rule] >= high[rule])
            covers = np.flatnonzero(above)
            group[rule] = group[covers[0]] if len(covers) else len(self.trees)

    def _boxes(self) -> tuple[list[Words], list[Words], Bools]:
        """Least and greatest coordinate that each rule tests, by dimension; whether it tests no other."""
        low = self.low
        first = low.rule_start[self.offset : self.offset + self.count + 1].astype(np.int64)
        matches = low.rule_match[first[0] : first[-1]].astype(np.int64)
        rule = np.repeat(np.arange(self.count), np.diff(first))
        starts, tests = low.match_tests
        sizes = np.diff(starts)[matches]
        of_rule, test = np.repeat(rule, sizes), tests[_ranges(starts[matches], sizes)]
        ends, test_start, test_dim = low.test_sets
        exact = np.ones(self.count, np.bool_)
        exact[rule[low.match_inexact[matches]]] = False
        exact[of_rule[np.diff(test_start)[test] != 1]] = False
        lows, highs = [], []
        for dim in np.unique(test_dim[test]).tolist():
            here = test_dim[test] == dim
            least, most = np.zeros(self.count, np.uint32), np.full(self.count, NOTHING, np.uint32)
            np.maximum.at(least, of_rule[here], ends[2 * test_start[test[here]]])
            np.minimum.at(most, of_rule[here], ends[2 * test_start[test[here] + 1] - 1])
            lows.append(least)
            highs.append(most)
        return lows, highs, exact

    def _number(self, group: Ints) -> None:
        """Number the rules by group and place: *place* by number, *rank* by place."""
        self.groups = len(self.trees) + 1
        order = np.lexsort((np.arange(self.count), group))
        self.place = order[self.kept[order]]
        self.group_start = np.searchsorted(group[self.place], np.arange(self.groups + 1))
        self.numbered = np.full(self.count, -1)
        self.numbered[self.place] = np.arange(len(self.place))
        self.group = group

    def before(self, place: int, group: int) -> int:
        """How many rules of the group stand before the place."""
        first, last = self.group_start[group], self.group_start[group + 1]
        return int(np.searchsorted(self.place[first:last], place))

    # ---- chains ----

    def _chains(self, shown: Ints, group: Ints, dead: Bools) -> None:
        latest = self._latest(shown, group)
        bound: dict[int, int] = {}
        for rule, chain in self.asks.items():
            bound[chain] = min(rule, bound.get(chain, self.count))
        self.made_of: dict[int, _Chain] = {}
        todo = [self.second, *bound]
        while todo:
            chain = todo.pop()
            if chain in self.made_of:
                continue
            made = self.made_of[chain] = _Chain(self.calls(chain))
            for called in made.calls:
                bound[called] = min(bound.get(chain, self.count), bound.get(called, self.count))
            todo += made.calls
        for chain, made in self.made_of.items():
            of_groups = np.flatnonzero(latest[chain] >= 0)
            if not len(of_groups):
                raise _Unfit
            made.group = int(of_groups[0])
            first = int(self.group_start[made.group])
            size = int(self.numbered[latest[chain, made.group]]) + 1 - first
            # Rules that are shown nowhere, and stand behind the last that is.
            most = self.before(bound.get(chain, self.count), made.group)
            while size < most and dead[self.place[first + size]]:
                size += 1
            made.size = size
        for chain in self.made_of:
            self._own(chain, frozenset())

    def _latest(self, shown: Ints, group: Ints) -> Ints:
        """By chain and group: the place of the last rule shown by the chain or by those reached by -g."""
        latest = np.full((len(self.low.chain_start) - 1, self.groups), -1)
        rule = self.spelt_as[shown]
        np.maximum.at(latest, (self.chain[shown], group[rule]), rule)
        goes = self.op == lib.PROVE_GOTO
        source, to = self.chain[goes], self.number[goes]
        while True:
            more = latest.copy()
            np.maximum.at(more, source, latest[to])
            if np.array_equal(more, latest):
                return latest
            latest = more

    def _own(self, chain: int, within: frozenset[int]) -> _Chain:
        """Note what the chain has, with what it calls."""
        made = self.made_of.get(chain)
        if made is None or chain in within:
            raise _Unfit
        if made.own:
            return made
        own = {made.group: made.size}
        for called in made.calls:
            for group, size in self._own(called, within | {chain}).own.items():
                own[group] = max(size, own.get(group, 0))
        made.own = own
        made.last = max(int(self.place[self.group_start[group] + size - 1]) for group, size in own.items())
        return made

    # ---- the laws ----

    def _check(self) -> None:
        """All of the law but what order.c looks at; _Unfit when it does not hold."""
        for made in self.made_of.values():
            least = min(made.own)
            called: dict[int, int] = {}
            for each in made.calls:
                callee = self.made_of[each]
                self._were_called(range(least, min(callee.own)), called, callee.last)
                for group, size in callee.own.items():
                    called[group] = max(size, called.get(group, 0))
            last = int(self.place[self.group_start[made.group] + made.size - 1])
            self._were_called(range(least, made.group), called, last)
        for rule, chain in self.asks.items():
            asked = self.made_of[chain]
            if asked.last >= rule or min(asked.own) <= self.group[rule] or rule in self.listed:
                raise _Unfit
        for rule, listed in self.listed.items():
            if listed != sorted(set(listed)) or any(
                each >= rule or self.group[each] <= self.group[rule] or not self.kept[each] for each in listed
            ):
                raise _Unfit
        sizes = np.diff(self.group_start).tolist()
        if self.group_start[0] != 0 or sum(sizes) != np.count_nonzero(self.kept):
            raise _Unfit
        if self.made_of[self.second].own != dict(enumerate(sizes)):
            raise _Unfit

    def _were_called(self, groups: range, called: dict[int, int], last: int) -> None:
        """Of these groups, all that stands before *last* was called before."""
        for group in groups:
            if called.get(group, 0) < self.before(last, group):
                raise _Unfit

    # ---- words ----

    def _words(self) -> Regrouped:
        place = self.place.tolist()
        number = {chain: at for at, chain in enumerate(self.made_of)}
        lists = len(number)
        # Of each rule: the rule of the list whose matches it has, another one (or -1), what it does.
        one: list[int] = []
        two: list[int] = []
        actions: list[tuple[int, int, int]] = []
        form = [0]
        verdicts = self.verdict.tolist()
        asked = np.zeros((len(place), self.groups), np.uint32)
        owned = {
            chain: [made.own.get(group, 0) for group in range(self.groups)]
            for chain, made in self.made_of.items()
        }
        listed_start, listed = [0], []
        for at, rule in enumerate(place):
            chain = self.asks.get(rule)
            if chain is not None:
                one.append(rule)
                two.append(-1)
                actions.append((lib.PROVE_JUMP, number[chain], 0))
                asked[at] = owned[chain]
            for each in self.listed.get(rule, ()):
                one.append(rule)
                two.append(each)
                actions.append((lib.PROVE_VERDICT, verdicts[each], 0))
                listed.append(int(self.numbered[each]))
            listed_start.append(len(listed))
            one.append(rule)
            two.append(-1)
            actions.append((lib.PROVE_VERDICT, verdicts[rule], 0))
            form.append(len(one))
        starts, ends = [], []
        extra: list[tuple[int, int]] = []
        for made in self.made_of.values():
            first = int(self.group_start[made.group])
            segment = form[first], form[first + made.size]
            if not made.calls:
                starts.append(segment[0])
                ends.append(segment[1])
                continue
            starts.append(len(one))
            for op, arg in [
                *((lib.PROVE_JUMP, number[each]) for each in made.calls),
                (lib.PROVE_GOTO, lists + len(extra)),
            ]:
                one.append(-1)
                two.append(-1)
                actions.append((op, arg, 0))
            ends.append(len(one))
            extra.append(segment)
        starts += [segment[0] for segment in extra]
        ends += [segment[1] for segment in extra]
        order = {
            "group_start": self.group_start, "place": self.place, "form": np.array(form),
            "asked": asked.reshape(-1), "listed_start": np.array(listed_start),
            "listed": np.array(listed or [0]),
        }  # fmt: skip
        return Regrouped(
            number[self.second],
            self.second - self.low.chains_before + len(starts),
            len(starts),
            self._joined(np.array(one), np.array(two), np.array(actions, np.uint32), starts, ends),
            {name: words.astype(np.uint32) for name, words in order.items()},
            self.groups,
        )

    def _joined(
        self, one: Ints, two: Ints, actions: Words, starts: list[int], ends: list[int]
    ) -> dict[str, Words]:
        """The third program's rules and chains, and behind them the second's."""
        low = self.low
        pieces = np.stack((one, two), axis=1).reshape(-1)
        rule_start = low.rule_start.astype(np.int64)
        rules = np.maximum(pieces, 0) + self.offset
        sizes = np.where(pieces >= 0, rule_start[rules + 1] - rule_start[rules], 0)
        matches = low.rule_match[_ranges(rule_start[rules], sizes)]
        size = sizes.reshape(-1, 2).sum(axis=1)
        own_start = np.concatenate(([0], np.cumsum(size)))
        before, shift = len(starts), len(one) - self.split
        theirs = low.rule_action[self.split :].copy()
        enters = (theirs[:, 0] == lib.PROVE_JUMP) | (theirs[:, 0] == lib.PROVE_GOTO)
        theirs[enters, 1] += np.uint32((before - low.chains_before) % (1 << 32))
        chain_start = low.chain_start[low.chains_before :].astype(np.int64) + shift
        partner = np.full(before + len(chain_start) - 1, NOTHING, np.uint32)
        for at, chain in enumerate(self.made_of):
            if chain != self.second:
                twin = chain - low.chains_before + before
                partner[at], partner[twin] = twin, at
        words = {
            "rule_start": np.concatenate(
                (own_start[:-1], rule_start[self.split :] - rule_start[self.split] + own_start[-1])
            ),
            "rule_match": np.concatenate((matches, low.rule_match[rule_start[self.split] :])),
            "rule_action": np.concatenate((actions, theirs)),
            "chain_start": np.concatenate((np.array(starts), chain_start[:-1])),
            "chain_end": np.concatenate((np.array(ends), chain_start[1:])),
            "chain_writes": np.concatenate(
                (np.zeros(before, np.uint32), low.chain_writes[low.chains_before :])
            ),
            "chain_partner": partner,
        }
        return {name: array.astype(np.uint32) for name, array in words.items()}


def _ranges(starts: Any, sizes: Any) -> Ints:
    """starts[0], starts[0] + 1, ... sizes[0] of them, then those of starts[1], ..."""
    sizes = np.asarray(sizes, np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    shift: Ints = np.repeat(np.asarray(starts, np.int64) - (ends - sizes), sizes)
    return np.arange(total) + shift

"""The third program of group_lists.py: the first one, with lists of groups in place of the lists it checks.

Invariant: chains of the first program keep their numbers; new chains follow, then those of the second.  A
chain of a printed list has the list rules that it decides, in the order of their numbers (Groups), each
behind its form, and a `-j` for each call.  It is the partner of the chain of the second program that it is
to be compared with.

The versions of a group are thousands of prefixes of one list.  So a version is written as a call of the
*body* of a smaller one, the rules of its printed tree, and then the rules that the smaller one lacks: that
tree shares most chains with the tree of the larger version.  The body does what the list of the smaller
version does if the two were proved equal (Order.proved; reorder.c checks it).  Where the second program may
drop malformed packets, the smaller tree may drop packets that neither list drops, nor the tree of the larger
version; so each version has its *whole* list, too, which is compared where the one with a body differs.

Cost: linear in the rules of all three programs.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from hitables.core.prover import NONE, U32, ChainArrays, Order, ProveAction, ReadIn

from .group_frames import ChainPart, GroupForms, Groups, ListChain
from .group_reader import Ints, ListRules, NotGrouped, PrintedChains, Tables, ranges

# A version of fewer rules is compared as a list.
SMALLEST_VERSION = 16
# Verdicts that no rule has, of packets that rules which cover a dead one decide; that it decides; of others.
COVERED, MET, MISSED = NONE - 3, NONE - 4, NONE - 5


@dataclass(frozen=True)
class PrintedList:
    """A chain of the first program, and how the second prints it.

    dead  by list rule that is left out: the rules that cover it (dead_rules.py)
    """

    chain: int
    rules: ListRules
    output: PrintedChains
    groups: Groups
    forms: GroupForms
    dead: dict[int, list[int]]

    @property
    def chains(self) -> dict[int, ListChain]:
        """All its chains: those that forms call, then those that packets enter once."""
        return self.forms.chains | self.groups.chains


@dataclass
class _Lines:
    """Rules of the third program: the matches of each, as two spans of the encoding's, and its action.

    sources  the rule of the list that each is, with its memory; NONE: it is in a form or in a check
    """

    offset: int
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    actions: list[tuple[int, int, int]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)

    @property
    def next(self) -> int:
        """The number of the rule that is added next."""
        return self.offset + len(self.spans)

    def add(self, span: tuple[int, int, int, int], action: tuple[int, int, int], source: int = NONE) -> None:
        self.spans.append(span)
        self.actions.append(action)
        self.sources.append(source)

    def enter(self, action: ProveAction, chain: int) -> None:
        """A rule that sends every packet to the chain."""
        self.add((0, 0, 0, 0), (action, chain, 0))


@dataclass
class _Chains:
    """New chains: by number from *first* on, their rules, what they write, and their partners, if any.

    A chain of the first program that is replaced has an entry in *replaced*; a chain of the second program
    whose rules a new chain has, too, one in *bodies*; one that is written with a body, the chain with its
    whole list in *whole*.  Chains that follow those of the second program, and count as some of it, have the
    rules of *appended*.
    """

    first: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    partners: list[int] = field(default_factory=list)
    replaced: dict[int, tuple[int, int]] = field(default_factory=dict)
    appended: list[tuple[int, int]] = field(default_factory=list)
    bodies: dict[int, int] = field(default_factory=dict)
    whole: dict[int, int] = field(default_factory=dict)

    def body(self, of: int, writes: int) -> int:
        """The number of a new chain with the rules of chain *of* of the second program."""
        if of not in self.bodies:
            self.bodies[of] = self.add(NONE, writes)
        return self.bodies[of]

    def add(self, partner: int, writes: int) -> int:
        """The number of a new chain, whose rules are not known yet."""
        self.spans.append((0, 0))
        self.writes.append(writes)
        self.partners.append(partner)
        return self.first + len(self.spans) - 1

    def set(self, chain: int, span: tuple[int, int]) -> None:
        if chain < self.first:
            self.replaced[chain] = span
        else:
            self.spans[chain - self.first] = span


@dataclass(frozen=True)
class Checks:
    """What must hold for a list, besides that its chains are equal to those that are printed.

    order  that its rules may be read in this order
    dead   pairs of chains, one for each rule that is left out, that must be equal
    """

    order: Order
    dead: list[tuple[int, int]]


def third_program(tables: Tables, lists: list[PrintedList]) -> tuple[ChainArrays, list[Checks], U32]:
    """The third and the second program as input of the prover; by list, what else must hold; the sources.

    The sources: by rule of the third and the second program, the rule of the encoding that it is, or NONE.
    """
    first = tables.encoding.chains_before
    lines = _Lines(int(tables.chain_start[first]))
    chains = _Chains(first)
    orders = [_ListWriter(each, lines, chains).write() for each in lists]
    dead = [_write_dead(each, lines, chains) for each in lists]
    arrays = _joined(tables, lines, chains)
    appended = len(arrays.chain_start) - len(chains.appended)
    checks = [
        Checks(order, [(a, appended + b) for a, b in pairs])
        for order, pairs in zip(orders, dead, strict=True)
    ]
    kept = np.arange(len(tables.action), dtype=np.uint32)
    sources = np.insert(kept, lines.offset, np.array(lines.sources, np.uint32))
    return arrays, checks, sources


def _write_dead(printed: PrintedList, lines: _Lines, chains: _Chains) -> list[tuple[int, int]]:
    """Write the chains that are equal if the rules that are left out are dead (dead_rules.py).

    For each such rule: the chain with it, and which of the appended chains is the one without it.
    """
    rule_start, offset = printed.rules.tables.rule_start, printed.rules.offset
    encoding = printed.rules.tables.encoding
    pairs = []
    for rule, covering in printed.dead.items():
        first, end = int(rule_start[offset + rule]), int(rule_start[offset + rule + 1])
        # A rule that asks a memory acts as soon as it asks.
        asks = np.flatnonzero(encoding.matches.asks[encoding.rule_match[first:end]])
        own = first, first + int(asks[0]) if len(asks) else end
        start = lines.next
        for each in covering:
            span = int(rule_start[offset + each]), int(rule_start[offset + each + 1])
            lines.add((*span, *own), (ProveAction.VERDICT, COVERED, 0))
        lines.add((*own, 0, 0), (ProveAction.VERDICT, MET, 0))
        with_rule = chains.add(NONE, 0)
        chains.set(with_rule, (start, lines.next))
        chains.appended.append((start, lines.next - 1))
        pairs.append((with_rule, len(chains.appended) - 1))
    return pairs


class _ListWriter:
    """Adds one printed list to the lines and chains."""

    def __init__(self, printed: PrintedList, lines: _Lines, chains: _Chains) -> None:
        self.printed, self.lines, self.chains = printed, lines, chains
        self.rules, self.groups = printed.rules, printed.groups
        tables = self.rules.tables
        numbers = np.arange(self.rules.count) + self.rules.offset
        self.starts = tables.rule_start[numbers].tolist()
        self.ends = tables.rule_start[numbers + 1].tolist()
        self.actions: list[list[int]] = tables.action[numbers].tolist()
        self.writes = _writes_of_groups(self.rules, self.groups)
        self.number: dict[int, int] = {}
        # By group: where its lines start, and where those of each of its rules end.
        self.group_first: list[int] = []
        self.own: list[int] = []
        self.form: list[int] = []

    def write(self) -> Order:
        printed = self.printed
        for chain, parts in printed.chains.items():
            partner = int(printed.output.chains[chain])
            is_root = chain == printed.output.root
            self.number[chain] = (
                printed.chain if is_root else self.chains.add(partner, self.written_by(parts.parts))
            )
        goes_on = self.goes_on()
        for group in range(self.groups.count):
            self.write_group(group)
            if group in goes_on:
                self.lines.enter(ProveAction.GOTO, goes_on[group])
        smaller = self.smaller_versions()
        for chain, parts in printed.chains.items():
            if chain in smaller:
                self.write_version(chain, parts.parts, smaller[chain])
            else:
                self.write_parts(self.number[chain], parts.parts)
        return self.order([self.number[each] for each in set(smaller.values())])

    def written_by(self, parts: tuple[ChainPart, ...]) -> int:
        """Mask of the states that the parts may write; forms search rules of later groups."""
        least = self.groups.count
        for part in parts:
            if part.called < 0:
                least = min(least, part.group)
            else:
                least = min(least, *self.printed.chains[part.called].owned)
        return int(np.bitwise_or.reduce(self.writes[least:], initial=0))

    # ---- segments ----

    def goes_on(self) -> dict[int, int]:
        """By group that is read in line in front of other parts: the chain of these parts."""
        self.behind: dict[int, tuple[int, tuple[ChainPart, ...]]] = {}
        goes_on = {}
        for chain in self.printed.chains.values():
            for at, part in enumerate(chain.parts[:-1]):
                if part.called >= 0:
                    continue
                if part.group in goes_on or part.size != self.groups.sizes[part.group]:
                    raise NotGrouped("a segment of a group is read in front of other rules twice")
                rest = chain.parts[at + 1 :]
                stage = rest[0].stage
                partner = NONE if stage < 0 else int(self.printed.output.chains[stage])
                goes_on[part.group] = self.chains.add(partner, self.written_by(rest))
                self.behind[part.group] = goes_on[part.group], rest
        return goes_on

    def write_group(self, group: int) -> None:
        """The lines of a group: each rule behind its form."""
        first, end = (int(each) for each in self.groups.group_start[group : group + 2])
        self.group_first.append(self.lines.next)
        forms = self.printed.forms
        for rule in self.groups.position[first:end].tolist():
            self.form.append(self.lines.next)
            call = forms.call_before.get(rule)
            if call is not None:
                start = self.starts[rule]
                self.lines.add(
                    (start, start + call.matches, 0, 0), (ProveAction.JUMP, self.number[call.chain], 0)
                )
            for each in forms.listed_before.get(rule, ()):
                span = self.starts[rule], self.ends[rule], self.starts[each], self.ends[each]
                self.lines.add(span, self.action(each))
            self.own.append(self.lines.next)
            span = self.starts[rule], self.ends[rule], 0, 0
            self.lines.add(span, self.action(rule), self.rules.offset + rule)

    def action(self, rule: int) -> tuple[int, int, int]:
        kind, number, writes = self.actions[rule]
        return kind, number, writes

    # ---- versions ----

    def smaller_versions(self) -> dict[int, int]:
        """By chain that forms alone call: the largest version of fewer rules of its last group."""
        alone = {
            chain: parts.parts
            for chain, parts in self.printed.forms.chains.items()
            if chain not in self.groups.chains
        }
        by_group: dict[int, list[tuple[int, int]]] = {}
        for chain, parts in alone.items():
            if len(parts) == 1 and parts[0].size >= SMALLEST_VERSION and self.writes_no_more(chain, parts):
                by_group.setdefault(parts[0].group, []).append((parts[0].size, chain))
        for versions in by_group.values():
            versions.sort()
        smaller = {}
        for chain, parts in alone.items():
            versions = by_group.get(parts[-1].group, [])
            at = bisect_left(versions, (parts[-1].size, -1))
            if at:
                smaller[chain] = versions[at - 1][1]
        return smaller

    def writes_no_more(self, chain: int, parts: tuple[ChainPart, ...]) -> bool:
        """Whether the printed chain writes no more than its list."""
        writes = int(self.rules.tables.encoding.chain_writes[self.printed.output.chains[chain]])
        return not writes & ~self.written_by(parts)

    def write_version(self, chain: int, parts: tuple[ChainPart, ...], smaller: int) -> None:
        """Set the lines of a version: its calls, the body of the smaller version, the rules that follow."""
        *calls, own = parts
        first = self.printed.forms.chains[smaller].parts[0].size
        start = self.lines.next
        for each in calls:
            self.lines.enter(ProveAction.JUMP, self.number[each.called])
        writes = self.written_by((own,))
        body = self.chains.body(int(self.printed.output.chains[smaller]), writes)
        self.lines.enter(ProveAction.JUMP, body)
        behind = self.chains.add(NONE, writes)
        self.lines.enter(ProveAction.GOTO, behind)
        self.chains.set(self.number[chain], (start, self.lines.next))
        number = int(self.groups.group_start[own.group]) + first
        self.chains.set(behind, (self.form[number], self.own_end(own)))
        whole = self.chains.add(NONE, self.written_by(parts))
        self.write_parts(whole, parts)
        self.chains.whole[self.number[chain]] = whole

    # ---- chains ----

    def write_parts(self, chain: int, parts: tuple[ChainPart, ...]) -> None:
        """Set the lines of *chain*: calls are written, segments are there already."""
        calls = [part.called for part in parts]
        count = next((at for at, called in enumerate(calls) if called < 0), len(parts))
        if not count:
            self.chains.set(chain, self.segment(parts))
            return
        rest = parts[count:]
        behind = self.chains.add(NONE, self.written_by(rest)) if rest else -1
        start = self.lines.next
        for called in calls[:count]:
            self.lines.enter(ProveAction.JUMP, self.number[called])
        if rest:
            self.lines.enter(ProveAction.GOTO, behind)
        self.chains.set(chain, (start, self.lines.next))
        if rest:
            self.chains.set(behind, self.segment(rest))

    def segment(self, parts: tuple[ChainPart, ...]) -> tuple[int, int]:
        """The lines of the first part, which is in line, and of the `-g` to the parts behind it."""
        part = parts[0]
        start = self.group_first[part.group]
        if len(parts) > 1:
            chain, rest = self.behind.pop(part.group)
            self.write_parts(chain, rest)
            return start, self.own_end(part) + 1
        return start, self.own_end(part)

    def own_end(self, part: ChainPart) -> int:
        if not part.size:
            return self.group_first[part.group]
        return self.own[int(self.groups.group_start[part.group]) + part.size - 1] + 1

    # ---- the order ----

    def order(self, proved: list[int]) -> Order:
        """The order of the rules in the lists, for reorder.c."""
        groups, forms = self.groups, self.printed.forms
        asked = np.zeros((len(groups.position), groups.count), np.uint32)
        listed_start, listed = [0], []
        for number, rule in enumerate(groups.position.tolist()):
            call = forms.call_before.get(rule)
            if call is not None:
                for group, size in forms.chains[call.chain].owned.items():
                    asked[number, group] = size
            listed += [int(groups.number_of[each]) for each in forms.listed_before.get(rule, ())]
            listed_start.append(len(listed))
        return Order(
            group_start=_u32(groups.group_start),
            place=_u32(groups.position),
            own=_u32(np.array(self.own)),
            form=_u32(np.array(self.form)),
            read_in=self.read_in(),
            proved=_u32(np.array(proved, np.int64)),
            asked=asked.reshape(-1),
            listed_start=_u32(np.array(listed_start)),
            listed=_u32(np.array(listed or [0])),
        )

    def read_in(self) -> U32:
        """By number: where the rule is read (ReadIn)."""
        groups = self.groups
        where = np.full(len(groups.position), ReadIn.ONCE, np.uint32)
        for group, called in enumerate(groups.is_called):
            if called:
                where[groups.group_start[group] : groups.group_start[group + 1]] = ReadIn.CALLED
        for chain in self.printed.forms.chains.values():
            for group, size in chain.owned.items():
                first = groups.group_start[group]
                where[first : first + size] = ReadIn.SEARCHED
        return where


def _writes_of_groups(rules: ListRules, groups: Groups) -> Ints:
    """By group: mask of the states that its rules, and the chains that they enter, may write."""
    tables = rules.tables
    encoding = tables.encoding
    numbers = groups.position + rules.offset
    kind, number, own = tables.action[numbers].T
    enters = (kind == ProveAction.JUMP) | (kind == ProveAction.GOTO)
    writes = np.where(enters, encoding.chain_writes[np.where(enters, number, 0)], own).astype(np.int64)
    sizes = tables.rule_start[numbers + 1] - tables.rule_start[numbers]
    used = encoding.rule_match[ranges(tables.rule_start[numbers], sizes)]
    np.bitwise_or.at(writes, np.repeat(np.arange(len(numbers)), sizes), encoding.matches.writes[used])
    by_group = np.split(writes, groups.group_start[1:-1])
    return np.array([np.bitwise_or.reduce(each, initial=0) for each in by_group], np.int64)


def _joined(tables: Tables, lines: _Lines, chains: _Chains) -> ChainArrays:
    """The rules and chains of the third program, then those of the second."""
    encoding, first = tables.encoding, tables.encoding.chains_before
    split, added, shift = lines.offset, len(chains.spans), len(lines.spans)
    rule_start = tables.rule_start
    spans = np.array(lines.spans or np.zeros((0, 4)), np.int64).reshape(-1, 2)
    sizes = spans[:, 1] - spans[:, 0]
    of_lines = encoding.rule_match[ranges(spans[:, 0], sizes)]
    ends_of_lines = rule_start[split] + np.cumsum(sizes.reshape(-1, 2).sum(axis=1))
    actions = encoding.rule_action[split:].copy()
    enters = (actions[:, 0] == ProveAction.JUMP) | (actions[:, 0] == ProveAction.GOTO)
    actions[enters, 1] += np.uint32(added)
    start, end = tables.chain_start[:-1].copy(), tables.chain_start[1:].copy()
    start[first:] += shift
    end[first:] += shift
    for chain, span in chains.replaced.items():
        start[chain], end[chain] = span
    own = np.array(chains.spans or np.zeros((0, 2)), np.int64)
    for of, body in chains.bodies.items():
        own[body - first] = start[of], end[of]
    appended = np.array(chains.appended or np.zeros((0, 2)), np.int64)
    of_names = encoding.partners().astype(np.int64)
    of_names[(of_names != NONE) & (of_names >= first)] += added
    partner = np.concatenate((of_names[:first], np.array(chains.partners, np.int64), of_names[first:]))
    for at, second in enumerate(chains.partners):
        if second != NONE:
            partner[first + at] = second + added
            partner[second + added] = first + at
    whole = np.full(len(start) + added + len(appended), NONE, np.int64)
    whole[list(chains.whole)] = list(chains.whole.values())
    return ChainArrays(
        rule_start=_u32(
            np.concatenate((rule_start[: split + 1], ends_of_lines, rule_start[split + 1 :] + len(of_lines)))
        ),
        rule_match=np.concatenate(
            (encoding.rule_match[: rule_start[split]], of_lines, encoding.rule_match[rule_start[split] :])
        ),
        rule_action=np.concatenate(
            (encoding.rule_action[:split], np.array(lines.actions or np.zeros((0, 3)), np.uint32), actions)
        ),
        chain_start=_u32(np.concatenate((start[:first], own[:, 0], start[first:], appended[:, 0]))),
        chain_end=_u32(np.concatenate((end[:first], own[:, 1], end[first:], appended[:, 1]))),
        chain_writes=np.concatenate(
            (
                encoding.chain_writes[:first],
                np.array(chains.writes, np.uint32),
                encoding.chain_writes[first:],
                np.zeros(len(appended), np.uint32),
            )
        ),
        chain_partner=_u32(np.concatenate((partner, np.full(len(appended), NONE)))),
        chain_whole=_u32(whole),
        chains_before=first + added,
    )


def _u32(values: Ints) -> U32:
    return values.astype(np.uint32)

"""A proof of the law by parts: entries by the packets that read them, the trees as a whole without them.

A tree is proved by its groups only as it was grown (hitables/verify/group_lists.py); entries in front of it
and in its leaves hide the groups, and cutting the header space takes minutes then.  So it is shown for each
built-in chain with entries that

1. each entry has an effect only on packets of a region; the regions together are U;
2. for packets of each region the loaded chain has the effect of the listed chain (local_proof.py);
3. the listed chain, without some rules that have an effect in U only and with others of this kind, has the
   effect of the loaded chain without its entries.  This is a proof of two whole rule sets.

For a packet in U the law is 2.  On another one no entry has an effect, nor has a rule that was left out or
added, so the law is 3.  This needs that a packet is in U or not for its whole walk, so nothing may write
what rules test; and that no other chain enters the chain with entries, so it is built in.  User chains are
compared by themselves in 3, each for all packets, because 2 takes them for equal.

The rules left out are those that entries insert, and the rules added those that entries hide; which ones,
and where, is guessed from the trees.  A wrong guess makes the proof fail, never succeed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from hitables.ir.foreign import hide
from hitables.ir.program import Program, Table
from hitables.ir.rule import Rule
from hitables.verify import exact
from hitables.verify.deadline import Deadline
from hitables.verify.question import Answer, Difference, Equal

from .cache import Cache
from .chain_names import GeneratedNames
from .edits import jumps_to
from .front_tree import below_call, is_call
from .layout import ChainId, fixed_chains, section_lists
from .local_proof import is_equal_in, is_loaded_as_listed, is_within, section_indexes, writes_nothing
from .region import Region
from .rule_rows import spelling
from .state import State

# Seconds of processor time of the proof of the whole; by its groups it takes some.
MOST_SECONDS = 10.0

NO_LIMIT = Deadline()

# Lists that are tried for one state.
MOST_GUESSES = 8

Spelling = tuple[str, ...]


def holds_by_parts(state: State, deadline: Deadline = NO_LIMIT) -> bool:
    """Whether the law is shown by parts until *deadline*; False if it is not, and nothing is known then."""
    sections_with_entries = {(table, each.section) for (table, _), each in state.entry_chains.items()}
    state = _with_rule_indexes(state)
    parts: list[_Part] = []
    for chain_id, layout in state.layouts.items():
        table, chain = chain_id
        if not any((table, section.name) in sections_with_entries for section in layout.sections):
            continue
        if state.master.table(table)[chain].policy is None or not writes_nothing(state, chain_id):
            return False
        parts.append(_Part.of(state, chain_id))
    if not parts or not _others_are_loaded_as_listed(state):
        return False
    if not all(part.is_apart() for part in parts) or not _trees_hold(state, parts, deadline):
        return False
    return all(
        not deadline.is_over() and is_equal_in(state, part.chain_id, region)
        for part in parts
        for region in part.regions
    )


def _with_rule_indexes(state: State) -> State:
    """*state* with the lists of its trees indexed, so that a proof for one region does not index them anew.

    Nothing that plans have derived is trusted.
    """
    state = replace(state, cache=Cache())
    for chain_id, layout in state.layouts.items():
        for section, index in zip(layout.sections, section_indexes(state, chain_id), strict=True):
            state.cache.rule_indexes[chain_id[0], section.name] = index
    return state


def _trees_hold(state: State, parts: Sequence[_Part], deadline: Deadline) -> bool:
    """Whether the loaded chains without entries have the effect of some lists that differ from the master
    list in the regions only."""
    lists = {part.chain_id: part.list_of_trees() for part in parts}
    loaded = state.loaded
    for part in parts:
        loaded = _with_table(loaded, part.without_entries(loaded.table(part.chain_id[0])))
    chains = {chain.name for table in state.master for chain in table.chains if chain.policy is not None}
    chains |= {chain for _, chain in state.layouts}
    foreign = state.settings.foreign
    for _ in range(MOST_GUESSES):
        left = deadline.left()[0] or None
        question = replace(state.question(frozenset(chains), left), processor=MOST_SECONDS)
        listed = state.master
        for chain_id, rules in lists.items():
            listed = _with_chain(listed, chain_id, rules)
        answer = exact.check(hide(listed, foreign), hide(loaded, foreign), question)
        if isinstance(answer, Equal):
            return True
        # An entry has inserted a rule that the tree holds elsewhere too: the list is tried without it.
        wrong = _last_rule(answer)
        holder = next((each for each in parts if any(rule is wrong for rule in lists[each.chain_id])), None)
        if wrong is None or holder is None or not holder.is_inside(wrong):
            return False
        lists[holder.chain_id] = tuple(rule for rule in lists[holder.chain_id] if rule is not wrong)
    return False


def _last_rule(answer: Answer) -> Rule | None:
    """The rule of the list that decides about the packet of a difference."""
    if not isinstance(answer, Difference) or answer.before is None or not answer.before.steps:
        return None
    return answer.before.steps[-1].rule


def _others_are_loaded_as_listed(state: State) -> bool:
    """Whether the chains without trees are loaded as they are listed."""
    return all(
        is_loaded_as_listed(state, (table.name, chain.name))
        for table in state.master
        for chain in table.chains
        if (table.name, chain.name) not in state.layouts and not state.settings.is_foreign(chain.name)
    )


@dataclass(frozen=True)
class _Part:
    """One built-in chain with entries.

    entry_rows  by loaded chain: the rows of entries, the calls of trees of entries among them
    called      the chains of trees of entries
    regions     of the entries, one of each
    """

    state: State
    chain_id: ChainId
    entry_rows: dict[str, frozenset[int]]
    called: frozenset[str]
    regions: tuple[Region, ...]

    @classmethod
    def of(cls, state: State, chain_id: ChainId) -> _Part:
        table = chain_id[0]
        loaded = state.loaded.table(table)
        sections = {section.name for section in state.layouts[chain_id].sections}
        entry_rows: dict[str, frozenset[int]] = {}
        called: set[str] = set()
        rules: list[Rule] = []
        for (where, chain), each in state.entry_chains.items():
            if where != table or each.section not in sections:
                continue
            entry_rows[chain] = frozenset(entry.row for entry in each.entries)
            for entry in each.entries:
                rule = loaded[chain].rules[entry.row]
                if is_call(rule, entry):
                    called.update(below_call(state, table, jumps_to(rule)))
                else:
                    rules.append(rule)
        rules += [rule for chain in called for rule in loaded[chain].rules if jumps_to(rule) not in called]
        around = [Region.around(rule, state.master.family, state.backends) for rule in rules]
        distinct = {region.matches: region for region in around}
        return cls(state, chain_id, entry_rows, frozenset(called), tuple(distinct.values()))

    @property
    def loaded(self) -> Table:
        return self.state.loaded.table(self.chain_id[0])

    def is_apart(self) -> bool:
        """Whether the entries have an effect on packets of the regions only: each is in one of them, but for
        calls of trees of entries, and in these all rules but the jumps of the tree."""
        return all(
            self.is_inside(rule) or jumps_to(rule) in self.called
            for chain, rows in self.entry_rows.items()
            for rule in (self.loaded[chain].rules[row] for row in rows)
        ) and all(
            jumps_to(rule) in self.called or self.is_inside(rule)
            for chain in self.called
            for rule in self.loaded[chain].rules
        )

    def is_inside(self, rule: Rule) -> bool:
        """Whether *rule* has an effect on packets of the regions only."""
        return not rule.has_memory and any(is_within(rule, region) for region in self.regions)

    def without_entries(self, table: Table) -> Table:
        """*table* without the entries of this chain."""
        chains = table.by_name()
        for name, rows in self.entry_rows.items():
            rules = tuple(rule for row, rule in enumerate(table[name].rules) if row not in rows)
            chains[name] = chains[name].with_rules(rules)
        return table.of(chains)

    def list_of_trees(self) -> tuple[Rule, ...]:
        """The list that the trees seem to be grown for: it differs from the list by rules that have an effect
        in the regions only."""
        table, chain = self.chain_id
        listed = self.state.master.table(table)[chain]
        lists = section_lists(listed, self.state.layouts[self.chain_id])
        keys = [
            spelling(rule)
            for rules, section in zip(lists, self.state.layouts[self.chain_id].sections, strict=True)
            for rule in rules[: section.size]
        ]
        place = {key: at for at, key in enumerate(keys)}
        runs = list(self.runs_of_trees())
        grown = {spelling(rule): rule for run in runs for rule in run}
        missing = {key: rule for key, rule in grown.items() if key not in place and self.is_inside(rule)}
        rules: list[Rule] = []
        following = _places(missing, place, runs)
        for at in range(-1, len(keys)):
            if at >= 0 and (keys[at] in grown or not self.is_inside(listed.rules[at])):
                rules.append(listed.rules[at])
            rules += [missing[key] for key in following.get(at, ())]
        return tuple(rules)

    def runs_of_trees(self) -> Iterator[list[Rule]]:
        """The rules of each chain of the trees, without entries and the jumps of the tree."""
        names = GeneratedNames(self.state.settings.prefix)
        fixed = fixed_chains(
            layout for (table, _), layout in self.state.layouts.items() if table == self.chain_id[0]
        )
        pending = [section.name for section in self.state.layouts[self.chain_id].sections]
        seen = set(pending)
        for name in pending:  # which grows
            rows, run = self.entry_rows.get(name, frozenset()), []
            for row, rule in enumerate(self.loaded[name].rules):
                callee = jumps_to(rule)
                if row in rows or callee in fixed:
                    continue
                if not names.is_generated(callee):
                    run.append(rule)
                elif callee not in seen:
                    seen.add(callee)
                    pending.append(callee)
            yield run


def _places(
    missing: dict[Spelling, Rule], place: dict[Spelling, int], runs: Sequence[Sequence[Rule]]
) -> dict[int, list[Spelling]]:
    """Behind which index of the list each rule of *missing* belongs, as early as the *runs* allow; by index,
    in order."""
    earliest = dict.fromkeys(missing, -1)
    before: dict[Spelling, set[Spelling]] = {key: set() for key in missing}
    for run in runs:
        last, above = -1, set[Spelling]()
        for key in map(spelling, run):
            if key in missing:
                earliest[key] = max(earliest[key], last)
                before[key] |= above - {key}
                above.add(key)
            else:
                last = max(last, place.get(key, -1))
    following: dict[int, list[Spelling]] = {}
    try:
        ordered = list(TopologicalSorter(before).static_order())
    except CycleError:  # no order is right, which the proof will show
        ordered = list(missing)
    for key in ordered:
        earliest[key] = max([earliest[key], *(earliest[each] for each in before[key])])
        following.setdefault(earliest[key], []).append(key)
    return following


def _with_chain(program: Program, chain_id: ChainId, rules: tuple[Rule, ...]) -> Program:
    table = program.table(chain_id[0])
    chains = table.by_name()
    chains[chain_id[1]] = chains[chain_id[1]].with_rules(rules)
    return _with_table(program, table.of(chains))


def _with_table(program: Program, table: Table) -> Program:
    return replace(program, tables=tuple(table if each.name == table.name else each for each in program))

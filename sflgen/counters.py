"""Counters carried over: what copies of a rule have counted goes on in the copies that take their place.

A rule of the list may stand in several leaves and overlays; its count is the sum over them.  When a
patch takes copies away, what they counted is read from the kernel just before, and set in a copy that
the patch puts up (`iptables-restore -c`), or in one that stays.  Packets that come between the
reading and the loading are not counted in copies that go; all others are.

Invariant: over the rules of one chain of the list that say the same, the counts that were read are
the counts that are set, unless none of these rules is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hitables.ir.program import Program, Table
from hitables.ir.rule import Rule

from .edits import Edit, Key, Op, line, rule_key
from .layout import Names, Place, Served, Strategy, owned
from .planner import Plan
from .state import State

Count = tuple[int, int]  # packets, bytes


@dataclass(slots=True)
class _Copy:
    """A rule that stands in a chain; *edit*: the one that put it there, if any did."""

    rule: Rule
    count: Count
    edit: int | None = None


def takes_away(plan: Plan) -> bool:
    """Whether *plan* takes copies away that may have counted for rules that stay: a tree's, an overlay's."""
    if not plan.updates and not plan.chosen:
        return False  # of chains to which nothing leads
    if any(strategy is Strategy.FOLD for _, _, strategy in plan.chosen):
        return bool(plan.edits)
    return any(
        edit.op is Op.FLUSH and _has(plan.before.loaded, edit.table, edit.chain) for edit in plan.edits
    )


def counting(plan: Plan) -> set[Place]:
    """The chains whose counts `counted_text` asks for."""
    found = {(edit.table, edit.chain) for edit in plan.edits}
    if any(strategy is Strategy.FOLD for _, _, strategy in plan.chosen):
        for table in {edit.table for edit in plan.edits}:
            for state in (plan.before, plan.after):
                found |= {(table, chain) for chain in _owners(state, table)}
    return {(table, chain) for table, chain in found if _has(plan.before.loaded, table, chain)}


def _has(program: Program, table: str, chain: str) -> bool:
    return any(each.name == table and chain in each for each in program)


def counted_text(plan: Plan, held: Program) -> str:
    """The patch of *plan* with the counts that *held*, read from the kernel, has for what goes.

    A chain that *held* does not have, or has otherwise, counts for nothing.
    """
    if not held.tables:
        return plan.text
    counts: dict[int, Count] = {}
    more: dict[str, list[str]] = defaultdict(list)
    tables = dict.fromkeys(edit.table for edit in plan.edits)
    for table in tables:
        if _has_table(plan.before.loaded, table):
            _Carrying(plan, table, held).run(counts, more[table])
    lines: dict[str, list[str]] = {table: [] for table in tables}
    for number, edit in enumerate(plan.edits):
        count = counts.get(number)
        lines[edit.table].append((f"[{count[0]}:{count[1]}] " if count else "") + line(edit))
    return "".join(
        f"*{table}\n" + "\n".join([*lines[table], *more[table]]) + "\nCOMMIT\n" for table in tables
    )


def _has_table(program: Program, name: str) -> bool:
    return any(table.name == name for table in program)


class _Carrying:
    """The edits of one table, done once more to lists of rules with their counts.

    A tree that the plan leaves standing aside is gone, as one that it takes away.
    """

    def __init__(self, plan: Plan, table: str, held: Program) -> None:
        self.plan, self.table = plan, table
        self.names = Names(plan.before.settings.prefix, ())
        self.chains: dict[str, list[_Copy]] = {}
        self.pool: dict[tuple[str, Key], Count] = {}
        before = plan.before.loaded.table(table)
        counts = held.table(table) if _has_table(held, table) else None
        concerned = {chain for where, chain in counting(plan) if where == table}
        for chain in before.chains:
            if chain.name in concerned:
                there = counts[chain.name].rules if counts is not None and chain.name in counts else ()
                known = len(there) == len(chain.rules)
                self.chains[chain.name] = [
                    _Copy(rule, (there[at].counters if known else None) or (0, 0))
                    for at, rule in enumerate(chain.rules)
                ]
        after = _owners(plan.after, table)
        self.left = _owners(plan.before, table).keys() - after.keys()  # no packet comes there any more
        self.owners = _owners(plan.before, table) | after

    def run(self, counts: dict[int, Count], more: list[str]) -> None:
        """What each edit's rule is to have counted; and lines that add to copies that stay."""
        for number, edit in enumerate(self.plan.edits):
            if edit.table == self.table:
                self.apply(number, edit)
        for name in self.left & self.chains.keys():
            for copy in self.chains.pop(name):
                self.gone(name, copy)
        for _, copy, name in self.standing():
            key = self.owners.get(name, name), rule_key(copy.rule)
            if copy.edit is not None and key in self.pool:
                counts[copy.edit] = self.pool.pop(key)
        if not self.pool:
            return
        after = self.plan.after.loaded.table(self.table)
        for place, copy, name in self.standing():
            key = self.owners.get(name, name), rule_key(copy.rule)
            if key in self.pool:
                packets, size = self.pool.pop(key)
                edit = Edit(Op.REPLACE, self.table, name, place, after[name].rules[place])
                more.append(f"[{packets + copy.count[0]}:{size + copy.count[1]}] {line(edit)}")

    def apply(self, number: int, edit: Edit) -> None:
        listed = self.chains.setdefault(edit.chain, [])
        if edit.op is Op.FLUSH:
            for copy in listed:
                self.gone(edit.chain, copy)
            listed.clear()
        elif edit.op in (Op.DELETE, Op.REPLACE):
            self.gone(edit.chain, listed.pop(edit.at))
        if edit.rule is not None:
            at = len(listed) if edit.op is Op.APPEND else edit.at
            listed.insert(at, _Copy(edit.rule, (0, 0), number))

    def gone(self, chain: str, copy: _Copy) -> None:
        target = copy.rule.target
        if copy.count == (0, 0) or (target is not None and self.names.is_made(target.name)):
            return
        key = self.owners.get(chain, chain), rule_key(copy.rule)
        packets, size = self.pool.get(key, (0, 0))
        self.pool[key] = packets + copy.count[0], size + copy.count[1]

    def standing(self) -> Iterator[tuple[int, _Copy, str]]:
        """What stands in the edited chains after all edits."""
        for name, listed in self.chains.items():
            for place, copy in enumerate(listed):
                yield place, copy, name


def _owners(state: State, table: str) -> dict[str, str]:
    """Of each generated chain: the chain of the list that it is for."""
    if not _has_table(state.loaded, table):
        return {}
    held: Table = state.loaded.table(table)
    names = Names(state.settings.prefix, ())
    served: Mapping[Place, Served] = state.served
    found: dict[str, str] = {}
    for (where, chain), how in served.items():
        if where == table:
            found.update(dict.fromkeys(owned(held, how, names) | how.names(), chain))
    return found

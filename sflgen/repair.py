"""Changes that other programs made to the rules in the kernel: taken into the rule list, or taken back.

Taken back: the kernel gets the loaded rule set of the state again.  Taken: the same change is made in the
rule list, and the kernel gets the rule set that is compiled for the new list.  A chain that is loaded as it
is in the list has its rules at the same places, so its changes are taken as they are.  A chain with a tree
has generated rules, in which a change means:

    a rule in front of all others        a rule at the beginning of the list
    a rule behind all others             a rule at its end; no packet had reached it behind the tree
    a rule deleted, of which the list has one   that rule deleted, with all its copies
    all rules deleted                    all rules of the list deleted
    no rule left that enters the tree    the rules that the chain has now, in place of those of the list
    the chain removed                    the chain removed

Any other change of generated rules has no counterpart in the list: Untakeable, which names it.

Jumps to foreign chains come and go as other programs start and stop; `check` takes these without being asked.

Invariant: the kernel changes in one commit for each table, from what it holds to the rules of the new state.
If it refuses a table, the tables before it get back what they held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from hitables.errors import LiveError
from hitables.ir.program import Program
from hitables.ir.rule import Rule

from .chain_names import GeneratedNames
from .commit import load_all
from .counters import carried_text, deleted_rules
from .edits import Edit, Op, jumps_to, line, rule_key
from .edits import text as text_of
from .kernel import Drift, Kernel
from .layout import ChainId, ChainLayout
from .least_edits import sync
from .planner import Plan
from .proof import planner
from .settings import Strategy
from .state import State
from .store import Store

TRIES = 20  # to load what fits the kernel, while other programs change it


class Untakeable(LiveError):
    """A change of generated rules that no change of the rule list corresponds to."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """What the kernel holds in place of the rule set of *state*.

    differences  as messages; none if the kernel holds it
    contents     the rules in the kernel, of the tables that the state has
    edits        from the rule set of the state to *contents*
    """

    state: State
    differences: list[str]
    contents: Program
    edits: list[Edit]


def find(kernel: Kernel, state: State) -> Foreign:
    """Compare the kernel with *state*."""
    differences = kernel.differences(state)
    tables = {table.name for table in state.loaded}
    stamp = kernel.stamp()
    contents = kernel.contents()
    contents = replace(contents, tables=tuple(table for table in contents if table.name in tables))
    if differences:
        kernel.hold(contents, stamp)
    known = state.loaded
    if differences and kernel.settings.backend != "any":
        known = kernel.as_stored(known)  # spelt as the kernel spells its rules

    def moves(rule: Rule) -> bool:
        return state.settings.is_foreign(jumps_to(rule))

    edits = sync(known, contents, keep=_stays(state, contents), moves=moves)
    return Foreign(state, differences, contents, edits)


def _stays(state: State, contents: Program) -> Callable[[str], bool]:
    """Whether a chain is none of the state's: foreign, or a user chain that no rule of the state enters.

    A chain that other programs made is taken only if a changed rule of the state's chains enters it.
    """
    settings, names = state.settings, GeneratedNames(state.settings.prefix)
    own = {chain.name for table in state.loaded for chain in table.chains}
    entered = set(own)
    waiting = list(own)
    while waiting:
        name = waiting.pop()
        for table in contents:
            for rule in table[name].rules if name in table and not settings.is_foreign(name) else ():
                callee = jumps_to(rule)
                if callee and callee not in entered:
                    entered.add(callee)
                    waiting.append(callee)

    def stays(name: str) -> bool:
        return settings.is_foreign(name) or (name not in entered and not names.is_generated(name))

    return stays


# ---- taken back ----


def undo_text(foreign: Foreign) -> str:
    """The patch that brings the kernel back to the rule set of the state; chains of others stay."""
    state = foreign.state
    names = GeneratedNames(state.settings.prefix)
    own = {chain.name for table in state.loaded for chain in table.chains}

    def stays(name: str) -> bool:
        return state.settings.is_foreign(name) or (name not in own and not names.is_generated(name))

    return text_of([*_missing(foreign), *sync(foreign.contents, state.loaded, keep=stays)])


def _missing(foreign: Foreign) -> list[Edit]:
    """Chains of other programs that rules of the state enter, and that are gone: they come back empty."""
    settings = foreign.state.settings
    entered = {
        (table.name, jumps_to(rule)): None
        for table in foreign.state.loaded
        for chain in table.chains
        if not settings.is_foreign(chain.name)
        for rule in chain.rules
        if settings.is_foreign(jumps_to(rule))
    }
    there = {(table.name, chain.name) for table in foreign.contents for chain in table.chains}
    return [Edit(Op.NEW, table, name) for table, name in entered if (table, name) not in there]


def undo(kernel: Kernel, store: Store, foreign: Foreign) -> None:
    """Load the rule set of the state again; LiveError, and nothing is changed, if the kernel refuses it."""
    load_all(kernel, store, _as_present(foreign), foreign.state, undo_text(foreign))
    kernel.check(foreign.state)


def _as_present(foreign: Foreign) -> State:
    """The state with what the kernel holds as what is loaded."""
    return replace(foreign.state, loaded=foreign.contents)


# ---- taken ----


def updates_of(foreign: Foreign) -> list[Edit]:
    """The edits of the rule list that correspond to those of the kernel; Untakeable if some do not."""
    chains: dict[ChainId, _Rows] = {}
    updates = _new_foreign_chains(foreign)
    rewritten = _chains_without_trees(foreign)
    obsolete = _obsolete_chains(foreign, rewritten.keys())
    done: set[ChainId] = set()
    for edit in foreign.edits:
        where = edit.table, edit.chain
        if where in obsolete:
            continue
        if edit.op in (Op.NEW, Op.REMOVE, Op.POLICY, Op.FLUSH):
            _check_generated(foreign.state, edit)
            updates.append(edit)
        elif where not in rewritten:
            if where not in chains:
                chains[where] = _Rows.of(foreign.state, *where, chains)
            updates += chains[where].take(edit)
        elif where not in done:
            done.add(where)
            updates.append(Edit(Op.FLUSH, *where))
            appended = (Edit(Op.APPEND, *where, at, rule) for at, rule in enumerate(rewritten[where]))
            updates += [replace(each, rule=_rule(foreign.state, each)) for each in appended]
    return updates


def _chains_without_trees(foreign: Foreign) -> dict[ChainId, tuple[Rule, ...]]:
    """By chain with a tree that no rule in the kernel's chain enters any more: the rules that it has now.

    These are all the rules that packets meet in the chain; none if the kernel lacks it.
    """
    state, names = foreign.state, GeneratedNames(foreign.state.settings.prefix)
    found: dict[ChainId, tuple[Rule, ...]] = {}
    for where in state.layouts:
        loaded, present = (program.rules_of(*where) for program in (state.loaded, foreign.contents))
        had, has = (any(names.is_generated(jumps_to(rule)) for rule in rules) for rules in (loaded, present))
        if not present or (had and not has):
            found[where] = present
    return found


def _obsolete_chains(foreign: Foreign, rewritten: Set[ChainId]) -> set[ChainId]:
    """The generated chains that no packet reaches: those of *rewritten* chains, and those to be removed."""
    state, names = foreign.state, GeneratedNames(foreign.state.settings.prefix)
    found: set[ChainId] = set()
    for table in state.loaded:
        owners = state.owners(table.name)
        for chain in table.chains:
            owner = owners.get(chain.name)
            if names.is_generated(chain.name) and (owner is None or (table.name, owner) in rewritten):
                found.add((table.name, chain.name))
    return found


def _new_foreign_chains(foreign: Foreign) -> list[Edit]:
    """The list has to know the foreign chains that new rules enter; their rules are not looked at."""
    state = foreign.state
    entered = dict.fromkeys(
        (edit.table, jumps_to(edit.rule))
        for edit in foreign.edits
        if edit.rule is not None and state.settings.is_foreign(jumps_to(edit.rule))
    )
    known = {(table.name, chain.name) for table in state.master for chain in table.chains}
    return [Edit(Op.NEW, table, name) for table, name in entered if (table, name) not in known]


def _check_generated(state: State, edit: Edit) -> None:
    if GeneratedNames(state.settings.prefix).is_generated(edit.chain):
        raise _untakeable(edit)


def _untakeable(edit: Edit, why: str = "the chain belongs to a tree") -> Untakeable:
    return Untakeable(
        f"table {edit.table}, chain {edit.chain}: {line(edit)}: {why}, so no change of the rule list "
        "corresponds to it; nothing is changed (sflgen repair --undo takes it back)"
    )


class _Rows:
    """One loaded chain while its edits are taken: which rule of the list each of its rows is.

    rows      by row: the rule of the list, or None for a rule of a tree
    rules     by row: the rule that is loaded
    listed    the chain of the list; its rules are compared by identity
    has_tree  whether generated rules follow the rows that are those of the list
    """

    def __init__(
        self, state: State, listed: _List, rows: list[_Listed | None], rules: list[Rule], has_tree: bool
    ) -> None:
        self.state, self.listed, self.rows, self.rules = state, listed, rows, rules
        self.has_tree = has_tree

    @classmethod
    def of(cls, state: State, table: str, name: str, others: dict[tuple[str, str], _Rows]) -> _Rows:
        loaded = state.loaded.rules_of(table, name)
        owner = state.owners(table).get(name, name)
        same = next(
            (
                each.listed
                for (where, _), each in others.items()
                if where == table and each.listed.name == owner
            ),
            None,
        )
        listed = same or _List.of(owner, state.master.rules_of(table, owner))
        layout = state.layouts.get((table, owner))
        count = _rows_in_place(layout) if owner == name else 0
        rows: list[_Listed | None] = [*listed.rules[: len(loaded) if count is None else count]]
        rows += [None] * (len(loaded) - len(rows))
        return cls(state, listed, rows, list(loaded), has_tree=count is not None)

    def take(self, edit: Edit) -> Iterator[Edit]:
        """The edits of the list for *edit* of the loaded chain."""
        if edit.op is Op.REPLACE and self.rows[edit.at] is not None:
            row = self.rows[edit.at]
            assert row is not None
            self.rules[edit.at] = row.rule = _rule(self.state, edit)
            yield replace(edit, chain=self.listed.name, at=self.listed.index(row), rule=row.rule)
            return
        if edit.op in (Op.DELETE, Op.REPLACE):
            row = self._deleted(edit)
            yield Edit(Op.DELETE, edit.table, self.listed.name, self.listed.index(row))
            self.listed.rules.remove(row)
            del self.rows[edit.at], self.rules[edit.at]
        if edit.op is not Op.DELETE:
            yield self._inserted(edit)

    def _deleted(self, edit: Edit) -> _Listed:
        row = self.rows[edit.at]
        if row is not None:
            return row
        key = rule_key(self.rules[edit.at])
        same = [each for each in self.listed.rules if rule_key(each.rule) == key]
        if len(same) != 1:
            raise _untakeable(
                edit, f"it is one of {len(same)} equal rules" if same else "the rule belongs to a tree"
            )
        return same[0]

    def _inserted(self, edit: Edit) -> Edit:
        at = len(self.rows) if edit.op is Op.APPEND else edit.at
        rule = _rule(self.state, edit)
        before = self.rows[:at]
        if not self.has_tree or (at and before[-1] is not None) or not at:
            place = self.listed.index(before[-1]) + 1 if before and before[-1] is not None else 0
        elif at == len(self.rows) and self.listed.name == edit.chain:
            place = len(self.listed.rules)
        else:
            raise _untakeable(edit, "its place is inside a tree")
        if not at and self.listed.name != edit.chain:
            raise _untakeable(edit)
        new = _Listed(rule)
        self.rows.insert(at, new)
        self.rules.insert(at, rule)
        self.listed.rules.insert(place, new)
        is_last = place == len(self.listed.rules) - 1
        return Edit(Op.APPEND if is_last else Op.INSERT, edit.table, self.listed.name, place, rule)


@dataclass(eq=False, slots=True)
class _Listed:
    """A rule of the list; equal only to itself."""

    rule: Rule


@dataclass(slots=True)
class _List:
    """A chain of the list, with the edits taken so far."""

    name: str
    rules: list[_Listed]

    @classmethod
    def of(cls, name: str, rules: Sequence[Rule]) -> _List:
        return cls(name, [_Listed(rule) for rule in rules])

    def index(self, rule: _Listed | None) -> int:
        assert rule is not None, "a rule of a tree has no place in the list"
        return self.rules.index(rule)


def _rows_in_place(layout: ChainLayout | None) -> int | None:
    """How many rows of a chain are those of its list, from the first; None: all."""
    if layout is None:
        return None
    return 0 if layout.sections[0].tree else layout.sections[0].size


def _rule(state: State, edit: Edit) -> Rule:
    assert edit.rule is not None
    if GeneratedNames(state.settings.prefix).is_generated(jumps_to(edit.rule)):
        raise _untakeable(edit, "it enters a chain of a tree")
    return edit.rule._replace(counters=None, notes=(), line=0)


def take(kernel: Kernel, store: Store, foreign: Foreign, plan: Plan) -> None:
    """Commit *plan*, of `updates_of`, and bring the kernel from what it holds to the rule set after it.

    LiveError, and nothing is changed, if the kernel refuses a table.
    """
    stays = _stays(plan.after, foreign.contents)
    before = _as_present(foreign)
    edits = sync(foreign.contents, plan.after.loaded, keep=stays)
    patch = carried_text(before, plan.after, edits, kernel.counters)
    store.commit(plan, lambda _: load_all(kernel, store, before, plan.after, patch))
    kernel.check(plan.after)


def check(kernel: Kernel, store: Store, report: Callable[[str], None], taken: list[Edit]) -> None:
    """Drift unless the kernel holds the rule set of the state, but for jumps to foreign chains.

    Those that other programs have inserted or deleted are taken.  The edits of the rule list that do so are
    reported and added to *taken*, also where an error follows.
    """
    for _ in range(TRIES):
        version = store.state.version
        try:
            kernel.check(store.state)
            return
        except Drift:
            foreign = find(kernel, store.state)
            if not _changes_foreign_jumps_only(foreign):
                raise
            updates = updates_of(foreign)
            # Another program may be quick, before they are in the kernel or behind it.
            with contextlib.suppress(Drift):
                if updates:
                    take(kernel, store, foreign, planner(True)(store.state, updates, Strategy.GRAFT))
            if store.state.version != version:
                taken += updates
                for each in shown(updates):
                    report(f"taken from the kernel: {each}")
    kernel.check(store.state)


def _changes_foreign_jumps_only(foreign: Foreign) -> bool:
    state = foreign.state
    try:
        updates = updates_of(foreign)
    except Untakeable:
        return False
    rules = [edit.rule for edit in updates if edit.rule is not None]
    rules += [rule for _, rule in deleted_rules(state.master, updates)]
    changed = [edit.chain for edit in updates if edit.op in (Op.NEW, Op.REMOVE, Op.FLUSH, Op.POLICY)]
    changed += [jumps_to(rule) for rule in rules]
    return all(state.settings.is_foreign(chain) for chain in changed)


def shown(updates: Sequence[Edit]) -> list[str]:
    """The edits of the rule list as iptables commands."""
    return [("" if edit.table == "filter" else f"-t {edit.table} ") + line(edit) for edit in updates]

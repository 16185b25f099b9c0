"""Entries in front of a tree, searched as a small tree of their own.

Every packet reads the entries in front of a tree.  When there are many, the compiler grows a tree of
them, which the section's chain calls in their place; later entries may be inserted in its leaves.  The
patch has a few lines for each entry, and is proved by itself: the entries, and the call, have the same effect
on every packet.

Invariant: the tree holds copies of the entries' rules, and nothing else; its chains belong to the section's
tree, so deletions find them (copy_index.py) and the next fold removes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from hitables.analyse.levels import levels_above
from hitables.compiler.compile import compile_rules
from hitables.emit.chain_writer import jump
from hitables.errors import HitablesError
from hitables.ir.program import Chain
from hitables.ir.rule import Kind, Rule, Target, leaves_chain

from .chain_names import ChainNames, GeneratedNames
from .copy_index import CopyIndex
from .deciding import Deciding
from .edits import Edit, Op, apply, jumps_to, with_renamed_callee
from .layout import ChainId, Entry, EntryChain
from .local_proof import are_equal
from .nesting import depth_limit, raised
from .planner import Plan
from .region import Region
from .rule_rows import spelling
from .state import State

# Entries in front of a tree that are worth one.  They grow until then, so packets read half of them on
# average; a smaller tree saves little, and each costs a patch of some 60 lines.
ENTRIES_WORTH_A_TREE = 16

Rules = tuple[Rule, ...]


def due(state: State) -> ChainId | None:
    """A section's chain that has enough entries for a tree in front of its own."""
    for (table, chain), entry_chain in state.entry_chains.items():
        if entry_chain.section == chain and len(entry_chain.entries) >= ENTRIES_WORTH_A_TREE:
            run = _run_to_move(state, (table, chain), entry_chain)
            rules = state.loaded.table(table)[chain].rules
            if sum(not is_call(rules[entry.row], entry) for entry in run) >= ENTRIES_WORTH_A_TREE:
                return table, chain
    return None


def plan_front_tree(state: State, chain_id: ChainId) -> Plan | None:
    """A proved plan that grows a tree of the entries in front of a section that is `due`.

    The last tree of entries becomes part of it if that can be proved, or else stays behind it.  None if the
    compiler grows no tree.
    """
    table, chain = chain_id
    rules = state.loaded.table(table)[chain].rules
    run = _run_to_move(state, chain_id, state.entry_chains[chain_id])
    own = [entry for entry in run if not is_call(rules[entry.row], entry)]
    plan = _plan(state, chain_id, run) if len(own) < len(run) else None
    return plan or _plan(state, chain_id, own)


def _plan(state: State, chain_id: ChainId, run: Sequence[Entry]) -> Plan | None:
    table, chain = chain_id
    loaded = state.loaded.table(table)
    rules = [loaded[chain].rules[entry.row] for entry in run]
    old = _FrontTree(state, table, run[-1].overlay) if is_call(rules[-1], run[-1]) else None
    moved = [*rules[:-1], *old.rules()] if old else rules
    names = ChainNames(state.settings.prefix, loaded.by_name(), state.name_range)
    grown = _grown(state, chain_id, tuple(rule._replace(counters=None) for rule in moved), names)
    if grown is None:
        return None
    root, chains = grown
    gone = old.chains if old else []
    edits = [Edit(Op.NEW, table, name) for name in chains]
    for name, own in chains.items():
        edits += [Edit(Op.APPEND, table, name, at, rule) for at, rule in enumerate(own)]
    edits += [Edit(Op.DELETE, table, chain, entry.row) for entry in reversed(run)]
    edits.append(Edit(Op.INSERT, table, chain, run[0].row, Rule((), jump(root))))
    both = apply(state.loaded, edits)
    edits += [Edit(Op.FLUSH, table, name) for name in gone]
    edits += [Edit(Op.REMOVE, table, name) for name in gone]
    nesting = state.cache.nesting.get(table) or levels_above(loaded)
    deeper = raised(both.table(table), nesting, [root], nesting[chain] + 1, depth_limit(state.settings))
    if deeper is None:
        return None
    call = Entry(run[0].row, root, None, round(1000 * (2 + 2 * math.log2(len(moved)))))
    after = _after(state, chain_id, run, call, gone, chains, edits)
    after.cache.nesting[table] = {name: level for name, level in deeper.items() if name not in gone}
    if not are_equal(
        replace(after, loaded=both), chain_id, tuple(rules), (Rule((), jump(root)),), {*gone, *chains}
    ):
        return None
    return Plan(state, after, (), tuple(edits), ())


def is_call(rule: Rule, entry: Entry) -> bool:
    """Whether *entry*, which is *rule*, is the call of a tree of entries; a listed jump is none."""
    return (
        bool(entry.overlay) and not rule.matches and rule.target is not None and rule.target.kind is Kind.JUMP
    )


def below_call(state: State, table: str, root: str) -> list[str]:
    """The chains of the tree of entries whose first one is *root*."""
    return _FrontTree(state, table, root).chains


def _run_to_move(state: State, chain_id: ChainId, entry_chain: EntryChain) -> list[Entry]:
    """The longest run of entries that decide about all packets they match, and the call of a tree behind it.

    The call is the last: an overlay of that tree which decides no more returns to the rule behind it.
    """
    table, chain = chain_id
    loaded = state.loaded.table(table)
    deciding = Deciding(state.master.table(table), state.settings)
    best: list[Entry] = []
    run: list[Entry] = []
    for entry in entry_chain.entries:
        if entry.hot:
            run = []
            continue
        rule = loaded[chain].rules[entry.row]
        overlay = loaded[entry.overlay].rules if entry.overlay else ()
        if not is_call(rule, entry) and not _decides(rule, overlay, state, deciding):
            run = []
            continue
        run = [*run, entry] if run and run[-1].row == entry.row - 1 else [entry]
        best = max(best, run, key=len)
        if is_call(rule, entry):
            run = []
    return best


class _FrontTree:
    """A tree of entries: its root, its chains, and its entries in an order in which packets may read them.

    Chains with lower numbers than the root, and the overlays of entries that were added later, are the
    overlays to which entries lead.  A mistake here makes the proof of the new tree fail.
    """

    def __init__(self, state: State, table: str, root: str) -> None:
        self.root, self.loaded = root, state.loaded.table(table)
        self.family, self.backends = state.master.family, state.backends
        prefix = len(state.settings.prefix)
        overlays = {
            entry.overlay
            for (where, _), entry_chain in state.entry_chains.items()
            if where == table
            for entry in entry_chain.entries
        }
        self.chains = [root]
        for name in self.chains:  # which grows
            for rule in self.loaded[name].rules:
                callee = jumps_to(rule)
                is_below = (
                    GeneratedNames(state.settings.prefix).is_generated(callee)
                    and int(callee[prefix:]) > int(root[prefix:])
                    and callee not in overlays
                )
                if is_below and callee not in self.chains:
                    self.chains.append(callee)

    def rules(self) -> list[Rule]:
        """The entries, each once, newer ones before older ones that a packet may match too."""
        tree = set(self.chains)
        rule_of: dict[tuple[str, ...], Rule] = {}
        before: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for name in self.chains:
            above: set[tuple[str, ...]] = set()
            for rule in self.loaded[name].rules:
                below = self.below(rule) if jumps_to(rule) in tree else [rule]
                for each in below:
                    rule_of.setdefault(spelling(each), each)
                    before.setdefault(spelling(each), set()).update(above)
                if rule.target is None or rule.target.kind is not Kind.GOTO or jumps_to(rule) not in tree:
                    above |= {spelling(each) for each in below}  # else no packet of those reads on
        regions = {key: Region(rule.matches, self.family, self.backends) for key, rule in rule_of.items()}
        meeting = {
            key: [each for each in earlier if each != key and not regions[each].escapes(rule_of[key])]
            for key, earlier in before.items()
        }
        try:
            return [rule_of[key] for key in TopologicalSorter(meeting).static_order()]
        except CycleError:  # no order is right, which the proof will show
            return list(rule_of.values())

    def below(self, call: Rule) -> list[Rule]:
        """The entries in the chains below a jump of the tree."""
        rules, pending = [], [jumps_to(call)]
        for name in pending:  # which grows
            for rule in self.loaded[name].rules:
                callee = jumps_to(rule)
                if callee not in self.chains:
                    rules.append(rule)
                elif callee not in pending:
                    pending.append(callee)
        return rules


def _decides(rule: Rule, overlay: Rules, state: State, deciding: Deciding) -> bool:
    """Whether an entry, with the rules of its overlay, decides about all packets that it matches."""
    if not overlay:
        return rule.is_final or rule.enters in deciding
    region = Region(rule.matches, state.master.family, state.backends)
    return region.ends_in(overlay[-1], deciding=deciding) and not any(map(leaves_chain, overlay))


def _grown(
    state: State, chain_id: ChainId, moved: Rules, names: ChainNames
) -> tuple[str, dict[str, Rules]] | None:
    """The root of a tree of the rules *moved*, and its chains by name; None if the compiler grows none."""
    table, chain = chain_id
    root = names.next()
    loaded = state.loaded.table(table)
    # Every chain that an entry enters decides; which way, the proof does not ask.
    ends = {name: loaded[name].rules[-1].target for rule in moved if (name := jumps_to(rule))}
    chains = (
        Chain(chain, loaded[chain].policy, (Rule((), jump(root)),)),
        Chain(root, None, moved),
        *(Chain(name, None, (Rule((), _verdict_of(ends[name])),)) for name in sorted(ends)),
    )
    program = replace(state.loaded, tables=(replace(loaded, chains=chains),))
    try:
        compiled = compile_rules(program, state.settings.options(table, {root}))
    except HitablesError:
        return None
    below = [name for at, name in compiled.origins if at == table]
    if not below:
        return None
    grown = compiled.program.table(table)
    loaded_names = {root: root, **{name: names.next() for name in below}}
    return root, {
        new: tuple(with_renamed_callee(rule, loaded_names) for rule in grown[old].rules)
        for old, new in loaded_names.items()
    }


def _verdict_of(target: Target | None) -> Target:
    """A verdict in the place of the last one in a chain that decides."""
    return target if target is not None and target.is_final else Target("DROP", Kind.VERDICT, "DROP")


def _after(
    state: State,
    chain_id: ChainId,
    run: Sequence[Entry],
    call: Entry,
    gone: Sequence[str],
    chains: dict[str, Rules],
    edits: Sequence[Edit],
) -> State:
    """The state after *edits*, which moved the entries of *run* to *chains* and removed the chains *gone*."""
    table, chain = chain_id
    before, cache = state.entry_chains[chain_id], state.cache.copy()
    last, step = run[-1].row, len(run) - 1
    kept = [entry for entry in before.entries if entry.row < call.row]
    kept.append(call)
    kept += [replace(entry, row=entry.row - step) for entry in before.entries if entry.row > last]
    removed = {(table, name) for name in gone}
    entry_chains = {key: each for key, each in state.entry_chains.items() if key not in removed}
    entry_chains[chain_id] = EntryChain(chain, tuple(kept))
    cache.regions = {
        key: each for key, each in cache.regions.items() if key in entry_chains and key != chain_id
    }
    cache.entry_costs.pop(chain_id, None)
    cache.last_names.pop((table, state.name_range), None)
    if chain_id in cache.copy_indexes:
        cache.copy_indexes[chain_id] = _with_copies(cache.copy_indexes[chain_id], state, table, chains)
    loaded = apply(state.loaded, edits)
    return replace(state, loaded=loaded, entry_chains=entry_chains, cache=cache, version=state.version + 1)


def _with_copies(index: CopyIndex, state: State, table: str, chains: dict[str, Rules]) -> CopyIndex:
    """*index* with the rules of *chains*, and of the overlays that these enter."""
    loaded, index = state.loaded.table(table), dict(index)
    entered = {jumps_to(rule) for own in chains.values() for rule in own}
    is_generated = GeneratedNames(state.settings.prefix).is_generated
    overlays = {name: loaded[name].rules for name in entered if is_generated(name) and name in loaded}
    contents = {**overlays, **chains}
    for name, own in contents.items():
        for rule in own:
            if jumps_to(rule) not in contents:
                index[spelling(rule)] = index.get(spelling(rule), set()) | {name}
    return index

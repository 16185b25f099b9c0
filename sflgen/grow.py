"""New trees for chains of the master list, and the edits that put them in the place of the old ones.

The compiler of hitables grows trees for the lists of the sections.  New chains then take the names of
old chains in the same place of the tree, from the root down, so that the least edits of each chain
(least_edits.py) are few where the list has changed little.  *Staged* trees get new chains instead,
which can be loaded while the old trees are in use.

Invariant: the edits apply to the loaded rule set; afterwards each chain has the effect of its list, no
entry is left in front of its trees, and no generated chain is unreachable.  Section chains and shared
chains keep their names.  The module is not called `fold`, because `sflgen.fold` is the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hitables.compiler.compile import compile_rules
from hitables.ir.foreign import appended
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Rule

from .chain_names import ChainNames
from .edits import Edit, Op, apply, jumps_to, rule_key, with_renamed_callee
from .layout import (
    ChainId,
    ChainLayout,
    EntryChain,
    divide,
    fixed_chains,
    fixed_rules,
    hide_foreign,
    section_lists,
    tree_chains,
    unreachable_chains,
)
from .lcs import gaps
from .least_edits import rule_edits
from .settings import Settings

Rules = tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded rule set, its layouts, and its entries."""

    program: Program
    layouts: Mapping[ChainId, ChainLayout]
    entry_chains: Mapping[ChainId, EntryChain]


@dataclass(slots=True)
class Regrown:
    """The edits that replace old trees by new ones, and the new layout of each chain.

    A chain whose layout is None is loaded as it is in the master list.
    """

    edits: list[Edit] = field(default_factory=list)
    layouts: dict[ChainId, ChainLayout | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Trees:
    """Compiled trees: the rules of each section chain that has one, and of the chains below."""

    roots: Mapping[str, Rules]
    below: Mapping[str, Rules]

    def layout(self, divided: ChainLayout) -> ChainLayout | None:
        """*divided*, with its trees marked; None if there is no tree."""
        if not any(section.name in self.roots for section in divided.sections):
            return None
        sections = tuple(replace(each, tree=each.name in self.roots) for each in divided.sections)
        return replace(divided, sections=sections)


def grow(
    loaded: Loaded,
    master: Program,
    table_name: str,
    chains: Sequence[str],
    settings: Settings,
    name_range: int = 0,
    staged: bool = False,
) -> Regrown:
    """Grow new trees for *chains* of a table; the rest of the loaded rule set stays unchanged."""
    table, listed = loaded.program.table(table_name), master.table(table_name)
    names = ChainNames(settings.prefix, [chain.name for chain in table.chains], name_range)
    old = {name: loaded.layouts.get((table_name, name)) for name in chains}
    divided = {name: divide(listed[name], old[name], names, settings) for name in chains}
    own = fixed_chains(layout for (name, _), layout in loaded.layouts.items() if name == table_name)
    # A rule that was deleted in place may have been the last that entered a chain of the old trees.
    stale = unreachable_chains(table, own, names)
    trees = _compiled(loaded.program, table, listed, old, divided, settings, names, stale)
    regrown = Regrown()
    for name in chains:
        layout = trees.layout(divided[name])
        naming = _Naming(table, old[name], layout, loaded.entry_chains, trees, names)
        regrown.edits += _replacement(listed[name], layout, naming, staged)
        regrown.layouts[table_name, name] = layout
    layouts = {**loaded.layouts, **regrown.layouts}
    keep = fixed_chains(layout for (name, _), layout in layouts.items() if name == table_name)
    (after,) = apply(replace(master, tables=(table,)), regrown.edits)
    removed = unreachable_chains(after, keep, names)
    regrown.edits += [Edit(Op.FLUSH, table_name, name) for name in removed if after[name].rules]
    regrown.edits += [Edit(Op.REMOVE, table_name, name) for name in removed]
    return regrown


def _compiled(
    loaded: Program,
    table: Table,
    listed: Table,
    old: Mapping[str, ChainLayout | None],
    divided: Mapping[str, ChainLayout],
    settings: Settings,
    names: ChainNames,
    stale: Iterable[str],
) -> _Trees:
    """Trees for the sections of *divided* that are long enough and worth a tree.

    A chain to which programs append their jumps at each start has none: packets would not come back from it.
    *stale*: chains of old trees that no packet enters; they may jump to those that are replaced.
    """
    wanted = {
        section.name
        for name, layout in divided.items()
        if not (table.name == "nat" and appended(table.name, listed[name], settings.foreign))
        for at, section in enumerate(layout.sections)
        if section.size >= settings.min_length and (at or not fixed_rules(listed[name].rules, settings))
    }
    if not wanted:
        return _Trees({}, {})
    replaced = set(stale).union(
        *(tree_chains(table, layout, names) | layout.fixed_chains() for layout in old.values() if layout)
    )
    input_table = _with_lists(table, listed, divided, replaced, settings)
    tables = tuple(input_table if each.name == table.name else each for each in loaded)
    compiled = compile_rules(replace(loaded, tables=tables), settings.options(table.name, wanted))
    after = compiled.program.table(table.name)
    roots = {
        report.chain: after[report.chain].rules
        for report in compiled.reports
        if not report.why and report.chain in wanted
    }
    below = {chain: after[chain].rules for at, chain in compiled.origins if at == table.name}
    return _Trees(roots, below)


def _with_lists(
    table: Table,
    listed: Table,
    divided: Mapping[str, ChainLayout],
    replaced: set[str],
    settings: Settings,
) -> Table:
    """The loaded table with the lists of sections and with shared rules, without chains *replaced*."""
    lists: dict[str, Rules] = {}
    for name, layout in divided.items():
        sections = zip(layout.sections, section_lists(listed[name], layout), strict=True)
        lists.update((section.name, rules) for section, rules in sections)
        lists.update((chain, (listed[name].rules[at],)) for at, chain in layout.shared)
    chains = []
    for chain in table.chains:
        if chain.name in replaced and chain.name not in lists:
            continue
        chains.append(chain.with_rules(tuple(lists.pop(chain.name, chain.rules))))
    chains += [Chain(name, None, rules) for name, rules in lists.items()]
    return hide_foreign(replace(table, chains=tuple(chains)), settings)


def _replacement(chain: Chain, layout: ChainLayout | None, naming: _Naming, staged: bool) -> list[Edit]:
    """The edits that load *chain* with *layout*, its trees under the names that *naming* finds."""
    table, trees = naming.table, naming.trees
    contents: dict[str, Rules] = {chain.name: chain.rules}  # by name in the compiler's output
    if layout is not None:
        contents = {
            section.name: trees.roots[section.name] if section.tree else rules
            for section, rules in zip(layout.sections, section_lists(chain, layout), strict=True)
        }
        contents.update((name, (chain.rules[at],)) for at, name in layout.shared)
        for section in layout.sections:
            if section.tree and not staged:
                naming.match_section(section.name)
    for name in _reachable(contents, trees.below):
        contents[name] = trees.below[name]
        naming.add(name)
    added = [name for name in contents if naming.name_of(name) not in table]
    edits = [Edit(Op.NEW, table.name, naming.name_of(name)) for name in added]
    for name, rules in contents.items():
        loaded = naming.name_of(name)
        before = table[loaded].rules if loaded in table else ()
        edits += rule_edits(table.name, loaded, before, [naming.renamed(rule) for rule in rules])
    return edits


def _reachable(roots: Mapping[str, Rules], below: Mapping[str, Rules]) -> list[str]:
    """The chains of *below* that packets reach from *roots*; others hold covered rules only."""
    reachable: dict[str, None] = {}
    pending = list(roots.values())
    while pending:
        for rule in pending.pop():
            name = jumps_to(rule)
            if name in below and name not in roots and name not in reachable:
                reachable[name] = None
                pending.append(below[name])
    return list(reachable)


class _Naming:
    """The names under which new trees of one chain are loaded.

    A new chain takes the name of an old one if both are entered at the same place: by rules that are
    alike in chains that were matched before, from the section's chain down.
    """

    def __init__(
        self,
        table: Table,
        before: ChainLayout | None,
        after: ChainLayout | None,
        entry_chains: Mapping[ChainId, EntryChain],
        trees: _Trees,
        names: ChainNames,
    ) -> None:
        self.table, self.entry_chains, self.trees, self.names = table, entry_chains, trees, names
        self.old_trees = {each.name for each in before.sections if each.tree} if before else set()
        self.old_fixed = before.fixed_chains() if before else set()
        self.fixed = fixed_chains((before, after))  # they have the same names before and after
        self.loaded_names: dict[str, str] = {}  # by name in the compiler's output
        self.reused: set[str] = set()

    def name_of(self, name: str) -> str:
        return self.loaded_names.get(name, name)

    def add(self, name: str) -> None:
        """Choose a fresh name for a new chain that has none yet."""
        fresh = self.names.next()
        self.loaded_names.setdefault(name, fresh)

    def renamed(self, rule: Rule) -> Rule:
        """A rule of the compiler's output as it is loaded."""
        return with_renamed_callee(rule, self.loaded_names)

    def match_section(self, section: str) -> None:
        """Give chains of the section's new tree the names of old chains in the same place."""
        if section not in self.old_trees:
            return
        pending = [(self.rules_without_entries(section), self.trees.roots[section])]
        while pending:
            old, new = pending.pop()
            for old_row, new_row in self.alike_rows(old, new):
                old_name, new_name = jumps_to(old[old_row]), jumps_to(new[new_row])
                if not self.names.is_generated(old_name) or old_name in self.old_fixed:
                    continue
                if old_name in self.reused:
                    continue
                if new_name not in self.trees.below or new_name in self.loaded_names:
                    continue
                self.loaded_names[new_name] = old_name
                self.reused.add(old_name)
                pending.append((self.rules_without_entries(old_name), self.trees.below[new_name]))

    def rules_without_entries(self, name: str) -> Rules:
        """The rules of a chain of the old trees as they were grown."""
        entry_chain = self.entry_chains.get((self.table.name, name))
        rows = {entry.row for entry in entry_chain.entries} if entry_chain else set()
        return tuple(rule for row, rule in enumerate(self.table[name].rules) if row not in rows)

    def alike_rows(self, old: Sequence[Rule], new: Sequence[Rule]) -> list[tuple[int, int]]:
        """Pairs of rows that correspond: equal rules, and jumps in order between equal rules."""
        old_keys, new_keys = ([self.key_without_tree(rule) for rule in rules] for rules in (old, new))
        pairs: list[tuple[int, int]] = []
        old_at = new_at = 0
        ends = range(len(old), len(old)), range(len(new), len(new))
        for removed, added in (*gaps(old_keys, new_keys), ends):
            pairs += zip(range(old_at, removed.start), range(new_at, added.start), strict=True)
            old_jumps = [row for row in removed if old_keys[row][1] in ("-g", "-j")]
            new_jumps = [row for row in added if new_keys[row][1] in ("-g", "-j")]
            pairs += zip(old_jumps, new_jumps, strict=False)
            old_at, new_at = removed.stop, added.stop
        return pairs

    def key_without_tree(self, rule: Rule) -> tuple[object, str]:
        """The key of a rule, in which a target within the tree has no name."""
        matches, target = rule_key(rule)
        name = jumps_to(rule)
        if (name in self.trees.below or self.names.is_generated(name)) and name not in self.fixed:
            return matches, target.partition(" ")[0]
        return matches, target

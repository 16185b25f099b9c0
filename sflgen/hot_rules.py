"""Hot rules: copies of the rules that decide most packets, in front of a tree (docs/hot.md).

Idea: hitables chooses them (hitables/compiler/hot.py), by the packets that each rule has matched, or by those
of a trace; here they are entries in front of the tree.  A hot rule is a copy of a rule of the list as it is
written, whose packets this rule decides; so its counter is carried like that of any copy.  An update that may
concern a packet of a hot rule withdraws it (entries.py), a fold all.

Invariant: a plan makes the law of state.py hold if it held before; proof.py proves it, by the packets of the
hot rules that change.

Cost: the list is read once, as for compiling; the patch has a line for each hot rule that goes or comes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import replace

from hitables.analyse.reorderable import reorderability
from hitables.analyse.rule_boxes import as_boxes
from hitables.analyse.weights import Weights
from hitables.compiler.hot import HotRules, HotSearch
from hitables.compiler.hot_costs import HotCosts
from hitables.compiler.segments import SegmentGrower
from hitables.costs import default
from hitables.emit.chain_writer import WrittenChains
from hitables.errors import HitablesError
from hitables.ir.program import Chain, Program

from .chain_names import GeneratedNames
from .edits import Key, rule_key
from .entries import SectionEntries
from .layout import ChainId, ChainLayout, begins_section, hide_foreign, tree_chains
from .plan_state import PlanState
from .planner import Plan, Planner
from .proof import prove_plan
from .state import State


def hot(state: State, weights: Weights, most: int) -> Plan:
    """A proved plan after which each tree has the hot rules that pay by *weights*, at most *most*."""
    return prove_plan(hot_unproved(state, weights, most))


def hot_unproved(state: State, weights: Weights, most: int) -> Plan:
    """`hot`, without a proof.  Hot rules of before that pay no more go; *most* 0: all go."""
    planner = Planner(state, state.master, None)
    for chain_id, layout in state.layouts.items():
        if layout.sections[0].tree:
            _replace(planner.plan, chain_id, _chosen(state, chain_id, layout, weights, most))
    return planner.run(())


def _replace(plan: PlanState, chain_id: ChainId, chosen: HotRules | None) -> None:
    """Let the tree of a chain have the *chosen* hot rules, and no others."""
    table, chain = chain_id
    entries = SectionEntries(plan, table, chain)
    wanted = {rule_key(rule): rule for rule in chosen.rules} if chosen else {}
    present = {rule_key(rule): row for row, rule in entries.hot_rules()}
    if list(present) == list(wanted):
        return
    if chosen is not None and chosen.ordered:
        kept: Set[Key] = frozenset()  # in their order: all are inserted anew
    else:
        kept = present.keys() & wanted.keys()
    rules = dict(entries.hot_rules())
    for key, row in reversed(present.items()):
        if key not in kept:
            plan.hot.append((chain_id, rules[row]))
            entries.remove(chain, row)
    first = plan.master.table(table)[chain].rules[0]
    new = [rule for key, rule in wanted.items() if key not in kept]
    entries.insert_hot(chain_id, new, 1 if begins_section(first) else 0)


def _chosen(
    state: State, chain_id: ChainId, layout: ChainLayout, weights: Weights, most: int
) -> HotRules | None:
    """The hot rules that pay in front of the tree of a chain."""
    table_name, chain = chain_id
    if not most or not any(weights.counts.get(chain_id, ())):
        return None
    table = hide_foreign(state.master.table(table_name), state.settings)
    rules = table[chain].rules[: layout.sections[0].size]
    options = replace(state.settings.options(table_name, [chain]), hot=most)
    grower = SegmentGrower(table, state.master.family, options)
    reader = grower.box_reader()
    boxes = as_boxes(reader.read(rules, grower.writes), state.master.family)
    boxes.reorder[:] = reorderability(rules, grower.writes, reader)
    loaded = state.loaded.table(table_name)
    hot_rows = {row for row, _ in _entries_of(state, chain_id).hot_rules()}
    own = tuple(rule for row, rule in enumerate(loaded[chain].rules) if row not in hot_rows)
    fixed = 1 if begins_section(rules[0]) else 0
    costs = HotCosts(
        hide_foreign(loaded, state.settings), chain, WrittenChains(own, []), fixed, default(), state.backends,
        state.master.family,
    )  # fmt: skip
    counts = weights.counts[chain_id][: len(rules)]
    search = HotSearch(weights.packets.get(chain_id), counts, options, grower.trees.each_backend)
    return search.best_before(rules, boxes, costs)


def _entries_of(state: State, chain_id: ChainId) -> SectionEntries:
    return SectionEntries(PlanState(state, state.master, None), *chain_id)


def check_trees(state: State) -> None:
    """HitablesError if no chain begins with a tree: then no traffic makes a rule hot."""
    if not any(layout.sections[0].tree for layout in state.layouts.values()):
        raise HitablesError(
            "no chain has a tree that hot rules could stand in front of, so there is nothing to choose; "
            f"init grows trees for chains of {state.settings.min_length} rules and more, where they pay"
        )


# ---- the packets of each rule, by the counters of its copies ----


def chains_of_trees(state: State) -> frozenset[ChainId]:
    """The loaded chains that hold copies of the rules of lists with trees."""
    return frozenset((table, name) for table, chain in state.layouts for name in _owned(state, table, chain))


def _owned(state: State, table: str, chain: str) -> Set[str]:
    """The loaded chains that hold the copies of the rules of a chain."""
    layout = state.layouts[table, chain]
    names = GeneratedNames(state.settings.prefix)
    return {chain} | tree_chains(state.loaded.table(table), layout, names) | layout.fixed_chains()


def weights_by_counters(state: State, kernel: Program) -> Weights:
    """The packets of each rule of the list: the sums over its copies in *kernel*, the `chains_of_trees`.

    HitablesError when no rule has matched a packet.
    """
    counts: dict[ChainId, tuple[float, ...]] = {}
    for table, chain in state.layouts:
        present = kernel.find(table)
        if present is None:
            continue
        sums = _sums(present.by_name(), _owned(state, table, chain))
        listed = state.master.table(table)[chain].rules
        # Of equal rules, the first decides.
        counts[table, chain] = tuple(sums.pop(rule_key(rule), 0.0) for rule in listed)
    if not any(map(sum, counts.values())):
        raise HitablesError(
            "the counters of all rules with trees are 0, so no rule is hot yet: wait for packets, or give a "
            "trace or a capture (--trace, --pcap)"
        )
    return Weights("the counters of the kernel", counts)


def _sums(chains: Mapping[str, Chain], owned: Set[str]) -> dict[Key, float]:
    """By rule: the packets that it has counted in the chains *owned*."""
    sums: dict[Key, float] = defaultdict(float)
    for name in owned & chains.keys():
        for rule in chains[name].rules:
            sums[rule_key(rule)] += (rule.counters or (0, 0))[0]
    return sums

"""Local proofs: that a patch keeps the law, by the packets that its updates may concern.

For a plan that grows no tree it is shown that

1. each edit of a tree concerns only packets that pass the header tests of an updated rule: it
   inserts or deletes a rule that has these tests, or tests that fewer packets pass;
2. for these packets the loaded chain has the effect of the listed chain, both as they are after the
   update: the exact engine compares the two, without the rules and branches whose addresses,
   protocol or interfaces exclude these packets.

With the law before the update this implies the law after it.  Chains that the two jump to are chains
of the list and compared by themselves; here each is replaced by a rule of unknown effect that decides if
the chain surely decides, and else writes what the chain may write.  Trees may rely on a chain that
decides, so an update by which one ceases to is not proved locally (deciding.py).  A plan that cannot be
shown in this way is proved as a whole (proof.py).

The cost is that of the rules near the updated ones: some milliseconds in a list of 10,000 rules.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from hitables.core.prover import ProveStatus
from hitables.emit.chain_writer import goto, jump
from hitables.ir.fields import Field
from hitables.ir.program import Chain
from hitables.ir.rule import Ends, Kind, Metadata, Rule, Target
from hitables.verify.deadline import Deadline
from hitables.verify.exact import TableProver
from hitables.verify.merged_classes import MergedClasses
from hitables.verify.question import KERNEL_POLICY, Question

from .chain_names import GeneratedNames
from .chain_rows import NearChains
from .deciding import Deciding, relying
from .edits import Edit, Op, rule_key
from .layout import ChainId, section_lists
from .near_rules import NearRules
from .planner import Plan
from .region import Region
from .region_encoding import RegionEncoding
from .rule_index import RuleIndex, fields_written
from .rule_rows import Bools, RuleRows
from .state import State
from .written import written_by_chains

# Seconds.  The proof is bounded by its steps (region_encoding.py), so that the load of the machine does not
# matter; this is for a machine that stands still.
TIMEOUT = 60.0

_COMPARED = frozenset({Field.SRC, Field.DST, Field.PROTO, Field.IIF, Field.OIF})
# Longer than the name of a chain may be.  Two names: the prover compares chains of one name by themselves,
# for all packets, and these two are equal for packets of the region only.
_LIST, _TREE = (
    "the list, as packets of the region read it",
    "what is loaded, as packets of the region read it",
)

Rules = tuple[Rule, ...]


def holds_locally(plan: Plan) -> bool | None:
    """Whether it is shown that the law holds after *plan* if it holds before.

    False if it cannot be shown, True if it is; None if this takes too long.
    """
    if plan.folds or any(relying(plan.before, plan.after.master, plan.updates)):
        return False
    if any(edit.op is Op.POLICY and (edit.table, edit.chain) in plan.before.layouts for edit in plan.updates):
        return False  # the law of states that earlier versions wrote held for their policies only
    updated = _updated_rules(plan)
    for chain_id, rule in plan.hot:
        updated.setdefault(chain_id, []).append(rule)
    regions: dict[ChainId, list[Region]] = {}
    for chain_id, rules in updated.items():
        if chain_id in plan.before.layouts:
            if not _ends_as_listed(plan.after, chain_id):
                return False
            family, backends = plan.after.master.family, plan.after.backends
            regions[chain_id] = [Region.around(rule, family, backends) for rule in rules]
        elif not is_loaded_as_listed(plan.after, chain_id):
            return False
    for edit in plan.edits:
        chain_id = edit.table, edit.chain
        if chain_id not in plan.before.layouts and plan.after.master.find_chain(*chain_id) is not None:
            if chain_id not in updated:
                return False  # a chain of the list without a tree, which no update names
            continue  # it is loaded as it is listed
        in_table = [region for (table, _), each in regions.items() if table == edit.table for region in each]
        if not _is_inside(edit, plan, in_table):
            return False
    for chain_id, of_chain in regions.items():
        for region in _distinct(of_chain):
            is_equal = is_equal_in(plan.after, chain_id, region)
            if not is_equal:
                return is_equal
    return True


# The edits are inside the regions.


def _updated_rules(plan: Plan) -> dict[ChainId, list[Rule]]:
    """The rules that the updates insert or delete, by chain."""
    rules_of: dict[ChainId, list[Rule]] = {}
    lists: dict[ChainId, list[Rule]] = {}
    for edit in plan.updates:
        chain_id = edit.table, edit.chain
        rules = rules_of.setdefault(chain_id, [])
        if edit.op in (Op.NEW, Op.REMOVE, Op.POLICY):
            continue
        if chain_id not in lists:
            lists[chain_id] = list(plan.before.master.rules_of(*chain_id))
        current = lists[chain_id]
        if edit.op is Op.FLUSH:
            rules += current
            current.clear()
        if edit.op in (Op.DELETE, Op.REPLACE):
            rules.append(current.pop(edit.at))
        if edit.rule is not None:
            rules.append(edit.rule)
            current.insert(edit.at, edit.rule)
    return rules_of


def is_loaded_as_listed(state: State, chain_id: ChainId) -> bool:
    """Whether a chain without a tree is loaded as it is listed."""
    listed, loaded = state.master.find_chain(*chain_id), state.loaded.find_chain(*chain_id)
    if listed is None or loaded is None:
        return listed is loaded
    listed_keys, loaded_keys = ([rule_key(rule) for rule in chain.rules] for chain in (listed, loaded))
    return ends_alike(listed, loaded) and listed_keys == loaded_keys


def _ends_as_listed(state: State, chain_id: ChainId) -> bool:
    """Whether a chain has the policy that it is listed with."""
    listed, loaded = state.master.find_chain(*chain_id), state.loaded.find_chain(*chain_id)
    return listed is not None and loaded is not None and ends_alike(listed, loaded)


def ends_alike(one: Chain, other: Chain) -> bool:
    """Whether two chains have the same policy."""
    return (one.policy, one.kept) == (other.policy, other.kept)


def _distinct(regions: Iterable[Region]) -> list[Region]:
    return list({region.matches: region for region in regions}.values())


def _is_inside(edit: Edit, plan: Plan, regions: Sequence[Region]) -> bool:
    """Whether *edit* changes nothing for packets outside of *regions*."""
    before, after = (program.table(edit.table) for program in (plan.before.loaded, plan.after.loaded))
    if edit.op is Op.NEW or edit.chain not in before:
        return edit.chain not in before
    if edit.chain not in after:
        return True  # the kernel removes no chain that a rule enters
    if edit.op in (Op.FLUSH, Op.REMOVE):
        return False
    rules = [] if edit.rule is None else [edit.rule]
    if edit.op in (Op.DELETE, Op.REPLACE):
        # Several edits of one chain move later rows, so all rules that the chain has lost are tested.
        kept = {id(rule) for rule in after[edit.chain].rules}
        rules += [rule for rule in before[edit.chain].rules if id(rule) not in kept]
    return all(any(is_within(rule, region) for region in regions) for rule in rules)


def is_within(rule: Rule, region: Region) -> bool:
    """Whether every packet on which *rule* has an effect is in the region."""
    around = Region.around(rule, region.family, region.backends)
    return set(region.matches) <= set(around.matches) or around.passes(region.matches)


# The two rule sets are equal in the regions.


def is_equal_in(state: State, chain_id: ChainId, region: Region) -> bool | None:
    """Whether list and loaded rule set treat packets of *region* alike in a chain; None if undecided."""
    table, chain = chain_id
    listed, loaded = state.master.table(table), state.loaded.table(table)
    indexes = section_indexes(state, chain_id)
    acting = [rule for index in indexes for rule in index.acting()]
    written = written_by_chains(state, table) if acting else {}
    effects = [_written(rule, written) for rule in acting]
    fields = _COMPARED.difference(*map(fields_written, effects))
    rows = state.cache.rule_rows(state.master.family)
    deciding = Deciding(listed, state.settings)
    near = NearRules(rows, region, fields, not any(effects), deciding)
    in_list = near.of_list(rows.of(_rules_near(state, chain_id, indexes, region, fields)))
    names = GeneratedNames(state.settings.prefix)
    in_tree = near.of_chains(loaded, chain, lambda: rows.generated(names)).renamed(rows.chain(_TREE))
    unknown = _Unknown(written, deciding)
    sides = (
        _side(rows, region, chain, NearChains.one(rows.chain(_LIST), in_list), unknown),
        _side(rows, region, chain, in_tree, unknown),
    )
    question = state.question(frozenset({chain}), TIMEOUT)
    encoding = RegionEncoding(rows, sides, table, _end(listed[chain]), question.backends[0])
    return _is_equal(encoding, chain, question)


def writes_nothing(state: State, chain_id: ChainId) -> bool:
    """Whether no rule of a listed chain, and none that it reaches, writes what later rules may test."""
    acting = [rule for index in section_indexes(state, chain_id) for rule in index.acting()]
    written = written_by_chains(state, chain_id[0]) if acting else {}
    return not any(_written(rule, written) for rule in acting)


def are_equal(state: State, chain_id: ChainId, rules: Rules, others: Rules, tree: Set[str]) -> bool:
    """Whether two runs of rules in a loaded chain have the same effect on every packet.

    They may enter the chains *tree*; every other generated chain that they enter decides about its packets.
    What follows in the chain is taken for unknown.
    """
    table, chain = chain_id
    loaded, rows = state.loaded.table(table), state.cache.rule_rows(state.master.family)
    everything = Region((), state.master.family, state.backends)
    near = NearRules(rows, everything, frozenset(), is_kept=False)
    rest = _unknown_effect("what follows", _Unknown({}, ()))
    unknown = _Unknown(written_by_chains(state, table), Deciding(state.master.table(table), state.settings))
    chains = {name: loaded[name] for name in tree}
    chains[_LIST] = Chain(_LIST, None, (*rules, rest))
    chains[_TREE] = Chain(_TREE, None, (*others, rest))
    names = GeneratedNames(state.settings.prefix)

    def in_tree() -> Bools:
        of_tree = np.zeros(len(rows.chain_names), np.bool_)
        of_tree[[rows.chains[name] for name in tree if name in rows.chains]] = True
        return of_tree

    sides = []
    for root in (_LIST, _TREE):
        own = near.of_chains(loaded.of(chains), root, in_tree)
        overlays = np.flatnonzero(rows.callees(own.rows) & rows.generated(names) & ~in_tree())
        decided = [
            NearChains.one(number, rows.of([_sure_verdict(rows.chain_names[number])]))
            for number in overlays.tolist()
        ]
        sides.append(_side(rows, everything, chain, NearChains.joined(own, *decided), unknown))
    question = state.question(frozenset({chain}), TIMEOUT)
    encoding = RegionEncoding(rows, (sides[0], sides[1]), table, _end(loaded[chain]), question.backends[0])
    return _is_equal(encoding, chain, question) is True


def go_on_alike(
    state: State, chain_id: ChainId, region: Region, runs: Sequence[Rules], others: Sequence[Rules]
) -> bool:
    """Whether packets of *region* that read *runs* would go on alike if they read *others*.

    Where trees may drop more malformed packets than the list, *others* may.  Either is the rest of a chain,
    in the list of *chain_id* or in its trees, then what follows each call around it.  What follows them is
    taken for unknown.
    """
    table, chain = chain_id
    listed, loaded = state.master.table(table), state.loaded.table(table)
    acting = [rule for index in section_indexes(state, chain_id) for rule in index.acting()]
    written = written_by_chains(state, table) if acting else {}
    effects = [_written(rule, written) for rule in acting]
    unknown = _Unknown(written, Deciding(listed, state.settings))
    rows = state.cache.rule_rows(state.master.family)
    fields = _COMPARED.difference(*map(fields_written, effects))
    near = NearRules(rows, region, fields, not any(effects), unknown.deciding)
    names = GeneratedNames(state.settings.prefix)
    sides = []
    for root, own in ((_LIST, runs), (_TREE, others)):
        nested = _nested(root, own)

        def may_enter(own_chains: Iterable[str] = tuple(nested)) -> Bools:
            is_open = rows.generated(names).copy()
            is_open[[rows.chain(name) for name in own_chains]] = True
            return is_open

        read = near.of_chains(loaded.of({**loaded.by_name(), **nested}), root, may_enter)
        sides.append(_side(rows, region, chain, read, unknown))
    question = state.question(frozenset({chain}), TIMEOUT)
    encoding = RegionEncoding(rows, (sides[0], sides[1]), table, KERNEL_POLICY, question.backends[0])
    return _is_equal(encoding, chain, question) is True


def _nested(root: str, runs: Sequence[Rules]) -> dict[str, Chain]:
    """Chains of *runs*, each of which begins with a call of the one before; *root* is the last."""
    names = [f"{root}, {depth} calls deep" for depth in range(len(runs) - 1, 0, -1)] + [root]
    rest = _unknown_effect("what follows", _Unknown({}, ()))
    chains: dict[str, Chain] = {}
    for number, (name, rules) in enumerate(zip(names, runs, strict=True)):
        call = (Rule((), jump(names[number - 1])),) if number else ()
        chains[name] = Chain(name, None, (*call, *rules, *((rest,) if name == root else ())))
    return chains


def _sure_verdict(chain: str) -> Rule:
    """A rule in the place of a chain that decides about all its packets."""
    return Rule((), Target(f"chain-{chain}", Kind.VERDICT, f"chain-{chain}"))


def _end(chain: Chain) -> str | None:
    """What ends a packet's way at the end of *chain*: no verdict is equal to its policy, which may change."""
    return None if chain.policy is None else KERNEL_POLICY


def _is_equal(encoding: RegionEncoding, chain: str, question: Question) -> bool | None:
    """Whether both sides are equal; None if this takes too long."""
    deadline = Deadline(TIMEOUT)
    merged = MergedClasses(encoding, question, deadline, [chain])
    _, proved = merged.proved(chain)
    for backend in question.backends:
        prover = TableProver(encoding.tables, encoding.read_by(backend), question, deadline)
        for packets in prover.classes:
            if (backend, packets) not in proved:
                if encoding.is_hard and merged.differ:
                    return False  # mostly they differ for a packet that exists
                status = ProveStatus.TOO_DEEP if encoding.is_hard else prover.run(chain, packets, 1)[0]
                if status != ProveStatus.EQUAL:
                    return False if status == ProveStatus.DIFFER else None
    return True


def section_indexes(state: State, chain_id: ChainId) -> list[RuleIndex]:
    """The indexed list of each section."""
    table, chain = chain_id
    layout, known = state.layouts[chain_id], state.cache.rule_indexes
    keys = [(table, section.name) for section in layout.sections]
    if all(key in known for key in keys):
        return [known[key] for key in keys]
    lists = section_lists(state.master.table(table)[chain], layout)
    return [RuleIndex.of(rules, state.master.family) for rules in lists]


def _written(rule: Rule, written: Mapping[str, frozenset[Metadata]]) -> frozenset[Metadata]:
    """What a rule may have written when a packet reads the next one."""
    entered = rule.enters if rule.target is not None and rule.target.kind is Kind.JUMP else None
    return rule.writes | written.get(entered or "", frozenset())


def _rules_near(
    state: State, chain_id: ChainId, indexes: Iterable[RuleIndex], region: Region, fields: frozenset[Field]
) -> Rules:
    """The rules of the listed chain that packets of *region* may match."""
    table, chain = chain_id
    listed = state.master.table(table)[chain].rules
    rules: list[Rule] = []
    start = 0
    for index, section in zip(indexes, state.layouts[chain_id].sections, strict=True):
        near = index.near(region, _COMPARED - fields).tolist()
        rules += [listed[start + at] for at in near if at < section.size]
        start += section.size
    return tuple(rules)


class _Unknown(NamedTuple):
    """What is known of the chains that are compared by themselves.

    written   by chain: what it may write
    deciding  those that surely decide about all their packets
    """

    written: Mapping[str, frozenset[Metadata]]
    deciding: Container[str]


def _side(rows: RuleRows, region: Region, chain: str, near: NearChains, unknown: _Unknown) -> NearChains:
    """*chain* leads packets of *region* to the first of *near*; other chains have unknown effect."""
    names = rows.chain_names
    entered = rows.callees(near.rows)
    entered[near.numbers[near.numbers < len(entered)]] = False
    others = [
        NearChains.one(number, rows.of([_unknown_effect(names[number], unknown)]))
        for number in np.flatnonzero(entered).tolist()
    ]
    front = rows.of([Rule(region.matches, goto(names[near.numbers[0]]))])
    return NearChains.joined(NearChains.one(rows.chain(chain), front), near, *others)


def _unknown_effect(chain: str, unknown: _Unknown) -> Rule:
    """A rule in the place of a chain that is compared by itself."""
    if chain in unknown.deciding:
        return _sure_verdict(chain)
    name, writes = f"chain-{chain}", unknown.written.get(chain, frozenset())
    return Rule((), Target(name, Kind.VERDICT, name, ends=Ends.MAYBE, writes=writes))

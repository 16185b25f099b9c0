"""Deletions of rules that did nothing where they stood, proved without a comparison of list and tree.

A wide rule is often deleted in front of others that treat its packets alike.  Whether list and tree agree on
all these packets takes long to prove, and need not be proved anew: a packet that reads the rule in the list,
or a copy in the tree, goes on to the same end without it.  So either treats every packet as before.

Invariant: each deleted rule is compared with what follows it, in its chain and behind the calls that lead
there, as the chains are at that moment, on every packet that may read it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hitables.ir.program import Table
from hitables.ir.rule import Kind, Role, Rule

from .chain_names import GeneratedNames
from .deciding import relying
from .edits import Edit, Op, apply
from .local_proof import go_on_alike, writes_nothing
from .planner import Plan
from .region import Region
from .state import State

# With fewer rules near the deleted one, to compare list and tree takes less than the 20 ms that this takes.
WORTH_TRYING = 2000

# Copies, and ways to one, that are examined.
MOST_COPIES, MOST_WAYS = 8, 16

Rules = tuple[Rule, ...]
# Calls around a chain, the innermost first: the chain that calls, and its row behind the call.  With row -1
# the name is the key of a target, which decides about all packets that come back.
Way = tuple[tuple[str, int], ...]


def changes_nothing(plan: Plan) -> bool:
    """Whether it is shown that *plan* does nothing but delete a rule, and copies of it, that did nothing."""
    if len(plan.updates) != 1 or plan.hot or plan.folds or not _is_wide(plan, plan.updates[0]):
        return False
    (update,) = plan.updates
    if any(edit.op is not Op.DELETE or edit.table != update.table for edit in plan.edits):
        return False
    if len(plan.edits) > MOST_COPIES or any(relying(plan.before, plan.after.master, plan.updates)):
        return False
    state, chain_id = plan.before, (update.table, update.chain)
    own = state.master.table(update.table)[update.chain].rules[update.at :]
    # A malformed packet that the tree drops, as the list did, must be one that the list may drop now.
    if not go_on_alike(state, chain_id, _around(state, own[0]), (own[1:],), (own,)):
        return False
    keeps = writes_nothing(state, chain_id)
    loaded = state.loaded
    for edit in plan.edits:
        ways = _Ways(loaded.table(edit.table), update.chain, keeps, state.settings.prefix)
        found = ways.to(edit.chain)
        if found is None or len(found) > MOST_WAYS:
            return False
        own = ways.table[edit.chain].rules[edit.at :]
        here, region = replace(state, loaded=loaded), _around(state, own[0])
        for rest in map(ways.runs, sorted(found)):
            if not go_on_alike(here, chain_id, region, (own, *rest), (own[1:], *rest)):
                return False
        loaded = apply(loaded, [edit])
    return True


def _around(state: State, rule: Rule) -> Region:
    return Region.around(rule, state.master.family, state.backends)


def _is_wide(plan: Plan, update: Edit) -> bool:
    """Whether *update* deletes a rule near many others, from a list that is one section without memory."""
    chain_id, before = (update.table, update.chain), plan.before
    layout = before.layouts.get(chain_id)
    if update.op is not Op.DELETE or layout is None or layout.shared or len(layout.sections) > 1:
        return False
    index = plan.after.cache.rule_indexes.get((update.table, layout.sections[0].name))
    if index is None:
        return False
    rule = before.master.table(update.table)[update.chain].rules[update.at]
    return len(index.near(_around(before, rule), frozenset())) >= WORTH_TRYING


class _Ways:
    """The ways by which packets come to chains of *table* from chain *root*.

    *keeps*: no rule writes what others test.  Then a rule right behind a call, with the same matches, matches
    all packets that come back from it.
    """

    def __init__(self, table: Table, root: str, keeps: bool, prefix: str) -> None:
        self.table, self.keeps = table, keeps
        self._is_generated = GeneratedNames(prefix).is_generated
        self._known: dict[str, set[Way] | None] = {root: {()}}
        self._ends: dict[str, Rules] = {}
        self._callers: dict[str, list[tuple[str, int, Kind]]] = defaultdict(list)
        for chain in table.chains:
            for row, rule in enumerate(chain.rules):
                if rule.target is not None and rule.target.enters:
                    self._callers[rule.target.name].append((chain.name, row, rule.target.kind))

    def to(self, chain: str) -> set[Way] | None:
        """The ways to *chain*; None if there are too many."""
        if chain not in self._known and not self._is_generated(chain):
            self._known[chain] = {()}  # of another list; what follows is unknown
        if chain not in self._known:
            self._known[chain] = None  # chains do not jump in a circle
            found: set[Way] = set()
            for caller, row, kind in self._callers[chain]:
                ways = self._behind(caller, row, kind)
                if ways is None:
                    return None
                found |= ways
                if len(found) > MOST_WAYS:
                    return None
            self._known[chain] = found
        return self._known[chain]

    def _behind(self, caller: str, row: int, kind: Kind) -> set[Way] | None:
        """The ways of the packets that the rule in this row leads to another chain."""
        end = self._end(caller, row) if kind is Kind.JUMP else None
        if end is not None:
            return {((end, -1),)}
        above = self.to(caller)
        if above is None or kind is Kind.GOTO:
            return above
        return {((caller, row + 1), *way) for way in above}

    def _end(self, caller: str, row: int) -> str | None:
        """The key of the target that decides about all packets which come back from a call, if known."""
        call, *following = self.table[caller].rules[row : row + 2]
        if not (following and self.keeps and call.matches):
            return None
        (rule,) = following
        is_same = [match.key for match in call.matches] == [match.key for match in rule.matches]
        is_constant = all(match.role in (Role.SPACE, Role.CONSTANT) for match in call.matches)
        if rule.target is None or not (rule.is_final and is_same and is_constant):
            return None
        self._ends[rule.target.key] = (Rule((), rule.target),)
        return rule.target.key

    def runs(self, way: Way) -> list[Rules]:
        """What packets read behind the calls of *way*."""
        return [self._ends[name] if row < 0 else self.table[name].rules[row:] for name, row in way]

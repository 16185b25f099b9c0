"""Compile one table: each chain gets the cheapest tree that was found, or stays as it is for a stated reason.

What a chain does may be written as several lists, of which that with the cheapest plan (list_planner.py) is
printed.  Chains are compiled in order of length, because they share the nesting that the backend allows.

Invariant: a chain whose report gives a reason (*why*) is printed without a tree.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from ..analyse.callgraph import graph
from ..analyse.redundancy import WHY_TEXT, Why, simplify
from ..analyse.weights import Weights
from ..build.expected_cost import means
from ..build.grow import SIZE_PENALTY, grow
from ..costs.tree_prices import Priced
from ..emit.sourcemap import Gone
from ..errors import HitablesError
from ..ir.foreign import is_foreign
from ..ir.program import Chain, Program, Table
from ..ir.rule import Rule
from .hot import HotSearch
from .hot_costs import HotCosts
from .list_planner import ListPlanner
from .options import NESTING, NOT_ASKED, Options
from .plans import List, ListPlan
from .result import ChainFault, ChainReport, left_alone
from .rooms import Rooms, nesting_kept
from .runs import jumps_to_others

Floats = npt.NDArray[np.float64]

# A table of more rules is compiled once, even if its chains could share the nesting better.
MOST_AGAIN = 10_000
# Chains of more rules are not compared with others that have no tree.
MOST_ALIKE = 64


class TableCompiler:
    """Compiles the chains of one table.

    keep   ids of rules that must stay though no verdict depends on them
    tell   is called with the number of rules of each chain that is finished
    spare  a fault of hitables leaves the chain as it is, instead of raising
    rooms  how deep trees may nest; None: something is kept for each, and the longest chains take the rest
    first  the compiler of a first pass: a chain for which it grew no tree gets none here
    """

    def __init__(
        self,
        program: Program,
        table: Table,
        options: Options,
        keep: frozenset[int],
        tell: Callable[[int], None],
        spare: bool,
        rooms: Rooms | None = None,
        first: TableCompiler | None = None,
    ) -> None:
        self.first = first
        self.program, self.family = program, program.family
        self.table, self.options, self.tell = table, options, tell
        self.spare = spare
        self.faults: list[ChainFault] = []
        self.graph = graph(table)
        self.rooms = rooms or self.rooms_kept()
        self.planner = ListPlanner(table, self.family, options, self.rooms)
        self.names, self.grower = self.planner.names, self.planner.grower
        self.trees = self.grower.trees
        self.written: dict[str, tuple[Chain, list[Chain]]] = {}
        # By what chains alike have in common: the most room of one that got no tree, and why.
        self.no_trees: dict[Hashable, tuple[int, str]] = {}
        self.reports: dict[str, ChainReport] = {}
        self.gone: list[Gone] = []
        self.keep = keep

    def why_not(self, chain: Chain) -> str:
        """Why *chain* is not compiled; "" when it is tried."""
        options = self.options
        if (self.table.name, chain.name) in options.unchanged:
            return options.unchanged[self.table.name, chain.name]
        if options.tables and self.table.name not in options.tables:
            return NOT_ASKED
        if options.chains and chain.name not in options.chains:
            return NOT_ASKED
        if len(chain.rules) < options.min_length:
            return f"short: fewer than {options.min_length} rules"
        return ""

    def rooms_kept(self) -> Rooms:
        """Rooms of which `nesting_kept` is kept for each chain that is tried."""
        limit, most = NESTING[self.options.backend], self.options.max_depth
        kept = {
            chain.name: min(nesting_kept(len(chain.rules)), most or limit)
            for chain in self.table.chains
            if not self.why_not(chain)
        }
        return Rooms(self.graph.callees, limit, most, kept)

    def again(self) -> TableCompiler:
        """The cheaper of this compiler and one that shares the nesting of trees otherwise; both have run."""
        many = [
            name
            for name, report in self.reports.items()
            if not report.why and not self.trees.is_few(report.read_after, self.table[name].rules)
        ]
        rooms = self.rooms.shared_anew(many) if self.table.rule_count() <= MOST_AGAIN else None
        if rooms is None:
            return self
        other = TableCompiler(
            self.program, self.table, self.options, self.keep, lambda rules: None, self.spare, rooms, self
        )
        left = {name for name, report in self.reports.items() if report.why}
        other.faults += [each for each in self.faults if each.chain in left]
        other.gone += [each for each in self.gone if each.chain in left]
        other.run()
        return other if other.cost() < self.cost() else self

    def cost(self) -> float:
        """Rules read by a packet of each rule, in its chain, and what the printed rules count for."""
        total = 0.0
        for chain in self.table.chains:
            report, count = self.reports[chain.name], len(chain.rules)
            read = report.read_after if report.ns_after else (count + 1) / 2
            total += count * read + SIZE_PENALTY * report.after
        return total

    def compile(self, chain: Chain) -> None:
        """Compile the chain; with *spare*, leave it as it is when an unexpected exception ends that."""
        names, gone = self.names.count, len(self.gone)
        try:
            self.compile_chain(chain)
        except Exception as error:
            # Errors in the rules, and lack of memory or stack, are not faults of hitables.
            if not self.spare or isinstance(error, (HitablesError, MemoryError, RecursionError)):
                raise
            self.names.count = names
            del self.gone[gone:]
            self.rooms.take(chain.name, 0)
            message = traceback.format_exception_only(error)[-1].strip()
            where = traceback.extract_tb(error.__traceback__)[-1]
            fault = ChainFault(
                self.table.name,
                chain.name,
                f"compiling it broke off ({message})",
                f"in {where.name}, {PurePath(where.filename).name} line {where.lineno}",
            )
            self.faults.append(fault)
            self.written[chain.name] = (chain, [])
            self.reports[chain.name] = left_alone(self.table.name, chain, f"left as it was: {fault.why}")

    def compile_chain(self, chain: Chain) -> None:
        """Compile the chain, and report what was done to it."""
        if self.first is not None and self.first.reports[chain.name].why:
            self.rooms.take(chain.name, 0)
            self.written[chain.name] = self.first.written[chain.name]
            self.reports[chain.name] = self.first.reports[chain.name]
            return
        why, lists = self.why_not(chain), [List(chain, self.weights(chain))]
        is_fixed = why == NOT_ASKED or (self.table.name, chain.name) in self.options.unchanged
        # What others append may tell the end of the chain from a verdict that is the same today.
        if self.options.equivalence == "verdict" and not is_fixed and not self.planner.is_open(chain):
            lists = self.simplified(chain)
            if not why and self.why_not(lists[0].chain):
                stay = len(lists[0].chain.rules)
                why = f"short: {stay} of its rules remain, fewer than {self.options.min_length}"
        if not why:
            why = self.grow_unless_alike(chain, lists)
        if why:
            remaining = lists[0].chain
            self.rooms.take(chain.name, 0)
            self.written[chain.name] = (remaining, [])
            self.reports[chain.name] = left_alone(self.table.name, chain, why, remaining)

    def weights(self, chain: Chain) -> list[float]:
        """The weight of each rule of the chain, 1 on the mean."""
        traffic = self.options.traffic
        return (traffic.of(self.table.name, chain.name) if traffic else []) or [1.0] * len(chain.rules)

    def simplified(self, chain: Chain) -> list[List]:
        """The chain without rules that affect no verdict; then other orders of them that do the same."""
        weights = self.weights(chain)
        if not chain.rules:
            return [List(chain, weights)]
        # Their programs delete them by their texts.
        entering = {id(chain.rules[at]) for at in jumps_to_others(chain.rules, self.options.leave)}
        simplified = simplify(
            chain,
            self.family,
            self.grower.backends,
            self.options.malformed,
            self.grower.writes,
            self.keep | entering,
        )
        self.gone += [
            Gone(self.table.name, chain.name, rule.line, WHY_TEXT[why])
            for rule, why in zip(chain.rules, simplified.why, strict=True)
            if why is not Why.STAYS
        ]
        stay = [at for at, why in enumerate(simplified.why) if why is Why.STAYS]
        mean = sum(weights[at] for at in stay) / max(1, len(stay))
        orders = (stay, *([stay[at] for at in order] for order in simplified.orders))
        lists = []
        for order in orders:
            rules = tuple(chain.rules[at] for at in order)
            own = [weights[at] / mean for at in order]
            is_other = order != list(range(len(chain.rules)))
            lists.append(List(chain.with_rules(rules), own, simplified=is_other))
        return lists

    def grow_unless_alike(self, chain: Chain, lists: Sequence[List]) -> str:
        """`grow`, unless a chain of the same tests had as much room, and was better left as it is.

        A host has such chains by the hundred: one for each guest, which differ in the chains that they enter.
        """
        if len(chain.rules) > MOST_ALIKE:
            return self.grow(chain, lists)
        room = self.rooms.of(chain.name, memory=False, jumps=False)
        alike = chain.policy, tuple(map(self.kind_of, chain.rules)), tuple(self.weights(chain))
        tried = self.no_trees.get(alike)
        if tried is not None and tried[0] >= room:
            return tried[1]
        why = self.grow(chain, lists)
        if why:
            self.no_trees[alike] = room, why
        return why

    def kind_of(self, rule: Rule) -> Hashable:
        """Equal for rules that trees treat alike."""
        target = rule.target
        if target is None or not target.enters:
            return rule.matches, target
        name = target.name
        is_left = is_foreign(name, self.options.leave)
        return rule.matches, target.kind, self.grower.writes.get(name), name in self.grower.deciding, is_left

    def grow(self, chain: Chain, lists: Sequence[List]) -> str:
        """Write the cheapest tree over one of *lists*, which all do what *chain* does.

        The first of them is tried in parts, too.  Returns the reason when the chain is better left as it is,
        else "".
        """
        options, spent_before, names = self.options, self.trees.spent, self.names.count
        best: ListPlan | None = None
        why = ""
        head = self.planner.head(lists[0])
        for each in lists:
            if head and not 0 < self.planner.head(each) <= head:
                continue
            self.names.count = names
            plan = self.planner.plan(each)
            if isinstance(plan, str):
                why = why or plan
            elif best is None or plan.cost < best.cost:
                best = plan
        if len(lists[0].chain.rules) == len(chain.rules):
            best = self.planner.in_parts(lists[0], best, names)
        if best is None:
            self.names.count = names
            return why
        if options.hot and options.traffic is not None:
            best = self.with_hot(chain, best, options.traffic, names)
        self.names.count = best.names
        grown, written = best.grown, best.written
        self.written[chain.name] = (chain.with_rules(written.rules), written.chains)
        self.rooms.take(chain.name, grown.nesting + (1 if best.memory else 0))
        count, stay = len(chain.rules), len(lists[0].chain.rules)
        before, after = grown.total / stay
        if best.hot is not None:
            after = after * best.hot.change
        if stay < count:
            before = self.before(chain)
        (read_before, *ns_before), (read_after, *ns_after) = before.tolist(), after.tolist()
        backends = [backend.value for backend in self.grower.backends]
        self.reports[chain.name] = ChainReport(
            self.table.name,
            chain.name,
            count,
            best.size,
            read_before,
            read_after,
            grown.longest,
            self.rooms.taken(chain.name),
            "",
            self.trees.spent - spent_before,
            dict(zip(backends, ns_before, strict=True)),
            dict(zip(backends, ns_after, strict=True)),
            count - stay,
            len(best.hot.rules) if best.hot else 0,
            best.fixed,
            grown.returns,
            grown.gated,
        )
        return ""

    def with_hot(self, chain: Chain, plan: ListPlan, traffic: Weights, names: int) -> ListPlan:
        """*plan* with the hot rules that pay, grown for the packets that they leave where that is cheaper."""
        place = self.table.name, chain.name
        count_of = dict(zip(map(id, chain.rules), traffic.counts.get(place, ()), strict=False))
        counts = [count_of.get(id(rule), 0.0) for rule in plan.listed.chain.rules]
        search = HotSearch(traffic.packets.get(place), counts, self.options, self.trees.each_backend)

        def best(plan: ListPlan) -> ListPlan:
            of_table = self.grower.costs, self.grower.backends, self.family
            costs = HotCosts(self.table, chain.name, plan.written, plan.fixed, *of_table)
            hot = search.best(plan.grown.segments, costs)
            return plan if hot is None else plan.with_hot(hot)

        first = best(plan)
        if first.hot is None:
            return plan
        left = first.hot.left_of(counts, plan.fixed)
        self.names.count = names
        weights = Weights(traffic.source, {place: tuple(left)}).of(*place)
        again = self.planner.plan(replace(plan.listed, weights=weights))
        if isinstance(again, str):
            return first
        second = best(again)
        if second.hot is None or second.hot.after.sum() >= first.hot.after.sum():
            return first
        # The tree is for the packets that are left; what is reported is for all.
        change = replace(second.hot, before=first.hot.before, read_before=first.hot.read_before)
        return replace(second, grown=replace(second.grown, total=plan.grown.total), hot=change)

    def before(self, chain: Chain) -> Floats:
        """Mean rules read, and mean cost per backend, of packets of the chain's rules before compiling."""
        reader = self.grower.box_reader()
        boxes = reader.boxes(chain.rules, self.grower.writes, self.weights(chain))
        each = self.trees.each_backend(Priced(chain.rules, boxes.axes, self.family))
        # Any tree gives the first rule that matches; this one is built fastest.
        tree = grow(boxes, algorithm="bisect", budget=2 * len(chain.rules))
        return means(boxes, [tree], each)[0, :, 0]

    def run(self) -> None:
        """Compile all chains."""
        # The longest chains first: they gain most from the nesting that is not kept for others.
        for chain in sorted(self.table.chains, key=lambda chain: -len(chain.rules)):
            self.compile(chain)
            self.tell(len(chain.rules))

    def result(self) -> tuple[Table, dict[tuple[str, str], str]]:
        """The compiled table, and the chain that each new chain was made for."""
        old_chains: list[Chain] = []
        new_chains: list[Chain] = []
        origins = {}
        for chain in self.table.chains:
            rewritten, added = self.written.get(chain.name, (chain, []))
            old_chains.append(rewritten)
            new_chains += added
            origins.update({(self.table.name, each.name): chain.name for each in added})
        return replace(self.table, chains=(*old_chains, *new_chains)), origins

"""Compile one table: each chain gets the cheapest tree that was found, or stays as it is for a stated reason.

A chain is cut into segments at rules that must stay in place; each long segment gets a tree.  With
equivalence "verdict" several lists that do what the chain does compete, and the cheapest tree wins.  Chains
are compiled in order of length, because they share the nesting that the backend allows.

Invariant: a chain whose report gives a reason (*why*) is printed without a tree.  Caller: compile.py.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import Boxes, Reorder
from ..analyse.callgraph import deciding, graph, writes
from ..analyse.mark_bits import head_that_writes
from ..analyse.redundancy import WHY_TEXT, Why, simplify
from ..analyse.reorderable import reorderability
from ..analyse.rule_boxes import BoxReader, drops_first, drops_short, lets_short_by, short_dropped
from ..analyse.weights import Weights
from ..analyse.written import behind_rewrites
from ..build.expected_cost import means, read_in_turn
from ..build.grow import SIZE_PENALTY, grow
from ..costs.profile import default
from ..costs.tree_prices import Priced
from ..emit.chain_writer import Names
from ..emit.jumps import Segment, any_memory, read_through_xtables, write_segments
from ..emit.leaf_matches import Forms
from ..emit.sourcemap import Gone
from ..errors import HitablesError
from ..ir.arrangement import Arrangement, arranged
from ..ir.choices import Malformed, backends_of
from ..ir.commuting import CountingChains, regrouped
from ..ir.crossing import Crossing
from ..ir.established import established_head
from ..ir.foreign import appended, is_foreign
from ..ir.program import Chain, Program, Table
from ..ir.rule import Kind, Rule, leaves_chain
from .hot import HotSearch
from .hot_costs import HotCosts
from .options import NESTING, NOT_ASKED, Options
from .plans import Grown, List, Plan
from .policy_returns import by_policy
from .result import ChainReport, Fault, left_alone
from .rooms import Rooms, nesting_kept
from .run_trees import GATED, RunTrees
from .runs import SHORT_BEHIND, Place, Run, jumps_to_others, rules_in_place, runs_of, too_short

Floats = npt.NDArray[np.float64]

# The share by which packets of the rules may cost more where kinds of rules are told apart.
TOLD_SHARE = 0.15
# Why a list has no tree.
REWRITTEN = "its matches or targets that hitables does not know may rewrite what a tree would test"
# A table of more rules is compiled once, even if its chains could share the nesting better.
MOST_AGAIN = 10_000
# Chains of more rules are not compared with others that have no tree.
MOST_ALIKE = 64
# A list is cut behind the last rules that may rewrite what a tree tests; each part costs reads.
MOST_CUTS = 32


def repeated(rules: Sequence[Rule], at: int) -> bool:
    """Whether a later rule has the matches of that at *at*."""
    own = [match.key for match in rules[at].matches]
    return any([match.key for match in rule.matches] == own for rule in rules[at + 1 :])


class TableCompiler:
    """Compiles the chains of one table.

    keep   ids of rules that must stay though no verdict depends on them
    tell   is called with the number of rules of each chain that is finished
    spare  a fault of hitables leaves the chain as it is, instead of raising
    rooms  how deep trees may nest; None: something is kept for each, and the longest chains take the rest
    first  one that has run: chains in which it grew no tree have no more room here, and get none
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
        self.faults: list[Fault] = []
        self.graph = graph(table)
        self.writes = writes(table)
        self.deciding = deciding(table)
        self.counting = CountingChains(table, self.family)
        self.rooms = rooms or self.rooms_kept()
        self.names = Names([chain.name for chain in table.chains])
        self.written: dict[str, tuple[Chain, list[Chain]]] = {}
        # By what chains alike have in common: the most room of one that got no tree, and why.
        self.no_trees: dict[Hashable, tuple[int, str]] = {}
        self.reports: dict[str, ChainReport] = {}
        self.gone: list[Gone] = []
        self.keep = keep
        self.costs = options.costs or default()
        self.backends = backends_of(options.backend)
        self.trees = RunTrees(options, self.family, self.costs, self.backends)
        for backend in self.backends:
            self.costs.of(backend)  # a profile without its figures is an error even if no chain is compiled

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
        """This compiler, which has run; or another that has, if it shares the nesting of trees better."""
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
            fault = Fault(
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
        if self.options.equivalence == "verdict" and not is_fixed and not self.is_open(chain):
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

    def is_open(self, chain: Chain) -> bool:
        """Whether another program appends its jumps to *chain*."""
        return bool(appended(self.table.name, chain, self.options.leave))

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
            chain, self.family, self.backends, self.options.malformed, self.writes, self.keep | entering
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

    def arranged(self, chain: Chain) -> Arrangement | None:
        """How *chain* may be read in parts."""
        found = arranged(chain, self.table, self.family)
        if found is None or self.options.before_jumps:
            return found
        # Rules of one action stand between two jumps, in whichever order.
        kept = range(rules_in_place(chain.rules, self.options.leave))
        return replace(found, order=(*kept, *found.order[len(kept) :]))

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
        return rule.matches, target.kind, self.writes.get(name), name in self.deciding, is_left

    def grow(self, chain: Chain, lists: Sequence[List]) -> str:
        """Write the cheapest tree over one of *lists*, which all do what *chain* does.

        The first of them is tried in parts, too.  Returns the reason when the chain is better left as it is,
        else "".
        """
        options, spent_before, names = self.options, self.trees.spent, self.names.count
        best: Plan | None = None
        why = ""
        head = self.head(lists[0])
        for each in lists:
            if head and not 0 < self.head(each) <= head:
                continue
            self.names.count = names
            plan = self.plan(each)
            if isinstance(plan, str):
                why = why or plan
            elif best is None or plan.cost < best.cost:
                best = plan
        if len(lists[0].chain.rules) == len(chain.rules):
            best = self.in_parts(lists[0], best, names)
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
        backends = [backend.value for backend in self.backends]
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

    def in_parts(self, listed: List, best: Plan | None, names: int) -> Plan | None:
        """*best*, or the plan of the list in parts where that is cheaper."""
        is_good = best is not None and self.trees.is_few(best.read, listed.chain.rules)
        if is_good and regrouped(listed.chain.rules, self.counting) is None:
            return best
        other = self.arranged(listed.chain)
        if other is None or not other.cuts or (best is not None and self.is_planned(best, listed, other)):
            return best
        rules = tuple(listed.chain.rules[at] for at in other.order)
        weights = [listed.weights[at] for at in other.order]
        self.names.count = names
        plan = self.plan(List(listed.chain.with_rules(rules), weights, other))
        if isinstance(plan, str):
            return best
        if best is None or plan.cost < best.cost:
            return plan
        # Packets of none of its rules read far less where kinds are told apart.
        may_cost = (1 + TOLD_SHARE) * best.cost[0]
        return plan if other.crossings and plan.read < best.read and plan.cost[0] < may_cost else best

    def is_planned(self, best: Plan, listed: List, other: Arrangement) -> bool:
        """Whether *best* has the list as *other* arranges it: its head, and one tree over the rest."""
        head, count = self.head(listed), len(listed.chain.rules)
        exact = self.options.malformed is Malformed.EXACT
        return (
            best.fixed == head
            and other.order == tuple(range(count))
            and all(cut == head for cut in other.cuts)
            and other.crossing(head, count, exact=exact) is None
        )

    def crossing(self, listed: List, start: int, end: int) -> Crossing | None:
        """The kinds of the rules of *listed* from *start* to *end*, if they are to be told apart."""
        other = listed.arrangement
        if other is None and (start, end) == (0, len(listed.chain.rules)) and not listed.simplified:
            other = self.arranged(listed.chain)
            other = None if other is None or other.cuts else other
        exact = self.options.malformed is Malformed.EXACT
        return None if other is None else other.crossing(start, end, exact=exact)

    def with_hot(self, chain: Chain, plan: Plan, traffic: Weights, names: int) -> Plan:
        """*plan* with the hot rules that pay, grown for the packets that they leave where that is cheaper."""
        place = self.table.name, chain.name
        count_of = dict(zip(map(id, chain.rules), traffic.counts.get(place, ()), strict=False))
        counts = [count_of.get(id(rule), 0.0) for rule in plan.listed.chain.rules]
        search = HotSearch(traffic.packets.get(place), counts, self.options, self.trees.each_backend)

        def best(plan: Plan) -> Plan:
            of_table = self.costs, self.backends, self.family
            costs = HotCosts(self.table, chain.name, plan.written, plan.fixed, *of_table)
            hot = search.best(plan.grown.segments, costs)
            return plan if hot is None else plan.with_hot(hot)

        first = best(plan)
        if first.hot is None:
            return plan
        left = first.hot.left_of(counts, plan.fixed)
        self.names.count = names
        weights = Weights(traffic.source, {place: tuple(left)}).of(*place)
        again = self.plan(replace(plan.listed, weights=weights))
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
        reader = self.box_reader()
        boxes = reader.boxes(chain.rules, self.writes, self.weights(chain))
        each = self.trees.each_backend(Priced(chain.rules, boxes.axes, self.family))
        # Any tree gives the first rule that matches; this one is built fastest.
        tree = grow(boxes, algorithm="bisect", budget=2 * len(chain.rules))
        return means(boxes, [tree], each)[0, :, 0]

    def plan(self, listed: List) -> Plan | str:
        """The list with trees; or the reason why it is better left as it is.

        Packets of connections, most of the usual traffic, read no tree in front of the rule for them.
        """
        names, head = self.names.count, self.head(listed)
        if (
            0 < head == self.established(listed)
            and not listed.arrangement
            and repeated(listed.chain.rules, head - 1)
        ):
            # Groups have that rule in front, and leave out those that repeat it.
            plan = self.plan_behind(listed, 0)
            if isinstance(plan, str) or plan.in_groups:
                return plan
            self.names.count = names
        plan = self.plan_behind(listed, head)
        rewrites = behind_rewrites(listed.chain.rules, self.writes)[-MOST_CUTS:]
        if not rewrites:
            return plan
        kept, self.names.count = self.names.count, names
        other = self.plan_behind(listed, head, rewrites)
        if isinstance(other, str) or (not isinstance(plan, str) and plan.cost < other.cost):
            self.names.count = kept
            return plan
        return other

    def head(self, listed: List) -> int:
        """How many rules stay in front of the tree.

        Packets of connections read them, which are most where no traffic is given; or they change marks that
        the tree is to test.
        """
        return max(self.established(listed), head_that_writes(listed.chain.rules, self.writes))

    def established(self, listed: List) -> int:
        """Of `head`: those in front that packets of connections read."""
        return established_head(listed.chain.rules) if self.options.traffic is None else 0

    def plan_behind(self, listed: List, head: int, rewrites: Sequence[int] = ()) -> Plan | str:
        """`plan`, of which *head* rules in front stay in the chain; *rewrites*: where it is cut, too."""
        options, chain = self.options, listed.chain
        memory = any_memory(chain.rules)
        rules = by_policy(chain, options)
        cuts = sorted({*listed.cuts, *rewrites})
        calls, is_open = options.before_jumps, self.is_open(chain)
        runs = runs_of(rules, options.leave, options.min_length, calls, cuts, head=head, is_open=is_open)
        long = [run for run in runs if run.place is not Place.CHAIN and len(run.rules) >= options.min_length]
        if not long:
            return SHORT_BEHIND if head else too_short(rules, options.leave, calls, is_open=is_open)
        # A packet leaves a tree before another segment by a jump to that segment; from one that is called it
        # comes back, so that only the call nests.
        rest = [run for run in long if run.place is Place.REST]
        joints = len(rest) - (bool(rest) and runs[-1] is rest[-1])
        jumps = memory and any(r.has_memory and r.target and r.target.kind is Kind.JUMP for r in chain.rules)
        room = self.rooms.of(chain.name, memory=memory, jumps=jumps)
        nesting = {Place.CALLED: room - 1, Place.REST: (room - joints) // max(1, len(rest))}
        if all(nesting[run.place] < 1 for run in long):
            return "nested too deep already for a tree"
        # A printed tree has more rules than it counts (guards, chains for rules with memory).  If these are
        # too many, it is grown again with a smaller budget.  Each further one is smaller by a larger share,
        # because a tree may stay the same when its budget shrinks a little.
        allowed = int(options.max_expansion * len(chain.rules))
        budget, names = allowed, self.names.count
        for attempt in range(8):
            self.names.count = names
            grown = self.segments(listed, runs, nesting, budget)
            if all(segment.tree is None for segment in grown.segments):
                return grown.why
            written = write_segments(grown.segments, self.family, self.names)
            size = len(written.rules) + sum(len(each.rules) for each in written.chains)
            if size <= allowed:
                fixed = len(runs[0].rules) if runs[0].place is Place.CHAIN else 0
                return Plan(listed, grown, written, size, memory, self.names.count, fixed)
            budget -= max(size - allowed, budget * (2**attempt - 1) // 100)
        return f"a tree would need more than {options.max_expansion:g} times its rules"

    def segments(
        self,
        listed: List,
        runs: Sequence[Run],
        nesting: Mapping[Place, int],
        budget: int,
    ) -> Grown:
        """Grow a tree over each long run, with *budget* printed rules for all of them.

        *nesting*: how many chains may nest in a tree, by its place.
        """
        options, weights, given = self.options, listed.weights, listed.chain.rules
        reader = self.box_reader()
        width = 1 + len(self.backends)
        grown = Grown(np.zeros((2, width)), np.zeros((2, width)))
        spare = max(0, budget - len(weights))
        first = called = 0
        for at, (run, place) in enumerate((each.rules, each.place) for each in runs):
            is_called = place is Place.CALLED
            room = nesting.get(place, 0)
            here = slice(first, first + len(run))
            reader.dirty.clear()  # tests of a tree are read behind the rules before it
            boxes = reader.boxes(run, self.writes, weights[here])
            first += len(run)
            ends = bool(boxes.final.any())
            # The trees of groups are called, so RETURN in them returns to the caller.  That is right only
            # in the last segment, where the caller has nothing left to read.
            if at + 1 == len(runs) or not any(map(leaves_chain, run)):
                boxes.reorder[:] = reorderability(run, self.writes, reader)
            if reader.nft:
                boxes.reorder[[read_through_xtables(rule) for rule in run]] |= np.uint8(Reorder.DROPS)
            if (self.table.name, listed.chain.name) in options.careful:
                self.keep_drops(run, boxes)
            tree = None
            if len(run) >= options.min_length and boxes.axes and room >= 1:
                crossing = functools.partial(self.crossing, listed, here.start, here.stop)
                tree, mean, why = self.trees.tree(
                    run, boxes, room, len(run) + spare, int(is_called), crossing
                )
                grown.why = why or grown.why
                if why and len(behind_rewrites(run, self.writes)) > MOST_CUTS:
                    grown.why = REWRITTEN
                grown.gated |= why == GATED
            if tree is not None:
                spare = max(0, spare - tree.printed_rules() + len(run))
                if is_called:
                    called = max(called, tree.nesting() + 1)
                else:
                    grown.nesting += tree.nesting() + (1 if at + 1 < len(runs) else 0)
                longest = tree.longest_read() + is_called
            else:
                position = np.average(np.arange(len(run)) + 1.0, weights=boxes.weight)
                priced = self.trees.in_each_backend(run, boxes)
                in_line = [position, *(read_in_turn(each, boxes.weight) for each in priced)]
                mean, longest = np.array([in_line, in_line]), len(run)
            others_pass = at + 1 < len(runs) or grown.open > 0
            through = self.trees.passing(run, boxes, tree, int(is_called)) if others_pass else None
            grown.add(boxes.weight, mean, longest, through, ends)
            exact = options.malformed is Malformed.EXACT
            patient = (lambda match: not reader.may_drop(match)) if exact else (lambda match: True)
            forms = Forms(
                native=options.backend != "legacy",
                written=frozenset(reader.dirty),
                cost=self.trees.cost_of_miss,
                early=patient,
            )
            # The proof of groups identifies copies of a rule by their text (verify/group_lists.py); with
            # shortened copies fw1_10K is proved in 9 s instead of 0.4 s.
            whole = options.as_written or (tree is not None and tree.in_groups())
            cheaper = None if whole else forms
            stays = tree is None or not (is_called or tree.in_groups() or any_memory(run))
            printed = given[here] if stays else run
            grown.returns += sum(a is not b for a, b in zip(printed, given[here], strict=True))
            careful = (self.table.name, listed.chain.name) in options.careful
            guarded = (
                short_dropped(run) if careful and not exact and options.backend != "nft" else frozenset()
            )
            guards = frozenset(reader.guards)
            segment = Segment(printed, tree, guards, patient, cheaper, is_called, guarded)
            grown.segments.append(segment)
        grown.nesting = max(grown.nesting, called)
        return grown

    def keep_drops(self, run: Sequence[Rule], boxes: Boxes) -> None:
        """Let no rule vanish that drops packets which the rules that hide it let by (Options.careful)."""
        final = compress(run, boxes.final.tolist())
        if self.options.backend != "nft" and any(map(lets_short_by, final)):
            boxes.reorder[[drops_short(rule) for rule in run]] |= np.uint8(Reorder.DROPS)
        drops = boxes.reorder & np.uint8(Reorder.DROPS) > 0
        drops |= np.array([drops_first(rule, self.family) for rule in run], bool)
        boxes.reorder[drops] |= np.uint8(Reorder.KEPT)

    def box_reader(self) -> BoxReader:
        nft = self.options.backend != "legacy"
        return BoxReader(
            self.family,
            nft=nft,
            malformed=self.options.malformed,
            deciding=self.deciding,
            marks=not self.options.hot,  # recorded packets have no mark
        )

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

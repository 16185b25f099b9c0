"""The plan of a list: what stays in front, where it is cut, and how large the trees over its parts may be.

A list is cut into runs at rules that must stay in place (runs.py), at parts (ir/arrangement.py) and behind
rules that may rewrite what a tree tests.  Where it can be cut in two ways, the cheaper plan wins.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..analyse.mark_bits import head_that_writes
from ..analyse.written import behind_rewrites
from ..emit.chain_writer import FreshNames
from ..emit.jumps import any_memory, write_segments
from ..ir.arrangement import Arrangement, arranged
from ..ir.choices import Malformed
from ..ir.commuting import CountingChains, regrouped
from ..ir.crossing import Crossing
from ..ir.established import established_head
from ..ir.fields import Family
from ..ir.foreign import appended
from ..ir.program import Chain, Table
from ..ir.rule import Kind, Rule
from .options import Options
from .plans import List, ListPlan
from .policy_returns import by_policy
from .rooms import Rooms
from .runs import SHORT_BEHIND, Run, RunPlace, rules_in_place, runs_of, too_short
from .segments import MOST_CUTS, SegmentGrower

# The share by which packets of the rules may cost more where kinds of rules are told apart.
TOLD_SHARE = 0.15
# How often the trees of a list are grown anew, as more rules are printed than the options allow.
BUDGETS_TRIED = 8
# A rule of several ports is in a tree at each of them: so many of its ports count as a rule of the list.
PORTS_PER_RULE = 2
# Lists of at most so many rules are planned with and without the room for their ports.
FEW_RULES = 256


def repeated(rules: Sequence[Rule], at: int) -> bool:
    """Whether a later rule has the matches of that at *at*."""
    own = [match.key for match in rules[at].matches]
    return any([match.key for match in rule.matches] == own for rule in rules[at + 1 :])


def port_ranges(rule: Rule) -> int:
    """How many ports and ranges of ports a rule with `-m multiport` is for; 0: it has no such match."""
    return sum(
        len(test.values.pairs)
        for match in rule.matches
        if match.name == "multiport" and "!" not in match.words
        for test in match.tests
    )


def rules_counted(rules: Sequence[Rule]) -> int:
    """As how many rules the list counts for `Options.max_expansion`."""
    return sum(max(1, port_ranges(rule) // PORTS_PER_RULE) for rule in rules)


class ListPlanner:
    """Plans the lists of one table, in the nesting that *rooms* leaves; *names* are those of new chains.

    A plan that is not used must be followed by a reset of `names.count`.
    """

    def __init__(self, table: Table, family: Family, options: Options, rooms: Rooms) -> None:
        self.table, self.family, self.options, self.rooms = table, family, options, rooms
        self.names = FreshNames([chain.name for chain in table.chains])
        self.counting = CountingChains(table, family)
        self.grower = SegmentGrower(table, family, options)
        self._budgets: dict[tuple[str, int], list[int]] = {}

    def plan(self, listed: List) -> ListPlan | str:
        """The cheapest plan of the list; or the reason why it is better left as it is.

        Its trees begin behind the `head`.  Where later rules repeat the last rule of the head, a plan in
        groups from the first rule on is taken if there is one.  Where rules may rewrite what a tree tests, a
        plan that is cut behind them competes.
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
        rewrites = behind_rewrites(listed.chain.rules, self.grower.writes)[-MOST_CUTS:]
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

        Those up to the rule that decides packets of established connections, which are most packets where no
        traffic is given; and those that change marks which the tree tests.
        """
        return max(self.established(listed), head_that_writes(listed.chain.rules, self.grower.writes))

    def established(self, listed: List) -> int:
        """Of `head`: the rules up to the one that decides packets of established connections."""
        return established_head(listed.chain.rules) if self.options.traffic is None else 0

    def plan_behind(self, listed: List, head: int, rewrites: Sequence[int] = ()) -> ListPlan | str:
        """`plan`, of which *head* rules in front stay in the chain; *rewrites*: where it is cut, too."""
        options, chain = self.options, listed.chain
        memory = any_memory(chain.rules)
        rules = by_policy(chain, options)
        cuts = sorted({*listed.cuts, *rewrites})
        calls, is_open = options.before_jumps, self.is_open(chain)
        runs = runs_of(rules, options.leave, options.min_length, calls, cuts, head=head, is_open=is_open)
        long = [
            run for run in runs if run.place is not RunPlace.CHAIN and len(run.rules) >= options.min_length
        ]
        if not long:
            return SHORT_BEHIND if head else too_short(rules, options.leave, calls, is_open=is_open)
        # A packet leaves a tree before another segment by a jump to that segment; from one that is called it
        # comes back, so that only the call nests.
        rest = [run for run in long if run.place is RunPlace.REST]
        joints = len(rest) - (bool(rest) and runs[-1] is rest[-1])
        jumps = memory and any(r.has_memory and r.target and r.target.kind is Kind.JUMP for r in chain.rules)
        room = self.rooms.of(chain.name, memory=memory, jumps=jumps)
        nesting = {RunPlace.CALLED: room - 1, RunPlace.REST: (room - joints) // max(1, len(rest))}
        if all(nesting[run.place] < 1 for run in long):
            return "nested too deep already for a tree"
        names = self.names.count
        plan, *others = [
            self.plan_within(listed, runs, nesting, allowed, names, memory=memory)
            for allowed in self.budgets(chain)
        ]
        for other in others:
            if not isinstance(other, str) and (
                isinstance(plan, str) or (other.read < plan.read and other.cost < plan.cost)
            ):
                plan = other
        self.names.count = names if isinstance(plan, str) else plan.names
        return plan

    def budgets(self, chain: Chain) -> list[int]:
        """The most rules that may be printed for *chain*, in whichever order it has its rules.

        A short list with rules of several ports has two, for more room may lead to the dearer tree.
        """
        key = chain.name, len(chain.rules)
        if key not in self._budgets:
            counts = [len(chain.rules), rules_counted(chain.rules)]
            counts = sorted(set(counts)) if len(chain.rules) <= FEW_RULES else counts[1:]
            self._budgets[key] = [int(self.options.max_expansion * count) for count in counts]
        return self._budgets[key]

    def plan_within(
        self,
        listed: List,
        runs: Sequence[Run],
        nesting: Mapping[RunPlace, int],
        allowed: int,
        names: int,
        *,
        memory: bool,
    ) -> ListPlan | str:
        """`plan_behind`, for the list in *runs*, with at most so much *nesting*, so many rules *allowed*.

        *names*: the number of names used before.
        """
        # A printed tree has more rules than it counts (guards, chains for rules with memory).  If these are
        # too many, it is grown again with a smaller budget.  Each further one is smaller by a larger share,
        # because a tree may stay the same when its budget shrinks a little.
        budget = allowed
        crossing = functools.partial(self.crossing, listed)
        for attempt in range(BUDGETS_TRIED):
            self.names.count = names
            grown = self.grower.grow(listed, runs, nesting, budget, crossing)
            if all(segment.tree is None for segment in grown.segments):
                return grown.why
            written = write_segments(grown.segments, self.family, self.names)
            size = len(written.rules) + sum(len(each.rules) for each in written.chains)
            if size <= allowed:
                fixed = len(runs[0].rules) if runs[0].place is RunPlace.CHAIN else 0
                return ListPlan(listed, grown, written, size, memory, self.names.count, fixed)
            budget -= max(size - allowed, budget * (2**attempt - 1) // 100)
        return f"a tree would need more than {self.options.max_expansion:g} times its rules"

    def is_open(self, chain: Chain) -> bool:
        """Whether another program appends its jumps to *chain*."""
        return bool(appended(self.table.name, chain, self.options.leave))

    def in_parts(self, listed: List, best: ListPlan | None, names: int) -> ListPlan | None:
        """*best*, or the plan of the list in parts where that is cheaper."""
        is_good = best is not None and self.grower.trees.is_few(best.read, listed.chain.rules)
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

    def is_planned(self, best: ListPlan, listed: List, other: Arrangement) -> bool:
        """Whether *best* has the list as *other* arranges it: its head, and one tree over the rest."""
        head, count = self.head(listed), len(listed.chain.rules)
        exact = self.options.malformed is Malformed.EXACT
        return (
            best.fixed == head
            and other.order == tuple(range(count))
            and all(cut == head for cut in other.cuts)
            and other.crossing(head, count, exact=exact) is None
        )

    def arranged(self, chain: Chain) -> Arrangement | None:
        """How *chain* may be read in parts."""
        found = arranged(chain, self.table, self.family)
        if found is None or self.options.before_jumps:
            return found
        # Rules of one action stand between two jumps, in whichever order.
        kept = range(rules_in_place(chain.rules, self.options.leave))
        return replace(found, order=(*kept, *found.order[len(kept) :]))

    def crossing(self, listed: List, start: int, end: int) -> Crossing | None:
        """The kinds of the rules of *listed* from *start* to *end*, if they are to be told apart."""
        other = listed.arrangement
        if other is None and (start, end) == (0, len(listed.chain.rules)) and not listed.simplified:
            other = self.arranged(listed.chain)
            other = None if other is None or other.cuts else other
        exact = self.options.malformed is Malformed.EXACT
        return None if other is None else other.crossing(start, end, exact=exact)

"""Compile a program: long chains become trees of jumps, the rest stays.

Text in, text out is the work of pipeline.py; here a Program becomes a Program,
with a report of what was done to each chain and why.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import Boxes, Free, Prices
from ..analyse.callgraph import check_loops, graph, levels, writes
from ..analyse.redundancy import Why, simplify
from ..analyse.reorderable import freedom
from ..analyse.rule_boxes import Sides, as_boxes
from ..analyse.weights import Weights
from ..build.expected_cost import read_in_turn, rules_read, spent
from ..build.tree import ALGORITHMS, EFFORTS, Tree, grow
from ..costs.profile import Costs, default
from ..costs.tree_prices import Priced, nanoseconds, prices
from ..emit.chain_writer import Names, Planted
from ..emit.jumps import Segment, any_memory, has_memory, leaves_chain, plant, read_through_xtables
from ..emit.leaf_matches import Forms
from ..emit.sourcemap import Gone
from ..errors import HitablesError, InvalidOption, UnknownName
from ..ir.choices import BackendChoice, Equivalence, Malformed, backend_choice, backends_of, choose
from ..ir.program import Chain, Program, Table
from ..ir.rule import EVERYTHING, Kind, Match, Rule, State
from ..parse.named_memory import FIRST

Floats = npt.NDArray[np.float64]

# iptables-nft takes 15 nested user chains and no more ("Too many links"); legacy
# took 5,000, and a tree never needs so many.
NESTING = {"any": 15, "nft": 15, "legacy": 200}

NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile.

    backend        the iptables that loads the result; "any": right and loadable in both
    algorithm      one of build.tree.ALGORITHMS
    leaf_size      rules that a leaf may hold before it is split (binth); auto finds that by itself
    min_length     chains of fewer rules stay as they are
    max_expansion  rules printed over rules read, per chain, at most
    max_depth      chains that nest below a compiled one, at most; None: as many as the backend takes
    effort         one of build.tree.EFFORTS
    costs          what reading rules costs; None: the shipped profile
    traffic        how much each rule weighs; None: all alike
    unequal_cuts   scheme paper: cut between rules, not in equal parts
    equivalence    full: every rule stays; verdict: rules that change no verdict are removed
    as_written     rules keep all matches in their order, so a copy can be told by what it says
    tables, chains only these (empty: all)
    """

    backend: BackendChoice = "any"
    malformed: Malformed = Malformed.STRICTER
    algorithm: str = "auto"
    leaf_size: int = 8
    spfac: float = 4.0
    min_length: int = 8
    max_expansion: float = 4.0
    max_depth: int | None = None
    effort: str = "normal"
    costs: Costs | None = None
    traffic: Weights | None = None
    unequal_cuts: bool = False
    equivalence: Equivalence = Equivalence.FULL
    as_written: bool = False
    tables: frozenset[str] = frozenset()
    chains: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        # The enums are strings: callers may write the words.
        object.__setattr__(self, "backend", backend_choice(self.backend))
        object.__setattr__(self, "malformed", choose(Malformed, self.malformed))
        object.__setattr__(self, "equivalence", choose(Equivalence, self.equivalence))
        if self.algorithm not in ALGORITHMS:
            raise InvalidOption(
                f"no tree builder is called {self.algorithm!r}; there are {', '.join(ALGORITHMS)}"
            )
        if self.max_expansion < 1:
            raise InvalidOption(
                f"a max-expansion of {self.max_expansion} is below 1: no tree is smaller than its list"
            )
        if not self.max_expansion < inf or not 1 <= self.spfac < inf:
            raise InvalidOption("max-expansion and spfac are numbers from 1, and not infinite")
        if self.max_depth is not None and self.max_depth < 1:
            raise InvalidOption(f"a max-depth of {self.max_depth} is below 1: every tree nests one chain")
        if self.effort not in EFFORTS:
            raise InvalidOption(f"unknown effort {self.effort!r}; there are {', '.join(EFFORTS)}")
        if self.leaf_size < 1 or self.min_length < 1:
            raise InvalidOption("binth and min-length are at least 1")


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What was done to one chain.

    before, after   rules in the chain; rules of it and of the chains made for it
    read_before, read_after   mean rules read, each rule's packets weighing as the rule does
    ns_before, ns_after       what that costs by the model, per backend that it was compiled for, by name
    longest         most rules that a packet can read in the tree
    nesting         most chains nested below it
    built           CPU seconds that building its trees took
    why             why it got no tree; "" when it was compiled
    gone            rules that went, as no verdict depends on them
    """

    table: str
    chain: str
    before: int
    after: int
    read_before: float
    read_after: float
    longest: int
    nesting: int
    why: str
    built: float = 0.0
    ns_before: Mapping[str, float] = field(default_factory=dict)
    ns_after: Mapping[str, float] = field(default_factory=dict)
    gone: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A chain that is left as it was because of a fault in hitables.

    why     one line
    detail  what tells the fault, in lines: a packet and its ways, or where the program broke off
    """

    table: str
    chain: str
    why: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The new program, the origin of each chain made for it, the reports, the rules that went, the faults."""

    program: Program
    origins: dict[tuple[str, str], str] = field(default_factory=dict)
    reports: tuple[ChainReport, ...] = ()
    gone: tuple[Gone, ...] = ()
    faults: tuple[Fault, ...] = ()

    def changed(self) -> list[tuple[str, str]]:
        """Table and name of each chain that has a tree now, or lost rules."""
        return [(each.table, each.chain) for each in self.reports if not each.why or each.gone]

    def leaving(self, source: Program, fault: Fault) -> Compiled:
        """The same, with the fault's chain as it is in *source*, and without the chains made for it."""
        place = fault.table, fault.chain
        before = source.table(fault.table)[fault.chain]
        made = {name for (table, name), chain in self.origins.items() if (table, chain) == place}
        tables = []
        for table in self.program:
            if table.name == fault.table:
                kept = (each for each in table.chains if each.name not in made)
                table = replace(
                    table, chains=tuple(before if each.name == fault.chain else each for each in kept)
                )
            tables.append(table)
        return Compiled(
            replace(self.program, tables=tuple(tables)),
            {key: chain for key, chain in self.origins.items() if (key[0], chain) != place},
            tuple(
                _left_alone(each.table, before, f"left as it was: {fault.why}")
                if (each.table, each.chain) == place
                else each
                for each in self.reports
            ),
            tuple(each for each in self.gone if (each.table, each.chain) != place),
            (*self.faults, fault),
        )


def _left_alone(table: str, chain: Chain, why: str, left: Chain | None = None) -> ChainReport:
    """The report of a chain without a tree; *left*: what is left of it when rules went."""
    count, stay = len(chain.rules), len((left or chain).rules)
    return ChainReport(table, chain.name, count, stay, 0.0, 0.0, stay, 0, why, gone=count - stay)


def _cut_into_segments(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Cut before and behind each rule that has memory and leaves the chain.

    Such a rule can neither be copied nor be entered by -j.
    """
    if not any_memory(rules):
        return [list(rules)] if rules else []
    runs: list[list[Rule]] = [[]]
    for rule in rules:
        if has_memory(rule) and leaves_chain(rule):
            runs += [[rule], []]
        else:
            runs[-1].append(rule)
    return [run for run in runs if run]


@dataclass(slots=True)
class _Grown:
    """A chain's segments, and what packets of their rules read: before, after.

    Columns are rules read, then nanoseconds in each backend.

    total    summed over the rules of the segments so far, by their weights
    passing  of a packet that comes through all segments so far; after: at most
    nesting  chains that nest
    why      why there is no tree
    """

    total: Floats
    passing: Floats
    segments: list[Segment] = field(default_factory=list)
    nesting: int = 0
    why: str = "its rules test nothing that a tree could tell packets apart by"

    def add(self, weight: Floats, mean: Floats, longest: int) -> None:
        """Count in a segment of rules of *weight* whose packets read *mean*; afterwards *longest* at most."""
        self.total += (self.passing + mean) * weight.sum()
        self.passing += mean * (np.array([[len(weight)], [longest]]) / mean[:, :1])


@dataclass(frozen=True, slots=True)
class _List:
    """Rules that do what a chain does, and how much each weighs."""

    chain: Chain
    weights: list[float]


@dataclass(slots=True)
class _Planned:
    """A tree as it would be printed; *names*: how many were given then."""

    grown: _Grown
    planted: Planted
    size: int
    memory: bool
    names: int

    @property
    def cost(self) -> tuple[float, int]:
        """Nanoseconds of the packets of all rules, backends alike; rules printed."""
        return float(self.grown.total[1, 1:].sum()), self.size


class _TableCompiler:
    def __init__(
        self,
        program: Program,
        table: Table,
        options: Options,
        keep: frozenset[int],
        tell: Callable[[int], None],
        spare: bool,
    ) -> None:
        self.family, self.table, self.options, self.tell = program.family, table, options, tell
        self.spare = spare
        self.faults: list[Fault] = []
        self.graph = graph(table)
        self.writes = writes(table)
        self.nesting: dict[str, int] = {}
        self.names = Names([chain.name for chain in table.chains])
        self.planted: dict[str, tuple[Chain, list[Chain]]] = {}
        self.reports: dict[str, ChainReport] = {}
        self.gone: list[Gone] = []
        self.keep = keep
        self.spent = 0.0
        self.costs = options.costs or default()
        self.backends = backends_of(options.backend)
        for backend in self.backends:
            self.costs.of(backend)  # a profile that says nothing about it is refused whatever there is to do

    def wanted(self, chain: Chain) -> str:
        """Why *chain* is not even tried; "" when it is."""
        options = self.options
        if options.tables and self.table.name not in options.tables:
            return NOT_ASKED
        if options.chains and chain.name not in options.chains:
            return NOT_ASKED
        if len(chain.rules) < options.min_length:
            return f"short: fewer than {options.min_length} rules"
        return ""

    def room(self, chain: Chain, memory: bool) -> int:
        """How many chains may still nest in a tree over *chain*."""
        above, below = levels(self.graph, self.nesting)
        jumps = memory and any(has_memory(r) and r.target and r.target.kind is Kind.JUMP for r in chain.rules)
        down = max(below[chain.name] + (1 if jumps else 0), 1 if memory else 0)
        room = NESTING[self.options.backend] - above[chain.name] - down
        depth = self.options.max_depth
        return room if depth is None else min(room, depth - memory)

    def compile(self, chain: Chain) -> None:
        """Compile the chain; where that breaks off and faults are to be spared, leave it as it is."""
        names, gone = self.names.count, len(self.gone)
        try:
            self.compile_chain(chain)
        except Exception as error:
            # What the rules or the machine are to blame for is no fault of the program.
            if not self.spare or isinstance(error, (HitablesError, MemoryError, RecursionError)):
                raise
            self.names.count = names
            del self.gone[gone:]
            self.nesting.pop(chain.name, None)
            said = traceback.format_exception_only(error)[-1].strip()
            where = traceback.extract_tb(error.__traceback__)[-1]
            fault = Fault(
                self.table.name,
                chain.name,
                f"compiling it broke off ({said})",
                f"in {where.name}, {PurePath(where.filename).name} line {where.lineno}",
            )
            self.faults.append(fault)
            self.planted[chain.name] = (chain, [])
            self.reports[chain.name] = _left_alone(self.table.name, chain, f"left as it was: {fault.why}")

    def compile_chain(self, chain: Chain) -> None:
        why, lists = self.wanted(chain), [_List(chain, self.weights(chain))]
        if self.options.equivalence is Equivalence.VERDICT and why != NOT_ASKED:
            lists = self.simplified(chain)
            why = why or self.wanted(lists[0].chain)
        if not why:
            why = self.grow(chain, lists)
        if why:
            left = lists[0].chain
            self.planted[chain.name] = (left, [])
            self.reports[chain.name] = _left_alone(self.table.name, chain, why, left)

    def weights(self, chain: Chain) -> list[float]:
        """How much each rule of the chain weighs, 1 on the mean."""
        traffic = self.options.traffic
        return (traffic.of(self.table.name, chain.name) if traffic else []) or [1.0] * len(chain.rules)

    def simplified(self, chain: Chain) -> list[_List]:
        """The chain without the rules that no verdict depends on; then in other orders that do the same."""
        weights = self.weights(chain)
        if not chain.rules:
            return [_List(chain, weights)]
        found = simplify(chain, self.family, self.backends, self.options.malformed, self.writes, self.keep)
        self.gone += [
            Gone(self.table.name, chain.name, rule.line, why.said)
            for rule, why in zip(chain.rules, found.why, strict=True)
            if why is not Why.STAYS
        ]
        stay = [at for at, why in enumerate(found.why) if why is Why.STAYS]
        mean = sum(weights[at] for at in stay) / max(1, len(stay))
        orders = (stay, *([stay[at] for at in order] for order in found.orders))
        lists = []
        for order in orders:
            rules = tuple(chain.rules[at] for at in order)
            lists.append(_List(chain.with_rules(rules), [weights[at] / mean for at in order]))
        return lists

    def grow(self, chain: Chain, lists: Sequence[_List]) -> str:
        """Plant the cheapest tree over one of *lists*, which all do what *chain* does.

        Gives the reason when the chain is better left alone.
        """
        began, names = self.spent, self.names.count
        best: _Planned | None = None
        why = ""
        for each in lists:
            self.names.count = names
            planned = self.plan(each)
            if isinstance(planned, str):
                why = why or planned
            elif best is None or planned.cost < best.cost:
                best = planned
        if best is None:
            self.names.count = names
            return why
        self.names.count = best.names
        grown, planted = best.grown, best.planted
        self.planted[chain.name] = (chain.with_rules(planted.rules), planted.chains)
        self.nesting[chain.name] = grown.nesting + (1 if best.memory else 0)
        count, stay = len(chain.rules), len(lists[0].chain.rules)
        before, after = grown.total / stay
        if stay < count:
            before = self.before(chain)
        (read, *spent_before), (reads, *spent_after) = before.tolist(), after.tolist()
        known = [backend.value for backend in self.backends]
        self.reports[chain.name] = ChainReport(
            self.table.name,
            chain.name,
            count,
            best.size,
            read,
            reads,
            int(grown.passing[1, 0]),
            self.nesting[chain.name],
            "",
            self.spent - began,
            dict(zip(known, spent_before, strict=True)),
            dict(zip(known, spent_after, strict=True)),
            count - stay,
        )
        return ""

    def before(self, chain: Chain) -> Floats:
        """What a packet of a rule of the chain reads and costs on the mean, as the chain is."""
        sides = Sides(self.family, nft=self.options.backend != "legacy", malformed=self.options.malformed)
        boxes = as_boxes(sides.sides(chain.rules, self.writes), self.family, self.weights(chain))
        each = self.each_backend(Priced(chain.rules, boxes.axes, self.family))
        # Any tree tells which rule is the first that matches; this one is built quickest.
        tree = grow(boxes, algorithm="bisect", budget=2 * len(chain.rules))
        return np.array([way[0] for way in (rules_read(boxes, tree), *spent(boxes, tree, each))])

    def plan(self, listed: _List) -> _Planned | str:
        """A tree over the list; or why it is better left alone."""
        options, chain = self.options, listed.chain
        memory = any_memory(chain.rules)
        runs = _cut_into_segments(chain.rules)
        long_runs = sum(len(run) >= options.min_length for run in runs)
        if not long_runs:
            return "its rules with memory that leave the chain stand too close"
        # A tree that something follows is left by a jump to it.
        joints = sum(len(run) >= options.min_length for run in runs[:-1])
        nesting = (self.room(chain, memory) - joints) // long_runs
        if nesting < 1:
            return "nested too deep already for a tree"
        # What a tree needs besides its own rules (guards, chains for rules with memory) is
        # known once it is printed: then it is grown again for less.
        allowed = int(options.max_expansion * len(chain.rules))
        budget, names = allowed, self.names.count
        for _ in range(4):
            self.names.count = names
            grown = self.segments(listed.weights, runs, nesting, budget)
            if all(segment.tree is None for segment in grown.segments):
                return grown.why
            planted = plant(grown.segments, self.family, self.names)
            size = len(planted.rules) + sum(len(made.rules) for made in planted.chains)
            if size <= allowed:
                return _Planned(grown, planted, size, memory, self.names.count)
            budget -= size - allowed
        return f"a tree would need more than {options.max_expansion:g} times its rules"

    def segments(self, weights: Sequence[float], runs: list[list[Rule]], nesting: int, budget: int) -> _Grown:
        """Grow a tree over each long run, with *budget* printed rules for all of them."""
        options = self.options
        sides = Sides(self.family, nft=options.backend != "legacy", malformed=options.malformed)
        width = 1 + len(self.backends)
        grown = _Grown(np.zeros((2, width)), np.zeros((2, width)))
        spare = max(0, budget - len(weights))
        first = 0
        for at, run in enumerate(runs):
            boxes = as_boxes(sides.sides(run, self.writes), self.family, weights[first : first + len(run)])
            first += len(run)
            # Trees of groups are called and come back; RETURN would come back there, too, and
            # only behind the last segment is that where it went.
            if at + 1 == len(runs) or not any(map(leaves_chain, run)):
                boxes.free[:] = freedom(run, self.writes, sides)
            if sides.nft:
                boxes.free[[read_through_xtables(rule) for rule in run]] |= np.uint8(Free.DROPS)
            tree = None
            if len(run) >= options.min_length and boxes.axes:
                tree, mean, why = self.tree(run, boxes, nesting, len(run) + spare)
                grown.why = why or grown.why
            if tree is not None:
                spare = max(0, spare - tree.printed_rules() + len(run))
                grown.nesting += tree.nesting() + (1 if at + 1 < len(runs) else 0)
                grown.add(boxes.weight, mean, tree.longest_read())
            else:
                place = np.average(np.arange(len(run)) + 1.0, weights=boxes.weight)
                priced = self.each_backend(Priced(run, boxes.axes, self.family))
                listed = [place, *(read_in_turn(each, boxes.weight) for each in priced)]
                grown.add(boxes.weight, np.array([listed, listed]), len(run))
            exact = options.malformed is Malformed.EXACT
            patient = (lambda match: not sides.may_drop(match)) if exact else (lambda match: True)
            forms = Forms(
                native=options.backend != "legacy",
                written=frozenset(sides.dirty),
                cost=self.cost_in_vain,
                early=patient,
            )
            # Groups are proved list by list, and whose copy a rule is is read off its text
            # (verify/group_lists.py): shortened, fw1_10K is proved in 9 s instead of 0.4.
            whole = options.as_written or (tree is not None and tree.in_groups())
            cheaper = None if whole else forms
            grown.segments.append(Segment(run, tree, frozenset(sides.guards), patient, cheaper))
        return grown

    def cost_in_vain(self, match: Match) -> float:
        """What asking the match costs a packet that it does not let through."""
        return sum(self.costs.match(match, backend, self.family).miss for backend in self.backends)

    def tree(
        self, run: Sequence[Rule], boxes: Boxes, nesting: int, budget: int
    ) -> tuple[Tree | None, Floats, str]:
        """A tree over *run*, and what its packets read before and after; or None, and why."""
        options = self.options
        priced = Priced(run, boxes.axes, self.family)
        boxes.prices = prices(priced, self.costs, self.backends)
        started = time.process_time()
        tree = grow(
            boxes,
            algorithm=options.algorithm,
            leaf_size=options.leaf_size,
            spfac=options.spfac,
            max_nesting=nesting,
            budget=budget,
            effort=options.effort,
        )
        self.spent += time.process_time() - started
        ways = [rules_read(boxes, tree), *spent(boxes, tree, self.each_backend(priced))]
        read, reads = ways[0]
        why = "" if reads < read else "a tree would not read fewer rules"
        for backend, (before, after) in zip(self.backends, ways[1:], strict=True):
            if not why and after >= before:
                why = f"a tree would not cost less: {after:.0f} ns in {backend.value}, the list {before:.0f}"
        return None if why else tree, np.array(ways).T, why

    def each_backend(self, priced: Priced) -> list[Prices]:
        return [nanoseconds(priced, self.costs, each) for each in self.backends]

    def run(self) -> tuple[Table, dict[tuple[str, str], str]]:
        # The longest chains first: where nesting is scarce they gain most from it.
        for chain in sorted(self.table.chains, key=lambda chain: -len(chain.rules)):
            self.compile(chain)
            self.tell(len(chain.rules))
        chains: list[Chain] = []
        made: list[Chain] = []
        origins = {}
        for chain in self.table.chains:
            kept, new = self.planted.get(chain.name, (chain, []))
            chains.append(kept)
            made += new
            origins.update({(self.table.name, each.name): chain.name for each in new})
        return replace(self.table, chains=(*chains, *made)), origins


def compile_rules(
    program: Program,
    options: Options = Options(),
    done: Callable[[float], None] = lambda share: None,
    *,
    spare: bool = False,
) -> Compiled:
    """Compile *program*; *done* hears what share of its rules was looked at.

    The result decides every packet as *program* does (on packets with broken headers:
    see Malformed).  That is proved by `pipeline.compile_text`, not here.  *spare*: a chain over which
    compiling breaks off by a fault of hitables stays as it is and stands among the faults, instead of an
    exception.  ParseError when chains jump in a circle; UnknownName when an
    asked-for table or chain does not exist.
    """
    check_loops(program)
    for name in options.tables:
        if all(table.name != name for table in program):
            raise UnknownName(f"{program.name}: there is no table {name}")
    for name in options.chains:
        if all(name not in table for table in program):
            raise UnknownName(f"{program.name}: there is no chain {name}")
    tables, origins, reports, gone, faults = [], {}, [], [], []
    keep = _must_stay(program)
    total, seen = max(1, program.rule_count()), 0

    def tell(rules: int) -> None:
        nonlocal seen
        seen += rules
        done(seen / total)

    for table in program:
        compiler = _TableCompiler(program, table, options, keep, tell, spare)
        compiled, new = compiler.run()
        tables.append(compiled)
        origins.update(new)
        reports += [compiler.reports[chain.name] for chain in table.chains if chain.rules]
        gone += sorted(compiler.gone, key=lambda each: each.line)
        faults += compiler.faults
    made = replace(program, tables=tuple(tables))
    return Compiled(made, origins, tuple(reports), tuple(gone), tuple(faults))


# Targets that make the kernel follow connections or put fragments together, reached or not.
_TRACKERS = frozenset(
    {"CONNMARK", "CONNSECMARK", "CT", "DNAT", "MASQUERADE", "NETMAP", "NOTRACK", "REDIRECT", "SNAT",
     "SYNPROXY", "TPROXY"}
)  # fmt: skip


def _must_stay(program: Program) -> frozenset[int]:
    """Rules that do something by being loaded.

    While a rule asks for connections, fragments are put together before all others: the first of each
    extension that does.  RATEEST makes what `-m rateest` asks for.  Rules that share a memory by its name and
    say different things of it: the first that is loaded counts.
    """
    kept: dict[object, int] = {}
    for table in program:
        for chain in table.chains:
            for rule in chain.rules:
                for match in rule.matches:
                    asks = State.CT in match.reads and match.reads != EVERYTHING
                    if asks or match.name.startswith("conn"):
                        kept.setdefault((table.name, match.name), id(rule))
                    if FIRST in match.key:
                        kept[id(rule)] = id(rule)
                if rule.target is not None and rule.target.name in _TRACKERS:
                    kept.setdefault((table.name, rule.target.name), id(rule))
                if rule.target is not None and rule.target.name == "RATEEST":
                    kept[id(rule)] = id(rule)
    return frozenset(kept.values())

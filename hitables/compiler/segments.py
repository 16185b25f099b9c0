"""The segments of a list: each long run of its rules gets a tree, the others are read one by one.

Invariant: the segments, one behind the other, decide what the rules of the list decide; only what the options
allow (Malformed, careful) may differ for packets with broken headers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import Boxes, Reorder
from ..analyse.callgraph import deciding, writes
from ..analyse.reorderable import reorderability
from ..analyse.rule_boxes import BoxReader, drops_first, drops_short, lets_short_by, short_dropped
from ..analyse.written import behind_rewrites
from ..build.expected_cost import read_in_turn
from ..build.tree import Tree
from ..costs.profile import default
from ..emit.jumps import Segment, any_memory, read_through_xtables
from ..emit.leaf_matches import Forms
from ..ir.choices import Malformed, backends_of
from ..ir.crossing import Crossing
from ..ir.fields import Family
from ..ir.program import Table
from ..ir.rule import Match, Rule, leaves_chain
from .options import Options
from .plans import Grown, List
from .run_trees import GATED, RunTrees
from .runs import Run, RunPlace

Floats = npt.NDArray[np.float64]
# The kinds of the rules of a list from one place to another, if they are to be told apart.
CrossingBetween = Callable[[int, int], Crossing | None]

# Why a list has no tree.
REWRITTEN = "its matches or targets that hitables does not know may rewrite what a tree would test"
# A list is cut behind the last rules that may rewrite what a tree tests; each part costs reads.
MOST_CUTS = 32


class SegmentGrower:
    """Grows the segments of the lists of one table.

    writes    by user chain, the fields that a packet's way through it may change
    deciding  the user chains that may end a packet's way
    """

    def __init__(self, table: Table, family: Family, options: Options) -> None:
        self.table, self.family, self.options = table, family, options
        self.writes, self.deciding = writes(table), deciding(table)
        self.costs = options.costs or default()
        self.backends = backends_of(options.backend)
        self.trees = RunTrees(options, family, self.costs, self.backends)
        for backend in self.backends:
            self.costs.of(backend)  # a profile without its figures is an error even if no chain is compiled

    def grow(
        self,
        listed: List,
        runs: Sequence[Run],
        nesting: Mapping[RunPlace, int],
        budget: int,
        crossing: CrossingBetween,
    ) -> Grown:
        """Grow a tree over each long run, with *budget* printed rules for all of them.

        *nesting*: how many chains may nest in a tree, by its place.
        """
        weights, given = listed.weights, listed.chain.rules
        careful = (self.table.name, listed.chain.name) in self.options.careful
        reader = self.box_reader()
        width = 1 + len(self.backends)
        grown = Grown(np.zeros((2, width)), np.zeros((2, width)))
        spare = max(0, budget - len(weights))
        first = called = 0
        for at, (run, place) in enumerate((each.rules, each.place) for each in runs):
            is_called, is_last = place is RunPlace.CALLED, at + 1 == len(runs)
            room = nesting.get(place, 0)
            here = slice(first, first + len(run))
            first += len(run)
            boxes = self.boxes(run, weights[here], reader, is_last=is_last, careful=careful)
            tree = None
            if len(run) >= self.options.min_length and boxes.axes and room >= 1:
                told = functools.partial(crossing, here.start, here.stop)
                tree, mean, why = self.trees.tree(run, boxes, room, len(run) + spare, int(is_called), told)
                grown.why = why or grown.why
                if why and len(behind_rewrites(run, self.writes)) > MOST_CUTS:
                    grown.why = REWRITTEN
                grown.gated |= why == GATED
            if tree is not None:
                spare = max(0, spare - tree.printed_rules() + len(run))
                if is_called:
                    called = max(called, tree.nesting() + 1)
                else:
                    grown.nesting += tree.nesting() + (0 if is_last else 1)
                longest = tree.longest_read() + is_called
            else:
                mean, longest = self.read_in_list(run, boxes), len(run)
            others_pass = not is_last or grown.open > 0
            through = self.trees.passing(run, boxes, tree, int(is_called)) if others_pass else None
            grown.add(boxes.weight, mean, longest, through, bool(boxes.final.any()))
            segment = self.segment(run, tree, given[here], reader, is_called=is_called, careful=careful)
            grown.returns += sum(a is not b for a, b in zip(segment.rules, given[here], strict=True))
            grown.segments.append(segment)
        grown.nesting = max(grown.nesting, called)
        return grown

    def boxes(
        self,
        run: Sequence[Rule],
        weights: Sequence[float],
        reader: BoxReader,
        *,
        is_last: bool,
        careful: bool,
    ) -> Boxes:
        """The boxes of *run*, and which of its rules may be moved.

        *is_last*: no run of the list follows.  *careful*: see Options.
        """
        reader.dirty.clear()  # tests of a tree are read behind the rules before it
        boxes = reader.boxes(run, self.writes, weights)
        # The trees of groups are called, so RETURN in them returns to the caller.  That is right only
        # in the last segment, where the caller has nothing left to read.
        if is_last or not any(map(leaves_chain, run)):
            boxes.reorder[:] = reorderability(run, self.writes, reader)
        if reader.nft:
            boxes.reorder[[read_through_xtables(rule) for rule in run]] |= np.uint8(Reorder.DROPS)
        if careful:
            self.keep_drops(run, boxes)
        return boxes

    def keep_drops(self, run: Sequence[Rule], boxes: Boxes) -> None:
        """Let no rule vanish that drops packets which the rules that hide it let by (Options.careful)."""
        final = compress(run, boxes.final.tolist())
        if self.options.backend != "nft" and any(map(lets_short_by, final)):
            boxes.reorder[[drops_short(rule) for rule in run]] |= np.uint8(Reorder.DROPS)
        drops = boxes.reorder & np.uint8(Reorder.DROPS) > 0
        drops |= np.array([drops_first(rule, self.family) for rule in run], bool)
        boxes.reorder[drops] |= np.uint8(Reorder.KEPT)

    def read_in_list(self, run: Sequence[Rule], boxes: Boxes) -> Floats:
        """What packets of the rules of *run* read in it without a tree: as before and after (see Grown)."""
        position = np.average(np.arange(len(run)) + 1.0, weights=boxes.weight)
        priced = self.trees.in_each_backend(run, boxes)
        in_line = [position, *(read_in_turn(each, boxes.weight) for each in priced)]
        return np.array([in_line, in_line])

    def segment(
        self,
        run: Sequence[Rule],
        tree: Tree | None,
        given: Sequence[Rule],
        reader: BoxReader,
        *,
        is_called: bool,
        careful: bool,
    ) -> Segment:
        """*run* as it is printed: in *tree*, or as the list that it is.

        *given*: the same rules as they were read, where those of *run* may return by the chain's policy.
        """
        options = self.options
        exact = options.malformed is Malformed.EXACT

        def patient(match: Match) -> bool:
            return not exact or not reader.may_drop(match)

        forms = Forms(
            native=options.backend != "legacy",
            written=frozenset(reader.dirty),
            cost=self.trees.cost_of_miss,
            early=patient,
        )
        # The proof of groups identifies copies of a rule by their text (verify/group_lists.py); with
        # shortened copies fw1_10K is proved in 9 s instead of 0.4 s.
        whole = options.as_written or (tree is not None and tree.in_groups())
        stays = tree is None or not (is_called or tree.in_groups() or any_memory(run))
        guarded = short_dropped(run) if careful and not exact and options.backend != "nft" else frozenset()
        printed = given if stays else run
        return Segment(
            printed, tree, frozenset(reader.guards), patient, None if whole else forms, is_called, guarded
        )

    def box_reader(self) -> BoxReader:
        return BoxReader(
            self.family,
            nft=self.options.backend != "legacy",
            malformed=self.options.malformed,
            deciding=self.deciding,
            marks=not self.options.hot,  # recorded packets have no mark
        )

"""Scheme "paper": the transformation of "Trees in the List" (CoNEXT 2014), the baseline.

Runs of plain five-tuple rules with a verdict become trees; all other rules stay between them, in order.
Plain are rules of tcp and of udp, which get a tree each, as in the 2014 tool; or, by the paper's own
definition (sections 2 and 5.1; `Options.runs`), all rules of intervals, with the protocol as a fifth field.
Only the filter table is transformed.  docs/papers.md lists the differences from the tool, where the tool was
wrong.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..analyse.boxes import Axis, Boxes, Cut, RuleBoxes, Words
from ..analyse.callgraph import check_loops, graph, writes
from ..analyse.levels import levels
from ..analyse.rule_boxes import BoxReader, as_boxes, axis
from ..build.grow import PAPER, grow
from ..emit.chain_writer import FreshNames
from ..emit.conext2014 import ProtocolRun, write_runs
from ..ir.choices import Malformed
from ..ir.fields import TCP, UDP, Family, Field
from ..ir.program import Chain, Program, Table, check_names
from ..ir.rule import Kind, Role, Rule
from .options import NESTING, Options
from .result import ChainReport, Compiled

# The paper's trees have no bound: one that needs more memory while it is built is given up.
MEMORY = 4 << 30
MOST_RULES = 10_000_000

_FIELDS = (Field.SPORT, Field.DPORT, Field.SRC, Field.DST)


def transform(program: Program, options: Options) -> Compiled:
    """Transform *program* as published.

    The result decides every packet as *program* does (on packets with broken headers:
    see Malformed).
    """
    check_loops(program)
    check_names(program, options.tables, options.chains)
    tables, origins, reports = [], {}, []
    for table in program:
        transformer = _TableTransformer(program.family, table, options)
        tables.append(transformer.run())
        origins.update({(table.name, new): old for new, old in transformer.origins.items()})
        reports += [transformer.reports[chain.name] for chain in table.chains if chain.rules]
    return Compiled(replace(program, tables=tuple(tables)), origins, tuple(reports))


class _TableTransformer:
    def __init__(self, family: Family, table: Table, options: Options) -> None:
        self.family, self.table, self.options = family, table, options
        self.writes = writes(table)
        self.names = FreshNames([chain.name for chain in table.chains])
        self.nesting: dict[str, int] = {}
        self.origins: dict[str, str] = {}
        self.reports: dict[str, ChainReport] = {}
        self.built = 0.0  # CPU seconds of growing the trees of the chain at hand

    def run(self) -> Table:
        old_chains: list[Chain] = []
        new_chains: list[Chain] = []
        for chain in self.table.chains:
            transformed, added = self.transform(chain)
            old_chains.append(transformed)
            new_chains += added
            self.origins.update({each.name: chain.name for each in added})
        return replace(self.table, chains=(*old_chains, *new_chains))

    def transform(self, chain: Chain) -> tuple[Chain, list[Chain]]:
        """The transformed chain, and the new chains that it needs."""
        count = len(chain.rules)
        self.built = 0.0
        why = self.unwanted(chain)
        if not why:
            reader = BoxReader(
                self.family, nft=self.options.backend != "legacy", malformed=self.options.malformed
            )
            rule_boxes = reader.read(chain.rules, self.writes)
            try:
                pieces = self.pieces(chain.rules, rule_boxes)
            except MemoryError:
                pieces, why = [], f"its trees would take more than {MEMORY >> 30} GiB"
            why = why or self.unfit(chain, pieces)
        if why:
            self.reports[chain.name] = ChainReport(
                self.table.name, chain.name, count, count, 0.0, 0.0, count, 0, why
            )
            return chain, []
        written = write_runs(
            [piece.run or piece.rules for piece in pieces], chain.policy, self.family, self.names
        )
        before, after, longest = _reads(pieces, as_boxes(rule_boxes, self.family), chain.policy is not None)
        size = len(written.rules) + sum(len(each.rules) for each in written.chains)
        self.nesting[chain.name] = _nesting(pieces)
        self.reports[chain.name] = ChainReport(
            self.table.name, chain.name, count, size, before, after, longest, self.nesting[chain.name], "",
            built=self.built,
        )  # fmt: skip
        return chain.with_rules(written.rules), written.chains

    def unwanted(self, chain: Chain) -> str:
        """Why *chain* is not transformed; "" when it is tried."""
        options = self.options
        if options.tables and self.table.name not in options.tables:
            return "not asked for"
        if options.chains and chain.name not in options.chains:
            return "not asked for"
        if self.table.name != "filter":
            return "the paper transforms the filter table only"
        return ""

    def unfit(self, chain: Chain, pieces: Sequence[_Piece]) -> str:
        """Why the pieces cannot be used; "" when they can."""
        if all(piece.run is None for piece in pieces):
            of_one = " of one protocol" if self.options.runs == "tool" else ""
            return f"no {self.options.min_length} plain rules{of_one} in a row"
        printed = sum(piece.run.tree.printed_rules() for piece in pieces if piece.run)
        if printed > MOST_RULES:
            return f"its trees would print {printed} rules"
        above, below = levels(graph(self.table).callees, self.nesting)
        nested = above[chain.name] + _nesting(pieces) + below[chain.name]
        if self.options.backend != "legacy" and nested > NESTING["nft"]:
            return f"its trees would nest {nested} chains, and nf_tables takes {NESTING['nft']}"
        return ""

    def pieces(self, rules: Sequence[Rule], rule_boxes: Sequence[RuleBoxes]) -> list[_Piece]:
        """Cut the list into runs with trees, and rules that are read one by one."""
        out: list[_Piece] = []
        start = 0
        while start < len(rules):
            end = start
            plain = self.is_plain(rules[start], rule_boxes[start])
            while end < len(rules) and self.is_plain(rules[end], rule_boxes[end]) == plain:
                end += 1
            numbers = range(start, end)
            start = end
            if not plain:
                out.append(_Piece([rules[at] for at in numbers], list(numbers)))
                continue
            if self.options.runs == "paper":
                out.append(self.piece([rules[at] for at in numbers], list(numbers), rule_boxes, None))
                continue
            # No packet meets rules of both protocols, so the run may be sorted by them.
            for protocol in (TCP, UDP):
                of_one = [
                    at for at in numbers if rule_boxes[at].boxes[0][Field.PROTO] == (protocol, protocol)
                ]
                if of_one:
                    out.append(self.piece([rules[at] for at in of_one], of_one, rule_boxes, protocol))
        return out

    def piece(
        self, rules: list[Rule], numbers: list[int], rule_boxes: Sequence[RuleBoxes], protocol: int | None
    ) -> _Piece:
        if len(rules) < self.options.min_length:
            return _Piece(rules, numbers)
        axes = self.axes(protocol)
        fields = {each.field for each in axes}
        boxes = [
            [{field: values for field, values in rule_boxes[at].boxes[0].items() if field in fields}]
            for at in numbers
        ]
        started = time.process_time()
        tree = grow(
            Boxes.of(axes, boxes, [True] * len(boxes)),
            algorithm=PAPER,
            leaf_size=self.options.leaf_size,
            spfac=self.options.spfac,
            unequal=self.options.unequal_cuts,
            least_max=self.options.dim_choice == "least-max",
            lone_chains=self.options.dispatch == "tool",
            memory=MEMORY,
        )
        self.built += time.process_time() - started
        return _Piece(rules, numbers, ProtocolRun(rules, tree, protocol))

    def axes(self, protocol: int | None) -> list[Axis]:
        """The axes of a tree for one protocol; for any (None), ports are tested where it is known."""
        v4 = self.family is Family.IPV4
        cut = Cut.NONE if self.options.malformed is Malformed.EXACT else Cut.RANGE
        of_any = axis(Field.PROTO, self.family), axis(Field.SPORT, self.family).requires
        requires = of_any[1] if protocol is None else None
        return [
            *(Axis(field, 16, True, cut, requires) for field in _FIELDS[:2]),
            *(Axis(field, 32 if v4 else 128, False, Cut.RANGE) for field in _FIELDS[2:]),
            *([of_any[0]] if protocol is None else []),
        ]

    def is_plain(self, rule: Rule, space: RuleBoxes) -> bool:
        return is_plain(rule, space, any_protocol=self.options.runs == "paper")


class _Piece:
    """Consecutive rules, their indexes in the chain, and their run if they have a tree."""

    def __init__(self, rules: list[Rule], numbers: list[int], run: ProtocolRun | None = None) -> None:
        self.rules, self.numbers, self.run = rules, numbers, run
        # The chain behind the run, that of the root unless it stands in line, and those of the tree.
        self.nesting = 1 + (run.protocol is not None) + run.tree.nesting() if run else 0


def is_plain(rule: Rule, space: RuleBoxes, *, any_protocol: bool = False) -> bool:
    """Whether the rule is transformed: five fields and a verdict; of tcp or udp, or of *any_protocol*."""
    if rule.target is None or rule.target.kind is not Kind.VERDICT:
        return False
    if not space.final or len(space.boxes) != 1:
        return False
    box = space.boxes[0]
    protocol = box.get(Field.PROTO)
    one_value = protocol is None or protocol[0] == protocol[1]
    return (
        (one_value if any_protocol else protocol in ((TCP, TCP), (UDP, UDP)))
        and set(box) <= {Field.PROTO, *_FIELDS}
        and all(match.role is Role.SPACE for match in rule.matches)
    )


def _nesting(pieces: Sequence[_Piece]) -> int:
    """Chains that nest in the printed pieces."""
    return 1 + sum(piece.nesting for piece in pieces)


def _reads(pieces: Sequence[_Piece], boxes: Boxes, built_in: bool) -> tuple[float, float, int]:
    """Mean rules read at a corner of each box, before and after; the most that a packet may read after."""
    corners = boxes.low
    count = len(boxes.final)
    first = grow(boxes, budget=4 * count).search(corners)[0]
    first[first < 0] = count
    before = np.minimum(first + 1, count)
    after = np.ones(len(corners), np.int64)
    longest = 1
    alive = np.arange(len(corners))
    for piece in pieces:
        at = np.searchsorted(piece.numbers, first[alive])
        mine = (at < len(piece.numbers)) & (np.take(piece.numbers, at, mode="clip") == first[alive])
        if piece.run is None:
            after[alive] += np.where(mine, at + 1, len(piece.numbers))
            longest += len(piece.numbers)
        else:
            tree = piece.run.tree
            points, enters = _points(boxes, corners[alive], tree.boxes.axes, piece.run.protocol)
            test = piece.run.protocol is not None
            read = np.where(enters, tree.search(points)[1] + test, 2)
            after[alive] += read + (enters & ~mine)
            longest += test + max(1, tree.longest_read() + 1)
        alive = alive[~mine]
    return float(before.mean()), float(after.mean()), longest + built_in


def _points(
    boxes: Boxes, corners: Words, axes: Sequence[Axis], protocol: int | None
) -> tuple[Words, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """The corners along *axes*, and whether they have the protocol (None: any)."""
    points = np.zeros((len(corners), len(axes), 2), np.uint64)
    enters = np.full(len(corners), protocol is None)
    for at, along in enumerate(boxes.axes):
        if along.field is Field.PROTO and protocol is not None:
            enters = corners[:, at, 1] == protocol + along.optional
        for column, wanted in enumerate(axes):
            if wanted.field is along.field:
                points[:, column] = corners[:, at]
    return points, enters

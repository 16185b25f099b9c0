"""The rules of all lines of one shape, made column by column.

Idea: lines of one shape (lines.py) have the same slots, so the matches of a slot are a column, looked up and
made with no line of Python for each; a rule is a row of the columns.  A large rule set has few shapes.

Invariant: a rule is equal to what the reader makes of its line alone.  A line that needs more than its
template and matches, such as a list of addresses or a mistake, has no rule here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress, repeat
from operator import not_

import numpy as np

from ..core.arrays import Array
from ..core.line_shapes import CutLines
from ..ir.rule import Match, Rule, Target
from .line_templates import ForOtherFamily, LineTemplate, LineTemplates, Slot, fill
from .lines import LITERAL, Fault, NeedsWords
from .part_meaning import plain_addresses

# Fewer lines of a shape are read faster one by one.
FEWEST = 4

LARGEST_COUNT = (1 << 64) - 1

_new = tuple.__new__


class RuleColumns:
    """The rules of a text's lines.

    shapes, literals  the text of each number of *cut*
    rules   [lines]: None for a line that is to be read alone
    chains  [lines]: the number of the literal that names the rule's chain; -1 for a line without a rule
    """

    def __init__(
        self, templates: LineTemplates, cut: CutLines, shapes: Sequence[str], literals: Sequence[str]
    ) -> None:
        self.templates, self.cut, self.literals = templates, cut, literals
        self.first, self.numbers = cut.first.tolist(), cut.literals.numbers.tolist()
        lines = len(cut.shapes.numbers)
        self.rules: list[Rule | None] = [None] * lines
        self.chains = np.full(lines, -1, np.int64)
        by_shape = np.argsort(cut.shapes.numbers, kind="stable")
        ends = np.cumsum(np.bincount(cut.shapes.numbers, minlength=len(shapes))).tolist()
        for shape, start, end in zip(shapes, [0, *ends], ends, strict=False):
            if end - start >= FEWEST and shape[:1] in ("-", LITERAL):
                template = self.template(shape)
                if template is not None:
                    self.read(template, by_shape[start:end])

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Start, end and chain of each run of lines of one chain."""
        ends = [*(np.flatnonzero(np.diff(self.chains)) + 1).tolist(), len(self.chains)]
        starts = [0, *ends[:-1]]
        return zip(starts, ends, self.chains[starts].tolist(), strict=True)

    def literals_of(self, line: int) -> list[str]:
        """The literals of the line with this index."""
        first, end = self.first[line : line + 2]
        return [self.literals[number] for number in self.numbers[first:end]]

    def template(self, shape: str) -> LineTemplate | None:
        """The template of *shape* if its lines can be read here."""
        known = self.templates.known.templates
        template = known.get(shape)
        if template is None:
            if not shape.startswith(("-A ", f"{LITERAL} -A ")):
                return None
            try:
                template = known[shape] = self.templates.of_shape(shape)
            except (NeedsWords, Fault, ForOtherFamily):
                return None
        fits = (template.plain or template.counted is not None) and template.chain_literal is not None
        return template if fits and all(len(slot.literals) > 1 for _, slot in template.several) else None

    def read(self, template: LineTemplate, lines: Array) -> None:
        """Make the rules of *lines*, which are of this template."""
        assert template.chain_literal is not None
        first = self.cut.first[lines]
        columns: list[Iterable[Match | Target | None]] = [repeat(value) for value in template.row]
        left: set[int] = set()  # rows to be read alone
        for place, slot in enumerate(template.slots):
            if template.row[place] is None:
                column = self.column(template, slot, lines)
                columns[place] = column
                if not all(column):
                    left.update(at for at, result in enumerate(column) if result is None)
        chains = self.cut.literals.numbers[first + template.chain_literal]
        if template.unfit:
            left.update(at for at, chain in enumerate(chains) if self.literals[chain] in template.unfit)
        targets = columns.pop() if template.target else repeat(None)
        matches = zip(*columns, strict=False) if columns else repeat(())
        counters: Iterable[tuple[int, int] | None] = repeat(None)
        if template.counted is not None:
            numbers = self.cut.literals.numbers[first + template.counted].tolist()
            counters = [_counters(self.literals[number]) for number in numbers]
        fields = zip(matches, targets, (lines + 1).tolist(), counters, repeat(()), strict=False)
        made = list(map(_new, repeat(Rule), fields))
        deque(map(self.rules.__setitem__, lines.tolist(), made), maxlen=0)
        self.chains[lines] = chains
        for at in left:
            self.rules[lines[at]] = None
            self.chains[lines[at]] = -1

    def column(self, template: LineTemplate, slot: Slot, lines: Array) -> list[Match | Target | None]:
        """What the slot is in each of *lines*; None for a line that is to be read alone."""
        first = self.cut.first[lines]
        numbers = [self.cut.literals.numbers[first + index].tolist() for index in slot.literals]
        words = [list(map(self.literals.__getitem__, column)) for column in numbers]
        keys: Sequence[object] = words[0] if len(words) == 1 else list(zip(*words, strict=True))
        column = list(map(slot.results.get, keys))
        if all(column):
            return column
        if slot.address:
            self.read_addresses(slot, dict.fromkeys(compress(numbers[0], map(not_, column))))
            column = list(map(slot.results.get, keys))
        lacking = dict(compress(zip(keys, range(len(keys)), strict=True), map(not_, column)))
        for key, at in lacking.items():
            if slot.may_list and any("," in each[at] for each in words):
                continue
            try:
                filled = fill(template, self.literals_of(int(lines[at])))
                slot.results[key] = self.templates.result(slot, filled)
            except Fault:  # reported when the line is read alone
                continue
        return list(map(slot.results.get, keys)) if lacking else column

    def read_addresses(self, slot: Slot, numbers: Collection[int]) -> None:
        """Make the slot's matches of those literals that are addresses in their usual spelling."""
        pairs = list(map(self.prefixes.__getitem__, numbers))
        words = list(compress(map(self.literals.__getitem__, numbers), pairs))
        matches = plain_addresses(slot.address, words, filter(None, pairs))
        slot.results.update(zip(words, matches, strict=True))

    @cached_property
    def prefixes(self) -> list[tuple[int, int] | None]:
        """By literal: what `Pieces.prefixes` says."""
        return self.cut.literals.prefixes()


def _counters(word: str) -> tuple[int, int]:
    """The counters of the word [PACKETS:BYTES], in decimal digits."""
    packets, _, size = word[1:-1].partition(":")
    return min(int(packets), LARGEST_COUNT), min(int(size), LARGEST_COUNT)

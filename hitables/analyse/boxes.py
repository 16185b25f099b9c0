"""Boxes over a list of axes, and the cost of reading rules: the input of the tree builders.

A packet may lack an *optional* field.  Coordinate 0 then means "none" and v+1 the value v, so a box that does
not constrain the field spans 0..top+1, and one that does lies within 1..top+1.

Invariant: boxes are in the order of their rules, and arrays have the types and the layout of the C engine
(core/trees.py), so passing them copies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hitables.core.trees import LENGTHS, AxisInput, Cut, Reorder, TreeInput
from hitables.ir.fields import Field

from .mark_bits import Dimension

__all__ = ["LENGTHS", "Axis", "Box", "Boxes", "Cut", "Prices", "Reorder", "RuleBoxes", "Words", "to_words"]

Words = npt.NDArray[np.uint64]
Box: TypeAlias = dict[Dimension, tuple[int, int]]  # values; a field that is missing is not limited


class RuleBoxes(NamedTuple):
    """A rule's boxes; whether it surely decides their packets."""

    boxes: tuple[Box, ...]
    final: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the boxes: *field*, whose values are 0..2**bits - 1; or bits of a mark.

    *requires*: a field and values; the axis may be tested only where the field is known to have one of them.
    *negatable*: whether the negation of a test can be printed.
    """

    field: Dimension
    bits: int
    optional: bool
    cut: Cut
    requires: tuple[Field, tuple[int, ...]] | None = None
    negatable: bool = True

    @property
    def top(self) -> int:
        """The highest coordinate."""
        return (1 << self.bits) - 1 + self.optional


@dataclass(frozen=True)
class Prices:
    """The costs of reading rules and tests; without them every rule read costs 1.

    test           [axis, LENGTHS, 2] a test in a tree, for packets that it does not take, and that it takes
    order          the axes, in the order in which the tests of a rule are evaluated
    missed, holds  [rule, axis] a rule's test of the axis, when it fails and when it holds; 0: it has none
    taken          [rule] the rest of a rule whose tests of axes all hold, its target included
    jump, go, act  entering a chain that returns; one that does not; a verdict
    """

    test: npt.NDArray[np.floating[Any]]
    order: npt.NDArray[np.integer[Any]]
    missed: npt.NDArray[np.floating[Any]]
    holds: npt.NDArray[np.floating[Any]]
    taken: npt.NDArray[np.floating[Any]]
    jump: float
    go: float
    act: float

    def __post_init__(self) -> None:
        for name, kind in (("test", np.float64), ("order", np.uint32), ("missed", np.float32),
                           ("holds", np.float32), ("taken", np.float32)):  # fmt: skip
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), kind))
        axes = len(self.order)
        if self.test.shape != (axes, LENGTHS, 2) or sorted(self.order) != list(range(axes)):
            raise ValueError("the prices are not for these axes")
        if not self.missed.shape == self.holds.shape == (len(self.taken), axes):
            raise ValueError("the prices are not for these rules")


class Boxes:
    """Rules as boxes, in list order.

    low, high  coordinates [box, axis, 2], the high word first
    rule       of each box, ascending: a rule may have several boxes, or none
    final      of each rule: whether it surely decides all packets in its boxes
    weight     of each rule: its traffic
    reorder    of each rule: what a tree may do with it (Reorder)
    prices     the costs of reading rules and tests; None: 1 each
    """

    __slots__ = ("_input", "axes", "final", "high", "low", "prices", "reorder", "rule", "weight")

    def __init__(
        self, axes: Sequence[Axis], low: Words, high: Words, rule: npt.ArrayLike,
        final: npt.ArrayLike, weight: npt.ArrayLike | None = None, reorder: npt.ArrayLike | None = None,
        prices: Prices | None = None,
    ) -> None:  # fmt: skip
        self.axes = tuple(axes)
        self.prices = prices
        self._input: tuple[Prices | None, TreeInput] | None = None
        self.low = np.ascontiguousarray(low, np.uint64)
        self.high = np.ascontiguousarray(high, np.uint64)
        self.rule = np.ascontiguousarray(rule, np.int32)
        self.final = np.ascontiguousarray(final, np.uint8)
        self.weight = np.ascontiguousarray(np.ones(len(self.final)) if weight is None else weight, np.float64)
        self.reorder = np.ascontiguousarray(
            np.zeros(len(self.final)) if reorder is None else reorder, np.uint8
        )
        shape = (len(self.rule), len(self.axes), 2)
        if self.low.shape != shape or self.high.shape != shape or self.weight.shape != self.final.shape:
            raise ValueError(f"boxes of shape {self.low.shape}, {self.high.shape}: expected {shape}")
        if prices is not None and prices.missed.shape != (len(self.final), len(self.axes)):
            raise ValueError("the prices are not for these boxes")
        if not np.all(self.weight >= 0):
            raise ValueError("a rule's weight is below 0, or not a number")

    def priced(self, prices: Prices | None, reorder: npt.ArrayLike | None = None) -> Boxes:
        """The same boxes with other prices, and with *reorder* in place of their own unless it is None."""
        reorder = self.reorder if reorder is None else reorder
        return Boxes(self.axes, self.low, self.high, self.rule, self.final, self.weight, reorder, prices)

    def of_rules(self, rules: Sequence[int]) -> Boxes:
        """The boxes of some rules, ascending, which are numbered from 0."""
        chosen = np.asarray(rules, np.intp)
        number = np.full(len(self.final), -1, np.int32)
        number[chosen] = np.arange(len(chosen))
        own = number[self.rule] >= 0
        return Boxes(
            self.axes, self.low[own], self.high[own], number[self.rule[own]],
            self.final[chosen], self.weight[chosen], self.reorder[chosen], self._prices_of(chosen),
        )  # fmt: skip

    def box_by_box(self) -> Boxes:
        """Each box as a rule of its own, with an equal part of its rule's traffic."""
        rule = self.rule
        weight = (self.weight / np.maximum(np.bincount(rule, minlength=len(self.final)), 1))[rule]
        return Boxes(
            self.axes, self.low, self.high, np.arange(len(rule)), self.final[rule], weight,
            self.reorder[rule], self._prices_of(rule),
        )  # fmt: skip

    def _prices_of(self, rules: npt.NDArray[np.integer[Any]]) -> Prices | None:
        prices = self.prices
        if prices is None:
            return None
        return replace(
            prices, missed=prices.missed[rules], holds=prices.holds[rules], taken=prices.taken[rules]
        )

    def tree_input(self) -> TreeInput:
        """The boxes and prices as the tree builders of the engine read them."""
        if self._input is not None and self._input[0] is self.prices:
            return self._input[1]
        fields = [axis.field for axis in self.axes]
        axes = []
        for axis in self.axes:
            needs, needed = -1, []
            if axis.requires is not None:
                needs = fields.index(axis.requires[0])
                needed = [value + self.axes[needs].optional for value in axis.requires[1]]
            axes.append(AxisInput(axis.bits, axis.optional, axis.cut, needs, needed, axis.negatable))
        self._input = self.prices, TreeInput(axes, self, self.prices)
        return self._input[1]

    @classmethod
    def of(
        cls, axes: Sequence[Axis], rules: Sequence[Sequence[Mapping[Dimension, tuple[int, int]]]],
        final: Sequence[bool], weight: Sequence[float] | None = None, reorder: Sequence[int] | None = None,
    ) -> Boxes:  # fmt: skip
        """Boxes from values: for each rule its boxes, each with the fields that it constrains."""
        ends: list[list[tuple[int, int]]] = []
        owner = []
        for number, boxes in enumerate(rules):
            for box in boxes:
                owner.append(number)
                ends.append(
                    [
                        (box[a.field][0] + a.optional, box[a.field][1] + a.optional)
                        if a.field in box else (0, a.top)
                        for a in axes
                    ]
                )  # fmt: skip
        bounds = np.array([to_words(end) for box in ends for pair in box for end in pair], np.uint64)
        bounds = bounds.reshape(len(ends), len(axes), 2, 2)
        return cls(axes, bounds[:, :, 0], bounds[:, :, 1], owner, final, weight, reorder)

    def points(self, packets: Sequence[Mapping[Dimension, int]]) -> Words:
        """Packets as points; a field that a packet lacks is "none", or 0 on an axis that is not optional."""
        coordinates = [
            to_words(packet[a.field] + a.optional if a.field in packet else 0)
            for packet in packets
            for a in self.axes
        ]
        return np.array(coordinates, np.uint64).reshape(len(packets), len(self.axes), 2)


def to_words(value: int) -> tuple[int, int]:
    """A value of up to 128 bits as two words, the high one first."""
    return value >> 64, value & (2**64 - 1)

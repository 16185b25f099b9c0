"""Rules of a list that may be removed or reordered, found by the C engine (include/redundancy.h).

A list is given as one `Reading` for each backend; a rule may be removed, and an order be changed, only if
that is right in every reading.  The only error is MemoryError.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from . import status
from ._engine import ffi, lib
from .arrays import pointer

# The action of a piece in which anything may happen; the others are numbers of the caller's, from 1.
ANYTHING = int(lib.REDUNDANCY_ACTS)

Numbers = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]


class Why(enum.IntEnum):
    """Why a rule may be removed; STAYS: it may not."""

    STAYS = lib.REDUNDANCY_STAYS
    NEVER = lib.REDUNDANCY_NEVER  # earlier rules end the traversal of all its packets
    NOTHING = lib.REDUNDANCY_NOTHING  # the rules after it do the same to them, or it only counts


class Reading(NamedTuple):
    """The rules of a list as pieces: boxes of packets with an action each.

    tops       [axis] the highest coordinate
    low, high  [piece, axis] coordinates, both included
    rule       [piece] its rule, ascending; pieces of one rule do not overlap
    action     [piece] ANYTHING, or how the packet's traversal ends: equal numbers, equal ends
    broken     [piece] whether it drops packets that may always be dropped
    rules      how many rules the list has
    end        the action for packets whose traversal no rule ends
    """

    tops: Numbers
    low: Numbers
    high: Numbers
    rule: Numbers
    action: Numbers
    broken: Bytes
    rules: int
    end: int


class Readings:
    """The readings of one list, as the engine reads them."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._rules = readings[0].rules
        self._alive = tuple(readings)  # the structures point into their arrays
        self._structs = ffi.new("struct redundancy_reading[]", len(readings))
        for struct, reading in zip(self._structs, readings, strict=True):
            for name in ("tops", "low", "high", "rule", "action"):
                setattr(struct, name, pointer("uint32_t", getattr(reading, name)))
            struct.broken = pointer("uint8_t", reading.broken)
            struct.axes, struct.pieces = len(reading.tops), len(reading.rule)
            struct.rules, struct.end = reading.rules, reading.end

    def removable(self, keep: Bytes) -> Bytes:
        """For each rule a `Why`.  All rules found may be removed together; those with *keep* set stay."""
        why = np.zeros(self._rules, np.uint8)
        code = lib.redundancy_find(
            self._structs, len(self._structs), pointer("uint8_t", keep), pointer("uint8_t", why)
        )
        status.check(status.REDUNDANCY, code)
        return why

    def phases(self, groups: Bytes, why: Bytes) -> Numbers:
        """For each rule a phase: the order of (phase, group, number) does what the order of numbers does.

        *groups*: of each rule, below 4; lower ones are to come first.  *why*: rules that are removed take no
        part.
        """
        phases = np.zeros(self._rules, np.uint32)
        code = lib.redundancy_phases(
            self._structs, len(self._structs), pointer("uint8_t", groups), pointer("uint8_t", why),
            pointer("uint32_t", phases),
        )  # fmt: skip
        status.check(status.REDUNDANCY, code)
        return phases

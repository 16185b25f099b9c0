"""Kinds of values that options take: numbers with bounds, and sizes."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click


class Number(click.FloatRange):
    """A number from *min* to 1e9: no nan, no inf, and none that makes a product overflow."""

    def __init__(self, min: float, min_open: bool = False) -> None:
        super().__init__(min, 1e9, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number: float = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):  # which compares as neither below nor above the bounds
            kind = "number of seconds" if param is not None and param.metavar == "SECONDS" else "number"
            bounds = f"above {self.min:g}, and up to 1e9" if self.min_open else f"from {self.min:g} to 1e9"
            self.fail(f"{value!r} is no {kind} {bounds}", param, ctx)
        return number

    def _describe_range(self) -> str:
        """For the help."""
        return f"{self.min:g}{'<' if self.min_open else '<='}x<=1e9"


class WholeNumber(click.IntRange):
    """A number without a fraction from *min* to *max*, or without end."""

    def __init__(self, min: int, max: int | None = None) -> None:
        super().__init__(min, max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            bounds = f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"{value!r} is no whole number {bounds}", param, ctx)
        return number


_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
LARGEST_SIZE = 1 << 50


# Generic since click 8.4; the project takes 8.1, too.
if TYPE_CHECKING:
    IntParam = click.ParamType[int]
else:
    IntParam = click.ParamType


class Size(IntParam):
    """Bytes, as in 512M or 2G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT])(?:i?B)?", str(value), re.IGNORECASE)
        if match is None:
            self.fail(f"{value!r} is no size; write a number and K, M, G or T, as in 512M or 2G", param, ctx)
        size = float(match[1]) * (1 << _UNITS[match[2].upper()])
        if size < 1 << 20:
            self.fail(f"{value!r} is less than 1M, which is too little for anything", param, ctx)
        if size > LARGEST_SIZE:
            self.fail(f"{value!r} is more than 1024T, which no machine has", param, ctx)
        return int(size)

"""ClassBench traces: packet headers, and in most files a rule number for each.

A line holds, in decimal: source, destination, source port, destination port, protocol; and then

    nothing                        5 columns
    the first rule that matches    6 columns, counted from 1, as in the WUSTL sets
    flags, and the rule that the   7 columns, counted from 0, as ClassBench writes it: an earlier
    header was drawn from          rule may match the header, too; the flags are not read

A Trace counts rules from 0 in all cases.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ParseError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COLUMNS = ("source", "destination", "source port", "destination port", "protocol")
# What no line of a trace has: characters that are no digits and no blanks, numbers of too many digits.
_ALIEN = re.compile(r"[^0-9 \t\r\n]|[0-9]{11}")
_TOPS = (0xFFFFFFFF, 0xFFFFFFFF, 65535, 65535, 255)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """*headers*: one row of COLUMNS per packet.

    expected  index of the first rule that matches each; None if the file lacks it
    origin    index of the rule that each was drawn from, which matches, too; None if the file lacks it
    """

    headers: NDArray[np.uint32]
    expected: NDArray[np.int32] | None = None
    origin: NDArray[np.int32] | None = None
    source: str = "-"

    def __len__(self) -> int:
        return len(self.headers)


def parse(text: str, source: str = "-") -> Trace:
    """Read a trace; ParseError names the line of the mistake."""
    import numpy as np

    if not text.strip():
        raise ParseError("an empty trace", source=source)
    if _ALIEN.search(text):
        _explain(text, source)  # numpy would read a sign, and more blanks
    lines = io.StringIO(text.replace("\r", " "))  # where numpy would end a line
    try:
        table: NDArray[Any] = np.loadtxt(lines, dtype=np.int64, ndmin=2, comments=None)
    except (ValueError, OverflowError):
        _explain(text, source)
    columns = table.shape[1]
    tops = (*_TOPS, *_last_columns(columns))
    if not 5 <= columns <= 7 or (table < 0).any() or (table > tops).any():
        _explain(text, source)
    headers = table[:, :5].astype(np.uint32)
    if columns == 5:
        return Trace(headers, source=source)
    numbers = table[:, -1].astype(np.int32)
    if columns == 7:
        return Trace(headers, origin=numbers, source=source)
    if not numbers.all():  # they are counted from 1
        _explain(text, source)
    return Trace(headers, expected=numbers - np.int32(1), source=source)


def _last_columns(columns: int) -> tuple[int, ...]:
    """The highest values of the columns after the header: flags and the rule number."""
    return (0xFFFFFFFF, 0x7FFFFFFF)[7 - columns :] if columns in (6, 7) else ()


def _explain(text: str, source: str) -> NoReturn:
    """Raise the ParseError that names the first mistake."""
    columns = 0
    for number, line in enumerate(text.split("\n"), start=1):
        columns = check_line(line, number, columns, source)
    raise AssertionError("no fault found in the trace")


def check_line(line: str, number: int, columns: int, source: str) -> int:
    """How many columns *line* has, or *columns* if it is blank; ParseError if it is no line of a trace.

    *columns*: of the lines above, 0 if there is none.
    """
    words = re.findall(r"[^ \t\r]+", line)
    if not words:
        return columns
    if not 5 <= len(words) <= 7 or (columns and len(words) != columns):
        hint = f"the lines above have {columns}" if columns else "a trace has 5, 6 or 7"
        raise ParseError(
            f"{len(words)} columns", source=source, line=number, column=1, text=line, hint=hint
        ) from None
    columns = len(words)
    names = COLUMNS + ("flags", "rule number")[7 - columns :]
    least, tops = bounds(columns)
    at = 0
    for word, name, low, top in zip(words, names, least, tops, strict=True):
        at = line.index(word, at)
        if not (word.isascii() and word.isdecimal() and len(word) < 11 and low <= int(word) <= top):
            raise ParseError(
                f"{word!r} is no {name}",
                source=source,
                line=number,
                column=at + 1,
                text=line,
                length=len(word),
                hint=f"a number from {low} to {top}",
            ) from None
        at += len(word)
    return columns


def bounds(columns: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The least and the highest value of each column of a line of *columns*; rules count from 1 in six."""
    return (0,) * 5 + {5: (), 6: (1,), 7: (0, 0)}[columns], (*_TOPS, *_last_columns(columns))

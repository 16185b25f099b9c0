"""Checks of numeric values: integers, marks, rates, times, dates.

Each check takes a value as written and the family, and raises ValueError with the reason if iptables 1.8.9
refuses the value.  The names by which grammars refer to them are in `value_checks.KINDS`.
"""

from __future__ import annotations

import re

from ..ir.fields import Family


def integer(text: str) -> tuple[int | None, str]:
    """The number that *text* begins with, as strtoul reads it with base 0, and the rest; None: there is
    none.
    """
    match = re.match(r"[ \t]*\+?(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))", text)
    if match is None:
        return None, text
    digits = match[1] or match[2] or match[3]
    return int(digits, 16 if match[1] else 8 if match[2] else 10), text[match.end() :]


def number(text: str, family: Family, low: int = 0, high: int = 0xFFFFFFFF) -> None:
    value, rest = integer(text)
    if value is None or rest or not low <= value <= high:
        raise ValueError(f"{text!r} is no number from {low} to {high}")


def number_range(text: str, family: Family, high: int, ordered: bool = False) -> None:
    """NUMBER, or NUMBER:NUMBER, of which either may be left out; *ordered*: not reversed."""
    low = 0
    pieces = text.split(":")
    if len(pieces) > 2:
        raise ValueError(f"{text!r} has more than two numbers")
    for piece in pieces:
        if piece:
            try:
                number(piece, family, low, high)
            except ValueError:
                raise ValueError(f"{piece!r} of {text!r} is no number from {low} to {high}") from None
            low = (integer(piece)[0] or 0) if ordered else 0


def mark(text: str, family: Family, high: int = 0xFFFFFFFF) -> None:
    """VALUE or VALUE/MASK."""
    for piece in text.split("/", 1):
        try:
            number(piece, family, 0, high)
        except ValueError:
            raise ValueError(f"{text!r} is not VALUE or VALUE/MASK, numbers up to {high:#x}") from None


def named_mark(text: str, family: Family) -> None:
    """As mark, or a name that a file of the system has."""
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", text):
        mark(text, family)


def fraction(text: str, family: Family, low: float, high: float) -> None:
    match = re.fullmatch(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX][0-9a-fA-F]+", text)
    value = (float(int(text, 16)) if text[:2].lower() == "0x" else float(text)) if match else None
    if value is None or not low <= value <= high:
        raise ValueError(f"{text!r} is no number from {low:g} to {high:g}")


UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def rate(text: str, family: Family, scale: int, bits: int) -> None:
    """COUNT, or COUNT/UNIT with any beginning of second, minute, hour, day."""
    count, slash, unit = text.partition("/")
    seconds = 1
    if slash:
        named = [size for name, size in UNITS.items() if unit and name.startswith(unit.lower())]
        if not named:
            raise ValueError(f"bad rate {text!r}: the unit is second, minute, hour or day")
        seconds = named[0]
    match = re.match(r"\s*([+-]?[0-9]+)", count)
    times = int(match[1]) % (1 << bits) if match else 0
    if times == 0:
        raise ValueError(f"bad rate {text!r}: write COUNT/UNIT")
    if scale * seconds // times == 0:
        raise ValueError(f"bad rate {text!r}: it is too fast")


def limit_rate(text: str, family: Family) -> None:
    rate(text, family, 10_000, 32)


def hash_rate(text: str, family: Family) -> None:
    at = text.find("b/s")
    if at > 0:
        if not re.match(r"\s*[+-]?0*[1-9]", text):
            raise ValueError(f"bad rate {text!r}: write BYTESb/s")
        return
    rate(text, family, 1_000_000, 64)


def hash_burst(text: str, family: Family) -> None:
    value, rest = integer(text)
    if not value or (not rest and value > 1_000_000) or value >= 1 << 64:
        raise ValueError(f"bad burst {text!r}: a number from 1 to 1000000, or bytes as in 10kb")


def seconds_count(text: str, family: Family) -> None:
    value, rest = integer(text)
    if value is None or rest or value >= 1 << 32:
        raise ValueError(f"{text!r} is no number of seconds")


def time_of_day(text: str, family: Family) -> None:
    match = re.fullmatch(r"([0-9]*):([0-9]*)(?::([0-9]*))?", text)
    if not match or any(
        int(part or 0) > most for part, most in zip(match.groups(), (23, 59, 59), strict=True)
    ):
        raise ValueError(f"not a time: {text!r}; write HH:MM or HH:MM:SS")


def date(text: str, family: Family) -> None:
    match = re.fullmatch(
        r"([0-9]+)(?:-([0-9]*)(?:-([0-9]*)(?:T([0-9]*)(?::([0-9]*)(?::([0-9]*))?)?)?)?)?", text
    )
    if (
        not match
        or not 1970 <= int(match[1]) <= 2038
        or any(
            int(part or 0) > most for part, most in zip(match.groups()[1:], (12, 31, 23, 59, 59), strict=True)
        )
    ):
        raise ValueError(
            f"not a date from 1970 to 2038: {text!r}; write YYYY-MM-DDTHH:MM:SS or a beginning of it"
        )


def month_days(text: str, family: Family) -> None:
    for day in text.split(","):
        value, rest = integer(day[:2])
        if (rest and rest != day[:2]) or (value or 0) > 31 or (rest and value is None):
            raise ValueError(f"{day!r} is no day of a month")


def week_days(text: str, family: Family) -> None:
    for day in text.removesuffix(",").split(",") if text else ():
        if re.fullmatch(r"-[1-9]", day):
            continue  # strtoul reads it
        if not day:
            raise ValueError("an empty day")
        value, rest = integer(day[:3])
        if rest == "" and value == 0:
            raise ValueError("a week does not begin with day 0; days go from 1 (Monday) to 7")
        if rest and day[:2] not in ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"):
            raise ValueError(f"{day!r} is no day of the week; write Mon or 1")


def zone(text: str, family: Family) -> None:
    if text.lower() != "mark":
        number(text, family, 0, 0xFFFF)


DURATION = re.compile(
    r"\s*([+-]?(?:0x[0-9a-f]+|[0-9]+\.?[0-9]*|\.[0-9]+))(s|sec|secs|ms|msec|msecs|us|usec|usecs)?", re.I
)


def duration(text: str, family: Family) -> None:
    if not DURATION.fullmatch(text):
        raise ValueError(f"not a time: {text!r}; write it as in 250ms")


def bit_rate(text: str, family: Family) -> None:
    if not re.fullmatch(
        r"\s*[+-]?(0x[0-9a-f]+|[0-9]+\.?[0-9]*|\.[0-9]+)([kmgt]?i?b(it|ps)|bps|bit)?", text, re.I
    ):
        raise ValueError(f"not a rate: {text!r}; write it as in 100kbit")


def led_delay(text: str, family: Family) -> None:
    if text.lower() != "inf":
        number(text, family)


def label(text: str, family: Family) -> None:
    """A number, or a name of a file of the system."""
    if not re.match(r"[A-Za-z_]", text):
        number(text, family, 0, (1 << 64) - 1)
        if (integer(text)[0] or 0) & 0xFFFF > 127:
            raise ValueError(f"{text} is above 127")


def user(text: str, family: Family) -> None:
    """A number or a range of numbers; every name is accepted, as users differ from system to system."""
    if re.match(r"[A-Za-z_]", text):
        return
    pieces = re.split(r"[:-]", text, maxsplit=1)
    for piece in pieces:
        number(piece, family, 0, 0xFFFFFFFE)
    if len(pieces) == 2 and (integer(pieces[0])[0] or 0) > (integer(pieces[1])[0] or 0):
        raise ValueError(f"bad range {text!r}: its low end is above its high end")


def positive_seconds(text: str, family: Family) -> None:
    match = re.match(r"\s*\+?([0-9]+)", text)
    if not match or not 0 < int(match[1]) < 1 << 31:
        raise ValueError(f"{text!r} is no number of seconds from 1 on")

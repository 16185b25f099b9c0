"""What is said of a rule set that waits, by `status` and by an `apply` that has to wait for it."""

from __future__ import annotations

import re
from pathlib import Path

from . import guard
from .records import Waiting

_TAIL = 1 << 16  # bytes of the log that are read: the guard logs each attempt
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")


def cannot(number: int) -> str:
    """How the log begins the reason why record *number* cannot be taken back."""
    return f"{number}: cannot be taken back: "


def fate(folder: Path, waiting: Waiting) -> tuple[str, bool]:
    """What becomes of a rule set that waits, as words behind its number; whether that needs the user."""
    if not guard.is_alive(waiting.guard):
        return "waits for its confirmation, and its guard has ended, so nothing takes it back", True
    reason = _last_reason(folder, waiting.number)
    if reason:
        return f"could not be taken back: {reason}; trying again", True
    rest = max(0, round(waiting.seconds_left))
    return f"waits for its confirmation, {rest} s more", False


def _last_reason(folder: Path, number: int) -> str:
    """Why the guard could not take record *number* back when it tried last; "" if it has not failed."""
    try:
        with open(folder / "log", "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return ""
    reason: list[str] = []
    is_part = False
    for line in lines:
        if time_of := _TIME.match(line):
            message = line[time_of.end() :]
            is_part = message.startswith(cannot(number))
            if is_part:
                reason = [message.removeprefix(cannot(number))]
        elif is_part and line.strip():
            reason.append(line.strip())
    return "; ".join(reason)

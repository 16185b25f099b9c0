"""How long a comparison may go on: by the clock on the wall, and by the time of the processor.

A user's limit is one of the wall.  The limits of an engine's turn (portfolio.py) are of the processor, so
that what runs besides does not decide which engine answers, and with how much memory.  A comparison has
parts, which may have a limit each: one that ends in time shows that the others may.
"""

from __future__ import annotations

import time
from math import inf

LEAST = 1e-6  # what the engine takes for a limit; 0.0 would be none


class TimeIsUp(Exception):
    """A deadline has passed."""


class Deadline:
    """Seconds from now, of the wall and of this process's processor time; None: no limit.

    each_part  seconds of the processor for each part; when one of them passes, so does the deadline
    """

    def __init__(
        self, wall: float | None = None, processor: float | None = None, each_part: float | None = None
    ) -> None:
        self._wall = None if wall is None else time.monotonic() + wall
        self._all_parts = inf if processor is None else time.process_time() + processor
        self._each_part = inf if each_part is None else each_part
        self._processor = self._all_parts
        self.begin_part()

    def begin_part(self) -> None:
        """The next part begins now, unless the deadline has passed."""
        if not self.is_over():
            self._processor = min(self._all_parts, time.process_time() + self._each_part)

    def left(self) -> tuple[float, float]:
        """Seconds left of the wall and of the processor; 0.0: no limit, LEAST: none are left."""
        return (
            0.0 if self._wall is None else max(LEAST, self._wall - time.monotonic()),
            0.0 if self._processor == inf else max(LEAST, self._processor - time.process_time()),
        )

    def is_over(self) -> bool:
        return LEAST in self.left()

    def tick(self) -> None:
        """Raise TimeIsUp when the deadline has passed."""
        if self.is_over():
            raise TimeIsUp

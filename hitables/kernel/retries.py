"""How long a reading of the kernel is begun anew that changes of other programs spoil."""

from __future__ import annotations

import time
from collections.abc import Iterator

TRIES, SECONDS = 10, 30.0


def retries(tries: int = TRIES, seconds: float = SECONDS) -> Iterator[None]:
    """Once for each try: at least *tries*, and as many as begin within *seconds*.

    A number alone is too few where a reading is short and changes come in bursts, or the machine is busy;
    seconds alone are too few where a reading is long.
    """
    end = time.monotonic() + seconds
    done = 0
    while done < tries or time.monotonic() < end:
        yield
        done += 1

"""How many examples a law is tried with.

The number that a law names is for `make test`.  `make deep` multiplies it, as it does the number of
Hypothesis itself, which holds for a law that names none.
"""

from __future__ import annotations

from hypothesis import settings

USUAL = 100  # what Hypothesis tries where no number is named
DEEP = 10  # times as many in `make deep`


def examples(count: int) -> int:
    """*count*, or the multiple of it that the profile asks for; no profile makes it less."""
    return max(count, count * settings().max_examples // USUAL)

"""How many examples a law is tried with.

`make test` tries a share of the number that a law names, so that all laws together end in ten minutes on two
cores.  `make deep` tries a multiple of it, as it does of the number of Hypothesis itself, which holds for a law
that names none.
"""

from __future__ import annotations

from hypothesis import settings

USUAL = 100  # what Hypothesis tries where no number is named and no profile says otherwise
FEWER = 25  # what `make test` tries of such a law
DEEP = 10  # times USUAL is what `make deep` tries
SHARE = 1, 5  # of the number of a law, in `make test`


def examples(count: int) -> int:
    """The share of *count* that `make test` tries, or the multiple of it that the profile asks for."""
    few, of = SHARE
    return max(few * count // of, 1, count * settings().max_examples // USUAL if deep() else 0)


def deep() -> bool:
    return settings().max_examples > USUAL

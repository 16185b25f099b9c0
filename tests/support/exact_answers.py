"""What the exact engine answers to a question about two programs."""

from __future__ import annotations

from hitables.ir.program import Program
from hitables.verify import exact
from hitables.verify.question import Difference, Equal, Question


def differ(before: Program, after: Program, **question: object) -> Difference | None:
    """The difference, None where the two are proved equal; *question*: the fields of the `Question`."""
    answer = exact.check(before, after, Question(**question))  # type: ignore[arg-type]
    assert isinstance(answer, Equal | Difference)
    if isinstance(answer, Equal):
        assert answer.proved
        return None
    return answer

"""The proof of a printed rule set: its text is read again, as a kernel tool would read it, and compared."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NotEquivalent, OutOfBudget, ParseError
from ..ir.foreign import hide, with_appended
from ..ir.program import Program, with_undeclared_kept
from ..ir.set_counters import counting
from ..parse.iptables import Vocabulary
from ..reader import read
from ..verify.question import Difference, Equal, Question, Undecided

PRINTED = "the compiled rule set"

# Why a text does not mean what its source means: a packet, or a line that cannot be read back.
Mismatch = Difference | ParseError


def prove_equal(program: Program, text: str, question: Question, known: Vocabulary | None = None) -> None:
    """Compare *program*, read with *known*, with *text* once that is read again.

    NotEquivalent on a difference, OutOfBudget when the budget of *question* ends the proof.
    """
    mismatch = mismatch_of(program, text, question, known)
    if not isinstance(mismatch, Equal):
        raise not_equivalent(mismatch)


def mismatch_of(
    program: Program,
    text: str,
    question: Question,
    known: Vocabulary | None,
    leave: tuple[str, ...] = (),
    changed: Sequence[tuple[str, str]] = (),
) -> Mismatch | Equal:
    """How the rules of *text* differ from *program*, in which the chains *leave* are hidden, if they do.

    Both are compared with the jumps that other programs append (ir.foreign.with_appended).
    The *changed* chains are compared even where no built-in chain enters them.
    """
    from ..verify.portfolio import check_with_unreached

    try:
        reread = hide(read(text, family=program.family, name=PRINTED, known=known), leave)
    except ParseError as error:
        return error
    if program.counts_sets:  # the rule that reads counters may be elsewhere than in the text
        reread = counting(reread)
    before, after = (with_appended(with_undeclared_kept(each), leave) for each in (program, reread))
    answer = check_with_unreached(before, after, question, changed)
    if isinstance(answer, Undecided):
        raise OutOfBudget(
            f"{answer.reason} while proving the compiled rule set (table {answer.table}, chain "
            f"{answer.chain}, {answer.done:.0%} done); nothing is printed.  Give it more (--timeout, "
            "--max-memory), or do without the proof (--no-prove)"
        )
    return answer


def not_equivalent(mismatch: Mismatch) -> NotEquivalent:
    verb = "cannot be read back" if isinstance(mismatch, ParseError) else "would treat a packet differently"
    return NotEquivalent(
        f"the compiled rule set {verb}; nothing is printed "
        "(this is a fault of hitables: please report it with the rule set)",
        details_of(mismatch),
    )


def details_of(mismatch: Mismatch) -> str:
    return str(mismatch) if isinstance(mismatch, ParseError) else mismatch.describe()

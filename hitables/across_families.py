"""A rule set of IPv4 compared with one of IPv6: what they do alike for the places that both have.

Both are written as programs of IPv4 (ir/both_families.py) and compared as any two are, by verdict: texts and
numbers of LOG differ in most hosts' two files.  What is compared and what is left out is told beside the
answer (`scope`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import compare
from .compare import Case, Comparison, Sampling, Tell
from .errors import InvalidOption, NotComparable
from .ir import semantics
from .ir.both_families import LEFT_OUT_TABLES, Written, as_compared, written_alike
from .ir.choices import Equivalence
from .ir.places import Place, places_of
from .ir.program import Program
from .nouns import counted
from .verify.diff import Changes, changes
from .verify.question import Difference, Question, comparable, with_open_policies

_NAMED = 4  # places that `scope` names


@dataclass(frozen=True, slots=True)
class AcrossFamilies:
    """Two programs of two families, *before* and *after*, and what they are compared for."""

    before: Program
    after: Program
    places: tuple[Place, ...]
    written: tuple[Written, Written]
    question: Question

    @classmethod
    def of(cls, before: Program, after: Program, pairs: Sequence[str], question: Question) -> AcrossFamilies:
        """InvalidOption for a wrong pair or a table that is left out; NotComparable for equal families."""
        if before.family is after.family:
            raise NotComparable(
                f"{before.name} and {after.name} are both for IPv{int(before.family)}: to compare across "
                "families, name one rule set of IPv4 and one of IPv6"
            )
        for table in sorted(question.tables):
            if table in LEFT_OUT_TABLES:
                raise InvalidOption(f"table {table} changes addresses, and is not compared across families")
        places = places_of(pairs)
        question = replace(question, equivalence=Equivalence.VERDICT)
        return cls(before, after, places, written_alike(before, after, places), question)

    def check(self, engine: str, sampling: Sampling, tell: Tell) -> Comparison:
        before, after = (each.program for each in self.written)
        both = self._compared()
        found = compare.check(*both, self.question, engine=engine, sampling=sampling, tell=tell)
        cases = tuple(self._with_all_rules(case) for case in found.cases)
        return replace(found, before=before, after=after, cases=cases, scope=self.scope())

    def diff(self, tell: Tell) -> Changes:
        found = changes(*self._compared(), self.question, tell=tell)
        found.scope = self.scope()
        return found

    def _compared(self) -> tuple[Program, Program]:
        one, other = (as_compared(each.program, self.question.chains) for each in self.written)
        return one, other

    def _with_all_rules(self, case: Case) -> Case:
        """*case*, whose packet walks through the rules of the files."""
        answer = case.answer
        if not isinstance(answer, Difference) or answer.packet is None or answer.backend is None:
            return case
        both = comparable(*(each.program for each in self.written))
        before, after = (
            semantics.run(
                with_open_policies(program.table(answer.table)), answer.chain, answer.packet, answer.backend
            )
            for program in both
        )
        return replace(case, answer=replace(answer, before=before, after=after))

    def scope(self) -> tuple[str, ...]:
        """What the answer speaks of, and what is left out; a line each."""
        names = [place.name for place in self.places]
        more = [counted(len(names) - _NAMED, "more pair")] if len(names) > _NAMED else []
        lines = [
            f"across families: packets of {', '.join([*names[:_NAMED], *more])}; without fragments, broken "
            "headers, and types of ICMP that one family alone has"
        ]
        others = self.after.name, self.before.name
        for program, written, other in zip((self.before, self.after), self.written, others, strict=True):
            if written.elsewhere:
                lines.append(
                    f"{program.name}: {counted(written.elsewhere, 'rule')} left out, for other addresses or "
                    f"for ipsets that {other} does not ask"
                )
            if any(table.name in LEFT_OUT_TABLES and table.rule_count() for table in program):
                lines.append(f"{program.name}: table nat left out, which changes addresses")
        return tuple(lines)

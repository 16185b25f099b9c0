"""A rule set of IPv4 compared with one of IPv6: what they do alike for the places that both have.

Both are written as programs of IPv4 (ir/both_families.py), without what is not compared
(ir/compared_packets.py), and compared as any two are, by verdict: texts and numbers of LOG differ in the two
files of most hosts.  What is compared and what is left out is told beside the answer (`scope`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from . import compare
from .compare import Case, Comparison, Sampling, Tell
from .errors import InvalidOption, NotComparable
from .ir import semantics
from .ir.both_families import LEFT_OUT_TABLES, Written, written_alike
from .ir.choices import Equivalence
from .ir.compared_packets import NOT_COMPARED, as_compared
from .ir.fields import Family
from .ir.places import Place, places_of
from .ir.program import Program
from .ir.rule import Ends, Match, Role
from .ir.semantics import Walk
from .nouns import counted
from .verify.diff import Change, Changes, changes
from .verify.question import Difference, Question, comparable, with_open_policies

_NAMED = 4  # places that `scope` names


@dataclass(frozen=True, slots=True)
class AcrossFamilies:
    """Two programs of two families, *before* and *after*, and what they are compared for.

    programs  both as programs of IPv4, with the same tables
    """

    before: Program
    after: Program
    places: tuple[Place, ...]
    written: tuple[Written, Written]
    programs: tuple[Program, Program]
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
        written = written_alike(before, after, places, question.tables)
        programs = comparable(*(each.program for each in written))
        return cls(before, after, places, written, programs, question)

    def check(self, engine: str, sampling: Sampling, tell: Tell) -> Comparison:
        both = as_compared(self.programs, self.question.chains)
        found = compare.check(*both, self.question, engine=engine, sampling=sampling, tell=tell)
        cases = tuple(self._as_traced(case) for case in found.cases)
        before, after = comparable(self.before, self.after)
        return replace(found, before=before, after=after, cases=cases, scope=self.scope())

    def diff(self, tell: Tell) -> Changes:
        found = changes(*as_compared(self.programs, self.question.chains), self.question, tell=tell)
        found.regions = [_of_rules(change) for change in found.regions]
        found.scope = self.scope()
        return found

    def _as_traced(self, case: Case) -> Case:
        """*case*, whose packet has addresses that no rule of IPv4 names, and walks through all rules."""
        answer = case.answer
        if not isinstance(answer, Difference) or answer.packet is None or answer.backend is None:
            return case
        (of_ipv4,) = (
            written
            for program, written in zip((self.before, self.after), self.written, strict=True)
            if program.family is Family.IPV4
        )
        values = dict(answer.packet.values)
        for field, unnamed in of_ipv4.unnamed.items():
            values[field] = next(address for cell, address in unnamed if values[field] in cell)
        packet = replace(answer.packet, values=values)
        before, after = (
            semantics.run(
                with_open_policies(program.table(answer.table)), answer.chain, packet, answer.backend
            )
            for program in self.programs
        )
        before = _with_rules_of(self.before, answer.table, before)
        after = _with_rules_of(self.after, answer.table, after)
        return replace(case, answer=replace(answer, packet=packet, before=before, after=after))

    def scope(self) -> tuple[str, ...]:
        """What the answer speaks of, and what is left out; a line each."""
        names = [place.name for place in self.places]
        more = [counted(len(names) - _NAMED, "more pair")] if len(names) > _NAMED else []
        lines = [
            f"across families: packets of {', '.join([*names[:_NAMED], *more])}; without fragments, broken "
            "headers, extension headers, and types of ICMP that one family alone has"
        ]
        others = self.after.name, self.before.name
        for program, written, other in zip((self.before, self.after), self.written, others, strict=True):
            sets = f" ({', '.join(written.sets)})" if written.sets else ""
            if written.elsewhere:
                lines.append(
                    f"{program.name}: {counted(written.elsewhere, 'rule')} left out, for other addresses or "
                    f"for ipsets that {other} does not ask{sets}"
                )
            if any(table.name in LEFT_OUT_TABLES and table.rule_count() for table in program):
                lines.append(f"{program.name}: table nat left out, which changes addresses")
        if any(match.role in (Role.NAMED, Role.ONCE) for match in self._matches()):
            lines.append(
                "limits, lists and chance: taken to hold for the same packets in both, where their "
                "parameters are the same"
            )
        return tuple(lines)

    def _matches(self) -> Iterator[Match]:
        for program in (self.before, self.after):
            for rule in program.rules():
                if rule.target is not None and (rule.target.ends is not Ends.NEVER or rule.target.writes):
                    yield from rule.matches


def _of_rules(change: Change) -> Change:
    """*change*, told by matches of the rule sets alone."""
    facts = tuple(fact for fact in change.facts if not fact[0].startswith(NOT_COMPARED))
    return replace(change, facts=facts)


def _with_rules_of(program: Program, table: str, walk: Walk) -> Walk:
    """*walk*, which read rules of *table* as they were written, with the rules of the file."""
    steps = (replace(step, rule=program.rules_of(table, step.chain)[step.index]) for step in walk.steps)
    return replace(walk, steps=tuple(steps))

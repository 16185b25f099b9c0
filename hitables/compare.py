"""Two rule sets, compared table by table: what `hitables check` does between reading and telling.

A table is one question, since a rule with memory may be reached from several chains and
must be one rule for all of them.  Where a table is not equal, its other chains are asked for
one by one, so that one difference does not hide the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from .errors import HitablesError
from .ir import semantics
from .ir.headers import is_malformed
from .ir.packet import Backend
from .ir.program import Program
from .verify.question import (
    Answer,
    Difference,
    Equal,
    Question,
    Undecided,
    chain_pairs,
    differs,
    with_all_tables,
)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sampling:
    """What engine "sample" draws: *packets* for each chain; equal seeds draw equal packets."""

    packets: int = 20_000
    seed: int = 0


Engine = Callable[[Program, Program, Question, Sampling, Tell], Answer]


class Result(Enum):
    """What became of a comparison, most telling first, and its exit status."""

    DIFFERENT = 1
    UNDECIDED = 2
    EQUAL = 0


@dataclass(frozen=True, slots=True)
class Case:
    """The one answer for *chains* of a table, read as *backends*.

    chains  () when the answer is about the table as a whole
    answer  None: not asked, as the table as a whole differs
    """

    table: str
    chains: tuple[str, ...]
    backends: tuple[Backend, ...]
    answer: Answer | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Checked:
    """What was asked, of which engine, and every answer, in the order of the first rule set."""

    before: Program
    after: Program
    question: Question
    engine: str
    sampling: Sampling
    cases: tuple[Case, ...]
    seconds: float

    @property
    def result(self) -> Result:
        answers = [case.answer for case in self.cases]
        if any(isinstance(answer, Difference) for answer in answers):
            return Result.DIFFERENT
        if any(isinstance(answer, Undecided) for answer in answers):
            return Result.UNDECIDED
        return Result.EQUAL

    @property
    def proved(self) -> bool:
        """Whether all of it is a proof; packets drawn are none."""
        return all(isinstance(case.answer, Equal) and case.answer.proved for case in self.cases)

    @property
    def looked_at(self) -> int:
        """Regions of the header space, or packets, where no difference was found."""
        return sum(case.answer.looked_at for case in self.cases if isinstance(case.answer, Equal))


def check(
    before: Program,
    after: Program,
    question: Question,
    *,
    engine: str = "exact",
    sampling: Sampling = Sampling(),
    tell: Tell = lambda stage: None,
) -> Checked:
    """Compare the chains that *question* asks for; HitablesError for what cannot be compared.

    A table that only one of them has is empty in the other, with policies ACCEPT.
    """
    began = time.monotonic()
    before, after = with_all_tables(before, after)
    asked = chain_pairs(before, after, question)
    if not asked:
        raise HitablesError(f"{before.name} and {after.name} have no chains that could be compared")
    asking = _Asking(before, after, question, ENGINES[engine], sampling, tell, began)
    cases: list[Case] = []
    for table in dict.fromkeys(table for table, _ in asked):
        cases += asking.table(table, tuple(chain for name, chain in asked if name == table))
    seconds = time.monotonic() - began
    return Checked(before, after, question, engine, sampling, tuple(cases), seconds)


@dataclass(frozen=True, slots=True)
class _Asking:
    before: Program
    after: Program
    question: Question
    engine: Engine
    sampling: Sampling
    tell: Tell
    began: float

    def table(self, table: str, chains: tuple[str, ...]) -> list[Case]:
        backends = self.question.backends
        answer, seconds = self.timed(table, chains, backends)
        if isinstance(answer, Equal):
            return [Case(table, chains, backends, answer, seconds)]
        if not answer.chain or (isinstance(answer, Difference) and answer.packet is None):
            # Memory of rules, of which the other chains' rules are a part.
            known = (answer.backend,) if answer.backend is not None else backends
            return [Case(table, (), known, answer, seconds), Case(table, chains, backends, None, 0.0)]
        assert answer.chain in chains, "an engine answers what it was asked"
        cases: list[Case] = []
        for chain in chains:
            cases += self.chain(table, chain, (answer, seconds) if chain == answer.chain else None)
        return cases

    def chain(self, table: str, chain: str, known: tuple[Answer, float] | None) -> list[Case]:
        """Ask until every backend has an answer: more than once only where some differ."""
        cases: list[Case] = []
        rest = self.question.backends
        while rest:
            answer, seconds = known or self.timed(table, (chain,), rest)
            known = None
            answered = self.answered(answer, rest)
            cases.append(Case(table, (chain,), answered, answer, seconds))
            rest = tuple(backend for backend in rest if backend not in answered)
        return cases

    def timed(
        self, table: str, chains: tuple[str, ...], backends: tuple[Backend, ...]
    ) -> tuple[Answer, float]:
        started = time.monotonic()
        return self.ask(table, chains, backends), time.monotonic() - started

    def ask(self, table: str, chains: tuple[str, ...], backends: tuple[Backend, ...]) -> Answer:
        left = self.question.timeout
        if left is not None:
            left -= time.monotonic() - self.began
            if left <= 0:
                return Undecided("the time was over before", table, chains[0], backends[0], 0.0)
        self.tell(f"comparing table {table}" + (f", chain {chains[0]}" if len(chains) == 1 else ""))
        here = replace(self.question, tables=frozenset({table}), chains=frozenset(chains))
        return self.engine(
            self.before, self.after, replace(here, backends=backends, timeout=left), self.sampling, self.tell
        )

    def answered(self, answer: Answer, backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
        """The backends for which *answer* holds."""
        if isinstance(answer, Equal):
            return backends
        assert answer.backend in backends, "an engine answers what it was asked"
        if isinstance(answer, Undecided):
            return (answer.backend,)
        return tuple(b for b in backends if b is answer.backend or self.differs_too(answer, b))

    def differs_too(self, difference: Difference, backend: Backend) -> bool:
        """Whether the same packet makes the same difference under *backend*."""
        packet = difference.packet
        assert packet is not None, "without one, the table as a whole differs"
        before, after = (
            semantics.run(program.table(difference.table), difference.chain, packet, backend)
            for program in (self.before, self.after)
        )
        may_drop = self.question.malformed == "stricter" and is_malformed(packet)
        reason = differs(before, after, may_drop, self.question.verdict_only)
        return reason == difference.reason and not before.open | after.open


def _exact(before: Program, after: Program, question: Question, sampling: Sampling, tell: Tell) -> Answer:
    from .verify import portfolio

    return portfolio.check(before, after, question, tell=tell)


def _diagrams(before: Program, after: Program, question: Question, sampling: Sampling, tell: Tell) -> Answer:
    from .verify import bdd

    return bdd.check(before, after, question)


def _sample(before: Program, after: Program, question: Question, sampling: Sampling, tell: Tell) -> Answer:
    from .simulate import sampling as sampled

    return sampled.check(before, after, question, packets=sampling.packets, seed=sampling.seed)


# Each loads what it needs when it is asked: numpy and the C engine take longer than `--help` may.
ENGINES: dict[str, Engine] = {"exact": _exact, "diagrams": _diagrams, "sample": _sample}

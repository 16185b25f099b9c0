"""Two rule sets, compared table by table, by any of three engines.

Idea: a table is one question, because a rule with memory may be reached from several chains and must be
one rule for all of them.  Where a table differs, its chains are compared one by one, so that one difference
does not hide the next.

Invariant: every chain that the question names is in exactly one case for each backend.

Packets that no kernel has make no difference (ir/unreal.py): where an engine finds one, it is asked again
with rules in front of both that drop these packets.  Nor does it make a difference whether a limit is asked
for packets up to it or above it (ir/limits_above.py).

Cost: one run of the engine for each table that is equal; for one that differs, up to one more for each
chain and backend; and twice that where a packet was found that no kernel has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from .errors import NotComparable
from .ir import semantics
from .ir.choices import Malformed
from .ir.headers import is_malformed
from .ir.limits_above import differ_in_above, up_to
from .ir.packet import Backend, Packet
from .ir.program import Program
from .ir.semantics import Walk
from .ir.unreal import why_unreal, without_unreal
from .verify.question import (
    Answer,
    Difference,
    Equal,
    Question,
    Undecided,
    chain_pairs,
    comparable,
    differs,
    with_open_policies,
)

Both = tuple[Program, Program]  # before and after
Tell = Callable[[str], None]  # receives the name of each step as it begins


@dataclass(frozen=True, slots=True)
class Sampling:
    """The packets of engine "sample": at most *packets* for each chain; equal seeds draw equal packets."""

    packets: int = 20_000
    seed: int = 0


Engine = Callable[[Program, Program, Question, Sampling, Tell], Answer]


class Result(Enum):
    """The result of a comparison; the value is the exit status of `hitables check`."""

    DIFFERENT = 1
    UNDECIDED = 2
    EQUAL = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One answer for *chains* of a table, read as *backends*.

    chains  () when the answer is about the table as a whole
    answer  None: not compared, because the table as a whole differs
    """

    table: str
    chains: tuple[str, ...]
    backends: tuple[Backend, ...]
    answer: Answer | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The question, the engine, and every answer, in the order of the first rule set.

    scope  what is compared, and what is left out, where the two are of two families; a line each
    """

    before: Program
    after: Program
    question: Question
    engine: str
    sampling: Sampling
    cases: tuple[Case, ...]
    seconds: float
    scope: tuple[str, ...] = ()

    @property
    def result(self) -> Result:
        answers = [case.answer for case in self.cases]
        if any(isinstance(answer, Difference) for answer in answers):
            return Result.DIFFERENT
        if any(isinstance(answer, Undecided) for answer in answers):
            return Result.UNDECIDED
        return Result.EQUAL

    def __bool__(self) -> bool:
        """Whether all of it is equal: not where something differs or is undecided."""
        return self.result is Result.EQUAL

    @property
    def differences(self) -> tuple[Difference, ...]:
        return tuple(case.answer for case in self.cases if isinstance(case.answer, Difference))

    @property
    def proved(self) -> bool:
        """Whether all answers are proofs of equality; drawn packets prove nothing."""
        return all(isinstance(case.answer, Equal) and case.answer.proved for case in self.cases)

    @property
    def looked_at(self) -> int:
        """How many regions of the header space (a proof), or packets, have no difference."""
        return sum(case.answer.looked_at for case in self.cases if isinstance(case.answer, Equal))


def check(
    before: Program,
    after: Program,
    question: Question,
    *,
    engine: str = "exact",
    sampling: Sampling = Sampling(),
    tell: Tell = lambda stage: None,
) -> Comparison:
    """Compare the chains that *question* names; NotComparable or UnknownName when that cannot be done.

    A table that only one rule set has counts as empty in the other, with policies ACCEPT.
    """
    started = time.monotonic()
    before, after = comparable(before, after)
    chains = chain_pairs(before, after, question)
    if not chains:
        raise NotComparable(f"{before.name} and {after.name} have no chains that could be compared")
    run = _Run(before, after, question, ENGINES[engine], sampling, tell, started)
    cases: list[Case] = []
    for table in dict.fromkeys(table for table, _ in chains):
        cases += run.compare_table(table, tuple(chain for name, chain in chains if name == table))
    seconds = time.monotonic() - started
    return Comparison(before, after, question, engine, sampling, tuple(cases), seconds)


@dataclass(frozen=True, slots=True)
class _Run:
    """One comparison in progress."""

    before: Program
    after: Program
    question: Question
    engine: Engine
    sampling: Sampling
    tell: Tell
    started: float

    def compare_table(self, table: str, chains: tuple[str, ...]) -> list[Case]:
        backends = self.question.backends
        answer, seconds = self.timed(table, chains, backends)
        if isinstance(answer, Equal):
            return [Case(table, chains, backends, answer, seconds)]
        if _is_of_table(answer):
            return _cases_of_table(table, chains, backends, answer, seconds)
        assert answer.chain in chains, "an engine answers for the chains and backends of its question"
        cases: list[Case] = []
        for chain in chains:
            cases += self.compare_chain(table, chain, (answer, seconds) if chain == answer.chain else None)
        return cases

    def compare_chain(self, table: str, chain: str, first: tuple[Answer, float] | None) -> list[Case]:
        """Compare until every backend has an answer.  *first* is the first answer, if it is known."""
        cases: list[Case] = []
        rest = self.question.backends
        while rest:
            answer, seconds = first or self.timed(table, (chain,), rest)
            first = None
            if _is_of_table(answer):
                return cases + _cases_of_table(table, (chain,), rest, answer, seconds)
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
        both = self.before, self.after
        answer = self.ask_of_real(both, table, chains, backends)
        if isinstance(answer, Difference) and differ_in_above(*both):
            alike = self.ask_of_real((up_to(both[0]), up_to(both[1])), table, chains, backends)
            return alike if isinstance(alike, Equal) else answer
        return answer

    def ask_of(
        self, both: Both, table: str, chains: tuple[str, ...], backends: tuple[Backend, ...]
    ) -> Answer:
        timeout = self.question.timeout
        if timeout is not None:
            timeout -= time.monotonic() - self.started
            if timeout <= 0:
                return Undecided("the time was over before", table, chains[0], backends[0], 0.0)
        self.tell(f"comparing table {table}" + (f", chain {chains[0]}" if len(chains) == 1 else ""))
        narrow = replace(
            self.question,
            backends=backends,
            tables=frozenset({table}),
            chains=frozenset(chains),
            timeout=timeout,
        )
        return self.engine(*both, narrow, self.sampling, self.tell)

    def ask_of_real(
        self, both: Both, table: str, chains: tuple[str, ...], backends: tuple[Backend, ...]
    ) -> Answer:
        """The answer for packets that a kernel may have."""
        unreal = self.ask_of(both, table, chains, backends)
        if not isinstance(unreal, Difference) or not unreal.packet or not why_unreal(unreal.packet, table):
            return unreal
        before, after = (without_unreal(program, (table,), chains) for program in both)
        answer = self.ask_of((before, after), table, chains, backends)
        if isinstance(answer, Equal):
            return replace(answer, real_only=True)
        if not isinstance(answer, Difference) or answer.packet is None or answer.backend is None:
            return answer
        if why_unreal(answer.packet, table):
            return unreal  # of a user chain, which has no such rules in front
        walks = self.walks(answer, answer.backend)
        reason = self.differs(answer.packet, *walks)
        return unreal if reason is None else replace(answer, before=walks[0], after=walks[1], reason=reason)

    def answered(self, answer: Answer, backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
        """The backends for which *answer* holds."""
        if isinstance(answer, Equal):
            return backends
        assert answer.backend in backends, "an engine answers for the chains and backends of its question"
        if isinstance(answer, Undecided):
            return (answer.backend,)
        return tuple(b for b in backends if b is answer.backend or self.differs_too(answer, b))

    def differs_too(self, difference: Difference, backend: Backend) -> bool:
        """Whether the same packet makes the same difference under *backend*."""
        assert difference.packet is not None, "a difference without a packet is one of the whole table"
        before, after = self.walks(difference, backend)
        is_same = self.differs(difference.packet, before, after) == difference.reason
        return is_same and not before.open | after.open

    def walks(self, difference: Difference, backend: Backend) -> tuple[Walk, Walk]:
        """The packet of *difference* through both programs."""
        assert difference.packet is not None
        before, after = (
            semantics.run(
                with_open_policies(program.table(difference.table)),
                difference.chain,
                difference.packet,
                backend,
            )
            for program in (self.before, self.after)
        )
        return before, after

    def differs(self, packet: Packet, before: Walk, after: Walk) -> str | None:
        may_drop = self.question.malformed is Malformed.STRICTER and is_malformed(packet)
        return differs(before, after, may_drop, self.question.verdict_only)


def _is_of_table(answer: Answer) -> bool:
    """Whether it is about rules with memory, which the chains of a table share."""
    if isinstance(answer, Equal):
        return False
    return not answer.chain or (isinstance(answer, Difference) and answer.packet is None)


def _cases_of_table(
    table: str, chains: tuple[str, ...], backends: tuple[Backend, ...], answer: Answer, seconds: float
) -> list[Case]:
    """*answer* about the table as a whole, for which *chains* are not compared."""
    assert not isinstance(answer, Equal)
    answered = (answer.backend,) if answer.backend is not None else backends
    return [Case(table, (), answered, answer, seconds), Case(table, chains, backends, None, 0.0)]


def _exact(before: Program, after: Program, question: Question, sampling: Sampling, tell: Tell) -> Answer:
    from .verify import portfolio

    return portfolio.check(before, after, question, tell=tell)


def _diagrams(before: Program, after: Program, question: Question, sampling: Sampling, tell: Tell) -> Answer:
    from .verify import bdd

    return bdd.check(before, after, question)


def _sample(before: Program, after: Program, question: Question, sampling: Sampling, tell: Tell) -> Answer:
    from .simulate import sampling as sampler

    return sampler.check(before, after, question, packets=sampling.packets, seed=sampling.seed)


# Each engine is imported when it is first used: numpy and the C engine would slow down `--help`.
ENGINES: dict[str, Engine] = {"exact": _exact, "diagrams": _diagrams, "sample": _sample}

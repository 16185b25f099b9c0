"""What `hitables check` found: for people, and as a `Report` for every other format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..compare import Case as Asked
from ..compare import Comparison, Result
from ..emit.text import rule_text
from ..ir.packet import Backend, Outcome
from ..ir.packet_text import show_packet
from ..ir.program import Program
from ..ir.rule import Ends, Kind
from ..ir.semantics import Step, Walk
from ..verify.question import Difference, Equal, Undecided, decided_by
from .finding import Case, Finding, Place, Report, Way

if TYPE_CHECKING:
    from ..kernel.replay import Replay


def report(checked: Comparison, replays: Mapping[int, Replay] = MappingProxyType({})) -> Report:
    """All that *checked* says.  *replays*: by number of the case, what the kernel made of its witness."""
    findings = {
        at: _finding(checked, case, replays.get(at))
        for at, case in enumerate(checked.cases)
        if _differs(case)
    }
    cases = []
    for at, asked in enumerate(checked.cases):
        found = (findings[at],) if at in findings else ()
        trouble = _trouble(asked.answer) if isinstance(asked.answer, Undecided) else ""
        skipped = "the table as a whole differs" if asked.answer is None else ""
        names = asked.chains or ("(whole table)",)
        share = asked.seconds / len(names) / len(asked.backends)
        cases += [
            Case(asked.table, f"{name} ({backend.value})", share, found, trouble, skipped)
            for name in names
            for backend in asked.backends
        ]
    return Report(
        "check",
        (checked.before.name, checked.after.name),
        checked.result.value,
        tuple(findings.values()),
        tuple(cases),
        checked.seconds,
        _facts(checked),
        _text(checked, findings.values()),
    )


def _differs(case: Asked) -> bool:
    return isinstance(case.answer, Difference)


# ---- text ----


def _text(checked: Comparison, findings: Iterable[Finding]) -> str:
    """The answer in the first line, what it covers in the last ones, differences between."""
    before, after = checked.before.name, checked.after.name
    lines = [f"{before} and {after}: {_answer(checked)}"]
    for finding in findings:
        lines += [*finding.text.splitlines(), ""]
    lines += [_trouble(case.answer) for case in checked.cases if isinstance(case.answer, Undecided)]
    alike = [case for case in checked.cases if isinstance(case.answer, Equal)]
    if alike:
        if checked.result is not Result.EQUAL:
            said = "proved equal" if _all_proved(alike) else "no difference found"
            lines.append(f"the others, each by itself: {said}")
        lines += [f"  table {table}: {', '.join(chains)}" for table, chains in _chains(alike)]
        lines.append(f"  {_looked_at(checked, alike)}, engine {checked.engine}, {checked.seconds:.1f} s")
    lines.append(f"  compared: {_compared(checked)}")
    return "\n".join(lines) + "\n"


def _answer(checked: Comparison) -> str:
    if checked.result is Result.DIFFERENT:
        return "they differ"
    if checked.result is Result.UNDECIDED:
        return "undecided"
    return "proved equal" if checked.proved else f"no difference found in {checked.looked_at} packets"


def _all_proved(cases: Iterable[Asked]) -> bool:
    return all(isinstance(case.answer, Equal) and case.answer.proved for case in cases)


def _looked_at(checked: Comparison, alike: list[Asked]) -> str:
    if _all_proved(alike):
        return f"{checked.looked_at} regions of the header space"
    return f"{checked.looked_at} packets drawn at the edges of both (seed {checked.sampling.seed})"


def _chains(cases: Iterable[Asked]) -> Iterator[tuple[str, list[str]]]:
    """Each table and its chains, with the backends that they were read as."""
    tables: dict[str, list[str]] = {}
    for case in cases:
        read_as = _backends(case.backends)
        tables.setdefault(case.table, []).extend(f"{chain} ({read_as})" for chain in case.chains)
    yield from tables.items()


def _backends(backends: tuple[Backend, ...]) -> str:
    return " and ".join(backend.value for backend in backends)


def _compared(checked: Comparison) -> str:
    question = checked.question
    what = "verdicts alone" if question.verdict_only else "verdicts and effects"
    if question.malformed == "exact":
        return f"{what}; malformed packets like all others"
    return f"{what}; {checked.after.name} may drop malformed packets"


def _trouble(answer: Undecided) -> str:
    place = f"table {answer.table}" + (f", chain {answer.chain}" if answer.chain else "")
    done = f"{answer.done:.0%} of its packets were decided"
    return f"{place} ({answer.backend.value}): undecided, {answer.reason}; {done}"


# ---- findings ----


def _finding(checked: Comparison, case: Asked, replay: Replay | None) -> Finding:
    difference = case.answer
    assert isinstance(difference, Difference)
    names = checked.before.name, checked.after.name
    place = f"table {difference.table}" + (f", chain {difference.chain}" if difference.chain else "")
    message = f"{place} ({_backends(case.backends)}): {difference.reason}"
    walks = {"before": difference.before, "after": difference.after}
    sides = {"before": checked.before, "after": checked.after}
    details = _details(difference, case, sides, walks)
    lines = [message, *difference.describe_ways(names)]
    if replay is not None:
        lines += replay.describe().splitlines()
        details["kernel"] = {
            "finding": replay.finding.value,
            "reason": replay.reason,
            "text": replay.describe(),
        }
    return Finding(
        _kind(difference),
        "error",
        message,
        # First the second file: it is the one under review.
        (_place_of(difference, checked.after, "after"), _place_of(difference, checked.before, "before")),
        tuple(filter(None, (difference.table, difference.chain))),
        tuple(_way(sides[role], walk) for role, walk in walks.items() if walk is not None),
        details,
        "\n".join(lines),
    )


def _kind(difference: Difference) -> str:
    before, after = difference.before, difference.after
    if before is None or after is None:
        return "different-memory"
    if before.verdict != after.verdict:
        return "different-verdict"
    return "different-effects" if before.effects != after.effects else "different-memory"


def _place_of(difference: Difference, program: Program, role: str) -> Place:
    """The rule, or the policy, that makes the difference in *program*; the table when there is no packet."""
    table = program.table(difference.table)
    walks = difference.before, difference.after
    walk, other = walks if role == "before" else walks[::-1]
    if walk is None or other is None:
        return Place(program.name, table.line, f"*{table.name}", role)
    step = decided_by(walk)
    if other.verdict == walk.verdict:
        step = _step_of_effect(walk, other) or step
    if step is not None:
        return _place(program, step, role)
    chain = table[difference.chain]
    return Place(program.name, chain.line or table.line, f":{chain.name} {chain.policy or '-'}", role)


def _step_of_effect(walk: Walk, other: Walk) -> Step | None:
    """The rule of the first effect that the other walk does not have at that point."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(walk.effects, other.effects, strict=False))
    at = len(list(same))
    if at == len(walk.effects):
        return None
    wanted = walk.effects[at]
    steps = [step for step in walk.steps if wanted in _may_say(step)]
    return steps[min(walk.effects[:at].count(wanted), len(steps) - 1)] if steps else None


def _may_say(step: Step) -> set[str]:
    """Effects that may come of a rule that was read."""
    said = {f"asks {match.key}: {outcome.name.lower()}" for match in step.rule.matches for outcome in Outcome}
    if step.outcome is Outcome.YES:
        target = step.rule.target
        if target is None:
            said.add("counts")
        elif target.kind is Kind.VERDICT and target.ends is not Ends.SURELY:
            said.add(f"fires {target.key}")
    return said


def _place(program: Program, step: Step, role: str = "") -> Place:
    rule = step.rule._replace(counters=None)
    return Place(program.name, step.rule.line, rule_text(rule, step.chain), role)


def _way(program: Program, walk: Walk) -> Way:
    matched = tuple(_place(program, step) for step in walk.steps if step.outcome is not Outcome.NO)
    return Way(f"{program.name}: {walk.verdict}", matched)


def _details(
    difference: Difference, case: Asked, sides: dict[str, Program], walks: dict[str, Walk | None]
) -> dict[str, Any]:
    details: dict[str, Any] = {
        "table": difference.table,
        "chain": difference.chain,
        "backends": [backend.value for backend in case.backends],
        "reason": difference.reason,
    }
    if difference.packet is not None:
        details["packet"] = show_packet(
            difference.packet, difference.table, difference.chain, difference.answers
        )
    for role, walk in walks.items():
        if walk is not None:
            details[role] = {
                "verdict": walk.verdict,
                "effects": list(walk.effects),
                "rules_read": len(walk.steps),
                "path": [_step(sides[role], step) for step in walk.steps if step.outcome is not Outcome.NO],
            }
    return details


def _step(program: Program, step: Step) -> dict[str, Any]:
    place = _place(program, step)
    return {"line": place.line, "chain": step.chain, "rule": place.text, "outcome": step.outcome.name.lower()}


# ---- facts ----


def _facts(checked: Comparison) -> dict[str, Any]:
    question = checked.question
    answers = {Result.DIFFERENT: "different", Result.UNDECIDED: "undecided"}
    engine: dict[str, Any] = {"name": checked.engine}
    if checked.engine == "sample":
        engine |= {"packets": checked.sampling.packets, "seed": checked.sampling.seed}
    return {
        "answer": answers.get(checked.result, "equal" if checked.proved else "no difference found"),
        "before": {"file": checked.before.name, "rules": checked.before.rule_count()},
        "after": {"file": checked.after.name, "rules": checked.after.rule_count()},
        "family": int(checked.before.family),
        "question": {
            "backends": [backend.value for backend in question.backends],
            "malformed": question.malformed,
            "verdict_only": question.verdict_only,
            "tables": sorted(question.tables),
            "chains": sorted(question.chains),
            "timeout": question.timeout,
            "max_memory": question.max_memory,
        },
        "engine": engine,
        "cases": [_case(case) for case in checked.cases],
    }


def _case(case: Asked) -> dict[str, Any]:
    said: dict[str, Any] = {
        "table": case.table,
        "chains": list(case.chains),
        "backends": [backend.value for backend in case.backends],
        "seconds": round(case.seconds, 3),
    }
    match case.answer:
        case Equal(proved, looked_at):
            if proved:
                return said | {"answer": "equal", "regions": looked_at}
            return said | {"answer": "no difference found", "packets": looked_at}
        case Undecided():
            return said | {"answer": "undecided", "reason": case.answer.reason, "done": case.answer.done}
        case Difference():
            return said | {"answer": "different"}
        case None:
            return said | {"answer": "not asked"}

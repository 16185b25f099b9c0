"""The result of `hitables check` as a `Report`: findings are differences, cases are chains.

The text starts with the answer, continues with the differences, and ends with the chains that were compared
and with the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..analyse.tracking import rules_that_reassemble, rules_that_track
from ..compare import Case as ComparedCase
from ..compare import Comparison, Result
from ..emit.text import rule_text
from ..ir.headers import is_malformed
from ..ir.packet import Backend, Outcome, Packet
from ..ir.packet_text import show_packet
from ..ir.program import Program
from ..ir.rule import Ends, Kind
from ..ir.semantics import Step, Walk, evaluation
from ..rule_lines import lines_of
from ..verify.question import Difference, Equal, Origin, Undecided, decided_by
from ..verify.unentered import unentered
from .finding import Case, Finding, PacketPath, Report, SourceLine
from .unentered import note

if TYPE_CHECKING:
    from ..kernel.replay import Replay
    from ..sources.known import Known

_UNREAL = (
    "packets that no kernel has, as packets of their kind never have their state; they are treated otherwise"
)

# Before and after; None: the rule set is no compiled one, or its source is not known.
Sources = tuple["Known | None", "Known | None"]


def report(
    comparison: Comparison,
    replays: Mapping[int, Replay] = MappingProxyType({}),
    known: Sources = (None, None),
) -> Report:
    """*replays* has the kernel's treatment of witnesses, by the number of the case.

    *known*: the rule sets before and after with their sources, where these are known.
    """
    findings = {
        number: _finding(comparison, case, replays.get(number), known)
        for number, case in enumerate(comparison.cases)
        if isinstance(case.answer, Difference)
    }
    cases = []
    for number, compared in enumerate(comparison.cases):
        of_case = (findings[number],) if number in findings else ()
        trouble = _trouble(compared.answer) if isinstance(compared.answer, Undecided) else ""
        skipped = "the table as a whole differs" if compared.answer is None else ""
        names = compared.chains or ("(whole table)",)
        seconds = compared.seconds / len(names) / len(compared.backends)
        cases += [
            Case(compared.table, f"{name} ({backend.value})", seconds, of_case, trouble, skipped)
            for name in names
            for backend in compared.backends
        ]
    notes = _notes(comparison)
    return Report(
        "check",
        (comparison.before.name, comparison.after.name),
        comparison.result.value,
        tuple(findings.values()),
        tuple(cases),
        comparison.seconds,
        _facts(comparison, notes),
        _text(comparison, findings.values(), notes),
    )


# ---- text ----


def _text(comparison: Comparison, findings: Iterable[Finding], notes: list[str]) -> str:
    before, after = comparison.before.name, comparison.after.name
    families = ", as far as both families can be compared" if comparison.scope else ""
    lines = [f"{before} and {after}: {_answer(comparison)}{families}"]
    for finding in findings:
        lines += [*lines_of(finding.text), ""]
    lines += [_trouble(case.answer) for case in comparison.cases if isinstance(case.answer, Undecided)]
    equal = [case for case in comparison.cases if isinstance(case.answer, Equal)]
    if equal:
        if comparison.result is not Result.EQUAL:
            answer = "proved equal" if _all_proved(equal) else "no difference found"
            lines.append(f"the others, each by itself: {answer}")
        lines += [f"  table {table}: {', '.join(chains)}" for table, chains in _chains(equal)]
        lines.append(
            f"  {_looked_at(comparison, equal)}, engine {comparison.engine}, {comparison.seconds:.1f} s"
        )
    lines.append(f"  compared: {_compared(comparison)}")
    if any(case.answer.real_only for case in equal if isinstance(case.answer, Equal)):
        lines.append(f"  left out: {_UNREAL}")
    lines += [f"  {line}" for line in comparison.scope]
    lines += [f"  note: {note}" for note in notes]
    return "\n".join(lines) + "\n"


def _answer(comparison: Comparison) -> str:
    if comparison.result is Result.DIFFERENT:
        return "they differ"
    if comparison.result is Result.UNDECIDED:
        return "undecided"
    return "proved equal" if comparison.proved else f"no difference found in {comparison.looked_at} packets"


def _all_proved(cases: Iterable[ComparedCase]) -> bool:
    return all(isinstance(case.answer, Equal) and case.answer.proved for case in cases)


def _looked_at(comparison: Comparison, equal: list[ComparedCase]) -> str:
    if _all_proved(equal):
        return f"{comparison.looked_at} regions of the header space"
    return f"{comparison.looked_at} packets drawn at the boundaries of both (seed {comparison.sampling.seed})"


def _chains(cases: Iterable[ComparedCase]) -> Iterator[tuple[str, list[str]]]:
    """Each table with its chains, and the backends whose reading was compared."""
    tables: dict[str, list[str]] = {}
    for case in cases:
        backends = _backends(case.backends)
        tables.setdefault(case.table, []).extend(f"{chain} ({backends})" for chain in case.chains)
    yield from tables.items()


def _backends(backends: tuple[Backend, ...]) -> str:
    return " and ".join(backend.value for backend in backends)


def _compared(comparison: Comparison) -> str:
    question = comparison.question
    what = "verdicts only" if question.verdict_only else "verdicts and effects"
    if comparison.scope:
        return what
    if question.malformed == "exact":
        return f"{what}; malformed packets too"
    return f"{what}; {comparison.after.name} may drop malformed packets"


def _notes(comparison: Comparison) -> list[str]:
    """What the comparison does not compare, or assumes and these two rule sets do not keep."""
    before, after = comparison.before, comparison.after
    # The rules of two families are never spelled alike.
    found = [] if comparison.scope else note(list(unentered(before, after, comparison.question)))
    return [*_on_tracking(before, after), *found]


def _on_tracking(before: Program, after: Program) -> list[str]:
    for effect, rules_for in (
        ("track connections and reassemble fragments", rules_that_track),
        ("reassemble fragments", rules_that_reassemble),
    ):
        having = [program.name for program in (before, after) if rules_for(program)]
        if len(having) == 1:
            return [
                f"only {having[0]} has rules that make the kernel {effect}; the comparison assumes the same "
                "packets for both"
            ]
    return []


def _trouble(answer: Undecided) -> str:
    place = f"table {answer.table}" + (f", chain {answer.chain}" if answer.chain else "")
    done = f"{answer.done:.0%} of its packets were decided"
    return f"{place} ({answer.backend.value}): undecided, {answer.reason}; {done}"


# ---- findings ----


def _finding(comparison: Comparison, case: ComparedCase, replay: Replay | None, known: Sources) -> Finding:
    difference = case.answer
    assert isinstance(difference, Difference)
    names = comparison.before.name, comparison.after.name
    place = f"table {difference.table}" + (f", chain {difference.chain}" if difference.chain else "")
    kind = _unusual(difference.packet)
    message = f"{place} ({_backends(case.backends)}): {difference.reason}" + (f", for {kind}" if kind else "")
    walks = {"before": difference.before, "after": difference.after}
    programs = {"before": comparison.before, "after": comparison.after}
    details = _details(difference, case, programs, walks)
    origins = _origin(known[0], difference.table), _origin(known[1], difference.table)
    lines = [message, *difference.describe_ways(names, origins)]
    if replay is not None:
        lines += lines_of(replay.describe())
        details["kernel"] = {
            "finding": replay.finding.value,
            "reason": replay.reason,
            "text": replay.describe(),
        }
    return Finding(
        _kind(difference),
        "error",
        message,
        # The second file comes first: it is the one under review.
        (
            _place_of(difference, comparison.after, "after"),
            _place_of(difference, comparison.before, "before"),
            *_places_of_sources(difference, known),
        ),
        tuple(filter(None, (difference.table, difference.chain))),
        tuple(_path(programs[role], walk) for role, walk in walks.items() if walk is not None),
        details,
        "\n".join(lines),
    )


def _unusual(packet: Packet | None) -> str:
    """What *packet* is, if it is no whole packet with all its headers."""
    if packet is None:
        return ""
    if is_malformed(packet):
        return "a packet with broken headers"
    return "a later fragment" if packet.is_later_fragment else ""


def _origin(known: Known | None, table: str) -> Origin:
    return lambda step: known.place(table, step.chain, step.index) if known is not None else ""


def _places_of_sources(difference: Difference, known: Sources) -> Iterator[SourceLine]:
    """The rules of the sources whose copies make the difference, the one under review first."""
    for role, each in (("after", known[1]), ("before", known[0])):
        step = _deciding(difference, role)
        found = each.origin(difference.table, step.chain, step.index) if each and step else None
        if each and found:
            yield SourceLine(each.file(difference.table), found.rule.line, found.text, role)


def _kind(difference: Difference) -> str:
    before, after = difference.before, difference.after
    if before is None or after is None:
        return "different-memory"
    if before.verdict != after.verdict:
        return "different-verdict"
    return "different-effects" if before.effects != after.effects else "different-memory"


def _place_of(difference: Difference, program: Program, role: str) -> SourceLine:
    """The rule or the policy that makes the difference in *program*; the table if there is no packet."""
    table = program.table(difference.table)
    if difference.before is None or difference.after is None:
        return SourceLine(program.name, table.line, f"*{table.name}", role)
    step = _deciding(difference, role)
    if step is not None:
        return _place(program, step, role)
    chain = table[difference.chain]
    return SourceLine(program.name, chain.line or table.line, f":{chain.name} {chain.end or '-'}", role)


def _deciding(difference: Difference, role: str) -> Step | None:
    """The rule that makes the difference; None: the policy, or there is no packet."""
    walks = difference.before, difference.after
    walk, other = walks if role == "before" else walks[::-1]
    if walk is None or other is None:
        return None
    step = decided_by(walk)
    return _step_of_effect(walk, other) or step if other.verdict == walk.verdict else step


def _step_of_effect(walk: Walk, other: Walk) -> Step | None:
    """The rule of the first effect that *other* does not have at the same point."""
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(walk.effects, other.effects, strict=False))
    first = len(list(equal))
    if first == len(walk.effects):
        return None
    effect = walk.effects[first]
    steps = [step for step in walk.steps if effect in _possible_effects(step)]
    return steps[min(walk.effects[:first].count(effect), len(steps) - 1)] if steps else None


def _possible_effects(step: Step) -> set[str]:
    """The effects that a rule that was read can have (ir.semantics words them)."""
    effects = {evaluation(match.key, outcome) for match in step.rule.matches for outcome in Outcome}
    if step.outcome is Outcome.YES:
        target = step.rule.target
        if target is None:
            effects.add("counts")
        elif target.kind is Kind.VERDICT and target.ends is not Ends.SURELY:
            effects.add(f"fires {target.key}")
    return effects


def _place(program: Program, step: Step, role: str = "") -> SourceLine:
    rule = step.rule._replace(counters=None)
    return SourceLine(program.name, step.rule.line, rule_text(rule, step.chain), role)


def _path(program: Program, walk: Walk) -> PacketPath:
    matched = tuple(_place(program, step) for step in walk.steps if step.outcome is not Outcome.NO)
    return PacketPath(f"{program.name}: {walk.verdict}", matched)


def _details(
    difference: Difference, case: ComparedCase, programs: dict[str, Program], walks: dict[str, Walk | None]
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
                "path": [
                    _step(programs[role], step) for step in walk.steps if step.outcome is not Outcome.NO
                ],
            }
    return details


def _step(program: Program, step: Step) -> dict[str, Any]:
    place = _place(program, step)
    return {"line": place.line, "chain": step.chain, "rule": place.text, "outcome": step.outcome.name.lower()}


# ---- facts ----


def _facts(comparison: Comparison, notes: list[str]) -> dict[str, Any]:
    question = comparison.question
    answers = {Result.DIFFERENT: "different", Result.UNDECIDED: "undecided"}
    engine: dict[str, Any] = {"name": comparison.engine}
    if comparison.engine == "sample":
        engine |= {"packets": comparison.sampling.packets, "seed": comparison.sampling.seed}
    return {
        "answer": answers.get(comparison.result, "equal" if comparison.proved else "no difference found"),
        "before": {"file": comparison.before.name, "rules": comparison.before.rule_count()},
        "after": {"file": comparison.after.name, "rules": comparison.after.rule_count()},
        "family": int(comparison.before.family),
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
        "scope": list(comparison.scope),
        "notes": notes,
        "cases": [_case(case) for case in comparison.cases],
    }


def _case(case: ComparedCase) -> dict[str, Any]:
    data: dict[str, Any] = {
        "table": case.table,
        "chains": list(case.chains),
        "backends": [backend.value for backend in case.backends],
        "seconds": round(case.seconds, 3),
    }
    match case.answer:
        case Equal(proved, looked_at):
            if proved:
                unread = [{"chain": each.chain, "why": each.why} for each in case.answer.by_regions]
                return data | {
                    "answer": "equal",
                    "regions": looked_at,
                    "by_regions": unread,
                    "real_only": case.answer.real_only,
                }
            return data | {"answer": "no difference found", "packets": looked_at}
        case Undecided():
            return data | {"answer": "undecided", "reason": case.answer.reason, "done": case.answer.done}
        case Difference():
            return data | {"answer": "different"}
        case None:
            return data | {"answer": "not asked"}

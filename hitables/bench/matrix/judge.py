"""The table of options held against what the kernel showed.

A failure is what makes `hitables check` say "equal" wrongly: a pair that the table calls
independent and the kernel does not, a match that changes by itself and is no event, a target that
ends the packet's way otherwise than the table says.  A pair that could not be tried must be
dependent: nothing speaks for the opposite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...errors import HitablesError
from ...ir.dependence import parts, rule_may_change, writes
from ...ir.fields import Family, Field
from ...ir.program import BUILT_IN
from ...ir.rule import Ends, Role, Rule, State
from ...ir.semantics import FIELDS_WRITTEN
from ...library import read
from ...syntax.options import MATCHES, TARGETS, Extension
from .record import APART, CHANGED, NO_PACKET, SETTINGS, WRITERS, Record
from .rules import NOT_TRIED, READERS, Try


@dataclass(frozen=True, slots=True, order=True)
class Disagreement:
    """A pair or rule that the table and the kernel see differently."""

    kind: str
    writer: str
    reader: str = ""
    shown: str = ""

    def text(self) -> str:
        pair = f"{self.writer}  |  {self.reader}" if self.reader else self.writer
        return f"{self.kind}: {pair}  ({self.shown})"


@dataclass(slots=True)
class Judgement:
    """failures: as above; idle: pairs called dependent that no packet showed to be."""

    failures: list[Disagreement] = field(default_factory=list)
    idle: list[tuple[str, str]] = field(default_factory=list)
    pairs: int = 0
    changed: int = 0
    tried: int = 0


CALLED_INDEPENDENT = "changes, called independent"
UNTRIED = "not tried, called independent"
BY_ITSELF = "changes by itself, called constant"
ENDS, GOES_ON = "ends the way, said never to", "goes on, said to end the way"


def parsed(words: str, family: Family, table: str, chain: str) -> Rule:
    """The rule of these words, as the ordinary parser reads it."""
    program = read(f"*{table}\n-A {chain} {words}\nCOMMIT\n", family=family, name="matrix")
    return program.table(table)[chain].rules[0]


def rule_of(each: Try, family: Family) -> Rule:
    """The rule of a reader or writer."""
    table = each.tables[0] if each.tables else "mangle"
    chain = next(chain for chain in BUILT_IN[table] if chain in each.chains)
    return parsed(each.rule(family), family, table, chain)


def judge(record: Record) -> Judgement:
    """Hold the table, as it is now, against *record*."""
    out = Judgement()
    readers = {f: [rule_of(r, f) if f in r.families else None for r in READERS] for f in Family}
    # Only what a rule writes says what it may change.
    known: dict[tuple[Family, int, frozenset[frozenset[State]]], bool] = {}
    for at, writer in enumerate(WRITERS):
        rules = {family: rule_of(writer, family) for family in writer.families}
        written = {family: frozenset(map(writes, parts(rule))) for family, rule in rules.items()}
        _judge_ends(record, at, next(iter(rules.values())), out)
        for to in range(len(READERS)):
            letters = record.code(at, to)
            out.pairs += sum(letter != APART for letter in letters.values())
            dependent = {}
            for family, rule in rules.items():
                reader = readers[family][to]
                if reader is None:
                    continue
                key = family, to, written[family]
                if key not in known:
                    known[key] = rule_may_change(rule, reader)
                dependent[family] = known[key]
            _judge_pair(record, at, to, dependent, out)
    for to, probe in enumerate(READERS):
        shown = record.by_itself.get(record.readers[to], {})
        for setting in SETTINGS:
            asked = readers[setting.family][to]
            if asked is not None and setting.name in shown and not _is_event(asked):
                where = f"{setting.name}, {shown[setting.name]}"
                out.failures.append(Disagreement(BY_ITSELF, probe.words, "", where))
    _judge_untried(out, readers)
    return out


def _is_event(rule: Rule) -> bool:
    return any(match.role in (Role.NAMED, Role.ONCE) for match in rule.matches)


def _judge_pair(record: Record, at: int, to: int, dependent: dict[Family, bool], out: Judgement) -> None:
    writer, reader = record.writers[at], record.readers[to]
    letters = record.code(at, to)
    shown = record.shown.get(writer, {}).get(reader, {})
    wrong = []
    for setting in SETTINGS:
        letter = letters[setting.name]
        if letter == CHANGED:
            out.changed += 1
            if not dependent[setting.family]:
                wrong.append(f"{setting.name}, {shown[setting.name]}")
    out.tried += sum(letter in (CHANGED, ".") for letter in letters.values())
    if wrong:
        out.failures.append(Disagreement(CALLED_INDEPENDENT, writer, reader, "; ".join(wrong)))
    if record.was_tried(at, to):
        if CHANGED not in letters.values() and any(dependent.values()):
            out.idle.append((writer, reader))
        return
    # A pair that stands in no chain together, or whose writer ends the way, is never asked.
    reasons = {letter for letter in letters.values() if letter != APART}
    if reasons and reasons != {NO_PACKET} and not all(dependent.values()):
        refused = record.refused.get(writer) or record.refused.get(reader) or "refused"
        out.failures.append(Disagreement(UNTRIED, writer, reader, refused))


def _judge_ends(record: Record, at: int, rule: Rule, out: Judgement) -> None:
    if rule.target is None:
        return
    writer = record.writers[at]
    if rule.target.ends is Ends.NEVER and writer in record.ended:
        out.failures.append(Disagreement(ENDS, writer, "", record.ended[writer]))
    if rule.target.ends is Ends.SURELY and writer in record.went_on:
        out.failures.append(Disagreement(GOES_ON, writer, "", record.went_on[writer]))


def _judge_untried(out: Judgement, readers: dict[Family, list[Rule | None]]) -> None:
    """Extensions that cannot be tried here must depend on whatever writes, and change whatever is asked."""
    family = Family.IPV4
    rules = {each.words: rule_of(each, family) for each in WRITERS if family in each.families}
    for words, reason in NOT_TRIED.values():
        rule = parsed(words, family, "mangle", "PREROUTING")
        if rule.target is None:
            for writer, written in rules.items():
                if any(map(writes, parts(written))) and not rule_may_change(written, rule):
                    out.failures.append(Disagreement(UNTRIED, writer, words, reason))
        elif rule.target.ends is not Ends.SURELY:
            for probe, asked in zip(READERS, readers[family], strict=True):
                constant = asked is not None and not _is_event(asked) and any(m.name for m in asked.matches)
                if constant and asked is not None and not rule_may_change(rule, asked):
                    out.failures.append(Disagreement(UNTRIED, words, probe.words, reason))


# The table with one mistake.


@dataclass(frozen=True, slots=True)
class Mistake:
    """One entry of the table that forgets one thing."""

    text: str
    kind: str  # "match", "target" or "fields"
    name: str = ""
    change: tuple[tuple[str, object], ...] = ()
    state: State | None = None
    field: Field | None = None


def mistakes() -> Iterator[Mistake]:
    """Each way in which one entry of the table can forget one thing."""
    for kind, table in (("match", MATCHES), ("target", TARGETS)):
        for name, extension in table.items():
            for what in ("reads", "writes"):
                states = getattr(extension, what)
                for state in sorted(states):
                    left = frozenset(states) - {state}
                    yield Mistake(f"{name} {what} no {state.name}", kind, name, ((what, left),))
            if kind == "match" and extension.role in (Role.NAMED, Role.ONCE):
                yield Mistake(f"{name} is CONSTANT", kind, name, (("role", Role.CONSTANT),))
            if kind == "match" and extension.counting:
                yield Mistake(f"{name} never counts", kind, name, (("counting", frozenset()),))
            if kind == "target":
                for ends in Ends:
                    if ends is not extension.ends and ends is not Ends.MAYBE:
                        yield Mistake(f"{name} ends {ends.name}", kind, name, (("ends", ends),))
    for state, fields in FIELDS_WRITTEN.items():
        for one in sorted(fields):
            yield Mistake(f"{state.name} writes no {one.name}", "fields", state=state, field=one)


@contextmanager
def made(mistake: Mistake) -> Iterator[None]:
    """The table with *mistake*, while the block runs."""
    if mistake.kind == "fields":
        assert mistake.state is not None and mistake.field is not None
        held = FIELDS_WRITTEN[mistake.state]
        FIELDS_WRITTEN[mistake.state] = held - {mistake.field}
        try:
            yield
        finally:
            FIELDS_WRITTEN[mistake.state] = held
        return
    table: dict[str, Extension] = MATCHES if mistake.kind == "match" else TARGETS
    right = table[mistake.name]
    table[mistake.name] = dataclasses.replace(right, **dict(mistake.change))  # type: ignore[arg-type]
    try:
        yield
    finally:
        table[mistake.name] = right


def survivors(record: Record) -> tuple[list[Mistake], list[Mistake]]:
    """Mistakes that *record* shows, and those that it does not."""
    usual = {failure.text() for failure in judge(record).failures}
    caught: list[Mistake] = []
    left: list[Mistake] = []
    for mistake in mistakes():
        try:
            with made(mistake):
                now = {failure.text() for failure in judge(record).failures}
        except HitablesError:
            caught.append(mistake)  # the rules cannot even be read
            continue
        (caught if now - usual else left).append(mistake)
    return caught, left

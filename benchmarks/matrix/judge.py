"""The table of reads and writes compared with the kernel's results.

A failure is a mistake that makes `hitables check` answer "equal" wrongly: a pair that is independent in the
table and dependent in the kernel, a match that changes by itself and is no event, a target that ends the
traversal although the table excludes it, or continues it.  A pair that could not be tried must be
dependent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hitables.api import read
from hitables.errors import HitablesError
from hitables.ir.dependence import parts, rule_may_change
from hitables.ir.fields import Family, Field
from hitables.ir.program import BUILT_IN
from hitables.ir.rule import EVERYTHING, Ends, Metadata, Role, Rule
from hitables.ir.semantics import FIELDS_WRITTEN
from hitables.syntax import access, options
from hitables.syntax.extensions import MATCHES, TARGETS

from .record import APART, CHANGED, NEVER, NO_PACKET, SETTINGS, WRITERS, Record, identity
from .record import BY_ITSELF as EVENT
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


Rules = dict[tuple[Try, Family], Rule]


def parsed(words: str, family: Family, table: str, chain: str) -> Rule:
    """The rule of these words, as the ordinary parser reads it."""
    program = read(f"*{table}\n-A {chain} {words}\nCOMMIT\n", family=family, name="matrix")
    return program.table(table)[chain].rules[0]


def rule_of(each: Try, family: Family) -> Rule:
    """The rule of a reader or writer."""
    table = "mangle" if "mangle" in each.tables or not each.tables else each.tables[0]
    chain = next(chain for chain in BUILT_IN[table] if chain in each.chains)
    return parsed(each.rule(family), family, table, chain)


def all_rules(previous: Rules | None = None, naming: str = "") -> Rules:
    """The rules of all readers and writers: *held*, where those that name *naming* are read anew."""
    out = dict(previous or {})
    for each in (*READERS, *WRITERS):
        if previous is None or each.name == naming or f" {naming} " in f" {each.words} ":
            out.update({(each, family): rule_of(each, family) for family in each.families})
    return out


def judge(record: Record, rules: Rules | None = None) -> Judgement:
    """Hold the table, as it is now (or as it was when *rules* were read), against *record*."""
    out = Judgement()
    rules = rules or all_rules()
    readers = {f: [rules.get((reader, f)) for reader in READERS] for f in Family}
    # A rule may change only what its writes affect.
    known: dict[tuple[frozenset[frozenset[Metadata]], Family], list[bool]] = {}
    for at, writer in enumerate(WRITERS):
        mine = {family: rules[writer, family] for family in writer.families}
        _judge_ends(record, at, next(iter(mine.values())), out)
        dependent = {}
        for family, rule in mine.items():
            key = frozenset(part.writes for part in parts(rule)), family
            if key not in known:
                known[key] = [r is not None and rule_may_change(rule, r) for r in readers[family]]
            dependent[family] = known[key]
        lines = [record.codes[name][at] for name in _NAMES]
        for to, letters in enumerate(zip(*lines, strict=True)):
            _judge_pair(record, at, to, letters, dependent, readers, out)
    for to, probe in enumerate(READERS):
        shown = record.by_itself.get(record.readers[to], {})
        for setting in SETTINGS:
            asked = readers[setting.family][to]
            if asked is not None and setting.name in shown and not is_event(asked):
                where = f"{setting.name}, {shown[setting.name]}"
                out.failures.append(Disagreement(BY_ITSELF, probe.words, "", where))
    _judge_untried(out, rules)
    return out


_NAMES = [setting.name for setting in SETTINGS]
_FAMILIES = [setting.family for setting in SETTINGS]


def is_event(rule: Rule) -> bool:
    """Whether some match of *rule* has memory or chance."""
    return any(match.role in (Role.NAMED, Role.ONCE) for match in rule.matches)


def _judge_pair(
    record: Record,
    at: int,
    to: int,
    letters: tuple[str, ...],
    dependent: dict[Family, list[bool]],
    readers: dict[Family, list[Rule | None]],
    out: Judgement,
) -> None:
    """One pair; *letters* by setting, *dependent* by family: whether the table calls each reader so."""
    out.pairs += len(letters) - letters.count(APART)
    changed, never = letters.count(CHANGED), letters.count(NEVER) + letters.count(EVENT)
    out.changed += changed
    out.tried += changed + never
    writer, reader = record.writers[at], record.readers[to]
    if changed:
        wrong = [
            name
            for name, family, letter in zip(_NAMES, _FAMILIES, letters, strict=True)
            if letter == CHANGED and not dependent[family][to]
        ]
        if wrong:
            shown = record.shown[writer][reader]
            where = "; ".join(f"{name}, {shown[name]}" for name in wrong)
            out.failures.append(Disagreement(CALLED_INDEPENDENT, writer, reader, where))
    elif never:
        if any(row[to] for row in dependent.values()):
            out.idle.append((writer, reader))
    elif not set(letters) <= {APART, NO_PACKET}:
        # A pair is never tried if no chain allows both, or if its writer always ends the traversal.
        asked = zip(_FAMILIES, letters, strict=True)
        refused = [family for family, letter in asked if letter not in (APART, NO_PACKET)]
        rules = [readers[family][to] for family in refused]
        if all(rule is None or _is_fixed(rule) for rule in rules):
            return
        if not all(dependent[family][to] for family in refused):
            reason = record.refused.get(writer) or record.refused.get(reader) or "refused"
            out.failures.append(Disagreement(UNTRIED, writer, reader, reason))


def _judge_ends(record: Record, at: int, rule: Rule, out: Judgement) -> None:
    if rule.target is None:
        return
    writer = record.writers[at]
    if rule.target.ends is Ends.NEVER and writer in record.ended:
        out.failures.append(Disagreement(ENDS, writer, "", record.ended[writer]))
    if rule.target.ends is Ends.SURELY and writer in record.went_on:
        out.failures.append(Disagreement(GOES_ON, writer, "", record.went_on[writer]))


def _judge_untried(out: Judgement, rules: Rules) -> None:
    """Untried extensions must depend on every rule that writes, and change every probe that can change."""
    family = Family.IPV4
    probes = [each for each in READERS if (each, family) in rules and each.name]
    for words, reason in NOT_TRIED.values():
        rule = parsed(words, family, "mangle", "PREROUTING")
        if rule.target is None:
            for each in WRITERS:
                written = rules.get((each, family))
                if written is None or not any(part.writes for part in parts(written)):
                    continue
                if not rule_may_change(written, rule):
                    out.failures.append(Disagreement(UNTRIED, identity(each), words, reason))
        elif rule.target.ends is not Ends.SURELY:
            for probe in probes:
                asked = rules[probe, family]
                if not _is_fixed(asked) and not rule_may_change(rule, asked):
                    out.failures.append(Disagreement(UNTRIED, words, identity(probe), reason))


def _is_fixed(rule: Rule) -> bool:
    """Whether *rule* only tests header fields that nothing writes, as far as FIELDS_WRITTEN goes."""
    fields = frozenset[Field]().union(*FIELDS_WRITTEN.values())
    return all(
        match.role is Role.SPACE and not any(test.field in fields for test in match.tests)
        for match in rule.matches
    )


# The table with one mistake.


@dataclass(frozen=True, slots=True)
class Mistake:
    """A table entry that omits one thing.  kind: the table of the entry, a key of _PLACES, or "fields"."""

    text: str
    kind: str
    name: str = ""
    change: tuple[tuple[str, object], ...] = ()
    state: Metadata | None = None
    field: Field | None = None


def mistakes() -> Iterator[Mistake]:
    """Each way in which one entry of the table can omit one thing."""
    yield from _access_mistakes("match access", "", options.HEADER_ACCESS)
    for kind, table in (("match access", MATCHES), ("target access", TARGETS)):
        for name, extension in table.items():
            yield from _access_mistakes(kind, name, extension.access)
    for kind, table in (("match", MATCHES), ("target", TARGETS)):
        for name, extension in table.items():
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


def _access_mistakes(kind: str, name: str, line: access.Access) -> Iterator[Mistake]:
    """The states that the line could omit; a line with "everything" has none."""
    spelt = name or "an address with a scattered mask"
    for what, states in (("reads", line.reads), ("writes", line.writes)):
        for state in sorted(states if states != EVERYTHING else ()):
            yield Mistake(f"{spelt} {what} no {state.name}", kind, name, ((what, states - {state}),))
    for option, states in line.writes_with.items():
        for state in sorted(states):
            left = {**line.writes_with, option: states - {state}}
            text = f"{spelt} {option} writes no {state.name}"
            yield Mistake(text, kind, name, (("writes_with", left),))


@contextmanager
def injected(mistake: Mistake) -> Iterator[None]:
    """The table with *mistake*, while the block runs."""
    if mistake.kind == "fields":
        assert mistake.state is not None and mistake.field is not None
        fields = FIELDS_WRITTEN[mistake.state]
        FIELDS_WRITTEN[mistake.state] = fields - {mistake.field}
        try:
            yield
        finally:
            FIELDS_WRITTEN[mistake.state] = fields
        return
    change: dict[str, Any] = dict(mistake.change)
    if not mistake.name:
        header = options.HEADER_ACCESS
        options.HEADER_ACCESS = dataclasses.replace(header, **change)
        try:
            yield
        finally:
            options.HEADER_ACCESS = header
        return
    kind, _, part = mistake.kind.partition(" ")
    table = MATCHES if kind == "match" else TARGETS
    row = table[mistake.name]
    if part == "access":
        change = {"access": dataclasses.replace(row.access, **change)}
    table[mistake.name] = dataclasses.replace(row, **change)
    try:
        yield
    finally:
        table[mistake.name] = row


@dataclass(slots=True)
class Sorted:
    """Mistakes that the kernel has shown, that only the rule for untried pairs catches, and the rest."""

    shown: list[Mistake] = field(default_factory=list)
    ruled: list[Mistake] = field(default_factory=list)
    left: list[Mistake] = field(default_factory=list)


def try_mistakes(record: Record) -> Sorted:
    """Each mistake of the table, by whether *record* shows it."""
    right = all_rules()
    usual = {failure.text() for failure in judge(record, right).failures}
    out = Sorted()
    for mistake in mistakes():
        try:
            with injected(mistake):
                rules = all_rules(right, mistake.name) if mistake.name else right
                new = [f for f in judge(record, rules).failures if f.text() not in usual]
        except HitablesError:
            out.ruled.append(mistake)  # the rules cannot even be read
            continue
        shown = any(failure.kind != UNTRIED for failure in new)
        (out.shown if shown else out.ruled if new else out.left).append(mistake)
    return out

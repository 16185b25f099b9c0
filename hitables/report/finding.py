"""The findings of a command, in the one form from which text, JSON, SARIF and JUnit are written.

A `Report` has findings and cases: a `Finding` is a fact to act on, a `Case` is a part of the rule set that
was examined, with or without findings.  The names in KINDS are stable, because users filter by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding: a *title* of a few words, and its *meaning* in a sentence or two."""

    title: str
    meaning: str


KINDS: dict[str, FindingKind] = {
    "different-verdict": FindingKind(
        "Different verdict",
        "The two rule sets give the same packet different verdicts.",
    ),
    "different-effects": FindingKind(
        "Different effects",
        "The two rule sets give a packet the same verdict, but log, count, mark, or evaluate a match with "
        "memory differently, or in another order.",
    ),
    "different-memory": FindingKind(
        "Different memory",
        "A match with memory of its own (limit, quota, connlimit ...) occurs more often in one rule set than "
        "in the other, so that it counts other packets.",
    ),
    "never-matches": FindingKind(
        "Rule that never matches",
        "No packet matches the rule: earlier rules decide all packets that could match it, its matches "
        "exclude each other, or no such packet reaches its chain.",
    ),
    "changes-nothing": FindingKind(
        "Rule that changes nothing",
        "Without the rule every packet would be treated the same: later rules or the policy have its effect, "
        "or all packets come back from the chain that it enters.  Packets with broken headers are excepted "
        "where the message says so.",
    ),
    "empty-chain": FindingKind("Jump to an empty chain", "The chain that the rule enters has no rules."),
    "unreached-chain": FindingKind(
        "Unreachable chain", "No built-in chain of the table leads to it."
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a rule set.

    line  from 1; 0: the file as a whole
    text  the rule or the declaration in this line
    role  "before" or "after" where two files are compared, else ""
    """

    file: str
    line: int
    text: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class PacketPath:
    """The path of a packet through one file: the rules that it matched, in order."""

    title: str
    steps: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact to act on.

    kind     a name in KINDS
    message  one sentence
    places   the line to look at first, then related lines
    scope    its table and chain
    paths    the packet's path through each file
    details  further facts, as JSON values
    text     the whole finding as several lines of text
    marks    what tells it from others of its kind, scope and places, without the numbers of lines
    """

    kind: str
    level: Level
    message: str
    places: tuple[SourceLine, ...]
    scope: tuple[str, ...] = ()
    paths: tuple[PacketPath, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no kind of finding: {self.kind}")


@dataclass(frozen=True, slots=True)
class Case:
    """A part of the rule set that was examined; it passes when it has no findings and no trouble.

    suite    the group of cases that it belongs to, such as a table
    trouble  why it is undecided
    skipped  why it was not examined
    """

    suite: str
    name: str
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    trouble: str = ""
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a command for one rule set, or for one pair of them.

    files   the rule sets compared, the one under review last
    status  the exit status
    facts   what the JSON document has besides the findings
    texts   the texts of the files, as far as they are known
    """

    command: str
    files: tuple[str, ...]
    status: int
    findings: tuple[Finding, ...]
    cases: tuple[Case, ...]
    seconds: float
    facts: Mapping[str, Any]
    text: str
    texts: Mapping[str, str] = field(default_factory=dict)

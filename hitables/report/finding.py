"""What a command found, in the one shape that every format is made from.

`Finding` is for programs that read it later; `Case` is what was looked at, whether or not
something was found there.  The names in KINDS are stable: people filter by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding: a *title* of a few words, and what it means in a sentence or two."""

    title: str
    meaning: str


KINDS: dict[str, Kind] = {
    "different-verdict": Kind(
        "Another verdict",
        "The two rule sets decide differently about the same packet.",
    ),
    "different-effects": Kind(
        "Other effects",
        "The two rule sets decide alike about a packet, but do other things on the way: they log, count, "
        "mark or ask a match with memory differently, or in another order.",
    ),
    "different-memory": Kind(
        "Other memory",
        "A match with memory of its own (limit, quota, connlimit ...) stands more or less often in one rule "
        "set than in the other, so that it counts other packets.",
    ),
    "never-matches": Kind(
        "Rule that never matches",
        "No packet that comes to the rule can match it: rules before it take all that could, its own matches "
        "exclude each other, or nobody sends such packets to its chain.",
    ),
    "changes-nothing": Kind(
        "Rule that changes nothing",
        "Without the rule every packet would be treated alike: rules behind it, or the policy, do the same.",
    ),
    "empty-chain": Kind("Jump to an empty chain", "The chain that the rule enters has no rules."),
    "unreached-chain": Kind(
        "Chain that nobody reaches", "No built-in chain of the table leads to it."
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a rule set.

    line  from 1; 0: the file as a whole
    text  what stands there, as far as it matters
    role  which file it is, where there are several: "before", "after"; else ""
    """

    file: str
    line: int
    text: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """A packet's way through one file: the rules that it matched, in order."""

    title: str
    steps: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found.

    kind     a name in KINDS
    message  one sentence
    places   the line to look at first, then others that belong to it
    scope    table, chain: where it is to be found without a line
    details  what else there is to say, as JSON knows it
    text     all of it for people, several lines
    """

    kind: str
    level: Level
    message: str
    places: tuple[Place, ...]
    scope: tuple[str, ...] = ()
    ways: tuple[Way, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no kind of finding: {self.kind}")


@dataclass(frozen=True, slots=True)
class Case:
    """One thing looked at: good when nothing was found and nothing hindered.

    suite    what it belongs to, say a table
    trouble  why it could not be decided; skipped: why it was not looked at
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
    """

    command: str
    files: tuple[str, ...]
    status: int
    findings: tuple[Finding, ...]
    cases: tuple[Case, ...]
    seconds: float
    facts: Mapping[str, Any]
    text: str

"""What `hitables apply` changes, as text; and `apply`, `status` and `history` as JSON.

The packets that one rule set treats otherwise than another are findings with their family, as in
`hitables diff`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..apply import guard
from ..apply.in_force import InForce
from ..apply.others import own_rule_count
from ..apply.prepare import THE_KERNEL
from ..apply.records import ApplyState, Record
from ..apply.request import ApplyResult
from ..apply.status import Compared, Status, exit_status
from ..ir.fields import Family
from ..ir.packet import Backend
from ..nouns import counted
from ..verify.diff import Changes
from ..version import __version__
from .diff import findings, show
from .finding import Finding, Report

CHANGES_SHOWN = 20
# How the user sees all changes of a rule set that is in the kernel.
LISTED_BY = "hitables diff lists them"
LINES_OF_KERNEL = "hitables save"  # the command whose output has the lines of the kernel's rules


@dataclass(frozen=True, slots=True)
class FamilyDifference:
    """What an apply changes in one family.

    changes   the packets that are treated otherwise; None if that cannot be found out, because of *trouble*
    names     of the two rule sets that *changes* compares
    rules     of the file, and *loaded* of them in the kernel; both without those of others
    new, changed, removed  how many chains of the kernel are
    """

    family: Family
    backend: Backend
    file: str
    changes: Changes | None
    trouble: str
    names: tuple[str, str]
    rules: int
    loaded: int
    new: int
    changed: int
    removed: int

    @property
    def lines_of(self) -> tuple[str, str]:
        """Whose lines *changes* has for each rule set; "": those of the file."""
        return LINES_OF_KERNEL if self.names[0] == THE_KERNEL else "", ""

    def text(self) -> str:
        """The difference in lines, without a newline at the end."""
        title = f"IPv{int(self.family)}, {self.backend.value}"
        if self.changes is None:
            return f"{title}: the rules cannot be compared with those of the kernel: {self.trouble}"
        changes = show(
            self.changes, self.names, CHANGES_SHOWN, LISTED_BY, lines_of=self.lines_of, tells_backend=False
        )
        return (
            f"{title}:\n{changes}\n"
            f"{counted(self.rules, 'rule')}, {self.loaded} as loaded; chains: {self.new} new, "
            f"{self.changed} changed, {self.removed} removed"
        )

    def document(self) -> dict[str, Any]:
        return {
            "family": int(self.family),
            "backend": self.backend.value,
            "file": self.file,
            "rules": self.rules,
            "loaded": self.loaded,
            "chains": {"new": self.new, "changed": self.changed, "removed": self.removed},
            "complete": self.changes is not None and self.changes.complete,
            "reason": self.trouble,
            "text": self.text(),
        }


def apply_report(
    result: ApplyResult,
    differences: Sequence[FamilyDifference],
    state: ApplyState,
    messages: Sequence[str],
    seconds: float,
) -> Report:
    """The report of an apply that ended with *result*; *state*: of the state directory afterwards."""
    facts = {
        "result": result.value,
        "confirmed": state.confirmed,
        "waiting": _waiting(state),
        "families": [each.document() for each in differences],
        "messages": list(messages),
    }
    found = [
        finding
        for each in differences
        if each.changes is not None
        for finding in _with_family(findings(each.changes, each.names, lines_of=each.lines_of), each.family)
    ]
    status = 1 if result.would_act else 0
    files = tuple(each.file for each in differences)
    return Report("apply", files, status, tuple(found), (), seconds, facts, "")


def status_report(
    result: Status, state: ApplyState, force: InForce, repaired: int, still: Sequence[str], seconds: float
) -> Report:
    """The report of *result*, for the rule sets of *force*; *repaired*: the one loaded again, or 0.

    *still*: what to say of differences that remain when it is loaded.
    """
    facts = {
        "rule_set": result.number,
        "confirmed": state.confirmed,
        "waiting": _waiting(state),
        "backend": force.record.backend,
        "leave": list(force.leave()),
        "families": [_family(compared) for compared in result.compared],
        "repaired": repaired,
        "notes": [*result.notes, *still],
    }
    found = [each for compared in result.compared for each in _findings(compared)]
    files = tuple(compared.file for compared in result.compared)
    status = int(exit_status(result, bool(repaired), still))
    return Report("status", files, status, tuple(found), (), seconds, facts, "")


def _waiting(state: ApplyState) -> dict[str, Any] | None:
    """The rule set that waits for its confirmation."""
    waiting = state.waiting
    if waiting is None:
        return None
    return {
        "number": waiting.number,
        "before": waiting.before,
        "until": _moment(time.time() + waiting.seconds_left) if waiting.until else None,
        "guarded": guard.is_alive(waiting.guard),
    }


def _family(compared: Compared) -> dict[str, Any]:
    """What was found of one family, or of some tables of it, but for the packets."""
    if compared.unread:
        answer = "undecided"
    elif not compared.differing:
        answer = "same"
    elif compared.trouble or compared.changes is None:
        answer = "undecided"
    else:
        answer = "different" if compared.changes.regions else "equal"
    return {
        "family": int(compared.family),
        "rule_set": compared.number,
        "tables": list(compared.tables),
        "file": compared.file,
        "answer": answer,
        "differing": list(compared.differing),
        "reason": compared.unread or compared.trouble,
        "programs": list(compared.programs),
    }


def _findings(compared: Compared) -> list[Finding]:
    if compared.changes is None:
        return []
    found = findings(compared.changes, compared.names, lines_of=("", LINES_OF_KERNEL))
    return _with_family(found, compared.family)


def _with_family(found: Sequence[Finding], family: Family) -> list[Finding]:
    return [replace(each, details={"family": int(family), **each.details}) for each in found]


def history_document(state: ApplyState, records: Sequence[Record]) -> dict[str, Any]:
    """The document of `hitables history --format json`, the oldest rule set first."""
    return {
        "format": "hitables-history",
        "version": 1,
        "hitables": __version__,
        "command": "history",
        "confirmed": state.confirmed,
        "waiting": _waiting(state),
        "rule_sets": [_record(each, state.status) for each in records],
    }


def _record(record: Record, status: Mapping[int, str]) -> dict[str, Any]:
    return {
        "number": record.number,
        "when": _moment(record.when),
        "status": status.get(record.number, "unfinished"),
        "before": record.before,
        "backend": record.backend,
        "leave": list(record.leave),
        "families": [
            {"family": int(family), "file": half.file, "rules": rules_of(record, family)}
            for family, half in record.halves.items()
        ],
    }


def rules_of(record: Record, family: Family) -> int:
    """The rules of one family of *record*, as they were loaded, but for those of others."""
    return own_rule_count(record.halves[family].tables, record.leave)


def _moment(seconds: float) -> str:
    """A time as ISO 8601 has it, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

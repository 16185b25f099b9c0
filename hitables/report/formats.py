"""Reports of one command as text, JSON, SARIF or JUnit.

The result is one document, however many rule sets there are: JSON has an array of the reports then, SARIF one
run with all findings, JUnit all testsuites.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from .. import __version__
from .finding import Finding, Report


def as_json(report: Report) -> dict[str, Any]:
    """The document of one report: its facts and findings.  hitables/schema/ has a schema for each command."""
    return {
        "format": f"hitables-{report.command}",
        "version": 1,
        "hitables": __version__,
        "command": report.command,
        "status": report.status,
        **report.facts,
        "seconds": round(report.seconds, 3),
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "level": finding.level,
        "message": finding.message,
        "places": [asdict(place) for place in finding.places],
        **finding.details,
    }


def dump(value: Any) -> str:
    """JSON in UTF-8.  A byte 0xNN of a rule set that is no UTF-8 is written \\udcNN, as in the source map."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return re.sub("[\udc80-\udcff]", lambda byte: f"\\u{ord(byte[0]):04x}", text) + "\n"


def status(reports: Sequence[Report]) -> int:
    """The exit status of them all: 1 (something was found) before 2 (undecided) before 0."""
    statuses = {report.status for report in reports}
    return next(status for status in (1, 2, 0) if status in statuses)


def _json(reports: Sequence[Report]) -> str:
    """The document of one report; of several, an array of their documents."""
    documents = [as_json(report) for report in reports]
    return dump(documents[0] if len(documents) == 1 else documents)


def _sarif(reports: Sequence[Report]) -> str:
    from .sarif import sarif

    return dump(sarif(reports, status(reports)))


def _junit(reports: Sequence[Report]) -> str:
    from .junit import junit

    return junit(reports)


# What a format needs is imported when it is used: XML takes longer to load than a small report to write.
FORMATS: dict[str, Callable[[Sequence[Report]], str]] = {
    "text": lambda reports: "\n".join(report.text for report in reports),
    "json": _json,
    "sarif": _sarif,
    "junit": _junit,
}

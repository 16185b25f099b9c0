"""A report in the format that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from .. import __version__
from .finding import Finding, Report
from .junit import junit
from .sarif import sarif


def as_json(report: Report) -> dict[str, Any]:
    """Facts and findings; hitables/schema/ has a schema for each command."""
    return {
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


def _dump(value: Any) -> str:
    """JSON in UTF-8.  Bytes of a rule set that are no UTF-8 become U+FFFD: JSON has no place for them."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") + "\n"


FORMATS: dict[str, Callable[[Report], str]] = {
    "text": lambda report: report.text,
    "json": lambda report: _dump(as_json(report)),
    "sarif": lambda report: _dump(sarif(report)),
    "junit": junit,
}

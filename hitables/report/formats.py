"""A report in the format that was asked for."""

from __future__ import annotations

import json
import re
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


def _dump(value: Any) -> str:
    """JSON in UTF-8.  A byte 0xNN of a rule set that is no UTF-8 stands as \\udcNN, as in the source map."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return re.sub("[\udc80-\udcff]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


FORMATS: dict[str, Callable[[Report], str]] = {
    "text": lambda report: report.text,
    "json": lambda report: _dump(as_json(report)),
    "sarif": lambda report: _dump(sarif(report)),
    "junit": junit,
}

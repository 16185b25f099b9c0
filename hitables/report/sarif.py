"""Findings as SARIF 2.1.0, the format that code scanning reads.

The location of a result is the line to look at first; lines of the other file are related locations, since
the standard wants several locations only where each must be changed.  A packet's way through a file is a code
flow.  Several reports become one run, with an artifact for each file; standard input is the artifact STDIN,
because code scanning refuses results without one.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from .. import __version__
from ..rule_lines import lines_of
from .finding import KINDS, Finding, PacketPath, Report, SourceLine

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
STDIN = "stdin"

# The lines of files, by the name of the file.
Lines = Mapping[str, Sequence[str]]


def sarif(reports: Sequence[Report], status: int) -> dict[str, Any]:
    """Reports of one command, whose exit status is *status*, as a log of one run."""
    findings = [finding for report in reports for finding in report.findings]
    kinds = list(dict.fromkeys(finding.kind for finding in findings))
    troubles = [case.trouble for report in reports for case in report.cases if case.trouble]
    files = dict.fromkeys(file for report in reports for file in report.files)
    texts = {file: text for report in reports for file, text in report.texts.items()}
    lines = {file: lines_of(text) for file, text in texts.items()}
    facts = [dict(report.facts) for report in reports]
    driver = {"name": "hitables", "version": __version__, "rules": [_kind(name) for name in kinds]}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"hitables {reports[0].command}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not troubles,
                "exitCode": status,
                "toolExecutionNotifications": [
                    {"level": "error", "message": _message(trouble)} for trouble in troubles
                ],
            }
        ],
        "artifacts": [{"location": {"uri": _uri(file)}} for file in files],
        "results": [
            _result(finding, kinds, fingerprint, lines)
            for finding, fingerprint in zip(findings, _fingerprints(findings), strict=True)
        ],
        "properties": facts[0] if len(facts) == 1 else {"reports": facts},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _kind(name: str) -> dict[str, Any]:
    kind = KINDS[name]
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.split("-")),
        "shortDescription": {"text": kind.title},
        "fullDescription": {"text": kind.meaning},
    }


def _result(finding: Finding, kinds: list[str], fingerprint: str, lines: Lines) -> dict[str, Any]:
    first, *others = finding.places or (None,)
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": finding.level,
        "message": _message(finding.text or finding.message),
        "locations": [_location(first, lines, finding)],
        "partialFingerprints": {"hitables/v1": fingerprint},
        "properties": dict(finding.details),
    }
    if others:
        result["relatedLocations"] = [
            _location(place, lines) | {"id": number, "message": _message(_label(place))}
            for number, place in enumerate(others, 1)
            if place is not None
        ]
    flows = [_flow(path, lines) for path in finding.paths if path.steps]
    if flows:
        result["codeFlows"] = flows
    return result


def _flow(path: PacketPath, lines: Lines) -> dict[str, Any]:
    steps = [
        {"executionOrder": number, "location": _location(place, lines) | {"message": _message(_label(place))}}
        for number, place in enumerate(path.steps)
    ]
    return {"message": _message(path.title), "threadFlows": [{"locations": steps}]}


def _location(place: SourceLine | None, lines: Lines, finding: Finding | None = None) -> dict[str, Any]:
    location: dict[str, Any] = {}
    if place is not None:
        artifact: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.file)}}
        if place.line:
            artifact["region"] = {"startLine": place.line}
            if place.file in lines:
                artifact["region"]["snippet"] = {"text": lines[place.file][place.line - 1].removesuffix("\r")}
        location["physicalLocation"] = artifact
    if finding is not None and finding.scope:
        *_, name = finding.scope
        whole = "/".join(finding.scope)
        location["logicalLocations"] = [{"name": name, "fullyQualifiedName": whole}]
    return location


def _uri(file: str) -> str:
    path = quote(os.fsencode(STDIN if file == "-" else file))
    return f"file://{path}" if file.startswith("/") else path


def _message(text: str) -> dict[str, str]:
    return {"text": text}


def _label(place: SourceLine) -> str:
    return ": ".join(filter(None, (place.role, place.text))) or place.file


def _fingerprints(findings: Sequence[Finding]) -> list[str]:
    """Different ones, in the order of *findings*: those that differ in line numbers alone are counted."""
    seen: Counter[str] = Counter()
    fingerprints = []
    for finding in findings:
        own = _fingerprint(finding)
        seen[own] += 1
        fingerprints.append(own if seen[own] == 1 else f"{own}:{seen[own]}")
    return fingerprints


def _fingerprint(finding: Finding) -> str:
    """Equal for equal findings, also after lines have moved: line numbers are not part of it."""
    places = [part for place in finding.places for part in (place.file, place.text)]
    parts = [finding.kind, *finding.scope, *places, *finding.marks]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]

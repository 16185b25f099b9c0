"""Cases as JUnit XML, the format in which CI systems show tests.

Each suite of the report is a testsuite, each case a testcase: a finding is a failure, what
could not be decided an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

from .finding import Case, Report

# What XML 1.0 cannot hold, not even escaped; bytes that were no UTF-8 are among it.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """The report as the text of an XML file."""
    root = _element("testsuites", report.cases, f"hitables {report.command}", report.seconds)
    for name in dict.fromkeys(case.suite for case in report.cases):
        cases = [case for case in report.cases if case.suite == name]
        suite = _element("testsuite", cases, name, sum(case.seconds for case in cases))
        suite.extend(_case(case, report.command) for case in cases)
        root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _element(tag: str, cases: Iterable[Case], name: str, seconds: float) -> ElementTree.Element:
    kept = list(cases)
    return ElementTree.Element(
        tag,
        name=_xml(name),
        time=f"{seconds:.3f}",
        tests=str(len(kept)),
        failures=str(sum(bool(case.findings) for case in kept)),
        errors=str(sum(bool(case.trouble) for case in kept)),
        skipped=str(sum(bool(case.skipped) for case in kept)),
    )


def _case(case: Case, command: str) -> ElementTree.Element:
    made = ElementTree.Element(
        "testcase",
        name=_xml(case.name),
        classname=_xml(f"hitables.{command}.{case.suite}"),
        time=f"{case.seconds:.3f}",
    )
    for finding in case.findings:
        failure = ElementTree.SubElement(made, "failure", type=finding.kind, message=_xml(finding.message))
        failure.text = _xml(finding.text or finding.message)
    if case.trouble:
        ElementTree.SubElement(made, "error", type="undecided", message=_xml(case.trouble))
    if case.skipped:
        ElementTree.SubElement(made, "skipped", message=_xml(case.skipped))
    return made


def _xml(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)

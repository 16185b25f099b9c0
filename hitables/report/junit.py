"""Cases as JUnit XML, the format in which CI systems show tests.

Each suite of a report is a testsuite, each case a testcase: a finding is a failure, an undecided case an
error.  A case of several findings is a testcase for each, as readers show the first failure of one alone.
Where there are several reports, the name of a testsuite starts with the file under review.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from xml.etree import ElementTree

from .finding import Case, Report
from .xml_text import xml_text


def junit(reports: Sequence[Report]) -> str:
    """Reports of one command as the text of an XML file."""
    command = reports[0].command
    every = [case for report in reports for case in _with_one_finding_each(report.cases)]
    root = _element("testsuites", every, f"hitables {command}", sum(report.seconds for report in reports))
    for report in reports:
        prefix = f"{report.files[-1]} " if len(reports) > 1 else ""
        for name in dict.fromkeys(case.suite for case in report.cases):
            cases = [case for case in _with_one_finding_each(report.cases) if case.suite == name]
            suite = _element("testsuite", cases, prefix + name, sum(case.seconds for case in cases))
            suite.extend(_case(case, f"hitables.{command}.{prefix}{name}") for case in cases)
            root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _with_one_finding_each(cases: Iterable[Case]) -> Iterator[Case]:
    """The *cases*, with a case in place of each finding where one has several, named by its line."""
    for case in cases:
        if len(case.findings) < 2:
            yield case
            continue
        names: Counter[str] = Counter()
        for finding in case.findings:
            line = finding.places[0].line if finding.places else 0
            name = f"{case.name}, line {line}" if line else case.name
            names[name] += 1
            number = f" ({names[name]})" if names[name] > 1 else ""
            seconds = case.seconds / len(case.findings)
            yield replace(case, name=name + number, seconds=seconds, findings=(finding,))


def _element(tag: str, cases: Iterable[Case], name: str, seconds: float) -> ElementTree.Element:
    counted = list(cases)
    return ElementTree.Element(
        tag,
        name=xml_text(name),
        time=f"{seconds:.3f}",
        tests=str(len(counted)),
        failures=str(sum(bool(case.findings) for case in counted)),
        errors=str(sum(bool(case.trouble) for case in counted)),
        skipped=str(sum(bool(case.skipped) for case in counted)),
    )


def _case(case: Case, class_name: str) -> ElementTree.Element:
    element = ElementTree.Element(
        "testcase",
        name=xml_text(case.name),
        classname=xml_text(class_name),
        time=f"{case.seconds:.3f}",
    )
    for finding in case.findings:
        failure = ElementTree.SubElement(
            element, "failure", type=finding.kind, message=xml_text(finding.message)
        )
        failure.text = xml_text(finding.text or finding.message)
    if case.trouble:
        ElementTree.SubElement(element, "error", type="undecided", message=xml_text(case.trouble))
    if case.skipped:
        ElementTree.SubElement(element, "skipped", message=xml_text(case.skipped))
    return element

"""Reports of `check` as JSON, SARIF and JUnit: each fits its schema and contains the findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from support.compared_rules import (
    EFFECT,
    ONE_LIMIT,
    POLICY,
    SAME,
    SARIF,
    SCHEMA,
    TWO_LIMITS,
    VERDICT,
    A,
    compare,
    read,
)

from hitables.compare import check
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.report.check import report
from hitables.report.finding import KINDS, Case, Finding, Report, SourceLine
from hitables.report.formats import FORMATS
from hitables.verify.question import Difference, Question


def every_answer() -> dict[str, Report]:
    """A report of every kind of answer."""
    odd = A.replace('"ping "', '"p\udce4ng <&>"')
    budget = Question(timeout=1e-9)
    pairs = {
        "equal": (A, SAME),
        "verdict": (A, VERDICT),
        "effect": (A, EFFECT),
        "policy": (A, POLICY),
        "odd": (A, odd),
    }
    examples = {name: report(compare(*pair)) for name, pair in pairs.items()}
    examples["memory"] = report(compare(ONE_LIMIT, TWO_LIMITS, "exact"))
    examples["proved"] = report(compare(A, SAME, "exact"))
    examples["undecided"] = report(check(read(A), read(SAME), budget, engine="sample"))
    return examples


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return every_answer()


def test_json_fits_its_schema(reports: dict[str, Report]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    answers = {}
    for name, each in reports.items():
        text = FORMATS["json"]([each])
        document = json.loads(text.encode())
        jsonschema.validate(document, SCHEMA)
        assert document["status"] == each.status
        answers[name] = document["answer"]
    assert answers == {
        "equal": "no difference found",
        "verdict": "different",
        "effect": "different",
        "policy": "different",
        "memory": "different",
        "odd": "different",
        "proved": "equal",
        "undecided": "undecided",
    }
    kinds = SCHEMA["properties"]["findings"]["items"]["properties"]["kind"]["enum"]
    assert set(kinds) <= set(KINDS)
    assert {finding.kind for each in reports.values() for finding in each.findings} == set(kinds)


def test_the_schema_refuses_what_is_wrong(reports: dict[str, Report]) -> None:
    """A schema that accepted everything would check nothing."""
    document = json.loads(FORMATS["json"]([reports["verdict"]]))
    for spoil in (
        lambda it: it.pop("status"),
        lambda it: it.update(answer="maybe"),
        lambda it: it.update(surprise=1),
        lambda it: it["findings"][0]["places"][0].update(line="9"),
        lambda it: it["findings"][0].pop("reason"),
        lambda it: it["findings"][0]["before"]["path"][0].update(outcome="no"),
    ):
        spoilt = json.loads(json.dumps(document))
        spoil(spoilt)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(spoilt, SCHEMA)


def test_sarif_fits_the_schema_of_the_standard(reports: dict[str, Report]) -> None:
    jsonschema.Draft7Validator.check_schema(SARIF)
    for each in reports.values():
        log = json.loads(FORMATS["sarif"]([each]).encode())
        jsonschema.Draft7Validator(SARIF, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER).validate(
            log
        )
        (run,) = log["runs"]
        assert len(run["results"]) == len(each.findings)
        assert run["invocations"][0]["exitCode"] == each.status
        for result in run["results"]:
            assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert not json.loads(FORMATS["sarif"]([reports["undecided"]]))["runs"][0]["invocations"][0][
        "executionSuccessful"
    ]


def line_of(location: Any) -> tuple[str, int]:
    physical = location["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical["region"]["startLine"]


def test_the_location_of_a_sarif_result_is_the_deciding_line(reports: dict[str, Report]) -> None:
    (result,) = json.loads(FORMATS["sarif"]([reports["policy"]]))["runs"][0]["results"]
    (here,), (there,) = result["locations"], result["relatedLocations"]
    assert line_of(here) == ("b.rules", 3) and line_of(there) == ("a.rules", 3)
    assert here["logicalLocations"][0]["fullyQualifiedName"] == "filter/FORWARD"
    (result,) = json.loads(FORMATS["sarif"]([reports["verdict"]]))["runs"][0]["results"]
    lines = {line_of(result[where][0]) for where in ("locations", "relatedLocations")}
    assert lines in ({("b.rules", 2), ("a.rules", 11)}, {("b.rules", 11), ("a.rules", 2)})
    ways = [
        [line_of(step["location"])[1] for step in flow["threadFlows"][0]["locations"]]
        for flow in result["codeFlows"]
    ]
    assert [7, 11] in ways


def test_a_sarif_fingerprint_does_not_depend_on_line_numbers() -> None:
    def fingerprints(before: str, after: str) -> list[str]:
        log = json.loads(FORMATS["sarif"]([report(compare(before, after))]))
        return [result["partialFingerprints"]["hitables/v1"] for result in log["runs"][0]["results"]]

    moved = "# a note\n# another\n" + POLICY
    assert fingerprints(A, POLICY) == fingerprints(A, moved) != fingerprints(A, EFFECT)


@pytest.mark.parametrize(
    ("file", "uri"),
    [("a b#c%.rules", "a%20b%23c%25.rules"), ("/etc/ü", "file:///etc/%C3%BC"), ("-", "stdin")],
)
def test_a_file_name_becomes_a_uri(file: str, uri: str) -> None:
    finding = Finding("different-verdict", "error", "m", (SourceLine(file, 2),))
    log = json.loads(FORMATS["sarif"]([Report("check", (file,), 1, (finding,), (), 0.0, {}, "")]))
    assert line_of(log["runs"][0]["results"][0]["locations"][0]) == (uri, 2)


def test_fingerprints_of_one_run_differ_and_a_snippet_is_the_text_of_the_file() -> None:
    same = Finding("never-matches", "warning", "m", (SourceLine("x", 2, "-A a -j DROP"),))
    other = replace(same, marks=("tcp",))
    texts = {"x": "*filter\r\n-A  a  -j DROP # as written\r\nCOMMIT\r\n"}
    made = Report("lint", ("x",), 1, (same, other, same), (), 0.0, {}, "", texts)
    results = json.loads(FORMATS["sarif"]([made]))["runs"][0]["results"]
    assert len({result["partialFingerprints"]["hitables/v1"] for result in results}) == 3
    for result in results:
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["snippet"]["text"] == "-A  a  -j DROP # as written"
    (result,) = json.loads(FORMATS["sarif"]([replace(made, findings=(same,), texts={})]))["runs"][0][
        "results"
    ]
    assert "snippet" not in result["locations"][0]["physicalLocation"]["region"]


def test_junit_is_read_by_a_real_reader(reports: dict[str, Report], tmp_path: Path) -> None:
    for name, each in reports.items():
        (tmp_path / "check.xml").write_text(FORMATS["junit"]([each]), encoding="utf-8")
        suites = junitparser.JUnitXml.fromfile(str(tmp_path / "check.xml"))
        assert [suite.name for suite in suites] == ["filter"]
        (suite,) = suites
        cases = {case.name: [type(result) for result in case.result] for case in suite}
        assert (suites.tests, suites.failures, suites.errors, suites.skipped) == (
            len(cases),
            sum(junitparser.Failure in results for results in cases.values()),
            sum(junitparser.Error in results for results in cases.values()),
            sum(junitparser.Skipped in results for results in cases.values()),
        )
        chains = [
            f"{chain} ({backend.value})" for chain in ("INPUT", "FORWARD", "OUTPUT") for backend in Backend
        ]
        assert set(cases) == {*chains} | (
            {"(whole table) (legacy)", "(whole table) (nft)"} if name == "memory" else set()
        )
        failed = {case for case, results in cases.items() if results == [junitparser.Failure]}
        if name == "verdict":
            assert failed == {"INPUT (legacy)", "INPUT (nft)"}
            (failure,) = next(case.result for case in suite if case.name == "INPUT (nft)")
            assert (
                failure.type == "different-verdict" and "\npacket: table=filter chain=INPUT" in failure.text
            )
        if name == "equal":
            assert not any(cases.values())
        if name == "undecided":
            assert suites.errors == len(cases)
        if name == "memory":
            assert failed == {"(whole table) (legacy)", "(whole table) (nft)"} and suites.skipped == len(
                chains
            )


def test_a_suite_for_each_table() -> None:
    raw = "*raw\n-A PREROUTING -p udp -j NOTRACK\nCOMMIT\n"
    text = FORMATS["junit"]([report(compare(A + raw, VERDICT + raw))])
    suites = junitparser.JUnitXml.fromstring(text.encode())
    assert {suite.name: (suite.tests, suite.failures) for suite in suites} == {
        "filter": (6, 2),
        "raw": (4, 0),
    }


def test_each_finding_of_a_case_is_a_testcase_of_its_own() -> None:
    """Readers of JUnit show the first failure of a testcase only."""
    finding = Finding(
        "different-verdict", "warning", "a message", (SourceLine("x", 0),), text="more\x00 of it"
    )
    at_9 = replace(finding, message="another", places=(SourceLine("x", 9),))
    cases = (
        Case("x", "one", 1.5, (finding, at_9, at_9)),
        Case("x", "two", skipped="not wanted"),
        Case("y", "three"),
    )
    suites = junitparser.JUnitXml.fromstring(
        FORMATS["junit"]([Report("lint", ("x",), 1, (finding,), cases, 2.0, {}, "")]).encode()
    )
    *found, two = next(iter(suites))
    assert [(case.name, [each.message for each in case.result], case.time) for case in found] == [
        ("one", ["a message"], 0.5),
        ("one, line 9", ["another"], 0.5),
        ("one, line 9 (2)", ["another"], 0.5),
    ]
    assert "more\ufffd of it" in found[0].result[0].text and two.is_skipped
    assert (suites.tests, suites.failures, suites.skipped) == (5, 3, 1)
    with pytest.raises(ValueError, match="no kind"):
        Finding("never-heard-of", "error", "m", ())


def test_differences_carry_what_the_report_needs() -> None:
    """The report needs the answer only: no engine computes a witness twice."""
    checked = compare(A, VERDICT)
    (difference,) = (case.answer for case in checked.cases if isinstance(case.answer, Difference))
    assert difference.before is not None and difference.after is not None
    (finding,) = report(checked).findings
    assert finding.details["before"]["verdict"] == difference.before.verdict


def test_the_rules_are_searched_once_for_what_the_comparison_assumes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tracks(program: Program) -> list[str]:
        asked.append(program.name)
        return [] if len(asked) == 1 else ["a rule"]

    monkeypatch.setattr("hitables.report.check.rules_that_track", tracks)
    found = report(compare(A, SAME))
    assert len(asked) == 2
    (note,) = found.facts["notes"]
    assert f"note: {note}" in found.text

"""The report of `hitables check`: the places that it names, its note of fragments, and its times."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import junitparser
import pytest
from support.compared_rules import SAME, A, compare

import hitables
from hitables.report.check import report
from hitables.report.formats import FORMATS
from hitables.sources.known import Known, by_map
from hitables.sources.map_file import read_map

pytestmark = pytest.mark.engine


def rules_of(*rules: str) -> str:
    return "".join(["*filter\n:INPUT ACCEPT [0:0]\n", *(f"-A INPUT {rule}\n" for rule in rules), "COMMIT\n"])


def compiled(verdict: str, folder: Path) -> tuple[hitables.Program, Known]:
    """A list of 40 rules with this verdict, compiled, and the copies of its rules."""
    source = rules_of(*(f"-s 10.0.{at}.0/24 -j {verdict}" for at in range(40)))
    output = hitables.compile(source, name=f"{verdict}.rules")
    (folder / verdict).write_text(json.dumps(output.source_map))
    program = hitables.read(output.text, family=4, name=f"{verdict}.compiled")
    return program, by_map(read_map(str(folder / verdict)), program)


def test_a_log_that_one_rule_set_has_twice_is_placed_at_its_second_rule() -> None:
    log = "-s 10.0.0.0/8 -j LOG --log-prefix a"
    comparison = compare(rules_of(log, log), rules_of(log), "exact")
    (run,) = json.loads(FORMATS["sarif"]([report(comparison)]))["runs"]
    (before,) = run["results"][0]["relatedLocations"]
    assert before["physicalLocation"]["region"]["startLine"] == 4


def test_a_rule_for_which_the_kernel_reassembles_fragments_is_noted() -> None:
    notes = report(compare(rules_of("-m socket -j ACCEPT"), rules_of(), "exact")).facts["notes"]
    assert notes == [
        "only a.rules has rules that make the kernel reassemble fragments; the comparison assumes the same "
        "packets for both"
    ]


def test_the_times_of_the_cases_are_the_time_that_was_spent() -> None:
    comparison = compare(A, SAME, "exact")
    timed = replace(comparison, cases=tuple(replace(case, seconds=6.0) for case in comparison.cases))
    suites = junitparser.JUnitXml.fromstring(FORMATS["junit"]([report(timed)]).encode())
    seconds = [case.time for suite in suites for case in suite]
    assert len(seconds) > len(timed.cases) and sum(seconds) == pytest.approx(6.0 * len(timed.cases))


def test_the_rule_of_the_second_source_is_placed_before_that_of_the_first(tmp_path: Path) -> None:
    (before, old), (after, new) = (compiled(verdict, tmp_path) for verdict in ("ACCEPT", "DROP"))
    comparison = compare(hitables.write(before), hitables.write(after), "exact")
    (finding, *_) = report(comparison, known=(old, new)).findings
    assert [(place.role, place.text.split()[-1]) for place in finding.places[2:]] == [
        ("after", "DROP"),
        ("before", "ACCEPT"),
    ]

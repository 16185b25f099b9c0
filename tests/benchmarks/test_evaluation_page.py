"""docs/evaluation.md shows the recorded data, of every figure and table of the papers."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.doc_tables import DOCS, between
from benchmarks.record import page
from benchmarks.record.page import PAGE, Paper, Result, chosen, number, ratio, recorded, section, words
from benchmarks.record.papers import PAPERS

NAMES = [paper.name for paper in PAPERS]


def results(paper: Paper) -> list[Result]:
    return list(paper.results(*map(recorded, paper.sources)))


@pytest.mark.parametrize("paper", PAPERS, ids=NAMES)
def test_a_section_of_the_page_is_that_of_the_recorded_data(paper: Paper) -> None:
    shown = between(f"paper-{paper.name}").search(PAGE.read_text())
    assert shown is not None
    assert shown[0] == section(paper), "python -m benchmarks.record fills it"


@pytest.mark.parametrize("paper", PAPERS, ids=NAMES)
def test_each_figure_and_table_of_a_paper_has_a_row(paper: Paper) -> None:
    shown = {place for result in results(paper) for place in places(result.place)}
    assert set(paper.places) <= shown, set(paper.places) - shown


def places(place: str) -> list[str]:
    """The figures and tables that a row names: "figures 1, 2; table 3" are figure 1, figure 2 and table 3."""
    return [
        f"{kind} {name}"
        for kind, names in re.findall(r"(figure|table)s? ([\w, ]+)", place)
        for name in names.split(", ")
    ]


def test_places_are_read_one_by_one() -> None:
    assert places("tables 1, 2; figures 4, 5a") == ["table 1", "table 2", "figure 4", "figure 5a"]


@pytest.mark.parametrize("paper", PAPERS, ids=NAMES)
def test_no_row_is_empty_and_none_is_listed_twice(paper: Paper) -> None:
    there = results(paper)
    assert all(words(result.here) and result.quantity for result in there)
    assert len({(result.place, result.quantity, result.why) for result in there}) == len(there)


def test_data_without_a_row_that_is_asked_for_are_an_error() -> None:
    with pytest.raises(LookupError, match="the data have no row with"):
        chosen([{"set": "R1"}], set="R2")


def test_every_recorded_file_says_on_which_machine_and_when() -> None:
    for path in sorted((DOCS / "evaluation").glob("*.json")):
        machine = json.loads(path.read_text())["machine"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", machine["date"]), path.name
        assert machine["cpu"], path.name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.012345, "0.0123"),
        (1.0, "1"),
        (95.04, "95"),
        (123.4, "123"),
        (12345.6, "12,300"),
        (1939.0, "1,939"),
    ],
)
def test_a_number_is_whole_or_has_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("paper", "here", "shown"),
    [
        (2.0, 3.0, "1.5"),
        ((1.0, 2.0), 3.0, "1.5 to 3"),
        ((2.0, 3.0), (4.0, 6.0), "2"),
        ("more", 3.0, ""),
        (0.0, 3.0, ""),
    ],
)
def test_a_ratio_is_here_over_paper(paper: page.Value, here: page.Value, shown: str) -> None:
    assert ratio(Result("figure 1", "what", paper, here)) == shown

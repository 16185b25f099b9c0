"""The answer of `hitables reach`: which packets are counted, what it lists first, and its exit status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hitables
from hitables.cli.main import main
from hitables.ir.packet import Backend
from hitables.parse.region_words import region
from hitables.report.reach import show
from hitables.verify import reach as reach_module
from hitables.verify.question import Question, Undecided
from hitables.verify.reach import Reached, reach

pytestmark = pytest.mark.engine


def rules_of(*rules: str, policy: str = "DROP") -> hitables.Program:
    lines = ["*filter\n", f":INPUT {policy} [0:0]\n", *(f"-A INPUT {rule}\n" for rule in rules), "COMMIT\n"]
    return hitables.read("".join(lines))


def reached(program: hitables.Program, most: int | None = None, **words: str) -> Reached:
    """All outcomes of the packets that these words name."""
    question = Question(tables=frozenset({"filter"}), chains=frozenset({"INPUT"}))
    return reach(program, region(program.family, **words), question, lambda step: None, True, most)


def ask(path: Path, program: hitables.Program, *options: str) -> Result:
    path.write_text(hitables.write(program))
    return CliRunner().invoke(main, ["reach", "--chain", "INPUT", *options, str(path)])


def test_two_addresses_of_which_one_has_what_is_asked_under_a_mask_are_no_single_address(
    tmp_path: Path,
) -> None:
    program = rules_of("-s 10.0.0.2/31 -j DROP", "-s 0.0.0.1/0.0.0.1 -j ACCEPT")
    done = ask(tmp_path / "rules", program, "--from", "10.0.0.1-10.0.0.4")
    assert done.exit_code == 0 and 'from 10.0.0.1, 10.0.0.4, where "-s 0.0.0.1/0.0.0.1" holds' in done.stdout


@pytest.mark.parametrize("target", ["DROP", "REJECT", "CHAOS", "DELUDE", "ECHO", "TARPIT"])
def test_a_target_that_stops_packets_lets_none_pass(target: str) -> None:
    (outcome,) = reached(rules_of(f"-p tcp -j {target}", policy="ACCEPT"), protocols="tcp").outcomes
    assert outcome.verdict.split()[0] == target and not outcome.passes


def test_a_packet_that_passes_does_not_decide_the_status_beside_an_undecided_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_time(*arguments: Any) -> Reached:
        late = Undecided("out of time", "filter", "FORWARD", Backend.NFT, 0.5)
        return replace(reach(*arguments), undecided=[late])

    monkeypatch.setattr(reach_module, "reach", out_of_time)
    done = ask(tmp_path / "rules", rules_of("-p tcp -j ACCEPT"))
    assert done.exit_code == 2
    assert "ACCEPT by" in done.stdout and "undecided: out of time in table filter" in done.stdout


def test_each_header_of_the_question_is_counted_once() -> None:
    (every,) = reached(rules_of()).outcomes
    program = rules_of("-p tcp --dport 22 -j DROP", "-p udp --dport 53 -j ACCEPT", "-s 10.0.0.0/8 -j ACCEPT")
    outcomes = reached(program).outcomes
    assert len(outcomes) > 3 and sum(each.headers for each in outcomes) == every.headers


def test_the_largest_region_that_passes_is_first() -> None:
    program = rules_of("-s 10.0.0.0/24 -j ACCEPT", "-s 11.0.0.0/8 -j ACCEPT", "-s 12.0.0.0/16 -j ACCEPT")
    assert [each.line for each in reached(program).outcomes if each.passes] == [4, 5, 3]


def test_no_rule_is_counted_where_all_are_listed(tmp_path: Path) -> None:
    program = rules_of("-s 10.0.0.0/24 -j ACCEPT", "-s 11.0.0.0/8 -j ACCEPT")
    assert "more rule" not in ask(tmp_path / "rules", program, "--limit", "2").stdout
    assert "… and 1 more rule (--limit)" in ask(tmp_path / "rules", program, "--limit", "1").stdout


@pytest.mark.parametrize(("drops", "rest"), [(3, "1 smaller region"), (4, "2 smaller regions")])
def test_the_smaller_regions_of_a_rule_are_counted(drops: int, rest: str) -> None:
    holes = (f"-s 10.{at}.0.0/16 -p tcp --dport {at} -j DROP" for at in range(drops))
    program = rules_of(*holes, "-p tcp -j ACCEPT")
    lines = show(reached(program), program, region(program.family), 20).splitlines()
    assert [line.strip() for line in lines if "smaller" in line] == [f"… and {rest}"]


def test_too_many_regions_that_pass_are_told_before_those_that_do_not() -> None:
    program = rules_of(
        *(f"-s 10.{at}.0.0/24 -j {'ACCEPT' if at % 2 else 'DROP'}" for at in range(8)), "-j REJECT"
    )
    found = reached(program, most=2)
    assert found.cut_off == {True, False}
    lines = show(found, program, region(program.family), 20).splitlines()
    told = [line.partition(" than ")[0] for line in lines if line.startswith("There are more")]
    assert told == [
        "There are more regions of packets that pass",
        "There are more regions of packets that do not pass",
    ]

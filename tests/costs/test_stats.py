"""`hitables stats` reads each chain a bounded number of times, and a long way of chains as its parts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import hitables
from benchmarks.cliffs_inputs import AXES
from hitables.costs import stats
from hitables.report.stats import show_stats
from hitables.simulate import interpreter, path_conditions

pytestmark = pytest.mark.engine


def figures(text: str) -> dict[str, dict[str, float]]:
    return {each["chain"]: each for each in hitables.stats(text)["chains"]}


@pytest.mark.parametrize("axis", ["chains", "next", "nesting"])
def test_a_table_is_encoded_once_and_each_chain_is_explored_with_few_others(
    axis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (work_of(AXES[axis](size), monkeypatch) for size in (60, 240))
    assert many["tables"] == few["tables"]
    assert many["rules"] <= 4.5 * few["rules"]


def work_of(text: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Tables encoded, and rules explored, by stats of *text* where no chain of 16 rules is small."""
    count: Counter[str] = Counter()

    class Encoded(interpreter._EncodedTable):
        def __init__(self, *given: Any) -> None:
            count["tables"] += 1
            super().__init__(*given)

    class Explored(path_conditions.Reach):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            count["rules"] += len(self.numbers)

    with monkeypatch.context() as patched:
        patched.setattr(interpreter, "_EncodedTable", Encoded)
        patched.setattr("hitables.simulate.boundary_packets.Reach", Explored)
        patched.setattr("hitables.simulate.chain_packets.Reach", Explored)
        patched.setattr(stats, "SMALL", 16)
        patched.setattr(stats, "SMALL_IN_ALL", 0)
        hitables.stats(text)
    return count


def test_the_figures_of_a_chain_by_its_parts_are_near_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = AXES["next"](100)
    whole = figures(text)
    monkeypatch.setattr(stats, "SMALL", 16)
    monkeypatch.setattr(stats, "SMALL_IN_ALL", 0)
    parts = figures(text)
    assert parts["FORWARD"] == whole["FORWARD"]
    for name in ("c0", "c20", "c50"):
        assert parts[name]["longest_read"] == whole[name]["longest_read"]
        assert parts[name]["mean_read"] == pytest.approx(whole[name]["mean_read"], rel=0.35)
        assert parts[name]["modelled_ns"] == pytest.approx(whole[name]["modelled_ns"], rel=0.6)


def test_a_path_keeps_what_is_compared_however_long_it_is() -> None:
    program = hitables.read(AXES["next"](300))
    run = interpreter.Interpreter(program, hitables.Backend.LEGACY)
    from hitables.simulate.boundary_packets import BoundarySampler

    sampler = BoundarySampler(run, "filter", "FORWARD")
    last = sampler._reach.conditions(sampler.numbers[-1], 1)
    assert last and len(last[0].path) <= path_conditions.EXAMINED + 1


def test_the_policy_of_a_chain_that_keeps_it_is_told_as_a_minus() -> None:
    text = "*filter\n:INPUT - [0:0]\n:FORWARD DROP [0:0]\n:own - [0:0]\n-A INPUT -j own\nCOMMIT\n"
    policies = {each["chain"]: each["policy"] for each in hitables.stats(text)["chains"]}
    assert policies["INPUT"] == "-" and policies["FORWARD"] == "DROP" and policies["own"] is None


def test_a_built_in_chain_without_rules_has_a_row_and_an_empty_user_chain_has_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:none - [0:0]\n-A INPUT -j none\nCOMMIT\n"
    show_stats({**hitables.stats(text), "trace": None})
    printed = capsys.readouterr().out
    assert "FORWARD" in printed and "INPUT" in printed and "none" not in printed

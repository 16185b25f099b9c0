"""Chains of a program by name; which chains of a table enter which, and whether they do so in a circle."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitables.errors import UnknownName
from hitables.ir.fields import Family
from hitables.ir.program import Chain, Program, Table, check_names, is_acyclic, near_chain, without_circles
from hitables.ir.rule import Kind, Rule, Target

NAMES = "abcdef"
ENTERED = st.lists(st.lists(st.sampled_from(NAMES), max_size=3), min_size=len(NAMES), max_size=len(NAMES))


def rules(entered: list[str]) -> tuple[Rule, ...]:
    return tuple(Rule((), Target(name, Kind.JUMP, f"-j {name}")) for name in entered)


def chains(entered: list[list[str]]) -> Table:
    """Chain a is built in."""
    return Table(
        "filter",
        tuple(
            Chain(name, None if name != "a" else "ACCEPT", rules(names))
            for name, names in zip(NAMES, entered, strict=True)
        ),
    )


def has_circle(table: Table) -> bool:
    try:
        TopologicalSorter(table.entered()).prepare()
    except CycleError:
        return True
    return False


@given(ENTERED)
def test_a_table_knows_which_chains_its_rules_enter_and_whether_in_a_circle(entered: list[list[str]]) -> None:
    table = chains(entered)
    assert table.entered() == {
        name: tuple(dict.fromkeys(each)) for name, each in zip(NAMES, entered, strict=True)
    }
    assert table.is_acyclic() is not has_circle(table)
    # Circles remain only where packets may come to them.
    left = without_circles(table)
    assert left is table or not table.is_acyclic()
    reached, waiting = {"a"}, ["a"]
    for name in waiting:
        waiting += [each for each in left.entered()[name] if each not in reached]
        reached.update(left.entered()[name])
    lone = {name: names for name, names in left.entered().items() if name not in reached}
    assert is_acyclic({name: [each for each in names if each in lone] for name, names in lone.items()})


def test_a_table_of_other_chains_is_looked_at_anew() -> None:
    table = chains([["b"], ["a"], [], [], [], []])
    assert table.entered()["b"] == ("a",) and not table.is_acyclic()
    other = table.of({**table.by_name(), "b": table["b"].with_rules(rules(["c"]))})
    assert other.entered()["b"] == ("c",) and other.is_acyclic()
    assert not table.is_acyclic()


def test_names_of_no_chain_end_a_path() -> None:
    assert is_acyclic({"a": ["b", "c"], "b": ["c"]})
    assert not is_acyclic({"a": ["c", "b"], "b": ["a"]})


def test_a_table_or_chain_that_a_program_lacks_is_none() -> None:
    chain = Chain("a", None, rules(["b"]))
    table = Table("filter", (chain,))
    program = Program(Family.IPV4, (Table("raw", ()), table))
    assert program.find("filter") is table and program.find_chain("filter", "a") is chain
    assert program.rules_of("filter", "a") is chain.rules
    for absent in (("filter", "b"), ("raw", "a"), ("nat", "a")):
        assert program.find_chain(*absent) is None and program.rules_of(*absent) == ()
    assert program.find("nat") is None


def test_an_unknown_chain_is_told_with_the_one_that_it_resembles() -> None:
    table = Table("filter", (Chain("INPUT", "ACCEPT"), Chain("web", None)))
    for name, hint in (("input", "INPUT"), ("INPTU", "INPUT"), ("Web", "web")):
        assert near_chain(name, [table]) == f"; did you mean {hint}?"
        with pytest.raises(UnknownName, match=rf"no chain {name}; did you mean {hint}\?$"):
            check_names(Program(Family.IPV4, (table,)), [], [name])
    assert near_chain("NOPE", [table]) == ""

"""Chains for the parts of a list: the same rules, and a wrong guess proves nothing."""

from __future__ import annotations

import pytest

import hitables
from hitables.ir.fields import Family
from hitables.ir.program import Program
from hitables.parse.iptables import read
from hitables.verify import exact
from hitables.verify.called_parts import with_called_parts
from hitables.verify.question import Difference, Equal, Question

pytestmark = pytest.mark.engine

HOSTS = [f"-{side} 10.0.0.{host}" for host in range(1, 41) for side in "sd"]
FRONT = [f"-s 192.168.{n}.0/24 -p tcp -m tcp --dport {n} -j DROP" for n in range(1, 21)]
ENTER = "-j DOCKER-USER"


def text(rules: list[str], chain: str = "FORWARD") -> str:
    heads = ":INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:DOCKER-USER -\n"
    heads += "" if chain == "FORWARD" else f":{chain} -\n-A FORWARD -j {chain}\n"
    return f"*filter\n{heads}" + "".join(f"-A {chain} {rule}\n" for rule in rules) + "COMMIT\n"


def parts(before: Program, after: Program) -> list[int]:
    """How many rules each added chain has."""
    first = before.table("filter")
    cut = with_called_parts(first, after.table("filter"), Family.IPV4, exact=False)
    return [] if cut is None else [len(chain.rules) for chain in cut.chains if chain.name not in first]


def test_each_tree_that_is_called_has_a_chain() -> None:
    output = hitables.compile(text([ENTER, *FRONT, *HOSTS, "-j DROP"]))
    found = parts(output.before, output.program)
    assert found == [1 + len(FRONT), 40, 40] and not output.by_regions


def test_a_list_that_calls_no_tree_is_not_cut() -> None:
    before = read(text([ENTER, *FRONT, *HOSTS]))
    assert not parts(before, before)
    assert not parts(before, read(text(["-j LOG"])))


@pytest.mark.parametrize("leaving", ["-p udp -j RETURN", "-p udp -g DOCKER-USER"])
def test_a_part_whose_rules_leave_a_user_chain_is_not_cut(leaving: str) -> None:
    rules = [*FRONT, leaving, *HOSTS, "-j DROP"]
    output = hitables.compile(text(rules, "acct"))
    assert not parts(output.before, output.program)
    cut = hitables.compile(text(rules)).before
    called = "".join(f"-A FORWARD -j t{n}\n" for n in range(3))
    trees = read(f"*filter\n:t0 -\n:t1 -\n:t2 -\n{called}COMMIT\n")
    assert parts(cut, trees) == ([] if "-g" in leaving else [21, 40, 40])


@pytest.mark.parametrize("change", ["lost", "moved across a verdict", "other tree"])
def test_what_differs_is_found_in_any_part(change: str) -> None:
    output = hitables.compile(text([*FRONT, *HOSTS, "-j DROP"]))
    lines = output.text.splitlines(keepends=True)
    calls = [at for at, line in enumerate(lines) if line.startswith("-A FORWARD -j ht")]
    if change == "lost":
        del lines[
            next(at for at, line in enumerate(lines) if line.startswith("-A ht") and " -d 10.0.0" in line)
        ]
    elif change == "moved across a verdict":
        lines.insert(calls[0], "-A FORWARD -s 10.0.0.7/32\n")
    else:
        lines[calls[1]] = lines[calls[0]]
    answer = exact.check(output.before, read("".join(lines)), Question())
    assert isinstance(answer, Difference)


def test_trees_in_another_order_are_equal_where_they_only_count() -> None:
    output = hitables.compile(text([*HOSTS, "-j DROP"]))
    lines = output.text.splitlines(keepends=True)
    calls = [at for at, line in enumerate(lines) if line.startswith("-A FORWARD -j ht")]
    assert len(calls) == 2
    lines[calls[0]], lines[calls[1]] = lines[calls[1]], lines[calls[0]]
    assert isinstance(exact.check(output.before, read("".join(lines)), Question()), Equal)

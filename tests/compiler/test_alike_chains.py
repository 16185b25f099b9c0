"""Chains that are alike, as those of the guests of a host, are tried with a tree once."""

from __future__ import annotations

from random import Random

import pytest

import hitables
from benchmarks.cliffs_firewalls import FIREWALL_AXES
from hitables.build.tree import Tree
from hitables.compiler import compile as compiling
from hitables.compiler import run_trees, tables
from hitables.compiler.rooms import Rooms

pytestmark = pytest.mark.engine
MARKS = [1 << bit for bit in range(14)]


def guests(count: int, *more: str) -> str:
    """A chain of the same tests for each guest, in which no tree pays, and a long list that enters them."""
    names = [f"guest{number}" for number in range(count)]
    lines = [
        "*filter",
        ":FORWARD ACCEPT [0:0]",
        *(f":{name} - [0:0]\n:of-{name} - [0:0]" for name in names),
        *more,
    ]
    for name in names:
        lines += [f"-A FORWARD -i {name} -j {name}"]
        lines += [
            f"-A {name} -m conntrack --ctstate {state} -j ACCEPT" for state in ("ESTABLISHED", "RELATED")
        ]
        lines += [f"-A {name} -m mark --mark {mark:#x}/{mark:#x} -j of-{name}" for mark in MARKS]
        lines += [f"-A {name} -j DROP", f"-A of-{name} -p tcp -j RETURN"]
    return "\n".join([*lines, "COMMIT", ""])


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of boxes of each tree that is grown."""
    sizes: list[int] = []
    grow = run_trees.grow

    def noted(boxes: object, **options: object) -> Tree:
        sizes.append(len(boxes.final))  # type: ignore[attr-defined]
        return grow(boxes, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(run_trees, "grow", noted)
    return sizes


def test_one_of_many_chains_that_are_alike_is_tried(grown: list[int]) -> None:
    hitables.compile(guests(100))
    few = [size for size in grown if size < 40]
    assert 0 < len(few) < 10
    grown.clear()
    # Another test is another chain.
    hitables.compile(
        guests(100).replace("-A guest7 -m mark --mark 0x1/0x1 ", "-A guest7 -m mark --mark 0x3/0x3 ")
    )
    assert len(few) < len([size for size in grown if size < 40]) < 20


def test_a_chain_that_enters_what_may_rewrite_its_packets_is_another_one(grown: list[int]) -> None:
    text = guests(100)
    hitables.compile(text)
    once = len(grown)
    grown.clear()
    hitables.compile(
        text.replace("-A of-guest7 -p tcp -j RETURN", "-A of-guest7 -p tcp -j MARK --set-mark 1")
    )
    assert len(grown) > once


@pytest.mark.parametrize("axis", ["workloads", "guests", "fan-in", "tables", "marks"])
@pytest.mark.parametrize("backend", ["any", "nft"])
def test_the_result_is_as_if_each_was_tried(axis: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = FIREWALL_AXES[axis](400)
    quick = hitables.compile(text, backend=backend)
    with monkeypatch.context() as patched:
        patched.setattr(tables, "MOST_ALIKE", 0)
        assert hitables.compile(text, backend=backend).text == quick.text


@pytest.mark.injects_fault
def test_what_the_first_of_two_runs_left_stays_so_in_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nesting is shared anew; a chain that was left because of a fault is told of once."""
    drawn = Random(3)
    hosts = [f"-A {{}} -s 10.{drawn.randrange(256)}.{at}.0/24 -j {{}}" for at in range(120)]
    lines = ["*filter", ":FORWARD ACCEPT [0:0]", ":one - [0:0]", ":two - [0:0]", ":broken - [0:0]"]
    lines += [each.format("FORWARD", "one") for each in hosts] + [each.format("one", "two") for each in hosts]
    lines += [each.format("two", "broken") for each in hosts]
    lines += [each.format("broken", "ACCEPT") for each in hosts[:100]]
    program = hitables.read("\n".join([*lines, "COMMIT", ""]))
    tree, runs = run_trees.RunTrees.tree, []

    def breaks(self: run_trees.RunTrees, run: list[object], *rest: object) -> object:
        runs.append(len(run))
        if len(run) == 100:
            raise AssertionError("it broke")
        return tree(self, run, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run_trees.RunTrees, "tree", breaks)
    monkeypatch.setattr(tables.TableCompiler, "cost", lambda self: 1.0 if self.first is None else 0.0)
    monkeypatch.setattr(Rooms, "shared_anew", lambda self, many: self)
    result = compiling.compile_rules(program, spare=True)
    assert [(fault.chain, fault.why) for fault in result.faults] == [
        ("broken", "compiling it broke off (AssertionError: it broke)")
    ]
    assert runs.count(100) == 1 and runs.count(120) >= 4


def nest(depth: int, more: str) -> str:
    """Chains of which each enters the next, with a rule *more* in each."""
    names = ["INPUT", *(f"c{at}" for at in range(depth))]
    lines = ["*filter", ":INPUT ACCEPT [0:0]", *(f":{name} - [0:0]" for name in names[1:])]
    for at, name in enumerate(names):
        lines += [f"-A {name} -s 10.{at}.{port}.0/24 -p tcp --dport {port} -j ACCEPT" for port in range(12)]
        lines += [f"-A {name} {more}", *(f"-A {name} -j {other}" for other in names[at + 1 : at + 2])]
    return "\n".join([*lines, "COMMIT", ""])


@pytest.mark.parametrize("depth", [8, 12, 15, 16, 18])
@pytest.mark.parametrize("more", ["-m limit --limit 1/s -j LOG", "-p udp -j DROP"])
def test_a_short_chain_without_any_room_for_a_tree_is_reported(depth: int, more: str) -> None:
    """Each nesting of a tree is taken by those that the chain enters, and more."""
    output = hitables.compile(nest(depth, more))
    names = {report.chain for report in output.reports}
    assert names == {"INPUT", *(f"c{at}" for at in range(depth))}

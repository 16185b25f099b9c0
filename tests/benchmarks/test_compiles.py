"""The campaign of `make compiles`: what it draws is valid, all of it is proved, and a fault is found, small."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples
from support.small_namespace import Namespace

import hitables
from benchmarks import compiles
from benchmarks.compiles import Task, attempt, read_saved, save, task_of
from benchmarks.firewalls import NAMES, STYLES, draw
from benchmarks.shrink import shrink
from hitables.build.grow import ALGORITHMS, EFFORTS
from hitables.build.tree import Tree
from hitables.compiler import run_trees
from hitables.compiler.options import NESTING, Options
from hitables.compiler.pipeline import compile_text
from hitables.ir.choices import Equivalence
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load

pytestmark = pytest.mark.engine


# ---- what is drawn ----


@pytest.mark.needs_kernel
@pytest.mark.parametrize("style", [name for name in NAMES if name != "unknown"])
def test_the_kernel_takes_what_is_drawn(style: str) -> None:
    for seed in range(2):
        text, family = draw(style, Random(seed), 40)
        for backend in Backend:
            with Namespace() as namespace:
                load(text, family, backend, namespace)


@pytest.mark.parametrize("style", NAMES)
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32), size=st.integers(1, 60))
def test_a_drawing_has_its_size_is_read_and_is_the_same_again(style: str, seed: int, size: int) -> None:
    text, family = draw(style, Random(seed), size)
    assert draw(style, Random(seed), size) == (text, family)
    assert hitables.read(text, family=family).rule_count() == size


def test_every_style_draws_what_it_is_for() -> None:
    reported = {
        "wide": "port 0:65535", "fragments": " -f ", "icmp": "--icmp-type any", "flags": "--tcp-flags",
        "interfaces": "! -i", "states": "--ctstate", "mac": "--mac-source", "multiport": "-m multiport !",
        "protocols": "-m sctp", "negations": "! -s", "returns": "-j RETURN", "chains": "-g filter-",
        "effects": "-j MARK", "memory": "-m hashlimit", "constants": "--comment", "tables": "*nat",
        "everything": "--tcp-option", "plain": "-p udp", "acl-like": "--dport", "fw-like": "--sport",
        "ipc-like": "-p tcp", "marking": "-m mark", "services": "-m tos", "unknown": "-m ndpi",
    }  # fmt: skip
    assert reported.keys() == set(NAMES)
    for style, words in reported.items():
        texts = [draw(style, Random(seed), 150)[0] for seed in range(6)]
        assert any(words in text for text in texts), style


def test_options_of_every_kind_are_drawn() -> None:
    tasks = [task_of(3, number, styles=("plain",), most=10) for number in range(400)]
    for name, values in (
        ("backend", set(NESTING)),
        ("equivalence", set(Equivalence)),
        ("malformed", {"stricter", "exact"}),
        ("algorithm", set(ALGORITHMS)),
        ("effort", set(EFFORTS)),
    ):
        assert {task.options[name] for task in tasks} == values
    assert {task.scheme for task in tasks} == {"tree", "paper"}
    assert any(task.chosen() == Options() for task in (dataclasses.replace(tasks[0], options=_plain()),))


def _plain() -> dict[str, Any]:
    arguments = {each.name: getattr(Options(), each.name) for each in dataclasses.fields(Options)}
    return {**arguments, "malformed": "stricter"}


def test_some_sets_are_large() -> None:
    sizes = [task_of(1, number, styles=("plain",)).size for number in (0, 249, 1499)]
    assert sizes[0] <= 500 < 2000 <= sizes[1] <= 5000 < sizes[2] == 10_000


# ---- the campaign ----


@pytest.mark.parametrize("part", range(2))
def test_a_short_campaign_proves_everything_or_refuses_as_stated(part: int, tmp_path: Path) -> None:
    count = len(NAMES)
    tally = compiles.run(11, count, first=count * part, most=40, saved=tmp_path)
    assert tally.compiles == count and not tally.faults
    assert tally.trees >= 3
    assert not list(tmp_path.iterdir())


ALL_PORTS = (Path(__file__).parents[1] / "cases/all-ports-beside-one-port/rules").read_text()


@pytest.mark.parametrize("malformed", ["stricter", "exact"])
@pytest.mark.parametrize("equivalence", list(Equivalence))
@pytest.mark.parametrize("backend", NESTING)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rules_for_all_ports_are_compiled_and_proved(
    algorithm: str, backend: str, equivalence: str, malformed: str
) -> None:
    options = {"algorithm": algorithm, "backend": backend, "equivalence": equivalence, "malformed": malformed}
    for number in range(2):
        text, family = draw("wide", Random(number), 60)
        drawn = Task(
            "wide", int(family), 60, text, "tree", {**options, "leaf_size": 1, "max_expansion": 20.0}
        )
        assert attempt(drawn).fault == ""
    assert attempt(Task("wide", 4, 13, ALL_PORTS, "tree", {**options, "leaf_size": 1})).fault == ""


@pytest.mark.parametrize("region", ["", "-s 10.0.0.0/9 "])
@pytest.mark.parametrize(
    "through_xtables",
    [
        "-m multiport --dports 80",
        "-m multiport --ports 80,81 -m tcp --dport 80",
    ],
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_rule_that_drops_cut_off_packets_is_not_lost_behind_one_that_does_not(
    algorithm: str, through_xtables: str, region: str
) -> None:
    lines = [f"{region}-p tcp -m tcp --dport 80 -j ACCEPT", f"-p tcp {through_xtables} -j DROP"]
    logs = [f"-s 10.{8 * number}.0.0/16 -p tcp -j LOG" for number in range(30)]
    udp = [f"-s 10.{8 * number}.1.0/24 -p udp -j DROP" for number in range(20)]
    for more in (udp, [*logs, *udp]):
        listed = "".join(f"-A FORWARD {line}\n" for line in (*lines, *more))
        for leaf_size in (1, 8):
            options = Options(backend="nft", algorithm=algorithm, leaf_size=leaf_size)
            assert not compile_text(f"*filter\n:FORWARD ACCEPT [0:0]\n{listed}COMMIT\n", options).faults


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_tree_asks_for_all_types_of_icmp_in_ipv6(algorithm: str) -> None:
    anything_else = (
        "! -s 2001:db8::1/128 ! -d 2001:db8::2/128 ! -i eth0 ! -o eth1 -p ipv6-icmp -m icmp6 ! --icmpv6-type"
    )
    lines = [f"-A FORWARD {anything_else} {kind} -j LOG" for kind in (128, 129, 130, 131)]
    lines += [f"-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type {kind} -j DROP" for kind in range(100, 130)]
    text = "".join(f"{line}\n" for line in ["*filter", ":FORWARD ACCEPT [0:0]", *lines, "COMMIT"])
    for backend in NESTING:
        made = compile_text(
            text, Options(backend=backend, algorithm=algorithm, leaf_size=1), family=Family.IPV6
        )
        assert not made.faults


def test_scheme_paper_with_equivalence_verdict_is_refused_as_stated() -> None:
    task = task_of(1, 0, styles=("plain",), most=20)
    options = {**task.options, "equivalence": "verdict"}
    assert attempt(dataclasses.replace(task, scheme="paper", options=options)).refused
    (refusal,) = compiles.REFUSALS
    reported = (Path(__file__).parents[2] / "docs/semantics.md").read_text()
    assert refusal.begins in " ".join(reported.split())


# ---- faults ----


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees whose leaves list their rules in reverse."""
    real = run_trees.grow

    def grow(boxes: Any, **options: Any) -> Tree:
        tree = real(boxes, **options)
        entry = tree.entry.copy()
        for first, entries in zip(tree.node["entry"].tolist(), tree.node["entries"].tolist(), strict=True):
            if not tree.step[first : first + entries].any():
                entry[first : first + entries] = entry[first : first + entries][::-1].copy()
        return dataclasses.replace(tree, entry=entry)

    monkeypatch.setattr(run_trees, "grow", grow)


@pytest.mark.injects_fault
def test_a_fault_is_found_made_small_saved_and_found_again(spoilt: None, tmp_path: Path) -> None:
    tally = compiles.run(5, 4, styles=("plain", "chains"), most=30, saved=tmp_path, patience=5)
    assert tally.faults
    for fault in tally.faults:
        assert fault["fault"].startswith("left as it was")
        again = read_saved(tmp_path / fault["file"])
        assert attempt(again).fault == fault["fault"]
        assert fault["rules"] == again.text.count("-A ")
    assert min(fault["rules"] for fault in tally.faults) <= 20


@pytest.mark.injects_fault
def test_the_command_ends_with_1_on_a_fault(
    spoilt: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_this_process(*arguments: Any, jobs: int, **options: Any) -> compiles.Tally:
        return compiles.run(*arguments, **options, patience=3, tell=click.echo)

    output, saved = tmp_path / "figures.json", tmp_path / "saved"
    monkeypatch.setattr(compiles, "run_jobs", in_this_process)
    words = ["--count", "4", "--style", "plain", "--most", "40", "--saved", str(saved), "--json", str(output)]
    done = CliRunner().invoke(compiles.main, [*words, "--seed", "5"])
    figures = json.loads(output.read_text())
    assert done.exit_code == 1 and "FAULT" in done.output
    assert figures["compiles"] == 4 == figures["proved"] + len(figures["faults"])
    (again, *_) = sorted(saved.glob("*.rules"))
    done = CliRunner().invoke(compiles.main, ["--again", str(again)])
    assert done.exit_code == 1 and "left as it was" in done.output


def test_the_command_ends_with_0_when_all_is_proved(tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    words = [
        "--count",
        "8",
        "--style",
        "plain",
        "--most",
        "40",
        "--saved",
        str(tmp_path),
        "--json",
        str(output),
    ]
    done = CliRunner().invoke(compiles.main, [*words, "-j", "2"])
    assert done.exit_code == 0, done.output
    figures = json.loads(output.read_text())
    assert figures["compiles"] == 8 == sum(figures["by"]["backend"].values())
    assert figures["faults"] == []


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    for number in range(len(NAMES)):
        task = task_of(2, number, most=30)
        save(task, compiles.Outcome(fault="under way", detail="one\ntwo"), tmp_path / "a.rules")
        again = read_saved(tmp_path / "a.rules")
        assert (again.text, again.options, again.scheme) == (task.text, task.options, task.scheme)
        assert hitables.read((tmp_path / "a.rules").read_text(), family=Family(task.family)).rule_count()


@pytest.mark.parametrize("wrong", ["crashes", "refuses", "does not refuse"])
def test_anything_but_a_proof_or_a_stated_refusal_is_a_fault(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError if wrong == "crashes" else hitables.HitablesError("not today")

    task = task_of(1, 0, styles=("plain",), most=20)
    if wrong == "does not refuse":
        options = {**task.options, "equivalence": "verdict"}
        task = dataclasses.replace(task, scheme="paper", options=options)
        proved = compile_text(task.text, Options(), family=Family(task.family))
        monkeypatch.setattr(compiles, "compile_text", lambda *_, **__: proved)
        assert attempt(task).fault == "not refused"
        return
    task = dataclasses.replace(task, scheme="tree")
    monkeypatch.setattr(compiles, "compile_text", refuses)
    expected = {"crashes": "exception ZeroDivisionError", "refuses": "refused for no stated reason"}
    assert attempt(task).fault == expected[wrong]


# ---- making it small ----


@settings(max_examples=examples(25))
@given(data=st.data())
def test_what_is_made_small_shows_the_fault_and_nothing_more_can_go(data: st.DataObject) -> None:
    text, family = draw(
        data.draw(st.sampled_from(sorted(STYLES))), Random(data.draw(st.integers(0, 999))), 30
    )
    rules = [line for line in text.splitlines() if "-A " in line]
    wanted = data.draw(st.lists(st.sampled_from(rules), min_size=1, max_size=3, unique=True))
    chains = {re.search(r"-A (\S+)", line)[1] for line in wanted}  # type: ignore[index]

    def shows(smaller: str) -> bool:
        try:
            hitables.read(smaller, family=family)
        except hitables.HitablesError:
            return False
        result = re.findall(r"-A (\S+)", smaller)
        return all(result.count(chain) >= sum(f"-A {chain} " in line for line in wanted) for chain in chains)

    small = shrink(text, shows)
    assert shows(small)
    left = [line for line in small.splitlines() if line.startswith(("-A", "["))]
    tables = text.count("COMMIT")
    assert len(left) <= len(wanted) * tables
    assert all(not re.search(r" -[sd] ", line) for line in left), "tests that are not needed went"


def test_making_small_stops_when_its_time_is_over() -> None:
    text, _ = draw("plain", Random(1), 50)
    assert shrink(text, lambda smaller: True, seconds=0) == text

"""A chain with a faulty tree is printed unchanged, with a warning; the others are compiled and proved.

The faults are injected into the trees; proof, printing and reading are the real ones.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.sflgen_command import sflgen as sflgen_command
from support.small_namespace import Namespace

import hitables
import sflgen
from hitables import HitablesError, NotEquivalent
from hitables.analyse.boxes import Boxes
from hitables.build.tree import EntryKind, NodeKind, Tree
from hitables.cli.main import main
from hitables.compiler import compile as compiling
from hitables.compiler import fault_search, pipeline, run_trees, segments
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.compiler.run_trees import TOO_LARGE
from hitables.compiler.segments import SegmentGrower
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load, save
from hitables.verify.portfolio import check
from hitables.verify.question import Equal, Question
from sflgen.commands import read_commands
from sflgen.planner import plan_unproved
from sflgen.proof import plan as sflgen_plan
from sflgen.proof import prove_plan, verify
from sflgen.settings import Strategy

pytestmark = [pytest.mark.engine, pytest.mark.injects_fault]

Spoil = Callable[[Tree], Tree]


def rules(chain: str, count: int, seed: int) -> list[str]:
    """Rules that differ in the address, so that a tree saves much; of two in a row the first must win."""
    rng = random.Random(seed)
    result = []
    for number in range((count + 1) // 2):
        source = f"-A {chain} -s 10.{rng.randrange(200)}.{number}.0/24 -p tcp"
        result += [f"{source} -m tcp --dport {rng.randrange(1, 999)} -j ACCEPT", f"{source} -j DROP"]
    return result[:count]


def table(name: str, built_in: str, *listed: str, user: str = "") -> str:
    declared = [f":{each} ACCEPT [0:0]" for each in built_in.split()]
    declared += [f":{each} - [0:0]" for each in user.split()]
    return "".join(f"{line}\n" for line in [f"*{name}", *declared, *listed, "COMMIT"])


FILTER = "INPUT FORWARD OUTPUT"
# The user chain is the longest, so that its rules tell it from the others, and is reached from two.
THREE = table(
    "filter",
    FILTER,
    "-A INPUT -j long",
    *rules("INPUT", 40, 1),
    *rules("FORWARD", 50, 2),
    "-A FORWARD -j long",
    *rules("long", 60, 3),
    user="long",
)
COUNT = {"INPUT": 41, "FORWARD": 51, "long": 60}


def misplaced(tree: Tree) -> Tree:
    """The rules of all leaves stand in reverse."""
    entry = tree.entry.copy()
    for first, entries in zip(tree.node["entry"].tolist(), tree.node["entries"].tolist(), strict=True):
        if not tree.step[first : first + entries].any():
            entry[first : first + entries] = entry[first : first + entries][::-1].copy()
    return dataclasses.replace(tree, entry=entry)


def left_out(tree: Tree) -> Tree:
    """The first entry that stands for a rule stands for the rule before it, or behind it, instead."""
    entry = tree.entry.copy()
    at = int(np.flatnonzero(tree.step == EntryKind.RULE)[0])
    entry[at] += 1 if entry[at] == 0 else -1
    return dataclasses.replace(tree, entry=entry)


def taken_wrongly(tree: Tree) -> Tree:
    """What the tests of a tree take and what they leave change places."""
    edge, node = tree.edge.copy(), tree.node
    for first in node["edge"][node["kind"] == int(NodeKind.TEST)].tolist():
        edge["to"][[first, first + 1]] = edge["to"][[first + 1, first]]
    return dataclasses.replace(tree, edge=edge)


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Spoil the trees over chains of so many rules (none named: all)."""

    def inject(wrong: Spoil, *counts: int) -> None:
        real = run_trees.grow

        def grow(boxes: Boxes, **options: Any) -> Tree:
            tree = real(boxes, **options)
            return wrong(tree) if not counts or len(boxes.final) in counts else tree

        monkeypatch.setattr(run_trees, "grow", grow)

    yield inject


def crashes(tree: Tree) -> Tree:
    raise AssertionError("a cut that is no prefix")


def compile_command(*arguments: str, text: str) -> Result:
    return CliRunner().invoke(main, ["compile", "-", *arguments], input=text)


def chain_of(text: str, chain: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"-A {chain} ")]


def assert_equal(before: str, after: str, equivalence: str = "full") -> None:
    one, two = hitables.read(before), hitables.read(after)
    assert isinstance(check(one, two, Question(equivalence=equivalence)), Equal)


WRONG = [misplaced, left_out, taken_wrongly, crashes]


@pytest.mark.parametrize("chain", COUNT)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("equivalence", ["full", "verdict"])
def test_a_chain_with_a_wrong_tree_is_left_as_it_was_and_the_others_are_compiled(
    spoil: Callable[..., None], wrong: Spoil, chain: str, equivalence: str
) -> None:
    sound = compile_text(THREE, Options(equivalence=equivalence))
    spoil(wrong, COUNT[chain])
    result = compile_text(THREE, Options(equivalence=equivalence))
    assert [(fault.table, fault.chain) for fault in result.faults] == [("filter", chain)]
    assert chain_of(result.text, chain) == chain_of(THREE, chain)
    assert_equal(THREE, result.text, equivalence)
    reports = {report.chain: report for report in result.reports}
    assert reports[chain].why == f"left as it was: {result.faults[0].why}"
    assert {name for name, report in reports.items() if report.why} == {chain}
    for other in COUNT.keys() - {chain}:
        (was,) = (report for report in sound.reports if report.chain == other)
        assert (reports[other].after, reports[other].gone) == (was.after, was.gone)
    assert "; proved " in result.text.partition("\n")[0]


@pytest.mark.parametrize("wrong", WRONG)
def test_when_all_trees_are_wrong_the_input_is_printed(spoil: Callable[..., None], wrong: Spoil) -> None:
    spoil(wrong)
    result = compile_text(THREE, Options())
    assert {fault.chain for fault in result.faults} == set(COUNT)
    assert result.text.partition("\n")[2] == hitables.write(hitables.read(THREE))
    assert all(
        each["origin"] == each["name"] for part in result.source_map["tables"] for each in part["chains"]
    )


@pytest.mark.parametrize("wrong", [misplaced, crashes])
def test_the_command_prints_warns_and_ends_with_status_0(spoil: Callable[..., None], wrong: Spoil) -> None:
    spoil(wrong, COUNT["FORWARD"])
    done = compile_command("--summary", text=THREE)
    assert done.exit_code == 0
    assert chain_of(done.stdout, "FORWARD") == chain_of(THREE, "FORWARD")
    assert "hitables: warning: table filter, chain FORWARD is printed unchanged: " in done.stderr
    assert "please report it with the rule set" in done.stderr
    assert "left as it was" in " ".join(done.stderr.split())
    assert ("packet: table=filter chain=FORWARD" in done.stderr) is (wrong is misplaced)
    assert ("a cut that is no prefix" in done.stderr) is (wrong is crashes)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("wrong", [misplaced, left_out, taken_wrongly])
@pytest.mark.parametrize("leave", [(), ("other",)])
def test_a_wrong_tree_is_found_in_a_chain_that_no_packet_reaches_yet(
    spoil: Callable[..., None], wrong: Spoil, leave: tuple[str, ...]
) -> None:
    """A rule may enter it later: one of the administrator, or of the program that has the chains of --leave."""
    text = table("filter", FILTER, "-A INPUT -j other", *rules("later", 60, 3), user="other later")
    sound = compile_text(text, Options(leave=leave))
    assert not sound.faults and sound.text.count("-A ht") > 10
    spoil(wrong, 60)
    result = compile_text(text, Options(leave=leave))
    assert [(fault.table, fault.chain) for fault in result.faults] == [("filter", "later")]
    assert chain_of(result.text, "later") == chain_of(text, "later")


def test_a_sound_compile_warns_of_nothing() -> None:
    done = compile_command(text=THREE)
    assert (done.exit_code, done.stderr) == (0, "")


def test_chains_of_two_tables_are_distinguished(spoil: Callable[..., None]) -> None:
    text = table("mangle", "PREROUTING INPUT FORWARD OUTPUT POSTROUTING", *rules("FORWARD", 45, 5)) + THREE
    spoil(misplaced, 45)
    result = compile_text(text, Options())
    assert [(fault.table, fault.chain) for fault in result.faults] == [("mangle", "FORWARD")]
    assert_equal(text, result.text)
    assert not any(each.why for each in result.reports if each.table == "filter")


def test_counters_and_comments_of_the_chain_are_restored_too(spoil: Callable[..., None]) -> None:
    listed = [f"[{at}:{at * 9}] {line} " for at, line in enumerate(rules("FORWARD", 50, 2))]
    listed[3] = '[7:70] -A FORWARD -m comment --comment "two words \\"quoted\\"" -j DROP '
    text = table("filter", FILTER, *(line.strip() for line in listed))
    spoil(misplaced)
    result = compile_text(text, Options(), weigh=lambda program: None)
    assert result.faults
    assert result.text.partition("\n")[2] == hitables.write(hitables.read(text))


def test_removed_rules_are_restored_where_the_tree_was_wrong(
    spoil: Callable[..., None],
) -> None:
    listed = rules("FORWARD", 48, 2)
    text = table("filter", FILTER, *rules("INPUT", 40, 1), *listed, *listed[:2])
    (sound,) = compile_text(text, Options(equivalence="verdict")).source_map["tables"]
    assert any(gone["chain"] == "FORWARD" for gone in sound["gone"])
    spoil(misplaced, 48)
    result = compile_text(text, Options(equivalence="verdict"))
    assert [fault.chain for fault in result.faults] == ["FORWARD"]
    assert chain_of(result.text, "FORWARD") == chain_of(text, "FORWARD")
    assert not any(gone["chain"] == "FORWARD" for gone in result.source_map["tables"][0]["gone"])
    report = next(each for each in result.reports if each.chain == "FORWARD")
    assert (report.before, report.after, report.gone) == (50, 50, 0)


def spoil_print(monkeypatch: pytest.MonkeyPatch, right: str, wrong: str) -> None:
    """Let compiled rule sets be printed with *wrong* in place of *right*."""
    real = pipeline.write
    for module in (pipeline, fault_search):
        monkeypatch.setattr(module, "write", lambda program: real(program).replace(right, wrong))


@pytest.mark.parametrize(
    ("right", "wrong"), [(" -g ht", " -G ht"), ("-A ht", "-A  --ht"), (":ht", ":INPUT"), (":ht1 -", ":ht1")]
)
def test_a_tree_that_cannot_be_read_back_is_left_out(
    monkeypatch: pytest.MonkeyPatch, right: str, wrong: str
) -> None:
    real = pipeline.write
    text = table("filter", FILTER, *rules("FORWARD", 50, 2))
    assert right in compile_text(text, Options(leaf_size=1)).text
    spoil_print(monkeypatch, right, wrong)
    result = compile_text(text, Options(leaf_size=1))
    assert [fault.why for fault in result.faults] == ["its tree, once printed, cannot be read back"]
    assert result.text.partition("\n")[2] == real(hitables.read(text))


def test_a_difference_without_a_faulty_tree_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ":OUTPUT ACCEPT", ":OUTPUT DROP"
    spoil_print(monkeypatch, *policy)
    with pytest.raises(NotEquivalent, match="fault of hitables"):
        compile_text(THREE, Options())
    done = compile_command(text=THREE)
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_proof_out_of_time_prints_nothing_as_before(spoil: Callable[..., None]) -> None:
    spoil(misplaced, COUNT["FORWARD"])
    with pytest.raises(HitablesError, match="while proving the compiled rule set"):
        compile_text(THREE, Options(), timeout=1e-6)


def test_compile_rules_raises_faults_unless_they_are_spared(spoil: Callable[..., None]) -> None:
    spoil(crashes, COUNT["long"])
    program = hitables.read(THREE)
    with pytest.raises(AssertionError, match="no prefix"):
        compiling.compile_rules(program)
    result = compiling.compile_rules(program, spare=True)
    assert [(fault.chain, fault.detail.partition(",")[0]) for fault in result.faults] == [
        ("long", "in crashes")
    ]
    assert result.program.table("filter")["long"] == program.table("filter")["long"]


def test_a_chain_whose_tree_takes_too_much_memory_stays_as_it_is(spoil: Callable[..., None]) -> None:
    def takes_all(tree: Tree) -> Tree:
        raise MemoryError("no memory is left for the tree")

    spoil(takes_all)
    output = compile_text(THREE, Options())
    assert not output.faults and {each.why for each in output.reports} == {TOO_LARGE}
    assert [rule for rule in output.text.splitlines() if rule[:2] == "-A"] == [
        rule for rule in THREE.splitlines() if rule[:2] == "-A"
    ]


@pytest.mark.parametrize("error", [RecursionError, KeyboardInterrupt, HitablesError])
def test_errors_that_are_not_faults_are_raised(
    spoil: Callable[..., None], error: type[BaseException]
) -> None:
    def stops(tree: Tree) -> Tree:
        raise error("stop")

    spoil(stops)
    with pytest.raises(error, match="stop"):
        compile_text(THREE, Options())


# ---- sflgen, which proves what it would load ----


@pytest.mark.parametrize("wrong", [misplaced, taken_wrongly])
def test_sflgen_init_with_a_wrong_tree_makes_no_state(
    spoil: Callable[..., None], wrong: Spoil, tmp_path: Path
) -> None:
    spoil(wrong)
    path, folder = tmp_path / "three.rules", tmp_path / "state"
    path.write_text(THREE)
    done = sflgen_command("init", str(path), "--state", str(folder))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nothing is changed (this is a fault of sflgen" in done.stderr
    assert not folder.exists()


def init_live(folder: str, backend: str) -> tuple[int, str]:
    """`sflgen init --live` with trees that are wrong, in the namespace that this runs in."""
    real = run_trees.grow
    run_trees.grow = lambda boxes, **options: misplaced(real(boxes, **options))
    try:
        done = sflgen_command("init", "--live", "--backend", backend, "--state", folder)
    finally:
        run_trees.grow = real
    return done.exit_code, done.stderr


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_sflgen_init_with_a_wrong_tree_loads_nothing(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        load(THREE, Family.IPV4, Backend(backend), namespace)
        before = save(Family.IPV4, Backend(backend), namespace)
        status, message = namespace.call(init_live, str(tmp_path / "state"), backend)
        assert (status, "nothing is changed" in message) == (2, True)
        assert save(Family.IPV4, Backend(backend), namespace) == before
    assert not (tmp_path / "state").exists()


def test_a_fold_with_a_wrong_tree_leaves_the_state_as_it_was(
    spoil: Callable[..., None], tmp_path: Path
) -> None:
    path, folder = tmp_path / "three.rules", tmp_path / "state"
    path.write_text(THREE)
    assert sflgen_command("init", str(path), "--state", str(folder)).exit_code == 0
    before = {each.name: each.read_bytes() for each in folder.iterdir() if each.name != "lock"}
    spoil(misplaced)
    done = sflgen_command("fold", "--state", str(folder))
    assert done.exit_code == 2 and "fault of sflgen" in done.stderr
    assert {each.name: each.read_bytes() for each in folder.iterdir() if each.name != "lock"} == before


# Of whole packets the second rule sees none; of legacy it drops packets whose header of tcp is cut off.
HIDDEN_BUT_DROPS = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -s fd00::1:80/128 -p tcp -m tcp --dport 1 -m state --state ESTABLISHED -m length --length 100 -j DROP
-A FORWARD -d fd00::/64 -j ACCEPT
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j LOG --log-prefix "a "
-A FORWARD -s fd00::1:2/128 -j ACCEPT
-A FORWARD -d fd00::1:1/128 -j ACCEPT
-A FORWARD -s fd00::/120 -d fd00::/112 -p udp -m udp --sport 80:443 --dport 80:1000 -j ACCEPT
-A FORWARD -s fd00::1:0/112 -j ACCEPT
-A FORWARD -s fd00::3:0/124 ! -d fd00::3:28/128 -p udp -m udp --dport 22:443 -j DROP
-A FORWARD -s fd00::/64 -d fd00::/120 -p udp -m multiport --sports 53:443 -m state --state ESTABLISHED -j ACCEPT
-A FORWARD -s fd00::/64 -j LOG --log-prefix "a "
COMMIT
"""

# The second rule drops broken packets of any sender; in a tree of groups they would match the ninth before.
DROPS_ANY_SENDER = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -d 10.0.251.0/24 -m mac --mac-source 02:00:00:00:00:01 -j DROP
-A FORWARD -p udp --dport 0:65535 -m mac --mac-source 02:00:00:00:00:03 -j ACCEPT
-A FORWARD -d 10.0.251.0/24 -j ACCEPT
-A FORWARD -p tcp --dport 63680 -m mac --mac-source 02:00:00:00:00:05 -j ACCEPT
-A FORWARD -s 10.0.251.0/24 -m mac --mac-source 02:00:00:00:00:05 -j DROP
-A FORWARD -s 10.2.117.0/24 -p udp -m mac --mac-source 02:00:00:00:00:04 -j ACCEPT
-A FORWARD -m mac --mac-source 02:00:00:00:00:01 -j DROP
-A FORWARD ! -s 10.0.251.0/24 -p tcp -j ACCEPT
-A FORWARD -d 10.2.117.0/24 -m mac --mac-source 02:00:00:00:00:05 -j ACCEPT
-A FORWARD -p tcp -j ACCEPT
-A FORWARD -p tcp --dport 0:65535 -j ACCEPT
-A FORWARD -m mac --mac-source 02:00:00:00:00:05 -j DROP
-A FORWARD -d 10.2.117.0/24 -j DROP
-A FORWARD -d 10.2.117.0/24 -j ACCEPT
-A FORWARD -m mac --mac-source 02:00:00:00:00:04 -j ACCEPT
-A FORWARD -d 10.2.117.0/24 -j DROP
-A FORWARD -s 10.0.251.0/24 -m mac --mac-source 02:00:00:00:00:03 -j ACCEPT
COMMIT
"""


def test_a_rule_that_drops_broken_packets_precedes_rules_of_other_groups() -> None:
    output = hitables.compile(DROPS_ANY_SENDER, effort="fast", min_length=4)
    assert not output.faults and output.proved
    assert next(each for each in output.reports if each.chain == "FORWARD").why == ""


def without_care(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that are grown with care are as those that are grown without."""
    monkeypatch.setattr(SegmentGrower, "keep_drops", lambda *of: None)
    monkeypatch.setattr(segments, "short_dropped", lambda rules: frozenset())


def test_a_tree_that_lacks_a_rule_which_drops_broken_packets_is_grown_with_care(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = hitables.compile(HIDDEN_BUT_DROPS, family=6, backend="legacy")
    assert not output.faults and output.proved
    assert next(each for each in output.reports if each.chain == "FORWARD").why == ""
    state = sflgen.start(hitables.read(HIDDEN_BUT_DROPS, family=6), sflgen.Settings(backend=Backend.LEGACY))
    assert state.after.layouts
    without_care(monkeypatch)
    (fault,) = hitables.compile(HIDDEN_BUT_DROPS, family=6, backend="legacy").faults
    assert (
        "bytes=" in fault.packet if hasattr(fault, "packet") else "verdict DROP becomes ACCEPT" in str(fault)
    )


def test_an_update_whose_plan_is_wrong_gets_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """New trees that are wrong: the update is an entry in front of the old ones."""
    state = sflgen.start(
        hitables.read(HIDDEN_BUT_DROPS, family=6), sflgen.Settings(backend=Backend.LEGACY)
    ).after
    without_care(monkeypatch)
    updates = read_commands('-R FORWARD 11 -s fd00::/64 -j LOG --log-prefix "b "', state.master)
    with pytest.raises(NotEquivalent):
        prove_plan(plan_unproved(state, updates, Strategy.FOLD))
    plan = sflgen_plan(state, updates, Strategy.FOLD)
    assert not plan.folds and isinstance(verify(plan.after), Equal)

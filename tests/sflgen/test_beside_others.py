"""Patches that are loaded while other programs change rules: what these change is never overwritten."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.planned_updates import prefixes
from support.small_namespace import Namespace

from hitables.emit.text import write
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.contents_legacy import entries_of, images
from hitables.kernel.legacy_lock import can_be_held_for
from hitables.kernel.namespace import run
from hitables.parse import iptables
from sflgen.commands import read_commands
from sflgen.commit import load_all, loader
from sflgen.deletions_listed import MANY
from sflgen.edits import rule_key
from sflgen.kernel import Drift, Kernel
from sflgen.planner import plan_unproved, start_unproved
from sflgen.put_back import TRIES, _Hit, _hits, _repaired, put_back
from sflgen.restore import Outdated, Restore
from sflgen.session import Session
from sflgen.settings import Settings, Strategy
from sflgen.store import Store

kernel_test = pytest.mark.needs_kernel
both = pytest.mark.parametrize("backend", ["legacy", "nft"])
OTHER = ["-s", "198.51.100.9", "-j", "DROP"]
SHORT = (
    "-A OUTPUT -p tcp -j ACCEPT\n-A OUTPUT -p udp -j ACCEPT\n-A OUTPUT -p icmp -j ACCEPT\n"  # without a tree
)
OURS = "-s 192.0.2.7 -j DROP"


def rules_of(tool: str, chain: str = "INPUT") -> list[str]:
    """The rules of a chain, each without its -A and chain."""
    lines = run([tool, "-S", chain]).splitlines()
    return [line.removeprefix(f"-A {chain} ") for line in lines if line.startswith("-A")]


def started(folder: str, backend: str, stays: bool = False) -> tuple[Store, Kernel]:
    """A state with a tree and a rule of ours in front of it, in the kernel of the present namespace."""
    text = write(prefixes(20)).replace("COMMIT", f"{SHORT}COMMIT")
    program = iptables.read(text)
    state = start_unproved(program, Settings(Backend(backend))).after
    state = plan_unproved(state, read_commands(f"-I INPUT 1 {OURS}", program)).after
    run([f"iptables-{backend}-restore"], write(state.loaded))
    return Store.create(Path(folder), state), Kernel(Family.IPV4, state.settings, stays=stays)


def commit(store: Store, kernel: Kernel, commands: str, strategy: Strategy | None = None) -> str:
    """The error of a commit, or ""."""
    plan = plan_unproved(store.state, read_commands(commands, store.state.master), strategy)
    try:
        store.commit(plan, loader(kernel, store, plan))
    except LiveError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def inserting_before_loads(tool: str) -> Callable[..., Any]:
    """Kernel.load, but another program inserts a rule before the first one."""
    usual, waiting = Kernel.load, [OTHER]

    def load_(self: Kernel, *given: Any) -> Any:
        if waiting:
            run([tool, "-I", "INPUT", *waiting.pop()])
        return usual(self, *given)

    return load_


def changed_before_the_load(folder: str, backend: str, streaming: bool) -> tuple[str, list[str], list[str]]:
    tool = f"iptables-{backend}"
    store, kernel = started(folder, backend, stays=streaming)
    kernel.check(store.state)
    before = rules_of(tool)
    session = Session(store, kernel) if streaming else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "load", inserting_before_loads(tool))
        if session is not None:
            told = session.answer(f"-D INPUT {OURS}")
            session.close()
        else:
            told = commit(store, kernel, f"-D INPUT {OURS}")
    kernel.close()
    store.close()
    return told, before, rules_of(tool)


@kernel_test
@both
@pytest.mark.parametrize("streaming", [False, True])
def test_a_rule_that_is_inserted_before_the_load_is_not_deleted(
    backend: str, streaming: bool, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        told, before, after = namespace.call(
            changed_before_the_load, str(tmp_path / "st"), backend, streaming
        )
    assert "the kernel does not hold the rule set of the state; nothing is overwritten" in told
    assert after == ["-s 198.51.100.9/32 -j DROP", *before]


def inserting_behind_the_look(lines: list[list[str]]) -> Callable[..., Any]:
    """Restore.load, but another program runs each of *lines* between the last look and a COMMIT."""
    usual = Restore.load

    def load_(self: Restore, patch: str, meanwhile: Any, may: Any, added: Any) -> Any:
        def and_then() -> bool:
            is_so = may()
            if is_so and lines:
                run(lines.pop(0))
            return bool(is_so)

        return usual(self, patch, meanwhile, and_then, added)

    return load_


def changed_behind_the_look(
    folder: str,
    lines: list[list[str]],
    commands: str,
    counted: bool,
    tries: int = TRIES,
    many: int = MANY,
) -> tuple[str, list[str], list[str], str]:
    tool = "iptables-nft"
    store, kernel = started(folder, "nft")
    chain = lines[0][2] if lines[0][1] == "-I" else "INPUT"
    before = rules_of(tool, chain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Restore, "load", inserting_behind_the_look(lines))
        patch.setattr("sflgen.put_back.TRIES", tries)
        patch.setattr("sflgen.deletions_listed.MANY", many)
        told = commit(store, kernel, commands)
    kernel.close()
    after = rules_of(tool, chain)
    saved = run([f"{tool}-save", "-c"]) if counted else ""
    store.close()
    return told, before, after, saved


INSERT = ["iptables-nft", "-I", "INPUT", *OTHER]


@kernel_test
@pytest.mark.parametrize("times", [1, 2])
def test_a_rule_that_is_deleted_in_place_of_another_is_put_back(times: int, tmp_path: Path) -> None:
    lines = [["iptables-nft", "-I", "INPUT", "-s", f"198.51.100.{at}", "-j", "DROP"] for at in range(times)]
    with Namespace() as namespace:
        told, before, after, _ = namespace.call(
            changed_behind_the_look, str(tmp_path / "st"), lines, f"-D INPUT {OURS}", False
        )
    others = [f"-s 198.51.100.{at}/32 -j DROP" for at in reversed(range(times))]
    assert not told and after == [*others, *before[1:]]


@kernel_test
@pytest.mark.parametrize("many", [2, MANY])
def test_a_rule_that_is_deleted_in_a_row_of_others_is_put_back(many: int, tmp_path: Path) -> None:
    """The chain is listed whole, or each rule by itself."""
    insert = ["iptables-nft", "-I", "OUTPUT", "2", *OTHER]
    with Namespace() as namespace:
        told, before, after, _ = namespace.call(
            changed_behind_the_look, str(tmp_path / "st"), [insert], "-D OUTPUT 1\n" * 2, False, many=many
        )
    assert not told and after == ["-s 198.51.100.9/32 -j DROP", before[2]]


@kernel_test
def test_a_rule_that_is_put_back_keeps_its_counters(tmp_path: Path) -> None:
    text = "*filter\n[7:700] -I INPUT -s 198.51.100.9 -j DROP\nCOMMIT\n"
    with Namespace() as namespace:
        lines = [["sh", "-c", f"printf '{text}' | iptables-nft-restore --noflush --counters"]]
        told, before, after, saved = namespace.call(
            changed_behind_the_look, str(tmp_path / "st"), lines, f"-D INPUT {OURS}", True
        )
    assert not told and after == ["-s 198.51.100.9/32 -j DROP", *before[1:]]
    assert "[7:700] -A INPUT -s 198.51.100.9/32 -j DROP" in saved


@kernel_test
def test_a_rule_that_is_inserted_at_a_wrong_place_is_moved(tmp_path: Path) -> None:
    insert = ["iptables-nft", "-I", "OUTPUT", *OTHER]
    with Namespace() as namespace:
        told, before, after, _ = namespace.call(
            changed_behind_the_look, str(tmp_path / "st"), [insert], "-I OUTPUT 3 -j LOG", False
        )
    assert not told and len(before) == 3
    assert after == ["-s 198.51.100.9/32 -j DROP", *before[:2], "-j LOG", before[2]]


@kernel_test
def test_a_change_of_another_chain_meanwhile_is_no_concern(tmp_path: Path) -> None:
    with Namespace() as namespace:
        told, before, after, _ = namespace.call(
            changed_behind_the_look,
            str(tmp_path / "st"),
            [["iptables-nft", "-N", "others"]],
            f"-D INPUT {OURS}",
            False,
        )
    assert not told and after == before[1:]


@kernel_test
def test_rules_that_are_hit_again_and_again_are_told(tmp_path: Path) -> None:
    with Namespace() as namespace:
        told, _, _, _ = namespace.call(
            changed_behind_the_look, str(tmp_path / "st"), [INSERT] * 9, f"-D INPUT {OURS}", False, 2
        )
    assert told.startswith("Drift: another program has changed rules while a patch was loaded")
    assert "table filter: deleted: -A INPUT -s 198.51.100.9/32 -j DROP" in told


def without_the_lock(folder: str, path: str, real: str) -> tuple[str, list[str], list[str]]:
    """As with iptables-legacy-restore before 1.8.8, which cannot be run under the lock."""
    store, kernel = started(folder, "legacy")
    before = rules_of("iptables-legacy")
    kernel.check(store.state)
    can_be_held_for.cache_clear()  # the tool of the same name, which an earlier test has asked for
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REAL", real)
        patch.setenv("PATH", f"{path}:{os.environ['PATH']}")
        told = commit(store, kernel, f"-D INPUT {OURS}")
    store.close()
    return told, before, rules_of("iptables-legacy")


@kernel_test
def test_an_old_legacy_tool_deletes_no_rule_of_others_for_good(tmp_path: Path) -> None:
    real = os.path.dirname(shutil.which("iptables-legacy-restore") or "")
    script = tmp_path / "bin" / "iptables-legacy-restore"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\n[ -e {tmp_path}/done ] || "$REAL/iptables-legacy" -I INPUT {" ".join(OTHER)}\n'
        f'touch {tmp_path}/done\nexec "$REAL/iptables-legacy-restore" "$@"\n'
    )
    script.chmod(0o755)
    with Namespace() as namespace:
        told, before, after = namespace.call(
            without_the_lock, str(tmp_path / "st"), str(tmp_path / "bin"), real
        )
    assert not told and after == ["-s 198.51.100.9/32 -j DROP", *before[1:]]


def refused_beside_others(folder: str, backend: str) -> tuple[str, list[str], list[str], list[str]]:
    """A patch is refused, of one table and of two, and another program has inserted a rule."""
    tool = f"iptables-{backend}"
    store, kernel = started(folder, backend)
    kernel.check(store.state)
    before, bad = rules_of(tool), "*filter\n-I INPUT -j NOWHERE\nCOMMIT\n"
    two = "*mangle\n-A PREROUTING -j MARK --set-mark 1\nCOMMIT\n" + bad
    usual, told = Kernel.roll_back, []

    def roll_back(self: Kernel, *given: Any) -> Any:
        run([tool, "-I", "INPUT", *OTHER])
        return usual(self, *given)

    after = plan_unproved(
        store.state, read_commands("-t mangle -A PREROUTING -j MARK --set-mark 1", store.state.master)
    ).after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "roll_back", roll_back)
        for each in (bad, two):
            with pytest.raises(Drift) as raised:
                load_all(kernel, store, store.state, after, each)
            told.append(str(raised.value))
            run([tool, "-D", "INPUT", *OTHER])
        run([tool, "-I", "INPUT", *OTHER])
    mangle = run([tool, "-t", "mangle", "-S", "PREROUTING"]).splitlines()
    store.close()
    return "\n".join(told), before, rules_of(tool), mangle


@kernel_test
@both
def test_a_refused_patch_takes_no_rule_of_others_back(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        told, before, after, mangle = namespace.call(refused_beside_others, str(tmp_path / "st"), backend)
    assert told.count("the kernel refuses the patch, and other programs have changed rules") == 2
    assert told.count("rule 1 is -s 198.51.100.9/32 -j DROP") == 2 and "NOWHERE" in told
    assert after == ["-s 198.51.100.9/32 -j DROP", *before] and mangle == ["-P PREROUTING ACCEPT"]


def interrupted() -> bool:
    raise KeyboardInterrupt


def held_back() -> list[str]:
    """A tool that stays loads nothing of a patch that may not be loaded any more, and the next one."""
    tool = Restore(("iptables-nft-restore", "--noflush"), ())
    patch = "*filter\n-A INPUT -s 10.0.0.{}/32 -j DROP\nCOMMIT\n"
    assert tool.load(patch.format(1), lambda: None)[1]
    with pytest.raises(Outdated):
        tool.load(patch.format(2), lambda: None, lambda: False)
    with pytest.raises(KeyboardInterrupt):
        tool.load(patch.format(2), lambda: None, interrupted)
    assert tool.load(patch.format(3), lambda: None)[1]
    refused = "*filter\n-v -S INPUT 1\n-D INPUT 1\n-A INPUT -j NOWHERE\nCOMMIT\n"
    told = [tool.load(refused, lambda: None, added=[2])[0]]
    two = "*filter\n-v -S INPUT 1\n-D INPUT 1\nCOMMIT\n*mangle\n-A INPUT -j NOWHERE\nCOMMIT\n"
    told.append(tool.load(two, lambda: None, added=[2])[0])
    tool.close()
    return [*told, *rules_of("iptables-nft")]


@kernel_test
def test_a_patch_is_held_back_at_its_commit() -> None:
    with Namespace() as namespace:
        one, two, *rules = namespace.call(held_back)
    assert "line: 4\n" in one and "line: 6\n" in two, "the COMMIT of the patch, without the listing lines"
    assert "-A INPUT" not in one + two
    assert rules == ["-s 10.0.0.3/32 -j DROP"]


def stamps_of_a_legacy_table(tool: str, family: Family) -> list[Any]:
    chain = ["-s", "::1" if family is Family.IPV6 else "127.0.0.1", "-j", "ACCEPT"]
    run([tool, "-A", "OUTPUT", *chain])
    first = images(family)
    run([tool, "-Z"])
    run(["sh", "-c", f"{tool}-save | sed 's/\\[0:0\\]/[3:400]/' | {tool}-restore --counters"])
    second = images(family)
    run([tool, "-I", "OUTPUT", *chain])
    third = images(family)
    return [first == second, second == third, entries_of(third["filter"]) - entries_of(first["filter"])]


@kernel_test
@pytest.mark.parametrize(("tool", "family"), [("iptables", Family.IPV4), ("ip6tables", Family.IPV6)])
def test_counters_are_no_part_of_the_image_of_a_legacy_table(tool: str, family: Family) -> None:
    with Namespace() as namespace:
        found = namespace.call(stamps_of_a_legacy_table, f"{tool}-legacy", family)
    assert found == [True, False, 1]


def program_of(names: str) -> Program:
    rules = "".join(f"-A INPUT -m comment --comment x -s 10.0.0.{ord(name)} -j DROP\n" for name in names)
    return iptables.read(f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n")


def chain_of(names: str) -> list[Any]:
    return list(program_of(names).table("filter")["INPUT"].rules)


@pytest.mark.parametrize(
    ("present", "wanted", "lost", "spared", "inserted", "repaired"),
    [
        ("abc", "bc", [(0, "x")], "a", "", "xbc"),  # x was inserted in front, and deleted in place of a
        ("xa", "xb", [(1, "b")], "a", "", "xb"),  # another program deleted the first rule
        ("xnbc", "abnc", [], "", "n", "xbnc"),  # a became x, and n is at a wrong place
        ("nabc", "nbc", [(0, "x")], "a", "n", "xnbc"),  # a became n
        ("xbyc", "bc", [], "", "", "xbyc"),  # nothing was hit
        ("bac", "abc", [], "", "", "bac"),  # another program moved a rule
    ],
)
def test_a_chain_is_repaired(
    present: str, wanted: str, lost: list[tuple[int, str]], spared: str, inserted: str, repaired: str
) -> None:
    keys = {name: rule_key(chain_of(name)[0]) for name in "abcnxy"}
    hit = _Hit(
        [(at, chain_of(name)[0]) for at, name in lost],
        [keys[name] for name in spared],
        {keys[name] for name in inserted},
    )
    found = _repaired(chain_of(present), chain_of(wanted), hit)
    assert [rule_key(rule) for rule in found] == [keys[name] for name in repaired]


def test_rules_that_two_deletions_at_one_place_hit_are_put_back_in_order() -> None:
    """Another program inserted x in front, so x and a are deleted in place of a and b."""
    program = program_of("abcd")
    edits = read_commands("-D INPUT 1\n-D INPUT 1", program)
    (hit,) = _hits(program, edits, [*chain_of("x"), *chain_of("a")]).values()
    repaired = _repaired(chain_of("bcd"), chain_of("cd"), hit)
    assert [rule_key(rule) for rule in repaired] == [rule_key(rule) for rule in chain_of("xcd")]


def test_a_rule_that_may_have_been_deleted_in_place_of_another_is_told_if_the_tool_lists_none() -> None:
    """Then the rule that should be gone is still there, and it is unknown what is gone instead."""
    before = start_unproved(program_of("ab"), Settings(Backend.NFT)).after
    plan = plan_unproved(before, read_commands("-D INPUT 1", before.master))
    kernel: Any = SimpleNamespace(stamp=lambda: 1, contents=lambda: before.loaded, settings=before.settings)
    store: Any = None
    with pytest.raises(
        Drift, match="rules may be at wrong places now: which rules it has deleted is unknown"
    ):
        put_back(kernel, store, before, plan.after, plan.text, [])


def told_of_a_kernel(folder: str, backend: str, commands: list[list[str]]) -> list[str]:
    """What a comparison tells after each of *commands*, the rules being loaded again in between."""
    store, kernel = started(folder, backend)
    told = []
    for command in commands:
        run(command)
        with pytest.raises(Drift) as raised:
            kernel.check(store.state)
        told.append(str(raised.value).splitlines()[-1])
        run([f"iptables-{backend}-restore"], write(store.state.loaded))
    kernel.check(store.state)
    store.close()
    return told


@kernel_test
@both
def test_a_kernel_without_any_rule_of_the_state_was_flushed_or_rebooted(backend: str, tmp_path: Path) -> None:
    tool = f"iptables-{backend}"
    reboot = f"{tool} -F; {tool} -X; {tool} -A INPUT -s 198.51.100.9 -j DROP"
    commands = [[tool, "-F"], ["sh", "-c", reboot], [tool, "-F", "INPUT"]]
    with Namespace() as namespace:
        flushed, rebooted, one_chain = namespace.call(
            told_of_a_kernel, str(tmp_path / "st"), backend, commands
        )
    assert "none of the state's rules in table filter: was it flushed, or the machine rebooted?" in flushed
    assert flushed == rebooted and flushed.index("--undo") < flushed.index("--take")
    assert "rebooted" not in one_chain


def two_states(folder: str, backend: str) -> list[str]:
    """The errors of updates of two states, one for table filter and one for mangle, and of one for both."""
    stores, tool = [], f"iptables-{backend}"
    for table in ("filter", "mangle"):
        program = iptables.read(write(prefixes(20)).replace("*filter", f"*{table}"))
        state = start_unproved(program, Settings(Backend(backend))).after
        run([f"{tool}-restore", "--noflush"], write(state.loaded))
        stores.append(Store.create(Path(folder) / table, state))
    kernels = [Kernel(Family.IPV4, store.state.settings) for store in stores]
    told = [
        commit(store, kernel, f"-t {table} -I INPUT {OURS}")
        for store, kernel, table in zip(stores, kernels, ("filter", "mangle"), strict=True)
    ]
    for store, kernel in zip(stores, kernels, strict=True):
        assert not kernel.differences(store.state)
    told.append(commit(stores[0], kernels[0], f"-t mangle -I INPUT {OURS}"))
    for store, kernel in zip(stores, kernels, strict=True):
        assert not kernel.differences(store.state)
        store.close()
    return told


@kernel_test
@both
def test_states_of_two_tables_live_side_by_side(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        filtering, mangling, both_tables = namespace.call(two_states, str(tmp_path), backend)
    assert not filtering and not mangling
    assert both_tables.startswith("Drift") and "table mangle, chain INPUT" in both_tables

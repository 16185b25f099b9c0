"""Commands during which other programs change the kernel's rules: they begin anew where that is safe."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.planned_updates import prefixes
from support.small_namespace import Namespace

import sflgen.repair
from hitables.emit.text import write
from hitables.errors import LiveError
from hitables.ir.packet import Backend
from hitables.kernel.namespace import run
from hitables.parse import iptables
from sflgen.cli.repair import repair
from sflgen.cli.updates import update_store
from sflgen.commands import read_commands
from sflgen.edits import Edit
from sflgen.kernel import Drift
from sflgen.planner import Plan, plan_unproved, start_unproved
from sflgen.settings import Settings
from sflgen.state import State
from sflgen.store import Store

pytestmark = pytest.mark.needs_kernel
JUMP = "INPUT -p tcp -m tcp --dport 25 -j f2b-mail"
RULE = "INPUT -s 198.51.100.9/32 -j DROP"


def begin(folder: str, backend: str) -> None:
    program = iptables.read(write(prefixes(20)).replace(":INPUT", ":f2b-mail - [0:0]\n:INPUT"))
    state = start_unproved(program, Settings(Backend(backend), foreign=("f2b-*",))).after
    run([f"iptables-{backend}-restore"], write(state.loaded))
    Store.create(Path(folder), state).close()


def listed(folder: str) -> str:
    with Store.open(Path(folder), to_write=False) as store:
        return write(store.state.master)


def updated(folder: str, backend: str, change: str) -> tuple[int, str, str]:
    """How often an update is planned while another program makes *change*, the error, and the list."""
    begin(folder, backend)
    calls = 0

    def planned(state: State, taken: Sequence[Edit]) -> Plan:
        nonlocal calls
        if not calls:
            run([f"iptables-{backend}", *change.split()])
        calls += 1
        return plan_unproved(state, read_commands("-A INPUT -j LOG", state.master, "-", taken))

    try:
        update_store(folder, True, planned)
    except Drift as error:
        return calls, str(error), listed(folder)
    return calls, "", listed(folder)


@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_an_update_is_planned_anew_if_a_jump_of_others_comes_meanwhile(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        calls, error, rules = namespace.call(updated, str(tmp_path), backend, f"-I {JUMP}")
        assert calls == 2 and not error
        assert f"-A {JUMP}" in rules and "-A INPUT -j LOG" in rules
        assert f"-A {JUMP}" in namespace.run([f"iptables-{backend}-save"])


def test_an_update_is_refused_if_another_rule_comes_meanwhile(tmp_path: Path) -> None:
    with Namespace() as namespace:
        calls, error, rules = namespace.call(updated, str(tmp_path), "nft", f"-I {RULE}")
    assert calls == 1 and "the kernel does not hold the rule set" in error
    assert "LOG" not in rules


# As iptables-restore, but while it has read the table and not changed it, a program that asks for no lock, such as
# miniupnpd, adds a rule to its own chain, $TIMES times: then the kernel refuses the COMMIT.
INTERRUPTED_TOOL = """#!/bin/sh
{
    IFS= read -r table; echo "$table"
    if [ "$*" = "--noflush --counters -w" ] && [ $(wc -c <"$COUNT") -lt $TIMES ]; then
        sleep 0.05; printf . >>"$COUNT"
        XTABLES_LOCKFILE="$COUNT.lock" iptables-legacy -A f2b-mail -j RETURN
    fi
    cat
} | $TOOL "$@"
"""


def refused(folder: str, times: int) -> tuple[str, str]:
    """The error of an update whose COMMIT is refused *times* times, and the rules of the kernel."""
    begin(f"{folder}/st", "legacy")
    path, count = Path(folder, "iptables-legacy-restore"), Path(folder, "count")
    count.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("TOOL", shutil.which(path.name)), ("COUNT", count), ("TIMES", times)):
            patch.setenv(name, str(value))
        path.write_text(INTERRUPTED_TOOL)
        path.chmod(0o755)
        patch.setenv("PATH", folder, prepend=":")
        try:
            update_store(
                f"{folder}/st",
                True,
                lambda state, taken: plan_unproved(
                    state, read_commands("-A INPUT -j LOG", state.master, "-", taken)
                ),
            )
            error = ""
        except LiveError as refusal:
            error = str(refusal)
    return error, run(["iptables-legacy-save"])


@pytest.mark.parametrize("times", [2, 10])
def test_a_commit_is_tried_again_that_a_program_without_the_lock_makes_the_kernel_refuse(
    times: int, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        error, saved = namespace.call(refused, str(tmp_path), times)
    assert ("-j LOG" in saved) == (times == 2)
    if times == 2:
        assert not error and saved.count("-A f2b-mail") == 2
    else:
        assert "the kernel refuses the patch; nothing is changed" in error and saved.count("-A f2b-mail") == 5


def repaired(folder: str, words: Sequence[str], changes: Sequence[str]) -> tuple[int, str, str]:
    """The status and output of a repair, during which another program makes *changes*, and the list."""
    begin(folder, "nft")
    run(["iptables-nft", "-I", *RULE.split()])
    waiting = list(changes)

    def before(usual: Any) -> Any:
        def changed(*given: Any) -> Any:
            if waiting:
                run(["iptables-nft", *waiting.pop(0).split()])
            return usual(*given)

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for name in ("take", "undo"):
            patch.setattr(sflgen.repair, name, before(getattr(sflgen.repair, name)))
        done = CliRunner().invoke(repair, [*words, "--state", folder])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 2, str(done.exception), listed(folder)
    return done.exit_code, done.output, listed(folder)


@pytest.mark.parametrize("words", ["--take", "--undo"])
def test_a_repair_begins_anew_if_other_rules_come_meanwhile(words: str, tmp_path: Path) -> None:
    others = [f"-I INPUT -s 203.0.113.{host}/32 -j DROP" for host in (1, 2)]
    with Namespace() as namespace:
        status, output, rules = namespace.call(repaired, str(tmp_path), [words], others)
        saved = namespace.run(["iptables-nft-save"])
    assert status == 0 and output.count("other programs have changed rules meanwhile:") == 2
    for rule in (RULE, "INPUT -s 203.0.113.1/32 -j DROP", "INPUT -s 203.0.113.2/32 -j DROP"):
        assert (f"-A {rule}\n" in rules) == (f"-A {rule}\n" in saved) == (words == "--take")


def test_a_flush_that_comes_meanwhile_is_not_taken(tmp_path: Path) -> None:
    with Namespace() as namespace:
        status, output, rules = namespace.call(repaired, str(tmp_path), ["--take"], ["-F"])
    assert status == 2 and "was it flushed" in output
    assert rules.count("-A INPUT") == 20

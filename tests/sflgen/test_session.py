"""A stream over a kernel: the tool that stays, updates loaded together, staged trees."""

from __future__ import annotations

import errno
import gc
import os
import select
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.planned_updates import prefixes
from support.sflgen_command import sflgen
from support.small_namespace import Namespace

from hitables.emit.text import write
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load
from hitables.kernel.namespace import run
from hitables.verify.question import Equal
from sflgen.background import BackgroundFold, unreachable_pieces
from sflgen.commit import loader
from sflgen.edits import rule_key
from sflgen.kernel import Kernel
from sflgen.planner import Plan, start_unproved
from sflgen.proof import verify
from sflgen.restore import Restore, Silent, once
from sflgen.session import Session
from sflgen.settings import Settings
from sflgen.stamps import CommitCount
from sflgen.store import Store

pytestmark = pytest.mark.needs_kernel
COMMAND = ("iptables-nft-restore", "--noflush", "--counters")


def load_with(tool: Restore, patch: str) -> str | None:
    """The reason of a refusal."""
    output, is_done = tool.load(patch, lambda: None)
    return None if is_done else output


def with_tool() -> list[object]:
    """The results of the tool that stays for patches that the kernel takes, refuses, takes; and after a kill."""
    tool = Restore(COMMAND, ())
    answers: list[object] = [load_with(tool, "*filter\n-A INPUT -s 10.0.0.1 -j DROP\nCOMMIT\n")]
    pid = tool._tool.pid if tool._tool else 0
    answers.append(load_with(tool, "*filter\n-A INPUT -s 10.0.0.2 -j DROP\nCOMMIT\n"))
    answers.append(bool(tool._tool) and tool._tool.pid == pid)
    refused = "*filter\n-A INPUT -s 10.0.0.9 -j DROP\n-A INPUT -j NOWHERE\nCOMMIT\n"
    answers.append((load_with(tool, refused), once(COMMAND, refused, lambda: None, ())[0]))
    answers.append(load_with(tool, "*filter\n-A INPUT -s 10.0.0.3 -j DROP\nCOMMIT\n"))
    if tool._tool:
        os.kill(tool._tool.pid, signal.SIGKILL)
        tool._tool.wait()
    answers.append(load_with(tool, "*filter\n-A INPUT -s 10.0.0.4 -j DROP\nCOMMIT\n"))
    answers.append(tool.run("*filter\n-v -S INPUT\nCOMMIT\n"))
    tool.close()
    return answers


def test_a_tool_that_stays_loads_patches_and_reports_refusals() -> None:
    with Namespace() as namespace:
        first, second, same, refused, third, after_kill, (listed, done) = namespace.call(with_tool)  # type: ignore[misc]
    assert (first, second, third, after_kill) == (None, None, None, None) and same and done
    assert "NOWHERE" in refused[0] and refused[0] == refused[1], (
        "with the message and line numbers of a process for one patch"
    )
    sources = [line.split()[3] for line in listed.splitlines() if line.startswith("-A")]
    assert sources == [f"10.0.0.{number}/32" for number in (1, 2, 3, 4)], (
        "no rule of the refused patch is loaded"
    )


def with_missing() -> None:
    Restore(("iptables-missing",), ()).load("*filter\nCOMMIT\n", lambda: None)


def test_a_missing_tool_is_an_error() -> None:
    with Namespace() as namespace, pytest.raises(LiveError, match="no such command"):
        namespace.call(with_missing)


def with_warnings() -> tuple[str, bool]:
    """The output of the tool that stays for rules with a warning each, more than both pipes hold."""
    rules = "".join(
        f"-A INPUT -s 10.0.{at // 250}.{at % 250} -j NFLOG --nflog-range 5\n" for at in range(1800)
    )
    tool = Restore(COMMAND, ())
    answers = tool.run(f"*filter\n{rules}COMMIT\n")
    tool.close()
    return answers


def test_a_tool_that_prints_many_warnings_does_not_block() -> None:
    with Namespace() as namespace:
        answers, done = namespace.call(with_warnings)
    assert done and len(answers) > 1 << 17


def test_a_silent_tool_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o755)
    monkeypatch.setattr("sflgen.restore.PATIENCE", 0.1)
    with pytest.raises(Silent):
        Restore((str(silent),), ()).load("*filter\nCOMMIT\n", lambda: None)


def test_ctrl_c_in_a_terminal_does_not_reach_a_tool_that_stays(tmp_path: Path) -> None:
    """A terminal sends SIGINT to processes of its own session alone."""
    repeats = tmp_path / "repeats"
    repeats.write_text("#!/bin/sh\nexec cat\n")
    repeats.chmod(0o755)
    tool = Restore((str(repeats),), ())
    tool.run("*filter\nCOMMIT\n")
    assert tool._tool is not None
    session = os.getsid(tool._tool.pid)
    tool.close()
    assert session != os.getsid(0)


def test_a_tool_that_cannot_be_started_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a LiveError is answered, and undoes the commit."""
    (tmp_path / "none").write_text("")
    for take in (once, lambda command, *rest: Restore(command, ()).load(*rest[:2])):
        with pytest.raises(LiveError, match="denied"):
            take((str(tmp_path / "none"),), "*filter\nCOMMIT\n", lambda: None, ())
    monkeypatch.setattr("tempfile.TemporaryFile", partial(open, "/dev/full", "r+b", buffering=0))
    with pytest.raises(LiveError, match="No space left"):
        once(COMMAND, "*filter\nCOMMIT\n", lambda: None, ())


def attend(session: Session) -> None:
    """Attend when the session is ready, or soon: requests just taken do not make it ready."""
    select.select([session], [], [], 0.01)
    session.attend()


def streamed(folder: str, lines: list[str], delta: int, wait: bool = False) -> tuple[list[str], int, int]:
    """Answers to *lines* sent at once; the number of background folds; the number of rules at the end."""
    state = start_unproved(prefixes(200), Settings(backend="nft", delta=delta)).after
    load(write(state.loaded), Family.IPV4, Backend.NFT, Here())  # type: ignore[arg-type]
    with Store.create(Path(folder), state) as store:
        kernel = Kernel(state.master.family, state.settings, stays=True)
        session = Session(store, kernel)
        answers: list[str] = []
        name_ranges = [0]
        for at in range(0, len(lines), 8):
            session.take(lines[at : at + 8], answers.append)
            while wait and session.folds.is_busy:
                attend(session)
            session.finish()
            if store.state.name_range != name_ranges[-1]:
                name_ranges.append(store.state.name_range)
        session.settle()
        session.close()
        kernel.check(store.state)
        assert isinstance(verify(store.state), Equal)
        done = store.state
    with Store.open(Path(folder), to_write=False) as store:
        assert [*map(rule_key, store.state.loaded.table("filter")["INPUT"].rules)] == [
            *map(rule_key, done.loaded.table("filter")["INPUT"].rules)
        ]
    return answers, len(name_ranges) - 1, done.master.rule_count()


class Here:
    """The current namespace."""

    def run(self, command: list[str], text: str = "") -> str:
        return run(command, text)


def test_updates_loaded_together_are_answered_one_by_one_and_a_refused_one_stops_no_other(
    tmp_path: Path,
) -> None:
    lines = [f"-I INPUT 5 -s 172.16.0.{number} -j DROP" for number in range(5)]
    lines.insert(2, "-A OUTPUT -m mac --mac-source 00:11:22:33:44:55 -j DROP")
    lines.insert(4, "-A INPUT -j NOWHERE")
    with Namespace() as namespace:
        answers, _, rules = namespace.call(streamed, str(tmp_path / "st"), lines, 32)
    assert [each.splitlines()[-1].split()[0] for each in answers] == [
        "ok",
        "ok",
        "error",
        "ok",
        "error",
        "ok",
        "ok",
    ]
    assert "mac" in answers[2] or "nothing is changed" in answers[2]
    assert rules == 206


def test_trees_are_staged_and_a_chain_can_be_removed_meanwhile(tmp_path: Path) -> None:
    lines = ["-N gone", "-I INPUT 3 -s 172.17.0.0/16 -j gone"]
    lines += [f"-I INPUT {2 * number + 1} -s 10.{4 * number}.0.0/13 -j DROP" for number in range(40)]
    lines += ["-D INPUT -s 172.17.0.0/16 -j gone", "-X gone", "-I INPUT 9 -s 172.16.0.1 -j DROP"]
    with Namespace() as namespace:
        answers, folds, rules = namespace.call(streamed, str(tmp_path / "st"), lines, 3, True)
    assert len(answers) == len(lines) and all(each.splitlines()[-1].startswith("ok ") for each in answers)
    assert folds > 0 and rules == 242


def changed_after_the_comparison(folder: str) -> str:
    state = start_unproved(prefixes(30), Settings(backend="nft")).after
    load(write(state.loaded), Family.IPV4, Backend.NFT, Here())  # type: ignore[arg-type]
    with Store.create(Path(folder), state) as store:
        kernel = Kernel(state.master.family, state.settings, stays=True)
        kernel.check(store.state)
        run(["iptables-nft", "-A", "INPUT", "-j", "ACCEPT"])
        session = Session(store, kernel)
        answers = session.answer("-I INPUT 1 -s 192.0.2.7 -j DROP")
        session.close()
    return answers


def test_a_change_between_the_comparison_and_the_session_is_noticed(tmp_path: Path) -> None:
    with Namespace() as namespace:
        answers = namespace.call(changed_after_the_comparison, str(tmp_path / "st"))
    assert answers.startswith("error the kernel does not hold the rule set of the state")


def forks_while(folder: str, backend: str, lines: list[str]) -> list[bool]:
    """For each background fold: whether the second thread was idle when it began."""
    state = start_unproved(prefixes(60), Settings(backend=backend, delta=3)).after
    load(write(state.loaded), Family.IPV4, Backend(backend), Here())  # type: ignore[arg-type]
    idle: list[bool] = []
    with Store.create(Path(folder), state) as store:
        session = Session(store, Kernel(state.master.family, state.settings, stays=True))

        def begun(*given: Any) -> BackgroundFold:
            idle.append(session.loading is None or session.loading[1].done())
            return BackgroundFold(*given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sflgen.fold_scheduler.BackgroundFold", begun)
            session.take(lines, lambda answers: None)
        session.settle()
        session.close()
    return idle


@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_no_process_is_forked_while_the_second_thread_is_busy(backend: str, tmp_path: Path) -> None:
    lines = [f"-I INPUT {2 * number + 1} -s 10.{4 * number}.0.0/13 -j DROP" for number in range(25)]
    with Namespace() as namespace:
        idle = namespace.call(forks_while, str(tmp_path / "st"), backend, lines)
    assert idle and all(idle)


def refused_while_clearing(folder: str) -> tuple[list[str], list[str], int]:
    """Answers to updates that the kernel refuses while old trees are removed, other reports, and
    what is left of the trees."""
    state = start_unproved(prefixes(60), Settings(backend="nft", delta=3)).after
    load(write(state.loaded), Family.IPV4, Backend.NFT, Here())  # type: ignore[arg-type]
    answers: list[str] = []
    reports: list[str] = []
    with Store.create(Path(folder), state) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sflgen.background.PIECE", 3)
        session = Session(
            store, Kernel(state.master.family, state.settings, stays=True), report=reports.append
        )
        for number in range(25):
            session.take(
                [f"-I INPUT {2 * number + 1} -s 10.{4 * number}.0.0/13 -j DROP"], lambda answers: None
            )
            session.finish()
            if session.folds.running is not None:
                break
        while session.folds.running is not None:
            attend(session)
        while session.folds.is_busy:
            session.take(["-A OUTPUT -m mac --mac-source 00:11:22:33:44:55 -j DROP"], answers.append)
            while session.waiting:
                attend(session)
            if len(answers) == 3:
                session.settle()
        session.settle()
        session.close()
        return answers, reports, len(unreachable_pieces(store.state))


def test_a_refusal_while_old_trees_are_removed_leaves_none_of_them(tmp_path: Path) -> None:
    with Namespace() as namespace:
        answers, reports, left = namespace.call(refused_while_clearing, str(tmp_path / "st"))
    assert answers and all(each.startswith("error ") for each in answers)
    assert (reports, left) == ([], 0)


def changed_right_after_a_patch(folder: str) -> list[str]:
    """Answers to updates, while another program changes a chain right after the first."""
    state = start_unproved(prefixes(30), Settings(backend="nft")).after
    load(write(state.loaded), Family.IPV4, Backend.NFT, Here())  # type: ignore[arg-type]

    def then(kernel: Kernel, store: Store, plan: Plan) -> Callable[[str], None]:
        def loaded(patch: str) -> None:
            loader(kernel, store, plan)(patch)
            run(commands.pop(0))

        return loaded

    where = ["-s", "192.0.2.1", "-j", "DROP"]
    commands = [["iptables-nft", *each] for each in (["-N", "other"], ["-I", "INPUT", *where])]
    with Store.create(Path(folder), state) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sflgen.session.loader", then)
        session = Session(store, Kernel(state.master.family, state.settings, stays=True))
        answers = [session.answer(f"-I INPUT 1 -s 192.0.2.{number} -j DROP") for number in (2, 3, 4)]
        run(["iptables-nft", "-D", "INPUT", *where])
        commands.append(["true"])
        answers.append(session.answer("-I INPUT 1 -s 192.0.2.5 -j DROP"))
        session.close()
    return answers


def test_a_foreign_change_right_behind_a_patch_is_noticed(tmp_path: Path) -> None:
    with Namespace() as namespace:
        first, second, third, fourth = namespace.call(changed_right_after_a_patch, str(tmp_path / "st"))
    assert first.endswith("ok 2\n") and second.endswith("ok 3\n"), "a foreign chain may be added"
    assert third.startswith("error the kernel does not hold the rule set of the state")
    assert fourth.endswith("ok 4\n"), "the kernel was restored"


def beside_jails(folder: str, backend: str, delta: int) -> list[str]:
    """Answers to updates sent in pairs, while a jump to a foreign chain comes before one pair and goes before
    the next."""
    tool = f"iptables-{backend}"
    state = start_unproved(prefixes(60), Settings(backend=backend, delta=delta, foreign=("f2b-*",))).after
    load(write(state.loaded), Family.IPV4, Backend(backend), Here())  # type: ignore[arg-type]
    answers: list[str] = []
    with Store.create(Path(folder), state) as store:
        kernel = Kernel(state.master.family, state.settings, stays=True)
        session = Session(store, kernel)
        run([tool, "-N", "f2b-sshd"])
        for number in range(6):
            run([tool, "-D" if number % 2 else "-I", "INPUT", "-p", "tcp", "-j", "f2b-sshd"])
            if number == 4:
                assert session.answer("fold").splitlines()[-1].startswith("ok ")
            lines = [f"-I INPUT 1 -s 10.{8 * number}.{each}.0/24 -j DROP" for each in range(2)]
            session.take(lines, answers.append)
            session.finish()
        run([tool, "-I", "INPUT", "-p", "tcp", "-j", "f2b-sshd"])
        session.take(["-D INPUT 2"], answers.append)
        session.finish()
        session.settle()
        session.close()
        kernel.check(store.state)
        assert isinstance(verify(store.state), Equal)
        assert store.state.master.rule_count() == state.master.rule_count() + 12 + 1
    return answers


@pytest.mark.parametrize("delta", [2, 32])
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_a_stream_takes_the_jumps_to_chains_of_others(backend: str, delta: int, tmp_path: Path) -> None:
    with Namespace() as namespace:
        answers = namespace.call(beside_jails, str(tmp_path / "st"), backend, delta)
    assert len(answers) == 13 and "position 2 may be that of another rule" in answers.pop()
    assert all(each.splitlines()[-1].startswith("ok ") for each in answers), answers


TOOL = """#!/bin/sh
# Runs the tool of the same name.  Each line of the file .todo makes one run kill itself before or behind
# its work.
tool=$(basename "$0") todo="$0.todo"
IFS= read -r first <"$todo" && sed -i 1d "$todo"
test "$first" = before && kill -9 $$
"$TOOLS/$tool" "$@"
status=$?
test "$first" = behind && kill -9 $$
exit $status
"""


def killed_after_their_work(folder: str, tools: dict[str, str], real: str) -> list[str]:
    """Answers while the tool is killed after the kernel has the patch, and iptables-save fails."""
    state = start_unproved(prefixes(30), Settings(backend="legacy")).after
    load(write(state.loaded), Family.IPV4, Backend.LEGACY, Here())  # type: ignore[arg-type]
    path = Path(folder) / "bin"
    path.mkdir()
    for name, todo in tools.items():
        (path / name).write_text(TOOL)
        (path / name).chmod(0o755)
        (path / f"{name}.todo").write_text(todo)
    with Store.create(Path(folder) / "st", state) as store, pytest.MonkeyPatch.context() as patch:
        kernel = Kernel(state.master.family, state.settings)
        kernel.check(state)
        session = Session(store, kernel)
        patch.setenv("TOOLS", real)
        patch.setenv("PATH", f"{path}:{os.environ['PATH']}")
        answers = [session.answer(f"-I INPUT 1 -s 192.0.2.{number} -j DROP") for number in (1, 2, 3)]
        session.close()
        Kernel(state.master.family, state.settings).check(store.state)
    return answers


def test_a_patch_that_is_loaded_though_its_tool_failed_is_undone(
    tmp_path: Path,
) -> None:
    tools = {"iptables-legacy-restore": "behind\n", "iptables-legacy-save": "before\nbefore\n"}
    real = os.path.dirname(shutil.which("iptables-legacy-restore") or "")
    with Namespace() as namespace:
        first, second, third = namespace.call(killed_after_their_work, str(tmp_path), tools, real)
    assert first.startswith("error it is unknown whether the kernel has the patch")
    assert second.startswith("error iptables-legacy-save: exit status -9")
    assert third == "*filter\n-I INPUT -s 192.0.2.3 -j DROP\nCOMMIT\nok 2\n"


def test_a_fold_that_cannot_fork_stops_no_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refused)
    reports: list[str] = []
    with Store.create(
        tmp_path / "st", start_unproved(prefixes(60), Settings(backend="nft", delta=3)).after
    ) as store:
        session = Session(store, None, report=reports.append)
        answers = [session.answer(f"-I INPUT {2 * at + 1} -s 10.{4 * at}.0.0/13 -j DROP") for at in range(25)]
        session.close()
    assert all(each.endswith(f"ok {at + 2}\n") for at, each in enumerate(answers))
    assert set(reports) == {"fold: Resource temporarily unavailable"}
    assert 2 <= len(reports) <= 25 / 3, "it is tried again after as many updates"


def test_a_stream_runs_with_the_garbage_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other commands run without it, as they end soon."""
    (tmp_path / "rules").write_text(write(prefixes(30)))
    folder, seen = str(tmp_path / "state"), []
    assert sflgen("init", str(tmp_path / "rules"), "--state", folder).exit_code == 0
    monkeypatch.setattr("sflgen.server.over_lines", lambda *_: seen.append(gc.isenabled()))
    assert sflgen("stream", "--state", folder).exit_code == 0
    assert seen == [True]


def counted_commits() -> list[int | None]:
    """The count before commits, after each of two, and by another socket."""
    commits = CommitCount()
    counts = [commits.read()]
    for number in range(2):
        run(["iptables-nft", "-A", "INPUT", "-s", f"10.0.0.{number}", "-j", "DROP"])
        counts.append(commits.read())
    commits.close()
    return [*counts, CommitCount().read()]


def test_one_socket_follows_the_count_of_commits() -> None:
    with Namespace() as namespace:
        before, first, second, other = namespace.call(counted_commits)
    assert None not in (before, first, second, other)
    assert before < first < second == other

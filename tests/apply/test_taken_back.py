"""Rules that are not confirmed are taken back, by a process that nothing of the session ends."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.firewall import Firewall, plain
from support.small_namespace import Namespace
from support.small_records import FILTER, add, let_wait
from support.waiting_rules import HITABLES, NEW, OLD, add_a_jail, guard_of, status_of

from hitables.apply import confirm, guard, open_files
from hitables.apply.boot_clock import boot_id, since_boot
from hitables.apply.kernel import Kernel
from hitables.apply.records import ApplyState, Waiting
from hitables.apply.store import StateDirectory
from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = pytest.mark.needs_kernel


# Started in the namespace, killed from outside.


def start_on_terminal(command: list[str]) -> tuple[int, int]:
    """Start a session on a terminal of its own; its process, and our end of the terminal.

    The shell is what a terminal hangs up; the command waits behind apply, as a user would.
    """
    child, terminal = pty.fork()
    if not child:
        os.execvp(command[0], command)
    return child, terminal


def read_until(terminal: int, words: bytes) -> None:
    text = b""
    while words not in text:
        try:
            part = os.read(terminal, 1000)
        except OSError:
            part = b""
        assert part, text.decode()
        text += part


def lose_session(command: list[str], how: str) -> None:
    """Run *command* in a shell on a terminal, and end the session when the rules are loaded."""
    script = " ".join(command) + "; sleep 1000"
    child, terminal = start_on_terminal(["/bin/bash", "-c", script])
    read_until(terminal, b"confirm the rules")
    if how == "closed":
        os.close(terminal)
    else:
        os.killpg(child, getattr(signal, how))
    if how != "closed":
        os.close(terminal)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("how", ["closed", "SIGHUP", "SIGTERM", "SIGQUIT", "SIGKILL"])
def test_a_lost_session_takes_the_rules_back(firewall: Firewall, how: str) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    command = [str(HITABLES), "apply", str(firewall.file(NEW)), "--backend", firewall.backend.value]
    firewall.namespace.call(lose_session, [*command, "--state", str(firewall.state), "--confirm", "2"], how)
    assert plain(firewall.save()) != before
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert plain(firewall.save()) == before


def test_with_nothing_loaded_before_nothing_is_loaded_afterwards(firewall: Firewall) -> None:
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 3)
    assert ":INPUT DROP" in firewall.save()
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert plain(firewall.save()) == ""


def test_status_says_that_the_only_rule_set_was_taken_back(firewall: Firewall) -> None:
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    firewall.hitables("rollback")
    for command in ("status", "counters"):
        error = firewall.hitables(command, status=2).stderr
        assert "no rule set is in force, as rule set 2 is rolled back; hitables apply loads one" in error


def test_with_nothing_loaded_before_a_lost_terminal_leaves_nothing_loaded(firewall: Firewall) -> None:
    command = [str(HITABLES), "apply", str(firewall.file(NEW)), "--backend", firewall.backend.value]
    command += ["--state", str(firewall.state), "--confirm", "1"]
    firewall.namespace.call(lose_session, command, "closed")
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert plain(firewall.save()) == ""


@pytest.mark.either_backend
def test_a_rollback_says_that_the_chains_of_a_program_that_was_ended_are_empty(firewall: Firewall) -> None:
    """As after `ufw disable`: the policy is DROP again, and no rule of ufw lets anything in."""
    old = "*filter\n:INPUT DROP [0:0]\n:ufw-before-input - [0:0]\n-A INPUT -j ufw-before-input\n"
    firewall.load(f"{old}-A ufw-before-input -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n")
    firewall.hitables("apply", firewall.file(NEW), "--leave", "ufw", "--confirm", 4)
    firewall.iptables("-F", "ufw-before-input")
    firewall.iptables("-P", "INPUT", "ACCEPT")
    firewall.until(lambda: "chains of others that it enters are empty: ufw-before-input" in firewall.log())
    assert "dropped" not in firewall.log(), "what their rules did before is not known"
    assert "taken back, because" in firewall.log()
    assert "2: table filter, chain INPUT: the policy is DROP again" in firewall.log()


@pytest.mark.either_backend
@pytest.mark.parametrize("way", ["guard", "rollback", "rollback of confirmed rules"])
def test_what_others_added_to_rules_that_are_taken_back_is_named_and_kept(
    firewall: Firewall, way: str
) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    seconds = {"guard": 4, "rollback": 600}.get(way, 0)
    firewall.hitables("apply", firewall.file(NEW), "--confirm", seconds)
    add_a_jail(firewall)
    replaced = plain(firewall.save())
    dropped = "hitables rollback 3 loads all of that again): IPv4, table filter: 2 rules, chain f2b-sshd"
    if way != "guard":
        assert dropped in firewall.hitables("rollback").stderr.replace("\n", " ")
    firewall.until(lambda: dropped in firewall.log())
    firewall.until(lambda: plain(firewall.save()) == before)
    firewall.apply(firewall.file(OLD))
    firewall.hitables("rollback", 3)
    assert sorted(plain(firewall.save()).split("\n")) == sorted(replaced.split("\n"))


def test_a_rule_that_the_tool_cannot_read_does_not_keep_the_rest_from_being_loaded_again(
    firewall: Firewall,
) -> None:
    """miniupnpd loads rules with a revision of DNAT that iptables-legacy-save does not know."""
    programs = firewall.folder / "programs"
    programs.mkdir()
    name = f"iptables-{firewall.backend.value}-save"
    printed = "s/192.0.2.8.* -j .*/192.0.2.8 -j DNAT [unsupported revision]/"
    (programs / name).write_text(f'#!/bin/sh\n{shutil.which(name)} "$@" | sed "{printed}"\n')
    (programs / name).chmod(0o755)
    firewall.apply(firewall.file(OLD))
    firewall.apply(firewall.file(NEW))
    for last in (7, 8):
        firewall.iptables("-A", "INPUT", "-s", f"192.0.2.{last}", "-j", "DROP")
    said = firewall.hitables("rollback", environment={"PATH": f"{programs}:{os.environ['PATH']}"}).stderr
    assert (
        f"hitables rollback 4 loads all of that again, but for 1 rule that iptables-{firewall.backend.value} "
        "cannot read: restart the program that makes them): IPv4, table filter: 2 rules" in said
    )
    firewall.hitables("rollback", 4)
    assert "-s 192.0.2.7/32 -j DROP" in firewall.save()


@pytest.mark.either_backend
def test_signals_to_the_guard_change_nothing(firewall: Firewall) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 4)
    for each in guard.IGNORED:
        os.kill(guard_of(firewall), each)
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert plain(firewall.save()) == before
    assert status_of(firewall)[2] == "rolled back"


@pytest.mark.either_backend
@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_NOFILE], ids=["memory", "files"])
def test_a_guard_survives_that_memory_or_files_are_short_for_a_moment(firewall: Firewall, limit: int) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 4)
    pid = guard_of(firewall)
    usual = resource.prlimit(pid, limit, (1, resource.prlimit(pid, limit)[1]))
    time.sleep(0.6)  # in which the guard looks twice
    resource.prlimit(pid, limit, usual)
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert plain(firewall.save()) == before


@pytest.mark.either_backend
def test_a_guard_acts_where_a_shell_allows_a_dozen_open_files(firewall: Firewall) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    usual = firewall.namespace.call(resource.getrlimit, resource.RLIMIT_NOFILE)
    firewall.namespace.call(resource.setrlimit, resource.RLIMIT_NOFILE, (13, usual[1]))
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 3)
    assert resource.prlimit(guard_of(firewall), resource.RLIMIT_NOFILE)[0] == min(4096, usual[1])
    firewall.namespace.call(resource.setrlimit, resource.RLIMIT_NOFILE, usual)
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert plain(firewall.save()) == before


RAISED = """
import os, resource
from hitables.apply import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
if not os.geteuid():
    os.seteuid(65534)
print(open_files.raise_limit())
open_files.refuse_few()
"""


@pytest.mark.parametrize(
    ("soft", "hard", "limit"), [(20, 100, 100), (20, 20, 20), (64, 64, 64), (100, 4000, 4000)]
)
def test_the_limit_of_open_files_is_raised_as_far_as_the_user_may(soft: int, hard: int, limit: int) -> None:
    script = RAISED.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == f"{limit}\n"
    refusal = f"only {limit} files may be open at once (ulimit -n)"
    assert (refusal in done.stderr) == (limit < open_files.NEEDED)


def test_a_guard_that_was_killed_is_reported_and_the_rules_can_be_taken_back(firewall: Firewall) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    os.kill(guard_of(firewall), signal.SIGKILL)
    pid = guard_of(firewall)
    firewall.until(lambda: not guard.is_alive(pid))
    assert "its guard has ended" in firewall.hitables("status", status=2).stdout
    assert "its guard has ended" in firewall.hitables("apply", firewall.file(NEW), status=2).stderr
    firewall.hitables("rollback")
    assert plain(firewall.save()) == before


def test_a_reboot_ends_the_wait_and_the_confirmed_rules_are_those_to_load(firewall: Firewall) -> None:
    firewall.apply(firewall.file(OLD))
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    pid = guard_of(firewall)
    path = firewall.state / "state.json"
    state = json.loads(path.read_text())
    state["waiting"]["boot"] = "another"
    path.write_text(json.dumps(state))
    os.kill(pid, signal.SIGKILL)
    assert "ended" in firewall.hitables("history").stdout
    text = (firewall.state / "confirmed.rules").read_text()
    with Namespace() as booted:
        again = Firewall(booted, firewall.folder, firewall.backend)
        again.load(text)
        assert "-A INPUT -s 10.0.0.1/32 -j DROP" in again.save()


@pytest.mark.parametrize("seed", range(3))
def test_an_apply_that_is_killed_ends_in_the_old_rules_or_the_new_ones(firewall: Firewall, seed: int) -> None:
    """At a random moment; afterwards the next apply works and removes what was left behind."""
    firewall.apply(firewall.file(OLD))
    before = plain(firewall.save())
    rng = random.Random(seed)
    command = [str(HITABLES), "apply", str(firewall.file(NEW)), "--backend", firewall.backend.value]
    command += ["--state", str(firewall.state), "--confirm", "1"]
    firewall.namespace.call(killed, command, str(firewall.state), rng.uniform(0, 0.2))
    firewall.until(lambda: "waiting" not in status_of(firewall).values())
    assert plain(firewall.save()) == before
    firewall.apply(firewall.file(NEW))
    firewall.apply(firewall.file(OLD))
    assert plain(firewall.save()) == before


def test_the_tool_that_loads_rules_keeps_the_lock_and_ends_its_work_if_the_command_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, told, lock = tmp_path / "iptables-nft-restore", tmp_path / "told", tmp_path / "lock"
    tool.write_text(
        f"#!/bin/sh\ncat >/dev/null; readlink /proc/$$/fd/* >{told}\n"
        f"test $(cut -d ' ' -f 6 /proc/$$/stat) = $$ && echo a session of its own >>{told}\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with lock.open("w") as held:
        Kernel(Family.IPV4, Backend.NFT, [held.fileno()]).load("*filter\nCOMMIT\n")
    assert {str(lock), "a session of its own"} <= set(told.read_text().splitlines())


def killed(command: list[str], folder: str, delay: float) -> None:
    """Start *command*, and kill it *delay* seconds after it has begun to change something."""
    before = Path(folder, "state.json").read_text()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while Path(folder, "state.json").read_text() == before and process.poll() is None:
        time.sleep(0.001)
    time.sleep(delay)
    process.kill()
    process.wait()


def test_the_timer_of_systemd_rolls_back_what_still_waits(tmp_path: Path) -> None:
    command = guard.timer_command(tmp_path, 7, 1234, 60)
    assert command[:4] == ["systemd-run", "--quiet", "--on-active=65s", "--unit=hitables-rollback-7-1234"]
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
        waiting = command[command.index("rollback") :]
        firewall.hitables(*waiting[:3])  # the guard of another state directory
        assert ":INPUT DROP" in firewall.save()
        path = Path(firewall.state, "state.json")
        state = json.loads(path.read_text())
        waiting[2] = str(state["waiting"]["guard"])
        state["waiting"]["deadline"] = since_boot() - 2 * guard.LATE  # and the guard has done nothing
        path.write_text(json.dumps(state))
        firewall.hitables(*waiting[:3])
        assert plain(firewall.save()) == ""
        assert "its guard has not taken it back" in (firewall.state / "log").read_text()


def test_the_timer_of_systemd_leaves_rules_to_a_guard_that_is_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may fire early: it begins before the rules are loaded, which may take long."""
    loading = Waiting(7, 6, 0.0, boot_id(), guard=1234)
    loaded = replace(loading, until=time.time() - 3600, deadline=since_boot() + 600)  # the clock was set
    late = replace(loading, until=time.time() + 3600, deadline=since_boot() - 2 * guard.LATE)
    states = iter([loading, loaded, late])
    monkeypatch.setattr(confirm, "_waiting_now", lambda folder: next(states, None))
    monkeypatch.setattr(guard, "is_alive", lambda pid: True)
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert confirm.roll_back(str(tmp_path), guarded_by=1234) == (0, [])
    assert len(pauses) == 2


@pytest.mark.either_backend
def test_a_rollback_behind_that_of_the_guard_does_not_go_one_too_far(firewall: Firewall) -> None:
    """The user sees that his connection ends, and asks for the rollback that the guard has just done."""
    firewall.load(OLD)
    firewall.apply(firewall.file(NEW))
    firewall.hitables("apply", firewall.file(OLD), "--confirm", 0.5)
    firewall.until(lambda: "taken back, because" in firewall.log())
    before = plain(firewall.save())
    error = firewall.hitables("rollback", status=2).stderr
    assert re.search(r"the guard took rule set 3 back \d+ s ago, and the rules before it are loaded", error)
    assert "hitables rollback 1 goes further" in error and plain(firewall.save()) == before
    path = firewall.state / "state.json"
    state = json.loads(path.read_text())
    for changes in ({"at": state["taken_back"]["at"] - 61}, {"boot": "another"}):
        path.write_text(json.dumps({**state, "taken_back": {**state["taken_back"], **changes}}))
        firewall.hitables("rollback")
        assert ":INPUT DROP" not in firewall.save()
        firewall.hitables("rollback", 2)
    path.write_text(json.dumps(state))
    firewall.hitables("rollback", 1)
    firewall.hitables("rollback", 2)
    firewall.hitables("rollback")  # what is loaded since is known
    assert ":INPUT DROP" not in firewall.save()


def test_a_rollback_behind_that_of_the_guard_says_so_where_nothing_was_loaded_before(
    firewall: Firewall,
) -> None:
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 0.5)
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert (
        "ago, and the rules before it are loaded: nothing is"
        in firewall.hitables("rollback", status=2).stderr
    )


@pytest.mark.either_backend
def test_a_state_directory_that_became_read_only_does_not_keep_the_old_rules_away(firewall: Firewall) -> None:
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    assert ":INPUT DROP" in firewall.save()

    def on_a_read_only_disk(command: str) -> str:
        state = firewall.state
        script = f"mount --bind {state} {state} && mount -o remount,ro,bind {state} && "
        script += f"{HITABLES} {command} --state {state} 2>&1; echo exit status $?"
        return firewall.namespace.run(["unshare", "--mount", "bash", "-c", script])

    assert "waits for its confirmation" in on_a_read_only_disk("status")
    assert "exit status 0" in on_a_read_only_disk("history")
    said = on_a_read_only_disk("rollback")
    assert "Read-only file system" in said and "the rules before rule set 2 are loaded again" in said
    assert "exit status 2" in said and plain(firewall.save()) == ""
    firewall.hitables("rollback")
    assert "rolled back" in firewall.hitables("history").stdout


def test_a_rule_that_was_inserted_for_a_time_is_named_when_a_rollback_puts_it_back(
    firewall: Firewall,
) -> None:
    """As by knockd, which deletes it later."""
    firewall.apply(firewall.file(OLD))
    firewall.iptables("-I", "INPUT", "-s", "192.0.2.7", "-p", "tcp", "-j", "ACCEPT")
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    said = (
        "rule set 3 is what the kernel held. It differs from rule set 2: IPv4: table filter, chain INPUT: rule 1 "
        "is new: '-s 192.0.2.7/32 -p tcp -j ACCEPT'. If another program added that for a time only, load the "
        "rules without it: hitables rollback 2"
    )
    assert said in firewall.hitables("rollback").stderr and said in firewall.log()
    firewall.apply(firewall.file(NEW))
    assert said.replace("set 3", "set 5") in firewall.hitables("rollback").stderr
    assert "-s 192.0.2.7/32" in firewall.save()
    assert firewall.hitables("rollback", 2).stderr == ""
    assert "-s 192.0.2.7/32" not in firewall.save()
    assert firewall.hitables("rollback", 3).stderr == "", "it was asked for by its number"


def test_a_guard_takes_back_its_own_rule_set_only(firewall: Firewall) -> None:
    """Another state directory in the place of one that was moved away counts from 1, too."""
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 4)
    first = guard_of(firewall)
    state = firewall.state / "state.json"
    state.write_text(state.read_text().replace(f'"guard": {first}', '"guard": 1'))
    firewall.until(lambda: not guard.is_alive(first))
    assert "waits for its confirmation" in firewall.hitables("status", status=2).stdout
    firewall.hitables("rollback")


@pytest.mark.either_backend
def test_a_guard_that_cannot_take_the_rules_back_tells_everyone_and_tries_again(firewall: Firewall) -> None:
    programs = firewall.folder / "programs"
    programs.mkdir()
    told = firewall.folder / "told"
    told.touch()
    for name in ("wall", "logger"):
        (programs / name).write_text(f'#!/bin/sh\necho "{name}: $*" >> {told}\n')
        (programs / name).chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 3, environment=path)
    away = firewall.folder / "away"
    firewall.state.rename(away)
    firewall.state.touch()  # a file in place of the folder: nothing can be written there
    firewall.until(lambda: "logger: " in told.read_text())
    trouble = f"hitables: the old rules cannot be loaded now: state directory {firewall.state}: "
    assert f"wall: {trouble}" in told.read_text()
    firewall.state.unlink()
    away.rename(firewall.state)
    firewall.until(lambda: "wall: hitables: rule set 2 was taken back, because" in told.read_text())
    assert plain(firewall.save()) == ""


def test_status_and_apply_say_why_rules_could_not_be_taken_back_in_time(tmp_path: Path) -> None:
    programs, broken = tmp_path / "programs", tmp_path / "broken"
    programs.mkdir()
    tool = programs / "iptables-nft-save"
    usual = shutil.which("iptables-nft-save")
    tool.write_text(
        f'#!/bin/sh\n[ -e {broken} ] && {{ printf "it is broken\\n\\nask me\\n" >&2; exit 1; }}\nexec {usual} "$@"\n'
    )
    tool.chmod(0o755)
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        path = {"PATH": f"{programs}:{os.environ['PATH']}"}
        firewall.hitables("apply", firewall.file(NEW), "--confirm", 600, environment=path)
        assert re.search(
            "rule set 2 waits for its confirmation, [56].. s more", firewall.hitables("status").stdout
        )
        firewall.hitables("rollback")
        firewall.hitables("apply", firewall.file(NEW), "--confirm", 0.3, environment=path)
        broken.touch()
        firewall.until(lambda: "4: cannot be taken back: " in firewall.log())
        expected = (
            r"rule set 4 could not be taken back: .*it is broken; ask me; trying again: hitables confirm"
        )
        assert re.search(expected, firewall.hitables("status", status=2).stdout)
        assert re.search(expected, firewall.hitables("apply", firewall.file(OLD), status=2).stderr)
        broken.unlink()
        firewall.until(lambda: "4: taken back, because" in firewall.log())


@pytest.mark.parametrize("name", ["loaded4", "source4"])
@pytest.mark.parametrize("content", ["", "\ufffd\n", "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"])
def test_rules_of_a_record_that_are_not_those_recorded_are_an_error(
    tmp_path: Path, name: str, content: str
) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.apply(firewall.file(NEW))
        path = firewall.state / "0002" / name
        path.write_text(content)
        for command in (["status"], ["status", "--repair"], ["apply", firewall.file(NEW)]):
            said = firewall.hitables(*command, status=2).stderr
            assert f"{path}: damaged (these are not the rules that were recorded); move" in said
        assert ":INPUT DROP" in firewall.save()


@pytest.mark.parametrize("by_guard", [False, True])
def test_only_what_the_guard_takes_back_is_news_for_the_user(
    store: StateDirectory, monkeypatch: pytest.MonkeyPatch, by_guard: bool
) -> None:
    """Of his own rollback he knows: the next one goes further."""
    state = let_wait(store, add(store, ApplyState(), FILTER))
    monkeypatch.setattr(confirm, "bring_back", lambda *given: [])
    confirm.undo(store, state, "the test wants it", by_guard)
    assert (store.state().taken_back is not None) == by_guard


def test_no_fault_in_what_is_kept_of_others_keeps_the_old_rules_away(
    store: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise AssertionError("a fault")

    loaded: list[object] = []
    state = let_wait(store, add(store, ApplyState(), FILTER))
    monkeypatch.setattr(confirm, "keep_dropped", fail)
    monkeypatch.setattr(
        confirm, "bring_back", lambda store, then, now: loaded.append(then.record.number) or []
    )
    (note,) = confirm.undo(store, state, "it was not confirmed in time", by_guard=True)
    assert note == "what other programs added to rule set 2 is not kept: a fault"
    assert loaded == [1] and store.state().waiting is None


def test_a_rollback_that_cannot_be_done_leaves_what_waits(firewall: Firewall) -> None:
    """The first rules wait, and another number than that of those before is asked for."""
    firewall.hitables("apply", firewall.file(OLD), "--confirm", 0.5)
    firewall.until(lambda: "taken back, because" in firewall.log())
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    waits, loaded = guard_of(firewall), plain(firewall.save())
    error = firewall.hitables("rollback", 2, status=2).stderr
    assert "no rule set is confirmed, so there is none to replace" in error
    assert guard_of(firewall) == waits and plain(firewall.save()) == loaded
    firewall.hitables("rollback")

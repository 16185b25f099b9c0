"""What confirms the rules that wait: the user, a check, a new connection; and what keeps them from it."""

from __future__ import annotations

import calendar
import contextlib
import errno
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.firewall import Firewall, plain
from support.small_namespace import Namespace
from support.small_records import FILTER, add, let_wait
from support.waiting_rules import HITABLES, NEW, OLD, add_a_jail, guard_of, status_of

from hitables.apply import confirm as confirming
from hitables.apply import connections, guard
from hitables.apply.boot_clock import boot_id
from hitables.apply.check_command import why_failed
from hitables.apply.connections import NewConnections
from hitables.apply.in_force import confirm_record
from hitables.apply.records import ApplyState, Waiting
from hitables.apply.request import ApplyRequest, Reporter
from hitables.apply.run import apply
from hitables.apply.still_held import NotHeld
from hitables.apply.store import StateDirectory
from hitables.errors import FileError, HitablesError, LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]


def test_the_command_that_confirms_can_be_pasted_into_another_session(tmp_path: Path) -> None:
    """It stands in another folder, where a relative path names another state directory."""
    folder = tmp_path / "it's $HOME"
    folder.mkdir()
    with Namespace() as namespace:
        firewall = Firewall(namespace, folder, Backend.NFT)
        firewall.state = Path(os.path.relpath(folder / "state"))
        shown = firewall.hitables("apply", firewall.file(NEW), "--confirm", 600).stdout
        (command,) = [line for line in shown.splitlines() if line.startswith("  hitables confirm")]
        assert shlex.split(command) == ["hitables", "confirm", "--state", str(folder / "state")]
        firewall.hitables("confirm")


def test_rules_that_the_kernel_does_not_hold_any_more_are_not_confirmed(firewall: Firewall) -> None:
    firewall.load(OLD)
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600, "--leave", "f2b-*")
    firewall.iptables("-N", "f2b-sshd")
    firewall.iptables("-I", "INPUT", "-j", "f2b-sshd")
    firewall.iptables("-P", "INPUT", "ACCEPT")
    error = firewall.hitables("confirm", status=2).stderr
    assert "rule set 2 any more: IPv4: table filter, chain INPUT: policy ACCEPT, was DROP\n" in error
    assert "--force" in error
    assert "hitables rollback" in error and status_of(firewall)[2] == "waiting"
    firewall.iptables("-P", "INPUT", "DROP")
    firewall.hitables("confirm")
    assert status_of(firewall)[2] == "confirmed"


def test_what_others_only_added_is_told_and_confirmed(firewall: Firewall) -> None:
    firewall.load(OLD)
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    add_a_jail(firewall)
    firewall.iptables("-A", "INPUT", "-s", "192.0.2.8", "-j", "DROP")
    done = firewall.hitables("confirm")
    note = "other programs have added to rule set 2 since it was loaded"
    assert note in done.stderr.replace("\n", " ") and note in firewall.log()
    assert "rule set 2 is confirmed" in done.stdout
    assert "f2b-sshd" in firewall.hitables("status", status=1).stdout


def test_a_check_confirms_what_others_only_added_to(firewall: Firewall) -> None:
    firewall.load(OLD)
    insert = f"iptables-{firewall.backend.value} -I INPUT -s 192.0.2.8 -j DROP"
    done = firewall.hitables("apply", firewall.file(NEW), "--check", insert)
    assert "other programs have added to rule set 2" in done.stderr
    assert status_of(firewall)[2] == "confirmed"


def test_equal_trees_are_not_lost_when_a_rule_comes_before_them(firewall: Firewall) -> None:
    """Each of them may have the name of the other."""
    rules = [line for line in NEW.splitlines() if line.startswith("-A INPUT -s")]
    twice = [*rules, *(line.replace("INPUT", "FORWARD") for line in rules)]
    text = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n" + "\n".join(twice) + "\nCOMMIT\n"
    firewall.hitables("apply", firewall.file(text), "--confirm", 600)
    for chain in ("INPUT", "FORWARD"):
        firewall.iptables("-I", chain, "-s", "192.0.2.8", "-j", "DROP")
    assert "1 more difference" in firewall.hitables("confirm").stderr


def test_a_confirmation_of_rules_that_were_flushed_can_be_forced(firewall: Firewall) -> None:
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    firewall.iptables("-F")
    assert "more difference" in firewall.hitables("confirm", status=2).stderr
    assert "is confirmed" in firewall.hitables("confirm", "--force").stdout


def test_a_check_that_sees_a_flush_takes_the_rules_back(firewall: Firewall) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    flush = f"iptables-{firewall.backend.value} -F"
    error = firewall.hitables("apply", firewall.file(NEW), "--check", flush, status=2).stderr
    assert "it succeeded, but the kernel does not hold rule set 2 any more" in error
    assert plain(firewall.save()) == before


def test_confirmed_rules_stay_and_the_guard_ends(firewall: Firewall) -> None:
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    pid = guard_of(firewall)
    assert guard.is_alive(pid)
    assert "s more" in firewall.hitables("apply", firewall.file(OLD), status=2).stderr
    firewall.hitables("confirm")
    firewall.until(lambda: not guard.is_alive(pid))
    assert ":INPUT DROP" in firewall.save()
    assert "no rule set waits" in firewall.hitables("confirm", status=2).stderr


def test_a_check_decides(firewall: Firewall) -> None:
    firewall.hitables("apply", firewall.file(OLD), "--check", "exit 0")
    before = plain(firewall.save())
    error = firewall.hitables("apply", firewall.file(NEW), "--check", "exit 3", status=2).stderr
    assert "exit status 3" in error
    assert plain(firewall.save()) == before
    firewall.hitables("apply", firewall.file(NEW), "--check", "sleep 100", "--confirm", 0.5, status=2)
    assert plain(firewall.save()) == before
    assert status_of(firewall)[2] == "confirmed"


def test_rules_whose_confirmation_cannot_be_written_go_on_waiting(
    store: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the guard would end as if they were confirmed, and the old rules would never be loaded."""
    let_wait(store, add(store, ApplyState(), FILTER))

    def refuse(self: StateDirectory, state: ApplyState) -> None:
        raise FileError("state.json: No space left on device")

    with monkeypatch.context() as patch, pytest.raises(FileError, match="No space left"):
        patch.setattr(StateDirectory, "set_state", refuse)
        confirm_record(store, store.state(), 2)
    assert store.state().waiting is not None


def files_of_the_boot(folder: Path) -> dict[str, str]:
    """By name, the texts of all that a boot reads in a state directory."""
    files = [
        *folder.glob("confirmed*"),
        folder / "boot.json",
        *folder.glob("boot/*"),
        *folder.glob("boot-*/*"),
    ]
    return {str(file.relative_to(folder)): file.read_text() for file in files}


def confirm_on_a_full_disk(folder: str) -> str:
    """The error of a confirmation when state.json cannot be written."""

    def refuse(self: StateDirectory, state: ApplyState) -> None:
        raise FileError("state.json: No space left on device")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(FileError) as raised:
        patch.setattr(StateDirectory, "set_state", refuse)
        confirming.confirm(folder)
    return str(raised.value)


def test_no_boot_loads_rules_whose_confirmation_cannot_be_written(firewall: Firewall) -> None:
    """Nor a table or a family that only they have."""
    firewall.apply(firewall.file(OLD))
    firewall.hitables("persist", "--unit-folder", firewall.folder, "--ssh", 22)
    before = files_of_the_boot(firewall.state)
    nat = "*nat\n-A POSTROUTING -s 192.0.2.0/24 -j ACCEPT\nCOMMIT\n"
    six = firewall.file("*filter\n:INPUT DROP [0:0]\nCOMMIT\n", "six.rules")
    firewall.hitables("apply", firewall.file(NEW + nat), six, "--confirm", 600)
    error = firewall.namespace.call(confirm_on_a_full_disk, str(firewall.state))
    assert error == "state.json: No space left on device; rule set 4 is not confirmed, and waits on"
    assert files_of_the_boot(firewall.state) == before
    assert not list(firewall.state.glob("*.before"))
    firewall.hitables("confirm")
    assert "192.0.2.0/24" in files_of_the_boot(firewall.state)["boot/compiled4"]
    assert len(list(firewall.state.glob("boot-*"))) == 1


def check_on_a_full_disk(text: str, folder: str, backend: Backend) -> str:
    """The error of an apply whose check succeeds, but cannot be written down."""
    request = ApplyRequest({Family.IPV4: ("new.rules", text)}, folder, backend, confirm=600, check="true")
    set_state = StateDirectory.set_state

    def refuse(self: StateDirectory, state: ApplyState) -> None:
        if state.waiting is None:
            raise FileError("state.json: No space left on device")
        set_state(self, state)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(HitablesError) as raised:
        patch.setattr(StateDirectory, "set_state", refuse)
        apply(request, Reporter())
    return str(raised.value)


def test_a_check_whose_success_cannot_be_written_down_takes_the_rules_back(firewall: Firewall) -> None:
    firewall.apply(firewall.file(OLD))
    before, boot = plain(firewall.save()), files_of_the_boot(firewall.state)
    error = firewall.namespace.call(check_on_a_full_disk, NEW, str(firewall.state), firewall.backend)
    assert "it succeeded, but state.json: No space left on device; rule set 3 is taken back" in error
    assert plain(firewall.save()) == before
    assert files_of_the_boot(firewall.state) == boot


def test_rules_that_were_loaded_in_part_are_not_confirmed(store: StateDirectory) -> None:
    """As after a kill of the apply; not even with --force."""
    let_wait(store, add(store, ApplyState(), FILTER), until=0.0)
    store.close()
    with pytest.raises(HitablesError, match="rule set 2 was not loaded completely: hitables rollback"):
        confirming.confirm(str(store.folder), force=True)
    assert store.state().waiting is not None


def test_a_connection_that_came_while_the_rules_were_changed_does_not_confirm_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise NotHeld("rules are missing")

    clients: set[tuple[str, int]] = set()
    monkeypatch.setattr(connections, "_cookies_used", lambda: 0)
    monkeypatch.setattr(NewConnections, "_listed", lambda self: (frozenset(clients), frozenset(clients)))
    new = NewConnections("127.0.0.1", 22)
    new.look()
    clients.add(("127.0.0.1", 5001))
    monkeypatch.setattr(confirming, "confirm", refuse)
    assert not confirming.confirmed_by_connection(str(tmp_path), 1, new)
    monkeypatch.setattr(confirming, "confirm", lambda *arguments: (1, []))
    assert not confirming.confirmed_by_connection(str(tmp_path), 1, new)
    clients.add(("127.0.0.1", 5002))
    assert confirming.confirmed_by_connection(str(tmp_path), 1, new)


def connect(port: int) -> None:
    """A connection over loopback that stays until the process ends, as one of ssh would."""
    listener = socket.create_server(("127.0.0.1", port))
    client = socket.create_connection(("127.0.0.1", port))
    _OPEN.extend([listener, client, listener.accept()[0]])


_OPEN: list[socket.socket] = []


def test_a_new_connection_confirms(firewall: Firewall) -> None:
    session = {"SSH_CONNECTION": "127.0.0.1 40000 127.0.0.1 2222"}
    done = firewall.hitables(
        "apply", firewall.file(NEW), "--confirm", 600, "--by-connection", environment=session
    )
    assert done.returncode == 0
    firewall.namespace.call(connect, 2222)
    firewall.until(lambda: "confirmed by a new connection" in firewall.log())
    assert status_of(firewall)[2] == "confirmed"


def connect_again(port: int) -> None:
    _OPEN.append(socket.create_connection(("127.0.0.1", port)))


def test_a_new_connection_does_not_confirm_rules_that_were_changed(firewall: Firewall) -> None:
    session = {"SSH_CONNECTION": "127.0.0.1 40000 127.0.0.1 2222"}
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600, "--by-connection", environment=session)
    firewall.iptables("-P", "INPUT", "ACCEPT")
    firewall.namespace.call(connect, 2222)
    firewall.until(lambda: "a new connection does not confirm it: the kernel does not" in firewall.log())
    assert status_of(firewall)[2] == "waiting"
    firewall.iptables("-P", "INPUT", "DROP")
    firewall.namespace.call(connect_again, 2222)
    firewall.until(lambda: "confirmed by a new connection" in firewall.log())


def test_the_guard_has_looked_at_the_connections_before_the_user_is_told(tmp_path: Path) -> None:
    looked = tmp_path / "looked"

    def look() -> bool:
        time.sleep(0.3)
        looked.touch()
        return False

    started = guard.start(guard.Duty(lambda: not looked.exists(), look, lambda why: None))
    started.loaded(60)
    assert looked.exists()
    guard.wait_for_end(started.pid)


def test_nothing_is_loaded_if_no_guard_can_be_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    before = os.listdir("/proc/self/fd")
    message = "did not start: Resource temporarily unavailable; nothing is loaded"
    with pytest.raises(LiveError, match=message):
        guard.start(guard.Duty(lambda: True, lambda: False, lambda why: None))
    assert len(os.listdir("/proc/self/fd")) == len(before)


def keep_connecting(port: int) -> None:
    """Open connections from one thread, one each 5 ms, as long as the process lives."""
    listener = socket.create_server(("127.0.0.1", port), backlog=10_000)
    _OPEN.append(listener)

    def open_more() -> None:
        while True:
            with contextlib.suppress(OSError):
                _OPEN.append(socket.create_connection(("127.0.0.1", port), timeout=0.1))
            time.sleep(0.005)

    threading.Thread(target=open_more, daemon=True).start()


def test_a_connection_that_came_while_rules_were_loaded_does_not_confirm(firewall: Firewall) -> None:
    """The old rules let it in; the new ones let in none."""
    firewall.namespace.call(keep_connecting, 2222)
    rules = NEW.replace("INPUT DROP", "INPUT ACCEPT").replace(
        "-A INPUT -i lo", "-A INPUT -p tcp -m tcp --dport 2222 --syn -j DROP\n-A INPUT -i lo"
    )
    session = {"SSH_CONNECTION": "127.0.0.1 40000 127.0.0.1 2222"}
    firewall.hitables(
        "apply", firewall.file(rules), "--confirm", 1, "--by-connection", "--force", environment=session
    )
    firewall.until(lambda: "taken back" in firewall.log() or "confirmed" in firewall.log())
    assert "taken back, because it was not confirmed in time" in firewall.log()


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_clock_that_is_set_does_not_change_the_time_that_is_left(firewall: Firewall, step: int) -> None:
    """As by NTP or `date -s`: the time that was written down belongs to the clock as it was."""
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 9000)
    now = time.time()
    path = firewall.state / "state.json"
    state = json.loads(path.read_text())
    state["waiting"]["until"] += step
    path.write_text(json.dumps(state))
    for command in ("status", "apply"):
        arguments = [firewall.file(OLD)] if command == "apply" else []
        done = firewall.hitables(command, *arguments, status=2 if arguments else 0)
        left = re.search(r"(\d+) s( more|\))", done.stdout + done.stderr)
        assert left is not None and 8000 < int(left[1]) <= 9000
    until = json.loads(firewall.hitables("status", "--json").stdout)["waiting"]["until"]
    assert 8000 < calendar.timegm(time.strptime(until, "%Y-%m-%dT%H:%M:%SZ")) - now <= 9060
    firewall.hitables("rollback")


def test_a_state_of_an_earlier_version_has_its_time_by_the_clock_of_the_day(tmp_path: Path) -> None:
    store = StateDirectory(tmp_path, -1)
    store.set_state(ApplyState(1, 0, Waiting(1, 0, time.time() + 600, boot_id(), 7, 5.0), {1: "waiting"}))
    path = tmp_path / "state.json"
    state = json.loads(path.read_text())
    del state["waiting"]["deadline"]
    path.write_text(json.dumps(state))
    waiting = store.state().waiting
    assert waiting is not None and 500 < waiting.seconds_left <= 600


def test_messages_that_cannot_be_written_do_not_decide(firewall: Firewall) -> None:
    """Standard error is full: the rules are loaded all the same, and wait."""
    script = f"{HITABLES} apply {firewall.file(NEW)} --backend {firewall.backend.value} --confirm 600 "
    script += f"--state {firewall.state} 2>/dev/full"
    firewall.namespace.run(["bash", "-c", script])
    assert ":INPUT DROP" in firewall.save()
    assert "waits for its confirmation" in firewall.hitables("status").stdout
    firewall.hitables("rollback")


def test_a_change_that_cannot_be_shown_is_not_made(firewall: Firewall) -> None:
    script = f"{HITABLES} apply {firewall.file(NEW)} --backend {firewall.backend.value} --confirm 0 "
    script += f"--state {firewall.state} >/dev/full 2>&1; test $? = 2"
    firewall.namespace.run(["bash", "-c", script])
    assert plain(firewall.save()) == ""


def test_a_check_may_be_a_command_of_ours(firewall: Firewall) -> None:
    """It needs the state directory, which the apply does not hold meanwhile."""
    path = firewall.file(NEW, "new.rules")
    status = f"{HITABLES} status --state {firewall.state}"
    shown = firewall.hitables("apply", path, "--confirm", 0, "--check", status).stdout
    assert "the kernel holds rule set 2" in shown and "rule set 2 waits for its confirmation" in shown
    assert status_of(firewall)[2] == "confirmed"


def test_rules_that_are_confirmed_during_a_check_that_fails_stay(firewall: Firewall) -> None:
    path = firewall.file(NEW, "new.rules")
    check = f"{HITABLES} confirm --state {firewall.state}; false"
    error = firewall.hitables("apply", path, "--check", check, status=2).stderr
    assert "rule set 2 was confirmed meanwhile, and stays" in error
    assert status_of(firewall)[2] == "confirmed"


def test_rules_that_are_taken_back_during_the_check_are_not_confirmed_by_it(firewall: Firewall) -> None:
    firewall.apply(firewall.file(OLD))
    check = f"{HITABLES} rollback --state {firewall.state}"
    error = firewall.hitables("apply", firewall.file(NEW, "new.rules"), "--check", check, status=2).stderr
    assert "rule set 3 is taken back" in error
    assert "10.0.0.1/32" in firewall.save()
    assert status_of(firewall)[3] == "rolled back"


@pytest.mark.either_backend
@pytest.mark.parametrize("text", [NEW, OLD], ids=["these", "others"])
def test_rules_that_wait_are_not_confirmed_by_an_apply_without_their_state(
    firewall: Firewall, text: str
) -> None:
    """Neither from a new directory, nor in place of one that was removed."""
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 6)
    time.sleep(1)  # until the guard has looked
    first, state = guard_of(firewall), firewall.state
    state.rename(firewall.folder / "away")
    for folder in (firewall.folder / "other", state):
        firewall.state = folder
        error = firewall.hitables("apply", firewall.file(text), "--confirm", 0, status=2).stderr
        assert f"wait for their confirmation (guard: process {first})" in error
    firewall.until(lambda: not guard.is_alive(first))
    assert "taken back, because" in firewall.log() and plain(firewall.save()) == ""
    firewall.apply(firewall.file(text))


def interrupted_when_told(text: str, folder: str, backend: Backend) -> None:
    def tell(message: str) -> None:
        if message.startswith("loaded as rule set"):
            raise KeyboardInterrupt

    request = ApplyRequest({Family.IPV4: ("new.rules", text)}, folder, backend, confirm=600)
    with pytest.raises(KeyboardInterrupt):
        apply(request, Reporter(tell=tell))


def test_an_interrupt_after_the_loading_takes_the_rules_back_at_once(firewall: Firewall) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    firewall.namespace.call(interrupted_when_told, NEW, str(firewall.state), firewall.backend)
    assert plain(firewall.save()) == before
    assert "taken back, because the command was interrupted" in firewall.log()
    firewall.apply(firewall.file(NEW))


def listen_as_a_guard() -> None:
    """What a user without rights can do, as the name is known."""
    os.setresuid(65534, 65534, 0)
    try:
        _OPEN.append(guard._mark())
    finally:
        os.setresuid(0, 0, 0)


def test_a_user_who_takes_the_name_of_a_guard_keeps_nobody_from_an_apply(firewall: Firewall) -> None:
    firewall.namespace.call(listen_as_a_guard)
    firewall.apply(firewall.file(NEW))


def test_a_check_that_takes_too_long_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    path = tmp_path / "pipe"
    path.symlink_to(f"/proc/{os.getpid()}/fd/{writer}")
    assert why_failed(f"sleep 300 > {path} & wait", 0.5) == "it did not end within 0.5 s"
    os.close(writer)
    # A killed process closes its files a moment later than its parent is told.
    ended, _, _ = select.select([reader], [], [], 60)
    assert ended and os.read(reader, 1) == b"", "no process has the pipe open"
    os.close(reader)


class InterruptedWait(subprocess.Popen[bytes]):
    """An interrupt arrives when `wait` has just taken its lock; Python then never releases it."""

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None:
            return super().wait()
        self._waitpid_lock.acquire()  # type: ignore[attr-defined]
        raise KeyboardInterrupt


def test_a_check_ends_whenever_an_interrupt_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", InterruptedWait)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            why_failed("sleep 300", 600)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert [type(error) for error in raised] == [KeyboardInterrupt]


def test_a_check_that_is_interrupted_as_it_starts_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def interrupted(check: str) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen(check, shell=True, start_new_session=True))
        signal.raise_signal(signal.SIGINT)
        return begun[0]

    monkeypatch.setattr("hitables.apply.check_command._process", interrupted)
    with pytest.raises(KeyboardInterrupt):
        why_failed("sleep 300", 600)
    assert begun[0].returncode == -signal.SIGKILL


def test_an_interrupt_during_a_check_takes_the_rules_back_at_once(firewall: Firewall) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    check = "kill -INT $PPID; sleep 60"
    firewall.hitables("apply", firewall.file(NEW), "--check", check, "--confirm", 600, status=130)
    assert plain(firewall.save()) == before
    assert "the check was interrupted" in firewall.log()

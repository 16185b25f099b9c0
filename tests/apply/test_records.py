"""Which records are kept: those of the last applies, those in force, and the way back from these."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from support.disk_order import recorded
from support.powerless import powerless, public_folder
from support.small_records import FILTER, NAT, add, let_wait

from hitables.apply.boot_clock import boot_id
from hitables.apply.confirm import confirm
from hitables.apply.guard import Guard
from hitables.apply.in_force import in_force, own_places
from hitables.apply.records import FOUND, ROLLED_BACK, ApplyState, TakenBack, Waiting
from hitables.apply.run import _confirm_now
from hitables.apply.store import KEPT, StateDirectory
from hitables.errors import FileError, HitablesError, LiveError
from hitables.ir.fields import Family


def test_records_that_are_in_force_are_kept(store: StateDirectory) -> None:
    state = add(store, ApplyState(), (*FILTER, *NAT))
    for _ in range(KEPT + 10):
        state = store.forget_old(add(store, state, FILTER))
    assert not store.has(2) and store.has(1)
    parts = in_force(store, state.confirmed).parts
    assert [(part.number, own_places(part)) for part in parts] == [
        (state.last, [(Family.IPV4, "filter")]),
        (1, [(Family.IPV4, "nat")]),
    ]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_is_copied_for_the_guard_is_all_that_a_rollback_needs(
    is_damaged: bool, store: StateDirectory
) -> None:
    """Table nat is in force from a record that neither the rules that wait nor those before them replaced."""
    state = add(store, ApplyState(), (*FILTER, *NAT))
    for _ in range(3):
        state = add(store, state, FILTER)
    state = replace(state, confirmed=3, waiting=Waiting(4, 3, 1.0, boot_id(), os.getpid()))
    store.begin_waiting(4)
    store.set_state(state)
    before = [in_force(store, number) for number in (3, 4)]
    copy = store.copy(state)
    assert not store.mend(copy)
    if is_damaged:
        for name in copy:
            (store.folder / name).write_text("damaged")
    else:
        for number in store.numbers():
            shutil.rmtree(store.folder / f"{number:04}")
        (store.folder / "state.json").unlink()
    again = StateDirectory(store.folder, store.lock)
    assert again.mend(copy) and again.state() == state
    folders = [each for each in store.folder.iterdir() if each.is_dir()]
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}, "of root alone"
    assert [in_force(again, number) for number in (3, 4)] == before
    assert [part.number for part in before[0].parts] == [3, 1]


def test_what_is_copied_for_the_guard_has_the_members_of_ipsets(store: StateDirectory) -> None:
    state = let_wait(store, add(store, ApplyState(), FILTER))
    saved = "create allowed hash:ip\nadd allowed 192.0.2.1\n"
    store.save_set("allowed", saved)
    copy = store.copy(state)
    shutil.rmtree(store.folder / "sets")
    assert store.mend(copy) and store.kept_set("allowed") == saved


@pytest.mark.parametrize("by", ["the command", "the apply itself"])
def test_old_records_go_with_each_confirmation(
    by: str, store: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hitables.apply.store.KEPT", 1)
    state = add(store, add(store, add(store, ApplyState(), FILTER), FILTER), FILTER)
    state = let_wait(store, state)
    if by == "the command":
        store.close()
        confirm(str(store.folder), force=True)
    else:
        with socket.socket() as closed:
            _confirm_now(store, state, Guard(os.getpid(), closed))
    assert store.numbers() == [2, 3, 4]


def test_a_record_that_cannot_be_removed_as_a_whole_is_none_any_more(
    store: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, ApplyState(), FILTER)
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name == "loaded4":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, missing_ok)

    with monkeypatch.context() as patch, pytest.raises(FileError, match="Input/output error"):
        patch.setattr(Path, "unlink", refused)
        store.remove([1])
    assert not store.has(1) and store.numbers() == []


def test_a_state_survives_a_loss_of_power_once_it_is_written(
    store: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = recorded(monkeypatch)
    store.set_state(ApplyState())
    first, *rest = events
    assert first.startswith("flushed .state.json.")
    assert rest == ["renamed state.json", f"flushed {store.folder.name}"]


def test_a_log_that_cannot_be_written_stops_nothing(store: StateDirectory) -> None:
    (store.folder / "log").symlink_to("/dev/full")
    store.log("1: confirmed")


def test_a_new_state_directory_is_of_root_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        StateDirectory.open(str(tmp_path / "state"), create=True).close()
    finally:
        os.umask(mask)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_record_of_which_tables_are_not_kept_cannot_be_in_force(store: StateDirectory) -> None:
    """Record 2 has nat, and beside it filter of 1, which nothing needs later."""
    state = add(store, add(store, ApplyState(), FILTER), NAT)
    for _ in range(KEPT + 10):
        state = store.forget_old(add(store, state, FILTER))
    assert store.has(2) and not store.has(1)
    with pytest.raises(HitablesError, match="rule set 2 had tables of rule set 1, which is not kept"):
        in_force(store, 2)


def test_the_way_back_is_kept_beside_many_that_were_taken_back(store: StateDirectory) -> None:
    state = add(store, add(store, ApplyState(), FILTER), FILTER)
    for _ in range(KEPT + 10):
        state = store.forget_old(add(store, state, FILTER, ROLLED_BACK))
    assert store.has(store.record(state.confirmed).before)


def test_what_was_found_in_the_kernel_pushes_out_no_rule_set_of_the_user(store: StateDirectory) -> None:
    state = add(store, add(store, ApplyState(), FILTER), FILTER)
    for _ in range(KEPT + 10):
        state = store.forget_old(add(store, state, FILTER, FOUND))
    state = store.forget_old(add(store, state, FILTER))
    assert store.has(1) and store.has(2)
    assert len(store.numbers()) == KEPT + 3


@pytest.mark.parametrize("name", ["state.json", "0001/record.json"])
def test_json_of_another_shape_is_called_damaged(store: StateDirectory, name: str) -> None:
    waiting = Waiting(1, 0, 1.5, boot_id(), 7)
    state = add(store, ApplyState(), FILTER)
    store.begin_waiting(1)
    store.set_state(replace(state, waiting=waiting, taken_back=TakenBack(2, boot_id(), 1.5)))
    path = store.folder / name
    good = json.loads(path.read_text())
    damaged: list[object] = [[], None, {}, 0, "", [good]]
    damaged += [
        {key: good[key] for key in good if key != each}
        for each in good
        if each not in ("beside", "taken_back")
    ]
    others: tuple[object, ...] = (7.5, [3], {"a": "b"}, "x")
    damaged += [{**good, each: other} for each in good for other in others]
    errors = 0
    for content in damaged:
        path.write_text(json.dumps(content))
        try:
            store.state()
            store.record(1)
        except FileError as error:
            errors += 1
            assert f"{path}: damaged (" in str(error) or "another version" in str(error)
    assert errors > len(damaged) / 2


@pytest.mark.parametrize("command", ["status", "rollback", "confirm", "history", "counters", "source"])
def test_a_folder_that_may_not_be_entered_is_not_called_missing(command: str) -> None:
    with public_folder() as public:
        closed = public / "closed"
        closed.mkdir(0o700)
        done = powerless("hitables", command, "--state", str(closed / "state"))
        assert (done.returncode, done.stdout) == (2, "")
        assert re.search(rf"{closed}/state(/state.json)?: Permission denied.*; run it as root\n", done.stderr)


def test_a_user_who_may_not_open_the_state_is_told_to_be_root() -> None:
    with public_folder() as public:
        folder = public / "state"
        StateDirectory.open(str(folder), create=True).close()
        for mode, commands in ((0o700, ("rollback", "confirm", "history")), (0o755, ("status", "persist"))):
            folder.chmod(mode)
            for command in commands:
                done = powerless("hitables", command, "--state", str(folder))
                assert done.returncode == 2
                assert "Permission denied" in done.stderr and "run it as root" in done.stderr
                assert "--state" not in done.stderr
        (public / "office.rules").write_text("*filter\nCOMMIT\n")
        apply = ["apply", str(public / "office.rules"), "--state"]
        assert powerless("hitables", *apply, str(folder)).stderr.endswith("; run it as root\n")
        new = [*apply, str(public / "new")]
        assert "run it as root (--state names another directory)" in powerless("hitables", *new).stderr


def test_a_folder_that_is_replaced_while_its_lock_is_awaited_is_opened_anew(tmp_path: Path) -> None:
    """Else two processes would change the state in the new folder."""
    folder, moved = tmp_path / "state", tmp_path / "moved"
    held = StateDirectory.open(str(folder), create=True)

    def replace_and_release() -> None:
        folder.rename(moved)
        StateDirectory.open(str(folder), create=True).close()
        held.close()

    release = threading.Timer(0.1, replace_and_release)
    release.start()
    with StateDirectory.open(str(folder)), pytest.raises(LiveError, match="another hitables is changing"):
        release.join()
        StateDirectory.open(str(folder), wait=0.0)


def test_a_folder_whose_lock_cannot_be_taken_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    StateDirectory.open(str(tmp_path), create=True).close()
    monkeypatch.setattr(fcntl, "flock", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileError, match="No locks available; nothing is changed"):
        StateDirectory.open(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_folder_that_is_removed_while_its_lock_is_awaited_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    held = StateDirectory.open(str(folder), create=True)

    def move_and_release() -> None:
        folder.rename(tmp_path / "moved")
        held.close()

    release = threading.Timer(0.1, move_and_release)
    release.start()
    with pytest.raises(HitablesError, match="there is no such state directory"):
        StateDirectory.open(str(folder))
    release.join()

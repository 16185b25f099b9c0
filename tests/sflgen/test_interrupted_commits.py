"""Commits that end between their record and their load, as the process is killed or the disk fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.planned_updates import prefixes
from support.sflgen_command import sflgen
from support.small_namespace import Namespace

import hitables
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.namespace import run
from sflgen.commands import read_commands
from sflgen.commit import finish_commit, loader
from sflgen.kernel import Kernel
from sflgen.planner import plan_unproved, start_unproved
from sflgen.settings import Settings
from sflgen.store import Store

pytestmark = pytest.mark.needs_kernel


def begun(folder: str) -> tuple[Store, Kernel]:
    """A compiled rule set in the kernel of the present namespace."""
    state = start_unproved(prefixes(20), Settings(Backend.NFT)).after
    run(["iptables-nft-restore"], hitables.write(state.loaded))
    return Store.create(Path(folder), state), Kernel(Family.IPV4, state.settings)


def not_written_to_disk(folder: str, times: int) -> str:
    """The error of a commit whose record the disk refuses while the kernel loads the patch, so many *times*."""
    store, kernel = begun(folder)
    before, flush, errors = store.state, os.fsync, [OSError(errno.EIO, os.strerror(errno.EIO))] * times
    plan = plan_unproved(before, read_commands("-P INPUT DROP", before.master))

    def refused_first(handle: int) -> None:
        if errors:
            raise errors.pop()
        flush(handle)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(LiveError) as refusal:
        patch.setattr(os, "fsync", refused_first)
        store.commit(plan, loader(kernel, store, plan))
    assert store.state is before and kernel.doubt is None
    kernel.check(before)
    store.close()
    return str(refusal.value)


@pytest.mark.parametrize("times", [1, 2])
def test_a_patch_whose_record_does_not_reach_the_disk_is_taken_back(times: int, tmp_path: Path) -> None:
    """The disk may report an error once: a second attempt would succeed, and the record be lost."""
    with Namespace() as namespace:
        told = namespace.call(not_written_to_disk, str(tmp_path / "st"), times)
    assert told.startswith("the patch cannot be recorded; nothing is changed\n")
    assert told.endswith("/journal.1: Input/output error")


def killed(folder: str, command: str, loads: bool) -> None:
    """A process is killed before it knows that the kernel has the patch of its commit; or has it not."""
    store, kernel = begun(folder)
    plan = plan_unproved(store.state, read_commands(command, store.state.master))

    def load_and_die(patch: str) -> None:
        if loads:
            loader(kernel, store, plan)(patch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.commit(plan, load_and_die)
    store.close()


def finished(folder: str, change: str = "") -> tuple[str, int, bool]:
    """The error when a commit is finished after *change*; then the version, and whether it is unsettled."""
    if change:
        run(["iptables-nft", *change.split()])
    error = ""
    with Store.open(Path(folder)) as store:
        try:
            finish_commit(store, Kernel(Family.IPV4, store.state.settings))
        except LiveError as refusal:
            error = str(refusal)
        return error, store.state.version, store.unsettled is not None


BAN = "-I INPUT 9 -s 192.0.2.1 -j DROP"
OF_ANOTHER_PROGRAM = "INPUT -s 192.0.2.7 -j DROP"


def test_a_killed_commit_that_the_kernel_has_is_not_undone_while_it_has_other_changes_too(
    tmp_path: Path,
) -> None:
    folder = str(tmp_path / "st")
    with Namespace() as namespace:
        namespace.call(killed, folder, BAN, True)
        error, *left = namespace.call(finished, folder, f"-I {OF_ANOTHER_PROGRAM}")
        assert "the kernel does not hold the rule set of the state" in error and left == [2, True]
        assert namespace.call(finished, folder, f"-D {OF_ANOTHER_PROGRAM}") == ("", 2, False)


@pytest.mark.parametrize("refused", [
    "-m set --match-set gone src",  # created in a scratch namespace, so only the kernel itself refuses it
    "-m rateest --rateest none --rateest-gt --rateest-pps 5",
])  # fmt: skip
def test_a_killed_commit_whose_patch_the_kernel_refuses_is_undone(refused: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "st")
    with Namespace() as namespace:
        namespace.call(killed, folder, f"-I INPUT 9 {refused} -j DROP", False)
        error, *left = namespace.call(finished, folder)
        assert "the kernel refuses the patch; nothing is changed" in error and left == [1, False]
        assert namespace.call(finished, folder) == ("", 1, False)


def commanded(folder: str, command: str) -> str:
    """The rules of the kernel after a kill and the next command."""
    killed(folder, BAN, loads=False)
    done = sflgen(command, "--live", "--state", folder)
    assert done.exit_code == 0, done.stderr
    return run(["iptables-nft-save"])


@pytest.mark.parametrize("command", ["status", "stream"])
def test_a_killed_commit_is_completed_by_a_command_that_makes_none(command: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        rules = namespace.call(commanded, str(tmp_path / "st"), command)
    assert "-s 192.0.2.1/32 -j DROP" in rules
    with Store.open(tmp_path / "st") as store:
        assert store.state.version == 2 and store.unsettled is None

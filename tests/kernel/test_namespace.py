"""Namespaces of processes with few rights, and those that cannot begin.

The error is told, and of a test it fails that one alone.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile

import pytest
from support.small_namespace import Namespace

from hitables.errors import LiveError
from hitables.kernel import namespace as scratch

pytestmark = pytest.mark.needs_kernel


def test_a_helper_that_cannot_begin_is_told_and_later_ones_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PYTEST_CURRENT_TEST", "tests/kernel/of_no_such_file.py::test (call)")
        with pytest.raises(RuntimeError, match=r"ModuleNotFoundError: .*of_no_such_file"), Namespace():
            pass
        patch.delenv("PYTEST_CURRENT_TEST")
        with pytest.raises(RuntimeError, match="KeyError: 'PYTEST_CURRENT_TEST'"), Namespace():
            pass
    with Namespace() as namespace:
        assert namespace.call(os.getpid) != os.getpid()


def test_a_process_that_cannot_be_forked_is_told_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    before = os.listdir("/proc/self/fd")
    message = "cannot open a network namespace: Resource temporarily unavailable"
    with pytest.raises(LiveError, match=message), scratch.Namespace():
        pass
    assert len(os.listdir("/proc/self/fd")) == len(before)


WITHOUT_SYS_ADMIN = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
OWNER = """
from hitables.kernel.namespace import Namespace
with Namespace() as namespace:
    for words in ("-A OUTPUT -m owner --uid-owner 33 --gid-owner 7-9 -j ACCEPT", "-S OUTPUT"):
        print(namespace.run(["iptables-nft", *words.split()]), end="")
"""


def test_root_without_the_capability_for_namespaces_opens_one_with_all_users() -> None:
    """As in a container with CAP_NET_ADMIN, and in a unit of systemd with a CapabilityBoundingSet."""
    command = [*WITHOUT_SYS_ADMIN, sys.executable, "-c", OWNER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rule = "-A OUTPUT -m owner --uid-owner 33 --gid-owner 7-9 -j ACCEPT\n"
    assert done.stdout == f"-P OUTPUT ACCEPT\n{rule}", done.stderr


def test_a_host_that_allows_no_user_namespaces_is_told_what_bounds_them() -> None:
    forbid = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "-Ur", "sh", "-c", forbid, "sh", *WITHOUT_SYS_ADMIN, sys.executable, "-c", OWNER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (
        "cannot open a network namespace: No space left on device; the sysctls user.max_user" in done.stderr
    )


def test_a_helper_that_was_killed_is_told_to_the_next_call() -> None:
    """A closed standard output raises BrokenPipeError, too, and the command line tells of that."""
    for request in (os.getpid, ["iptables-nft", "-S"]):
        with Namespace() as namespace:
            os.kill(namespace.call(os.getpid), signal.SIGKILL)
            with pytest.raises(LiveError, match="the helper in the scratch namespace has died"):
                while True:  # it may take a moment to die
                    if callable(request):
                        namespace.call(request)
                    else:
                        namespace.run(request)


def test_a_folder_for_temporary_files_that_is_full_is_no_fault_of_the_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*words: object, **names: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/hitables-x")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(LiveError) as raised, scratch.Namespace():
        pass
    told = "/somewhere/hitables-x: No space left on device; TMPDIR may name another folder"
    assert str(raised.value) == told

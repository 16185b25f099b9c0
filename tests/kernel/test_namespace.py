"""Namespaces that cannot begin: the error is told, and of a test it fails that one alone."""

from __future__ import annotations

import errno
import os

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

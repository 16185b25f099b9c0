"""Namespaces for tests: one that cannot begin fails one test, and no other."""

from __future__ import annotations

import os

import pytest
from support.small_namespace import Namespace

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

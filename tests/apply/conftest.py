"""What the tests of `apply` and `status` share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.firewall import Firewall
from support.small_namespace import Namespace

from hitables.ir.packet import Backend


@pytest.fixture(params=list(Backend), ids=lambda backend: backend.value)
def firewall(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Firewall]:
    """A firewall of each backend, in a namespace of its own."""
    with Namespace() as namespace:
        yield Firewall(namespace, tmp_path, request.param)

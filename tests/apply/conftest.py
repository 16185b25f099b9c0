"""What the tests of `apply` and `status` share."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.firewall import Firewall
from support.small_namespace import Namespace
from support.tables_in_force import NAT, SIX, filtered

from hitables.apply.store import StateDirectory
from hitables.ir.fields import Family
from hitables.ir.packet import Backend


@pytest.fixture(params=list(Backend), ids=lambda backend: backend.value)
def firewall(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Firewall]:
    """A firewall of each backend, in a namespace of its own."""
    with Namespace() as namespace:
        yield Firewall(namespace, tmp_path, request.param)


@pytest.fixture
def store(tmp_path: Path) -> StateDirectory:
    """A new state directory."""
    return StateDirectory.open(str(tmp_path / "state"), create=True)


@pytest.fixture(scope="session")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Backend], tuple[Path, dict[Family, str]]]:
    """By backend: the state directory and the kernel's rules after one apply, with which each test begins."""

    @functools.cache
    def applied(backend: Backend) -> tuple[Path, dict[Family, str]]:
        with Namespace() as namespace:
            firewall = Firewall(namespace, tmp_path_factory.mktemp("begun"), backend)
            firewall.apply(firewall.file(filtered(22) + NAT), firewall.file(SIX, "six.rules"))
            return firewall.state, {family: firewall.save(family) for family in Family}

    return applied


@pytest.fixture(params=list(Backend), ids=lambda backend: backend.value)
def firewall_in_force(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    begun: Callable[[Backend], tuple[Path, dict[Family, str]]],
) -> Iterator[Firewall]:
    """Rule set 2 has tables filter and nat of IPv4, and filter of IPv6."""
    state, loaded = begun(request.param)
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, request.param)
        shutil.copytree(state, firewall.state, symlinks=True)
        for family, text in loaded.items():
            firewall.load(text, family)
        yield firewall

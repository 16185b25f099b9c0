"""A plugin of pytest: a test marked `either_backend` runs with one of the two backends; with both in `make deep`.

The subject of such a test is what hitables keeps and says, which no backend decides.  Which one it is depends on the
name of the test alone, so about half of them run with each.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest

from .scale import deep


@pytest.hookimpl(trylast=True)  # behind -k, which may ask for one backend
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if deep():
        return
    marked = [item.nodeid for item in items if item.get_closest_marker("either_backend")]
    spared = spared_of(marked)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in spared])
    items[:] = [item for item in items if item.nodeid not in spared]


def spared_of(names: Sequence[str]) -> set[str]:
    """Of each test that *names* have with both backends: the name with the one that it is not run with."""
    known = set(names)
    spared = set()
    for name in names:
        if "[" in name and "legacy" in name and (other := name.replace("legacy", "nft")) in known:
            spared.add((name, other)[zlib.crc32(name.encode()) & 1])
    return spared

"""State directories by the names of their folders: `sflgen.open` and `sflgen.create`."""

from __future__ import annotations

from pathlib import Path

from .state import State
from .store import Store


def open(folder: str) -> Store:
    """The state directory *folder*, locked until the store is closed."""
    return Store.open(Path(folder))


def create(folder: str, state: State) -> Store:
    """A new state directory that holds *state*, locked until the store is closed."""
    return Store.create(Path(folder), state)

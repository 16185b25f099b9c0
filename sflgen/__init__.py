"""sflgen: updates of compiled rule sets as small patches (docs/sflgen.md).

    with sflgen.open("/var/lib/sflgen") as store:
        updates = sflgen.read_commands("-I INPUT 1 -s 192.0.2.7 -j DROP", store.state.master)
        plan = sflgen.proved_plan(store.state, updates)
        store.commit(plan)
    print(plan.text)

Planning is a function of values.  Files are touched by `open`, `create` and the store they give;
the kernel by nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .edits import Edit, read_commands, sync
    from .layout import Settings, Strategy
    from .local_proof import proved_plan
    from .planner import Plan, fold, plan, start
    from .state import State, prove, verify
    from .store import Store

__all__ = [
    "Edit", "Plan", "Settings", "State", "Store", "Strategy", "create", "fold", "open", "plan", "prove",
    "proved_plan", "read_commands", "start", "sync", "verify",
]  # fmt: skip

# Found when asked for, as in hitables: what they need takes longer to load than --help may.
_HOME = {
    "Edit": "edits", "Plan": "planner", "Settings": "layout", "State": "state", "Store": "store",
    "Strategy": "layout", "fold": "planner", "plan": "planner", "prove": "state",
    "proved_plan": "local_proof", "read_commands": "edits", "start": "planner", "sync": "edits",
    "verify": "state",
}  # fmt: skip


def open(folder: str) -> Store:
    """The state in *folder*, locked for us until the store is closed."""
    from pathlib import Path

    from .store import Store

    return Store.open(Path(folder))


def create(folder: str, state: State) -> Store:
    """A new state directory that holds *state*."""
    from pathlib import Path

    from .store import Store

    return Store.create(Path(folder), state)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sflgen' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)

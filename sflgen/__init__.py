"""sflgen: updates of compiled rule sets as small patches (docs/sflgen.md).

    with sflgen.open("/var/lib/sflgen") as store:
        updates = sflgen.read_commands("-I INPUT 1 -s 192.0.2.7 -j DROP", store.state.master)
        plan = sflgen.plan(store.state, updates)
        store.commit(plan)
    print(plan.text)

`start`, `plan` and `fold` return a proved Plan: `Plan.text` is the patch, `Plan.after` the state after it.
Functions whose names end in `_unproved` do the same without a proof.  Planning is a function of values:
only `open`, `create` and their Store touch files, and nothing here touches the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .commands import read_commands
    from .edits import Edit
    from .folders import create, open
    from .hot_rules import hot, hot_unproved
    from .least_edits import sync
    from .planner import Plan, fold_unproved, plan_unproved, start_unproved
    from .proof import fold, plan, prove, prove_plan, start, verify
    from .settings import Settings, Strategy
    from .state import State
    from .store import Store

__all__ = [
    "Edit", "Plan", "Settings", "State", "Store", "Strategy", "create", "fold", "fold_unproved", "hot",
    "hot_unproved", "open", "plan", "plan_unproved", "prove", "prove_plan", "read_commands", "start",
    "start_unproved", "sync", "verify",
]  # fmt: skip

# Modules are imported when a name is first used, as in hitables: numpy takes longer to load than --help may.
# No name is that of a module of the package, which would replace it.
_MODULE_OF = {
    "Edit": "edits", "Plan": "planner", "Settings": "settings", "State": "state", "Store": "store",
    "Strategy": "settings", "create": "folders", "fold": "proof", "fold_unproved": "planner",
    "hot": "hot_rules", "hot_unproved": "hot_rules", "open": "folders", "plan": "proof",
    "plan_unproved": "planner", "prove": "proof", "prove_plan": "proof", "read_commands": "commands",
    "start": "proof", "start_unproved": "planner", "sync": "least_edits", "verify": "proof",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'sflgen' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

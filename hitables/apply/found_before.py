"""How a rule set that was found in the kernel differs from the confirmed one, told where it is loaded again.

Another program may have added rules for a time only, as knockd does, and deleted them since.
"""

from __future__ import annotations

from ..nouns import counted
from .drift import differences
from .in_force import InForce, in_force, own_places
from .records import FOUND, ApplyState, Record
from .store import StateDirectory

_NAMED = 3  # differences


def differences_of_found(store: StateDirectory, state: ApplyState, then: InForce) -> list[str]:
    """One note if *then* was found in the kernel and differs from what was confirmed then; else none."""
    found = then.record
    if state.status.get(found.number) != FOUND or not found.before or not store.has(found.before):
        return []
    try:
        told = _told(found, in_force(store, found.before))
    except Exception:  # no damaged file of an older rule set keeps the rules from being loaded
        return []
    if not told:
        return []
    more = f", and {counted(len(told) - _NAMED, 'more difference')}" if len(told) > _NAMED else ""
    return [
        f"rule set {found.number} is what the kernel held. It differs from rule set {found.before}: "
        f"{'; '.join(told[:_NAMED])}{more}. If another program added that for a time only, load the rules "
        f"without it: hitables rollback {found.before}"
    ]


def _told(found: Record, before: InForce) -> list[str]:
    """The differences of *found* from *before*, in the tables that both have."""
    told = []
    for family, half in found.halves.items() if before.record.backend == found.backend else ():
        confirmed = before.only(own_places(found)).half(family)
        if confirmed is not None:
            found_differences = differences(half.with_absent(), confirmed, before.leave())
            told += [f"IPv{int(family)}: {each}" for each in found_differences]
    return told

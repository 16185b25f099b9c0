"""Whether the kernel still holds the rules that shall be confirmed: a flush must not be confirmed with them.

What other programs add is confirmed all the same, and told: docker and fail2ban may start while rules wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import HitablesError
from ..ir.packet import Backend
from ..nouns import counted
from .drift import differences, losses, strange_jumps
from .kernel import Kernel
from .store import StateDirectory


class NotHeld(HitablesError):
    """Rules that shall be confirmed are missing in the kernel, or have changed."""


def check_held(store: StateDirectory, number: int) -> list[str]:
    """Notes on what others have added to the tables that record *number* has, and which jumps to
    their chains have moved; NotHeld if it lost rules.

    Chains of --leave and counters are no difference.
    """
    record = store.record(number)
    lost: list[str] = []
    added: list[str] = []
    moved: list[str] = []
    for family, half in record.halves.items():
        present = Kernel(family, Backend(record.backend), [store.lock]).read()
        found = list(differences(present, half, record.leave))
        if found:
            lost += (f"IPv{int(family)}: {each}" for each in losses(present, half, record.leave))
        added += (f"IPv{int(family)}: {each}" for each in found)
        moved += (f"IPv{int(family)}: {each}" for each in strange_jumps(present, half, family, record.leave))
    if lost:
        raise NotHeld(f"the kernel does not hold rule set {number} any more: {_first(lost)}")
    notes = []
    if added:
        notes.append(
            f"other programs have added to rule set {number} since it was loaded; that stays, and hitables "
            f"status shows it: {_first(added)}"
        )
    if moved:
        notes.append(
            f"jumps to chains of other programs have moved, or are gone, since rule set {number} was loaded; "
            f"hitables status shows what that changes, and --repair puts them back: {_first(moved)}"
        )
    return notes


def _first(differing: Sequence[str]) -> str:
    more = f", and {counted(len(differing) - 1, 'more difference')}" if len(differing) > 1 else ""
    return f"{differing[0]}{more}"

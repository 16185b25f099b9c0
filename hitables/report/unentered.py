"""The note on chains that differ and that no packet enters."""

from __future__ import annotations

from collections.abc import Sequence

from ..verify.unentered import Unentered

NAMED = 3  # chains


def note(found: Sequence[Unentered]) -> list[str]:
    """One note for all of them; none if there are none."""
    if not found:
        return []
    named = [f"{each.chain} (table {each.table})" for each in found[:NAMED]]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    one = len(found) == 1
    what = f"chain{'' if one else 's'} {', '.join(named)}{more} differ{'s' if one else ''}"
    both = next((each.chain for each in found if each.in_both), "")
    hint = f"; --chain {both} compares {'it' if one else 'one'} by itself" if both else ""
    return [f"{what}, and no packet enters {'it' if one else 'them'} in these files{hint}"]

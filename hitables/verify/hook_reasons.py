"""Why a rule matches no packet of the built-in chains by which its packets come, told in words."""

from __future__ import annotations

from collections.abc import Collection

from hitables.ir.fields import Family, Field
from hitables.ir.hooks import hook_box
from hitables.ir.intervals import Values
from hitables.ir.program import Chain
from hitables.ir.required import required
from hitables.ir.rule import Match, Rule


def why_not_at_hooks(rule: Rule, chain: Chain, roots: Collection[str], family: Family) -> str:
    """Which field no packet of the built-in chains *roots* has as the rule asks; "" if there is none."""
    asked = required(rule)
    boxes = [hook_box(root, family) for root in roots]
    for field in (Field.FRAG, Field.OIF, Field.IIF):
        if field not in asked or not boxes:
            continue
        if any(box.get(field, asked[field]).intersect(asked[field]) for box in boxes):
            continue
        own = chain.policy is not None
        if field is Field.FRAG:
            before = "it" if own else " and ".join(sorted(roots))
            return f"no fragment comes to {chain.name}, as the kernel puts fragments together before {before}"
        interface = "output" if field is Field.OIF else "input"
        if all(box[field] == Values.only(0) for box in boxes):
            return f"packets that come to {chain.name} have no {interface} interface"
    return ""


def shown(match: Match) -> str:
    """The match, as a rule has it."""
    return " ".join(("-m", match.name, *match.words) if match.name else match.words)

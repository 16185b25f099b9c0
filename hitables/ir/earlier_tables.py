"""What tables do that packets pass before: leave them untracked (raw), change their destination (nat).

`trace` and `reach` read one table; a note names the rules of the others that a reader must know of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .assumed_walk import run_assuming
from .fields import STATES, Field
from .intervals import Values
from .packet import Backend, Outcome
from .packet_reader import Spelled
from .program import Program
from .required import required
from .rule import Rule

_BEFORE = {"INPUT": "PREROUTING", "FORWARD": "PREROUTING", "PREROUTING": "PREROUTING", "OUTPUT": "OUTPUT"}
_TRANSLATE = ("DNAT", "REDIRECT")


def untracked_by(program: Program, spelled: Spelled, backend: Backend) -> int:
    """The line of the rule of table raw that leaves this packet of another table untracked; 0: none does."""
    raw, chain = program.find("raw"), _BEFORE.get(spelled.chain, "")
    if raw is None or spelled.table == "raw" or chain not in raw:
        return 0
    values = {**spelled.packet.values, Field.STATE: STATES.index("INVALID")}
    if chain == "PREROUTING":
        values[Field.OIF] = 0
    walk = run_assuming(raw, chain, replace(spelled.packet, values=values), backend).walk
    for step in walk.steps:
        if step.outcome is Outcome.YES and leaves_untracked(step.rule):
            return step.rule.line
    return 0


def leaves_untracked(rule: Rule) -> bool:
    target = rule.target
    return target is not None and (
        target.name == "NOTRACK" or (target.name == "CT" and "--notrack" in target.words)
    )


def translated_by(program: Program, box: Mapping[Field, Values]) -> list[int]:
    """The lines of rules of table nat that may change the destination of packets of *box* that come in."""
    nat = program.find("nat")
    if nat is None:
        return []
    return [
        rule.line
        for chain in nat.chains
        if chain.name != "OUTPUT"
        for rule in chain.rules
        if rule.target is not None
        and rule.target.name in _TRANSLATE
        and all(
            field not in box or values.intersect(box[field])
            for field, values in required(rule).items()
            if field is not Field.STATE and field is not Field.OIF
        )
    ]

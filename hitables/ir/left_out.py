"""What was taken for words that a packet's text leaves out, where a reader must know it: a state that is not
NEW, interfaces, the address of the sender's card.
"""

from __future__ import annotations

from .connection_states import why_not_first
from .fields import STATES, Field
from .hooks import hook_box
from .packet_reader import Spelled
from .semantics import Walk


def assumed_state(spelled: Spelled) -> str:
    """What was taken for the state that the words leave out, if it is not that of most first packets."""
    packet = spelled.packet
    why = why_not_first(packet.family, packet.values)
    if not why or "state" not in spelled.left_out or spelled.table in ("raw", "nat"):
        return ""
    return f"state={STATES[packet.values[Field.STATE]]}, as {why}"


# Words that packets have where they have an interface: the field of each, and that interface.
_OF_INTERFACES = {
    "in": (Field.IIF, Field.IIF),
    "out": (Field.OIF, Field.OIF),
    "mac": (Field.MAC, Field.IIF),  # those of lo and of tunnels have none
}


def missing_words(spelled: Spelled, walk: Walk) -> list[tuple[str, list[int]]]:
    """Words left out that packets of the chain have, each with the lines of read rules that ask for it."""
    box = hook_box(spelled.chain, spelled.packet.family)
    found = []
    for word, (asked, interface) in _OF_INTERFACES.items():
        if word not in spelled.left_out or interface not in box or 0 in box[interface]:
            continue
        lines = [
            step.rule.line
            for step in walk.steps
            if any(test.field is asked for match in step.rule.matches for test in match.tests)
        ]
        if lines:
            found.append((word, lines))
    return found

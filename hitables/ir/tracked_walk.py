"""A packet's walk, with the states that CT and NOTRACK give it: they are certain, though its words lack them.

Both targets do nothing to a packet that has a connection, or is UNTRACKED.  CT without --notrack attaches a
template, which rules take for a NEW connection, and which NOTRACK leaves (xt_CT.c).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .fields import STATES, Field
from .packet import Backend, Outcome, Packet
from .rule import Metadata, Target
from .semantics import Chains, Walk, run

INVALID, UNTRACKED, NEW = (STATES.index(name) for name in ("INVALID", "UNTRACKED", "NEW"))


def untracks(target: Target) -> bool:
    """Whether it makes a packet UNTRACKED that has no connection yet."""
    return target.name == "NOTRACK" or "--notrack" in target.words


def run_tracked(
    table: Chains,
    chain: str,
    packet: Packet,
    backend: Backend,
    walk_of: Callable[[Chains, str, Packet, Backend], Walk] = run,
) -> Walk:
    """*walk_of*, with the states that CT and NOTRACK give the packet; its own answers go before."""
    states: dict[int, int] = {}

    def rewritten(field: Field, epoch: int) -> int | None:
        given = packet.rewritten(field, epoch)
        return states.get(epoch) if given is None and field is Field.STATE else given

    told = replace(packet, rewritten=rewritten)
    while True:  # each round knows one state more: a walk up to a write depends on those before it
        walk = walk_of(table, chain, told, backend)
        written = states_written(walk, packet)
        if written == states:
            return walk
        states = written


def states_written(walk: Walk, packet: Packet) -> dict[int, int]:
    """The states that CT and NOTRACK gave *packet* on its walk, by the number of writes, as far as known."""
    state = packet.values.get(Field.STATE)
    states: dict[int, int] = {}
    for step in walk.steps:
        if any(Metadata.CT in match.writes for match in step.rule.matches):
            break  # how often it was evaluated is not told
        target = step.rule.target
        if step.outcome is not Outcome.YES or target is None or Metadata.CT not in target.writes:
            continue
        if state is None or target.name not in ("CT", "NOTRACK"):
            break
        if state == INVALID:
            state = UNTRACKED if untracks(target) else NEW
        given = packet.rewritten(Field.STATE, len(states) + 1)
        state = state if given is None else given
        states[len(states) + 1] = state
    return states

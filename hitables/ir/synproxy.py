"""Which packets SYNPROXY takes from the rules (xt_SYNPROXY): it answers a SYN, and an ACK ends there.

The ACK either completes its handshake or is dropped.  Packets with other flags go on to the next rule.  The
connection that SYNPROXY opens for a client passes no rule of the chain that it stands in.

The target has Ends.MAYBE: proofs need no more, as both programs apply it alike.
"""

from __future__ import annotations

from dataclasses import replace

from .fields import Field
from .intervals import Values
from .packet import Packet
from .packet_text import FLAGS
from .program import Table
from .rule import Ends, Rule, Target

_ASKED = FLAGS["SYN"] | FLAGS["ACK"] | FLAGS["RST"] | FLAGS["FIN"]
# Of Field.FLAGS.
TAKEN = Values.only(*(flags for flags in range(64) if flags & _ASKED in (FLAGS["SYN"], FLAGS["ACK"])))


def is_synproxy(target: Target | None) -> bool:
    """Whether it is SYNPROXY, and no chain of that name."""
    return target is not None and target.name == "SYNPROXY" and target.ends is Ends.MAYBE


def taking(table: Table, packet: Packet) -> Table:
    """*table*, in which SYNPROXY ends the way of *packet* if its flags are such."""
    if packet.values.get(Field.FLAGS, 0) not in TAKEN:
        return table
    chains = {
        chain.name: chain.with_rules(tuple(map(_ending, chain.rules)))
        for chain in table.chains
        if any(is_synproxy(rule.target) for rule in chain.rules)
    }
    return table.of({**table.by_name(), **chains}) if chains else table


def _ending(rule: Rule) -> Rule:
    target = rule.target
    if target is None or not is_synproxy(target):
        return rule
    return rule._replace(target=replace(target, ends=Ends.SURELY))

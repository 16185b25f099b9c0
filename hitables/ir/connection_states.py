"""The states of connections that packets have in each table.

Connections are looked up behind table raw: there a packet is INVALID, whatever it is later.  A packet of lo
comes in at PREROUTING as it left OUTPUT, and answers of REJECT and SYNPROXY go out with a connection.  Table
nat is consulted for the first packet of a connection only (tests/kernel/test_connection_states.py).

Proofs use nothing of this: they consider each state in each table.
"""

from __future__ import annotations

from .fields import interface_number

# States without what nat has changed.
STATE_NAMES = ("NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED")
LOOPBACK = interface_number("lo")
_WHY = {
    "raw": (
        "packets of table raw have no connection yet: they are INVALID, but for those that come in at lo, "
        "and answers of REJECT and SYNPROXY"
    ),
    "nat": "table nat sees the first packet of a connection only, which is NEW or RELATED",
}


def states_of(table: str, is_loopback: bool) -> tuple[str, ...]:
    """The states that packets have in *table*, but for answers of REJECT and SYNPROXY.

    *is_loopback*: packets that come in at lo.
    """
    if table == "raw" and not is_loopback:
        return ("INVALID",)
    return ("NEW", "RELATED") if table == "nat" else STATE_NAMES


def first_state(table: str, is_loopback: bool) -> str:
    """The state in *table* of the first packet of a connection."""
    return states_of(table, is_loopback)[0]


def why_no_state(table: str, is_loopback: bool, state: str) -> str:
    """Why packets of *table* do not have this state (of STATES); "" if they may."""
    return "" if state.partition("+")[0] in states_of(table, is_loopback) else _WHY[table]

"""The states of connections that packets have in each table.

Connections are looked up behind table raw: there a packet is INVALID, whatever it is later.  A packet of lo
comes in at PREROUTING as it left OUTPUT, and answers of REJECT and SYNPROXY go out with a connection.  Table
nat is consulted for the first packet of a connection only.  Not every packet begins a connection: an error of
ICMP belongs to the one whose packet it quotes, neighbour discovery to none
(tests/kernel/test_connection_states.py).

The engines use nothing of this: to them each packet may have each state in each table.  `check` and `diff`
leave out packets that no kernel has (unreal.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from .fields import ICMP, ICMPV6, TCP, Family, Field, interface_number

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


# Types of ICMP, of the family's own: requests, which begin a connection; errors, which quote a packet of one;
# and what is never tracked, neighbour discovery and the reports of listeners.
ICMP_OF = {Family.IPV4: ICMP, Family.IPV6: ICMPV6}
REQUESTS = {Family.IPV4: (8, 13, 15, 17), Family.IPV6: (128, 139)}
_ERRORS = {Family.IPV4: (3, 4, 5, 11, 12), Family.IPV6: (*range(128), 137)}
_NOT_TRACKED = {Family.IPV4: (), Family.IPV6: (*range(130, 137), 143)}

_FIN, _SYN, _RST, _PSH, _ACK, _URG = (1 << bit for bit in range(6))
# Flags of tcp, PSH aside, by which the kernel takes a packet for the first that it sees of a connection; and
# all others of which it makes one that is not INVALID at once.
_BEGIN = frozenset({_SYN, _SYN | _URG, _ACK, _ACK | _URG})
_GO_ON = frozenset({_SYN | _ACK, _RST, _RST | _ACK, _FIN | _ACK, _FIN | _ACK | _URG})


def states_of(table: str, is_loopback: bool) -> tuple[str, ...]:
    """The states that packets have in *table*, but for answers of REJECT and SYNPROXY.

    *is_loopback*: packets that come in at lo.
    """
    if table == "raw" and not is_loopback:
        return ("INVALID",)
    return ("NEW", "RELATED") if table == "nat" else STATE_NAMES


def first_state(table: str, is_loopback: bool, of_kind: str = "NEW") -> str:
    """The state in *table* of a packet that would have *of_kind* behind table raw."""
    states = states_of(table, is_loopback)
    return of_kind if of_kind in states else states[0]


def why_no_state(table: str, is_loopback: bool, state: str) -> str:
    """Why packets of *table* do not have this state (of STATES); "" if they may."""
    return "" if state.partition("+")[0] in states_of(table, is_loopback) else _WHY[table]


# ---- by kind of packet ----


def state_without_connection(family: Family, values: Mapping[Field, int | None]) -> str:
    """The state behind table raw of a packet of no connection that the kernel has seen; *values* by field.

    An error of ICMP is taken for one about a packet of a connection: RELATED.
    """
    why, states = _of_kind(family, values)
    return states[0] if why else "NEW"


def why_not_first(family: Family, values: Mapping[Field, int | None]) -> str:
    """Why a packet of this kind begins no connection; "" if some may."""
    return _of_kind(family, values)[0]


def why_not_of_kind(family: Family, values: Mapping[Field, int | None], state: str) -> str:
    """Why no packet of this kind has this state (of STATES) in tables behind raw; "" if some may."""
    why, states = _of_kind(family, values)
    sure = not why or state.partition("+")[0] in (*states, "UNTRACKED")
    return "" if sure else f"{why}: it is {' or '.join(states)}"


def _of_kind(family: Family, values: Mapping[Field, int | None]) -> tuple[str, tuple[str, ...]]:
    """Why a packet of this kind begins no connection, and its states; "" of one that may begin one."""
    icmp, flags = values.get(Field.ICMP), values.get(Field.FLAGS)
    if values.get(Field.PROTO) == ICMP_OF[family] and icmp is not None:
        kind = icmp >> 8
        if kind in _NOT_TRACKED[family]:
            return "a packet of neighbour discovery or of multicast listeners is not tracked", ("UNTRACKED",)
        if kind in _ERRORS[family]:
            return "an error of ICMP begins no connection", ("RELATED", "INVALID")
        if kind not in REQUESTS[family]:
            return "an answer of ICMP begins no connection", ("INVALID", "ESTABLISHED")
    if values.get(Field.PROTO) == TCP and flags is not None and flags & ~_PSH not in _BEGIN:
        if flags & ~_PSH not in _GO_ON:
            return "no packet of a connection has these flags", ("INVALID",)
        # What follows a first packet that was not answered has its state, if it is no answer itself.
        as_the_first = () if flags & _SYN else ("NEW", "RELATED")
        states = ("INVALID", "ESTABLISHED", *as_the_first)
        return "a packet of tcp with these flags begins no connection", states
    return "", ()

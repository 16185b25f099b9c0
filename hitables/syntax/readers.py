"""Readers of options that test header fields: the values of an option to `Test`s.

`field_test` and `family_test` build a reader from a function of values.py; the others are for the matches
of ports, flags and connection states.  Used by the rows of `extensions/` and by the header options
(options.py).
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.fields import Family, Field
from ..ir.intervals import Values
from ..ir.rule import Test
from . import values as spelt
from .extension import Reader

_STATES = ("INVALID", "NEW", "ESTABLISHED", "RELATED", "UNTRACKED")


def field_test(target: Field, read: Callable[[str], Values]) -> Reader:
    """A reader for an option whose one value is a set of values of *target*."""
    return lambda words, family: (Test(target, read(words[0])),)


def family_test(target: Field, read: Callable[[str, Family], Values]) -> Reader:
    """As `field_test`, where the family decides how the value is read."""
    return lambda words, family: (Test(target, read(words[0], family)),)


def port_tests(read: Callable[[str], Values]) -> dict[str, Reader]:
    """The readers of --sport and --dport."""
    return {"--sport": field_test(Field.SPORT, read), "--dport": field_test(Field.DPORT, read)}


def tcp_range(text: str) -> Values:
    """As `values.port_range`, but refuses a reversed range: tcp does, while udp accepts it and never
    matches.
    """
    ports = spelt.port_range(text)
    if not ports:
        raise ValueError(f"invalid port range {text!r}: its low end is above its high end")
    return ports


def state_test(*extra: str) -> Reader:
    """A reader of connection states, *extra* ones included."""
    return lambda words, family: (Test(Field.STATE, spelt.states(words[0], _STATES + extra)),)


def _either_port(words: tuple[str, ...], family: Family) -> tuple[Test, ...]:
    ports = spelt.port_list(words[0])
    return Test(Field.SPORT, ports), Test(Field.DPORT, ports)


# The kernel knows the port that a packet leaves by for as long as the packet is bridged.
PHYSDEV: dict[str, Reader] = {
    "--physdev-in": field_test(Field.PHYSIN, spelt.bridge_port),
    "--physdev-out": field_test(Field.PHYSOUT, spelt.bridge_port),
    "--physdev-is-bridged": lambda words, family: (Test(Field.PHYSOUT, spelt.ANY_PORT),),
}
TCP: dict[str, Reader] = {
    **port_tests(tcp_range),
    "--tcp-flags": lambda words, family: (Test(Field.FLAGS, spelt.tcp_flags(words[0], words[1])),),
    "--syn": lambda words, family: (Test(Field.FLAGS, spelt.tcp_flags("SYN,RST,ACK,FIN", "SYN")),),
}
MULTIPORT: dict[str, Reader] = {
    "--sports": field_test(Field.SPORT, spelt.port_list),
    "--dports": field_test(Field.DPORT, spelt.port_list),
    "--ports": _either_port,
}

"""Which fields a rule limits to few values: by these, rules are put in parts of a list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain as row
from operator import attrgetter

from .fields import Family, Field, top
from .intervals import Values
from .rule import Match, Role, Rule
from .semantics import CUT_NUMBERS

# Addresses, ports and interfaces, each a bit.
_FIELDS = (
    *(Field.SRC, Field.DST, Field.SPORT, Field.DPORT),
    *(Field.IIF, Field.OIF, Field.PHYSIN, Field.PHYSOUT),
)
BITS = {field: 1 << at for at, field in enumerate(_FIELDS)}
# Numbers that trees cut, by attribute: such rules may be a block of a list.
NUMBER_BITS = {name: 1 << at for at, name in enumerate(CUT_NUMBERS, len(BITS))}
# A rule that must be read when the list reads it, and once.
BOUND = -1
# A test of more than one value in so many tells too few packets apart.
NARROW = 128


def narrow_fields(rules: Sequence[Rule], family: Family) -> list[int]:
    """By rule: the fields that it limits to few values, as bits; BOUND if it asks a memory or chance.

    A field that all rules which limit it limit to the same values (`-o eth0`) is left out: it tells no two
    apart.
    """
    matches_of = list(map(attrgetter("matches"), rules))
    # Rules share equal matches, so each need be looked at once.
    distinct = {id(match): match for match in row.from_iterable(matches_of)}
    known = {key: _of(match, family) for key, match in distinct.items()}
    for bit in (*BITS.values(), *NUMBER_BITS.values()):
        keys = {distinct[key].key for key, bits in known.items() if bits > 0 and bits & bit}
        if len(keys) == 1:
            known = {key: bits if bits == BOUND else bits & ~bit for key, bits in known.items()}
    limited = []
    for matches in matches_of:
        bits = 0
        for match in matches:
            bits |= known[id(match)]
        limited.append(bits)
    return limited


def may_drop(match: Match, family: Family) -> bool:
    """Whether the match may drop a packet whose header is broken, or (IPv6, in legacy) hides its protocol."""
    drops = bool(match.needs or match.strict or match.option)
    return drops or (match.is_protocol and family is Family.IPV6)


def _of(match: Match, family: Family) -> int:
    if match.role not in (Role.SPACE, Role.CONSTANT):
        return BOUND
    if match.either:
        return 0
    bits = 0
    if match.number is not None and match.number.values.count == 1:
        bits = NUMBER_BITS.get(match.number.attribute, 0)
    for field, values in match.tests:
        if field in BITS and values and _is_narrow(values, top(field, family)):
            bits |= BITS[field]
    return bits


def _is_narrow(values: Values, most: int) -> bool:
    """Whether they are no more than one of NARROW equal parts of the values up to *most*."""
    return NARROW * (values.count - 1) < most

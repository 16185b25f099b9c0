"""The matches and targets of iptables 1.8.9: one row for each, in a module for each subject.

A row (`extension.py`) holds all that the compiler knows about an extension, so the parser, the printer, the
proof, the tests and the docs read the same text.  A row's helpers, which only its subject needs, are above
it in its module; checks and writers of values that several subjects share are in `value_checks.py` and
`writers.py`.

An extension without a row gets the role that can do no harm: a match is ONCE, a target may end the traversal,
and both may read and write every state, unless `other_packages.py` knows better.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..extension import Extension
from . import (
    addresses,
    connections,
    host,
    ip_header,
    marking,
    memory,
    payload,
    reporting,
    rewriting,
    translation,
    transport,
    verdicts,
)


def _by_name(*groups: Iterable[Extension]) -> dict[str, Extension]:
    rows = sorted((row for group in groups for row in group), key=lambda row: row.name)
    table = {row.name: row for row in rows}
    assert len(table) == len(rows), "two rows for one extension"
    return table


MATCHES = _by_name(
    addresses.MATCHES,
    connections.MATCHES,
    host.MATCHES,
    ip_header.MATCHES,
    memory.MATCHES,
    payload.MATCHES,
    transport.MATCHES,
)
TARGETS = _by_name(
    marking.TARGETS,
    reporting.TARGETS,
    rewriting.TARGETS,
    translation.TARGETS,
    verdicts.TARGETS,
)

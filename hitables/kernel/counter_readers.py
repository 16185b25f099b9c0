"""The rules in the kernel that read the counters of ipsets, in any table of either family and backend.

Sets are not those of one table: a set of ports, marks or interfaces may be matched in both families, and
packets pass the tables of both backends.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.set_counters import may_read_counters
from ..rule_lines import lines_of
from . import contents_nft
from .checked_save import backend_of, tables_present
from .legacy_lock import legacy_lock
from .namespace import run


@dataclass(frozen=True, slots=True)
class CounterReader:
    """A rule that reads counters, as a *line* of iptables-save; "": there may be some in unread tables."""

    family: Family
    backend: Backend
    table: str = ""
    line: str = ""


def counter_readers() -> Iterator[CounterReader]:
    """The rules that may read counters of ipsets."""
    for family in Family:
        for backend in Backend:
            try:
                saved = _saved(family, backend)
            except LiveError:
                yield CounterReader(family, backend)
                continue
            table = ""
            for line in lines_of(saved):
                if line.startswith("*"):
                    table = line[1:]
                elif line.startswith("-A") and may_read_counters(line):
                    yield CounterReader(family, backend, table, line)


def _saved(family: Family, backend: Backend) -> str:
    """The output of iptables-save; LiveError if it lacks rules."""
    if not any(busy for _, busy in tables_present(family, backend)):
        return ""  # the tool may be missing; that of legacy would create a table
    tool = _tool(family, backend)
    if backend is Backend.NFT and any(contents_nft.table_flags(family).values()):
        raise LiveError(f"{tool} would wake a dormant table")
    with legacy_lock(backend is Backend.LEGACY):
        saved = run([tool])
    if " is incompatible, " in saved:
        raise LiveError(f"{tool} does not print all rules")
    return saved


def _tool(family: Family, backend: Backend) -> str:
    """The iptables-save of *backend*; hosts may have no other name of it than iptables-save."""
    named, plain = f"{family.tool}-{backend.value}-save", f"{family.tool}-save"
    return plain if shutil.which(named) is None and backend_of(plain) is backend else named

"""What an extension reads and writes, besides the header fields that its match tests.

Each row of `extensions/` names these states and, as its source, the kernel files that bear the row out
(below net/ of Linux 6.1).  The default denies: a match without a source reads and writes every state, and a
target without one writes every state.  Extensions that the kernel at hand lacks have no source, because
`make matrix` cannot test them against that kernel (docs/matrix.md): CLUSTERIP, CONNSECMARK, LED, MIRROR,
SAME, SECMARK, ULOG, ipvs, quota2.

Both proof engines read these states, so the proof does not detect a row that omits one: only `make matrix`
does.

A match that writes does so whenever the kernel evaluates it, whatever its result: some write and then fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..ir.rule import EVERYTHING, Metadata


@dataclass(frozen=True, slots=True)
class Access:
    """The states that an extension *reads* and *writes*.

    writes_with  by option: the states that it writes only if the rule has that option
    source       the kernel files that bear this out, below net/
    """

    reads: frozenset[Metadata] = EVERYTHING
    writes: frozenset[Metadata] = EVERYTHING
    writes_with: Mapping[str, frozenset[Metadata]] = field(default_factory=dict)
    source: str = ""

    def writes_by(self, options: Iterable[str]) -> frozenset[Metadata]:
        """The states that it writes in a rule with these of its *options*."""
        return self.writes.union(*(self.writes_with.get(option, ()) for option in options))


UNKNOWN = Access()


def states(names: str) -> frozenset[Metadata]:
    """The states named by *names*, separated by blanks; "*" names all."""
    return EVERYTHING if names == "*" else frozenset(Metadata[name] for name in names.split())

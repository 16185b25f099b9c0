"""What reading a rule costs, in nanoseconds, by the first match that tells packets apart.

Figures measured on Linux 6.18 (docs/how-it-works.md, "What a rule costs"); kinds of
match that were not measured count as a call of an xtables match.
"""

from __future__ import annotations

from ..ir.packet import Backend
from ..ir.rule import Match, Rule

# By what is tested, for a test that misses: (legacy, nft).
_HEADER = {
    "-s": (2.0, 3.6),
    "-d": (2.0, 3.6),
    "-i": (2.0, 5.0),
    "-o": (2.0, 5.0),
    "-p": (2.0, 3.6),
    "-f": (2.0, 3.6),
}
_PORTS = (23.0, 14.0)
_XTABLES = (22.0, 40.0)
_ALONE = (2.0, 2.0)
# nf_tables loads three bytes for a /24, which falls out of its fast path.
_NFT_PREFIX = {32: 2.6, 24: 33.0, 16: 5.5, 8: 5.5}


def _match_cost(match: Match, backend: Backend) -> float:
    at = 0 if backend is Backend.LEGACY else 1
    if match.name:
        return _PORTS[at] if match.native else _XTABLES[at]
    option, value = match.words[-2:] if len(match.words) > 1 else (match.words[-1], "")
    if at and option in ("-s", "-d"):
        length = value.partition("/")[2] or "32"
        return _NFT_PREFIX.get(int(length), _HEADER[option][1]) if length.isdigit() else _HEADER[option][1]
    return _HEADER[option][at]


def rule_cost(rule: Rule, backend: Backend) -> float:
    """Nanoseconds to read *rule* and find that it does not match."""
    if not rule.matches:
        return _ALONE[0 if backend is Backend.LEGACY else 1]
    return _match_cost(rule.matches[0], backend)

"""Rules that make the kernel track connections, or reassemble fragments, by being loaded.

The kernel does so for all packets of a family while such a rule is in any table, whether or not a packet
reaches it.  Without one, rules meet every fragment by itself, and later fragments have no ports.
"""

from __future__ import annotations

from ..ir.program import Program
from ..ir.rule import EVERYTHING, Match, Metadata, Role, Rule, Target
from ..ir.tracked_walk import untracks
from ..syntax.extensions import MATCHES, TARGETS

# Targets that have this effect, but for `CT --notrack`.
TRACKING_TARGETS = frozenset(name for name, target in TARGETS.items() if target.tracks)
_REASSEMBLE_ONLY = frozenset({"socket", "TPROXY"})  # they ask for whole packets, not for connections


def match_tracks(match: Match) -> bool:
    """Whether connections are tracked, or fragments put together, while a rule with this match is loaded."""
    if match.role is Role.SPACE and not match.name:  # the options of a rule itself, such as -s
        return False
    reads_ct = Metadata.CT in match.reads and match.reads != EVERYTHING
    return reads_ct or (match.name in MATCHES and MATCHES[match.name].tracks)


def target_tracks(target: Target) -> bool:
    """Whether connections are tracked, or fragments put together, while a rule with this target is loaded."""
    return target.name in TRACKING_TARGETS and not untracks(target)


def rules_that_track(program: Program) -> list[Rule]:
    """Those for which the kernel tracks connections, and therefore reassembles fragments."""
    return [rule for rule in program.rules() if _loads(rule) - _REASSEMBLE_ONLY]


def rules_that_reassemble(program: Program) -> list[Rule]:
    """Those for which the kernel reassembles fragments."""
    return [rule for rule in program.rules() if _loads(rule)]


def _loads(rule: Rule) -> set[str]:
    """The names of the rule's matches and target that have such an effect."""
    names = {match.name for match in rule.matches if match_tracks(match)}
    if rule.target is not None and target_tracks(rule.target):
        names.add(rule.target.name)
    return names

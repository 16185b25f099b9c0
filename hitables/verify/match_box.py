"""The box of header fields outside of which a rule cannot affect a packet.

Invariant: the box may be larger than needed, never smaller.

Users: lint.py, which runs the prover on that box only.
"""

from __future__ import annotations

from collections.abc import Sequence

from hitables.ir.fields import Family, Field
from hitables.ir.hooks import Box, hook_box
from hitables.ir.intervals import Values
from hitables.ir.rule import Match, Role

from .packet_classes import PacketClass


class MatchBox:
    """Where a packet must be, in a class, to match all of *matches* or be dropped by one of them that is -p.

    written  fields that some rule of the table may change: a test of them restricts no packet as it enters
    """

    def __init__(self, matches: Sequence[Match], written: set[Field], family: Family) -> None:
        self.family = family
        self.tests: dict[Field, Values] = {}
        self.before_protocol: dict[Field, Values] | None = None  # tests before the first -p
        for match in matches:
            if match.is_protocol and self.before_protocol is None:
                self.before_protocol = dict(self.tests)
            if match.either:
                continue
            for test in match.tests:
                if test.field not in written and test.field is not Field.MAC:
                    earlier = self.tests.get(test.field)
                    self.tests[test.field] = (
                        test.values if earlier is None else earlier.intersect(test.values)
                    )

    def of(self, packets: PacketClass, root: str) -> Box | None:
        """The box for packets of the class at *root* ("": anywhere); None: no packet is in it."""
        box = dict(hook_box(root, self.family))
        if packets.protocols is not None:
            box[Field.PROTO] = packets.protocols
        box[Field.FRAG] = Values(((2, 2),)) if packets.later else Values(((0, 1),))
        tests = self.tests
        if packets.cut_short and self.before_protocol is not None:
            tests = self.before_protocol
        for field, values in tests.items():
            if field in packets.present:
                box[field] = values.intersect(box[field]) if field in box else values
                if not box[field]:
                    return None
            elif field not in packets.native:
                return None
        return box


def harmless_matches(matches: Sequence[Match]) -> list[Match]:
    """The matches before the first that may do more than hold or not, except -p (`MatchBox`)."""
    out = []
    for match in matches:
        if match.role is not Role.SPACE or match.needs or match.option:
            break
        out.append(match)
    return out

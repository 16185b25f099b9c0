"""Single packets of a box, as the prover takes them: one coordinate in each field.

Idea: a run on one packet reads few rules, however many the box of a rule meets.  Where it shows a difference
the box has one; where it does not, nothing is known of the box.

Users: lint.py.
"""

from __future__ import annotations

from array import array
from random import Random

from hitables.ir.fields import Field
from hitables.ir.hooks import Box

from .encoding import Encoding
from .packet_classes import PacketClass


def point_words(encoding: Encoding, packets: PacketClass, box: Box, random: Random) -> array[int] | None:
    """dim, 1, low, low of each field: a packet of the class in *box*; None: the box has no coordinate."""
    coordinates = encoding.matches.tests.coordinates
    limits = {**packets.sets(), **box}
    words = array("I")
    for field in Field:
        if field in limits:
            ends = coordinates[field].inside(limits[field])
            if not ends:
                return None
            at = 2 * random.randrange(len(ends) // 2)
            chosen = random.randint(ends[at], ends[at + 1])
        else:
            chosen = random.randrange(coordinates[field].size)
        words.extend((field, 1, chosen, chosen))
    return words

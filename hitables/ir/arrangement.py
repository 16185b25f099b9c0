"""How a list is cut into parts that are read one behind the other, each by a tree of its own.

Rules of one action are read in groups (commuting.py); rules of several kinds by turns are told apart
(crossing.py); lists of different fields are read in turn (blocks.py); those in front that packets of
connections read stand alone (established.py).  The arrangement follows from the list
and its table alone, so that a proof finds it again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from itertools import pairwise

from .blocks import blocks
from .commuting import CountingChains, regrouped
from .crossing import Crossing, crossings
from .established import established_head
from .fields import Family
from .narrow_fields import narrow_fields
from .program import Chain, Table

# A list of more parts has no blocks: each packet would enter each of them.
MOST_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Arrangement:
    """An order of a list that does what the list does.

    order      indices of the rules
    cuts       where parts begin and end in that order, ascending
    crossings  parts whose rules may be told apart first, as they stand in that order
    """

    order: tuple[int, ...]
    cuts: tuple[int, ...]
    crossings: tuple[Crossing, ...]

    def crossing(self, start: int, end: int, *, exact: bool) -> Crossing | None:
        """That of the rules *start* to *end*; None if they are not told apart.

        exact  no packet may be dropped that the list accepts, whatever its header
        """
        for each in self.crossings:
            if (each.start, each.end) == (start, end) and not (exact and each.drops):
                return each
        return None


def arranged(chain: Chain, table: Table, family: Family) -> Arrangement | None:
    """How *chain*, of *table*, may be arranged; None: as it stands, in one part."""
    other = regrouped(chain.rules, CountingChains(table, family))
    order = tuple(range(len(chain.rules))) if other is None else other.order
    cuts = set[int]() if other is None else set(other.cuts)
    rules = chain.rules if other is None else tuple(chain.rules[at] for at in order)
    narrow = narrow_fields(rules, family)
    found = crossings(rules, narrow, table, family, sorted(cuts))
    parts = [(each.start, each.end) for each in found]
    for start, end in pairwise(sorted({0, *cuts, *itertools.chain.from_iterable(parts), len(rules)})):
        if (start, end) not in parts:
            parts += [(start + first, start + last) for first, last in blocks(narrow[start:end])]
    if other is None and not found and (len(parts) < 2 or len(parts) > MOST_BLOCKS):
        return None
    if len(parts) <= MOST_BLOCKS:
        cuts |= set(itertools.chain.from_iterable(parts))
    cuts = (cuts | {established_head(rules)}) - {0, len(rules)}
    return Arrangement(order, tuple(sorted(cuts)), tuple(found))

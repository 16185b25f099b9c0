"""What two sequences do not have in common.

Two ways to a longest common subsequence, for rules rarely repeat, but where they do (thousands of
equal `-j LOG` in one chain) nearly every pair is equal.  Hunt and Szymanski (CACM 20, 1977) look for the
longest rising run among the pairs of equal members, and cost their number; Hyyrö (2004) goes through
all pairs, a row of bits at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence

# Equal pairs for each member from which on rows of bits are faster, and the bits that may be kept of them.
MANY = 30
MOST_BITS = 1 << 32

Pair = tuple[int, int]
_Run = tuple[int, int, "_Run | None"]


def gaps(old: Sequence[Hashable], new: Sequence[Hashable]) -> Iterator[tuple[range, range]]:
    """What stands between the members of a longest common subsequence: places of *old*, of *new*."""
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    end = 0
    while end < min(len(old), len(new)) - first and old[-1 - end] == new[-1 - end]:
        end += 1
    one, two = old[first : len(old) - end], new[first : len(new) - end]
    here = Counter(two)
    equal = sum(here[each] for each in one)
    many = equal > MANY * (len(one) + len(two)) and len(one) * len(two) <= MOST_BITS
    a = b = first
    for at, there in [*(by_bits if many else by_pairs)(one, two), (len(one), len(two))]:
        if (at + first, there + first) != (a, b):
            yield range(a, at + first), range(b, there + first)
        a, b = at + first + 1, there + first + 1


def by_pairs(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Pair]:
    """The places of a longest common subsequence, in order: rising runs among the equal pairs."""
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at in range(len(new) - 1, -1, -1):
        places[new[at]].append(at)
    lowest: list[int] = []  # by length: the lowest place in *new* at which such a run ends
    runs: list[_Run] = []
    for at, member in enumerate(old):
        for there in places.get(member, ()):
            length = bisect_left(lowest, there)
            run: _Run = (at, there, runs[length - 1] if length else None)
            lowest[length : length + 1], runs[length : length + 1] = [there], [run]
    pairs = []
    link = runs[-1] if runs else None
    while link is not None:
        pairs.append(link[:2])
        link = link[2]
    return pairs[::-1]


def by_bits(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Pair]:
    """The same from rows of bits, one per place of *old*; bit j is 0 if a run grows with new[j]."""
    size = len(new) // 8 + 1
    whole = (1 << 8 * size) - 1
    at: defaultdict[Hashable, int] = defaultdict(int)
    for there, member in enumerate(new):
        at[member] |= 1 << there
    row, rows = whole, [b"\xff" * size]
    for member in old:
        both = row & at.get(member, 0)
        row = (row + both | row - both) & whole
        rows.append(row.to_bytes(size, "little"))
    pairs: list[Pair] = []
    i, j = len(old), len(new)
    while i and j:
        byte, bit = divmod(j - 1, 8)
        if rows[i][byte] >> bit & 1:
            j -= 1
        elif rows[i - 1][byte] >> bit & 1:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        else:
            i -= 1
    return pairs[::-1]

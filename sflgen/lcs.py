"""Longest common subsequences of rules, for least edits.

There are two algorithms, because rules rarely repeat, but where they do (thousands of equal `-j LOG`
in one chain) nearly all pairs are equal.  Hunt and Szymanski (CACM 20, 1977) search the longest
increasing sequence among the equal pairs, at a cost of their number; Hyyrö (2004) computes all pairs,
a row of bits at a time.  `gaps` chooses between them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence

# Rows of bits are faster from this many equal pairs per member on; they may take this many bits.
MANY = 30
MOST_BITS = 1 << 32

Pair = tuple[int, int]
_Link = tuple[int, int, "_Link | None"]


def gaps(old: Sequence[Hashable], new: Sequence[Hashable]) -> Iterator[tuple[range, range]]:
    """The ranges of *old* and of *new* between the members of a longest common subsequence."""
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    end = 0
    while end < min(len(old), len(new)) - first and old[-1 - end] == new[-1 - end]:
        end += 1
    one, two = old[first : len(old) - end], new[first : len(new) - end]
    count = Counter(two)
    equal = sum(count[member] for member in one)
    many = equal > MANY * (len(one) + len(two)) and len(one) * len(two) <= MOST_BITS
    a = b = first
    for at, there in [*(by_bits if many else by_pairs)(one, two), (len(one), len(two))]:
        if (at + first, there + first) != (a, b):
            yield range(a, at + first), range(b, there + first)
        a, b = at + first + 1, there + first + 1


def by_pairs(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Pair]:
    """The index pairs of a longest common subsequence, in order, from the equal pairs."""
    indices: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at in range(len(new) - 1, -1, -1):
        indices[new[at]].append(at)
    lowest: list[int] = []  # by length: the lowest index of *new* at which a sequence of it ends
    links: list[_Link] = []  # by length: the last pair of that sequence
    for at, member in enumerate(old):
        for there in indices.get(member, ()):
            length = bisect_left(lowest, there)
            link: _Link = (at, there, links[length - 1] if length else None)
            lowest[length : length + 1], links[length : length + 1] = [there], [link]
    pairs = []
    last = links[-1] if links else None
    while last is not None:
        pairs.append(last[:2])
        last = last[2]
    return pairs[::-1]


def by_bits(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Pair]:
    """The same by rows of bits, one per member of *old*; bit j is 0 if new[j] makes a sequence longer."""
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

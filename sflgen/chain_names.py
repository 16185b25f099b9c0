"""Names of generated chains: the prefix of the settings, and a number.

Invariant: two chains that exist at one time never have one name.  Trees grown in the background do
not see the names that patches take meanwhile, so they take theirs from the other of two ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

NAMES_PER_RANGE = 1_000_000


class GeneratedNames:
    """Which names are those of generated chains: *prefix* and a number."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def is_generated(self, name: str) -> bool:
        """Whether the name is that of a generated chain."""
        return name.startswith(self.prefix) and name[len(self.prefix) :].isdigit()


class ChainNames(GeneratedNames):
    """Fresh names for generated chains of one table.

    used        the names of the table's chains
    name_range  0 or 1: the range of numbers to take names from
    last        the last number that `next` gave; 0: none yet.  The next one is tried first if this is given
    """

    def __init__(self, prefix: str, used: Collection[str], name_range: int = 0, last: int = 0) -> None:
        super().__init__(prefix)
        self.used, self.name_range, self.last = used, name_range, last
        self._free: Iterator[int] | None = None  # computed at the first request

    def next(self) -> str:
        if self._free is None:
            self._free = self._numbers()
        self.last = next(self._free)
        return f"{self.prefix}{self.last}"

    def _numbers(self) -> Iterator[int]:
        first, start = self.name_range * NAMES_PER_RANGE, len(self.prefix)
        yielded: set[int] = set()
        if self.last:  # cheaper than to read the numbers of all names
            for number in range(self.last + 1, first + NAMES_PER_RANGE):
                if f"{self.prefix}{number}" in self.used:
                    break
                yielded.add(number)
                yield number
        suffixes = [name[start:] for name in self.used if name.startswith(self.prefix)]
        used = [int(suffix) for suffix in suffixes if suffix.isdigit()]
        last = max([number for number in used if first < number < first + NAMES_PER_RANGE], default=first)
        yield from range(last + 1, first + NAMES_PER_RANGE)
        taken = yielded.union(used)
        yield from (number for number in range(first + 1, last) if number not in taken)

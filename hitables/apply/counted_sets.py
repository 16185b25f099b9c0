"""Whether matches of ipsets have memory in an apply: some rule reads the counters of ipsets.

That rule may be in a table that the apply leaves as it is, in a chain of another program, in the other
family, or in the file of the other family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ..ir.fields import Family
from ..ir.foreign import is_foreign
from ..ir.packet import Backend
from ..ir.set_counters import may_match_sets, may_read_counters
from ..kernel.counter_readers import CounterReader, counter_readers
from ..parse.lines import split, unquote

_TABLE = re.compile(r"^\s*\*\s*(\w+)", re.MULTILINE)


@dataclass
class CountedSets:
    """*files*: the texts that are applied, for *backends*; *patterns*: the chains that are left.

    The kernel is asked once, and only if a rule matches a set.
    """

    files: Mapping[Family, str]
    backends: Mapping[Family, Backend]
    patterns: Sequence[str]

    def matter_to(self, text: str) -> bool:
        """Whether the matches of ipsets in *text* have memory."""
        return may_match_sets(text) and self._are_read

    @cached_property
    def _are_read(self) -> bool:
        if any(map(may_read_counters, self.files.values())):
            return True
        return not all(map(self._is_replaced, counter_readers()))

    def _is_replaced(self, reader: CounterReader) -> bool:
        """Whether the apply takes the rule out of the kernel: it is in a table of a file, and no other's."""
        if reader.backend is not self.backends.get(reader.family):
            return False
        if reader.table not in _TABLE.findall(self.files[reader.family]):
            return False
        words = [unquote(word) for word, _ in split(reader.line)]
        targets = [word for option, word in pairwise(words) if option in ("-j", "-g")]
        return not any(is_foreign(name, self.patterns) for name in (words[1], *targets))

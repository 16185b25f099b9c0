"""Rules that a patch deletes or replaces, printed by the tool that loads it.

The tool reads the rules of a table once, and executes all commands of the patch on these.  So a command that
lists rule 7, in front of a line that deletes rule 7, prints the rule that is deleted.  If another program has
inserted a rule meanwhile, that may be its rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hitables.errors import LiveError
from hitables.parse.lines import PRINTED_NAME
from hitables.rule_lines import lines_of, with_ends

_BY_NUMBER = re.compile(rf"(?:\[\d+:\d+\] )?-([DR]) ({PRINTED_NAME}) (\d+)(?!\S)")  # option, chain, number
_RULE, _CHAIN = "-A ", ("-P ", "-N ")  # how what the tool lists begins

# To list one rule the tool walks along its chain, and to list the chain it prints all.  For so many deletions
# in a row the second is faster.
MANY = 64


@dataclass(frozen=True, slots=True)
class Listing:
    """A patch with commands that print rules.

    text    the patch, with a command before each line, or each row of lines, that deletes or replaces rules
    added   the numbers of the commands among the lines of *text*, from 1
    rows    for each command the numbers of rules, as the lines behind it have them, if it prints the whole
            chain; () if it prints one rule
    """

    text: str
    added: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]

    def deleted(self, output: str) -> list[str]:
        """The rules that the patch has deleted or replaced, in its order; *output*: that of the tool."""
        rules: list[str] = []
        chains: list[list[str]] = [rules]  # what is printed before the first whole chain, and from each on
        for line in lines_of(output):
            if line.startswith(_CHAIN):
                chains.append([])
            elif line.startswith(_RULE):
                chains[-1].append(line)
        printed = iter(chains)
        deleted = list(next(printed))
        for numbers, singles in self._whole_chains():
            chain = next(printed, [])
            end = len(chain) - singles
            kept, behind = chain[:end], chain[end:]
            for number in numbers:
                if number > len(kept):
                    raise LiveError(f"the tool lists {len(kept)} rules, and the patch deletes rule {number}")
                deleted.append(kept.pop(number - 1))
            deleted += behind
        return deleted

    def _whole_chains(self) -> list[tuple[tuple[int, ...], int]]:
        """The numbers of each command that prints a whole chain, and how many print one rule behind it."""
        found: list[tuple[tuple[int, ...], int]] = []
        for numbers in self.rows:
            if numbers:
                found.append((numbers, 0))
            elif found:
                found[-1] = found[-1][0], found[-1][1] + 1
        return found


def with_listings(patch: str) -> Listing:
    """*patch* with a command before each line that deletes or replaces a rule, which prints the rule."""
    lines: list[str] = []
    added: list[int] = []
    rows: list[tuple[int, ...]] = []

    def add(command: str, numbers: Sequence[int] = ()) -> None:
        lines.append(command)
        added.append(len(lines))
        rows.append(tuple(numbers))

    matched = ((line, _BY_NUMBER.match(line)) for line in with_ends(patch))
    for key, group in groupby(matched, lambda each: each[1] and each[1].group(1, 2)):
        row = list(group)
        numbers = [int(found[3]) for _, found in row if found]
        if key and key[0] == "D" and len(row) >= MANY:
            add(f"-v -S {key[1]}\n", numbers)
            lines += [line for line, _ in row]
            continue
        for line, found in row:
            if found:
                add(f"-v -S {found[2]} {found[3]}\n")
            lines.append(line)
    return Listing("".join(lines), tuple(added), tuple(rows))

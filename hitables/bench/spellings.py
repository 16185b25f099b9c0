"""Spellings of every option of every extension of iptables 1.8.9: what the saves are tried with.

They stand in spellings.txt.  A section is an extension: how its rules begin, the families, table and chain
they are loaded in.  A line of it is one meaning; its spellings stand between " == ".  Lines of one section
differ in meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..ir.fields import Family


@dataclass(frozen=True, slots=True)
class Section:
    """The spellings of one extension.

    begin     the words in front of its options: "-m mark", "-p tcp -m tcp", "-j MARK"
    meanings  for each meaning its spellings
    """

    begin: str
    families: tuple[Family, ...]
    table: str
    chain: str
    meanings: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        """The extension."""
        found: list[str] = re.findall(r"-[mjg] (\S+)", self.begin)
        return found[-1]

    def rules(self) -> Iterator[tuple[int, str]]:
        """(number of the meaning, rule) for every spelling."""
        for number, spellings in enumerate(self.meanings):
            for options in spellings:
                yield number, " ".join(f"-A {self.chain} {self.begin} {options}".split(" ")).rstrip()

    def text(self, rules: list[str]) -> str:
        """A rule set of these rules."""
        chain = ":chain - [0:0]\n" if "-g chain" in self.begin else ""
        return "".join([f"*{self.table}\n", chain, *(f"{rule}\n" for rule in rules), "COMMIT\n"])


_FAMILIES = {"4": (Family.IPV4,), "6": (Family.IPV6,), "46": (Family.IPV4, Family.IPV6)}


def _sections(text: str) -> Iterator[Section]:
    head: re.Match[str] | None = None
    meanings: list[tuple[str, ...]] = []
    for line in [*text.splitlines(), "[end] 4 filter INPUT"]:
        if not line or line.startswith("#"):
            continue
        found = re.fullmatch(r"\[(.+)\] (\d+) (\w+) (\w+)", line)
        if found is None:
            meanings.append(tuple("" if each == "-" else each for each in line.split(" == ")))
            continue
        if head is not None:
            yield Section(head[1], _FAMILIES[head[2]], head[3], head[4], tuple(meanings))
        head, meanings = found, []


SECTIONS = tuple(_sections(Path(__file__).with_suffix(".txt").read_text()))

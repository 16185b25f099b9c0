"""Spellings of every option of every extension of iptables 1.8.9: what the saves are tried with.

They stand in spellings.txt.  A section is an extension: how its rules begin, the families, table and chain
they are loaded in.  A line of it is one meaning; its spellings stand between " == ".  Lines of one section
differ in meaning.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hitables.ir.fields import Family


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
        names: list[str] = re.findall(r"-[mjg] (\S+)", self.begin)
        return names[-1]

    def rules(self) -> Iterator[tuple[int, str]]:
        """(number of the meaning, rule) for every spelling."""
        for number, spellings in enumerate(self.meanings):
            for options in spellings:
                yield number, " ".join(f"-A {self.chain} {self.begin} {options}".split(" ")).rstrip()

    def text(self, rules: list[str]) -> str:
        """A rule set of these rules."""
        chain = ":chain - [0:0]\n-A chain -j DROP\n" if "-g chain" in self.begin else ""
        return "".join([f"*{self.table}\n", chain, *(f"{rule}\n" for rule in rules), "COMMIT\n"])

    def drawn(self, rng: random.Random, count: int) -> list[str]:
        """Rules near these: numbers in other bases or changed, lists in another order, options added."""
        spellings = [options for meaning in self.meanings for options in meaning]
        rules = dict.fromkeys(
            f"-A {self.chain} {self.begin} {_changed(rng, spellings)}".rstrip() for _ in range(count)
        )
        return list(rules)


_OPTION = re.compile(r"(?:! )?--?[a-z]\S*(?: (?:\"(?:[^\"\\]|\\.)*\"|(?!-)[^\s!]\S*))*")
_NUMBER = re.compile(r"(?<![\w.:|])(0[xX][0-9a-fA-F]+|[0-9]+)(?![\w.|])")
_NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 1000, 65535, 65536, 2**32 - 1)


def _changed(rng: random.Random, spellings: list[str]) -> str:
    options = _OPTION.findall(rng.choice(spellings))
    if rng.random() < 0.3:
        options += _OPTION.findall(rng.choice(spellings))
    options = [option for option in options if rng.random() < 0.95]
    if rng.random() < 0.3:
        rng.shuffle(options)
    return " ".join(_other(rng, option) for option in options)


def _other(rng: random.Random, option: str) -> str:
    """An option as it was, spelt otherwise, or with another value."""
    way = rng.randrange(7)
    if way == 0:
        return option[2:] if option.startswith("! ") else f"! {option}"
    if way == 1:
        return _NUMBER.sub(lambda number: _in_base(rng, number[1]), option)
    if way == 2:
        return _NUMBER.sub(lambda number: rng.choice((number[1], str(rng.choice(_NUMBERS)))), option)
    if way == 3:
        head, space, values = option.rpartition(" ")
        words = values.split(",")
        rng.shuffle(words)
        return f"{head}{space}{','.join(words)}" if '"' not in values else option
    if way == 4:
        head, space, values = option.rpartition(" ")
        return f"{head}{space}{values.swapcase()}"
    if way == 5:
        return re.sub(r":\d+$|(?<= )\d+(?=:)", lambda number: ":" if number[0][0] == ":" else "", option)
    return option


def _in_base(rng: random.Random, number: str) -> str:
    try:
        value = int(number, 16 if number[:2].lower() == "0x" else 8 if number[0] == "0" else 10)
    except ValueError:
        return number
    return rng.choice((str(value), hex(value), hex(value).upper().replace("X", "x"), f"0{value:o}"))


_FAMILIES = {"4": (Family.IPV4,), "6": (Family.IPV6,), "46": (Family.IPV4, Family.IPV6)}


def _sections(text: str) -> Iterator[Section]:
    head: re.Match[str] | None = None
    meanings: list[tuple[str, ...]] = []
    for line in [*text.splitlines(), "[end] 4 filter INPUT"]:
        if not line or line.startswith("#"):
            continue
        title = re.fullmatch(r"\[(.+)\] (\d+) (\w+) (\w+)", line)
        if title is None:
            meanings.append(tuple("" if each == "-" else each for each in line.split(" == ")))
            continue
        if head is not None:
            yield Section(head[1], _FAMILIES[head[2]], head[3], head[4], tuple(meanings))
        head, meanings = title, []


SECTIONS = tuple(_sections(Path(__file__).with_suffix(".txt").read_text()))

"""The words of a rule cut into parts: header options, matches, the target, each with its options.

Cutting needs the names of options but not their values, except where a value decides the structure
(NeedsWords); so it is done once per line template (line_templates.py).  part_meaning.py turns a part into a
`Match` or `Target`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field

from ..syntax import values as spelt
from ..syntax.extension import Extension, Option
from ..syntax.extensions import MATCHES, TARGETS
from ..syntax.options import (
    GENERAL,
    HEADER,
    HEADER_ORDER,
    LONG_NAMES,
    PROTOCOL_MATCH,
    RESERVED,
    SAME_MATCH,
)
from .lines import LITERAL, UNKNOWN_REVISION, Fault, NeedsWords
from .shell_habits import table_hint
from .value_hints import value_hint

BANG = "!"

_OWN = frozenset(LONG_NAMES.values())


@dataclass(slots=True)
class Use:
    """An option as a rule uses it: inverted or not, the index of its word, the indexes of its values."""

    option: Option
    inverted: bool
    at: int
    values: tuple[int, ...]


@dataclass(slots=True)
class Part:
    """One match (*kind* "match"), header option ("header") or target ("-j", "-g") of a rule.

    extension  None: it has no row; then *unread* are the indexes of its words
    """

    kind: str
    name: str
    at: int
    extension: Extension | None
    uses: list[Use] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)

    def word_indexes(self) -> list[int]:
        return [index for use in self.uses for index in use.values] + self.unread


@dataclass(slots=True)
class RuleParts:
    """A rule's parts: header options in the kernel's order, matches in theirs, the target."""

    matches: list[Part]
    target: Part | None
    counters: tuple[int, int] | None  # indexes of the words behind -c; the same twice: PACKETS,BYTES
    interfaces: frozenset[str]  # of -i and -o, those that the rule has
    families: frozenset[str] = frozenset()  # of -4 and -6, those that the rule has


def nearest(word: str, known: list[str]) -> str:
    """A hint at the known word that *word* resembles; empty if none does."""
    close = difflib.get_close_matches(word, known, 1, 0.6)
    return f"did you mean {close[0]}?" if close else ""


def own_options(word: str) -> set[str]:
    """The short names of iptables' own options that *word* may name, in full or by its beginning."""
    if word in LONG_NAMES or not word.startswith("--") or word == "--":
        return {LONG_NAMES.get(word, word)} & _OWN
    return {short for name, short in LONG_NAMES.items() if name.startswith(word)}


def find_header(word: str) -> str:
    """The short name of the header option that *word* names, "" for none."""
    named = own_options(word)
    return named.pop() if len(named) == 1 and named <= HEADER.keys() else ""


class _Cutter:
    """Cuts the words behind the command of a rule into parts."""

    def __init__(self, words: list[str], start: int) -> None:
        self.words, self.at = words, start
        self.header: dict[str, Part] = {}
        self.matches: list[Part] = []
        self.target: Part | None = None
        self.counters: tuple[int, int] | None = None
        self.families: set[str] = set()
        self.latest: Part | None = None

    def protocol(self) -> int | None:
        """The number behind -p, None when there is none or it is negated."""
        part = self.header.get("-p")
        if part is None or part.uses[0].inverted:
            return None
        word = self.words[part.uses[0].values[0]]
        if word == LITERAL:
            raise NeedsWords
        try:
            return spelt.protocol(word)
        except ValueError:
            return None

    def take(self, option: Option, at: int) -> tuple[int, ...]:
        first = at + 1
        count = option.values
        if option.optional and (first >= len(self.words) or self.words[first].startswith(("-", BANG))):
            count = 0
        if first + count > len(self.words):
            needed = "a value" if option.values == 1 else f"{option.values} values"
            raise Fault(f"option {self.words[at]} needs {needed}", at)
        self.at = first + count
        return tuple(range(first, first + count))

    def option(self, word: str, at: int) -> tuple[Part | None, Option] | None:
        """The option that *word* names, and the part that has it (None: iptables itself); None for no option.

        As getopt finds it: by a whole name, iptables' own first, then those of the latest part; or by the
        beginning of a name that one option alone has.
        """
        parts = [part for part in [self.target, *reversed(self.matches)] if part is not None]
        tables = [(part, part.extension.options) for part in parts if part.extension is not None]
        whole = word in LONG_NAMES or word in _OWN
        if not whole:
            for part, options in tables:
                if word in options:
                    return part, options[word]
        begins = (
            word.startswith("--")
            and word != "--"
            and not (self.latest and self.may_be_unread(self.latest, word))
        )
        own = own_options(word) if whole or begins else set()
        begun = {
            (part.name, option.name): (part, option)
            for part, options in (reversed(tables) if begins and not whole else ())
            for name, option in options.items()
            if name.startswith(word)
        }
        if len(own) + len(begun) > 1:
            names = {name for name in LONG_NAMES if name.startswith(word)}
            names.update(name for _, options in tables for name in options if name.startswith(word))
            raise Fault(f"{word} may be each of {', '.join(sorted(names))}", at, "write the whole name")
        if begun:
            return next(iter(begun.values()))
        short = next(iter(own), "")
        known = HEADER.get(short) or GENERAL.get(short)
        return (None, known) if known is not None else None

    def load_protocol_match(self, word: str) -> bool:
        """Load the match of the rule's protocol if that match has the option *word* (as -p tcp --dport)."""
        name = PROTOCOL_MATCH.get(self.protocol() or 0)
        if name is None or any(part.name == name for part in self.matches):
            return False
        if not any(option.startswith(word) for option in MATCHES[name].options):
            return False
        self.matches.append(Part("match", name, self.at, MATCHES[name]))
        return True

    def begins_elsewhere(self, index: int) -> bool:
        """Whether the word at *index* ends the words of an unknown extension."""
        word = self.words[index]
        if word == BANG and index + 1 < len(self.words):
            return self.words[index + 1] in HEADER
        return word in HEADER or word in GENERAL

    def may_be_unread(self, part: Part, word: str) -> bool:
        """Whether *word* may be an option of a match or target without a row."""
        return part.extension is None and part.name != "RETURN" and part.kind != "-g" and word.startswith("-")

    def header_option(self, option: Option, inverted: bool, at: int) -> None:
        if option.name in self.header:
            raise Fault(f"a second {option.name}: a rule has one", at)
        part = Part("header", option.name, at, None)
        part.uses.append(Use(option, inverted, at, self.take(option, at)))
        self.header[option.name] = part

    def general(self, option: Option, at: int) -> None:
        if option.name == "-c":
            self.take_counters(option, at)
            return
        indexes = self.take(option, at)
        if option.name in ("-4", "-6"):
            self.families.add(option.name)
        if option.name in ("-4", "-6", "-v", "-M"):
            return
        name = self.words[indexes[0]]
        if option.name == "-m":
            if name == LITERAL:
                raise NeedsWords
            if not name:
                raise Fault("-m needs the name of a match", indexes[0])
            name = SAME_MATCH.get(name, name)
            part = Part("match", name, indexes[0], MATCHES.get(name))
            self.matches.append(part)
            self.latest = part
        else:
            if self.target is not None:
                raise Fault(f"a second {option.name}: a rule has one target", at)
            extension = TARGETS.get(name) if option.name == "-j" else None
            self.target = Part(option.name, name, indexes[0], extension)
            self.latest = self.target

    def take_counters(self, option: Option, at: int) -> None:
        """-c PACKETS BYTES, or -c PACKETS,BYTES."""
        if self.counters is not None:
            raise Fault("a second -c: a rule has one", at)
        first = at + 1
        if first < len(self.words) and self.words[first] == LITERAL:
            raise NeedsWords
        if first < len(self.words) and "," in self.words[first]:
            self.at, self.counters = first + 1, (first, first)
        else:
            self.take(option, at)
            self.counters = (first, first + 1)

    def cut(self) -> RuleParts:
        inverted_at: int | None = None
        while self.at < len(self.words):
            at, word = self.at, self.words[self.at]
            if word == BANG:
                if inverted_at is not None:
                    raise Fault("a second ! in a row", at)
                inverted_at, self.at = at, at + 1
                continue
            inverted, inverted_at = inverted_at is not None, None
            found = self.option(word, at)
            if found is None and word.startswith("-") and self.load_protocol_match(word):
                found = self.option(word, at)
            if found is not None:
                part, option = found
                if part is not None:
                    part.uses.append(Use(option, inverted, at, self.take(option, at)))
                elif option.name in HEADER:
                    self.header_option(option, inverted, at)
                elif inverted:
                    raise Fault(f"{word} cannot be negated", at)
                else:
                    self.general(option, at)
            elif self.latest is not None and self.may_be_unread(self.latest, word):
                first = at - 1 if inverted else at
                end = at + 1
                while end < len(self.words) and not self.begins_elsewhere(end):
                    end += 1
                self.latest.unread.extend(range(first, end))
                self.at = end
            elif word == "--" and not inverted and at + 1 == len(self.words):
                self.at = at + 1
            else:
                raise self.misfit(word, at)
        if inverted_at is not None:
            raise Fault("! with nothing behind it", inverted_at)
        header_parts = [self.header[name] for name in HEADER_ORDER if name in self.header]
        return RuleParts(
            header_parts + self.matches,
            self.target,
            self.counters,
            frozenset(self.header) & {"-i", "-o"},
            frozenset(self.families),
        )

    def check_protocol(self) -> None:
        """Refuse a misspelt protocol: the options of its match are unknown because of it."""
        if "-p" in self.header:
            use = self.header["-p"].uses[0]
            value = use.values[0]
            if self.words[value] == LITERAL:
                raise NeedsWords
            try:
                spelt.protocol(self.words[value])
            except ValueError as error:
                raise Fault(str(error), value, value_hint("-p", self.words[value], use.inverted)) from None

    def stray(self, word: str, at: int) -> str:
        """A hint at a word that is no option's, where it comes from a habit of the shell; or ""."""
        if word.startswith("#"):
            return 'write comments in lines of their own, or as -m comment --comment "TEXT"'
        if any(each.startswith("'") for each in self.words[:at]):
            return "iptables-restore joins words by double quotes only"
        if at > 1 and self.words[at - 1] == "!" and re.fullmatch(r"--?[\w-]+", self.words[at - 2]):
            return f"write ! {self.words[at - 2]} {word}"
        if at > 1 and self.takes_value(self.words[at - 1], at - 1):
            return f"{self.words[at - 2]} took {self.words[at - 1]} for its value, as in iptables"
        return ""

    def takes_value(self, word: str, at: int) -> bool:
        """Whether *word* is the name of an option that has a value."""
        if word in ("-j", "-g", "-m"):
            return True
        known = self.option(word, at) if re.fullmatch(r"-\w|--[\w-]+", word) else None
        return known is not None and known[1].values > 0 and not known[1].optional

    def misfit(self, word: str, at: int) -> Fault:
        if (word, *self.words[at + 1 : at + 2]) == UNKNOWN_REVISION:
            return Fault(
                "iptables-save could not print this rule: it does not know this revision of "
                + self.words[at - 1],
                at,
                "another version of iptables, or a program with one of its own, loaded the rule; print it "
                "with that version, or leave the program's chains out: hitables save --leave PATTERN",
            )
        if not word.startswith("-"):
            said = "this" if word == LITERAL else repr(word)
            return Fault(f"{said} belongs to no option", at, self.stray(word, at))
        if word == "--":
            return Fault("-- ends the options, so iptables reads nothing behind it", at, "leave it out")
        self.check_protocol()
        known = [*GENERAL, *HEADER]
        for part in [*self.matches, self.target]:
            if part is not None and part.extension is not None:
                known += part.extension.options
        name = PROTOCOL_MATCH.get(self.protocol() or 0)
        known += MATCHES[name].options if name else []
        hint = table_hint(self.words, at) or _homes(word) or _apart(word) or _other_case(word)
        hint = hint or nearest(word, known)
        return Fault(f"unknown option {word}", at, hint)


def _apart(word: str) -> str:
    """A hint at a value that is attached to a short option, or is empty behind a long one; or ""."""
    if re.fullmatch(r"-[iogmc][^-].*", word):
        return f"write {word[:2]} {word[2:]}"
    return f'write {word[:-1]} ""' if re.fullmatch(r"--[\w-]+=", word) else ""


def _other_case(word: str) -> str:
    """A hint at the short option that *word* is in capitals or in small letters; or ""."""
    other = word.swapcase()
    return f"did you mean {other}?" if other in HEADER or other in ("-j", "-g", "-m") else ""


def _homes(word: str) -> str:
    """A hint at the matches and targets that have the option *word*; empty if there is none."""
    having = [name for name, extension in MATCHES.items() if word in extension.options]
    homes = [f"-p {name}" for name in PROTOCOL_MATCH.values() if name in having]
    homes = homes or [f"-m {name}" for name in having]
    homes += [f"-j {name}" for name, extension in TARGETS.items() if word in extension.options]
    if not homes:
        return ""
    said = ", ".join(homes[:4]) + (" …" if len(homes) > 4 else "")
    return f"it needs {'one of ' if len(homes) > 1 else ''}{said} in front of it"


def cut(words: list[str], start: int) -> RuleParts:
    """Cut the words from index *start* on into parts; a word that is a value may be LITERAL."""
    return _Cutter(words, start).cut()


def check_chain_name(name: str, word: int, declared: bool = False) -> None:
    """Refuse names that iptables refuses for a user chain.

    *declared*: by a line :NAME, where iptables-legacy accepts names that begin with - or !.
    """
    if len(name.encode("utf-8", "surrogateescape")) > 28:
        raise Fault(f"chain name {name!r} is longer than 28 characters", word)
    if name in RESERVED:
        raise Fault(f"a chain cannot be called {name}", word)
    if not name or (name[0] in "-!" and not declared) or re.search(r"\s", name, re.ASCII):
        raise Fault(f"not a chain name: {name!r}", word)

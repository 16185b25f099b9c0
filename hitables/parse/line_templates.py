"""Line templates: what all lines of one shape have in common, so that a large text is read fast.

The shape of a line is the line without its literals (lines.py).  A shape's words are cut into parts once;
the result is a `LineTemplate`, with a slot for each match and for the target.  To read a line, the reader
fills the slots with the line's literals, and a slot keeps the matches it has made, so equal matches of all
rules are one object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ir.fields import Family
from ..ir.rule import Match, Target
from ..syntax.extensions import MATCHES, TARGETS
from .lines import LITERAL, Fault, NeedsWords, parse, split, unquote
from .part_meaning import check_protocols, extension_match, header_match, target_of
from .rule_parts import Part, RuleParts, cut, find_header

# Extensions that the kernel accepts in some tables or below some chains only.
_SCOPED = frozenset(name for table in (MATCHES, TARGETS) for name, row in table.items() if row.scopes)

COMMANDS = {
    "-A": "-A", "--append": "-A", "-I": "-I", "--insert": "-I", "-N": "-N", "--new-chain": "-N",
    "-P": "-P", "--policy": "-P", "-D": "-D", "--delete": "-D", "-R": "-R", "--replace": "-R",
    "-F": "-F", "--flush": "-F", "-X": "-X", "--delete-chain": "-X", "-E": "-E", "--rename-chain": "-E",
    "-Z": "-Z", "--zero": "-Z", "-L": "-L", "--list": "-L", "-S": "-S", "--list-rules": "-S", "-C": "-C",
    "--check": "-C",
}  # fmt: skip

# --name=value is read as two words.
_SET_OPTION = re.compile(r"(--[A-Za-z][\w-]*)=(.+)", re.DOTALL)
# The header options of which iptables 1.8.10 reads such a word, which older versions refuse.  With -i and -o
# these take the whole word, `--out=e`, for a name.
_TAKES_SET = frozenset({"-s", "-d", "-p"})

# Commands whose chain may be left out: then they concern all chains.
FOR_ALL = ("-F", "-X", "-Z", "-L", "-S")

# A command with the name of its chain attached, as in -AINPUT.
_ATTACHED = re.compile(r"(-[AIDRCNFXEPZLS])([^-].*)", re.DOTALL)

# A chain sees one side only; iptables refuses the other interface there.
NO_INTERFACE = {"-i": frozenset({"OUTPUT", "POSTROUTING"}), "-o": frozenset({"INPUT", "PREROUTING"})}

_NO_PARTS = RuleParts([], None, None, frozenset())

# What iptables-restore has room for: words of a line, bytes of a word, bytes of a line.
MOST_WORDS, LONGEST_WORD, LONGEST_LINE = 251, 1023, 10_239


@dataclass(slots=True)
class Slot:
    """One match or the target of a template.

    literals  the indexes of the literals that it takes
    results   the matches or targets read so far, by `key`
    may_list  whether its literal may be a list of addresses
    address   "-s" or "-d" if it is that, IPv4 and not negated, else ""
    """

    part: Part
    literals: tuple[int, ...]
    results: dict[object, Match | Target] = field(default_factory=dict)
    may_list: bool = False
    address: str = ""

    def key(self, literals: Sequence[str]) -> object:
        """The literals on which the slot's match depends, as a key of `results`."""
        at = self.literals
        return literals[at[0]] if len(at) == 1 else tuple([literals[index] for index in at])


@dataclass(slots=True)
class LineTemplate:
    """What all lines of one shape have in common.

    words       with LITERAL in place of each literal; literal_of maps its index to that of the literal
    target      whether the last slot is the target
    plain       whether the line only appends a rule: -A, no counters
    counted     the index of the literal with the counters, if the line only appends a rule with counters
    unfit       chains in which an interface of the rule does not exist
    row         the matches and the target that need no literal; None where the reader fills in one
    single      (index in row, the slot's results, index of the literal) of each slot that needs one literal
    several     (index in row, slot) of each slot that needs more
    chain_name, chain_literal  the chain, or the index of the literal that names it
    """

    command: str
    chain: int
    number: int | None
    words: list[str]
    literal_of: dict[int, int]
    parts: RuleParts
    slots: list[Slot]
    target: bool
    counters: int | None  # index of the word [packets:bytes] before the command
    plain: bool = False
    counted: int | None = None
    unfit: frozenset[str] = frozenset()
    order: tuple[int, ...] = ()  # the index in the line of each word, where that differs
    chain_name: str = ""
    chain_literal: int | None = None
    row: list[Match | Target | None] = field(default_factory=list)
    single: list[tuple[int, dict[object, Match | Target], int]] = field(default_factory=list)
    several: list[tuple[int, Slot]] = field(default_factory=list)


@dataclass(slots=True)
class Vocabulary:
    """The templates and matches of the texts read so far, for similar texts of one family.

    It makes reading faster, and equal matches of all these texts one object; the programs read do not
    depend on it.

    scoped  whether a text had a match or target that only some tables or chains may have
    """

    templates: dict[str, LineTemplate] = field(default_factory=dict)
    parts: dict[object, dict[object, Match | Target]] = field(default_factory=dict)
    family: Family | None = None
    scoped: bool = False


class ForOtherFamily(Exception):
    """The line is for the other family."""


class LineTemplates:
    """The templates of the lines of texts of one family, and the matches and targets that fill them."""

    def __init__(self, family: Family, known: Vocabulary) -> None:
        assert known.family in (None, family), "a vocabulary of another family"
        known.family = family
        self.family, self.known = family, known

    def of_shape(self, line: str) -> LineTemplate:
        """The plan of a shape."""
        kind, tokens = parse(line)
        if kind != "rule":
            raise Fault("this does not belong here", 0)
        words = [str(token) for token in tokens if token is not None]
        if any(_SET_OPTION.fullmatch(word) for word in words):
            raise NeedsWords
        places = [index for index, word in enumerate(words) if word == LITERAL]
        return self.of_words(words, {index: number for number, index in enumerate(places)})

    def of_line(self, line: str) -> LineTemplate:
        """A template for this line alone, where the structure depends on a literal, or is an odd one."""
        words: list[str] = []
        for word, _ in split(line):
            if word == '"':
                raise Fault("a quote that is never closed", len(words))
            assignment = _SET_OPTION.fullmatch(unquote(word))
            option = find_header(assignment[1]) if assignment and "policy" not in words else ""
            if assignment and option and option not in _TAKES_SET:
                raise Fault(
                    f"versions of iptables differ in how they read {assignment[1]}=",
                    len(words),
                    f"write {option} {assignment[2]}",
                )
            words += assignment.groups() if assignment else [unquote(word)]
        if len(words) > MOST_WORDS:
            raise Fault(f"more than {MOST_WORDS} words; iptables-restore takes no more", MOST_WORDS)
        order = _command_first(words)
        if order == [(at, word) for at, word in enumerate(words)]:
            return self.of_words(words, {})
        places = tuple(place for place, _ in order)
        try:
            template = self.of_words([word for _, word in order], {})
        except Fault as fault:
            fault.word = places[fault.word] if fault.word < len(places) else len(words)
            raise
        template.order = places
        return template

    def of_words(self, words: list[str], literal_of: dict[int, int]) -> LineTemplate:
        """The plan of a line of *words*, of which those in *literal_of* are literals."""
        counters = 0 if words[0].startswith(("[", LITERAL)) else None
        at = 0 if counters is None else 1
        while at < len(words) and words[at] in ("-4", "--ipv4", "-6", "--ipv6"):
            at += 1
        if at == len(words):
            raise Fault("a rule without a command", 0)
        if words[at] not in COMMANDS:
            shown = "" if words[at] == LITERAL else f" {words[at]!r}"
            expected = f"expected one of {', '.join(sorted(set(COMMANDS.values())))}"
            raise Fault(f"unknown command{shown}", at, expected)
        command, chain = COMMANDS[words[at]], at + 1
        if chain >= len(words) and command not in FOR_ALL:
            raise Fault(f"{command} needs a chain", at)
        at = chain + 1
        number = None
        if command in ("-I", "-D", "-R", "-Z", "-L", "-S") and at < len(words):
            if words[at] == LITERAL:
                raise NeedsWords
            if re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]+", words[at]):
                number, at = int(words[at], 16 if words[at][:2] in ("0x", "0X") else 10), at + 1
        if command in ("-P", "-E"):
            at += 1
        takes_rule = command in ("-A", "-I", "-R", "-C") or (command == "-D" and number is None)
        if not takes_rule and at < len(words) and not words[at].startswith("-"):
            shown = "this" if words[at] == LITERAL else repr(words[at])
            raise Fault(f"{shown} belongs to no option", at)
        parts = cut(words, at) if command not in ("-L", "-S") else _NO_PARTS
        if ("-6" if self.family is Family.IPV4 else "-4") in parts.families:
            raise ForOtherFamily
        if not takes_rule:
            _check_without_rule(command, parts)
            parts = _NO_PARTS
        if any(index in literal_of for index in (parts.counters or ())):
            raise NeedsWords
        check_protocols(parts, words, self.family)
        return self._fill_slots(
            LineTemplate(command, chain, number, words, literal_of, parts, [], False, counters)
        )

    def _fill_slots(self, template: LineTemplate) -> LineTemplate:
        """The template with its slots; the matches without literals are read at once."""
        parts = template.parts
        template.target = parts.target is not None
        template.chain_name = template.words[template.chain] if template.chain < len(template.words) else ""
        template.chain_literal = template.literal_of.get(template.chain)
        template.slots = [
            self._slot(part, template.words, template.literal_of)
            for part in [*parts.matches, *([parts.target] if parts.target else [])]
        ]
        appends = template.command == "-A" and parts.counters is None
        template.plain = appends and template.counters is None
        if appends and template.counters is not None:
            template.counted = template.literal_of.get(template.counters)
        template.unfit = frozenset().union(*(NO_INTERFACE[option] for option in parts.interfaces))
        for place, slot in enumerate(template.slots):
            template.row.append(None)
            if len(slot.literals) == 1:
                template.single.append((place, slot.results, slot.literals[0]))
            elif slot.literals or has_list(slot, template.words):
                template.several.append((place, slot))
            else:
                result = slot.results.get(())
                if result is None:
                    result = slot.results[()] = self.result(slot, template.words)
                template.row[place] = result
        return template

    def _slot(self, part: Part, words: list[str], literal_of: dict[int, int]) -> Slot:
        indexes = part.word_indexes()
        if part.kind in ("-j", "-g"):
            indexes = [part.at, *indexes]
        literals = tuple(literal_of[index] for index in indexes if index in literal_of)
        spelling = (
            part.kind,
            part.name,
            tuple((use.option.name, use.inverted, tuple(words[i] for i in use.values)) for use in part.uses),
            tuple(words[i] for i in part.unread),
        )
        may_list = part.kind == "header" and part.name in ("-s", "-d")
        plain = may_list and not part.uses[0].inverted and self.family is Family.IPV4
        return Slot(
            part, literals, self.known.parts.setdefault(spelling, {}), may_list, part.name if plain else ""
        )

    def result(self, slot: Slot, words: list[str]) -> Match | Target:
        """The match or target of the slot in a line of *words*."""
        part = slot.part
        if part.name in _SCOPED:
            self.known.scoped = True
        if part.kind == "header":
            return header_match(part, words, self.family)
        if part.kind == "match":
            return extension_match(part, words, self.family)
        return target_of(part, words, self.family)


def _check_without_rule(command: str, parts: RuleParts) -> None:
    """Refuse the options of a rule behind a *command* that takes none."""
    used = [(part.name, part.at) for part in parts.matches if part.kind == "header"]
    if parts.target is not None:
        used.append((parts.target.kind, parts.target.at - 1))
    if parts.counters is not None and command != "-P":
        used.append(("-c", parts.counters[0] - 1))
    for option, at in used[:1]:
        raise Fault(f"{option} cannot be used with {command}", at)


def fill(template: LineTemplate, literals: Sequence[str]) -> list[str]:
    words = list(template.words)
    for index, literal in template.literal_of.items():
        words[index] = unquote(literals[literal])
    return words


def has_list(slot: Slot, words: list[str]) -> bool:
    part = slot.part
    return part.kind == "header" and part.name in ("-s", "-d") and "," in words[part.uses[0].values[0]]


def _command_first(words: list[str]) -> list[tuple[int, str]]:
    """The words, each with its place, in the order that a line usually has: the command, its chain, the rest.

    iptables takes commands anywhere in the line, shortened, or with the chain attached.
    """
    begins = 1 if words and words[0].startswith("[") else 0
    placed = list(enumerate(words))
    for at in range(begins, len(words)):
        word = words[at]
        if word in COMMANDS:
            command = [(at, word)]
        elif (attached := _ATTACHED.fullmatch(word)) and at == begins:
            command = [(at, attached[1]), (at, attached[2])]
        elif (
            len(commands := {COMMANDS[name] for name in COMMANDS if name.startswith(word)}) == 1 and word[2:]
        ):
            command = [(at, commands.pop())]
        else:
            continue
        chain = 0 if len(command) > 1 else 1
        rest = placed[begins:at] + placed[at + 1 + chain :]
        return placed[:begins] + command + placed[at + 1 : at + 1 + chain] + rest
    return placed

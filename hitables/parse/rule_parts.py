"""Words of a rule to matches and targets, by the table of options.

A rule's words are first cut into `Part`s (one match or the target, with its
options); that needs no values.  A Part then becomes a `Match` or `Target` once
its values are known, so the cutting is done once per line shape.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace

from ..ir.fields import TCP, UDP, Family, Field, top
from ..ir.intervals import Values
from ..ir.rule import EVERYTHING, Ends, Kind, Match, Role, Target, Test
from ..syntax import access, canonical, limits
from ..syntax import values as spelt
from ..syntax.canonical import Said
from ..syntax.options import (
    FOREIGN_TARGETS,
    GENERAL,
    HEADER,
    HEADER_ORDER,
    MATCHES,
    PROTOCOL_MATCH,
    RESERVED,
    SAME_MATCH,
    TARGETS,
    Extension,
    Option,
)
from .lines import LITERAL, Fault, NeedsWords

BANG = "!"


@dataclass(slots=True)
class Use:
    """One option as used: inverted or not, the indexes of its value words, its own index."""

    option: Option
    inverted: bool
    at: int
    values: tuple[int, ...]


@dataclass(slots=True)
class Part:
    """One match (*kind* "match"), header option ("header") or target ("-j", "-g") of a rule.

    extension  None: the table does not know it; then *kept* are its words' indexes
    """

    kind: str
    name: str
    at: int
    extension: Extension | None
    uses: list[Use] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def word_indexes(self) -> list[int]:
        return [index for use in self.uses for index in use.values] + self.kept


@dataclass(slots=True)
class Layout:
    """A rule's parts: header options in the kernel's order, matches in theirs, the target."""

    matches: list[Part]
    target: Part | None
    counters: tuple[int, int] | None  # indexes of the words behind -c; the same twice: PACKETS,BYTES
    interfaces: frozenset[str]  # of -i and -o, those that stand in the rule
    families: frozenset[str] = frozenset()  # of -4 and -6, those that stand in the rule


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1, 0.6)
    return f"did you mean {close[0]}?" if close else ""


def _find(word: str, table: dict[str, Option]) -> Option | None:
    """The option that *word* names in *table*, in full or (long ones) by an unambiguous beginning."""
    if word in table:
        return table[word]
    if not word.startswith("--"):
        return None
    found = {option.name: option for name, option in table.items() if name.startswith(word)}
    return next(iter(found.values())) if len(found) == 1 else None


def find_header(word: str) -> str:
    """The short name of the header option that *word* names, "" for none."""
    option = HEADER.get(word) or _find(word, HEADER)
    return option.name if option is not None else ""


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
            raise Fault(f"option {self.words[at]} needs {option.values} value(s)", at)
        self.at = first + count
        return tuple(range(first, first + count))

    def owner(self, word: str) -> tuple[Part, Option] | None:
        """The part that *word* is an option of: the latest loaded comes first, as in iptables."""
        candidates = [part for part in [self.target, *reversed(self.matches)] if part is not None]
        for part in candidates:
            if part.extension is not None and word in part.extension.options:
                return part, part.extension.options[word]
        for part in candidates:
            if part.extension is not None:
                option = _find(word, part.extension.options)
                if option is not None:
                    return part, option
        return None

    def load_protocol_match(self, word: str) -> bool:
        """Load the match of the rule's protocol when *word* is an option of it (as -p tcp --dport)."""
        name = PROTOCOL_MATCH.get(self.protocol() or 0)
        if name is None or any(part.name == name for part in self.matches):
            return False
        if _find(word, MATCHES[name].options) is None:
            return False
        self.matches.append(Part("match", name, self.at, MATCHES[name]))
        return True

    def begins_elsewhere(self, index: int) -> bool:
        """Whether the word at *index* ends the words of an unknown extension."""
        word = self.words[index]
        if word == BANG and index + 1 < len(self.words):
            return self.words[index + 1] in HEADER
        return word in HEADER or word in GENERAL

    def keeps_unknown(self, part: Part, word: str) -> bool:
        """Whether *word* may be an option of a match or target that the table does not know."""
        return part.extension is None and part.name != "RETURN" and part.kind != "-g" and word.startswith("-")

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

    def cut(self) -> Layout:
        inverted_at: int | None = None
        while self.at < len(self.words):
            at, word = self.at, self.words[self.at]
            if word == BANG:
                if inverted_at is not None:
                    raise Fault("a second ! in a row", at)
                inverted_at, self.at = at, at + 1
                continue
            inverted, inverted_at = inverted_at is not None, None
            if word in GENERAL:
                if inverted:
                    raise Fault(f"{word} cannot be negated", at)
                self.general(GENERAL[word], at)
            elif (header := HEADER.get(word) or _find(word, HEADER)) is not None and self.owner(word) is None:
                if header.name in self.header:
                    raise Fault(f"a second {header.name}: a rule has one", at)
                part = Part("header", header.name, at, None)
                part.uses.append(Use(header, inverted, at, self.take(header, at)))
                self.header[header.name] = part
            elif (found := self.owner(word)) is not None or (
                word.startswith("-") and self.load_protocol_match(word) and (found := self.owner(word))
            ):
                part, option = found
                part.uses.append(Use(option, inverted, at, self.take(option, at)))
            elif self.latest is not None and self.keeps_unknown(self.latest, word):
                first = at - 1 if inverted else at
                end = at + 1
                while end < len(self.words) and not self.begins_elsewhere(end):
                    end += 1
                self.latest.kept.extend(range(first, end))
                self.at = end
            elif (general := _find(word, GENERAL)) is not None and not inverted:
                self.general(general, at)
            elif word == "--" and not inverted and at + 1 == len(self.words):
                self.at = at + 1
            else:
                raise self.misfit(word, at)
        if inverted_at is not None:
            raise Fault("! with nothing behind it", inverted_at)
        header_parts = [self.header[name] for name in HEADER_ORDER if name in self.header]
        return Layout(
            header_parts + self.matches,
            self.target,
            self.counters,
            frozenset(self.header) & {"-i", "-o"},
            frozenset(self.families),
        )

    def misfit(self, word: str, at: int) -> Fault:
        if not word.startswith("-"):
            return Fault(
                f"{word!r} belongs to no option" if word != LITERAL else "this belongs to no option", at
            )
        known = [*GENERAL, *HEADER]
        for part in [*self.matches, self.target]:
            if part is not None and part.extension is not None:
                known += part.extension.options
        name = PROTOCOL_MATCH.get(self.protocol() or 0)
        known += MATCHES[name].options if name else []
        hint = _nearest(word, known)
        if not hint:
            homes = [m for m, ext in MATCHES.items() if word in ext.options]
            homes += [t for t, ext in TARGETS.items() if word in ext.options]
            if homes:
                hint = f"it belongs to {', '.join(homes[:3])}"
        return Fault(f"unknown option {word}", at, hint)


def cut(words: list[str], start: int) -> Layout:
    """Cut the words from index *start* on into parts; words may be LITERAL where values stand."""
    return _Cutter(words, start).cut()


def _tests(use: Use, words: list[str], family: Family) -> tuple[tuple[Test, ...], bool]:
    """The option's tests, and whether one of them is enough."""
    if use.option.read is None:
        return (), False
    try:
        tests = use.option.read(tuple(words[index] for index in use.values), family)
    except ValueError as error:
        raise Fault(str(error), use.values[0] if use.values else use.at) from None
    either = len(tests) > 1
    if use.inverted:
        inverse = (Test(test.field, test.values.complement(top(test.field, family))) for test in tests)
        return tuple(inverse), False
    return tests, either


def _check_limits(part: Part, table: dict[str, limits.Limits], words: list[str], family: Family) -> None:
    """Refuse values and combinations of options that iptables refuses."""
    known = table.get(part.name)
    if known is None:
        return
    if len(part.uses) == 1 and limits.passes(known, part.uses[0].option.name, part.uses[0].inverted):
        return
    said = [(use.option.name, use.inverted, tuple(words[at] for at in use.values)) for use in part.uses]
    try:
        limits.check(part.name, known, said, family)
    except limits.Refusal as refusal:
        at = part.at
        if refusal.use is not None:
            use = part.uses[refusal.use]
            at = use.at if refusal.value is None else use.values[refusal.value]
        raise Fault(refusal.reason, at) from None


def _said(uses: list[Use], words: list[str]) -> list[Said]:
    return [Said(use.option.name, use.inverted, tuple(words[index] for index in use.values)) for use in uses]


def _print_words(uses: list[Use], words: list[str]) -> tuple[str, ...]:
    out: list[str] = []
    for use in uses:
        out += [BANG] if use.inverted else []
        out += [use.option.name, *(words[index] for index in use.values)]
    return tuple(out)


def plain_address(option: str, word: str) -> Match | None:
    """The match of `-s` or `-d` with an IPv4 address as most are spelt; None for another spelling.

    A large rule set has an address of its own in most lines: this is what reading costs.
    """
    pair = spelt.ipv4_prefix(word)
    if pair is None or pair == (0, 0xFFFFFFFF):
        return None
    field = Field.SRC if option == "-s" else Field.DST
    tests = (Test(field, Values.interval(*pair)),)
    return Match("", (option, word), Role.SPACE, f"{option} {word}", tests)


def header_match(part: Part, words: list[str], family: Family) -> Match:
    """The match of one header option.  A mask of too many intervals makes it a CONSTANT one."""
    use = part.uses[0]
    if family is Family.IPV4 and use.option.name in ("-s", "-d") and not use.inverted:
        plain = plain_address(use.option.name, words[use.values[0]])
        if plain is not None:
            return plain
    if use.option.name == "-f" and family is Family.IPV6:
        raise Fault("-f does not exist for IPv6", use.at, "use -m frag")
    printed = _print_words(part.uses, words)
    if use.option.name == "-p" and use.inverted and protocol_at(use, words) == 0:
        raise Fault("! -p 0 would never match; iptables refuses it", use.values[0])
    try:
        tests, _ = _tests(use, words, family)
    except OverflowError:
        key = canonical.address_mask(use.option.name, use.inverted, words[use.values[0]], family)
        return Match("", printed, Role.CONSTANT, key, reads=access.MATCHES[""].reads)
    if use.option.name in ("-s", "-d", "-i", "-o") and not use.inverted:
        tests = tuple(test for test in tests if test.values.pairs != ((0, top(test.field, family)),))
    return Match("", printed, Role.SPACE, " ".join(printed), tests)


def extension_match(part: Part, words: list[str], family: Family) -> Match:
    """The match of one `-m NAME` with its options."""
    extension = part.extension
    if extension is None:
        kept = tuple(words[index] for index in part.kept)
        key = " ".join([part.name, *map(canonical.quoted, kept)])
        return Match(part.name, kept, Role.ONCE, key, reads=EVERYTHING, writes=EVERYTHING)
    printed = _print_words(part.uses, words)
    for required in extension.required:
        if all(use.option.name != required for use in part.uses):
            raise Fault(f"-m {part.name} needs {required}", part.at)
    _check_limits(part, limits.MATCH_LIMITS, words, family)
    tests: list[Test] = []
    turned: list[bool] = []  # by test: whether it comes of an option behind a "!"
    said: dict[str, tuple[bool, tuple[Test, ...]]] = {}
    either = False
    unread = False
    for use in part.uses:
        found, one_is_enough = _tests(use, words, family)
        said[use.option.name] = use.inverted, found
        tests += found
        turned += [use.inverted] * len(found)
        either = either or one_is_enough
        unread = unread or (use.option.read is None)
    used = {use.option.name for use in part.uses}
    known = access.MATCHES.get(part.name, access.UNKNOWN)
    role = extension.role
    if role is Role.SPACE and unread and extension.name != "comment":
        role = Role.CONSTANT
    writes = known.writes_by(used)
    # --update-counters without a ! says what is done anyway.
    telling = {
        use.option.name for use in part.uses if use.inverted or not use.option.name.startswith("--update-")
    }
    if extension.counting & telling or (writes and role < Role.NAMED):
        role = Role.NAMED
    if extension.name == "statistic":
        mode = next((words[use.values[0]] for use in part.uses if use.option.name == "--mode"), "")
        role = Role.NAMED if mode == "random" else Role.ONCE
    with_option = extension.name == "tcp" and "--tcp-option" in used
    native = extension.name in ("tcp", "udp") and not with_option and _constrains(part.uses, tests, family)
    if native and _means_otherwise_in_nft(said):
        role, tests = Role.CONSTANT, []
    if native:
        # iptables-nft writes no expression for an option of all values beside another, and legacy's match
        # asks for as many bytes with it as without.  It does write one for `! --dport 10:5`.
        tests = [
            test
            for test, inverted in zip(tests, turned, strict=False)
            if inverted or not _is_full(test, family)
        ]
    given = _said(part.uses, words)
    if role is Role.SPACE:  # compared by its tests: the words will do
        key = canonical.plain(part.name, given)
    else:
        key = canonical.key(part.name, given, extension.defaults, family)
    # A chunk header behind the common one; the offset drop is IPv4's alone (both measured).
    needs = 16 if "--chunk-types" in used else extension.needs
    if part.name == "ah" and family is Family.IPV6:
        # It looks for its header in the chain, in packets of any protocol, and drops what it cannot walk.
        role, needs = Role.NAMED, 0
    strict = extension.strict and family is Family.IPV4
    return Match(
        part.name,
        printed,
        role,
        key,
        tuple(tests),
        either,
        native,
        needs,
        strict,
        with_option,
        known.reads,
        writes,
    )


def _means_otherwise_in_nft(said: dict[str, tuple[bool, tuple[Test, ...]]]) -> bool:
    """Whether iptables-nft 1.8.9 writes something else than what legacy does.

    It leaves out `! --dport 0:65535` and `--tcp-flags NONE SYN`, which never match in legacy,
    and makes one test of `! --sport A ! --dport B`: not both.  Such a match is its own fact.
    """
    for inverted, tests in said.values():
        if any(not test.values and (inverted or test.field is Field.FLAGS) for test in tests):
            return True
    pair = [said[name] for name in ("--sport", "--dport") if name in said]
    return len(pair) == 2 and all(inverted and _but_one_port(tests[0].values) for inverted, tests in pair)


def _but_one_port(values: Values) -> bool:
    """Whether these are all ports but one, which is not 0."""
    return len(values.pairs) < 3 and len(values) == 65535 and 0 in values


def _constrains(uses: list[Use], tests: list[Test], family: Family) -> bool:
    """Whether iptables-nft writes native expressions: some option says more than "all values"."""
    return any(use.inverted for use in uses) or any(not _is_full(test, family) for test in tests)


def _is_full(test: Test, family: Family) -> bool:
    return test.values.pairs == ((0, top(test.field, family)),)


def protocol_at(use: Use, words: list[str]) -> int:
    """The number of the protocol that stands behind -p; 0 for any."""
    at = use.values[0]
    if words[at] == LITERAL:
        raise NeedsWords
    try:
        return spelt.protocol(words[at])
    except ValueError as error:
        raise Fault(str(error), at) from None


def check_protocols(layout: Layout, words: list[str], family: Family) -> None:
    """Refuse matches that need a protocol which the rule does not ask for."""
    asked: int | None = None
    for part in layout.matches:
        if part.kind == "header" and part.name == "-p" and not part.uses[0].inverted:
            asked = protocol_at(part.uses[0], words)
    for part in layout.matches:
        wanted = part.extension.protocols if part.extension else frozenset()
        if wanted and asked not in wanted:
            names = {number: name for name, number in reversed(spelt.PROTOCOLS.items())}
            names.update({TCP: "tcp", UDP: "udp"})
            needed = " or ".join(f"-p {names.get(number, number)}" for number in sorted(wanted))
            raise Fault(f"-m {part.name} needs {needed}", part.at)
    for part in [*layout.matches, *([layout.target] if layout.target else [])]:
        # The ah of IPv6 walks the headers itself.
        if part.extension is not None and not (part.name == "ah" and family is Family.IPV6):
            _check_protocol(part, asked, layout, words)


def _check_protocol(part: Part, asked: int | None, layout: Layout, words: list[str]) -> None:
    """Refuse options that need a protocol which the rule does not ask for."""
    for look in (part.name, *(f"{part.name} {use.option.name}" for use in part.uses)):
        wanted = limits.PROTOCOLS.get(look)
        if wanted is not None and asked not in wanted:
            needed = " or ".join(f"-p {_NAMES.get(number, number)}" for number in wanted)
            raise Fault(f"{look} needs {needed}", part.at)
    for use in part.uses:
        if use.option.name == "--reject-with" and words[use.values[0]].startswith("tcp") and asked != TCP:
            raise Fault("--reject-with tcp-reset needs -p tcp", use.values[0])
        if use.option.name not in ("--to-destination", "--to-source", "--to-ports"):
            continue
        header = next((each for each in layout.matches if each.kind == "header" and each.name == "-p"), None)
        if header is not None and header.at < use.at:
            protocol = protocol_at(header.uses[0], words)
            if protocol in limits.NAT_PROTOCOLS:
                continue
        word = words[use.values[0]]
        if word == LITERAL:
            raise NeedsWords
        if use.option.name == "--to-ports" or word.count(":") == 1 or "]:" in word:
            raise Fault("ports need -p tcp, udp, sctp, dccp or icmp in front of them", use.values[0])


_NAMES = {TCP: "tcp", UDP: "udp", 51: "ah"}


def target_of(part: Part, words: list[str], family: Family) -> Target:
    """The target; a name that the table does not know is taken for a chain unless options follow it."""
    name = words[part.at]
    if part.kind == "-g":
        if part.kept:
            raise Fault(f"{words[part.kept[0]]!r} belongs to no option", part.kept[0])
        return Target(name, Kind.GOTO, f"-g {name}")
    if name == "RETURN":
        if part.kept:
            raise Fault(f"unknown option {words[part.kept[0]]}", part.kept[0])
        return Target(name, Kind.RETURN, "RETURN")
    extension = part.extension
    if extension is None:
        if part.kept or name in FOREIGN_TARGETS:
            kept = tuple(words[index] for index in part.kept)
            key = " ".join([name, *map(canonical.quoted, kept)])
            return Target(name, Kind.VERDICT, key, kept, Ends.MAYBE, EVERYTHING)
        return Target(name, Kind.JUMP, f"-j {name}")
    _check_limits(part, limits.TARGET_LIMITS, words, family)
    key = canonical.key(name, _said(part.uses, words), extension.defaults, family)
    writes = access.TARGETS.get(name, access.UNKNOWN).writes
    return Target(name, Kind.VERDICT, key, _print_words(part.uses, words), extension.ends, writes)


def as_jump(target: Target) -> Target:
    """The same words when a user chain of that name is declared, which wins over the extension."""
    return replace(target, kind=Kind.JUMP, key=f"-j {target.name}", ends=Ends.SURELY, writes=frozenset())


def check_chain_name(name: str, word: int, declared: bool = False) -> None:
    """Refuse names that iptables refuses for a user chain.

    *declared*: by a line :NAME, where iptables-legacy takes names that begin with - or !.
    """
    if len(name.encode("utf-8", "surrogateescape")) > 28:
        raise Fault(f"chain name {name!r} is longer than 28 characters", word)
    if name in RESERVED:
        raise Fault(f"a chain cannot be called {name}", word)
    if not name or (name[0] in "-!" and not declared) or re.search(r"\s", name, re.ASCII):
        raise Fault(f"not a chain name: {name!r}", word)

"""The meaning of a rule's parts: a part with its values to a `Match` or a `Target`.

The rows of `syntax/extensions/` decide: which header fields the options test, the role, the key, what is
refused. A `Fault` names the word that is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from ..ir.fact import Assignment, Fact
from ..ir.fields import TCP, UDP, Family, Field, top
from ..ir.intervals import Values
from ..ir.rule import EVERYTHING, Ends, Kind, Match, Role, Target, Test
from ..syntax import canonical, limits, options
from ..syntax import values as spelt
from ..syntax.canonical import OptionUse
from ..syntax.extension import Extension
from ..syntax.options import FOREIGN_TARGETS
from ..syntax.other_packages import OTHER_MATCHES, OTHER_TARGETS, OtherTarget
from ..syntax.writers import address_mask
from .lines import LITERAL, Fault, NeedsWords
from .rule_parts import BANG, Part, RuleParts, Use
from .value_hints import value_hint

# What makes objects without a look at their arguments.
_new, _bare = tuple.__new__, object.__new__
_set_pairs = vars(Values)["pairs"].__set__
_REST = tuple(Match("", (), Role.SPACE, "", ()))[5:]


def _tests(use: Use, words: list[str], family: Family) -> tuple[tuple[Test, ...], bool]:
    """The option's tests, and whether one of them is enough."""
    if use.option.read is None:
        return (), False
    try:
        tests = use.option.read(tuple(words[index] for index in use.values), family)
    except ValueError as error:
        if not use.values:
            raise Fault(str(error), use.at) from None
        at = use.values[0]
        raise Fault(str(error), at, value_hint(use.option.name, words[at], use.inverted)) from None
    either = len(tests) > 1
    if use.inverted:
        inverse = (Test(test.field, test.values.complement(top(test.field, family))) for test in tests)
        return tuple(inverse), False
    return tests, either


def _check_limits(part: Part, extension: Extension, words: list[str], family: Family) -> None:
    """Refuse values and combinations of options that iptables refuses."""
    uses = part.uses
    if len(uses) == 1 and limits.accepts_alone(extension, uses[0].option.name, uses[0].inverted):
        return
    try:
        limits.check(extension, _option_uses(uses, words), family)
    except limits.Refusal as refusal:
        at = part.at
        if refusal.use is not None:
            use = uses[refusal.use]
            at = use.at if refusal.value is None else use.values[refusal.value]
        raise Fault(refusal.reason, at) from None


def _option_uses(uses: list[Use], words: list[str]) -> list[OptionUse]:
    return [
        OptionUse(use.option.name, use.inverted, tuple(words[index] for index in use.values)) for use in uses
    ]


def _print_words(uses: list[Use], words: list[str]) -> tuple[str, ...]:
    out: list[str] = []
    for use in uses:
        out += [BANG] if use.inverted else []
        out += [use.option.name, *(words[index] for index in use.values)]
    return tuple(out)


def plain_address(option: str, word: str) -> Match | None:
    """The match of `-s` or `-d` with an IPv4 address in its usual spelling; None for another spelling."""
    pair = spelt.ipv4_prefix(word)
    if pair is None or pair == (0, 0xFFFFFFFF):
        return None
    address = Field.SRC if option == "-s" else Field.DST
    tests = (Test(address, Values.interval(*pair)),)
    return Match("", (option, word), Role.SPACE, f"{option} {word}", tests)


def plain_addresses(option: str, words: Sequence[str], pairs: Iterable[tuple[int, int]]) -> list[Match]:
    """What `plain_address` makes of each word, whose lowest and highest address are the pair.

    Most lines of a large rule set have an address that no other line has, so this decides how fast we read:
    it makes the objects of all words column by column, without a line of Python for each.  No pair may be
    that of all addresses.
    """
    address = Field.SRC if option == "-s" else Field.DST
    values = [_bare(Values) for _ in words]
    deque(map(_set_pairs, values, zip(pairs, strict=False)), maxlen=0)
    tests = map(_new, repeat(Test), zip(repeat(address), values, strict=False))
    keys = map(f"{option} ".__add__, words)
    printed = zip(repeat(option), words, strict=False)
    rest = (repeat(value) for value in _REST)
    columns = (repeat(""), printed, repeat(Role.SPACE), keys, zip(tests, strict=False), *rest)
    return list(map(_new, repeat(Match), zip(*columns, strict=False)))


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
        key = address_mask(use.option.name, use.inverted, words[use.values[0]], family)
        return Match("", printed, Role.CONSTANT, key, reads=options.HEADER_ACCESS.reads)
    if use.option.name in ("-s", "-d", "-i", "-o") and not use.inverted:
        tests = tuple(test for test in tests if test.values.pairs != ((0, top(test.field, family)),))
    return Match("", printed, Role.SPACE, " ".join(printed), tests)


def header_place(match: Match) -> int:
    """The place of a match of a header option among others, in which kernels evaluate them."""
    return options.HEADER_ORDER.index(match.words[1] if match.words[0] == BANG else match.words[0])


def extension_match(part: Part, words: list[str], family: Family) -> Match:
    """The match of one `-m NAME` with its options."""
    extension = part.extension
    if extension is None:
        unread = tuple(words[index] for index in part.unread)
        key = " ".join([part.name, *map(canonical.quoted, unread)])
        other = OTHER_MATCHES.get(part.name)
        if other is not None:
            return Match(part.name, unread, other.role, key, reads=other.reads)
        return Match(part.name, unread, Role.ONCE, key, reads=EVERYTHING, writes=EVERYTHING)
    printed = _print_words(part.uses, words)
    for required in extension.required:
        if all(use.option.name != required for use in part.uses):
            raise Fault(f"-m {part.name} needs {required}", part.at)
    _check_limits(part, extension, words, family)
    tests, inverted, by_option, either = _tests_of_options(part.uses, words, family)
    used = {use.option.name for use in part.uses}
    writes = extension.access.writes_by(used)
    role = _role(part, extension, words, writes=bool(writes))
    with_option = extension.name == "tcp" and "--tcp-option" in used
    native = extension.name in ("tcp", "udp") and not with_option and _constrains(part.uses, tests, family)
    if native and _differs_in_nft(by_option):
        role, tests = Role.CONSTANT, []
    if native:
        # iptables-nft writes no expression for an option that allows all values, if there is another
        # option, and legacy's match needs as many bytes with it as without.  nft does write one for `!
        # --dport 10:5`.
        tests = [
            test
            for test, negative in zip(tests, inverted, strict=False)
            if negative or not _is_full(test, family)
        ]
    if part.name == "physdev":
        role, tests = _of_bridge_ports(part.uses, tests)
    uses = _option_uses(part.uses, words)
    if role is Role.SPACE:  # compared by its tests, so any spelling will do
        key = canonical.plain(part.name, uses)
    else:
        key = canonical.key(part.name, extension.form, uses, extension.defaults, family)
    # A chunk header follows the common one; only IPv4 drops by the offset (both measured).
    needs = 16 if "--chunk-types" in used else extension.needs
    if part.name == "ah" and family is Family.IPV6:
        # It walks the chain of headers, in packets of any protocol, and drops a packet if it cannot.
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
        extension.access.reads,
        writes,
        *_relations(key, extension, uses, family, role is Role.CONSTANT and not tests),
    )


class _OptionTests(NamedTuple):
    """What the options of a match test.

    tests      in the order of the options
    inverted   of each: whether its option is behind a "!"
    by_option  by the option's name: whether it is behind a "!", and its tests
    either     whether one of the tests is enough
    """

    tests: list[Test]
    inverted: list[bool]
    by_option: dict[str, tuple[bool, tuple[Test, ...]]]
    either: bool


def _tests_of_options(uses: list[Use], words: list[str], family: Family) -> _OptionTests:
    tests: list[Test] = []
    inverted: list[bool] = []
    by_option: dict[str, tuple[bool, tuple[Test, ...]]] = {}
    either = False
    for use in uses:
        option_tests, one_is_enough = _tests(use, words, family)
        by_option[use.option.name] = use.inverted, option_tests
        tests += option_tests
        inverted += [use.inverted] * len(option_tests)
        either = either or one_is_enough
    return _OptionTests(tests, inverted, by_option, either)


def _role(part: Part, extension: Extension, words: list[str], writes: bool) -> Role:
    """The role of a match with these options; *writes*: whether it changes states that rules read."""
    role = extension.role
    is_untested = any(use.option.read is None for use in part.uses)
    if role is Role.SPACE and is_untested and extension.name != "comment":
        role = Role.CONSTANT
    # --update-counters without a ! is the default.
    effective = {
        use.option.name for use in part.uses if use.inverted or not use.option.name.startswith("--update-")
    }
    if extension.counting & effective or (writes and role < Role.NAMED):
        role = Role.NAMED
    if part.name == "set" and _may_complete_entries(part.uses, words):
        role = Role.NAMED
    if extension.name == "statistic":
        mode = next((words[use.values[0]] for use in part.uses if use.option.name == "--mode"), "")
        role = Role.NAMED if mode == "random" else Role.ONCE
    return role


def _may_complete_entries(uses: list[Use], words: list[str]) -> bool:
    """Whether the match may change its set, of which the rule does not name the type.

    An entry of a bitmap:ip,mac that was made without a mac gets that of the first packet for which two
    dimensions are tested.  No match of one dimension reads such a set.
    """
    return any("," in words[use.values[1]] for use in uses if use.option.name == "--match-set")


# Options of physdev that test one field, and whether they are behind a "!".
_PORT_TESTS = frozenset(
    {("--physdev-in", False), ("--physdev-in", True), ("--physdev-out", False),
     ("--physdev-is-bridged", False), ("--physdev-is-bridged", True)}
)  # fmt: skip


def _of_bridge_ports(uses: list[Use], tests: list[Test]) -> tuple[Role, list[Test]]:
    """The role of a physdev match and its tests, one of each field.

    Behind a "!", --physdev-out fails for packets that came in by a port and are routed, not bridged, but
    holds for those that came in by none; no test of the field does that.  --physdev-is-in and -is-out are
    not read, either: few rules have them.
    """
    asked = {(use.option.name, use.inverted) for use in uses}
    if not asked <= _PORT_TESTS:
        return Role.CONSTANT, []
    values: dict[Field, Values] = {}
    for test in sorted(tests, key=lambda test: test.field):
        before = values.get(test.field)
        values[test.field] = test.values if before is None else before.intersect(test.values)
    return Role.SPACE, [Test(*each) for each in values.items()]


def _relations(
    key: str, extension: Extension, uses: list[OptionUse], family: Family, is_plain: bool
) -> tuple[str, Fact | None]:
    """`Match.negates` and `Match.number`."""
    if not is_plain:
        return "", None
    return _negated_key(key, extension, uses, family), _number(extension, uses, family)


def _number(extension: Extension, uses: list[OptionUse], family: Family) -> Fact | None:
    """What the match asks of a number of the packet; None: it compares none."""
    asked = [use for use in uses if use.option not in extension.bystanders]
    number = extension.numbers.get(asked[0].option) if len(asked) == 1 else None
    if number is None or number.family not in (None, family):
        return None
    beside = [use.option for use in uses if use.option in extension.bystanders]
    try:
        words = canonical.value_words(asked[0], extension.form, family)
        return number.fact(words, asked[0].inverted, beside)
    except (ValueError, OverflowError, KeyError):  # a value that its form does not read
        return None


def _negated_key(key: str, extension: Extension, uses: list[OptionUse], family: Family) -> str:
    """The key of the match without its "!", if that holds for exactly the other packets; else ""."""
    negated = [use for use in uses if use.option not in extension.bystanders]
    if len(negated) != 1 or not negated[0].inverted or negated[0].option not in extension.complements:
        return ""
    plain = [use._replace(inverted=False) for use in uses]
    other = canonical.key(extension.name, extension.form, plain, extension.defaults, family)
    # A key that tells it by other words than "!" may be the key of a match that was written without one.
    return other if sorted(key.split(" ")) == sorted(["!", *other.split(" ")]) else ""


def _differs_in_nft(by_option: dict[str, tuple[bool, tuple[Test, ...]]]) -> bool:
    """Whether the match that iptables-nft 1.8.9 writes differs from legacy's.

    It omits `! --dport 0:65535` and `--tcp-flags NONE SYN`, which never match in legacy, and makes one test
    of `! --sport A ! --dport B`: not both.  Such a match is an uninterpreted predicate.
    """
    for inverted, tests in by_option.values():
        if any(not test.values and (inverted or test.field is Field.FLAGS) for test in tests):
            return True
    pair = [by_option[name] for name in ("--sport", "--dport") if name in by_option]
    return len(pair) == 2 and all(inverted and _but_one_port(tests[0].values) for inverted, tests in pair)


def _but_one_port(values: Values) -> bool:
    """Whether these are all ports but one, which is not 0."""
    return len(values.pairs) < 3 and len(values) == 65535 and 0 in values


def _constrains(uses: list[Use], tests: list[Test], family: Family) -> bool:
    """Whether iptables-nft writes native expressions: some option excludes a value."""
    return any(use.inverted for use in uses) or any(not _is_full(test, family) for test in tests)


def _is_full(test: Test, family: Family) -> bool:
    return test.values.pairs == ((0, top(test.field, family)),)


def protocol_at(use: Use, words: list[str]) -> int:
    """The number of the protocol behind -p; 0 for any."""
    at = use.values[0]
    if words[at] == LITERAL:
        raise NeedsWords
    try:
        return spelt.protocol(words[at])
    except ValueError as error:
        raise Fault(str(error), at, value_hint("-p", words[at], use.inverted)) from None


def check_protocols(parts: RuleParts, words: list[str], family: Family) -> None:
    """Refuse matches that need a protocol which the rule does not require."""
    required: int | None = None
    for part in parts.matches:
        if part.kind == "header" and part.name == "-p" and not part.uses[0].inverted:
            required = protocol_at(part.uses[0], words)
    for part in parts.matches:
        protocols = part.extension.protocols if part.extension else frozenset()
        if protocols and required not in protocols:
            names = {number: name for name, number in reversed(spelt.PROTOCOLS.items())}
            names.update({TCP: "tcp", UDP: "udp"})
            needed = " or ".join(f"-p {names.get(number, number)}" for number in sorted(protocols))
            raise Fault(f"-m {part.name} needs {needed}", part.at)
    for part in [*parts.matches, *([parts.target] if parts.target else [])]:
        # The ah of IPv6 walks the headers itself.
        if part.extension is not None and not (part.name == "ah" and family is Family.IPV6):
            _check_protocol(part, required, parts, words)


def _check_protocol(part: Part, required: int | None, parts: RuleParts, words: list[str]) -> None:
    """Refuse options that need a protocol which the rule does not require."""
    assert part.extension is not None
    for option in ("", *(use.option.name for use in part.uses)):
        protocols = part.extension.option_protocols.get(option)
        if protocols is not None and required not in protocols:
            needed = " or ".join(f"-p {_NAMES.get(number, number)}" for number in protocols)
            raise Fault(f"{f'{part.name} {option}'.rstrip()} needs {needed}", part.at)
    for use in part.uses:
        if use.option.name == "--reject-with" and words[use.values[0]].startswith("tcp") and required != TCP:
            raise Fault("--reject-with tcp-reset needs -p tcp", use.values[0])
        if use.option.name not in ("--to-destination", "--to-source", "--to-ports"):
            continue
        header = next((each for each in parts.matches if each.kind == "header" and each.name == "-p"), None)
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
    """The target; a name without a row is taken for a chain unless options follow it."""
    name = words[part.at]
    if part.kind == "-g":
        if part.unread:
            raise Fault(f"{words[part.unread[0]]!r} belongs to no option", part.unread[0])
        return Target(name, Kind.GOTO, f"-g {name}")
    if name == "RETURN":
        if part.unread:
            raise Fault(f"unknown option {words[part.unread[0]]}", part.unread[0])
        return Target(name, Kind.RETURN, "RETURN")
    extension = part.extension
    if extension is None:
        if part.unread or name in FOREIGN_TARGETS:
            unread = tuple(words[index] for index in part.unread)
            key = " ".join([name, *map(canonical.quoted, unread)])
            other = OTHER_TARGETS.get(name, OtherTarget(Ends.MAYBE, EVERYTHING))
            return Target(name, Kind.VERDICT, key, unread, other.ends, other.writes)
        return Target(name, Kind.JUMP, f"-j {name}")
    _check_limits(part, extension, words, family)
    key = canonical.key(name, extension.form, _option_uses(part.uses, words), extension.defaults, family)
    printed = _print_words(part.uses, words)
    writes = extension.access.writes_by({use.option.name for use in part.uses})
    return Target(name, Kind.VERDICT, key, printed, extension.ends, writes, _makes(key, extension))


def _makes(key: str, extension: Extension) -> Assignment | None:
    """What a target with this key makes of a number of the packet; None: not known."""
    words = key.split(" ")
    if len(words) != 3 or words[1] not in extension.makes:
        return None
    try:
        return extension.makes[words[1]].assignment(words[2])
    except ValueError:  # a value that its form does not read
        return None


def as_jump(target: Target) -> Target:
    """The same words where a user chain of that name is declared, which has precedence over the extension."""
    return replace(
        target, kind=Kind.JUMP, key=f"-j {target.name}", ends=Ends.SURELY, writes=frozenset(), makes=None
    )

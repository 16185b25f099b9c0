"""Rules as a backend's kernel evaluates them: the order of the tests, and the kind of each.

A profile has a figure for each kind.  Kinds follow the work of the kernel, not the words of the user:
nf_tables loads an address of 3 bytes in another way than one of 2 or 4, compares one port in line and calls a
function for a range, and calls the xtables match for most of the extensions.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.fields import Family, Field, top
from ..ir.packet import Backend
from ..ir.program import Program
from ..ir.rule import Ends, Kind, Match, Rule, Target

# A match for which a profile has no figure of its own counts as one of these.
OTHER_MATCH, OTHER_TARGET = "-m other", "-j other"
COUNT, VERDICT, JUMP, GOTO, RETURN = "count", "verdict", "jump", "goto", "return"

# iptables-nft 1.8.9 writes the header tests of a rule in this order; other tests follow in the order of the
# rule.
_NFT_ORDER = {"-i": 0, "-o": 1, "-p": 2, "-s": 3, "-d": 4, "-f": 5}
_NFT_FIELDS = (Field.FLAGS, Field.SPORT, Field.DPORT)
_PLAIN = {"-i": "interface", "-o": "interface", "-p": "protocol", "-f": "fragment"}
_LOADED_AT_ONCE = (8, 16, 32)


def kind(match: Match, backend: Backend, family: Family) -> str:
    """The kind of a match of a rule from `as_read`; "" for a match that costs nothing."""
    if match.name:
        if backend is Backend.NFT and match.native:
            return _native(match)
        return f"-m {match.name}"
    option, value = _spelt(match)
    if option in ("-s", "-d"):
        if not match.tests or match.tests[0].values.pairs == ((0, top(match.tests[0].field, family)),):
            return "" if backend is Backend.NFT else "address"
        return address(_length(value, family), backend, family)
    if option == "-p" and not match.tests:
        return ""
    return _PLAIN.get(option, "address")


def address(length: int | None, backend: Backend, family: Family) -> str:
    """The kind of a test of an address by a prefix of *length*; None: a mask that is no prefix.

    IPv6 is not measured: an nf_tables kernel loads any number of bytes but 1, 2 and 4 as it loads 3.
    """
    if backend is Backend.LEGACY:
        return "address"
    if length in _LOADED_AT_ONCE:
        return f"address/{length}"
    if (length is not None and length % 8 == 0) or family is Family.IPV6:
        return "address/24"
    return "address/x"


def _length(value: str, family: Family) -> int | None:
    _, slash, length = value.partition("/")
    if not slash:
        return 32 if family is Family.IPV4 else 128
    if length.isdecimal():
        return int(length)
    mask = 0
    for part in length.split("."):
        if not part.isdecimal():
            return None
        mask = mask << 8 | int(part)
    rest = ~mask & 0xFFFFFFFF
    return 32 - rest.bit_length() if rest & (rest + 1) == 0 else None


def _native(match: Match) -> str:
    if not match.tests:
        return ""
    test = match.tests[0]
    if test.field is Field.FLAGS:
        return "flags"
    pairs, highest = test.values.pairs, top(test.field, Family.IPV4)
    single = len(pairs) == 1 and pairs[0][0] == pairs[0][1]
    outside = test.values.complement(highest).pairs
    negated = len(outside) == 1 and outside[0][0] == outside[0][1]
    return "port" if single or negated else "ports"


def target_kind(target: Target | None) -> str:
    """The kind of a target."""
    if target is None:
        return COUNT
    if target.kind is Kind.VERDICT:
        return VERDICT if target.ends is Ends.SURELY else OTHER_TARGET
    return {Kind.JUMP: JUMP, Kind.GOTO: GOTO, Kind.RETURN: RETURN}[target.kind]


def as_read(rule: Rule, backend: Backend) -> Rule:
    """*rule* with its tests one by one, in the order in which the kernel evaluates them.

    It matches the same packets as *rule*.  (Legacy evaluates the matches in the order of the rule.)
    """
    if backend is Backend.LEGACY:
        return rule
    matches = [part for match in _nft_order(rule.matches) for part in _parts(match)]
    return rule._replace(matches=tuple(matches))


def _nft_order(matches: tuple[Match, ...]) -> list[Match]:
    return sorted(matches, key=lambda match: 9 if match.name else _NFT_ORDER.get(_spelt(match)[0], 8))


def _spelt(match: Match) -> tuple[str, str]:
    """Option and value of a header test."""
    words = [word for word in match.words if word != "!"]
    return (words[0], words[1] if len(words) > 1 else "") if words else ("", "")


def _parts(match: Match) -> list[Match]:
    if not match.native or match.either or len(match.tests) < 2:
        return [match]
    tests = sorted(match.tests, key=lambda test: _NFT_FIELDS.index(test.field))
    return [match._replace(tests=(test,)) for test in tests]


def program_as_read(program: Program, backend: Backend) -> Program:
    """*program* with all rules `as_read`; equal matches stay shared."""
    if backend is Backend.LEGACY:
        return program
    parts_of: dict[int, list[Match]] = {}

    def read(rule: Rule) -> Rule:
        parts: list[Match] = []
        for match in _nft_order(rule.matches):
            if id(match) not in parts_of:
                parts_of[id(match)] = _parts(match)
            parts += parts_of[id(match)]
        return rule._replace(matches=tuple(parts))

    tables = []
    for table in program:
        chains = [chain.with_rules(tuple(map(read, chain.rules))) for chain in table.chains]
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))

"""Alternatives to compiling a chain: ipset, a native set of five fields, `nft -o`.

Each alternative is a rule set that decides every packet as the chain does; if there is none, `Cannot` has
the reason. Nothing is approximated.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..emit.text import write
from ..errors import LiveError
from ..ir.fields import PORT_PROTOCOLS, Family, Field, top
from ..ir.packet import Backend
from ..ir.program import Chain, Program
from ..ir.rule import Ends, Kind, Match, Role, Rule
from ..nouns import counted
from ..rule_lines import lines_of
from .load_save import load, make_ip_sets
from .namespace import Namespace

NAMES = ("ipset", "nft-set", "nft-o")
SHORTEST = 8  # addresses in a row for which a set is made
FIVE = (Field.SRC, Field.DST, Field.PROTO, Field.SPORT, Field.DPORT)
CHAIN = "FORWARD"
AT_ONCE = 500  # elements of a map in one message to the kernel

Box = tuple[tuple[int, int], ...]  # an interval for each of FIVE


class Cannot(Exception):
    """Why an alternative cannot replace the rule set."""


# -- ipset -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WithSets:
    """A program in which sets replace lists of addresses; the *members* of each; how many rules they
    replace.
    """

    program: Program
    members: dict[str, tuple[str, ...]]
    replaced: int


def with_sets(program: Program) -> WithSets:
    """Replace each row of rules that differ in one address only by one rule with a set."""
    members: dict[str, tuple[str, ...]] = {}
    replaced = 0
    tables = []
    for table in program:
        chains = []
        for chain in table.chains:
            rules: list[Rule] = []
            for row in _rows(chain):
                if len(row) < SHORTEST:
                    rules += row
                    continue
                name = f"bench{len(members)}"
                match, _ = _address(row[0])
                # A set has an address once; the rules may name it twice.
                members[name] = tuple(dict.fromkeys(_address(rule)[0].words[-1] for rule in row))
                replaced += len(row)
                rules.append(_asking(row[0], match, name))
            chains.append(chain.with_rules(tuple(rules)))
        tables.append(replace(table, chains=tuple(chains)))
    if not members:
        raise Cannot(f"no chain has {SHORTEST} rules in a row that differ in one address only")
    return WithSets(replace(program, tables=tuple(tables)), members, replaced)


def _rows(chain: Chain) -> Iterator[list[Rule]]:
    """The rules in rows that are equal except for an address."""
    row: list[Rule] = []
    alike: object = None
    for rule in chain.rules:
        this = _address(rule)[1]
        if row and (this is None or this != alike):
            yield row
            row = []
        row.append(rule)
        alike = this
    if row:
        yield row


def _address(rule: Rule) -> tuple[Match, tuple[object, ...] | None]:
    """The rule's one address test, and the rest of it; None if a set cannot replace it."""
    target = rule.target
    address_matches = [
        match for match in rule.matches if match.words[-2:-1] in (("-s",), ("-d",)) and not match.name
    ]
    if (
        len(address_matches) != 1
        or target is None
        or target.kind is not Kind.VERDICT
        or target.ends is not Ends.SURELY
    ):
        return (address_matches or rule.matches or (_NOTHING,))[0], None
    (match,) = address_matches
    if match.words[0] == "!" or not _is_prefix(match.words[-1]) or _width(match) == 0:
        return match, None
    if any(other.role not in (Role.SPACE, Role.CONSTANT) for other in rule.matches):
        return match, None
    rest = tuple(other.key for other in rule.matches if other is not match)
    return match, (match.words[-2], rest, target.key)


_NOTHING = Match("", (), Role.SPACE, "")


def _is_prefix(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _width(match: Match) -> int:
    return ipaddress.ip_network(match.words[-1], strict=False).prefixlen


def _asking(rule: Rule, match: Match, name: str) -> Rule:
    side = "src" if match.words[-2] == "-s" else "dst"
    ask = Match("set", ("--match-set", name, side), Role.CONSTANT, f"set {name} {side}")
    rest = [other for other in rule.matches if other is not match]
    return Rule((*rest, ask), rule.target)


def load_sets(sets: WithSets, backend: Backend, namespace: Namespace) -> None:
    """Load the result of `with_sets`; LiveError if the tools refuse it."""
    family = sets.program.family
    make_ip_sets(dict.fromkeys(sets.members, "hash:net"), family, namespace, sets.members)
    load(write(sets.program), family, backend, namespace)


# -- a native set ----------------------------------------------------------------------------------


def verdict_map(program: Program, chain: str = CHAIN) -> list[str]:
    """*chain* as one nf_tables map from five fields to verdicts, as scripts for nft; Cannot if there is none.

    A map has no order, so rules whose verdicts differ must not overlap, and it has no counters of rules.
    """
    listed = program.table("filter")[chain]
    boxes = [_box(rule, program.family) for rule in listed.rules]
    verdicts = [rule.target.name.lower() if rule.target else "" for rule in listed.rules]
    keep = _without_order(listed.rules, boxes, verdicts)
    elements = [f"{_element(boxes[at], program.family)} : {verdicts[at]}" for at in keep]
    kind = "ip" if program.family is Family.IPV4 else "ip6"
    key = f"{kind} saddr . {kind} daddr . meta l4proto . th sport . th dport"
    frame = (
        f"table {kind} filter {{\n\tmap five {{\n\t\ttypeof {key} : verdict\n\t\tflags interval\n\t}}\n"
        f"\tchain {chain} {{\n\t\ttype filter hook {chain.lower()} priority filter; "
        f"policy {(listed.policy or 'ACCEPT').lower()};\n\t\t{key} vmap @five\n\t}}\n}}\n"
    )
    pieces = [elements[at : at + AT_ONCE] for at in range(0, len(elements), AT_ONCE)]
    return [frame, *(f"add element {kind} filter five {{ {', '.join(each)} }}\n" for each in pieces)]


def _box(rule: Rule, family: Family) -> Box:
    target = rule.target
    place = f"line {rule.line}"
    if target is None or target.kind is not Kind.VERDICT or target.name not in ("ACCEPT", "DROP"):
        raise Cannot(f"{place}: the target is not ACCEPT or DROP")
    sides = {field: (0, top(field, family)) for field in FIVE}
    for match in rule.matches:
        tests = match.tests
        if match.role is not Role.SPACE or match.either or any(test.field not in FIVE for test in tests):
            raise Cannot(f"{place}: {' '.join(match.words) or match.name} is none of the five fields")
        for test in tests:
            if len(test.values.pairs) != 1:
                raise Cannot(f"{place}: {' '.join(match.words)} is more than one interval")
            low, high = test.values.pairs[0]
            sides[test.field] = max(sides[test.field][0], low), min(sides[test.field][1], high)
    ports = any(sides[field] != (0, 65535) for field in (Field.SPORT, Field.DPORT))
    low, high = sides[Field.PROTO]
    if ports and (low != high or low not in PORT_PROTOCOLS):
        raise Cannot(f"{place}: ports of more than one protocol")
    return tuple(sides[field] for field in FIVE)


def _without_order(rules: Sequence[Rule], boxes: Sequence[Box], verdicts: Sequence[str]) -> list[int]:
    """The rules that a map needs: none that an earlier one with its verdict covers; Cannot on overlaps."""
    # Python's integers, as addresses of IPv6 are wider than numpy's.
    low: Any = np.array([[side[0] for side in box] for box in boxes], dtype=object)
    high: Any = np.array([[side[1] for side in box] for box in boxes], dtype=object)
    keep: list[int] = []
    for at, rule in enumerate(rules):
        before = np.array(keep, int)
        meets = ((low[before] <= high[at]) & (high[before] >= low[at])).astype(bool).all(axis=1)
        met = before[meets].tolist()
        for one in met:
            if verdicts[one] != verdicts[at]:
                raise Cannot(
                    f"lines {rules[one].line} and {rule.line} overlap and differ, and a map has no order"
                )
        if not any((low[one] <= low[at]).all() and (high[one] >= high[at]).all() for one in met):
            keep.append(at)
    return keep


def _element(box: Box, family: Family) -> str:
    parts = []
    for at, (low, high) in enumerate(box):
        if at < 2:
            host = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
            one, two = str(host(low)), str(host(high))
        else:
            one, two = str(low), str(high)
        parts.append(one if one == two else f"{one}-{two}")
    return " . ".join(parts)


def load_map(scripts: Sequence[str], namespace: Namespace) -> None:
    """Load the result of `verdict_map`; LiveError if the kernel refuses it."""
    for script in scripts:
        namespace.run(["nft", "-f", "-"], script)


# -- nft -o ----------------------------------------------------------------------------------------


def load_optimised(program: Program, namespace: Namespace) -> str:
    """Load the rules as `nft -o` merges them; a remark, or Cannot."""
    tool = f"{program.family.tool}-restore-translate"
    text = write(program)
    translated = namespace.run([tool, "-f", "/dev/stdin"], text)
    left = [line for line in lines_of(translated) if line.startswith(("# -A", "# -t"))]
    if left:
        raise Cannot(f"{tool} leaves out {counted(len(left), 'rule')}: {left[0][2:]}")
    try:
        namespace.run(["nft", "-f", "-"], translated)
        listed = namespace.run(["nft", "list", "ruleset"])
        namespace.run(["nft", "flush", "ruleset"])
        namespace.run(["nft", "-o", "-f", "/dev/stdin"], listed)
    except LiveError as error:
        raise Cannot(f"nft refuses it: {str(error).splitlines()[0]}") from None
    before = sum("counter packets" in line for line in lines_of(listed))
    after = sum("counter packets" in line for line in lines_of(namespace.run(["nft", "list", "ruleset"])))
    return f"{before} rules, {after} after merging"

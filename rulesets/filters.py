"""ClassBench-like filters of five fields, and traces that name the first rule that matches.

`acl_*` has the shape of access lists at an edge: specific destinations, servers' ports, a few source
networks.  `fw_*` has that of corporate firewalls: many wildcards in either address, port ranges, so
rules cross each other.  The format is ClassBench's short one; the generator is ours.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

TCP, UDP, ICMP, GRE, ESP = 6, 17, 1, 47, 50
ANY_PORT = (0, 65535)
SERVERS = (
    20,
    21,
    22,
    23,
    25,
    53,
    69,
    80,
    110,
    123,
    135,
    143,
    161,
    389,
    443,
    445,
    514,
    1433,
    1521,
    1723,
    3306,
    8080,
)
RANGES = ((1024, 65535), (0, 1023), (6000, 6063), (5900, 5910), (33434, 33600), (137, 139))


class Rule(NamedTuple):
    """Source and destination as (address, prefix length), ports as (low, high), protocol or None."""

    src: tuple[int, int]
    dst: tuple[int, int]
    sport: tuple[int, int]
    dport: tuple[int, int]
    proto: int | None


def make(name: str, random: Random) -> list[Rule]:
    """The set called *name*: its kind, an underscore, and its number of rules (1k: a thousand)."""
    kind, _, size = name.partition("_")
    count = int(size.replace("k", "000"))
    draw = _access_rule if kind == "acl" else _firewall_rule
    blocks = [random.getrandbits(32) & ~0xFFFF for _ in range(6 + count // 100)]
    rules: dict[Rule, None] = {}  # in order, without twins
    while len(rules) < count - 1:
        rules[draw(blocks, random)] = None
    return [*rules, Rule((0, 0), (0, 0), ANY_PORT, ANY_PORT, None)]


def filter_text(rules: list[Rule]) -> str:
    lines = []
    for rule in rules:
        protocol = "0x00/0x00" if rule.proto is None else f"0x{rule.proto:02x}/0xFF"
        spans = [f"{low} : {high}" for low, high in (rule.sport, rule.dport)]
        lines.append("\t".join(("@" + _prefix(rule.src), _prefix(rule.dst), *spans, protocol)))
    return "\n".join((*lines, ""))


def trace_text(rules: list[Rule], count: int, random: Random) -> str:
    """*count* headers, drawn inside rules, and the number of the first rule of each, from 1.

    Popular rules get more headers, and a header comes a few times in a row, as in real traffic.
    """
    popular = random.sample(rules, len(rules))
    lines: list[str] = []
    while len(lines) < count:
        rule = popular[min(int(random.paretovariate(0.5)) - 1, len(rules) - 1)]
        header = _inside(rule, random)
        line = "\t".join(map(str, (*header, _first(rules, header))))
        lines += [line] * min(int(random.paretovariate(1.0)), 20)
    return "\n".join((*lines[:count], ""))


def _prefix(prefix: tuple[int, int]) -> str:
    address, length = prefix
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0)) + f"/{length}"


def _cut(address: int, length: int) -> tuple[int, int]:
    return address & ~((1 << 32 - length) - 1), length


def _within(blocks: list[int], lengths: tuple[int, ...], random: Random) -> tuple[int, int]:
    """A prefix in one of the blocks.  Few hosts of a block are used, so that prefixes nest."""
    host = random.choice((random.getrandbits(6), random.getrandbits(6) << 8, random.getrandbits(16)))
    return _cut(random.choice(blocks) | host, random.choice(lengths))


def _ports(random: Random) -> tuple[int, int]:
    if random.random() < 0.8:
        port = random.choice(SERVERS)
        return port, port
    return random.choice(RANGES)


def _access_rule(blocks: list[int], random: Random) -> Rule:
    dst = _within(blocks, (24, 28, 30, 32, 32, 32, 32), random)
    src = (0, 0) if random.random() < 0.25 else _within(blocks, (16, 20, 24, 24, 27, 32), random)
    draw = random.random()
    if draw < 0.75:
        return Rule(src, dst, ANY_PORT, _ports(random), TCP)
    if draw < 0.92:
        return Rule(src, dst, ANY_PORT, _ports(random), UDP)
    return Rule(src, dst, ANY_PORT, ANY_PORT, random.choice((ICMP, GRE, None)))


def _firewall_rule(blocks: list[int], random: Random) -> Rule:
    lengths = (16, 24, 28, 29, 30, 32)
    src = (0, 0) if random.random() < 0.45 else _within(blocks, lengths, random)
    dst = (0, 0) if src[1] and random.random() < 0.45 else _within(blocks, lengths, random)
    draw = random.random()
    if draw < 0.85:
        sport = _ports(random) if random.random() < 0.35 else ANY_PORT
        return Rule(src, dst, sport, _ports(random), TCP if draw < 0.6 else UDP)
    return Rule(src, dst, ANY_PORT, ANY_PORT, random.choice((ICMP, GRE, ESP, None)))


Header = tuple[int, int, int, int, int]


def _inside(rule: Rule, random: Random) -> Header:
    src, dst = (address | random.getrandbits(32) & (1 << 32 - length) - 1 for address, length in rule[:2])
    sport, dport = (random.randint(low, high) for low, high in (rule.sport, rule.dport))
    return src, dst, sport, dport, random.choice((TCP, UDP, ICMP, 89)) if rule.proto is None else rule.proto


def _meets(prefix: tuple[int, int], address: int) -> bool:
    return (prefix[0] ^ address) >> 32 - prefix[1] == 0


def _first(rules: list[Rule], header: Header) -> int:
    for number, rule in enumerate(rules, start=1):
        if (
            (rule.proto is None or rule.proto == header[4])
            and _meets(rule.src, header[0])
            and _meets(rule.dst, header[1])
            and rule.sport[0] <= header[2] <= rule.sport[1]
            and rule.dport[0] <= header[3] <= rule.dport[1]
        ):
            return number
    raise AssertionError("the last rule matches everything")

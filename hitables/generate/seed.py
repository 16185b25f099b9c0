"""The statistics from which rule sets are generated: ClassBench's seed files, read, written, and learnt.

A seed file has sections; one starts with a line `-name` and ends with `#`:

    -scale  -extra      the number of rules behind the statistics; extra fields (not read)
    -prots              protocol (0: any), its share, then the share of each of the 25 port classes
    -flags              protocol, then VALUE/MASK,share
    -spar -spem -dpar -dpem   share, LOW:HIGH: arbitrary ranges and exact values, source and destination
    -wc_wc … -em_em     per port class: sum of both prefix lengths,share, then source length,share
    -snest -dnest       how many prefixes of an address tree may nest
    -sskew -dskew       level, share of nodes with one child, with two, mean skew of those with two
    -pcorr              level, chance that source and destination agree in it, having agreed before

The skew of a node is 1 - (weight of the lighter child) / (weight of the heavier).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ParseError, Unsupported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..parse.classbench import ClassbenchFilter, FilterRule

Share = float
Range = tuple[int, int]
Flags = tuple[int, int]

# Port classes: wildcard, 1024:65535, 0:1023, any other range, one value.
KINDS = ("wc", "hi", "lo", "ar", "em")
ANY: Range = (0, 65535)
HIGH: Range = (1024, 65535)
LOW: Range = (0, 1023)

# Source and destination class, in the order of the columns of -prots.
CLASSES = (
    "wc_wc", "wc_hi", "hi_wc", "hi_hi", "wc_lo", "lo_wc", "hi_lo", "lo_hi", "lo_lo",
    "wc_ar", "ar_wc", "hi_ar", "ar_hi", "wc_em", "em_wc", "hi_em", "em_hi",
    "lo_ar", "ar_lo", "lo_em", "em_lo", "ar_ar", "ar_em", "em_ar", "em_em",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Branching:
    """An address tree.

    nest  prefixes on one path, at most
    two   per level 0 to 31: the share of nodes with two children (None: no node)
    skew  per level: the mean skew of those nodes
    """

    nest: int
    two: tuple[Share | None, ...]
    skew: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Seed:
    """Shares sum to 1 in each table; *lengths* has (sum, source length) pairs by class."""

    scale: int
    protocols: dict[int, Share]
    classes: dict[int, dict[str, Share]]
    flags: dict[int, dict[Flags, Share]]
    ports: dict[str, dict[Range, Share]]  # spar, spem, dpar, dpem
    lengths: dict[str, dict[tuple[int, int], Share]]
    source: Branching
    destination: Branching
    correlation: tuple[float, ...]  # of bits 1 to 32


def parse(text: str, source: str = "-") -> Seed:
    """Read a seed file; ParseError names the line of the mistake."""
    return _Reader(text, source).seed()


def to_text(seed: Seed) -> str:
    """The seed as a file that `parse` reads back."""
    lines = ["-scale", str(seed.scale), "#", "-prots"]
    for protocol, share in seed.protocols.items():
        shares = (f"{seed.classes[protocol].get(name, 0):.8f}" for name in CLASSES)
        lines.append("\t".join((str(protocol), f"{share:.8f}", *shares)))
    lines += ["#", "-flags"]
    for protocol, flags in seed.flags.items():
        entries = (f"0x{value:04x}/0x{mask:04x},{share:.8f}" for (value, mask), share in flags.items())
        lines.append("\t".join((str(protocol), *entries)))
    lines += ["#", "-extra", "0", "#"]
    for name, ports in seed.ports.items():
        lines += [f"-{name}", *(f"{share:.8f}\t{low}:{high}" for (low, high), share in ports.items()), "#"]
    for name in CLASSES:
        lines.append(f"-{name}")
        pairs = seed.lengths.get(name, {})
        for total in sorted({total for total, _ in pairs}):
            here = {length: share for (both, length), share in pairs.items() if both == total}
            whole = sum(here.values())
            split = (f"{length},{share / whole:.8f}" for length, share in sorted(here.items()))
            lines.append("\t".join((f"{total},{whole:.8f}", *split)))
        lines.append("#")
    for letter, tree in (("s", seed.source), ("d", seed.destination)):
        lines += [f"-{letter}nest", str(tree.nest), "#", f"-{letter}skew"]
        for level, (two, skew) in enumerate(zip(tree.two, tree.skew, strict=True)):
            one = 0 if two is None else 1 - two
            lines.append(f"{level}\t{one:.8f}\t{two or 0:.8f}\t{skew:.8f}")
        lines.append("#")
    lines += [
        "-pcorr",
        *(f"{bit}\t{chance:.8f}" for bit, chance in enumerate(seed.correlation, start=1)),
        "#",
    ]
    return "\n".join(lines) + "\n"


def learn(filters: ClassbenchFilter) -> Seed:
    """The statistics of a rule set; Unsupported for a rule of protocol 0, which is any protocol in a seed."""
    import numpy as np

    rules = filters.rules
    zero = next((rule for rule in rules if rule.proto == 0), None)
    if zero is not None:
        raise Unsupported(
            f"{filters.source}:{zero.line}: protocol 0 (0x00/0xFF): a seed cannot express that, because its "
            "protocol 0 is any protocol; write 0x00/0x00 for any protocol, or leave the line out"
        )
    by_protocol = Counter(rule.proto or 0 for rule in rules)
    classes: dict[int, Counter[str]] = {protocol: Counter() for protocol in by_protocol}
    flags: dict[int, Counter[Flags]] = {protocol: Counter() for protocol in by_protocol}
    ports: dict[str, Counter[Range]] = {name: Counter() for name in ("spar", "spem", "dpar", "dpem")}
    lengths: dict[str, Counter[tuple[int, int]]] = {}
    for rule in rules:
        kinds = kind_of(rule.sport), kind_of(rule.dport)
        name = f"{kinds[0]}_{kinds[1]}"
        classes[rule.proto or 0][name] += 1
        flags[rule.proto or 0][rule.flags or (0, 0)] += 1
        for letter, kind, ends in (("s", kinds[0], rule.sport), ("d", kinds[1], rule.dport)):
            if kind in ("ar", "em"):
                ports[f"{letter}p{kind}"][ends] += 1
        source = length_of(rule.src)
        lengths.setdefault(name, Counter())[source + length_of(rule.dst), source] += 1
    sides = [
        np.array([[getattr(rule, side)[0], length_of(getattr(rule, side))] for rule in rules], np.int64)
        for side in ("src", "dst")
    ]
    return Seed(
        len(rules),
        _shares(by_protocol),
        {protocol: _shares(counts) for protocol, counts in classes.items()},
        {protocol: _shares(counts) for protocol, counts in flags.items()},
        {name: _shares(counts) for name, counts in ports.items()},
        {name: _shares(counts) for name, counts in lengths.items()},
        _branching(sides[0]),
        _branching(sides[1]),
        _correlation(*sides),
    )


def kind_of(ports: Range) -> str:
    """The class of a port range."""
    if ports in (ANY, HIGH, LOW):
        return KINDS[(ANY, HIGH, LOW).index(ports)]
    return "em" if ports[0] == ports[1] else "ar"


def length_of(side: Range) -> int:
    """The prefix length of an address range."""
    return 32 - (side[1] - side[0]).bit_length()


def _shares(counts: Counter[Any]) -> dict[Any, Share]:
    whole = counts.total()
    return {what: count / whole for what, count in sorted(counts.items())}


def _branching(prefixes: NDArray[np.int64]) -> Branching:
    import numpy as np

    addresses, lengths = prefixes.T
    two: list[Share | None] = []
    skews = []
    for level in range(32):
        inner = lengths > level
        nodes, at = np.unique(addresses[inner] >> (32 - level), return_inverse=True)
        bit = addresses[inner] >> (31 - level) & 1
        weight = np.stack([np.bincount(at[bit == side], minlength=len(nodes)) for side in (0, 1)])
        both = (weight > 0).all(axis=0)
        two.append(float(both.mean()) if len(nodes) else None)
        light, heavy = weight[:, both].min(axis=0), weight[:, both].max(axis=0)
        skews.append(float((1 - light / heavy).mean()) if both.any() else 0.0)
    known = set(zip(addresses.tolist(), lengths.tolist(), strict=True))

    def nested(address: int, length: int) -> int:
        return sum((address >> 32 - top << 32 - top, top) in known for top in range(1, length + 1))

    nest = max((nested(*prefix) for prefix in known), default=0)
    return Branching(max(1, nest), tuple(two), tuple(skews))


def _correlation(sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> tuple[float, ...]:
    import numpy as np

    shorter = np.minimum(sources[:, 1], destinations[:, 1])
    agreement = []
    for bit in range(1, 33):
        reached = (shorter >= bit) & (sources[:, 0] >> (33 - bit) == destinations[:, 0] >> (33 - bit))
        agree = (sources[:, 0] >> (32 - bit) & 1) == (destinations[:, 0] >> (32 - bit) & 1)
        agreement.append(float(agree[reached].mean()) if reached.any() else 0.0)
    return tuple(agreement)


class _Reader:
    """Sections as rows of words, with the line of each."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.lines = text.split("\n")
        self.sections: dict[str, list[tuple[int, list[str]]]] = {}
        name = None
        for number, line in enumerate(self.lines, start=1):
            words = line.split()
            if not words:
                continue
            if words[0] == "#":
                name = None
            elif re.fullmatch(r"-[a-z_]+", words[0]):
                name = words[0][1:]
                self.sections[name] = []
            elif name is None:
                self.fail(number, "no section is open; one starts with -name and ends with #")
            else:
                self.sections[name].append((number, words))

    def fail(self, number: int, reason: str) -> NoReturn:
        text = self.lines[number - 1] if number else ""
        raise ParseError(
            reason,
            source=self.source,
            line=number,
            column=1 if text else 0,
            text=text,
            length=len(text),
            hint="a ClassBench seed file is expected",
        )

    def rows(self, name: str) -> list[tuple[int, list[str]]]:
        if name not in self.sections:
            self.fail(0, f"there is no section -{name}")
        return self.sections[name]

    def line_of(self, name: str) -> int:
        """The first line of the section; 0 if it is empty."""
        rows = self.rows(name)
        return rows[0][0] if rows else 0

    def number(self, line: int, word: str, low: float = 0, high: float = 2**32) -> float:
        try:
            value = float(word)
        except ValueError:
            self.fail(line, f"{word!r} is no number")
        if not low <= value <= high:
            self.fail(line, f"{word} does not lie in {low:g}..{high:g}")
        return value

    def whole(self, line: int, word: str, high: int) -> int:
        try:
            value = int(word, 0)
        except ValueError:
            self.fail(line, f"{word!r} is no whole number")
        if not 0 <= value <= high:
            self.fail(line, f"{word} does not lie in 0..{high}")
        return value

    def pair(self, line: int, word: str, between: str) -> tuple[str, str]:
        first, separator, second = word.partition(between)
        if not separator:
            self.fail(line, f"{word!r} should be two values with {between!r} between")
        return first, second

    def one(self, name: str, high: int) -> int:
        rows = self.rows(name)
        if len(rows) != 1:
            self.fail(rows[1][0] if rows else 0, f"-{name} has one number")
        return self.whole(rows[0][0], rows[0][1][0], high)

    def seed(self) -> Seed:
        protocols, classes = {}, {}
        for line, words in self.rows("prots"):
            if len(words) != 2 + len(CLASSES):
                self.fail(line, f"{len(words)} columns; a protocol, its share and 25 classes are 27")
            protocol = self.whole(line, words[0], 255)
            protocols[protocol] = self.number(line, words[1], high=1)
            shares = (self.number(line, word, high=1) for word in words[2:])
            classes[protocol] = normal(dict(zip(CLASSES, shares, strict=True)))
            if protocols[protocol] and not classes[protocol]:
                self.fail(line, f"the shares of the port classes of protocol {protocol} sum to 0")
        if not normal(protocols):
            self.fail(self.line_of("prots"), "the shares of the protocols sum to 0")
        flags = {}
        for line, words in self.sections.get("flags", []):
            values = {}
            for word in words[1:]:
                pair, share = self.pair(line, word, ",")
                value, mask = self.pair(line, pair, "/")
                values[self.whole(line, value, 65535), self.whole(line, mask, 65535)] = self.number(
                    line, share, high=1
                )
            if not normal(values):
                self.fail(
                    line, "the shares of the flags sum to 0; leave the line out for rules without flags"
                )
            flags[self.whole(line, words[0], 255)] = normal(values)
        scale = self.one("scale", 2**31)
        if not scale:
            self.fail(self.line_of("scale"), "-scale is the number of rules, at least 1")
        seed = Seed(
            scale,
            normal(protocols),
            classes,
            flags,
            {name: self.ports(name) for name in ("spar", "spem", "dpar", "dpem")},
            {name: lengths for name in CLASSES if (lengths := self.lengths(name))},
            self.branching("s"),
            self.branching("d"),
            self.correlation(),
        )
        self.check(seed)
        return seed

    def check(self, seed: Seed) -> None:
        for protocol, classes in seed.classes.items():
            for name in classes:
                if name not in seed.lengths:
                    self.fail(
                        0,
                        f"protocol {protocol} has rules of class {name}, and -{name} has no prefix lengths",
                    )
                for letter, kind in zip("sd", name.split("_"), strict=True):
                    if kind in ("ar", "em") and not seed.ports[f"{letter}p{kind}"]:
                        self.fail(
                            0, f"protocol {protocol} has rules of class {name}, and -{letter}p{kind} is empty"
                        )

    def ports(self, name: str) -> dict[Range, Share]:
        shares = {}
        for line, words in self.rows(name):
            if len(words) != 2:
                self.fail(line, "a share and LOW:HIGH are expected")
            first, second = self.pair(line, words[1], ":")
            low, high = self.whole(line, first, 65535), self.whole(line, second, 65535)
            if low > high:
                self.fail(line, f"the range {low}:{high} is empty")
            shares[low, high] = self.number(line, words[0], high=1)
        return normal(shares)

    def lengths(self, name: str) -> dict[tuple[int, int], Share]:
        shares = {}
        for line, words in self.sections.get(name, []):
            total, share = self.pair(line, words[0], ",")
            whole = self.number(line, share, high=1)
            for word in words[1:]:
                length, part = self.pair(line, word, ",")
                both, source = self.whole(line, total, 64), self.whole(line, length, 32)
                if not 0 <= both - source <= 32:
                    self.fail(line, f"lengths that sum to {both}, and a source length of {source}")
                shares[both, source] = whole * self.number(line, part, high=1)
        return normal(shares)

    def branching(self, letter: str) -> Branching:
        two: list[Share | None] = [None] * 32
        skew = [0.0] * 32
        for line, words in self.rows(f"{letter}skew"):
            if len(words) != 4:
                self.fail(line, "a level and three numbers are expected")
            level = self.whole(line, words[0], 32)
            one, both, mean = (self.number(line, word, high=1) for word in words[1:])
            if level < 32 and one + both:
                two[level], skew[level] = both / (one + both), mean
        return Branching(max(1, self.one(f"{letter}nest", 32)), tuple(two), tuple(skew))

    def correlation(self) -> tuple[float, ...]:
        chances = [0.0] * 32
        for line, words in self.rows("pcorr"):
            if len(words) != 2:
                self.fail(line, "a bit and a chance are expected")
            chances[max(1, self.whole(line, words[0], 32)) - 1] = self.number(line, words[1], high=1)
        return tuple(chances)


def normal(shares: dict[Any, Share]) -> dict[Any, Share]:
    """Shares that sum to 1; seeds round theirs."""
    whole = sum(shares.values())
    return {what: share / whole for what, share in shares.items() if share} if whole else {}


def columns(shares: dict[Any, Share]) -> tuple[Sequence[Any], Sequence[Share]]:
    """The same as two columns, for drawing."""
    kept: Iterable[tuple[Any, Share]] = normal(shares).items()
    what, share = zip(*kept, strict=True)
    return what, share


def rule_key(rule: FilterRule) -> tuple[Any, ...]:
    """The identity of a rule: everything but the line."""
    return rule[:-1]

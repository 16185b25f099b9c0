"""Programs of shape groups, written rule by rule: right ones, and ones with a slip.

Made without the builders, so that lists may be grouped in any way, and forms may be wrong in any.
`Written.decide` runs a chain on all packets of a small space at once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

VERDICTS = ("ACCEPT", "DROP", "REJECT")
ADDRESSES, PROTOCOLS, PORTS = 5, ("tcp", "udp", "icmp"), 4
Packets = npt.NDArray[np.bool_]


def _space() -> dict[str, npt.NDArray[np.int64]]:
    axes = np.meshgrid(*map(np.arange, (ADDRESSES, ADDRESSES, len(PROTOCOLS), PORTS)), indexing="ij")
    return dict(zip(("src", "dst", "proto", "port"), (axis.reshape(-1) for axis in axes), strict=True))


SPACE = _space()
SIZE = len(SPACE["src"])


@dataclass(frozen=True)
class Said:
    """The matches of a rule.  Addresses: None or (value, bits left open), of the last two bits."""

    src: tuple[int, int] | None = None
    dst: tuple[int, int] | None = None
    proto: str | None = None
    port: tuple[int, int] | None = None

    def words(self) -> str:
        out = []
        for flag, each in (("-s", self.src), ("-d", self.dst)):
            if each is not None:
                out.append(f"{flag} 10.0.0.{each[0]}/{32 - each[1]}")
        if self.proto is not None:
            out.append(f"-p {self.proto}")
        if self.port is not None:
            out.append(f"-m {self.proto} --dport {self.port[0]}:{self.port[1]}")
        return " ".join(out)

    def packets(self) -> Packets:
        found = np.ones(SIZE, np.bool_)
        for name, each in (("src", self.src), ("dst", self.dst)):
            if each is not None:
                found &= SPACE[name] >> each[1] == each[0] >> each[1]
        if self.proto is not None:
            found &= SPACE["proto"] == PROTOCOLS.index(self.proto)
        if self.port is not None:
            found &= (SPACE["port"] >= self.port[0]) & (SPACE["port"] <= self.port[1])
        return found


ANY = Said()


@dataclass(frozen=True)
class Line:
    """-j or -g, to a verdict or a chain."""

    said: Said
    flag: str
    to: str


@dataclass
class Written:
    """Chains by name; packets enter FORWARD."""

    chains: dict[str, list[Line]] = field(default_factory=dict)

    def text(self) -> str:
        user = [f":{name} - [0:0]" for name in self.chains if name != "FORWARD"]
        rules = [
            " ".join(filter(None, (f"-A {name}", line.said.words(), f"{line.flag} {line.to}")))
            for name, lines in self.chains.items()
            for line in lines
        ]
        return "\n".join(["*filter", ":FORWARD ACCEPT [0:0]", *user, *rules, "COMMIT", ""])

    def decide(self) -> npt.NDArray[np.int64]:
        """By packet: the verdict; the policy is 0."""
        return np.maximum(self._run("FORWARD", np.ones(SIZE, np.bool_)), 0)

    def _run(self, chain: str, packets: Packets) -> npt.NDArray[np.int64]:
        out, left = np.full(SIZE, -1), packets.copy()
        for line in self.chains[chain]:
            here = left & line.said.packets()
            if line.to in VERDICTS:
                out[here] = VERDICTS.index(line.to)
                left &= ~here
                continue
            below = self._run(line.to, here)
            out[here] = below[here]
            left &= ~(here & (below >= 0) if line.flag == "-j" else here)
        return out


def make_list(rng: random.Random, rules: int) -> list[Line]:
    """A list whose rules cross."""
    out = []
    for _ in range(rules):
        proto = rng.choice((None, "tcp", "udp"))
        low = rng.randrange(PORTS)
        port = (low, rng.randrange(low, PORTS)) if proto and rng.random() < 0.5 else None
        said = Said(*(_address(rng) for _ in "sd"), proto, port)
        out.append(Line(said, "-j", rng.choice(VERDICTS)))
    return out


def _address(rng: random.Random) -> tuple[int, int] | None:
    if rng.random() < 0.45:
        return None
    free = rng.choice((0, 0, 1))
    return rng.randrange(4) >> free << free, free


SLIPS = ("version", "no form", "listed", "order", "calls", "verdict", "left out")


@dataclass
class Grouping:
    """Writes *rules* in groups; with *slip*, a place where that may go wrong does."""

    rules: list[Line]
    rng: random.Random
    slip: str = ""

    def write(self) -> Written:
        rng, count = self.rng, 3
        by_shape = rng.random() < 0.7
        # What matches every packet is asked by no form of its own: it comes last.
        self.group = [
            (0 if line.said.dst else 1 if line.said.src else 2)
            if by_shape or line.said == ANY
            else rng.randrange(count)
            for line in self.rules
        ]
        self.made = Written()
        self.forms = {at: self._form(at) for at in range(len(self.rules))}
        self.where = rng.choice(range(len(self.rules)))
        trees = [self._segment(group, len(self.rules)) for group in range(count)]
        calls = [Line(ANY, "-j", f"tree{group}") for group in range(count - 1)]
        for group in range(count - 1):
            self.made.chains[f"tree{group}"] = trees[group]
        if self.slip == "calls":
            calls.reverse()
        self.made.chains["FORWARD"] = [*calls, *trees[-1]]
        return self.made

    def _form(self, rule: int) -> str:
        earlier = self._earlier(rule)
        mine = self.rules[rule].said.packets()
        crossed = [each for each in earlier if (self.rules[each].said.packets() & mine).any()]
        if not crossed:
            return "plain"
        return "listed" if len(crossed) < 3 and self.rng.random() < 0.5 else "asked"

    def _earlier(self, rule: int) -> list[int]:
        return [at for at in range(rule) if self.group[at] > self.group[rule]]

    def _segment(self, group: int, limit: int) -> list[Line]:
        """The group's rules before *limit*, each with its form."""
        members = [at for at in range(limit) if self.group[at] == group]
        if self.slip == "order" and len(members) > 1:
            at = self.rng.randrange(len(members) - 1)
            members[at : at + 2] = members[at + 1], members[at]
        out: list[Line] = []
        for rule in members:
            out += self._written(rule)
        return out

    def _written(self, rule: int) -> list[Line]:
        line, form, here = self.rules[rule], self.forms[rule], rule == self.where
        if self.slip == "left out" and here:
            return []
        if self.slip == "verdict" and here:
            line = replace(line, to=self.rng.choice(VERDICTS))
        if form == "plain" or (self.slip == "no form" and here):
            return [line]
        if form == "asked":
            chain = self._version(rule, rule + self.rng.choice((-1, 1)) * (self.slip == "version" and here))
            return [Line(line.said, "-j", chain), line] if chain else [line]
        mine = line.said.packets()
        listed = [
            self.rules[at] for at in self._earlier(rule) if (self.rules[at].said.packets() & mine).any()
        ]
        if self.slip == "listed" and here:
            listed = listed[1:] if len(listed) == 1 or self.rng.random() < 0.5 else listed[::-1]
        name = f"rule{rule}"
        self.made.chains[name] = [*listed, Line(ANY, "-j", line.to)]
        return [Line(line.said, "-g", name)]

    def _version(self, rule: int, limit: int) -> str:
        """The chain that asks for the rules of later groups before *limit*."""
        later = [
            group
            for group in range(self.group[rule] + 1, 3)
            if any(self.group[at] == group for at in range(max(0, limit)))
        ]
        if not later:
            return ""
        *first, last = [f"group{group}before{limit}" for group in later]
        for name, group in zip((*first, last), later, strict=True):
            if name not in self.made.chains:
                self.made.chains[name] = []
                self.made.chains[name] = self._segment(group, limit)
        if not first:
            return last
        both = f"before{limit}"
        calls = [Line(ANY, "-j", name) for name in first]
        self.made.chains.setdefault(both, [*calls, *self.made.chains[last]])
        return both

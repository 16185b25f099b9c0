"""Programs of shape groups, written rule by rule: correct ones, and ones with a slip.

Made without the builders, so that rules may be grouped in any way, and forms may be wrong in any way.
`Chains.decide` runs a program on all packets of a small space at once.
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
class Matches:
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
        inside = np.ones(SIZE, np.bool_)
        for name, each in (("src", self.src), ("dst", self.dst)):
            if each is not None:
                inside &= SPACE[name] >> each[1] == each[0] >> each[1]
        if self.proto is not None:
            inside &= SPACE["proto"] == PROTOCOLS.index(self.proto)
        if self.port is not None:
            inside &= (SPACE["port"] >= self.port[0]) & (SPACE["port"] <= self.port[1])
        return inside


ANY = Matches()


@dataclass(frozen=True)
class Line:
    """-j or -g, to a verdict or a chain."""

    matches: Matches
    flag: str
    to: str


@dataclass
class Chains:
    """Chains by name; packets enter FORWARD."""

    chains: dict[str, list[Line]] = field(default_factory=dict)

    def text(self) -> str:
        user = [f":{name} - [0:0]" for name in self.chains if name != "FORWARD"]
        rules = [
            " ".join(filter(None, (f"-A {name}", line.matches.words(), f"{line.flag} {line.to}")))
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
            here = left & line.matches.packets()
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
        matches = Matches(*(_address(rng) for _ in "sd"), proto, port)
        out.append(Line(matches, "-j", rng.choice(VERDICTS)))
    return out


def _address(rng: random.Random) -> tuple[int, int] | None:
    if rng.random() < 0.45:
        return None
    free = rng.choice((0, 0, 1))
    return rng.randrange(4) >> free << free, free


SLIPS = ("version", "no form", "listed", "order", "calls", "verdict", "left out")


@dataclass
class Grouping:
    """Writes *rules* in groups; a *slip* makes one mistake."""

    rules: list[Line]
    rng: random.Random
    slip: str = ""

    def write(self) -> Chains:
        rng, count = self.rng, 3
        by_shape = rng.random() < 0.7
        # No form calls a rule that matches every packet: it is in the last group.
        self.group = [
            (0 if line.matches.dst else 1 if line.matches.src else 2)
            if by_shape or line.matches == ANY
            else rng.randrange(count)
            for line in self.rules
        ]
        self.chains: dict[str, list[Line]] = {}
        self.forms = {at: self._form(at) for at in range(len(self.rules))}
        self.where = rng.choice(range(len(self.rules)))
        trees = [self._segment(group, len(self.rules)) for group in range(count)]
        calls = [Line(ANY, "-j", f"tree{group}") for group in range(count - 1)]
        for group in range(count - 1):
            self.chains[f"tree{group}"] = trees[group]
        if self.slip == "calls":
            calls.reverse()
        self.chains["FORWARD"] = [*calls, *trees[-1]]
        return Chains(self.chains)

    def _form(self, rule: int) -> str:
        earlier = self._earlier(rule)
        mine = self.rules[rule].matches.packets()
        crossed = [each for each in earlier if (self.rules[each].matches.packets() & mine).any()]
        if not crossed:
            return "plain"
        return "listed" if len(crossed) < 3 and self.rng.random() < 0.5 else "asked"

    def _earlier(self, rule: int) -> list[int]:
        return [at for at in range(rule) if self.group[at] > self.group[rule]]

    def _segment(self, group: int, limit: int) -> list[Line]:
        """The group's rules before *limit*, each behind its form."""
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
            return [Line(line.matches, "-j", chain), line] if chain else [line]
        mine = line.matches.packets()
        listed = [
            self.rules[at] for at in self._earlier(rule) if (self.rules[at].matches.packets() & mine).any()
        ]
        if self.slip == "listed" and here:
            listed = listed[1:] if len(listed) == 1 or self.rng.random() < 0.5 else listed[::-1]
        name = f"rule{rule}"
        self.chains[name] = [*listed, Line(ANY, "-j", line.to)]
        return [Line(line.matches, "-g", name)]

    def _version(self, rule: int, limit: int) -> str:
        """The chain with the rules of later groups before *limit*."""
        later = [
            group
            for group in range(self.group[rule] + 1, 3)
            if any(self.group[at] == group for at in range(max(0, limit)))
        ]
        if not later:
            return ""
        *first, last = [f"group{group}before{limit}" for group in later]
        for name, group in zip((*first, last), later, strict=True):
            if name not in self.chains:
                self.chains[name] = []
                self.chains[name] = self._segment(group, limit)
        if not first:
            return last
        both = f"before{limit}"
        calls = [Line(ANY, "-j", name) for name in first]
        self.chains.setdefault(both, [*calls, *self.chains[last]])
        return both

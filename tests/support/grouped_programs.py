"""Programs of shape groups, written rule by rule: correct ones, and ones with a slip.

Made without the builders, so that rules may be grouped in any way, and forms may be wrong in any way.
`Chains.outcomes` runs a program on all packets of a small space at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

VERDICTS = ("ACCEPT", "DROP", "REJECT")
LOGS = ("LOG --log-prefix a", "LOG --log-prefix b")
MARK = "MARK --set-xmark 0x1/0x1"
ADDRESSES, PROTOCOLS, PORTS = 5, ("tcp", "udp", "icmp"), 4
# Answers of the matches with memory that a packet meets, and what `-m mark` finds after each write.
BITS = {"answer": 2, "marked": 3}
Packets = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


def _space() -> dict[str, Numbers]:
    sizes = (ADDRESSES, ADDRESSES, len(PROTOCOLS), PORTS, *(1 << bits for bits in BITS.values()))
    axes = np.meshgrid(*map(np.arange, sizes), indexing="ij")
    names = "src", "dst", "proto", "port", *BITS
    return dict(zip(names, (axis.reshape(-1) for axis in axes), strict=True))


SPACE = _space()
SIZE = len(SPACE["src"])


@dataclass(frozen=True)
class Matches:
    """The matches of a rule.  Addresses: None or (value, bits left open), of the last two bits."""

    src: tuple[int, int] | None = None
    dst: tuple[int, int] | None = None
    proto: str | None = None
    port: tuple[int, int] | None = None
    marked: bool = False
    limit: bool = False

    def words(self) -> str:
        out = []
        for flag, each in (("-s", self.src), ("-d", self.dst)):
            if each is not None:
                out.append(f"{flag} 10.0.0.{each[0]}/{32 - each[1]}")
        if self.proto is not None:
            out.append(f"-p {self.proto}")
        if self.port is not None:
            out.append(f"-m {self.proto} --dport {self.port[0]}:{self.port[1]}")
        if self.marked:
            out.append("-m mark --mark 0x1/0x1")
        if self.limit:
            out.append("-m limit --limit 1/sec")
        return " ".join(out)

    @property
    def tests(self) -> Matches:
        """The tests of header fields."""
        return replace(self, marked=False, limit=False)

    def packets(self) -> Packets:
        """The packets that pass the tests of header fields."""
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
    """-j or -g, to a target or a chain."""

    matches: Matches
    flag: str
    to: str

    @property
    def decides(self) -> bool:
        """Whether it surely ends the packet's way and asks no memory; `-m mark` may find what a rule wrote."""
        return not self.matches.limit and self.to in (*VERDICTS, *ENDING)

    @property
    def has_effects(self) -> bool:
        return not self.decides and self.to != "RETURN"


# User chains of the list: two that surely end the packet's way, and one that may return.
ENDING = {
    "logdrop": [Line(ANY, "-j", "LOG --log-prefix end"), Line(ANY, "-j", "DROP")],
    "refuse": [Line(Matches(proto="tcp"), "-j", "REJECT"), Line(ANY, "-g", "logdrop")],
}
RETURNING = {
    "user": [
        Line(Matches(dst=(2, 1)), "-j", "RETURN"),
        Line(Matches(proto="udp"), "-j", LOGS[0]),
        Line(Matches(src=(1, 0)), "-j", "DROP"),
    ]
}


@dataclass
class _Walks:
    """What all packets have met so far; *trace* is a number per sequence of effects.

    cut  the packets end before their ports, so the first test of a port drops them
    """

    cut: bool = False
    trace: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(SIZE, np.uint64))
    asked: Numbers = field(default_factory=lambda: np.zeros(SIZE, np.int64))
    writes: Numbers = field(default_factory=lambda: np.zeros(SIZE, np.int64))

    def note(self, packets: Packets, effect: str) -> None:
        number = np.uint64(int.from_bytes(effect.encode(), "little") % 1_000_003 + 1)
        self.trace[packets] = self.trace[packets] * np.uint64(1_000_033) + number

    def matching(self, packets: Packets, matches: Matches) -> Packets:
        here = packets & matches.packets()
        if matches.marked:
            here &= SPACE["marked"] >> np.minimum(self.writes, BITS["marked"] - 1) & 1 == 1
        if matches.limit:
            self.note(here, "asks")
            answer = SPACE["answer"] >> np.minimum(self.asked, BITS["answer"] - 1) & 1 == 1
            self.asked[here] += 1
            here &= answer
        return here


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

    def outcomes(self) -> npt.NDArray[np.uint64]:
        """By packet: a number for its effects, in order, and its verdict; the policy is ACCEPT."""
        verdict, trace = self._walk(cut=False)
        return trace * np.uint64(len(VERDICTS)) + verdict.astype(np.uint64)

    def may_replace(self, other: Chains) -> bool:
        """Whether it does what *other* does, but that it may drop malformed packets."""
        if not np.array_equal(self.outcomes(), other.outcomes()):
            return False
        verdict, trace = self._walk(cut=True)
        of_other, trace_of_other = other._walk(cut=True)
        same = (verdict == of_other) & (trace == trace_of_other)
        return bool(np.all(same | (verdict == VERDICTS.index("DROP"))))

    def _walk(self, cut: bool) -> tuple[Numbers, npt.NDArray[np.uint64]]:
        """By packet: its verdict, a number for its effects."""
        walks = _Walks(cut)
        return np.maximum(self._run("FORWARD", np.ones(SIZE, np.bool_), walks), 0), walks.trace

    def _run(self, chain: str, packets: Packets, walks: _Walks) -> Numbers:
        out, left = np.full(SIZE, -1), packets.copy()
        for line in self.chains[chain]:
            if walks.cut and line.matches.port is not None:
                dropped = left & replace(line.matches, port=None).packets()
                out[dropped] = VERDICTS.index("DROP")
                left &= ~dropped
            here = walks.matching(left, line.matches)
            if line.to in VERDICTS:
                out[here] = VERDICTS.index(line.to)
                left &= ~here
            elif line.to == "RETURN":
                left &= ~here
            elif line.to in self.chains:
                below = self._run(line.to, here, walks)
                out[here] = below[here]
                left &= ~(here & (below >= 0) if line.flag == "-j" else here)
            else:
                walks.note(here, line.to)
                walks.writes[here] += line.to == MARK
        return out


PLAIN = VERDICTS
EFFECTS = (*VERDICTS, *VERDICTS, *LOGS, MARK, "RETURN", *ENDING, *RETURNING)


def make_list(rng: random.Random, rules: int, targets: tuple[str, ...] = PLAIN) -> list[Line]:
    """A list whose rules cross."""
    out = []
    for _ in range(rules):
        proto = rng.choice((None, "tcp", "udp"))
        low = rng.randrange(PORTS)
        port = (low, rng.randrange(low, PORTS)) if proto and rng.random() < 0.5 else None
        to = rng.choice(targets)
        marked = targets is not PLAIN and rng.random() < 0.15
        limit = targets is not PLAIN and rng.random() < 0.15
        matches = Matches(*(_address(rng) for _ in "sd"), proto, port, marked, limit)
        out.append(Line(matches, "-j", to))
    return out


def list_program(rules: list[Line]) -> Chains:
    """The program that has *rules* in FORWARD."""
    return Chains({"FORWARD": rules, **_user_chains(rules)})


def _user_chains(rules: list[Line]) -> dict[str, list[Line]]:
    used = {line.to for line in rules}
    if "refuse" in used:
        used.add("logdrop")
    return {name: lines for name, lines in (ENDING | RETURNING).items() if name in used}


def _address(rng: random.Random) -> tuple[int, int] | None:
    if rng.random() < 0.45:
        return None
    free = rng.choice((0, 0, 1))
    return rng.randrange(4) >> free << free, free


SLIPS = ("version", "no form", "listed", "order", "calls", "verdict", "left out")
EFFECT_SLIPS = (
    *SLIPS, "twice", "moved", "searched", "guard", "called", "returns", "marked", "user chain", "wider", "again",
)  # fmt: skip


@dataclass
class Grouping:
    """Writes *rules* in groups; a *slip* makes one mistake.

    A rule that stays (it has effects or memory, returns, or reads a mark that a rule writes) is in the first
    group, which is then in line; the other groups follow by `-g`.  With *late* those that stay are in the last
    group, if none of them returns.  With *branches* some versions test ports first, which drops malformed packets.
    With *pruned* a form does not list rules whose packets earlier listed rules decide.
    """

    rules: list[Line]
    rng: random.Random
    slip: str = ""
    late: bool = False
    branches: bool = False
    pruned: bool = False

    def write(self) -> Chains:
        rng, count = self.rng, 3
        by_shape = rng.random() < 0.7
        self.writes = any(line.to == MARK for line in self.rules)
        # No form calls a rule that matches every packet: it is in the last group.
        self.late &= not any(self.stays(line) and line.to == "RETURN" for line in self.rules)
        home = 2 if self.late else 0
        self.group = [
            home
            if self.stays(line)
            else (0 if line.matches.dst else 1 if line.matches.src else 2)
            if by_shape or line.matches == ANY
            else rng.randrange(count)
            for line in self.rules
        ]
        staying = [at for at, line in enumerate(self.rules) if self.stays(line)]
        if self.slip == "moved" and staying:
            self.group[rng.choice(staying)] = rng.choice((0, 1) if self.late else (1, 2))
        self.chains: dict[str, list[Line]] = {}
        head = self.head = self._head(staying)
        self.forms = {at: self._form(at) for at in range(len(self.rules))}
        self.where = rng.choice(staying if staying and rng.random() < 0.6 else range(len(self.rules)))
        trees = [self._segment(group, len(self.rules)) for group in range(count)]
        return Chains(self._joined(trees, bool(staying), head))

    def stays(self, line: Line) -> bool:
        if self.slip == "returns" and line.to == "RETURN" and not line.matches.limit:
            return False
        if self.slip == "marked" and line.decides:
            return False
        return not line.decides or (line.matches.marked and self.writes)

    def _head(self, staying: list[int]) -> int:
        """How many rules stand in front of everything."""
        head = 0
        while head in staying:
            head += 1
        return self.rng.choice((0, head))

    def _joined(self, trees: list[list[Line]], stays: bool, head: int) -> dict[str, list[Line]]:
        first = [each for at in range(head) for each in self._written(at)]
        in_line = self.slip != "called" and (any(self.group[at] == 0 for at in range(head, len(self.rules))))
        for group in range(len(trees) - 1):
            self.chains[f"tree{group}"] = trees[group]
        calls = [Line(ANY, "-j", f"tree{group}") for group in range(len(trees) - 1)]
        if self.slip == "calls":
            calls.reverse()
        user = _user_chains(self.rules)
        if self.slip == "user chain" and user:
            name = self.rng.choice(list(user))
            lines = list(user[name])
            lines.pop(self.rng.randrange(len(lines)))
            user[name] = lines
        self.chains |= user
        if stays and in_line:
            del self.chains["tree0"]
            rest = [each for each in calls if each.to != "tree0"]
            self.chains["rest"] = [*rest, *trees[-1]]
            return {"FORWARD": [*first, *trees[0], Line(ANY, "-g", "rest")], **self.chains}
        return {"FORWARD": [*first, *calls, *trees[-1]], **self.chains}

    def _form(self, rule: int) -> str:
        earlier = self._earlier(rule)
        mine = self.rules[rule].matches.packets()
        crossed = [each for each in earlier if (self.rules[each].matches.packets() & mine).any()]
        if not crossed:
            return "plain"
        movable = not any(self.stays(self.rules[each]) for each in (rule, *crossed))
        return (
            "listed"
            if movable and len(crossed) < (6 if self.pruned else 3) and self.rng.random() < 0.5
            else "asked"
        )

    def _earlier(self, rule: int) -> list[int]:
        return [at for at in range(self.head, rule) if self.group[at] > self.group[rule]]

    def _segment(self, group: int, limit: int) -> list[Line]:
        """The group's rules before *limit*, each behind its form; rules of the head are not read again."""
        members = [at for at in range(self.head, limit) if self.group[at] == group]
        if self.slip == "searched" and group and limit < len(self.rules):
            effects = [at for at in range(limit) if self.rules[at].has_effects]
            members = sorted({*members, *effects[:1]})
        if self.slip == "order" and len(members) > 1:
            at = self.rng.randrange(len(members) - 1)
            members[at : at + 2] = members[at + 1], members[at]
        return [line for rule in members for line in self._written(rule)]

    def _written(self, rule: int) -> Iterator[Line]:
        line, form, here = self.rules[rule], self.forms[rule], rule == self.where
        if self.slip == "left out" and here:
            return
        if self.slip == "verdict" and here:
            line = replace(line, to=self.rng.choice(VERDICTS))
        copied = self._copy(rule, line)
        if form == "asked" and not (self.slip == "no form" and here):
            chain = self._version(rule, rule + self.rng.choice((-1, 1)) * (self.slip == "version" and here))
            if chain:
                yield Line(self._guard(line, here), "-j", chain)
        if form == "listed" and not (self.slip == "no form" and here):
            yield self._listing(rule, line, here)
            return
        yield copied
        if self.slip == "twice" and here:
            yield copied

    def _copy(self, rule: int, line: Line) -> Line:
        """The rule; one with memory is kept in a chain of its own."""
        if not line.matches.limit or line.to == "RETURN":
            return line
        self.chains[f"kept{rule}"] = [line]
        return Line(line.matches.tests, "-j", f"kept{rule}")

    def _guard(self, line: Line, here: bool) -> Matches:
        """The matches in front of the call; of a rule that stays perhaps the first alone."""
        tests = line.matches.tests
        if self.slip == "wider" and here:
            return replace(line.matches, port=None, src=None)
        if not self.stays(line):
            return line.matches
        narrow = self.slip == "guard" and here
        if narrow:
            return replace(tests, proto="tcp") if tests.proto is None else replace(tests, src=(1, 0))
        return replace(tests, port=None) if self.rng.random() < 0.3 else tests

    def _listing(self, rule: int, line: Line, here: bool) -> Line:
        mine = line.matches.packets()
        listed = [
            self.rules[at] for at in self._earlier(rule) if (self.rules[at].matches.packets() & mine).any()
        ]
        if self.pruned:
            listed = self._pruned(listed, mine, later=self.slip == "pruned" and here)
        if self.slip == "listed" and here:
            listed = listed[1:] if len(listed) == 1 or self.rng.random() < 0.5 else listed[::-1]
        name = f"rule{rule}"
        self.chains[name] = [*listed, Line(ANY, "-j", line.to)]
        return Line(line.matches, "-g", name)

    @staticmethod
    def _pruned(listed: list[Line], mine: Packets, later: bool) -> list[Line]:
        """The rules that decide some of *mine* behind those before them; with *later*, before those behind."""
        kept, decided = [], np.zeros(SIZE, np.bool_)
        for line in reversed(listed) if later else listed:
            packets = line.matches.packets() & mine
            if (packets & ~decided).any():
                kept.append(line)
            decided |= packets
        return kept[::-1] if later else kept

    def _branch(self, name: str, lines: list[Line]) -> list[Line]:
        """The lines of a version, perhaps twice: behind a test of ports, and for all others."""
        if not self.branches or self.rng.random() < 0.5:
            return lines
        self.chains[f"{name}low"] = list(lines)
        return [Line(Matches(proto="tcp", port=(0, 1)), "-g", f"{name}low"), *lines]

    def _version(self, rule: int, limit: int) -> str:
        """The chain with the rules of later groups before *limit*."""
        later = [
            group
            for group in range(self.group[rule] + 1, 3)
            if any(self.group[at] == group for at in range(self.head, max(0, limit)))
        ]
        if not later:
            return ""
        *first, last = [f"group{group}before{limit}" for group in later]
        for name, group in zip((*first, last), later, strict=True):
            if name not in self.chains:
                self.chains[name] = []
                self.chains[name] = self._branch(name, self._segment(group, limit))
        if not first:
            return last
        both = f"before{limit}"
        if self.slip == "early":
            calls = [Line(ANY, "-j", name) for name in (last, *first[:-1])]
            self.chains.setdefault(both, [*calls, *self.chains[first[-1]]])
            return both
        calls = [Line(ANY, "-j", name) for name in (*first, *([last] if self.slip == "again" else []))]
        self.chains.setdefault(both, [*calls, *self.chains[last]])
        return both

"""Rule sets of every style, drawn at random: the inputs of `make compiles`.

A style describes the tests of its rules besides addresses and ports, their targets, and their chains.
Values come from small pools, so that rules overlap, shadow and contradict each other, as in firewalls that
have grown.  The same random numbers draw the same set.  iptables-restore accepts every one but those of
style unknown: other packages bring that extension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from hitables.ir.fields import Family
from hitables.ir.program import BUILT_IN

from . import generated_firewalls
from .table_text import count, declared, dotted

V4, V6 = Family.IPV4, Family.IPV6

# Words of one match, or of the header options of one rule.
Words = list[str]

PORTED = ("tcp", "udp", "sctp", "dccp", "udplite")
UNPORTED = ("gre", "esp", "ah", "igmp", "47", "89", "255")
STATES = ("NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED")
FLAGS = ("SYN", "ACK", "FIN", "RST", "URG", "PSH")
ICMP_TYPES = (
    "any", "0", "3", "3/1", "3/4", "8", "8/0", "11", "echo-request", "destination-unreachable", "255",
)  # fmt: skip
ICMPV6_TYPES = ("1", "1/4", "2", "3", "128", "129", "134", "135", "136/0", "echo-request")
INTERFACES = ("eth0", "eth1", "eth+", "eth10", "br-lan", "wg0", "lo", "ppp+", "+")
COMMENTS = (
    "plain", "two words", 'a \\"quoted\\" word', "it's", "back\\\\slash", "# no comment", "-j DROP", "",
)  # fmt: skip
REJECTS = {
    V4: ("icmp-port-unreachable", "icmp-host-prohibited", "tcp-reset"),
    V6: ("icmp6-port-unreachable", "icmp6-adm-prohibited", "tcp-reset"),
}


@dataclass(frozen=True, slots=True)
class Style:
    """What the rules of a style are made of; shares are chances.

    protocols  weights of -p; "" is none, "other" one without ports
    addressed  share of rules with a source, and with a destination
    ported     share of rules with ports, among those whose protocol has some
    ports      weights of how a port is said; sources: of a source port, when not as others
    sides      weights of rules with a source port, a destination port, both
    negated    share of tests that are negated
    extras     share of rules with each further match
    targets    weights of targets in the filter table
    user       user chains
    long       share of rules in the longest chain
    tables     that are filled
    families   that it is drawn for
    """

    protocols: Mapping[str, float] = field(default_factory=lambda: {"tcp": 5, "udp": 3, "icmp": 1, "": 2})
    addressed: tuple[float, float] = (0.6, 0.6)
    ported: float = 0.8
    ports: Mapping[str, float] = field(
        default_factory=lambda: {"one": 6, "low": 1, "high": 2, "range": 2, "all": 1}
    )
    sources: Mapping[str, float] = field(default_factory=dict)
    sides: tuple[float, float, float] = (1, 2, 1)
    negated: float = 0.05
    extras: Mapping[str, float] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=lambda: {"ACCEPT": 6, "DROP": 4})
    user: int = 0
    long: float = 0.8
    tables: tuple[str, ...] = ("filter",)
    families: tuple[Family, ...] = (V4, V6)


_TARGETS = {"ACCEPT": 6, "DROP": 4, "REJECT": 1}
_CHAINS = {**_TARGETS, "jump": 3, "goto": 1, "RETURN": 2}
_EFFECTS = {**_TARGETS, "LOG": 2, "NFLOG": 1, "": 2, "effect": 3}

STYLES: Mapping[str, Style] = {
    "plain": Style(protocols={"tcp": 5, "udp": 3, "": 1}),
    "wide": Style(
        protocols={"tcp": 5, "udp": 3}, addressed=(0.2, 0.2), ported=1.0, sides=(0, 0, 1), negated=0.0,
        ports={"service": 3, "low": 1}, sources={"all": 2, "high": 1, "any": 1},
    ),
    "fragments": Style(extras={"fragment": 0.25}, ports={"one": 3, "all": 2, "high": 1, "low": 1}),
    "icmp": Style(protocols={"icmp": 6, "tcp": 2, "udp": 1, "": 1}, negated=0.15),
    "flags": Style(protocols={"tcp": 9, "udp": 1}, ported=0.5, extras={"flags": 0.5, "option": 0.08}),
    "interfaces": Style(extras={"in": 0.5, "out": 0.3}, negated=0.15),
    "states": Style(extras={"state": 0.5}, negated=0.1),
    "mac": Style(extras={"mac": 0.4, "in": 0.2}, negated=0.1),
    "multiport": Style(
        protocols={"tcp": 4, "udp": 3, "sctp": 1, "udplite": 1}, ported=0.4, extras={"multiport": 0.6},
        negated=0.1,
    ),
    "protocols": Style(
        protocols={"tcp": 2, "udp": 2, "sctp": 2, "dccp": 2, "udplite": 1, "other": 3, "icmp": 1, "": 2}
    ),
    "negations": Style(negated=0.5, extras={"in": 0.3, "out": 0.3, "state": 0.1, "iprange": 0.1}),
    "returns": Style(targets={**_TARGETS, "RETURN": 4, "jump": 2}, user=3, long=0.5),
    "chains": Style(targets=_CHAINS, user=5, long=0.4, extras={"in": 0.2}),
    "effects": Style(
        targets=_EFFECTS, extras={"state": 0.2, "mark": 0.2, "tos": 0.1}, tables=("mangle", "filter")
    ),
    "memory": Style(
        targets={**_CHAINS, "LOG": 1},
        extras={"limit": 0.1, "recent": 0.1, "hashlimit": 0.05, "random": 0.1, "nth": 0.05, "quota": 0.03,
                "connlimit": 0.03, "state": 0.1},
        user=2,
    ),
    "constants": Style(
        extras={"comment": 0.5, "addrtype": 0.2, "mark": 0.2, "length": 0.2, "time": 0.1, "iprange": 0.2,
                "pkttype": 0.1}
    ),
    "tables": Style(
        targets=_EFFECTS, extras={"state": 0.2, "in": 0.2, "comment": 0.1},
        tables=("raw", "mangle", "nat", "filter"), long=0.5,
    ),
    "marking": Style(
        targets={"effect": 6, "RETURN": 4, "ACCEPT": 1, "DROP": 1, "jump": 1},
        extras={"mark": 0.4, "tos": 0.1, "limit": 0.02}, tables=("mangle",), user=2,
    ),
    "services": Style(
        protocols={"tcp": 2, "udp": 1, "": 3}, addressed=(0.2, 0.2), ported=0.3,
        targets={**_TARGETS, "effect": 4}, extras={"tos": 0.6, "multiport": 0.3}, tables=("mangle",),
    ),
    "unknown": Style(
        extras={"unknown": 0.03, "state": 0.1, "multiport": 0.2}, targets={**_CHAINS, "LOG": 1}, user=2
    ),
    "everything": Style(
        protocols={"tcp": 5, "udp": 3, "icmp": 1, "sctp": 1, "udplite": 0.5, "other": 1, "": 2},
        negated=0.12, user=4, long=0.4, targets={**_CHAINS, "LOG": 1, "": 1, "effect": 1},
        extras={"fragment": 0.06, "flags": 0.1, "in": 0.15, "out": 0.1, "state": 0.15, "mac": 0.05,
                "multiport": 0.1, "limit": 0.03, "recent": 0.03, "random": 0.03, "comment": 0.1, "mark": 0.05,
                "option": 0.02, "iprange": 0.05},
        tables=("mangle", "filter"),
    ),
}  # fmt: skip

# From the seeds in rulesets/seeds: access lists, firewalls, and chains that are some of each.
GENERATED = {"acl-like": ("acl",), "fw-like": ("fw",), "ipc-like": ("acl", "fw")}

NAMES = (*GENERATED, *STYLES)


def draw(style: str, rng: Random, size: int) -> tuple[str, Family]:
    """A rule set of about *size* rules of the style (one of NAMES), as iptables-save text, and its family."""
    if style in GENERATED:
        return generated_firewalls.draw(GENERATED[style], rng, size), V4
    chosen = STYLES[style]
    family = rng.choice(chosen.families)
    return _Drawing(chosen, rng, family, size).text(), family


class _Drawing:
    """One rule set of one style."""

    def __init__(self, style: Style, rng: Random, family: Family, size: int) -> None:
        self.style, self.rng, self.family, self.size = style, rng, family, size
        # From a few values that most rules share to as many as there are rules.
        self.addresses = [self.prefix() for _ in range(rng.choice([2, 6, 2 + size // 4, 2 + size]))]
        self.services = rng.sample([22, 53, 80, 443, 8080], rng.choice([1, 2, 4]))
        others = rng.choice([1, 3, 1 + size // 4])
        self.some_ports = self.services * (1 + others // 4) + [rng.randrange(1, 65536) for _ in range(others)]
        self.counters = rng.random() < 0.2
        self.names = 0

    # -- text --------------------------------------------------------------------------------------

    def text(self) -> str:
        tables = self.style.tables
        last = len(tables) - 1
        counts = [self.size // (2 * len(tables)) for _ in tables]
        counts[last] = self.size - sum(counts[:last])
        return "".join(self.table(name, count) for name, count in zip(tables, counts, strict=True))

    def table(self, name: str, size: int) -> str:
        rng = self.rng
        user = [f"{name}-{number}" for number in range(self.style.user)]
        built_in = [chain for chain in BUILT_IN[name] if rng.random() < 0.7] or [BUILT_IN[name][0]]
        main = rng.choice(built_in)
        lines: dict[str, list[str]] = {chain: [] for chain in (*built_in, *user)}
        for _ in range(size):
            chain = main if rng.random() < self.style.long else rng.choice(list(lines))
            # A chain enters only later chains, so jumps make no circle.
            below = user[user.index(chain) + 1 :] if chain in user else user
            lines[chain].append(self.rule(name, chain, below))
        rules = "".join(
            f"{f'[{count(rng, True)}] ' if self.counters else ''}-A {chain} {line}\n"
            for chain, listed in lines.items()
            for line in listed
        )
        return f"*{name}\n{declared(name, rng, user, self.counters)}{rules}COMMIT\n"

    def rule(self, table: str, chain: str, below: Sequence[str]) -> str:
        rng = self.rng
        header, matches = self.header(), []
        protocol = self.pick(self.style.protocols)
        reset = protocol == "tcp"
        if protocol == "other":
            protocol = rng.choice(UNPORTED)
        if protocol == "icmp":
            header += ["-p", "icmp" if self.family is V4 else "ipv6-icmp"]
            if rng.random() < 0.8:
                matches.append(self.icmp())
        elif protocol in PORTED:
            header += ["-p", protocol]
            tests = self.transport(protocol)
            if tests:
                matches.append(["-m", protocol, *tests])
        elif protocol:
            header += [*self.bang(), "-p", protocol]
        for name, share in self.style.extras.items():
            if rng.random() < share:
                words = self.extra(name, chain, protocol)
                if words and words[0] == "-m":
                    matches.append(words)
                else:
                    header += words
        rng.shuffle(matches)
        target = self.target(table, chain, below, reset)
        return " ".join([*header, *(word for match in matches for word in match), *target])

    # -- tests -------------------------------------------------------------------------------------

    def pick(self, weights: Mapping[str, float]) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def bang(self) -> Words:
        return ["!"] if self.rng.random() < self.style.negated else []

    def prefix(self) -> str:
        rng = self.rng
        if self.family is V4:
            bits = rng.choice([8, 12, 16, 16, 20, 24, 24, 24, 25, 28, 31, 32, 32, 32])
            free = (1 << 32 - bits) - 1
            address = 10 << 24 | rng.randrange(4) << 16 | rng.randrange(1 << 16)
            return f"{dotted(address & ~free)}/{bits}"
        bits = rng.choice([16, 32, 48, 56, 64, 64, 64, 96, 127, 128, 128])
        words = [0x2001, 0xDB8, rng.randrange(4), rng.randrange(4), 0, 0]
        words += [rng.randrange(2), rng.randrange(1 << 16)]
        for at in range(8):
            kept = min(16, max(0, bits - 16 * at))
            words[at] &= 0xFFFF ^ (0xFFFF >> kept)
        return ":".join(f"{word:x}" for word in words) + f"/{bits}"

    def header(self) -> Words:
        words: Words = []
        for option, share in zip(("-s", "-d"), self.style.addressed, strict=True):
            if self.rng.random() < share:
                words += [*self.bang(), option, self.rng.choice(self.addresses)]
        return words

    def port(self, side: str) -> str:
        rng = self.rng
        kind = self.pick(self.style.sources or self.style.ports if side == "--sport" else self.style.ports)
        if kind == "service":
            return str(rng.choice(self.services))
        if kind == "any":
            return str(rng.randrange(65536))
        if kind == "one":
            return str(rng.choice(self.some_ports))
        if kind == "range":
            low, high = sorted((rng.choice(self.some_ports), rng.choice(self.some_ports)))
            return f"{low}:{high}"
        return {"low": "0:1023", "high": "1024:65535", "all": "0:65535"}[kind]

    def transport(self, protocol: str) -> Words:
        """Tests of ports; of udplite only multiport has some."""
        words: Words = []
        if protocol == "udplite" or self.rng.random() >= self.style.ported:
            return words
        sides = ("--sport",), ("--dport",), ("--dport", "--sport")
        for side in self.rng.choices(sides, self.style.sides)[0]:
            words += [*self.bang(), side, self.port(side)]
        return words

    def icmp(self) -> Words:
        v4 = self.family is V4
        name, option = ("icmp", "--icmp-type") if v4 else ("icmp6", "--icmpv6-type")
        chosen = self.rng.choice(ICMP_TYPES if v4 else ICMPV6_TYPES)
        bang = [] if chosen == "any" else self.bang()
        return ["-m", name, *bang, option, chosen]

    def extra(self, name: str, chain: str, protocol: str) -> Words:
        """A further match that this chain and this protocol allow; nothing when they allow none."""
        draw: Callable[[str, str], Words] = getattr(self, f"extra_{name}")
        return draw(chain, protocol)

    def extra_fragment(self, chain: str, protocol: str) -> Words:
        if self.family is V4:
            return ["!", "-f"] if self.rng.random() < 0.4 else ["-f"]
        return ["-m", "frag", self.rng.choice(["--fragfirst", "--fragmore", "--fraglast"])]

    def extra_flags(self, chain: str, protocol: str) -> Words:
        if protocol != "tcp":
            return []
        rng = self.rng
        if rng.random() < 0.4:
            return ["-m", "tcp", *self.bang(), "--syn"]
        mask = rng.sample(FLAGS, rng.randint(1, 4))
        asked = rng.sample(mask, rng.randint(0, len(mask)))
        return ["-m", "tcp", *self.bang(), "--tcp-flags", ",".join(mask), ",".join(asked) or "NONE"]

    def extra_option(self, chain: str, protocol: str) -> Words:
        return ["-m", "tcp", *self.bang(), "--tcp-option", "2"] if protocol == "tcp" else []

    def extra_in(self, chain: str, protocol: str) -> Words:
        none = chain in ("OUTPUT", "POSTROUTING")
        return [] if none else [*self.bang(), "-i", self.rng.choice(INTERFACES)]

    def extra_out(self, chain: str, protocol: str) -> Words:
        none = chain in ("INPUT", "PREROUTING")
        return [] if none else [*self.bang(), "-o", self.rng.choice(INTERFACES)]

    def extra_state(self, chain: str, protocol: str) -> Words:
        rng = self.rng
        states = ",".join(rng.sample(STATES, rng.randint(1, 3)))
        name, option = rng.choice([("conntrack", "--ctstate"), ("state", "--state")])
        return ["-m", name, *self.bang(), option, states]

    def extra_mac(self, chain: str, protocol: str) -> Words:
        if chain not in ("PREROUTING", "INPUT", "FORWARD"):
            return []
        return ["-m", "mac", *self.bang(), "--mac-source", f"02:00:00:00:00:0{self.rng.randrange(6)}"]

    def extra_multiport(self, chain: str, protocol: str) -> Words:
        if protocol not in PORTED:
            return []
        rng = self.rng
        ports = [str(rng.choice(self.some_ports)) for _ in range(rng.randint(1, 4))]
        ports += ["1024:2048"] if rng.random() < 0.3 else []
        option = rng.choice(["--sports", "--dports", "--ports"])
        return ["-m", "multiport", *self.bang(), option, ",".join(ports)]

    def extra_iprange(self, chain: str, protocol: str) -> Words:
        first = self.rng.randrange(200)
        ends = first, first + 50
        low, high = (f"10.0.0.{at}" if self.family is V4 else f"2001:db8::{at:x}" for at in ends)
        option = self.rng.choice(["--src-range", "--dst-range"])
        return ["-m", "iprange", *self.bang(), option, f"{low}-{high}"]

    def extra_comment(self, chain: str, protocol: str) -> Words:
        return ["-m", "comment", "--comment", f'"{self.rng.choice(COMMENTS)}"']

    def extra_addrtype(self, chain: str, protocol: str) -> Words:
        option = self.rng.choice(["--src-type", "--dst-type"])
        return ["-m", "addrtype", *self.bang(), option, self.rng.choice(["LOCAL", "MULTICAST", "UNICAST"])]

    def extra_mark(self, chain: str, protocol: str) -> Words:
        return ["-m", "mark", *self.bang(), "--mark", self.rng.choice(["0x1", "0x2/0xff", "0x1/0x1"])]

    def extra_tos(self, chain: str, protocol: str) -> Words:
        if self.rng.random() < 0.7:
            return ["-m", "dscp", *self.bang(), "--dscp", f"{self.rng.choice([0, 8, 10, 46, 63]):#04x}"]
        mask = self.rng.choice([0xFF, 0xFC, 0x1E])
        return ["-m", "tos", *self.bang(), "--tos", f"{self.rng.getrandbits(8) & mask:#04x}/{mask:#04x}"]

    def extra_unknown(self, chain: str, protocol: str) -> Words:
        return ["-m", "ndpi", *self.bang(), self.rng.choice(["--http", "--dns"])]

    def extra_length(self, chain: str, protocol: str) -> Words:
        return ["-m", "length", *self.bang(), "--length", self.rng.choice(["0:128", "1400:1500", "64"])]

    def extra_time(self, chain: str, protocol: str) -> Words:
        return ["-m", "time", "--timestart", "08:00:00", "--timestop", "18:00:00"]

    def extra_pkttype(self, chain: str, protocol: str) -> Words:
        return ["-m", "pkttype", *self.bang(), "--pkt-type", "broadcast"]

    def extra_limit(self, chain: str, protocol: str) -> Words:
        return ["-m", "limit", "--limit", self.rng.choice(["5/sec", "3/min"])]

    def extra_recent(self, chain: str, protocol: str) -> Words:
        asks = ["--set"], ["--rcheck", "--seconds", "60"], ["--update", "--hitcount", "3"], ["--remove"]
        how = self.rng.choice(asks)
        return ["-m", "recent", *how, "--name", self.rng.choice(["a", "b"]), "--rsource"]

    def extra_hashlimit(self, chain: str, protocol: str) -> Words:
        self.names += 1
        rate = ["--hashlimit-upto", "10/sec", "--hashlimit-mode", "srcip"]
        return ["-m", "hashlimit", *rate, "--hashlimit-name", f"h{self.names}"]

    def extra_random(self, chain: str, protocol: str) -> Words:
        return ["-m", "statistic", "--mode", "random", "--probability", self.rng.choice(["0.5", "0.1"])]

    def extra_nth(self, chain: str, protocol: str) -> Words:
        return ["-m", "statistic", "--mode", "nth", "--every", "3", "--packet", "0"]

    def extra_quota(self, chain: str, protocol: str) -> Words:
        return ["-m", "quota", "--quota", "100000"]

    def extra_connlimit(self, chain: str, protocol: str) -> Words:
        mask = "32" if self.family is V4 else "128"
        return ["-m", "connlimit", "--connlimit-above", "10", "--connlimit-mask", mask, "--connlimit-saddr"]

    # -- targets -----------------------------------------------------------------------------------

    def target(self, table: str, chain: str, below: Sequence[str], tcp: bool) -> Words:
        rng = self.rng
        kind = self.pick(self.style.targets)
        if kind in ("jump", "goto"):
            return ["-j" if kind == "jump" else "-g", rng.choice(below)] if below else ["-j", "ACCEPT"]
        if kind == "LOG":
            return ["-j", "LOG", "--log-prefix", f'"{rng.choice(["in ", "drop: "])}"']
        if kind == "NFLOG":
            return ["-j", "NFLOG", "--nflog-group", "5"]
        if kind == "effect":
            return self.effect(table, chain)
        if table == "nat" and kind in ("DROP", "REJECT"):
            return self.translated(chain)
        if kind == "REJECT":
            if table != "filter":
                return ["-j", "DROP"]
            how = rng.choice(REJECTS[self.family])
            if how == "tcp-reset" and not tcp:
                how = REJECTS[self.family][0]
            return ["-j", "REJECT", "--reject-with", how]
        return ["-j", kind] if kind else []

    def effect(self, table: str, chain: str) -> Words:
        """A target that changes something of the packet, where its table has one."""
        rng = self.rng
        if table == "raw":
            return ["-j", "CT", "--notrack"]
        if table == "mangle":
            effects = [
                ["-j", "MARK", "--set-xmark", f"0x{rng.randrange(4)}/{rng.choice(['0xffffffff', '0x3'])}"],
                ["-j", "CONNMARK", "--save-mark", "--nfmask", "0xffffffff", "--ctmask", "0xffffffff"],
                ["-j", "DSCP", "--set-dscp", rng.choice(["0x2e", "0x08"])],
            ]
            if chain in ("FORWARD", "OUTPUT", "POSTROUTING"):
                effects.append(["-j", "CLASSIFY", "--set-class", "1:2"])
            return rng.choice(effects)
        if table == "nat":
            return self.translated(chain)
        return ["-j", "LOG", "--log-level", "6"]

    def translated(self, chain: str) -> Words:
        address = "10.9.9.9" if self.family is V4 else "2001:db8::99"
        if chain in ("PREROUTING", "OUTPUT"):
            return ["-j", "DNAT", "--to-destination", address]
        if chain in ("POSTROUTING", "INPUT"):
            return ["-j", "SNAT", "--to-source", address]
        return ["-j", "ACCEPT"]

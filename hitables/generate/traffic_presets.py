"""Presets of flow traffic: what kinds of flows there are, and how they send.

`uplink` and `department` have the traits that Peng, Leckie and Ramamohanarao state of their two traces
(Exploiting Traffic Localities for Efficient Flow State Lookup, table 1 and section 5).  The others bind flows
to the rules of a set, in place of the traces of the Storm paper, which are not public; they claim no likeness
to those beyond the parameters below.

A tuned number here is a trait of a trace where one was published, and otherwise an order of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import InvalidOption

TCP, UDP = 6, 17
# Packets of one flow, and flows in progress, at most.
MOST_PACKETS, MOST_FLOWS = 10_000_000, 1 << 26
MICROSECOND, MILLISECOND, SECOND = 1e3, 1e6, 1e9


@dataclass(frozen=True, slots=True)
class FlowClass:
    """Flows of one kind; sizes in bytes of a frame, times in ns.

    share    of the packets of the preset
    shape, least, most   packets of a flow, both ways: Pareto, P(X > x) = (least / x) ** shape, cut at most
    burst    mean packets of a burst
    gap, pause   mean times to the next packet, inside of a burst and between two
    spread   sigma of a flow's factor of these times, lognormal with mean 1
    ports    the server's port, and how many there are from it on
    reply    each reply-th packet goes the other way, if both directions are there; 0: none
    inbound  share of flows whose server is inside
    large, reply_large   share of large packets, each way
    scan     from one of a few hosts outside to any host inside
    """

    name: str
    share: float
    protocol: int = TCP
    ports: tuple[int, int] = (80, 1)
    shape: float = 1.0
    least: float = 1.0
    most: float = 1.0
    burst: float = 1.0
    gap: float = 0.0
    pause: float = 0.0
    spread: float = 0.0
    reply: int = 0
    inbound: float = 0.0
    large: float = 0.0
    reply_large: float = 0.0
    sizes: tuple[int, int] = (66, 1514)
    scan: bool = False

    def __post_init__(self) -> None:
        port, ports = self.ports
        shares = (self.share, self.inbound, self.large, self.reply_large)
        for holds, why in (
            (all(0 <= share <= 1 for share in shares), "a share does not lie in 0..1"),
            (0 <= self.protocol <= 255, "the protocol does not lie in 0..255"),
            (port >= 0 and 1 <= ports <= 65536 - port, "its ports do not lie in 0..65535"),
            (self.shape > 0 and 1 <= self.least <= self.most <= MOST_PACKETS, "impossible lengths of flows"),
            (self.burst >= 1 and self.gap >= 0 and self.pause >= 0 and self.spread >= 0, "impossible times"),
            (self.reply != 1 and self.reply >= 0, "each packet cannot be a reply"),
        ):
            if not holds:
                raise InvalidOption(f"flows of class {self.name}: {why}")

    def one_way(self) -> FlowClass:
        """The packets of the client's direction alone."""
        kept = 1 - 1 / self.reply if self.reply else 1.0
        return replace(self, reply=0, least=max(1.0, self.least * kept), most=max(1.0, self.most * kept))


@dataclass(frozen=True, slots=True)
class RuleFlows:
    """How flows are bound to the rules of a set.

    flows    in progress at any time
    skew     s of Zipf's law over the ranks of rules, which are in random order
    shift    packets after which rules are exchanged; 0: never
    shifted, popular   how many are exchanged, of how many of the most popular ones
    """

    flows: int
    skew: float
    shift: int = 0
    shifted: int = 0
    popular: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.flows <= MOST_FLOWS or self.skew < 0:
            raise InvalidOption(f"{self.flows} flows, skew {self.skew:g}: 1 or more, and 0 or more")
        if self.shift < 0 or self.shifted < 0 or self.popular < 1:
            raise InvalidOption(
                "rules cannot be exchanged less often than never, or none of the popular ones"
            )


@dataclass(frozen=True, slots=True)
class Preset:
    """Traffic of some classes, or (*of_rules*) of flows of one class that are bound to rules.

    rate   packets per second
    both   whether both directions of a flow are there
    """

    name: str
    meaning: str
    rate: float
    classes: tuple[FlowClass, ...]
    both: bool = False
    of_rules: RuleFlows | None = None

    def __post_init__(self) -> None:
        if self.rate <= 0 or not self.classes or any(each.share <= 0 for each in self.classes):
            raise InvalidOption(f"preset {self.name}: its rate and the share of each class are above 0")
        if self.of_rules and len(self.classes) > 1:
            raise InvalidOption(f"preset {self.name}: flows of rules are of one class")


_WEB = FlowClass(
    "web", 0.0, ports=(80, 1), shape=1.3, least=6, most=2000, burst=6, gap=4 * MILLISECOND,
    pause=8 * SECOND, spread=0.5, reply=3, inbound=0.2, large=0.3, reply_large=0.1,
)  # fmt: skip
_BULK = FlowClass(
    "bulk", 0.0, ports=(20, 2), shape=1.1, least=100, most=100_000, burst=40, gap=0.5 * MILLISECOND,
    pause=200 * MILLISECOND, spread=0.5, reply=3, inbound=0.3, large=0.95,
)  # fmt: skip
_SSH = FlowClass(
    "ssh", 0.0, ports=(22, 1), shape=1.3, least=100, most=10_000, burst=2, gap=40 * MILLISECOND,
    pause=4 * SECOND, spread=0.5, reply=2, inbound=0.5, sizes=(102, 198), large=0.1, reply_large=0.3,
)  # fmt: skip
_DNS = FlowClass(
    "dns", 0.0, UDP, (53, 1), least=2, most=2, burst=2, gap=20 * MILLISECOND, pause=20 * MILLISECOND, reply=2,
    inbound=0.3, sizes=(78, 214), reply_large=0.8,
)  # fmt: skip
_SCAN = FlowClass("scan", 0.0, UDP, (1, 65535), sizes=(60, 60), scan=True)
_SERVICE = FlowClass(
    "service", 0.0, UDP, (2049, 1), shape=1.2, least=50, most=20_000, burst=8, gap=0.3 * MILLISECOND,
    pause=500 * MILLISECOND, spread=0.5, reply=2, inbound=0.5, sizes=(170, 1514), large=0.1, reply_large=0.6,
)  # fmt: skip


def _shares(**shares: float) -> tuple[FlowClass, ...]:
    kinds = {each.name: each for each in (_WEB, _BULK, _SSH, _DNS, _SCAN, _SERVICE)}
    return tuple(replace(kinds[name], share=share) for name, share in shares.items())


# The rate of 128-byte packets at 10 Gb/s.
_TEN_GIGABIT = 10e9 / 8 / 128


def _of_rules(
    name: str, meaning: str, flows: RuleFlows, shape: float, most: float, burst: float, gap: float
) -> Preset:
    """All flows are alike; their pauses are as long as the rate of the preset requires."""
    between = flows.flows / _TEN_GIGABIT * SECOND
    gap = min(gap, between)
    flow = FlowClass(
        "flow", 1.0, shape=shape, least=min(4.0, most), most=most, burst=burst, gap=gap,
        pause=burst * between - (burst - 1) * gap, spread=0.5 if most > 1 else 0.0, sizes=(128, 128),
    )  # fmt: skip
    return Preset(name, meaning, _TEN_GIGABIT, (flow,), of_rules=flows)


PRESETS = {
    each.name: each
    for each in (
        Preset(
            "uplink",
            "one direction of a university's uplink: over 95 % TCP, 0.25 % of it ssh",
            43_226_495 / 86_400,
            _shares(web=0.4, bulk=0.5576, ssh=0.0024, dns=0.03, scan=0.01),
        ),
        Preset(
            "department",
            "both directions at a department's router: half TCP, 16 % of it ssh; UDP scans",
            153_399_408 / 86_400,
            _shares(web=0.22, bulk=0.2, ssh=0.08, dns=0.1, scan=0.2, service=0.2),
            both=True,
        ),
        _of_rules(
            "backbone", "50,000 flows of rules by Zipf's law, s = 1",
            RuleFlows(50_000, 1.0), 1.2, 1e6, 4, 2 * MICROSECOND,
        ),
        _of_rules(
            "edge", "2,000 flows of rules by Zipf's law, s = 1.2",
            RuleFlows(2000, 1.2), 1.2, 1e6, 8, 1 * MICROSECOND,
        ),
        _of_rules(
            "drifting", "20,000 flows; every 100 ms at 10 Gb/s, 20 of the 100 most popular rules change",
            RuleFlows(20_000, 1.1, round(_TEN_GIGABIT / 10), 20), 1.2, 1e6, 4, 2 * MICROSECOND,
        ),
        _of_rules(
            "uniform", "each packet a flow of its own, of any rule: no locality",
            RuleFlows(1000, 0.0), 1.0, 1.0, 1, 0.0,
        ),
    )
}  # fmt: skip

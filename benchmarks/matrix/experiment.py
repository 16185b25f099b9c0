"""One writer between two equal blocks of probes, packet by packet.

    setup      rules that give some packets a mark or a label first
    all        counts every packet
    A          the probes
    all
    WRITER
    all
    B          the probes again
    all

A packet that is counted by a probe in A and not in B, or the other way round, shows that the
writer changes the probe's answer.  A row without a writer shows which probes change by themselves.
`later` asks the same of two tables: the writer in the earlier, the probes in the later one, and the
packets sent once with the writer and once without.
Everything here runs in the helper of a scratch namespace (`open_bench`, `try_row`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import BUILT_IN
from hitables.kernel.conntrack import forget_flows, make_flows
from hitables.kernel.namespace import run, set_sysctl
from hitables.kernel.netlink import Netfilter, message, text
from hitables.kernel.testbed import Send, Testbed, source_of

from .counters import Counters
from .packets import Sent, Way, listen, packets

_ACCOUNTING, _NEW_ACCOUNT = 7, 0
_WAYS = {"INPUT": Way.HERE, "OUTPUT": Way.OUT, "POSTROUTING": Way.OUT}
_TOOL = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
NO_WRITER = ""
# An earlier rule must measure the rate that -m rateest reads.
_GAUGE = "-p 253 -j RATEEST --rateest-name gauge --rateest-interval 250ms --rateest-ewmalog 500ms"


@dataclass(frozen=True, slots=True)
class ChainId:
    """The chain that a row tests."""

    table: str
    chain: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What one row showed.

    refused  the message of the tool if it refused the writer; the other fields are then empty
    arrived  packets that reached the chain; fired: those that matched the writer
    ended    name of a packet whose traversal the writer ended; went_on: of one that continued
    changed  by probe (its index in the row): the packet that showed it, "NAME: 1 -> 0"
    asked    probes that the kernel accepted
    lost     packets that a probe of block A dropped
    """

    refused: str = ""
    arrived: int = 0
    fired: int = 0
    ended: str = ""
    went_on: str = ""
    changed: dict[int, str] = field(default_factory=dict)
    asked: frozenset[int] = frozenset()
    lost: tuple[str, ...] = ()


_Answers = dict[str, list[int]]  # packet -> what each probe counted
_UNSURE = -1  # a probe that changes from one sending to the next


class _Bench:
    """A namespace furnished for one family and backend."""

    def __init__(self, family: Family, backend: Backend) -> None:
        self.family, self.backend = family, backend
        self.testbed = Testbed(family, ("eth0", "eth1"))
        self.netfilter = Netfilter()
        self.sockets = listen(family)
        self.refused: dict[tuple[ChainId, str], str] = {}
        self.loaded: tuple[str, ...] = ()  # the tables that hold rules
        self.without: dict[tuple[ChainId, tuple[str, ...]], _Answers] = {}
        self._furnish()
        self.sent = {way: packets(family, way) for way in Way}

    def _furnish(self) -> None:
        v4 = self.family is Family.IPV4
        ip = f"-{self.family.value}"
        sources = "198.18.0.0/16" if v4 else "fd18::/16"
        # Routes for -m rpfilter: the route back depends on TOS and mark.
        for words in (
            f"rule add to {sources} tos 0x10 lookup 100",
            f"rule add to {sources} fwmark 0x10 lookup 100",
            "route add default dev eth1 table 100",
        ):
            run(["ip", ip, *words.split()])
        if not v4:  # DNPT changes where the way back starts
            run(f"ip -6 rule add from fd20::/16 to {sources} lookup 100".split())
        if v4:  # realms for -m realm
            run(["ip", "route", "change", "198.19.1.0/24", "dev", "eth1", "realms", "5"])
        set_sysctl("netfilter.nf_conntrack_acct", "1")
        # Fragments stay as they are: connection tracking would put them together.
        test = "ip frag-off & 0x3fff != 0" if v4 else "exthdr frag exists"
        # What our own sockets answer is none of the packets that are counted.
        ip_word, own = ("ip", "198.19.0.1") if v4 else ("ip6", "fd19::1")
        run(
            ["nft", "-f", "-"],
            f"""table {ip_word} whole {{
            chain arriving {{ type filter hook prerouting priority -450; {test} notrack; }}
            chain leaving {{ type filter hook output priority -450;
                {ip_word} saddr {own} drop; {test} notrack; }}
        }}\n""",
        )
        self.netfilter.each(
            [message(_ACCOUNTING, _NEW_ACCOUNT, 0x600, 0, text(1, "account") + _wide(2) + _wide(3))]
        )
        self.fill_sets()

    def fill_sets(self) -> None:
        """The sets, as they are before a row."""
        v4 = self.family is Family.IPV4
        kind, net = ("inet", "198.18.0.0/16") if v4 else ("inet6", "fd18::/16")
        lines = [
            f"create addresses hash:ip family {kind} counters", f"create named hash:ip family {kind}",
            f"create ports hash:ip,port family {kind}", f"create interfaces hash:net,iface family {kind}",
            f"create mapping hash:net family {kind} skbinfo",
            "flush addresses", "flush named", "flush ports",
        ]  # fmt: skip
        make = ipaddress.IPv4Address if v4 else ipaddress.IPv6Address
        lines += [f"add addresses {make(source_of(self.family, n))}" for n in range(400) if n % 3]
        lines += [f"add interfaces {net},eth0", f"add mapping {net} skbmark 0x10/0xffffffff skbprio 1:16"]
        run(["ipset", "-exist", "restore"], "\n".join(lines) + "\n")

    def load(self, *chains: tuple[ChainId, Sequence[str]]) -> None:
        """Load the rules of *chains*, each of a table of its own, and no others."""
        names = tuple(place.table for place, _ in chains)
        out = "".join(f"*{name}\nCOMMIT\n" for name in self.loaded if name not in names)
        for place, rules in chains:
            head = "".join(f":{chain} ACCEPT [0:0]\n" for chain in BUILT_IN[place.table])
            lines = "".join(f"-A {place.chain} {rule}\n" for rule in rules)
            out += f"*{place.table}\n{head}{lines}COMMIT\n"
        command = [f"{_TOOL[self.family]}-{self.backend.value}-restore"]
        run([*command, "-w"] if self.backend is Backend.LEGACY else command, out)
        self.loaded = names

    def taken(self, place: ChainId, rules: Sequence[str]) -> None:
        """Find out which of *rules* the kernel takes, by halves; those it does not are in *refused*."""
        unknown = [rule for rule in dict.fromkeys(rules) if (place, rule) not in self.refused]
        if not unknown:
            return
        try:
            self.load((place, [_GAUGE, *unknown]))
        except LiveError as error:
            if len(unknown) == 1:
                self.refused[place, unknown[0]] = _words(error)
                return
            middle = len(unknown) // 2
            self.taken(place, unknown[:middle])
            self.taken(place, unknown[middle:])
        else:
            self.refused.update({(place, rule): "" for rule in unknown})

    def row(self, place: ChainId, writer: str, probes: Sequence[str]) -> Seen:
        sent = self.sent[_WAYS.get(place.chain, Way.THROUGH)]
        setup = _setup(self.family, sent)
        self.taken(place, [writer, *setup, *probes])
        if self.refused.get((place, writer)):
            return Seen(refused=self.refused[place, writer])
        setup = [_GAUGE, *(rule for rule in setup if not self.refused[place, rule])]
        asked = [at for at, probe in enumerate(probes) if not self.refused[place, probe]]
        block = [probes[at] for at in asked]
        rules = [*setup, "", *block, "", writer, "", *block, ""]
        self.load((place, rules))
        self._as_before(writer, sent)
        counters = Counters(self.family, self.backend, place.table, place.chain, len(rules))
        try:
            return self._send(sent, counters, len(setup), asked, " -j " in f" {writer}")
        finally:
            counters.close()

    def later(self, place: ChainId, writer: str, there: ChainId, probes: Sequence[str]) -> Seen:
        """What the probes at *there* answer with the writer at *place*, in an earlier table, and without."""
        self.taken(there, list(probes))
        self.taken(place, [writer])
        if self.refused[place, writer]:
            return Seen(refused=self.refused[place, writer])
        asked = [at for at, probe in enumerate(probes) if not self.refused[there, probe]]
        block = (_GAUGE, "", *(probes[at] for at in asked), "")
        if (there, block) not in self.without:
            first, again = (self._answers(place, "", there, block) for _ in range(2))
            self.without[there, block] = {
                name: [was if was == now else _UNSURE for was, now in zip(answers, again[name], strict=True)]
                for name, answers in first.items()
                if name in again
            }
        without = self.without[there, block]
        changed: dict[int, str] = {}
        counted = self._answers(place, writer, there, block)
        for name, answers in counted.items():
            for at, was, now in zip(asked, without.get(name, ()), answers, strict=False):
                if _UNSURE != was != now:
                    changed.setdefault(at, f"{name}: {was} -> {now}")
        went_on = next(iter(counted), "")
        return Seen("", len(counted), len(counted), "", went_on, changed, frozenset(asked))

    def _answers(self, place: ChainId, writer: str, there: ChainId, block: Sequence[str]) -> _Answers:
        """For each packet that passes through *there*: the count of each probe."""
        sent = self.sent[_WAYS.get(there.chain, Way.THROUGH)]
        self.load((place, [writer] if writer else []), (there, block))
        self._as_before(writer, sent)
        counters = Counters(self.family, self.backend, there.table, there.chain, len(block))
        try:
            return {
                packet.name: seen[2:-1]
                for packet, seen in self._counts(sent, counters)
                if seen[1] == seen[-1] == max(seen[1:]) == 1
            }
        finally:
            counters.close()

    def _as_before(self, writer: str, sent: Sequence[Sent]) -> None:
        """Undo what earlier packets left in sets and connections."""
        if "set" in writer.lower():
            self.fill_sets()
        forget_flows(self.netfilter, self.family)
        make_flows(self.netfilter, self.family, [packet.flow for packet in sent if packet.flow])

    def _counts(self, sent: Sequence[Sent], counters: Counters) -> Iterator[tuple[Sent, list[int]]]:
        """Send one packet after the other; which rules counted each, and how often."""
        before = counters.read()
        for packet in sent:
            way_out = "eth1" if packet.leaves else ""
            way_in = "" if packet.leaves else "eth0"
            packet_to_send = Send(
                packet.data, way_in, way_out, owner=(packet.owner, packet.owner), to=packet.to
            )
            with contextlib.suppress(OSError):  # the rules, or the routing, may not let it leave
                self.testbed.send([packet_to_send])
            after = counters.read()
            yield packet, [now - was for now, was in zip(after, before, strict=True)]
            before = after

    def _send(
        self, sent: Sequence[Sent], counters: Counters, first: int, asked: Sequence[int], ends: bool
    ) -> Seen:
        """Send all, one by one.  *first*: the rule behind the setup; *ends*: the writer has a target."""
        count = len(asked)
        a, b = first + 1, first + count + 4
        arrived = fired = 0
        ended = went_on = ""
        changed: dict[int, str] = {}
        lost = []
        for packet, seen in self._counts(sent, counters):
            # The packet did not reach this chain, or other packets did, too.
            if seen[first] != 1 or max(seen[a:]) > 1:
                continue
            arrived += 1
            if not seen[a + count]:
                lost.append(packet.name)
                continue
            # A match that answers "no" may have written all the same, so this packet counts too.
            fired += seen[a + count + 1] > 0
            if not seen[a + count + 2]:
                ended = ended or packet.name
                continue
            if seen[a + count + 1] or not ends:
                went_on = went_on or packet.name
            if not seen[b + count]:
                lost.append(f"{packet.name}, in block B")
                continue
            was_yes, is_yes = seen[a : a + count], seen[b : b + count]
            for at, was, now in zip(asked, was_yes, is_yes, strict=True):
                if was != now:
                    changed.setdefault(at, f"{packet.name}: {was} -> {now}")
        return Seen("", arrived, fired, ended, went_on, changed, frozenset(asked), tuple(lost))


def _wide(kind: int) -> bytes:
    """A netlink attribute of 64 bits, zero."""
    return struct.pack("=HH", 12, kind) + bytes(8)


def _words(error: LiveError) -> str:
    """The error message of a tool in one line, without its line numbers."""
    message = re.sub(r"^.*?exit status \d+: ", "", " ".join(str(error).split()))
    return re.sub(r"\bline \d+:? ?", "", message)[:200]


def _setup(family: Family, sent: Sequence[Sent]) -> list[str]:
    make = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
    return [f"-s {make(packet.source)} {rule}" for packet in sent for rule in packet.setup]


_bench: _Bench | None = None


def open_bench(family: Family, backend: Backend) -> None:
    """Run inside: furnish the namespace."""
    global _bench  # noqa: PLW0603 - one per helper process
    _bench = _Bench(family, backend)


def try_later(place: ChainId, writer: str, there: ChainId, probes: Sequence[str]) -> Seen:
    """Run inside: which probes at *there* change their result because *writer* is at *place*."""
    assert _bench is not None, "open_bench comes first"
    return _bench.later(place, writer, there, probes)


def try_row(place: ChainId, writer: str, probes: Sequence[str]) -> Seen:
    """Run inside: the row of *writer* (a rule's words; NO_WRITER: a rule that only counts) at *place*."""
    assert _bench is not None, "open_bench comes first"
    return _bench.row(place, writer, probes)

"""Packets through the kernel: what each was when it met the rules, and whether it passed.

One chain of one table is tried at a time, so that what a packet is does not depend on what
other tables made of it:

    with Namespace() as namespace:
        load(text, family, backend, namespace)
        furnish(namespace, family, interfaces)
        prepare(namespace, "filter", "FORWARD", trials, tracked=True)
        fates = fire(namespace)

A packet's connection state is produced by flows (see conntrack.py) and then read back, not
assumed: `Fate.state` is what the rules saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from ..errors import LiveError
from ..ir.fields import (
    ICMP,
    ICMPV6,
    SCTP,
    STATES,
    TCP,
    UDP,
    Family,
    Field,
    Fragment,
    interface_name,
)
from ..ir.packet import Packet
from . import observer
from .conntrack import Flow, Tuple, forget_flows, make_flows
from .craft import PLAIN, Trim, craft, is_error
from .namespace import Namespace
from .netlink import Netfilter
from .observer import Observer, priority
from .testbed import Lab, Shot, has_hardware, source_of, target_of, valid_name

MOST_TRIALS = 0xFFFF
_ICMP_REPLIES = {Family.IPV4: (0, 14, 16, 18), Family.IPV6: (129,)}
_SYN, _ACK, _RST, _FIN = 2, 16, 4, 1
_MASTER_NUMBER = 0  # of the flow that RELATED ones were expected by
_NAT_BASE = {Family.IPV4: 100 << 24 | 64 << 16, Family.IPV6: 0xFD64 << 112}
_STATE_OF_BITS = {
    observer.INVALID: "INVALID",
    observer.UNTRACKED: "UNTRACKED",
    observer.NEW: "NEW",
    observer.ESTABLISHED: "ESTABLISHED",
    observer.RELATED: "RELATED",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A packet, with what a Packet does not name.  Its Field.STATE is what we try for."""

    packet: Packet
    mark: int = 0
    connection_mark: int = 0
    owner: tuple[int, int] = (0, 0)
    trim: Trim = PLAIN


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a trial.

    arrived  it came as far as the table under test
    state    its Field.STATE there
    passed   it left the table again
    """

    arrived: bool
    state: int
    passed: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    table: str
    chain: str
    tracked: bool
    shots: Sequence[Shot]
    flows: Sequence[Flow]
    addresses: dict[int, tuple[int, int]]
    marks: dict[int, int]
    connection_marks: dict[int, int]
    untracked: frozenset[int]


@dataclass(slots=True)
class _Station:
    lab: Lab
    netfilter: Netfilter = field(default_factory=Netfilter)
    observer: Observer | None = None
    plan: _Plan | None = None


# In the helper: what the namespace is furnished with.
_station: _Station | None = None


def furnish(namespace: Namespace, family: Family, interfaces: Sequence[str]) -> None:
    """Give the namespace *interfaces*, which trials may then use; the first leads everywhere else."""
    namespace.call(_furnish, family, tuple(interfaces))
    _INTERFACES[namespace] = (family, {name: at for at, name in enumerate(interfaces)})


_INTERFACES: WeakKeyDictionary[Namespace, tuple[Family, dict[str, int]]] = WeakKeyDictionary()


def prepare(namespace: Namespace, table: str, chain: str, trials: Sequence[Trial], tracked: bool) -> None:
    """Make ready to send *trials* through *chain* of *table*, any number of times.

    *tracked*: follow connections.  Rules that ask for a connection make the kernel do so in any
    case; then fragments must not be followed, or they would be put together, and are UNTRACKED.
    """
    if len(trials) > MOST_TRIALS:
        raise LiveError(f"{len(trials)} packets; {MOST_TRIALS} is the most at once")
    family, interfaces = _INTERFACES[namespace]
    tracked = tracked or table == "nat"  # which is not even asked for packets that are not followed
    shots, flows = [], []
    addresses, marks, connection_marks, untracked = {}, {}, {}, set()
    sees_flows = tracked and priority(table, chain) > -200
    master = Tuple(source_of(family, _MASTER_NUMBER), target_of(family, 0, True), UDP, 1, 2)
    for number, trial in enumerate(trials, 1):
        packet = trial.packet
        refused = why_not(packet, chain, interfaces)
        if refused:
            raise LiveError(f"packet {number} cannot be sent to {chain}: {refused}")
        source = source_of(family, number)
        leaving = is_leaving(packet, chain)
        iif = "" if leaving else interface_name(packet.values[Field.IIF])
        way_out = iif if chain in ("INPUT", "PREROUTING") else interface_name(packet.values[Field.OIF])
        target = target_of(family, interfaces[way_out], chain == "INPUT")
        state = STATES[packet.values.get(Field.STATE, 0)]
        trim = trial.trim
        strict = False
        if packet.values.get(Field.FRAG) != Fragment.WHOLE or packet.cut_short or state == "UNTRACKED":
            untracked.add(number)
        elif sees_flows:
            trim, flow, strict = _state(family, packet, state, number, source, target, trim, master)
            if flow is not None:
                flows.append(flow)
        data = craft(packet, number, source, target, trim)
        shots.append(Shot(data, iif, way_out, packet.values.get(Field.MAC), trial.owner, strict))
        addresses[number] = (packet.values[Field.SRC], packet.values[Field.DST])
        if trial.mark:
            marks[number] = trial.mark
        if trial.connection_mark:
            connection_marks[number] = trial.connection_mark
    if any(flow.master for flow in flows):
        flows.insert(0, Flow(master, replied=True))
    plan = _Plan(
        table, chain, tracked, shots, flows, addresses, marks, connection_marks, frozenset(untracked)
    )
    namespace.call(_prepare, plan)


def fire(namespace: Namespace) -> list[Fate]:
    """Send what was prepared; each packet's fate, in order."""
    count, seen, passed, snat, dnat = namespace.call(_fire)
    fates = []
    for number in range(1, count + 1):
        bits = seen.get(number)
        name = _STATE_OF_BITS.get(bits or observer.INVALID, "INVALID")
        if name in ("NEW", "ESTABLISHED", "RELATED"):
            name += "+SNAT" * (number in snat) + "+DNAT" * (number in dnat)
        fates.append(Fate(bits is not None, STATES.index(name), number in passed))
    return fates


def is_leaving(packet: Packet, chain: str) -> bool:
    """Whether the host itself sends it; one that has an input interface in POSTROUTING is forwarded."""
    return chain == "OUTPUT" or (chain == "POSTROUTING" and not packet.values.get(Field.IIF))


def why_not(packet: Packet, chain: str, interfaces: Iterable[str]) -> str:
    """Why no such packet can reach *chain* of a kernel; empty when one can."""
    values, leaving = packet.values, is_leaving(packet, chain)
    sides = ((not leaving, Field.IIF), (chain not in ("INPUT", "PREROUTING"), Field.OIF))
    for wanted, side in sides:
        name = interface_name(values.get(side, 0))
        if not wanted and name:
            return f"it has {side.name}, which this hook has not"
        if wanted and name not in interfaces:
            return f"there is no interface {name!r}" if valid_name(name) else f"{name!r} is no name"
    if (packet.family is Family.IPV4 and chain == "INPUT") and values.get(Field.FRAG) != Fragment.WHOLE:
        return "fragments are put together before they are delivered"
    hard = not leaving and has_hardware(interface_name(values[Field.IIF]))
    if Field.MAC in values and not hard:
        return "it has a hardware address where there is none"
    if Field.MAC not in values and hard:
        return "it has no hardware address where all have one"
    if Field.PROTO not in values and not packet.cut_short:
        return "it has no protocol"
    return ""


def _state(
    family: Family,
    packet: Packet,
    state: str,
    number: int,
    source: int,
    target: int,
    trim: Trim,
    master: Tuple,
) -> tuple[Trim, Flow | None, bool]:
    """What it takes for the packet to be in *state*: a trim, a flow, loose or strict tracking."""
    values = packet.values
    name, *nat = state.split("+")
    protocol = values[Field.PROTO]
    if name == "INVALID":
        return replace(trim, broken=True), None, True
    flow = Tuple(source, target, protocol, values.get(Field.SPORT, 0), values.get(Field.DPORT, 0))
    flags = values.get(Field.FLAGS, _ACK) & (_SYN | _ACK | _RST | _FIN)
    if protocol in (ICMP, ICMPV6):
        icmp = values.get(Field.ICMP, 0)
        if is_error(family, icmp):
            # It complains about a packet that its receiver sent.
            sent = Flow(Tuple(target, source, UDP, 1, 2), True)
            return replace(trim, inner=(target, source)), _nat_back(family, sent, nat, number), False
        flow = Tuple(source, target, protocol, 1, icmp)
        if icmp >> 8 in _ICMP_REPLIES[family]:
            return trim, _nat_back(family, Flow(flow.answer(), True), nat, number), False
    if name == "NEW" and not nat:
        return trim, None, False
    if protocol == TCP and flags == _SYN | _ACK:
        return trim, _nat_back(family, Flow(flow.answer(), syn=True), nat, number), False
    if protocol == SCTP:
        trim = replace(trim, chunk=0)
    syn = protocol == TCP and flags == _SYN
    made = Flow(flow, name == "ESTABLISHED", master if name == "RELATED" else None, syn=syn)
    return trim, _nat(family, made, nat, number), False


def _nat(family: Family, flow: Flow, nat: Sequence[str], number: int) -> Flow:
    """The flow with its addresses translated as *nat* says.

    The kernel may really translate them, and the packet must still be led the same way.
    """
    snat, dnat = _NAT_BASE[family] | number, flow.first.target + 1
    return replace(flow, snat=snat if "SNAT" in nat else None, dnat=dnat if "DNAT" in nat else None)


def _nat_back(family: Family, flow: Flow, nat: Sequence[str], number: int) -> Flow:
    """As *_nat*, with the answers' addresses as they were before."""
    first = flow.first
    snat, dnat = first.source + 1, _NAT_BASE[family] | number
    source, target = first.source, first.target
    if "SNAT" in nat:
        first, flow = replace(first, source=snat), replace(flow, snat=source)
    if "DNAT" in nat:
        first, flow = replace(first, target=dnat), replace(flow, dnat=target)
    return replace(flow, first=first)


# In the helper.


def _furnish(family: Family, interfaces: tuple[str, ...]) -> None:
    global _station  # noqa: PLW0603 - one per helper process
    if _station is not None:
        if _station.observer is not None:
            _station.observer.close()
        _station.lab.close()
    _station = _Station(Lab(family, interfaces))


def _prepare(plan: _Plan) -> None:
    assert _station is not None, "furnish comes first"
    if _station.observer is not None:
        _station.observer.close()
    family = _station.lab.family
    _station.observer = Observer(family, plan.table, plan.chain, plan.tracked)
    _station.observer.fill(plan.addresses, plan.marks, plan.connection_marks, plan.untracked)
    _station.plan = plan


def _fire() -> tuple[int, dict[int, int], set[int], set[int], set[int]]:
    assert _station is not None
    watcher, plan = _station.observer, _station.plan
    assert watcher is not None and plan is not None, "prepare comes first"
    watcher.forget()
    if plan.tracked:
        forget_flows(_station.netfilter, _station.lab.family)
        make_flows(_station.netfilter, _station.lab.family, plan.flows)
    _station.lab.send(plan.shots)
    return (
        len(plan.shots),
        watcher.seen(),
        watcher.numbers("passed"),
        watcher.numbers("snat"),
        watcher.numbers("dnat"),
    )

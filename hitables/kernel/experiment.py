"""Packets through the kernel: the state of each when it reached the rules, and whether it passed.

One chain of one table is tried at a time, so that other tables do not change the packets:

    with Namespace() as namespace:
        load(text, family, backend, namespace)
        furnish(namespace, family, interfaces)
        prepare(namespace, "filter", "FORWARD", trials, tracked=True)
        results = send_trials(namespace)

The kernel derives a packet's connection state from flows (conntrack.py).  The state is read back, not
assumed: `PacketResult.state` is the state that the rules saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from ..errors import LiveError
from ..ir.fields import (
    BRIDGE_PORTS,
    GRE,
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
from .testbed import Send, Testbed, has_hardware, source_of, target_of, valid_name

MAX_TRIALS = 0xFFFF
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
    """A packet to send, with properties that a Packet lacks.  Its Field.STATE is the state to aim for."""

    packet: Packet
    mark: int = 0
    connection_mark: int = 0
    owner: tuple[int, int] = (0, 0)
    trim: Trim = PLAIN


@dataclass(frozen=True, slots=True)
class PacketResult:
    """The result of a trial.

    arrived  the packet reached the table under test
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
    sends: Sequence[Send]
    flows: Sequence[Flow]
    addresses: dict[int, tuple[int, int]]
    marks: dict[int, int]
    connection_marks: dict[int, int]
    untracked: frozenset[int]


@dataclass(slots=True)
class _Helper:
    testbed: Testbed
    netfilter: Netfilter = field(default_factory=Netfilter)
    observer: Observer | None = None
    plan: _Plan | None = None


# In the helper process: the test bed of its namespace.
_helper: _Helper | None = None


def furnish(namespace: Namespace, family: Family, interfaces: Sequence[str]) -> None:
    """Create *interfaces* in the namespace, for trials to use; the default route leads to the first."""
    namespace.call(_furnish, family, tuple(interfaces))
    _INTERFACES[namespace] = (family, {name: at for at, name in enumerate(interfaces)})


_INTERFACES: WeakKeyDictionary[Namespace, tuple[Family, dict[str, int]]] = WeakKeyDictionary()


def prepare(namespace: Namespace, table: str, chain: str, trials: Sequence[Trial], tracked: bool) -> None:
    """Prepare *trials* to be sent through *chain* of *table*, any number of times.

    *tracked*: track connections.  The kernel does so anyway for rules that test connections; then fragments
    must be UNTRACKED, because connection tracking would reassemble them.
    """
    if len(trials) > MAX_TRIALS:
        raise LiveError(f"{len(trials)} packets; {MAX_TRIALS} is the maximum at once")
    family, interfaces = _INTERFACES[namespace]
    tracked = tracked or table == "nat"  # which is not even asked for packets that are not followed
    sends, flows = [], []
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
        sends.append(Send(data, iif, way_out, packet.values.get(Field.MAC), trial.owner, strict))
        addresses[number] = (packet.values[Field.SRC], packet.values[Field.DST])
        if trial.mark:
            marks[number] = trial.mark
        if trial.connection_mark:
            connection_marks[number] = trial.connection_mark
    if any(flow.master for flow in flows):
        flows.insert(0, Flow(master, replied=True))
    plan = _Plan(
        table, chain, tracked, sends, flows, addresses, marks, connection_marks, frozenset(untracked)
    )
    namespace.call(_prepare, plan)


def send_trials(namespace: Namespace) -> list[PacketResult]:
    """Send the prepared trials; the result of each, in order."""
    count, seen, passed, snat, dnat = namespace.call(_send_trials)
    results = []
    for number in range(1, count + 1):
        bits = seen.get(number)
        name = _STATE_OF_BITS.get(bits or observer.INVALID, "INVALID")
        if name in ("NEW", "ESTABLISHED", "RELATED"):
            name += "+SNAT" * (number in snat) + "+DNAT" * (number in dnat)
        results.append(PacketResult(bits is not None, STATES.index(name), number in passed))
    return results


def is_leaving(packet: Packet, chain: str) -> bool:
    """Whether the host sends it; a packet that has an input interface in POSTROUTING is forwarded."""
    return chain == "OUTPUT" or (chain == "POSTROUTING" and not packet.values.get(Field.IIF))


def why_not(packet: Packet, chain: str, interfaces: Iterable[str]) -> str:
    """Why no such packet can reach *chain* of a kernel; empty if one can."""
    values, leaving = packet.values, is_leaving(packet, chain)
    if any(values.get(port) for port in BRIDGE_PORTS):
        return "it crosses a bridge, and there is none"
    sides = ((not leaving, Field.IIF), (chain not in ("INPUT", "PREROUTING"), Field.OIF))
    for wanted, side in sides:
        name = interface_name(values.get(side, 0))
        if not wanted and name:
            return f"it has {side.name}, which this hook lacks"
        if wanted and name not in interfaces:
            return f"there is no interface {name!r}" if valid_name(name) else f"{name!r} is no name"
    if (packet.family is Family.IPV4 and chain == "INPUT") and values.get(Field.FRAG) != Fragment.WHOLE:
        return "fragments are reassembled before delivery"
    hard = not leaving and has_hardware(interface_name(values[Field.IIF]))
    if Field.MAC in values and not hard:
        return "it has a hardware address where there is none"
    if Field.MAC not in values and hard:
        return "it has no hardware address where all have one"
    if Field.PROTO not in values and not packet.cut_short:
        return "it has no protocol"
    if values.get(Field.PROTO) == GRE and STATES[values.get(Field.STATE, 0)].startswith("RELATED"):
        return "it is of a RELATED connection of GRE, and Linux 6.1 crashes when such a connection is deleted"
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
    """What puts the packet into *state*: a trim, a flow, and whether tracking is strict."""
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
            # It reports a packet that its receiver sent.
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
    opened = Flow(flow, name == "ESTABLISHED", master if name == "RELATED" else None, syn=syn)
    return trim, _nat(family, opened, nat, number), False


def _nat(family: Family, flow: Flow, nat: Sequence[str], number: int) -> Flow:
    """The flow with its addresses translated according to *nat*.

    The kernel may really translate them, and the packet must still take the same route.
    """
    snat, dnat = _NAT_BASE[family] | number, flow.first.target + 1
    return replace(flow, snat=snat if "SNAT" in nat else None, dnat=dnat if "DNAT" in nat else None)


def _nat_back(family: Family, flow: Flow, nat: Sequence[str], number: int) -> Flow:
    """As `_nat`, where the packet is an answer, so that its addresses are those before the translation."""
    first = flow.first
    snat, dnat = first.source + 1, _NAT_BASE[family] | number
    source, target = first.source, first.target
    if "SNAT" in nat:
        first, flow = replace(first, source=snat), replace(flow, snat=source)
    if "DNAT" in nat:
        first, flow = replace(first, target=dnat), replace(flow, dnat=target)
    return replace(flow, first=first)


# In the helper process.


def _furnish(family: Family, interfaces: tuple[str, ...]) -> None:
    global _helper  # noqa: PLW0603 - one per helper process
    if _helper is not None:
        if _helper.observer is not None:
            _helper.observer.close()
        _helper.testbed.close()
    _helper = _Helper(Testbed(family, interfaces))


def _prepare(plan: _Plan) -> None:
    assert _helper is not None, "furnish comes first"
    if _helper.observer is not None:
        _helper.observer.close()
    family = _helper.testbed.family
    _helper.observer = Observer(family, plan.table, plan.chain, plan.tracked)
    _helper.observer.fill(plan.addresses, plan.marks, plan.connection_marks, plan.untracked)
    _helper.plan = plan


def _send_trials() -> tuple[int, dict[int, int], set[int], set[int], set[int]]:
    assert _helper is not None
    watch, plan = _helper.observer, _helper.plan
    assert watch is not None and plan is not None, "prepare comes first"
    watch.forget()
    if plan.tracked:
        forget_flows(_helper.netfilter, _helper.testbed.family)
        make_flows(_helper.netfilter, _helper.testbed.family, plan.flows)
    _helper.testbed.send(plan.sends)
    return (
        len(plan.sends),
        watch.seen(),
        watch.numbers("passed"),
        watch.numbers("snat"),
        watch.numbers("dnat"),
    )

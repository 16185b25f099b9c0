"""What -m physdev asks, held against a bridge in the kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.bridge import OUTSIDE, PLAIN, SETTINGS, Frame, counts, furnish, send, source
from support.small_namespace import Namespace

import hitables
from hitables.ir.fields import Family, Field, interface_number
from hitables.ir.packet import Backend
from hitables.ir.rule import Role
from hitables.kernel.load_save import load

PORTS = ("tap1", "tap12", "vnet0")
# Each with the ports that the kernel knows of it in FORWARD.
FRAMES = {
    Frame("tap1", "tap12", 1): ("tap1", "tap12"),
    Frame("tap12", "vnet0", 2): ("tap12", "vnet0"),
    Frame("vnet0", "tap1", 3): ("vnet0", "tap1"),
    Frame("tap1", OUTSIDE, 4): ("tap1", ""),
    Frame("vnet0", OUTSIDE, 5): ("vnet0", ""),
    Frame(PLAIN, OUTSIDE, 6): ("", ""),
}
ASKED = [
    *(
        f"{bang}--physdev-in {name}"
        for bang in ("", "! ")
        for name in ("tap1", "tap1+", "tap12", "vnet+", "+")
    ),
    *(f"--physdev-out {name} --physdev-is-bridged" for name in ("tap1", "tap1+", "vnet0", "eth0", "+")),
    "--physdev-is-bridged",
    "! --physdev-is-bridged",
    "--physdev-in tap1+ --physdev-is-bridged",
    "! --physdev-in tap1 --physdev-is-bridged",
    "! --physdev-in tap1 ! --physdev-is-bridged",
    "--physdev-in tap1 --physdev-out tap1+ --physdev-is-bridged",
]


@pytest.fixture
def bridged() -> Iterator[Namespace]:
    with Namespace(SETTINGS) as namespace:
        furnish(namespace, PORTS)
        yield namespace


def _holds(match: hitables.ir.rule.Match, ports: tuple[str, str]) -> bool:
    values = dict(zip((Field.PHYSIN, Field.PHYSOUT), map(interface_number, ports), strict=True))
    return all(values[test.field] in test.values for test in match.tests)


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
def test_physdev_tests_the_ports_that_the_kernel_knows(
    bridged: Namespace, family: Family, backend: Backend
) -> None:
    rules = [f"-s {source(family, frame.number)} -m physdev {asked}" for frame in FRAMES for asked in ASKED]
    text = "*filter\n-A FORWARD\n" + "".join(f"-A FORWARD {rule}\n" for rule in rules) + "COMMIT\n"
    parsed = hitables.read(text, family=family).table("filter")["FORWARD"].rules[1:]
    load(text, family, backend, bridged)
    send(bridged, family, PORTS, list(FRAMES))
    found = counts(bridged, family, backend, "filter", len(FRAMES))[1:]
    expected = []
    for at, rule in enumerate(parsed):
        match = next(each for each in rule.matches if each.name == "physdev")
        assert match.role is Role.SPACE
        expected.append(int(_holds(match, list(FRAMES.values())[at // len(ASKED)])))
    wrong = [rule for rule, one, two in zip(rules, found, expected, strict=True) if one != two]
    assert not wrong and 0 < sum(found) < len(found)


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
def test_a_negated_physdev_out_is_no_test_of_the_port(bridged: Namespace, backend: Backend) -> None:
    """A packet that came in by a port and is routed meets neither the option nor its negation."""
    pair = "--physdev-out tap1 --physdev-is-bridged", "! --physdev-out tap1"
    frames = [Frame("vnet0", "tap1", 1), Frame("vnet0", OUTSIDE, 2), Frame(PLAIN, OUTSIDE, 3)]
    rules = [
        f"-s {source(Family.IPV4, frame.number)} -m physdev {asked}" for frame in frames for asked in pair
    ]
    text = "*filter\n-A FORWARD\n" + "".join(f"-A FORWARD {rule}\n" for rule in rules) + "COMMIT\n"
    load(text, Family.IPV4, backend, bridged)
    send(bridged, Family.IPV4, PORTS, frames)
    assert counts(bridged, Family.IPV4, backend, "filter", len(frames)) == [3, 1, 0, 0, 0, 0, 1]
    parsed = hitables.read(text).table("filter")["FORWARD"].rules[2]
    match = next(each for each in parsed.matches if each.name == "physdev")
    assert match.role is Role.CONSTANT and not match.tests and not match.negates


def _virtual_machines(ports: list[str]) -> str:
    """The rules of a host of virtual machines: a chain for each way of each machine."""
    ways = [("in", "FROM", "ACCEPT"), ("out", "TO", "DROP")]
    chains = [f":{name}-{port} - [0:0]\n" for port in ports for _, name, _ in ways]
    rules = []
    for way, name, last in ways:
        bridged = " --physdev-is-bridged" if way == "out" else ""
        rules += [
            f"-A BY-{name} -m physdev --physdev-{way} {port}{bridged} -j {name}-{port}\n" for port in ports
        ]
        for at, port in enumerate(ports):
            rules.append(f"-A {name}-{port} -s 10.1.0.{at % 8}/32 -j DROP\n" if way == "in" else
                         f"-A {name}-{port} -p udp -m udp --dport {50 + at % 5} -j ACCEPT\n")  # fmt: skip
            rules.append(f"-A {name}-{port} -j {'RETURN' if last == 'ACCEPT' else last}\n")
    head = ":BY-FROM - [0:0]\n:BY-TO - [0:0]\n"
    enter = "-A FORWARD -j BY-FROM\n-A FORWARD -j BY-TO\n-A FORWARD -m physdev --physdev-is-in -j DROP\n"
    return f"*filter\n{head}{''.join(chains)}{enter}{''.join(rules)}COMMIT\n"


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
def test_trees_of_bridge_ports_decide_as_their_lists(backend: Backend) -> None:
    ports = [f"tap{number}i0" for number in (*range(100, 124), 1001, 1002)]
    text = _virtual_machines(ports)
    output = hitables.compile(hitables.read(text), backend=backend.value)
    compiled = {report.chain for report in output.reports if not report.why}
    assert {"BY-FROM", "BY-TO"} <= compiled
    real = ports[::7] + ports[-1:]
    frames = [
        Frame(one, to, 1 + number)
        for number, (one, to) in enumerate(
            (one, to) for one in (*real, PLAIN) for to in (*real, OUTSIDE) if one != to and (one != PLAIN or to == OUTSIDE)
        )
    ]  # fmt: skip
    passed = []
    with Namespace(SETTINGS) as namespace:
        furnish(namespace, real)
        for each in (text, output.text):
            watch = "".join(f"-A POSTROUTING -s {source(Family.IPV4, frame.number)}\n" for frame in frames)
            load(f"*mangle\n-A FORWARD\n{watch}COMMIT\n{each}", Family.IPV4, backend, namespace)
            send(namespace, Family.IPV4, real, frames)
            passed.append(counts(namespace, Family.IPV4, backend, "mangle", len(frames))[1:])
    assert passed[0] == passed[1]
    assert 0 < sum(passed[0]) < len(frames) and set(passed[0]) == {0, 1}

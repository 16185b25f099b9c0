"""Packets that no kernel has make no difference between two rule sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hitables
from hitables import compare
from hitables.ir import semantics
from hitables.ir.connection_states import ICMP_OF
from hitables.ir.fields import STATES, TCP, UDP, Family, Field, Fragment
from hitables.ir.headers import HEADER_BYTES, inconsistency
from hitables.ir.packet import Backend, Packet
from hitables.ir.unreal import why_unreal, without_unreal
from hitables.reader import read
from hitables.verify.question import Question

TABLES = {"filter": "FORWARD", "nat": "PREROUTING", "raw": "PREROUTING"}
ENGINES = ("exact", "diagrams")


def kinds(family: Family) -> Iterator[tuple[int, dict[Field, int]]]:
    """A protocol and the fields of its header, for each kind of packet."""
    yield 47, {}
    yield UDP, {Field.SPORT: 1, Field.DPORT: 2}
    for flags in range(64):
        yield TCP, {Field.SPORT: 1, Field.DPORT: 2, Field.FLAGS: flags}
    for kind in range(256):
        yield ICMP_OF[family], {Field.ICMP: kind << 8 | 1}


def packets(family: Family, state: int) -> Iterator[Packet]:
    """One of each kind, whole, first fragment, later fragment, and with broken headers."""
    rest = {Field.SRC: 1, Field.DST: 2, Field.IIF: 1, Field.OIF: 1, Field.STATE: state}
    for protocol, header in kinds(family):
        values = {**rest, Field.PROTO: protocol, **header, Field.FRAG: Fragment.WHOLE}
        yield Packet(family, values)
        yield Packet(family, {**values, Field.FRAG: Fragment.FIRST})
        if protocol == TCP:
            yield Packet(family, values, bad_offset=True)
    for protocol in (47, TCP, UDP, ICMP_OF[family]):
        values = {**rest, Field.PROTO: protocol}
        yield Packet(family, {**values, Field.FRAG: Fragment.LATER}, raw={Field.SPORT: 1}, l4_bytes=2)
        if protocol in HEADER_BYTES:
            yield Packet(family, {**values, Field.FRAG: Fragment.WHOLE}, l4_bytes=1)


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("table", TABLES)
def test_the_rules_in_front_drop_the_packets_that_no_kernel_has_and_no_others(
    table: str, family: Family, backend: Backend
) -> None:
    chain = TABLES[table]
    plain = read(f"*{table}\n:{chain} ACCEPT [0:0]\nCOMMIT\n", family=family)
    guarded = without_unreal(plain, {table}, {chain}).table(table)
    dropped = 0
    for state in range(len(STATES)):
        for packet in packets(family, state):
            assert inconsistency(packet) in (None, "FLAGS is missing", "raw DPORT is missing"), packet
            is_dropped = semantics.run(guarded, chain, packet, backend).verdict == "DROP"
            assert is_dropped == bool(why_unreal(packet, table)), packet
            dropped += is_dropped
    assert (dropped > 100) == (table != "raw")


ESTABLISHED = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
NEW = "-p tcp -m tcp --dport {} -m conntrack --ctstate NEW -j {}\n"
SERVICES = f"-A INPUT {NEW.format(22, 'ACCEPT')}-A INPUT {NEW.format(25, 'DROP')}"
FLAGS = "-A INPUT -p tcp -m tcp --tcp-flags SYN,RST SYN,RST -j DROP\n"


def filtered(rules: str, chain: str = "INPUT") -> str:
    return f"*filter\n:{chain} DROP [0:0]\n{rules.replace('INPUT', chain)}COMMIT\n"


EQUAL = [
    ("established in front", filtered(SERVICES + ESTABLISHED), filtered(ESTABLISHED + SERVICES)),
    (
        "ports in one rule",
        filtered(ESTABLISHED + "-A INPUT " + NEW.format(80, "ACCEPT") + "-A INPUT " + NEW.format(443, "ACCEPT"), "FORWARD"),
        filtered(ESTABLISHED + "-A INPUT -p tcp -m multiport --dports 80,443 -m conntrack --ctstate NEW -j ACCEPT\n", "FORWARD"),
    ),
    ("flags", filtered(FLAGS + ESTABLISHED), filtered(ESTABLISHED + FLAGS)),
    (
        "an error of ICMP is not NEW",
        filtered("-A INPUT -p icmp --icmp-type 3 -m state --state NEW -j ACCEPT\n" + ESTABLISHED),
        filtered(ESTABLISHED),
    ),
    (
        "a later fragment is not NEW",
        filtered("-A INPUT -f -m state --state NEW -j ACCEPT\n" + ESTABLISHED, "FORWARD"),
        filtered(ESTABLISHED, "FORWARD"),
    ),
    (
        "nat sees first packets",
        "*nat\n-A PREROUTING -m state --state ESTABLISHED -j ACCEPT\n-A PREROUTING -j REDIRECT\nCOMMIT\n",
        "*nat\n-A PREROUTING -j REDIRECT\nCOMMIT\n",
    ),
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("before", "after"), [each[1:] for each in EQUAL], ids=[each[0] for each in EQUAL])
def test_rule_sets_that_no_packet_of_a_kernel_tells_apart_are_equal(
    before: str, after: str, engine: str
) -> None:
    found = hitables.check(before, after, engine=engine)
    assert found and any(getattr(case.answer, "real_only", False) for case in found.cases)
    assert not hitables.diff(before, after).regions and not hitables.diff(after, before).regions


DIFFERENT = [
    ("INVALID", filtered(FLAGS + "-A INPUT -m state --state INVALID -j ACCEPT\n"),
     filtered("-A INPUT -m state --state INVALID -j ACCEPT\n" + FLAGS)),
    ("no state is asked", filtered("-A INPUT -f -j ACCEPT\n", "FORWARD"), filtered("", "FORWARD")),
    ("some packets of a kind", filtered("-A INPUT -p tcp -m state --state ESTABLISHED -j ACCEPT\n"), filtered("")),
    ("an address", filtered("-A INPUT -s 10.0.0.1/32 -j DROP\n" + SERVICES + ESTABLISHED),
     filtered(ESTABLISHED + "-A INPUT -s 10.0.0.1/32 -j DROP\n" + SERVICES)),
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("before", "after"), [each[1:] for each in DIFFERENT], ids=[each[0] for each in DIFFERENT]
)
def test_a_difference_has_a_packet_that_a_kernel_may_have(before: str, after: str, engine: str) -> None:
    found = hitables.check(before, after, engine=engine)
    assert not found
    for difference in found.differences:
        assert difference.packet is not None and not why_unreal(difference.packet, "filter")
        assert difference.before is not None and difference.after is not None
        assert all(step.rule.line for walk in (difference.before, difference.after) for step in walk.steps)
    assert hitables.diff(before, after).regions


def test_the_chains_of_compiled_rules_are_compared_for_all_packets() -> None:
    """`hitables compile` takes nothing of this on trust: the engines know of no unreal packets."""
    before, after = (read(text) for text in EQUAL[0][1:])
    answer = compare.ENGINES["exact"](before, after, Question(), compare.Sampling(), lambda stage: None)
    assert isinstance(answer, compare.Difference)

"""Packets written as text and read back, and helpful errors."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plain_packets import plain_packet, points_of
from support.programs import make_program

from hitables.errors import ParseError
from hitables.ir.answers import ANY, Answers, listening
from hitables.ir.fields import STATES, Family, Field, Fragment, interface_number
from hitables.ir.packet import Outcome, Packet
from hitables.ir.packet_reader import NAMES, read_packet
from hitables.ir.packet_text import show_packet
from hitables.ir.rule import Match, Role

TCP = "chain=FORWARD src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=1 dport=22"
FACT = Match("mark", (), Role.CONSTANT, 'mark --mark "0x1\\ =yes')
ASKED = Match("recent", (), Role.NAMED, "recent --set")


def test_a_packet_as_text() -> None:
    text = "table=nat chain=PREROUTING in=eth0 out=ppp0 mac=02:00:00:00:00:ff " + TCP[14:] + " flags=SYN,ACK"
    spelled = read_packet(text, Family.IPV4)
    assert (spelled.table, spelled.chain) == ("nat", "PREROUTING")
    assert spelled.packet.values == {
        Field.SRC: 0x0A000001,
        Field.DST: 0x0A000002,
        Field.PROTO: 6,
        Field.FRAG: Fragment.WHOLE,
        Field.SPORT: 1,
        Field.DPORT: 22,
        Field.FLAGS: 0x12,
        Field.IIF: interface_number("eth0"),
        Field.OIF: interface_number("ppp0"),
        Field.MAC: 0x0200000000FF,
        Field.STATE: STATES.index("NEW"),
    }


def test_words_with_defaults_may_be_left_out() -> None:
    spelled = read_packet(TCP, Family.IPV4)
    assert (spelled.table, spelled.packet.l4_bytes, spelled.packet.raw) == ("filter", 64, {})
    assert spelled.packet.values[Field.FLAGS] == 2  # a NEW packet: SYN
    assert spelled.packet.values[Field.IIF] == spelled.packet.values[Field.OIF] == 0
    assert Field.MAC not in spelled.packet.values
    assert read_packet(TCP + " state=established", Family.IPV4).packet.values[Field.FLAGS] == 16


def test_fragments_broken_headers_and_icmp() -> None:
    later = read_packet(TCP + " flags=none frag=later bytes=20", Family.IPV4).packet
    assert later.raw == {Field.SPORT: 1, Field.DPORT: 22, Field.FLAGS: 0} and Field.SPORT not in later.values
    assert read_packet(TCP + " flags=SYN offset=1", Family.IPV4).packet.offset_one
    assert read_packet(TCP + " doff=bad", Family.IPV4).packet.bad_offset
    cut = read_packet("chain=INPUT src=::1 dst=fe80::1 headers=cut", Family.IPV6).packet
    assert cut.cut_short and Field.PROTO not in cut.values
    ping = read_packet("chain=INPUT src=1.2.3.4 dst=4.3.2.1 proto=icmp icmp=8/0", Family.IPV4).packet
    assert ping.values[Field.ICMP] == 0x0800


def test_answers_by_key_and_number() -> None:
    text = (
        TCP
        + ' fact="mark --mark 0x1=yes" fact="mark --mark 0x1=no/2" outcome="limit=dropped/1" outcome=limit=yes'
    )
    packet = read_packet(text + " rewrite=state=UNTRACKED@1", Family.IPV4).packet
    mark, limit = Match("", (), Role.CONSTANT, "mark --mark 0x1"), Match("", (), Role.ONCE, "limit")
    assert [packet.fact(mark, n) for n in range(3)] == [True, None, False]
    assert [packet.outcome(limit, n) for n in range(2)] == [Outcome.YES, Outcome.DROPPED]
    assert packet.rewritten(Field.STATE, 1) == STATES.index("UNTRACKED")
    assert packet.rewritten(Field.STATE, 2) is None


@given(
    seed=st.integers(0, 10**6), chain=st.sampled_from(["INPUT", "FORWARD", "OUTPUT", "with space", 'a"b\\'])
)
def test_a_packet_as_text_is_read_back_unchanged(seed: int, chain: str) -> None:
    rng = random.Random(seed)
    program = make_program(rng)
    packet = plain_packet(rng, points_of(program), program.family, chain)
    outcomes = {("recent --set", rng.choice([ANY, 0, 7])): rng.choice(list(Outcome))}
    rewrites = {
        (Field.SRC, 2): packet.values[Field.SRC],
        (Field.STATE, 1): 4,
        (Field.IIF, 3): packet.values[Field.IIF],
    }
    answers = Answers({(FACT.key, 0): True, (FACT.key, 3): False}, outcomes, rewrites)
    again = read_packet(show_packet(packet, "mangle", chain, answers), program.family)
    assert (again.table, again.chain, again.answers) == ("mangle", chain, answers)
    for name in ("family", "values", "raw", "l4_bytes", "bad_offset", "offset_one", "cut_short"):
        assert getattr(again.packet, name) == getattr(packet, name)


def test_listening_records_the_answers_and_changes_none() -> None:
    given = Answers({(FACT.key, 0): True}, {(ASKED.key, ANY): Outcome.YES}, {(Field.SRC, 1): 5})
    packet, heard = listening(given.given_by(Packet(Family.IPV4, {})))
    assert (packet.fact(FACT, 0), packet.fact(FACT, 1), packet.outcome(ASKED, 3)) == (True, None, Outcome.YES)
    assert (packet.rewritten(Field.SRC, 1), packet.rewritten(Field.DST, 1)) == (5, None)
    assert heard == Answers({(FACT.key, 0): True}, {(ASKED.key, 3): Outcome.YES}, {(Field.SRC, 1): 5})


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        (TCP + " sprt=3", len(TCP) + 2, "did you mean sport?"),
        (TCP + " dport=3", len(TCP) + 2, "dport= is given twice"),
        ("chain=INPUT src=10.0.0.1.2", 13, "not an IPv4 address"),
        ("chain=INPUT src=::1", 13, "not an IPv4 address"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=tpc", 37, "did you mean tcp?"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=256", 37, "a number from 0 to 255"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4", 36, "proto= is missing"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=udp sport=1", 54, "dport= is missing"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=icmp", 47, "icmp=8/0"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=icmp icmp=8", 48, "out of range"),
        (TCP[14:], len(TCP) - 13, "chain= is missing"),
        (TCP + " flags=SIN", len(TCP) + 2, "did you mean SYN?"),
        (TCP + " state=NEWS", len(TCP) + 2, "did you mean NEW?"),
        (TCP + " mac=02:00", len(TCP) + 2, "six bytes"),
        (TCP + " in=an-interface-too-long", len(TCP) + 2, "15 characters"),
        (TCP + ' in="eth0', len(TCP) + 2, "not closed"),
        (TCP + " eth0", len(TCP) + 2, "missing its ="),
        (TCP + " fact=mark", len(TCP) + 2, "gives no answer"),
        (TCP + " fact=mark=maybe", len(TCP) + 2, "not known here"),
        (TCP + " icmp=8/0", 0, "ICMP cannot be"),
        (TCP + " bytes=3", 0, "cannot be"),
        (TCP + " doff=bad frag=later flags=SYN", 0, "bad data offset"),
        (TCP + " headers=cut", 0, "cut short without extension headers"),
    ],
)
def test_an_error_has_a_place_and_a_hint(text: str, column: int, words: str) -> None:
    with pytest.raises(ParseError, match="packet:1:") as caught:
        read_packet(text, Family.IPV4)
    assert caught.value.column == column
    assert words in str(caught.value).replace("\n", " ")


def test_the_docs_list_every_word() -> None:
    text = (Path(__file__).parents[2] / "docs/semantics.md").read_text()
    table = text.split("## Packets in words")[1]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    message = {word for cell in cells for word in re.findall(r"`(\w+)=\w*`", cell)}
    assert message == set(NAMES)


def test_types_of_addresses_are_told_by_name() -> None:
    packet = "chain=INPUT src=1.1.1.1 dst=2.2.2.2 proto=esp"
    spelled = read_packet(f'{packet} number="dst type=LOCAL" number="packet type=broadcast"', Family.IPV4)
    assert spelled.answers.numbers == {("dst type", 0): 2, ("packet type", 0): 1}
    assert 'number="dst type=LOCAL"' in show_packet(spelled.packet, answers=spelled.answers)
    with pytest.raises(ParseError, match="did you mean LOCAL"):
        read_packet(f'{packet} number="dst type=LOCL"', Family.IPV4)

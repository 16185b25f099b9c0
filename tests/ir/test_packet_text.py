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
    icmp = read_packet(
        "chain=INPUT src=1.1.1.1 dst=1.1.1.1 proto=icmp frag=later sport=1 bytes=2", Family.IPV4
    )
    assert icmp.packet.raw == {Field.SPORT: 1} and Field.ICMP not in icmp.packet.values
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
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=icmp icmp=8", 48, "no type with a code; write icmp=8/0"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=icmp icmp=echo-request", 48, "write icmp=8/0"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=icmp icmp=300", 48, "two numbers, as in icmp=8/0"),
        ("chain=INPUT src=1.2.3.4 dst=1.2.3.4 proto=icmp icmp=8/", 48, "out of range"),
        ("chain=INPUT src=1.2.3.0/24", 13, "one address; hitables reach --from 1.2.3.0/24 answers"),
        ("chain=INPUT dst=1.2.3.4-1.2.3.9", 13, "hitables reach --to 1.2.3.4-1.2.3.9 answers"),
        (TCP[14:], len(TCP) - 13, "chain= is missing"),
        (TCP + " frag=later bytes=20", len(TCP) + 21, "flags= is missing; a later fragment's bytes"),
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


# What administrators give for a packet, and the packet that the message proposes.
OTHER_FORMATS = {
    "PACKET: 2 fe1cfdb8 OUT=lo SRC=127.0.0.1 DST=127.0.0.2 LEN=60 TOS=0x0 TTL=64 ID=55537 DF SPORT=41354 DPORT=22 SYN ":
    "chain=OUTPUT out=lo src=127.0.0.1 dst=127.0.0.2 proto=tcp sport=41354 dport=22 flags=SYN",
    "PACKET: 2 c7ae5b07 IN=eth0 MACSRC=52:54:0:1:2:3 MACDST=52:54:0:4:5:6 MACPROTO=0800 SRC=1.2.3.4 DST=4.3.2.1 LEN=29 "
    "SPORT=3 DPORT=4 \n TRACE: 2 c7ae5b07 raw:PREROUTING:policy:ACCEPT":
    "chain=INPUT in=eth0 src=1.2.3.4 dst=4.3.2.1 proto=udp sport=3 dport=4",
    "PACKET: 2 1170d4e0 IN=lo LOOPBACK SRC=127.0.0.1 DST=127.0.0.1 LEN=28 TOS=0x0 TTL=64 ID=62309 ":
    "chain=INPUT in=lo src=127.0.0.1 dst=127.0.0.1 proto=PROTOCOL",
    " TRACE: 2 fe1cfdb8 raw:OUTPUT:rule:0x2:CONTINUE  -4 -t raw -A OUTPUT -j TRACE":
    "chain=INPUT src=ADDRESS dst=ADDRESS ...",
    "12:00:01.100000 IP 10.0.0.1.4000 > 10.0.0.2.22: Flags [S], seq 1456970000, win 65495, length 0":
    "chain=INPUT src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=4000 dport=22 flags=SYN",
    "17:03:59.017672 eth0  Out IP 10.0.0.2.ssh > 10.0.0.1.4000: Flags [R.], seq 0, ack 1456970001, win 0, length 0":
    "chain=OUTPUT out=eth0 src=10.0.0.2 dst=10.0.0.1 proto=tcp sport=ssh dport=4000 flags=RST,ACK",
    "IP 10.0.0.1.4000 > dns.example.53: 1234+ A? example.org. (29)":
    "chain=INPUT src=10.0.0.1 dst=ADDRESS proto=udp sport=4000 dport=53",
    "17:03:59.043282 IP 10.0.0.1 > 10.0.0.2: ICMP echo request, id 0, seq 0, length 8":
    "chain=INPUT src=10.0.0.1 dst=10.0.0.2 proto=icmp icmp=8/0",
    "17:03:59.043282 IP6 fe80::1 > ff02::1: ICMP6, router advertisement, length 8":
    "chain=INPUT src=fe80::1 dst=ff02::1 proto=icmpv6 icmp=TYPE/CODE",
    "12:00:01.1 02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), length 74: 10.0.0.1.4 > 10.0.0.2.5: UDP, length 1":
    "chain=INPUT src=10.0.0.1 dst=10.0.0.2 proto=udp sport=4 dport=5",
    "--dport 22 -p tcp -s 1.2.3.4": "chain=INPUT src=1.2.3.4 dst=ADDRESS proto=tcp sport=PORT dport=22",
    "iptables -A FORWARD -p tcp -d 10.0.0.0/8 --syn --dport 80:90 -m conntrack --ctstate NEW -j ACCEPT":
    "chain=FORWARD src=ADDRESS dst=ADDRESS proto=tcp sport=PORT dport=PORT flags=SYN state=NEW",
    "sudo ip6tables -t raw -A PREROUTING -i eth0 -s fe80::1 -p icmpv6 --icmpv6-type echo-request":
    "table=raw chain=PREROUTING in=eth0 src=fe80::1 dst=ADDRESS proto=icmpv6 icmp=128/0",
    "-p icmp --icmp-type 3/1 -d 10.0.0.1/32":
    "chain=INPUT src=ADDRESS dst=10.0.0.1 proto=icmp icmp=3/1",
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), OTHER_FORMATS.items())
def test_a_line_of_another_tool_is_told_in_one_sentence_with_the_words_to_write(
    text: str, words: str
) -> None:
    with pytest.raises(ParseError, match="not a packet in words") as caught:
        read_packet(text, Family.IPV4)
    assert re.search(rf"{re.escape(words)}(, with the chain|$)", caught.value.hint)
    assert not caught.value.others


def test_a_packet_whose_words_quote_another_tool_is_read() -> None:
    assert read_packet(f'{TCP} fact="string --string IP a > b: c=yes"', Family.IPV4).answers.facts


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

"""Lines of -j LOG are read as the packets that they describe."""

from __future__ import annotations

import pytest

from hitables.errors import ParseError
from hitables.ir.fields import Family, Field, Fragment
from hitables.ir.packet_log import is_log_line, read_log_line
from hitables.ir.packet_reader import read_packet
from hitables.ir.packet_text import show_packet

# As kernels print them, with what syslog and --log-prefix put before.
MAC = "MAC=52:54:00:12:34:56:52:54:00:65:43:21:08:00"
HEAD = "Nov 22 10:11:12 gw kernel: [ 1234.567890] [DROP] "
LINES = {
    f"{HEAD}IN=eth0 OUT= {MAC} SRC=203.0.113.9 DST=192.0.2.1 LEN=60 TOS=0x00 PREC=0x00 TTL=51 ID=54321 DF PROTO=TCP "
    "SPT=51034 DPT=22 WINDOW=29200 RES=0x00 SYN URGP=0 MARK=0x1":
    "table=filter chain=INPUT in=eth0 mac=52:54:00:65:43:21 src=203.0.113.9 dst=192.0.2.1 proto=tcp sport=51034 "
    "dport=22 flags=SYN state=NEW",
    "ufw:IN=eth0 OUT=eth1 PHYSIN=vnet0 SRC=10.0.0.1 DST=10.0.0.2 LEN=1500 TTL=63 ID=1 PROTO=UDP SPT=53 DPT=40000 LEN=1480":
    "table=filter chain=FORWARD in=eth0 out=eth1 physin=vnet0 src=10.0.0.1 dst=10.0.0.2 proto=udp sport=53 dport=40000 state=NEW",
    "IN= OUT=lo SRC=127.0.0.1 DST=127.0.0.1 LEN=40 TTL=64 ID=0 DF PROTO=TCP SPT=8 DPT=9 SEQ=1 ACK=7 WINDOW=0 RES=0x00 "
    "ACK RST URGP=0 UID=0 GID=0":
    "table=filter chain=OUTPUT out=lo src=127.0.0.1 dst=127.0.0.1 proto=tcp sport=8 dport=9 flags=RST,ACK state=INVALID",
    "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=84 TTL=64 ID=7 DF PROTO=ICMP TYPE=3 CODE=1 [SRC=10.0.0.2 DST=10.9.9.9 "
    "LEN=60 TTL=1 ID=8 DF PROTO=TCP SPT=1 DPT=2 WINDOW=0 RES=0x00 SYN URGP=0 ] MARK=0x2":
    "table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=icmp icmp=3/1 state=RELATED",
    "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=28 TTL=64 ID=7 PROTO=2":
    "table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=igmp state=NEW",
    "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=28 TTL=64 ID=7 MF PROTO=UDP SPT=5 DPT=6 LEN=2000":
    "table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=udp sport=5 dport=6 frag=first state=NEW",
    "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=28 TTL=64 ID=7 FRAG:185 PROTO=UDP":
    "table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=udp sport=0 dport=0 flags=none frag=later state=NEW",
    "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=28 TTL=64 ID=7 FRAG:1 PROTO=TCP":
    "table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=0 dport=0 flags=none frag=later offset=1 "
    "state=NEW",
    "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 LEN=24 TTL=64 ID=7 PROTO=TCP INCOMPLETE [1 bytes]":
    "table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=tcp bytes=1 state=NEW",
}  # fmt: skip
LINE6 = (
    "IN=eth0 OUT= MAC=52:54:00:12:34:56:52:54:00:65:43:21:86:dd SRC=2001:0db8:0000:0000:0000:0000:0000:0001 "
    "DST=2001:0db8:0000:0000:0000:0000:0000:0002 LEN=64 TC=0 HOPLIMIT=64 FLOWLBL=1 PROTO=ICMPv6 TYPE=128 CODE=0 ID=1 SEQ=1"
)  # fmt: skip


@pytest.mark.parametrize(("line", "words"), LINES.items())
def test_a_line_of_the_log_is_the_packet_that_was_logged(line: str, words: str) -> None:
    assert is_log_line(line)
    spelled = read_packet(read_log_line(line, Family.IPV4).words, Family.IPV4)
    assert show_packet(spelled.packet, spelled.table, spelled.chain) == words


def test_a_line_of_ipv6() -> None:
    packet = read_packet(read_log_line(LINE6, Family.IPV6).words, Family.IPV6).packet
    assert packet.values[Field.ICMP] == 128 << 8 and packet.values[Field.SRC] == 0x20010DB8 << 96 | 1
    assert packet.values[Field.FRAG] == Fragment.WHOLE and packet.values[Field.MAC] == 0x525400654321


def test_words_behind_the_line_add_to_it_and_go_before_it() -> None:
    line = next(iter(LINES))
    read = read_log_line(f"{line} table=mangle chain=PREROUTING state=INVALID", Family.IPV4)
    spelled = read_packet(read.words, Family.IPV4)
    shown = show_packet(spelled.packet, spelled.table, spelled.chain)
    assert shown.startswith("table=mangle chain=PREROUTING in=eth0") and shown.endswith("state=INVALID")
    assert read.assumed == ()


def test_the_text_in_front_of_the_line_is_kept() -> None:
    line = next(iter(LINES))
    assert read_log_line(line, Family.IPV4).before == HEAD
    assert read_log_line(line.replace(HEAD, "DROP"), Family.IPV4).before == "DROP"


def test_numbers_of_the_line_are_told_and_words_behind_it_go_before_them() -> None:
    line = next(iter(LINES)).replace("TOS=0x00 PREC=0x00", "TOS=0x10 PREC=0x20")
    read = read_log_line(f'{line} number="mark=7" fact="a=yes" fact="b=no"', Family.IPV4)
    answers = read_packet(read.words, Family.IPV4).answers
    assert answers.numbers == {("length", 0): 60, ("ttl", 0): 51, ("tos", 0): 0x30, ("mark", 0): 7}
    assert answers.facts == {("a", 0): True, ("b", 0): False}
    assert set(read.numbers) == {"length", "ttl", "tos", "mark"}
    six = read_packet(read_log_line(LINE6.replace("TC=0", "TC=184"), Family.IPV6).words, Family.IPV6).answers
    assert six.numbers == {("length", 0): 64, ("hl", 0): 64, ("tos", 0): 184, ("mark", 0): 0}


def test_other_lines_are_no_log_lines() -> None:
    assert not is_log_line("chain=INPUT src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=1 dport=2")
    assert not is_log_line("MAIN=1 OUT=2")
    with pytest.raises(ParseError, match="no SRC="):
        read_log_line("IN=eth0 OUT= MAC=ff ARP HTYPE=1", Family.IPV4)
    with pytest.raises(ParseError, match="not an IPv6 address"):
        read_packet(read_log_line(next(iter(LINES)), Family.IPV6).words, Family.IPV6)

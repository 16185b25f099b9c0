"""What a match keeps, and what it drops: the proof asks such a match as often as the rule set does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.exact_answers import differ

from hitables import read
from hitables.ir import semantics
from hitables.ir.fields import Family, Field, Fragment
from hitables.ir.packet import Backend, Packet
from hitables.ir.program import Program

V4, V6 = Family.IPV4, Family.IPV6

# Each may answer otherwise when it is asked again, or may drop the packet for what no field tells.
ASKED_EACH_TIME = [
    (V4, '-m bpf --bytecode "1,6 0 0 0"'),
    (V4, "-m cluster --cluster-total-nodes 2 --cluster-local-node 1 --cluster-hash-seed 7"),
    (V4, "-m connlimit --connlimit-above 2"),
    (V4, "-m hashlimit --hashlimit-upto 5/sec --hashlimit-name a"),
    (V4, "-m limit --limit 5/sec"),
    (V4, "-m nfacct --nfacct-name a"),
    (V4, "-m quota --quota 9"),
    (V4, "-m quota2 --name a --quota 9"),
    (V4, "-m rateest --rateest a --rateest-gt --rateest-pps 5"),
    (V4, "-m recent --rcheck"),
    (V4, "-m set --match-set a src --packets-gt 5"),
    (V4, "-m set --match-set a src ! --update-counters"),
    (V4, "-m set --match-set a src ! --update-subcounters"),
    (V4, "-m set --match-set a src,src"),
    (V4, "-m statistic --mode nth --every 3 --packet 0"),
    (V4, "-m statistic --mode random --probability 0.5"),
    (V4, "-p tcp -m osf --genre Linux --log 1"),
    (V4, "-p tcp -m tcpmss --mss 1:100"),
    (V4, "-p dccp -m dccp --dccp-option 5"),
    (V4, "-p sctp -m sctp --chunk-types any DATA"),
    (V4, "-m unheard --of"),
    (V6, "-p ah -m ah --ahspi 5"),
    (V6, "-m dst --dst-len 8"),
    (V6, "-m eui64"),
    (V6, "-m frag --fragid 5"),
    (V6, "-m hbh --hbh-len 8"),
    (V6, "-m ipv6header --header frag"),
    (V6, "-p mh -m mh --mh-type 1"),
    (V6, "-m rt --rt-type 0"),
]
# Each has a memory of its own: of two rules, each counts for itself.
OWN_MEMORIES = [
    "-m connlimit --connlimit-above 2",
    "-m limit --limit 5/sec",
    "-m quota --quota 9",
    "-m quota2 --name a --quota 9",
    "-m statistic --mode nth --every 3 --packet 0",
    "-m unheard --of",
]
# The bytes of layer 4 that a match reads; it drops a packet that has fewer.
READS_A_HEADER = [
    (51, "-m ah --ahspi 5", 12),
    (33, "-m dccp --dport 5", 12),
    (50, "-m esp --espspi 5", 8),
    (1, "-m icmp --icmp-type 8", 8),
    (108, "-m ipcomp --ipcompspi 5", 4),
    (132, "-m multiport --dports 5", 4),
    (132, "-m sctp --dport 5", 12),
    (132, "-m sctp --chunk-types any DATA", 16),
    (6, "-m tcp --dport 5", 20),
    (17, "-m udp --dport 5", 8),
]


def program(*rules: str, family: Family = V4) -> Program:
    lines = "".join(f"-A PREROUTING {rule}\n" for rule in rules)
    return read(f"*mangle\n:PREROUTING ACCEPT\n{lines}COMMIT\n", family=family)


@pytest.mark.parametrize(("family", "asks"), ASKED_EACH_TIME)
def test_a_match_that_may_answer_otherwise_is_asked_as_often(family: Family, asks: str) -> None:
    once, twice = (program(*[f"{asks} -j DROP"] * times, family=family) for times in (1, 2))
    assert differ(once, once) is None
    assert differ(once, twice) is not None


@pytest.mark.parametrize("asks", OWN_MEMORIES)
def test_a_memory_of_a_rule_is_not_shared_by_two(asks: str) -> None:
    for each in ("-s 10.0.0.0/8", "! -s 10.0.0.0/8"):
        assert differ(program(f"{each} {asks} -j DROP"), program(f"{each} {asks} -j DROP")) is None
    parted = program(f"-s 10.0.0.0/8 {asks} -j DROP", f"! -s 10.0.0.0/8 {asks} -j DROP")
    assert differ(program(f"{asks} -j DROP"), parted) is not None


@pytest.mark.parametrize(("protocol", "match", "needed"), READS_A_HEADER)
def test_a_match_drops_a_packet_that_lacks_what_it_reads(protocol: int, match: str, needed: int) -> None:
    asking = program(f"-p {protocol} {match}")
    assert differ(asking, program(), malformed="exact", equivalence="verdict") is not None
    values = {Field.SRC: 1, Field.DST: 2, Field.PROTO: protocol, Field.FRAG: Fragment.WHOLE, Field.STATE: 0}
    packet = Packet(V4, {**values, Field.IIF: 1, Field.OIF: 0}, l4_bytes=needed)
    for size, verdict in ((needed, "ACCEPT"), (needed - 1, "DROP")):
        walk = semantics.run(
            asking.table("mangle"), "PREROUTING", replace(packet, l4_bytes=size), Backend.LEGACY
        )
        assert walk.verdict == verdict

"""Weights of rules from counters, traces and captures; sources without information are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.capture_bytes import ipv4, l4, pcap, records

import hitables
from hitables import costs
from hitables.analyse.weights import from_counters
from hitables.costs import stats
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.simulate.traffic import busiest_chain, from_packets, pcap_batch, trace_batch

RULES = """*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [7:700]
[30:300] -A FORWARD -s 10.0.0.1 -j ACCEPT
[0:0] -A FORWARD -s 10.0.0.2 -j ACCEPT
[10:100] -A FORWARD -s 10.0.0.3 -j ACCEPT
COMMIT
"""


def capture(*sources: int) -> bytes:
    """A capture of udp packets from these addresses, without a link layer."""
    return pcap(records([ipv4(l4(), src=source) for source in sources]), link=101)


def test_counters_give_weights() -> None:
    weights = from_counters(hitables.read(RULES))
    assert weights.of("filter", "FORWARD", even=0) == pytest.approx([2.25, 0, 0.75])
    assert weights.of("filter", "FORWARD") == pytest.approx([2.125, 0.1, 0.775])
    assert weights.of("filter", "INPUT") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            RULES.replace("[30:300] ", "").replace("[0:0] -A", "-A").replace("[10:100] ", ""),
            "no rule has counters",
        ),
        (RULES.replace("[30:300]", "[0:0]").replace("[10:100]", "[0:0]"), "all counters are 0"),
    ],
)
def test_counters_that_are_missing_or_0_are_refused(text: str, message: str) -> None:
    with pytest.raises(HitablesError, match=message):
        from_counters(hitables.read(text))


@pytest.mark.parametrize("backend", Backend)
def test_a_capture_gives_rules_the_weight_of_their_packets(backend: Backend, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(*[0x0A000001] * 6, *[0x0A000003] * 2, 0x0A000009))
    program = hitables.read(RULES)
    batch, losses = pcap_batch(str(path), program.family)
    assert losses == ""
    weights = from_packets(program, "filter", "FORWARD", batch, backend, str(path))
    assert weights.counts["filter", "FORWARD"] == (6, 0, 2)
    assert weights.of("filter", "FORWARD", even=0) == pytest.approx([2.25, 0, 0.75])


NOT_IN_A_TRACE = (
    "-m mark --mark 0x1", "-m mark --mark 0x3", "-m mark ! --mark 0x1", "-m limit --limit 10/sec",
    "-m limit --limit 1/min", "-m connlimit --connlimit-above 10", "-m recent --name x --set",
    "-m pkttype --pkt-type broadcast", "-m set ! --match-set banned src",
    "-m statistic --mode nth --every 2 --packet 0",
)  # fmt: skip


@pytest.mark.parametrize("match", NOT_IN_A_TRACE)
def test_what_the_packets_of_a_trace_do_not_tell_counts_as_false(match: str, tmp_path: Path) -> None:
    # As in a capture of the same packets, whatever the words of the match.
    trace, path = tmp_path / "trace", tmp_path / "x.pcap"
    trace.write_text("".join(f"{0x0A000000 + at}\t0\t53\t53\t17\n" for at in (1, 3, 3)))
    path.write_bytes(capture(0x0A000001, 0x0A000003, 0x0A000003))
    text = RULES.replace(
        ":FORWARD ACCEPT [7:700]\n", f":FORWARD ACCEPT [7:700]\n[0:0] -A FORWARD {match} -j DROP\n"
    )
    program = hitables.read(text)
    for batch in (trace_batch(str(trace), Family.IPV4), pcap_batch(str(path), Family.IPV4)[0]):
        weights = from_packets(program, "filter", "FORWARD", batch, Backend.NFT, "packets")
        assert weights.counts["filter", "FORWARD"] == (0, 1, 0, 2)
    read = stats.read_over_trace(program, trace.read_text(), "trace", None, Backend.NFT, costs.default())
    assert (read["mean_read"], read["longest_read"]) == (pytest.approx(10 / 3, abs=0.01), 4)


def test_packets_of_the_wrong_family_or_place_are_refused(tmp_path: Path) -> None:
    path, trace = tmp_path / "x.pcap", tmp_path / "trace"
    program = hitables.read(RULES)
    path.write_bytes(capture(0x0A000009))
    with pytest.raises(HitablesError, match="none of 1 packets matches a rule of filter FORWARD"):
        batch, _ = pcap_batch(str(path), Family.IPV4)
        from_packets(program, "filter", "FORWARD", batch, Backend.NFT, str(path))
    with pytest.raises(HitablesError, match="no IPv6 packet in the capture: 1 of the other family"):
        pcap_batch(str(path), Family.IPV6)
    trace.write_text("1\t2\t3\t4\t17\n")
    with pytest.raises(HitablesError, match="the trace is IPv4, the rule set is not"):
        trace_batch(str(trace), Family.IPV6)
    six = hitables.read(
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s fe80::/10 -j DROP\nCOMMIT\n", family=Family.IPV6
    )
    with pytest.raises(HitablesError, match="the packets are IPv4, - is IPv6"):
        from_packets(six, "filter", "INPUT", trace_batch(str(trace), Family.IPV4), Backend.NFT, str(trace))


def test_the_chain_of_most_rules_is_chosen_and_unknown_ones_are_refused() -> None:
    program = hitables.read(RULES)
    assert busiest_chain(program) == "FORWARD"
    with pytest.raises(HitablesError, match="no built-in chain MINE"):
        busiest_chain(program, "MINE")
    with pytest.raises(HitablesError, match="no table nat"):
        busiest_chain(program, table="nat")

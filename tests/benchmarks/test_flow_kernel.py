"""The kernel's flow table in front of rules: the packets that hit are those that were drawn to."""

from __future__ import annotations

import random

import pytest

from benchmarks import flow_kernel
from benchmarks.kernel import random_rules
from hitables.ir.packet import Backend


def test_packets_are_of_known_flows_in_the_share_asked_for() -> None:
    rng = random.Random(1)
    sent = flow_kernel.drawn(random_rules(50, [24], rng), 0.25, rng)
    size = len(sent.packets) // sent.count
    packets = [sent.packets[at : at + size] for at in range(0, len(sent.packets), size)]
    known = set(sent.known)
    hits = sum(flow_kernel.flow_of(packet) in known for packet in packets)
    assert (sent.count, sent.hits, hits) == (flow_kernel.PACKETS, 1000, 1000)
    assert not flow_kernel.drawn(random_rules(50, [24], rng), 0, rng).known


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
def test_established_packets_end_at_the_first_rule(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_kernel, "PACKETS", 400)
    monkeypatch.setattr(flow_kernel, "FLOWS", 100)
    rows = list(flow_kernel.measured(20, backend, 1, (0.0, 0.75, 1.0), 1))
    assert [row["hit_ratio"] for row in rows] == [0.0, 0.75, 1.0]
    assert all(len(row["ns"]) == 2 * len(flow_kernel.WAYS) for row in rows)
    table = flow_kernel.table(rows)
    assert table.count(f"| {backend.value}, 20 rules, ") == 2 and "| 75% first |" in table

"""The benchmark of filters with events: what it measures happens, and its figures are whole."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks import events, events_tables
from benchmarks.two_hosts import TwoHosts
from hitables.engine import Action, Filters

TINY = events.Scale((20, 40), 2, 5, 3, 0.5, 2000, 3000, 3)


def test_an_interval_is_that_of_student() -> None:
    assert events.spread([7.0]) == {"mean": 7.0, "ci90": None, "sets": 1}
    found = events.spread([1.0, 2.0, 3.0])
    assert (found["mean"], found["sets"]) == (2.0, 3)
    assert found["ci90"] == pytest.approx(2.920 * 1 / np.sqrt(3))


def test_packets_of_flow_filters_pass_and_new_flows_meet_none() -> None:
    listed = events.flow_filters(50, 3)
    with Filters(
        "tss", [*listed, *events.phase_filters(events.ANY_SERVER)], layout=events.SYNTAX.layout
    ) as held:
        assert held.classify(events.packets_of(listed, 200, 3)).passed.all()
        rows = [(*flow, 6, 1) for flow in events.new_flows(50, 3)]
        verdicts = held.classify(events.SYNTAX.layout.headers(rows))
        assert set(verdicts.actions.tolist()) == {Action.ADD_EVENT}
        assert set(verdicts.priorities.tolist()) == {events.EVENTS}


def test_every_part_in_one_process_measures_each_plan_and_size() -> None:
    cost, latency = list(events.cost(TINY)), list(events.latency(TINY))
    wanted = [(plan, size) for plan in events.PLANS for size in TINY.sizes]
    assert [(row["plan"], row["filters"]) for row in cost] == wanted
    assert [(row["plan"], row["filters"]) for row in latency] == wanted
    assert all(row["events"] == 2 * TINY.events for row in latency)
    for row in (*cost, *latency):
        spreads = [value for value in row.values() if isinstance(value, dict)]
        assert spreads and all(value["mean"] > 0 and value["sets"] == 2 for value in spreads)
    assert events_tables.cost_table(cost).count("\n") == 2 + len(events.PLANS)
    assert events_tables.latency_table(latency).count("\n") == 2 + len(events.PLANS)


def test_of_a_burst_every_event_is_delivered_or_counted() -> None:
    rows = list(events.queue(TINY))
    assert [row["room"] for row in rows] == list(events.ROOMS)
    for row in rows:
        assert row["delivered"]["mean"] + row["lost"]["mean"] == row["caused"]
    assert rows[-1]["lost"]["mean"] == 0 and rows[-1]["room"] >= TINY.burst
    assert events_tables.queue_table(rows).count("\n") == 2 + len(events.ROOMS)


def test_the_parts_between_processes_measure_what_a_daemon_does(needs_kernel: None) -> None:
    row = next(events.socket_latency(dataclasses.replace(TINY, sets=1)))
    assert row["events"] == TINY.served and row["insert_us"]["mean"] > 0
    row = next(events.connections(dataclasses.replace(TINY, sizes=(20,), sets=1)))
    assert (row["begun"], row["removed"], row["lost_events"], row["missed"]) == (3, 3, 0, 0)
    assert events_tables.connection_table([row]).count("\n") == 3


def test_the_namespaces_of_two_hosts_are_gone_with_them(needs_kernel: None) -> None:
    with TwoHosts() as hosts:
        pids = hosts.near.pid, hosts.far.pid
        assert "10.9.0.1" in hosts.near.run("ip", "-o", "address")
        assert "10.9.0.1" not in hosts.far.run("ip", "-o", "address")
        with pytest.raises(subprocess.CalledProcessError):
            hosts.near.run("false")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

"""The evaluation of the HiTables paper: it counts what it says it counts, and tells what is missed."""

from __future__ import annotations

import random

import pytest

from benchmarks import conext2014 as bench
from benchmarks.kernel import random_rules
from hitables import read
from hitables.ir.fields import Field

pytestmark = pytest.mark.engine


def test_packets_are_read_back_as_they_were_drawn() -> None:
    rng = random.Random(1)
    rules = random_rules(50, [24], rng)
    batch = bench.batch_of(bench.headers_of([rule.packet(rng) for rule in rules]))
    for rule, packet in zip(rules, batch, strict=True):
        assert (
            int(rule.source.network_address) <= packet.values[Field.SRC] <= int(rule.source.broadcast_address)
        )
        assert rule.sport[0] <= packet.values[Field.SPORT] <= rule.sport[1]
        assert rule.dport[0] <= packet.values[Field.DPORT] <= rule.dport[1]
        assert packet.values[Field.PROTO] == 17


def test_barred_rules_stand_evenly_and_cut_the_papers_runs() -> None:
    rules = random_rules(60, [24], random.Random(2))
    program = read(bench.synthetic_text(rules, barred=2))
    barred = [at for at, rule in enumerate(program.table("filter")["OUTPUT"].rules) if len(rule.matches) > 4]
    assert barred == [20, 40]
    paper, tree = bench.synthetic_case(60, 2, run=0, seed=1, kernel=False)
    assert (paper["scheme"], tree["scheme"]) == ("paper", "tree")
    assert paper["differ"] == tree["differ"] == 0
    assert tree["mean"] < paper["mean"] < paper["linear"]


def test_what_is_missed_is_told() -> None:
    good = {"set": "fw1_10K", "binth": 20, "cuts": "equal", "scheme": "paper", "differ": 0, "mean": 590.0,
            "growth": 209.0, "longest": 1937}  # fmt: skip
    ours = {"set": "fw1_10K", "binth": 8, "cuts": "equal", "scheme": "tree", "differ": 0, "mean": 200.0}
    assert bench.failures([good, ours]) == []
    assert "decided by another rule" in bench.failures([good, {**ours, "differ": 3}])[0]
    assert "growth is 240.0" in bench.failures([{**good, "growth": 240.0}, ours])[0]
    assert "the default reads 595.0" in bench.failures([good, {**ours, "mean": 595.0}])[0]


def test_rules_with_a_limit_take_most_of_the_papers_gain_and_hardly_any_of_ours() -> None:
    rows = [
        row
        for barred in (0, 10)
        for row in bench.synthetic_case(300, barred, run=0, seed=1, kernel=False, match=bench.LIMIT)
    ]
    assert not any(row["differ"] for row in rows)
    assert bench.lost(rows, "tree")["rules read"] < bench.LOSS < bench.lost(rows, "paper")["rules read"]

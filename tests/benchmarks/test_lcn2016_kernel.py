"""Table II in the kernel: updates can be performed, and after them the kernel has the list with them."""

from __future__ import annotations

import ipaddress
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.small_namespace import Namespace

import sflgen
from benchmarks import kernel_updaters, lcn2016_kernel
from benchmarks.intervals import mean_interval
from benchmarks.kernel_updaters import Update, addresses_of
from benchmarks.lcn2016_kernel import WAYS, WORKLOADS, Work
from benchmarks.wire import processors
from hitables.api import read
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.load_save import save
from hitables.verify.portfolio import check
from hitables.verify.question import Equal
from sflgen.edits import apply
from sflgen.state import bare

CASES = [(part, way) for part, ways in WAYS.items() for way in ways]


@pytest.fixture(autouse=True)
def few_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload is drawn in milliseconds then."""
    monkeypatch.setattr(lcn2016_kernel, "PACKETS", 300)


def updated(work: Work) -> Program:
    """The list after all updates."""
    program = read(work.text, family=Family.IPV4)
    for update in work.updates:
        program = apply(program, sflgen.read_commands(update.command, program))
    return program


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("number", range(3))
def test_a_workload_has_its_size_and_updates_that_can_be_performed_in_order(name: str, number: int) -> None:
    work = WORKLOADS[name](number, 60, 40)
    assert work.rules == 60 == len(read(work.text).table("filter")["FORWARD"].rules)
    assert len(work.updates) == 40 and len(work.data) % work.count == 0
    inserted = sum(update.inserts for update in work.updates)
    assert 5 < inserted < 35
    assert len(updated(work).table("filter")["FORWARD"].rules) == 60 + 2 * inserted - 40
    assert WORKLOADS[name](number, 60, 40) == work, "the same number gives the same workload"


def test_sources_are_networks_apart_and_a_deletion_names_that_of_its_rule() -> None:
    work = WORKLOADS["sources"](1, 200, 150)
    networks = [ipaddress.IPv4Network(each) for each in addresses_of(work.text)]
    networks += [ipaddress.IPv4Network(update.address) for update in work.updates if update.inserts]
    ordered = sorted(networks)
    assert all(not one.overlaps(two) for one, two in itertools.pairwise(ordered))
    left = addresses_of(work.text)
    for update in work.updates:
        at = int(update.command.split()[2]) - 1
        if update.inserts:
            left.insert(at, update.address)
        else:
            assert left.pop(at) == update.address


def in_kernel(space: Namespace, way: str, backend: Backend) -> Any:
    """The rules, or the members of the set."""
    if way == "ipset":
        lines = space.run(["ipset", "save", "hosts"]).splitlines()
        return {ipaddress.IPv4Network(line.split()[2]) for line in lines if line.startswith("add ")}
    if way == "nft set":
        listed = json.loads(space.run(["nft", "-j", "list", "set", "ip", "guard", "hosts"]))
        elements = listed["nftables"][1]["set"]["elem"]
        return {
            ipaddress.IPv4Network(
                each if isinstance(each, str) else (each["prefix"]["addr"], each["prefix"]["len"])
            )
            for each in elements
        }
    return read(save(Family.IPV4, backend, space), family=Family.IPV4)


@pytest.mark.needs_kernel
@pytest.mark.parametrize(("part", "way"), CASES)
def test_after_all_updates_the_kernel_decides_as_the_list_with_them(
    part: str, way: str, tmp_path: Path
) -> None:
    workload, backend = part.split("-")[0], Backend(part.split("-")[1])
    work = WORKLOADS[workload](2, 40, 23)
    with Namespace() as space:
        space.call(kernel_updaters.make, way, work.text, backend, tmp_path / "state", tuple(processors()[1]))
        try:
            done = space.call(kernel_updaters.drive, work.updates, 1000.0, 600.0)
            found = in_kernel(space, way, backend)
        finally:
            space.call(kernel_updaters.end)
    wanted = updated(work)
    assert len(done.latencies) == len(work.updates) and min(done.latencies) > 0
    if way in ("ipset", "nft set"):
        rules = wanted.table("filter")["FORWARD"].rules
        assert found == {ipaddress.IPv4Network(rule.matches[0].words[-1]) for rule in rules}
        return
    question = bare(wanted, sflgen.Settings(backend)).question()
    assert isinstance(check(wanted, found, question), Equal)
    if way == "overlay":
        assert done.rebuilds == 1, "the 21st update folds, and the 22nd and 23rd do not"
    if way == "reload":
        assert 1 <= done.rebuilds <= len(work.updates)


@pytest.mark.needs_kernel
def test_an_update_that_is_not_due_is_not_performed_and_late_ones_are_not_counted(tmp_path: Path) -> None:
    work = WORKLOADS["sources"](3, 20, 40)
    with Namespace() as space:
        space.call(
            kernel_updaters.make, "linear", work.text, Backend.NFT, tmp_path / "state", processors()[1]
        )
        # The first is due after 0.25 s, the second after 0.75.
        done = space.call(kernel_updaters.drive, work.updates, 2.0, 0.5)
        space.call(kernel_updaters.end)
    assert len(done.latencies) <= 1


@pytest.mark.needs_kernel
def test_an_update_that_sflgen_refuses_ends_the_measurement_with_its_reason(tmp_path: Path) -> None:
    work = WORKLOADS["sources"](3, 20, 2)
    wrong = Update("-D FORWARD 4000")
    with Namespace() as space:
        space.call(kernel_updaters.make, "graft", work.text, Backend.NFT, tmp_path / "state", processors()[1])
        try:
            with pytest.raises(Exception, match="position 4000 is out of range"):
                space.call(kernel_updaters.drive, (*work.updates, wrong), 1000.0, 60.0)
        finally:
            space.call(kernel_updaters.end)


@pytest.mark.needs_kernel
@pytest.mark.parametrize("way", ["linear", "overlay"])
def test_packets_are_filtered_while_updates_are_performed(way: str) -> None:
    works = [WORKLOADS["rules"](number, 30, 10) for number in range(2)]
    row = lcn2016_kernel.point("rules-nft", way, 20, works, 0.5)
    assert row["asked"] == 10 and row["per_second"]["runs"] == 2 and row["per_second"]["mean"] > 0
    assert 0 <= row["done"]["mean"] <= 10 and len(row["ticks"]) >= 1
    assert "thousand packets/s" in lcn2016_kernel.line_of(row)
    assert json.loads(json.dumps(row)) == row


def cell(way: str, rate: int, packets: list[float], done: float) -> dict[str, Any]:
    return {
        "workload": "rules", "backend": "nft", "way": way, "rules": 2000, "seconds": 10.0, "rate": rate,
        "asked": 10 * rate, "per_second": mean_interval(packets), "cpu_ns": mean_interval([1.0]),
        "done": mean_interval([done]), "latency_ms": None, "rebuilds": None, "load": 1.0, "ticks": [1],
    }  # fmt: skip


def test_the_table_has_rates_with_intervals_and_shares_of_updates_that_were_lost() -> None:
    rows = [
        cell("linear", 0, [10_000.0, 12_000.0], 0),
        cell("linear", 10, [9_000.0, 9_000.0], 100),
        cell("reload", 10, [100_000.0, 100_000.0], 25),
    ]
    shown = lcn2016_kernel.table({"rules-nft": rows})
    assert "| packets, kernel, way | 0/s | 10/s |" in shown
    assert "| rules, nft, linear | 11 ± 6 | 9 ± 0 |" in shown
    assert "| rules, nft, reload | – | 100 ± 0 (25%) |" in shown
    assert "Sets of each workload: 2, of 2,000 rules; seconds of each measurement: 10; load" in shown


def test_the_whole_run_is_announced_and_a_resumed_one_measures_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str, int]] = []

    def point(part: str, way: str, rate: int, works: object, seconds: float) -> dict[str, Any]:
        asked.append((part, way, rate))
        workload, backend = part.split("-")
        return cell(way, rate, [1.0], 0) | {"workload": workload, "backend": backend}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lcn2016_kernel, "OUTPUT", tmp_path / "recorded.json")
    monkeypatch.setattr(lcn2016_kernel, "point", point)
    monkeypatch.setattr(lcn2016_kernel, "draw", lambda *of: None)
    monkeypatch.setattr(lcn2016_kernel, "WORKLOADS", dict.fromkeys(WORKLOADS, lambda *of: None))
    for options, cells in ((["--only", "rules-nft"], 12), (["--resume"], 45), (["--resume"], 0)):
        asked.clear()
        monkeypatch.setattr(sys, "argv", ["lcn2016_kernel", "--short", *options])
        lcn2016_kernel.main()
        assert len(set(asked)) == len(asked) == cells
    assert not (tmp_path / "recorded.json").exists()
    assert "45 cells × 1 sets × 0.5 s" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["lcn2016_kernel", "--resume", "-o", "out/sfl-kernel.json"])
    with pytest.raises(SystemExit, match="is of a run with other parameters"):
        lcn2016_kernel.main()


def test_the_whole_run_takes_less_than_eighty_minutes_and_the_short_one_less_than_ninety_seconds() -> None:
    ways = sum(len(ways) for ways in WAYS.values())
    assert lcn2016_kernel.planned(ways * len(lcn2016_kernel.RATES), 3, 2000, 10.0) < 80 * 60
    assert lcn2016_kernel.planned(ways * len(lcn2016_kernel.SHORT_RATES), 1, 300, 0.5) < 90

"""Filters with actions and events (layer-4 comparison, section 3.2), measured: `make papers-events`.

The paper has no figures for its event path.  It says what it is for: a daemon that adds a filter when a
connection begins, and removes it when the connection ends; and how quick that must be: hundreds of
microseconds to tens of milliseconds (section 1).  Here:

cost         ns of a packet: searched, classified, and classified with an event
latency      from a packet to the filter that answers it in force, and to its removal; two threads
queue        bursts of events beside a monitor that answers each: delivered and lost, by the queue's size
socket       the same latency between three processes: a client that classifies, the server, the daemon
connections  real TCP connections between two network namespaces, through examples/connection_filters.py

Filters are those of flows, each of one connection, drawn by a fixed seed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables import engine
from hitables.engine import Action, Filter, Filters, Rules
from hitables.errors import DatabaseError
from hitables.filters import Client, Phase, Syntax
from hitables.kernel.machine import machine

from . import command_line
from .doc_tables import DOCS, fill
from .events_tables import TABLES
from .two_hosts import FAR, PORT, WIRE, TwoHosts

OUTPUT = DOCS / "evaluation" / "events.json"
PAGE = DOCS / "filters.md"
ROOT = DOCS.parent
HITABLES = Path(sys.executable).parent / "hitables"
SEED = 1
SYNTAX = Syntax(4)
PARTS = ("cost", "latency", "queue", "socket", "connections")
# The paper's three and linear search; `tss` without tries; SFL around a static classifier.
PLANS = ("linear", "grid_of_tries", "pacars", "tss_tries", "tss", "sfl(hypersplit)")
SERVED = ("grid_of_tries", "pacars", "tss_tries", "tss")
SIZES = (100, 1000, 10_000)
ROOMS = (16, 256, 4096, 65_536)
# Priorities: filters of flows, then new ones, then those that cause events.
NEW, EVENTS = 1_000_000, 2_000_000
# Student's t of a 90 % confidence interval, by degrees of freedom from 1.
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)

Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How much of the protocol is run."""

    sizes: tuple[int, ...]
    sets: int
    events: int  # of a set, at most
    served: int  # events of a set by way of a socket, at most
    seconds: float  # of a set, at most
    packets: int  # whose cost is measured
    burst: int
    connections: int

    @property
    def minutes(self) -> float:
        """What the whole run takes, about, on an idle machine."""
        plans, served, sizes = len(PLANS), len(SERVED), len(self.sizes)
        seconds = {
            "cost": plans * sizes * 1.1,
            "latency": plans * sizes * (0.2 + 0.25 * self.seconds),
            "queue": len(ROOMS) * self.burst / 25_000,
            "socket": served * sizes * (0.9 + min(self.seconds, self.served * 0.0012)),
            "connections": (2 * served - 1) * (2.3 + self.connections * 0.007),
        }
        return self.sets * sum(seconds.values()) / 60


WHOLE = Scale(SIZES, 5, 1000, 500, 2.0, 200_000, 50_000, 300)
SHORT = Scale((100, 1000), 2, 200, 100, 0.4, 50_000, 10_000, 30)


def spread(values: Iterable[float]) -> Row:
    """The mean of one value for each set, half of its 90 % confidence interval, and the number of sets."""
    array = np.array(list(values), float)
    half = None
    if len(array) > 1:
        student = STUDENT[min(len(array) - 2, len(STUDENT) - 1)]
        half = float(student * array.std(ddof=1) / np.sqrt(len(array)))
    return {"mean": float(array.mean()), "ci90": half, "sets": len(array)}


def of_times(name: str, sets: list[list[float]]) -> Row:
    """Times of several sets in microseconds: spread of their means, median, 99th percentile, longest."""
    pooled = np.concatenate([np.array(each) for each in sets])
    return {
        f"{name}_us": spread(float(np.mean(each)) for each in sets),
        f"{name}_median_us": float(np.median(pooled)),
        f"{name}_p99_us": float(np.quantile(pooled, 0.99)),
        f"{name}_longest_us": float(pooled.max()),
    }


# -- filters and packets ----


def flow_filters(count: int, seed: int) -> list[Filter]:
    """Filters that let one direction of a connection pass each."""
    rng = np.random.default_rng((SEED, seed, count))
    clients, ports = rng.integers(1 << 24, 1 << 31, count), rng.integers(1024, 65536, count)
    servers = (0xC0000200 + rng.integers(0, 256, count)).tolist()
    services = rng.choice([22, 25, 80, 443, 993], count).tolist()
    return [
        Filter(number, one(src, dst, sport, dport), Action.ALLOW)
        for number, (src, dst, sport, dport) in enumerate(
            zip(clients.tolist(), servers, ports.tolist(), services, strict=True)
        )
    ]


def one(src: int, dst: int, sport: int, dport: int) -> tuple[tuple[int, int], ...]:
    """The ranges of a flow of TCP, in any phase."""
    return (src, src), (dst, dst), (sport, sport), (dport, dport), (6, 6), (0, 7)


def phase_filters(server: tuple[int, int]) -> list[Filter]:
    """An event for the begin and for the end of a connection to *server*, a range of addresses."""
    whole = (0, 2**32 - 1), server, (0, 65535), (0, 65535), (6, 6)
    return [
        Filter(EVENTS, (*whole, (int(Phase.SYN),) * 2), Action.ADD_EVENT),
        Filter(EVENTS + 1, (*whole, (int(Phase.FIN), int(Phase.RST))), Action.ADD_EVENT),
    ]


def new_flows(count: int, seed: int) -> list[tuple[int, int, int, int]]:
    """Flows that no filter of `flow_filters` lets pass."""
    rng = np.random.default_rng((SEED, seed, 99))
    clients = rng.choice(1 << 24, count, replace=False).tolist()
    return [
        (src, 0xC0000200 + number % 256, 1024 + number % 60_000, 443) for number, src in enumerate(clients)
    ]


def packets_of(filters: list[Filter], count: int, seed: int) -> npt.NDArray[np.uint32]:
    rows = np.array([[low for low, _ in each.ranges] for each in filters], np.uint32)
    return np.ascontiguousarray(rows[np.random.default_rng((SEED, seed)).integers(0, len(rows), count)])


ANY_SERVER = (0, 2**32 - 1)


# -- parts ----


def cost(scale: Scale) -> Iterator[Row]:
    """ns of a packet: in the database alone, with actions and counters, and with an event, monitored."""
    for plan in PLANS:
        for size in scale.sizes:
            found: dict[str, list[float]] = {"search": [], "classify": [], "event": []}
            for seed in range(scale.sets):
                listed = flow_filters(size, seed)
                count = scale.packets if plan != "linear" else max(1000, scale.packets // size)
                packets = packets_of(listed, count, seed)
                rules = Rules.of_ranges([each.ranges for each in listed], SYNTAX.layout)
                with engine.open(plan, rules) as db:
                    found["search"].append(fastest(lambda db=db, packets=packets: db.search(packets)) / count)
                for name, action in (("classify", Action.ALLOW), ("event", Action.ALLOW_EVENT)):
                    acting = [Filter(each.priority, each.ranges, action) for each in listed]
                    with Filters(plan, acting, layout=SYNTAX.layout) as filters, filters.monitor():
                        seconds = fastest(lambda held=filters, packets=packets: held.classify(packets))
                        found[name].append(seconds / count)
            times = {f"{name}_ns": spread(value * 1e9 for value in each) for name, each in found.items()}
            yield {"plan": plan, "filters": size, **times}


def fastest(call: Any) -> float:
    """Seconds of this thread, the least of five runs."""
    spent = []
    for _ in range(5):
        start = time.thread_time()
        call()
        spent.append(time.thread_time() - start)
    return min(spent)


def latency(scale: Scale) -> Iterator[Row]:
    """From a packet's classification to the return of the insertion, and of the removal, that answer it."""
    for plan in PLANS:
        for size in scale.sizes:
            begins: list[list[float]] = []
            ends: list[list[float]] = []
            for seed in range(scale.sets):
                begun, ended = answered(plan, size, seed, scale)
                begins.append(begun)
                ends.append(ended)
            yield {
                "plan": plan, "filters": size, "events": sum(map(len, begins)),
                **of_times("insert", begins), **of_times("remove", ends),
            }  # fmt: skip


def answered(plan: str, size: int, seed: int, scale: Scale) -> tuple[list[float], list[float]]:
    """Microseconds of each insertion and removal; another thread monitors."""
    done = threading.Semaphore(0)
    begun: list[float] = []
    ended: list[float] = []
    listed = [*flow_filters(size, seed), *phase_filters(ANY_SERVER)]
    with Filters(plan, listed, layout=SYNTAX.layout) as filters:
        monitor = filters.monitor()

        def serve() -> None:
            while True:
                try:
                    events = monitor.read()
                except DatabaseError:  # it is closed
                    return
                for event in events:
                    if event.header[5] == Phase.SYN:
                        filters.insert(Filter(NEW, one(*event.header[:4]), Action.ALLOW))
                    else:
                        filters.remove(NEW)
                    at.append(time.perf_counter_ns())
                    done.release()

        at: list[int] = []
        daemon = threading.Thread(target=serve)
        daemon.start()
        stop = time.monotonic() + scale.seconds
        for flow in new_flows(scale.events, seed):
            for phase, times in ((Phase.SYN, begun), (Phase.FIN, ended)):
                # The filter lets every phase pass; its end is told by a packet of another flow.
                address = flow if phase is Phase.SYN else (flow[0] ^ 1 << 31, *flow[1:])
                header = SYNTAX.layout.headers([(*address, 6, int(phase))])
                start = time.perf_counter_ns()
                filters.classify(header)
                assert done.acquire(timeout=60), "the daemon has died"
                times.append((at[-1] - start) / 1000)
                passes = filters.classify(SYNTAX.layout.headers([(*flow, 6, int(Phase.OTHER))])).passed[0]
                assert passes == (phase is Phase.SYN), "the answer is in force"
            if time.monotonic() > stop:
                break
        monitor.close()
        daemon.join()
    return begun, ended


def queue(scale: Scale) -> Iterator[Row]:
    """Bursts of events beside a monitor that answers each with an insertion and a removal."""
    for room in ROOMS:
        runs = [burst(room, seed, scale) for seed in range(scale.sets)]
        yield {
            "room": room, "caused": scale.burst, "delivered": spread(run[0] for run in runs),
            "lost": spread(run[1] for run in runs), "answered_per_s": spread(run[2] for run in runs),
        }  # fmt: skip


def burst(room: int, seed: int, scale: Scale) -> tuple[int, int, float]:
    """Events delivered and lost, and those answered in a second."""
    rows = np.array([(*flow, 6, int(Phase.SYN)) for flow in new_flows(scale.burst, seed)], np.uint32)
    listed = [*flow_filters(1000, seed), *phase_filters(ANY_SERVER)]
    all_caused = threading.Event()
    with Filters("tss", listed, layout=SYNTAX.layout, room=room) as filters:
        monitor = filters.monitor()

        def serve() -> None:
            while not (all_caused.is_set() and not monitor.statistics().pending):
                for event in monitor.read(0.01):
                    filters.insert(Filter(NEW, one(*event.header[:4]), Action.ALLOW))
                    filters.remove(NEW)

        daemon = threading.Thread(target=serve)
        start = time.perf_counter()
        daemon.start()
        for at in range(0, len(rows), 256):
            filters.classify(rows[at : at + 256])
        all_caused.set()
        daemon.join()
        seconds = time.perf_counter() - start
        counts = monitor.statistics()
    assert counts.delivered + counts.lost == len(rows)
    return counts.delivered, counts.lost, counts.delivered / seconds


@contextmanager
def served(folder: Path, plan: str, listed: list[Filter], hosts: TwoHosts | None = None) -> Iterator[Path]:
    """The socket of a server of these filters; with *hosts*, it decides on the far host's packets."""
    path = folder / "socket"
    (folder / "filters").write_text("".join(f"{SYNTAX.show_filter(each)}\n" for each in listed))
    words = [HITABLES, "filters", "serve", "--socket", path, "--algorithm", plan, folder / "filters"]
    capture = ["--capture", WIRE] if hosts else []
    command = [str(word) for word in (*words, *capture)]
    command = hosts.far.command(command) if hosts else command
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = server.stderr.readline()
            assert "listening" in said, said
            yield path
        finally:
            server.terminate()
            server.wait()


def socket_latency(scale: Scale) -> Iterator[Row]:
    """From a client's packet to the answer that another client's filter is in force.

    The daemon is a process of its own; both read the machine's monotonic clock.
    """
    for plan in SERVED:
        for size in scale.sizes:
            sets = []
            for seed in range(scale.sets):
                listed = [*flow_filters(size, seed), *phase_filters(ANY_SERVER)]
                with tempfile.TemporaryDirectory() as folder, served(Path(folder), plan, listed) as path:
                    sets.append(by_socket(path, seed, scale))
            yield {
                "plan": plan, "filters": size, "events": sum(map(len, sets)), **of_times("insert", sets)
            }  # fmt: skip


def by_socket(path: Path, seed: int, scale: Scale) -> list[float]:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            with Client(path) as client:
                client.monitor()
                os.write(writer, b"\0" * 8)
                while True:
                    for event in client.read():
                        client.insert(Filter(NEW, one(*event.header[:4]), Action.ALLOW))
                        os.write(writer, time.monotonic_ns().to_bytes(8, "little"))
                        client.delete(NEW)
                        os.write(writer, b"\0" * 8)
        finally:
            os._exit(0)
    times = []
    with Client(path) as client:
        os.read(reader, 8)
        stop = time.monotonic() + scale.seconds
        for flow in new_flows(scale.served, seed):
            start = time.monotonic_ns()
            client.classify((*flow, 6, int(Phase.SYN)))
            times.append((int.from_bytes(os.read(reader, 8), "little") - start) / 1000)
            os.read(reader, 8)  # it is removed again
            if time.monotonic() > stop:
                break
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    return times


def connections(scale: Scale) -> Iterator[Row]:
    """Real connections: from the kernel's time stamp of the first packet to its four filters in force.

    With a static classifier of many filters the answers would fall behind the connections, without end.
    """
    sizes = (scale.sizes[0], scale.sizes[-1])
    for plan, size in [(SERVED[0], sizes[0]), *((plan, size) for plan in SERVED[1:] for size in sizes)]:
        facts = [connected(plan, size, seed, scale) for seed in range(scale.sets)]
        counted = ("begun", "removed", "lost_events", "missed")
        yield {
            "plan": plan, "filters": size, **{key: sum(each[key] for each in facts) for key in counted},
            **of_times("insert", [[value / 1000 for value in each["latency_ns"]] for each in facts]),
        }  # fmt: skip


def connected(plan: str, size: int, seed: int, scale: Scale) -> Row:
    """The report of the daemon, and the packets that the capture missed."""
    far = int.from_bytes(bytes(map(int, FAR.split("."))), "big")
    listed = [*flow_filters(size, seed), *ends_of(far)]
    python = [sys.executable, "-m", "benchmarks.two_hosts"]
    with (
        tempfile.TemporaryDirectory() as folder,
        TwoHosts() as hosts,
        served(Path(folder), plan, listed, hosts) as path,
        hosts.far.start(*python, "accept", stdout=subprocess.PIPE, cwd=ROOT) as accepting,
    ):
        assert accepting.stdout is not None and accepting.stdout.readline()
        report = Path(folder) / "report"
        words = ["--first", NEW, "--linger", 0.2, "--count", scale.connections, "--report", report]
        command = [sys.executable, ROOT / "examples/connection_filters.py", "--socket", path, *words]
        with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as daemon:
            assert daemon.stderr is not None and "waiting" in daemon.stderr.readline()
            hosts.near.run(*python, "connect", "--count", scale.connections, "--pause", 0.004)
        with Client(path) as client:
            missed = int(client.status()["missed"])
        accepting.kill()
        return {**json.loads(report.read_text()), "missed": missed}


def ends_of(server: int) -> list[Filter]:
    """`phase_filters` of one server, and the ends that it sends itself."""
    begin, end = phase_filters((server, server))
    back = (end.ranges[1], end.ranges[0], *end.ranges[2:])
    service = (PORT, PORT)
    begin, end = (
        Filter(each.priority, (*each.ranges[:3], service, *each.ranges[4:]), each.action)
        for each in (begin, end)
    )
    return [begin, end, Filter(EVENTS + 2, (*back[:2], service, *back[3:]), Action.ADD_EVENT)]


def write_page(data: Row) -> None:
    """The tables of the page, from the data alone."""
    for name, table in TABLES.items():
        if data.get(name):
            fill(PAGE, f"events-{name}", table(data[name]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="about a minute; into out/ or -o")
    parser.add_argument("--sets", type=int, help=f"sets of filters of each kind ({WHOLE.sets})")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these, and keep the other figures")
    parser.add_argument("--draw", action="store_true", help="tables from the data that is there")
    parser.add_argument("-o", "--output", type=Path, help="write the figures here, and no tables")
    args = parser.parse_args()
    if args.short and not args.draw:  # the figures of the docs are of the whole run
        args.output = args.output or Path("out/events.json")
        args.output.parent.mkdir(parents=True, exist_ok=True)
    path = args.output or OUTPUT
    if args.draw:
        write_page(json.loads(path.read_text()))
        return
    measures = {
        "cost": cost, "latency": latency, "queue": queue, "socket": socket_latency,
        "connections": connections,
    }  # fmt: skip
    scale = SHORT if args.short else WHOLE
    if args.sets is not None:
        if args.sets < 2:
            parser.error("--sets: an interval needs two at least")
        scale = replace(scale, sets=args.sets)
    parts = args.only or PARTS
    print(
        f"the whole run takes about {scale.minutes:.1f} minutes on an idle machine; this: {' '.join(parts)}"
    )
    data: Row = {"machine": machine(), "seed": SEED, "parameters": {}, "dates": {}}
    if args.only and path.exists():
        before = json.loads(path.read_text())
        data = before | data | {key: before.get(key, {}) for key in ("parameters", "dates")}
    for name in parts:
        start = time.monotonic()
        data[name] = []
        for row in measures[name](scale):
            data[name].append(row)
            print(name, row, flush=True)
        data["dates"][name] = date.today().isoformat()
        data["parameters"][name] = vars(scale)
        path.write_text(json.dumps(data, indent=1) + "\n")
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    if args.output:
        print(f"data: {path}")
    else:
        write_page(data)


if __name__ == "__main__":
    command_line.run(main)

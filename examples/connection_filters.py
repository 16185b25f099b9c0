#!/usr/bin/env python3
"""A daemon that gives each TCP connection filters of its own, and takes them back at its end.

    connection_filters.py --socket PATH [--first N] [--most N] [--linger SECONDS] [--idle SECONDS]
                          [--count N] [--report FILE]

It is a client of `hitables filters serve`, whose filters decide which connections may begin:

    1000000 add_event dst 192.0.2.0/24 proto tcp dport 80 tcp syn
    1000001 add_event dst 192.0.2.0/24 proto tcp dport 80 tcp fin-rst
    1000002 add_event src 192.0.2.0/24 proto tcp sport 80 tcp fin-rst

The first queues an event for the first packet of each.  The daemon answers with four filters, which let both
directions through, and cause events when one of them ends (FIN) or both do (RST).  Then it removes the four,
--linger seconds later, so that the last acknowledgement still passes.  (The other two are for connections
that end before they have filters: packets that are only watched do not wait.)  A connection without a packet
for --idle seconds is forgotten, too; and beyond --most connections a new one gets no filters, which is
counted.  Priorities from --first on, four for each of --most connections, are this daemon's own: what is
there when it starts is removed.

This is the example of the layer-4 comparison (Sahasranaman and Buddhikot, section 3.2), where the first
packet is dropped, and TCP sends it again.

At SIGTERM, at Ctrl-C, or when --count connections have ended, its filters are removed, and --report FILE gets
counts and times as JSON: for each connection the nanoseconds from its packet's time stamp to the answer that
its filters are in force.

Exit status: 0 ended so; 2 trouble, such as a server that is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from hitables.engine import Action, Event, Filter
from hitables.errors import HitablesError
from hitables.filters import Client, Phase

Flow = tuple[int, int, int, int]  # source, destination, source port, destination port

TCP = 6
# Filters of a connection: the end and the rest of each direction.
FILTERS = 4
ENDS = (int(Phase.FIN), int(Phase.RST))
WHOLE = (0, 7)


@dataclass
class Connection:
    """One connection: its first filter's priority, and what has ended.

    packets  of its filters, at the last sweep
    """

    flow: Flow
    priority: int
    ended: set[Flow] = field(default_factory=set)
    remove_at: float | None = None
    packets: int = -1

    def filters(self) -> list[Filter]:
        """The filters of both directions; an end is looked at before the rest."""
        made = []
        for way, (src, dst, sport, dport) in enumerate((self.flow, reverse(self.flow))):
            fields = ((src, src), (dst, dst), (sport, sport), (dport, dport), (TCP, TCP))
            priority = self.priority + 2 * way
            made.append(Filter(priority, (*fields, ENDS), Action.ALLOW_EVENT))
            made.append(Filter(priority + 1, (*fields, WHOLE), Action.ALLOW))
        return made


def reverse(flow: Flow) -> Flow:
    src, dst, sport, dport = flow
    return dst, src, dport, sport


class Daemon:
    """The connections that have filters."""

    client: Client

    def __init__(self, first: int, most: int, linger: float, idle: float) -> None:
        self.linger, self.idle = linger, idle
        self.own = range(first, first + FILTERS * most)  # priorities
        self.free = list(self.own[::FILTERS][::-1])
        self.by_flow: dict[Flow, Connection] = {}  # by the flow of either direction
        self.leaving: list[Connection] = []  # by rising time of removal
        self.swept = time.monotonic()
        self.begun = self.removed = self.refused = self.forgotten = self.lost_events = 0
        self.latencies: list[int] = []  # ns

    def run(self, client: Client, count: int | None = None) -> None:
        """Serve until *count* connections have ended (None: until an interrupt)."""
        self.client = client
        self.clear(client)
        client.monitor()
        print("waiting for connections", file=sys.stderr, flush=True)
        while count is None or self.removed + self.forgotten < count:
            for event in client.read(self.pause()):
                self.take(event)
            self.lost_events = client.lost
            self.remove_ended()
            if time.monotonic() >= self.swept + self.idle:
                self.sweep()

    def pause(self) -> float:
        """Seconds until there is something to do without an event."""
        now = time.monotonic()
        times = [self.swept + self.idle, *(each.remove_at for each in self.leaving[:1] if each.remove_at)]
        return max(0.0, min(times) - now)

    def take(self, event: Event) -> None:
        src, dst, sport, dport, _, phase = event.header
        flow = src, dst, sport, dport
        connection = self.by_flow.get(flow)
        if connection is None and phase == Phase.SYN:
            self.begin(flow, event.time)
        elif connection is not None and phase in (Phase.FIN, Phase.RST):
            connection.ended |= {flow, reverse(flow)} if phase == Phase.RST else {flow}
            if len(connection.ended) == 2 and connection.remove_at is None:
                connection.remove_at = time.monotonic() + self.linger
                self.leaving.append(connection)

    def begin(self, flow: Flow, packet_ns: int) -> None:
        if not self.free:
            self.refused += 1
            return
        connection = Connection(flow, self.free.pop())
        self.client.insert(*connection.filters())
        self.latencies.append(time.time_ns() - packet_ns)
        self.begun += 1
        self.by_flow[flow] = self.by_flow[reverse(flow)] = connection

    def remove_ended(self) -> None:
        while self.leaving and (self.leaving[0].remove_at or 0.0) <= time.monotonic():
            self.remove(self.leaving.pop(0))
            self.removed += 1

    def remove(self, connection: Connection) -> None:
        self.client.delete(*(each.priority for each in connection.filters()))
        self.free.append(connection.priority)
        self.by_flow.pop(connection.flow, None)
        self.by_flow.pop(reverse(connection.flow), None)

    def sweep(self) -> None:
        """Forget connections without a packet since the last sweep."""
        counts = {each.priority: packets for each, packets in self.client.filters().items()}
        for connection in {id(each): each for each in self.by_flow.values()}.values():
            packets = sum(counts.get(connection.priority + at, 0) for at in range(FILTERS))
            if packets == connection.packets and connection.remove_at is None:
                self.remove(connection)
                self.forgotten += 1
            connection.packets = packets
        self.swept = time.monotonic()

    def clear(self, client: Client) -> None:
        """Remove the filters of this daemon, or of one that was killed.

        Those that the server has: where an interrupt ended a command, this daemon cannot know.
        """
        client.delete(*(each.priority for each in client.filters() if each.priority in self.own))

    def report(self) -> dict[str, object]:
        return {
            "begun": self.begun, "removed": self.removed, "refused": self.refused,
            "forgotten": self.forgotten, "lost_events": self.lost_events, "latency_ns": self.latencies,
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--socket", required=True, metavar="PATH")
    parser.add_argument("--first", type=int, default=1000, metavar="N", help="least priority of its filters")
    parser.add_argument("--most", type=int, default=10_000, metavar="N", help="connections at a time")
    parser.add_argument("--linger", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--idle", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--count", type=int, metavar="N", help="end after this many connections")
    parser.add_argument("--report", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.most < 1 or args.first < 0 or args.linger < 0 or args.idle <= 0:
        parser.error("--most and --idle must be positive, --first and --linger not negative")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    daemon = Daemon(args.first, args.most, args.linger, args.idle)
    try:
        with contextlib.suppress(KeyboardInterrupt), Client(args.socket) as client:
            daemon.run(client, args.count)
        for number in (signal.SIGTERM, signal.SIGINT):  # one is enough
            signal.signal(number, signal.SIG_IGN)
        if args.report:
            args.report.write_text(json.dumps(daemon.report()) + "\n")
        # An interrupted command may have left part of an answer: the filters go by a new connection.
        with Client(args.socket) as client:
            daemon.clear(client)
    except (HitablesError, OSError) as error:
        print(f"connection_filters: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

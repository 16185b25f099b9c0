"""Two network namespaces joined by a wire (veth), for programs that run in one of them.

`python -m benchmarks.two_hosts accept` is a TCP server, `… connect` makes connections to it one by one.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

NEAR, FAR, PORT = "10.9.0.1", "10.9.0.2", 8080
WIRE = "wire0"  # the interface of both


class Host:
    """A network namespace, which a process of ours keeps."""

    def __init__(self) -> None:
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE
        )
        assert self._keeper.stdout is not None
        if not self._keeper.stdout.readline():
            raise OSError("no network namespace can be made; this needs root")
        self.pid = self._keeper.pid

    def command(self, words: Sequence[object]) -> list[str]:
        """*words* as a command inside."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *map(str, words)]

    def run(self, *words: object) -> str:
        """The output of a command inside, which must succeed."""
        return subprocess.run(self.command(words), capture_output=True, text=True, check=True).stdout

    def start(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        """A program inside."""
        return subprocess.Popen(self.command(words), text=True, **options)

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.wait()
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()


class TwoHosts:
    """The hosts *near* (NEAR) and *far* (FAR)."""

    def __enter__(self) -> Self:
        self.near, self.far = Host(), Host()
        wire = ["ip", "link", "add", WIRE, "type", "veth", "peer", "name", WIRE, "netns", self.far.pid]
        self.near.run(*wire)
        for host, address in ((self.near, NEAR), (self.far, FAR)):
            host.run("ip", "address", "add", f"{address}/24", "dev", WIRE)
            host.run("ip", "link", "set", WIRE, "up")
            host.run("ip", "link", "set", "lo", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.near.close()
        self.far.close()


def accept() -> None:
    """Answer each connection with what it sends, and close it when the other side has."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    with socket.create_server((FAR, PORT), backlog=512) as listener:
        print("listening", flush=True)
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def connect(count: int, pause: float, together: int) -> None:
    """*count* connections of one request each, *together* at a time, *pause* seconds between."""
    for first in range(0, count, together):
        opened = [socket.create_connection((FAR, PORT)) for _ in range(min(together, count - first))]
        for connection in opened:
            connection.sendall(b"ping")
        for connection in opened:
            assert connection.recv(4) == b"ping"
            connection.close()
        time.sleep(pause)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["accept", "connect"])
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--together", type=int, default=1)
    args = parser.parse_args()
    if args.part == "accept":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        accept()
    else:
        connect(args.count, args.pause, args.together)


if __name__ == "__main__":
    main()

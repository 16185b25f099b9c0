"""The daemon of examples/connection_filters.py, with real connections between two network namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.two_hosts import FAR, NEAR, PORT, WIRE, TwoHosts
from hitables.errors import FileError
from hitables.filters import Client

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "connection_filters.py"
HITABLES = Path(sys.executable).parent / "hitables"
BASE = f"""\
1000000 add_event dst {FAR} proto tcp dport {PORT} tcp syn
1000001 add_event dst {FAR} proto tcp dport {PORT} tcp fin-rst
1000002 add_event src {FAR} proto tcp sport {PORT} tcp fin-rst
"""

Connect = Callable[..., str]


@pytest.fixture
def hosts(needs_kernel: None) -> Iterator[TwoHosts]:
    with TwoHosts() as hosts:
        yield hosts


@pytest.fixture
def path(hosts: TwoHosts, tmp_path: Path) -> Iterator[str]:
    """The socket of a server that decides on the far host's packets."""
    path = str(tmp_path / "socket")
    (tmp_path / "base.filters").write_text(BASE)
    words = [HITABLES, "filters", "serve", "--socket", path, "--capture", WIRE, tmp_path / "base.filters"]
    with hosts.far.start(*words, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr is not None and "listening" in server.stderr.readline()
            yield path
            server.terminate()
            assert server.wait() == 0
        finally:
            server.kill()


@pytest.fixture
def connect(hosts: TwoHosts) -> Iterator[Connect]:
    """A function that makes TCP connections to a server on the far host."""
    python = [sys.executable, "-m", "benchmarks.two_hosts"]
    with hosts.far.start(*python, "accept", stdout=subprocess.PIPE, cwd=ROOT) as accepting:
        try:
            assert accepting.stdout is not None and accepting.stdout.readline()
            yield lambda *words: hosts.near.run(*python, "connect", *words)
        finally:
            accepting.kill()


def daemon(path: str, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), "--socket", path, *map(str, words)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    assert started.stderr.readline() == "waiting for connections\n"
    return started


def wait_until(client: Client, holds: Callable[[int], bool]) -> None:
    """Until the number of filters is one that *holds*; the test's own timeout ends a wait without end."""
    client.monitor()
    while not holds(len(client.filters())):
        client.read(0.02)


@pytest.mark.needs_kernel
def test_each_connection_gets_filters_and_loses_them_when_it_ends(
    path: str, connect: Connect, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    words = ("--linger", 0.1, "--count", 20, "--report", report)
    with daemon(path, *words) as running, Client(path) as client:
        connect("--count", 20, "--together", 4)
        assert running.wait() == 0
        assert running.stderr is not None and running.stderr.read() == ""
        counted = json.loads(report.read_text())
        assert (counted["begun"], counted["removed"], counted["refused"], counted["lost_events"]) == (
            20,
            20,
            0,
            0,
        )
        assert len(counted["latency_ns"]) == 20 and min(counted["latency_ns"]) > 0
        first = {each.priority: packets for each, packets in client.filters().items()}
        assert first[1_000_000] == 20  # the first packet of each connection
        assert client.status()["missed"] == "0"


@pytest.mark.needs_kernel
def test_packets_of_a_connection_pass_from_its_filters_on_and_a_signal_takes_the_filters_back(
    path: str, hosts: TwoHosts, connect: Connect
) -> None:
    talk = (
        "import socket, sys\n"
        f"with socket.create_connection(('{FAR}', {PORT})) as connection:\n"
        "    for line in sys.stdin:\n"
        "        connection.sendall(b'ping')\n"
        "        print(connection.recv(4).decode(), connection.getsockname()[1], flush=True)\n"
    )
    with (
        daemon(path) as running,
        Client(path) as client,
        hosts.near.start(
            sys.executable, "-c", talk, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as talking,
    ):
        assert talking.stdin is not None and talking.stdout is not None
        wait_until(client, lambda count: count == 7)
        while int(client.status()["packets"]) < 3:  # those of the handshake
            client.read(0.01)
        before = client.status()
        for _ in range(5):
            talking.stdin.write("\n")
            talking.stdin.flush()
            word, port = talking.stdout.readline().split()
            assert word == "ping"
        while int(client.status()["allowed"]) < int(before["allowed"]) + 10:
            client.read(0.01)
        assert client.status()["unmatched"] == before["unmatched"]
        made = [client.syntax.show_filter(each) for each in client.filters()][:4]
        there, back = (
            f"src {NEAR} dst {FAR} sport {port} dport {PORT}",
            f"src {FAR} dst {NEAR} sport {PORT} dport {port}",
        )
        assert made == [
            f"1000 allow_event {there} proto tcp tcp fin-rst",
            f"1001 allow {there} proto tcp",
            f"1002 allow_event {back} proto tcp tcp fin-rst",
            f"1003 allow {back} proto tcp",
        ]
        running.terminate()
        assert running.wait() == 0
        assert len(client.filters()) == 3


@pytest.mark.needs_kernel
def test_beyond_its_limit_the_daemon_refuses_and_an_idle_connection_is_forgotten(
    path: str, connect: Connect, hosts: TwoHosts, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    idle = (
        "import socket, time\n"
        f"kept = [socket.create_connection(('{FAR}', {PORT})) for _ in range(2)]\n"
        "time.sleep(600)"
    )
    words = ("--most", 1, "--idle", 0.5, "--count", 1, "--report", report)
    with daemon(path, *words) as running, Client(path) as client:
        with hosts.near.start(sys.executable, "-c", idle) as idling:
            wait_until(client, lambda count: count == 7)
            assert running.wait() == 0
            assert len(client.filters()) == 3
            idling.kill()
        counted = json.loads(report.read_text())
        assert (counted["begun"], counted["refused"], counted["forgotten"]) == (1, 1, 1)


@pytest.mark.needs_kernel
def test_a_signal_in_the_midst_of_a_removal_leaves_no_filter_and_is_no_trouble(
    path: str, connect: Connect
) -> None:
    """Another client has removed a filter of the daemon's: as after a command that was interrupted."""
    with daemon(path, "--linger", 600) as running, Client(path) as client:
        connect("--count", 2, "--together", 2)
        wait_until(client, lambda count: count == 11)
        client.delete(1000, 1005)
        running.terminate()
        assert running.wait() == 0
        assert len(client.filters()) == 3


@pytest.mark.needs_kernel
def test_a_daemon_removes_what_one_that_was_killed_has_left(path: str, connect: Connect) -> None:
    with Client(path) as client:
        with daemon(path, "--linger", 600) as killed:
            connect("--count", 3, "--together", 3)
            wait_until(client, lambda count: count == 15)
            killed.kill()
        assert len(client.filters()) == 15
        with daemon(path, "--linger", 0, "--count", 1) as running:
            assert len(client.filters()) == 3
            connect("--count", 1)
            assert running.wait() == 0
        assert len(client.filters()) == 3


def test_without_a_server_the_daemon_says_where_there_should_be_one(tmp_path: Path) -> None:
    path = tmp_path / "none"
    command = [sys.executable, str(SCRIPT), "--socket", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(
        f"connection_filters: {path}: No such file or directory; hitables filters serve"
    )
    with pytest.raises(FileError):
        Client(path)

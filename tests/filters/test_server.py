"""The server on its socket: who may connect, many clients, events to all of them, and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.two_hosts import Host
from hitables.engine import Action, Filter
from hitables.errors import DatabaseError, FileError, HitablesError
from hitables.filters import Client

HITABLES = Path(sys.executable).parent / "hitables"
FILTERS = "10 allow dst 192.0.2.0/24 proto tcp dport 80\n1000 add_event proto tcp tcp syn\n"
SYN = (1, 2, 3, 443, 6, 1)
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "office.filters").write_text(FILTERS)
    return tmp_path / "socket"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """A function that starts a server, which listens when it returns."""
    started: list[subprocess.Popen[str]] = []

    def server(*words: object) -> subprocess.Popen[str]:
        command = [HITABLES, "filters", "serve", "--socket", path, *words, path.parent / "office.filters"]
        each = subprocess.Popen(
            ["env", "--default-signal=INT", *map(str, command)], stderr=subprocess.PIPE, text=True
        )
        started.append(each)
        assert each.stderr is not None
        assert each.stderr.readline() == f"listening on {path}\n"
        return each

    yield server
    for each in started:
        each.kill()
        each.wait()
        assert each.stderr is not None
        each.stderr.close()


def raw(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(str(path))
    return connection


def answers(path: Path, text: str) -> list[str]:
    """The lines that the server writes for *text*, until it closes."""
    with raw(path) as connection:
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile() as file:
            return file.read().splitlines()


def test_filters_go_in_and_out_and_packets_meet_them(start: Start, path: Path) -> None:
    start()
    with Client(path) as client:
        web, syn = client.filters()
        assert (web.priority, web.action, syn.priority, syn.action) == (
            10,
            Action.ALLOW,
            1000,
            Action.ADD_EVENT,
        )
        assert client.classify((1, 0xC0000207, 3, 80, 6, 0)) == (True, 10)
        assert client.classify(SYN) == (False, 1000)
        assert client.classify((1, 2, 3, 443, 17, 0)) == (False, None)
        added = [Filter(n, syn.ranges, Action.ALLOW) for n in range(100, 1400)]
        added = [each for each in added if each.priority != 1000]
        client.insert(*added)
        assert client.classify(SYN) == (True, 100)
        client.change(100, Action.DENY)
        assert client.classify(SYN) == (False, 100)
        client.delete(*(each.priority for each in added))
        assert client.filters() == {web: 1, syn: 1}
        status = client.status()
        assert (status["packets"], status["allowed"], status["denied"], status["unmatched"]) == (
            "5",
            "2",
            "2",
            "1",
        )
        assert (status["filters"], status["events"], status["algorithm"]) == ("2", "1", "tss")
        with pytest.raises(DatabaseError, match="column 8: a filter of priority 10 is there already"):
            client.insert(web)
        with pytest.raises(DatabaseError, match="column 8: no filter of priority 11 is there"):
            client.delete(11)


def test_every_line_is_answered_in_order_and_a_bad_one_with_its_column(start: Start, path: Path) -> None:
    start("--algorithm", "sfl(rfc, delta=5)", "--family", "4")
    text = (
        "insert 7 alow\n\n# a comment\ninsert 7 allow src 10.0.0.1 # and another\nlist all\ndelete\n"
        "classify src 10.0.0.1 dport 9\nclassify dport 1-9\nmonitor\nmonitor\n\xff\nquit\nlist\n"
    )
    assert answers(path, text) == [
        "error column 10: no action is called alow; did you mean allow?",
        "ok",
        "error column 6: 'all' does not belong here",
        "error column 7: the priority is missing",
        "ok pass 7",
        "error column 16: dport of a packet is one value",
        "ok",
        "error column 1: this client has a monitor already",
        "error column 1: no command is called ÿ; there are insert, delete, change, list, classify, monitor, status, quit",
    ]


def test_every_monitor_gets_every_event_in_order_between_its_answers(start: Start, path: Path) -> None:
    start()
    with Client(path) as causing, Client(path) as one, Client(path) as two:
        one.monitor()
        causing.classify(SYN)
        two.monitor()
        lines = [f"classify {causing.syntax.show_header((n, *SYN[1:]))}" for n in range(300)]
        causing.commands(lines)
        assert one.status()["monitors"] == "2"
        for client, missing in ((one, 0), (two, 1)):
            events = client.read(60)
            while len(events) < 301 - missing:
                events += client.read(60)
            assert [event.number for event in events] == list(range(missing, 301))
            assert [event.header[0] for event in events[1 - missing :]] == list(range(300))
            assert {event.priority for event in events} == {1000} and client.lost == 0
            assert client.read(0) == []


def test_a_monitor_that_is_not_read_holds_nobody_up_and_knows_what_it_lost(start: Start, path: Path) -> None:
    start("--room", 50)
    caused = 16_000  # more than the server and the socket hold for a client
    with Client(path) as causing, Client(path) as slow:
        slow.monitor()
        line = f"classify {causing.syntax.show_header(SYN)}"
        causing.commands([line] * caused)
        assert causing.status()["events"] == str(caused)
        events = slow.read(60)
        while events[-1].number < caused - 1:
            events += slow.read(60)
        numbers = [event.number for event in events]
        assert numbers == sorted(set(numbers))
        assert slow.lost > 0 and len(events) + slow.lost == caused
        own = slow.status()
        assert (int(own["delivered"]), int(own["lost"]), own["pending"]) == (len(events), slow.lost, "0")


def test_commands_wait_until_the_answers_before_them_are_read(start: Start, path: Path) -> None:
    start()
    filters = "".join(f"insert {n} allow dport {n}\n" for n in range(2000, 12000))
    assert answers(path, filters) == ["ok"] * 10000
    with Client(path) as other, raw(path) as rude:
        rude.sendall(b"list\n" * 20 + b"insert 20 allow\nquit\ninsert 21 allow\n")
        for _ in range(100):
            other.classify(SYN)
        assert other.status()["filters"] == "10002"  # the lists before the insertion are not read
        with rude.makefile() as file:
            lines = file.read().splitlines()
        assert lines.count("ok 10002") == 20 and lines[-1] == "ok"
        assert other.status()["filters"] == "10003"


def test_a_client_that_leaves_midway_leaves_nothing_behind(start: Start, path: Path) -> None:
    start()
    with Client(path) as client:
        with raw(path) as leaving:
            leaving.sendall(b"monitor\ninsert 20 allow\ninsert 21 allo")
            assert leaving.recv(6) == b"ok\nok\n"
            assert client.status()["monitors"] == "1"
        with raw(path) as rude:
            rude.sendall(b"list\n" * 5000 + b"insert 22 allow")  # and reads no answer
        while client.status()["monitors"] != "0":
            pass
        assert [each.priority for each in client.filters()] == [10, 20, 1000]
    assert answers(path, "x" * ((1 << 20) + 1)) == ["error the line is too long"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_removes_its_socket(
    number: signal.Signals, start: Start, path: Path
) -> None:
    server = start()
    with Client(path) as client:
        client.monitor()
        server.send_signal(number)
        assert server.wait() == 0
        assert server.stderr is not None and server.stderr.read() == "stopped\n"
        assert not path.exists()
        with pytest.raises(FileError, match="the server has gone"):
            client.read()
    with pytest.raises(FileError, match=r"hitables filters serve --socket .* listens there"):
        Client(path)


def test_a_dead_server_s_socket_is_replaced_and_a_living_one_s_is_not(start: Start, path: Path) -> None:
    dead = start()
    dead.kill()
    dead.wait()
    assert path.is_socket()
    start()
    second = subprocess.run(
        [HITABLES, "filters", "serve", "--socket", path], capture_output=True, text=True, check=False
    )
    assert second.returncode == 2
    assert second.stderr == (
        f"hitables: {path}: another program listens on this socket; stop it, or take another --socket\n"
    )
    with Client(path) as client:
        assert len(client.filters()) == 2


def test_a_server_does_not_remove_the_socket_of_another(start: Start, path: Path) -> None:
    first = start()
    path.unlink()
    start()
    first.terminate()
    assert first.wait() == 0
    with Client(path) as client:
        assert len(client.filters()) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(("mode", "may"), [("0600", False), ("0666", True), ("0660", False)])
def test_who_may_write_to_the_socket_may_connect(mode: str, may: bool, path: Path, start: Start) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place = Path(folder) / "socket"
        command = [HITABLES, "filters", "serve", "--socket", place, "--mode", mode, "--group", "nogroup"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None and "listening" in server.stderr.readline()
            status = place.stat()
            assert f"{status.st_mode & 0o777:04o}" == mode and status.st_gid == 65534
            for group, allowed in ((65534, may or mode == "0660"), (1, may)):
                script = (
                    "import os, socket, sys\n"
                    f"os.setgroups([]); os.setgid({group}); os.setuid(65534)\n"
                    f"socket.socket(socket.AF_UNIX).connect({str(place)!r})\n"
                )
                done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.DEVNULL, check=False)
                assert (done.returncode == 0) == allowed
            server.terminate()


@pytest.mark.parametrize(("family", "loopback"), [("4", "127.0.0.1"), ("6", "::1")])
def test_packets_of_an_interface_are_classified_once_each_and_cause_events(
    family: str, loopback: str, tmp_path: Path, needs_kernel: None
) -> None:
    path = tmp_path / "socket"
    (tmp_path / "office.filters").write_text("7 allow_event proto tcp tcp syn\n")
    connect = f"import socket; socket.create_connection(({loopback!r}, 9))"
    host = Host()
    try:
        host.run("ip", "link", "set", "lo", "up")
        words = [HITABLES, "filters", "serve", "--socket", path, "--family", family, "--capture", "lo"]
        with host.start(*words, tmp_path / "office.filters", stderr=subprocess.PIPE) as server:
            assert server.stderr is not None and "listening" in server.stderr.readline()
            with Client(path) as client:
                client.monitor()
                refused = host.start(sys.executable, "-c", connect, stderr=subprocess.DEVNULL)
                assert refused.wait() == 1  # nothing listens there
                (event,) = client.read(60)
                names = client.syntax.show_header(event.header)
                assert names.startswith(f"src {loopback} dst {loopback} sport ")
                assert names.endswith(" dport 9 proto tcp tcp syn")
                while client.status()["packets"] != "2":  # the refusal, to which no filter applies
                    client.read(0.01)
                status = client.status()
                assert (status["allowed"], status["unmatched"], status["missed"]) == ("1", "1", "0")
                host.run("ip", "link", "set", "lo", "down")
                while client.status()["down"] == "0":
                    client.read(0.01)
                host.run("ip", "link", "set", "lo", "up")
                host.start(sys.executable, "-c", connect, stderr=subprocess.DEVNULL).wait()
                assert [each.number for each in client.read(60)] == [1]
            server.terminate()
            assert server.wait() == 0
    finally:
        host.close()


def test_the_far_side_of_a_socket_that_is_no_server_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        import threading

        def hang_up() -> None:
            with listener.accept()[0] as connection:
                connection.recv(100)

        other = threading.Thread(target=hang_up)
        other.start()
        with pytest.raises(HitablesError, match="the server has gone"):
            Client(path)
        other.join()

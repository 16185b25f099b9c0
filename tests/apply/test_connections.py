"""Which connections count as new: those whose first packet came after the first look."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator

import pytest
from support.small_namespace import Namespace

from hitables.apply.connections import NewConnections
from hitables.kernel.namespace import set_sysctl

pytestmark = pytest.mark.needs_kernel

SERVER = ("127.0.0.1", 2222)
COOKIES = "ipv4.tcp_syncookies"


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as namespace:
        namespace.run(["ip", "link", "set", "lo", "up"])
        yield namespace


def connect() -> tuple[socket.socket, socket.socket]:
    """A new connection: its ends at the client and at the server."""
    with socket.create_server(SERVER) as listener:
        client = socket.create_connection(SERVER)
        return client, listener.accept()[0]


def come_and_go(closes: Callable[[tuple[socket.socket, socket.socket]], object]) -> tuple[bool, bool]:
    """What two looks answer before and after a connection that *closes* closes."""
    old = connect()
    new = NewConnections("127.0.0.1", SERVER[1])
    looks = new.look(), new.look()
    ends = connect()
    closes(ends)
    seen = new.look()
    for end in (*old, *ends):
        end.close()
    return any(looks), seen


def leave(ends: tuple[socket.socket, socket.socket]) -> None:
    """The connection stays."""


def close_client(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()


def close_server_first(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].close()
    ends[0].close()


@pytest.mark.parametrize("closes", [leave, close_client, close_server_first])
def test_a_connection_counts_also_if_it_was_closed_but_not_one_of_before(
    namespace: Namespace, closes: Callable[[tuple[socket.socket, socket.socket]], object]
) -> None:
    assert namespace.call(come_and_go, closes) == (False, True)


def answer_late() -> tuple[bool, bool]:
    """What is seen of a handshake that began before the first look, and of a connection behind it."""
    hold = ["INPUT", "-p", "tcp", "--sport", str(SERVER[1]), "-j", "DROP"]
    subprocess.run(["iptables-nft", "-A", *hold], check=True)
    with socket.create_server(SERVER) as listener, socket.socket() as client:
        client.setblocking(False)
        client.connect_ex(SERVER)
        new = NewConnections("127.0.0.1", SERVER[1])
        new.look()
        subprocess.run(["iptables-nft", "-D", *hold], check=True)
        late = listener.accept()[0]
        seen = new.look()
        with socket.create_connection(SERVER), listener.accept()[0]:
            late.close()
            return seen, new.look()


def test_a_handshake_that_began_before_does_not_count_when_it_is_completed(namespace: Namespace) -> None:
    assert namespace.call(answer_late) == (False, True)


def use_cookies() -> tuple[bool, bool]:
    """What is seen of a connection by a SYN cookie, and of one without."""
    new = NewConnections("127.0.0.1", SERVER[1])
    new.look()
    set_sysctl(COOKIES, "2")
    ends = connect()
    set_sysctl(COOKIES, "1")
    seen = new.look()
    ends += connect()
    looks = seen, new.look()
    for end in ends:
        end.close()
    return looks


def test_a_connection_by_a_syn_cookie_does_not_count(namespace: Namespace) -> None:
    """Its first packet may have come at any time."""
    assert namespace.call(use_cookies) == (False, True)

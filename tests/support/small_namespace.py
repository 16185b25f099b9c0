"""Namespaces for tests, whose helpers are forked from a process that holds no tests.

A worker of pytest has 200 to 450 MB.  A fork copies its page tables, in 10 to 25 ms, and so does each fork of the
fork, such as that of a command; what they write to is copied page by page.  The process here is forked before the
tests are collected, and has imported what commands import: its forks take a fifth of that.

What a test has changed in the modules of its own process does not hold in such a namespace; the environment and
the working folder do.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import socket
from typing import NoReturn

import pytest
from support.forked import NEEDED

from hitables.ipc import close_all_but
from hitables.kernel import namespace

NEEDED_IN_NAMESPACES = (
    *NEEDED, "hitables.apply.run", "hitables.apply.status", "hitables.verify.reachability", "support.firewall",
)  # fmt: skip
MOST = 1 << 20  # bytes of a message

servers: list[tuple[socket.socket, int]] = []


class Namespace(namespace.Namespace):
    """As that of hitables; functions of the test that opens it can be called in it."""

    def _begin_helper(self, connection: socket.socket) -> None:
        socket.send_fds(_server(), [pickle.dumps((dict(os.environ), os.getcwd()))], [connection.fileno()])
        answer = pickle.loads(_server().recv(MOST))
        if isinstance(answer, BaseException):
            raise answer
        self._pid = answer

    def _wait_for_helper(self) -> None:
        _server().send(pickle.dumps(self._pid))
        _server().recv(100)


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the namespaces be of this kind that hitables itself makes, in this process, until the test ends."""
    for name in ("_begin_helper", "_wait_for_helper"):
        monkeypatch.setattr(namespace.Namespace, name, getattr(Namespace, name))


def begin() -> None:
    """Fork the process that forks the helpers; once, before tests are collected."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        _serve(theirs)
    theirs.close()
    servers.append((ours, pid))


def end() -> None:
    """End it, when all namespaces are closed."""
    while servers:
        server, pid = servers.pop()
        server.close()
        os.waitpid(pid, 0)


def _server() -> socket.socket:
    return servers[0][0]


def _serve(connection: socket.socket) -> NoReturn:
    """Fork helpers, and wait for those that are named, until the worker has ended."""
    try:
        close_all_but(connection)
        while True:
            data, files, _, _ = socket.recv_fds(connection, MOST, 1)
            if not data:
                break
            asked = pickle.loads(data)
            if isinstance(asked, int):
                os.waitpid(asked, 0)
                connection.send(b"ended")
            else:
                connection.send(_answer(*asked, socket.socket(fileno=files[0])))
    finally:
        os._exit(0)


def _answer(environment: dict[str, str], folder: str, connection: socket.socket) -> bytes:
    """Pickled: the number of a new helper, or why there is none, which concerns only the test that asks."""
    try:
        with connection:
            return pickle.dumps(_helper(environment, folder, connection))
    except BaseException as error:  # a module that skips its tests raises no Exception
        text = f"no helper for a test: {type(error).__name__}: {error}"
        return pickle.dumps(RuntimeError(text))


def _helper(environment: dict[str, str], folder: str, connection: socket.socket) -> int:
    """The number of a new helper, which need not import the module of the test that asks."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    test = environment["PYTEST_CURRENT_TEST"].split("::")[0].removesuffix(".py").replace("/", ".")
    for name in (*NEEDED_IN_NAMESPACES, test):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    return namespace.fork_helper(connection)

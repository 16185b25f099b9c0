"""Scratch network namespaces.

A `Namespace` forks a helper process that enters a new network namespace, and there runs commands and calls
functions on request.  Nothing that the helper does affects the namespace of its parent.  When the helper
ends, the kernel removes its namespace and everything in it.  unshare.py says which rights that takes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, Self, TypeVar

from ..errors import LiveError
from ..interrupts import deferred
from ..ipc import close_all_but, receive, send
from .unshare import enter_network_namespace

P = ParamSpec("P")
T = TypeVar("T")

LAST = 5  # lines of a tool's output in an error message


class CommandFailed(LiveError):
    """A command that has run, and whose exit status is not 0."""


class Namespace:
    """A new network namespace, for the duration of a `with` block.

    *settings* are sysctls below net., written when it is open: {"ipv4.ip_forward": "1"}.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._pid = 0
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._begin_helper(theirs)
        except BaseException:
            ours.close()
            raise
        self._socket = ours
        try:
            self._receive()
            for name, value in self._settings.items():
                self.call(set_sysctl, name, value)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the helper, and with it the namespace.  May be called twice."""
        if self._socket is None:
            return
        self._socket.close()
        self._socket = None
        self._wait_for_helper()

    def _begin_helper(self, connection: socket.socket) -> None:
        self._pid = fork_helper(connection)

    def _wait_for_helper(self) -> None:
        os.waitpid(self._pid, 0)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *function*, which must be importable by its name, inside; its result or exception.

        All calls run in the one helper process, one after the other, so state that a function keeps in its
        module (sockets, devices) is available to the next.
        """
        self.begin(function, *args, **kwargs)
        return self.finish()  # type: ignore[no-any-return]

    def begin(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        """As `call`, without waiting: `finish` returns the result, and must precede the next call."""
        if self._socket is None:
            raise LiveError("the namespace is not open")
        try:
            send(self._socket, (function, args, kwargs))
        except ConnectionError:
            raise self._died() from None

    def finish(self) -> Any:
        return self._receive()

    def run(self, command: Sequence[str], text: str = "", env: Mapping[str, str] | None = None) -> str:
        """Run *command* inside with *text* as its input; its output.

        An exit status other than 0 raises CommandFailed with the command's message.
        """
        return self.call(run, tuple(command), text, dict(env or {}))

    def _receive(self) -> Any:
        assert self._socket is not None
        try:
            result, error = receive(self._socket)
        except (EOFError, ConnectionError):
            raise self._died() from None
        if error is not None:
            raise error
        return result

    def _died(self) -> LiveError:
        self.close()
        return LiveError("the helper in the scratch namespace has died (out of memory?)")


def run(command: Sequence[str], text: str = "", env: Mapping[str, str] | None = None) -> str:
    """Run *command* in the namespace of the caller; its output.  See `Namespace.run`."""
    try:
        process = subprocess.run(
            list(command),
            input=text.encode("utf-8", "surrogateescape"),
            capture_output=True,
            env={**os.environ, **(env or {})},
            check=False,
            start_new_session=True,  # Ctrl-C reaches us alone, and we end it where that is safe
        )
    except OSError as error:
        raise start_error(command[0], error) from error
    if process.returncode:
        complaint = process.stderr.decode("utf-8", "replace").strip()
        if not complaint:  # some tools print errors to standard output, after other output
            complaint = "\n".join(process.stdout.decode("utf-8", "replace").strip().splitlines()[-LAST:])
        raise CommandFailed(
            f"{shlex.join(command)}: exit status {process.returncode}: {complaint or 'no message'}"
        )
    return process.stdout.decode("utf-8", "surrogateescape")


def start_error(command: str, error: OSError) -> LiveError:
    """What to raise if *command* did not start because of *error*."""
    if isinstance(error, FileNotFoundError):
        return LiveError(f"{command}: no such command; install it, or put it on the PATH")
    return LiveError(f"{command}: {error.strerror}")


def set_sysctl(name: str, value: str) -> None:
    """Write *value* to net.*name* of the caller's namespace."""
    path = "/proc/sys/net/" + name.replace(".", "/")
    try:
        with open(path, "w") as file:
            file.write(value)
    except OSError as error:
        raise LiveError(f"{path}: {error.strerror}") from error


def fork_helper(connection: socket.socket) -> int:
    """Fork the process that serves *connection* in a new namespace; its number.  LiveError if that fails."""
    with deferred() as hear:
        try:
            pid = os.fork()
        except OSError as error:
            raise LiveError(f"cannot open a network namespace: {error.strerror}") from error
        if not pid:
            _serve(connection, hear)
    return pid


def _serve(connection: socket.socket, hear: Callable[[], None]) -> NoReturn:
    """The helper: enter a namespace, then execute the requests of *connection* until it closes.

    *hear* makes it receive interrupts as its parent does.
    """
    try:
        hear()
        close_all_but(connection)
        try:
            enter_network_namespace()
        except OSError as error:
            said = f"cannot open a network namespace: {error.strerror}{_hint(error)}"
            send(connection, (None, LiveError(said)))
        else:
            _execute_requests(connection)
    finally:
        os._exit(0)


def _execute_requests(connection: socket.socket) -> None:
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hitables-"))
        except OSError as error:  # none takes files, or the disk is full
            where = f"{error.filename}: " if error.filename else ""
            send(connection, (None, LiveError(f"{where}{error.strerror}; TMPDIR may name another folder")))
            return
        # The lock of iptables-legacy is global to the machine by default.
        os.environ["XTABLES_LOCKFILE"] = os.path.join(folder, "xtables.lock")
        stack.enter_context(contextlib.suppress(EOFError, ConnectionError))  # the caller has closed, or died
        send(connection, (None, None))
        while True:
            function, args, kwargs = receive(connection)
            answer: tuple[Any, Exception | None]
            try:
                answer = (function(*args, **kwargs), None)
            except Exception as error:  # every exception is for the caller
                answer = (None, error)
            try:
                send(connection, answer)
            except (pickle.PicklingError, TypeError, AttributeError):
                send(connection, (None, LiveError(f"{function.__name__}: {answer[1] or answer[0]!r}")))


def _hint(error: OSError) -> str:
    """What keeps a process from opening a namespace."""
    if error.errno == errno.ENOSPC:
        return "; the sysctls user.max_user_namespaces and user.max_net_namespaces bound them"
    if isinstance(error, PermissionError):
        return (
            "; this takes the capability CAP_SYS_ADMIN, or leave to create user namespaces, which profiles "
            "of seccomp and AppArmor deny to containers"
        )
    return ""

"""Whether another program has changed the kernel's rules since they were compared with the state.

Reading the rules takes seconds for long lists, so they are read again only if they may have changed.
nf_tables counts the commits in a namespace; more than our own commits mean a change.  A legacy kernel
has no such count, and its rules are read again after some seconds.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import time

from .kernel import Kernel
from .planner import Plan
from .store import Store

# Seconds after which a kernel without a count of commits is read again.
READ_AGAIN = 5.0

_NETLINK_NETFILTER, _NFTA_GEN_ID = 12, 1


class KernelWatch:
    """The comparison of a kernel with the state of a store.

    expected  the count of commits if no other program commits; None if there is no count
    """

    def __init__(self, kernel: Kernel, expected: int | None = None) -> None:
        """*expected*: the `generation` before the kernel was compared; by default, the present one."""
        self.kernel = kernel
        self.commits = CommitCount()
        self.expected = self.commits.read() if expected is None else expected
        self.read_at = time.monotonic()

    def close(self) -> None:
        self.commits.close()

    def check(self, store: Store) -> None:
        """Drift if the kernel does not hold the state; it is read only if it may have changed."""
        kernel, now, in_doubt = self.kernel, time.monotonic(), self.kernel.doubt is not None
        kernel.resolve(store)
        if kernel.settings.backend == "nft":
            count = self.commits.read()
            is_changed = count is None or count != self.expected
        else:
            count, is_changed = None, now - self.read_at > READ_AGAIN
        if is_changed or in_doubt:
            kernel.check(store.state)
            self.expected, self.read_at = count, now

    def committed(self, plan: Plan) -> None:
        """Expect the commits of *plan*, one for each table."""
        if self.expected is not None:
            self.expected += len({edit.table for edit in plan.edits})


class CommitCount:
    """The number of commits to nf_tables in the namespace of the thread that reads it first.

    The socket stays open: the kernel closes one of netfilter only when all commits are cleaned up, which
    takes ten milliseconds or more behind each of them.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._numbers = itertools.cycle(range(1, 1 << 32))

    def read(self) -> int | None:
        """The number; None if the kernel does not report it."""
        try:
            self._socket = self._socket or _opened()
            number = next(self._numbers)
            # nlmsghdr, nfgenmsg: NFT_MSG_GETGEN of the subsystem nf_tables, NLM_F_REQUEST
            self._socket.send(struct.pack("=IHHIIBBH", 20, 10 << 8 | 16, 1, number, 0, 0, 0, 0))
            message = self._socket.recv(4096)
            while struct.unpack_from("=I", message, 8)[0] != number:  # late, of a question before
                message = self._socket.recv(4096)
        except (OSError, struct.error):
            self.close()
            return None
        return _count_in(message)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def generation() -> int | None:
    """The number of commits to nf_tables in this namespace; None if the kernel does not report it."""
    with contextlib.closing(CommitCount()) as commits:
        return commits.read()


def _opened() -> socket.socket:
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    netlink.settimeout(1)
    return netlink


def _count_in(message: bytes) -> int | None:
    at = 20
    while at + 8 <= len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if kind == _NFTA_GEN_ID:
            return int(struct.unpack_from(">I", message, at + 4)[0])
        at += max(4, size + 3 & ~3)
    return None

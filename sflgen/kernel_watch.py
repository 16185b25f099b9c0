"""Whether another program has changed the kernel's rules since they were compared with the state.

Reading the rules takes seconds for long lists, so they are read again only if they may have changed.
nf_tables counts the commits in a namespace; more than our own commits mean a change.  A legacy kernel
has no such count, and its rules are read again after some seconds.
"""

from __future__ import annotations

import contextlib
import time

from hitables.errors import LiveError
from hitables.kernel.netlink import Netfilter

from .kernel import Kernel
from .planner import Plan
from .store import Store

# Seconds after which a kernel without a count of commits is read again.
READ_AGAIN = 5.0


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
        self._netfilter: Netfilter | None = None

    def read(self) -> int | None:
        """The number; None if the kernel does not report it."""
        try:
            self._netfilter = self._netfilter or Netfilter()
            return self._netfilter.generation()
        except (OSError, LiveError):
            self.close()
            return None

    def close(self) -> None:
        if self._netfilter is not None:
            self._netfilter.close()
            self._netfilter = None


def generation() -> int | None:
    """The number of commits to nf_tables in this namespace; None if the kernel does not report it."""
    with contextlib.closing(CommitCount()) as commits:
        return commits.read()

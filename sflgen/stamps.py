"""Stamps: what tells that the rules in the kernel may have changed, read in a fraction of the time of the
rules.

nf_tables counts the commits in a namespace.  A legacy kernel has no such count: the stamp is the tables
themselves, as the kernel returns them, without counters.
"""

from __future__ import annotations

from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.contents_legacy import images
from hitables.kernel.netlink import Netfilter

Stamp = int | dict[str, bytes]


class Stamps:
    """The stamps of the rules of one family and backend, in the namespace of the thread that reads first."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.commits = CommitCount()

    def read(self, backend: Backend) -> Stamp | None:
        """The present stamp; None if the kernel does not report it."""
        return self.commits.read() if backend is Backend.NFT else images(self.family)

    def close(self) -> None:
        self.commits.close()


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

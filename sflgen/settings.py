"""The settings of a state, and the ways in which an update can reach the kernel.

Settings are chosen once, when a state begins, and are stored with it (store.py).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from hitables.compiler.compile import Options
from hitables.errors import HitablesError
from hitables.ir.choices import BackendChoice, Malformed, backend_choice, choose


class Strategy(enum.Enum):
    """How an update reaches the kernel."""

    EDIT = "edit"  # rules are changed in place: in a list, or as copies in a tree
    OVERLAY = "overlay"  # an entry in front of the tree
    GRAFT = "graft"  # entries in the leaves that the update concerns
    CANCEL = "cancel"  # the entry of a pending insertion is removed
    FOLD = "fold"  # the tree is grown anew


@dataclass(frozen=True, slots=True)
class Settings:
    """How a state is compiled and patched.

    backend    the iptables that loads the patches; "any": equal and loadable in both
    malformed  whether trees may drop more malformed packets than the list
    delta      additional rules that entries may make an average packet read before a tree is grown anew
    max_updates  updates of a tree after which the next one grows it anew: the delta of "The Small, the
               Fast and the Lazy", section IV-D; None: updates are not counted
    foreign    patterns of chains that other programs manage: never changed, never compared
    prefix     the prefix of the names of generated chains
    """

    backend: BackendChoice = "any"
    malformed: Malformed = Malformed.STRICTER
    delta: int = 32
    min_length: int = 8
    max_expansion: float = 4.0
    foreign: tuple[str, ...] = ()
    prefix: str = "sf"
    max_updates: int | None = None

    def __post_init__(self) -> None:
        # The enums are strings, and callers may write the words.
        object.__setattr__(self, "backend", backend_choice(self.backend))
        object.__setattr__(self, "malformed", choose(Malformed, self.malformed))
        if self.delta < 0:
            raise HitablesError("delta must be at least 0")
        if self.max_updates is not None and self.max_updates < 0:
            raise HitablesError("max_updates must be at least 0")

    def options(self, table: str, chains: Iterable[str]) -> Options:
        """The options of the compiler that grows trees for *chains*."""
        chains = list(chains)
        return Options(
            as_written=True,  # counters are carried from copy to copy of the same text
            backend=self.backend,
            malformed=self.malformed,
            min_length=self.min_length,
            max_expansion=self.max_expansion,
            tables=frozenset({table}),
            chains=frozenset(chains),
            careful=frozenset((table, chain) for chain in chains),  # a tree that is wrong stops updates
        )

    def allows(self, updates: int) -> bool:
        """Whether a tree may have had so many updates since it was grown."""
        return self.max_updates is None or updates <= self.max_updates

    def is_foreign(self, chain: str) -> bool:
        """Whether another program manages the chain."""
        from fnmatch import fnmatchcase

        return any(fnmatchcase(chain, pattern) for pattern in self.foreign)

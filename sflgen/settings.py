"""The settings of a state, and the ways in which an update can reach the kernel.

Settings are chosen once, when a state begins, and are stored with it (store.py).
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from hitables.compiler.compile import Options
from hitables.errors import InvalidOption
from hitables.ir.choices import BackendChoice, Malformed, backend_choice, choose
from hitables.ir.foreign import patterns_of

# An iptables chain has a name of at most 28 letters; the number of a generated chain takes some of them.
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,15}")


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

    backend        the iptables that loads the patches; "any": equal and loadable in both
    malformed      whether trees may drop more malformed packets than the list
    delta          additional rules that entries may make an average packet read before a tree is grown anew
    min_length     a chain of fewer rules stays as it is
    max_expansion  rules that are loaded at most per rule of a chain when its tree is grown; a rule of several
                   ports counts as one for each two of them
    foreign        patterns of chains that other programs manage, or names of such programs as --leave takes
                   them: never changed, never compared
    prefix         the prefix of the names of generated chains: a letter, and up to 15 letters, digits and _
    max_updates    updates of a tree after which the next one grows it anew: the delta of "The Small, the
                   Fast and the Lazy", section IV-D; None: updates are not counted

    Raises InvalidOption for a value that is none of these.
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
        foreign: object = self.foreign
        if isinstance(foreign, str):
            foreign = (foreign,)
        if not isinstance(foreign, Iterable):
            raise InvalidOption(f"foreign: patterns of chains, not {foreign!r}; () means none")
        object.__setattr__(self, "foreign", patterns_of(foreign))
        for name, least in (("delta", 0), ("min_length", 1), ("max_updates", 0)):
            value = getattr(self, name)
            if type(value) is not int and not (value is None and name == "max_updates"):
                raise InvalidOption(f"{name} is a whole number, not {value!r}")
            if value is not None and value < least:
                raise InvalidOption(f"{name} must be at least {least}")
        most = self.max_expansion
        if type(most) not in (int, float) or not 1 <= most <= sys.float_info.max:
            raise InvalidOption(f"max_expansion is a number from 1, not {most!r}")
        if not isinstance(self.prefix, str) or not _PREFIX.fullmatch(self.prefix):
            raise InvalidOption(
                f"prefix {self.prefix!r}: a letter, and up to 15 letters, digits and _ behind it"
            )

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

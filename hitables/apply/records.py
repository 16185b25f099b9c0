"""Rule sets that apply has loaded, and what became of each; store.py keeps them in the state directory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir.fields import Family
from . import texts
from .boot_clock import since_boot
from .texts import Tables

# What became of a record: it was found in the kernel, or loaded by an apply.
FOUND, WAITING, CONFIRMED, ROLLED_BACK, ENDED = "found", "waiting", "confirmed", "rolled back", "ended"


@dataclass(frozen=True, slots=True)
class Half:
    """The rules of one family in a record.

    tables     by name, as loaded, without the chains of others; rules have keys (counts.py)
    absent     tables that did not exist
    generated  by table: the chains of trees
    source     the text that this was made of; *file*: its name
    """

    tables: Tables
    generated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = ""
    file: str = ""
    absent: tuple[str, ...] = ()

    def with_absent(self) -> Tables:
        """The tables, and those that did not exist as the kernel creates them."""
        return {**self.tables, **{table: texts.empty(table) for table in self.absent}}


@dataclass(frozen=True, slots=True)
class Record:
    """One rule set of both families; *number* from 1.

    backend  the one that it was loaded with
    leave    the patterns of foreign chains
    before   the record of what it replaced; 0: none
    options  what it was compiled with, and by which version
    beside   tables that stayed in force: by family and table, the record that has it (in_force.py)
    """

    number: int
    when: float
    backend: str
    leave: tuple[str, ...]
    halves: Mapping[Family, Half]
    before: int = 0
    options: str = ""
    beside: Mapping[Family, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A rule set that is loaded, or about to be, and not confirmed.

    number, before  its record, and the record that a rollback loads
    until           when it is rolled back, in seconds since 1970, by the clock of the day as it was when the
                    rules were loaded; 0 while it is being loaded
    boot            the boot of the machine in which it was loaded
    guard           the process that rolls it back
    deadline        when it is rolled back, in seconds since that boot; 0: an earlier version wrote the state
    namespace       the network namespace of its rules (net_namespace.py); "": it is not known
    """

    number: int
    before: int
    until: float
    boot: str
    guard: int = 0
    deadline: float = 0.0
    namespace: str = ""

    @property
    def seconds_left(self) -> float:
        """The seconds until it is rolled back; below 0 if it should have been."""
        return self.deadline - since_boot() if self.deadline else self.until - time.time()


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The rule set *number*, which its guard took back at second *at* of boot *boot*."""

    number: int
    boot: str
    at: float


@dataclass(frozen=True, slots=True)
class ApplyState:
    """What state.json holds: which records there are, and what became of them.

    last        the number of the newest record; 0: there is none
    confirmed   the number of the record that is confirmed; 0: none is
    waiting     the rule set that waits for its confirmation
    status      by number of a record: FOUND, WAITING, CONFIRMED, ROLLED_BACK or ENDED
    taken_back  what a guard took back, if nothing was loaded since
    """

    last: int = 0
    confirmed: int = 0
    waiting: Waiting | None = None
    status: Mapping[int, str] = field(default_factory=dict)
    taken_back: TakenBack | None = None

    @property
    def last_applied(self) -> int:
        """The last record that an apply has loaded; 0: none."""
        return max((number for number, status in self.status.items() if status != FOUND), default=0)


Copy = dict[str, str]  # texts of files of a state directory, by their names in it

"""What an apply is asked for, what it answers, and what it calls on its way."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..compiler.options import Options
from ..ir.fields import Family
from ..ir.packet import Backend
from .in_force import InForce
from .recording import Ready


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """What to apply, and how.

    files       by family: name and text of a rule set
    backend     None: that of the rule set in force, or else of the tool called iptables (both_backends.py)
    leave       patterns and presets of foreign chains
    options     of the compiler; None: load the files as they are
    confirm     seconds after which an unconfirmed rule set is rolled back; 0: it is confirmed at once
    check       a command of the shell whose success confirms the rule set, and whose failure takes it back
    connection  whether a new connection from the client of this SSH session confirms it
    must        packets that the new rules must let pass
    force       load rules that would lock out this session, or packets of *must*
    """

    files: Mapping[Family, tuple[str, str]]
    folder: str
    backend: Backend | None = None
    leave: tuple[str, ...] = ()
    options: Options | None = field(default_factory=Options)
    timeout: float | None = None
    confirm: float = 60.0
    check: str = ""
    connection: bool = False
    must: tuple[str, ...] = ()
    force: bool = False
    dry_run: bool = False


class ApplyResult(enum.Enum):
    """What an apply did, or would do with dry_run.

    RECORDED: the kernel held the rules already, and the state did not.
    """

    NOTHING = "nothing to do"
    WOULD_CHANGE = "would change"
    WOULD_RECORD = "would record"
    RECORDED = "recorded"
    WAITING = "waiting"
    CONFIRMED = "confirmed"

    @property
    def would_act(self) -> bool:
        """Whether an apply without dry_run would do something."""
        return self in (ApplyResult.WOULD_CHANGE, ApplyResult.WOULD_RECORD)


@dataclass(slots=True)
class Reporter:
    """What an apply calls to report how it goes.

    stage         is called with the name of each stage as it begins
    tell          is called with each message for the user
    show_changes  is called with the families and what is confirmed before anything is loaded
    """

    stage: Callable[[str], None] = lambda stage: None
    tell: Callable[[str], None] = lambda message: None
    show_changes: Callable[[Sequence[Ready], InForce | None], None] = lambda ready, loaded: None

"""When a session folds in the background, and which plan of a fold is loaded next.

A fold begins when entries cost more than `delta`, or with the first update beyond `max_updates`, and none is
under way.  On nft its trees are staged: their pieces are loaded between updates, then one plan leads packets
to them, then the old trees are removed in pieces.  Without a kernel, and on legacy, which loads a whole table
at each change, a fold is one plan.
"""

from __future__ import annotations

import contextlib
import select
from collections import deque
from collections.abc import Callable

from hitables.errors import HitablesError

from .background import BackgroundFold, Piece, Stale, piece_plan, unreachable_pieces
from .planner import Plan, due
from .state import State


class FoldScheduler:
    """Decides when a session folds, and which plan of the fold comes next.

    running       the fold under way, whose socket is registered in *events*
    must_remove   unreachable chains may be loaded: of old trees, or of new ones that a crash interrupted
    pieces        that remove them, to be loaded in order
    retry_from    after a failure: the version from which folds are tried again
    """

    def __init__(
        self, proving: bool, staged: bool, events: select.epoll, report: Callable[[str], None]
    ) -> None:
        self.proving, self.staged, self.events, self.report = proving, staged, events, report
        self.running: BackgroundFold | None = None
        self.must_remove = staged
        self.pieces: deque[Piece] = deque()
        self.retry_from = 0

    @property
    def is_busy(self) -> bool:
        """Whether a fold is under way, or unreachable chains are loaded."""
        return self.running is not None or bool(self.pieces) or self.must_remove

    def note(self, plan: Plan, before_fork: Callable[[], None]) -> None:
        """Take a new plan into account: begin a fold before it if one is due, or else behind it.

        *before_fork* must stop all other threads.
        """
        if not self.is_busy and plan.after.version >= self.retry_from:
            start, chains = plan.before, due(plan.before)
            if not chains:  # an update beyond `max_updates` is part of the fold that it causes
                start, chains = plan.after, plan.after.outnumbered()
            if chains:
                before_fork()
                try:
                    self.running = BackgroundFold(start, chains, self.proving, self.staged)
                except OSError as error:  # too many processes, or files
                    self.fail(plan.after, str(error.strerror))
                    return
                self.events.register(self.running.socket, select.EPOLLIN)
        if self.running is not None and self.running.state is not plan.after:
            self.running.note(plan)

    def next_piece(self, state: State) -> Plan | None:
        """The next piece to load or remove after *state*, if there is one."""
        if self.must_remove and not self.pieces:
            self.pieces += unreachable_pieces(state)
            self.must_remove = False
        pieces = self.pieces or (self.running.pieces if self.running is not None else self.pieces)
        return piece_plan(state, pieces.popleft()) if pieces else None

    def new_trees(self, state: State) -> Plan | None:
        """The plan that leads from *state* to the new trees, once they are grown."""
        if self.running is None or not self.running.is_done():
            return None
        try:
            plan = self.running.plan(state, self.proving)
            return plan if plan.edits else None
        except Stale:
            return None
        except HitablesError as error:
            self.fail(state, str(error))
            return None
        finally:
            self.cancel()

    def fail(self, state: State, reason: str) -> None:
        """Report a failure; a fold is tried again after as many updates as make one due."""
        self.report(f"fold: {reason}")
        most = state.settings.max_updates
        self.retry_from = state.version + (
            state.settings.delta if most is None else min(state.settings.delta, most + 1)
        )

    def cancel(self) -> None:
        """Stop the fold under way; what was loaded of it is removed later."""
        if self.running is not None:
            self.unregister()
            self.running.stop()
            self.running = None
            self.remove_later()

    def remove_later(self) -> None:
        """Compute anew, later, which chains are unreachable."""
        self.pieces.clear()
        self.must_remove = self.staged

    def unregister_if_done(self) -> None:
        """A process that has ended leaves its socket readable for ever."""
        if self.running is not None and self.running.is_done():
            self.unregister()

    def unregister(self) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            if self.running is not None:
                self.events.unregister(self.running.socket)

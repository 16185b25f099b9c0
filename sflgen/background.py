"""Folds in the background: a process of its own grows trees while the session takes updates.

The process starts from the state of that moment.  When its trees are grown and proved, it plans the
updates that came meanwhile over them, until few are left.  Then one patch leads from the loaded rule set
to the new trees.  Rules with memory keep their shared chains in the kernel.

*Staged* trees get new chains.  These, and the updates over them, are handed out in pieces, to be loaded
while the old trees are in use and take updates; the last patch leads packets to the new trees, and the old
trees are removed in pieces, too.  No packet reaches a staged chain.

Invariant: the state after a fold has the master list of the state that it replaces, and the law of
state.py holds for it.  The caller is session.py, in one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hitables.errors import HitablesError
from hitables.interrupts import deferred
from hitables.ipc import close_all_but, receive, send
from hitables.ir.program import Chain, Program, Table

from .cache import Cache
from .chain_names import ChainNames, GeneratedNames
from .edits import Edit, Op, apply, jumps_to, with_renamed_callee
from .layout import ChainId, ChainLayout, EntryChain, fixed_chains, unreachable_chains
from .least_edits import sync
from .planner import Plan, fold_unproved, loadable_edits
from .proof import planner, prove
from .settings import Strategy
from .state import State

# Edits in a piece: loading them takes about as long as a few updates.
PIECE = 1000

# When all pieces are loaded, the process ends if at most FEW_UPDATES updates are left to plan, or after
# MAX_ROUNDS rounds of updates.
FEW_UPDATES, MAX_ROUNDS = 3, 20

_PR_SET_PDEATHSIG = 1

Piece = tuple[Edit, ...]


class Stale(HitablesError):
    """The new trees do not fit the updated list."""


# Messages from the process.


@dataclass(frozen=True)
class _StagedPiece:
    """Edits of chains that no packet reaches yet."""

    edits: Piece


@dataclass(frozen=True)
class _UpdateRequest:
    """A request for the updates since the fold began."""


@dataclass(frozen=True)
class _Result:
    """The new trees with *updates* updates over them, as edits behind those of the pieces; or an error."""

    edits: tuple[Edit, ...] = ()
    layouts: tuple[tuple[ChainId, ChainLayout], ...] = ()
    entry_chains: tuple[tuple[ChainId, EntryChain], ...] = ()
    chosen: tuple[tuple[str, str, Strategy], ...] = ()
    updates: int = 0
    error: str = ""
    is_stale: bool = False


class BackgroundFold:
    """A fold of *chains* in a process of its own.

    `socket` is readable when `attend` has a message to read.  `pieces` are to be loaded in order; `note`
    must be called with every plan made since.  No other thread may run when it starts: locks that it
    holds would stay locked in the process.
    """

    def __init__(self, state: State, chains: Sequence[ChainId], proving: bool, staged: bool = False) -> None:
        self.state, self.chains, self.staged = state, tuple(chains), staged
        self.since: list[Plan] = []
        self.is_stale = False
        self.pieces: deque[Piece] = deque()
        self._piece_edits: list[Edit] = []  # of all pieces so far
        self._sent = 0  # updates sent to the process
        self._is_asked = False  # the process waits for updates
        self._rounds = 0
        self._result: _Result | None = None
        parent = os.getpid()
        self.socket, child_socket = socket.socketpair()
        with deferred():
            self._pid = os.fork()
            if self._pid == 0:
                try:
                    self._run_child(parent, proving, child_socket)
                finally:
                    os._exit(0)
        child_socket.close()

    # In the child process.

    def _run_child(self, parent: int, proving: bool, connection: socket.socket) -> None:
        close_all_but(connection)
        gc.disable()  # the process is short-lived, and a collection would write to, so copy, shared pages
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        try:
            result = self._grow(proving, connection)
        except Stale as error:
            result = _Result(error=str(error), is_stale=True)
        except HitablesError as error:
            result = _Result(error=str(error))
        send(connection, result)

    def _grow(self, proving: bool, connection: socket.socket) -> _Result:
        start = replace(self.state, name_range=1 - self.state.name_range)
        fold = fold_unproved(start, self.chains, staged=self.staged)
        if proving:
            prove(fold.after)
        staging = _Staging(self.state.settings.prefix)
        edits = list(fold.edits)
        if self.staged:
            edits.sort(key=lambda edit: edit.op is not Op.NEW)  # a rule may jump to a chain of a later piece
            edits = staging.split(edits, connection)
        state, count, rounds = fold.after, 0, 0
        while True:
            send(connection, _UpdateRequest())
            batches, is_last = receive(connection)
            planned: list[Edit] = []
            for updates in batches:
                plan = _plan_over(state, updates, proving)
                planned += plan.edits
                state, count = plan.after, count + 1
            rounds += 1
            # Pieces are loaded one at a time: without a limit, there might always be some left.
            edits += staging.split(planned, connection) if self.staged and rounds <= MAX_ROUNDS else planned
            if is_last:
                edits = [*staging.rest(), *edits]
                layouts, entry_chains = tuple(state.layouts.items()), tuple(state.entry_chains.items())
                return _Result(tuple(edits), layouts, entry_chains, fold.chosen, count)

    # In the parent process.

    def note(self, plan: Plan) -> None:
        """Record a plan that was made since the fold began."""
        self.since.append(plan)
        self.is_stale |= plan.folds

    def attend(self) -> None:
        """Read the messages of the process, without waiting for one."""
        while self._result is None and select.select([self.socket], [], [], 0)[0]:
            try:
                message = receive(self.socket)
                if isinstance(message, _StagedPiece):
                    self.pieces.append(message.edits)
                    self._piece_edits += message.edits
                elif isinstance(message, _UpdateRequest):
                    self._is_asked = True
                else:
                    assert isinstance(message, _Result), "there are three kinds of messages"
                    self._result = message
            except (EOFError, ConnectionError):
                self._result = _Result(error="the process that folds ended without a result (out of memory?)")
        if self._is_asked and self._result is None:
            self._send_updates()

    def _send_updates(self) -> None:
        """Send the updates that the process lacks: the last ones once all pieces are taken."""
        sent, count = self._sent, len(self.since)
        is_last = not self.pieces and (count - sent <= FEW_UPDATES or self._rounds == MAX_ROUNDS)
        if is_last or count - sent > FEW_UPDATES:
            self._sent, self._is_asked, self._rounds = count, False, min(MAX_ROUNDS, self._rounds + 1)
            with contextlib.suppress(ConnectionError):
                send(self.socket, ([plan.updates for plan in self.since[sent:]], is_last))

    def is_done(self) -> bool:
        """Whether the process has ended, with a result or an error."""
        self.attend()
        return self._result is not None

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.socket.close()

    def plan(self, now: State, proving: bool) -> Plan:
        """From *now*, which has all noted plans and all pieces, to the new trees with the same list.

        The updates that the process did not see are planned, and proved, over the new trees.  Stale if
        the trees do not fit any more; HitablesError if growing them failed.
        """
        result = self._result
        assert result is not None, "the process has ended"
        if result.error:
            raise (Stale if result.is_stale else HitablesError)(result.error)
        if self.is_stale:
            raise Stale("trees were grown anew meanwhile")
        state = self._with_new_trees(result)
        for plan in self.since[result.updates :]:
            state = _plan_over(state, plan.updates, proving).after
        state = _with_shared_chains_of(state, now)
        wanted = _with_old_chains(state.loaded, now.loaded) if self.staged else state.loaded
        edits = tuple(sync(_sharing_equal_chains(now.loaded, wanted), wanted))
        after = replace(state, loaded=apply(now.loaded, edits), version=now.version + 1)
        assert after.master == now.master, "a fold does not change the list"
        return Plan(now, after, (), edits, result.chosen)

    def _with_new_trees(self, result: _Result) -> State:
        """The state at the end of the process."""
        last = self.since[result.updates - 1].after if result.updates else self.state
        loaded = apply(self.state.loaded, [*self._piece_edits, *result.edits])
        layouts = dict(result.layouts)
        known = last.cache.rule_indexes
        rule_indexes = {
            (chain_id[0], section.name): known[chain_id[0], section.name]
            for chain_id, layout in layouts.items()
            if chain_id in last.layouts and _has_same_lists(layout, last.layouts[chain_id])
            for section in layout.sections
            if (chain_id[0], section.name) in known
        }
        return State(
            self.state.settings,
            last.master,
            loaded,
            layouts,
            dict(result.entry_chains),
            last.version,
            name_range=1 - self.state.name_range,
            cache=Cache(rule_indexes=rule_indexes, rows=last.cache.rows),
        )


# Pieces.


def piece_plan(state: State, piece: Piece) -> Plan:
    """A plan that loads or removes chains which no packet reaches."""
    loaded = apply(state.loaded, piece)
    edits = tuple(loadable_edits(state, piece)[0])
    return Plan(state, replace(state, loaded=loaded, version=state.version + 1), (), edits, ())


def unreachable_pieces(state: State) -> list[Piece]:
    """Pieces that remove the generated chains which no packet can enter."""
    edits: list[Edit] = []
    for table in state.loaded:
        names = GeneratedNames(state.settings.prefix)
        if not any(names.is_generated(chain.name) for chain in table.chains):
            continue
        keep = fixed_chains(layout for (name, _), layout in state.layouts.items() if name == table.name)
        chains = [name for name in unreachable_chains(table, keep, names) if names.is_generated(name)]
        edits += [Edit(Op.FLUSH, table.name, name) for name in chains if table[name].rules]
        edits += [Edit(Op.REMOVE, table.name, name) for name in chains]
    return _in_pieces(edits)


def _in_pieces(edits: Sequence[Edit]) -> list[Piece]:
    """*edits* in pieces of one table each."""
    pieces: list[list[Edit]] = []
    for edit in edits:
        if not pieces or len(pieces[-1]) == PIECE or pieces[-1][0].table != edit.table:
            pieces.append([])
        pieces[-1].append(edit)
    return [tuple(piece) for piece in pieces]


class _Staging:
    """Chains that the fold has made: all edits of these can be loaded before packets reach them."""

    def __init__(self, prefix: str) -> None:
        self._names = GeneratedNames(prefix)
        self._chains: set[ChainId] = set()
        self._rest: dict[str, list[Edit]] = {}  # by table: edits of such chains, too few for a piece

    def split(self, edits: Sequence[Edit], connection: socket.socket) -> list[Edit]:
        """Send those of *edits* that are of such chains, in whole pieces; the edits of other chains.

        The names of these chains are of a range that no plan of the session uses meanwhile.
        """
        self._chains |= {
            (edit.table, edit.chain)
            for edit in edits
            if edit.op is Op.NEW and self._names.is_generated(edit.chain)
        }
        others = []
        for edit in edits:
            if (edit.table, edit.chain) in self._chains:
                rest = self._rest.setdefault(edit.table, [])
                rest.append(edit)
                if len(rest) == PIECE:
                    send(connection, _StagedPiece(tuple(rest)))
                    rest.clear()
            else:
                others.append(edit)
        return others

    def rest(self) -> list[Edit]:
        """The edits of such chains that are in no piece."""
        return list(itertools.chain.from_iterable(self._rest.values()))


# New trees taken over.


def _plan_over(state: State, updates: Sequence[Edit], proving: bool) -> Plan:
    """Updates planned over new trees; Stale if they fold a chain."""
    plan = planner(proving)(state, updates, Strategy.GRAFT)
    if plan.folds:
        raise Stale("an update needs new trees")
    return plan


def _has_same_lists(one: ChainLayout, other: ChainLayout) -> bool:
    """Whether the lists of the sections are the same in both layouts of a chain."""
    one_sizes, other_sizes = (
        [(section.name, section.size) for section in layout.sections] for layout in (one, other)
    )
    return one_sizes == other_sizes and one.shared == other.shared


def _with_old_chains(trees: Program, loaded: Program) -> Program:
    """*trees*, with the chains of *loaded* that they lack, which are removed later."""
    tables = []
    for table in trees:
        other = loaded.find(table.name)
        old = [chain for chain in other.chains if chain.name not in table] if other is not None else []
        tables.append(replace(table, chains=(*table.chains, *old)))
    return replace(trees, tables=tuple(tables))


def _sharing_equal_chains(loaded: Program, wanted: Program) -> Program:
    """*loaded* with the chain objects of *wanted* where all rules are identical: `sync` skips those."""
    tables = []
    for table in loaded:
        chains: list[Chain] = []
        for chain in table.chains:
            other = wanted.find_chain(table.name, chain.name)
            is_same = (
                other is not None
                and len(other.rules) == len(chain.rules)
                and other.policy == chain.policy
                and all(a is b for a, b in zip(chain.rules, other.rules, strict=True))
            )
            chains.append(other if is_same and other is not None else chain)
        tables.append(replace(table, chains=tuple(chains)))
    return replace(loaded, tables=tuple(tables))


def _with_shared_chains_of(state: State, now: State) -> State:
    """*state* with the names that shared chains have in *now*."""
    names: dict[str, dict[str, str]] = {}  # by table: old name -> new name
    for chain_id, layout in state.layouts.items():
        known = dict(now.layouts[chain_id].shared) if chain_id in now.layouts else {}
        for at, name in layout.shared:
            if known.get(at, name) != name:
                names.setdefault(chain_id[0], {})[name] = known[at]
    if not names:
        return state
    for table, new_names in names.items():
        used = [chain.name for each in (state, now) for chain in each.loaded.table(table).chains]
        fresh = ChainNames(state.settings.prefix, used, state.name_range)
        for name in list(new_names.values()):
            if name in state.loaded.table(table) and name not in new_names:
                new_names[name] = fresh.next()  # another chain took the name meanwhile
    layouts = {}
    for chain_id, layout in state.layouts.items():
        new_names = names.get(chain_id[0], {})
        layouts[chain_id] = replace(
            layout, shared=tuple((at, new_names.get(name, name)) for at, name in layout.shared)
        )
    entry_chains = {}
    for (table, chain), entry_chain in state.entry_chains.items():
        new_names = names.get(table, {})
        entries = tuple(
            replace(entry, overlay=new_names.get(entry.overlay, entry.overlay))
            for entry in entry_chain.entries
        )
        entry_chains[table, new_names.get(chain, chain)] = replace(entry_chain, entries=entries)
    tables = tuple(_renamed(table, names.get(table.name, {})) for table in state.loaded)
    loaded = replace(state.loaded, tables=tables)
    return replace(state, loaded=loaded, layouts=layouts, entry_chains=entry_chains, cache=Cache())


def _renamed(table: Table, names: dict[str, str]) -> Table:
    """The table with chains renamed, in their rules' targets too."""
    chains = []
    for chain in table.chains:
        name = names.get(chain.name, chain.name)
        if name != chain.name or any(jumps_to(rule) in names for rule in chain.rules):
            rules = tuple(with_renamed_callee(rule, names) for rule in chain.rules)
            chain = replace(chain, name=name, rules=rules)
        chains.append(chain)
    return replace(table, chains=tuple(chains))

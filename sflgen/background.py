"""Folds in the background: trees are grown in a process of their own while patches go on.

The process begins with the state as it is then.  When its trees are grown and proved, it plans what
was updated meanwhile over them, until it has come as far as patches have.  Then one patch leads
from what is loaded to that.  Rules with memory keep the chains that they have in the kernel.

Grown *aside*, the trees have chains of their own.  These are handed out as pieces, to be loaded while
the old trees serve and patches go on; the patch at the end only leads packets to the new trees, and
the old ones are cleared away in pieces again.  No packet comes to a chain that stands aside.

Invariant: a fold that is taken over has the master list of the state that it replaces, and the
law of state.py holds for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
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
from hitables.ir.rule import Rule, Target

from .edits import Edit, Op, apply, jumps_to, sync
from .layout import Host, Names, Place, Served, Strategy, unreached
from .local_proof import proved_plan
from .planner import Plan, fold
from .state import State, prove

# Edits of a piece: loading them takes about as long as a few updates.
PIECE = 400

# The fold is taken over when no more updates than FEW are to be planned over it, or after so many ROUNDS.
FEW, ROUNDS = 3, 20

_PR_SET_PDEATHSIG = 1


class Stale(HitablesError):
    """What was grown does not fit what the list has become."""


@dataclass(frozen=True)
class _Piece:
    """Edits that make chains to which nothing leads."""

    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class _More:
    """Asks for the updates that came meanwhile."""


@dataclass(frozen=True)
class _Grown:
    """What was grown, and planned over it since: the edits behind those of the pieces, how the chains are
    served then, and of how many updates; or why not."""

    edits: tuple[Edit, ...] = ()
    served: tuple[tuple[Place, Served], ...] = ()
    hosts: tuple[tuple[Place, Host], ...] = ()
    chosen: tuple[tuple[str, str, Strategy], ...] = ()
    updates: int = 0
    error: str = ""
    stale: bool = False


class Folding:
    """A fold of *places* that is under way; `socket` can be read when there is something to `attend` to.

    No other thread may be at work when it begins: what it has locked stays locked in the process.
    """

    def __init__(self, state: State, places: Sequence[Place], proving: bool, aside: bool = False) -> None:
        self.state, self.places, self.aside = state, tuple(places), aside
        self.since: list[Plan] = []
        self.stale = False
        self.pieces: deque[tuple[Edit, ...]] = deque()  # to be taken, and loaded
        self._edits: list[Edit] = []  # of all pieces
        self._told = 0  # updates that the process knows
        self._asks = False  # for those that it does not
        self._rounds = 0
        self._grown: _Grown | None = None
        parent = os.getpid()
        self.socket, theirs = socket.socketpair()
        with deferred():
            self._pid = os.fork()
            if self._pid == 0:
                try:
                    self._work(parent, proving, theirs)
                finally:
                    os._exit(0)
        theirs.close()

    # In the process.

    def _work(self, parent: int, proving: bool, connection: socket.socket) -> None:
        close_all_but(connection)
        gc.disable()  # it ends soon, and the collector would write to, so copy, all pages that are shared
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN if each == signal.SIGINT else signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        try:
            grown = self._grow(proving, connection)
        except Stale as error:
            grown = _Grown(error=str(error), stale=True)
        except HitablesError as error:
            grown = _Grown(error=str(error))
        send(connection, grown)

    def _grow(self, proving: bool, connection: socket.socket) -> _Grown:
        begun = replace(self.state, half=1 - self.state.half)
        made = fold(begun, self.places, aside=self.aside)
        if proving:
            prove(made.after)
        pieces, edits = _in_pieces(made) if self.aside else ([], list(made.edits))
        for piece in pieces:
            send(connection, _Piece(piece))
        state, count = made.after, 0
        while True:
            send(connection, _More())
            updates, last = receive(connection)
            for each in updates:
                over = _over(state, each, proving)
                edits += over.edits
                state, count = over.after, count + 1
            if last:
                served, hosts = tuple(state.served.items()), tuple(state.hosts.items())
                return _Grown(tuple(edits), served, hosts, made.chosen, count)

    # In ours.

    def note(self, made: Plan) -> None:
        """Something was planned since."""
        self.since.append(made)
        folded = {(table, chain) for table, chain, strategy in made.chosen if strategy is Strategy.FOLD}
        self.stale |= bool(folded)

    def attend(self) -> None:
        """Read what the process says, without waiting for it to say something."""
        while self._grown is None and select.select([self.socket], [], [], 0)[0]:
            try:
                said = receive(self.socket)
                if isinstance(said, _Piece):
                    self.pieces.append(said.edits)
                    self._edits += said.edits
                elif isinstance(said, _More):
                    self._asks = True
                else:
                    assert isinstance(said, _Grown), "nothing else is said"
                    self._grown = said
            except (EOFError, ConnectionError):
                self._grown = _Grown(error="the process that folds ended without a result (out of memory?)")
        if self._asks and self._grown is None:
            self._give()

    def _give(self) -> None:
        """Give the process the updates that it does not know; the last ones once all pieces are taken."""
        known, count = self._told, len(self.since)
        last = not self.pieces and (count - known <= FEW or self._rounds == ROUNDS)
        if last or count - known > FEW:
            self._told, self._asks, self._rounds = count, False, min(ROUNDS, self._rounds + 1)
            with contextlib.suppress(ConnectionError):
                send(self.socket, ([each.updates for each in self.since[known:]], last))

    def is_done(self) -> bool:
        """Whether the process has come to an end."""
        self.attend()
        return self._grown is not None

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.socket.close()

    def plan(self, now: State, proving: bool) -> Plan:
        """From *now*, which has all that was noted and the pieces, to the new trees with what was updated
        meanwhile over them, which is proved, too.

        Stale when they do not fit any more; HitablesError when growing them failed.
        """
        grown = self._grown
        assert grown is not None, "the process has come to an end"
        if grown.error:
            raise (Stale if grown.stale else HitablesError)(grown.error)
        if self.stale:
            raise Stale("trees were built anew meanwhile")
        state = self._with_trees(grown)
        for each in self.since[grown.updates :]:
            state = _over(state, each.updates, proving).after
        state = _called_as(state, now)
        wanted = _beside(state.loaded, now.loaded) if self.aside else state.loaded
        edits = tuple(sync(_as_far_as_alike(now.loaded, wanted), wanted))
        after = replace(state, loaded=apply(now.loaded, edits), version=now.version + 1)
        assert after.master == now.master, "the fold has the list that it replaces"
        return Plan(now, after, (), edits, grown.chosen)

    def _with_trees(self, grown: _Grown) -> State:
        """The state that the process had in the end."""
        last = self.since[grown.updates - 1].after if grown.updates else self.state
        loaded = apply(self.state.loaded, [*self._edits, *grown.edits])
        served = dict(grown.served)
        listings = {
            (place[0], section.name): last.listings[place[0], section.name]
            for place, how in served.items()
            if place in last.served and _listed_alike(how, last.served[place])
            for section in how.sections
            if (place[0], section.name) in last.listings
        }
        return State(
            self.state.settings,
            last.master,
            loaded,
            served,
            dict(grown.hosts),
            last.version,
            half=1 - self.state.half,
            listings=listings,
        )


def put_aside(state: State, edits: tuple[Edit, ...]) -> Plan:
    """A piece, loaded: its chains are new or were put aside before, so nothing is done to any packet."""
    loaded = apply(state.loaded, edits)
    return Plan(state, replace(state, loaded=loaded, version=state.version + 1), (), edits, ())


def cleared_away(state: State) -> list[tuple[Edit, ...]]:
    """Pieces that remove the chains of ours to which nothing leads."""
    edits: list[Edit] = []
    for table in state.loaded:
        names = Names(state.settings.prefix, ())
        if not any(names.is_made(chain.name) for chain in table.chains):
            continue
        serving = (how.names() for (where, _), how in state.served.items() if where == table.name)
        gone = [name for name in unreached(table, set().union(*serving), names) if names.is_made(name)]
        edits += [Edit(Op.FLUSH, table.name, name) for name in gone if table[name].rules]
        edits += [Edit(Op.REMOVE, table.name, name) for name in gone]
    return _cut(edits)


def _cut(edits: Sequence[Edit]) -> list[tuple[Edit, ...]]:
    """Pieces of one table each."""
    pieces: list[list[Edit]] = []
    for edit in edits:
        if not pieces or len(pieces[-1]) == PIECE or pieces[-1][0].table != edit.table:
            pieces.append([])
        pieces[-1].append(edit)
    return [tuple(piece) for piece in pieces]


def _in_pieces(made: Plan) -> tuple[list[tuple[Edit, ...]], list[Edit]]:
    """The edits of a fold that make new chains, in pieces; the others."""
    new = {(edit.table, edit.chain) for edit in made.edits if edit.op is Op.NEW}
    ours = [edit for edit in made.edits if (edit.table, edit.chain) in new]
    chains = [edit for edit in ours if edit.op is Op.NEW]
    rules = [edit for edit in ours if edit.op is not Op.NEW]
    return _cut([*chains, *rules]), [edit for edit in made.edits if (edit.table, edit.chain) not in new]


def _over(state: State, updates: Sequence[Edit], proving: bool) -> Plan:
    """Updates planned over new trees."""
    made = proved_plan(state, updates, Strategy.GRAFT, proving)
    if any(strategy is Strategy.FOLD for _, _, strategy in made.chosen):
        raise Stale("an update needs new trees")
    return made


def _listed_alike(one: Served, other: Served) -> bool:
    """Whether the lists of the sections are the same."""
    names = [[(section.name, section.size) for section in how.sections] for how in (one, other)]
    return names[0] == names[1] and one.once == other.once


def _beside(trees: Program, held: Program) -> Program:
    """*trees*, with the chains of *held* that are not among them and are cleared away later."""
    tables = []
    for table in trees:
        there = next((each.chains for each in held if each.name == table.name), ())
        old = [chain for chain in there if chain.name not in table]
        tables.append(replace(table, chains=(*table.chains, *old)))
    return replace(trees, tables=tuple(tables))


def _as_far_as_alike(held: Program, wanted: Program) -> Program:
    """*held* with the chains of *wanted* where the rules are the very same, so that nobody compares them."""
    tables = []
    for table in held:
        there = next((each for each in wanted if each.name == table.name), None)
        chains: list[Chain] = []
        for chain in table.chains:
            other = there[chain.name] if there is not None and chain.name in there else None
            same = (
                other is not None
                and len(other.rules) == len(chain.rules)
                and other.policy == chain.policy
                and all(a is b for a, b in zip(chain.rules, other.rules, strict=True))
            )
            chains.append(other if same and other is not None else chain)
        tables.append(replace(table, chains=tuple(chains)))
    return replace(held, tables=tuple(tables))


def _called_as(state: State, now: State) -> State:
    """*state* with the chains of rules with memory called as they are in *now*."""
    names: dict[str, dict[str, str]] = {}
    for place, how in state.served.items():
        known = dict(now.served[place].once) if place in now.served else {}
        for at, name in how.once:
            if known.get(at, name) != name:
                names.setdefault(place[0], {})[name] = known[at]
    if not names:
        return state
    for table, called in names.items():
        taken = [chain.name for each in (state, now) for chain in each.loaded.table(table).chains]
        fresh = Names(state.settings.prefix, taken, state.half)
        for name in list(called.values()):
            if name in state.loaded.table(table) and name not in called:
                called[name] = fresh.next()  # it was made meanwhile for something else
    served = {}
    for place, how in state.served.items():
        called = names.get(place[0], {})
        served[place] = replace(how, once=tuple((at, called.get(name, name)) for at, name in how.once))
    tables = tuple(_renamed(table, names.get(table.name, {})) for table in state.loaded)
    loaded = replace(state.loaded, tables=tables)
    hosts = {}
    for (table, chain), host in state.hosts.items():
        called = names.get(table, {})
        fronts = tuple(replace(front, chain=called.get(front.chain, front.chain)) for front in host.fronts)
        hosts[table, called.get(chain, chain)] = replace(host, fronts=fronts)
    return replace(state, loaded=loaded, served=served, hosts=hosts, listings={}, levels={}, regions={})


def _renamed(table: Table, names: dict[str, str]) -> Table:
    def called(rule: Rule) -> Rule:
        name = names.get(jumps_to(rule))
        if name is None or rule.target is None:
            return rule
        kind = rule.target.key.split()[0]
        return rule._replace(target=Target(name, rule.target.kind, f"{kind} {name}"))

    chains = []
    for chain in table.chains:
        name = names.get(chain.name, chain.name)
        if name != chain.name or any(jumps_to(rule) in names for rule in chain.rules):
            chain = replace(chain, name=name, rules=tuple(called(rule) for rule in chain.rules))
        chains.append(chain)
    return replace(table, chains=tuple(chains))

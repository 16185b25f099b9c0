"""Folds in the background: trees are grown in a process of their own while patches go on.

The process begins with the state as it is then.  What it grows is taken over later: the updates
that were committed meanwhile are planned once more, as entries over the new trees, and one patch
leads from what is loaded to that.  Rules with memory keep the chains that they have in the kernel.

Invariant: a fold that is taken over has the master list of the state that it replaces, and the
law of state.py holds for it.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hitables.errors import HitablesError
from hitables.ir.program import Table
from hitables.ir.rule import Rule, Target

from .base import Names, Place, Served, Strategy
from .local import proved_plan
from .patch import Plan, fold
from .state import State, prove
from .updates import Edit, apply, jumps_to, sync

# Chains of the new trees are numbered from so many beyond the last one on, so that they do not meet with
# the overlays that are made meanwhile.
APART = 1000

_PR_SET_PDEATHSIG = 1


class Stale(HitablesError):
    """What was grown does not fit what the list has become."""


@dataclass(frozen=True)
class _Grown:
    """What the process found: how the chains are served then, or why not."""

    edits: tuple[Edit, ...] = ()
    served: tuple[tuple[Place, Served], ...] = ()
    chosen: tuple[tuple[str, str, Strategy], ...] = ()
    error: str = ""


class Folding:
    """A fold of *places* that is under way; *closing*: open files that are not the process's business."""

    def __init__(
        self, state: State, places: Sequence[Place], proving: bool, closing: Sequence[int] = ()
    ) -> None:
        self.state, self.places = state, tuple(places)
        self.since: list[tuple[Edit, ...]] = []
        self.stale = False
        self._result = os.memfd_create("sflgen")
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._work(parent, proving, closing)
            finally:
                os._exit(0)

    def _work(self, parent: int, proving: bool, closing: Sequence[int]) -> None:
        for handle in closing:
            os.close(handle)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN if each == signal.SIGINT else signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        try:
            made = fold(self.state, self.places, apart=APART)
            if proving:
                prove(made.after)
            served = [(place, made.after.served[place]) for place in made.after.served]
            grown = _Grown(made.edits, tuple(served), made.chosen)
        except HitablesError as error:
            grown = _Grown(error=str(error))
        with os.fdopen(os.dup(self._result), "wb") as file:
            pickle.dump(grown, file, pickle.HIGHEST_PROTOCOL)

    def note(self, made: Plan) -> None:
        """Something was committed since."""
        self.since.append(made.updates)
        folded = {(table, chain) for table, chain, strategy in made.chosen if strategy is Strategy.FOLD}
        self.stale |= bool(folded)

    def is_done(self) -> bool:
        """Whether the process has come to an end."""
        if self._pid:
            found, _ = os.waitpid(self._pid, os.WNOHANG)
            if found:
                self._pid = 0
        return not self._pid

    def stop(self) -> None:
        if not self.is_done():
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
        os.close(self._result)

    def plan(self, now: State, proving: bool) -> Plan:
        """From *now* to the new trees with what was updated meanwhile over them, which is proved, too.

        Stale when they do not fit any more; HitablesError when growing them failed.
        """
        assert self.is_done(), "the process has come to an end"
        grown = self._read()
        if grown.error:
            raise HitablesError(grown.error)
        if self.stale:
            raise Stale("trees were built anew meanwhile")
        state = _with_trees(self.state, grown)
        for updates in self.since:
            made = proved_plan(state, updates, Strategy.GRAFT, proving)
            if any(strategy is Strategy.FOLD for _, _, strategy in made.chosen):
                raise Stale("an update needs new trees")
            state = made.after
        state = _called_as(state, now)
        edits = tuple(sync(now.loaded, state.loaded))
        after = replace(state, loaded=apply(now.loaded, edits), version=now.version + 1)
        assert after.master == now.master, "the fold has the list that it replaces"
        return Plan(now, after, (), edits, grown.chosen)

    def _read(self) -> _Grown:
        os.lseek(self._result, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self._result), "rb") as file:
            data = file.read()
        if not data:
            return _Grown(error="the process that folds ended without a result (out of memory?)")
        found: Any = pickle.loads(data)
        assert isinstance(found, _Grown), "what was written comes back"
        return found


def _with_trees(state: State, grown: _Grown) -> State:
    """*state* after the fold, as the process had it."""
    served = dict(grown.served)
    folded = {(table, chain) for table, chain, _ in grown.chosen}
    gone = {
        (place[0], section.name)
        for place in folded if place in state.served for section in state.served[place].sections
    }  # fmt: skip
    hosts = {key: host for key, host in state.hosts.items() if (key[0], host.section) not in gone}
    return State(state.settings, state.master, apply(state.loaded, grown.edits), served, hosts, state.version)


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
        fresh = Names(state.settings.prefix, taken)
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



"""Proofs of the law, and plans that are proved.

    verify      compares a state's two rule sets; returns an answer
    prove       raises NotEquivalent, with a packet, unless the law holds for a state
    prove_plan  the same for a plan, by its updates alone where that is enough (local_proof.py,
                idle_deletions.py)
    plan, start, fold   plan, and prove

The functions of planner.py whose names end in `_unproved` plan without a proof.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace

from hitables.errors import HitablesError, NotEquivalent
from hitables.ir.foreign import hide
from hitables.ir.program import Program
from hitables.verify.deadline import Deadline
from hitables.verify.portfolio import check_with_unreached
from hitables.verify.question import Answer, Difference, Equal

from .edits import Edit
from .entries_apart import holds_by_parts
from .idle_deletions import changes_nothing
from .layout import ChainId
from .local_proof import ends_alike, holds_locally
from .planner import Plan, fold_unproved, plan_unproved, start_unproved
from .settings import Settings, Strategy
from .state import State


def verify(state: State, timeout: float | None = None) -> Answer:
    """Compare the loaded rule set with the master list: a proof, or a packet that they treat differently.

    Chains with trees are compared even where no built-in chain enters them; foreign chains have any rules.
    """
    deadline = Deadline(timeout)
    if state.entry_chains and holds_by_parts(state, deadline):
        return Equal(True, 0)
    return _compare(state, state.master, state.loaded, None if timeout is None else deadline.left()[0])


def _compare(state: State, master: Program, loaded: Program, timeout: float | None) -> Answer:
    listed, patched = (hide(program, state.settings.foreign) for program in (master, loaded))
    return check_with_unreached(listed, patched, state.question(timeout=timeout), state.layouts)


def _compare_for_any_policy(state: State, timeout: float | None = None) -> Answer:
    """As `verify`, whatever the policies are that both rule sets have."""
    listed, loaded = state.master, state.loaded
    same = {
        (table.name, chain.name)
        for table in listed
        for chain in table.chains
        if chain.policy is not None and ends_alike(chain, loaded.table(table.name)[chain.name])
    }
    return _compare(state, _with_open_policies(listed, same), _with_open_policies(loaded, same), timeout)


def _with_open_policies(program: Program, chains: Container[ChainId]) -> Program:
    """*program*, in which no verdict is equal to the policy of *chains*."""
    tables = (
        table.of(
            {
                chain.name: replace(chain, kept=True) if (table.name, chain.name) in chains else chain
                for chain in table.chains
            }
        )
        for table in program
    )
    return replace(program, tables=tuple(tables))


def prove(state: State, timeout: float | None = None) -> None:
    """Return if the law holds; else NotEquivalent, with a packet.  HitablesError if time runs out."""
    answer = _compare_for_any_policy(state, timeout)
    if isinstance(answer, Difference):
        raise NotEquivalent(
            "the patched rule set treats a packet differently from the rule list; nothing is changed "
            "(this is a fault of sflgen: please report it with the rule set and the updates)",
            answer.describe(),
        )
    if not isinstance(answer, Equal):
        raise HitablesError(f"{answer.reason} while proving (table {answer.table}, chain {answer.chain})")


def prove_plan(plan: Plan, strategy: Strategy | None = None) -> Plan:
    """*plan*, if the law holds after it as it held before; else NotEquivalent, with a packet.

    A plan with deletions in place is replaced by one without if the law does not hold after it, as
    such deletions are right only if the deleted rules hid no others.
    """
    is_equal = changes_nothing(plan) or holds_locally(plan)
    if not plan.deleted_in_place:
        if not is_equal:
            prove(plan.after)
        return plan
    if is_equal is None:
        is_equal = isinstance(_compare_for_any_policy(plan.after), Equal)
    if is_equal:
        return plan
    return prove_plan(plan_unproved(plan.before, plan.updates, strategy), strategy)


def plan(state: State, updates: Sequence[Edit], strategy: Strategy | None = None) -> Plan:
    """A proved plan of *updates*, which were read against `state.master`.

    *strategy* OVERLAY or GRAFT never folds because of costs, FOLD folds each chain at once.  If the law does
    not hold after the plan, which is a fault, an overlay or new trees are tried instead.
    """
    try:
        return prove_plan(plan_unproved(state, updates, strategy, delete_in_place=True), strategy)
    except NotEquivalent:
        for other in (Strategy.OVERLAY, Strategy.FOLD):
            with contextlib.suppress(NotEquivalent):
                return prove_plan(plan_unproved(state, updates, other), other)
        raise


def start(master: Program, settings: Settings) -> Plan:
    """A proved plan from *master* loaded without trees to *master* compiled.

    `Plan.after` is the state to go on with; the patch turns the plain rule set into the compiled one.
    """
    return prove_plan(start_unproved(master, settings))


def fold(state: State, chains: Iterable[ChainId] | None = None) -> Plan:
    """A proved plan that grows the trees of *chains* (table, chain) anew; of all chains if None."""
    return prove_plan(fold_unproved(state, chains))


def planner(proving: bool) -> Callable[[State, Sequence[Edit], Strategy | None], Plan]:
    """The function that plans updates: `plan`, or `plan_unproved`."""
    return plan if proving else plan_unproved

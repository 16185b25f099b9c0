"""Proofs of the law, and plans that are proved.

    verify      compares a state's two rule sets; returns an answer
    prove       raises NotEquivalent, with a packet, unless the law holds for a state
    prove_plan  the same for a plan, by its updates alone where that is enough (local_proof.py)
    plan, start, fold   plan, and prove

The functions of planner.py whose names end in `_unproved` plan without a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hitables.errors import HitablesError, NotEquivalent
from hitables.ir.program import Program
from hitables.verify.portfolio import check
from hitables.verify.question import Answer, Difference, Equal

from .edits import Edit
from .entries_apart import holds_by_parts
from .layout import ChainId
from .local_proof import holds_locally
from .planner import Plan, fold_unproved, plan_unproved, start_unproved
from .settings import Settings, Strategy
from .state import State


def verify(state: State, timeout: float | None = None) -> Answer:
    """Compare the loaded rule set with the master list: a proof, or a packet that they treat differently."""
    if state.entry_chains and holds_by_parts(state):
        return Equal(True, 0)
    return check(state.master, state.loaded, state.question(timeout=timeout))


def prove(state: State, timeout: float | None = None) -> None:
    """Return if the law holds; else NotEquivalent, with a packet.  HitablesError if time runs out."""
    answer = verify(state, timeout)
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
    is_equal = holds_locally(plan)
    if not plan.deleted_in_place:
        if not is_equal:
            prove(plan.after)
        return plan
    if is_equal is None:
        is_equal = isinstance(verify(plan.after), Equal)
    if is_equal:
        return plan
    return prove_plan(plan_unproved(plan.before, plan.updates, strategy), strategy)


def plan(state: State, updates: Sequence[Edit], strategy: Strategy | None = None) -> Plan:
    """A proved plan of *updates*, which were read against `state.master`.

    *strategy* OVERLAY or GRAFT never folds because of costs, FOLD folds each chain at once.
    """
    return prove_plan(plan_unproved(state, updates, strategy, delete_in_place=True), strategy)


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

"""Updates planned and proved one after the other, and the rule sets to start from."""

from __future__ import annotations

import random

import hitables
from hitables.verify.question import Equal
from sflgen.commands import read_commands
from sflgen.edits import apply, read_edits, rule_key
from sflgen.planner import Plan, plan_unproved, start_unproved
from sflgen.proof import verify
from sflgen.settings import Settings, Strategy
from sflgen.state import State


def keys(program: hitables.Program) -> dict[tuple[str, str], list[object]]:
    """By chain: its policy and the keys of its rules, in order."""
    return {
        (table.name, chain.name): [chain.policy, *(rule_key(rule) for rule in chain.rules)]
        for table in program
        for chain in table.chains
    }


def check(plan: Plan) -> None:
    """Check that the plan keeps the law, and that its text is read again as its edits."""
    answer = verify(plan.after)
    difference = answer if isinstance(answer, Equal) else answer.describe()  # type: ignore[union-attr]
    assert isinstance(answer, Equal), f"{plan.text}\n{difference}"
    assert apply(plan.before.loaded, plan.edits) == plan.after.loaded
    again = read_edits(plan.text, plan.before.loaded) if plan.text else []
    assert keys(apply(plan.before.loaded, again)) == keys(plan.after.loaded)


def favoured(state: State) -> list[str]:
    return [chain for _, chain in state.layouts]


def prefixes(count: int) -> hitables.Program:
    """One chain of *count* rules that differ in source and port, and a policy."""
    rng = random.Random(count)
    rules = "".join(
        f"-A INPUT -s 10.{rng.randrange(256)}.{rng.randrange(256)}.0/24 -p tcp --dport {rng.randrange(1, 9999)} "
        f"-j {rng.choice(['ACCEPT', 'DROP'])}\n"
        for _ in range(count)
    )
    return hitables.read(f"*filter\n:INPUT ACCEPT\n:plain -\n-A plain -s 10.0.0.1 -j DROP\n{rules}COMMIT\n")


def with_pending(delta: int) -> State:
    state = start_unproved(prefixes(200), Settings(backend="nft", delta=delta)).after
    for number in range(12):
        command = f"-I INPUT {10 * number + 1} -s 10.{4 * number}.0.0/14 -p tcp -j DROP"
        state = plan_unproved(state, read_commands(command, state.master), Strategy.OVERLAY).after
    return state

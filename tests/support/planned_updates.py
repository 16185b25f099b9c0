"""Updates planned and proved one after the other, and the rule sets to start from."""

from __future__ import annotations

import random

import hitables
from hitables.verify.question import Equal
from sflgen.edits import apply, read_commands, read_edits, rule_key
from sflgen.layout import Settings
from sflgen.planner import Plan, Strategy, plan, start
from sflgen.state import State, verify


def keys(program: hitables.Program) -> dict[tuple[str, str], list[object]]:
    """What the chains say, in order, however it is spelt."""
    return {
        (table.name, chain.name): [chain.policy, *(rule_key(rule) for rule in chain.rules)]
        for table in program
        for chain in table.chains
    }


def check(made: Plan) -> None:
    """The plan keeps the law, and its text says its edits."""
    answer = verify(made.after)
    said = answer if isinstance(answer, Equal) else answer.describe()  # type: ignore[union-attr]
    assert isinstance(answer, Equal), f"{made.text}\n{said}"
    assert apply(made.before.loaded, made.edits) == made.after.loaded
    again = read_edits(made.text, made.before.loaded) if made.text else []
    assert keys(apply(made.before.loaded, again)) == keys(made.after.loaded)


def favoured(state: State) -> list[str]:
    return [chain for _, chain in state.served]


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
    state = start(prefixes(200), Settings(backend="nft", delta=delta)).after
    for number in range(12):
        command = f"-I INPUT {10 * number + 1} -s 10.{4 * number}.0.0/14 -p tcp -j DROP"
        state = plan(state, read_commands(command, state.master), Strategy.OVERLAY).after
    return state

"""Random updates of a rule set, as iptables commands, of every kind that sflgen takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from support.rule_texts import make_rule

from hitables.errors import ParseError
from hitables.ir.program import Program
from sflgen.commands import CommandReader
from sflgen.edits import Edit

BUILT_IN = ("INPUT", "FORWARD", "OUTPUT")


def make_command(rng: random.Random, program: Program, favour: Sequence[str] = ()) -> str:
    """A command that may be refused now and then; most change a chain of *favour*."""
    table = program.table("filter")
    user = [chain.name for chain in table.chains if chain.policy is None]
    kind = rng.random()
    if kind < 0.03:
        return f"-N user{len(user)}"
    if kind < 0.06:
        return f"-P {rng.choice(BUILT_IN)} {rng.choice(['ACCEPT', 'DROP'])}"
    if kind < 0.08:
        return f"-F {rng.choice([*user, 'OUTPUT'])}"
    if kind < 0.12 and user:
        return f"-X {rng.choice(user)}"
    favoured = [name for name in favour if name in table]
    chain = rng.choice(favoured) if favoured and rng.random() < 0.8 else rng.choice([*BUILT_IN, *user])
    count = len(table[chain].rules)
    if kind < 0.45 and count:
        return f"-D {chain} {rng.randint(1, count)}"
    later = [name for name in sorted(user) if chain in BUILT_IN or name > chain]
    head, _, rule = make_rule(rng, program.family, chain, later, 0.15).partition(f" {chain}")
    assert head == "-A"
    if kind < 0.55 and count:
        return f"-R {chain} {rng.randint(1, count)}{rule}"
    if kind < 0.65:
        return f"-A {chain}{rule}"
    return f"-I {chain} {rng.randint(1, count + 1)}{rule}"


def make_updates(
    rng: random.Random, program: Program, count: int, favour: Sequence[str] = ()
) -> tuple[list[str], list[Edit], Program]:
    """*count* commands or fewer, their edits, and the program after them."""
    return read_in_turn(program, count, lambda now: make_command(rng, now, favour))


def read_in_turn(
    program: Program, count: int, make: Callable[[Program], str]
) -> tuple[list[str], list[Edit], Program]:
    """Up to *count* commands that *make* gives for the program as it then is; one that is refused is left out."""
    reader = CommandReader(program)
    commands: list[str] = []
    edits: list[Edit] = []
    for _ in range(count):
        command = make(reader.program)
        try:
            edits += reader.line(command)
        except ParseError:
            continue
        commands.append(command)
    return commands, edits, reader.program

"""Random rule sets whose rules cross: rules with a source overlap rules with a destination.

They are compiled into groups, whose trees have versions (`--algorithm auto`).  Updates are drawn from the same
values, so they concern several leaves, listed rules and versions.
"""

from __future__ import annotations

import random

from support.rule_texts import make_rule

from hitables.errors import ParseError, Unsupported
from hitables.ir.fields import Family
from hitables.ir.program import Program
from hitables.ir.rule import Kind
from sflgen.commands import read_commands
from sflgen.edits import jumps_to
from sflgen.planner import Plan
from sflgen.proof import planner
from sflgen.settings import Strategy


def crossing_rule(rng: random.Random, family: Family) -> str:
    """A rule that is specific in one address (or, now and then, in both or neither)."""
    v6 = family is Family.IPV6

    def address(option: str) -> str:
        if v6:
            return f"{option} 2001:db8:{rng.randrange(12):x}::/{rng.choice([40, 48, 48, 52])}"
        return f"{option} 10.{rng.randrange(6)}.{rng.randrange(16) * 16}.0/{rng.choice([16, 20, 24, 24, 28])}"

    kind = rng.random()
    words = [address("-s")] if kind < 0.45 else [address("-d")] if kind < 0.9 else []
    if 0.9 <= kind < 0.96:
        words = [address("-s"), address("-d")]
    protocol = rng.choice(["", "tcp", "tcp", "udp"])
    if protocol:
        words.append(f"-p {protocol}")
        if rng.random() < 0.5:
            words.append(f"-m {protocol} --dport {rng.choice(['22', '53', '80', '443', '1024:65535'])}")
    return " ".join([*words, rng.choice(["-j ACCEPT", "-j DROP", "-j DROP", "-j REJECT"])])


def crossing_text(rng: random.Random, family: Family, chain: str, rules: int, other: float) -> str:
    """FORWARD or cross with *rules* that cross; a share of *other* are of any kind: jumps, effects, RETURN, memory."""
    lines = ["*filter", ":FORWARD DROP [0:0]", ":cross - [0:0]", ":user0 - [0:0]", ":user1 - [0:0]"]
    for _ in range(rules):
        if rng.random() < other:
            lines.append(make_rule(rng, family, chain, ["user0", "user1"], 0.3))
        else:
            lines.append(f"-A {chain} {crossing_rule(rng, family)}")
    lines += ["-A FORWARD -j cross", "-A FORWARD -p tcp -j ACCEPT"]
    lines += [make_rule(rng, family, "user0", ["user1"], 0.1) for _ in range(4)]
    lines += [make_rule(rng, family, "user1", [], 0.1) for _ in range(4)]
    return "\n".join([*lines, "COMMIT"]) + "\n"


def crossing_command(rng: random.Random, program: Program, chain: str, other: float) -> str:
    """An update of *chain*, in the manner of its rules; an empty chain gets a rule."""
    count = len(program.table("filter")[chain].rules)
    kind = rng.random() if count else 1.0
    if kind < 0.4:
        return f"-D {chain} {rng.randint(1, count)}"
    rule = crossing_rule(rng, program.family)
    if rng.random() < other:
        rule = make_rule(rng, program.family, chain, ["user0", "user1"], 0.3).removeprefix(f"-A {chain} ")
    if kind < 0.5:
        return f"-R {chain} {rng.randint(1, count)} {rule}"
    return f"-I {chain} {rng.randint(1, count + 1)} {rule}"


def calls_trees(program: Program, chain: str) -> bool:
    """Whether chains of the tree of *chain* are called (-j): those of groups, and their versions."""
    table = program.table("filter")
    names = {each.name for each in table.chains if each.name.startswith("sf")}
    trees = {name for name in names if len(table[name].rules) > 1 or jumps_to(table[name].rules[0]) in names}
    return any(
        rule.target is not None and rule.target.kind is Kind.JUMP and rule.target.name in trees
        for name in (*names, chain)
        for rule in table[name].rules
    )


def crossing_step(
    rng: random.Random, plan: Plan, chain: str, other: float, strategy: Strategy | None
) -> Plan | None:
    """The plan of one more update; None if it is refused with a reason."""
    master = plan.after.master
    try:
        commands = "\n".join(
            crossing_command(rng, master, chain, other) for _ in range(rng.choice([1, 1, 1, 3]))
        )
        return planner(rng.random() < 0.5)(plan.after, read_commands(commands, master), strategy)
    except (ParseError, Unsupported):
        return None

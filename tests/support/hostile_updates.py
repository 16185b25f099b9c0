"""Rule sets and updates made to be hard for sflgen: two tables, memory of all kinds, and every edit.

Rules cover everything in first place, go where they are widest, come in many copies, and into one
leaf again and again; chains come, are called and go; rule sets are exchanged for others.
"""

from __future__ import annotations

import random

from support.commands import BUILT_IN, read_in_turn
from support.crossing_rules import crossing_rule
from support.rule_texts import make_rule, make_text

from hitables.emit.text import rule_text
from hitables.ir.fields import Family
from hitables.ir.program import Chain, Program, Table
from hitables.parse.lines import quote
from sflgen.edits import Edit

MEMORY = [
    "-m limit --limit 5/min -j ACCEPT", "-m limit --limit 1/sec -j LOG", "-m limit --limit 3/hour -j RETURN",
    "-m hashlimit --hashlimit-upto 1/sec --hashlimit-mode srcip --hashlimit-name one -j ACCEPT",
    "-m hashlimit --hashlimit-above 9/min --hashlimit-mode dstip --hashlimit-name two -j DROP",
    "-m recent --name bad --update --seconds 60 --rsource -j DROP", "-m recent --name bad --set --rsource",
    "-m recent --name bad --remove --rsource -j RETURN", "-m quota --quota 5000 -j ACCEPT",
    "-m statistic --mode nth --every 2 --packet 0 -j DROP", "-m connlimit --connlimit-above 3 -j DROP",
]  # fmt: skip
EVERYTHING = [
    "-j ACCEPT", "-j DROP", "-j RETURN", "-j LOG", "", "-j MARK --set-xmark 0x1/0xffffffff",
    "-m conntrack --ctstate NEW -j DROP", "! -p tcp -j ACCEPT", "-m limit --limit 5/min -j DROP",
]  # fmt: skip


def hostile_text(rng: random.Random, family: Family) -> str:
    """The table filter, and often mangle."""
    memory = rng.choice([0.0, 0.05, 0.2])
    texts = [make_text(rng, family, rng.randrange(5, 80), rng.randrange(4), memory)]
    if rng.random() < 0.4:
        mangle = make_text(rng, family, rng.randrange(5, 50), rng.randrange(3), memory)
        texts.append(mangle.replace("*filter", "*mangle").replace("-j REJECT", "-j DROP"))
    chain = rng.choice([*BUILT_IN, ""])
    if chain:
        lines = texts[0].splitlines()
        crossing = [f"-A {chain} {crossing_rule(rng, family)}" for _ in range(rng.randrange(60))]
        at = next(number for number, line in enumerate(lines) if line.startswith(("-A", "COMMIT")))
        texts[0] = "\n".join([*lines[:at], *crossing, *lines[at:], ""])
    return "".join(texts)


def hostile_rule(rng: random.Random, family: Family, table: Table, chain: Chain, later: list[str]) -> str:
    """A rule of *chain*, without the command."""
    kind = rng.random()
    if kind < 0.15:
        rule = rng.choice(EVERYTHING)
    elif kind < 0.3:
        rule = f"{crossing_rule(rng, family).partition(' -j')[0]} {rng.choice(MEMORY)}"
    elif kind < 0.45:
        rule = crossing_rule(rng, family)
    elif kind < 0.6 and chain.rules:  # a copy, or the same with another target
        rule = rule_text(rng.choice(chain.rules)._replace(counters=None), chain.name).partition(" ")[2]
        rule = rule[len(quote(chain.name)) :].strip()
        if rng.random() < 0.4 and " -j " in rule:
            rule = rule.partition(" -j ")[0] + rng.choice([" -j DROP", " -j ACCEPT", " -j RETURN"])
    elif kind < 0.7 and later:
        rule = (
            f"{crossing_rule(rng, family).partition(' -j')[0]} {rng.choice(['-j', '-g'])} {rng.choice(later)}"
        )
    else:
        rule = make_rule(rng, family, chain.name, later, 0.15).removeprefix(f"-A {chain.name}")
    return rule.replace("-j REJECT", "-j DROP") if table.name != "filter" else rule


def hostile_command(rng: random.Random, program: Program, favour: list[tuple[str, str]]) -> str:
    """One command; some are refused."""
    table = rng.choice(program.tables)
    names = [chain.name for chain in table.chains]
    wanted = [place for place in favour if any(place[0] == t.name and place[1] in t for t in program)]
    name = rng.choice(names)
    if wanted and rng.random() < 0.75:
        where, name = rng.choice(wanted)
        table = program.table(where)
    user = sorted(chain.name for chain in table.chains if chain.policy is None)
    chain, count = table[name], len(table[name].rules)
    later = [other for other in user if chain.policy is not None or other > name]
    start, kind = f"-t {table.name} ", rng.random()
    if kind < 0.03:
        return f"{start}-N user{rng.randrange(6)}"
    if kind < 0.05 and chain.policy is not None:
        return f"{start}-P {name} {rng.choice(['ACCEPT', 'DROP'])}"
    if kind < 0.06:
        return f"{start}-F {name}"
    if kind < 0.1 and user:
        return f"{start}-X {rng.choice(user)}"
    if kind < 0.4 and count:
        widest = min(range(count), key=lambda at: len(chain.rules[at].matches))
        return f"{start}-D {name} {rng.choice([widest + 1, rng.randint(1, count), rng.randint(1, count), count, 1])}"
    rule = hostile_rule(rng, program.family, table, chain, later)
    if kind < 0.45 and count:
        rule = rule_text(rng.choice(chain.rules)._replace(counters=None), name)
        return start + rule.replace("-A", "-D", 1)
    if kind < 0.55 and count:
        return f"{start}-R {name} {rng.randint(1, count)} {rule}"
    if kind < 0.65:
        return f"{start}-A {name} {rule}"
    at = rng.choice([1, min(2, count + 1), count + 1, rng.randint(1, count + 1), rng.randint(1, count + 1)])
    return f"{start}-I {name} {at} {rule}"


def hostile_updates(
    rng: random.Random, program: Program, count: int, favour: list[tuple[str, str]]
) -> tuple[list[str], list[Edit], Program]:
    """*count* commands or fewer, their edits, and the program after them."""
    return read_in_turn(program, count, lambda now: hostile_command(rng, now, favour))

"""Short lists in which rules of two kinds stand by turns, or lists of different fields behind each other."""

from __future__ import annotations

import random

from hitables.ir.fields import Family

TARGETS = ["-j DROP", "-j DROP", "-j ACCEPT", "-j LOG", "", "-j RETURN", "-j user0", "-g user1", "-j user1"]


def text(rules: list[str], chain: str = "FORWARD", heads: str = "") -> str:
    lines = "".join(f"-A {chain} {rule}\n" for rule in rules)
    return f"*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n{heads}{lines}COMMIT\n"


def drawn(rng: random.Random, family: Family) -> str:
    """A short list with parts of both sorts; its values are few, so that many packets match several rules."""
    net = "10.0.{}.{}" if family is Family.IPV4 else "fd00::{}:{}"
    kinds = [
        lambda: f"-s {net.format(rng.randrange(2), rng.randrange(4))}",
        lambda: f"-d {net.format(rng.randrange(2), rng.randrange(4))}",
        lambda: f"-i ppp{rng.randrange(6)}",
        lambda: f"-o ppp{rng.randrange(6)}",
        lambda: f"-p udp -m udp --dport {rng.randrange(1, 6)}",
    ]
    targets = rng.sample(TARGETS, rng.randrange(1, 4))
    more = ["", "", " -m mark --mark 1", " -m comment --comment x"] if rng.random() < 0.3 else [""]
    rules: list[str] = []
    for _ in range(rng.randrange(1, 3)):
        chosen = rng.sample(kinds, rng.choice([2, 2, 3, 4]))
        count = rng.choice([12, 20, 36])
        if rng.random() < 0.7:
            part = [each() for _ in range(count) for each in chosen]
        else:
            part = [each() for each in chosen for _ in range(count)]
        rules += [f"{rule}{rng.choice(more)} {rng.choice(targets)}" for rule in part]
        if rng.random() < 0.3:
            rules.append(rng.choice(["-p udp -j LOG", "-m mark --mark 1 -j ACCEPT", "-j user0"]))
    chain = rng.choice(["FORWARD", "list"])
    heads = ":list -\n:user0 -\n:user1 -\n" + (
        "" if chain == "FORWARD" else "-A FORWARD -j list\n-A FORWARD -j LOG\n"
    )
    user = [
        f"-A {name} {rng.choice(['-p udp ', ''])}{rng.choice(['-j DROP', '-j LOG', '-j RETURN', '-j ACCEPT'])}\n"
        for name in ("user0", "user1")
        for _ in range(2)
    ]
    return text(rules, chain, heads).replace("COMMIT", "".join(user) + "COMMIT")

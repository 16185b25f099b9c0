"""Law: after any sequence of applies and rollbacks the kernel treats every packet as the rule set does.

Chains of trees are used again under the names that they have in the kernel, where another chain of the new rule
set may have the same name.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.firewall import Firewall
from support.small_namespace import Namespace

import hitables
from hitables.compare import Result
from hitables.ir.packet import Backend

pytestmark = pytest.mark.needs_kernel


def text_of(rules: list[str]) -> str:
    return "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n" + "".join(rules) + "COMMIT\n"


def edited(rules: list[str], rng: random.Random) -> list[str]:
    """*rules* with one rule less, and one more at another place."""
    rules = list(rules)
    rules.pop(rng.randrange(len(rules)))
    new = f"-A INPUT -s 10.{rng.randrange(16)}.0.0/16 -p tcp -m tcp --dport {rng.randrange(9000)} -j ACCEPT\n"
    rules.insert(
        rng.randrange(len(rules)), rng.choice([new, f"-A INPUT -s 192.0.2.{rng.randrange(99)} -j DROP\n"])
    )
    return rules


@pytest.mark.parametrize("backend", list(Backend), ids=lambda backend: backend.value)
@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_holds_each_rule_set_of_a_sequence(backend: Backend, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    rules = [f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {1000 + n} -j ACCEPT\n" for n in range(12)] + [
        "-A INPUT -j LOG\n"
    ]
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        before = ""
        for _ in range(3):
            text = text_of(rules)
            firewall.apply(firewall.file(text))
            now = firewall.save()
            compared = hitables.check(text, now, backend=backend)
            assert compared.result is Result.EQUAL, compared
            firewall.hitables("status")
            if before and rng.random() < 0.5:
                firewall.hitables("rollback")
                assert hitables.check(before, firewall.save(), backend=backend).result is Result.EQUAL
                firewall.apply(firewall.file(text))
                assert hitables.check(text, firewall.save(), backend=backend).result is Result.EQUAL
            before, rules = text, edited(rules, rng)


@pytest.mark.parametrize("backend", list(Backend), ids=lambda backend: backend.value)
def test_a_tree_that_is_used_again_may_have_the_name_of_a_new_one(backend: Backend, tmp_path: Path) -> None:
    """Seen in a simulated week: the kernel had one of the trees twice, and the other not at all."""
    rules = [f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {1000 + n} -j ACCEPT\n" for n in range(12)] + [
        "-A INPUT -j LOG\n"
    ]
    after = ["-A INPUT -s 192.0.32.66 -j DROP\n", *rules[:2], *rules[3:]]
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(text_of(rules)))
        firewall.apply(firewall.file(text_of(after)))
        assert hitables.check(text_of(after), firewall.save(), backend=backend).result is Result.EQUAL
        firewall.hitables("rollback")
        assert hitables.check(text_of(rules), firewall.save(), backend=backend).result is Result.EQUAL


@pytest.mark.parametrize("seed", [3, 18])
def test_a_rollback_counts_a_rule_once_whose_copies_are_in_chains_old_and_new(
    seed: int, tmp_path: Path
) -> None:
    """A copy in a chain that does not change goes on counting; the staged one begins at zero."""
    rng = random.Random(seed)
    rules = []
    for number in range(16):
        words = [
            rng.choice(["", f" -s 10.{rng.randrange(4)}.0.0/16", f" -s 10.0.0.{rng.randrange(9)}/32"]),
            rng.choice(
                [
                    f" -d 10.{rng.randrange(4)}.0.0/16",
                    f" -d 10.1.0.{rng.randrange(9)}/32",
                    " -d 10.0.0.0/8",
                    "",
                ]
            ),
            rng.choice([" -p udp", " -p tcp", ""]),
        ]
        target = rng.choice(["ACCEPT", "DROP", f'LOG --log-prefix "r{number}"', "DROP"])
        rules.append(f"-A FORWARD{''.join(words)} -m comment --comment r{number} -j {target}\n")
    head = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
    counted = "".join(f"[{at + 3}:{60 * (at + 3)}] {rule}" for at, rule in enumerate(rules))
    more = [*rules[:4], "-A FORWARD -s 10.2.0.0/12 -p udp -m udp --dport 7 -j DROP\n", *rules[4:]]
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.load(f"{head}{counted}COMMIT\n")
        firewall.apply(firewall.file(f"{head}{''.join(rules)}COMMIT\n"))
        before = firewall.hitables("counters").stdout
        firewall.apply(firewall.file(f"{head}{''.join(more)}COMMIT\n"))
        firewall.hitables("rollback")
        assert firewall.hitables("counters").stdout == before

"""How the budget of printed rules (--max-expansion) is spent, on lists whose rules cross much."""

from __future__ import annotations

import random

import pytest

from hitables import compile_unproved
from hitables.compiler.result import ChainReport


def crossing(count: int, seed: int) -> str:
    """Rules that are open in one address in four, over sixty networks, of one protocol."""
    rng = random.Random(seed)

    def network() -> str:
        drawn, network = rng.random(), f"10.{rng.randrange(60)}"
        if drawn < 0.25:
            return ""
        return f"{network}.0.0/16" if drawn < 0.5 else f"{network}.{rng.randrange(256)}.0/24"

    rules = []
    for _ in range(count):
        addresses = [f"{option} {drawn}" for option in ("-s", "-d") if (drawn := network())]
        port = rng.choice(["22", "80", "443", "1024:65535"])
        rules.append(f"{' '.join(addresses)} -p tcp -m tcp --dport {port}")
    return table(rules, rng)


def with_ports_of_two_protocols(count: int, seed: int) -> str:
    """IPv6 rules over twelve networks; some test ports, for which trees need guards that they do not count."""
    rng = random.Random(seed)
    networks = [f"2001:db8:{rng.randrange(65536):x}" for _ in range(12)]

    def network() -> str:
        drawn, network = rng.random(), rng.choice(networks)
        if drawn < 0.2:
            return ""
        if drawn < 0.45:
            return f"{network}::/48"
        within = f"{network}:{rng.randrange(16):x}"
        return f"{within}::/64" if drawn < 0.8 else f"{within}::{rng.randrange(64):x}/128"

    rules = []
    for _ in range(count):
        words = [f"{option} {drawn}" for option in ("-s", "-d") if (drawn := network())]
        protocol = rng.random()
        if protocol < 0.6:
            words.append(f"-p tcp -m tcp --dport {rng.choice(['22', '80', '443', '1024:65535'])}")
        elif protocol < 0.8:
            words.append(f"-p udp -m udp --dport {rng.choice(['53', '123'])}")
        rules.append(" ".join(words))
    return table(rules, rng)


def table(rules: list[str], rng: random.Random) -> str:
    lines = "".join(f"-A FORWARD {rule} -j {rng.choice(['ACCEPT', 'DROP'])}\n" for rule in rules)
    return f"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n{lines}COMMIT\n"


def compiled(text: str, backend: str, expansion: float = 4) -> ChainReport:
    done = compile_unproved(text, backend=backend, max_expansion=expansion)
    return next(report for report in done.reports if report.chain == "FORWARD")


@pytest.mark.parametrize("seed", [1, 3])
def test_rules_that_the_budget_leaves_are_spent_on_time(seed: int) -> None:
    small, usual = (compiled(crossing(600, seed), "nft", expansion) for expansion in (3, 4))
    assert not small.why and usual.after > 1.2 * small.after
    assert usual.ns_after["nft"] < 0.9 * small.ns_after["nft"]


@pytest.mark.parametrize("seed", range(3))
def test_the_tree_for_nft_costs_nft_no_more_than_the_tree_for_both_backends(seed: int) -> None:
    text = crossing(600, seed)
    for_nft, for_any = compiled(text, "nft"), compiled(text, "any")
    assert not for_nft.why and for_nft.ns_after["nft"] <= 1.03 * for_any.ns_after["nft"]


@pytest.mark.parametrize(("seed", "expansion"), [(37, 2.0), (18, 1.6)])
def test_a_tree_that_prints_more_than_it_counts_is_grown_again_until_it_fits(
    seed: int, expansion: float
) -> None:
    report = compiled(with_ports_of_two_protocols(60 + seed, seed), "nft", expansion)
    assert not report.why and report.after <= expansion * report.before

"""Laws by which lists of shape groups prove programs that do less than they might, and what the laws refuse.

A version may drop malformed packets that a larger one passes; a form need not list a rule whose packets other
listed rules decide.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from support.by_lists import proved_by_lists
from support.grouped_programs import EFFECT_SLIPS, EFFECTS, LOGS, PLAIN, Grouping, list_program, make_list

pytestmark = pytest.mark.engine
# Pairs of programs to try, from REGROUP_SEED on; set REGROUP_PAIRS for a longer campaign.
PAIRS = int(os.environ.get("REGROUP_PAIRS", "60"))
SEED = int(os.environ.get("REGROUP_SEED", "0"))


@pytest.mark.parametrize("targets", [PLAIN, EFFECTS], ids=["verdicts", "effects"])
def test_lists_prove_versions_that_test_ports_first(
    targets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    proved = tried = 0
    for seed in range(SEED, SEED + PAIRS // 2):
        rng = random.Random(f"ports first {seed}")
        rules = make_list(rng, rng.randrange(6, 14), targets)
        grouped = Grouping(rules, rng, late=seed % 2 == 0, branches=True).write()
        assert grouped.may_replace(list_program(rules)), grouped.text()
        tried += 1
        proved += proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch) is True
    assert proved > 0.8 * tried


def test_lists_prove_no_slip_where_versions_test_ports_first(monkeypatch: pytest.MonkeyPatch) -> None:
    differ = read = 0
    for seed in range(SEED, SEED + PAIRS):
        rng = random.Random(f"slip behind ports {seed}")
        rules = make_list(rng, rng.randrange(6, 14), rng.choice((PLAIN, EFFECTS)))
        slip, late = EFFECT_SLIPS[seed % len(EFFECT_SLIPS)], rng.random() < 0.5
        grouped = Grouping(rules, rng, slip, late, branches=True).write()
        answer = proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch)
        read += answer is not None
        if not grouped.may_replace(list_program(rules)):
            differ += 1
            assert not answer, grouped.text()
    assert differ > 0.08 * PAIRS
    assert read > 0.7 * PAIRS


def test_lists_prove_forms_without_rules_that_listed_ones_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = tried = 0
    for seed in range(SEED, SEED + PAIRS // 2):
        rng = random.Random(f"pruned {seed}")
        rules = make_list(rng, rng.randrange(8, 14))
        grouped = Grouping(rules, rng, pruned=True).write()
        assert grouped.may_replace(list_program(rules)), grouped.text()
        tried += 1
        proved += proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch) is True
    assert proved > 0.7 * tried


def test_lists_prove_no_form_without_a_rule_that_decides_first(monkeypatch: pytest.MonkeyPatch) -> None:
    differ = read = 0
    for seed in range(SEED, SEED + 2 * PAIRS):
        rng = random.Random(f"slip in a pruned form {seed}")
        rules = make_list(rng, rng.randrange(8, 14))
        slip = rng.choice(("pruned", "pruned", "listed", "order", "verdict"))
        grouped = Grouping(rules, rng, slip, pruned=True).write()
        answer = proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch)
        read += answer is not None
        if not grouped.may_replace(list_program(rules)):
            differ += 1
            assert not answer, grouped.text()
    assert differ > 0.1 * PAIRS
    assert read > PAIRS


BEFORE = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A FORWARD -d 10.0.0.2/32 -j DROP
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A FORWARD -d 10.0.0.4/32 -j REJECT
COMMIT
"""
AFTER = """\
*filter
:FORWARD DROP [0:0]
:t1 - [0:0]
:v1 - [0:0]
:v3 - [0:0]
:web - [0:0]
-A FORWARD -j t1
-A FORWARD -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A t1 -d 10.0.0.2/32 -j v1
-A t1 -d 10.0.0.2/32 -j DROP
-A t1 -d 10.0.0.4/32 -j v3
-A t1 -d 10.0.0.4/32 -j REJECT
-A v1 -p tcp -m tcp --dport 80 -g web
-A web -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A v3 -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A v3 -s 10.0.0.3/32 -j ACCEPT
COMMIT
"""


def test_a_version_may_drop_malformed_packets_that_a_larger_one_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert proved_by_lists(BEFORE, AFTER, monkeypatch) is True
    unlike = AFTER.replace("-A v3 -s 10.0.0.3/32 -j ACCEPT", "-A v3 -s 10.0.0.3/32 -j DROP")
    assert proved_by_lists(BEFORE, unlike, monkeypatch) is not True


STAYS = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -p icmp -j LOG
-A FORWARD -d 10.0.0.2/32 -j DROP
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
-A FORWARD -p udp -j REJECT
COMMIT
"""
LOGS_TWICE = """\
*filter
:FORWARD ACCEPT [0:0]
:t0 - [0:0]
:t1 - [0:0]
:v2 - [0:0]
:v1 - [0:0]
-A FORWARD -j t0
-A FORWARD -j t1
-A FORWARD -p icmp -j LOG
-A FORWARD -p udp -j REJECT
-A t0 -s 10.0.0.1/32 -j v2
-A t0 -s 10.0.0.1/32 -j ACCEPT
-A t1 -d 10.0.0.2/32 -j v1
-A t1 -d 10.0.0.2/32 -j DROP
-A v2 -j v1
-A v2 -d 10.0.0.2/32 -j v1
-A v2 -d 10.0.0.2/32 -j DROP
-A v1 -p icmp -j LOG
COMMIT
"""
LOGS_ONCE = LOGS_TWICE.replace(":v1", ":w - [0:0]\n:v1").replace(
    """\
-A v2 -j v1
-A v2 -d 10.0.0.2/32 -j v1
-A v2 -d 10.0.0.2/32 -j DROP
""",
    """\
-A v2 -j w
-A v2 -p icmp -j LOG
-A w -d 10.0.0.2/32 -j v1
-A w -d 10.0.0.2/32 -j DROP
""",
)


def test_no_version_reads_rules_that_stay_before_a_form_searches_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A packet from 10.0.0.1 to 10.0.0.2 would be logged twice, though each list is equal to its tree."""
    assert not proved_by_lists(STAYS, LOGS_TWICE, monkeypatch)
    assert proved_by_lists(STAYS, LOGS_ONCE, monkeypatch) is True


def test_no_version_that_reads_rules_that_stay_early_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    differ = 0
    for seed in range(SEED, SEED + PAIRS):
        rng = random.Random(f"early {seed}")
        deciders = [each for each in make_list(rng, 10) if each.matches.src or each.matches.dst]
        rules = [replace(rng.choice(deciders), to=rng.choice(LOGS)), *deciders]
        grouped = Grouping(rules, rng, "early", late=True).write()
        if not grouped.may_replace(list_program(rules)):
            differ += 1
            assert not proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch), (
                grouped.text()
            )
    assert differ > 0.05 * PAIRS


@pytest.mark.parametrize(
    "match", ["limit --limit 1/sec", "hashlimit --hashlimit-above 5/min --hashlimit-name a"]
)
def test_a_version_may_be_one_rule_with_a_memory_that_rules_share(
    match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory that has a name may be asked in many rules; one of the rule itself is kept in one chain."""
    before, after = (
        text.replace("-p icmp -j LOG", f"-p icmp -m {match} -j DROP") for text in (STAYS, LOGS_ONCE)
    )
    assert (proved_by_lists(before, after, monkeypatch) is True) == match.startswith("hashlimit")


DEAD = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -s 10.0.0.0/25 -j ACCEPT
-A FORWARD -s 10.0.0.128/25 -j REJECT
-A FORWARD -s 10.0.0.0/24 -j DROP
-A FORWARD -d 10.0.0.2/32 -j DROP
-A FORWARD -p udp -j DROP
COMMIT
"""
DEAD_IN_A_VERSION = """\
*filter
:FORWARD ACCEPT [0:0]
:t0 - [0:0]
:t1 - [0:0]
:v - [0:0]
-A FORWARD -j t0
-A FORWARD -j t1
-A FORWARD -p udp -j DROP
-A t0 -d 10.0.0.2/32 -j v
-A t0 -d 10.0.0.2/32 -j DROP
-A t1 -s 10.0.0.0/25 -j ACCEPT
-A t1 -s 10.0.0.128/25 -j REJECT
-A v -s 10.0.0.0/25 -j ACCEPT
-A v -s 10.0.0.128/25 -j REJECT
-A v -s 10.0.0.0/24 -j DROP
COMMIT
"""


def test_a_rule_that_two_rules_cover_may_be_printed_in_a_version_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert proved_by_lists(DEAD, DEAD_IN_A_VERSION, monkeypatch) is True
    alive = DEAD_IN_A_VERSION.replace("-A v -s 10.0.0.128/25 -j REJECT\n", "")
    assert not proved_by_lists(DEAD, alive, monkeypatch)


@pytest.mark.parametrize(
    "memory", ["limit --limit 5/min", "hashlimit --hashlimit-above 5/min --hashlimit-name b"]
)
def test_a_rule_with_a_memory_may_be_dead(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that were pasted together log behind a rule that drops all packets."""
    log = f"-A FORWARD -m {memory} -j LOG\nCOMMIT"
    before = STAYS.replace("-p udp -j REJECT", "-j DROP").replace("COMMIT", log)
    in_tree = "-A t1 -d 10.0.0.2/32 -j DROP\n"
    after = LOGS_ONCE.replace("-A FORWARD -p udp -j REJECT\n", "").replace(
        in_tree, f"{in_tree}-A t1 -j v1\n-A t1 -j DROP\n"
    )
    assert proved_by_lists(before, after, monkeypatch) is True
    alive = before.replace("-A FORWARD -j DROP", "-A FORWARD -p tcp -j DROP")
    lacks = after.replace("-A t1 -j", "-A t1 -p tcp -j")
    assert not proved_by_lists(alive, lacks, monkeypatch)


def test_a_version_drops_the_malformed_packets_that_its_list_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bytes of layer 4 are enough for `-m multiport`, and not for `-m tcp`, which drops the packet."""
    passes = AFTER.replace(
        "-A v3 -s 10.0.0.1/32 -p tcp -m tcp --dport 80",
        "-A v3 -s 10.0.0.1/32 -p tcp -m multiport --dports 80",
    )
    assert passes != AFTER
    assert not proved_by_lists(BEFORE, passes, monkeypatch)

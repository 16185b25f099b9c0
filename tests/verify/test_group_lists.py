"""Lists of shape groups prove equal programs, and never programs that differ."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.by_lists import crossing_rules, proved_by_lists
from support.grouped_programs import EFFECT_SLIPS, EFFECTS, SLIPS, Grouping, list_program, make_list

import hitables
from hitables.build.grow import grow
from hitables.cli.main import main
from hitables.compiler import run_trees
from hitables.compiler.compile import compile_rules
from hitables.generate import rules as generated
from hitables.generate import seed as seeds
from hitables.parse import classbench
from hitables.verify import bdd, exact, group_lists
from hitables.verify.group_reader import NotGrouped
from hitables.verify.question import Answer, Difference, Equal, Question

pytestmark = pytest.mark.engine
# Pairs of programs to try, from REGROUP_SEED on; set REGROUP_PAIRS for a longer campaign.
PAIRS = int(os.environ.get("REGROUP_PAIRS", "100"))
SEED = int(os.environ.get("REGROUP_SEED", "0"))
QUESTION = Question()
SEEDS = Path(__file__).parents[2] / "rulesets/seeds"


def check_both(before: str, after: str) -> Answer:
    return exact.check(hitables.read(before), hitables.read(after), QUESTION)


def test_lists_prove_programs_written_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = tried = 0
    for seed in range(SEED, SEED + PAIRS // 3):
        rng = random.Random(seed)
        rules = make_list(rng, rng.randrange(3, 14))
        grouped = Grouping(rules, rng).write()
        assert np.array_equal(list_program(rules).outcomes(), grouped.outcomes())
        tried += 1
        proved += proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch) is True
    assert proved > 0.4 * tried


def with_hot_rule(before: str, after: str, verdict: str | None = None) -> str:
    """*after* with a part of the first listed rule in front of its groups, perhaps with another verdict."""
    first = next(line for line in before.split("\n") if line.startswith("-A FORWARD "))
    rule = first.replace("-A FORWARD ", "-A FORWARD -i eth9 ")
    if verdict is not None:
        rule = f"{rule.split(' -j ')[0]} -j {verdict}"
    head, behind = after.split("-A FORWARD ", 1)
    return f"{head}{rule}\n-A FORWARD {behind}"


def test_lists_prove_groups_behind_hot_rules_and_no_wrong_hot_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = proved = 0
    for seed in range(SEED, SEED + PAIRS // 5):
        rng = random.Random(seed)
        rules = make_list(rng, rng.randrange(3, 14))
        before, after = list_program(rules).text(), Grouping(rules, rng).write().text()
        if not proved_by_lists(before, after, monkeypatch):
            continue
        tried += 1
        proved += proved_by_lists(before, with_hot_rule(before, after), monkeypatch) is True
        first = next(line for line in before.split("\n") if line.startswith("-A FORWARD "))
        other = "DROP" if "-j ACCEPT" in first else "ACCEPT"
        assert not proved_by_lists(before, with_hot_rule(before, after, other), monkeypatch)
    assert tried > PAIRS // 20 and proved > 0.7 * tried


def test_lists_prove_no_slip(monkeypatch: pytest.MonkeyPatch) -> None:
    differ = read = 0
    for seed in range(SEED, SEED + PAIRS):
        rng = random.Random(f"slip {seed}")
        rules = make_list(rng, rng.randrange(3, 14))
        grouped = Grouping(rules, rng, SLIPS[seed % len(SLIPS)]).write()
        answer = proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch)
        read += answer is not None
        if not np.array_equal(list_program(rules).outcomes(), grouped.outcomes()):
            differ += 1
            assert not answer, grouped.text()
    assert differ > 0.2 * PAIRS
    assert read > 0.3 * PAIRS


def test_lists_prove_effects_memory_and_jumps_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = tried = 0
    for seed in range(SEED, SEED + PAIRS // 2):
        rng = random.Random(f"effects {seed}")
        rules = make_list(rng, rng.randrange(3, 14), EFFECTS)
        grouped = Grouping(rules, rng, late=seed % 2 == 0).write()
        assert np.array_equal(list_program(rules).outcomes(), grouped.outcomes()), grouped.text()
        tried += 1
        proved += proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch) is True
    assert proved > 0.4 * tried


def test_lists_prove_no_slip_with_effects_memory_and_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    differ = read = 0
    for seed in range(SEED, SEED + 2 * PAIRS):
        rng = random.Random(f"slip with effects {seed}")
        rules = make_list(rng, rng.randrange(3, 14), EFFECTS)
        slip, late = EFFECT_SLIPS[seed % len(EFFECT_SLIPS)], rng.random() < 0.5
        grouped = Grouping(rules, rng, slip, late).write()
        answer = proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch)
        read += answer is not None
        if not np.array_equal(list_program(rules).outcomes(), grouped.outcomes()):
            differ += 1
            assert not answer, grouped.text()
    assert differ > 0.15 * 2 * PAIRS
    assert read > 0.8 * 2 * PAIRS


@pytest.mark.parametrize("slip", ["again", "wider", "moved"])
def test_no_rule_that_stays_is_searched_twice_or_too_early(
    slip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    differ = 0
    for seed in range(SEED, SEED + (PAIRS if slip == "wider" else PAIRS // 2)):
        rng = random.Random(f"{slip} {seed}")
        rules = make_list(rng, rng.randrange(6, 16), EFFECTS)
        grouped = Grouping(rules, rng, slip, late=True).write()
        if not np.array_equal(list_program(rules).outcomes(), grouped.outcomes()):
            differ += 1
            answer = proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch)
            assert not answer, grouped.text()
    assert differ > 0


def test_the_checker_agrees_with_diagrams_about_groups() -> None:
    pytest.importorskip("oxidd")
    answers = set()
    for seed in range(SEED, SEED + PAIRS // 5):
        rng = random.Random(f"diagrams {seed}")
        rules = make_list(rng, rng.randrange(3, 12))
        grouped = Grouping(rules, rng, rng.choice(("", *SLIPS))).write()
        pair = hitables.read(list_program(rules).text()), hitables.read(grouped.text())
        one, two = (engine.check(*pair, QUESTION) for engine in (exact, bdd))
        assert type(one) is type(two), grouped.text()
        answers.add(type(one))
    assert answers == {Equal, Difference}


BEFORE = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
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
-A FORWARD -j t1
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A t1 -d 10.0.0.2/32 -j v1
-A t1 -d 10.0.0.2/32 -j DROP
-A t1 -d 10.0.0.4/32 -j v3
-A t1 -d 10.0.0.4/32 -j REJECT
-A v1 -s 10.0.0.1/32 -j ACCEPT
-A v3 -s 10.0.0.1/32 -j ACCEPT
-A v3 -s 10.0.0.3/32 -j ACCEPT
COMMIT
"""


def test_a_version_has_the_rules_before_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proved_by_lists(BEFORE, AFTER, monkeypatch) is True
    asks_too_little = AFTER.replace("-d 10.0.0.4/32 -j v3", "-d 10.0.0.4/32 -j v1")
    assert proved_by_lists(BEFORE, asks_too_little, monkeypatch) is False
    asks_too_much = AFTER.replace("-d 10.0.0.2/32 -j v1", "-d 10.0.0.2/32 -j v3")
    assert not proved_by_lists(BEFORE, asks_too_much, monkeypatch)
    not_asked = AFTER.replace("-A t1 -d 10.0.0.2/32 -j v1\n", "")
    assert proved_by_lists(BEFORE, not_asked, monkeypatch) is False


def test_rules_with_the_same_verdict_may_be_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (text.replace("DROP\n", "ACCEPT\n") for text in (BEFORE, AFTER))
    assert proved_by_lists(before, after.replace("-A t1 -d 10.0.0.2/32 -j v1\n", ""), monkeypatch) is True


def test_a_memory_is_not_asked_in_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (text.replace("3/32 -j", "3/32 -m limit --limit 1/sec -j") for text in (BEFORE, AFTER))
    assert proved_by_lists(before, after, monkeypatch) is False


IN_LINE = """\
*filter
:FORWARD DROP [0:0]
:rest - [0:0]
:v1 - [0:0]
:kept - [0:0]
-A FORWARD -d 10.0.0.2/32 -j v1
-A FORWARD -d 10.0.0.2/32 -j kept
-A FORWARD -g rest
-A rest -s 10.0.0.1/32 -j ACCEPT
-A rest -s 10.0.0.3/32 -j ACCEPT
-A v1 -s 10.0.0.1/32 -j ACCEPT
-A kept -d 10.0.0.2/32 -m limit --limit 1/sec -j DROP
COMMIT
"""
LIMITED = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
-A FORWARD -d 10.0.0.2/32 -m limit --limit 1/sec -j DROP
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
COMMIT
"""


def test_a_memory_stays_one_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proved_by_lists(LIMITED, IN_LINE, monkeypatch) is True
    twice = IN_LINE.replace(
        "-A FORWARD -d 10.0.0.2/32 -j kept\n",
        "-A FORWARD -d 10.0.0.2/32 -p tcp -j kept\n-A FORWARD ! -p tcp -d 10.0.0.2/32 -j kept2\n",
    ).replace(":kept -", ":kept2 - [0:0]\n:kept -")
    twice = twice.replace("COMMIT", "-A kept2 -d 10.0.0.2/32 -m limit --limit 1/sec -j DROP\nCOMMIT")
    assert not proved_by_lists(LIMITED, twice, monkeypatch)


STAYING = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -m limit --limit 1/sec -j LOG
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
-A FORWARD -d 10.0.0.2/32 -j DROP
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A FORWARD -d 10.0.0.4/32 -j REJECT
COMMIT
"""
STAYING_IN_VERSIONS = """\
*filter
:FORWARD DROP [0:0]
:t1 - [0:0]
:v2 - [0:0]
:v3 - [0:0]
:tcp3 - [0:0]
:kept - [0:0]
-A FORWARD -j t1
-A FORWARD -j kept
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A t1 -d 10.0.0.2/32 -j v2
-A t1 -d 10.0.0.2/32 -j DROP
-A t1 -d 10.0.0.4/32 -j v3
-A t1 -d 10.0.0.4/32 -j REJECT
-A v2 -j kept
-A v2 -s 10.0.0.1/32 -j ACCEPT
-A v3 -p tcp -g tcp3
-A v3 -j kept
-A v3 -s 10.0.0.1/32 -j ACCEPT
-A v3 -s 10.0.0.3/32 -j ACCEPT
-A tcp3 -j kept
-A tcp3 -s 10.0.0.1/32 -j ACCEPT
-A tcp3 -s 10.0.0.3/32 -j ACCEPT
-A kept -m limit --limit 1/sec -j LOG
COMMIT
"""


def test_versions_ask_one_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of v3 begins with the rules of v2, so both lists may come to the one rule of `kept`."""
    assert proved_by_lists(STAYING, STAYING_IN_VERSIONS, monkeypatch) is True
    two = STAYING_IN_VERSIONS.replace(":kept -", ":own - [0:0]\n:kept -")
    two = two.replace("-A tcp3 -j kept", "-A tcp3 -j own")
    two = two.replace("COMMIT", "-A own -m limit --limit 1/sec -j LOG\nCOMMIT")
    assert not proved_by_lists(STAYING, two, monkeypatch)
    assert isinstance(check_both(STAYING, two), Difference)


GUARD = "-A FORWARD -p tcp -m tcp -m multiport ! --ports 0:65535\n"
PORTS = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
-A FORWARD -d 10.0.0.2/32 -p tcp -m multiport --dports 22,80 -j DROP
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A FORWARD -d 10.0.0.4/32 -p tcp -m multiport --dports 22,443 -j REJECT
COMMIT
"""
PORTS_BEHIND_GUARD = f"""\
*filter
:FORWARD DROP [0:0]
:t1 - [0:0]
:v1 - [0:0]
:v3 - [0:0]
:low - [0:0]
{GUARD}-A FORWARD -j t1
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A t1 -p tcp -m tcp --dport 0:1023 -g low
-A low -d 10.0.0.2/32 -p tcp -m multiport --dports 22,80 -j v1
-A low -d 10.0.0.2/32 -p tcp -m multiport --dports 22,80 -j DROP
-A low -d 10.0.0.4/32 -p tcp -m multiport --dports 22,443 -j v3
-A low -d 10.0.0.4/32 -p tcp -m multiport --dports 22,443 -j REJECT
-A v1 -s 10.0.0.1/32 -j ACCEPT
-A v3 -s 10.0.0.1/32 -j ACCEPT
-A v3 -s 10.0.0.3/32 -j ACCEPT
COMMIT
"""


def test_trees_behind_a_drop_of_malformed_packets_need_not_drop_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """nf_tables tests the port without a look at the packet's length; the list's multiport drops it."""
    assert proved_by_lists(PORTS, PORTS_BEHIND_GUARD, monkeypatch) is True
    unguarded = PORTS_BEHIND_GUARD.replace(GUARD, "")
    assert not proved_by_lists(PORTS, unguarded, monkeypatch)
    assert isinstance(check_both(PORTS, unguarded), Difference)


def test_a_memory_is_one_memory_for_all_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    """Malformed packets of tcp are compared without lists, the others by lists."""
    limit = "-m limit --limit 1/sec -j LOG\n"
    before = PORTS.replace("-A FORWARD -s 10.0.0.1/32", f"-A FORWARD {limit}-A FORWARD -s 10.0.0.1/32")
    one = PORTS_BEHIND_GUARD.replace(GUARD, f"-A FORWARD {limit}{GUARD}")
    assert proved_by_lists(before, one, monkeypatch) is True
    two = one.replace(f"-A FORWARD {limit}", "-A FORWARD -p tcp -j own\n-A FORWARD ! -p tcp -j kept\n")
    two = two.replace(":low -", ":own - [0:0]\n:kept - [0:0]\n:low -")
    two = two.replace("COMMIT", f"-A own {limit}-A kept {limit}COMMIT")
    assert not proved_by_lists(before, two, monkeypatch)
    assert isinstance(check_both(before, two), Difference)


def test_a_memory_is_asked_for_the_packets_of_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_first = IN_LINE.replace("-A FORWARD -d 10.0.0.2/32 -j v1\n", "")
    assert not proved_by_lists(LIMITED, asked_first, monkeypatch)
    for_more = IN_LINE.replace("-A FORWARD -d 10.0.0.2/32 -j kept\n", "-A FORWARD -j kept\n")
    for_more = for_more.replace("-A kept -d 10.0.0.2/32 -m limit", "-A kept -m limit")
    assert not proved_by_lists(LIMITED, for_more, monkeypatch)


def with_user_chain(text: str, in_input: str) -> str:
    """The rules, of which one enters a chain with a memory, and INPUT with one more rule."""
    text = text.replace("*filter\n", "*filter\n:INPUT ACCEPT [0:0]\n:user - [0:0]\n")
    text = text.replace("10.0.0.3/32 -j ACCEPT", "10.0.0.3/32 -j user")
    return text.replace("COMMIT", f"-A user -m limit --limit 1/sec -j ACCEPT\n-A INPUT {in_input}\nCOMMIT")


def test_memories_of_two_chains_are_proved_together() -> None:
    """Each chain by itself is equal, but the memory that both enter must not become two."""
    staying = BEFORE.replace("10.0.0.4/32 -j REJECT", "10.0.0.4/32 -j LOG")
    in_groups = """\
*filter
:FORWARD DROP [0:0]
:t1 - [0:0]
:v1 - [0:0]
:v3 - [0:0]
:rest - [0:0]
-A FORWARD -s 10.0.0.3/32 -j v1
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A FORWARD -d 10.0.0.4/32 -j v1
-A FORWARD -d 10.0.0.4/32 -j LOG
-A FORWARD -g rest
-A rest -j t1
-A rest -s 10.0.0.1/32 -j ACCEPT
-A t1 -d 10.0.0.2/32 -j v3
-A t1 -d 10.0.0.2/32 -j DROP
-A v1 -d 10.0.0.2/32 -j v3
-A v1 -d 10.0.0.2/32 -j DROP
-A v3 -s 10.0.0.1/32 -j ACCEPT
COMMIT
"""
    in_groups = in_groups.replace("-A v1 -d 10.0.0.2/32 -j v3", "-A v1 -j v3\n-A v1 -d 10.0.0.2/32 -j v3")
    before = hitables.read(with_user_chain(staying, "-j user"))
    one = hitables.read(with_user_chain(in_groups, "-j user"))
    two = hitables.read(with_user_chain(in_groups, "-m limit --limit 1/sec -j ACCEPT"))
    answer = exact.check(before, one, QUESTION)
    assert isinstance(answer, Equal)
    assert answer.by_regions == ()
    assert isinstance(exact.check(before, two, QUESTION), Difference)


def test_an_answer_names_the_chains_that_were_not_proved_by_their_groups() -> None:
    narrow = "-s 10.0.0.1/32 -d 10.0.0.2/32"
    before, after = (text.replace("-d 10.0.0.2/32", narrow) for text in (BEFORE, AFTER))
    answer = exact.check(hitables.read(before), hitables.read(after), QUESTION)
    assert isinstance(answer, Equal)
    assert answer.by_regions == ()
    asks_too_much = after.replace(f"{narrow} -j v1", f"{narrow} -j v3")
    answer = exact.check(hitables.read(before), hitables.read(asks_too_much), QUESTION)
    assert isinstance(answer, Equal)
    (unread,) = answer.by_regions
    assert (unread.table, unread.chain) == ("filter", "FORWARD")
    assert unread.why == "a rule is called before one that precedes it, or stands in an earlier group"


LISTED = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT
-A FORWARD -s 10.0.0.1/32 -j DROP
-A FORWARD -s 10.0.0.1/32 -j DROP
-A FORWARD -s 10.0.0.1/32 -j REJECT
-A FORWARD -d 10.0.0.2/32 -j ACCEPT
COMMIT
"""
LISTED_FIRST = """\
*filter
:FORWARD DROP [0:0]
:t0 - [0:0]
:t1 - [0:0]
:l0 - [0:0]
:l1 - [0:0]
-A FORWARD -j t0
-A FORWARD -j t1
-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT
-A t0 -d 10.0.0.2/32 -g l0
-A t1 -s 10.0.0.1/32 -g l1
-A l0 -m conntrack --ctstate ESTABLISHED -j ACCEPT
-A l0 -s 10.0.0.1/32 -j DROP
-A l0 -s 10.0.0.1/32 -j DROP
-A l0 -s 10.0.0.1/32 -j REJECT
-A l0 -j ACCEPT
-A l1 -m conntrack --ctstate ESTABLISHED -j ACCEPT
-A l1 -j DROP
COMMIT
"""


def test_a_rule_behind_listed_ones_may_be_listed_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proved_by_lists(LISTED, LISTED_FIRST, monkeypatch) is True
    out_of_order = LISTED_FIRST.replace(
        "-A l0 -s 10.0.0.1/32 -j DROP\n-A l0 -s 10.0.0.1/32 -j DROP\n-A l0 -s 10.0.0.1/32 -j REJECT\n",
        "-A l0 -s 10.0.0.1/32 -j REJECT\n-A l0 -s 10.0.0.1/32 -j DROP\n",
    )
    assert not proved_by_lists(LISTED, out_of_order, monkeypatch)


def test_the_target_behind_listed_rules_may_need_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    reset = "-p tcp -j REJECT --reject-with tcp-reset"
    before = LISTED.replace("-A FORWARD -d 10.0.0.2/32 -j ACCEPT", f"-A FORWARD -d 10.0.0.2/32 {reset}")
    after = LISTED_FIRST.replace("-d 10.0.0.2/32 -g l0", "-d 10.0.0.2/32 -p tcp -g l0")
    after = after.replace("-A l0 -j ACCEPT", f"-A l0 {reset}")
    assert proved_by_lists(before, after, monkeypatch) is True
    assert not proved_by_lists(before, after.replace(f"l0 {reset}", "l0 -p tcp -j REJECT"), monkeypatch)


IN_ITS_GROUP = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -s 10.0.0.1/32 -j DROP
-A FORWARD -s 10.0.0.3/32 -p tcp -j DROP
-A FORWARD -d 10.0.0.2/32 -j ACCEPT
COMMIT
"""
BEHIND_ITS_OWN_TEST = """\
*filter
:FORWARD DROP [0:0]
:t0 - [0:0]
:t1 - [0:0]
:l0 - [0:0]
-A FORWARD -j t0
-A FORWARD -j t1
-A t0 -s 10.0.0.1/32 -j DROP
-A t1 -d 10.0.0.2/32 -g l0
-A t1 -s 10.0.0.3/32 -p tcp -j DROP
-A l0 -s 10.0.0.3/32 -p tcp -j DROP
-A l0 -d 10.0.0.2/32 -j ACCEPT
COMMIT
"""


def test_a_rule_may_stand_last_behind_its_own_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules before it there are of its own group: they are not listed before it."""
    assert proved_by_lists(IN_ITS_GROUP, BEHIND_ITS_OWN_TEST, monkeypatch) is True
    first, last = "-A l0 -s 10.0.0.3/32 -p tcp -j DROP\n", "-A l0 -d 10.0.0.2/32 -j ACCEPT\n"
    out_of_order = BEHIND_ITS_OWN_TEST.replace(first + last, last + first)
    assert not proved_by_lists(IN_ITS_GROUP, out_of_order, monkeypatch)


REPEATED = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -s 10.0.0.1/32 -j DROP
-A FORWARD -d 10.0.0.2/32 -j ACCEPT
-A FORWARD -s 10.0.0.3/32 -j DROP
-A FORWARD -s 10.0.0.1/32 -j DROP
COMMIT
"""
REPEATED_IN_ITS_LEAF = """\
*filter
:FORWARD DROP [0:0]
:t0 - [0:0]
:t1 - [0:0]
:v1 - [0:0]
-A FORWARD -j t0
-A FORWARD -j t1
-A t0 -s 10.0.0.1/32 -j DROP
-A t0 -s 10.0.0.3/32 -j v1
-A t0 -s 10.0.0.3/32 -j DROP
-A t0 -s 10.0.0.1/32 -j v1
-A t0 -s 10.0.0.1/32 -j DROP
-A v1 -d 10.0.0.2/32 -j ACCEPT
-A t1 -d 10.0.0.2/32 -j ACCEPT
COMMIT
"""


def test_a_repeated_rule_may_keep_the_form_of_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proved_by_lists(REPEATED, REPEATED_IN_ITS_LEAF, monkeypatch) is True
    lacks_the_first = REPEATED_IN_ITS_LEAF.replace("-A t0 -s 10.0.0.1/32 -j DROP\n", "", 1)
    assert not proved_by_lists(REPEATED, lacks_the_first, monkeypatch)


def test_a_rule_that_is_never_reached_is_kept_with_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its form decides all packets, so what is printed cannot be compared without it."""
    before = BEFORE.replace("COMMIT", "-A FORWARD -j ACCEPT\n-A FORWARD -j LOG\nCOMMIT")
    after = """\
*filter
:FORWARD DROP [0:0]
:t1 - [0:0]
:v1 - [0:0]
:v3 - [0:0]
:v5 - [0:0]
:rest - [0:0]
-A FORWARD -j v5
-A FORWARD -j LOG
-A FORWARD -g rest
-A v5 -j t1
-A v5 -s 10.0.0.1/32 -j ACCEPT
-A v5 -s 10.0.0.3/32 -j ACCEPT
-A v5 -j ACCEPT
-A rest -j t1
-A rest -s 10.0.0.1/32 -j ACCEPT
-A rest -s 10.0.0.3/32 -j ACCEPT
-A rest -j ACCEPT
"""
    after += AFTER[AFTER.index("-A t1") :]
    assert proved_by_lists(before, after, monkeypatch) is True


DECORATIONS = {
    "effects": "-A FORWARD -s 128.0.0.0/1 -j LOG\n-A FORWARD -s 0.0.0.0/1 -j MARK --set-mark 1",
    "memory": "-A FORWARD -p icmp -m limit --limit 5/sec -j ACCEPT\n"
    "-A FORWARD -p udp -m recent --name a --update --seconds 60 -j DROP",
    "return": "-A FORWARD -s 128.0.0.0/2 -j RETURN",
    "memory that returns": "-A FORWARD -p icmp -m limit --limit 5/sec -j RETURN",
    "chains": "-A FORWARD -s 128.0.0.0/2 -j user\n-A FORWARD -d 128.0.0.0/1 -p tcp -j ends",
}


@pytest.mark.parametrize("kind", DECORATIONS)
def test_lists_prove_what_the_compiler_prints_with(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = crossing_rules(600).splitlines()
    user = [
        "-A user -p udp -j LOG",
        "-A user -d 10.0.0.0/8 -j RETURN",
        "-A user -p icmp -j DROP",
        "-A ends -m limit --limit 5/min -j LOG",
        "-A ends -j DROP",
    ]
    first = next(at for at, line in enumerate(lines) if line.startswith("-A"))
    lines[first + 300 : first + 300] = DECORATIONS[kind].split("\n")
    if kind == "chains":
        lines[-1:-1] = user
        lines[first:first] = [":user - [0:0]", ":ends - [0:0]"]
    before = hitables.read("\n".join(lines) + "\n")
    # In groups, whatever tree is cheaper.
    monkeypatch.setattr(run_trees, "grow", partial(grow, grouping=1))
    after = compile_rules(before).program
    assert proved_by_lists(hitables.write(before), hitables.write(after), monkeypatch)


def test_the_summary_of_compile_names_chains_that_were_not_proved_by_their_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object, **__: object) -> None:
        raise NotGrouped("for this test")

    source = tmp_path / "crossing.rules"
    source.write_text(crossing_rules(600))
    arguments = ["compile", str(source), "-o", str(tmp_path / "out"), "--summary", "--quiet"]
    assert "cutting the header space" not in CliRunner().invoke(main, arguments).stderr
    monkeypatch.setattr(group_lists, "read_printed", unread)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0
    assert "table filter, chain FORWARD: proved by cutting the header space" in done.stderr
    assert "for this test" in done.stderr


def test_lists_prove_what_the_compiler_prints_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the proof would cut regions, which takes twenty times as long on 10,000 rules."""
    drawn = seeds.parse((SEEDS / "fw.seed").read_text(), "fw.seed")
    before = hitables.read(classbench.to_text(generated.rules(drawn, 600)))
    after = compile_rules(before).program
    assert proved_by_lists(hitables.write(before), hitables.write(after), monkeypatch)

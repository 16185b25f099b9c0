"""Lists of shape groups prove equal programs, and never programs that differ."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from support.grouped_programs import EFFECT_SLIPS, EFFECTS, SLIPS, Grouping, list_program, make_list

import hitables
from hitables.compiler.compile import compile_rules
from hitables.core.prover import Status
from hitables.generate import rules as generated
from hitables.generate import seed as seeds
from hitables.parse import classbench
from hitables.verify import bdd, exact, group_lists, merged_classes
from hitables.verify.encoding import Encoding
from hitables.verify.question import Difference, Equal, Question

pytestmark = pytest.mark.engine
# Pairs of programs to try, from REGROUP_SEED on; set REGROUP_PAIRS for a longer campaign.
PAIRS = int(os.environ.get("REGROUP_PAIRS", "150"))
SEED = int(os.environ.get("REGROUP_SEED", "0"))
QUESTION = Question()
SEEDS = Path(__file__).parents[2] / "rulesets/seeds"


def proved_by_lists(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> bool | None:
    """Whether lists of groups alone prove all classes; None: *after* is not read as groups."""
    monkeypatch.setattr(merged_classes.MergedClasses, "_compare_regions", lambda *_: Status.TOO_DEEP)
    one, two = hitables.read(before), hitables.read(after)
    encoding = Encoding((one.table("filter"), two.table("filter")), one.family, QUESTION.backends[0])
    lists = group_lists.group_lists(encoding)
    if lists.chains is None or lists.why:
        return None
    merged = merged_classes.MergedClasses(encoding, QUESTION, None, ["FORWARD"])
    _, proved = merged.proved("FORWARD")
    return all(
        (backend, packets) in proved
        for backend, reading in merged.readings.items()
        for packets in reading.classes()
    )


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
    assert differ > 0.2 * PAIRS
    assert read > 0.3 * PAIRS


@pytest.mark.parametrize("slip", ["again", "wider", "moved"])
def test_no_rule_that_stays_is_searched_twice_or_too_early(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    differ = 0
    for seed in range(SEED, SEED + (PAIRS if slip == "wider" else PAIRS // 3)):
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


def test_lists_prove_what_the_compiler_prints_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the proof would cut regions, which takes twenty times as long on 10,000 rules."""
    drawn = seeds.parse((SEEDS / "fw.seed").read_text(), "fw.seed")
    before = hitables.read(classbench.to_text(generated.rules(drawn, 600)))
    after = compile_rules(before).program
    assert proved_by_lists(hitables.write(before), hitables.write(after), monkeypatch)

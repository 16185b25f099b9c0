"""Mutants: every kind changes something, once; each is caught or proved equal, and a lie is seen."""

from __future__ import annotations

import difflib
import json
import random

import pytest

import hitables
from benchmarks import mutants, prove, public_sets
from benchmarks.doc_tables import DOCS, between
from benchmarks.mutants import Order, count, plan, prepare, try_order
from benchmarks.mutations import MUTATIONS, Sheet, mutate
from hitables.verify.question import Difference, Equal

pytestmark = pytest.mark.usefixtures("small_namespaces")

# Something for each kind to act on; the chains n1, n2 and once look as if they were compiled.
EVERYTHING = """\
*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -p udp -j CT --notrack
-A PREROUTING -s 10.1.0.0/16 -j ACCEPT
-A PREROUTING -m conntrack --ctstate INVALID -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -i eth0 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:8080
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:n1 - [0:0]
:n2 - [0:0]
:once - [0:0]
-A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT
-A INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -m recent --update --seconds 60 --name bad --rsource -j DROP
-A INPUT -p tcp -m tcp --dport 1024:65535 -g n1
-A INPUT -p tcp -j once
-A INPUT -p tcp -m tcp --dport 25 -j REJECT --reject-with tcp-reset
-A INPUT -p udp -j n2
-A n1 -j once
-A n1 -s 10.0.0.0/8 -j RETURN
-A n1 -j LOG --log-prefix "high "
-A n2 -i eth0 -p udp -m udp --dport 53 -j ACCEPT
-A n2 -m statistic --mode random --probability 0.5 -j DROP
-A once -p tcp -m limit --limit 5/min -m tcp --dport 113 -j LOG
COMMIT
"""
# Chance may have it that nothing changes, or that the text cannot be read: seeds until one can.
SEEDS = range(20)


@pytest.fixture(scope="module")
def sheet() -> Sheet:
    return Sheet(EVERYTHING, hitables.read(EVERYTHING))


def made(sheet: Sheet, kind: str) -> list[str]:
    """The mutants of some seeds that can be read."""
    result = []
    for seed in SEEDS:
        text = mutate(sheet, MUTATIONS[kind], random.Random(seed))
        if text is None:
            continue
        try:
            hitables.read(text)
        except hitables.HitablesError:
            continue
        result.append(text)
    return result


@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_mutation_changes_one_thing_and_can_be_read(kind: str, sheet: Sheet) -> None:
    texts = made(sheet, kind)
    assert len(texts) >= len(SEEDS) // 4
    for text in texts:
        changed = [line for line in difflib.ndiff(sheet.lines, text.splitlines()) if line[0] in "+-"]
        assert 1 <= len(changed) <= 2, changed
        again = hitables.read(text)
        assert hitables.write(again) != hitables.write(sheet.program)


@pytest.mark.parametrize("kind", MUTATIONS)
def test_equal_seeds_make_equal_mutants(kind: str, sheet: Sheet) -> None:
    one, two = (mutate(sheet, MUTATIONS[kind], random.Random(7)) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("kind", "rule", "changed"),
    [
        ("jump to goto", "-A INPUT -p udp -j n2", "-A INPUT -p udp -g n2"),
        ("RETURN to ACCEPT", "-A n1 -s 10.0.0.0/8 -j RETURN", "-A n1 -s 10.0.0.0/8 -j ACCEPT"),
        (
            "shared rule with memory copied", "-A n1 -j once",
            "-A n1 -p tcp -m limit --limit 5/min -m tcp --dport 113 -j LOG",
        ),
        (
            "port left out behind a branch", "-A INPUT -p tcp -m tcp --dport 25 -j REJECT --reject-with tcp-reset",
            "-A INPUT -p tcp -m tcp -j REJECT --reject-with tcp-reset",
        ),
        ("DNAT to another address", "10.0.0.1:8080", "10.0.0.2:8080"),
        ("policy", ":INPUT DROP [0:0]", ":INPUT ACCEPT [0:0]"),
        (
            "CT before a state test", "-A PREROUTING -m conntrack --ctstate INVALID -j DROP",
            "-A PREROUTING -j CT --notrack\n-A PREROUTING -m conntrack --ctstate INVALID -j DROP",
        ),
    ],
)  # fmt: skip
def test_some_seed_makes_the_mutant_that_the_name_says(
    kind: str, rule: str, changed: str, sheet: Sheet
) -> None:
    assert EVERYTHING.replace(rule, changed, 1) in made(sheet, kind)


def test_a_state_test_moves_before_what_writes_the_state(sheet: Sheet) -> None:
    for text in made(sheet, "state asked for before it is written"):
        lines = [line for line in text.splitlines() if line.startswith("-A PREROUTING")]
        assert "--ctstate" in lines[0]
        assert "--notrack" in lines[1]


@pytest.mark.parametrize("kind", MUTATIONS)
def test_every_mutant_is_caught_or_proved_equal(kind: str, sheet: Sheet) -> None:
    for seed in (1, 2):
        line = try_order("everything", (sheet, sheet), Order(kind, True, seed, kernel=False))
        assert not line.failure, line.failure
        assert line.answer in ("caught", "proved equal")


@pytest.mark.needs_kernel
@pytest.mark.parametrize("kind", ["policy", "port", "DNAT to another address", "jump to goto"])
def test_the_kernel_confirms_what_is_caught(kind: str, sheet: Sheet) -> None:
    findings = set()
    for seed in range(4):
        line = try_order("everything", (sheet, sheet), Order(kind, False, seed, kernel=True))
        assert not line.failure, line.failure
        findings.add(line.finding)
    assert "confirmed" in findings


def test_a_checker_that_lies_is_a_failure(sheet: Sheet, monkeypatch: pytest.MonkeyPatch) -> None:
    order = Order("policy", False, 1, kernel=False)
    true = try_order("everything", (sheet, sheet), order)
    assert true.answer == "caught"
    monkeypatch.setattr(mutants.exact, "check", lambda *_: Equal(True, 1))
    assert "decision diagrams" in try_order("everything", (sheet, sheet), order).failure
    difference = Difference("filter", "INPUT", "they differ")
    monkeypatch.setattr(mutants.exact, "check", lambda *_: difference)
    assert "does not confirm" in try_order("everything", (sheet, sheet), order).failure
    monkeypatch.setattr(mutants.exact, "check", lambda *_: Equal(False, 1))
    assert "did not decide" in try_order("everything", (sheet, sheet), order).failure


def test_a_plan_is_of_all_kinds_of_both_texts_and_the_same_for_a_seed() -> None:
    bases = [prepare((f"set {number}", EVERYTHING)) for number in range(3)]
    plans = [plan(bases, 200, random.Random(5)) for _ in range(2)]
    assert plans[0] == plans[1]
    orders = [order for mine in plans[0].values() for order in mine]
    assert len(orders) == 200
    assert {order.kind for order in orders} == set(MUTATIONS)
    assert {order.compiled for order in orders} == {False, True}
    assert all(order.compiled for order in orders if MUTATIONS[order.kind].compiled)


def test_mutants_are_not_made_twice(sheet: Sheet) -> None:
    order = Order("jump to goto", False, 3, kernel=False)
    first, digest = mutants.make((sheet, sheet), order, frozenset())
    second, other = mutants.make((sheet, sheet), order, frozenset({digest}))
    assert first is not None
    assert second is None or other != digest


def test_lines_are_counted_by_kind(sheet: Sheet) -> None:
    orders = [Order("policy", False, seed, kernel=False) for seed in range(3)]
    rows = count([try_order("everything", (sheet, sheet), order) for order in orders])
    assert rows["policy"]["mutants"] == rows["policy"]["caught"] + rows["policy"]["proved equal"] == 3
    assert rows["port"]["mutants"] == 0


def test_raw_tables_have_places_for_the_mistakes_they_were_made_for() -> None:
    for name, text in public_sets.raw_tables():
        base = prepare((name, text))
        assert base.places["CT before a state test"][0]
        assert base.places["state asked for before it is written"][1]


@pytest.mark.parametrize("module", [mutants, prove], ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_table_in_the_docs_is_drawn_from_the_figures(module: object) -> None:
    assert module in (mutants, prove)
    bench = mutants if module is mutants else prove
    figures = json.loads(bench.FIGURES.read_text())
    drawn = between(bench.FIGURES.stem).search((DOCS / "proof.md").read_text())
    assert drawn is not None
    assert drawn[0] == bench.table(figures)


def test_a_small_set_is_proved_and_a_bad_one_refused() -> None:
    proof = prove.prove("everything", EVERYTHING)
    assert proof.answer == "equal", proof.text()
    assert proof.peak > 1
    assert prove.prove("bad", "*filter\n-A INPUT -j nowhere\n").answer.startswith("refused")

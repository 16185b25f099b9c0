"""The work of lint and diff grows as the rule set does: the engine counts the rules that it looks at."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hitables
from benchmarks.cliffs_firewalls import FIREWALL_AXES
from benchmarks.cliffs_inputs import AXES
from hitables.core import prover
from hitables.core.prover import PairRun, Prover, ProveStatus
from hitables.ir.fields import Field
from hitables.ir.intervals import Values
from hitables.ir.program import Program
from hitables.verify import exact
from hitables.verify.altered import AlteredTable, RuleAt
from hitables.verify.deadline import Deadline
from hitables.verify.diff import changes
from hitables.verify.encoding import Encoding
from hitables.verify.exact import DifferingRegion, TableProver
from hitables.verify.lint import NEVER, Flaw, OneRemains, _TableLinter
from hitables.verify.packet_classes import PacketClass
from hitables.verify.question import Question
from hitables.verify.reach import reach
from hitables.verify.reachability import Reachability

pytestmark = pytest.mark.engine

MOST = 1.3  # the exponent that four times the size may show


def looked_at_by_lint(program: Program, table: str) -> int:
    return linted(program, table)[0]


def linted(program: Program, table: str) -> tuple[int, list[Flaw]]:
    """How many rules lint looks at, and what it finds."""
    chosen = program.table(table)
    linter = _TableLinter(program, chosen, Reachability(chosen), Question(), Deadline(), OneRemains())
    found = list(linter.flaws(lambda stage: None))
    return sum(each.prover.rules_looked_at for each in linter.altered.provers), found


def looked_at_by_reach(program: Program, asked: dict[Field, Values]) -> int:
    used = []

    class Counted(TableProver):
        def run(
            self, chain: str, packets: PacketClass, limit: int
        ) -> tuple[ProveStatus, list[DifferingRegion]]:
            answer = super().run(chain, packets, limit)
            used.append(self.prover)
            return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exact, "TableProver", Counted)
        question = Question(tables=frozenset({"filter"}), chains=frozenset({"FORWARD"}))
        reach(program, asked, question, lambda stage: None)
    return sum(each.rules_looked_at for each in dict.fromkeys(used))


def test_lint_of_one_long_chain_looks_at_the_rules_that_each_rule_may_meet() -> None:
    few, many = (looked_at_by_lint(hitables.read(AXES["rules"](size)), "filter") for size in (500, 2000))
    assert many < few * 4**MOST


@pytest.mark.parametrize(
    ("axis", "size"), [("interfaces", 200), ("sets", 150), ("decorated", 100), ("guests", 400)]
)
def test_lint_of_a_firewall_looks_at_the_rules_that_each_rule_may_meet(axis: str, size: int) -> None:
    few, many = (
        looked_at_by_lint(hitables.read(FIREWALL_AXES[axis](each)), "filter") for each in (size, 4 * size)
    )
    assert many < few * 4**MOST


def test_lint_tries_packets_before_it_reads_all_rules() -> None:
    """A run for each rule would look at 2,000 rules for each."""
    assert looked_at_by_lint(hitables.read(FIREWALL_AXES["negated"](1600)), "filter") < 200 * 1600


def test_chains_in_which_nothing_happens_are_not_entered() -> None:
    """Else there were a region for each pair of a source and a destination."""
    question = Question(tables=frozenset({"filter"}), chains=frozenset({"FORWARD"}))
    found = reach(hitables.read(FIREWALL_AXES["accounts"](200)), {}, question, lambda stage: None)
    assert found.complete and len(found.outcomes) == 1


def test_reach_cuts_by_no_rule_of_packets_that_were_not_asked_for() -> None:
    """Else it would compare each pair of customers, of which one sends and one receives."""
    asked = {Field.DST: Values.interval(167840007, 167840007)}
    firewalls = (hitables.read(FIREWALL_AXES["customers"](size)) for size in (200, 800))
    few, many = (looked_at_by_reach(firewall, asked) for firewall in firewalls)
    assert many < few * 4**2.2


def test_lint_of_customers_compares_no_pairs_of_them() -> None:
    """A chain whose packets are all accepted, however they go on, tells by itself that its ACCEPT does nothing."""
    few, many = (
        looked_at_by_lint(hitables.read(FIREWALL_AXES["customers"](size)), "filter") for size in (100, 400)
    )
    assert many < few * 4**2


def test_lint_cuts_by_the_rules_that_decide_most() -> None:
    """Else it would go through all rules of single hosts before the two that hide the last rule."""

    def looked_at(size: int) -> int:
        hosts = [
            f"-d 10.1.{at // 256}.{at % 256}/32 -p tcp -m tcp --dport {at + 1} -j DROP" for at in range(size)
        ]
        halves = [f"-s {half}/1 -j DROP" for half in ("0.0.0.0", "128.0.0.0")]
        rules = "".join(f"-A FORWARD {rule}\n" for rule in (*hosts, *halves, "-p tcp -j REJECT"))
        program = hitables.read(f"*filter\n:FORWARD ACCEPT [0:0]\n{rules}COMMIT\n")
        looked_at, found = linted(program, "filter")
        assert [flaw.line for flaw in found if flaw.kind == NEVER] == [size + 5]
        return looked_at

    few, many = looked_at(200), looked_at(800)
    assert many < few * 4**MOST


@pytest.mark.parametrize("jumps", ["-A FORWARD -j user", "-A FORWARD -j outer\n-A outer -j user"])
def test_lint_does_not_read_what_is_in_front_of_a_chain_to_see_what_its_packets_come_to(
    jumps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule in front drops packets, none behind does: so the chain by itself shows which of its rules is needless."""
    front = "".join(f"-A FORWARD -s 10.0.{at // 250}.{at % 250} -j DROP\n" for at in range(300))
    rules = f"{front}{jumps}\n-A user -s 11.0.0.0/8 -j DROP\n-A user -m mark --mark 4 -j ACCEPT\n"
    text = f"*filter\n:FORWARD ACCEPT [0:0]\n:outer -\n:user -\n{rules}-A FORWARD -i eth0 -j ACCEPT\nCOMMIT\n"
    read_whole = list[int]()

    def whole(self: AlteredTable, at: RuleAt, way: Any) -> ProveStatus:
        read_whole.append(at.rule.line)
        return in_whole(self, at, way)

    in_whole = AlteredTable._whole
    monkeypatch.setattr(AlteredTable, "_whole", whole)
    needless = text.splitlines().index("-A user -m mark --mark 4 -j ACCEPT") + 1
    assert needless in {flaw.line for flaw in linted(hitables.read(text), "filter")[1]}
    assert needless not in read_whole


def test_lint_of_rules_that_change_nothing_tries_few_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rules of single ports accept what is accepted anyway: one run for each class shows it."""
    runs = 0
    original = Prover.run

    def counted(self: Prover, run: PairRun, *, strict: bool = False, short: bool = False) -> ProveStatus:
        nonlocal runs
        runs += 1
        return original(self, run, strict=strict, short=short)

    monkeypatch.setattr(Prover, "run", counted)
    assert len(hitables.lint(FIREWALL_AXES["ports"](750)).flaws) > 200
    assert runs < 15 * 750


def test_lint_of_services_looks_at_the_ways_to_each_chain() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "rulesets"))
    import containers

    few, many = (
        looked_at_by_lint(hitables.read(containers.text(Random(2), count)), "nat") for count in (60, 240)
    )
    assert many < few * 4**MOST


def test_lint_finds_the_same_by_the_index_of_a_long_chain_as_in_short_chains() -> None:
    """The rules in one chain have an index; with a rule that ends each run of a hundred in a chain, none has."""
    random = Random(3)
    hosts = [f"10.0.{random.randrange(8)}.{random.randrange(32)}" for _ in range(600)]
    rules = [f"-s {host}/32 -j {random.choice(('ACCEPT', 'DROP'))}" for host in hosts]
    head = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
    long = head + "".join(f"-A INPUT {rule}\n" for rule in rules) + "COMMIT\n"
    parts = range(0, len(rules), 100)
    short = head + "".join(f":c{part} - [0:0]\n" for part in parts)
    short += "".join(f"-A INPUT -j c{part}\n" for part in parts)
    short += "".join(f"-A c{at - at % 100} {rule}\n" for at, rule in enumerate(rules)) + "COMMIT\n"
    found = [
        sorted(text.splitlines()[flaw.line - 1].split(maxsplit=2)[2] for flaw in hitables.lint(text).flaws)
        for text in (long, short)
    ]
    assert found[0] == found[1] and len(found[0]) > 100


@pytest.mark.parametrize("change", ["removed", "added", "replaced", "some removed"])
def test_diff_of_a_changed_list_of_networks_looks_at_each_rule_a_few_times(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists go on alike behind the rules that one of them lacks."""

    def looked_at(size: int) -> int:
        rules = [f"-A INPUT -d 10.{at // 256}.{at % 256}.0/24 -j ACCEPT" for at in range(size)]
        changed = list(rules)
        at = size // 10
        if change in ("removed", "replaced"):
            del changed[at]
        if change in ("added", "replaced"):
            changed.insert(at, "-A INPUT -d 172.16.0.0/12 -j ACCEPT")
        if change == "some removed":
            del changed[at : at + 20], changed[2 * at : 2 * at + 20]
        head, tail = "*filter\n:INPUT DROP [0:0]\n", "\n-A INPUT -p tcp -j REJECT\nCOMMIT\n"
        texts = [head + "\n".join(each) + tail for each in (rules, changed)]
        return looked_at_between(*texts, monkeypatch)

    few, many = looked_at(500), looked_at(2000)
    assert many < few * 4**MOST


def looked_at_by_diff(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """With the last rule of *text* taken away."""
    lines = text.splitlines(keepends=True)
    return looked_at_between(text, "".join([*lines[:-2], lines[-1]]), monkeypatch)


def looked_at_between(text: str, changed: str, monkeypatch: pytest.MonkeyPatch) -> int:
    before, after = hitables.read(text), hitables.read(changed)
    provers: list[Prover] = []
    original = Encoding.prover

    def noted(encoding: Encoding, *given: int | None) -> Prover:
        provers.append(original(encoding, *given))
        return provers[-1]

    with monkeypatch.context() as patched:
        patched.setattr(Encoding, "prover", noted)
        assert changes(before, after, Question(), tell=lambda stage: None).complete
    return sum(each.rules_looked_at for each in provers)


# Without the short run before the long one, and with one that has no time.
@pytest.mark.parametrize(("name", "value"), [("FEW", 0), ("QUICK", 1e-9)])
@pytest.mark.parametrize("axis", ["next", "nesting"])
def test_diff_of_chains_that_enter_one_another_does_not_read_all_behind_each(
    axis: str, name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prover, name, value)
    few, many = (looked_at_by_diff(AXES[axis](size), monkeypatch) for size in (100, 400))
    assert 0 < many < few * 4**1.6  # a proof of each chain with all behind it: 4 ** 2 and more

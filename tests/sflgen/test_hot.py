"""Hot rules of sflgen: the law holds with them through all updates, and an update withdraws those it touches."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import make_updates
from support.hot_rules import skewed_text, take_everything
from support.planned_updates import check, favoured, keys
from support.rule_texts import make_text
from support.scale import examples
from support.sflgen_command import both, forked, sflgen
from support.small_namespace import Namespace

import hitables
from hitables.analyse.weights import Weights, from_counters
from hitables.errors import Unsupported
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.rule import Rule
from hitables.kernel.load_save import load, save
from sflgen.commands import read_commands
from sflgen.edits import Op
from sflgen.hot_rules import hot_unproved
from sflgen.local_proof import holds_locally
from sflgen.planner import Plan, fold_unproved, plan_unproved, start_unproved
from sflgen.proof import plan as proved_plan
from sflgen.region import Region
from sflgen.settings import Settings
from sflgen.state import State
from sflgen.state_text import map_lines, read_map


def hot_rules(state: State) -> list[Rule]:
    return [
        state.loaded.table(table)[chain].rules[entry.row]
        for (table, chain), entry_chain in state.entry_chains.items()
        for entry in entry_chain.entries
        if entry.hot
    ]


def any_weights(rng: random.Random, state: State) -> Weights:
    counts = {
        (table.name, chain.name): tuple(rng.choice([0.0, 1.0, 100.0, 10_000.0]) for _ in chain.rules)
        for table in state.master
        for chain in table.chains
    }
    return Weights("the test", counts)


@settings(max_examples=examples(6))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]),
    delta=st.sampled_from([3, 32]),
)
def test_updates_and_hot_rules_in_any_order_keep_the_law(
    seed: int, family: Family, backend: str, malformed: str, delta: int
) -> None:
    rng = random.Random(seed)
    program = hitables.read(make_text(rng, family, rules=rng.randrange(20, 80), memory=0.1), family=family)
    state = start_unproved(program, Settings(backend, malformed, delta, min_length=3)).after
    with pytest.MonkeyPatch.context() as patch:
        take_everything(patch)
        for _ in range(6):
            if rng.random() < 0.5:
                plan = hot_unproved(state, any_weights(rng, state), rng.choice([0, 3, 8]))
            else:
                _, updates, _ = make_updates(rng, state.master, rng.choice([1, 1, 3]), favoured(state))
                try:
                    plan = plan_unproved(state, updates)
                except Unsupported:
                    continue  # chains would nest too deep
            check(plan)
            state = plan.after
            layouts, entry_chains = read_map(map_lines({}, {}, state), None)
            assert entry_chains == dict(state.entry_chains) and layouts == dict(state.layouts)


def skewed_state(backend: str = "nft") -> State:
    return start_unproved(hitables.read(skewed_text(counters=False)), Settings(backend)).after


def with_hot(state: State, most: int = 8) -> Plan:
    return hot_unproved(state, from_counters(hitables.read(skewed_text())), most)


@settings(max_examples=examples(8))
@given(
    number=st.integers(0, 6),
    subnet=st.integers(0, 60),
    wide=st.sampled_from([16, 24, 32]),
    at=st.integers(1, 402),
)
def test_no_hot_rule_shares_a_packet_with_a_rule_that_was_updated(
    number: int, subnet: int, wide: int, at: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        take_everything(patch)
        before = with_hot(skewed_state()).after
    assert len(hot_rules(before)) == 8
    command = f"-I FORWARD {at} -s 10.{number}.{subnet}.7/{wide} -p tcp -j DROP"
    (edit,) = read_commands(command, before.master)
    plan = proved_plan(before, [edit])
    check(plan)
    assert edit.rule is not None
    region = Region.around(edit.rule, Family.IPV4, (Backend.NFT,))
    kept = hot_rules(plan.after)
    assert not any(region.overlaps(Region.around(rule, Family.IPV4, (Backend.NFT,))) for rule in kept)
    touched = [rule for rule in hot_rules(before) if rule not in kept]
    assert len(kept) + len(touched) == 8
    assert sum(each.op is Op.DELETE for each in plan.edits) >= len(touched)


def test_the_deletion_of_a_rule_withdraws_its_hot_copy_and_a_fold_withdraws_all() -> None:
    before = with_hot(skewed_state()).after
    first = hot_rules(before)[0]
    at = next(
        at
        for at, rule in enumerate(before.master.table("filter")["FORWARD"].rules)
        if rule.line == first.line
    )
    plan = proved_plan(before, read_commands(f"-D FORWARD {at + 1}", before.master))
    check(plan)
    assert first not in hot_rules(plan.after)
    folded = fold_unproved(before)
    check(folded)
    assert not hot_rules(folded.after)


def test_the_same_packets_leave_the_hot_rules_as_they_are_and_none_removes_them() -> None:
    state = with_hot(skewed_state()).after
    assert hot_rules(state) and not with_hot(state).edits
    gone = with_hot(state, 0)
    assert [edit.op for edit in gone.edits] == [Op.DELETE] * len(hot_rules(state))
    assert keys(gone.after.loaded) == keys(skewed_state().loaded)


def test_hot_rules_are_proved_by_their_packets_alone() -> None:
    plan = with_hot(skewed_state())
    assert plan.edits and holds_locally(plan)
    assert holds_locally(with_hot(plan.after, 0))


def test_a_wrong_hot_rule_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    from hitables.compiler import hot

    copy = hot.hot_copy
    monkeypatch.setattr(
        hot, "hot_copy", lambda rule, **how: copy(rule, **how)._replace(matches=rule.matches[:1])
    )
    plan = with_hot(skewed_state())
    assert plan.edits and not holds_locally(plan)


def live(folder: str, backend: str) -> list[str]:
    """Run inside: hot rules by the counters of the kernel, an update of one, hot rules again, none."""
    tool = f"iptables-{backend}"

    def run(*words: str, text: str = "") -> str:
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def front() -> list[str]:
        lines = run(f"{tool}-save", "-c").split("\n")
        forward = [line for line in lines if " -A FORWARD " in line]
        return forward[: next(at for at, line in enumerate(forward) if " -g " in line)]

    def packets() -> int:
        return sum(
            int(line[1:].split(":")[0])
            for line in run(f"{tool}-save", "-c").split("\n")
            if "10.0.1.121/32 -p" in line and "ACCEPT" in line
        )

    command = [forked(), "hot", "--live", "--state", folder]
    none = subprocess.run(command, capture_output=True, text=True, check=False)
    assert none.returncode == 2 and "no rule is hot yet" in none.stderr
    counted = [
        line.replace("[0:0]", "[9000:9000]") if "10.0.1.121/32 -p" in line else line
        for line in run(f"{tool}-save", "-c").split("\n")
    ]
    run(f"{tool}-restore", "--counters", text="\n".join(counted))
    total = packets()
    run(*command)
    listed = [front()]
    assert packets() == total
    run(forked(), "insert", "--live", "--state", folder, "FORWARD", "1", "-s", "10.0.1.0/24", "-j", "DROP")
    listed.append(front())
    run(forked(), "delete", "--live", "--state", folder, "FORWARD", "1")
    run(*command)
    listed.append(front())
    run(*command, "--hot", "0")
    assert packets() == total
    assert not any("10.0.1.121" in line for line in front())
    return ["\n".join(each) for each in listed]


@pytest.mark.needs_kernel
@both
def test_hot_rules_follow_the_counters_of_the_kernel(backend: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(skewed_text(counters=False))
    folder = str(tmp_path / "st")
    done = sflgen("init", str(rules), "--state", folder, "--backend", backend)
    assert done.exit_code == 0, done.stderr
    forked()  # one server for all namespaces
    with Namespace() as namespace:
        load(rules.read_text(), Family.IPV4, Backend(backend), namespace)
        load_patch(namespace, backend, done.stdout)
        first, blocked, again = namespace.call(live, folder, backend)
        assert "10.0.1.121" in first and "10.0.1.121" in again
        assert "10.0.1.121" not in blocked
        assert "COMMIT" in save(Family.IPV4, Backend(backend), namespace)


def load_patch(namespace: Namespace, backend: str, patch: str) -> None:
    namespace.call(_restore, backend, patch)


def _restore(backend: str, patch: str) -> None:
    subprocess.run([f"iptables-{backend}-restore", "--noflush"], input=patch, text=True, check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no packets are known"),
        (["--trace", "a", "--pcap", "b"], "exclude each other"),
        (["--through", "FORWARD"], "give one of them"),
        (["--trace", "missing"], "missing: No such file"),
    ],
)
def test_hot_rules_without_packets_are_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(skewed_text(counters=False))
    folder = str(tmp_path / "st")
    assert sflgen("init", str(rules), "--state", folder).exit_code == 0
    done = sflgen("hot", "--state", folder, *arguments)
    assert done.exit_code == 2 and message in done.stderr and not done.stdout


def test_hot_rules_without_a_tree_are_refused(tmp_path: Path) -> None:
    """No traffic makes a rule hot there, so it is no use to wait for packets."""
    rules = tmp_path / "rules"
    rules.write_text("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.1/32 -j DROP\nCOMMIT\n")
    folder = str(tmp_path / "st")
    assert sflgen("init", str(rules), "--state", folder).exit_code == 0
    done = sflgen("hot", "--state", folder, "--trace", "any")
    assert done.exit_code == 2 and "no chain has a tree" in done.stderr and "wait" not in done.stderr
    assert sflgen("hot", "--state", folder, "--hot", "0").exit_code == 0

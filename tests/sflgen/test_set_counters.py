"""Where a rule reads the counters of ipsets, all matches of ipsets have memory, whichever way rules come in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planned_updates import keys
from support.scale import examples
from support.sflgen_command import sflgen
from support.small_namespace import Namespace

import hitables
from hitables.errors import Unsupported
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Role
from hitables.ir.set_counters import counting, set_of
from hitables.verify import exact
from hitables.verify.question import Equal, Question
from sflgen.commands import read_commands
from sflgen.planner import Plan, fold_unproved, plan_unproved, start_unproved
from sflgen.proof import plan as plan_proved
from sflgen.proof import verify
from sflgen.settings import Settings, Strategy
from sflgen.state import State
from sflgen.store import Store

READER = "-m set --match-set HI dst --packets-gt 100 -j DROP"


def _list(*rules: str, count: int = 40) -> Program:
    plain = (f"-p udp -m udp --dport {number} -j DROP" for number in range(1, count + 1))
    lines = "".join(f"-A OUTPUT {rule}\n" for rule in (*rules, *plain))
    return hitables.read(f"*filter\n:OUTPUT ACCEPT\n{lines}COMMIT\n")


def _of_set(number: int) -> str:
    return f"-p udp -m set --match-set HI dst -m udp --dport {number} -j DROP"


def _roles(program: Program) -> dict[tuple[str, str], list[Role]]:
    """By chain: the roles of its matches of ipsets, in order."""
    return {
        (table.name, chain.name): [
            match.role for rule in chain.rules for match in rule.matches if set_of(match) is not None
        ]
        for table in program
        for chain in table.chains
    }


def _meaning(state: State) -> list[object]:
    programs = state.master, state.loaded
    return [(keys(each), _roles(each), each.counts_sets) for each in programs]


def _planned(state: State, command: str) -> Plan:
    return plan_unproved(state, read_commands(command, state.master))


def test_a_fold_after_updates_in_another_process_keeps_each_test_of_a_set(tmp_path: Path) -> None:
    commands = "\n".join(f"-I OUTPUT 10 {_of_set(number)}" for number in range(41, 61))
    with Store.create(tmp_path / "st", start_unproved(_list(READER), Settings(backend="nft")).after) as store:
        store.commit(_planned(store.state, commands))
        assert isinstance(verify(store.state), Equal)
        updated = _meaning(store.state)
    with Store.open(tmp_path / "st") as store:
        assert _meaning(store.state) == updated
        assert isinstance(verify(store.state), Equal)
        store.commit(fold_unproved(store.state))
        printed = [hitables.read(hitables.write(each)) for each in (store.state.master, store.state.loaded)]
    assert isinstance(exact.check(*printed, Question((Backend.NFT,))), Equal)


@settings(max_examples=examples(12))
@given(seed=st.integers(0, 1 << 32))
def test_a_state_that_is_opened_again_has_the_memory_that_it_had(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("state") / "st"
    initial = rng.choice([(), (READER,), (_of_set(7),), (READER, _of_set(7))])
    Store.create(folder, start_unproved(_list(*initial), Settings(min_length=3, delta=4)).after).close()
    for _ in range(8):
        with Store.open(folder) as store:
            for _ in range(rng.randrange(1, 4)):
                at = rng.choice([1, 1, 2, rng.randint(1, 30)])
                rule = rng.choice([READER, _of_set(rng.randrange(90)), "-p udp -m udp --dport 7 -j ACCEPT"])
                command = rng.choice([f"-I OUTPUT {at} {rule}", f"-A OUTPUT {rule}", f"-D OUTPUT {at}"])
                try:
                    store.commit(_planned(store.state, command))
                except Unsupported:
                    continue
            if rng.random() < 0.3:
                store.commit(fold_unproved(store.state))
            if rng.random() < 0.3:
                store.compact()
            left = _meaning(store.state)
            assert isinstance(verify(store.state), Equal)
        with Store.open(folder) as store:
            assert _meaning(store.state) == left


def test_a_state_whose_last_rule_that_reads_counters_is_gone_says_that_sets_have_memory(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "st"
    with Store.create(
        folder, start_unproved(_list(READER, _of_set(7)), Settings(backend="nft")).after
    ) as store:
        store.compact()
        assert (folder / "state").read_text().startswith("sflgen-state 2\n")
        store.commit(_planned(store.state, "-D OUTPUT 1"))
        store.compact()
        assert store.state.master.counts_sets
    assert "counts_sets yes" in (folder / "state").read_text()
    with Store.open(folder) as store:
        assert store.state.master.counts_sets and store.state.loaded.counts_sets
        # Each test of a set is where the list has it, so a rule may read the counters again.
        plan = plan_proved(store.state, read_commands(f"-A OUTPUT {READER}", store.state.master))
        store.commit(plan)
        assert isinstance(verify(store.state), Equal)


def test_the_first_rule_that_reads_counters_waits_until_no_tree_tests_a_set() -> None:
    rules = [
        f"-s 10.{number}.0.0/16 -p udp -m udp --dport {number % 7 + 1}:{number % 7 + 20} -j DROP"
        for number in range(20)
    ]
    of_set = "-s 10.0.0.0/8 -p udp -m set --match-set HI dst -m udp --dport 3:9 -j DROP"
    state = start_unproved(_list(of_set, *rules, count=0), Settings(backend="nft")).after
    updates = read_commands("-D OUTPUT 1", state.master)
    state = plan_unproved(state, updates, Strategy.OVERLAY).after  # the tree keeps its tests of the set
    assert any(_roles(state.loaded).values()) and not any(_roles(state.master).values())
    reading = f"-A OUTPUT {READER}"
    with pytest.raises(Unsupported, match=r"the trees test ipset HI more often .* \(sflgen fold\)"):
        _planned(state, reading)
    state = fold_unproved(state).after
    assert isinstance(verify(_planned(state, reading).after), Equal)


@pytest.mark.needs_kernel
@pytest.mark.parametrize("reading", list(Family), ids=lambda family: family.name.lower())
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_init_of_a_kernel_finds_the_rules_that_read_counters_in_other_tables(
    tmp_path: Path, backend: str, reading: Family
) -> None:
    rules = tmp_path / "plain.rules"
    rules.write_text(hitables.write(_list(*map(_of_set, range(41, 101)), count=3)))
    with Namespace() as namespace:
        namespace.run(["ipset", "create", "HI", "bitmap:port", "range", "0-99", "counters"])
        namespace.run([f"iptables-{backend}-restore"], rules.read_text())
        reader = f"-A OUTPUT {READER}".split()
        namespace.run([f"{reading.tool}-{backend}", "-w", "-t", "mangle", *reader])
        done = namespace.call(_init, str(rules), str(tmp_path / "st"), backend)
        assert done == (0, ""), done
        loaded = hitables.read(namespace.run([f"iptables-{backend}-save", "-t", "filter"]))
    assert isinstance(
        exact.check(*map(counting, (hitables.read(rules.read_text()), loaded)), Question()), Equal
    )
    with Store.open(tmp_path / "st") as store:
        assert store.state.master.counts_sets and store.state.loaded.counts_sets


def _init(rules: str, folder: str, backend: str) -> tuple[int, str]:
    done = sflgen("init", rules, "--live", "--state", folder, "--backend", backend)
    return done.exit_code, done.stderr if done.exit_code else ""

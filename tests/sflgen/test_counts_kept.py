"""Counts survive what interrupts a patch, and what other programs and hot rules do to the copies that have them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support import command_clients
from support.sflgen_command import both
from support.small_namespace import Namespace

import hitables
from hitables.analyse.weights import Weights
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.namespace import run
from sflgen.commands import read_commands
from sflgen.commit import finish_commit, loader
from sflgen.edits import Op
from sflgen.front_tree import due, plan_front_tree
from sflgen.hot_rules import hot_unproved
from sflgen.kernel import Kernel
from sflgen.planner import Plan, fold_unproved, plan_unproved, start_unproved
from sflgen.repair import find, take, undo, updates_of
from sflgen.restore import Restore
from sflgen.settings import Settings, Strategy
from sflgen.store import Store

pytestmark = pytest.mark.needs_kernel

RULES = "".join(
    f"[{n}:{n}00] -A INPUT -s 10.0.{n}.0/24 -p tcp -m tcp --dport {n} -j DROP\n" for n in range(1, 41)
)
TEXT = f"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{RULES}COMMIT\n"
EVERY = {n: n for n in range(1, 41)}


def restore(backend: Backend, text: str, *options: str) -> None:
    command = [f"iptables-{backend.value}-restore", "-c", *options]
    subprocess.run(command, input=text, text=True, check=True)


class Killed(BaseException):
    """kill -9, between the record of a patch and its load."""


class Host:
    """A rule set with counts in a kernel, compiled, with a state."""

    def __init__(self, backend: str, folder: Path, text: str = TEXT) -> None:
        self.backend, self.folder = Backend(backend), folder
        self.kernel = Kernel(Family.IPV4, Settings(backend=self.backend))
        restore(self.backend, text)
        start = start_unproved(self.kernel.contents(), Settings(backend=self.backend))
        self.store = Store.create(folder, start.before)
        self.first = start

    def commit(self, plan: Plan) -> None:
        self.store.commit(plan, loader(self.kernel, self.store, plan))

    def killed_at(self, plan: Plan) -> None:
        """A process is killed when the journal has *plan* and the kernel does not; the next one finds it."""

        def dies(patch: str) -> None:
            raise Killed

        with pytest.raises(Killed):
            self.store.commit(plan, dies)
        self.store.close()
        self.store = Store.open(self.folder)
        assert self.store.unsettled is not None
        finish_commit(self.store, self.kernel)

    def saved(self) -> str:
        return run([f"iptables-{self.backend.value}-save", "-c"])

    def counts(self) -> dict[int, int]:
        """By port: the packets that its rule has counted, all copies together."""
        sums: dict[int, int] = {}
        for packets, port in re.findall(
            r"^\[(\d+):\d+\] .*--dport (\d+) -j DROP", self.saved(), re.MULTILINE
        ):
            sums[int(port)] = sums.get(int(port), 0) + int(packets)
        return sums

    def count_each(self, rule: str, packets: int) -> int:
        """Let each copy of *rule* have counted *packets*; how many copies there are."""
        rows: dict[str, int] = {}
        lines = []
        for line in self.saved().splitlines():
            _, is_rule, text = line.partition(" -A ")
            chain, _, body = text.partition(" ")
            rows[chain] = rows.get(chain, 0) + bool(is_rule)
            if is_rule and body == rule:
                lines.append(f"-R {chain} {rows[chain]} {body} -c {packets} {packets}\n")
        restore(self.backend, f"*filter\n{''.join(lines)}COMMIT\n", "--noflush")
        return len(lines)

    def counted(self, rule: str) -> int:
        """The packets that the copies of *rule* have counted."""
        lines = [line for line in self.saved().splitlines() if line.endswith(f" {rule}")]
        return sum(int(line[1:].partition(":")[0]) for line in lines)


def updates(host: Host, text: str, strategy: Strategy | None = None) -> Plan:
    state = host.store.state
    return plan_unproved(state, read_commands(text, state.master), strategy)


def interrupted(backend: str, folder: str) -> list[dict[int, int]]:
    host = Host(backend, Path(folder))
    host.killed_at(host.first)
    seen = [host.counts()]
    host.commit(updates(host, "-I INPUT -d 10.0.0.0/8 -p udp -j ACCEPT", Strategy.OVERLAY))
    host.killed_at(fold_unproved(host.store.state))
    seen.append(host.counts())
    host.killed_at(updates(host, "-A INPUT -c 5 300 -s 10.9.0.1 -p tcp -m tcp --dport 99 -j DROP"))
    seen.append(host.counts())
    host.store.close()
    return seen


@both
def test_a_patch_that_a_kill_interrupted_is_completed_with_its_counts(backend: str, tmp_path: Path) -> None:
    command_clients.folder()
    with Namespace() as namespace:
        seen = namespace.call(interrupted, backend, str(tmp_path / "st"))
    assert seen == [EVERY, EVERY, {**EVERY, 99: 5}]


def repaired(backend: str, folder: str) -> list[dict[int, int]]:
    host = Host(backend, Path(folder))
    host.commit(host.first)
    bans = "".join(f"-I INPUT -s 192.0.2.{n} -p tcp -m tcp --dport 99 -j DROP\n" for n in range(40))
    text = f"*filter\n{bans}-A INPUT -c 7 700 -s 192.0.2.99 -p tcp -m tcp --dport 98 -j DROP\nCOMMIT\n"
    restore(host.backend, text, "--noflush")
    foreign = find(host.kernel, host.store.state)
    plan = plan_unproved(host.store.state, updates_of(foreign), Strategy.FOLD)
    assert plan.folds
    take(host.kernel, host.store, foreign, plan)
    seen = [host.counts()]
    restore(host.backend, "*filter\n-I INPUT -s 192.0.2.7 -j ACCEPT\nCOMMIT\n", "--noflush")
    undo(host.kernel, host.store, find(host.kernel, host.store.state))
    host.store.close()
    return [*seen, host.counts()]


@both
def test_a_repair_keeps_the_counts_of_trees_that_it_replaces(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        seen = namespace.call(repaired, backend, str(tmp_path / "st"))
    assert seen == [{**EVERY, 98: 7, 99: 0}] * 2


def with_hot_rules(backend: str, folder: str) -> list[dict[int, int]]:
    host = Host(backend, Path(folder))
    host.commit(host.first)
    counts = (*(0.0 for _ in range(30)), 1e6, *(0.0 for _ in range(9)))
    hot = hot_unproved(host.store.state, Weights("the test", {("filter", "INPUT"): counts}), 2)
    assert hot.hot and hot.edits
    host.commit(hot)
    rules = [line.partition(" -A INPUT ")[2] for line in host.saved().splitlines() if " -A INPUT " in line]
    hot_rows = [at for at, rule in enumerate(rules, 1) if rule.startswith("-s ") and " -j DROP" in rule]
    ports = [int(rules[at - 1].partition("--dport ")[2].split()[0]) for at in hot_rows]
    lines = "".join(f"-R INPUT {at} {rules[at - 1]} -c 1000 9\n" for at in hot_rows)
    restore(host.backend, f"*filter\n{lines}COMMIT\n", "--noflush")
    before = host.counts()
    assert ports and all(before[port] >= 1000 for port in ports)
    plan = updates(host, f"-I INPUT -s 10.0.{ports[0]}.5 -j ACCEPT", Strategy.OVERLAY)
    assert plan.hot
    host.commit(plan)
    host.store.close()
    return [before, host.counts()]


@both
def test_a_hot_rule_that_an_update_withdraws_leaves_its_count(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        before, after = namespace.call(with_hot_rules, backend, str(tmp_path / "st"))
    assert after == before


# In front of the tree the updates below have overlays; the second one leaves out the rules of hosts.
HOSTS = "".join(f"-A INPUT -s 10.1.0.{n}/32 -j ACCEPT\n" for n in range(1, 41))
WIDE = "".join(f"-A INPUT -s 10.1.0.0/24 -j {target}\n" for target in ("LOGGED", "DROP", "ACCEPT"))
OTHERS = "".join(f"-A INPUT -s 10.2.0.{n}/32 -j DROP\n" for n in range(1, 61))
OVERLAID = TEXT.partition("[1:")[0] + f":LOGGED - [0:0]\n{HOSTS}{WIDE}{OTHERS}-A LOGGED -j DROP\nCOMMIT\n"


def with_overlays(backend: str, folder: str) -> tuple[int, int]:
    host = Host(backend, Path(folder), OVERLAID)
    host.commit(host.first)
    host.commit(updates(host, "-D INPUT -s 10.1.0.0/24 -j LOGGED", Strategy.OVERLAY))
    copies = host.count_each("-s 10.1.0.21/32 -j ACCEPT", 50)
    plan = updates(host, "-D INPUT -s 10.1.0.0/24 -j DROP", Strategy.OVERLAY)
    assert any(edit.op is Op.FLUSH for edit in plan.edits) and not plan.folds
    host.commit(plan)
    host.store.close()
    return copies, host.counted("-s 10.1.0.21/32 -j ACCEPT")


@both
def test_a_count_goes_to_the_copy_in_the_tree_where_the_new_overlay_has_none(
    backend: str, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        copies, counted = namespace.call(with_overlays, backend, str(tmp_path / "st"))
    assert copies == 2 and counted == 100


NETWORKS = "".join(f"-A INPUT -s 10.1.{n}.0/24 -j DROP\n" for n in range(1, 41))
DECIDED = f"{TEXT.partition('[1:')[0]}{NETWORKS}-A INPUT -s 10.1.0.0/16 -j ACCEPT\n{OTHERS}COMMIT\n"


def with_entry(backend: str, folder: str, removing: str) -> tuple[int, int]:
    host = Host(backend, Path(folder), DECIDED)
    host.commit(host.first)
    host.commit(updates(host, "-D INPUT -s 10.1.21.0/24 -j DROP", Strategy.OVERLAY))
    entries = host.count_each("-s 10.1.21.0/24 -j ACCEPT", 50)
    plan = updates(host, removing, Strategy.OVERLAY) if removing else fold_unproved(host.store.state)
    host.commit(plan)
    assert not host.counted("-s 10.1.21.0/24 -j ACCEPT")
    host.store.close()
    return entries, host.counted("-s 10.1.0.0/16 -j ACCEPT")


@both
@pytest.mark.parametrize("removing", ["", "-I INPUT -s 10.0.0.0/8 -j ACCEPT"])
def test_the_count_of_an_entry_goes_to_the_rule_that_it_stands_for(
    backend: str, removing: str, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        entries, counted = namespace.call(with_entry, backend, str(tmp_path / "st"), removing)
    assert entries == 1 and counted == 50


def with_trees_of_entries(backend: str, folder: str) -> list[dict[int, int]]:
    """The counts before and after two trees of entries, of which the second has the rules of the first."""
    host = Host(backend, Path(folder))
    host.commit(host.first)
    seen = []
    for first in (100, 200):
        for port in range(first, first + 20):
            rule = f"-s 10.9.{port}.0/24 -p tcp -m tcp --dport {port} -j DROP"
            host.commit(updates(host, f"-I INPUT 1 -c {port} 900 {rule}", Strategy.OVERLAY))
        seen.append(host.counts())
        chain_id = due(host.store.state)
        assert chain_id is not None
        tree = plan_front_tree(host.store.state, chain_id)
        assert tree is not None
        host.commit(tree)
        seen.append(host.counts())
    host.store.close()
    return seen


@both
def test_entries_that_become_a_tree_keep_their_counts(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        seen = namespace.call(with_trees_of_entries, backend, str(tmp_path / "st"))
    first = EVERY | {port: port for port in range(100, 120)}
    both_trees = first | {port: port for port in range(200, 220)}
    assert seen == [first, first, both_trees, both_trees]


def test_a_comment_is_no_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool that stays prints the comment before the count of the rule."""
    rule = '-A INPUT -s 10.0.0.1/32 -m comment --comment "was \\" -c 0 0" -c 5 300 -j DROP\n'
    kernel = Kernel(Family.IPV4, Settings(Backend.NFT), stays=True)
    kernel._restore = Restore(["true"], ())
    monkeypatch.setattr(kernel._restore, "run", lambda commands: (f"-P INPUT ACCEPT\n{rule}", True))
    loaded = hitables.read(f"*filter\n:INPUT ACCEPT [0:0]\n{rule}COMMIT\n")
    (table,) = kernel.counters({("filter", "INPUT")}, loaded)
    assert [each.counters for each in table["INPUT"].rules] == [(5, 300)]

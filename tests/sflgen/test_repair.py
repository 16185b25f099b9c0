"""A change that another program made in the kernel is taken into the rule list, or taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import command_clients
from support.planned_updates import prefixes
from support.small_namespace import Namespace

import hitables
from hitables.emit.text import rule_text
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load, save
from hitables.verify.question import Equal
from sflgen.kernel import Kernel
from sflgen.proof import planner, verify
from sflgen.repair import find, take, undo, updates_of
from sflgen.settings import Strategy
from sflgen.stamps import Stamp
from sflgen.store import Store

pytestmark = pytest.mark.needs_kernel

TAKEN = {
    "a rule in front": (["-I", "INPUT", "-s", "192.0.2.7", "-j", "DROP"], ["-I INPUT -s 192.0.2.7/32 -j DROP"]),
    "a rule at the end": (["-A", "INPUT", "-s", "192.0.2.7", "-j", "DROP"], ["-A INPUT -s 192.0.2.7/32 -j DROP"]),
    "a policy": (["-P", "INPUT", "DROP"], ["-P INPUT DROP"]),
    "a flushed tree": (["-F", "INPUT"], ["-F INPUT"]),
    "a rule of a list": (["-D", "plain", "1"], ["-D plain 1"]),
    "another rule of a list": (["-R", "plain", "1", "-j", "ACCEPT"], ["-R plain 1 -j ACCEPT"]),
    "a chain of others": (["-I", "INPUT", "-j", "f2b-sshd"], ["-N f2b-sshd", "-I INPUT -j f2b-sshd"]),
    "a new chain": (
        ["-I", "INPUT", "-j", "mine"],
        ["-N mine", "-I INPUT -j mine", "-A mine -s 192.0.2.9/32 -j DROP"],
    ),
}  # fmt: skip


class Host:
    """A compiled rule set in a kernel, with a state; in the namespace of the caller."""

    def __init__(self, namespace: Namespace, backend: str, folder: str, rules: str = "") -> None:
        self.namespace, self.backend, self.folder = namespace, backend, folder
        load(rules or hitables.write(prefixes(20)), Family.IPV4, Backend(backend), namespace)
        words = ["--leave", "f2b-*", "--backend", backend]
        assert self.sflgen("init", "--live", *words) == 0, self.output

    def sflgen(self, *words: str) -> int:
        done = self.namespace.call(command_clients.run, "sflgen", *words, "--state", self.folder)
        self.output = done.stdout + done.stderr
        assert "Traceback" not in self.output
        return int(done.returncode)

    def iptables(self, *words: str) -> None:
        self.namespace.run([f"iptables-{self.backend}", "-w", *words])

    def save(self) -> str:
        return save(Family.IPV4, Backend(self.backend), self.namespace)

    def listed(self) -> str:
        with Store.open(Path(self.folder), to_write=False) as store:
            return hitables.write(store.state.master)

    def agrees(self) -> hitables.Program:
        """The rule list; the loaded rule set is equal to it, and is what the kernel holds."""
        assert self.sflgen("status", "--live") == 0, self.output
        with Store.open(Path(self.folder), to_write=False) as store:
            assert isinstance(verify(store.state), Equal)
            return store.state.master


@pytest.fixture(params=["legacy", "nft"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    command_clients.folder()  # one server for all namespaces
    with Namespace() as namespace:
        yield Host(namespace, request.param, str(tmp_path / "st"))


def with_chains(host: Host) -> None:
    for name in ("f2b-sshd", "mine"):
        host.iptables("-N", name)
    host.iptables("-A", "mine", "-s", "192.0.2.9", "-j", "DROP")


@pytest.mark.parametrize("change", TAKEN)
def test_a_change_is_taken_into_the_list(host: Host, change: str) -> None:
    words, updates = TAKEN[change]
    with_chains(host)
    host.iptables(*words)
    before = host.save()
    assert host.sflgen("status", "--live") == 1
    assert "sflgen repair --take" in host.output and "overwritten" not in host.output
    assert host.sflgen("repair", "--take", "--dry-run") == 1, host.output
    assert [line.strip() for line in host.output.splitlines() if line.startswith("  ")] == updates
    assert host.save() == before
    assert host.sflgen("repair", "--take") == 0, host.output
    host.agrees()
    assert "f2b-sshd" in host.save()
    assert host.sflgen("repair", "--take") == 0
    assert "nothing is changed" in host.output


@pytest.mark.parametrize("change", TAKEN)
def test_a_change_is_taken_back(host: Host, change: str) -> None:
    before = host.save()
    with_chains(host)
    others = host.save()
    host.iptables(*TAKEN[change][0])
    drifted = host.save()
    assert host.sflgen("repair", "--undo", "--dry-run") == 1
    assert "*filter\n" in host.output and host.save() == drifted
    assert host.sflgen("repair", "--undo") == 0, host.output
    host.agrees()
    assert host.save() == others != before


@pytest.mark.parametrize("way", ["--take", "--undo"])
@pytest.mark.parametrize("tests", ["-p udp --dport 0:65535", "-p tcp --tcp-flags NONE NONE"])
def test_a_rule_of_which_the_kernel_prints_no_test_keeps_its_counter(
    host: Host, tests: str, way: str
) -> None:
    """It began with the counter of its command, so a rule that is loaded anew is told from one that stays."""
    assert host.sflgen("insert", "--live", "OUTPUT", *tests.split(), "-c", "5", "500", "-j", "ACCEPT") == 0
    # As "-Z OUTPUT" does, which iptables-nft 1.8.10 refuses for such a rule.
    host.iptables("-F", "OUTPUT")
    host.iptables("-A", "OUTPUT", *tests.split(), "-j", "ACCEPT")
    host.iptables("-I", "FORWARD", "-s", "192.0.2.7", "-j", "DROP")
    assert host.sflgen("repair", way) == 0, host.output
    saved = save(Family.IPV4, Backend(host.backend), host.namespace, counters=True)
    (line,) = (line for line in saved.splitlines() if "-A OUTPUT" in line)
    assert line.startswith("[0:0] ") and "65535" not in line
    protocol = tests.split()[1]
    assert host.sflgen("delete", "--live", "OUTPUT", "-p", protocol, "-m", protocol, "-j", "ACCEPT") == 0
    assert "-A OUTPUT" not in host.save()


def test_the_copies_of_a_rule_that_was_deleted_are_deleted_too(host: Host) -> None:
    """iptables deletes one copy of a rule that a tree may have many of."""
    rules = host.agrees().table("filter")["INPUT"].rules
    saved = host.save().splitlines()
    chain, body = next(
        line.removeprefix("-A ").split(" ", 1)
        for line in saved
        if line.startswith("-A sf") and " -j DROP" in line and " --dport " in line
    )
    host.iptables("-D", chain, *body.split())
    assert host.sflgen("repair", "--take") == 0, host.output
    assert len(host.agrees().table("filter")["INPUT"].rules) == len(rules) - 1


def test_a_difference_names_the_first_rule_that_differs(host: Host) -> None:
    of_list = "-s 192.0.2.7/32 -p udp -j DROP"
    host.iptables("-A", "FORWARD", *of_list.split())
    assert host.sflgen("repair", "--take") == 0, host.output
    rules = [line for line in host.save().splitlines() if line.startswith("-A FORWARD ")]
    where = f"  table filter, chain FORWARD: {{}} rules, the state has {len(rules)}; rule {len(rules)} is "
    host.iptables("-D", "FORWARD", str(len(rules)))
    assert host.sflgen("status", "--live") == 1
    assert f"{where.format(len(rules) - 1)}absent, in the state {of_list}\n" in host.output
    for rule in ("-s 192.0.2.8/32 -j DROP", of_list):
        host.iptables("-A", "FORWARD", *rule.split())
    assert host.sflgen("status", "--live") == 1
    assert f"{where.format(len(rules) + 1)}-s 192.0.2.8/32 -j DROP, in the state {of_list}\n" in host.output
    assert host.sflgen("insert", "--live", "FORWARD", "-s", "192.0.2.9", "-j", "DROP") == 2
    assert "nothing is overwritten" in host.output


def test_a_rule_inside_a_tree_can_only_be_taken_back(host: Host) -> None:
    before = host.save()
    chain = next(line.split(" ")[0][1:] for line in before.splitlines() if line.startswith(":sf"))
    host.iptables("-I", chain, "-s", "192.0.2.7", "-j", "DROP")
    drifted = host.save()
    assert host.sflgen("repair", "--take") == 2
    assert f"chain {chain}" in host.output and "sflgen repair --undo takes it back" in host.output
    assert host.save() == drifted
    assert host.sflgen("repair", "--undo") == 0
    assert host.save() == before
    host.agrees()


def test_one_of_the_two_has_to_be_chosen(host: Host) -> None:
    host.iptables("-P", "INPUT", "DROP")
    assert host.sflgen("repair") == 2
    assert "choose --take or --undo" in host.output
    assert host.sflgen("repair", "--dry-run") == 1
    assert "each with --dry-run shows how" in host.output


def commit_that_is_killed(folder: str) -> None:
    """A commit whose patch the kernel never got."""
    from sflgen.commands import read_commands
    from sflgen.planner import plan_unproved

    store = Store.open(Path(folder))
    plan = plan_unproved(store.state, read_commands("-I INPUT 9 -s 192.0.2.1 -j DROP", store.state.master))

    def load_nothing(patch: str) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        store.commit(plan, load_nothing)
    store.close()


def test_a_killed_command_and_a_foreign_change_are_repaired_together(host: Host) -> None:
    host.namespace.call(commit_that_is_killed, host.folder)
    host.iptables("-I", "INPUT", "-s", "192.0.2.7", "-j", "DROP")
    assert host.sflgen("repair", "--take") == 0, host.output
    rules = hitables.write(host.agrees())
    assert "192.0.2.7" in rules and "192.0.2.1/" not in rules


@pytest.mark.either_backend
def test_a_dry_run_after_a_killed_command_changes_nothing(host: Host) -> None:
    host.namespace.call(commit_that_is_killed, host.folder)
    host.iptables("-I", "FORWARD", "-s", "192.0.2.7", "-j", "DROP")
    (journal,) = Path(host.folder).glob("journal.*")
    written, before = journal.read_bytes(), host.save()
    for way in ("--take", "--undo"):
        assert host.sflgen("repair", way, "--dry-run") == 1, host.output
        assert "192.0.2.7" in host.output and "192.0.2.1/" not in host.output, "as without --dry-run"
    assert journal.read_bytes() == written and host.save() == before


def test_counters_of_rules_that_stay_go_on(host: Host) -> None:
    host.namespace.run(["ip", "link", "set", "lo", "up"])
    host.iptables("-I", "INPUT", "-s", "127.0.0.1", "-p", "udp", "-j", "ACCEPT")
    host.namespace.call(send)
    assert host.sflgen("repair", "--take") == 0, host.output
    host.agrees()
    saved = save(Family.IPV4, Backend(host.backend), host.namespace, counters=True)
    assert "[5:" in next(line for line in saved.splitlines() if "127.0.0.1" in line)


def send() -> None:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(5):
            sender.sendto(b"x", ("127.0.0.1", 9))


def test_undo_creates_the_chain_of_others_that_its_rules_enter(host: Host) -> None:
    host.iptables("-N", "f2b-sshd")
    host.iptables("-I", "INPUT", "-j", "f2b-sshd")
    assert host.sflgen("repair", "--take") == 0, host.output
    host.iptables("-F")
    host.iptables("-X")
    assert host.sflgen("repair", "--undo") == 0, host.output
    assert "-A INPUT -j f2b-sshd" in host.save()
    host.agrees()


def with_a_chain(host: Host, entries: int = 0, jumps: int = 1) -> None:
    """Begin the state again for a list with the chain `many`, which has a tree, and *entries* in front of it."""
    host.iptables("-F")
    host.iptables("-X")
    rules = "".join(f"-A many -s 198.51.{n}.0/24 -j DROP\n" for n in range(60))
    calls = "".join(f"-A INPUT -p tcp --dport {n} -j many\n" for n in range(1, jumps)) + "-A INPUT -j many\n"
    text = f"*filter\n:INPUT ACCEPT\n:many -\n{calls}{rules}COMMIT\n"
    load(text, Family.IPV4, Backend(host.backend), host.namespace)
    host.folder += "-many"
    assert host.sflgen("init", "--live", "--backend", host.backend) == 0, host.output
    for number in range(entries):
        assert host.sflgen("insert", "--live", "many", "1", "-s", f"198.51.{number}.1", "-j", "ACCEPT") == 0
    assert ":sf" in host.save()


ANEW = ("-F INPUT", "-F many", "-X many", "-N many", "-A many -s 192.0.2.1 -j DROP",
        "-A many -s 192.0.2.0/24 -j ACCEPT", "-A INPUT -j many")  # fmt: skip

CHAIN_CHANGES = {
    "removed": (("-F INPUT", "-F many", "-X many"), []),
    "removed with its trees": (("-F", "-X"), []),
    "made anew": (ANEW, ["-s 192.0.2.1/32 -j DROP", "-s 192.0.2.0/24 -j ACCEPT"]),
    "made anew, behind all": ((*ANEW, "-A INPUT -s 192.0.2.3 -j DROP"),
                              ["-s 192.0.2.1/32 -j DROP", "-s 192.0.2.0/24 -j ACCEPT"]),
    "made anew and empty": ((*ANEW[:4], ANEW[-1]), []),
    "flushed and filled": (("-F many", ANEW[4]), ["-s 192.0.2.1/32 -j DROP"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "entries"), [*((change, 3) for change in CHAIN_CHANGES), ("removed", 0), ("made anew", 0)]
)
def test_a_chain_with_a_tree_that_was_removed_or_made_anew_is_taken(
    host: Host, change: str, entries: int
) -> None:
    commands, rules = CHAIN_CHANGES[change]
    with_a_chain(host, entries)
    for command in commands:
        host.iptables(*command.split())
    assert host.sflgen("repair", "--take") == 0, host.output
    filter_table = host.agrees().table("filter")
    assert ("many" in filter_table) == (not change.startswith("removed"))
    if "many" in filter_table:
        assert [rule_text(rule, "many") for rule in filter_table["many"].rules] == [
            f"-A many {each}" for each in rules
        ]
    assert host.sflgen("insert", "--live", "INPUT", "1", "-s", "192.0.2.77", "-j", "DROP") == 0, host.output
    if "many" in filter_table:
        assert host.sflgen("insert", "--live", "many", "1", "-s", "192.0.2.78", "-j", "DROP") == 0
    host.agrees()
    assert host.sflgen("verify") == 0, host.output


def test_a_chain_with_a_tree_that_was_renamed_can_only_be_taken_back(host: Host) -> None:
    with_a_chain(host)
    host.iptables("-E", "many", "renamed")
    assert host.sflgen("repair", "--take") == 2
    assert "sflgen repair --undo takes it back" in host.output
    assert host.sflgen("repair", "--undo") == 0, host.output
    assert host.sflgen("insert", "--live", "many", "1", "-s", "192.0.2.78", "-j", "DROP") == 0, host.output
    assert host.sflgen("fold", "--live") == 0, host.output
    for _ in range(3):
        assert host.sflgen("insert", "--live", "INPUT", "1", "-s", "192.0.2.79", "-j", "DROP") == 0, (
            host.output
        )
    host.agrees()


JUMP = "INPUT -p tcp -m multiport --dports 22 -j f2b-sshd"


def test_an_update_takes_the_jumps_to_chains_of_others(host: Host) -> None:
    for command, verb in (("-N f2b-sshd", "-I"), ("-F f2b-sshd", "-D"), ("-F f2b-sshd", "-A")):
        host.iptables(*command.split())
        host.iptables(verb, *JUMP.split())
        assert host.sflgen("insert", "--live", "INPUT", "1", "-s", "192.0.2.7", "-j", "DROP") == 0, (
            host.output
        )
        assert "taken from the kernel: " in host.output and host.output.count("taken") <= 2
        assert ("-j f2b-sshd" in host.save()) == (verb != "-D")
        host.agrees()


def test_an_update_takes_jumps_that_moved_past_a_rule_of_the_list(host: Host) -> None:
    """As docker inserts its own again when it starts.  To move the one rule would be fewer edits."""
    host.iptables("-N", "f2b-sshd")
    host.iptables("-N", "f2b-web")
    for chain in ("f2b-web", "f2b-sshd"):
        host.iptables("-I", "INPUT", "-j", chain)
    update = ("insert", "--live", "INPUT", "1", "-s", "192.0.2.7", "-j", "DROP")
    assert host.sflgen(*update) == 0, host.output
    for chain in ("f2b-web", "f2b-sshd"):
        host.iptables("-D", "INPUT", "-j", chain)
        host.iptables("-I", "INPUT", "-j", chain)
    assert host.sflgen(*update[:2], "FORWARD", *update[4:]) == 0, host.output
    assert "taken from the kernel: -I INPUT -j f2b-sshd" in host.output
    rules = host.agrees().table("filter")["INPUT"].rules
    assert [rule.enters for rule in rules[:2]] == ["f2b-sshd", "f2b-web"]


@pytest.mark.parametrize("command", ["delete INPUT 2", "insert INPUT 2 -s 192.0.2.8 -j DROP"])
def test_a_number_that_was_given_before_a_jump_was_taken_is_refused_once(host: Host, command: str) -> None:
    """It would name another rule than the one that the user saw."""
    op, *words = command.split()
    count = host.agrees().rule_count()
    host.iptables("-N", "f2b-sshd")
    host.iptables("-I", *JUMP.split())
    assert host.sflgen(op, "--live", *words) == 2
    assert "position 2 may be that of another rule now" in host.output and "-j f2b-sshd" in host.output
    assert host.agrees().rule_count() == count + 1  # the jump
    assert host.sflgen(op, "--live", *words) == 0, host.output
    assert host.agrees().rule_count() == count + (0 if op == "delete" else 2)


@pytest.mark.parametrize(
    "other", ["-A INPUT -s 192.0.2.9 -j DROP", "-P INPUT DROP", "-F FORWARD", "-D INPUT 1"]
)
def test_jumps_to_chains_of_others_are_not_taken_beside_another_change(host: Host, other: str) -> None:
    host.iptables("-A", "FORWARD", "-j", "ACCEPT")
    assert host.sflgen("repair", "--take") == 0, host.output
    host.iptables("-N", "f2b-sshd")
    host.iptables(*other.split())
    host.iptables("-I", *JUMP.split())
    before = host.save()
    assert host.sflgen("insert", "--live", "INPUT", "1", "-s", "192.0.2.7", "-j", "DROP") == 2
    assert "nothing is overwritten" in host.output
    assert host.save() == before


def repair_refused_half_way(folder: str, takes: bool) -> str:
    """The error of a repair of two tables of which the kernel refuses the second."""
    patches: list[str] = []
    load_whole = Kernel.load

    def load_first_table(kernel: Kernel, patch: str, store: Store, since: Stamp | None) -> Any:
        patches.append(patch)
        if len(patches) > 1:
            return load_whole(kernel, patch, store, since)
        first, second = patch.split("COMMIT\n", 1)
        assert second
        load_whole(kernel, f"{first}COMMIT\n", store, since)
        raise LiveError("line 9 failed")

    Kernel.load = load_first_table  # type: ignore[method-assign]
    try:
        with Store.open(Path(folder)) as store:
            kernel = Kernel(store.state.master.family, store.state.settings)
            foreign = find(kernel, store.state)
            if takes:
                take(kernel, store, foreign, planner(False)(store.state, updates_of(foreign), Strategy.GRAFT))
            else:
                undo(kernel, store, foreign)
    except LiveError as error:
        return str(error)
    finally:
        Kernel.load = load_whole  # type: ignore[method-assign]
    return ""


@pytest.mark.parametrize("takes", [True, False])
def test_a_repair_of_which_the_kernel_refuses_a_table_changes_nothing(tmp_path: Path, takes: bool) -> None:
    chain = "".join(f"-A INPUT -s 10.{n}.0.0/16 -j DROP\n" for n in range(20))
    command_clients.folder()
    with Namespace() as namespace:
        rules = f"*filter\n{chain}COMMIT\n*mangle\n{chain}COMMIT\n"
        host = Host(namespace, "nft", str(tmp_path / "st"), rules)
        for table in ("filter", "mangle"):
            host.iptables("-t", table, "-F", "INPUT")
        drifted, before = host.save(), host.listed()
        error = namespace.call(repair_refused_half_way, host.folder, takes)
        assert "the kernel refuses the patch; nothing is changed\nline 9 failed" in error
        assert host.save() == drifted and host.listed() == before
        assert host.sflgen("repair", "--take" if takes else "--undo") == 0, host.output
        host.agrees()

"""An apply of one family, or of some tables, leaves what other files have in force, in the kernel and on record."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.firewall import Firewall
from support.tables_in_force import BAN6, MASQUERADE, NAT, SIX, filtered, other_file, six

from hitables.apply import load
from hitables.apply.confirm import guard_rolls_back, roll_back, undo
from hitables.apply.records import ApplyState
from hitables.apply.request import ApplyRequest, ApplyResult, Reporter
from hitables.apply.run import apply
from hitables.apply.store import StateDirectory
from hitables.errors import FileError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.namespace import run

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]


@pytest.fixture
def firewall(firewall_in_force: Firewall) -> Firewall:
    return firewall_in_force


@pytest.mark.parametrize("how", ["check", "rollback", "number"])
def test_what_is_taken_back_is_what_was_loaded(firewall: Firewall, how: str) -> None:
    """Bans and rules that others put into tables that no file of this apply has are not lost with it."""
    six(firewall, *BAN6)
    firewall.iptables(*MASQUERADE)
    path = other_file(firewall)
    if how == "check":
        firewall.hitables("apply", path, "--check", "false", status=2)
    else:
        firewall.apply(path)
        firewall.hitables("rollback", *(["2"] if how == "number" else []))
    assert "--dport 22 " in firewall.save()
    assert "2001:db8::bad" in firewall.save(Family.IPV6)
    assert "192.168.0.0/16" in firewall.save()


def test_status_compares_what_earlier_applies_have_loaded(firewall: Firewall) -> None:
    firewall.apply(other_file(firewall))
    shown = firewall.hitables("status").stdout
    assert "IPv4, table filter: the kernel holds rule set 3\n" in shown
    assert "IPv4, table nat: the kernel holds rule set 2\n" in shown
    assert "IPv6: the kernel holds rule set 2\n" in shown
    six(firewall, "-F")
    firewall.iptables("-t", "nat", "-F")
    document = json.loads(firewall.hitables("status", "--format", "json", status=1).stdout)
    found = [
        (each["rule_set"], each["family"], each["tables"], each["answer"]) for each in document["families"]
    ]
    assert found == [(3, 4, ["filter"], "same"), (2, 4, ["nat"], "different"), (2, 6, [], "different")]
    firewall.hitables("status", "--repair")
    assert "2001:db8::/32" in firewall.save(Family.IPV6)
    assert "-p icmp" in firewall.save()
    firewall.hitables("status")


def test_one_family_is_compared_and_repaired_by_itself(firewall: Firewall) -> None:
    six(firewall, "-F")
    firewall.iptables("-t", "nat", "-F")
    assert "IPv6" not in firewall.hitables("status", "--family", "4", status=1).stdout
    shown = firewall.hitables("status", "--repair", "--family", "6").stdout
    assert "IPv4" not in shown and "IPv6 of rule set 2 is loaded again\n" in shown
    assert "2001:db8::/32" in firewall.save(Family.IPV6) and "-p icmp" not in firewall.save()
    firewall.hitables("status", "--family", "6")
    firewall.hitables("release", "filter", "--family", "6")
    refused = firewall.hitables("status", "--repair", "--family", "6", status=2).stderr
    assert refused == "hitables: no rules of IPv6 are in force with rule set 3\n"


def test_the_source_of_all_that_is_in_force_is_known(firewall: Firewall) -> None:
    firewall.apply(other_file(firewall))
    assert firewall.hitables("source", "--family", 6).stdout == SIX
    source = firewall.hitables("source", "--family", 4).stdout
    assert source.startswith(filtered(2222)) and "-p icmp" in source
    assert 'family="6"' in firewall.hitables("counters", "--format", "prometheus").stdout
    counted = firewall.hitables("counters", "--family", 4).stdout
    assert "--dport 2222 " in counted and "-p icmp" in counted
    saved = firewall.file(firewall.save(), "saved")
    for packet, place in (
        ("chain=INPUT in=lo src=10.0.0.1 dst=10.0.0.2 proto=udp sport=9 dport=2222", "other.rules:33"),
        ("table=nat chain=POSTROUTING src=10.0.0.1 dst=10.0.0.2 proto=icmp icmp=8/0", "office.rules:36"),
    ):
        assert place in firewall.hitables("trace", saved, "--packet", packet).stdout


def test_a_rollback_says_which_tables_the_earlier_rule_set_does_not_have(firewall: Firewall) -> None:
    raw = "*raw\n-A PREROUTING -s 10.9.0.0/16 -j DROP\nCOMMIT\n"
    firewall.apply(firewall.file(raw, "raw.rules"))
    told = firewall.hitables("rollback", 2).stderr
    assert "IPv4, table raw: rule set 2 does not have it; it stays as it is" in told


def test_chains_left_in_one_family_are_not_left_in_the_other(firewall: Firewall) -> None:
    six_with_more = firewall.file(
        SIX.replace("COMMIT", "-A INPUT -s 2001:db9::/32 -j ACCEPT\nCOMMIT"), "more6"
    )
    firewall.apply(six_with_more, "--leave", "docker")
    firewall.iptables("-N", "DOCKER")
    firewall.iptables("-A", "FORWARD", "-j", "DOCKER")
    six(firewall, "-N", "DOCKER")
    six(firewall, "-A", "FORWARD", "-j", "DOCKER")
    assert "IPv6: the kernel holds rule set 3" in firewall.hitables("status", status=1).stdout
    firewall.hitables("status", "--repair")
    assert "DOCKER" not in firewall.save()
    assert "-j DOCKER" in firewall.save(Family.IPV6)


def test_the_next_boot_loads_what_a_rollback_has_loaded(firewall: Firewall) -> None:
    """Also a table that is not of the file of that rule set."""
    firewall.apply(firewall.file(SIX.replace("db8", "db9"), "nine.rules"))
    firewall.apply(other_file(firewall))
    firewall.hitables("rollback", 3)
    assert "--dport 22 " in (firewall.state / "confirmed.rules").read_text()
    assert "db9" in (firewall.state / "confirmed6.rules").read_text()


def test_patterns_of_one_table_do_not_hold_for_another(firewall: Firewall) -> None:
    """A chain of the file may have the name that another table leaves to its program."""
    own = "*filter\n:f2b-own -\n-A INPUT -j f2b-own\n-A f2b-own -s 10.9.9.9/32 -j DROP\nCOMMIT\n"
    firewall.apply(firewall.file(own, "own.rules"))
    firewall.apply(firewall.file(NAT.replace("10.0.0.0/8", "10.0.0.0/9"), "nat.rules"), "--leave", "fail2ban")
    firewall.hitables("apply", other_file(firewall), "--check", "false", status=2)
    assert "-A f2b-own -s 10.9.9.9/32 -j DROP" in firewall.save()
    firewall.iptables("-F", "f2b-own")
    firewall.hitables("status", "--repair", status=0)
    assert "-A f2b-own -s 10.9.9.9/32 -j DROP" in firewall.save()


def test_what_somebody_loaded_before_the_file_is_confirmed_by_an_apply(firewall: Firewall) -> None:
    """The kernel holds the rules of the file already, but no record does, nor would a boot load them."""
    firewall.apply(other_file(firewall), "--no-compile")
    firewall.iptables("-A", "INPUT", "-s", "203.0.113.9/32", "-j", "DROP")
    text = filtered(2222).replace("COMMIT", "-A INPUT -s 203.0.113.9/32 -j DROP\nCOMMIT")
    shown = firewall.apply(firewall.file(text, "more.rules"), "--no-compile")
    assert "nothing to load" in shown.stdout
    assert "recorded as rule set 4, and confirmed" in shown.stderr
    assert "203.0.113.9" in (firewall.state / "confirmed.rules").read_text()
    firewall.hitables("status")


def test_a_table_that_was_loaded_by_hand_is_recorded(firewall: Firewall) -> None:
    firewall.iptables("-t", "mangle", "-A", "INPUT", "-s", "10.0.0.7/32", "-j", "ACCEPT")
    path = firewall.file("*mangle\n-A INPUT -s 10.0.0.7/32 -j ACCEPT\nCOMMIT\n", "mangle.rules")
    shown = firewall.apply(path)
    assert "nothing to load" in shown.stdout and "recorded as rule set 3" in shown.stderr
    firewall.iptables("-t", "mangle", "-F")
    assert "IPv4, table mangle: " in firewall.hitables("status", status=1).stdout


def test_the_old_rules_are_those_of_the_same_backend(firewall: Firewall) -> None:
    """Legacy and nft hold the same rules; what is taken back in one must not be the record of the other."""
    other = Backend.LEGACY if firewall.backend is Backend.NFT else Backend.NFT
    run_other = f"iptables-{other.value}"
    firewall.namespace.run([f"{run_other}-restore"], firewall.save())
    beside = Firewall(firewall.namespace, firewall.folder, other)
    beside.hitables("apply", other_file(firewall), "--no-compile", "--check", "false", status=2)
    assert "--dport 2222 " not in beside.save()
    assert "--dport 22 " in beside.save()


def test_counters_of_rules_that_the_new_rules_lack_come_back(firewall: Firewall) -> None:
    firewall.send(10, 22)
    firewall.hitables("apply", other_file(firewall), "--check", "false", status=2)
    firewall.send(1, 22)
    assert firewall.counted("--dport 22 ") == 11


def test_a_rollback_that_needs_an_ipset_says_so(firewall: Firewall) -> None:
    firewall.namespace.run(["ipset", "create", "good", "hash:ip"])
    firewall.apply(
        firewall.file("*filter\n-A INPUT -m set --match-set good src -j ACCEPT\nCOMMIT\n", "set.rules")
    )
    firewall.apply(other_file(firewall))
    firewall.namespace.run(["ipset", "destroy", "good"])
    # A set of this name that rules cannot use in this family: none is created in its place.
    firewall.namespace.run(["ipset", "create", "good", "hash:ip", "family", "inet6"])
    error = firewall.hitables("rollback", status=2).stderr
    assert "good" in error and "is loaded" not in error
    firewall.namespace.run(["ipset", "destroy", "good"])
    assert "ipset good did not exist any more" in firewall.hitables("rollback").stderr
    assert "--match-set good src" in firewall.save()


# Others change rules while new ones are prepared.


def apply_beside(folder: str, backend: Backend, text: str, stage: str) -> list[str]:
    """Apply *text*, while another program bans an address as *stage* begins; what the user is told."""
    told: list[str] = []

    def begin(name: str) -> None:
        if name in (stage, f"{stage} other.rules"):
            run([f"iptables-{backend.value}", "-w", "-I", "INPUT", "-s", "203.0.113.9/32", "-j", "DROP"])

    request = ApplyRequest({Family.IPV4: ("other.rules", text)}, folder, backend, confirm=600)
    assert apply(request, Reporter(begin, told.append)) is ApplyResult.WAITING
    return told


@pytest.mark.parametrize("stage", ["compiling", "loading"])
def test_rules_that_came_meanwhile_come_back(firewall: Firewall, stage: str) -> None:
    told = firewall.namespace.call(apply_beside, str(firewall.state), firewall.backend, filtered(2222), stage)
    changed = [line for line in told if "changed while the new ones were prepared" in line]
    assert len(changed) == 1 and "203.0.113.9" in changed[0]
    assert "203.0.113.9" not in firewall.save()
    firewall.hitables("rollback")
    assert "203.0.113.9" in firewall.save() and "--dport 22 " in firewall.save()


def apply_two_families(folder: str, backend: Backend) -> None:
    """IPv4 as it is, while another program flushes it, and new rules of IPv6."""

    def begin(name: str) -> None:
        if name == "compiling six.rules":
            run([f"iptables-{backend.value}", "-w", "-F", "INPUT"])

    files = {
        Family.IPV4: ("office.rules", filtered(22) + NAT),
        Family.IPV6: ("six.rules", SIX.replace("8", "9")),
    }
    request = ApplyRequest(files, folder, backend, confirm=0)
    assert apply(request, Reporter(begin)) is ApplyResult.CONFIRMED


def test_rules_that_were_as_wanted_and_change_meanwhile_are_loaded(firewall: Firewall) -> None:
    firewall.namespace.call(apply_two_families, str(firewall.state), firewall.backend)
    assert "--dport 22 " in firewall.save()
    firewall.hitables("status")


BAN = "-I INPUT -s 203.0.113.9/32 -j DROP"


def apply_beside_others(
    folder: str, backend: Backend, text: str, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> list[str]:
    """Another program performs commands of iptables when the new chains are staged, *before* they are entered for
    the first time, or right *after*; what the user is told.
    """
    told: list[str] = []
    flip = load._flip

    def disturbed(*arguments: Any) -> float:
        load._flip = flip
        for command in before:
            run([f"iptables-{backend.value}", "-w", *command.split()])
        seconds = flip(*arguments)
        for command in after:
            run([f"iptables-{backend.value}", "-w", *command.split()])
        return seconds

    load._flip = disturbed
    request = ApplyRequest({Family.IPV4: ("other.rules", text)}, folder, backend, confirm=0)
    apply(request, Reporter(tell=told.append))
    return told


def told_of(firewall: Firewall, message: str, text: str, **commands: tuple[str, ...]) -> str:
    """The one line with *message* that the user is told by `apply_beside_others`."""
    folder, backend = str(firewall.state), firewall.backend
    told = firewall.namespace.call(apply_beside_others, folder, backend, text, **commands)
    (line,) = [each for each in told if message in each]
    return line


def test_a_rule_that_comes_right_after_the_new_ones_stays(firewall: Firewall) -> None:
    line = told_of(firewall, "have added rules since", filtered(2222), after=(BAN,))
    assert "table filter: -A INPUT -s 203.0.113.9/32 -j DROP" in line
    assert "203.0.113.9" in firewall.save() and "--dport 2222 " in firewall.save()
    assert "203.0.113.9" in firewall.hitables("status", status=1).stdout


def test_a_rule_that_a_second_attempt_replaces_is_named(firewall: Firewall) -> None:
    text = filtered(2222).replace("COMMIT", "-A FORWARD -s 10.9.0.0/16 -j DROP\nCOMMIT")
    after = "-F INPUT", BAN.replace("-I INPUT", "-A FORWARD")
    line = told_of(firewall, "the new rules replace what they added", text, after=after)
    assert "table filter: -A FORWARD -s 203.0.113.9/32 -j DROP" in line
    assert "203.0.113.9" not in firewall.save() and "--dport 2222 " in firewall.save()
    firewall.hitables("status")


def test_rules_that_came_in_the_last_moment_come_back(firewall: Firewall) -> None:
    told_of(firewall, "changed while the new ones were prepared", filtered(2222), before=(BAN,))
    assert "203.0.113.9" not in firewall.save()
    firewall.hitables("rollback")
    assert "203.0.113.9" in firewall.save() and "--dport 22 " in firewall.save()
    assert "203.0.113.9" in firewall.hitables("source", "--family", 4).stdout


# Rollbacks while a rule set waits.


def test_a_rollback_to_an_earlier_rule_set_takes_back_the_one_that_waits(firewall: Firewall) -> None:
    """Also its tables that the earlier one does not have."""
    firewall.apply(other_file(firewall))
    raw = firewall.file("*raw\n-A PREROUTING -s 192.0.2.0/24 -j DROP\nCOMMIT\n", "raw.rules")
    firewall.hitables("apply", raw, "--confirm", 600)
    assert "rule set 2 is loaded" in firewall.hitables("rollback", 2).stdout
    assert "192.0.2.0/24" not in firewall.save() and "--dport 22 " in firewall.save()
    firewall.hitables("status")


def roll_back_beside_the_guard(folder: str) -> tuple[int, list[str]]:
    """The guard takes rule set 4 back while the command waits for the lock."""
    opened = StateDirectory.open

    def late(path: str, create: bool = False, wait: float = 10.0) -> StateDirectory:
        StateDirectory.open = opened
        waiting = StateDirectory(Path(folder), -1).state().waiting
        assert waiting is not None
        os.getpid = lambda: waiting.guard
        guard_rolls_back(folder, 4, "the test wants it", {})
        return opened(path, create, wait)

    StateDirectory.open = late
    return roll_back(folder)


def test_a_rollback_that_comes_too_late_takes_back_no_other(firewall: Firewall) -> None:
    firewall.apply(other_file(firewall))
    firewall.hitables("apply", firewall.file(filtered(80), "more.rules"), "--confirm", 600)
    loaded, notes = firewall.namespace.call(roll_back_beside_the_guard, str(firewall.state))
    assert loaded == 3 and "rule set 4 was taken back while this command waited" in notes
    assert "--dport 2222 " in firewall.save()


def test_history_marks_each_rule_set_that_is_in_force(firewall: Firewall) -> None:
    """Of rule set 2 first table nat and IPv6 stay in force, then nothing but IPv6."""

    def marked() -> list[int]:
        lines = firewall.hitables("history").stdout.splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("*")]

    firewall.apply(other_file(firewall))
    assert marked() == [2, 3]
    firewall.apply(firewall.file(filtered(22) + NAT, "both.rules"))
    assert marked() == [2, 4]
    firewall.apply(firewall.file(SIX.replace("DROP", "ACCEPT"), "six.rules"))
    assert marked() == [4, 5]


# The guard, and what it cannot write.


def take_back_on_a_full_disk(folder: str) -> None:
    def refuse(state: ApplyState) -> None:
        raise FileError("state.json: No space left on device")

    with StateDirectory.open(folder) as store:
        store.set_state = refuse  # type: ignore[method-assign]
        undo(store, store.state(), "the test wants it")


def test_what_was_taken_back_on_a_full_disk_is_not_confirmed_later(firewall: Firewall) -> None:
    firewall.hitables("apply", other_file(firewall), "--confirm", 600)
    guard = int(json.loads((firewall.state / "state.json").read_text())["waiting"]["guard"])
    firewall.namespace.call(take_back_on_a_full_disk, str(firewall.state))
    os.kill(guard, signal.SIGKILL)  # it does not know that the rules were taken back
    assert "--dport 22 " in firewall.save()
    error = firewall.hitables("confirm", status=2).stderr
    assert "no rule set waits for its confirmation: rule set 3 is rolled back" in error
    assert "IPv4: the kernel holds rule set 2" in firewall.hitables("status").stdout


@pytest.mark.parametrize("name", [".", "state.json", "0002", "0003"])
def test_a_state_that_is_removed_does_not_stop_the_guard(firewall: Firewall, name: str) -> None:
    """Nor are parts of it; what the guard needs is there again afterwards."""
    firewall.hitables("apply", other_file(firewall), "--confirm", 6)
    time.sleep(1.5)  # until the guard has looked
    removed = firewall.state / name
    removed.rename(firewall.folder / "away")
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert "files of the state were missing or damaged, and are written again" in firewall.log()
    assert "--dport 22 " in firewall.save()
    assert "rolled back" in firewall.hitables("history").stdout
    assert "IPv4: the kernel holds rule set 2" in firewall.hitables("status").stdout


@pytest.mark.parametrize("name", ["state.json", "0002/loaded4", "0002/record.json"])
def test_a_state_that_is_damaged_does_not_stop_the_guard(firewall: Firewall, name: str) -> None:
    firewall.hitables("apply", other_file(firewall), "--confirm", 6)
    time.sleep(1.5)  # until the guard has looked
    (firewall.state / name).write_text("")
    firewall.until(lambda: "taken back, because" in firewall.log())
    assert "files of the state were missing or damaged, and are written again" in firewall.log()
    assert "--dport 22 " in firewall.save()
    assert "IPv4: the kernel holds rule set 2" in firewall.hitables("status").stdout


def test_a_guard_does_not_take_back_what_was_confirmed_before_the_state_was_damaged(
    firewall: Firewall,
) -> None:
    firewall.hitables("apply", other_file(firewall), "--confirm", 600)
    store = StateDirectory(firewall.state, -1)
    copy = store.copy(store.state())
    firewall.hitables("confirm")
    (firewall.state / "state.json").write_text("")
    guard_rolls_back(str(firewall.state), 3, "the test wants it", copy)
    assert (firewall.state / "state.json").read_text() == ""


def roll_back_on_a_full_disk(folder: str, writes: int) -> str:
    """The error of a rollback when state.json can be written so many times."""
    written: list[ApplyState] = []

    def refuse(self: StateDirectory, state: ApplyState) -> None:
        if len(written) == writes:
            raise FileError("state.json: No space left on device")
        written.append(state)

    kept, StateDirectory.set_state = StateDirectory.set_state, refuse  # type: ignore[method-assign]
    try:
        roll_back(folder)
    except FileError as error:
        return str(error)
    finally:
        StateDirectory.set_state = kept  # type: ignore[method-assign]
    return ""


def test_a_rollback_that_cannot_be_recorded_is_taken_back(firewall: Firewall) -> None:
    firewall.apply(other_file(firewall))
    before = firewall.save()
    error = firewall.namespace.call(roll_back_on_a_full_disk, str(firewall.state), 1)
    assert "No space left on device; rule set 3 is loaded again" in error
    assert "--dport 2222 " in before and "--dport 2222 " in firewall.save()
    assert "--dport 2222 " in (firewall.state / "confirmed.rules").read_text()
    assert "IPv4, table filter: the kernel holds rule set 3" in firewall.hitables("status").stdout
    firewall.hitables("rollback")
    assert "--dport 22 " in firewall.save()


def test_a_rollback_whose_state_cannot_be_written_changes_no_rules(firewall: Firewall) -> None:
    firewall.apply(other_file(firewall))
    firewall.iptables("-A", "FORWARD", "-s", "10.0.0.9", "-j", "DROP")  # a load would remove it
    error = firewall.namespace.call(roll_back_on_a_full_disk, str(firewall.state), 0)
    assert error == "state.json: No space left on device; rule set 2 is not loaded"
    assert "10.0.0.9" in firewall.save()


# ---- tables that are given up ----


def test_other_comments_of_a_file_are_recorded_and_other_counters_are_not(firewall: Firewall) -> None:
    path = firewall.file(filtered(2222), "other.rules")
    firewall.apply(path)
    path.write_text("# a comment\n" + path.read_text())
    firewall.apply(path, "--dry-run", status=1)
    assert "recorded as rule set 4" in firewall.apply(path).stderr
    assert firewall.hitables("source", "--family", 4).stdout.startswith("# a comment\n")
    assert "nothing to do" in firewall.apply(path).stdout
    path.write_text(path.read_text().replace("[0:0]", "[7:420]"))
    assert "nothing to do" in firewall.apply(path).stdout
    firewall.hitables("rollback")
    assert "--dport 2222 " not in firewall.save(), (
        "it loads what was before the rules, not before the comment"
    )

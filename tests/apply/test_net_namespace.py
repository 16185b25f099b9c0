"""Rules that wait are confirmed and taken back in the network namespace that holds them, and in no other."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.firewall import Firewall, plain
from support.small_namespace import Namespace
from support.waiting_rules import NEW, OLD, guard_of, status_of

from hitables.apply import guard, net_namespace


@pytest.fixture
def elsewhere(firewall: Firewall, tmp_path: Path) -> Iterator[Firewall]:
    """A firewall in another namespace, with the same state directory and rules of its own."""
    with Namespace() as namespace:
        other = Firewall(namespace, tmp_path, firewall.backend)
        other.load("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 192.0.2.77/32 -j DROP\nCOMMIT\n")
        yield other


@pytest.mark.either_backend
@pytest.mark.needs_kernel
@pytest.mark.parametrize("command", ["confirm", "confirm --force", "rollback", "rollback 2", "the timer"])
def test_a_command_in_another_namespace_changes_nothing_and_says_where_to_call_it(
    firewall: Firewall, elsewhere: Firewall, command: str
) -> None:
    firewall.apply(firewall.file(OLD))
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    number, held, other = max(status_of(firewall)), plain(firewall.save()), plain(elsewhere.save())
    words = command.split()
    if command == "the timer":
        os.kill(guard_of(firewall), signal.SIGKILL)
        words = ["rollback", "--guarded-by", str(guard_of(firewall))]
    error = elsewhere.hitables(*words, status=2).stderr.replace("\n", " ")
    assert f"rule set {number} waits in another network namespace" in error
    assert (
        f"call hitables {words[0]} in the namespace of hitables apply" in error and "ip netns exec" in error
    )
    assert plain(elsewhere.save()) == other and plain(firewall.save()) == held
    assert status_of(firewall)[number] == "waiting"
    firewall.hitables("rollback")
    assert "10.0.0.1/32" in firewall.save()


@pytest.mark.either_backend
@pytest.mark.needs_kernel
@pytest.mark.parametrize("command", ["confirm --force", "rollback"])
@pytest.mark.parametrize("why", ["it has ended", "it is not recorded"])
def test_a_namespace_that_is_not_known_keeps_nobody_from_a_decision(
    firewall: Firewall, elsewhere: Firewall, command: str, why: str
) -> None:
    """As that of a container that was started again, or with a state that an earlier version wrote."""
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    os.kill(pid := guard_of(firewall), signal.SIGKILL)
    firewall.until(lambda: not guard.is_alive(pid))
    if why == "it has ended":
        firewall.namespace.close()
    else:
        path = firewall.state / "state.json"
        state = json.loads(path.read_text())
        del state["waiting"]["namespace"]
        path.write_text(json.dumps(state))
    elsewhere.hitables(*command.split())
    assert "waiting" not in status_of(firewall).values()


def test_a_namespace_with_a_name_exists_without_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(net_namespace, "PROC", tmp_path)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(
        "588 586 0:4 net:[4026532270] /run/netns/a rw shared:337 - nsfs nsfs rw\n"
    )
    assert net_namespace._exists("4:4026532270")
    assert not net_namespace._exists("4:402653227")


def timers_started() -> list[list[str]]:
    commands: list[list[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "SYSTEMD", Path("/"))
        patch.setattr(guard, "shutil", SimpleNamespace(which=lambda name: name))
        patch.setattr(guard, "_quietly", lambda command: commands.append(list(command)) or True)
        guard.start_timer(Path("state"), 7, os.getpid(), 60)
    return commands


@pytest.mark.parametrize(("of_systemd", "timers"), [("4:1", 1), ("4:2", 0), ("", 1)])
def test_systemd_has_no_timer_for_rules_of_another_namespace_than_its_own(
    of_systemd: str, timers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would start the rollback in its own; where that is not known, the rollback finds out."""
    names = {"self": "4:1", "1": of_systemd}
    monkeypatch.setattr(guard, "network_namespace", lambda process="self": names[process])
    assert len(timers_started()) == timers

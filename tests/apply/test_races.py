"""Another program changes rules between the reading of the kernel and the change: nothing of either is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.firewall import Firewall
from support.small_namespace import Namespace

import hitables.apply.run
import hitables.cli.apply
from hitables.apply import flip_nft
from hitables.apply.kernel import Kernel
from hitables.apply.load import Performed, RuleSetChange, Wanted, perform
from hitables.apply.others import merge, of_kernel
from hitables.apply.store import CONFIRMED, FOUND, StateDirectory
from hitables.apply.texts import TextChain, TextRule, parse
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import namespace as namespaces
from hitables.kernel.namespace import run

RULES = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
-A FORWARD -o docker0 -j DOCKER
[7:700] -A FORWARD -s 10.0.0.1/32 -j DROP
COMMIT
"""
JUMP = ["FORWARD", "-o", "docker0", "-j", "DOCKER"]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace() as namespace:
        yield namespace


def iptables(*words: str) -> str:
    return run(["iptables-nft", "-w", *words])


def is_docker(name: str) -> bool:
    return name == "DOCKER"


def changed(meanwhile: Callable[[], object], times: int = 1) -> list[str]:
    """The lines of FORWARD, with counts, after a rule is added to it; *meanwhile* is called, so many times,
    between the staging of the rules and the commit.
    """
    run(["iptables-nft-restore", "--counters"], RULES)
    kernel = Kernel(Family.IPV4, Backend.NFT)
    tables = of_kernel(kernel.read(), is_docker)
    forward = tables["filter"]["FORWARD"]
    more = TextRule("-s 10.0.0.2/32 -j DROP")
    tables["filter"]["FORWARD"] = TextChain(forward.policy, (*forward.rules, more))
    change = RuleSetChange(kernel, Wanted(tables, {}, tables), is_docker)
    flips = change.flips
    rest = [None] * times

    def disturbed() -> list[flip_nft.Flip]:
        if rest:
            rest.pop()
            meanwhile()
        return flips()

    change.flips = disturbed  # type: ignore[method-assign]
    assert not perform([change]).seconds  # in one commit
    return [line for line in iptables("-v", "-S", "FORWARD").splitlines() if line.startswith("-A")]


def remove_docker() -> None:
    iptables("-D", *JUMP)
    iptables("-F", "DOCKER")
    iptables("-X", "DOCKER")


@pytest.mark.needs_kernel
def test_a_program_can_remove_its_chain_while_new_rules_are_staged(namespace: Namespace) -> None:
    """A staged jump would keep the chain in use: "Device or resource busy"."""
    assert namespace.call(changed, remove_docker) == [
        "-A FORWARD -s 10.0.0.1/32 -c 7 700 -j DROP",
        "-A FORWARD -s 10.0.0.2/32 -c 0 0 -j DROP",
    ]
    assert "DOCKER" not in namespace.run(["iptables-nft-save"])


def delete_the_jump() -> None:
    iptables("-D", *JUMP)


@pytest.mark.needs_kernel
def test_a_jump_that_is_deleted_meanwhile_does_not_come_back(namespace: Namespace) -> None:
    assert all("DOCKER" not in line for line in namespace.call(changed, delete_the_jump))


def add_a_container() -> None:
    iptables("-A", "DOCKER", "-d", "172.17.0.2", "-j", "ACCEPT")


@pytest.mark.needs_kernel
def test_a_change_that_is_tried_again_counts_nothing_twice(namespace: Namespace) -> None:
    lines = namespace.call(changed, add_a_container, 3)
    assert lines == [
        "-A FORWARD -o docker0 -c 0 0 -j DOCKER",
        "-A FORWARD -s 10.0.0.1/32 -c 7 700 -j DROP",
        "-A FORWARD -s 10.0.0.2/32 -c 0 0 -j DROP",
    ]
    saved = namespace.run(["iptables-nft-save"])
    assert saved.count("172.17.0.2") == 3
    assert ":ht" not in saved  # the staged rules are gone


def bodies(wanted: str, kernel: str, came_from_kernel: bool) -> list[str]:
    tables = parse(wanted)
    merged = merge(of_kernel(tables, is_docker) if came_from_kernel else tables, parse(kernel), is_docker)
    return merged.tables["filter"]["FORWARD"].bodies


def test_a_jump_of_the_file_is_kept_and_one_that_came_from_the_kernel_is_as_it_is_there_now() -> None:
    without = RULES.replace("-A FORWARD -o docker0 -j DOCKER\n", "")
    jump, own = "-o docker0 -j DOCKER", "-s 10.0.0.1/32 -j DROP"
    for came_from_kernel in (False, True):
        assert bodies(RULES, RULES, came_from_kernel) == [jump, own]
        assert bodies(without, RULES, came_from_kernel) == [jump, own]
    assert bodies(RULES, without, came_from_kernel=False) == [jump, own]
    assert bodies(RULES, without, came_from_kernel=True) == [own]


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", list(Backend), ids=lambda backend: backend.value)
def test_a_rollback_does_not_bring_back_a_jump_that_its_program_has_deleted(
    backend: Backend, namespace: Namespace, tmp_path: Path
) -> None:
    firewall = Firewall(namespace, tmp_path, backend)
    own = RULES.replace("-A FORWARD -o docker0 -j DOCKER\n", "").replace(":DOCKER - [0:0]\n", "")
    firewall.load(RULES)
    firewall.apply(firewall.file(own), "--leave", "docker")
    firewall.apply(firewall.file(own.replace("10.0.0.1", "10.0.0.3")), "--leave", "docker")
    firewall.iptables("-D", *JUMP)
    firewall.hitables("rollback")
    assert "10.0.0.1" in firewall.save()
    firewall.iptables("-X", "DOCKER")


@pytest.mark.needs_kernel
def test_changes_that_take_long_to_find_do_not_hold_up_an_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hitables.cli.apply, "CHANGES_SECONDS", 1e-6)
    with namespaces.Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        shown = firewall.apply(firewall.file(RULES)).stdout
        assert "undecided: out of time" in shown
        assert "10.0.0.1" in firewall.save()


@pytest.mark.needs_kernel
def test_rules_that_change_all_the_time_are_recorded_once_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each of four attempts another program adds a rule: a rollback brings all back."""

    def beside_a_busy_program(changes: Sequence[RuleSetChange], staged: Callable[[], None]) -> Performed:
        rest = list(range(4))

        def attempts() -> None:
            while rest:
                number = rest.pop()
                iptables("-A", "FORWARD", "-s", f"10.9.9.{number}", "-j", "DROP")
                for change in changes:
                    change.read()
                staged()
            staged()

        return perform(changes, attempts)

    with monkeypatch.context() as patched:
        patched.setattr(hitables.apply.run, "perform", beside_a_busy_program)
        with namespaces.Namespace() as namespace:
            firewall = Firewall(namespace, tmp_path, Backend.NFT)
            firewall.load(RULES)
            told = firewall.apply(firewall.file(RULES.replace("10.0.0.1", "10.0.0.2"))).stderr
            assert told.count("the rules of the kernel changed while") == 1
            state = StateDirectory(firewall.state, -1).state()
            assert sorted(state.status.values()) == [CONFIRMED, FOUND] and state.last == max(state.status)
            assert "10.9.9" not in firewall.save()
            firewall.hitables("rollback")
            assert firewall.save().count("-s 10.9.9.") == 4

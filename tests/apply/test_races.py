"""Another program changes rules between the reading of the kernel and the change: nothing of either is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.firewall import Firewall
from support.small_namespace import Namespace

import hitables.apply.run
import hitables.cli.apply
from hitables.apply import flip_nft, load
from hitables.apply.kernel import Kernel
from hitables.apply.load import Performed, RuleSetChange, Wanted, perform
from hitables.apply.others import merge, of_kernel
from hitables.apply.records import CONFIRMED, FOUND
from hitables.apply.store import StateDirectory
from hitables.apply.texts import TextChain, TextRule, parse
from hitables.errors import LiveError
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


NEW = RULES.replace("10.0.0.1", "10.0.0.3")
NEW_CHAIN = NEW.replace(":DOCKER", ":new - [0:0]\n:DOCKER").replace("-o docker0 -j DOCKER", "-j new")
OTHERS = RULES.replace(":DOCKER - [0:0]\n", ":DOCKER - [0:0]\n:gone - [0:0]\n")


def changed_before(text: str, meanwhile: Callable[[], object], new: str, at_once: float = 10.0) -> str:
    """The rules after a change from OTHERS to *new*; *meanwhile* is called before the tool loads a text with
    *text*.
    """
    load._SECONDS_AT_ONCE = at_once  # in this process of the namespace
    run(["iptables-nft-restore", "--counters"], OTHERS)
    kernel = Kernel(Family.IPV4, Backend.NFT)
    change = RuleSetChange(kernel, Wanted(parse(new)), is_docker)
    usual, calls = kernel.load, [meanwhile]

    def disturbed(loaded: str) -> None:
        if text in loaded and calls:
            calls.pop()()
        usual(loaded)

    kernel.load = disturbed  # type: ignore[method-assign]
    perform([change])
    assert not calls
    return run(["iptables-nft-save"])


def remove_a_chain() -> None:
    iptables("-X", "gone")


def enter_a_chain() -> None:
    iptables("-A", "OUTPUT", "-j", "gone")


def times_tried() -> int:
    """How often a change loads its text if the tool refuses it."""
    tried = []

    def refuse(text: str) -> None:
        tried.append(text)
        raise LiveError("it is refused")

    kernel = Kernel(Family.IPV4, Backend.NFT)
    change = RuleSetChange(kernel, Wanted(parse(RULES)), is_docker)
    kernel.load = refuse  # type: ignore[method-assign]
    with pytest.raises(LiveError, match="it is refused"):
        perform([change])
    return len(tried)


@pytest.mark.needs_kernel
@pytest.mark.parametrize(("meanwhile", "stays"), [(remove_a_chain, False), (enter_a_chain, True)])
def test_a_chain_that_is_not_needed_may_go_or_be_entered_before_it_is_removed(
    meanwhile: Callable[[], None], stays: bool, namespace: Namespace
) -> None:
    """ "No chain/target/match by that name" and "Device or resource busy", when the rules were loaded."""
    saved = namespace.call(changed_before, "-X gone", meanwhile, NEW)
    assert "10.0.0.3" in saved and "10.0.0.1" not in saved
    assert (":gone" in saved) == stays == ("-A OUTPUT -j gone" in saved)


@pytest.mark.needs_kernel
@pytest.mark.parametrize(
    ("text", "new", "at_once"),
    [
        ("-A new -j DOCKER", NEW_CHAIN.replace("COMMIT", "-A new -j DOCKER\nCOMMIT"), 10.0),
        ("-A FORWARD", NEW, 0.0),
    ],
    ids=["a new chain", "table by table"],
)
def test_a_chain_that_a_text_enters_may_be_removed_before_the_text_is_loaded(
    text: str, new: str, at_once: float, namespace: Namespace
) -> None:
    saved = namespace.call(changed_before, text, remove_docker, new, at_once)
    assert "10.0.0.3" in saved and "DOCKER" not in saved


@pytest.mark.needs_kernel
def test_a_text_that_is_refused_while_nobody_changes_rules_is_tried_once(namespace: Namespace) -> None:
    assert namespace.call(times_tried) == 1


def perform_beside_a_flush() -> str:
    """The error of a change whose rules another program flushes as soon as they are loaded, each time."""
    kernel = Kernel(Family.IPV4, Backend.NFT)
    change = RuleSetChange(kernel, Wanted(parse(NEW)), is_docker)
    flip = load._flip

    def disturbed(*arguments: Any) -> float:
        seconds = flip(*arguments)
        iptables("-F", "FORWARD")
        return seconds

    load._flip = disturbed  # in this process of the namespace
    with pytest.raises(LiveError) as raised:
        perform([change])
    return str(raised.value)


@pytest.mark.needs_kernel
def test_rules_that_another_program_flushes_each_time_are_not_taken_for_loaded(namespace: Namespace) -> None:
    error = namespace.call(perform_beside_a_flush)
    expected = "other programs change the rules as fast as they are loaded: table filter, chain FORWARD"
    assert error == expected


def perform_beside_a_command_of_legacy() -> str:
    """The error of a command that another program calls when the tables have been read, and begin to change."""
    kernel = Kernel(Family.IPV4, Backend.LEGACY)
    run(["iptables-legacy-restore"], RULES)
    change = RuleSetChange(kernel, Wanted(parse(NEW)), is_docker)
    insist, errors = load._insist, []

    def disturbed(*arguments: Any) -> None:
        if arguments[0].__name__ == "load":
            with pytest.raises(LiveError) as raised:
                run(["iptables-legacy", "-w", "1", "-I", "FORWARD", "-j", "DROP"])
            errors.append(str(raised.value))
        insist(*arguments)

    load._insist = disturbed  # in this process of the namespace
    perform([change])
    return errors[0]


@pytest.mark.needs_kernel
def test_on_legacy_no_command_comes_between_the_reading_of_the_tables_and_their_change(
    namespace: Namespace,
) -> None:
    assert "holding the xtables lock" in namespace.call(perform_beside_a_command_of_legacy)


def test_rules_behind_another_policy_are_not_those_that_were_loaded() -> None:
    dropping, accepting = (TextChain(policy, (TextRule("-j ACCEPT"),)) for policy in ("DROP", "ACCEPT"))
    assert load._more_rules(dropping, dropping) == []
    assert load._more_rules(accepting, dropping) is None


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

"""Status says whether the kernel holds the rules, by rules and by proof, and puts them back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.command_clients import folder
from support.firewall import Firewall, office, plain
from support.small_namespace import Namespace
from support.small_records import FILTER, add, let_wait

from hitables.apply import status
from hitables.apply.records import ApplyState
from hitables.apply.status import Compared
from hitables.apply.store import StateDirectory
from hitables.cli.main import main
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.other_tables import tables_beside

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]

RULES = "*filter\n:INPUT DROP [0:0]\n" + "".join(
    f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {n} -j ACCEPT\n" for n in range(1, 41)
) + "COMMIT\n"  # fmt: skip


@pytest.fixture(params=list(Backend), ids=lambda backend: backend.value)
def firewall(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Firewall]:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, request.param)
        firewall.apply(firewall.file(RULES))
        yield firewall


def test_the_same_rules(firewall: Firewall) -> None:
    assert "the kernel holds rule set 2" in firewall.hitables("status").stdout


def looks_while_it_compares(folder: str) -> bool:
    """Whether the state directory can be opened while `status` compares rules."""
    compared, opened = status._compare, []

    def compare(*args: Any) -> Compared:
        with StateDirectory.open(folder, wait=0):
            opened.append(True)
        return compared(*args)

    status._compare = compare
    try:
        done = CliRunner().invoke(main, ["status", "--state", folder])
    finally:
        status._compare = compared
    return done.exit_code == 0 and bool(opened)


def test_a_comparison_that_takes_long_holds_nobody_up(firewall: Firewall) -> None:
    """A confirmation, or the guard."""
    assert firewall.namespace.call(looks_while_it_compares, str(firewall.state))


def test_rules_that_differ_and_decide_alike(firewall: Firewall) -> None:
    firewall.iptables("-A", "INPUT", "-s", "10.50.0.0/16", "-j", "DROP")
    shown = firewall.hitables("status", status=1).stdout
    assert "every packet is treated the same" in shown
    assert "is new: '-s 10.50.0.0/16 -j DROP', behind trees (rules " in shown
    assert "from which packets do not come back: insert it in front (-I), or have it in the file" in shown


def test_a_packet_that_is_treated_otherwise_and_the_repair(firewall: Firewall) -> None:
    before = plain(firewall.save())
    firewall.iptables("-I", "INPUT", "-s", "10.5.0.0/16", "-j", "ACCEPT")
    shown = firewall.hitables("status", status=1).stdout
    assert "packets are treated differently from rule set 2" in shown
    assert "was DROP by policy, now ACCEPT by line" in shown
    firewall.hitables("status", "--repair")
    assert plain(firewall.save()) == before
    firewall.hitables("status")


def test_lines_of_the_kernel_are_those_that_save_prints(firewall: Firewall) -> None:
    """Also where a first line says that rules without addresses are of IPv6; the only backend is not named."""
    office6 = firewall.file("*filter\n:INPUT DROP [0:0]\nCOMMIT\n", "office6.rules")
    firewall.apply(office6, "--family", 6)
    firewall.namespace.run(
        [f"ip6tables-{firewall.backend.value}", "-A", "INPUT", "-i", "eth9", "-j", "ACCEPT"]
    )
    shown = firewall.hitables("status", status=1).stdout
    words = [f"{folder()}/hitables", "save", "--family", "6", "--backend", firewall.backend.value]
    saved = firewall.namespace.run(words).splitlines()
    line = saved.index("-A INPUT -i eth9 -j ACCEPT") + 1
    assert f"was DROP by policy, now ACCEPT by line {line} of hitables save" in shown
    assert " only" not in shown
    would = firewall.apply(office6, "--family", 6, "--dry-run", status=1).stdout
    assert f"was ACCEPT by line {line} of hitables save, now DROP by policy" in would
    assert " only" not in would


def test_rules_that_differ_are_loaded_again_where_the_proof_has_no_answer(firewall: Firewall) -> None:
    before = plain(firewall.save())
    firewall.iptables("-I", "INPUT", "-s", "10.5.0.0/16", "-j", "ACCEPT")
    firewall.hitables("status", "--timeout", 0.000001, status=2)
    shown = firewall.hitables("status", "--timeout", 0.000001, "--repair").stdout
    assert "rule set 2 is loaded again" in shown
    assert plain(firewall.save()) == before


def test_chains_of_a_known_program_are_named_with_what_to_do(firewall: Firewall) -> None:
    firewall.iptables("-N", "f2b-sshd")
    firewall.iptables("-I", "INPUT", "-j", "f2b-sshd")
    shown = firewall.hitables("status", status=1).stdout
    assert "chains of fail2ban are not those of rule set 2" in shown
    assert "--leave fail2ban leaves them to fail2ban" in shown


def test_a_jump_of_another_program_that_moved_behind_our_rules_is_drift(firewall: Firewall) -> None:
    """In front it moves whenever its program starts, and decides no less."""
    firewall.iptables("-N", "f2b-a")
    firewall.iptables("-N", "f2b-b")
    firewall.iptables("-I", "INPUT", "-j", "f2b-a")
    firewall.apply(firewall.file(office()), "--leave", "fail2ban")
    held = plain(firewall.save())
    firewall.iptables("-I", "INPUT", "-j", "f2b-b")
    firewall.hitables("status")
    firewall.iptables("-D", "INPUT", "-j", "f2b-b")
    firewall.iptables("-D", "INPUT", "-j", "f2b-a")
    firewall.iptables("-A", "INPUT", "-j", "f2b-a")
    shown = firewall.hitables("status", status=1).stdout
    assert "packets are treated differently from rule set 3" in shown
    assert "table filter, chain INPUT: '-j f2b-a' comes after " in shown
    assert "rules that are not of --leave, was after 0" in shown
    warned = firewall.apply(firewall.file(office()), "--leave", "fail2ban", "--dry-run", status=1).stderr
    assert "'-j f2b-a' comes after " in warned
    assert "hitables status --repair before apply moves it back" in warned
    firewall.hitables("status", "--repair")
    assert plain(firewall.save()) == held
    firewall.hitables("status")


def test_a_jump_that_the_file_has_is_where_the_file_has_it(firewall: Firewall) -> None:
    """A program may insert it in front of rules that the file has before it, and accept what they drop."""
    firewall.iptables("-N", "CNI-FORWARD")
    rules = ["-d 203.0.113.9/32 -j DROP", "-j CNI-FORWARD", "-i lan0 -j ACCEPT"]
    lines = [
        "*filter",
        ":FORWARD DROP [0:0]",
        ":CNI-FORWARD - [0:0]",
        *(f"-A FORWARD {rule}" for rule in rules),
    ]
    text = "\n".join([*lines, "COMMIT\n"])
    file = firewall.file(text)
    firewall.apply(file, "--leave", "cni")
    held = plain(firewall.save())
    firewall.iptables("-D", "FORWARD", "-j", "CNI-FORWARD")
    firewall.iptables("-I", "FORWARD", "-j", "CNI-FORWARD")
    moved = "'-j CNI-FORWARD' comes after 0 rules that are not of --leave, was after 1"
    shown = firewall.hitables("status", status=1).stdout
    assert moved in shown and "to 203.0.113.9" in shown
    planned = firewall.apply(file, "--leave", "cni", "--dry-run", status=1)
    assert moved in planned.stderr and "treat every packet the same" not in planned.stderr + planned.stdout
    assert "to 203.0.113.9" in planned.stderr + planned.stdout
    firewall.hitables("status", "--repair")
    assert plain(firewall.save()) == held
    firewall.hitables("status")
    # It may be gone, while its chain is there: a program that stops removes both.
    firewall.iptables("-D", "FORWARD", "-j", "CNI-FORWARD")
    gone = "'-j CNI-FORWARD' is missing, so packets do not come to chain CNI-FORWARD"
    assert gone in firewall.hitables("status", status=1).stdout
    firewall.apply(file, "--leave", "cni", "--dry-run", status=1)
    firewall.hitables("status", "--repair")
    assert plain(firewall.save()) == held
    firewall.iptables("-D", "FORWARD", "-j", "CNI-FORWARD")
    firewall.iptables("-X", "CNI-FORWARD")
    firewall.hitables("status")
    firewall.iptables("-N", "CNI-FORWARD")
    firewall.hitables("status", "--repair")
    # A rule set that waits is confirmed all the same.
    firewall.hitables(
        "apply", firewall.file(text.replace("113.9", "113.8")), "--leave", "cni", "--confirm", 600
    )
    firewall.iptables("-D", "FORWARD", "-j", "CNI-FORWARD")
    firewall.iptables("-I", "FORWARD", "-j", "CNI-FORWARD")
    said = firewall.hitables("confirm").stderr
    assert "jumps to chains of other programs have moved" in said and moved in said


def test_of_two_equal_jumps_of_another_program_the_first_may_go(firewall: Firewall) -> None:
    """The second is as far behind as it was; one that moved behind more rules is named all the same."""
    firewall.iptables("-N", "f2b-a")
    text = RULES.replace("-A", ":f2b-a - [0:0]\n-A", 1)
    for rule in ("-A INPUT -s 10.1.0.0/16", "-A INPUT -s 10.2.0.0/16"):
        text = text.replace(rule, f"-A INPUT -j f2b-a\n{rule}")
    firewall.apply(firewall.file(text), "--leave", "fail2ban")
    firewall.iptables("-D", "INPUT", "1")
    firewall.hitables("status")
    firewall.iptables("-D", "INPUT", "-j", "f2b-a")
    firewall.iptables("-A", "INPUT", "-j", "f2b-a")
    assert "'-j f2b-a' comes after " in firewall.hitables("status", status=1).stdout


def test_a_flush_is_repaired(firewall: Firewall) -> None:
    firewall.iptables("-F")
    firewall.iptables("-X")
    firewall.iptables("-P", "INPUT", "ACCEPT")
    firewall.hitables("status", status=1)
    firewall.hitables("status", "--repair")
    assert "the kernel holds rule set 2" in firewall.hitables("status").stdout
    assert firewall.save().count("-j ACCEPT") == 40


def test_a_chain_that_chains_of_others_enter_is_theirs(firewall: Firewall) -> None:
    """It stays as it is when the rules are applied, and so it is no change of them."""
    for words in (
        "-N OWN", "-A OWN -s 10.99.0.0/16 -j DROP", "-N DOCKER-USER", "-A DOCKER-USER -j OWN",
        "-I INPUT -j DOCKER-USER",
    ):  # fmt: skip
        firewall.iptables(*words.split())
    more = firewall.file(RULES.replace("--dport 7 ", "--dport 77 "), "more.rules")
    said = firewall.apply(more, "--leave", "docker").stderr
    assert "kept as they are, because chains of others enter them: OWN" in said
    assert "the kernel holds" in firewall.hitables("status").stdout
    firewall.hitables("apply", more, "--leave", "docker", "--check", "true")
    firewall.iptables("-A", "INPUT", "-j", "OWN")
    firewall.hitables("status", status=1)


def test_a_compiled_chain_that_becomes_one_of_others_keeps_its_trees(firewall: Firewall) -> None:
    ours = RULES.replace(
        ":INPUT DROP [0:0]\n", ":INPUT DROP [0:0]\n:DOCKER-USER - [0:0]\n-A INPUT -j DOCKER-USER\n"
    )
    file = firewall.file(ours.replace("-A INPUT -s", "-A DOCKER-USER -s"))
    firewall.apply(file)
    assert "ht" in firewall.iptables("-S", "DOCKER-USER")
    firewall.apply(file, "--leave", "docker")
    assert "the kernel holds" in firewall.hitables("status").stdout


def test_rules_of_the_file_in_a_built_in_chain_that_is_left_are_named(firewall: Firewall) -> None:
    said = firewall.apply(firewall.file(RULES), "--leave", "INPUT").stderr
    assert (
        "table filter: --leave leaves chains as the kernel has them: rules that only the file has there are not "
        "loaded: INPUT ("
    ) in said
    assert "the kernel holds" in firewall.hitables("status").stdout


def test_rules_of_the_file_in_a_chain_of_others_are_counted(firewall: Firewall) -> None:
    """Only those that the kernel's chain does not hold, however they are spelled."""
    held = "-A DOCKER-USER -s 203.0.113.0/24 -p tcp -m tcp --dport 25 -j DROP\n"
    before = f"*filter\n:FORWARD DROP [0:0]\n:DOCKER-USER - [0:0]\n-A FORWARD -j DOCKER-USER\n{held}COMMIT\n"
    firewall.load(before)
    spelled = "-A DOCKER-USER -p tcp --dport 25 -s 203.0.113.0/24 -j DROP\n"
    said = firewall.apply(firewall.file(before.replace(held, spelled)), "--leave", "docker").stderr
    assert "not loaded" not in said
    more = held + held.replace("25", "26") + held.replace("25", "27")
    said = firewall.apply(firewall.file(before.replace(held, more)), "--leave", "docker").stderr
    assert "rules that only the file has there are not loaded: DOCKER-USER (2 rules)" in said
    assert "--dport 26" not in firewall.save()
    said = firewall.apply(firewall.file(before.replace(held, held + held)), "--leave", "docker").stderr
    assert "not loaded: DOCKER-USER (1 rule)" in said


def test_a_pattern_that_matches_chains_of_trees_leaves_them(firewall: Firewall) -> None:
    firewall.apply(firewall.file(RULES), "--leave", "ht*")
    firewall.hitables("status")


def test_a_comment_may_have_what_ends_a_line_elsewhere(firewall: Firewall) -> None:
    rule = '-A INPUT -s 10.1.0.0/16 -m comment --comment "a\u2028b\u2029c\x85d" -j DROP\n'
    path = firewall.folder / "comment.rules"
    path.write_text(RULES.replace("COMMIT", f"{rule}COMMIT"), encoding="utf-8", newline="")
    firewall.apply(path)
    assert "the kernel holds" in firewall.hitables("status").stdout
    assert "c\x85d" in firewall.hitables("counters").stdout
    assert "c\x85d" in firewall.save()


def test_a_tree_that_lost_a_rule_is_drift(firewall: Firewall) -> None:
    (tree,) = [line.split()[0][1:] for line in firewall.save().splitlines() if line.startswith(":ht")][:1]
    firewall.iptables("-D", tree, "1")
    assert "chains of trees are missing or have other rules" in firewall.hitables("status", status=1).stdout


def test_other_tables_on_the_hooks_are_named(firewall: Firewall) -> None:
    firewall.namespace.run(["nft", "add table inet firewalld"])
    chain = "add chain inet firewalld filter_INPUT { type filter hook input priority 10; policy drop; }"
    firewall.namespace.run(["nft", chain])
    shown = firewall.hitables("status").stdout
    assert "table inet firewalld of firewalld, too: hooks input (priority 10, policy drop)" in shown


@pytest.mark.parametrize(
    ("family", "hook"), [("netdev", "ingress device lo"), ("bridge", "input"), ("inet", "input")]
)
def test_a_table_of_another_family_may_have_the_name_of_one_of_iptables(family: str, hook: str) -> None:
    with Namespace() as namespace:
        namespace.run(["nft", f"add table {family} filter"])
        chain = f"{{ type filter hook {hook} priority 0; policy drop; }}"
        namespace.run(["nft", f"add chain {family} filter first {chain}"])
        named = f"packets pass table {family} filter, too: hooks {hook.split()[0]} (priority 0, policy drop)"
        assert named in namespace.call(tables_beside, [Family.IPV4], Backend.NFT)


def test_both_backends_at_once_are_named(firewall: Firewall) -> None:
    other = Backend.LEGACY if firewall.backend is Backend.NFT else Backend.NFT
    firewall.namespace.run([f"iptables-{other.value}", "-A", "INPUT", "-j", "DROP"])
    assert "packets pass tables of" in firewall.hitables("status").stdout


def test_a_rule_that_the_tools_misprint_is_trouble(tmp_path: Path) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.apply(firewall.file(RULES))
        firewall.namespace.run(["nft", "add rule ip filter INPUT tcp dport { 22, 80 } accept"])
        assert "does not print the rules of the kernel" in firewall.hitables("status", status=2).stderr


def test_without_a_state_status_is_an_error(tmp_path: Path) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        assert "there is no such state directory" in firewall.hitables("status", status=2).stderr


def test_a_family_that_cannot_be_read_does_not_hide_the_other(tmp_path: Path) -> None:
    """And the other one is repaired."""
    six = "*filter\n:INPUT DROP [0:0]\n-A INPUT -s 2001:db8::/32 -j ACCEPT\nCOMMIT\n"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        firewall.apply(firewall.file(RULES), firewall.file(six, "six.rules"))
        namespace.run(["nft", "insert rule ip filter INPUT ip daddr { 192.0.2.1, 192.0.2.9 } accept"])
        shown = firewall.hitables("status", status=2).stdout
        assert "IPv4: it is unknown whether the kernel holds rule set 2: " in shown
        assert "IPv6: the kernel holds rule set 2" in shown
        namespace.run(["ip6tables-nft", "-F", "INPUT"])
        document = json.loads(firewall.hitables("status", "--format", "json", status=2).stdout)
        assert [each["answer"] for each in document["families"]] == ["undecided", "different"]
        assert "192.0.2.9" in document["families"][0]["reason"] and document["findings"]
        shown = firewall.hitables("status", "--repair", status=2).stdout
        assert "IPv6 of rule set 2 is loaded again" in shown
        assert "2001:db8::/32" in firewall.save(Family.IPV6)


def test_rules_that_wait_are_not_loaded_again(store: StateDirectory) -> None:
    """Those before them would be loaded, and the ones that wait could be confirmed all the same."""
    let_wait(store, add(store, ApplyState(), FILTER))
    with pytest.raises(HitablesError, match="rule set 2 waits for its confirmation: hitables confirm"):
        status.repair(store)

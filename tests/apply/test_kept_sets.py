"""ipsets and accounting objects of earlier rules, which come back with them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from support.firewall import Firewall, plain
from support.waiting_rules import NEW, OLD

from hitables.apply import confirm
from hitables.apply.store import StateDirectory
from hitables.ir.packet import Backend
from hitables.kernel.ipset_text import created_sets, members_of
from hitables.kernel.netlink import Netfilter, message, text
from hitables.kernel.prerequisites import furnish

pytestmark = pytest.mark.needs_kernel


WITH_SETS = (
    "*filter\n:INPUT ACCEPT [0:0]\n"
    "-A INPUT -m set --match-set good src -j ACCEPT\n-A INPUT -m set --match-set many src -j DROP\nCOMMIT\n"
)


SETS = (
    "create good hash:net\nadd good 192.0.2.0/24\ncreate one hash:ip\nadd one 192.0.2.7\n"
    "create many list:set\nadd many one\n"
)


@pytest.mark.parametrize("firewall", [Backend.NFT], ids=["nft"], indirect=True)
def test_a_repair_creates_ipsets_with_the_members_that_they_had_when_the_rules_were_confirmed(
    firewall: Firewall,
) -> None:
    firewall.namespace.run(["ipset", "restore"], SETS)
    firewall.apply(firewall.file(WITH_SETS))
    firewall.iptables("-F")
    for name in ("good", "many", "one"):
        firewall.namespace.run(["ipset", "destroy", name])
    firewall.hitables("status", "--repair")
    assert "add one 192.0.2.7" in firewall.namespace.run(["ipset", "save"])
    assert "--match-set many src -j DROP" in firewall.save()


@pytest.mark.parametrize("way", ["guard", "rollback"])
def test_old_rules_come_back_with_the_ipsets_that_were_destroyed(firewall: Firewall, way: str) -> None:
    firewall.namespace.run(["ipset", "restore"], SETS)
    firewall.namespace.run([f"iptables-{firewall.backend.value}-restore"], WITH_SETS)
    before = plain(firewall.save())
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 2 if way == "guard" else 600)
    for name in ("good", "many", "one"):
        firewall.namespace.run(["ipset", "destroy", name])
    if way == "rollback":
        assert "ipset good did not exist any more" in firewall.hitables("rollback").stderr
    firewall.until(
        lambda: "ipset good did not exist any more: it is created anew, with the 1 member" in firewall.log()
    )
    assert plain(firewall.save()) == before
    sets = firewall.namespace.run(["ipset", "save"])
    assert all(each in sets for each in ("add good 192.0.2.0/24", "add one 192.0.2.7", "add many one"))


def delete_account(name: str) -> int:
    with contextlib.closing(Netfilter()) as netfilter:
        return netfilter.each([message(7, 3, 0, 0, text(1, name))])


@pytest.mark.parametrize("way", ["guard", "rollback"])
def test_old_rules_come_back_with_the_accounting_objects_that_were_deleted(
    firewall: Firewall, way: str
) -> None:
    furnish(firewall.namespace, "--nfacct-name web")
    firewall.load(OLD.replace("COMMIT", "-A INPUT -m nfacct --nfacct-name web\nCOMMIT"))
    before = plain(firewall.save())
    assert "--nfacct-name web" in " ".join(before.split())
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 2 if way == "guard" else 600)
    assert firewall.namespace.call(delete_account, "web") == 0
    if way == "rollback":
        assert "nfacct web did not exist any more" in firewall.hitables("rollback").stderr
    firewall.until(lambda: "nfacct web did not exist any more: it is created anew" in firewall.log())
    assert plain(firewall.save()) == before


def test_an_ipset_that_exists_or_of_which_nothing_is_known_is_not_restored(firewall: Firewall) -> None:
    firewall.namespace.run(["ipset", "restore"], SETS)
    firewall.namespace.run([f"iptables-{firewall.backend.value}-restore"], WITH_SETS)
    firewall.apply(firewall.file(NEW))
    firewall.namespace.run(["ipset", "flush", "good"])
    firewall.namespace.run(["ipset", "destroy", "many"])
    (firewall.state / "sets/many.save").unlink()
    assert (
        "ipset many did not exist any more: it is created anew, and empty"
        in firewall.hitables("rollback").stderr
    )
    sets = firewall.namespace.run(["ipset", "save"])
    assert "create many" in sets and "add good" not in sets and "add many" not in sets


# Comments that end with a backslash, and a name with a quote.
ODD = r"""
create good hash:ip comment
add good 192.0.2.7 comment "C:\dir\"
add good 192.0.2.8 comment "it's 1"
create it's hash:ip comment
add it's 192.0.2.9 comment "no timeout 5 \"
create many list:set comment
add many it's comment "a\"
""".lstrip()


@pytest.mark.either_backend
@pytest.mark.parametrize("way", ["guard", "rollback"])
def test_sets_with_backslashes_and_quotes_in_names_and_comments_come_back(
    firewall: Firewall, way: str
) -> None:
    firewall.namespace.run(["ipset", "restore"], ODD)
    firewall.apply(firewall.file(WITH_SETS))
    before = plain(firewall.save())
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 2 if way == "guard" else 600)
    for name in ("many", "it's", "good"):
        firewall.namespace.run(["ipset", "destroy", name])
    if way == "rollback":
        firewall.hitables("rollback")
    firewall.until(
        lambda: "ipset good did not exist any more: it is created anew, with the 2" in firewall.log()
    )
    firewall.until(lambda: plain(firewall.save()) == before)
    sets = firewall.namespace.run(["ipset", "save"])
    assert all(line in sets for line in ODD.split("\n") if line.startswith("add "))


@pytest.mark.either_backend
def test_a_rule_names_a_set_with_a_quote_in_its_name(firewall: Firewall) -> None:
    for name in ("it's", 'say "x"', "a b", "not\nhere"):
        firewall.namespace.run(["ipset", "create", name, "hash:ip"])
    rule = "-A INPUT -m set --match-set {} src -j DROP"
    rules = rule.format('"it\'s"')
    firewall.apply(firewall.file(f"*filter\n:INPUT ACCEPT [0:0]\n{rules}\nCOMMIT\n"))
    assert rule.format("it's") in firewall.save()
    firewall.apply(firewall.file(NEW))
    firewall.namespace.run(["ipset", "destroy", "it's"])
    firewall.hitables("rollback")
    assert rule.format("it's") in firewall.save()
    firewall.hitables("status")
    missing = rule.format('"isn\'t"')
    text = f"*filter\n:INPUT ACCEPT [0:0]\n{missing}\nCOMMIT\n"
    assert "ipset isn't" in firewall.apply(firewall.file(text), status=2).stderr


def test_what_ipset_prints_of_sets_is_read_as_it_prints_it() -> None:
    text = (
        "create a b hash:ip family inet hashsize 1024 maxelem 9 comment bucketsize 12 initval 0x1\n"
        'add a b 192.0.2.7 timeout 9 packets 0 bytes 0 comment "add a b \\"\n'
        "create L list:set size 8\nadd L a b\nadd L timeout 5 timeout 5\n"
    )
    sets = created_sets(text)
    assert [*sets] == ["a b", "L"] and sets["L"].is_list and not sets["a b"].is_list
    assert sets["a b"].options == ("family", "inet", "maxelem", "9", "comment")
    assert members_of("a b", text) == ["192.0.2.7"]
    assert members_of("L", text) == ["a b", "timeout 5"]


def taken_back_in_trouble(folder: str, trouble: str) -> None:
    """Take back what waits as its guard does, while a function of the way back fails."""

    def fail(*_: object) -> list[str]:
        raise KeyError("the reason")

    with pytest.MonkeyPatch.context() as patch:
        number = StateDirectory(Path(folder), -1).state().last_applied
        patch.setattr(confirm, "_is_own", lambda *_: True)
        patch.setattr(confirm.guards, "tell_everyone", lambda message: None)
        patch.setattr(confirm, trouble, fail)
        with contextlib.suppress(KeyError):
            confirm.duty(folder, number, None).roll_back("of a test")


def test_no_trouble_with_sets_keeps_the_old_rules_from_being_loaded(firewall: Firewall) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    firewall.namespace.call(taken_back_in_trouble, str(firewall.state), "create_missing")
    assert plain(firewall.save()) == before
    assert "are not created again: KeyError: 'the reason'" in firewall.log()


def test_a_fault_of_the_way_back_is_logged(firewall: Firewall) -> None:
    firewall.hitables("apply", firewall.file(NEW), "--confirm", 600)
    firewall.namespace.call(taken_back_in_trouble, str(firewall.state), "differences_of_found")
    assert "cannot be taken back: KeyError: 'the reason'" in firewall.log()
    assert "could not be taken back: KeyError: 'the reason'" in firewall.hitables("status", status=2).stdout
    firewall.hitables("rollback")

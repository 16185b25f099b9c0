"""ipsets and accounting objects of earlier rules, which come back with them."""

from __future__ import annotations

import contextlib

import pytest
from support.firewall import Firewall, plain
from support.waiting_rules import NEW, OLD

from hitables.ir.packet import Backend
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

"""Tables that are given up with `hitables release`, and what takes them again."""

from __future__ import annotations

import pytest
from support.firewall import Firewall
from support.tables_in_force import MASQUERADE, NAT, filtered, other_file, six

from hitables.ir.fields import Family

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]


@pytest.fixture
def firewall(firewall_in_force: Firewall) -> Firewall:
    return firewall_in_force


def confirmed_tables(firewall: Firewall, name: str = "confirmed.rules") -> list[str]:
    path = firewall.state / name
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted(line[1:] for line in lines if line.startswith("*"))


def boot(firewall: Firewall) -> None:
    """Run the script of the boot, which ends with 101 where the compiled rules are loaded."""
    firewall.namespace.run(["/bin/sh", "-c", f"sh {firewall.state}/boot/load; [ $? = 101 ]"])


def test_a_table_that_is_given_up_is_no_more_compared_repaired_or_loaded_at_boot(firewall: Firewall) -> None:
    firewall.hitables("persist", "--unit-folder", firewall.folder)
    kept = firewall.save()
    told = firewall.hitables("release", "nat").stdout
    assert (
        told == "rule set 3 is in force without table nat of IPv4; the kernel keeps these rules as they are\n"
    )
    assert "3: 2 without nat of IPv4\n" in firewall.log()
    assert firewall.save() == kept
    firewall.iptables(*MASQUERADE)
    shown = firewall.hitables("status").stdout
    assert "IPv4: the kernel holds rule set 3\n" in shown and "nat" not in shown
    firewall.iptables("-F", "INPUT")
    firewall.hitables("status", "--repair")
    assert "192.168.0.0/16" in firewall.save() and "--dport 22 " in firewall.save()
    assert confirmed_tables(firewall) == ["filter"]
    steps = {file.name: file.read_text() for file in (firewall.state / "boot").iterdir()}
    assert not [name for name, text in steps.items() if "*nat" in text], steps.keys()
    boot(firewall)
    assert "192.168.0.0/16" in firewall.save()


def test_an_apply_of_the_file_takes_a_table_that_was_given_up_again(firewall: Firewall) -> None:
    """Whether the kernel still holds the table or not."""
    path = firewall.file(filtered(2222) + NAT, "both.rules")
    for is_kept in (True, False):
        firewall.apply(path)
        firewall.hitables("release", "filter", "--family", 4)
        if not is_kept:
            firewall.iptables("-F", "INPUT")
            firewall.iptables("-P", "INPUT", "ACCEPT")
        firewall.apply(path, "--dry-run", status=1)
        firewall.apply(path)
        assert "--dport 2222 " in firewall.save()
        firewall.iptables("-F", "INPUT")
        assert "table filter" in firewall.hitables("status", status=1).stdout
        firewall.hitables("status", "--repair")


def test_a_table_that_was_given_up_before_persist_is_in_no_file_of_the_boot(firewall: Firewall) -> None:
    firewall.apply(other_file(firewall))
    firewall.hitables("release", "nat")
    firewall.hitables("persist", "--unit-folder", firewall.folder)
    steps = {file.name: file.read_text() for file in (firewall.state / "boot").iterdir()}
    assert "last4" in steps
    assert not [name for name, text in steps.items() if "*nat" in text]


def test_a_family_may_be_given_up(firewall: Firewall) -> None:
    firewall.hitables("persist", "--unit-folder", firewall.folder)
    firewall.hitables("release", "filter", "--family", 6)
    assert (
        confirmed_tables(firewall) == ["filter", "nat"] and not (firewall.state / "confirmed6.rules").exists()
    )
    six(firewall, "-F")
    assert "IPv6" not in firewall.hitables("status").stdout
    boot(firewall)
    assert "2001:db8::/32" not in firewall.save(Family.IPV6)


def test_other_tables_stay_in_force_when_all_of_the_last_apply_are_given_up(firewall: Firewall) -> None:
    firewall.apply(firewall.file(NAT.replace("10.0.0.0/8", "10.1.0.0/16"), "nat.rules"))
    firewall.hitables("release", "nat")
    shown = firewall.hitables("status").stdout
    assert "IPv4: the kernel holds rule set 4\n" in shown and "IPv6: the kernel holds rule set 4\n" in shown
    listed = firewall.hitables("history").stdout.splitlines()
    assert [line.split()[:2] for line in listed if line.startswith("*")] == [["*", "4"]]
    assert "-p icmp" not in firewall.hitables("counters", "--family", 4).stdout
    firewall.apply(other_file(firewall))
    assert confirmed_tables(firewall) == ["filter"]
    firewall.hitables("rollback", 3)
    assert confirmed_tables(firewall) == ["filter", "nat"], "it has the table again"


def test_what_is_not_in_force_cannot_be_given_up(firewall: Firewall) -> None:
    def refused(*arguments: object) -> str:
        return firewall.hitables("release", *arguments, status=2).stderr

    assert (
        "table raw is not in force with rule set 2, which has filter of IPv4, nat of IPv4, filter of IPv6"
        in (refused("raw"))
    )
    assert "table nat of IPv6 is not in force" in refused("nat", "--family", 6)
    told = refused("filter", "nat")
    assert "rule set 2 has no other table.  To give up all, whatever the kernel holds now: " in told
    assert f"hitables persist --remove --state {firewall.state}, and remove the directory" in told
    firewall.hitables("apply", other_file(firewall), "--confirm", 600)
    assert "rule set 3 waits for its confirmation" in refused("nat")
    firewall.hitables("rollback")

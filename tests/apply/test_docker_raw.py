"""A rule set with table raw removes the rules of docker there: apply and status say so before."""

from __future__ import annotations

import pytest
from support.firewall import Firewall

import hitables
from hitables.apply.docker_raw import removed
from hitables.ir.fields import Family

OF_DOCKER = (
    "-d 172.17.0.2/32 ! -i docker0 -j DROP",
    "-d 172.18.0.2/32 ! -i br-dae8ec04885c -j DROP",
    "-d 172.18.0.3/32 ! -i docker_gwbridge -j DROP",
    "-d 127.0.0.1/32 ! -i lo -p tcp -m tcp --dport 8081 -j DROP",
)
OF_USERS = (
    "-d 192.0.2.7/32 ! -i eth0 -j DROP",
    "-d 172.17.0.2/32 ! -i docker0 -j ACCEPT",
    "-i docker0 -j DROP",
)


def raw(*rules: str) -> str:
    return "*raw\n" + "".join(f"-A PREROUTING {rule}\n" for rule in rules) + "COMMIT\n"


MINE = raw("-s 198.51.100.0/24 -j DROP")


def test_rules_of_docker_are_known_by_their_form() -> None:
    kernel = hitables.read(raw(*OF_DOCKER, *OF_USERS))
    assert removed(kernel, hitables.read(MINE)) == [f"-A PREROUTING {rule}" for rule in OF_DOCKER]
    assert not removed(kernel, hitables.read("*filter\nCOMMIT\n")), "the table stays as it is"
    as_written = raw(
        "! -i docker0 -d 172.17.0.2 -j DROP",
        *OF_DOCKER[1:3],
        "-p tcp --dport 8081 -d 127.0.0.1 ! -i lo -j DROP",
    )
    assert not removed(kernel, hitables.read(as_written)), "the file has them"
    ipv6 = hitables.read(raw("-d fd00:1::2/128 ! -i docker0 -j DROP"), family=Family.IPV6)
    assert len(removed(ipv6, hitables.read(raw(), family=Family.IPV6))) == 1


@pytest.mark.needs_kernel
def test_apply_and_status_warn_before_they_remove_rules_of_docker(firewall: Firewall) -> None:
    for rule in OF_DOCKER:
        firewall.iptables("-t", "raw", "-A", "PREROUTING", *rule.split())
    warned = firewall.apply(firewall.file(MINE)).stderr
    assert f"removes 4 rules of docker from table raw, as '-A PREROUTING {OF_DOCKER[0]}'" in warned
    assert "leave table raw out of" in warned
    firewall.iptables("-t", "raw", "-A", "PREROUTING", *OF_DOCKER[0].split())
    repaired = firewall.hitables("status", "--repair").stdout
    said = repaired.index("--repair removes 1 rule of docker from table raw")
    assert said < repaired.index("is loaded again")
    firewall.iptables("-t", "raw", "-A", "PREROUTING", *OF_DOCKER[0].split())
    firewall.state = firewall.folder / "new"
    firewall.apply(firewall.file("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"))
    firewall.hitables("status")
    assert OF_DOCKER[0] in firewall.save()

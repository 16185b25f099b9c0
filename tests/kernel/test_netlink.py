"""Netlink to netfilter: users that may do less than root, and errors of the socket."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import sys
from pathlib import Path

import pytest
from support.firewall import Firewall
from support.small_namespace import Namespace

from hitables.apply.kernel import Kernel
from hitables.apply.load import RuleSetChange, Wanted, perform
from hitables.apply.texts import parse
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import netlink
from hitables.kernel.namespace import run
from hitables.kernel.prerequisites import accounts, make_accounts

pytestmark = pytest.mark.needs_kernel

RULES = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -s 10.0.0.1/32 -j DROP
COMMIT
"""


def test_root_of_an_unprivileged_container_reads_its_rules() -> None:
    """It may not force larger buffers upon the kernel."""
    script = (
        f"iptables-nft -A FORWARD -s 10.0.0.1/32 -j DROP && {sys.executable} -m hitables save --backend nft"
    )
    command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "-A FORWARD -s 10.0.0.1/32 -j DROP" in done.stdout, done.stderr


def errors_of_small_buffers() -> list[str | int | None]:
    """The messages and numbers of the errors when a message is longer than the buffer for sending."""
    found: list[str | int | None] = []
    netlink._BUFFER = 1
    with contextlib.closing(netlink.Netfilter()) as netfilter:
        long = netlink.message(netlink.NFTABLES, 0, 0, 2, bytes(1 << 20))
        for send in (
            lambda: netfilter.commit([long]),
            lambda: netfilter.each([long]),
            lambda: netfilter.ask(long),
            lambda: list(netfilter.dump(long)),
            lambda: netfilter.dump_whole(long),
        ):
            try:
                send()
            except LiveError as error:
                assert isinstance(error.__cause__, OSError)
                found += [str(error), error.__cause__.errno]
    return found


def test_an_error_of_the_socket_is_reported_as_one_of_the_kernel() -> None:
    with Namespace() as namespace:
        errors = namespace.call(errors_of_small_buffers)
    assert errors == ["netfilter: Message too long", errno.EMSGSIZE] * 5


def applied_with_small_buffers() -> str:
    run(["iptables-nft-restore"], RULES)
    kernel = Kernel(Family.IPV4, Backend.NFT)
    more = "".join(f"-A FORWARD -s 10.0.1.{at}/32 -j DROP\n" for at in range(200))
    wanted = Wanted(parse(RULES.replace("COMMIT", f"{more}COMMIT")))
    change = RuleSetChange(kernel, wanted, lambda name: False)
    netlink._BUFFER = 1 << 13
    performed = perform([change])
    assert performed.seconds  # not in one commit
    return run(["iptables-nft-save"])


def test_a_change_longer_than_the_buffer_is_made_table_by_table() -> None:
    with Namespace() as namespace:
        assert namespace.call(applied_with_small_buffers).count("-s 10.0.1.") == 200


def test_names_of_chains_need_not_be_utf_8(tmp_path: Path) -> None:
    """The second apply deletes and names chains through the socket."""
    chain = ":caf\udce9 - [0:0]\n-A FORWARD -j caf\udce9\n-A caf\udce9 -s 10.0.0.2/32 -j DROP\n"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        for address in ("10.0.0.2", "10.0.0.3"):
            rules = RULES.replace("COMMIT", chain.replace("10.0.0.2", address) + "COMMIT")
            firewall.apply(firewall.file(rules))
            assert f"-A caf\udce9 -s {address}/32 -j DROP" in firewall.save()


def accounts_made(name: str) -> set[str]:
    make_accounts([name])
    return accounts()


def test_names_of_accounting_objects_need_not_be_utf_8() -> None:
    with Namespace() as namespace:
        assert namespace.call(accounts_made, "caf\udce9") == {"caf\udce9"}

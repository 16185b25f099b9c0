"""A limit that is asked for packets above it, and the same limit for packets up to it."""

from __future__ import annotations

import re
import socket

import pytest
from support.small_namespace import Namespace

import hitables
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load, save

LIMITS = {
    "hashlimit": "hashlimit --hashlimit-{} 1/hour --hashlimit-burst 3 --hashlimit-mode srcip --hashlimit-name web",
    "connlimit": "connlimit --connlimit-{} 2 --connlimit-mask 24",
}
WEB = "-A INPUT -p tcp -m tcp --dport 80"


def filtered(*rules: str) -> str:
    return "\n".join(["*filter", ":INPUT ACCEPT [0:0]", ":log - [0:0]", *rules, "COMMIT", ""])


def limit(name: str, kind: str) -> str:
    return f"-m {LIMITS[name].format(kind)}"


def is_equal(before: str, after: str) -> bool:
    answers = {bool(hitables.check(before, after, engine=engine)) for engine in ("exact", "diagrams")}
    answers |= {bool(hitables.check(after, before)), not hitables.diff(before, after).regions}
    (answer,) = answers
    return answer


@pytest.mark.parametrize("name", LIMITS)
def test_to_accept_up_to_a_limit_is_to_drop_above_it(name: str) -> None:
    upto = filtered(f"{WEB} {limit(name, 'upto')} -j ACCEPT", f"{WEB} -j DROP")
    above = filtered(f"{WEB} {limit(name, 'above')} -j DROP", f"{WEB} -j ACCEPT")
    assert is_equal(upto, above)
    assert not is_equal(upto, above.replace("above 2", "above 3").replace("1/hour", "2/hour"))
    assert not is_equal(upto, above.replace("-j DROP", "-j LOG"))
    assert not is_equal(upto, above.replace("--dport 80", "--dport 81", 1))


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("target", ["-j LOG", "-j log", "", "-j REJECT"])
def test_what_stands_behind_the_limit_is_asked_above_it(name: str, target: str) -> None:
    """And a rule that does not decide lets its packets go on in its chain."""
    log, last = "-A log -j LOG --log-prefix x", f"{WEB} -j DROP"
    above = filtered(f"{WEB} {limit(name, 'above')} -m mark --mark 1 {target}", last, log)
    chain = f"{WEB} -j over", f"-A over {limit(name, 'upto')} -j RETURN"
    assert is_equal(
        above,
        filtered(*chain, f"-A over -p tcp -m mark --mark 1 {target}", last, log).replace(
            ":log", ":over - [0:0]\n:log"
        ),
    )
    assert not is_equal(above, filtered(*chain, f"-A over -p tcp -m mark --mark 2 {target}", last, log).replace(":log", ":over - [0:0]\n:log"))  # fmt: skip


@pytest.mark.parametrize("target", ["-g log", "-j RETURN"])
def test_a_rule_that_leaves_its_chain_is_left_as_it_is(target: str) -> None:
    above = filtered(f"{WEB} {limit('hashlimit', 'above')} {target}", f"{WEB} -j DROP", "-A log -j LOG")
    upto = filtered(f"{WEB} {limit('hashlimit', 'upto')} -j ACCEPT", f"{WEB} -j DROP", "-A log -j LOG")
    assert not is_equal(above, upto) and is_equal(above, above)
    # Behind the rule of `upto` all are dropped; the policy lets those through that left.
    drops = filtered(f"{WEB} {limit('hashlimit', 'upto')} -j log", f"{WEB} -j DROP", "-A log -j LOG")
    logs = drops.replace("-j log", "-j DROP").replace(f"{WEB} -j DROP", f"{WEB} -j LOG\n{WEB} -j DROP")
    for asks in (drops, drops.replace("-j log", "-j DROP"), logs):
        assert not hitables.check(above, asks)


def send_ten() -> None:
    """In the helper process: a datagram of each of ten ports, which begins a connection."""
    for port in range(40000, 40010):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("127.0.0.1", port))
            sender.sendto(b"", ("127.0.0.1", 9))


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(("name", "within"), [("hashlimit", 3), ("connlimit", 2)])
def test_the_kernel_counts_the_other_packets_above(name: str, within: int, backend: Backend) -> None:
    counts = {}
    for kind in ("upto", "above"):
        with Namespace() as namespace:
            namespace.run(["ip", "link", "set", "lo", "up"])
            rule = f"-A INPUT -p udp -m udp --dport 9 {limit(name, kind)}"
            load(f"*filter\n{rule}\n-A INPUT -p udp -m udp --dport 9 -j DROP\nCOMMIT\n", Family.IPV4, backend, namespace)  # fmt: skip
            namespace.call(send_ten)
            text = save(Family.IPV4, backend, namespace, counters=True)
            (count,) = re.findall(rf"\[(\d+):\d+\] -A INPUT .*{kind}", text)
            counts[kind] = int(count)
    assert counts["upto"] + counts["above"] == 10 and counts["upto"] >= within, counts

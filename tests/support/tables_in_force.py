"""A firewall with tables of both families in force: rules, and what tests do with them."""

from __future__ import annotations

from pathlib import Path

from .firewall import Firewall


def filtered(port: int) -> str:
    """A table filter that is compiled, and knows *port*."""
    rules = "".join(
        f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {7000 + n} -j ACCEPT\n" for n in range(30)
    )
    last = f"-A INPUT -i lo -p udp -m udp --dport {port} -j DROP\n"
    return f"*filter\n:INPUT ACCEPT [0:0]\n{rules}{last}COMMIT\n"


NAT = "*nat\n-A POSTROUTING -s 10.0.0.0/8 -p icmp -j MASQUERADE\nCOMMIT\n"
SIX = "*filter\n:INPUT DROP [0:0]\n-A INPUT -s 2001:db8::/32 -j ACCEPT\nCOMMIT\n"
BAN6 = ("-I", "INPUT", "-s", "2001:db8::bad/128", "-j", "DROP")
MASQUERADE = ("-t", "nat", "-A", "POSTROUTING", "-s", "192.168.0.0/16", "-j", "MASQUERADE")


def six(firewall: Firewall, *arguments: str) -> None:
    firewall.namespace.run([f"ip6tables-{firewall.backend.value}", *arguments])


def other_file(firewall: Firewall) -> Path:
    return firewall.file(filtered(2222), "other.rules")

"""Small tables for kernels: rules of iptables, and native ones of nftables."""

from __future__ import annotations

import pytest

from hitables.ir.fields import Family
from hitables.ir.packet import Backend

EVERYWHERE = pytest.mark.parametrize(
    ("family", "backend"), [(family, backend) for family in Family for backend in Backend]
)
NET = {Family.IPV4: "10.0.{}.0/24", Family.IPV6: "fd00:{}::/32"}


def tool(family: Family, backend: Backend) -> str:
    return ("iptables" if family is Family.IPV4 else "ip6tables") + f"-{backend.value}"


def rules(family: Family, count: int, chain: str = "INPUT", target: str = "ACCEPT") -> str:
    lines = (
        f"-A {chain} -s {NET[family].format(n)} -p tcp -m tcp --dport {n + 1} -j {target}\n"
        for n in range(count)
    )
    return "*filter\n" + "".join(lines) + "COMMIT\n"


def native(*lines: str, family: Family = Family.IPV4, more: str = "", policy: str = "accept") -> str:
    """Table filter with these native rules in INPUT."""
    kind = "ip" if family is Family.IPV4 else "ip6"
    inside = "".join(f"  {line}\n" for line in lines)
    return (
        f"table {kind} filter {{\n{more} chain web {{ }}\n chain INPUT {{\n"
        f"  type filter hook input priority 0; policy {policy};\n{inside} }}\n}}\n"
    )

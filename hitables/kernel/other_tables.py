"""Tables that packets pass beside those of one iptables: other tables of nf_tables, and the other backend's.

Their chains may drop what the rules here accept, and no comparison of the rules here shows it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from .checked_save import also_present
from .contents import TABLES

_OF_BOTH = ("inet", "netdev", "bridge")  # families of nf_tables with packets of IPv4 and IPv6
# Programs by the names of their tables, or the beginnings of these.
_OWNERS = (
    ("firewalld", "firewalld"),
    ("docker", "docker"),
    ("kube-proxy", "kube-proxy"),
    ("kube", "kubernetes"),
    ("calico", "calico"),
    ("cilium", "cilium"),
    ("f2b", "fail2ban"),
    ("crowdsec", "crowdsec"),
    ("libvirt", "libvirt"),
    ("netavark", "podman"),
    ("podman", "podman"),
    ("cni_", "the CNI plugins"),
    ("lxd", "LXD"),
    ("incus", "Incus"),
)


def tables_beside(families: Iterable[Family], backend: Backend) -> list[str]:
    """A message for each table of nf_tables, or of the other backend, that packets of *families* pass too.

    One says so if the tables of nf_tables cannot be listed.
    """
    families = list(families)
    warnings = (also_present(family, backend) for family in families)
    found = [warning.removeprefix("warning: ") for warning in warnings if warning]
    try:
        return found + native_tables(families)
    except LiveError as error:
        return [*found, f"{error}; other tables of nf_tables are not known"]


def native_tables(families: Iterable[Family]) -> list[str]:
    """A message for each table of nf_tables that packets of *families* pass and iptables-save does not print.

    LiveError if nft cannot list them.
    """
    try:
        listed = subprocess.run(["nft", "-j", "list", "chains"], capture_output=True, check=False)
    except OSError as error:
        raise LiveError("nft is not installed") from error
    if listed.returncode:
        reason = listed.stderr.decode("utf-8", "replace").strip()
        raise LiveError(f"nft list chains: {reason or 'no message'}")
    try:
        items = json.loads(listed.stdout)["nftables"]
    except (ValueError, KeyError, TypeError) as error:
        raise LiveError("nft -j list chains: no JSON") from error
    of_iptables = ["ip" if family is Family.IPV4 else "ip6" for family in families]
    hooks: dict[tuple[str, str], list[str]] = {}
    for item in items:
        chain = item.get("chain", {})
        family, table = chain.get("family", ""), chain.get("table", "")
        is_passed = family in _OF_BOTH or (family in of_iptables and table not in TABLES)
        if "hook" in chain and is_passed:
            policy = "" if chain.get("policy", "accept") == "accept" else f", policy {chain['policy']}"
            hooks.setdefault((family, table), []).append(
                f"{chain['hook']} (priority {chain.get('prio', '?')}{policy})"
            )
    messages = []
    for (family, table), chains in hooks.items():
        owner = next((name for start, name in _OWNERS if table.startswith(start)), "")
        whose = f" of {owner}" if owner else ""
        messages.append(f"packets pass table {family} {table}{whose}, too: hooks {', '.join(chains)}")
    return messages

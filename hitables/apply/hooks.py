"""Who else sees packets: other base chains of nf_tables, and tables of the other backend.

Such chains may drop what the rules here accept, and no comparison of the rules here shows it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable

from ..ir.fields import Family
from ..ir.packet import Backend
from ..kernel.checked_save import also_present
from ..kernel.contents import TABLES

_OURS = ("ip", "ip6")  # of nf_tables; iptables-nft has its tables there
_FAMILIES = (*_OURS, "inet", "netdev", "bridge")  # arp has no packets of IP
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


def others(families: Iterable[Family], backend: Backend) -> list[str]:
    """A message for each table of nf_tables, or of the other backend, that packets pass too."""
    families = list(families)
    warnings = (also_present(family, backend) for family in families)
    found = [warning.removeprefix("warning: ") for warning in warnings if warning]
    try:
        listed = subprocess.run(["nft", "-j", "list", "chains"], capture_output=True, check=False)
    except OSError:
        return [*found, "nft is not installed, so other tables of nf_tables are not known"]
    if listed.returncode:
        reason = listed.stderr.decode("utf-8", "replace").strip()
        return [*found, f"nft list chains: {reason or 'no message'}; other tables of nf_tables are not known"]
    try:
        items = json.loads(listed.stdout)["nftables"]
    except (ValueError, KeyError, TypeError):
        return [*found, "nft -j list chains: no JSON; other tables of nf_tables are not known"]
    hooks: dict[tuple[str, str], list[str]] = {}
    for item in items:
        chain = item.get("chain", {})
        place = chain.get("family", ""), chain.get("table", "")
        if "hook" in chain and place[0] in _FAMILIES and not (place[0] in _OURS and place[1] in TABLES):
            policy = "" if chain.get("policy", "accept") == "accept" else f", policy {chain['policy']}"
            hooks.setdefault(place, []).append(f"{chain['hook']} (priority {chain.get('prio', '?')}{policy})")
    for (family, table), chains in hooks.items():
        owner = next((name for start, name in _OWNERS if table.startswith(start)), "")
        whose = f" of {owner}" if owner else ""
        found.append(f"packets pass table {family} {table}{whose}, too: hooks {', '.join(chains)}")
    return found

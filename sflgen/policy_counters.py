"""The counters of policies in a legacy kernel, which the tools reset with every change.

`iptables-legacy` writes a whole table back: rules with their counts, policies without.  So the counts of
the policies are read just before a patch is loaded, and set by the patch (`:INPUT ACCEPT
[packets:bytes]`, with `iptables-restore --counters`).  They are read from the kernel by getsockopt, in
some milliseconds; `iptables-save` would print all rules.
"""

from __future__ import annotations

import re

from hitables.ir.fields import Family
from hitables.kernel.contents_legacy import policy_counters


def with_policy_counters(patch: str, family: Family) -> str:
    """*patch* for iptables-legacy-restore --noflush --counters, with lines that keep counts of policies."""
    return re.sub(
        r"^\*(\S+)\n", lambda head: head[0] + _policy_lines(head[1], family), patch, flags=re.MULTILINE
    )


def _policy_lines(table: str, family: Family) -> str:
    return "".join(
        f":{chain} {policy} [{packets}:{size}]\n"
        for chain, policy, packets, size in policy_counters(table, family)
        if packets
    )

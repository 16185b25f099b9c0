"""The counters of policies in a legacy kernel, which the tools reset with every change.

`iptables-legacy` writes a whole table back: rules with their counts, policies without.  So the counts of
the policies are read just before a patch is loaded, and set by the patch (`:INPUT ACCEPT
[packets:bytes]`, with `iptables-restore --counters`).  They are read from the kernel by getsockopt, in
some milliseconds; `iptables-save` would print all rules.

The layouts are those of linux/netfilter_ipv4/ip_tables.h and ip6_tables.h, which do not change.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from hitables.ir.fields import Family
from hitables.kernel.contents_legacy import option

_GET_INFO, _GET_ENTRIES = 64, 65  # IPT_SO_…, and IP6T_SO_…
_HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")  # NF_INET_…, in order
_POLICIES = {-1: "DROP", -2: "ACCEPT"}  # -NF_DROP - 1, -NF_ACCEPT - 1
_INFO = struct.Struct("=32s13I")  # name, valid hooks, first rule and policy by hook, rules, size
_ENTRIES = struct.Struct("@32sI0Q")  # name, size; the entries follow
_TARGET = 32  # bytes of struct xt_entry_target before the verdict


@dataclass(frozen=True, slots=True)
class _Layout:
    """Level of the socket option; where an entry holds the offset of its target, and its counters."""

    level: int
    target: int
    counters: int


_LAYOUTS = {
    Family.IPV4: _Layout(socket.IPPROTO_IP, 88, 96),
    Family.IPV6: _Layout(socket.IPPROTO_IPV6, 140, 152),
}


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


def policy_counters(table: str, family: Family) -> Iterator[tuple[str, str, int, int]]:
    """Chain, policy, packets and bytes of each built-in chain; nothing if the kernel lacks the table."""
    layout = _LAYOUTS[family]
    kind = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
    name = table.encode()
    try:
        with socket.socket(kind, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            info = option(raw, layout.level, _GET_INFO, _INFO.pack(name, *(0,) * 13), 0)
            _, hooks, *offsets, _, size = _INFO.unpack_from(info)
            entries = option(raw, layout.level, _GET_ENTRIES, _ENTRIES.pack(name, size), size)
    except OSError:
        return
    for hook, (chain, offset) in enumerate(zip(_HOOKS, offsets[5:], strict=True)):
        if hooks >> hook & 1:
            at = _ENTRIES.size + offset
            (target,) = struct.unpack_from("=H", entries, at + layout.target)
            (verdict,) = struct.unpack_from("=i", entries, at + target + _TARGET)
            packets, counted = struct.unpack_from("=QQ", entries, at + layout.counters)
            yield chain, _POLICIES[verdict], packets, counted

"""Targets that decide a packet: verdicts, queues, answers to the sender, local delivery."""

from __future__ import annotations

from ...ir.fields import Family
from ...ir.rule import Ends
from .. import values as spelt
from .. import writers as write
from ..canonical import Form, Options
from ..extension import scope, target


def _port(words: tuple[str, ...], family: Family) -> str:
    """A port, of whose number iptables keeps the lowest 16 bits."""
    if words[0].isdigit():
        return str(write.decimal(words[0], 0xFFFFFFFF) & 0xFFFF)
    return str(spelt.decimal_port(words[0]))


# In the order in which iptables tries them; each name with its short one.
_REJECTS = {
    Family.IPV4: (
        ("icmp-net-unreachable", "net-unreach"), ("icmp-host-unreachable", "host-unreach"),
        ("icmp-proto-unreachable", "proto-unreach"), ("icmp-port-unreachable", "port-unreach"),
        ("icmp-net-prohibited", "net-prohib"), ("icmp-host-prohibited", "host-prohib"),
        ("tcp-reset", "tcp-rst"), ("icmp-admin-prohibited", "admin-prohib"),
    ),
    Family.IPV6: (
        ("icmp6-no-route", "no-route"), ("icmp6-adm-prohibited", "adm-prohibited"),
        ("icmp6-addr-unreachable", "addr-unreach"), ("icmp6-port-unreachable", "port-unreach"),
        ("tcp-reset", "tcp-reset"), ("icmp6-policy-fail", "policy-fail"),
        ("icmp6-reject-route", "reject-route"),
    ),
}  # fmt: skip


def _reject(words: tuple[str, ...], family: Family) -> str:
    for name, short in _REJECTS[family]:
        if words[0] and any(each.startswith(words[0].lower()) for each in (name, short)):
            return name
    raise ValueError(f"unknown type {words[0]!r}")


def _canonical_nfqueue(options: Options, family: Family) -> None:
    if "--queue-balance" in options:
        options.pop("--queue-num", None)


def _canonical_tproxy(options: Options, family: Family) -> None:
    options.setdefault("--on-ip", (False, write.address_text(0, family)))


def _canonical_reject(options: Options, family: Family) -> None:
    usual = "icmp-port-unreachable" if family is Family.IPV4 else "icmp6-port-unreachable"
    options.setdefault("--reject-with", (False, usual))


TARGETS = (
    target(
        "ACCEPT",
        ends=Ends.SURELY,
        source="netfilter/x_tables.c",
    ),
    target(
        "DROP",
        ends=Ends.SURELY,
        scope=scope("filter mangle raw security"),
        source="netfilter/x_tables.c",
    ),
    target(
        "MIRROR",
        ends=Ends.SURELY,
    ),
    target(
        "NFQUEUE",
        "--queue-num:u16 --queue-balance:balance --queue-bypass --queue-cpu-fanout",
        ends=Ends.SURELY,
        defaults={"--queue-num": "0"},
        one="--queue-num --queue-balance",
        beside="--queue-cpu-fanout>--queue-balance",
        source="netfilter/xt_NFQUEUE.c",
        form=Form({"--queue-num": write.u16, "--queue-balance": write.span(16)}, whole=_canonical_nfqueue),
    ),
    target(
        "QUEUE",
        ends=Ends.SURELY,
        source="netfilter/nf_queue.c",
    ),
    target(
        "REJECT",
        "--reject-with:reject",
        ends=Ends.SURELY,
        scope=scope("filter"),
        source="ipv4/netfilter/ipt_REJECT.c, ipv6/netfilter/ip6t_REJECT.c",
        form=Form({"--reject-with": _reject}, whole=_canonical_reject),
    ),
    target(
        "SYNPROXY",
        "--sack-perm --timestamp --wscale:u32 --mss:u32 --ecn",
        ends=Ends.MAYBE,
        scope=scope("", "INPUT FORWARD"),
        option_protocols={"": (6,)},
        source="ipv4/netfilter/ipt_SYNPROXY.c, ipv6/netfilter/ip6t_SYNPROXY.c",
        form=Form({"--wscale": write.low_bits(8), "--mss": write.low_bits(16)}),
        tracks=True,
    ),
    target(
        "TPROXY",
        "--on-port:port --on-ip:host --tproxy-mark:mark",
        ends=Ends.SURELY,
        need="--on-port",
        scope=scope("mangle", "PREROUTING"),
        option_protocols={"": (6, 17)},
        writes="MARK META",
        source="netfilter/xt_TPROXY.c",
        form=Form(
            {"--on-port": _port, "--on-ip": write.address, "--tproxy-mark": write.mark_and_mask},
            {"--tproxy-mark": "0x0/0x0"},
            whole=_canonical_tproxy,
        ),
        tracks=True,
    ),
)

"""Targets that translate addresses and ports."""

from __future__ import annotations

import re

from ...ir.fields import Family
from ...ir.rule import Ends
from .. import number_checks as numeric
from .. import writers as write
from ..canonical import Form
from ..extension import Uses, scope, target

_TO = re.compile(r"(?:\[([^]]*)\]|([^:\[\]]*))(?::([^:]*))?")


def _to(words: tuple[str, ...], family: Family) -> str:
    """FIRST-LAST:PORTS of SNAT and DNAT; any part may be missing."""
    if family is Family.IPV6 and "[" not in words[0] and words[0].count(":") > 1:
        hosts, ports = words[0], None
    else:
        parts = _TO.fullmatch(words[0])
        if parts is None or (parts[1] is not None and family is Family.IPV4):
            raise ValueError(f"not a range: {words[0]!r}")
        hosts, ports = parts[1] if parts[1] is not None else parts[2], parts[3]
    first, dash, last = hosts.partition("-")
    shown = ""
    if hosts or ports is None:
        low = write.host(first, family)
        high = write.host(last, family) if dash else low
        shown = low if low == high else f"{low}-{high}"
    shown = f"[{shown}]" if family is Family.IPV6 and shown else shown
    return shown if ports is None else f"{shown}:{write.nat_ports(ports)}"


def _check_clusterip(uses: Uses, family: Family) -> None:
    full = ("--new", "--hashmode", "--clustermac", "--total-nodes", "--local-node")
    if uses and not all(name in uses for name in full):
        raise ValueError(f"CLUSTERIP needs none of its options, or all of {', '.join(full)}")


def _check_multicast(uses: Uses, family: Family) -> None:
    _check_clusterip(uses, family)
    if "--clustermac" in uses and not int(uses["--clustermac"][0][1][0].split(":")[0], 16) & 1:
        raise ValueError("--clustermac is no multicast address: its first byte is even")


def _check_translated(uses: Uses, family: Family) -> None:
    for name in ("--src-pfx", "--dst-pfx"):
        _, slash, length = uses[name][0][1][0].partition("/")
        size = numeric.integer(length)
        if not slash or (size[1] == "" and (size[0] or 0) > 64):
            raise ValueError(f"{name} is longer than 64 bits")


_SHIFTED = re.compile(r"-\d+/(\w+)$")


def _check_unshifted(uses: Uses, family: Family) -> None:
    if "--to-ports" in uses and _SHIFTED.search(uses["--to-ports"][0][1][0]):
        raise ValueError("REDIRECT shifts no range of ports (LOW-HIGH/BASE); DNAT does")


def _check_base(uses: Uses, family: Family) -> None:
    base = _SHIFTED.search(uses["--to-destination"][0][1][0])
    if base is not None and numeric.integer(base[1]) == (0, ""):
        raise ValueError("a range of ports is not shifted by port 0 (LOW-HIGH/BASE)")


TARGETS = (
    target(
        "CLUSTERIP",
        "--new --hashmode:hashmode --clustermac:mac --total-nodes:u16(0,16) "
        "--local-node:u16(0,16) --hash-init:u32",
        ends=Ends.MAYBE,
        family=Family.IPV4,
        check=_check_multicast,
    ),
    target(
        "DNAT",
        "--to-destination:nat --random --persistent",
        ends=Ends.SURELY,
        need="--to-destination",
        scope=scope("nat", "PREROUTING OUTPUT"),
        writes="CT ADDRESSES CHECKSUM PAYLOAD",
        source="netfilter/xt_nat.c",
        form=Form({"--to-destination": _to}),
        check=_check_base,
        tracks=True,
    ),
    target(
        "DNPT",
        "--src-pfx:net --dst-pfx:net",
        ends=Ends.MAYBE,
        need="--src-pfx | --dst-pfx",
        family=Family.IPV6,
        scope=scope("mangle", "PREROUTING OUTPUT"),
        check=_check_translated,
        writes="ADDRESSES CHECKSUM",
        source="ipv6/netfilter/ip6t_NPT.c",
        form=Form({"--src-pfx": write.network, "--dst-pfx": write.network}),
    ),
    target(
        "MASQUERADE",
        "--to-ports:natports --random --random-fully",
        ends=Ends.SURELY,
        scope=scope("nat", "POSTROUTING"),
        writes="CT ADDRESSES CHECKSUM PAYLOAD",
        source="netfilter/xt_MASQUERADE.c",
        form=Form({"--to-ports": write.to_ports}),
        tracks=True,
    ),
    target(
        "NETMAP",
        "--to:net",
        ends=Ends.SURELY,
        need="--to",
        scope=scope("nat"),
        writes="CT ADDRESSES CHECKSUM PAYLOAD",
        source="netfilter/xt_NETMAP.c",
        form=Form({"--to": write.network}),
        tracks=True,
    ),
    target(
        "REDIRECT",
        "--to-ports:natports --random",
        ends=Ends.SURELY,
        scope=scope("nat", "PREROUTING OUTPUT"),
        writes="CT ADDRESSES CHECKSUM PAYLOAD",
        source="netfilter/xt_REDIRECT.c",
        form=Form({"--to-ports": write.to_ports}),
        check=_check_unshifted,
        tracks=True,
    ),
    target(
        "SAME",
        "--to:any!* --nodst!* --random!*",
        ends=Ends.SURELY,
    ),
    target(
        "SNAT",
        "--to-source:nat --random-fully --random --persistent",
        ends=Ends.SURELY,
        need="--to-source",
        scope=scope("nat", "POSTROUTING INPUT"),
        writes="CT ADDRESSES CHECKSUM PAYLOAD",
        source="netfilter/xt_nat.c",
        form=Form({"--to-source": _to}),
        tracks=True,
    ),
    target(
        "SNPT",
        "--src-pfx:net --dst-pfx:net",
        ends=Ends.MAYBE,
        need="--src-pfx | --dst-pfx",
        family=Family.IPV6,
        scope=scope("mangle", "INPUT POSTROUTING"),
        check=_check_translated,
        writes="ADDRESSES CHECKSUM",
        source="ipv6/netfilter/ip6t_NPT.c",
        form=Form({"--src-pfx": write.network, "--dst-pfx": write.network}),
    ),
)

"""Matches of addresses, interfaces and routes."""

from __future__ import annotations

from ...ir.fact import ADDRESS_TYPES, PACKET_TYPES
from ...ir.fields import Family, Field
from ...ir.rule import Role
from .. import number_checks as numeric
from .. import numbers as compare
from .. import readers as read
from .. import values as spelt
from .. import writers as write
from ..canonical import Form, Options
from ..extension import ENTERING, LEAVING, Uses, match, scope

_PACKET_TYPES = {
    "unicast": "unicast", "host": "unicast", "broadcast": "broadcast", "bcast": "broadcast",
    "multicast": "multicast", "mcast": "multicast", "otherhost": "otherhost",
}  # fmt: skip


def _canonical_cluster(options: Options, family: Family) -> None:
    if "--cluster-local-node" in options:
        inverted, node = options.pop("--cluster-local-node")
        if "--cluster-local-nodemask" in options or not 1 <= int(node) <= 32:
            raise ValueError("a node that is none")
        options["--cluster-local-nodemask"] = inverted, f"{1 << (int(node) - 1):#x}"


def _check_cluster(uses: Uses, family: Family) -> None:
    total = numeric.integer(uses["--cluster-total-nodes"][0][1][0])[0] or 0
    if "--cluster-local-node" in uses:
        if (numeric.integer(uses["--cluster-local-node"][0][1][0])[0] or 0) > total:
            raise ValueError("--cluster-local-node is above --cluster-total-nodes")
    elif (numeric.integer(uses["--cluster-local-nodemask"][0][1][0])[0] or 0) >= 1 << total:
        raise ValueError("--cluster-local-nodemask is too large for --cluster-total-nodes")


MATCHES = (
    match(
        "addrtype",
        "--src-type:addresstypes! --dst-type:addresstypes! --limit-iface-in --limit-iface-out",
        one="--limit-iface-in --limit-iface-out",
        need="--src-type --dst-type",
        option_scopes={"--limit-iface-in": ENTERING, "--limit-iface-out": LEAVING},
        reads="ADDRESSES META",
        complements="--src-type --dst-type",
        bystanders="--limit-iface-in --limit-iface-out",
        # In IPv6 an address may have several types.
        numbers={
            f"--{side}-type": compare.names(f"{side} type", ADDRESS_TYPES, Family.IPV4)
            for side in ("src", "dst")
        },
        source="netfilter/xt_addrtype.c",
        form=Form({"--src-type": write.names_of(ADDRESS_TYPES), "--dst-type": write.names_of(ADDRESS_TYPES)}),
    ),
    match(
        "cluster",
        "--cluster-total-nodes:u32(1,32) --cluster-local-node:u32(1,32)! "
        "--cluster-local-nodemask:u32(1,32)! --cluster-hash-seed:u32",
        role=Role.NAMED,
        one="--cluster-local-node --cluster-local-nodemask",
        need=("--cluster-total-nodes | --cluster-local-node --cluster-local-nodemask | --cluster-hash-seed"),
        check=_check_cluster,
        reads="CT ADDRESSES PKTTYPE",
        writes="PKTTYPE",
        source="netfilter/xt_cluster.c",
        form=Form(
            {
                "--cluster-total-nodes": write.u32,
                "--cluster-local-node": write.u32,
                "--cluster-local-nodemask": write.hex32,
                "--cluster-hash-seed": write.hex32,
            },
            whole=_canonical_cluster,
        ),
    ),
    match(
        "devgroup",
        "--src-group:named! --dst-group:named!",
        need="--src-group --dst-group",
        option_scopes={"--src-group": ENTERING, "--dst-group": LEAVING},
        reads="META",
        source="netfilter/xt_devgroup.c",
        form=Form(
            {
                "--src-group": write.named_mark("/etc/iproute2/group"),
                "--dst-group": write.named_mark("/etc/iproute2/group"),
            }
        ),
    ),
    match(
        "eui64",
        role=Role.NAMED,
        family=Family.IPV6,
        scope=ENTERING,
        reads="ADDRESSES META",
        source="ipv6/netfilter/ip6t_eui64.c",
    ),
    match(
        "iprange",
        "--src-range:any! --dst-range:any!",
        role=Role.SPACE,
        readers={
            "--src-range": read.family_test(Field.SRC, spelt.address_range),
            "--dst-range": read.family_test(Field.DST, spelt.address_range),
        },
        need="--src-range --dst-range",
        reads="ADDRESSES",
        source="netfilter/xt_iprange.c",
    ),
    match(
        "mac",
        "--mac-source:any!",
        role=Role.SPACE,
        required="--mac-source",
        readers={"--mac-source": read.field_test(Field.MAC, spelt.mac)},
        scope=ENTERING,
        reads="META",
        source="netfilter/xt_mac.c",
    ),
    match(
        "physdev",
        "--physdev-in:string(0,15)! --physdev-out:string(0,15)! --physdev-is-in! "
        "--physdev-is-out! --physdev-is-bridged!",
        role=Role.SPACE,
        need=("--physdev-in --physdev-out --physdev-is-in --physdev-is-out --physdev-is-bridged"),
        readers=read.PHYSDEV,
        reads="META",
        source="netfilter/xt_physdev.c",
    ),
    match(
        "pkttype",
        "--pkt-type:pkttype!",
        need="--pkt-type",
        reads="ADDRESSES PKTTYPE META",
        complements="--pkt-type",
        numbers={"--pkt-type": compare.names("packet type", PACKET_TYPES)},
        source="netfilter/xt_pkttype.c",
        form=Form({"--pkt-type": write.one_of(_PACKET_TYPES)}),
    ),
    match(
        "realm",
        "--realm:named!",
        need="--realm",
        family=Family.IPV4,
        scope=scope("", "INPUT FORWARD OUTPUT POSTROUTING"),
        reads="META",
        complements="--realm",
        numbers={"--realm": compare.masked("realm")},
        source="netfilter/xt_realm.c",
        form=Form({"--realm": write.named_mark("/etc/iproute2/rt_realms")}),
    ),
    match(
        "rpfilter",
        "--loose --validmark --accept-local --invert",
        scope=scope("raw mangle", "PREROUTING"),
        reads="MARK TOS ADDRESSES PKTTYPE META",
        source="ipv4/netfilter/ipt_rpfilter.c, ipv6/netfilter/ip6t_rpfilter.c",
    ),
)

"""Matches of the IP header and of the headers between it and the transport header."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.fields import Family
from ...ir.rule import Role
from .. import number_checks as numeric
from .. import numbers as compare
from .. import values as spelt
from .. import writers as write
from ..canonical import ABSENT, Form, Options, OptionUse
from ..extension import Uses, match

_MH_TYPES = (
    ("binding-refresh-request", 0), ("brr", 0), ("home-test-init", 1), ("hoti", 1), ("careof-test-init", 2),
    ("coti", 2), ("home-test", 3), ("hot", 3), ("careof-test", 4), ("cot", 4), ("binding-update", 5), ("bu", 5),
    ("binding-acknowledgement", 6), ("ba", 6), ("binding-error", 7), ("be", 7),
)  # fmt: skip


_HEADERS = {
    "hop": 0, "dst": 60, "route": 43, "frag": 44, "auth": 51, "esp": 50, "none": 59, "prot": 255,
    "hop-by-hop": 0, "ipv6-opts": 60, "ipv6-route": 43, "ipv6-frag": 44, "ah": 51, "ipv6-nonxt": 59,
    "protocol": 255,
}  # fmt: skip


def _mh_type(word: str) -> int:
    begun = [(name, number) for name, number in _MH_TYPES if word and name.startswith(word.lower())]
    exact = [number for name, number in begun if len(name) == len(word)]
    return exact[-1] if exact else begun[0][1] if begun else spelt.number(word, 0, 255)


def _mh_types(words: tuple[str, ...], family: Family) -> str:
    low, colon, high = words[0].partition(":")
    first = _mh_type(low) if low or not colon else 0
    last = (_mh_type(high) if high else 255) if colon else first
    if (first, last) == (0, 255):
        return ABSENT
    return f"{first}" if first == last else f"{first}:{last}"


def _headers(words: tuple[str, ...], family: Family) -> str:
    numbers = set()
    for word in words[0].split(","):
        number = _HEADERS.get(word)
        if number is None and word in ("0", "43", "44", "50", "51", "59", "60", "255"):
            number = int(word)
        if number is None:
            raise ValueError(f"unknown header {word!r}")
        numbers.add(number)
    return ",".join(map(str, sorted(numbers)))


def _header_options(words: tuple[str, ...], family: Family) -> str:
    read = []
    for word in words[0].split(","):
        kind, colon, length = word.partition(":")
        first = spelt.number(kind, 0, 0xFFFFFFFF) & 0xFF
        last = spelt.number(length, 0, 0xFFFFFFFF) & 0xFF if colon else 255
        read.append(f"{first}" if last == 255 else f"{first}:{last}")
    return ",".join(read)


def _canonical_dscp(options: Options, family: Family) -> None:
    write.renamed(options, "--dscp-class", "--dscp")


def _check_routing(uses: Sequence[OptionUse], family: Family) -> None:
    is_type_0 = has_addresses = False
    for use in uses:
        if use.option in ("--rt-0-res", "--rt-0-addrs", "--rt-0-not-strict") and not is_type_0:
            raise ValueError(f"{use.option} needs --rt-type 0 in front of it")
        if use.option == "--rt-0-not-strict" and not has_addresses:
            raise ValueError("--rt-0-not-strict needs --rt-0-addrs in front of it")
        is_type_0 |= use.option == "--rt-type" and not use.inverted and numeric.integer(use.values[0])[0] == 0
        has_addresses |= use.option == "--rt-0-addrs"


def _check_auth_header(uses: Uses, family: Family) -> None:
    for name in ("--ahlen", "--ahres"):
        if name in uses and family is Family.IPV4:
            raise ValueError(f"{name} exists for IPv6 only")


MATCHES = (
    match(
        "ah",
        "--ahspi:range32! --ahlen:u32! --ahres",
        needs=12,
        option_protocols={"": (51,)},
        check=_check_auth_header,
        reads="PAYLOAD",
        source="ipv4/netfilter/ipt_ah.c, ipv6/netfilter/ip6t_ah.c",
        form=Form({"--ahspi": write.span(32, full=True), "--ahlen": write.zero_is_absent(32)}),
    ),
    match(
        "dscp",
        "--dscp:u8(0,63)! --dscp-class:dscp!",
        one="--dscp --dscp-class",
        need="--dscp --dscp-class",
        reads="TOS",
        complements="--dscp --dscp-class",
        numbers=dict.fromkeys(("--dscp", "--dscp-class"), compare.shifted("tos", 8, 2)),
        source="netfilter/xt_dscp.c",
        form=Form({"--dscp": write.dscp, "--dscp-class": write.dscp_class}, whole=_canonical_dscp),
    ),
    match(
        "dst",
        "--dst-len:u32! --dst-opts:options",
        role=Role.NAMED,
        family=Family.IPV6,
        reads="PAYLOAD",
        source="ipv6/netfilter/ip6t_hbh.c",
        form=Form({"--dst-len": write.u32, "--dst-opts": _header_options}),
    ),
    match(
        "ecn",
        "--ecn-tcp-cwr! --ecn-tcp-ece! --ecn-ip-ect:u8(0,3)!",
        need="--ecn-tcp-cwr --ecn-tcp-ece --ecn-ip-ect",
        option_protocols={"--ecn-tcp-cwr": (6,), "--ecn-tcp-ece": (6,)},
        reads="TOS TCP",
        source="netfilter/xt_ecn.c",
        form=Form({"--ecn-ip-ect": write.u8}),
    ),
    match(
        "esp",
        "--espspi:range32!",
        needs=8,
        protocols=(50,),
        reads="PAYLOAD",
        source="netfilter/xt_esp.c",
        form=Form({"--espspi": write.span(32, full=True)}),
    ),
    match(
        "frag",
        "--fragid:range32! --fraglen:u32! --fragres --fragfirst --fragmore --fraglast",
        role=Role.NAMED,
        one="--fragmore --fraglast",
        family=Family.IPV6,
        reads="PAYLOAD",
        source="ipv6/netfilter/ip6t_frag.c",
        form=Form({"--fragid": write.span(32, full=True), "--fraglen": write.u32}),
    ),
    match(
        "hbh",
        "--hbh-len:u32! --hbh-opts:options",
        role=Role.NAMED,
        family=Family.IPV6,
        reads="PAYLOAD",
        source="ipv6/netfilter/ip6t_hbh.c",
        form=Form({"--hbh-len": write.u32, "--hbh-opts": _header_options}),
    ),
    match(
        "hl",
        "--hl-eq:u8! --hl-lt:u8 --hl-gt:u8",
        one="--hl-eq --hl-lt --hl-gt",
        need="--hl-eq --hl-lt --hl-gt",
        family=Family.IPV6,
        reads="TTL",
        complements="--hl-eq",
        numbers={
            "--hl-eq": compare.span("hl", 8),
            "--hl-lt": compare.below("hl", 8),
            "--hl-gt": compare.above("hl", 8),
        },
        source="netfilter/xt_hl.c",
        form=Form(write.TTL_VALUES),
    ),
    match(
        "ipcomp",
        "--ipcompspi:range32! --compres",
        needs=4,
        protocols=(108,),
        reads="PAYLOAD",
        source="netfilter/xt_ipcomp.c",
        form=Form({"--ipcompspi": write.span(32)}, {"--ipcompspi": "0"}),
    ),
    match(
        "ipv6header",
        "--header:headers! --soft",
        role=Role.NAMED,
        need="--header",
        family=Family.IPV6,
        reads="PAYLOAD",
        source="ipv6/netfilter/ip6t_ipv6header.c",
        form=Form({"--header": _headers}),
    ),
    match(
        "length",
        "--length:range16!",
        need="--length",
        reads="LENGTH",
        complements="--length",
        numbers={"--length": compare.span("length", 32)},  # a packet may be longer than 65535 bytes
        source="netfilter/xt_length.c",
        form=Form({"--length": write.span(16)}),
    ),
    match(
        "mh",
        "--mh-type:mh!",
        role=Role.NAMED,
        protocols=(135,),
        family=Family.IPV6,
        reads="PAYLOAD",
        source="ipv6/netfilter/ip6t_mh.c",
        form=Form({"--mh-type": _mh_types}),
    ),
    match(
        "rt",
        "--rt-type:u32! --rt-segsleft:range32! --rt-len:u32! --rt-0-res --rt-0-addrs:addresses "
        "--rt-0-not-strict",
        role=Role.NAMED,
        family=Family.IPV6,
        check_in_order=_check_routing,
        reads="PAYLOAD",
        source="ipv6/netfilter/ip6t_rt.c",
        form=Form(
            {
                "--rt-type": write.u32,
                "--rt-segsleft": write.span(32, full=True),
                "--rt-len": write.u32,
                "--rt-0-addrs": write.addresses,
            }
        ),
    ),
    match(
        "srh",
        "--srh-next-hdr:u8! --srh-hdr-len-eq:u8! --srh-hdr-len-gt:u8! --srh-hdr-len-lt:u8! "
        "--srh-segs-left-eq:u8! --srh-segs-left-gt:u8! --srh-segs-left-lt:u8! "
        "--srh-last-entry-eq:u8! --srh-last-entry-gt:u8! --srh-last-entry-lt:u8! --srh-tag:u16! "
        "--srh-psid:net! --srh-nsid:net! --srh-lsid:net!",
        family=Family.IPV6,
        reads="PAYLOAD",
        source="ipv6/netfilter/ip6t_srh.c",
        form=Form(
            {
                "--srh-next-hdr": write.u8,
                "--srh-tag": write.u16,
                **{
                    f"--srh-{what}-{how}": write.u8
                    for what in ("hdr-len", "segs-left", "last-entry")
                    for how in ("eq", "lt", "gt")
                },
                **{f"--srh-{what}": write.network for what in ("psid", "nsid", "lsid")},
            }
        ),
    ),
    match(
        "tos",
        "--tos:tos!",
        need="--tos",
        reads="TOS",
        complements="--tos",
        numbers={"--tos": compare.masked("tos", 8)},
        source="netfilter/xt_dscp.c",
        form=Form({"--tos": write.tos_byte(0x3F)}),
    ),
    match(
        "ttl",
        "--ttl-eq=--ttl:u8! --ttl-lt:u8 --ttl-gt:u8",
        one="--ttl-eq --ttl-lt --ttl-gt",
        need="--ttl-eq --ttl-lt --ttl-gt",
        family=Family.IPV4,
        reads="TTL",
        complements="--ttl-eq",
        numbers={
            "--ttl-eq": compare.span("ttl", 8),
            "--ttl-lt": compare.below("ttl", 8),
            "--ttl-gt": compare.above("ttl", 8),
        },
        source="netfilter/xt_hl.c",
        form=Form(write.TTL_VALUES),
    ),
)

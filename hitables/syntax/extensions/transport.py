"""Matches of transport headers: ports, flags, ICMP types, chunks."""

from __future__ import annotations

from ...ir.fields import ICMP, ICMPV6, TCP, UDP, Family, Field
from ...ir.rule import Role
from .. import readers as read
from .. import values as spelt
from .. import writers as write
from ..canonical import Form, Options, Write
from ..extension import ENTERING, match

_PORTS = "--sport=--source-port:any! --dport=--destination-port:any!"

_DCCP_TYPES = (
    "REQUEST", "RESPONSE", "DATA", "ACK", "DATAACK", "CLOSEREQ", "CLOSE", "RESET", "SYNC", "SYNCACK", "INVALID",
)  # fmt: skip


def _tcp_flags(words: tuple[str, ...], family: Family) -> str:
    bits = []
    for word in words:
        wanted = 0
        for flag in word.split(","):
            if flag.upper() not in spelt.FLAG_BITS:
                raise ValueError(f"unknown flag {flag!r}")
            wanted |= spelt.FLAG_BITS[flag.upper()]
        bits.append(wanted)
    return f"{bits[0]:#04x} {bits[1]:#04x}"


_SYN: Write = lambda words, family: "0x17 0x02"  # noqa: E731


_SCTP_CHUNKS = {
    "DATA": "IUBE", "INIT": "", "INIT_ACK": "", "SACK": "", "HEARTBEAT": "", "HEARTBEAT_ACK": "", "ABORT": "T",
    "SHUTDOWN": "", "SHUTDOWN_ACK": "", "ERROR": "", "COOKIE_ECHO": "", "COOKIE_ACK": "", "ECN_ECNE": "",
    "ECN_CWR": "", "SHUTDOWN_COMPLETE": "T", "I_DATA": "IUBE", "RE_CONFIG": "", "PAD": "", "ASCONF": "",
    "ASCONF_ACK": "", "FORWARD_TSN": "", "I_FORWARD_TSN": "",
}  # fmt: skip


def _chunks(words: tuple[str, ...], family: Family) -> str:
    """all, any or only; then chunk types, each with flags that must be set (upper case) or not."""
    how, what = words[0].lower(), words[1]
    if how not in ("all", "any", "only"):
        raise ValueError(f"not all, any or only: {how!r}")
    if what.upper() in ("ALL", "NONE"):
        return f"{how} {what.upper()}"
    flags: dict[str, dict[str, bool]] = {}
    for word in what.split(","):
        name, _, letters = word.partition(":")
        if name.upper() not in _SCTP_CHUNKS:
            raise ValueError(f"unknown chunk {name!r}")
        wanted = flags.setdefault(name.upper(), {})
        for letter in letters:
            if letter.upper() not in _SCTP_CHUNKS[name.upper()]:
                raise ValueError(f"unknown flag {letter!r}")
            wanted[letter.upper()] = wanted.get(letter.upper(), False) or letter.isupper()
    written = []
    for name in sorted(flags):
        letters = "".join(f if on else f.lower() for f, on in sorted(flags[name].items()))
        written.append(f"{name}:{letters}" if letters else name)
    return f"{how} {','.join(written)}"


def _canonical_tcp(options: Options, family: Family) -> None:
    write.renamed(options, "--syn", "--tcp-flags")


_OWN_PORTS = {name: write.ports(spelt.decimal_port, full=True) for name in ("--sport", "--dport")}


_TCP_PORTS = {name: write.ports(spelt.port, full=True) for name in ("--sport", "--dport")}


MATCHES = (
    match(
        "dccp",
        _PORTS + " --dccp-types:dccp! --dccp-option:u8(1,255)!",
        role=Role.SPACE,
        needs=12,
        protocols=(33,),
        counting="--dccp-option",
        readers=read.port_tests(spelt.decimal_port_range),
        reads="PAYLOAD",
        source="netfilter/xt_dccp.c",
        form=Form(
            {**_OWN_PORTS, "--dccp-types": write.names_of(_DCCP_TYPES, whole=True), "--dccp-option": write.u8}
        ),
    ),
    match(
        "icmp",
        "--icmp-type:any!",
        role=Role.SPACE,
        needs=8,
        protocols=(ICMP,),
        required="--icmp-type",
        readers={"--icmp-type": read.family_test(Field.ICMP, spelt.icmp_type)},
        family=Family.IPV4,
        reads="PAYLOAD",
        source="ipv4/netfilter/ip_tables.c",
    ),
    match(
        "icmp6",
        "--icmpv6-type:any!",
        role=Role.SPACE,
        needs=8,
        protocols=(ICMPV6,),
        required="--icmpv6-type",
        readers={"--icmpv6-type": read.family_test(Field.ICMP, spelt.icmp_type)},
        family=Family.IPV6,
        reads="PAYLOAD",
        source="ipv6/netfilter/ip6_tables.c",
    ),
    match(
        "multiport",
        "--sports=--source-ports:any! --dports=--destination-ports:any! --ports:any!",
        role=Role.SPACE,
        needs=4,
        protocols=(TCP, UDP, 136, 132, 33),
        readers=read.MULTIPORT,
        one="--sports --dports --ports",
        need="--sports --dports --ports",
        reads="PAYLOAD",
        source="netfilter/xt_multiport.c",
    ),
    match(
        "osf",
        "--genre:any! --ttl:u32(0,2) --log:u32(0,2)",
        protocols=(TCP,),
        counting="--log",
        need="--genre",
        scope=ENTERING,
        reads="TOS TTL TCP ADDRESSES LENGTH CHECKSUM PAYLOAD META",
        source="netfilter/xt_osf.c, netfilter/nfnetlink_osf.c",
        form=Form({"--ttl": write.u32, "--log": write.u32}),
    ),
    match(
        "sctp",
        _PORTS + " --chunk-types:anyall:chunks!",
        role=Role.SPACE,
        needs=12,
        protocols=(132,),
        counting="--chunk-types",
        readers=read.port_tests(read.tcp_range),
        reads="PAYLOAD",
        source="netfilter/xt_sctp.c",
        form=Form({**_TCP_PORTS, "--chunk-types": _chunks}),
    ),
    match(
        "tcp",
        _PORTS + " --tcp-flags:any:any! --syn! --tcp-option:u8(1,255)!",
        role=Role.SPACE,
        needs=20,
        strict=True,
        protocols=(TCP,),
        readers=read.TCP,
        one="--tcp-flags --syn",
        reads="TCP PAYLOAD",
        source="netfilter/xt_tcpudp.c",
        form=Form(
            {**_TCP_PORTS, "--tcp-flags": _tcp_flags, "--syn": _SYN, "--tcp-option": write.u8},
            whole=_canonical_tcp,
        ),
    ),
    match(
        "tcpmss",
        "--mss:ordered16!",
        role=Role.NAMED,
        protocols=(TCP,),
        need="--mss",
        reads="TCP",
        source="netfilter/xt_tcpmss.c",
        form=Form({"--mss": write.span(16)}),
    ),
    match(
        "udp",
        _PORTS,
        role=Role.SPACE,
        needs=8,
        protocols=(UDP,),
        readers=read.port_tests(spelt.decimal_port_range),
        reads="PAYLOAD",
        source="netfilter/xt_tcpudp.c",
        form=Form(_OWN_PORTS),
    ),
)

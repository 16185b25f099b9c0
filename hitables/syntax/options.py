"""The table of matches, targets and their options, as iptables 1.8.9 has them.

Parser, printer, tests and docs read the same lines.  A match or target that is
not here gets the role that can do no harm: a match ONCE, a target that may end
the packet's way and may write anything.

An option is written NAME, NAME/0 (no value), NAME/2 (two values) or NAME? (its
value may be left out); aliases stand behind a "=" (--dport=--destination-port).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..ir.fields import ICMP as P_ICMP
from ..ir.fields import ICMPV6, TCP, UDP, Family, Field, top
from ..ir.intervals import Values
from ..ir.rule import Ends, Role, Test
from . import values as spelt

Reader = Callable[[tuple[str, ...], Family], tuple[Test, ...]]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: how many values follow it, and what they mean when that is a set of headers."""

    name: str
    values: int = 1
    optional: bool = False
    read: Reader | None = None


@dataclass(frozen=True, slots=True)
class Extension:
    """One match or target with its options, by every name they have.

    needs, strict, native, role: see ir.rule.Match; ends: see Target.  What it reads and writes: access.py.
    protocols: the match is refused without one of these behind -p (empty: any).
    fixed: options of which one makes a match of role CONSTANT a NAMED one.
    defaults: what an option means when it is left out, for comparing spellings.
    tracks: a rule with it, once loaded, makes the kernel follow connections or put fragments together.
    """

    name: str
    options: dict[str, Option]
    role: Role = Role.CONSTANT
    needs: int = 0
    strict: bool = False
    protocols: frozenset[int] = frozenset()
    counting: frozenset[str] = frozenset()
    ends: Ends = Ends.NEVER
    defaults: dict[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    tracks: bool = False


def _options(text: str, readers: dict[str, Reader] | None = None) -> dict[str, Option]:
    table: dict[str, Option] = {}
    for item in text.split():
        names = item.split("=")
        first, optional = names[0].rstrip("?"), names[0].endswith("?")
        first, _, count = first.partition("/")
        read = (readers or {}).get(first)
        option = Option(first, int(count) if count else 1, optional, read)
        for name in [first, *names[1:]]:
            table[name] = option
    return table


def _field(target: Field, read: Callable[[str], Values]) -> Reader:
    return lambda words, family: (Test(target, read(words[0])),)


def _family_field(target: Field, read: Callable[[str, Family], Values]) -> Reader:
    return lambda words, family: (Test(target, read(words[0], family)),)


def _tcp_range(text: str) -> Values:
    """As port_range, but tcp refuses a reversed range, which udp takes and never matches."""
    chosen = spelt.port_range(text)
    if not chosen:
        raise ValueError(f"invalid port range {text!r}: its low end is above its high end")
    return chosen


def _ports(read: Callable[[str], Values]) -> dict[str, Reader]:
    return {"--sport": _field(Field.SPORT, read), "--dport": _field(Field.DPORT, read)}


_PORTS = "--sport=--source-port --dport=--destination-port"
_TCP_READERS: dict[str, Reader] = {
    **_ports(_tcp_range),
    "--tcp-flags": lambda words, family: (Test(Field.FLAGS, spelt.tcp_flags(words[0], words[1])),),
    "--syn": lambda words, family: (Test(Field.FLAGS, spelt.tcp_flags("SYN,RST,ACK,FIN", "SYN")),),
}
_EITHER: Reader = lambda words, family: (  # noqa: E731
    Test(Field.SPORT, spelt.port_list(words[0])),
    Test(Field.DPORT, spelt.port_list(words[0])),
)
_MULTIPORT: dict[str, Reader] = {
    "--sports": _field(Field.SPORT, spelt.port_list),
    "--dports": _field(Field.DPORT, spelt.port_list),
    "--ports": _EITHER,
}
_STATE_WORDS = ("INVALID", "NEW", "ESTABLISHED", "RELATED", "UNTRACKED")


def _states(*extra: str) -> Reader:
    return lambda words, family: (Test(Field.STATE, spelt.states(words[0], _STATE_WORDS + extra)),)


def _match(
    name: str, options: str = "", role: Role = Role.CONSTANT, *,
    readers: dict[str, Reader] | None = None, needs: int = 0, strict: bool = False,
    protocols: tuple[int, ...] = (), counting: str = "", defaults: dict[str, str] | None = None,
    required: str = "", tracks: bool = False,
) -> Extension:  # fmt: skip
    return Extension(
        name, _options(options, readers), role, needs, strict, frozenset(protocols), frozenset(counting.split()),
        defaults=defaults or {}, required=frozenset(required.split()), tracks=tracks,
    )  # fmt: skip


SPACE, CONSTANT, NAMED, ONCE = Role.SPACE, Role.CONSTANT, Role.NAMED, Role.ONCE

# NAMED too are matches that can drop a packet by what stands in it (tcpmss, frag, dst,
# hbh, rt, mh, ipv6header, eui64, chunks of sctp, options of dccp, ah in IPv6): like one with memory, such a match must be asked just when the input
# asks it.  Bytes of layer 4 that a match drops the packet for the lack of: measured in
# tests/kernel/test_pitfalls.py.
MATCHES = {
    extension.name: extension
    for extension in (
        _match("ah", "--ahspi --ahlen --ahres/0", needs=12),
        _match("addrtype", "--src-type --dst-type --limit-iface-in/0 --limit-iface-out/0"),
        _match("bpf", "--bytecode --object-pinned", NAMED),
        _match("cgroup", "--cgroup --path"),
        _match("cluster", "--cluster-total-nodes --cluster-local-node --cluster-local-nodemask --cluster-hash-seed",
               NAMED),
        _match("comment", "--comment", SPACE, required="--comment"),
        _match("connbytes", "--connbytes --connbytes-dir --connbytes-mode", tracks=True),
        _match("connlabel", "--label --set/0", counting="--set", tracks=True),
        _match("connlimit", "--connlimit-upto --connlimit-above --connlimit-mask --connlimit-saddr/0 "
               "--connlimit-daddr/0", ONCE, tracks=True),
        _match("connmark", "--mark", tracks=True),
        _match("conntrack", "--ctstate --ctproto --ctorigsrc --ctorigdst --ctreplsrc --ctrepldst "
               "--ctorigsrcport --ctorigdstport --ctreplsrcport --ctrepldstport --ctstatus --ctexpire --ctdir",
               SPACE, readers={"--ctstate": _states("SNAT", "DNAT")}, tracks=True),
        _match("cpu", "--cpu"),
        _match("dccp", _PORTS + " --dccp-types --dccp-option", SPACE, protocols=(33,), needs=12, counting="--dccp-option",
               readers=_ports(spelt.decimal_port_range)),
        _match("devgroup", "--src-group --dst-group"),
        _match("dscp", "--dscp --dscp-class"),
        _match("dst", "--dst-len --dst-opts", NAMED),
        _match("ecn", "--ecn-tcp-cwr/0 --ecn-tcp-ece/0 --ecn-ip-ect"),
        _match("esp", "--espspi", protocols=(50,), needs=8),
        _match("eui64", "", NAMED),
        _match("frag", "--fragid --fraglen --fragres/0 --fragfirst/0 --fragmore/0 --fraglast/0", NAMED),
        _match("hashlimit", "--hashlimit=--hashlimit-upto --hashlimit-above --hashlimit-burst --hashlimit-mode "
               "--hashlimit-srcmask --hashlimit-dstmask --hashlimit-name --hashlimit-htable-size "
               "--hashlimit-htable-max --hashlimit-htable-expire --hashlimit-htable-gcinterval "
               "--hashlimit-rate-match/0 --hashlimit-rate-interval", NAMED),
        _match("hbh", "--hbh-len --hbh-opts", NAMED),
        _match("helper", "--helper"),
        _match("hl", "--hl-eq --hl-lt --hl-gt"),
        _match("icmp", "--icmp-type", SPACE, protocols=(P_ICMP,), needs=8, required="--icmp-type",
               readers={"--icmp-type": _family_field(Field.ICMP, spelt.icmp_type)}),
        _match("icmp6", "--icmpv6-type", SPACE, protocols=(ICMPV6,), needs=8, required="--icmpv6-type",
               readers={"--icmpv6-type": _family_field(Field.ICMP, spelt.icmp_type)}),
        _match("ipcomp", "--ipcompspi --compres/0", protocols=(108,), needs=4),
        _match("iprange", "--src-range --dst-range", SPACE, readers={
            "--src-range": _family_field(Field.SRC, spelt.address_range),
            "--dst-range": _family_field(Field.DST, spelt.address_range)}),
        _match("ipv6header", "--header --soft/0", NAMED),
        _match("ipvs", "--ipvs/0 --vproto --vaddr --vport --vdir --vmethod --vportctl"),
        _match("length", "--length"),
        _match("limit", "--limit --limit-burst", ONCE, defaults={"--limit": "3/hour", "--limit-burst": "5"}),
        _match("mac", "--mac-source", SPACE, required="--mac-source",
               readers={"--mac-source": _field(Field.MAC, spelt.mac)}),
        _match("mark", "--mark"),
        _match("mh", "--mh-type", NAMED, protocols=(135,)),
        _match("multiport", "--sports=--source-ports --dports=--destination-ports --ports", SPACE,
               protocols=(TCP, UDP, 136, 132, 33), needs=4, readers=_MULTIPORT),
        _match("nfacct", "--nfacct-name", NAMED),
        _match("osf", "--genre --ttl --log", protocols=(TCP,), counting="--log"),
        _match("owner", "--uid-owner --gid-owner --socket-exists/0 --suppl-groups/0"),
        _match("physdev", "--physdev-in --physdev-out --physdev-is-in/0 --physdev-is-out/0 "
               "--physdev-is-bridged/0"),
        _match("pkttype", "--pkt-type"),
        _match("policy", "--dir --pol --strict/0 --reqid --spi --proto --mode --tunnel-src --tunnel-dst --next/0"),
        _match("quota", "--quota", ONCE),
        _match("quota2", "--name --grow/0 --no-change/0 --packets/0 --quota", ONCE),
        _match("rateest", "--rateest-delta/0 --rateest --rateest1 --rateest2 --rateest-lt/0 --rateest-gt/0 "
               "--rateest-eq/0 --rateest-bps? --rateest-bps1? --rateest-bps2? --rateest-pps? --rateest-pps1? "
               "--rateest-pps2?", NAMED),
        _match("realm", "--realm"),
        _match("recent", "--set/0 --rcheck/0 --update/0 --remove/0 --seconds --reap/0 --hitcount --rttl/0 "
               "--name --rsource/0 --rdest/0 --mask", NAMED,
               defaults={"--name": "DEFAULT", "--rsource": ""}),
        _match("rpfilter", "--loose/0 --validmark/0 --accept-local/0 --invert/0"),
        _match("rt", "--rt-type --rt-segsleft --rt-len --rt-0-res/0 --rt-0-addrs --rt-0-not-strict/0", NAMED),
        _match("sctp", _PORTS + " --chunk-types/2", SPACE, protocols=(132,), needs=12, counting="--chunk-types",
               readers=_ports(_tcp_range)),
        _match("set", "--match-set/2=--set --return-nomatch/0 --update-counters/0 --update-subcounters/0 "
               "--packets-eq --packets-lt --packets-gt --bytes-eq --bytes-lt --bytes-gt",
               counting="--update-counters --update-subcounters --packets-eq --packets-lt --packets-gt "
               "--bytes-eq --bytes-lt --bytes-gt"),
        _match("socket", "--transparent/0 --nowildcard/0 --restore-skmark/0", counting="--restore-skmark"),
        _match("srh", "--srh-next-hdr --srh-hdr-len-eq --srh-hdr-len-gt --srh-hdr-len-lt --srh-segs-left-eq "
               "--srh-segs-left-gt --srh-segs-left-lt --srh-last-entry-eq --srh-last-entry-gt "
               "--srh-last-entry-lt --srh-tag --srh-psid --srh-nsid --srh-lsid"),
        _match("state", "--state", SPACE, readers={"--state": _states()}, required="--state"),
        _match("statistic", "--mode --probability --every --packet", ONCE, defaults={"--packet": "0"}),
        _match("string", "--from --to --algo --string --hex-string --icase/0"),
        _match("tcp", _PORTS + " --tcp-flags/2 --syn/0 --tcp-option", SPACE, protocols=(TCP,), needs=20,
               strict=True, readers=_TCP_READERS),
        _match("tcpmss", "--mss", NAMED, protocols=(TCP,)),
        _match("time", "--datestart --datestop --timestart --timestop --contiguous/0 --monthdays --weekdays "
               "--kerneltz/0 --utc/0 --localtz/0"),
        _match("tos", "--tos"),
        _match("ttl", "--ttl-eq=--ttl --ttl-lt --ttl-gt"),
        _match("u32", "--u32"),
        _match("udp", _PORTS, SPACE, protocols=(UDP,), needs=8, readers=_ports(spelt.decimal_port_range)),
    )
}  # fmt: skip

# Other names that iptables takes for a match.
SAME_MATCH = {"icmpv6": "icmp6", "ipv6-icmp": "icmp6"}

# The match that iptables loads by itself for an option behind -p.
PROTOCOL_MATCH = {
    TCP: "tcp", UDP: "udp", P_ICMP: "icmp", ICMPV6: "icmp6", 132: "sctp", 33: "dccp",
    51: "ah", 50: "esp", 108: "ipcomp", 135: "mh",
}  # fmt: skip


def _target(
    name: str, options: str = "", ends: Ends = Ends.NEVER, *, defaults: dict[str, str] | None = None,
    tracks: bool = False,
) -> Extension:  # fmt: skip
    return Extension(name, _options(options), ends=ends, defaults=defaults or {}, tracks=tracks)


NEVER, MAYBE, SURELY = Ends.NEVER, Ends.MAYBE, Ends.SURELY
_NAT = " --random/0 --persistent/0"

TARGETS = {
    extension.name: extension
    for extension in (
        _target("ACCEPT", "", SURELY),
        _target("DROP", "", SURELY),
        _target("QUEUE", "", SURELY),
        _target("AUDIT", "--type"),
        _target("CHECKSUM", "--checksum-fill/0", MAYBE),
        _target("CLASSIFY", "--set-class", NEVER),
        _target("CLUSTERIP", "--new/0 --hashmode --clustermac --total-nodes --local-node --hash-init", MAYBE),
        _target("CONNMARK", "--set-mark --set-xmark --save-mark/0 --restore-mark/0 --and-mark --or-mark "
                "--xor-mark --left-shift-mark --right-shift-mark --mask --nfmask --ctmask", NEVER, tracks=True),
        _target("CONNSECMARK", "--save/0 --restore/0", NEVER, tracks=True),
        _target("CT", "--notrack/0 --helper --timeout --ctevents --expevents --zone --zone-orig --zone-reply",
                NEVER, tracks=True),
        _target("DNAT", "--to-destination" + _NAT, SURELY, tracks=True),
        _target("DNPT", "--src-pfx --dst-pfx", MAYBE),
        _target("DSCP", "--set-dscp --set-dscp-class", MAYBE),
        _target("ECN", "--ecn-tcp-remove/0 --ecn-tcp-cwr --ecn-tcp-ece --ecn-ip-ect", MAYBE),
        _target("HL", "--hl-set --hl-dec --hl-inc", MAYBE),
        _target("HMARK", "--hmark-tuple --hmark-mod --hmark-offset --hmark-src-prefix --hmark-dst-prefix "
                "--hmark-sport-mask --hmark-dport-mask --hmark-sport --hmark-dport --hmark-spi-mask "
                "--hmark-spi --hmark-rnd --hmark-proto-mask", NEVER),
        _target("IDLETIMER", "--timeout --label --alarm/0"),
        _target("LED", "--led-trigger-id --led-delay --led-always-blink/0"),
        _target("LOG", "--log-level --log-prefix --log-tcp-sequence/0 --log-tcp-options/0 --log-ip-options/0 "
                "--log-uid/0 --log-macdecode/0", NEVER, defaults={"--log-level": "4"}),
        _target("MARK", "--set-mark --set-xmark --and-mark --or-mark --xor-mark", NEVER),
        _target("MASQUERADE", "--to-ports --random/0 --random-fully/0", SURELY, tracks=True),
        _target("MIRROR", "", SURELY),
        _target("NETMAP", "--to", SURELY, tracks=True),
        _target("NFLOG", "--nflog-group --nflog-prefix --nflog-range --nflog-size --nflog-threshold",
                NEVER, defaults={"--nflog-group": "0"}),
        _target("NFQUEUE", "--queue-num --queue-balance --queue-bypass/0 --queue-cpu-fanout/0", SURELY,
                defaults={"--queue-num": "0"}),
        _target("NOTRACK", "", NEVER, tracks=True),
        _target("RATEEST", "--rateest-name --rateest-interval --rateest-ewmalog"),
        _target("REDIRECT", "--to-ports --random/0", SURELY, tracks=True),
        _target("REJECT", "--reject-with", SURELY),
        _target("SAME", "--to --nodst/0 --random/0", SURELY),
        _target("SECMARK", "--selctx", NEVER),
        _target("SET", "--add-set/2 --del-set/2 --map-set/2 --timeout --exist/0 --map-mark/0 --map-prio/0 "
                "--map-queue/0", NEVER),
        _target("SNAT", "--to-source --random-fully/0" + _NAT, SURELY, tracks=True),
        _target("SNPT", "--src-pfx --dst-pfx", MAYBE),
        _target("SYNPROXY", "--sack-perm/0 --timestamp/0 --wscale --mss --ecn/0", MAYBE, tracks=True),
        _target("TCPMSS", "--set-mss --clamp-mss-to-pmtu/0", MAYBE),
        _target("TCPOPTSTRIP", "--strip-options", MAYBE),
        _target("TEE", "--gateway --oif"),
        _target("TOS", "--set-tos --and-tos --or-tos --xor-tos", MAYBE),
        _target("TPROXY", "--on-port --on-ip --tproxy-mark", SURELY, tracks=True),
        _target("TRACE"),
        _target("TTL", "--ttl-set --ttl-dec --ttl-inc", MAYBE),
        _target("ULOG", "--ulog-nlgroup --ulog-prefix --ulog-cprange --ulog-qthreshold"),
    )
}  # fmt: skip

# Names that no user chain may have: iptables refuses them.
RESERVED = frozenset({"ACCEPT", "DROP", "QUEUE", "RETURN"})

# Targets without options that other packages bring; any other name that is
# neither declared as a chain nor a target of the table is a missing chain.
FOREIGN_TARGETS = frozenset(
    {"ACCOUNT", "CHAOS", "DELUDE", "DHCPMAC", "DNETMAP", "ECHO", "IPMARK", "LOGMARK", "NETFLOW", "STEAL",
     "SYSRQ", "TARPIT", "IPV4OPTSSTRIP", "LSCAN", "RTPENGINE", "XOR", "FULLCONENAT", "FLOWOFFLOAD"}
)  # fmt: skip


def _prefix(target: Field) -> Reader:
    def read(words: tuple[str, ...], family: Family) -> tuple[Test, ...]:
        chosen = spelt.network(words[0], family)
        return (Test(target, chosen),)

    return read


def _protocol(words: tuple[str, ...], family: Family) -> tuple[Test, ...]:
    wanted = spelt.protocol(words[0])
    return () if wanted == 0 else (Test(Field.PROTO, Values.only(wanted)),)


# Header options stand before every match, whatever their place in the line; the
# kernel tries them in this order.
HEADER = _options(
    "-s=--source=--src -d=--destination=--dst -i=--in-interface -o=--out-interface -p=--protocol=--proto "
    "-f/0=--fragment",
    {
        "-s": _prefix(Field.SRC),
        "-d": _prefix(Field.DST),
        "-i": _field(Field.IIF, spelt.interface),
        "-o": _field(Field.OIF, spelt.interface),
        "-p": _protocol,
        "-f": lambda words, family: (Test(Field.FRAG, spelt.LATER),),
    },
)
HEADER_ORDER = ("-s", "-d", "-i", "-o", "-p", "-f")

# Options of a rule that are neither header fields nor belong to an extension.
GENERAL = _options(
    "-m=--match -j=--jump -g=--goto -c/2=--set-counters -v/0=--verbose -M=--modprobe -4/0=--ipv4 -6/0=--ipv6"
)


def universe(tests: tuple[Test, ...], family: Family) -> bool:
    """Whether the tests hold for every packet that has the fields."""
    return all(test.values.pairs == ((0, top(test.field, family)),) for test in tests)

"""The rules of the experiment: probes and writers.

A probe is a rule without target, whose counter shows whether its matches held.  Values are chosen so that
the effect of a writer changes the result: one probe for the packets as they are, one for the packets after
a writer.  {source} and similar words are replaced by family (WORDS).  An extension without a probe and
without a writer is in NOT_TRIED, with the reason; tests check that none is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hitables.ir.fields import Family

PRE, IN, FWD, OUT, POST = "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"
_LETTERS = {"P": PRE, "I": IN, "F": FWD, "O": OUT, "S": POST}
EVERYWHERE = "PIFOS"

WORDS: Mapping[Family, Mapping[str, str]] = {
    Family.IPV4: {
        "source": "198.18.0.0/16", "target": "198.19.0.0/16", "range": "198.18.0.0-198.18.255.255",
        "own": "198.19.0.1", "elsewhere": "198.20.0.0/16", "far": "198.19.1.200", "icmp": "icmp",
        "gateway": "198.19.1.201", "echo": "-p icmp -m icmp --icmp-type 8", "port-at": "20",
        "tcp-at": "0>>22&0x3C@", "syn": "40", "length": "48", "mssed": "44", "bpf-l4": "177 0 0 0",
    },
    Family.IPV6: {
        "source": "fd18::/16", "target": "fd19::/16", "range": "fd18::-fd18:ffff::",
        "own": "fd19::1", "elsewhere": "fd20::/16", "far": "fd19:0:0:1::c8", "icmp": "icmpv6",
        "gateway": "fd19:0:0:1::c9", "echo": "-p icmpv6 -m icmp6 --icmpv6-type 128", "port-at": "40",
        "tcp-at": "40", "syn": "60", "length": "68", "mssed": "64", "bpf-l4": "1 0 0 40",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Try:
    """One probe or writer.

    name      of the extension; "" for header options
    words     of the rule, with {words} that differ between the families
    families  in which it exists
    tables    in which it is tried (a probe without any: in all); chains: in which of their chains
    alone     a probe that itself writes: it is run in a chain without other probes
    """

    name: str
    words: str
    families: frozenset[Family]
    tables: tuple[str, ...]
    chains: frozenset[str]
    alone: bool = False

    def rule(self, family: Family) -> str:
        """The words of the rule, behind `-A CHAIN`."""
        out = self.words
        for word, value in WORDS[family].items():
            out = out.replace("{" + word + "}", value)
        return out


def _families(only: int) -> frozenset[Family]:
    return frozenset(Family) if not only else frozenset({Family(only)})


def _chains(letters: str) -> frozenset[str]:
    return frozenset(_LETTERS[letter] for letter in letters)


def _probes(
    name: str, *options: str, p: str = "", only: int = 0, tables: str = "", at: str = EVERYWHERE,
    alone: bool = False,
) -> list[Try]:  # fmt: skip
    """One probe of the match *name* for each of *options*, behind -p *p*."""
    head = f"-p {p} " if p else ""
    texts = [f"{head}-m {name} {each}".rstrip() if name else each for each in options]
    return [Try(name, words, _families(only), tuple(tables.split()), _chains(at), alone) for words in texts]


def _bpf(*steps: str) -> str:
    return f'--bytecode "{len(steps)},{",".join(steps)}"'


_YES_NO = ("21 0 1 {}", "6 0 0 65535", "6 0 0 0")


def _bpf_if(load: str, equals: int) -> str:
    """A program that holds where what *load* brings into the accumulator equals *equals*."""
    return _bpf(*load.split(","), *(step.format(equals) for step in _YES_NO))


# Offsets behind SKF_AD_OFF, through which a classic program reads what is not in the packet.
_AUXILIARY = 0x100000000 - 0x1000
_AUX_PROTOCOL, _AUX_PKTTYPE, _AUX_IFINDEX, _AUX_MARK, _AUX_QUEUE = 0, 4, 8, 20, 24


def _aux(offset: int) -> str:
    return f"32 0 0 {_AUXILIARY + offset}"


READERS: tuple[Try, ...] = tuple(
    probe
    for probes in (
        _probes("", "-s {source}", "! -s {source}", "-d {target}", "! -d {target}"),
        _probes("", "-s {elsewhere}", "-d {elsewhere}", "-d {own}"),
        _probes("", "-i eth0", "! -i eth0", at="PIF"),
        _probes("", "-o eth1", "! -o eth1", at="FOS"),
        _probes("", "-p tcp", "-p udp", "! -p tcp", "-p {icmp}"),
        _probes("", "-f", "! -f", only=4),
        _probes("ah", "--ahspi 256", "! --ahspi 256", p="ah", only=4),
        _probes("ah", "--ahspi 256", "! --ahspi 256", only=6),
        _probes("addrtype", "--src-type UNICAST", "--dst-type UNICAST", "--dst-type LOCAL",
                "--src-type LOCAL", "! --dst-type LOCAL"),
        _probes("addrtype", "--dst-type LOCAL --limit-iface-in", at="PIF"),
        _probes("addrtype", "--dst-type UNICAST --limit-iface-out", at="FOS"),
        # Bytes of the packet: the TOS (IPv4), the hop limit, addresses, the first bytes of layer 4.
        _probes("bpf", _bpf_if("48 0 0 1", 0), _bpf_if("48 0 0 8", 64), _bpf_if("40 0 0 2", 40),
                _bpf_if("40 0 0 12", 0xC612), _bpf_if("40 0 0 16", 0xC613), only=4),
        _probes("bpf", _bpf_if("40 0 0 0", 0x6000), _bpf_if("48 0 0 7", 64), _bpf_if("40 0 0 8", 0xFD18),
                _bpf_if("40 0 0 24", 0xFD19), only=6),
        _probes("bpf", _bpf_if(_aux(_AUX_MARK), 0), _bpf_if(_aux(_AUX_MARK), 16),
                _bpf_if(_aux(_AUX_PKTTYPE), 0), _bpf_if(_aux(_AUX_PKTTYPE), 2),
                _bpf_if(_aux(_AUX_QUEUE), 0), _bpf_if("128 0 0 0", 60)),
        _probes("cgroup", "--cgroup 0", "! --cgroup 0", at="OS"),
        _probes("cluster", *(f"--cluster-total-nodes 2 --cluster-local-node {node} --cluster-hash-seed 7"
                             for node in (1, 2)),
                "! --cluster-local-node 1 --cluster-total-nodes 2 --cluster-hash-seed 7", alone=True),
        _probes("comment", '--comment "a b"'),
        _probes("connbytes", "--connbytes 0:9 --connbytes-dir both --connbytes-mode packets",
                "! --connbytes 0 --connbytes-dir original --connbytes-mode bytes"),
        _probes("connlabel", "--label 1", "--label 2", "! --label 2"),
        _probes("connlimit", "--connlimit-upto 1000", "--connlimit-above 1000", p="tcp"),
        _probes("connmark", "--mark 0", "--mark 0x10", "! --mark 0", "--mark 0x20/0x20"),
        _probes("conntrack", *(f"--ctstate {state}" for state in
                               ("NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED", "SNAT", "DNAT")),
                "! --ctstate INVALID", "--ctproto tcp", "! --ctproto tcp", "--ctorigsrc {source}",
                "! --ctorigsrc {source}", "! --ctorigdst {target}", "! --ctreplsrc {target}",
                "! --ctrepldst {source}", "--ctorigsrcport 1000", "! --ctorigdstport 53",
                "! --ctreplsrcport 53", "! --ctrepldstport 1000", "--ctstatus NONE", "--ctstatus CONFIRMED",
                "! --ctstatus CONFIRMED", "--ctstatus SEEN_REPLY", "--ctdir ORIGINAL", "--ctdir REPLY",
                "--ctexpire 1:4000000", "! --ctexpire 0:1"),
        _probes("cpu", "--cpu 0", "! --cpu 0"),
        _probes("dccp", "--sport 1000", "--dport 53", "--dccp-types REQUEST", "! --dccp-types REQUEST",
                p="dccp"),
        _probes("devgroup", "--src-group 0", "! --src-group 0", at="PIF"),
        _probes("devgroup", "--dst-group 0", "! --dst-group 0", at="FOS"),
        _probes("dscp", "--dscp 0", "--dscp 4", "! --dscp 0"),
        _probes("dst", "--dst-len 8", "! --dst-len 8", only=6),
        _probes("ecn", *(f"--ecn-ip-ect {value}" for value in range(4))),
        _probes("ecn", "--ecn-tcp-cwr", "--ecn-tcp-ece", "! --ecn-tcp-ece", p="tcp"),
        _probes("esp", "--espspi 256", "! --espspi 256", p="esp"),
        _probes("eui64", "", only=6, at="PIF"),
        _probes("frag", "--fragfirst", "--fraglast", only=6),
        _probes("hashlimit", "--hashlimit-upto 1000000/sec --hashlimit-burst 1000000 --hashlimit-mode srcip "
                "--hashlimit-name many", p="tcp"),  # it drops a later fragment, as connlimit does
        _probes("hbh", "--hbh-len 8", only=6),
        _probes("helper", '--helper "tftp"', '! --helper "tftp"', '--helper "ftp"'),
        _probes("hl", "--hl-eq 64", "--hl-lt 64", "--hl-gt 64", "! --hl-eq 64", only=6),
        _probes("icmp", "--icmp-type 8", "! --icmp-type 8", p="icmp", only=4),
        _probes("icmp6", "--icmpv6-type 128", "! --icmpv6-type 128", p="icmpv6", only=6),
        _probes("ipcomp", "--ipcompspi 256", p="108"),
        _probes("iprange", "--src-range {range}", "! --src-range {range}", "! --dst-range {range}"),
        _probes("ipv6header", "--header hop-by-hop --soft", "--header dst --soft", "! --header frag --soft",
                only=6),
        _probes("length", "--length {syn}", "--length {length}", "--length {mssed}", "! --length {syn}",
                "--length 0:{syn}"),
        _probes("limit", "--limit 10000/sec --limit-burst 10000"),
        _probes("mac", "--mac-source 02:6f:74:68:65:72", "! --mac-source 02:6f:74:68:65:72", at="PIF"),
        _probes("mark", "--mark 0", "--mark 0x10", "! --mark 0", "--mark 0x20/0x20", "--mark 0x77"),
        _probes("mh", "--mh-type 5", p="mh", only=6),
        _probes("multiport", "--sports 1000", "--dports 53,8080", "--ports 53", "! --dports 53", p="tcp"),
        _probes("multiport", "--sports 1000", "--dports 53", "! --sports 1000", p="udp"),
        _probes("nfacct", "--nfacct-name account"),
        _probes("osf", "--genre Linux --ttl 0", "! --genre Linux --ttl 2", p="tcp", only=4, at="PIF"),
        _probes("owner", "--uid-owner 0", "! --uid-owner 0", "--uid-owner 1000", "--gid-owner 0",
                "--socket-exists", "! --socket-exists", at="OS"),
        _probes("physdev", "! --physdev-is-bridged"),
        _probes("physdev", "! --physdev-is-in", at="PIF"),
        _probes("pkttype", "--pkt-type unicast", "--pkt-type multicast", "--pkt-type broadcast",
                "! --pkt-type unicast"),
        _probes("policy", "--dir in --pol none", "--dir in --pol ipsec", at="PIF"),
        _probes("policy", "--dir out --pol none", "--dir out --pol ipsec", at="FOS"),
        _probes("quota", "--quota 1000000000"),
        _probes("rateest", "--rateest gauge --rateest-lt --rateest-bps 1000000000"),
        _probes("realm", "--realm 5", "! --realm 5", only=4, at="IFOS"),
        _probes("recent", "--rcheck --name listed", "! --rcheck --name listed"),
        _probes("rpfilter", "", "--invert", "--loose", "--validmark", "--validmark --invert",
                tables="raw mangle", at="P"),
        _probes("rt", "--rt-type 2", "! --rt-segsleft 1", only=6),
        _probes("sctp", "--sport 1000", "--dport 53", "--chunk-types any INIT", p="sctp"),
        _probes("set", "--match-set addresses src", "--match-set addresses dst",
                "! --match-set addresses src",
                "--match-set named src", "--match-set ports dst,dst", "--match-set interfaces src,src"),
        _probes("socket", "", "--transparent", "--nowildcard", at="PI"),
        _probes("srh", "--srh-next-hdr 17", "! --srh-segs-left-eq 0", only=6),
        _probes("state", "--state NEW", "--state ESTABLISHED", "--state UNTRACKED", "! --state INVALID"),
        _probes("statistic", "--mode random --probability 0.5", "--mode nth --every 2 --packet 0"),
        _probes("string", '--algo bm --from 40 --string "needle"',
                '--algo kmp --from 40 ! --string "needle"'),
        _probes("string", '--algo bm --from 0 --to 8 --hex-string "|40|"',
                '--algo bm --from 0 --to 4 --hex-string "|00|"',
                '--algo bm --from 20 --to 60 --hex-string "|05b4|"',
                '--algo bm --to 40 --hex-string "|c613|"',
                '--algo bm --to 60 --hex-string "|fd19|"'),
        _probes("tcp", "--sport 1000", "--dport 53", "! --dport 53", "--syn", "! --syn",
                "--tcp-flags ALL SYN",
                "--tcp-flags ACK ACK", "--tcp-option 2", "! --tcp-option 2", "--tcp-option 8",
                "--tcp-option 4", p="tcp"),
        _probes("tcpmss", "--mss 1460", "! --mss 1460", "--mss 100", p="tcp"),
        _probes("time", "--datestart 2020-01-01", "--timestart 00:00 --timestop 23:59:59"),
        _probes("tos", "--tos 0/0xff", "--tos 0x10/0xff", "--tos 0/3", "! --tos 0/0xff"),
        _probes("ttl", "--ttl-eq 64", "--ttl-lt 64", "--ttl-gt 64", "! --ttl-eq 64", only=4),
        # By the word: TOS, length, TTL, addresses, checksums, ports, sequence, flags, options.
        _probes("u32", *(f'--u32 "{test}"' for test in
                         ("0>>16&0xFF=0", "0>>16&0xFF=0x10", "0&0xFFFF=40", "8>>24&0xFF=64",
                          "12>>16&0xFFFF=0xC612", "16>>16&0xFFFF=0xC613", "20>>16&0xFFFF=1000",
                          "0>>22&0x3C@12>>16&0xFF=2", "0>>22&0x3C@20=0x020405B4", "8&0xFFFF=0")), only=4),
        _probes("u32", *(f'--u32 "{test}"' for test in
                         ("0>>20&0xFF=0", "0>>20&0xFF=0x10", "4>>16&0xFFFF=20", "4&0xFF=64",
                          "8>>16&0xFFFF=0xFD18", "24>>16&0xFFFF=0xFD19", "40>>16&0xFFFF=1000",
                          "52>>16&0xFF=2", "60=0x020405B4")), only=6),
        _probes("udp", "--sport 1000", "--dport 53", "! --dport 53", p="udp"),
    )
    for probe in probes
)  # fmt: skip


def _writers(name: str, *options: str, head: str = "", only: int = 0, tables: str = "mangle",
             at: str = EVERYWHERE) -> list[Try]:  # fmt: skip
    """One rule with the target *name* for each of *options*, behind the matches *head*."""
    return [
        Try(name, " ".join(filter(None, (head, f"-j {name}", each))), _families(only),
            tuple(tables.split()), _chains(at))
        for each in options
    ]  # fmt: skip


_SYN_ONLY = "-p tcp -m tcp --tcp-flags SYN,RST SYN"

TARGETS_TRIED: tuple[Try, ...] = tuple(
    each
    for group in (
        _writers("ACCEPT", "", at="PO"), _writers("DROP", "", at="P"),
        _writers("AUDIT", "--type accept", at="PO"),
        _writers("CHECKSUM", "--checksum-fill"),
        _writers("CLASSIFY", "--set-class 1:16", at="FOS"),
        _writers("CONNMARK", "--set-xmark 0x10/0xffffffff", "--save-mark", "--restore-mark", "--or-mark 0x20",
                 "--xor-mark 0x1", "--and-mark 0xf0"),
        _writers("CONNMARK", "--restore-mark", tables="filter", at="IFO"),
        _writers("CONNSECMARK", "--save", "--restore", tables="mangle security"),
        _writers("CT", "--notrack", "--zone 1", "--zone-orig 2", "--zone-reply 3", "--ctevents new",
                 tables="raw"),
        _writers("CT", "--helper tftp", head="-p udp", tables="raw"),
        _writers("NOTRACK", "", tables="raw"),
        _writers("DNAT", "--to-destination {gateway}", tables="nat", at="PO"),
        _writers("DNPT", "--src-pfx fd19::/16 --dst-pfx fd20::/16", only=6, at="PO"),
        _writers("SNPT", "--src-pfx fd18::/16 --dst-pfx fd20::/16", only=6, at="IS"),
        _writers("DSCP", "--set-dscp 0x04", "--set-dscp 0x2e"),
        _writers("ECN", "--ecn-tcp-remove", head="-p tcp", only=4),
        _writers("HL", "--hl-set 10", "--hl-inc 1", "--hl-dec 1", only=6),
        _writers("TTL", "--ttl-set 10", "--ttl-inc 1", "--ttl-dec 1", only=4),
        _writers("HMARK", "--hmark-tuple src,dst --hmark-mod 16 --hmark-offset 16 --hmark-rnd 1",
                 "--hmark-tuple ct,src,sport --hmark-mod 16 --hmark-offset 16 --hmark-rnd 1"),
        _writers("IDLETIMER", "--timeout 600 --label quiet", at="PO"),
        _writers("LOG", '--log-prefix "matrix "', at="PO"),
        _writers("MARK", "--set-xmark 0x10/0xffffffff", "--or-mark 0x20", "--set-xmark 0x77/0xff",
                 "--and-mark 0", "--xor-mark 0x1"),
        _writers("MARK", "--set-xmark 0x10/0xffffffff", tables="raw filter security nat"),
        _writers("MASQUERADE", "", tables="nat", at="S"),
        _writers("NETMAP", "--to {target}", tables="nat", at="PO"),
        _writers("NFLOG", "--nflog-group 9", at="PO"),
        _writers("NFQUEUE", "--queue-num 9 --queue-bypass", at="PO"),
        _writers("RATEEST", "--rateest-name meter --rateest-interval 250ms --rateest-ewmalog 500ms", at="PO"),
        _writers("REDIRECT", "", head="-p udp", tables="nat", at="PO"),
        _writers("REJECT", "", tables="filter", at="IF"),
        _writers("SECMARK", "--selctx system_u:object_r:httpd_packet_t:s0", tables="mangle security",
                 at="PIO"),
        _writers("SET", "--add-set named src", "--del-set addresses src", "--add-set ports dst,dst",
                 "--map-set mapping src --map-mark"),
        _writers("SET", "--map-set mapping src --map-prio", at="FOS"),
        _writers("SNAT", "--to-source {own}", tables="nat", at="SI"),
        _writers("SYNPROXY", "--sack-perm --timestamp --wscale 7 --mss 1460", head=_SYN_ONLY, tables="filter",
                 at="IF"),
        _writers("TCPMSS", "--set-mss 100", head=_SYN_ONLY),
        _writers("TCPMSS", "--clamp-mss-to-pmtu", head=_SYN_ONLY, at="FOS"),
        _writers("TCPOPTSTRIP", "--strip-options mss", "--strip-options timestamp,sack-permitted,wscale",
                 head="-p tcp"),
        _writers("TEE", "--gateway {gateway}", at="PO"),
        _writers("TOS", "--set-tos 0x10/0xff", "--set-tos 0x03/0x03", "--or-tos 0x08", "--and-tos 0xfc",
                 "--xor-tos 0x04"),
        _writers("TPROXY", "--on-port 5300 --on-ip {own} --tproxy-mark 0x10/0xff", head="-p udp", at="P"),
        _writers("TRACE", "", tables="raw"),
    )
    for each in group
)  # fmt: skip


def _match_writers() -> tuple[Try, ...]:
    """Every probe as the rule between two readings, and matches that are known to write."""
    own = [
        *_probes("connlabel", "--label 2 --set"),
        *_probes("socket", "--restore-skmark", "--transparent --restore-skmark", at="PI"),
        *_probes("set", "--match-set addresses src --update-counters --packets-gt 0",
                 "--match-set addresses src ! --update-counters"),
        *_probes("recent", "--set --name listed", "--remove --name listed", "--update --name listed"),
    ]  # fmt: skip
    seen: dict[tuple[str, frozenset[str]], Try] = {}
    for each in READERS:
        if each.name:
            seen.setdefault((each.name, each.chains), each)
    return tuple(
        Try(each.name, each.words, each.families, ("mangle",), each.chains) for each in [*own, *seen.values()]
    )


MATCHES_AS_WRITERS = _match_writers()

# Extensions of the table that are tried neither as reader nor as writer: a rule, and why not.
NOT_TRIED: Mapping[str, tuple[str, str]] = {
    "ipvs": ("-m ipvs --ipvs", "the kernel is built without IPVS"),
    "quota2": ("-m quota2 --quota 1000", "from xtables-addons, which iptables does not bring"),
    "CLUSTERIP": ("-j CLUSTERIP", "the kernel is built without it"),
    "LED": ("-j LED --led-trigger-id a", "the kernel is built without LEDs"),
    "MIRROR": ("-j MIRROR", "neither the kernel nor iptables has it any more"),
    "SAME": ("-j SAME --to 10.0.0.1", "neither the kernel nor iptables has it any more"),
    "QUEUE": ("-j QUEUE", "a standard verdict; NFQUEUE is tried"),
    "ULOG": ("-j ULOG", "the kernel does not have it any more"),
}
# Why the kernel here refuses a writer or reader that it knows.
REFUSED_HERE: Mapping[str, str] = {
    "SECMARK": "needs a security module (SELinux, Smack) that knows the context; none runs",
}
# Forms of extensions that are otherwise tried.
FORMS_NOT_TRIED: Mapping[str, str] = {
    "-m set with hash:ip,mark, hash:mac, hash:ip,mac, hash:net,net": "the kernel is built without them",
    "-m bpf --object-pinned": "needs a program pinned in a bpf file system of the machine",
    "-m cgroup --path": "depends on the cgroups of the machine that runs it",
    "-j CT --timeout": "needs a timeout policy, which only nfct makes",
    "-m physdev on a bridged packet": "needs a bridge; only the answers for packets off a bridge are tried",
    "-m osf with fingerprints": "the kernel's list of fingerprints is the machine's, not the namespace's",
    "-m policy with IPsec": "needs a security association; only the answers for packets without are tried",
}

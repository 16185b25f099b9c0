"""The texts of `benchmarks.accepts`: valid, borderline and invalid rules for every extension, and odd lines.

Each group of texts varies one thing: the value of an option, two options together, the surroundings of an
extension (protocol, family, table, chain), the beginnings of long options, header options, or whole lines.
"""

# ruff: noqa: E501  (tables of texts read better unbroken)
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from hitables.ir.fields import Family
from hitables.ir.program import BUILT_IN
from hitables.syntax.extension import Extension, Option
from hitables.syntax.extensions import MATCHES, TARGETS

V4, V6 = Family.IPV4, Family.IPV6

# By match: a rule that loads, around the option that is varied.  "@" is replaced by an address.
MATCH_BASES = {
    "ah": "-p ah -m ah --ahspi 5", "addrtype": "-m addrtype --dst-type LOCAL",
    "bpf": '-m bpf --bytecode "4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0"',
    "cgroup": "-m cgroup --cgroup 1",
    "cluster": "-m cluster --cluster-total-nodes 2 --cluster-local-node 1 --cluster-hash-seed 7",
    "comment": "-m comment --comment some", "connlabel": "-m connlabel --label 40",
    "connbytes": "-m connbytes --connbytes 10:20 --connbytes-dir both --connbytes-mode bytes",
    "connlimit": "-m connlimit --connlimit-above 10", "connmark": "-m connmark --mark 1",
    "conntrack": "-m conntrack --ctstate NEW", "cpu": "-m cpu --cpu 0",
    "dccp": "-p dccp -m dccp --dport 5", "devgroup": "-m devgroup --src-group 1",
    "dscp": "-m dscp --dscp 4", "dst": "-m dst --dst-len 8", "ecn": "-p tcp -m ecn --ecn-tcp-cwr",
    "esp": "-p esp -m esp --espspi 5", "eui64": "-m eui64", "frag": "-m frag --fragid 1",
    "hashlimit": "-m hashlimit --hashlimit-upto 5/sec --hashlimit-name tried", "hbh": "-m hbh --hbh-len 8",
    "helper": "-m helper --helper ftp", "hl": "-m hl --hl-eq 5", "icmp": "-p icmp -m icmp --icmp-type 8",
    "icmp6": "-p icmpv6 -m icmp6 --icmpv6-type 128", "ipcomp": "-p ipcomp -m ipcomp --ipcompspi 5",
    "iprange": "-m iprange --src-range @-@", "ipv6header": "-m ipv6header --header hop --soft",
    "ipvs": "-m ipvs --ipvs", "length": "-m length --length 100", "limit": "-m limit --limit 5/sec",
    "mac": "-m mac --mac-source 00:11:22:33:44:55", "mark": "-m mark --mark 1", "mh": "-p mh -m mh --mh-type cot",
    "multiport": "-p tcp -m multiport --dports 22,80", "nfacct": "-m nfacct --nfacct-name tried",
    "osf": "-p tcp -m osf --genre Linux", "owner": "-m owner --uid-owner 0",
    "physdev": "-m physdev --physdev-in eth0", "pkttype": "-m pkttype --pkt-type unicast",
    "policy": "-m policy --dir in --pol ipsec", "quota": "-m quota --quota 1000", "quota2": "-m quota2 --quota 1000",
    "rateest": "-m rateest --rateest tried --rateest-gt --rateest-bps 100bit", "realm": "-m realm --realm 1",
    "recent": "-m recent --set", "rpfilter": "-m rpfilter", "rt": "-m rt --rt-type 0",
    "sctp": "-p sctp -m sctp --dport 5", "set": "-m set --match-set tried src", "socket": "-m socket",
    "srh": "-m srh --srh-next-hdr 6", "state": "-m state --state NEW",
    "statistic": "-m statistic --mode random --probability 0.5", "string": "-m string --algo bm --string some",
    "tcp": "-p tcp -m tcp --dport 22", "tcpmss": "-p tcp -m tcpmss --mss 5:10", "time": "-m time --timestart 10:00",
    "tos": "-m tos --tos 0x10", "ttl": "-m ttl --ttl-eq 5", "u32": '-m u32 --u32 "0=0"', "udp": "-p udp -m udp --dport 53",
}  # fmt: skip
TARGET_BASES = {
    "ACCEPT": "", "DROP": "", "QUEUE": "", "AUDIT": "--type accept", "CHECKSUM": "--checksum-fill",
    "CLASSIFY": "--set-class 1:1", "CLUSTERIP": "--new --hashmode sourceip --clustermac 01:02:03:04:05:06 "
    "--total-nodes 2 --local-node 1", "CONNMARK": "--set-mark 1", "CONNSECMARK": "--save", "CT": "--notrack",
    "DNAT": "--to-destination @", "DNPT": "--src-pfx dead::/64 --dst-pfx beef::/64", "DSCP": "--set-dscp 4",
    "ECN": "--ecn-tcp-remove", "HL": "--hl-set 5",
    "HMARK": "--hmark-src-prefix 32 --hmark-rnd 4 --hmark-mod 42", "IDLETIMER": "--timeout 42 --label tried",
    "LED": "--led-trigger-id tried", "LOG": "", "MARK": "--set-mark 1", "MASQUERADE": "", "MIRROR": "",
    "NETMAP": "--to @", "NFLOG": "--nflog-group 1", "NFQUEUE": "--queue-num 1", "NOTRACK": "",
    "RATEEST": "--rateest-name tried --rateest-interval 250ms --rateest-ewmalog 500ms", "REDIRECT": "",
    "REJECT": "", "SAME": "--to @", "SECMARK": "--selctx some", "SET": "--add-set tried src",
    "SNAT": "--to-source @", "SNPT": "--src-pfx dead::/64 --dst-pfx beef::/64", "SYNPROXY": "--mss 1460",
    "TCPMSS": "--set-mss 1400", "TCPOPTSTRIP": "--strip-options 8", "TEE": "--gateway @", "TOS": "--set-tos 0x10",
    "TPROXY": "--on-port 80", "TRACE": "", "TTL": "--ttl-set 5", "ULOG": "--ulog-nlgroup 1", "RETURN": "",
}  # fmt: skip
# The words that a target needs before it; and the table and chain for an extension.
BEFORE = {
    "TCPMSS": "-p tcp --tcp-flags SYN,RST SYN ", "SYNPROXY": "-p tcp ", "ECN": "-p tcp ", "TPROXY": "-p tcp ",
    "TCPOPTSTRIP": "-p tcp ", "CLUSTERIP": "-d 10.0.0.1 -i eth0 ",
}  # fmt: skip
PLACES = {
    "CHECKSUM": "mangle POSTROUTING", "CLASSIFY": "mangle POSTROUTING", "CONNSECMARK": "mangle INPUT",
    "CT": "raw PREROUTING", "DNAT": "nat PREROUTING", "DNPT": "mangle PREROUTING", "DSCP": "mangle INPUT",
    "ECN": "mangle INPUT", "HL": "mangle INPUT", "MASQUERADE": "nat POSTROUTING", "NETMAP": "nat PREROUTING",
    "NOTRACK": "raw PREROUTING", "REDIRECT": "nat PREROUTING", "SAME": "nat POSTROUTING", "SECMARK": "mangle INPUT",
    "SNAT": "nat POSTROUTING", "SNPT": "mangle POSTROUTING", "TCPOPTSTRIP": "mangle INPUT", "TOS": "mangle INPUT",
    "TPROXY": "mangle PREROUTING", "TTL": "mangle INPUT", "rpfilter": "raw PREROUTING", "owner": "filter OUTPUT",
    "socket": "mangle PREROUTING", "TRACE": "raw PREROUTING", "MARK": "mangle INPUT", "HMARK": "mangle INPUT",
}  # fmt: skip
ONLY_V4 = frozenset({"icmp", "realm", "ttl", "CLUSTERIP", "ECN", "TTL", "ULOG", "MIRROR", "SAME"})
ONLY_V6 = frozenset(
    {"icmp6", "dst", "hbh", "frag", "rt", "mh", "hl", "HL", "eui64", "ipv6header", "srh", "DNPT", "SNPT"}
)

# Values for every option.
VALUES = (
    "0", "1", "-1", "7", "33", "64", "129", "255", "256", "65535", "65536", "4294967295", "4294967296",
    "18446744073709551616", "0x10", "0x1g", "010", "09", "1:2", "2:1", ":", "1:2:3", "1-2", "1,2", "1,,2",
    "1/2", "0x1/0xff", "abc", "any", '""', '"a b"', "@", "@/24", "@-@", "!",
    "x" * 40, "x" * 300,
)  # fmt: skip
# Further values by option: valid ones, and similar ones.
WORDS = {
    "--ctstate": "NEW NEW,ESTABLISHED new NEW,,RELATED SNAT UNTRACKED FOO NEW,", "--state": "NEW new UNTRACKED SNAT NEW,",
    "--ctstatus": "NONE EXPECTED,ASSURED expected CONFIRMED FOO", "--ctdir": "ORIGINAL reply BOTH",
    "--ctproto": "tcp 6 TCP all foo", "--dir": "in out both IN", "--pol": "none ipsec NONE", "--mode": "nth random tunnel transport",
    "--algo": "bm kmp BM foo", "--hex-string": "|0d0a| |0d| |0| |zz| |0d", "--pkt-type": "unicast broadcast multicast foo",
    "--dst-type": "LOCAL LOCAL,UNICAST local FOO LOCAL,", "--src-type": "BROADCAST ANYCAST FOO",
    "--dscp-class": "EF AF11 CS7 ef BE AF55", "--set-dscp-class": "EF AF11 CS7 ef BE AF55",
    "--tos": "Minimize-Delay minimize-delay 0x10/0xff Foo 0x100 0x10/", "--set-tos": "Minimize-Delay 0x10/0xff Foo 0x100",
    "--limit": "5/s 5/sec 5/second 5/m 5/min 5/hour 5/day 5/week 5 0/s 5/ 10001/s 10000/s 5/SEC -5/s a/s 1.5/s",
    "--hashlimit": "5/sec 5kb/s 5mb/s 0/sec 5/week 1000001/s 1/day", "--hashlimit-above": "5/sec 5kb/s 5mb/s 5gb/s 0/sec 5b/s",
    "--hashlimit-mode": "srcip srcip,dstport dstip SRCIP foo srcip,", "--hashlimit-burst": "5 10kb 0 10mb 1000001",
    "--connlimit-mask": "0 32 33 24", "--hashlimit-srcmask": "0 32 33 24", "--hashlimit-dstmask": "0 32 33 24",
    "--mask": "255.255.255.0 ffff:: 255.255.0", "--uid-owner": "root 0 0-5 5-0 nosuch 4294967294 0-", "--gid-owner": "root 0 0-5 nosuch",
    "--log-level": "debug 7 8 err error emerg panic DEBUG warning notice", "--log-prefix": '"x " ""',
    "--reject-with": "icmp-port-unreachable tcp-reset icmp-admin-prohibited icmp6-port-unreachable port-unreach "
    "icmp-net-unreachable icmp-foo icmp6-adm-prohibited no-route tcp-rst icmp-p echo-reply ICMP-PORT-UNREACHABLE",
    "--to-destination": "10.0.0.1 10.0.0.1-10.0.0.9 10.0.0.9-10.0.0.1 10.0.0.1:80 10.0.0.1:80-90 10.0.0.1:90-80 :80 "
    "10.0.0.1:http 10.0.0.1:0 10.0.0.1:99999 10.0.0.1/24 [fe80::1]:80 fe80::1 10.0.0.1:80-90/8080 10.0.0.1:80-90/0 10.0.0 10.0.0.1:",
    "--to-source": "10.0.0.1 10.0.0.1-10.0.0.9 10.0.0.1:80 10.0.0.1:80-90 :80 10.0.0.1:90-80 fe80::1 [fe80::1]:80 10.0.0.1-",
    "--to-ports": "80 80-90 90-80 80:90 http 0 99999 80- -90 80-90/8080 80-90/0", "--to": "10.0.0.0/8 10.0.0.0/255.0.255.0 fe80::/64",
    "--on-ip": "10.0.0.1 fe80::1 0.0.0.0", "--on-port": "80 http 0 99999", "--tproxy-mark": "1 0x1/0x1 1/ x",
    "--gateway": "10.0.0.1 fe80::1 10.0.0.1/8", "--oif": "eth0 averyveryverylongname",
    "--icmp-type": "8 8/0 echo-request any ping 256 8/256 3/1 port-unreachable foo Echo-Request 255 255/255 8/",
    "--icmpv6-type": "128 128/0 echo-request any ping 256 foo 255 255/255 135/0",
    "--tcp-flags": "SYN,ACK SYN|ALL NONE|SYN FOO|syn,ack syn|SYN SYN,ACK|NONE SYN|SYN,,ACK SYN|SYN", "--tcp-option": "0 1 255 256 abc",
    "--chunk-types": "all INIT|any DATA:Be|only ABORT:T|some INIT|all FOO|all INIT,|any init",
    "--dports": "22:22 22,80 22:21 22: :22 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 http "
    "http,22 22, ,22 0 0:65535 1:2,3:4,5:6,7:8,9:10,11:12,13:14,15 1:2,3:4,5:6,7:8,9:10,11:12,13:14,15:16",
    "--sports": "22:22 22,80 http 22:", "--ports": "22:22 22,80 65535:65535", "--dport": "22:22 22: :22 http 80:http http:80 0x16 022",
    "--sport": "22:22 22: :22 http 080", "--mac-source": "00:11:22:33:44:55 0:1:2:3:4:5 00-11-22-33-44-55 00:11:22:33:44 gg:11:22:33:44:55",
    "--src-range": "10.0.0.1 10.0.0.1-10.0.0.5 10.0.0.5-10.0.0.1 10.0.0.1- fe80::1-fe80::5 10.0.0.0/8",
    "--dst-range": "10.0.0.1 10.0.0.1-10.0.0.5 10.0.0.5-10.0.0.1", "--mark": "1 0x1/0xff 1/ 0x100000000 x 1/x",
    "--set-mark": "1 0x1/0xff 1/ x", "--set-xmark": "1 0x1/0xff 1/ x", "--set-class": "1:1 0:0 1 ffff:ffff 10000:1 g:1 1:",
    "--length": "5 5: :5 10:5 65535 65536", "--mss": "5 5: :5 10:5 65535 65536 1460", "--connbytes": "10 10: :10 20:10 10:20",
    "--connbytes-dir": "original reply both foo", "--connbytes-mode": "packets bytes avgpkt foo", "--probability": "0 0.5 1 1.1 -0.1 abc 1e-3",
    "--every": "1 2 0", "--packet": "0 1", "--strip-options": "8 sack timestamp mss,wscale 0 1 2 256 foo sack-permitted md5 echo",
    "--timestart": "10:00 10:00:00 25:00 10 24:00 23:59:59 1:2 10:60 010:08", "--timestop": "10:00 23:59 0:0", "--weekdays": "Mon Mo,Tu 1,7 8 mon Monday Mon,",
    "--monthdays": "1 1,31 32 0 1st 2nd,3rd", "--datestart": "2020-01-01 2020-01-01T10:00:00 2020 2020-13-01 2020-1-1 1960-01-01 2039-01-01",
    "--datestop": "2020-01-01 2020 2038-01-19T03:14:07", "--u32": '"0&0xff=1" "0=0:5" "0>>22&0x3C@0=1" "0=1&&4=2" "0" "x=1" "0=5:0"',
    "--bytecode": '"1,6 0 0 0" "2,6 0 0 0" "1,6 0 0" ""', "--match-set": "tried src|tried src,dst|tried foo|nosuch src|tried src,src,src,src,src,src,src",
    "--add-set": "tried src|tried foo|nosuch src", "--del-set": "tried src", "--map-set": "tried src", "--queue-balance": "0:3 3:0 0 0:65535 5:",
    "--dccp-types": "REQUEST REQUEST,DATA foo request INVALID", "--rt-0-addrs": "fe80::1 fe80::1,fe80::2 10.0.0.1", "--dst-opts": "1:2 1 1:2,3:4 256:1 1:256",
    "--hbh-opts": "1:2 1 256 1:", "--header": "hop hop,dst foo esp,auth 60 hop-by-hop", "--mh-type": "cot 5 256 binding-update 1:2", "--type": "accept drop reject foo",
    "--ctevents": "new new,destroy foo", "--expevents": "new foo", "--zone": "1 65535 65536 mark", "--zone-orig": "1 mark", "--hashmode": "sourceip sourceip-sourceport foo",
    "--genre": "Linux Windows foo", "--hmark-tuple": "src,dst sport foo ct src,src", "--rateest-interval": "250ms 1s 0.1ms 250 8s 60s x", "--rateest-ewmalog": "500ms 1s x",
    "--rateest-bps": "100bit 5kbit 5 5mbps", "--rateest-pps": "100 x", "--quota": "0 1 18446744073709551615", "--src-group": "1 0x1/0xff default 1/x",
    "--dst-group": "1 0x1/0xff default", "--realm": "1 1/2 default x 1/", "--physdev-in": "eth0 eth+ + averyveryverylongname", "--physdev-out": "eth0 eth+",
    "--proto": "esp ah ipcomp tcp", "--tunnel-src": "10.0.0.1 10.0.0.0/8", "--vdir": "ORIGINAL REPLY foo", "--vmethod": "GATE IPIP MASQ foo", "--vproto": "tcp foo",
    "--label": "1 127 128 some", "--nflog-prefix": '"x" ""', "--set-mss": "0 1400 65515 65516 65535", "--wscale": "0 14 15", "--led-delay": "inf 100 x",
    "--save": "", "--comment": '"it\'s" "say \\"hi\\"" \'single\' x;y #no', "--name": "some a/b", "--helper": "ftp ftp-21 x", "--clustermac": "01:02:03:04:05:06 00:02:03:04:05:06",
    "-s": "10.0.0.1 10.0.0.0/8 10.0.0.0/255.0.0.0 10.0.0.0/255.0.255.0 10.0.0.1/33 10.0.0.1/ /8 10 10.1 10.0.0 010.0.0.1 0x0a.0.0.1 256.0.0.1 10.0.0.1.2 "
    "10.0.0.0/08 10.0.0.1,10.0.0.2 10.0.0.1, ,10.0.0.1 10.0.0.1/8,10.0.0.2/16 0/0 0.0.0.0/0 any 10.0.0.0/-1 10.0.0.0/+8 10.0.0.0/0x8 10.0.0.0/255.255 1.2.3.4/0.0.0.0 fe80::1 fe80::/64 ::/0 "
    "fe80::/129 fe80::/ffff:: ::1.2.3.4 fe80::1%eth0 [::1] fe80:::1 ::ffff:10.0.0.1/100 FE80::1",
    "-d": "10.0.0.1 10.0.0.0/8 10.0.0.1,10.0.0.2 fe80::1", "-i": "eth0 eth+ + eth0.1 averyveryverylongname fifteencharacte fifteencharacter eth/0 eth:0 eth* e+h 1 lo! '' eth0,eth1",
    "-o": "eth0 eth+ + averyveryverylongname", "-p": "tcp TCP Tcp 6 0x6 06 256 all 0 ALL icmp icmpv6 ipv6-icmp 58 1 foo tcp,udp 255 mh esp ah sctp gre +6 6.0 hopopt ip mptcp 262",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Text:
    """One text: its *group*, the *extension* that it varies, its family, and the text itself."""

    group: str
    extension: str
    family: Family
    text: str


def _table(table: str, *lines: str, extra: str = "") -> str:
    return "\n".join([f"*{table}", *([extra] if extra else []), *lines, "COMMIT", ""])


def _address(words: str, family: Family) -> str:
    return words.replace("@", "10.0.0.1" if family is V4 else "fe80::1")


def _families(name: str) -> tuple[Family, ...]:
    return (V4,) if name in ONLY_V4 else (V6,) if name in ONLY_V6 else (V4, V6)


def _is_address_option(option: Option) -> bool:
    """Whether an option's values are tried in both families: those that are addresses."""
    return option.name in ["--reject-with", "--to-destination", "--to-source", "--to", "--on-ip", "--gateway", "--src-range", "--mask", "--ctorigsrc", "--connlimit-mask", "--hashlimit-srcmask", "--tunnel-src", "--set-mss", "--hmark-src-prefix", "--vaddr"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """An extension with its rule in a chain, cut where an option may be added."""

    name: str
    extension: Extension | None
    is_target: bool

    @property
    def place(self) -> tuple[str, str]:
        table, chain = PLACES.get(self.name, "filter INPUT").split()
        return table, chain

    def base(self) -> str:
        """The words of a rule that loads."""
        bases = TARGET_BASES if self.is_target else MATCH_BASES
        assert self.name in bases, (
            f"{self.name} has no rule in {'TARGET' if self.is_target else 'MATCH'}_BASES of {__file__}"
        )
        if not self.is_target:
            return MATCH_BASES[self.name] + " -j ACCEPT"
        return f"{BEFORE.get(self.name, '')}-j {self.name} {TARGET_BASES[self.name]}".strip()

    def bare(self) -> str:
        """The same without any option of the extension."""
        if self.is_target:
            return f"{BEFORE.get(self.name, '')}-j {self.name}"
        match = re.match(rf".*?-m {self.name}\b", MATCH_BASES[self.name])
        assert match, self.name
        return match.group()

    def rule(self, words: str, family: Family) -> str:
        table, chain = self.place
        return _table(table, _address(f"-A {chain} {words}", family))


def subjects() -> Iterator[Subject]:
    """Every extension of the table."""
    for name, extension in MATCHES.items():
        yield Subject(name, extension, False)
    for name, extension in TARGETS.items():
        yield Subject(name, extension, True)


def _distinct(options: dict[str, Option]) -> dict[str, Option]:
    """The options by their own names."""
    return {option.name: option for option in options.values()}


def _valid_words(name: str, option: Option) -> str:
    """Valid words for *option*: those of its extension's rule, or else its first value."""
    base = f"{MATCH_BASES.get(name, '')} {TARGET_BASES.get(name, '')}"
    match = re.search(rf'{option.name} ("[^"]*"|\S+)', base)
    if option.values == 0:
        return option.name
    if match and option.values == 1:
        return f"{option.name} {match[1]}"
    return f"{option.name} {_samples(option)[0]}"


def _samples(option: Option) -> list[str]:
    words = WORDS.get(option.name, "")
    if option.values == 2:
        return words.split("|") or ["1 1"]
    own = re.findall(r'"(?:[^"\\]|\\.)*"|\S+', words)
    return [*own, *VALUES]


def values(subject: Subject) -> Iterator[Text]:
    """Each option with each value, alone and beside the others of the rule; negated; without a value."""
    assert subject.extension is not None
    for option in _distinct(subject.extension.options).values():
        for family in _families(subject.name) if _is_address_option(option) else _families(subject.name)[:1]:
            rest = _without(subject.base(), option)
            if not subject.is_target:
                rest = rest.removesuffix(" -j ACCEPT")
            for value in _samples(option) if option.values else [""]:
                yield Text(
                    "value",
                    subject.name,
                    family,
                    subject.rule(f"{rest} {option.name} {value}".rstrip(), family),
                )
            valid = _valid_words(subject.name, option)
            value = valid.removeprefix(option.name).strip()
            for group, words in (
                ("negated", f"{rest} ! {valid}"), ("negated behind", f"{rest} {option.name} ! {value}"),
                ("no value", f"{rest} {option.name}"), ("alone", f"{subject.bare()} {valid}"),
                ("twice", f"{subject.bare()} {valid} {valid}"), ("beside", f"{subject.base()} {valid}"),
                ("with =", f"{rest} {option.name}={value}"), ("quoted", f'{rest} "{option.name}" {value}'),
                ("one more", f"{rest} {valid} more"), ("shortened", f"{rest} {valid.replace(option.name, option.name[:-1], 1)}"),
            ):  # fmt: skip
                yield Text(group, subject.name, family, subject.rule(words.rstrip(), family))


def pairs(subject: Subject) -> Iterator[Text]:
    """Each two options of an extension together, in both orders, alone and behind those of its rule."""
    assert subject.extension is not None
    options = _distinct(subject.extension.options).values()
    base = subject.base() if subject.is_target else subject.base().removesuffix(" -j ACCEPT")
    family = _families(subject.name)[0]
    for one, other in permutations(options, 2):
        words = f"{_valid_words(subject.name, one)} {_valid_words(subject.name, other)}"
        yield Text("pair", subject.name, family, subject.rule(f"{subject.bare()} {words}", family))
        rest = _without(_without(base, one), other)
        yield Text("pair beside", subject.name, family, subject.rule(f"{rest} {words}", family))


def _without(words: str, option: Option) -> str:
    return re.sub(rf' (! )?{option.name}( ("[^"]*"|[^-\s]\S*)){{{option.values}}}(?=\s|$)', "", words)


def surroundings(subject: Subject) -> Iterator[Text]:
    """The extension bare, with other protocols, in the other family, in every table and chain."""
    for family in (V4, V6):
        for group, words in (
            ("base", subject.base()),
            ("bare", subject.bare()),
            ("doubled", f"{subject.base()} {subject.base()}"),
        ):
            yield Text(group, subject.name, family, subject.rule(words, family))
    family = _families(subject.name)[0]
    bare = re.sub(r"^-p \S+ ", "", subject.base())
    for protocol in ("tcp", "udp", "icmp", "icmpv6", "sctp", "dccp", "esp", "ah", "udplite", "all", "99"):
        yield Text("protocol", subject.name, family, subject.rule(f"-p {protocol} {bare}", family))
    yield Text("protocol", subject.name, family, subject.rule(f"! -p tcp {bare}", family))
    yield Text("protocol", subject.name, family, subject.rule(bare, family))
    for table, chains in BUILT_IN.items():
        for chain in chains:
            text = _table(table, _address(f"-A {chain} {subject.base()}", family))
            yield Text("place", subject.name, family, text)
        text = _table(table, _address(f"-A own {subject.base()}", family), extra=":own - [0:0]")
        yield Text("place", subject.name, family, text)
        text = _table(
            table,
            _address(f"-A own {subject.base()}", family),
            f"-A {chains[0]} -j own",
            extra=":own - [0:0]",
        )
        yield Text("place", subject.name, family, text)


# iptables' own options, each with a value that it takes.
OWN = {
    "source": "@", "src": "@", "destination": "@", "dst": "@", "protocol": "tcp", "in-interface": "eth0",
    "out-interface": "eth0", "fragments": "", "match": "comment --comment some", "set-counters": "1 2", "verbose": "",
}  # fmt: skip


def beginnings(subject: Subject) -> Iterator[Text]:
    """Long options of iptables itself and of the extension, whole and cut, behind the extension and before it."""
    base = subject.base() if subject.is_target else subject.base().removesuffix(" -j ACCEPT")
    family = _families(subject.name)[0]
    for name, value in OWN.items():
        for end in sorted({2, 3, 4, 7, len(name) - 1, len(name)} & set(range(len(name) + 1))):
            words = f"--{name[:end]} {value}".rstrip()
            yield Text("beginning", subject.name, family, subject.rule(f"{base} {words}", family))
            if end == len(name):
                yield Text("beginning", subject.name, family, subject.rule(f"{words} {base}", family))
    for option in _distinct(subject.extension.options).values() if subject.extension is not None else ():
        words = _valid_words(subject.name, option)
        for end in range(3, len(option.name), 3):
            cut = words.replace(option.name, option.name[:end], 1)
            rest = _without(base, option)
            yield Text("beginning", subject.name, family, subject.rule(f"{rest} {cut}", family))


HEADERS = ("-s", "-d", "-i", "-o", "-p")


def headers() -> Iterator[Text]:
    """Header options with every value, negated, doubled, and in every chain."""
    for option in HEADERS:
        for value in [*re.findall(r"'[^']*'|\S+", WORDS[option]), *VALUES]:
            for family in (V4, V6) if option in ("-s", "-p") else (V4,):
                for words in (f"{option} {value}", f"! {option} {value}"):
                    chain = "OUTPUT" if option == "-o" else "INPUT"
                    yield Text(
                        "header",
                        option,
                        family,
                        _table("filter", _address(f"-A {chain} {words} -j ACCEPT", family)),
                    )
        for table, chains in BUILT_IN.items():
            for chain in chains:
                value = {"-s": "10.0.0.1", "-d": "10.0.0.1", "-p": "tcp"}.get(option, "eth0")
                yield Text("place", option, V4, _table(table, f"-A {chain} {option} {value} -j ACCEPT"))
    for words in (
        "-f", "! -f", "-f -f", "--fragment", "-p tcp -p udp", "-s 10.0.0.1 -s 10.0.0.2", "-i eth0 -i eth1",
        "--source=10.0.0.1", "--src 10.0.0.1", "--sourc 10.0.0.1", "--destination=10.0.0.1", "--proto tcp", "--protocol=tcp",
        "--in-interface=eth0", "-s=10.0.0.1", "-s10.0.0.1", "-ptcp", "-ptcp --dport=22", "-p tcp --dport 22",
        "-p tcp --dport=22 -m tcp", "-p udp --dport 22", "--dport 22", "-p tcp -m tcp -m tcp --dport 22", "-p 6 --dport 22",
        "-p all --dport 22", "! -p tcp --dport 22", "-p tcp ! --dport 22", "-p tcp --dport ! 22", "! ! -s 10.0.0.1", "!",
        "-s ! 10.0.0.1", "! -s 10.0.0.1,10.0.0.2", "-m", "-m nosuch", "-m tcp", "-j nosuch", "-g nosuch", "-n", "-v", "-x",
        "--line-numbers", "-w", "-w 5", "-W 5", "--wait", "-4", "-6", "--ipv4", "-h", "--modprobe=x", "-M x", "-t filter", "-t nat",
        "--table filter", "--table=filter", "-c 1 2", "-c 1", "-c a b", "-c 1,2", "--set-counters 1 2", "-c 1 2 -c 3 4", "-c -1 2",
        "-c 18446744073709551615 1", "-c 18446744073709551616 1", "-c 0x1 1", "--", "-- extra", "-", "extra", '""', '"" -s 10.0.0.1',
        '"-s" "10.0.0.1"', "\\-s 10.0.0.1", "'-s' 10.0.0.1", '"-s 10.0.0.1"', '-s "10.0.0.1', '-s 10.0.0."1"', '"-"s 10.0.0.1',
        "-m icmp6", "-p icmp -m icmp6", "-p icmpv6 --icmpv6-type 1", "-p icmpv6 --icmp-type 1", "-p icmp --icmp-type 8",
        "-m comment", "--comment x", "-m comment --comment x --comment y", "-m comment --comment x -m comment --comment y",
        "-m state --state NEW -m state --state NEW", "-m mark --mark 1 -m mark --mark 2", "-m limit -m limit", "-m limit",
    ):  # fmt: skip
        for family in (V4, V6):
            text = words if family is V4 else words.replace("10.0.0.", "fe80::")
            yield Text("words", "", family, _table("filter", f"-A INPUT {text} -j ACCEPT"))
            yield Text("words", "", family, _table("filter", f"-A INPUT -j ACCEPT {text}"))


ODD = (
    # the table's line
    "* filter\nCOMMIT\n", "*filter \nCOMMIT\n", "*\tfilter\nCOMMIT\n", " *filter\nCOMMIT\n", "*filter extra\nCOMMIT\n",
    "*\nCOMMIT\n", "*FILTER\nCOMMIT\n", "*nosuch\nCOMMIT\n", '*"filter"\nCOMMIT\n', "*filter\n*filter\nCOMMIT\n",
    "*filter\n*nat\nCOMMIT\n", "*filter\nCOMMIT\nCOMMIT\n", "COMMIT\n", "*filter\nCOMMIT\n*filter\nCOMMIT\n",
    "*filter\n-A INPUT -j DROP\nCOMMIT\n*filter\n-A INPUT -j ACCEPT\nCOMMIT\n", "*filter\n", "*filter\nCOMMIT", "",
    "*filter\nCOMMIT \n", "*filter\n COMMIT\n", "*filter\nCOMMIT extra\n", "*filter\ncommit\n", "*filter\nCOMMIT#x\n",
    "*filter\n:own - [0:0]\nCOMMIT\n*filter\n:own - [0:0]\nCOMMIT\n", "*nat\nCOMMIT\n*filter\nCOMMIT\n*nat\nCOMMIT\n",
    "*raw\nCOMMIT\n*security\nCOMMIT\n*mangle\nCOMMIT\n", "*filter\n*raw\nCOMMIT\nCOMMIT\n",
    # chains
    "*filter\n: own - [0:0]\nCOMMIT\n", "*filter\n:own -\nCOMMIT\n", "*filter\n:own\nCOMMIT\n", "*filter\n:own - [0:0\nCOMMIT\n",
    "*filter\n:own - 0:0\nCOMMIT\n", "*filter\n:own - [0:0] extra\nCOMMIT\n", "*filter\n:own - [a:b]\nCOMMIT\n",
    "*filter\n:own ACCEPT [0:0]\nCOMMIT\n", "*filter\n:own DROP\nCOMMIT\n", "*filter\n:INPUT - [0:0]\nCOMMIT\n",
    "*filter\n:INPUT DROP\nCOMMIT\n", "*filter\n:INPUT QUEUE\nCOMMIT\n", "*filter\n:INPUT QUEUE [0:0]\nCOMMIT\n",
    "*filter\n:INPUT RETURN [0:0]\nCOMMIT\n", "*filter\n:INPUT REJECT [0:0]\nCOMMIT\n", "*filter\n:INPUT accept [0:0]\nCOMMIT\n",
    "*filter\n:INPUT ACCEPT [0:0]\n:INPUT DROP [0:0]\nCOMMIT\n", "*filter\n:own - [0:0]\n:own - [0:0]\nCOMMIT\n",
    "*filter\n:INPUT ACCEPT [1:2]\nCOMMIT\n", "*filter\n:INPUT ACCEPT [18446744073709551615:0]\nCOMMIT\n",
    "*filter\n:INPUT ACCEPT [18446744073709551616:0]\nCOMMIT\n", "*filter\n:INPUT ACCEPT [-1:0]\nCOMMIT\n",
    "*filter\n:INPUT ACCEPT [1]\nCOMMIT\n", "*filter\n:INPUT ACCEPT [ 1:2 ]\nCOMMIT\n", "*filter\n:INPUT ACCEPT [0x1:2]\nCOMMIT\n",
    "*filter\n:INPUT ACCEPT[0:0]\nCOMMIT\n", "*filter\n:INPUT\tACCEPT\t[0:0]\nCOMMIT\n", "*filter\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n",
    "*filter\n:PREROUTING - [0:0]\nCOMMIT\n", "*filter\n:ACCEPT - [0:0]\nCOMMIT\n", "*filter\n:QUEUE - [0:0]\nCOMMIT\n",
    "*filter\n:LOG - [0:0]\n-A INPUT -j LOG\nCOMMIT\n", "*filter\n:LOG - [0:0]\n-A INPUT -j LOG --log-prefix x\nCOMMIT\n",
    "*filter\n:REJECT - [0:0]\nCOMMIT\n", "*filter\n:MASQUERADE - [0:0]\nCOMMIT\n", "*filter\n:tcp - [0:0]\nCOMMIT\n",
    "*filter\n:-own - [0:0]\nCOMMIT\n", "*filter\n:!own - [0:0]\nCOMMIT\n", '*filter\n:"own" - [0:0]\n-A INPUT -j own\nCOMMIT\n',
    '*filter\n:"own" - [0:0]\n-A INPUT -j "\\"own\\""\nCOMMIT\n', "*filter\n:o'n - [0:0]\n-A INPUT -j o'n\nCOMMIT\n",
    "*filter\n:o/n - [0:0]\nCOMMIT\n", "*filter\n:o[n - [0:0]\nCOMMIT\n", "*filter\n:o:n - [0:0]\nCOMMIT\n", "*filter\n:o*n - [0:0]\nCOMMIT\n",
    "*filter\n:\xfcber - [0:0]\n-A INPUT -j \xfcber\nCOMMIT\n", "*filter\n:\udcff\udcfe - [0:0]\n-A INPUT -j \udcff\udcfe\nCOMMIT\n",
    f"*filter\n:{'x' * 28} - [0:0]\n-A INPUT -j {'x' * 28}\nCOMMIT\n", f"*filter\n:{'x' * 29} - [0:0]\nCOMMIT\n",
    f"*filter\n:{'x' * 32} - [0:0]\nCOMMIT\n",  "*filter\n:" + "\xfc" * 14 + " - [0:0]\nCOMMIT\n", "*filter\n:" + "\xfc" * 15 + " - [0:0]\nCOMMIT\n",
    # loops and jumps
    "*filter\n:A -\n:B -\n-A A -j B\n-A B -j A\nCOMMIT\n", "*filter\n:A -\n-A A -j A\nCOMMIT\n", "*filter\n:A -\n-A A -g A\nCOMMIT\n",
    "*filter\n:A -\n-A A -j A\n-A INPUT -j A\nCOMMIT\n", "*filter\n:A -\n:B -\n-A A -j B\n-A B -g A\n-A INPUT -j B\nCOMMIT\n",
    "*filter\n:A -\n:B -\n:C -\n-A A -j B\n-A B -j C\n-A C -j B\nCOMMIT\n", "*filter\n-A INPUT -j INPUT\nCOMMIT\n",
    "*filter\n-A INPUT -j OUTPUT\nCOMMIT\n", "*filter\n-A INPUT -j own\n:own - [0:0]\nCOMMIT\n", "*filter\n-A INPUT -g own\n:own - [0:0]\nCOMMIT\n",
    "*filter\n-A own -j ACCEPT\n:own - [0:0]\nCOMMIT\n", "*filter\n-A INPUT -g ACCEPT\nCOMMIT\n", "*filter\n-A INPUT -g RETURN\nCOMMIT\n",
    "*filter\n:own - [0:0]\n-A INPUT -j own -g own\nCOMMIT\n", "*filter\n:own - [0:0]\n-A INPUT -g own -j ACCEPT\nCOMMIT\n",
    # a rule's line
    "*filter\n -A INPUT -j DROP\nCOMMIT\n", "*filter\n\t-A INPUT -j DROP\nCOMMIT\n", "*filter\n-A  INPUT\t-j   DROP  \nCOMMIT\n",
    "*filter\n\n\n-A INPUT -j DROP\n\nCOMMIT\n\n", "*filter\r\n-A INPUT -j DROP\r\nCOMMIT\r\n", "*filter\n-A INPUT -j DROP\r\nCOMMIT\n",
    "*filter\n-A INPUT -m comment --comment x\rCOMMIT -j DROP\nCOMMIT\n", "*filter\n   \nCOMMIT\n", "*filter\n\t\nCOMMIT\n", "*filter\n# x\nCOMMIT\n", "*filter\n # x\nCOMMIT\n",
    "*filter\n-A INPUT -j DROP # x\nCOMMIT\n", "*filter\n-A INPUT \\\n-j DROP\nCOMMIT\n", "*filter\n-A INPUT -j DROP;\nCOMMIT\n",
    "*filter\n-A INPUT -m comment --comment \"a b\" -j DROP\nCOMMIT\n", "*filter\n-A INPUT -m comment --comment 'a b' -j DROP\nCOMMIT\n",
    "*filter\n-A INPUT -m comment --comment a\\ b -j DROP\nCOMMIT\n", '*filter\n-A INPUT -m comment --comment "a\\"b" -j DROP\nCOMMIT\n',
    '*filter\n-A INPUT -m comment --comment "a\\\\b" -j DROP\nCOMMIT\n', '*filter\n-A INPUT -m comment --comment "a -j DROP\nCOMMIT\n',
    '*filter\n-A INPUT -m comment --comment "a"b -j DROP\nCOMMIT\n', '*filter\n-A INPUT -m comment --comment a"b" -j DROP\nCOMMIT\n',
    '*filter\n-A INPUT -m comment --comment "" -j DROP\nCOMMIT\n', '*filter\n-A INPUT -m comment --comment "a\tb" -j DROP\nCOMMIT\n',
    '*filter\n-A INPUT -m comment --comment a\\b -j DROP\nCOMMIT\n', '*filter\n-A INPUT -m comment --comment a\\"b -j DROP\nCOMMIT\n',
    '*filter\n-A INPUT -m comment --comment "a\nb" -j DROP\nCOMMIT\n', f'*filter\n-A INPUT -m comment --comment "{"x" * 255}" -j DROP\nCOMMIT\n',
    f'*filter\n-A INPUT -m comment --comment "{"x" * 256}" -j DROP\nCOMMIT\n', '*filter\n-A INPUT -m comment --comment "\xfc\udcff" -j DROP\nCOMMIT\n',
    '*filter\n"-A" INPUT -j DROP\nCOMMIT\n', '*filter\n-A "INPUT" "-j" "DROP"\nCOMMIT\n', "*filter\n-A\nCOMMIT\n", "*filter\n-A INPUT\nCOMMIT\n",
    "*filter\n-AINPUT -j DROP\nCOMMIT\n", "*filter\n--append INPUT -j DROP\nCOMMIT\n", "*filter\n--append=INPUT -j DROP\nCOMMIT\n", "*filter\n--app INPUT -j DROP\nCOMMIT\n", "*filter\n-A input -j DROP\nCOMMIT\n",
    "*filter\n-j DROP -A INPUT\nCOMMIT\n", "*filter\n-s 10.0.0.1 -A INPUT -j DROP\nCOMMIT\n", "*filter\n-A INPUT -A INPUT -j DROP\nCOMMIT\n", "*filter\nA INPUT -j DROP\nCOMMIT\n",
    "*filter\niptables -A INPUT -j DROP\nCOMMIT\n", "*filter\n-A INPUT -j DROP -t filter\nCOMMIT\n", "*filter\n-t filter -A INPUT -j DROP\nCOMMIT\n",
    "*filter\n-t nat -A INPUT -j DROP\nCOMMIT\n", "*filter\n--table=filter -A INPUT -j DROP\nCOMMIT\n", "-A INPUT -j DROP\n", "-t filter -A INPUT -j DROP\n",
    "*filter\n-A INPUT 5 -j DROP\nCOMMIT\n", "*filter\n-A nosuch -j DROP\nCOMMIT\n", "*filter\n-4 -A INPUT -j DROP\nCOMMIT\n", "*filter\n-6 -A INPUT -j DROP\nCOMMIT\n",
    "*filter\n-4 -A INPUT -s fe80::1 -j DROP\nCOMMIT\n", "*filter\n-A INPUT -4 -j DROP\nCOMMIT\n", "*filter\n-A INPUT -6 -j DROP\nCOMMIT\n", "*filter\n--ipv6 -A INPUT -j DROP\nCOMMIT\n",
    # counters
    "*filter\n[1:2] -A INPUT -j DROP\nCOMMIT\n", "*filter\n[1:2]-A INPUT -j DROP\nCOMMIT\n", "*filter\n[1:2 -A INPUT -j DROP\nCOMMIT\n", "*filter\n[1] -A INPUT -j DROP\nCOMMIT\n",
    "*filter\n[a:b] -A INPUT -j DROP\nCOMMIT\n", "*filter\n[:] -A INPUT -j DROP\nCOMMIT\n", "*filter\n [1:2] -A INPUT -j DROP\nCOMMIT\n", "*filter\n[1:2]\nCOMMIT\n", "*filter\n[1:2] [3:4] -A INPUT -j DROP\nCOMMIT\n",
    "*filter\n[18446744073709551615:1] -A INPUT -j DROP\nCOMMIT\n", "*filter\n[18446744073709551616:1] -A INPUT -j DROP\nCOMMIT\n", "*filter\n[1:2] -A INPUT -j DROP -c 3 4\nCOMMIT\n",
    "*filter\n[1:2] -I INPUT -j DROP\nCOMMIT\n", "*filter\n[1:2] -N own\nCOMMIT\n", "*filter\n[1:2] -D INPUT -j DROP\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n[1:2] -D INPUT -j DROP\nCOMMIT\n",
    "*filter\n[0x1:2] -A INPUT -j DROP\nCOMMIT\n", "*filter\n[-1:2] -A INPUT -j DROP\nCOMMIT\n", "*filter\n[1:2] :own - [0:0]\nCOMMIT\n",
    # commands
    "*filter\n-I INPUT -j DROP\nCOMMIT\n", "*filter\n-I INPUT 1 -j DROP\nCOMMIT\n", "*filter\n-I INPUT 2 -j DROP\nCOMMIT\n", "*filter\n-I INPUT 0 -j DROP\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-I INPUT 2 -j DROP\nCOMMIT\n",
    "*filter\n-A INPUT -j DROP\n-I INPUT 3 -j DROP\nCOMMIT\n", "*filter\n-I INPUT x -j DROP\nCOMMIT\n", "*filter\n-I INPUT -1 -j DROP\nCOMMIT\n", "*filter\n-I INPUT 0x1 -j DROP\nCOMMIT\n",
    "*filter\n-A INPUT -j DROP\n-D INPUT 1\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-D INPUT 2\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-D INPUT 0\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-D INPUT -j DROP\nCOMMIT\n",
    "*filter\n-A INPUT -j DROP\n-D INPUT -j ACCEPT\nCOMMIT\n", "*filter\n-D INPUT\nCOMMIT\n", "*filter\n-A INPUT\n-D INPUT\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-R INPUT 1 -j ACCEPT\nCOMMIT\n",
    "*filter\n-A INPUT -j DROP\n-R INPUT -j ACCEPT\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-R INPUT 2 -j ACCEPT\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-R INPUT 1\nCOMMIT\n", "*filter\n-R INPUT 1 -j ACCEPT\nCOMMIT\n",
    "*filter\n-A INPUT -j DROP\n-R INPUT 1 -s 10.0.0.1,10.0.0.2 -j ACCEPT\nCOMMIT\n", "*filter\n-A INPUT -s 10.0.0.1,10.0.0.2 -j DROP\n-D INPUT -s 10.0.0.1,10.0.0.2 -j DROP\nCOMMIT\n",
    "*filter\n-I INPUT -s 10.0.0.1,10.0.0.2 -j DROP\nCOMMIT\n", "*filter\n-F\nCOMMIT\n", "*filter\n-F INPUT\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-F\nCOMMIT\n", "*filter\n-F nosuch\nCOMMIT\n", "*filter\n--flush\nCOMMIT\n", "*filter\n-F INPUT OUTPUT\nCOMMIT\n",
    "*filter\n-X\nCOMMIT\n", "*filter\n:own -\n-X own\nCOMMIT\n", "*filter\n:own -\n-X\nCOMMIT\n", "*filter\n-X INPUT\nCOMMIT\n", "*filter\n-X nosuch\nCOMMIT\n", "*filter\n:own -\n-A own -j DROP\n-X own\nCOMMIT\n", "*filter\n:own -\n-A INPUT -j own\n-X own\nCOMMIT\n", "*filter\n:own -\n-A INPUT -j own\n-X\nCOMMIT\n",
    "*filter\n:own -\n-A own -j DROP\n-X\nCOMMIT\n", "*filter\n-N own\nCOMMIT\n", "*filter\n-N own\n-N own\nCOMMIT\n", "*filter\n:own -\n-N own\nCOMMIT\n", "*filter\n-N own\n:own - [0:0]\nCOMMIT\n", "*filter\n-N INPUT\nCOMMIT\n", "*filter\n-N ACCEPT\nCOMMIT\n", "*filter\n-N LOG\nCOMMIT\n", "*filter\n-N\nCOMMIT\n", "*filter\n-N own extra\nCOMMIT\n",
    "*filter\n-N -own\nCOMMIT\n", f"*filter\n-N {'x' * 29}\nCOMMIT\n", "*filter\n-N own\n-A own -j DROP\nCOMMIT\n", "*filter\n-P INPUT DROP\nCOMMIT\n", "*filter\n-P INPUT\nCOMMIT\n", "*filter\n-P INPUT QUEUE\nCOMMIT\n", "*filter\n-P INPUT REJECT\nCOMMIT\n", "*filter\n-P INPUT RETURN\nCOMMIT\n", "*filter\n-P INPUT -\nCOMMIT\n",
    "*filter\n:own -\n-P own DROP\nCOMMIT\n", "*filter\n-P nosuch DROP\nCOMMIT\n", "*filter\n-P INPUT DROP extra\nCOMMIT\n", "*filter\n-P INPUT DROP [1:2]\nCOMMIT\n", "*filter\n-P INPUT DROP -c 1 2\nCOMMIT\n", "*filter\n-P INPUT drop\nCOMMIT\n", "*filter\n:own -\n-E own new\nCOMMIT\n", "*filter\n:own -\n-A INPUT -j own\n-E own new\nCOMMIT\n",
    "*filter\n-E INPUT new\nCOMMIT\n", "*filter\n:own -\n-E own INPUT\nCOMMIT\n", "*filter\n:own -\n:new -\n-E own new\nCOMMIT\n", "*filter\n:own -\n-E own\nCOMMIT\n", "*filter\n-E nosuch new\nCOMMIT\n", "*filter\n:own -\n-E own ACCEPT\nCOMMIT\n", "*filter\n:own -\n-E own own\nCOMMIT\n",
    "*filter\n-Z\nCOMMIT\n", "*filter\n-Z INPUT\nCOMMIT\n", "*filter\n-A INPUT -j DROP\n-Z INPUT 1\nCOMMIT\n", "*filter\n-Z INPUT 5\nCOMMIT\n", "*filter\n-Z nosuch\nCOMMIT\n", "*filter\n[1:2] -A INPUT -j DROP\n-Z\nCOMMIT\n", "*filter\n-L\nCOMMIT\n", "*filter\n-L INPUT\nCOMMIT\n", "*filter\n-S\nCOMMIT\n", "*filter\n-C INPUT -j DROP\nCOMMIT\n",
    "*filter\n-A INPUT -j DROP\n-C INPUT -j DROP\nCOMMIT\n", "*filter\n-V\nCOMMIT\n", "*filter\n-h\nCOMMIT\n", "*filter\n-Q\nCOMMIT\n", "*filter\n--nosuch\nCOMMIT\n", "*filter\n-\nCOMMIT\n", "*filter\n--\nCOMMIT\n", "*filter\nquit\nCOMMIT\n",
    "*nat\n-A POSTROUTING -j DROP\nCOMMIT\n", "*nat\n-A PREROUTING -j DROP\nCOMMIT\n", "*nat\n:PREROUTING DROP\nCOMMIT\n", "*nat\n:INPUT ACCEPT [0:0]\nCOMMIT\n", "*nat\n:FORWARD ACCEPT [0:0]\nCOMMIT\n", "*mangle\n:INPUT DROP\nCOMMIT\n",
    "\ufeff*filter\nCOMMIT\n", "*filter\nCOMMIT\n\x1a", "*filter\n-A INPUT -j DROP\x00\nCOMMIT\n", "*filter\x0b\nCOMMIT\n", "*filter\n-A INPUT\xa0-j DROP\nCOMMIT\n", "*filter\n-A INPUT\x0b-j DROP\nCOMMIT\n", "*filter\n-A INPUT\x0c-j DROP\nCOMMIT\n",
    f"*filter\n-A INPUT {'-m limit ' * 200}-j DROP\nCOMMIT\n", f"*filter\n-A INPUT -m comment --comment {'x' * 2000} -j DROP\nCOMMIT\n", f"*filter\n# {'x' * 11000}\nCOMMIT\n", f"*filter\n-A INPUT {' ' * 11000} -j DROP\nCOMMIT\n",
)  # fmt: skip


def odd() -> Iterator[Text]:
    """Lines of every kind, independent of extensions."""
    for line in ODD:
        for family in (V4, V6):
            yield Text("line", "", family, line if family is V4 else line.replace("10.0.0.", "fe80::"))


def texts(groups: frozenset[str] = frozenset()) -> list[Text]:
    """All texts, each once; only those of *groups*, if any are named."""
    unique: dict[tuple[Family, str], Text] = {}
    candidates = [*odd(), *headers()]
    for subject in subjects():
        candidates += [*surroundings(subject), *values(subject), *pairs(subject), *beginnings(subject)]
    candidates += surroundings(Subject("RETURN", None, True))
    for text in candidates:
        if not groups or text.group in groups:
            unique.setdefault((text.family, text.text), text)
    return list(unique.values())

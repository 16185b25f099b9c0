"""Options and names of iptables that belong to no extension: header options, general options, reserved names.

The options of matches and targets are in `extensions/`.
"""

from __future__ import annotations

from ..ir.fields import ICMP, ICMPV6, TCP, UDP, Family, Field
from ..ir.intervals import Values
from ..ir.rule import Test
from . import values as spelt
from .access import Access, states
from .extension import Reader, options_of
from .readers import field_test

# Other names that iptables accepts for a match.
SAME_MATCH = {"icmpv6": "icmp6", "ipv6-icmp": "icmp6"}

# The long names of iptables' own options, each with its short name.  getopt takes the beginning of a long name,
# too, unless another option begins so: one of these, of the matches, or of the target so far.
LONG_NAMES = {
    "--append": "-A", "--check": "-C", "--delete": "-D", "--delete-chain": "-X", "--destination": "-d", "--dst": "-d",
    "--exact": "-x", "--flush": "-F", "--fragments": "-f", "--goto": "-g", "--help": "-h", "--in-interface": "-i",
    "--insert": "-I", "--ipv4": "-4", "--ipv6": "-6", "--jump": "-j", "--line-numbers": "-0", "--list": "-L",
    "--list-rules": "-S", "--match": "-m", "--modprobe": "-M", "--new-chain": "-N", "--numeric": "-n",
    "--out-interface": "-o", "--policy": "-P", "--protocol": "-p", "--rename-chain": "-E", "--replace": "-R",
    "--set-counters": "-c", "--source": "-s", "--src": "-s", "--table": "-t", "--verbose": "-v", "--version": "-V",
    "--wait": "-w", "--wait-interval": "-W", "--zero": "-Z",
}  # fmt: skip

# The match that iptables loads by itself for an option behind -p.
PROTOCOL_MATCH = {
    TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMPV6: "icmp6", 132: "sctp", 33: "dccp",
    51: "ah", 50: "esp", 108: "ipcomp", 135: "mh",
}  # fmt: skip

# Names that no user chain may have: iptables refuses them.
RESERVED = frozenset({"ACCEPT", "DROP", "QUEUE", "RETURN"})

# Targets of other packages that a rule may name without options; with options a name is surely no chain.  A
# name without them that is neither one of these, nor a target of the table, nor a declared chain, is reported
# as a missing chain.
FOREIGN_TARGETS = frozenset(
    {"ACCOUNT", "CHAOS", "DELUDE", "DHCPMAC", "DNETMAP", "ECHO", "IPMARK", "LOGMARK", "NETFLOW", "STEAL",
     "SYSRQ", "TARPIT", "IPV4OPTSSTRIP", "LSCAN", "RTPENGINE", "XOR", "FULLCONENAT", "FLOWOFFLOAD"}
)  # fmt: skip


def _network(target: Field) -> Reader:
    def read(words: tuple[str, ...], family: Family) -> tuple[Test, ...]:
        return (Test(target, spelt.network(words[0], family)),)

    return read


def _protocol(words: tuple[str, ...], family: Family) -> tuple[Test, ...]:
    number = spelt.protocol(words[0])
    return () if number == 0 else (Test(Field.PROTO, Values.only(number)),)


# The kernel tests header options before every match, whatever their position in the line, in this order.
HEADER = options_of(
    "-s=--source=--src:any! -d=--destination=--dst:any! -i=--in-interface:any! -o=--out-interface:any! "
    "-p=--protocol=--proto:any! -f=--fragments=--fragment!",
    {
        "-s": _network(Field.SRC),
        "-d": _network(Field.DST),
        "-i": field_test(Field.IIF, spelt.interface),
        "-o": field_test(Field.OIF, spelt.interface),
        "-p": _protocol,
        "-f": lambda words, family: (Test(Field.FRAG, spelt.LATER),),
    },
)
# What an address with a scattered mask, the only header option that is no test of a field, reads.
HEADER_ACCESS = Access(states("ADDRESSES"), frozenset(), {}, "ipv4/netfilter/ip_tables.c")
HEADER_ORDER = ("-s", "-d", "-i", "-o", "-p", "-f")

# Options of a rule that are neither header fields nor belong to an extension.
GENERAL = options_of(
    "-m=--match:any -j=--jump:any -g=--goto:any -c=--set-counters:any:any -v=--verbose -M=--modprobe:any "
    "-4=--ipv4 -6=--ipv6"
)

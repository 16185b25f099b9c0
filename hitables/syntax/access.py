"""What each match reads and writes, and what each target writes, besides the tests of header fields.

Deny by default: a match that has no line here reads everything and writes everything, and a
target that has none writes everything.  A line says less than that on the word of the kernel
source file that it names (below net/ of Linux 6.1), and `make matrix` holds every line against
the running kernel (docs/matrix.md).  Both proof engines read this table, so nothing else
catches a line that says too little.  What the kernel at hand does not have cannot be held
against it, and has no line: CLUSTERIP, CONNSECMARK, LED, SECMARK, ULOG, ipvs.

A match that writes does so whenever it is asked, whatever its answer: some write before
they answer no.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..ir.rule import EVERYTHING, State


@dataclass(frozen=True, slots=True)
class Access:
    """States that an extension *reads* and *writes*; those that it writes with an option alone.

    source: the kernel files that say so, below net/.
    """

    reads: frozenset[State] = EVERYTHING
    writes: frozenset[State] = EVERYTHING
    writes_with: dict[str, frozenset[State]] = field(default_factory=dict)
    source: str = ""

    def writes_by(self, options: Iterable[str]) -> frozenset[State]:
        """States that it writes when these of its options stand in the rule."""
        return self.writes.union(*(self.writes_with.get(option, ()) for option in options))


def _states(names: str) -> frozenset[State]:
    return EVERYTHING if names == "*" else frozenset(State[name] for name in names.split())


def _match(reads: str, source: str, writes: str = "", **options: str) -> Access:
    """*options*: states written with the option --NAME, dashes of the name as underscores."""
    with_options = {f"--{name.replace('_', '-')}": _states(states) for name, states in options.items()}
    return Access(_states(reads), _states(writes), with_options, source)


def _target(writes: str, source: str) -> Access:
    return Access(frozenset(), _states(writes), {}, source)


UNKNOWN = Access()

MATCHES = {
    "": _match("ADDRESSES", "ipv4/netfilter/ip_tables.c"),  # header options: an address with a scattered mask
    "addrtype": _match("ADDRESSES META", "netfilter/xt_addrtype.c"),
    "ah": _match("PAYLOAD", "ipv4/netfilter/ipt_ah.c, ipv6/netfilter/ip6t_ah.c"),
    # A program may ask for a random number or, pinned, keep and read maps: its role is NAMED.
    "bpf": _match("*", "netfilter/xt_bpf.c"),
    "cgroup": _match("META", "netfilter/xt_cgroup.c"),
    "cluster": _match("CT ADDRESSES PKTTYPE", "netfilter/xt_cluster.c", "PKTTYPE"),
    "comment": _match("", "netfilter/xt_comment.c"),
    "connbytes": _match("CT", "netfilter/xt_connbytes.c"),
    "connlabel": _match("CT LABELS", "netfilter/xt_connlabel.c", set="LABELS"),
    "connlimit": _match("*", "netfilter/xt_connlimit.c"),
    "connmark": _match("CT CONNMARK", "netfilter/xt_connmark.c"),
    "conntrack": _match("CT", "netfilter/xt_conntrack.c"),
    "cpu": _match("META", "netfilter/xt_cpu.c"),
    "dccp": _match("PAYLOAD", "netfilter/xt_dccp.c"),
    "devgroup": _match("META", "netfilter/xt_devgroup.c"),
    "dscp": _match("TOS", "netfilter/xt_dscp.c"),
    "dst": _match("PAYLOAD", "ipv6/netfilter/ip6t_hbh.c"),
    "ecn": _match("TOS TCP", "netfilter/xt_ecn.c"),
    "esp": _match("PAYLOAD", "netfilter/xt_esp.c"),
    "eui64": _match("ADDRESSES META", "ipv6/netfilter/ip6t_eui64.c"),
    "frag": _match("PAYLOAD", "ipv6/netfilter/ip6t_frag.c"),
    "hashlimit": _match("*", "netfilter/xt_hashlimit.c"),
    "hbh": _match("PAYLOAD", "ipv6/netfilter/ip6t_hbh.c"),
    "helper": _match("CT", "netfilter/xt_helper.c"),
    "hl": _match("TTL", "netfilter/xt_hl.c"),
    "icmp": _match("PAYLOAD", "ipv4/netfilter/ip_tables.c"),
    "icmp6": _match("PAYLOAD", "ipv6/netfilter/ip6_tables.c"),
    "ipcomp": _match("PAYLOAD", "netfilter/xt_ipcomp.c"),
    "iprange": _match("ADDRESSES", "netfilter/xt_iprange.c"),
    "ipv6header": _match("PAYLOAD", "ipv6/netfilter/ip6t_ipv6header.c"),
    "length": _match("LENGTH", "netfilter/xt_length.c"),
    "limit": _match("", "netfilter/xt_limit.c"),
    "mac": _match("META", "netfilter/xt_mac.c"),
    "mark": _match("MARK", "netfilter/xt_mark.c"),
    "mh": _match("PAYLOAD", "ipv6/netfilter/ip6t_mh.c"),
    "multiport": _match("PAYLOAD", "netfilter/xt_multiport.c"),
    "nfacct": _match("LENGTH", "netfilter/xt_nfacct.c"),
    "osf": _match(
        "TOS TTL LENGTH TCP CHECKSUM PAYLOAD ADDRESSES META", "netfilter/xt_osf.c, netfilter/nfnetlink_osf.c"
    ),
    "owner": _match("META", "netfilter/xt_owner.c"),
    "physdev": _match("META", "netfilter/xt_physdev.c"),
    "pkttype": _match("PKTTYPE ADDRESSES META", "netfilter/xt_pkttype.c"),
    "policy": _match("META", "netfilter/xt_policy.c"),
    "quota": _match("LENGTH", "netfilter/xt_quota.c"),
    "rateest": _match("RATES", "netfilter/xt_rateest.c"),
    "realm": _match("META", "netfilter/xt_realm.c"),
    "recent": _match("*", "netfilter/xt_recent.c"),
    "rpfilter": _match(
        "ADDRESSES TOS MARK PKTTYPE META", "ipv4/netfilter/ipt_rpfilter.c, ipv6/netfilter/ip6t_rpfilter.c"
    ),
    "rt": _match("PAYLOAD", "ipv6/netfilter/ip6t_rt.c"),
    "sctp": _match("PAYLOAD", "netfilter/xt_sctp.c"),
    # A set may hold ports, marks, macs and interfaces; which, the rule does not say.
    "set": _match("SETS ADDRESSES PAYLOAD MARK META", "netfilter/xt_set.c, netfilter/ipset/"),
    "socket": _match("ADDRESSES PAYLOAD CT META", "netfilter/xt_socket.c", restore_skmark="MARK"),
    "srh": _match("PAYLOAD", "ipv6/netfilter/ip6t_srh.c"),
    "state": _match("CT", "netfilter/xt_conntrack.c"),
    "statistic": _match("", "netfilter/xt_statistic.c"),
    "string": _match("*", "netfilter/xt_string.c"),
    "tcp": _match("TCP PAYLOAD", "netfilter/xt_tcpudp.c"),
    "tcpmss": _match("TCP", "netfilter/xt_tcpmss.c"),
    "time": _match("META", "netfilter/xt_time.c"),
    "tos": _match("TOS", "netfilter/xt_dscp.c"),
    "ttl": _match("TTL", "netfilter/xt_hl.c"),
    "u32": _match("*", "netfilter/xt_u32.c"),
    "udp": _match("PAYLOAD", "netfilter/xt_tcpudp.c"),
}

TARGETS = {
    "ACCEPT": _target("", "netfilter/x_tables.c"),
    "DROP": _target("", "netfilter/x_tables.c"),
    "QUEUE": _target("", "netfilter/nf_queue.c"),
    "AUDIT": _target("", "netfilter/xt_AUDIT.c"),
    "CHECKSUM": _target("CHECKSUM", "netfilter/xt_CHECKSUM.c"),
    "CLASSIFY": _target("CLASS", "netfilter/xt_CLASSIFY.c"),
    "CONNMARK": _target("MARK CONNMARK", "netfilter/xt_connmark.c"),
    "CT": _target("CT CONNMARK LABELS", "netfilter/xt_CT.c"),
    "DNAT": _target("CT ADDRESSES PAYLOAD CHECKSUM", "netfilter/xt_nat.c"),
    "DNPT": _target("ADDRESSES CHECKSUM", "ipv6/netfilter/ip6t_NPT.c"),
    "DSCP": _target("TOS CHECKSUM", "netfilter/xt_DSCP.c"),
    "ECN": _target("TOS TCP CHECKSUM", "ipv4/netfilter/ipt_ECN.c"),
    "HL": _target("TTL", "netfilter/xt_HL.c"),
    "HMARK": _target("MARK", "netfilter/xt_HMARK.c"),
    "IDLETIMER": _target("", "netfilter/xt_IDLETIMER.c"),
    "LOG": _target("", "netfilter/xt_LOG.c"),
    "MARK": _target("MARK", "netfilter/xt_mark.c"),
    "MASQUERADE": _target("CT ADDRESSES PAYLOAD CHECKSUM", "netfilter/xt_MASQUERADE.c"),
    "NETMAP": _target("CT ADDRESSES PAYLOAD CHECKSUM", "netfilter/xt_NETMAP.c"),
    "NFLOG": _target("", "netfilter/xt_NFLOG.c"),
    "NFQUEUE": _target("", "netfilter/xt_NFQUEUE.c"),
    "NOTRACK": _target("CT CONNMARK LABELS", "netfilter/xt_CT.c"),
    "RATEEST": _target("RATES", "netfilter/xt_RATEEST.c"),
    "REDIRECT": _target("CT ADDRESSES PAYLOAD CHECKSUM", "netfilter/xt_REDIRECT.c"),
    "REJECT": _target("", "ipv4/netfilter/ipt_REJECT.c, ipv6/netfilter/ip6t_REJECT.c"),
    "SET": _target("SETS MARK CLASS", "netfilter/xt_set.c"),
    "SNAT": _target("CT ADDRESSES PAYLOAD CHECKSUM", "netfilter/xt_nat.c"),
    "SNPT": _target("ADDRESSES CHECKSUM", "ipv6/netfilter/ip6t_NPT.c"),
    "SYNPROXY": _target("", "ipv4/netfilter/ipt_SYNPROXY.c, ipv6/netfilter/ip6t_SYNPROXY.c"),
    "TCPMSS": _target("TCP LENGTH CHECKSUM", "netfilter/xt_TCPMSS.c"),
    "TCPOPTSTRIP": _target("TCP CHECKSUM", "netfilter/xt_TCPOPTSTRIP.c"),
    "TEE": _target("", "netfilter/xt_TEE.c"),
    "TOS": _target("TOS CHECKSUM", "netfilter/xt_DSCP.c"),
    "TPROXY": _target("MARK META", "netfilter/xt_TPROXY.c"),
    "TRACE": _target("", "netfilter/xt_TRACE.c"),
    "TTL": _target("TTL CHECKSUM", "netfilter/xt_HL.c"),
}

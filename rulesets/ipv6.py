"""The IPv6 side of a campus gateway: 700 rules for ip6tables.

Sites have /48s, departments /56s, VLANs /64s, servers single addresses.  The ICMPv6 chain follows
the advice of RFC 4890; routing headers of type 0, spoofed and bogus sources are dropped first.
The lines are in the form that ip6tables-save prints.
"""

from __future__ import annotations

from ipaddress import IPv6Network
from random import Random

SITE = IPv6Network("2001:db8:40::/44")
RULES = 700
PORTS = ("22", "25", "80", "443", "993", "5432", "8080", "8443", "5060:5061", "27000:27009")
LISTS = ("80,443", "25,465,587", "143,993", "22,80,443")
NEW = "-m conntrack --ctstate NEW"


def text(random: Random) -> str:
    """The whole rule set."""
    chains = _filter(random)
    chains["hosts"] += ["-j REJECT --reject-with icmp6-adm-prohibited"]
    lines = [
        "*raw",
        ":PREROUTING ACCEPT [0:0]",
        ":OUTPUT ACCEPT [0:0]",
        "-A PREROUTING -i wan0 -m rpfilter --loose --invert -j DROP",
        "-A PREROUTING -m rt --rt-type 0 -j DROP",
        "COMMIT",
        "*mangle",
        *(f":{chain} ACCEPT [0:0]" for chain in ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")),
        "-A FORWARD -o wan0 -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
        "COMMIT",
        "*filter",
        ":INPUT DROP [0:0]",
        ":FORWARD DROP [0:0]",
        ":OUTPUT ACCEPT [0:0]",
        *(f":{chain} - [0:0]" for chain in chains if not chain.isupper()),
        *(f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules),
        "COMMIT",
    ]
    return "\n".join((*lines, ""))


def _filter(random: Random) -> dict[str, list[str]]:
    sites = list(SITE.subnets(new_prefix=48))
    departments = [random.choice(list(random.choice(sites).subnets(new_prefix=56))) for _ in range(24)]
    vlans = [
        random.choice(list(department.subnets(new_prefix=64))) for department in departments for _ in range(4)
    ]
    chains = {
        "INPUT": [
            "-i lo -j ACCEPT",
            "-m conntrack --ctstate INVALID -j DROP",
            "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            "-p ipv6-icmp -j icmp",
            "-s fe80::/10 -p udp -m udp --sport 547 --dport 546 -j ACCEPT",
            "-s fe80::/10 -d ff02::1:2/128 -p udp -m udp --dport 547 -j ACCEPT",
            f"-s {departments[0]} -p tcp -m tcp --dport 22 -j ACCEPT",
            "-d ff00::/8 -j DROP",
            "-j logged",
        ],
        "FORWARD": [
            "-m conntrack --ctstate INVALID -j DROP",
            "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            "-j bogus",
            "-i vl+ -j spoofed",
            "-p ipv6-icmp -j icmp",
            "-m hl --hl-lt 3 -j DROP",
            f"-d {SITE} -j hosts",
            f"-s {SITE} -o wan0 -j ACCEPT",
            "-j logged",
        ],
        "OUTPUT": ["-o lo -j ACCEPT", "-p ipv6-icmp -j icmp"],
        "bogus": [
            *(
                f"-s {net} -j DROP"
                for net in ("::/8", "100::/64", "2001::/32", "2002::/16", "fc00::/7", "ff00::/8")
            ),
            "-d ff00::/8 -m limit --limit 20/sec -j RETURN",
            "-d ff00::/8 -j DROP",
        ],
        "hosts": [],
        "icmp": [
            *(f"-p ipv6-icmp -m icmp6 --icmpv6-type {kind} -j ACCEPT" for kind in (1, 2, 3, 4)),
            "-p ipv6-icmp -m icmp6 --icmpv6-type 128 -m limit --limit 50/sec --limit-burst 100 -j ACCEPT",
            "-p ipv6-icmp -m icmp6 --icmpv6-type 129 -j ACCEPT",
            *(
                f"-p ipv6-icmp -m icmp6 --icmpv6-type {kind} -m hl --hl-eq 255 -j ACCEPT"
                for kind in (133, 134, 135, 136)
            ),
            "-s fe80::/10 -p ipv6-icmp -m icmp6 --icmpv6-type 143 -j ACCEPT",
            "-p ipv6-icmp -m icmp6 --icmpv6-type 137 -j DROP",
            "-p ipv6-icmp -j logged",
        ],
        "logged": [
            '-m limit --limit 20/min --limit-burst 40 -j LOG --log-prefix "ip6 drop " --log-level 6',
            "-j DROP",
        ],
        "spoofed": [
            *(f"-s {vlan} -i vl{100 + index} -j RETURN" for index, vlan in enumerate(vlans)),
            "-j logged",
        ],
    }
    outside = 2 + 1 + 1  # raw, mangle, and the end of hosts
    while sum(map(len, chains.values())) + outside < RULES:
        chains["hosts"].append(_service(departments, vlans, random))
    return chains


def _service(departments: list[IPv6Network], vlans: list[IPv6Network], random: Random) -> str:
    vlan = random.choice(vlans)
    # Some hosts are numbered by hand, some by their cards.
    number = random.randint(1, 60) if random.random() < 0.7 else random.getrandbits(64)
    host = f"-d {vlan[number]}/128"
    client = random.choice(
        ("", f"-s {random.choice(departments)} ", f"-s {random.choice(vlans)} ", f"-s {SITE} ")
    )
    draw = random.random()
    if draw < 0.65:
        return f"{client}{host} -p tcp {NEW} -m tcp --dport {random.choice(PORTS)} -j ACCEPT"
    if draw < 0.80:
        return f"{client}{host} -p tcp {NEW} -m multiport --dports {random.choice(LISTS)} -j ACCEPT"
    if draw < 0.95:
        return f"{client}{host} -p udp {NEW} -m udp --dport {random.choice((53, 123, 443, 5060))} -j ACCEPT"
    return f"{client}{host} -p {random.choice(('esp', 'gre'))} -j ACCEPT"

"""Rule sets that grow along an axis that real firewalls have: interfaces, ipsets, marks, comments, ...

As in cliffs_inputs.py, of which this is the second half: each function takes a size and returns iptables-save
text, and the same size gives the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from .decorations import decorate

TABLES = ("raw", "mangle", "nat", "filter", "security")
CHAIN = {
    "raw": "PREROUTING",
    "mangle": "FORWARD",
    "nat": "PREROUTING",
    "filter": "FORWARD",
    "security": "FORWARD",
}
BUILT_IN = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "security": ("INPUT", "FORWARD", "OUTPUT"),
}
STATES = ("NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED", "SNAT", "DNAT")
DECORATED = "est+docker+comment+new+iface+ret+logdrop"
COMMENT = 255  # bytes: no comment is longer


def table(rules: Iterable[str], name: str = "filter", chains: Iterable[str] = ()) -> str:
    """A table with these rules, each without `-A`, and user chains."""
    lines = [f"*{name}", *(f":{chain} ACCEPT [0:0]" for chain in BUILT_IN[name])]
    lines += [f":{chain} - [0:0]" for chain in chains]
    return "\n".join([*lines, *(f"-A {rule}" for rule in rules), "COMMIT", ""])


def source(random: Random) -> str:
    """A test of a network."""
    return f"-s {random.randrange(1, 224)}.{random.randrange(256)}.{random.randrange(256)}.0/24"


def service(random: Random) -> str:
    """A test of a port."""
    return f"-p tcp -m tcp --dport {random.randrange(1, 65536)}"


def _flat(size: int, rule: Callable[[int, Random], str]) -> str:
    random = Random(size)
    return table(f"FORWARD {rule(number, random)}" for number in range(size))


def tables(size: int) -> str:
    """*size* rules in the five tables of a family: marks set in mangle, destinations changed in nat."""
    random = Random(size)
    target = {
        "raw": "CT --notrack",
        "mangle": "MARK --set-xmark {mark:#x}/0xffffffff",
        "nat": "DNAT --to-destination 10.0.0.{host}",
        "filter": "ACCEPT",
        "security": "DROP",
    }
    out = []
    for name in TABLES:
        rules = []
        for _ in range(size // len(TABLES)):
            what = target[name].format(mark=random.randrange(1, 1 << 16), host=random.randrange(1, 255))
            rules.append(f"{CHAIN[name]} {source(random)} {service(random)} -j {what}")
        out.append(table(rules, name))
    return "".join(out)


def ipv6(size: int) -> str:
    """*size* rules of IPv6 networks and ports."""

    def rule(number: int, random: Random) -> str:
        network = f"2001:db8:{random.randrange(1 << 16):x}:{random.randrange(1 << 16):x}::/64"
        return f"-s {network} {service(random)} -j {random.choice(('ACCEPT', 'DROP'))}"

    return _flat(size, rule)


def interfaces(size: int) -> str:
    """A rule for each of *size* interfaces, half of them on the way out."""

    def rule(number: int, random: Random) -> str:
        way = "o" if number % 2 else "i"
        return f"-{way} veth{number:x} {service(random)} -j {random.choice(('ACCEPT', 'DROP'))}"

    return _flat(size, rule)


def sets(size: int) -> str:
    """A rule for each of *size* ipsets."""
    return _flat(
        size, lambda number, random: f"-m set --match-set list{number} src {service(random)} -j DROP"
    )


def fan_in(size: int) -> str:
    """Twenty user chains of eight rules, half of which RETURN, entered by *size* rules."""
    random = Random(size)
    names = [f"service{number}" for number in range(20)]
    rules = [f"FORWARD {source(random)} -j {random.choice(names)}" for _ in range(size)]
    rules += [
        f"{name} {service(random)} -j {'RETURN' if at % 2 else 'ACCEPT'}" for name in names for at in range(8)
    ]
    return table(rules, chains=names)


def comments(size: int) -> str:
    """*size* rules, each with another comment of COMMENT bytes."""

    def rule(number: int, random: Random) -> str:
        text = f"ticket {number}: ".ljust(COMMENT, "x")
        return f'{source(random)} {service(random)} -m comment --comment "{text}" -j ACCEPT'

    return _flat(size, rule)


def marks(size: int) -> str:
    """A rule for each of *size* marks of packets, which an eighth of the rules before has set."""
    random = Random(size)
    setting = [
        f"FORWARD {source(random)} -j MARK --set-xmark {number + 1:#x}/0xffffffff"
        for number in range(size // 8)
    ]
    reading = [f"FORWARD -m mark --mark {number + 1:#x} -j ACCEPT" for number in range(size - size // 8)]
    return table([*setting, *reading])


def states(size: int) -> str:
    """*size* rules with lists of connection states."""

    def rule(number: int, random: Random) -> str:
        chosen = ",".join(random.sample(STATES, random.randrange(1, 4)))
        return f"{source(random)} -m conntrack --ctstate {chosen} -j {random.choice(('ACCEPT', 'DROP'))}"

    return _flat(size, rule)


def logs(size: int) -> str:
    """*size* rules: LOG with a prefix of its own, then DROP of the same packets."""
    random = Random(size)
    rules = []
    for number in range(size // 2):
        matches = f"FORWARD {source(random)} {service(random)}"
        rules += [f'{matches} -j LOG --log-prefix "rule {number} "', f"{matches} -j DROP"]
    return table(rules)


def decorated(size: int) -> str:
    """*size* rules of a ClassBench seed with DECORATED."""
    from .cliffs_inputs import flat

    prefix = "-A FORWARD "
    rules = [line.removeprefix(prefix) for line in flat(size).splitlines() if line.startswith(prefix)]
    return decorate(rules, DECORATED)


def guests(size: int) -> str:
    """*size* rules for the ports of guests, as OpenStack writes them: three chains for each."""
    random = Random(size)
    rules: list[str] = ["INPUT -j in", "FORWARD -j forward"]
    to_ports, to_chains, of_chains = [], [], []
    chains = ["in", "forward", "ports", "fallback"]
    for number in range(size // 20):
        high, low = divmod(number, 256)
        tap, own, mac = f"tap{number:x}", f"10.0.{high}.{low}/32", f"fa:16:3e:00:{high:02x}:{low:02x}"
        incoming, outgoing, sender = f"i{number:x}", f"o{number:x}", f"mac{number:x}"
        chains += [incoming, outgoing, sender]
        rules.append(f"in -m physdev --physdev-in {tap} --physdev-is-bridged -j {outgoing}")
        for way, chain in (("out", incoming), ("in", outgoing)):
            port = f"-m physdev --physdev-{way} {tap} --physdev-is-bridged"
            to_ports.append(f"forward {port} -j ports")
            to_chains.append(f"ports {port} -j {chain}")
        dhcp = "-p udp -m udp --sport"
        of_chains += [
            f"{incoming} -m state --state RELATED,ESTABLISHED -j RETURN",
            f"{incoming} -d {own} {dhcp} 67 --dport 68 -j RETURN",
            *(f"{incoming} {source(random)} {service(random)} -j RETURN" for _ in range(2)),
            f"{incoming} -m state --state INVALID -j DROP",
            f"{incoming} -j fallback",
            f"{outgoing} -s 0.0.0.0/32 -d 255.255.255.255/32 {dhcp} 68 --dport 67 -j RETURN",
            f"{outgoing} -j {sender}",
            f"{outgoing} {dhcp} 67 --dport 68 -j DROP",
            f"{outgoing} -m state --state RELATED,ESTABLISHED -j RETURN",
            f"{outgoing} -j RETURN",
            f"{outgoing} -j fallback",
            f"{sender} -s {own} -m mac --mac-source {mac} -j RETURN",
            f"{sender} -j DROP",
        ]
    rules += [*to_ports, *to_chains, "ports -j ACCEPT", *of_chains, "fallback -j DROP"]
    return table(rules, chains=chains)


def workloads(size: int) -> str:
    """*size* rules for the workloads of a node, as Calico writes them: two chains each, and policies."""
    random = Random(size)
    accept = "0x10000/0x10000"
    count = size // 23
    policies = [f"policy{number}" for number in range(max(1, count // 4))]
    chains, rules, of_chains = list(policies), [], []
    for number in range(count):
        for way, option in (("from", "-i"), ("to", "-o")):
            chain = f"{way}-{number}"
            chains.append(chain)
            rules.append(f"FORWARD {option} cali{number:05x} -g {chain}")
            asked = [random.choice(policies) for _ in range(2)]
            of_chains += [
                f"{chain} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                f"{chain} -m conntrack --ctstate INVALID -j DROP",
                f"{chain} -j MARK --set-xmark 0x0/0x30000",
                *(
                    rule
                    for policy in asked
                    for rule in (
                        f"{chain} -m mark --mark 0x0/0x20000 -j {policy}",
                        f"{chain} -m mark --mark {accept} -j RETURN",
                    )
                ),
                f"{chain} -m mark --mark 0x0/0x20000 -j DROP",
                f"{chain} -j DROP",
            ]
    for policy in policies:
        for _ in range(3):
            of_chains += [
                f"{policy} {source(random)} {service(random)} -j MARK --set-xmark {accept}",
                f"{policy} -m mark --mark {accept} -j RETURN",
            ]
    return table([*rules, *of_chains], chains=chains)


def customers(size: int) -> str:
    """Two rules for each customer enter a chain of its own, by source and by destination."""
    rules = []
    names = [f"c{number}" for number in range(size // 4)]
    for number, name in enumerate(names):
        host = f"100.64.{number // 256}.{number % 256}"
        rules += [f"FORWARD -s {host} -i eth1 -j {name}", f"FORWARD -d {host} -o eth1 -j {name}"]
        rules += [f"{name} -p tcp -m tcp --dport 25 -j DROP", f"{name} -j ACCEPT"]
    return table(rules, chains=names)


def accounts(size: int) -> str:
    """As `customers`; the chains count, and return."""
    counted = customers(size).replace("-p tcp -m tcp --dport 25 -j DROP", "-p tcp -j RETURN")
    return counted.replace("-j ACCEPT", "-j RETURN")


def negated(size: int) -> str:
    """Networks that interfaces may not have; then rules that leave out networks, interfaces, protocols."""
    random, count = Random(size), size // 3
    rules = [
        "FORWARD -j spoofed",
        *(
            f"spoofed ! -s 10.{number // 256}.{number % 256}.0/24 -i vlan{number} -j DROP"
            for number in range(count)
        ),
    ]
    for _ in range(count):
        host = f"10.9.{random.randrange(256)}.{random.randrange(256)}"
        rules.append(f"FORWARD ! {source(random)} -d {host} {service(random)} -j DROP")
    for number in range(count):
        host = f"10.8.{number // 256}.{number % 256}"
        rules.append(f"FORWARD -d {host} ! -i vlan{number} ! -p icmp -j REJECT")
    return table(rules, chains=["spoofed"])


def ports(size: int) -> str:
    """Rules of single ports: for a network, at some hours, or with a memory of their own."""

    def rule(number: int, random: Random) -> str:
        port = random.randrange(1, 65536)
        of_port = f"-p tcp -m tcp --dport {port}"
        return random.choice(
            (
                f"{source(random)} {of_port} -j ACCEPT",
                f"{of_port} -m time --timestart 08:00 --timestop {random.randrange(13, 23)}:00 -j ACCEPT",
                f"{of_port} -m connlimit --connlimit-above {random.randrange(5, 60)} -j REJECT",
                f"{of_port} -m limit --limit 100/sec -j ACCEPT",
                f"{of_port} -j DROP",
                f"-p udp -m udp --dport {port} -m hashlimit --hashlimit-above 50/sec --hashlimit-mode srcip "
                f"--hashlimit-name h{number} -j DROP",
            )
        )

    return _flat(size, rule)


def aliases(size: int) -> str:
    """Rules whose aliases, of networks and of ports, are written out, as pfSense has them; some log."""
    random = Random(size)
    networks = [[source(random)[3:] for _ in range(random.randrange(2, 40))] for _ in range(12)]
    services = [sorted(random.sample(range(1, 65536), random.randrange(1, 12))) for _ in range(10)]
    rules: list[str] = []
    while len(rules) < size:
        way = f"FORWARD -i igb{random.randrange(4)}.{random.randrange(1, 9)}"
        one, other, wanted = random.choice(networks), random.choice(networks), random.choice(services)
        action = random.choice(("ACCEPT", "DROP", "REJECT"))
        if random.random() < 0.5:
            kind = f"-p {random.choice(('tcp', 'udp'))} -m multiport --dports {','.join(map(str, wanted))}"
            rules += [f"{way} -s {net} -d {random.choice(other)} {kind} -j {action}" for net in one]
        else:
            kind = f"-p tcp -m tcp --dport {random.choice(wanted)} -m conntrack --ctstate NEW"
            rules += [f"{way} -d {net} {kind} -j {action}" for net in other]
        if random.random() < 0.1:
            rules.append(f'{way} -m limit --limit 5/sec -j LOG --log-prefix "{len(rules)} "')
    return table(rules[:size])


FIREWALL_AXES: dict[str, Callable[[int], str]] = {
    "tables": tables,
    "ipv6": ipv6,
    "interfaces": interfaces,
    "sets": sets,
    "fan-in": fan_in,
    "comments": comments,
    "marks": marks,
    "states": states,
    "logs": logs,
    "decorated": decorated,
    "guests": guests,
    "workloads": workloads,
    "customers": customers,
    "accounts": accounts,
    "negated": negated,
    "ports": ports,
    "aliases": aliases,
}

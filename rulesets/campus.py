"""The gateway of a campus: 5,000 rules in 60 chains.

Eighteen departments on VLANs behind two uplinks.  Every department has a chain that ties addresses
to network cards (`mac-*`, entered for what it sends) and one that lists what may reach its hosts
(`in-*`); bogons, spoofed sources, a blocklist, floods and scans are met before, logs are limited.
The lines are in the form that iptables-save prints.
"""

from __future__ import annotations

from random import Random

CAMPUS = "10.20.0.0/14"
RULES, CHAINS = 5000, 60
DEPARTMENTS = (
    "physics", "chemistry", "biology", "maths", "informatics", "history", "law", "medicine", "music",
    "philosophy", "geology", "economics", "arts", "languages", "library", "registry", "computing", "dorms",
)  # fmt: skip
BOGONS = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
)  # fmt: skip

# What hosts of a department offer, and how often.
TCP_PORTS = {
    "22": 30, "443": 22, "80": 12, "3389": 8, "445": 6, "5432": 4, "3306": 4, "8080": 4, "8443": 3,
    "873": 2, "1433": 2, "5900:5910": 2, "27000:27009": 2, "6000:6063": 1, "1024:65535": 1, "636": 1, "25": 1,
}  # fmt: skip
UDP_PORTS = {"53": 6, "123": 4, "161": 4, "514": 3, "1194": 2, "5060": 2, "60000:61000": 2}
PORT_LISTS = (
    "80,443", "22,80,443", "25,465,587", "143,993", "80,443,8080,8443", "137:139,445", "22,873", "5060,5061",
    "88,389,464,636", "515,631,9100",
)  # fmt: skip

NEW = "-m conntrack --ctstate NEW"
WINDOWS = "-p tcp -m multiport --dports 25,135,137:139,445 -j log-reject"


def text(random: Random) -> str:
    """The whole rule set."""
    raw, nat = _raw(), _nat(random)
    tables = {"raw": raw, "nat": nat, "filter": _filter(random, RULES - _count(raw) - _count(nat))}
    lines = []
    for table, chains in tables.items():
        lines.append(f"*{table}")
        for chain in chains:
            policy = "DROP" if table == "filter" and chain in ("INPUT", "FORWARD") else "ACCEPT"
            lines.append(f":{chain} {policy if chain.isupper() else '-'} [0:0]")
        lines += [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
        lines.append("COMMIT")
    return "\n".join((*lines, ""))


Chains = dict[str, list[str]]


def _count(chains: Chains) -> int:
    return sum(map(len, chains.values()))


def _dotted(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def _prefix(number: int, length: int) -> str:
    return f"{_dotted(number & ~((1 << 32 - length) - 1))}/{length}"


def _drawn(weights: dict[str, int], random: Random) -> str:
    return random.choices(list(weights), list(weights.values()))[0]


class _Department:
    """A VLAN with a /20, a /21 or a /22, and its hosts; some of them are servers."""

    def __init__(self, name: str, index: int, random: Random) -> None:
        self.name, self.vlan = name, f"vl{101 + 3 * index}"
        length = random.choice((20, 21, 21, 22, 22, 22))
        base = (10 << 24 | 20 << 16) + (index << 12)
        self.net = _prefix(base, length)
        self.hosts = sorted(random.sample(range(base + 10, base + (1 << 32 - length) - 1), 200))
        self.servers = sorted(random.sample(self.hosts, 30))


# -- raw and nat -----------------------------------------------------------------------------------


def _raw() -> Chains:
    servers = ("10.20.255.53", "10.20.255.54")
    return {
        "PREROUTING": [f"-d {server}/32 -p udp -m udp --dport 53 -j CT --notrack" for server in servers],
        "OUTPUT": [f"-s {server}/32 -p udp -m udp --sport 53 -j CT --notrack" for server in servers],
    }


def _nat(random: Random) -> Chains:
    services = [
        (f"185.7.40.{16 + index}/32", random.choice((80, 443, 25, 993, 22, 8443)), f"10.20.250.{10 + index}")
        for index in range(24)
    ]
    return {
        "PREROUTING": [
            f"-d {outside} -i wan+ -p tcp -m tcp --dport {port} -j DNAT --to-destination {inside}:{port}"
            for outside, port, inside in services
        ],
        "INPUT": [],
        "OUTPUT": [],
        "POSTROUTING": [
            f"-s {CAMPUS} -d {CAMPUS} -j ACCEPT",
            f"-s {CAMPUS} -o wan0 -j SNAT --to-source 185.7.40.2",
            f"-s {CAMPUS} -o wan1 -j SNAT --to-source 185.7.41.2",
        ],
    }


# -- filter ----------------------------------------------------------------------------------------


def _filter(random: Random, count: int) -> Chains:
    """*count* rules; the blocklist takes what the other chains leave."""
    departments = [_Department(name, index, random) for index, name in enumerate(DEPARTMENTS)]
    chains = {
        "INPUT": _input(),
        "FORWARD": _forward(departments),
        "OUTPUT": _output(),
        "anti-spoof": _anti_spoof(departments),
        "dmz": _dmz(departments, random),
        "flood": _flood(),
        "from-wan": _from_wan(),
        "guests": _guests(),
        "icmp": _icmp(),
        "log-drop": _log("drop", "DROP"),
        "log-reject": _log("reject", "REJECT --reject-with icmp-port-unreachable"),
        "mgmt": _mgmt(departments[16], random),
        "printers": _printers(departments, random),
        "scan": _scan(),
        "to-wan": _to_wan(departments, random),
        "voip": _voip(departments),
        "wlan": _wlan(departments, random),
    }
    for department in departments:
        chains[f"in-{department.name}"] = _reach(department, departments, random)
        chains[f"mac-{department.name}"] = _cards(department, random)
    chains["blocklist"] = _blocklist(count - _count(chains), random)
    built_in = {chain: chains.pop(chain) for chain in ("INPUT", "FORWARD", "OUTPUT")}
    return built_in | dict(sorted(chains.items()))


def _input() -> list[str]:
    return [
        "-i lo -j ACCEPT",
        "-m conntrack --ctstate INVALID -j DROP",
        "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-p icmp -j icmp",
        "-i mgmt0 -j mgmt",
        "-i vl+ -p udp -m udp --sport 68 --dport 67 -j ACCEPT",
        "-i vl+ -p udp -m udp --dport 53 -j ACCEPT",
        "-i vl+ -p tcp -m tcp --dport 53 -j ACCEPT",
        "-i vl+ -p udp -m udp --dport 123 -j ACCEPT",
        "-s 185.7.42.1/32 -i wan0 -p tcp -m tcp --dport 179 -j ACCEPT",
        "-s 185.7.43.1/32 -i wan1 -p tcp -m tcp --dport 179 -j ACCEPT",
        "-i vl+ -p vrrp -j ACCEPT",
        "-j log-drop",
    ]


def _forward(departments: list[_Department]) -> list[str]:
    return [
        "-m conntrack --ctstate INVALID -j DROP",
        "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-i wan+ -j from-wan",
        "-i vl+ -j anti-spoof",
        "-i guest0 -j guests",
        "-i wlan+ -j wlan",
        *(f"-i {department.vlan} -j mac-{department.name}" for department in departments),
        "-p icmp -j icmp",
        "-o mgmt0 -j log-reject",
        "-o dmz0 -j dmz",
        "-o voip0 -j voip",
        "-o prn0 -j printers",
        *(f"-o {department.vlan} -j in-{department.name}" for department in departments),
        "-o wan+ -j to-wan",
        "-j log-drop",
    ]


def _output() -> list[str]:
    return [
        "-o lo -j ACCEPT",
        "-m conntrack --ctstate INVALID -j DROP",
        f"-d {CAMPUS} -j ACCEPT",
        "-o wan+ -p tcp -m tcp --dport 25 -j log-reject",
        "-o wan+ -m owner --uid-owner 0-999 -j ACCEPT",
    ]


def _log(word: str, ends: str) -> list[str]:
    log = '-m limit --limit {} -j LOG --log-prefix "' + word + ' {} "'
    return [
        "-m pkttype --pkt-type broadcast -j DROP",
        "-m pkttype --pkt-type multicast -j DROP",
        *(
            f"-p {protocol} {log.format('30/min --limit-burst 60', protocol)}"
            for protocol in ("tcp", "udp", "icmp")
        ),
        log.format("10/min", "other"),
        f"-j {ends}",
    ]


def _from_wan() -> list[str]:
    bogons = [f"-s {bogon} -j DROP" for bogon in BOGONS]
    return [*bogons, "-j blocklist", "-j scan", f"! -d {CAMPUS} -j log-drop"]


def _to_wan(departments: list[_Department], random: Random) -> list[str]:
    mailers = [random.choice(department.servers) for department in departments]
    return [
        *(f"-s {_dotted(mailer)}/32 -p tcp -m tcp --dport 25 -j ACCEPT" for mailer in mailers),
        WINDOWS,
        "-d 10.0.0.0/8 -j log-reject",
        *(f"-s {department.net} -j ACCEPT" for department in departments),
        "-j log-drop",
    ]


def _anti_spoof(departments: list[_Department]) -> list[str]:
    return [
        "-s 0.0.0.0/32 -p udp -m udp --sport 68 --dport 67 -j RETURN",
        *(f"-s {department.net} -i {department.vlan} -j RETURN" for department in departments),
        "-j log-drop",
    ]


def _blocklist(count: int, random: Random) -> list[str]:
    """Networks met with a drop, as the lists that circulate have them: mostly /24 and single hosts."""
    lengths = {"32": 30, "24": 40, "23": 8, "22": 8, "21": 4, "20": 4, "19": 3, "16": 3}
    nets: set[tuple[int, int]] = set()
    while len(nets) < count - 1:
        length = int(_drawn(lengths, random))
        address = random.randint(1 << 24, (224 << 24) - 1)
        if address >> 24 not in (10, 127, 185):
            nets.add((address & ~((1 << 32 - length) - 1), length))
    return [*(f"-s {_prefix(*net)} -j DROP" for net in sorted(nets)), "-j RETURN"]


def _flood() -> list[str]:
    rates = {22: 10, 25: 40, 80: 400, 443: 400, 3389: 10}
    return [
        *(
            f"-p tcp -m tcp --dport {port} -m hashlimit --hashlimit-above {rate}/min --hashlimit-burst {2 * rate} "
            f"--hashlimit-mode srcip --hashlimit-name flood{port} -j log-drop"
            for port, rate in rates.items()
        ),
        "-p tcp -m connlimit --connlimit-above 500 --connlimit-mask 24 --connlimit-saddr -j log-reject",
    ]


def _scan() -> list[str]:
    odd = (
        "FIN,SYN,RST,PSH,ACK,URG NONE", "FIN,SYN,RST,PSH,ACK,URG FIN,SYN,RST,PSH,ACK,URG", "FIN,SYN FIN,SYN",
        "SYN,RST SYN,RST", "FIN,RST FIN,RST", "FIN,ACK FIN", "PSH,ACK PSH", "ACK,URG URG",
    )  # fmt: skip
    kept = "--name scanners --mask 255.255.255.255 --rsource -j DROP"
    return [
        f"-m recent --update --seconds 60 {kept}",
        *(f"-p tcp -m tcp --tcp-flags {flags} -m recent --set {kept}" for flags in odd),
        '-f -m limit --limit 5/min -j LOG --log-prefix "fragment "',
    ]


def _icmp() -> list[str]:
    return [
        "-p icmp -m icmp --icmp-type 5 -j log-drop",
        *(f"-p icmp -m icmp --icmp-type {kind} -j ACCEPT" for kind in (0, 3, 11, 12)),
        "-p icmp -m icmp --icmp-type 8 -m limit --limit 100/sec --limit-burst 200 -j ACCEPT",
        "-p icmp -j log-drop",
    ]


def _mgmt(computing: _Department, random: Random) -> list[str]:
    admins = sorted(random.sample(computing.hosts, 24))
    return [
        *(
            f"-s {_dotted(admin)}/32 -p tcp {NEW} -m multiport --dports 22,443,8443 -j ACCEPT"
            for admin in admins
        ),
        *(f"-s 10.20.254.0/24 -p udp -m udp --dport {port} -j ACCEPT" for port in (161, 162, 514, 6343)),
        "-j log-reject",
    ]


def _client(departments: list[_Department], random: Random) -> str:
    """Who may use a service: everyone, a department, a few hosts, one, the campus, a partner outside."""
    draw, other = random.random(), random.choice(departments)
    if draw < 0.22:
        return ""
    if draw < 0.40:
        return f"-s {other.net} "
    if draw < 0.52:
        return f"-s {_prefix(random.choice(other.hosts), random.choice((26, 27, 28, 29)))} "
    if draw < 0.86:
        return f"-s {_dotted(random.choice(other.hosts))}/32 "
    if draw < 0.92:
        return f"-s {CAMPUS} "
    return f"-s {_prefix(random.randint(1 << 24, (224 << 24) - 1), random.choice((16, 19, 22, 24, 32)))} "


def _service(random: Random) -> str:
    draw = random.random()
    if draw < 0.50:
        return f"-p tcp {NEW} -m tcp --dport {_drawn(TCP_PORTS, random)}"
    if draw < 0.62:
        return f"-p tcp {NEW} -m tcp --dport {_drawn(TCP_PORTS, random)} --tcp-flags FIN,SYN,RST,ACK SYN"
    if draw < 0.80:
        return f"-p tcp {NEW} -m multiport --dports {random.choice(PORT_LISTS)}"
    if draw < 0.97:
        return f"-p udp {NEW} -m udp --dport {_drawn(UDP_PORTS, random)}"
    return random.choice(("-p esp", "-p gre", "-p ipv6", "-p sctp -m sctp --dport 2905"))


def _reach(department: _Department, departments: list[_Department], random: Random) -> list[str]:
    """What may reach hosts of *department*."""
    rules = []
    for _ in range(random.randint(70, 118)):
        client, host = _client(departments, random), _dotted(random.choice(department.servers))
        ticket = f"ticket {random.randint(1000, 9999)}, {department.name}"
        comment = f' -m comment --comment "{ticket}"' if random.random() < 0.08 else ""
        rules.append(f"{client}-d {host}/32 {_service(random)}{comment} -j ACCEPT")
    labs = f"{_dotted(department.hosts[20])}-{_dotted(department.hosts[60])}"
    return [
        *rules,
        f"-p tcp -m iprange --dst-range {labs} -m tcp --dport 49152:65535 -j ACCEPT",
        f"-s {department.net} -j RETURN",
        "-j log-reject",
    ]


def _cards(department: _Department, random: Random) -> list[str]:
    """The network card of each address; some hosts are locked out."""
    rules = []
    for host in random.sample(department.hosts, random.randint(80, 140)):
        card = ":".join(f"{random.getrandbits(8):02x}" for _ in range(5))
        ends = "-j DROP" if random.random() < 0.15 else f"-m mac --mac-source 02:{card} -j RETURN"
        rules.append(f"-s {_dotted(host)}/32 {ends}")
    log = (
        f'-m limit --limit 6/min --limit-burst 10 -j LOG --log-prefix "mac {department.name} " --log-level 6'
    )
    return [*rules, log, "-j DROP"]


def _dmz(departments: list[_Department], random: Random) -> list[str]:
    rules = []
    for host in range(10, 90):
        address = f"10.20.250.{host}/32"
        rules += [f"-d {address} {_service(random)} -j ACCEPT" for _ in range(random.choice((1, 1, 2, 3)))]
        if random.random() < 0.4:
            admins = random.choice(departments).net
            rules.append(f"-s {admins} -d {address} -p tcp {NEW} -m tcp --dport 22 -j ACCEPT")
    return ["-i wan+ -j flood", *rules, "-j log-reject"]


def _voip(departments: list[_Department]) -> list[str]:
    return [
        *(
            f"-s {department.net} -p udp -m udp --dport {ports} -j ACCEPT"
            for ports in ("5060:5061", "16384:32767")
            for department in departments
        ),
        "-m dscp --dscp 0x2e -j ACCEPT",
        "-j log-drop",
    ]


def _guests() -> list[str]:
    return [
        "! -s 10.23.0.0/18 -j log-drop",
        "-d 10.20.255.53/32 -p udp -m udp --dport 53 -j ACCEPT",
        f"-d {CAMPUS} -j log-reject",
        "! -o wan+ -j log-reject",
        WINDOWS,
        "-m time --timestart 23:00:00 --timestop 05:00:00 --weekdays Mon,Tue,Wed,Thu,Fri "
        "--datestop 2038-01-19T03:14:07 -j log-reject",
        '-m statistic --mode random --probability 0.01000000024 -j LOG --log-prefix "guest sample "',
        "-j ACCEPT",
    ]


def _wlan(departments: list[_Department], random: Random) -> list[str]:
    rules = []
    for controller in range(12):
        net = f"10.22.{16 * controller}.0/20"
        rules.append(f"-s {net} -i wlan{controller} -p udp -m udp --dport 5246:5247 -j ACCEPT")
        for department in random.sample(departments, 5):
            rules.append(f"-s {net} -d {department.net} -i wlan{controller} -j RETURN")
        rules.append(f"-s {net} -i wlan{controller} -o wan+ -j RETURN")
    return [*rules, "-j log-drop"]


def _printers(departments: list[_Department], random: Random) -> list[str]:
    rules = []
    for printer in range(20, 80):
        owner, port = random.choice(departments), random.choice((515, 631, 9100))
        rules.append(f"-s {owner.net} -d 10.20.248.{printer}/32 -p tcp -m tcp --dport {port} -j ACCEPT")
    return [*rules, "-p udp -m udp --dport 161 -j ACCEPT", "-j log-reject"]

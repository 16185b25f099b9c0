"""A host that runs containers: cluster services by DNAT, a bridge per project, an ssh jail.

What an orchestrator writes is many small chains behind one long one: each service has a rule in the
chain of services, a chain that picks an endpoint by chance, and a chain per endpoint.  Marks carry
"masquerade this" from nat to POSTROUTING.  The lines are in the form that iptables-save prints.
"""

from __future__ import annotations

from random import Random

SERVICES, PROJECTS = 90, 6
PODS, CLUSTER = "10.244.0.0/16", "10.96.0.0/12"
PARTS = ("cart", "search", "mail", "login", "media", "queue", "billing", "stock", "maps", "chat")
PORTS = {"http": 80, "https": 443, "metrics": 9090, "grpc": 9000, "redis": 6379, "amqp": 5672, "sql": 5432}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def text(random: Random, count: int = SERVICES) -> str:
    """The whole rule set, with *count* services."""
    services = [_Service(index, random) for index in range(count)]
    lines = []
    for table, chains in (("nat", _nat(services)), ("filter", _filter(services, random))):
        lines.append(f"*{table}")
        for chain in chains:
            built_in = chain in ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
            policy = "DROP" if chain == "FORWARD" else "ACCEPT"
            lines.append(f":{chain} {policy if built_in else '-'} [0:0]")
        lines += [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
        lines.append("COMMIT")
    return "\n".join((*lines, ""))


class _Service:
    """A cluster address with its endpoints; some have a node port, some wait for an endpoint."""

    def __init__(self, index: int, random: Random) -> None:
        self.port_name = random.choice(list(PORTS))
        self.name = f"shop{index // 10}/{PARTS[index % 10]}:{self.port_name}"
        self.address, self.port = (
            f"10.{random.randint(96, 111)}.{random.randint(0, 255)}.{index % 250 + 2}",
            PORTS[self.port_name],
        )
        self.key = "".join(random.choice(LETTERS) for _ in range(16))
        count = random.choice((0, 1, 2, 2, 3, 4))
        self.endpoints = [
            (
                "".join(random.choice(LETTERS) for _ in range(16)),
                f"10.244.{random.randint(0, 20)}.{random.randint(2, 250)}",
            )
            for _ in range(count)
        ]
        self.node_port = random.randint(30000, 32767) if random.random() < 0.2 else None

    def says(self, what: str = "") -> str:
        return f'-m comment --comment "{self.name}{what}"'


Chains = dict[str, list[str]]


def _nat(services: list[_Service]) -> Chains:
    bridges = [f"172.{18 + project}.0.0/16" for project in range(PROJECTS)]
    chains: Chains = {
        "PREROUTING": [
            '-m comment --comment "service portals" -j SERVICES',
            "-m addrtype --dst-type LOCAL -j PUBLISHED",
        ],
        "INPUT": [],
        "OUTPUT": [
            '-m comment --comment "service portals" -j SERVICES',
            "! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j PUBLISHED",
        ],
        "POSTROUTING": [
            '-m comment --comment "masquerade what was marked" -j MASQUERADE-MARKED',
            *(f"-s {net} ! -o br{project} -j MASQUERADE" for project, net in enumerate(bridges)),
        ],
        "MARK-MASQ": ["-j MARK --set-xmark 0x4000/0x4000"],
        "MASQUERADE-MARKED": [
            "-m mark ! --mark 0x4000/0x4000 -j RETURN",
            "-j MARK --set-xmark 0x4000/0x0",
            '-m comment --comment "service traffic" -j MASQUERADE --random-fully',
        ],
        "NODEPORTS": [],
        "PUBLISHED": [f"-i br{project} -j RETURN" for project in range(PROJECTS)],
        "SERVICES": [],
    }
    for project, port in enumerate((8080, 8443, 9000, 5000, 2222, 3000)):
        inside = f"172.{18 + project}.0.2"
        chains["PUBLISHED"].append(
            f"! -i br{project} -p tcp -m tcp --dport {port} -j DNAT --to-destination {inside}:{port}"
        )
        chains["POSTROUTING"].append(
            f"-s {inside}/32 -d {inside}/32 -p tcp -m tcp --dport {port} -j MASQUERADE"
        )
    for service in services:
        if service.endpoints:
            _balance(service, chains)
    chains["SERVICES"].append(
        '-m comment --comment "node ports, last" -m addrtype --dst-type LOCAL -j NODEPORTS'
    )
    return chains


def _balance(service: _Service, chains: Chains) -> None:
    """A rule that finds the service, a chain that draws an endpoint, a chain per endpoint."""
    chain, tcp = f"SVC-{service.key}", f"-p tcp {service.says()} -m tcp"
    chains["SERVICES"].append(
        f"-d {service.address}/32 -p tcp {service.says(' cluster IP')} -m tcp --dport {service.port} -j {chain}"
    )
    if service.node_port:
        chains["NODEPORTS"].append(f"{tcp} --dport {service.node_port} -j {chain}")
    chains[chain] = [
        f"! -s {PODS} -d {service.address}/32 -p tcp {service.says(' cluster IP')} -m tcp --dport {service.port} -j MARK-MASQ"
    ]
    left = len(service.endpoints)
    for key, address in service.endpoints:
        # The kernel keeps a probability in 31 bits, and iptables-save prints what it kept.
        kept = round(2**31 / left) / 2**31
        chance = f" -m statistic --mode random --probability {kept:.11f}" if left > 1 else ""
        chains[chain].append(f"{service.says(f' -> {address}')}{chance} -j SEP-{key}")
        chains[f"SEP-{key}"] = [
            f"-s {address}/32 {service.says()} -j MARK-MASQ",
            f"{tcp} -j DNAT --to-destination {address}:{service.port}",
        ]
        left -= 1


def _filter(services: list[_Service], random: Random) -> Chains:
    projects = range(PROJECTS)
    jailed = sorted(
        {(random.randint(11, 223), *(random.randint(0, 255) for _ in range(3))) for _ in range(60)}
    )
    refused = "-j REJECT --reject-with icmp-port-unreachable"
    waiting = [service for service in services if not service.endpoints]
    published = [
        f"-d 172.{18 + project}.0.2/32 ! -i br{project} -o br{project} -p tcp -m tcp --dport {port} -j ACCEPT"
        for project, port in enumerate((8080, 8443, 9000, 5000, 2222, 3000))
    ]
    return {
        "INPUT": [
            "-p tcp -m multiport --dports 22 -j JAIL",
            '-m conntrack --ctstate NEW -m comment --comment "service portals without endpoints" -j WAITING',
            "-j FIREWALL",
        ],
        "FORWARD": [
            "-j USER",
            "-j ISOLATION-1",
            *(
                rule
                for project in projects
                for rule in (
                    f"-o br{project} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                    f"-o br{project} -j BRIDGES",
                    f"-i br{project} ! -o br{project} -j ACCEPT",
                    f"-i br{project} -o br{project} -j ACCEPT",
                )
            ),
            '-m comment --comment "to and from pods" -j PODS',
        ],
        "OUTPUT": [
            '-m conntrack --ctstate NEW -m comment --comment "service portals" -j WAITING',
            "-j FIREWALL",
        ],
        "BRIDGES": published,
        "FIREWALL": [
            "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
            '-m mark --mark 0x8000/0x8000 -m comment --comment "marked for dropping" -j DROP',
        ],
        "ISOLATION-1": [
            *(f"-i br{project} ! -o br{project} -j ISOLATION-2" for project in projects),
            "-j RETURN",
        ],
        "ISOLATION-2": [*(f"-o br{project} -j DROP" for project in projects), "-j RETURN"],
        "JAIL": [*(f"-s {'.'.join(map(str, address))}/32 {refused}" for address in jailed), "-j RETURN"],
        "PODS": [
            "-m conntrack --ctstate INVALID -j DROP",
            '-m mark --mark 0x4000/0x4000 -m comment --comment "marked for masquerading" -j ACCEPT',
            "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            f"-s {PODS} -j ACCEPT",
            f"-d {PODS} -j ACCEPT",
        ],
        "USER": ["-s 203.0.113.0/24 -i eth0 -j DROP", "-j RETURN"],
        "WAITING": [
            f"-d {service.address}/32 -p tcp {service.says(' has no endpoints')} -m tcp --dport {service.port} {refused}"
            for service in waiting
        ],
    }

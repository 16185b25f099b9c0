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
}

"""What real firewalls have and public filter sets lack, put into chain FORWARD of a filter set.

A decoration takes the rules of FORWARD and returns them changed, with user chains that they need.  Each is
drawn from a fixed seed, so a decorated set is the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

CHAIN = "FORWARD"
SEED = 7


@dataclass(slots=True)
class Firewall:
    """The rules of FORWARD, each without `-A FORWARD`, and user chains by name."""

    rules: list[str]
    chains: dict[str, list[str]] = field(default_factory=dict)
    rng: random.Random = field(default_factory=lambda: random.Random(SEED))

    def text(self) -> str:
        """iptables-save text of table filter."""
        lines = ["*filter", ":INPUT ACCEPT [0:0]", f":{CHAIN} ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]"]
        lines += [f":{name} - [0:0]" for name in self.chains]
        lines += [f"-A {CHAIN} {rule}" for rule in self.rules]
        lines += [f"-A {name} {rule}" for name, rules in self.chains.items() for rule in rules]
        return "\n".join([*lines, "COMMIT", ""])

    def in_front(self, *rules: str) -> None:
        self.rules[:0] = rules

    def in_the_middle(self, *rules: str) -> None:
        middle = len(self.rules) // 2
        self.rules[middle:middle] = rules

    def retarget(self, old: str, new: str, share: float = 1) -> None:
        """Give a *share* of the rules that end with *old* the target *new* (old "": of all rules)."""
        for at, rule in enumerate(self.rules):
            if rule.endswith(f"-j {old}" if old else "") and self.rng.random() < share:
                self.rules[at] = f"{rule.rpartition(' -j ')[0]} -j {new}".strip()

    def add_match(self, match: Callable[[int], str], share: float = 1) -> None:
        """Put match(number of the rule) in front of the target of a *share* of the rules."""
        for at, rule in enumerate(self.rules):
            if self.rng.random() < share:
                head, _, target = rule.rpartition("-j ")
                self.rules[at] = f"{head}{match(at)} -j {target}"


def _interfaces(firewall: Firewall) -> None:
    firewall.rules = [f"-i eth{firewall.rng.randrange(4)} {rule}" for rule in firewall.rules]


def _docker(firewall: Firewall) -> None:
    firewall.chains["DOCKER-USER"] = ["-j RETURN"]
    firewall.in_front("-j DOCKER-USER")


def _drop_chain(*rules: str) -> Callable[[Firewall], None]:
    def decorate(firewall: Firewall) -> None:
        firewall.retarget("DROP", "LOGDROP")
        firewall.chains["LOGDROP"] = list(rules)

    return decorate


def _accept_chain(firewall: Firewall) -> None:
    """Every ACCEPT marks the connection, by way of a chain."""
    firewall.retarget("ACCEPT", "MARKED")
    firewall.chains["MARKED"] = ["-j CONNMARK --set-xmark 0x1/0xffffffff", "-j ACCEPT"]


def _services(firewall: Firewall) -> None:
    """One rule in ten jumps to one of twenty user chains of six rules, the last of which returns."""
    for number in range(20):
        firewall.chains[f"svc{number}"] = [
            *(f"-p tcp -m tcp --dport {firewall.rng.randrange(1, 9000)} -j ACCEPT" for _ in range(5)),
            "-j RETURN",
        ]
    for at, rule in enumerate(firewall.rules):
        if firewall.rng.random() < 0.1:
            head = rule.rpartition("-j ")[0]
            firewall.rules[at] = f"{head}-j svc{firewall.rng.randrange(20)}"


def _log_many(firewall: Firewall) -> None:
    """A LOG rule of its own in front of one DROP in fifty, with the matches of that rule."""
    rules = []
    for rule in firewall.rules:
        if rule.endswith("-j DROP") and firewall.rng.random() < 0.02:
            rules.append(rule.replace("-j DROP", '-j LOG --log-prefix "d "'))
        rules.append(rule)
    firewall.rules = rules


def _sections(firewall: Firewall) -> None:
    """The state rules again in front of every thousandth rule, as pasted sections have."""
    rules = []
    for at, rule in enumerate(firewall.rules):
        if at % 1000 == 0:
            rules.append("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
        rules.append(rule)
    firewall.rules = rules


def _fail2ban(firewall: Firewall) -> None:
    """Three jumps to chains of 100 sources in front."""
    for name in ("f2b-sshd", "f2b-smtp", "f2b-web"):
        sources = [f"-s 203.0.{firewall.rng.randrange(256)}.{n} -j DROP" for n in range(100)]
        firewall.chains[name] = [*sources, "-j RETURN"]
        firewall.in_front(f"-p tcp -m multiport --dports {firewall.rng.randrange(1, 999)} -j {name}")


def _head(firewall: Firewall) -> None:
    """Twelve rules of a host in front: loopback, states, anti-spoofing, ICMP."""
    firewall.in_front(
        "-i lo -j ACCEPT",
        "-m conntrack --ctstate INVALID -j DROP",
        "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        *(f"-i eth0 -s {net} -j DROP" for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
                                                  "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/5")),
        "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack ! --ctstate NEW -j DROP",
        "-p icmp -m icmp --icmp-type 8 -m limit --limit 10/sec -j ACCEPT",
        "-p icmp -m icmp --icmp-type 8 -j DROP",
    )  # fmt: skip


def _reject(firewall: Firewall) -> None:
    firewall.retarget("DROP", "REJECT --reject-with icmp-port-unreachable", 0.5)


def _logged_section(firewall: Firewall) -> None:
    """In the middle fifty LOG rules in a row, of /8 networks."""
    firewall.in_the_middle(*(f'-s {n}.0.0.0/8 -j LOG --log-prefix "n{n} "' for n in range(10, 60)))


def _no_target(firewall: Firewall) -> None:
    """One rule in twenty only counts."""
    for at, rule in enumerate(firewall.rules):
        if firewall.rng.random() < 0.05:
            firewall.rules[at] = rule.rpartition("-j ")[0]


def _hashlimit(firewall: Firewall) -> None:
    firewall.in_front(
        "-p tcp -m tcp --dport 22 -m hashlimit --hashlimit-above 5/min --hashlimit-mode srcip "
        "--hashlimit-name ssh -j DROP"
    )


def _last_drop(firewall: Firewall) -> None:
    firewall.rules += ['-m limit --limit 5/min -j LOG --log-prefix "end "', "-j DROP"]


ESTABLISHED = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"

# By name: those of the goals first, then ten that might break a grouping.
DECORATIONS: dict[str, Callable[[Firewall], None]] = {
    "est": lambda f: f.in_front(ESTABLISHED),
    "inv": lambda f: f.in_front("-m state --state INVALID -j DROP"),
    "set": lambda f: f.in_front("-m set --match-set bad src -j DROP"),
    "docker": _docker,
    "estmid": lambda f: f.in_the_middle(ESTABLISHED),
    "log": lambda f: f.in_the_middle('-s 10.0.0.0/8 -j LOG --log-prefix "x"'),
    "logend": lambda f: f.rules.append('-j LOG --log-prefix "end"'),
    "limit": lambda f: f.in_the_middle("-p icmp -m limit --limit 5/sec -j ACCEPT"),
    "mark": lambda f: f.in_the_middle("-s 10.1.0.0/16 -j MARK --set-xmark 0x1/0xffffffff"),
    "comment": lambda f: f.add_match(lambda at: f'-m comment --comment "rule {at}"'),
    "new": lambda f: f.add_match(lambda at: "-m conntrack --ctstate NEW", 0.5),
    "iface": _interfaces,
    "ret": lambda f: f.retarget("", "RETURN", 0.02),
    "dropchain": _drop_chain("-j DROP"),
    "logdrop": _drop_chain('-m limit --limit 5/min -j LOG --log-prefix "DROP "', "-j DROP"),
    "head": _head,
    "sections": _sections,
    "fail2ban": _fail2ban,
    "services": _services,
    "acceptchain": _accept_chain,
    "logmany": _log_many,
    "loglist": _logged_section,
    "count": _no_target,
    "hashlimit": _hashlimit,
    "reject": _reject,
    "lastdrop": _last_drop,
}  # fmt: skip


def decorate(rules: list[str], decorations: str) -> str:
    """iptables-save text of a firewall of *rules* with *decorations*, joined by + ("": none)."""
    firewall = Firewall(list(rules))
    for name in filter(None, decorations.split("+")):
        DECORATIONS[name](firewall)
    return firewall.text()

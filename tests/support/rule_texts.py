"""Random rule sets as text, with every kind of rule that the compiler treats differently.

`make_text` draws from a random.Random; chains jump to later chains only.  Values are drawn from small pools, so
boxes overlap, nest and cover each other often.
"""

from __future__ import annotations

import random

from hitables.ir.fields import Family

V4 = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3", "10.1.2.128/25", "192.168.0.0/16", "192.168.7.7",
      "172.16.0.0/12", "0.0.0.0/1", "10.0.2.0/255.0.255.0"]  # fmt: skip
V6 = ["2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::5", "fe80::/10", "fc00::/7", "::/1", "2001:db8:1::/64"]
PORTS = ["22", "80", "53", "1024:65535", "0:1023", "80:90", "8000:9000", "443", "0:65535", "53:80"]
LISTS = ["22,80", "53,1000:2000", "80:90,443,8080"]
RANGES = {
    Family.IPV4: ("10.1.2.3", "10.1.2.130"),
    Family.IPV6: ("2001:db8:1::5", "2001:db8:2::"),
}
MEMORY = [
    "-m limit --limit 5/min", "-m limit --limit 1/sec --limit-burst 2", "-m statistic --mode nth --every 3 --packet 0",
    "-m recent --name bad --rcheck", "-m recent --name bad --set", "-m statistic --mode random --probability 0.5",
    "-m connlimit --connlimit-above 3",
]  # fmt: skip
CONSTANT = [
    "-m mark --mark 0x1",
    "-m mark --mark 0x2",
    "-m mark ! --mark 0x1/0x3",
    "-m length --length 80:1500",
    "-m length --length 0:100",
    "{hops}",
    "-m pkttype --pkt-type unicast",
    "-m addrtype --src-type LOCAL",
]
WRITERS = ["-j MARK --set-xmark 0x1/0xffffffff", "-j MARK --set-xmark 0x0/0xffffffff"]
# iptables refuses -m mac below OUTPUT: OUTPUT enters all user chains but the first.
MAC_CHAINS = ("INPUT", "FORWARD", "user0")
SIDE = ['-j LOG --log-prefix "seen "', "-j LOG", ""]
FINAL = ["-j ACCEPT", "-j DROP", "-j REJECT", "-j RETURN"]


def make_rule(rng: random.Random, family: Family, chain: str, later: list[str], memory: float) -> str:
    """One rule of *chain* as `-A` takes it; jumps go to the chains in *later*."""
    addresses = V4 if family is Family.IPV4 else V6
    parts: list[str] = []

    def maybe(chance: float, *choices: str) -> None:
        if rng.random() < chance:
            bang = "! " if rng.random() < 0.12 else ""
            option, _, value = rng.choice(choices).partition(" ")
            parts.append(f"{bang}{option} {value}".strip())

    maybe(0.5, *(f"-s {a}" for a in addresses))
    maybe(0.4, *(f"-d {a}" for a in addresses))
    if chain not in ("OUTPUT",):
        maybe(0.15, "-i eth0", "-i eth1", "-i eth+")
    if chain not in ("INPUT",):
        maybe(0.15, "-o eth0", "-o wlan0", "-o e+")
    matches: list[str] = []
    protocol = rng.choice(["", "", "tcp", "tcp", "udp", "udp", "icmp", "sctp", "47"])
    if protocol:
        name = protocol if protocol != "icmp" or family is Family.IPV4 else "ipv6-icmp"
        negated = rng.random() < 0.08
        parts.append(f"{'! ' if negated else ''}-p {name}")
        if not negated:
            bang = "! " if rng.random() < 0.12 else ""
            if protocol in ("tcp", "udp", "sctp"):
                kind = rng.random()
                if kind < 0.45:
                    side = rng.choice(["--sport", "--dport", "--dport"])
                    matches.append(f"-m {protocol} {bang}{side} {rng.choice(PORTS)}")
                elif kind < 0.6:
                    matches.append(
                        f"-m multiport {bang}{rng.choice(['--sports', '--dports', '--ports'])} {rng.choice(LISTS)}"
                    )
                elif kind < 0.7:
                    matches.append(f"-m {protocol}")
                elif kind < 0.8 and protocol == "tcp":
                    matches.append(f"-m tcp {bang}--tcp-flags SYN,ACK,FIN,RST SYN")
                elif kind < 0.85 and protocol == "tcp":
                    matches.append(f"-m tcp {bang}--tcp-option 3")
                if rng.random() < 0.1:
                    matches.append(f"-m multiport --dports {rng.choice(LISTS)}")
            elif protocol == "icmp":
                option = (
                    "-m icmp {}--icmp-type {}" if family is Family.IPV4 else "-m icmp6 {}--icmpv6-type {}"
                )
                matches.append(
                    option.format(bang, rng.choice(["8" if family is Family.IPV4 else "128", "3/1", "1"]))
                )
    elif family is Family.IPV4 and rng.random() < 0.1:
        parts.append(rng.choice(["-f", "! -f"]))
    if rng.random() < 0.2:
        matches.append(
            f"-m {rng.choice(['state --state', 'conntrack --ctstate'])} "
            f"{rng.choice(['NEW', 'ESTABLISHED,RELATED', 'INVALID', 'NEW,INVALID'])}"
        )
    if rng.random() < 0.1:
        low, high = RANGES[family]
        matches.append(
            f"-m iprange {rng.choice(['', '! '])}--{rng.choice(['src', 'dst'])}-range {low}-{high}"
        )
    if rng.random() < 0.08 and chain in MAC_CHAINS:
        matches.append(f"-m mac {rng.choice(['', '! '])}--mac-source 00:11:22:33:44:{rng.randrange(4):02x}")
    if rng.random() < 0.15:
        hops = "-m ttl --ttl-lt 5" if family is Family.IPV4 else "-m hl --hl-lt 5"
        matches.append(rng.choice(CONSTANT).format(hops=hops))
    if rng.random() < memory:
        matches.append(rng.choice(MEMORY))
    if rng.random() < 0.1:
        matches.append(f'-m comment --comment "rule {rng.randrange(9)}"')
    rng.shuffle(matches)
    kind = rng.random()
    if later and kind < 0.25:
        target = f"{rng.choice(['-j', '-j', '-g'])} {rng.choice(later)}"
    elif kind < 0.4:
        target = rng.choice(SIDE)
    elif kind < 0.45:
        target = rng.choice(WRITERS)
    else:
        target = rng.choice(FINAL)
    return " ".join(word for word in ["-A", chain, *parts, *matches, target] if word)


def make_text(
    rng: random.Random,
    family: Family = Family.IPV4,
    rules: int = 40,
    chains: int = 3,
    memory: float = 0.1,
    counters: bool = False,
) -> str:
    """One table filter with three built-in and *chains* user chains; *memory*: share of rules that have one."""
    user = [f"user{number}" for number in range(chains)]
    names = ["INPUT", "FORWARD", "OUTPUT", *user]
    lines = ["*filter"]
    lines += [f":{name} {rng.choice(['ACCEPT', 'DROP'])} [0:0]" for name in names[:3]]
    lines += [f":{name} - [0:0]" for name in user]
    for _ in range(rules):
        at = rng.randrange(len(names))
        later = user[max(0, at - 2) :] if at >= 3 else user[names[at] == "OUTPUT" :]
        line = make_rule(rng, family, names[at], later, memory)
        if counters:
            line = f"[{rng.randrange(100)}:{rng.randrange(1000)}] {line}"
        lines.append(line)
    return "\n".join([*lines, "COMMIT"]) + "\n"

"""Rule sets that grow along one axis: rules, chains, nesting, matches of a rule, addresses of a rule, ...

Each function takes a size and returns iptables-save text; the same size gives the same text.  Everything but
the axis stays as it is.  Users: benchmarks/cliffs.py and tests/benchmarks/test_cliffs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from hitables.generate import rules as generated
from hitables.generate import seed as seeds
from hitables.parse.classbench import to_text

from .cliffs_firewalls import FIREWALL_AXES

SEED = Path(__file__).resolve().parents[1] / "rulesets" / "seeds" / "acl.seed"
_HEAD = ("*filter", ":INPUT ACCEPT [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]")


def _text(chains: Iterable[str], rules: Iterable[str]) -> str:
    declared = (f":{name} - [0:0]" for name in chains)
    return "".join(f"{line}\n" for line in (*_HEAD, *declared, *rules, "COMMIT"))


def _host(random: Random) -> str:
    return f"{random.randrange(1, 224)}." + ".".join(str(random.randrange(256)) for _ in range(3))


def _hosts(count: int, random: Random) -> list[str]:
    """Different addresses, in the order in which they were drawn."""
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        drawn[_host(random)] = None
    return list(drawn)


def flat(size: int) -> str:
    """One chain of *size* rules, drawn from a ClassBench seed; a third of them drops."""
    drawn = to_text(generated.rules(seeds.parse(SEED.read_text(), SEED.name), size)).splitlines(keepends=True)
    random = Random(size)
    return "".join(line if random.randrange(3) else line.replace("-j ACCEPT", "-j DROP") for line in drawn)


def chains(size: int) -> str:
    """*size* user chains of eight rules, half of them RETURN, each behind a rule on an address."""
    random = Random(size)
    names = [f"c{number}" for number in range(size)]
    hosts = _hosts(size, random)
    rules = [f"-A FORWARD -d {host}/32 -j {name}" for host, name in zip(hosts, names, strict=True)]
    for name in names:
        for at in range(8):
            port = random.randrange(1, 65536)
            target = "RETURN" if at % 2 else "DROP"
            rules.append(f"-A {name} -s {_host(random)}/24 -p tcp -m tcp --dport {port} -j {target}")
    return _text(names, rules)


def _line_of_chains(size: int, first: str, jump: str = "", last: str = "") -> str:
    """*size* user chains, the first entered from FORWARD and each other from the one before.

    first, last  the rules of a chain before and behind its jump, after the address that each tests
    jump         the matches of the jumps
    """
    random = Random(size)
    names = [f"c{number}" for number in range(size)]
    rules = [f"-A FORWARD {jump}-j {names[0]}"]
    for name, entered in zip(names, [*names[1:], ""], strict=True):
        rules.append(f"-A {name} -s {_host(random)}/32 {first}")
        if entered:
            rules.append(f"-A {name} {jump}-j {entered}")
        if last:
            rules.append(f"-A {name} -s {_host(random)}/32 {last}")
    return _text(names, rules)


def nesting(size: int) -> str:
    """*size* user chains, each entered by the one before for some packets, with rules before and after."""
    return _line_of_chains(size, "-j DROP", "-p tcp ", "-j ACCEPT")


def relay(size: int) -> str:
    """*size* user chains, each with a jump to the next as its last rule."""
    return _line_of_chains(size, "-p tcp -m tcp --dport 22 -j ACCEPT")


def returns(size: int) -> str:
    """A user chain of *size* rules; two of three RETURN."""
    random = Random(size)
    rules = ["-A FORWARD -j c0", "-A FORWARD -s 192.0.2.0/24 -j DROP"]
    for at, host in enumerate(_hosts(size, random)):
        rules.append(f"-A c0 -s {host}/32 -j {'RETURN' if at % 3 else 'ACCEPT'}")
    return _text(["c0"], rules)


def matches(size: int) -> str:
    """*size* matches, each another, in rules of twenty."""
    random = Random(size)
    rules = []
    for first in range(0, size, 20):
        marks = " ".join(f"-m mark ! --mark {first + at + 1:#x}" for at in range(20))
        rules.append(f"-A FORWARD -s {_host(random)}/32 {marks} -j DROP")
    return _text([], rules)


def addresses(size: int) -> str:
    """*size* pairs of addresses, in lines of fifty sources and twenty destinations: each is so many rules."""
    random = Random(size)
    rules = []
    for _ in range(0, size, 1000):
        sources, destinations = _hosts(50, random), _hosts(20, random)
        rules.append(f"-A FORWARD -s {','.join(sources)} -d {','.join(destinations)} -j DROP")
    return _text([], rules)


AXES: dict[str, Callable[[int], str]] = {
    "rules": flat,
    "chains": chains,
    "nesting": nesting,
    "next": relay,
    "returns": returns,
    "matches": matches,
    "addresses": addresses,
    **FIREWALL_AXES,
}

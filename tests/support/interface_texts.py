"""Rule sets whose rules test interfaces, as container hosts and routers have them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

HEAD = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"

# Names that begin alike, that are as long as a name may be, and with letters that mean something to iptables,
# to nft, or to a shell.
NAMES = (
    "br-1", "br-10", "br-11", "br-12", "br-2", "br-20", "br-2.100", "br-2.200", "eth0", "eth1", "eth10",
    "xxxxxxxxxxxxxx", "xxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxy", "xxxxxxxxxxxxxyz",
    "a", "a*", "a*b", "a+b", "+x", "!x", "-x", "$x", "x~(y)",
)  # fmt: skip
WILD = ("br-+", "br-1+", "br-2.+", "eth+", "x+", "xxxxxxxxxxxxxx+", "a+", "a*+", "++", "+", "e+", "nowhere+")


def bridges(count: int) -> list[str]:
    """Names as Docker gives them: `br-` and twelve hexadecimal digits."""
    return [f"br-{hashlib.sha256(str(n).encode()).hexdigest()[:12]}" for n in range(count)]


def apart(names: Sequence[str]) -> str:
    """Interfaces that must not reach each other: a rule for each ordered pair."""
    rules = [f"-A FORWARD -i {a} -o {b} -j DROP" for a in names for b in names if a != b]
    return HEAD + "\n".join(rules) + "\nCOMMIT\n"


def isolated(names: Sequence[str]) -> str:
    """The same in two stages, as Docker writes it."""
    one, two = "DOCKER-ISOLATION-STAGE-1", "DOCKER-ISOLATION-STAGE-2"
    rules = [f"-A FORWARD -j {one}"]
    rules += [f"-A {one} -i {name} ! -o {name} -j {two}" for name in names] + [f"-A {one} -j RETURN"]
    rules += [f"-A {two} -o {name} -j DROP" for name in names] + [f"-A {two} -j RETURN"]
    return HEAD + f":{one} - [0:0]\n:{two} - [0:0]\n" + "\n".join(rules) + "\nCOMMIT\n"


def drawn(rng: random.Random, chain: str = "FORWARD", rules: int = 60, extras: Sequence[str] = ("",)) -> str:
    """*rules* rules for *chain* that test NAMES, WILD and their negations, and some of *extras* besides.

    Each rule has its number as a comment.  Most rules that match many names only count, so that packets get
    to the rules behind them.
    """
    options = {"INPUT": ("-i",), "OUTPUT": ("-o",)}.get(chain, ("-i", "-o"))
    lines = []
    for at in range(rules):
        words, names = [f"-A {chain}"], 0
        for option in options:
            kind = rng.random()
            if kind < 0.7:
                words.append(f"{option} {rng.choice(NAMES)}")
                names += 1
            elif kind < 0.82:
                words.append(f"{option} {rng.choice(WILD)}")
            elif kind < 0.9:
                words.append(f"! {option} {rng.choice((*NAMES, *WILD))}")
        words += [rng.choice(extras), f"-m comment --comment r{at}"]
        if rng.random() < (0.7 if names == len(options) else 0.05):
            words.append(rng.choice(("-j ACCEPT", "-j DROP")))
        lines.append(" ".join(filter(None, words)))
    return HEAD + "\n".join(lines) + "\nCOMMIT\n"

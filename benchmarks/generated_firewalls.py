"""Firewalls of one long chain, drawn from ClassBench seeds and written as iptables-save text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from hitables.generate import rules as generated
from hitables.generate import seed as seeds
from hitables.parse import classbench

from .table_text import declared, dotted

SEEDS = Path(__file__).resolve().parents[1] / "rulesets" / "seeds"


@cache
def _seed(name: str) -> seeds.Seed:
    path = SEEDS / f"{name}.seed"
    return seeds.parse(path.read_text(), str(path))


def draw(names: Sequence[str], rng: Random, size: int) -> str:
    """A filter table of *size* rules in one chain, drawn from the seeds *names* in equal shares."""
    lines = []
    written_share = rng.choice([0.0, 0.5, 1.0])
    for at, name in enumerate(names):
        count = size // len(names) + (at < size % len(names))
        if not count:
            continue
        drawn = generated.rules(_seed(name), count, number=rng.randrange(1 << 30), smoothness=4)
        for rule in drawn.rules:
            lines.append(_filter_line(rule, rng, written_share))
    if rng.random() < 0.5:
        rng.shuffle(lines)
    chain = rng.choice(["INPUT", "FORWARD", "OUTPUT"])
    rules = "".join(f"-A {chain} {line}\n" for line in lines)
    return f"*filter\n{declared('filter', rng)}{rules}COMMIT\n"


def _filter_line(rule: object, rng: Random, written_share: float) -> str:
    """A ClassBench rule in words; *written_share*: of full port ranges, the share that is written."""
    assert isinstance(rule, classbench.FilterRule)
    words: list[str] = []
    for option, (low, high) in (("-s", rule.src), ("-d", rule.dst)):
        if (low, high) != classbench.ANY_ADDRESS:
            words += [option, f"{dotted(low)}/{32 - (high - low).bit_length()}"]
    name = classbench.PORT_MATCH.get(rule.proto or 0)
    if rule.proto is not None:
        words += ["-p", name or str(rule.proto)]
    if name is not None:
        for option, (low, high) in (("--sport", rule.sport), ("--dport", rule.dport)):
            if (low, high) != (0, 65535) or rng.random() < written_share:
                words += [option, _ports(low, high)]
        if name == "tcp" and rule.flags is not None and rng.random() < 0.5:
            value, mask = rule.flags[0] & 63, rule.flags[1] & 63
            if mask:
                words += ["--tcp-flags", _flag_names(mask), _flag_names(value & mask)]
    return " ".join([*words, "-j", rng.choice(["ACCEPT", "ACCEPT", "DROP"])])


def _flag_names(bits: int) -> str:
    order = ("FIN", "SYN", "RST", "PSH", "ACK", "URG")
    return ",".join(name for at, name in enumerate(order) if bits >> at & 1) or "NONE"


def _ports(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}:{high}"

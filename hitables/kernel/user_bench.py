"""A user's own rule set measured in the kernel: `hitables bench kernel FILE`.

One chain of table filter is measured as it is, compiled, and in its alternatives (rivals.py): the median
nanoseconds per packet above an empty rule set, all in turn.  The packets are routed from one tunnel to
another, so they traverse FORWARD; rules of INPUT or OUTPUT are measured there, too.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..compiler.compile import compile_rules
from ..compiler.options import Options
from ..costs import Costs, default, spent
from ..emit.text import write
from ..errors import HitablesError, LiveError, Unsupported
from ..ir.fields import Field
from ..ir.packet import Backend
from ..ir.program import BUILT_IN, Chain, Program, Table
from ..ir.rule import Role
from ..simulate.batch import PacketBatch
from ..simulate.five_tuple import set_interface
from . import rivals
from .agreement import NEW, follows_connections
from .calibrate import difference
from .rivals import CHAIN
from .routable import crafted, routable
from .stopwatch import Router, Stopwatch
from .testbed import valid_name

FLOWS = 2000  # packets, sent in turn
RUNS = 10


@dataclass(frozen=True)
class Line:
    """One rule set measured, or *why* it was not.

    above     nanoseconds above an empty rule set, median
    doubt     two standard deviations of that median
    modelled  nanoseconds by the cost model; None if it does not cover the rule set
    note      a remark for the user
    """

    name: str
    rules: int = 0
    above: float = 0.0
    doubt: float = 0.0
    modelled: float | None = None
    note: str = ""
    why: str = ""


@dataclass(frozen=True)
class Measured:
    """The measurements.  *empty*: nanoseconds of a packet's whole path without rules."""

    chain: str
    backend: Backend
    packets: int
    empty: float
    lines: tuple[Line, ...]
    advice: tuple[str, ...] = field(default=())

    def as_data(self) -> dict[str, Any]:
        return {
            "format": "hitables-bench-kernel",
            "version": 1,
            "chain": self.chain,
            "backend": self.backend.value,
            "packets": self.packets,
            "empty_ns": round(self.empty, 1),
            "rows": [
                {"name": line.name, "why": line.why}
                if line.why
                else {
                    "name": line.name,
                    "rules": line.rules,
                    "ns": round(line.above, 1),
                    "ns_with_io": round(line.above + self.empty, 1),
                    "doubt_ns": round(line.doubt, 1),
                    "modelled_ns": line.modelled and round(line.modelled, 1),
                    "note": line.note,
                }
                for line in self.lines
            ],
            "advice": list(self.advice),
        }


def routed(program: Program, chain: str) -> Program:
    """Table filter alone, with *chain* in the place of FORWARD and without counters."""
    table = program.table("filter")
    chains = []
    for each in table.chains:
        if each.name in BUILT_IN["filter"] and each.name != chain:
            continue
        rules = tuple(rule._replace(counters=None, notes=()) for rule in each.rules)
        name = CHAIN if each.name == chain else each.name
        chains.append(Chain(name, each.policy, rules, kept=False))
    return Program(program.family, (Table("filter", tuple(chains)),), program.name)


def _empty(policy: str, program: Program) -> str:
    """A rule set without rules for the packets, which tracks connections if *program* does."""
    follow = follows_connections(program.table("filter"))
    rule = "-A INPUT -m conntrack --ctstate NEW\n" if follow else ""
    return f"*filter\n:INPUT ACCEPT [0:0]\n:{CHAIN} {policy} [0:0]\n{rule}COMMIT\n"


def _is_chancy(program: Program) -> bool:
    """Whether a rule depends on memory or chance, so that a packet's result may vary."""
    rules = (rule for chain in program.table("filter").chains for rule in chain.rules)
    return any(match.role in (Role.NAMED, Role.ONCE) for rule in rules for match in rule.matches)


def _router(program: Program) -> Router:
    """A router with the interfaces that the rules name most often."""

    def most_common(option: str, default: str) -> str:
        named = Counter(
            match.words[-1].replace("+", "0")
            for chain in program.table("filter").chains
            for rule in chain.rules
            for match in rule.matches
            if match.words[-2:-1] == (option,) and match.words[0] != "!"
        )
        names = [name for name, _ in named.most_common() if valid_name(name) and name != "lo"]
        return names[0] if names else default

    incoming = most_common("-i", "in0")
    outgoing = most_common("-o", "out0")
    return Router(program.family, incoming, outgoing if outgoing != incoming else "out0")


def measure(
    program: Program,
    chain: str,
    batch: PacketBatch,
    backend: Backend,
    *,
    options: Options | None = None,
    against: Sequence[str] = (),
    runs: int = RUNS,
    flows: int = FLOWS,
    costs: Costs | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> Measured:
    """Measure *chain* of table filter by packets of *batch*; LiveError if that is not possible here."""
    costs = costs or default()
    plain = routed(program, chain)
    router = _router(plain)
    progress("compiling")
    options = replace(options or Options(), backend=backend)
    compiled = compile_rules(plain, options).program
    good = batch.pick(routable(batch))
    if not len(good):
        raise HitablesError(
            f"none of {len(batch)} packets can be routed: they are fragments, or not between two hosts"
        )
    packets, sent = crafted(good.pick(np.random.default_rng(1).permutation(len(good))[:flows]))
    set_interface(sent, Field.IIF, router.incoming)
    set_interface(sent, Field.OIF, router.outgoing)
    sent.rows["low"][:, Field.STATE] = NEW  # connection tracking sees one direction of a flow only
    lines: list[Line] = []
    with Stopwatch(backend, router=router) as watch:
        bench = _Bench(watch, packets, sent, backend, _is_chancy(plain))
        for policy in ("ACCEPT", "DROP"):
            watch.add(f"empty {policy}", _empty(policy, plain), packets, len(sent))
        for name, one in (("input", plain), ("compiled", compiled)):
            progress(f"loading: {name}")
            watch.add(name, write(one), packets, len(sent))
            bench.passing[name] = watch.passing(name)
            lines.append(
                Line(name, one.rule_count(), modelled=spent(one, "filter", CHAIN, sent, costs, backend).total)
            )
        for name in against:
            progress(f"loading: {name}")
            lines.append(bench.rival(name, plain))
        bench.check()
        progress("measuring")
        times = watch.run(runs)
    lost = 1 - bench.passing["input"] / len(sent)
    # A dropped packet saves the path out, so it is compared with an empty rule set that drops.
    empty = [
        (1 - lost) * one + lost * two
        for one, two in zip(times["empty ACCEPT"], times["empty DROP"], strict=True)
    ]
    measured = tuple(line if line.why else _measured(line, times[line.name], empty) for line in lines)
    advice = (*_advice(measured), *_hints(plain, against))
    return Measured(chain, backend, len(sent), statistics.median(empty), measured, advice)


def _measured(line: Line, times: Sequence[float], empty: Sequence[float]) -> Line:
    above = difference(times, empty)
    spread = statistics.median(abs(one - other - above) for one, other in zip(times, empty, strict=True))
    # Two standard deviations of the median.
    return replace(line, above=above, doubt=2 * 1.25 * 1.48 * spread / len(times) ** 0.5)


@dataclass
class _Bench:
    """The loaded rule sets, and how many of the packets each lets through."""

    watch: Stopwatch
    packets: bytes
    sent: PacketBatch
    backend: Backend
    chancy: bool
    passing: dict[str, int] = field(default_factory=dict)

    def rival(self, name: str, plain: Program) -> Line:
        try:
            line = self._load(name, plain)
            self.passing[name] = self.watch.passing(name)
        except (rivals.Cannot, LiveError, Unsupported) as error:
            self.watch.forget(name)
            return Line(name, why=_in_short(str(error)))
        came, wanted = self.passing[name], self.passing["input"]
        if came != wanted and not self.chancy:
            self.watch.forget(name)
            return Line(name, why=f"it lets {came} of {len(self.sent)} packets through, the input {wanted}")
        return line

    def _load(self, name: str, plain: Program) -> Line:
        if name == "ipset":
            sets = rivals.with_sets(plain)
            rivals.load_sets(sets, self.backend, self._space(name))
            count = len(sets.members)
            note = f"{sets.replaced} rules became {count} set{'s' if count > 1 else ''}"
            return Line(name, sets.program.rule_count(), note=note)
        if name == "nft-set":
            scripts = rivals.verdict_map(plain)
            rivals.load_map(scripts, self._space(name))
            return Line(name, 1, note="one map; no counters, no order")
        note = rivals.load_optimised(plain, self._space(name))
        return Line(name, plain.rule_count(), note=note)

    def _space(self, name: str) -> Any:
        return self.watch.namespace(name, self.packets, len(self.sent))

    def check(self) -> None:
        """Both programs must let equally many packets through, unless memory or chance decides."""
        if self.passing["compiled"] != self.passing["input"] and not self.chancy:
            raise LiveError(
                f"the compiled rule set lets {self.passing['compiled']} of {len(self.sent)} packets through, "
                f"the input {self.passing['input']}; please report it with the rule set"
            )


def _in_short(reason: str) -> str:
    """A tool's message on one line, from its first error on."""
    line = " ".join(reason.replace("^", "").split())
    line = line[line.find("Error: ") + len("Error: ") :] if "Error: " in line else line
    return line if len(line) <= 200 else f"{line[:200]}…"


def _advice(lines: Sequence[Line]) -> list[str]:
    by_name = {line.name: line for line in lines if not line.why}
    compiled, original = by_name["compiled"], by_name["input"]
    advice: list[str] = []
    if compiled.above + compiled.doubt >= original.above - original.doubt:
        advice.append("compiling does not pay here")
    for line in lines:
        if line.name in ("input", "compiled") or line.why:
            continue
        if line.above + line.doubt < compiled.above - compiled.doubt:
            advice.append(
                f"{line.name} serves better here: {line.above:.0f} ns, compiled rules {compiled.above:.0f} ns"
            )
    return advice


def _hints(plain: Program, against: Sequence[str]) -> list[str]:
    """Alternatives that were not measured and may be faster: an ipset if most rules differ in one address."""
    if "ipset" in against:
        return []
    try:
        sets = rivals.with_sets(plain)
    except rivals.Cannot:
        return []
    if 2 * sets.replaced < plain.rule_count():
        return []
    return [
        f"{sets.replaced} of {plain.rule_count()} rules differ in one address only: "
        "an ipset may serve better, --rivals ipset measures it"
    ]


def default_batch(program: Program, chain: str, count: int = 4 * FLOWS) -> PacketBatch:
    """Packets drawn evenly for the rules of *chain*, as they traverse FORWARD."""
    from ..simulate.boundary_packets import draw_packets

    return draw_packets(routed(program, chain), "filter", CHAIN, count, 1)

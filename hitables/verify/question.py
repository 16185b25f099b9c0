"""What a comparison of two programs asks and answers, whoever compares them.

Three engines answer: exact.py (a proof, or a packet), diagrams.py (the same by decision
diagrams, a second opinion) and sampled.py (packets: refutes, never proves).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from hitables.errors import NotComparable, UnknownName
from hitables.ir.choices import Equivalence, Malformed, choose
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.packet_text import Answers, show_packet
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Ends, Kind, Rule
from hitables.ir.semantics import DROP, Step, Walk


@dataclass(frozen=True)
class Question:
    """What is to be compared, and how long it may take.

    malformed     STRICTER: the second program may drop packets with broken headers
    equivalence   VERDICT: leave aside effects that change nothing of the packet (LOG, counts)
    tables        these alone, and chains (built-in or user chains): all when empty
    timeout       seconds; None: as long as it takes
    max_memory    bytes; None: no bound
    """

    backends: tuple[Backend, ...] = tuple(Backend)
    malformed: Malformed = Malformed.STRICTER
    equivalence: Equivalence = Equivalence.FULL
    tables: frozenset[str] = frozenset()
    chains: frozenset[str] = frozenset()
    timeout: float | None = None
    max_memory: int | None = None

    def __post_init__(self) -> None:
        # The enums are strings: callers may write the words.
        object.__setattr__(self, "malformed", choose(Malformed, self.malformed))
        object.__setattr__(self, "equivalence", choose(Equivalence, self.equivalence))

    @property
    def verdict_only(self) -> bool:
        return self.equivalence is Equivalence.VERDICT


@dataclass(frozen=True)
class Equal:
    """No packet tells the two apart.  *proved* False: none of *looked_at* packets drawn did.

    looked_at  regions of the header space (a proof), or packets
    """

    proved: bool
    looked_at: int


@dataclass(frozen=True)
class Undecided:
    """The budget ran out.  *done*: the share of the packets of that chain that was decided."""

    reason: str
    table: str
    chain: str
    backend: Backend
    done: float


@dataclass(frozen=True)
class Difference:
    """Where two programs differ.  Without a packet, *reason* says it all.

    packet, answers  what went in, and what it said when it was asked for more than its header
    before, after    its ways through both
    """

    table: str
    chain: str
    reason: str
    backend: Backend | None = None
    packet: Packet | None = None
    answers: Answers | None = None
    before: Walk | None = None
    after: Walk | None = None

    def describe(self, names: tuple[str, str] = ("before", "after")) -> str:
        """The packet in words, as `--packet` takes it, and what each program does with it.

        *names*: what to call the two programs, say their files.
        """
        place = f"table {self.table}" + (f", chain {self.chain}" if self.chain else "")
        if self.packet is None or self.backend is None:
            return f"{place}: {self.reason}"
        return "\n".join([f"{place}, {self.backend.value}: {self.reason}", *self.describe_ways(names)])

    def describe_ways(self, names: tuple[str, str]) -> list[str]:
        """The lines of `describe` below the first: the packet, then its way through each program."""
        if self.packet is None:
            return []
        lines = [f"packet: {show_packet(self.packet, self.table, self.chain, self.answers)}"]
        for name, walk in zip(names, (self.before, self.after), strict=True):
            if walk is not None:
                lines.append(f"{name}: {walk.verdict}, rules read: {len(walk.steps)}")
                lines += _show_walk(walk, self.chain)
        return lines


Answer = Equal | Difference | Undecided


def with_all_tables(before: Program, after: Program) -> tuple[Program, Program]:
    """Both, where a table that stands in one only is in the other with policies ACCEPT and without rules."""
    return _with_tables_of(before, after), _with_tables_of(after, before)


def _with_tables_of(program: Program, other: Program) -> Program:
    known = {table.name for table in program}
    empty = [
        Table(table.name, tuple(Chain(chain.name, "ACCEPT") for chain in table.chains if chain.policy))
        for table in other
        if table.name not in known
    ]
    return replace(program, tables=(*program.tables, *empty)) if empty else program


def places(before: Program, after: Program, question: Question) -> list[tuple[str, str]]:
    """Table and chain of each pair of chains to be compared, in the order of *before*.

    NotComparable when the two cannot be compared: of two families, a table, a chain or an
    ipset that stands on one side only, an asked-for table or chain that stands on neither.
    """
    names = before.name, after.name
    if before.family is not after.family:
        raise NotComparable(
            f"{names[0]} is for IPv{int(before.family)}, {names[1]} for IPv{int(after.family)}: "
            "only rule sets of one family can be compared"
        )
    tables = [{table.name: table for table in program} for program in (before, after)]
    asked = question.tables or tables[0].keys() | tables[1].keys()
    found = []
    for table in sorted(asked, key=lambda name: list(tables[0]).index(name) if name in tables[0] else -1):
        _on_both(f"table {table}", [table in each for each in tables], names)
        chains = [
            {chain.name for chain in each[table].chains if chain.policy is not None or question.chains}
            for each in tables
        ]
        wanted = question.chains & (chains[0] | chains[1]) if question.chains else chains[0] | chains[1]
        order = [chain.name for each in tables for chain in each[table].chains]
        for chain in sorted(wanted, key=order.index):
            _on_both(f"table {table}: chain {chain}", [chain in each for each in chains], names)
            found.append((table, chain))
    for chain in question.chains - {chain for _, chain in found}:
        raise UnknownName(f"there is no chain {chain} in {names[0]} or {names[1]}")
    # Where verdicts alone count, rules that asked a set may have gone, all of them.
    missing = frozenset[str]() if question.verdict_only else _sets(before, asked) - _sets(after, asked)
    for name in sorted(missing | (_sets(after, asked) - _sets(before, asked))):
        _on_both(f"ipset {name}", [name in _sets(before, asked), name in _sets(after, asked)], names)
    return found


def _on_both(what: str, stands: list[bool], names: tuple[str, str]) -> None:
    if not all(stands):
        where = f"stands in {names[stands.index(True)]} only" if any(stands) else "stands in neither rule set"
        raise NotComparable(f"{what} {where}")


def _sets(program: Program, tables: Set[str]) -> set[str]:
    """The ipsets that the rules of *tables* name."""
    found: set[str] = set()
    for table in program:
        for chain in table.chains if table.name in tables else ():
            for rule in chain.rules:
                for match in rule.matches:
                    if match.name == "set":
                        found.update(_behind(match.words, "--match-set"))
                if rule.target is not None and rule.target.name == "SET":
                    for option in ("--add-set", "--del-set", "--map-set"):
                        found.update(_behind(rule.target.words, option))
    return found


def _behind(words: tuple[str, ...], option: str) -> Iterator[str]:
    return (after for word, after in pairwise(words) if word == option)


def differs(before: Walk, after: Walk, may_drop: bool, verdict_only: bool = False) -> str | None:
    """How two walks of one packet differ; None when they do not, or *after* may drop it and does."""
    was, now = (_lasting(walk) if verdict_only else walk.effects for walk in (before, after))
    if may_drop and after.verdict == DROP and was[: len(now)] == now:
        return None
    if before.verdict != after.verdict:
        return f"verdict {before.verdict} becomes {after.verdict}"
    if was != now:
        return f"effects {_list(was)} become {_list(now)}"
    return None


def _lasting(walk: Walk) -> tuple[str, ...]:
    """The effects that change something of the packet, or ask a match with memory or chance."""
    targets = (step.rule.target for step in walk.steps)
    silent = {
        f"fires {target.key}"
        for target in targets
        if target is not None and target.ends is Ends.NEVER and not target.writes
    }
    return tuple(effect for effect in walk.effects if effect != "counts" and effect not in silent)


def _list(effects: tuple[str, ...]) -> str:
    return ", ".join(effects) if effects else "(none)"


def decided_by(walk: Walk) -> Step | None:
    """The rule that ended the packet's way; None: it came to the end of the chain."""
    last = walk.steps[-1] if walk.steps else None
    if last is None or last.outcome is Outcome.DROPPED:
        return last
    target = last.rule.target
    ends = target is not None and target.kind is Kind.VERDICT and target.ends is Ends.SURELY
    return last if ends and last.outcome is Outcome.YES else None


def _show_walk(walk: Walk, chain: str) -> list[str]:
    """The rules that matched, by line; those that did not are counted."""
    lines: list[str] = []
    passed = 0
    for step in walk.steps:
        if step.outcome is Outcome.NO:
            passed += 1
            continue
        if passed:
            lines.append(f"  … {passed} that do not match")
            passed = 0
        place = f"line {step.rule.line}" if step.rule.line else f"rule {step.index + 1}"
        dropped = " drops it" if step.outcome is Outcome.DROPPED else ""
        lines.append(f"  {place}: -A {step.chain} {show_rule(step.rule)}{dropped}")
    if passed:
        lines.append(f"  … {passed} that do not match")
    if decided_by(walk) is None:
        lines.append(f"  end of {chain}: {walk.verdict}")
    return lines


def show_rule(rule: Rule) -> str:
    """A rule for people to read; emit/ prints it for iptables."""
    words = []
    for match in rule.matches:
        words += [*(["-m", match.name] if match.name else []), *match.words]
    if rule.target is not None:
        words += ["-g" if rule.target.kind is Kind.GOTO else "-j", rule.target.name, *rule.target.words]
    return " ".join(word if word and " " not in word else f'"{word}"' for word in words)

"""Questions about two programs and their answers, common to all engines that compare programs.

Three engines answer: exact.py (a proof, or a packet), bdd.py (the same by decision diagrams, a second
opinion) and simulate/sampling.py (packets: it refutes, and never proves).

Invariant: this module compares nothing but two walks of one packet (`differs`); both proof engines confirm
every packet with it, so it is part of what they share (docs/proof.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

from hitables.errors import NotComparable, UnknownName
from hitables.ir.answers import Answers
from hitables.ir.choices import Equivalence, Malformed, choose
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.packet_text import show_packet
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Ends, Kind, Rule
from hitables.ir.semantics import DROP, Step, Walk
from hitables.ir.set_counters import counted_alike


@dataclass(frozen=True)
class Question:
    """What to compare, and how long it may take.

    malformed     STRICTER: the second program may drop packets with broken headers
    equivalence   VERDICT: ignore effects that change nothing of the packet (LOG, counts)
    tables        only these; all when empty
    chains        only these, built-in or user chains; all built-in chains when empty
    entered       user chains (table, name) that packets enter from chains that are not looked at; where both
                  programs have them, they are compared as built-in chains are
    timeout       seconds; None: no limit
    processor     seconds of this process's processor time; None: no limit
    each_class    seconds of processor time for each class of packets of a chain (exact.py); None: no limit
    max_memory    bytes; None: no limit
    sure_answers  leave out what no packet gets: other answers than those that are the same for each
                  (ir/sure_answers.py); read by exact.py alone
    """

    backends: tuple[Backend, ...] = tuple(Backend)
    malformed: Malformed = Malformed.STRICTER
    _: KW_ONLY
    equivalence: Equivalence = Equivalence.FULL
    tables: frozenset[str] = frozenset()
    chains: frozenset[str] = frozenset()
    entered: frozenset[tuple[str, str]] = frozenset()
    timeout: float | None = None
    processor: float | None = None
    each_class: float | None = None
    max_memory: int | None = None
    sure_answers: bool = False

    def __post_init__(self) -> None:
        # The enums are strings: callers may write the words.
        object.__setattr__(self, "malformed", choose(Malformed, self.malformed))
        object.__setattr__(self, "equivalence", choose(Equivalence, self.equivalence))

    @property
    def verdict_only(self) -> bool:
        return self.equivalence is Equivalence.VERDICT


@dataclass(frozen=True)
class ByRegions:
    """A chain that seems to be printed by groups, but was compared by cutting the header space; *why*.

    That may take much time and memory (docs/decisions/regrouping.md).
    """

    table: str
    chain: str
    why: str


@dataclass(frozen=True)
class Equal:
    """No difference: a proof, or (*proved* False) no difference among the packets that were tried.

    looked_at   regions of the header space (a proof), or packets
    by_regions  chains that were not proved by their groups though they seem to have some
    real_only   packets that no kernel has (ir/unreal.py) are treated differently
    """

    proved: bool
    looked_at: int
    by_regions: tuple[ByRegions, ...] = ()
    real_only: bool = False


@dataclass(frozen=True)
class Undecided:
    """The budget ran out.  *done*: the share of the packets of that chain that is decided."""

    reason: str
    table: str
    chain: str
    backend: Backend
    done: float
    by_regions: tuple[ByRegions, ...] = ()


# For a rule that was read: the rule of the source that it is a copy of, as text; "" if that is unknown.
Origin = Callable[[Step], str]


def _unknown(step: Step) -> str:
    return ""


@dataclass(frozen=True)
class Difference:
    """Where two programs differ.  Without a packet, *reason* is the whole explanation.

    packet, answers  the packet, and its answers when rules ask for more than its header
    before, after    its walks through both programs
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
        """The packet in the format of `--packet`, and what each program does with it.

        *names*: of the two programs, for example their files.
        """
        where = f"table {self.table}" + (f", chain {self.chain}" if self.chain else "")
        if self.packet is None or self.backend is None:
            return f"{where}: {self.reason}"
        return "\n".join([f"{where}, {self.backend.value}: {self.reason}", *self.describe_ways(names)])

    def describe_ways(
        self, names: tuple[str, str], origins: tuple[Origin, Origin] = (_unknown, _unknown)
    ) -> list[str]:
        """The lines of `describe` below the first: the packet, then its walk through each program.

        *origins*: where the rules of each program come from.
        """
        if self.packet is None:
            return []
        lines = [f"packet: {show_packet(self.packet, self.table, self.chain, self.answers)}"]
        for name, walk, origin in zip(names, (self.before, self.after), origins, strict=True):
            if walk is not None:
                lines.append(f"{name}: {walk.verdict}, rules read: {len(walk.steps)}")
                lines += _show_walk(walk, self.chain, origin)
        return lines


Answer = Equal | Difference | Undecided


def comparable(before: Program, after: Program) -> tuple[Program, Program]:
    """Both programs; each match of an ipset has memory in both or in none (ir/set_counters.py).

    A table that only one has is added to the other, without rules.  Its policies are ACCEPT, as in a kernel
    that never had the table, or `-` where the table has that: to load no such table leaves the policies, too.
    """
    return counted_alike(_with_tables_of(before, after), _with_tables_of(after, before))


def _with_tables_of(program: Program, other: Program) -> Program:
    names = {table.name for table in program}
    empty = [
        Table(
            table.name,
            tuple(Chain(chain.name, "ACCEPT", kept=chain.kept) for chain in table.chains if chain.policy),
        )
        for table in other
        if table.name not in names
    ]
    return replace(program, tables=(*program.tables, *empty)) if empty else program


def chain_pairs(before: Program, after: Program, question: Question) -> list[tuple[str, str]]:
    """Table and chain of each pair of chains to compare, in the order of *before*.

    NotComparable when the two cannot be compared: they are of two families, only one has a table or a chain,
    or neither has a table or chain of the question.
    """
    names = before.name, after.name
    if before.family is not after.family:
        raise NotComparable(
            f"{names[0]} is for IPv{int(before.family)}, {names[1]} for IPv{int(after.family)}: "
            "only rule sets of one family can be compared, or of both with --across-families; where this is "
            "guessed wrongly, --family names it"
        )
    tables = [{table.name: table for table in program} for program in (before, after)]
    asked = question.tables or tables[0].keys() | tables[1].keys()
    pairs = []
    for table in sorted(asked, key=lambda name: list(tables[0]).index(name) if name in tables[0] else -1):
        _on_both(f"table {table}", [table in each for each in tables], names)
        chains = [
            {chain.name for chain in each[table].chains if chain.policy is not None or question.chains}
            for each in tables
        ]
        if not question.chains:
            entered = {name for place, name in question.entered if place == table}
            entered &= tables[0][table].by_name().keys() & tables[1][table].by_name().keys()
            chains = [each | entered for each in chains]
        wanted = question.chains & (chains[0] | chains[1]) if question.chains else chains[0] | chains[1]
        order = [chain.name for each in tables for chain in each[table].chains]
        for chain in sorted(wanted, key=order.index):
            _on_both(f"table {table}: chain {chain}", [chain in each for each in chains], names)
            pairs.append((table, chain))
    for chain in question.chains - {chain for _, chain in pairs}:
        raise UnknownName(f"there is no chain {chain} in {names[0]} or {names[1]}")
    return pairs


def _on_both(name: str, present: list[bool], names: tuple[str, str]) -> None:
    if not all(present):
        where = f"only in {names[present.index(True)]}" if any(present) else "in neither rule set"
        raise NotComparable(f"{name} is {where}")


def differs(before: Walk, after: Walk, may_drop: bool, verdict_only: bool = False) -> str | None:
    """How two walks of one packet differ; None when they do not, or *after* may drop it and does."""
    earlier, later = (_lasting(walk) if verdict_only else walk.effects for walk in (before, after))
    if may_drop and after.verdict == DROP and earlier[: len(later)] == later:
        return None
    if before.verdict != after.verdict:
        return f"verdict {before.verdict} becomes {after.verdict}"
    if earlier != later:
        return f"effects {_list(earlier)} become {_list(later)}"
    return None


def _lasting(walk: Walk) -> tuple[str, ...]:
    """The effects that change the packet, or evaluate a match with memory or chance."""
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
    """The rule that ended the packet's walk; None: it reached the end of the chain."""
    last = walk.steps[-1] if walk.steps else None
    if last is None or last.outcome is Outcome.DROPPED:
        return last
    return last if last.rule.is_final and last.outcome is Outcome.YES else None


def _show_walk(walk: Walk, chain: str, origin: Origin) -> list[str]:
    """The rules that matched, by line, and how many did not match in between."""
    lines: list[str] = []
    passed = 0
    for step in walk.steps:
        if step.outcome is Outcome.NO:
            passed += 1
            continue
        if passed:
            lines.append(f"  … {passed} that do not match")
            passed = 0
        where = f"line {step.rule.line}" if step.rule.line else f"rule {step.index + 1}"
        dropped = " drops it" if step.outcome is Outcome.DROPPED else ""
        lines.append(f"  {where}: -A {step.chain} {show_rule(step.rule)}{dropped}")
        source = origin(step)
        if source:
            lines.append(f"    {source}")
    if passed:
        lines.append(f"  … {passed} that do not match")
    if decided_by(walk) is None:
        lines.append(f"  end of {chain}: {walk.verdict}")
    return lines


def show_rule(rule: Rule) -> str:
    """A rule for people to read (emit/ prints rules for iptables)."""
    words = []
    for match in rule.matches:
        words += [*(["-m", match.name] if match.name else []), *match.words]
    if rule.target is not None:
        words += ["-g" if rule.target.kind is Kind.GOTO else "-j", rule.target.name, *rule.target.words]
    return " ".join(word if word and " " not in word else f'"{word}"' for word in words)


# The end of a built-in chain whose policy is `-`: whatever policy the kernel has.
KERNEL_POLICY = "the kernel's policy (-)"


def with_open_policies(table: Table) -> Table:
    """*table*, in which chains whose policy is `-` end with KERNEL_POLICY, which is equal to no verdict.

    iptables-restore leaves such a policy as it is (iptables-nft-restore does so with --noflush, and else sets
    ACCEPT), so the kernel that is asked decides these packets, and no text.
    """
    if not any(chain.kept for chain in table.chains):
        return table
    return table.of({chain.name: _with_open_policy(chain) for chain in table.chains})


def _with_open_policy(chain: Chain) -> Chain:
    return replace(chain, policy=KERNEL_POLICY, kept=False) if chain.kept else chain

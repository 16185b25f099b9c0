"""The result of compiling: the new program, and for each chain a report of what was done and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..emit.sourcemap import Gone
from ..ir.program import Chain, Program


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What was done to one chain.

    before, after   rules of the chain; rules of it and of the new chains made for it
    read_before, read_after   mean rules read by packets of its rules, weighted as the rules are
    ns_before, ns_after       their modelled cost in nanoseconds, by name of each backend compiled for
    longest         most rules that a packet can read in the tree
    nesting         most chains nested below it
    built           CPU seconds for building its trees
    why             why it got no tree; "" when it was compiled
    gone            number of removed rules, which affect no verdict
    hot             hot rules in front of its tree; ns_after and read_after are modelled with them
    hot_at          the index of the first of them in the chain
    returns         rules whose RETURN is printed as the policy of the chain (policy_returns.py)
    gated           whether a tree only turns away packets of no rule (build/gate.py).  Half of the packets
                    whose means read_* and ns_* are, are then of no rule
    """

    table: str
    chain: str
    before: int
    after: int
    read_before: float
    read_after: float
    longest: int
    nesting: int
    why: str
    built: float = 0.0
    ns_before: Mapping[str, float] = field(default_factory=dict)
    ns_after: Mapping[str, float] = field(default_factory=dict)
    gone: int = 0
    hot: int = 0
    hot_at: int = 0
    returns: int = 0
    gated: bool = False


# Of such rules a tree may change which is loaded first; that is no fault.
MIXED = "its rules share a memory by name with others of other parameters, and the first loaded counts"


@dataclass(frozen=True, slots=True)
class ChainFault:
    """A chain that is left as it was because of a fault in hitables.

    why     one line
    detail  lines that describe the fault: a packet and its paths, or where the program broke off
    left    how the chain is printed
    """

    table: str
    chain: str
    why: str
    detail: str = ""
    left: str = "unchanged"


@dataclass(frozen=True, slots=True)
class Compiled:
    """The new program, and what was done.

    origins  by table and name of each new chain: the chain that it was made for
    gone     the rules that were removed
    """

    program: Program
    origins: dict[tuple[str, str], str] = field(default_factory=dict)
    reports: tuple[ChainReport, ...] = ()
    gone: tuple[Gone, ...] = ()
    faults: tuple[ChainFault, ...] = ()

    def changed(self) -> list[tuple[str, str]]:
        """Table and name of each chain that has a tree, or lost rules."""
        return [(each.table, each.chain) for each in self.reports if not each.why or each.gone]

    def without_hot(self, fault: ChainFault) -> Compiled | None:
        """The same result without hot rules in the chain of *fault*; None when it has none."""
        place = fault.table, fault.chain
        report = next((each for each in self.reports if (each.table, each.chain) == place), None)
        if report is None or not report.hot:
            return None
        tables = []
        for table in self.program:
            if table.name == fault.table:
                rules = table[fault.chain].rules
                rules = (*rules[: report.hot_at], *rules[report.hot_at + report.hot :])
                chains = tuple(
                    each.with_rules(rules) if each.name == fault.chain else each for each in table.chains
                )
                table = replace(table, chains=chains)
            tables.append(table)
        plain = replace(report, after=report.after - report.hot, hot=0)
        return replace(
            self,
            program=replace(self.program, tables=tuple(tables)),
            reports=tuple(plain if each is report else each for each in self.reports),
            faults=(*self.faults, replace(fault, left="without hot rules")),
        )

    def leaving(self, source: Program, fault: ChainFault) -> Compiled:
        """The same result with the chain of *fault* as in *source*, without the chains made for it."""
        place = fault.table, fault.chain
        before = source.table(fault.table)[fault.chain]
        is_fault = fault.why != MIXED
        added = {name for (table, name), chain in self.origins.items() if (table, chain) == place}
        tables = []
        for table in self.program:
            if table.name == fault.table:
                others = (each for each in table.chains if each.name not in added)
                table = replace(
                    table, chains=tuple(before if each.name == fault.chain else each for each in others)
                )
            tables.append(table)
        return Compiled(
            replace(self.program, tables=tuple(tables)),
            {key: chain for key, chain in self.origins.items() if (key[0], chain) != place},
            tuple(
                left_alone(each.table, before, f"left as it was: {fault.why}" if is_fault else MIXED)
                if (each.table, each.chain) == place
                else each
                for each in self.reports
            ),
            tuple(each for each in self.gone if (each.table, each.chain) != place),
            (*self.faults, fault) if is_fault else self.faults,
        )


def left_alone(table: str, chain: Chain, why: str, remaining: Chain | None = None) -> ChainReport:
    """The report of a chain without a tree; *remaining*: the chain without its removed rules."""
    count, stay = len(chain.rules), len((remaining or chain).rules)
    return ChainReport(table, chain.name, count, stay, 0.0, 0.0, stay, 0, why, gone=count - stay)

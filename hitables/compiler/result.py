"""What compiling gives: the new program, and a report for each chain of what was done and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..emit.sourcemap import Gone
from ..ir.program import Chain, Program


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What was done to one chain.

    before, after   rules in the chain; rules of it and of the chains made for it
    read_before, read_after   mean rules read, each rule's packets weighing as the rule does
    ns_before, ns_after       what that costs by the model, per backend that it was compiled for, by name
    longest         most rules that a packet can read in the tree
    nesting         most chains nested below it
    built           CPU seconds that building its trees took
    why             why it got no tree; "" when it was compiled
    gone            rules that went, as no verdict depends on them
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


@dataclass(frozen=True, slots=True)
class Fault:
    """A chain that is left as it was because of a fault in hitables.

    why     one line
    detail  what tells the fault, in lines: a packet and its ways, or where the program broke off
    """

    table: str
    chain: str
    why: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The new program, the origin of each chain made for it, the reports, the rules that went, the faults."""

    program: Program
    origins: dict[tuple[str, str], str] = field(default_factory=dict)
    reports: tuple[ChainReport, ...] = ()
    gone: tuple[Gone, ...] = ()
    faults: tuple[Fault, ...] = ()

    def changed(self) -> list[tuple[str, str]]:
        """Table and name of each chain that has a tree now, or lost rules."""
        return [(each.table, each.chain) for each in self.reports if not each.why or each.gone]

    def leaving(self, source: Program, fault: Fault) -> Compiled:
        """The same, with the fault's chain as it is in *source*, and without the chains made for it."""
        place = fault.table, fault.chain
        before = source.table(fault.table)[fault.chain]
        made = {name for (table, name), chain in self.origins.items() if (table, chain) == place}
        tables = []
        for table in self.program:
            if table.name == fault.table:
                kept = (each for each in table.chains if each.name not in made)
                table = replace(
                    table, chains=tuple(before if each.name == fault.chain else each for each in kept)
                )
            tables.append(table)
        return Compiled(
            replace(self.program, tables=tuple(tables)),
            {key: chain for key, chain in self.origins.items() if (key[0], chain) != place},
            tuple(
                left_alone(each.table, before, f"left as it was: {fault.why}")
                if (each.table, each.chain) == place
                else each
                for each in self.reports
            ),
            tuple(each for each in self.gone if (each.table, each.chain) != place),
            (*self.faults, fault),
        )


def left_alone(table: str, chain: Chain, why: str, left: Chain | None = None) -> ChainReport:
    """The report of a chain without a tree; *left*: what is left of it when rules went."""
    count, stay = len(chain.rules), len((left or chain).rules)
    return ChainReport(table, chain.name, count, stay, 0.0, 0.0, stay, 0, why, gone=count - stay)

"""Programs: the content of one iptables-save text.

A `Program` is a tuple of tables, a table a tuple of chains, a chain a tuple of rules.  All are immutable; a
compiled program is a new one that shares its unchanged rules with the input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ..errors import UnknownName
from .fields import Family
from .rule import Metadata, Rule

# The built-in chains of each table of iptables 1.8.9.
BUILT_IN = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "raw": ("PREROUTING", "OUTPUT"),
    "security": ("INPUT", "FORWARD", "OUTPUT"),
}


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain.  *policy*: ACCEPT or DROP for a built-in chain, None for a user chain.

    declared  False: a built-in chain that the text does not name
    kept      the text gives a built-in chain the policy "-": legacy then keeps the current one
    """

    name: str
    policy: str | None
    rules: tuple[Rule, ...] = ()
    counters: tuple[int, int] | None = None
    line: int = 0
    notes: tuple[str, ...] = ()
    declared: bool = True
    kept: bool = False

    @property
    def end(self) -> str | None:
        """The verdict of a packet at the end of the chain; None: its caller, or the kernel, decides it."""
        return None if self.kept else self.policy

    def with_rules(self, rules: tuple[Rule, ...]) -> Chain:
        return replace(self, rules=rules)

    def callees(self) -> list[str]:
        """The user chain that each rule enters, in order, without rules that enter none."""
        return [name for rule in self.rules if (name := rule.enters) is not None]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; *chains* in the order of their declarations."""

    name: str
    chains: tuple[Chain, ...]
    line: int = 0
    notes: tuple[str, ...] = ()
    closing: tuple[str, ...] = ()  # comment lines before COMMIT
    # Earlier tables of this name in the text, whose rules are lost: line and number of rules of each.
    replaced: tuple[tuple[int, int], ...] = field(default=(), repr=False, compare=False)
    _by_name: dict[str, Chain] = field(init=False, repr=False, compare=False)
    # Kept once asked for: several stages ask.
    _entered: dict[str, tuple[str, ...]] | None = field(default=None, init=False, repr=False, compare=False)
    _acyclic: bool | None = field(default=None, init=False, repr=False, compare=False)
    _written: frozenset[Metadata] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {chain.name: chain for chain in self.chains})

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Chain:
        """The chain called *name*; KeyError when there is none."""
        return self._by_name[name]

    def by_name(self) -> dict[str, Chain]:
        """The chains by name, in their order."""
        return dict(self._by_name)

    def of(self, chains: dict[str, Chain]) -> Table:
        """The table with *chains*, by name, in place of its own."""
        table = copy(self)
        object.__setattr__(table, "chains", tuple(chains.values()))
        object.__setattr__(table, "_by_name", dict(chains))
        object.__setattr__(table, "_entered", None)
        object.__setattr__(table, "_acyclic", None)
        object.__setattr__(table, "_written", None)
        return table

    def entered(self) -> Mapping[str, tuple[str, ...]]:
        """By chain the names that its rules enter, each once, in the order of the rules."""
        if self._entered is None:
            object.__setattr__(self, "_entered", {chain.name: _entered_by(chain) for chain in self.chains})
        assert self._entered is not None
        return self._entered

    def is_acyclic(self) -> bool:
        """Whether no chain leads back to itself; chains that no packet reaches count, too."""
        if self._acyclic is None:
            object.__setattr__(self, "_acyclic", is_acyclic(self.entered()))
        return bool(self._acyclic)

    def states_written(self) -> frozenset[Metadata]:
        """The states that the rules of the table may write."""
        if self._written is None:
            object.__setattr__(self, "_written", _states_written(self))
        assert self._written is not None
        return self._written

    def rule_count(self) -> int:
        return sum(len(chain.rules) for chain in self.chains)

    def callers_first(self, start: str) -> list[str]:
        """The chains that *start* reaches, itself included, each after all chains that enter it.

        The chains that it reaches must exist, and must not jump in a circle.
        """
        callees_first: list[str] = []
        seen = {start}
        path = [(start, self[start].callees())]
        while path:
            name, rest = path[-1]
            if not rest:
                callees_first.append(name)
                path.pop()
            elif (callee := rest.pop()) not in seen:
                seen.add(callee)
                path.append((callee, self[callee].callees()))
        return callees_first[::-1]


def _entered_by(chain: Chain) -> tuple[str, ...]:
    # Rules share their targets: of 10,000 rules most have one of a few.
    targets = list(map(attrgetter("target"), chain.rules))
    distinct = dict(zip(map(id, targets), targets, strict=True)).values()
    return tuple(dict.fromkeys(target.name for target in distinct if target is not None and target.enters))


@dataclass(frozen=True, slots=True)
class Program:
    """One rule set of one family; *name*: the file that it was read from.

    *counts_sets*: each match of an ipset has memory, since a rule reads counters of ipsets (set_counters.py).
    """

    family: Family
    tables: tuple[Table, ...]
    name: str = "-"
    closing: tuple[str, ...] = ()  # comment lines after the last COMMIT
    counts_sets: bool = False

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables)

    def table(self, name: str) -> Table:
        """The table called *name*; KeyError when there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    def find(self, table: str) -> Table | None:
        """The table called *table*; None when there is none."""
        return next((each for each in self.tables if each.name == table), None)

    def find_chain(self, table: str, chain: str) -> Chain | None:
        """The chain called *chain* of *table*; None when there is none."""
        found = self.find(table)
        return found[chain] if found is not None and chain in found else None

    def rules_of(self, table: str, chain: str) -> tuple[Rule, ...]:
        """The rules of the chain called *chain* of *table*; () when there is none."""
        found = self.find_chain(table, chain)
        return found.rules if found is not None else ()

    def rules(self) -> Iterator[Rule]:
        """All rules, table by table and chain by chain."""
        return (rule for table in self.tables for chain in table.chains for rule in chain.rules)

    def rule_count(self) -> int:
        return sum(table.rule_count() for table in self.tables)


def with_undeclared_kept(program: Program, kept: bool = True) -> Program:
    """*program*, in which built-in chains that the text does not name keep the policy of the kernel.

    Elsewhere (*kept* False) they have ACCEPT, as in a new table; legacy leaves their policies as they are.
    """
    if all(chain.declared for table in program for chain in table.chains):
        return program
    tables = []
    for table in program:
        own = [chain if chain.declared else replace(chain, kept=kept) for chain in table.chains]
        tables.append(table.of({chain.name: chain for chain in own}))
    return replace(program, tables=tuple(tables))


def check_names(program: Program, tables: Collection[str], chains: Collection[str]) -> None:
    """UnknownName for one of *tables* that does not exist, and one of *chains* that none of these tables has.

    Without *tables*, for a chain that no table has.
    """
    for name in sorted(tables):
        if all(table.name != name for table in program):
            raise UnknownName(f"{program.name}: there is no table {name}")
    asked = [table for table in program if not tables or table.name in tables]
    for name in sorted(chains):
        if all(name not in table for table in asked):
            where = f" in table {', '.join(sorted(tables))}" if tables else ""
            hint = near_chain(name, asked)
            raise UnknownName(f"{program.name}: there is no chain {name}{where}{hint}")


def near_chain(name: str, tables: Collection[Table]) -> str:
    """The hint "; did you mean CHAIN?" at the chain of *tables* that *name* resembles; "" if none does."""
    import difflib  # which few calls need

    known = {chain.name: None for table in tables for chain in table.chains}
    equal = [each for each in known if each.upper() == name.upper()]
    near = equal or difflib.get_close_matches(name, known, 1, 0.75)
    return f"; did you mean {near[0]}?" if near else ""


def is_acyclic(after: Mapping[str, Collection[str]]) -> bool:
    """Whether no path leads from a name back to it.  *after*: by name those that follow it; of a name that
    it does not have, none.

    A fraction of the time of graphlib, which also finds the circle.
    """
    before = dict.fromkeys(after, 0)
    for names in after.values():
        for name in names:
            before[name] = before.get(name, 0) + 1
    free = [name for name, count in before.items() if not count]
    for each in free:  # which grows
        for name in after.get(each, ()):
            before[name] -= 1
            if not before[name]:
                free.append(name)
    return len(free) == len(before)


def without_circles(table: Table) -> Table:
    """The table without circles of jumps that no packet reaches: their jumps lose their target.

    The kernel accepts such chains, since no packet reads them.  A circle that packets reach stays.
    """
    if table.is_acyclic():
        return table
    after = {
        name: {other for other in entered if other in table} for name, entered in table.entered().items()
    }
    reached = {chain.name for chain in table.chains if chain.policy is not None}
    waiting = list(reached)
    while waiting:
        new = after[waiting.pop()] - reached
        reached |= new
        waiting += new
    # Remove chains that enter no chain of a possible circle, again and again; the circles remain.
    circles = {name: set(others) for name, others in after.items() if name not in reached}
    while ends := {name for name, others in circles.items() if not others & circles.keys()}:
        for name in ends:
            del circles[name]
    cut = {}
    for name in circles:
        rules = (
            rule._replace(target=None) if rule.target is not None and rule.target.name in circles else rule
            for rule in table[name].rules
        )
        cut[name] = table[name].with_rules(tuple(rules))
    return table.of({**table.by_name(), **cut})


def _states_written(table: Table) -> frozenset[Metadata]:
    matches = {id(match): match for chain in table.chains for rule in chain.rules for match in rule.matches}
    targets = {id(rule.target): rule.target for chain in table.chains for rule in chain.rules}
    by_matches = (match.writes for match in matches.values())
    return frozenset().union(*by_matches, *(Rule((), target).writes for target in targets.values()))

"""The layout of compiled chains: sections, shared chains, and the entries in front of trees.

A chain of the master list is compiled as *sections*, each a run of its rules with a tree, or read
one by one.  A rule whose memory must exist once gets a *shared chain* of its own, which trees and
overlays enter by `-j`.  A rule with memory that may leave its chain (RETURN, -g) cannot be entered so:
it begins a section of its own, entered by `-g`, with its own entries behind that rule.  Memories
therefore stay in their chains through patches and folds.  The rules up to the last jump to a foreign chain
are a section without a tree in the chain itself: the program that inserted the jump will look for it there,
and delete it by its text.

Invariants: the *list* of a section is its master rules, with stand-ins for shared rules and a `-g` to
the next section at the end; reading the section's chain has the effect of reading its list.  The chain
of a section with a tree begins with the section's rule with memory, if there is one, followed by the
tree.  *Entries* are rules in front of the tree or inside it; their chain is then an *entry chain*.
Of two entries that may match one packet the newer one is read first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hitables.emit.chain_writer import goto
from hitables.emit.jumps import stand_in
from hitables.ir.program import Chain, Table
from hitables.ir.rule import EVERYTHING, Ends, Kind, Rule, Target, leaves_chain

from .chain_names import ChainNames, GeneratedNames
from .edits import jumps_to
from .settings import Settings

ChainId = tuple[str, str]  # table, chain


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry in front of a tree, or of a part of it.

    row              its index in the chain that holds it
    overlay          the chain that it leads to; "" if the entry itself decides about its packets
    rank_in_overlay  if the entry expresses the insertion of one rule only: the index of that rule in the
                     overlay (the number of rules before it that concern the entry's region); else None
    cost             additional rules that an average packet reads because of it, in thousandths
    hot              it is a copy of a rule of the list that decides many packets (hot_rules.py), and
                     expresses no update; it leads to no overlay and costs nothing
    """

    row: int
    overlay: str
    rank_in_overlay: int | None
    cost: int
    hot: bool = False


@dataclass(frozen=True, slots=True)
class EntryChain:
    """A chain in the tree of *section* that holds entries, in the order of their rows."""

    section: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """*size* rules of a master chain, loaded in chain *name*, as a *tree* or one by one."""

    name: str
    size: int
    tree: bool


@dataclass(frozen=True, slots=True)
class ChainLayout:
    """The sections of a master chain.

    shared   index of each shared rule and its chain, in order
    updates  of sections with trees since these were grown; counted only with `Settings.max_updates`
    """

    sections: tuple[Section, ...]
    shared: tuple[tuple[int, str], ...] = ()
    updates: int = 0

    def fixed_chains(self) -> set[str]:
        """The generated chains of the layout that are neither tree nor overlay."""
        return {section.name for section in self.sections[1:]} | {name for _, name in self.shared}


# Lists of sections.


def begins_section(rule: Rule) -> bool:
    """Whether the rule can neither be copied nor be entered by -j."""
    return rule.has_memory and leaves_chain(rule)


def section_lists(chain: Chain, layout: ChainLayout) -> list[tuple[Rule, ...]]:
    """The list of each section of *chain*."""
    shared = dict(layout.shared)
    rules = [stand_in(rule, shared[at]) if at in shared else rule for at, rule in enumerate(chain.rules)]
    lists, start = [], 0
    for section, following in itertools.zip_longest(layout.sections, layout.sections[1:]):
        own = rules[start : start + section.size]
        start += section.size
        lists.append((*own, Rule((), goto(following.name))) if following else tuple(own))
    return lists


def fixed_rules(rules: Sequence[Rule], settings: Settings) -> int:
    """How many of *rules* stay in their chain as they are: those up to the last jump to a foreign chain."""
    return next((at for at in range(len(rules), 0, -1) if settings.is_foreign(jumps_to(rules[at - 1]))), 0)


def divide(chain: Chain, old: ChainLayout | None, names: ChainNames, settings: Settings) -> ChainLayout:
    """Sections and shared chains for all rules of *chain*; those of *old* keep their names."""
    fixed = fixed_rules(chain.rules, settings)
    old_shared = dict(old.shared) if old else {}
    old_starts: dict[int, str] = {}
    if old:
        ends = itertools.accumulate(section.size for section in old.sections)
        old_starts = {end: section.name for end, section in zip(ends, old.sections[1:], strict=False)}
    sections, shared = [Section(chain.name, 0, False)], []
    for at, rule in enumerate(chain.rules):
        if at and (at == fixed or (at > fixed and begins_section(rule))):
            sections.append(Section(old_starts.get(at) or names.next(), 0, False))
        if rule.has_memory and not begins_section(rule) and not settings.is_foreign(jumps_to(rule)):
            shared.append((at, old_shared.get(at) or names.next()))
        sections[-1] = replace(sections[-1], size=sections[-1].size + 1)
    return ChainLayout(tuple(sections), tuple(shared))


# Chains of a loaded table.


def fixed_chains(layouts: Iterable[ChainLayout | None]) -> set[str]:
    """The section chains and shared chains of all *layouts*."""
    return set().union(*(layout.fixed_chains() for layout in layouts if layout is not None))


def tree_chains(table: Table, layout: ChainLayout, names: GeneratedNames) -> set[str]:
    """The chains of the layout's trees and overlays; those of a section whose chain is gone are left out."""
    fixed = layout.fixed_chains()
    chains: set[str] = set()
    pending = [section.name for section in layout.sections if section.tree and section.name in table]
    while pending:
        for rule in table[pending.pop()].rules:
            name = jumps_to(rule)
            if names.is_generated(name) and name not in fixed and name not in chains:
                chains.add(name)
                pending.append(name)
    return chains


def unreachable_chains(table: Table, keep: set[str], names: GeneratedNames) -> list[str]:
    """The generated chains that no packet can enter, except those of *keep*."""
    pending = [
        chain.name for chain in table.chains if not names.is_generated(chain.name) or chain.name in keep
    ]
    reachable = set(pending)
    while pending:
        for rule in table[pending.pop()].rules:
            name = jumps_to(rule)
            if name and name not in reachable:
                reachable.add(name)
                pending.append(name)
    return [chain.name for chain in table.chains if chain.name not in reachable]


# Foreign chains: those that other programs manage.  Their effect is unknown.
FOREIGN = Target("chains-of-others", Kind.VERDICT, "chains-of-others", ends=Ends.MAYBE, writes=EVERYTHING)


def hide_foreign(table: Table, settings: Settings) -> Table:
    """The table with one rule of unknown effect in each foreign chain."""
    if not any(settings.is_foreign(chain.name) for chain in table.chains):
        return table
    return replace(
        table,
        chains=tuple(
            chain.with_rules((Rule((), FOREIGN),)) if settings.is_foreign(chain.name) else chain
            for chain in table.chains
        ),
    )

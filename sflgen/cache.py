"""Items derived from a state, kept from plan to plan so that an update does not compute them anew.

Invariant: every item can be computed from the state alone, so a state with an empty cache gives the
same plans.  A plan works on a copy and hands it to the state after it.  It
drops the items of sections and chains that it rebuilds.  `rows` alone is shared by all copies: it only
grows, and its items belong to rule objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hitables.ir.fields import Family

from .copy_index import CopyIndex
from .layout import ChainId
from .region import Region
from .rule_index import RuleIndex
from .rule_rows import RuleRows

SectionId = tuple[str, str]  # table, section


@dataclass(slots=True)
class Cache:
    """What is derived from a state, and kept for the next plan.

    nesting       by table: how many chains nest above each loaded chain
    rule_indexes  by section: its list, indexed by header fields
    copy_indexes  by section: the chains of its tree that hold each rule
    entry_costs   by section: the sum of the costs of its entries
    regions       by loaded chain: the region of each entry in it
    last_names    by table and range of names: the greatest number in use; forgotten when chains are removed
    rows          rules as rows of arrays; None: not needed yet
    """

    nesting: dict[str, dict[str, int]] = field(default_factory=dict)
    rule_indexes: dict[SectionId, RuleIndex] = field(default_factory=dict)
    copy_indexes: dict[SectionId, CopyIndex] = field(default_factory=dict)
    entry_costs: dict[SectionId, int] = field(default_factory=dict)
    regions: dict[ChainId, tuple[Region, ...]] = field(default_factory=dict)
    last_names: dict[tuple[str, int], int] = field(default_factory=dict)
    rows: RuleRows | None = None

    def copy(self) -> Cache:
        """A cache whose items can be replaced without a change of this one."""
        return Cache(
            dict(self.nesting),
            dict(self.rule_indexes),
            dict(self.copy_indexes),
            dict(self.entry_costs),
            dict(self.regions),
            dict(self.last_names),
            self.rows,
        )

    def rule_rows(self, family: Family) -> RuleRows:
        """The table of rules, which all states share."""
        if self.rows is None or self.rows.is_large:
            self.rows = RuleRows(family)
        return self.rows

    def drop_section(self, section: SectionId) -> None:
        """Forget a section whose tree is grown anew."""
        for items in (self.rule_indexes, self.copy_indexes, self.entry_costs):
            items.pop(section, None)

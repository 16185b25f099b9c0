"""The rules of a confirmed record as the next boot should load them.

At boot the chains of other programs do not exist: their programs make them when they start, and add their
jumps then.  So the text for the boot has neither these chains nor the rules that enter them; a text that
enters a chain which does not exist would be refused as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..errors import HitablesError
from ..ir.fields import Family
from ..reader import read
from . import texts
from .others import own
from .texts import Chains, Tables, callees

KERNEL = "the kernel"  # the name of the file of a record that was found


@dataclass(frozen=True, slots=True)
class BootRules:
    """One family: the rules as they were loaded, and the rules that these were compiled from."""

    compiled: Tables = field(default_factory=dict)
    source: Tables = field(default_factory=dict)

    def over(self, older: BootRules) -> BootRules:
        """These tables, and those of *older* that these rules leave as they are."""
        return BootRules({**older.compiled, **self.compiled}, {**older.source, **self.source})


def boot_rules(
    loaded: Tables, absent: Sequence[str], source: str, file: str, family: Family, patterns: Sequence[str]
) -> BootRules:
    """The rules for the boot of a record (store.Half) whose foreign chains match *patterns*.

    The source is what was compiled; without a *source*, the loaded rules.
    """
    loaded = {**loaded, **{table: texts.empty(table) for table in absent}}
    given = _source_tables(source, file, family) if source and file != KERNEL else {}
    compiled = {
        table: _with_needed(own(chains, patterns), own(given.get(table, {}), patterns))
        for table, chains in loaded.items()
    }
    plain = {
        table: _with_policies(own(given[table], patterns), chains) if table in given else chains
        for table, chains in compiled.items()
    }
    return BootRules(texts.without_counts(compiled), texts.without_counts(plain))


def _source_tables(source: str, file: str, family: Family) -> Tables:
    """The rules of a file; none if it cannot be read any more, by another version of this program."""
    try:
        return texts.of_program(read(source, family=family, name=file))
    except HitablesError:
        return {}


def _with_needed(loaded: Chains, source: Chains) -> Chains:
    """*loaded* with the chains of *source* that its rules enter.

    Chains that those of other programs enter stay as they are while rules are applied, so no record has them.
    """
    every = {**source, **loaded}
    needed = callees(every, list(loaded))
    return {**loaded, **{name: chain for name, chain in every.items() if name in needed - loaded.keys()}}


def _with_policies(chains: Chains, loaded: Chains) -> Chains:
    """*chains*, in which policies that the file does not state are those that were loaded."""
    return {
        name: replace(chain, policy=loaded[name].policy if name in loaded else "ACCEPT")
        if not chain.policy
        else chain
        for name, chain in chains.items()
    }

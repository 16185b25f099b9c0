"""The rules of a confirmed record as the next boot should load them.

At boot the chains of other programs do not exist: their programs make them when they start, and insert their
jumps then.  So the text for the boot has neither these chains nor the rules that enter them; a text that
enters a chain which does not exist would be refused as a whole.

ufw appends its jumps, behind rules that have decided by then.  But if it finds its chains when it starts, it
fills them and leaves the jumps to them where they are.  The firewall plugin of CNI does so, too; else it
inserts its jump in front, also of rules that the file has before it.  sshguard fills its chain, and makes
neither the chain nor a jump.  So the text has these jumps, and the chains empty.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from ..errors import HitablesError
from ..ir.fields import Family
from ..ir.foreign import MADE_BY_USER, is_foreign
from ..reader import read
from . import texts
from .counts import keyed, of_source
from .others import own
from .texts import Chains, Tables, TextChain, TextRule, callees

KERNEL = "the kernel"  # the name of the file of a record that was found

# The primary chains of ufw (ufw-init-functions), by family: it creates all of them, or none if one exists.
_UFW = [
    [
        f"{ufw}-{part}-{hook}"
        for part in ("before-logging", "before", "after", "after-logging", "reject", "track")
        for hook in ("input", "output", "forward")
    ]
    for ufw in ("ufw", "ufw6")
]
# Chains that their programs fill when they find them; those of one list are there together.
_FILLED = [*_UFW, ["CNI-FORWARD"], *([name] for name in MADE_BY_USER)]


@dataclass(frozen=True, slots=True)
class BootRules:
    """One family: the rules as they were loaded, and the rules that these were compiled from."""

    compiled: Tables = field(default_factory=dict)
    source: Tables = field(default_factory=dict)

    def over(self, older: BootRules) -> BootRules:
        """These tables, and those of *older* that these rules leave as they are."""
        return BootRules({**older.compiled, **self.compiled}, {**older.source, **self.source})

    def without(self, tables: Collection[str]) -> BootRules:
        compiled, source = (
            {name: chains for name, chains in text.items() if name not in tables}
            for text in (self.compiled, self.source)
        )
        return BootRules(compiled, source)


def boot_rules(
    loaded: Tables, absent: Sequence[str], source: str, file: str, family: Family, patterns: Sequence[str]
) -> BootRules:
    """The rules for the boot of a record (records.Half) whose foreign chains match *patterns*.

    The source is what was compiled; without a *source*, the loaded rules.
    """
    loaded = {**loaded, **{table: texts.empty(table) for table in absent}}
    source_tables = _source_tables(source, file, family) if source and file != KERNEL else {}
    compiled = {
        table: _with_needed(_for_boot(chains, patterns), own(source_tables.get(table, {}), patterns))
        for table, chains in loaded.items()
    }
    plain = {
        table: _with_policies(_with_jumps(own(source_tables[table], patterns), chains), chains)
        if table in source_tables
        else chains
        for table, chains in compiled.items()
    }
    return BootRules(texts.without_counts(compiled), texts.without_counts(plain))


def stays_empty(name: str) -> bool:
    """Whether the text for the boot has the chain *name* of another program, without rules."""
    return any(name in chains for chains in _FILLED)


def _for_boot(chains: Chains, patterns: Sequence[str]) -> Chains:
    """*chains* without those of others, but with the jumps to those that stay empty, and these."""

    def is_kept(rule: TextRule) -> bool:
        return stays_empty(rule.enters) or not is_foreign(rule.enters, patterns)

    kept = {
        name: replace(chain, rules=tuple(rule for rule in chain.rules if is_kept(rule)))
        for name, chain in chains.items()
        if not is_foreign(name, patterns)
    }
    entered = {rule.enters for chain in kept.values() for rule in chain.rules}
    for together in _FILLED:
        if not entered.isdisjoint(together):
            kept |= {name: TextChain() for name in together if is_foreign(name, patterns)}
    return kept


def _with_jumps(source: Chains, compiled: Chains) -> Chains:
    """*source* with the empty chains of *compiled*, and the jumps to them behind the same rules.

    Trees come behind such jumps, so the rules before a jump are those of the source, in their order.
    """
    empty = {name: TextChain() for name in compiled if stays_empty(name) and name not in source}
    result = source | empty
    for name, chain in compiled.items():
        jumps = [at for at, rule in enumerate(chain.rules) if rule.enters in empty]
        if not jumps or name not in source:
            continue
        behind = {rule.key: at for at, rule in enumerate(source[name].rules, 1) if rule.key}
        rules: list[TextRule] = []
        done = 0
        for rule in chain.rules[: jumps[-1] + 1]:
            if rule.enters in empty:
                rules.append(rule)
            else:
                upto = max(done, behind.get(rule.key, done))
                rules += source[name].rules[done:upto]
                done = upto
        result[name] = replace(source[name], rules=(*rules, *source[name].rules[done:]))
    return result


def _source_tables(source: str, file: str, family: Family) -> Tables:
    """The rules of a file, with keys; none if another version of this program cannot read it any more."""
    try:
        program = read(source, family=family, name=file)
        return keyed(texts.of_program(program), of_source(program))
    except HitablesError:
        return {}


def _with_needed(loaded: Chains, source: Chains) -> Chains:
    """*loaded* with the chains of *source* that its rules enter.

    Chains that those of other programs enter stay as they are while rules are applied, so no record has them.
    """
    every = {**source, **loaded}
    needed = callees(every, list(loaded)) - loaded.keys()
    return {**loaded, **{name: chain for name, chain in every.items() if name in needed}}


def _with_policies(chains: Chains, loaded: Chains) -> Chains:
    """*chains*, in which policies that the file does not state are those that were loaded."""
    return {
        name: replace(chain, policy=loaded[name].policy if name in loaded else "ACCEPT")
        if not chain.policy
        else chain
        for name, chain in chains.items()
    }

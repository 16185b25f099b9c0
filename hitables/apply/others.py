"""Chains of other programs beside a rule set: they stay as they are now, whatever a file or a record says.

A rule set that is applied or rolled back was written when docker had other containers and fail2ban other
bans.  So of the chains that match --leave the kernel's are kept, and so are the rules of our chains that
enter them, since the other program inserted these.  A jump of the rule set to such a chain that does not
exist now is left out: fail2ban, for instance, cannot start when a chain of its name exists.  So is one that
came from the kernel (`of_kernel`) and is not there any more: its program is about to remove its chain.
A chain that its program fills, but does not make, is made if it is missing, without rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..ir.foreign import MADE_BY_USER, goes_last
from ..ir.foreign import is_foreign as matches
from .texts import LINES_OF_KERNEL, Chains, Tables, TextChain, TextRule, callees, empty


@dataclass(slots=True)
class Merged:
    """A rule set with the chains of other programs.

    left   by table: the chains that are not ours to change, which *tables* has as the kernel has them
    notes  what differs from the rule set as it was given, for the user
    """

    tables: Tables = field(default_factory=dict)
    left: dict[str, frozenset[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def changeable(self) -> Tables:
        """*tables* without the chains of *left*."""
        return {
            table: {name: chain for name, chain in chains.items() if name not in self.left[table]}
            for table, chains in self.tables.items()
        }


def merge(wanted: Tables, kernel: Tables, is_foreign: Callable[[str], bool]) -> Merged:
    """*wanted* with the foreign chains that *kernel* has now, and the jumps to them."""
    merged = Merged()
    for name, chains in wanted.items():
        present = kernel.get(name) or empty(name)
        left = left_alone(chains, present, is_foreign)
        merged.left[name] = frozenset(left)
        merged.tables[name] = {}
        for chain_name, chain in chains.items():
            if chain_name in left or is_foreign(chain_name):
                continue
            policy = chain.policy or (present[chain_name].policy if chain_name in present else "ACCEPT")
            rules = _rules(name, chain_name, chain, present, left, is_foreign, merged.notes)
            merged.tables[name][chain_name] = replace(chain, policy=policy, rules=rules)
        kept = sorted(each for each in left if not is_foreign(each))
        if kept:
            merged.notes.append(
                f"table {name}: kept as they are, because chains of others enter them: {', '.join(kept)}"
            )
        entered = {rule.enters for chain in merged.tables[name].values() for rule in chain.rules}
        made = (each for each in MADE_BY_USER if each in entered and is_foreign(each))
        merged.tables[name].update({each: TextChain() for each in made})
        merged.tables[name].update({each: chain for each, chain in present.items() if each in left})
    return merged


def emptied(merged: Merged, kernel: Tables) -> list[str]:
    """Notes on chains that get the policy DROP, while those of others that they enter have no rules.

    Another program may have been ended since, as by `ufw disable`: what its rules let in is dropped then.
    But there are chains that are always empty (DOCKER-USER), so the notes do not say so.
    """
    notes = []
    for table, chains in merged.tables.items():
        present = kernel.get(table) or empty(table)
        for name, chain in chains.items():
            entered = dict.fromkeys(rule.enters for rule in chain.rules if rule.enters in merged.left[table])
            drops = chain.policy == "DROP" and name in present and present[name].policy != "DROP"
            if drops and entered and not any(chains[each].rules for each in entered):
                notes.append(
                    f"table {table}, chain {name}: the policy is DROP again, and these chains of others that "
                    f"it enters are empty: {', '.join(entered)}"
                )
    return notes


def of_kernel(
    tables: Tables,
    is_foreign: Callable[[str], bool],
    which: Callable[[str, str, int, str], bool] = lambda table, chain, number, entered: True,
) -> Tables:
    """*tables*, whose jumps to foreign chains are marked as those of the kernel.

    *which*: whether the jump with this number among those of its table and chain, and to this chain, came
    from there.
    """

    def marked(table: str, name: str, chain: TextChain) -> TextChain:
        jumps = [at for at, rule in enumerate(chain.rules) if is_foreign(rule.enters)]
        came = {at for number, at in enumerate(jumps) if which(table, name, number, chain.rules[at].enters)}
        rules = (
            replace(rule, line=LINES_OF_KERNEL) if at in came else rule for at, rule in enumerate(chain.rules)
        )
        return replace(chain, rules=tuple(rules)) if came else chain

    return {
        table: {name: marked(table, name, chain) for name, chain in chains.items()}
        for table, chains in tables.items()
    }


def left_alone(chains: Chains, present: Chains, is_foreign: Callable[[str], bool]) -> set[str]:
    """The foreign chains of *present*, and those that they enter and *chains* does not have."""
    foreign = [each for each in present if is_foreign(each)]
    own = {each: chain for each, chain in present.items() if each not in chains or is_foreign(each)}
    return callees(own, foreign)


def _rules(
    table: str,
    name: str,
    chain: TextChain,
    present: Chains,
    left: set[str],
    is_foreign: Callable[[str], bool],
    notes: list[str],
) -> tuple[TextRule, ...]:
    rules: list[TextRule] = []
    here = present[name].rules if name in present else ()
    jumps = [rule.body for rule in here if is_foreign(rule.enters)]
    for rule in chain.rules:
        if not is_foreign(rule.enters) or rule.enters in MADE_BY_USER:
            rules.append(rule)
        elif rule.line >= LINES_OF_KERNEL:
            if rule.body in jumps:
                jumps.remove(rule.body)
                rules.append(rule)
        elif rule.enters not in left:
            notes.append(
                f"table {table}, chain {name}: left out, because chain {rule.enters} does not exist now: "
                f"{rule.body}"
            )
        else:
            rules.append(rule)
    if name not in present:
        return tuple(rules)
    known = [rule.body for rule in rules if is_foreign(rule.enters)]
    kept: list[str] = []
    before: list[str] = []  # the bodies of the kernel's rules so far, the nearest last
    last = max((at for at, rule in enumerate(present[name].rules) if not is_foreign(rule.enters)), default=-1)
    for at, rule in enumerate(present[name].rules):
        if not is_foreign(rule.enters):
            before.append(rule.body)
        elif rule.body in known:
            known.remove(rule.body)
            before.append(rule.body)
        else:
            is_last = goes_last(table, name, rule.enters) or -1 < last < at
            place = len(rules) if is_last else _place(rules, before)
            rules.insert(place, replace(rule, line=0))
            before.append(rule.body)
            kept.append(rule.enters)
    if kept:
        entered = ", ".join(dict.fromkeys(kept))
        notes.append(f"table {table}, chain {name}: kept, the jumps of others to {entered}")
    return tuple(rules)


def _place(rules: list[TextRule], before: list[str]) -> int:
    """Behind the nearest rule of *before* that *rules* has; else in front, where such jumps are inserted."""
    places = {rule.body: place for place, rule in enumerate(rules, 1)}
    return next((places[body] for body in reversed(before) if body in places), 0)


def own(chains: Chains, patterns: Sequence[str]) -> Chains:
    """*chains* without those of others, and without the rules that enter them."""
    if not patterns:
        return chains
    return {
        name: replace(chain, rules=tuple(rule for rule in chain.rules if not matches(rule.enters, patterns)))
        for name, chain in chains.items()
        if not matches(name, patterns)
    }


def own_rule_count(tables: Tables, patterns: Sequence[str]) -> int:
    """The rules of *tables* that `own` keeps."""
    return sum(len(chain.rules) for chains in tables.values() for chain in own(chains, patterns).values())

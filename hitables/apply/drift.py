"""Whether the kernel holds what was recorded: rule by rule, but for chains of others and jumps to them.

Chains of trees are compared by their content: a rollback may have loaded them under other names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from ..errors import HitablesError
from ..ir.fields import Family
from ..ir.foreign import goes_last, is_foreign
from ..nouns import counted
from ..reader import read
from .boot_texts import KERNEL
from .drift_words import ChainWords
from .others import left_alone, own
from .records import Half
from .steps import TablePlan, plan
from .texts import Chains, Tables, TextChain, TextRule, callees, empty, renamed


def holds(present: Tables, half: Half, patterns: Sequence[str]) -> bool:
    """Whether the kernel, with tables *present*, has the rules of *half*."""
    return next(differences(present, half, patterns), None) is None


def differences(present: Tables, half: Half, patterns: Sequence[str]) -> Iterator[str]:
    """Where the kernel differs from *half*, as messages.  Tables that did not exist were empty."""
    for table, recorded in half.with_absent().items():
        if table not in present and not _is_idle(recorded):
            yield f"table {table} is missing"
            continue
        with_others = present.get(table) or empty(table)
        kernel = own(with_others, patterns)
        steps = _steps(present, half, table, recorded, patterns)
        generated = half.generated.get(table, ())
        trees = {steps.names[name] for name in generated if name in steps.names}
        seen = _as_seen(steps.names, kernel)
        for name, chain in steps.target.items():
            if name in trees:
                continue
            if name not in kernel:
                yield f"table {table}, chain {name} is missing"
            elif kernel[name].differs_from(chain):
                was = replace(chain, rules=tuple(rule.with_names(seen) for rule in chain.rules))
                numbers = _numbers(with_others[name], patterns), _numbers(recorded[name], patterns)
                words = ChainWords(kernel, name, was, *numbers, trees.union(generated))
                yield from (f"table {table}, chain {name}: {each}" for each in words.told())
        missing = sum(name in trees for name in steps.staged)
        if missing:
            yield f"table {table}: {missing} chains of trees are missing or have other rules"
        for name in steps.removed:
            if not missing or name not in generated:  # flushed, and told of above
                yield f"table {table}, chain {name} is new"


def _as_seen(names: Mapping[str, str], kernel: Chains) -> dict[str, str]:
    """By name that a tree would get now, as the kernel lacks it: the name that it had when it was loaded.

    A rule that enters a tree with other rules is then no other rule.  That the tree is missing is told apart.
    """
    taken = {name for name in names.values() if name in kernel}
    return {
        name: "(tree)" if recorded in taken else recorded
        for recorded, name in names.items()
        if name not in kernel
    }


def losses(present: Tables, half: Half, patterns: Sequence[str]) -> list[str]:
    """Those of `differences` that are no mere additions: all rules of *half* may be there, among others."""
    kernel = dict(present)
    for table, recorded in half.tables.items():
        if table in present:
            trees, ours = half.generated.get(table, ()), own(present[table], patterns)
            kept = _without_added(ours, own(recorded, patterns), trees)
            # A chain that is told of as it is has the jumps of others, which its rules are counted with.
            kernel[table] = {
                name: present[table][name] if chain.rules == ours[name].rules else chain
                for name, chain in kept.items()
            }
    return list(differences(kernel, half, patterns))


def _without_added(present: Chains, recorded: Chains, trees: Sequence[str]) -> Chains:
    """*present* without the rules and the chains that *recorded* does not have.  Trees stay as they are."""
    named = [name for name in present if name in recorded and name not in trees]
    chains = dict(present)
    for name in named:
        rules = _recorded_rules(present[name].rules, recorded, name, trees)
        chains[name] = replace(present[name], rules=rules)
    # A tree may have chains that no packet reaches.
    kept = callees(chains, named) | set(trees).intersection(chains)
    return {name: chain for name, chain in chains.items() if name in kept}


def _recorded_rules(
    rules: Sequence[TextRule], recorded: Chains, name: str, trees: Sequence[str]
) -> tuple[TextRule, ...]:
    """Those of *rules* that chain *name* of *recorded* has, if it has no others; else all.

    A tree may have another name.
    """

    def as_recorded(rule: TextRule) -> str:
        is_tree = rule.enters in trees or (rule.enters != "" and rule.enters not in recorded)
        return rule.with_names({rule.enters: ""}).body if is_tree else rule.body

    wanted = [as_recorded(rule) for rule in recorded[name].rules]
    kept: list[TextRule] = []
    for rule in rules:
        if len(kept) < len(wanted) and as_recorded(rule) == wanted[len(kept)]:
            kept.append(rule)
    return tuple(kept if len(kept) == len(wanted) else rules)


def strange_jumps(present: Tables, half: Half, family: Family, patterns: Sequence[str]) -> Iterator[str]:
    """The jumps to chains of others that are gone, or stand elsewhere than was recorded, as messages."""
    yield from lost_jumps(present, half, family, patterns)
    yield from moved_jumps(present, half, family, patterns)
    yield from cut_off_jumps(present, half, patterns)


def lost_jumps(present: Tables, half: Half, family: Family, patterns: Sequence[str]) -> Iterator[str]:
    """The jumps of the file to chains of others that the kernel lacks though it has the chains, as messages.

    A program that stops removes its chains, too.
    """
    for table, recorded in half.tables.items():
        chains = present.get(table, {})
        for name, chain in recorded.items():
            if is_foreign(name, patterns) or name not in chains:
                continue
            there = {rule.enters for rule in chains[name].rules}
            for rule in chain.rules:
                entered = rule.enters
                is_lost = is_foreign(entered, patterns) and entered in chains and entered not in there
                if is_lost and file_has(half, family, table, name, entered):
                    yield (
                        f"table {table}, chain {name}: '{rule.body}' is missing, so packets do not come to "
                        f"chain {entered}"
                    )


def moved_jumps(present: Tables, half: Half, family: Family, patterns: Sequence[str]) -> Iterator[str]:
    """The jumps to chains of others with more of our rules before them than was recorded, as messages.

    Also those with fewer, if the file has the jump: it states what comes first.  Jumps that it does not have
    most programs insert in front again when they start, and in front they decide no less.
    Those that go last are where their programs want them.  Of equal jumps any may be gone: those that are
    left are taken for the last ones, which moves fewest.
    """
    for table, name, chain, now in _chains_of_both(present, half, patterns):
        then, places = _places(chain, patterns), _places(now, patterns)
        last = _jumps_that_go_last(table, name, now)
        for body, before in then.items():
            after = places.get(body, []) if body not in last else []
            for old, new in zip(before[-len(after) :], after, strict=False):
                if new > old or (new < old and file_has(half, family, table, name, TextRule(body).enters)):
                    yield (
                        f"table {table}, chain {name}: '{body}' comes after {counted(new, 'rule')} that "
                        f"are not of --leave, was after {old}"
                    )


def file_has(half: Half, family: Family, table: str, name: str, entered: str) -> bool:
    """Whether the file that *half* was made of has a rule of chain *name* that enters *entered*."""
    has_file = half.source != "" and half.file != KERNEL
    return has_file and (table, name, entered) in _jumps_of(half.source, half.file, family)


@lru_cache(maxsize=4)
def _jumps_of(source: str, file: str, family: Family) -> frozenset[tuple[str, str, str]]:
    """Table, chain, and chain entered of each jump of a file; none if this version cannot read it."""
    try:
        program = read(source, family=family, name=file)
    except HitablesError:
        return frozenset()
    return frozenset(
        (table.name, chain.name, entered)
        for table in program
        for chain in table.chains
        for entered in chain.callees()
    )


def cut_off_jumps(present: Tables, half: Half, patterns: Sequence[str]) -> Iterator[str]:
    """The jumps to chains of others that stand behind a tree now, and did not when loaded, as messages.

    Packets do not come back from the tree, but where a program is known to append its jumps
    (ir.foreign.appended).  `moved_jumps` tells of the other jumps that were loaded.
    """
    for table, name, chain, now in _chains_of_both(present, half, patterns):
        generated = half.generated.get(table, ())
        ours = (rule for rule in chain.rules if not is_foreign(rule.enters, patterns))
        gotos = [at for at, rule in enumerate(ours) if rule.goes and rule.enters in generated]
        if not gotos:
            continue
        then, last = _places(chain, patterns), _jumps_that_go_last(table, name, now)
        for body, places in _places(now, patterns).items():
            behind, before = (sum(at > gotos[0] for at in each) for each in (places, then.get(body, ())))
            if behind > before and (body in last or body not in then):
                yield (
                    f"table {table}, chain {name}: '{body}' stands behind a tree now, from which packets "
                    "do not come back to it; hitables apply of the file puts that right"
                )


def _chains_of_both(
    present: Tables, half: Half, patterns: Sequence[str]
) -> Iterator[tuple[str, str, TextChain, TextChain]]:
    """Table, name, as recorded, as present: of our chains that have as many rules of ours in both.

    Chains without jumps to those of others are left out.
    """
    for table, recorded in half.tables.items():
        for name, chain in recorded.items():
            now = present.get(table, {}).get(name)
            if now is None or is_foreign(name, patterns):
                continue
            ours, ours_then = _own(now, patterns), _own(chain, patterns)
            if ours == ours_then and len(chain.rules) + len(now.rules) > ours + ours_then:
                yield table, name, chain, now


def _jumps_that_go_last(table: str, name: str, chain: TextChain) -> set[str]:
    return {rule.body for rule in chain.rules if goes_last(table, name, rule.enters)}


def _own(chain: TextChain, patterns: Sequence[str]) -> int:
    return sum(not is_foreign(rule.enters, patterns) for rule in chain.rules)


def _places(chain: TextChain, patterns: Sequence[str]) -> dict[str, list[int]]:
    """By body of a jump to a chain of others: the numbers of our rules before it, in order."""
    places: dict[str, list[int]] = {}
    before = 0
    for rule in chain.rules:
        if is_foreign(rule.enters, patterns):
            places.setdefault(rule.body, []).append(before)
        else:
            before += 1
    return places


def as_named(present: Tables, half: Half, patterns: Sequence[str]) -> Tables:
    """The tables of *half* with the names that their chains of trees have in the kernel."""
    named: Tables = {}
    for table, recorded in half.tables.items():
        named[table] = renamed(recorded, _steps(present, half, table, recorded, patterns).names)
    return named


def _steps(present: Tables, half: Half, table: str, recorded: Chains, patterns: Sequence[str]) -> TablePlan:
    """The steps from the kernel to the chains of a *table* of *half*, but for chains of others.

    Chains that those of others enter, and the record lacks, are left to them, as `apply` does.
    """
    chains = present.get(table) or empty(table)
    left = left_alone(recorded, chains, lambda name: is_foreign(name, patterns))
    return plan(table, own(chains, patterns), own(recorded, patterns), half.generated.get(table, ()), left)


def _is_idle(chains: Chains) -> bool:
    return all(chain.policy in ("ACCEPT", "-") and not chain.rules for chain in chains.values())


def _numbers(chain: TextChain, patterns: Sequence[str]) -> list[int]:
    """The numbers of our rules in *chain*, as `iptables -L --line-numbers` counts: those of others count."""
    return [at for at, rule in enumerate(chain.rules, 1) if not is_foreign(rule.enters, patterns)]

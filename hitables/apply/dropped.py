"""What other programs have added to rules that are about to be replaced by earlier ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..ir.foreign import is_foreign
from ..ir.packet import Backend
from ..ir.program import BUILT_IN
from ..nouns import counted
from ..parse.lines import of_unknown_revision
from . import texts
from .drift import as_named
from .in_force import InForce, own_places, places
from .kernel import Kernel
from .others import left_alone, own
from .recording import Recorder
from .records import FOUND, ApplyState, Half
from .store import StateDirectory
from .texts import Chains

_NAMED = 5  # chains


def keep_dropped(
    store: StateDirectory, state: ApplyState, wanted: InForce, current: InForce
) -> tuple[ApplyState, list[str]]:
    """Record what the kernel has beyond *current* and *wanted*, which replaces it; the state, and notes.

    Nothing is recorded if that is nothing.  HitablesError if the kernel cannot be read, or the record not
    written.
    """
    now = places(current.record)
    there = [place for place, number in places(wanted.record).items() if now.get(place, number) != number]
    current = current.only(there)
    patterns = current.leave()
    halves, notes = {}, []
    unloadable = 0
    for family in sorted({family for part in current.parts for family, _ in own_places(part)}):
        kernel = Kernel(family, Backend(current.record.backend), [store.lock]).read()
        half, then = current.half(family), wanted.only(there).half(family)
        assert half is not None and then is not None
        loaded, later = as_named(kernel, half, patterns), as_named(kernel, then, patterns)
        found = {}
        for table in loaded:
            left = left_alone(loaded[table], kernel.get(table, {}), lambda name: is_foreign(name, patterns))
            chains = {name: chain for name, chain in kernel.get(table, {}).items() if name not in left}
            found[table] = _loadable(chains)
            unloadable += _count(chains) - _count(found[table])
            more = _more(table, own(chains, patterns), [loaded[table], later.get(table, {})])
            if more:
                notes.append(f"IPv{int(family)}, table {table}: {more}")
        readable = texts.write({table: _loadable(chains) for table, chains in kernel.items()})
        halves[family] = Half(found, {}, readable, "the kernel", half.absent)
    if not notes:
        return state, []
    number = wanted.record.number
    state, record = Recorder(store, current.record.backend, patterns).add(state, halves, FOUND, number)
    but = ""
    if unloadable:
        but = f", but for {counted(unloadable, 'rule')} that iptables-{record.backend} cannot read: "
        but += "restart the program that makes them"
    return state, [
        f"dropped, as other programs added it to rule set {current.record.number} (hitables rollback "
        f"{record.number} loads all of that again{but}): {'; '.join(notes)}"
    ]


def _loadable(chains: Chains) -> Chains:
    """*chains* without the rules of which iptables-save does not print the whole (parse/lines.py)."""
    return {
        name: replace(chain, rules=tuple(rule for rule in chain.rules if not of_unknown_revision(rule.body)))
        for name, chain in chains.items()
    }


def _count(chains: Chains) -> int:
    return sum(len(chain.rules) for chain in chains.values())


def _more(table: str, present: Chains, known: list[Chains]) -> str:
    """The chains and rules of *present* that none of *known* has, in words; "" for none."""
    chains = [name for name in present if not any(name in each for each in known)]
    chains = [name for name in chains if name not in BUILT_IN[table]]
    rules = 0
    for name, chain in present.items():
        more = Counter(chain.bodies)
        for each in known:
            more -= Counter(each[name].bodies) if name in each else Counter()
        rules += more.total()
    words = [counted(rules, "rule")] if rules else []
    if chains:
        others = f" and {len(chains) - _NAMED} more" if len(chains) > _NAMED else ""
        words.append(f"{'chains' if len(chains) > 1 else 'chain'} {', '.join(chains[:_NAMED])}{others}")
    return ", ".join(words)

"""After another program has committed between the last look at nf_tables and the commit of a patch: what the
patch hit of it is put back.

A patch addresses rules by number.  The tool resolves the numbers when it commits, and lists the rules that it
deletes, so it is known which rules were hit (deletions_listed.py).  Of each chain that the patch edits, the
kernel gets: the rules of others that were hit, at their places; not the rules that should have been hit; and
the rules that the patch inserted at the places that they should have.  All else that others have changed
stays as it is, and is a difference that the next comparison finds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hitables.emit.text import rule_text
from hitables.errors import HitablesError, LiveError
from hitables.ir.program import Program
from hitables.ir.rule import Rule
from hitables.kernel.retries import retries
from hitables.parse.lines import quote

from .differences import listed
from .edits import Count, Edit, Key, Op, apply, empty_table, read_edits, rule_key
from .edits import text as text_of
from .kernel import FASTER, REPAIRS, Drift, Kernel
from .layout import ChainId
from .lcs import gaps
from .least_edits import rule_edits
from .restore import Outdated
from .state import State
from .store import Store

# Each repair may be disturbed, too.
TRIES = 10

_COUNTERS = re.compile(r"^\[\d+:\d+\] ", re.MULTILINE)


@dataclass(slots=True)
class _Hit:
    """What a patch did to one chain.

    lost        rules that it has deleted in place of others, and their places behind the patch
    spared      the rules that it should have deleted
    inserted    the rules that it has inserted
    is_unknown  whether it is unknown which rules it has deleted
    """

    lost: list[tuple[int, Rule]] = field(default_factory=list)
    spared: list[Key] = field(default_factory=list)
    inserted: set[Key] = field(default_factory=set)
    is_unknown: bool = False


def put_back(
    kernel: Kernel, store: Store, before: State, after: State, patch: str, printed: Sequence[str]
) -> None:
    """Repair what *patch*, from *before* to *after*, has hit; *printed*: the rules that it has deleted.

    Drift, which names the rules, if they cannot be put back.
    """
    edits: Sequence[Edit] = read_edits(_COUNTERS.sub("", patch), before.loaded, "the patch")
    base, goal, hits = before.loaded, after.loaded, dict[ChainId, _Hit]()
    for _ in retries(TRIES, seconds=0.0):
        stamp, contents = kernel.stamp(), kernel.contents()
        deleted = _parsed(kernel, edits, printed, contents)
        hits = _hits(base, edits, deleted)
        is_hit = any(hit.lost for hit in hits.values())
        if is_hit and base is before.loaded and kernel.settings.backend != "any":
            hits = _hits(kernel.as_stored(base), edits, deleted)  # the kernel may spell a rule otherwise
        repair, counts = _repair(hits, contents, goal)
        if repair and any(hit.is_unknown for hit in hits.values()):
            raise _lost(hits, "which rules it has deleted is unknown")
        text, target = text_of(repair, counts), apply(contents, repair)
        try:
            behind, printed_now = kernel.load(text, store, stamp)
        except Outdated:
            continue
        except LiveError as error:
            raise _lost(hits, str(error)) from None
        if not repair or kernel.was_alone(stamp, behind, text, contents, target):
            return
        base, goal, edits, printed = contents, target, repair, printed_now
    raise _lost(hits, FASTER)


def _lost(hits: dict[ChainId, _Hit], reason: str) -> Drift:
    message = (
        "another program has changed rules while a patch was loaded, and rules may be at wrong places now"
    )
    lost = [
        f"table {table}: deleted: {rule_text(rule._replace(counters=None), chain)}"
        for (table, chain), hit in hits.items()
        for _, rule in hit.lost
    ]
    return Drift("\n".join([f"{message}: {reason}", *listed(lost), REPAIRS]))


def _parsed(
    kernel: Kernel, edits: Sequence[Edit], printed: Sequence[str], contents: Program
) -> list[Rule | None]:
    """The *printed* rules, one for each edit that deletes or replaces a rule; None: unknown."""
    hitting = [edit for edit in edits if edit.op in (Op.DELETE, Op.REPLACE)]
    if len(printed) != len(hitting):
        return [None] * len(hitting)
    lines: dict[str, list[str]] = {}
    for edit, line in zip(hitting, printed, strict=True):
        lines.setdefault(edit.table, []).append(line + "\n")
    rules: dict[ChainId, list[Rule]] = {}
    for table in contents:
        chains = {chain.name: chain.policy for chain in table.chains}
        chains |= {
            edit.chain: None for edit in hitting if edit.table == table.name and edit.chain not in chains
        }
        heads = [f":{quote(name)} {policy or '-'} [0:0]\n" for name, policy in chains.items()]
        try:
            program = kernel.parse([f"*{table.name}\n", *heads, *lines.get(table.name, ()), "COMMIT\n"])
        except HitablesError:  # a rule enters a chain that is gone
            return [None] * len(hitting)
        rules |= {(table.name, chain.name): list(chain.rules) for chain in program.table(table.name).chains}
    return [rules[edit.table, edit.chain].pop(0) for edit in hitting]


def _hits(loaded: Program, edits: Sequence[Edit], deleted: Sequence[Rule | None]) -> dict[ChainId, _Hit]:
    """What *edits* of *loaded* did to each chain, in which they deleted the rules *deleted*."""
    hits: dict[ChainId, _Hit] = {}
    rows: dict[ChainId, list[Rule]] = {}
    rest = iter(deleted)
    for edit in edits:
        where = edit.table, edit.chain
        if edit.op in (Op.NEW, Op.REMOVE, Op.POLICY):
            continue
        if where not in rows:
            rows[where] = list(loaded.rules_of(*where))
        hit, chain = hits.setdefault(where, _Hit()), rows[where]
        if edit.op is Op.FLUSH:
            chain.clear()
            continue
        if edit.op in (Op.DELETE, Op.REPLACE):
            wanted, was = chain.pop(edit.at), next(rest)
            if edit.op is Op.DELETE:
                hit.lost = [(at - (at > edit.at), rule) for at, rule in hit.lost]
            hit.is_unknown |= was is None
            if was is None or rule_key(was) != rule_key(wanted):
                hit.lost += [(edit.at, was)] if was is not None else []
                hit.spared.append(rule_key(wanted))
        if edit.op is Op.INSERT:
            hit.lost = [(at + (at >= edit.at), rule) for at, rule in hit.lost]
        if edit.rule is not None:
            chain.insert(len(chain) if edit.op is Op.APPEND else edit.at, edit.rule)
            hit.inserted.add(rule_key(edit.rule))
    return hits


def _repair(
    hits: dict[ChainId, _Hit], contents: Program, after: Program
) -> tuple[list[Edit], dict[int, Count]]:
    """The edits of *contents* of the kernel that repair the chains, and the counts of rules by edit."""
    edits: list[Edit] = []
    counts: dict[int, Count] = {}
    for (table, name), hit in hits.items():
        present, wanted = contents.rules_of(table, name), after.rules_of(table, name)
        if name not in (contents.find(table) or empty_table(table)):
            continue  # removed, by the patch or by others
        target = _repaired(present, wanted, hit)
        lost = {id(rule): rule.counters for _, rule in hit.lost}
        for edit in rule_edits(table, name, present, target):
            count = lost.get(id(edit.rule)) if edit.rule is not None else None
            if count:
                counts[len(edits)] = count
            edits.append(edit)
    return edits, counts


def _repaired(present: Sequence[Rule], wanted: Sequence[Rule], hit: _Hit) -> list[Rule]:
    rows = list(present)
    for at, rule in sorted(reversed(hit.lost), key=lambda each: -each[0]):
        rows.insert(at, rule)
    spared, goes, comes = list(hit.spared), set[int](), dict[int, list[Rule]]()
    between = list(gaps([rule_key(rule) for rule in rows], [rule_key(rule) for rule in wanted]))
    others = [rule_key(rows[at]) for there, _ in between for at in there]
    for there, own in between:
        for at in there:
            key = rule_key(rows[at])
            if key in spared:
                spared.remove(key)
                goes.add(at)
        for each in (wanted[at] for at in own):
            key = rule_key(each)
            if key in hit.inserted and key in others:  # it is in another place
                others.remove(key)
                moved = (at for found, _ in between for at in found if rule_key(rows[at]) == key)
                goes.add(next(at for at in moved if at not in goes))
                comes.setdefault(there.start, []).append(each)
    return [
        rule
        for at in range(len(rows) + 1)
        for rule in (*comes.get(at, ()), *(rows[at : at + 1] if at not in goes else ()))
    ]

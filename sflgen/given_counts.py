"""Counts that updates give their rules: `iptables -A FORWARD -c 5 300 -s 10.0.0.1 -j ACCEPT`.

A rule of the list may have copies in several leaves and overlays, and its count is their sum; so the count
is set in one copy that the patch inserts.  A rule without a copy (an update that needs no entry, as other
rules have its effect) has no counter, and its count is not set.
"""

from __future__ import annotations

from collections.abc import Sequence

from .edits import Count, Edit, Key, rule_key, staying
from .state import State


def own_counts(updates: Sequence[Edit]) -> dict[int, Count]:
    """By index in *updates*: the count that the rule is written with, unless it is zero."""
    return {
        number: edit.rule.counters
        for number, edit in enumerate(updates)
        if edit.rule is not None and edit.rule.counters not in (None, (0, 0))
    }


def given_counts(
    before: State, after: State, updates: Sequence[Edit], edits: Sequence[Edit]
) -> dict[int, Count]:
    """By index in *edits*, the patch from *before* to *after*: the count of the rule that it inserts."""
    own = own_counts(updates)
    kept = staying(before.master, updates) if own else ()
    given: dict[tuple[str, str, Key], Count] = {}
    for number, (packets, size) in own.items():
        if number not in kept:
            continue
        edit = updates[number]
        assert edit.rule is not None
        key = edit.table, edit.chain, rule_key(edit.rule)
        others = given.get(key, (0, 0))
        given[key] = others[0] + packets, others[1] + size
    if not given:
        return {}
    owner_of = {table: after.owners(table) for table in {table for table, _, _ in given}}
    counts: dict[int, Count] = {}
    # Copies that a later edit deletes again were inserted before the one that takes their place.
    for number in reversed(range(len(edits))):
        edit = edits[number]
        if edit.rule is None or edit.table not in owner_of:
            continue
        chain = owner_of[edit.table].get(edit.chain, edit.chain)
        count = given.pop((edit.table, chain, rule_key(edit.rule)), None)
        if count is not None:
            counts[number] = count
    return counts

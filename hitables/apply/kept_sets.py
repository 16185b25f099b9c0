"""The ipsets that recorded rules name: kept in the state directory, and created again where they are gone.
Accounting objects (nfacct) are created again, too.

No program can destroy a set while rules of the kernel name it.  Once other rules are loaded it can, and then
the earlier rules could not be loaded again.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import LiveError, described
from ..ir.fields import Family
from ..kernel.ipset_text import created_sets, members_of
from ..kernel.load_save import ip_sets_named
from ..kernel.namespace import run
from ..kernel.prerequisites import accounts, accounts_named, make_accounts
from ..nouns import counted
from .boot_sets import saved_sets
from .records import Record
from .store import StateDirectory


def keep(store: StateDirectory, records: Iterable[Record]) -> None:
    """Write the sets that rules of *records* name, as they are now; of one that is gone the file stays."""
    for each in saved_sets(_rules_with(records, "-set ")):
        if each.saved:
            store.save_set(each.name, each.saved)


def create_missing(store: StateDirectory, records: Iterable[Record]) -> list[str]:
    """Create the sets and accounting objects (nfacct) that rules of *records* name and that do not exist; a
    note on each for the user.

    Where a set cannot be created, the load of the rules fails with its name.
    """
    records = list(records)
    rules = _rules_with(records, "-set ")
    notes = _create_accounts(records)
    named = {
        name: ("create", name, kind, "family", "inet" if family is Family.IPV4 else "inet6")
        for family, lines in rules.items()
        for name, kind in ip_sets_named("\n".join(lines)).items()
    }
    if not named:
        return notes
    try:
        present = set(run(["ipset", "list", "-n"]).split("\n"))
    except LiveError:
        return notes
    for name, create in named.items():
        try:
            _create(store, name, create, present, notes)
        except Exception as error:  # no set keeps the old rules from being loaded
            notes.append(f"ipset {name} cannot be created again: {described(error)}")
    return notes


def _create(
    store: StateDirectory, name: str, create: tuple[str, ...], present: set[str], notes: list[str]
) -> None:
    """Create the set *name* unless it is *present*, after its members if these are sets."""
    if name in present:
        return
    present.add(name)
    saved = store.kept_set(name)
    members = members_of(name, saved)
    created = created_sets(saved).get(name)
    if created is not None and created.is_list:
        for member in members:
            _create(store, member, ("create", member, *create[2:]), present, notes)
    if saved:
        try:
            run(["ipset", "restore", "-exist"], saved)
        except LiveError as error:
            notes.append(f"ipset {name}: not all that was kept of it could be restored: {error}")
        else:
            what = f"the {counted(len(members), 'member')} that it had when it was last kept"
            notes.append(f"ipset {name} did not exist any more: it is created anew, with {what}")
            return
    try:
        run(["ipset", "-exist", *create])
    except LiveError as error:
        notes.append(f"ipset {name} does not exist any more, and cannot be created: {error}")
    else:
        if not saved:
            notes.append(
                f"ipset {name} did not exist any more: it is created anew, and empty (nothing was kept)"
            )


def _create_accounts(records: Iterable[Record]) -> list[str]:
    """Create the accounting objects that are gone; they count from zero, and without a quota."""
    rules = _rules_with(records, "--nfacct-name ")
    named = {each for lines in rules.values() for each in accounts_named("\n".join(lines))}
    try:
        missing = sorted(named - accounts()) if named else []
        if missing:
            make_accounts(missing)
    except LiveError as error:
        return [f"accounting objects (nfacct) that do not exist any more cannot be created: {error}"]
    return [
        f"nfacct {each} did not exist any more: it is created anew, and counts from zero" for each in missing
    ]


def _rules_with(records: Iterable[Record], words: str) -> dict[Family, list[str]]:
    """By family, the rules of *records* with *words*."""
    rules: dict[Family, list[str]] = {}
    for record in records:
        for family, half in record.halves.items():
            found = rules.setdefault(family, [])
            for chains in half.tables.values():
                for chain in chains.values():
                    found += (rule.body for rule in chain.rules if words in rule.body)
    return rules

"""The ipsets that rules name, as the next boot should create them.

A boot restores each set from a file of its own, so that one damaged file costs one set.  The script of the
boot (boot_script.py) has the command that creates the set empty, which is what remains if the file is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import LiveError
from ..ir.fields import Family
from ..kernel.ipset_text import created_sets, members_of
from ..kernel.load_save import ip_sets_named
from ..kernel.namespace import run


@dataclass(frozen=True, slots=True)
class SavedSet:
    """One set.

    name
    create  the words behind `ipset create NAME`
    saved   the output of `ipset save`; "" if the set does not exist now
    """

    name: str
    create: tuple[str, ...]
    saved: str = ""

    @property
    def members(self) -> int:
        return self.saved.count("\nadd ")


def saved_sets(rules: Mapping[Family, Iterable[str]]) -> list[SavedSet]:
    """The sets that texts of *rules* name, in the order in which they can be created."""
    found: dict[str, SavedSet] = {}
    for family, of_family in rules.items():
        for text in of_family:
            for name, kind in ip_sets_named(text).items():
                _add(name, (kind, "family", "inet" if family is Family.IPV4 else "inet6"), found)
    return list(found.values())


def _add(name: str, like: tuple[str, ...], found: dict[str, SavedSet]) -> None:
    """Add the set *name*, after its members if these are sets; *like*: its type if it does not exist."""
    if name in found:
        return
    try:
        text = run(["ipset", "save", name])
    except LiveError:
        found[name] = SavedSet(name, like)
        return
    created = created_sets(text).get(name)
    if created is None:  # as of a name with a line feed
        found[name] = SavedSet(name, like)
        return
    if created.is_list:
        for member in members_of(name, text):
            _add(member, ("hash:net", "family", "inet"), found)
    found[name] = SavedSet(name, (created.type, *created.options), text)

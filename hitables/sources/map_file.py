"""The file that `hitables compile --map` writes, read and checked.

Invariant: a `MapFile` fits its own source: each number of a rule is that of a rule of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..emit.sourcemap import FORMAT, VERSION
from ..errors import HitablesError
from ..files import parse_json, read_text
from ..ir.fields import Family
from ..ir.meaning import Digests
from ..ir.program import Program, Table
from ..reader import read


@dataclass(frozen=True, slots=True)
class MapFile:
    """A map.

    source  the rules that were compiled; *text*: as they were given
    leave   patterns of foreign chains
    tables  by name, as plain data of the map
    """

    path: str
    source: Program
    text: str
    leave: tuple[str, ...]
    tables: Mapping[str, Mapping[str, Any]]

    def digest(self, table: str) -> str:
        """The digest of a table of the source, which the marker of the compiled table has."""
        return str(self.tables[table]["digest"])


def read_map(path: str) -> MapFile:
    """The map in file *path*; HitablesError for a file that is no map, and for one that was changed."""
    try:
        data = parse_json(read_text(path))
    except ValueError as error:
        raise HitablesError(f'{path}: no map of "hitables compile --map": {error}') from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise HitablesError(f'{path}: no map of "hitables compile --map": its format is not {FORMAT}')
    if data.get("version") != VERSION:
        raise HitablesError(
            f"{path}: a map of version {data.get('version')}; this hitables reads version {VERSION}: "
            "compile the rules again"
        )
    try:
        return _checked(path, data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__} {error}") from None


# What is read of a map, as hitables/schema/map.json has it.
_MAP = {"source": str, "text": str, "leave": list, "tables": list}
_TABLE = {"name": str, "digest": str, "chains": list}
_CHAIN = {"name": str, "origin": str, "digest": str, "lines": list, "rules": list}


def _check_fields(data: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    """KeyError or TypeError unless *data* has these fields, of these kinds."""
    for name, kind in kinds.items():
        if not isinstance(data[name], kind):
            raise TypeError(f"{name} is no {_KINDS[kind]}")


_KINDS: Mapping[type, str] = {str: "text", list: "list"}


def _checked(path: str, data: Mapping[str, Any]) -> MapFile:
    _check_fields(data, _MAP)
    if not all(isinstance(pattern, str) for pattern in data["leave"]):
        raise TypeError("leave has a pattern that is no text")
    text = data["text"]
    if not text:
        raise HitablesError(f"{path}: the map has no text of its source: the compiler was given none")
    try:
        source = read(text, family=Family(data["family"]), name=data["source"])
    except HitablesError as error:
        raise _damaged(path, f"its text of {str(error).splitlines()[0]}") from None
    for table in data["tables"]:
        _check_fields(table, _TABLE)
    tables = {table["name"]: table for table in data["tables"]}
    digests = Digests()
    for name, table in tables.items():
        if digests.of_table(source.table(name)) != table["digest"]:
            raise _damaged(
                path,
                f"table {name} of its text has another digest, unless the map is of an earlier version, "
                "whose digests depended on the order of options",
            )
        _check_numbers(path, source.table(name), table["chains"])
    return MapFile(path, source, text, tuple(data["leave"]), tables)


def _check_numbers(path: str, table: Table, chains: Sequence[Mapping[str, Any]]) -> None:
    count = table.rule_count()
    for chain in chains:
        _check_fields(chain, _CHAIN)
        if any(not isinstance(number, int) or not 0 <= number <= count for number in chain["rules"]):
            raise _damaged(path, f"chain {chain['name']} has the number of a rule that its text lacks")


def _damaged(path: str, why: str) -> HitablesError:
    return HitablesError(f"{path}: the map is damaged ({why}); compile the rules again")

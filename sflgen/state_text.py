"""The texts of the state directory: the file `state`, map lines, and records of the journal.

Invariant: what is printed here is read here again as equal values.  Words of the format do not change
with the names in the code; a change of the format has a new FORMAT.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from hitables.ir.choices import Malformed, backend_choice, choose
from hitables.ir.set_counters import counts
from hitables.parse.lines import quote, split, unquote
from hitables.rule_lines import lines_of

from .edits import text as text_of
from .given_counts import own_counts
from .layout import ChainId, ChainLayout, Entry, EntryChain, Section
from .planner import Plan
from .settings import Settings
from .state import State

# The oldest format that states can be written in is written, so that older versions read most of them.
# The second has `max_updates`, and the updates of chains; the third may have `counts_sets`.
FORMAT, COUNTING_FORMAT, SETS_FORMAT = 2, 3, 4
FORMATS = (str(FORMAT), str(COUNTING_FORMAT), str(SETS_FORMAT))

# By attribute of Settings: its word in the file `state`.
_SETTINGS = {
    "backend": "backend",
    "malformed": "malformed",
    "delta": "delta",
    "min_length": "min_length",
    "max_expansion": "max_expansion",
    "foreign": "left",
    "prefix": "prefix",
    "max_updates": "max_updates",
}


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


# Records of the journal.


def record_text(plan: Plan) -> str:
    """The record of a plan: updates, patch, map lines, and the sum over them."""
    lines = [f"begin {plan.after.version}"]
    lines += [f"update {each}" for each in lines_of(text_of(plan.updates, own_counts(plan.updates)))]
    lines += [f"patch {each}" for each in lines_of(plan.text)]
    changes = map_lines(plan.before.layouts, plan.before.entry_chains, plan.after)
    lines += [f"map {line}" for line in changes]
    body = "\n".join([*lines, ""])
    return body + f"end {plan.after.version} {checksum(encode(body))}\n"


def settled_text(version: int) -> str:
    """The line behind a record that the kernel has."""
    return f"settled {version}\n"


# The map: layouts and entries.


def map_lines(
    layouts: Mapping[ChainId, ChainLayout], entry_chains: Mapping[ChainId, EntryChain], after: State
) -> Iterator[str]:
    """The layouts and entries of *after*, where they differ from *layouts* and *entry_chains*.

    `chain TABLE CHAIN NAME/SIZE/tree … once=INDEX:NAME,… updates=N`; without updates there is no last word
    `host TABLE CHAIN SECTION ROW:OVERLAY:RANK:COST …`, of a hot rule `ROW:-:hot:0`
    """
    for (table, chain), layout in _changed(layouts, after.layouts):
        words = ["chain", table, quote(chain)]
        for section in layout.sections if layout else ():
            name = "." if section.name == chain else section.name
            words.append(f"{name}/{section.size}/{'tree' if section.tree else 'list'}")
        if layout is not None:
            words.append("once=" + ",".join(f"{at}:{name}" for at, name in layout.shared))
            words += [f"updates={layout.updates}"] if layout.updates else []
        yield " ".join(words)
    for (table, chain), entry_chain in _changed(entry_chains, after.entry_chains):
        words = ["host", table, quote(chain)]
        if entry_chain is not None:
            words.append(quote(entry_chain.section))
            words += map(_entry_word, entry_chain.entries)
        yield " ".join(words)


def _entry_word(entry: Entry) -> str:
    rank = "hot" if entry.hot else "-" if entry.rank_in_overlay is None else entry.rank_in_overlay
    return f"{entry.row}:{entry.overlay or '-'}:{rank}:{entry.cost}"


_Value = TypeVar("_Value")


def _changed(
    before: Mapping[ChainId, _Value], after: Mapping[ChainId, _Value]
) -> Iterator[tuple[ChainId, _Value | None]]:
    if before is after:
        return
    for chain_id in {**before, **after}:
        old, new = before.get(chain_id), after.get(chain_id)
        if old is not new and old != new:
            yield chain_id, new


def read_map(
    lines: Iterable[str], before: State | None
) -> tuple[dict[ChainId, ChainLayout], dict[ChainId, EntryChain]]:
    """The layouts and entries after map lines that were printed for *before*, or for none."""
    layouts, entry_chains = (dict(before.layouts), dict(before.entry_chains)) if before else ({}, {})
    for line in lines:
        kind, table, chain, *words = [unquote(word) for word, _ in split(line)]
        chain_id = table, chain
        if kind == "chain":
            layouts.pop(chain_id, None)
            if words:
                layouts[chain_id] = _read_layout(chain, words)
        elif kind == "host":
            entry_chains.pop(chain_id, None)
            if words:
                section, *entries = words
                entry_chains[chain_id] = EntryChain(section, tuple(map(_read_entry, entries)))
        else:
            raise ValueError(f"a map line {line!r}")
    return layouts, entry_chains


def _read_entry(word: str) -> Entry:
    row, overlay, rank, cost = word.split(":")
    if rank == "hot":
        return Entry(int(row), "", None, int(cost), True)
    return Entry(int(row), "" if overlay == "-" else overlay, None if rank == "-" else int(rank), int(cost))


def _read_layout(chain: str, words: Sequence[str]) -> ChainLayout:
    updates = 0
    if words[-1].startswith("updates="):
        *words, last = words
        updates = int(last[len("updates=") :])
    *section_words, shared_word = words
    if not section_words or not shared_word.startswith("once="):
        raise ValueError(f"no map of {chain}")
    sections = []
    for word in section_words:
        name, size, kind = word.split("/")
        sections.append(Section(chain if name == "." else name, int(size), kind == "tree"))
    shared = []
    for word in filter(None, shared_word[len("once=") :].split(",")):
        at, _, name = word.partition(":")
        shared.append((int(at), name))
    return ChainLayout(tuple(sections), tuple(shared), updates)


# The file `state`.


def state_text(state: State, generation: int, files: Mapping[str, str]) -> str:
    """The file `state` for *generation*, whose *files* have these texts."""
    is_counting = state.settings.max_updates is not None
    # Else the rules show it to who reads them again.
    has_word = state.master.counts_sets and not counts(state.master.rules())
    lines = [
        f"sflgen-state {SETS_FORMAT if has_word else COUNTING_FORMAT if is_counting else FORMAT}",
        f"family {int(state.master.family)}",
        f"version {state.version}",
        f"generation {generation}",
        *(
            f"{word} {_setting_text(getattr(state.settings, name))}".rstrip()
            for name, word in _SETTINGS.items()
            if name != "max_updates" or is_counting
        ),
        *(["counts_sets yes"] if has_word else []),
        *(f"file {name} {checksum(encode(text))}" for name, text in files.items()),
    ]
    body = "\n".join([*lines, ""])
    return body + f"end {checksum(encode(body))}\n"


def _setting_text(value: object) -> str:
    return " ".join(quote(each) for each in value) if isinstance(value, tuple) else str(value)


def read_state_text(body: str) -> tuple[dict[str, str], dict[str, str]]:
    """By word: the rest of its line; and by name of a file: its sum."""
    values: dict[str, str] = {}
    sums: dict[str, str] = {}
    for line in lines_of(body)[1:]:
        word, _, rest = line.partition(" ")
        if word == "file":
            name, total = rest.split()
            sums[name] = total
        else:
            values[word] = rest
    return values, sums


def read_settings(values: Mapping[str, str]) -> Settings:
    return Settings(
        backend=backend_choice(values["backend"]),
        malformed=choose(Malformed, values["malformed"]),
        delta=int(values["delta"]),
        min_length=int(values["min_length"]),
        max_expansion=float(values["max_expansion"]),
        foreign=tuple(unquote(word) for word, _ in split(values["left"])),
        prefix=values["prefix"],
        max_updates=int(values["max_updates"]) if "max_updates" in values else None,
    )

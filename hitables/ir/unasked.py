"""Words of a packet's text that say nothing: answers that no rule asks for, such as those with a misspelt
name, and interfaces, fragments and states that no packet of the chain has.
"""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterable, Iterator, Mapping

from .answers import Answers
from .connection_states import LOOPBACK, why_no_state, why_not_of_kind
from .fields import INTERFACES, STATES, Field
from .hooks import NO_OIF, hook_box
from .packet_reader import Spelled
from .packet_text import FRAGMENTS
from .program import Table
from .rule import Role


def impossible(spelled: Spelled) -> list[str]:
    """What no packet has that enters the chain of this one, as words: interfaces, and kinds of fragments."""
    values = spelled.packet.values
    box = hook_box(spelled.chain, spelled.packet.family)
    named = zip(("in=", "out="), INTERFACES, strict=False)
    words = [word for word, field in named if values.get(field) and field in box and 0 in box[field]]
    if Field.FRAG in box and values[Field.FRAG] not in box[Field.FRAG]:
        name = next(name for name, kind in FRAGMENTS.items() if kind == values[Field.FRAG])
        words.append(f"frag={name}: the kernel puts fragments together before")
    if spelled.table == "nat" and spelled.chain in NO_OIF and values.get(Field.IIF) == LOOPBACK:
        words.append("in=lo in table nat: it is asked once for each connection, and for these in OUTPUT")
    return words


def impossible_state(spelled: Spelled) -> str:
    """Why no packet has the state of this one where it enters, with the word; "" if some do."""
    packet = spelled.packet
    state, is_loopback = STATES[packet.values[Field.STATE]], packet.values.get(Field.IIF) == LOOPBACK
    why = why_no_state(spelled.table, is_loopback, state)
    if not why and spelled.table != "raw":
        why = why_not_of_kind(packet.family, packet.values, state)
    return why and f"state={state}: {why}"


def unasked(answers: Answers, tables: Iterable[Table], logged: Container[str] = ()) -> list[str]:
    """The words of a packet that no match of *tables* asks for, each with the nearest that one does.

    *logged*: attributes that were read from a line of the kernel's log; these need not be asked for
    """
    matches = {
        match for table in tables for chain in table.chains for rule in chain.rules for match in rule.matches
    }
    constant = [match for match in matches if match.role is Role.CONSTANT]
    keys = {key for match in constant for key in (match.key, match.negates) if key}
    attributes = {match.number.attribute for match in constant if match.number is not None}
    memories = {match.key for match in matches if match.role in (Role.NAMED, Role.ONCE)}
    return [
        *_missing("fact", (key for key, _ in answers.facts), keys, {"outcome": memories}),
        *_missing("number", (name for name, _ in answers.numbers if name not in logged), attributes, {}),
        *_missing("outcome", (key for key, _ in answers.outcomes), memories, {"fact": keys}),
    ]


def _missing(
    word: str, given: Iterable[str], asked: set[str], otherwise: Mapping[str, set[str]]
) -> Iterator[str]:
    """The words whose names are not *asked*, each with advice; *otherwise*: names asked by other words."""
    for name in dict.fromkeys(given):
        if name in asked:
            continue
        right = next((other for other, names in otherwise.items() if name in names), "")
        if right:
            yield f"{word}={name} (write {right}={name})"
        else:
            near = difflib.get_close_matches(name, sorted(asked), 1, 0.3)
            yield f"{word}={name}" + (f" (did you mean {near[0]}?)" if near else "")

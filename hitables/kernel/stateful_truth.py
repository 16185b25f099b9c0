"""The outcomes of matches with memory, where they follow from the packets alone.

A source that occurs once cannot be in a list yet; a bucket is not empty before its burst is spent.  If the
outcome depends on time, chance or earlier packets it is NOT_GIVEN, and the packet's verdict may be open.
The outcome of connlimit is always NOT_GIVEN: it sometimes drops a packet although its limit is not reached.

Rules share a table of `hashlimit` and a list of `recent` by name, and one packet may ask several of them
(`asked`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from graphlib import TopologicalSorter

import numpy as np
import numpy.typing as npt

from ..ir.fields import Family, Field, Fragment
from ..ir.packet import Outcome
from ..ir.program import Table
from ..ir.rule import Match, Role
from ..simulate.batch import NOT_GIVEN, PacketBatch
from .match_truth import Option, options
from .match_truth import addresses as addresses_of

Answers = npt.NDArray[np.uint8]
Others = list[tuple[list[Option], int]]  # the options of matches, and how often a packet may ask them
_YES, _NO = np.uint8(Outcome.YES), np.uint8(Outcome.NO)
_RATES = ("--hashlimit", "--hashlimit-upto", "--hashlimit-above")
_FOREVER = 1 << 40  # a quota of more bytes than all packets have


def answer(match: Match, batch: PacketBatch, others: Mapping[Match, int]) -> Answers:
    """The outcome of *match* for each packet, or NOT_GIVEN.

    *others*: all such matches of the table, *match* among them, and how often a packet may ask each.
    """
    known = _KNOWN.get(match.name)
    if known is None:
        return np.full(len(batch), NOT_GIVEN, np.uint8)
    same = [(options(other), times) for other, times in others.items() if other.name == match.name]
    return known(options(match), batch, same)


def asked(table: Table) -> dict[Match, int]:
    """The matches of *table* with memory or chance, and how often at most one packet asks each.

    Rules of the same line are copies, of which a packet reads one.
    """
    callers: dict[str, list[tuple[str, int]]] = {chain.name: [] for chain in table.chains}
    for chain in table.chains:
        for rule in chain.rules:
            if rule.enters is not None:
                callers[rule.enters].append((chain.name, rule.line))
    graph = {name: {caller for caller, _ in of_chain} for name, of_chain in callers.items()}
    ways: dict[str, int] = {}  # into a chain, for one packet; 1 for a chain that none enters
    for name in TopologicalSorter(graph).static_order():
        ways[name] = _of_copies_one((line, ways[caller]) for caller, line in callers[name]) or 1
    uses: dict[Match, list[tuple[int, int]]] = {}
    for chain in table.chains:
        for rule in chain.rules:
            for match, times in Counter(rule.matches).items():
                if match.role in (Role.NAMED, Role.ONCE):
                    uses.setdefault(match, []).append((rule.line, times * ways[chain.name]))
    return {match: _of_copies_one(of_match) for match, of_match in uses.items()}


def _of_copies_one(numbers: Iterable[tuple[int, int]]) -> int:
    """The sum of *numbers*, where of those of one line the largest counts."""
    largest: dict[int, int] = {}
    for line, number in numbers:
        largest[line] = max(number, largest.get(line, 0))
    return sum(largest.values())


def _value(uses: list[Option], name: str, default: str = "") -> str:
    return next((values[0] for option, _, values in uses if option == name and values), default)


def _has(uses: list[Option], name: str) -> bool:
    return any(option == name for option, *_ in uses)


def _addresses(batch: PacketBatch, which: Field, mask: int) -> list[int]:
    return [address & mask for address in addresses_of(batch, which)]


def _mask(text: str, family: Family) -> int:
    """A mask written as an address or as a prefix length."""
    bits = 32 if family is Family.IPV4 else 128
    if text.isdigit():
        return (1 << bits) - (1 << bits - int(text))
    import ipaddress

    return int(ipaddress.ip_address(text))


def _recent(uses: list[Option], batch: PacketBatch, others: Others) -> Answers:
    answers = np.full(len(batch), NOT_GIVEN, np.uint8)
    if any(inverted for _, inverted, _ in uses):
        return answers
    if _has(uses, "--set"):
        answers[:] = _YES
        return answers
    name = _value(uses, "--name", "DEFAULT")
    sharing = [(other, times) for other, times in others if _value(other, "--name", "DEFAULT") == name]
    setting = [other for other, _ in sharing if _has(other, "--set")]
    if not setting:  # no rule adds to the list
        answers[:] = _NO
        return answers
    stamps = sum(times for other, times in sharing if _has(other, "--set") or _has(other, "--update"))
    side = Field.DST if _has(uses, "--rdest") else Field.SRC
    if any(_has(other, "--rdest") != _has(uses, "--rdest") for other in setting):
        return answers
    mask = _mask(_value(uses, "--mask", "32" if batch.family is Family.IPV4 else "128"), batch.family)
    seen = _addresses(batch, side, mask)
    count = Counter(seen)
    enough = int(_value(uses, "--hitcount", "1"))
    for at, address in enumerate(seen):
        if count[address] * stamps < enough:
            answers[at] = _NO
    return answers


def _hashlimit(uses: list[Option], batch: PacketBatch, others: Others) -> Answers:
    answers = np.full(len(batch), NOT_GIVEN, np.uint8)
    name = _value(uses, "--hashlimit-name")
    sharing = [(other, times) for other, times in others if _value(other, "--hashlimit-name") == name]
    charges = sum(times for _, times in sharing)
    within = batch.rows["low"][:, Field.FRAG] != Fragment.LATER
    # The table has burst, mode and masks of the rule that is loaded first, whichever that is.
    for other, _ in sharing:
        burst = _burst(other)
        if burst is None:
            return answers
        keys = _keys(other, batch)
        count = Counter(keys)
        within &= np.array([count[key] * charges <= burst for key in keys], bool)
    above = any(
        (option == "--hashlimit-above") != inverted for option, inverted, _ in uses if option in _RATES
    )
    answers[within] = _NO if above else _YES
    return answers


def _burst(uses: list[Option]) -> int | None:
    """The packets that a new entry of a hashlimit surely lets pass; None if it is not known."""
    burst = _value(uses, "--hashlimit-burst", "5")
    rates = [_value(uses, option) for option in _RATES]
    in_bytes = any("b/" in rate for rate in rates)
    known = set(_modes(uses)) <= {"srcip", "dstip"} and burst.isdigit() and any(rates) and not in_bytes
    return int(burst) if known and not _has(uses, "--hashlimit-rate-match") else None


def _modes(uses: list[Option]) -> list[str]:
    return _value(uses, "--hashlimit-mode").split(",")


def _keys(uses: list[Option], batch: PacketBatch) -> list[tuple[int, ...]]:
    """For each packet the entry that it has in the table of a hashlimit."""
    bits = "32" if batch.family is Family.IPV4 else "128"
    sides = {"srcip": (Field.SRC, "--hashlimit-srcmask"), "dstip": (Field.DST, "--hashlimit-dstmask")}
    columns = [
        _addresses(batch, sides[mode][0], _mask(_value(uses, sides[mode][1], bits), batch.family))
        for mode in _modes(uses)
    ]
    return list(zip(*columns, strict=True))


def _quota(uses: list[Option], batch: PacketBatch, others: Others) -> Answers:
    name, inverted, values = uses[0]
    answers = np.full(len(batch), NOT_GIVEN, np.uint8)
    if name == "--quota" and values[0].isdigit() and not 0 < int(values[0]) < _FOREVER:
        answers[:] = _YES if (int(values[0]) > 0) != inverted else _NO
    return answers


_KNOWN: dict[str, Callable[[list[Option], PacketBatch, Others], Answers]] = {
    "hashlimit": _hashlimit,
    "quota": _quota,
    "recent": _recent,
}

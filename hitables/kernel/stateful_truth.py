"""The outcomes of matches with memory, where they follow from the packets alone.

A source that occurs once cannot be in a list yet; a bucket is not empty before its burst is spent.  If the
outcome depends on time, chance or earlier packets it is NOT_GIVEN, and the packet's verdict may be open.
The outcome of connlimit is always NOT_GIVEN: it sometimes drops a packet although its limit is not reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from ..ir.fields import Family, Field, Fragment
from ..ir.packet import Outcome
from ..ir.rule import Match
from ..simulate.batch import NOT_GIVEN, PacketBatch
from .match_truth import Option, options
from .match_truth import addresses as addresses_of

Answers = npt.NDArray[np.uint8]
_YES, _NO = np.uint8(Outcome.YES), np.uint8(Outcome.NO)
_FOREVER = 1 << 40  # a quota of more bytes than all packets have


def answer(match: Match, batch: PacketBatch, others: Iterable[Match]) -> Answers:
    """The outcome of *match* for each packet, or NOT_GIVEN.  *others*: all such matches of the table."""
    known = _KNOWN.get(match.name)
    if known is None:
        return np.full(len(batch), NOT_GIVEN, np.uint8)
    return known(options(match), batch, [options(other) for other in others if other.name == match.name])


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


def _recent(uses: list[Option], batch: PacketBatch, others: list[list[Option]]) -> Answers:
    answers = np.full(len(batch), NOT_GIVEN, np.uint8)
    if any(inverted for _, inverted, _ in uses):
        return answers
    if _has(uses, "--set"):
        answers[:] = _YES
        return answers
    name = _value(uses, "--name", "DEFAULT")
    sharing = [other for other in others if _value(other, "--name", "DEFAULT") == name]
    setting = [other for other in sharing if _has(other, "--set")]
    if not setting:  # no rule adds to the list
        answers[:] = _NO
        return answers
    stamps = sum(_has(other, "--set") or _has(other, "--update") for other in sharing)
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


def _hashlimit(uses: list[Option], batch: PacketBatch, others: list[list[Option]]) -> Answers:
    answers = np.full(len(batch), NOT_GIVEN, np.uint8)
    modes = _value(uses, "--hashlimit-mode").split(",")
    burst = _value(uses, "--hashlimit-burst", "5")
    whole = batch.rows["low"][:, Field.FRAG] != Fragment.LATER
    if not set(modes) <= {"srcip", "dstip"} or not burst.isdigit() or _has(uses, "--hashlimit-rate-match"):
        return answers
    if not {"--hashlimit", "--hashlimit-upto", "--hashlimit-above"} & {option for option, *_ in uses}:
        return answers
    bits = "32" if batch.family is Family.IPV4 else "128"
    sides = {"srcip": (Field.SRC, "--hashlimit-srcmask"), "dstip": (Field.DST, "--hashlimit-dstmask")}
    keys = list(
        zip(
            *(
                _addresses(batch, sides[mode][0], _mask(_value(uses, sides[mode][1], bits), batch.family))
                for mode in modes
            ),
            strict=True,
        )
    )
    name = _value(uses, "--hashlimit-name")
    charges = sum(_value(other, "--hashlimit-name") == name for other in others)
    count = Counter(keys)
    within = np.array([count[key] * charges <= int(burst) for key in keys], bool)
    answers[within & whole] = _NO if _has(uses, "--hashlimit-above") else _YES
    return answers


def _quota(uses: list[Option], batch: PacketBatch, others: list[list[Option]]) -> Answers:
    name, inverted, values = uses[0]
    answers = np.full(len(batch), NOT_GIVEN, np.uint8)
    if name == "--quota" and values[0].isdigit() and not 0 < int(values[0]) < _FOREVER:
        answers[:] = _YES if (int(values[0]) > 0) != inverted else _NO
    return answers


_KNOWN: dict[str, Callable[[list[Option], PacketBatch, list[list[Option]]], Answers]] = {
    "hashlimit": _hashlimit,
    "quota": _quota,
    "recent": _recent,
}

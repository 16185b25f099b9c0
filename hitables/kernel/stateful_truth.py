"""What matches with memory must answer, where that follows from the packets alone.

A source that occurs once cannot have been seen before; a bucket is not empty before its burst
is spent.  Where the answer depends on time, chance or the packets before, there is none
(NOT_GIVEN), and the packet's verdict may be open.  Of connlimit nothing is known: now and then
it drops a packet for reasons of its own.
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


def _value(given: list[Option], name: str, default: str = "") -> str:
    return next((values[0] for option, _, values in given if option == name and values), default)


def _has(given: list[Option], name: str) -> bool:
    return any(option == name for option, *_ in given)


def _addresses(batch: PacketBatch, which: Field, mask: int) -> list[int]:
    return [address & mask for address in addresses_of(batch, which)]


def _mask(text: str, family: Family) -> int:
    """A mask spelt as an address or as its length."""
    bits = 32 if family is Family.IPV4 else 128
    if text.isdigit():
        return (1 << bits) - (1 << bits - int(text))
    import ipaddress

    return int(ipaddress.ip_address(text))


def _recent(given: list[Option], batch: PacketBatch, others: list[list[Option]]) -> Answers:
    found = np.full(len(batch), NOT_GIVEN, np.uint8)
    if any(inverted for _, inverted, _ in given):
        return found
    if _has(given, "--set"):
        found[:] = _YES
        return found
    name = _value(given, "--name", "DEFAULT")
    sharing = [other for other in others if _value(other, "--name", "DEFAULT") == name]
    setting = [other for other in sharing if _has(other, "--set")]
    if not setting:  # nobody is ever put in the list
        found[:] = _NO
        return found
    stamps = sum(_has(other, "--set") or _has(other, "--update") for other in sharing)
    side = Field.DST if _has(given, "--rdest") else Field.SRC
    if any(_has(other, "--rdest") != _has(given, "--rdest") for other in setting):
        return found
    mask = _mask(_value(given, "--mask", "32" if batch.family is Family.IPV4 else "128"), batch.family)
    seen = _addresses(batch, side, mask)
    count = Counter(seen)
    enough = int(_value(given, "--hitcount", "1"))
    for at, address in enumerate(seen):
        if count[address] * stamps < enough:
            found[at] = _NO
    return found


def _hashlimit(given: list[Option], batch: PacketBatch, others: list[list[Option]]) -> Answers:
    found = np.full(len(batch), NOT_GIVEN, np.uint8)
    modes = _value(given, "--hashlimit-mode").split(",")
    burst = _value(given, "--hashlimit-burst", "5")
    whole = batch.rows["low"][:, Field.FRAG] != Fragment.LATER
    if not set(modes) <= {"srcip", "dstip"} or not burst.isdigit() or _has(given, "--hashlimit-rate-match"):
        return found
    if not {"--hashlimit", "--hashlimit-upto", "--hashlimit-above"} & {option for option, *_ in given}:
        return found
    bits = "32" if batch.family is Family.IPV4 else "128"
    sides = {"srcip": (Field.SRC, "--hashlimit-srcmask"), "dstip": (Field.DST, "--hashlimit-dstmask")}
    keys = list(
        zip(
            *(
                _addresses(batch, sides[mode][0], _mask(_value(given, sides[mode][1], bits), batch.family))
                for mode in modes
            ),
            strict=True,
        )
    )
    name = _value(given, "--hashlimit-name")
    charges = sum(_value(other, "--hashlimit-name") == name for other in others)
    count = Counter(keys)
    within = np.array([count[key] * charges <= int(burst) for key in keys], bool)
    found[within & whole] = _NO if _has(given, "--hashlimit-above") else _YES
    return found


def _quota(given: list[Option], batch: PacketBatch, others: list[list[Option]]) -> Answers:
    name, inverted, values = given[0]
    found = np.full(len(batch), NOT_GIVEN, np.uint8)
    if name == "--quota" and values[0].isdigit() and not 0 < int(values[0]) < _FOREVER:
        found[:] = _YES if (int(values[0]) > 0) != inverted else _NO
    return found


_KNOWN: dict[str, Callable[[list[Option], PacketBatch, list[list[Option]]], Answers]] = {
    "hashlimit": _hashlimit,
    "quota": _quota,
    "recent": _recent,
}

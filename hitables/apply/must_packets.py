"""The packets of `apply --must`: text as for `hitables trace`, of which each names its table and chain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..errors import HitablesError, InvalidOption
from ..ir.fields import Family
from ..ir.packet_reader import read_packet
from ..ir.program import BUILT_IN, Program
from ..ir.unasked import unasked
from ..parse.rule_parts import nearest


def family_of(packet: str) -> Family | None:
    """The family of a packet as text, by its addresses; None if it has none."""
    address = re.search(r"\b(?:src|dst)=(\S+)", packet)
    return None if address is None else Family.IPV6 if ":" in address[1] else Family.IPV4


def check_must(packets: Sequence[str], families: Iterable[Family]) -> None:
    """InvalidOption if one of *packets* cannot be read, or is of none of *families*."""
    families = list(families)
    for packet in packets:
        family = family_of(packet) or min(families)
        if family not in families:
            raise InvalidOption(
                f"--must: {packet}\nThis is a packet of IPv{int(family)}, and no rules of that family are "
                "applied: give their file too, or leave the packet out"
            )
        try:
            read_packet(packet, family)
        except HitablesError as error:
            raise InvalidOption(f"--must: {error}\nWrite the packet as for hitables trace") from None


def must_unasked(packets: Sequence[str], programs: Sequence[Program]) -> Iterator[str]:
    """For each of *packets*: the words with an answer that no match of its table asks for, in any family."""
    for packet in packets:
        read_by = [program for program in programs if family_of(packet) in (program.family, None)]
        if read_by:
            spelled = read_packet(packet, read_by[0].family)
            tables = (program.find(spelled.table) for program in read_by)
            for word in unasked(spelled.answers, filter(None, tables)):
                yield f"--must {packet}: no match of table {spelled.table} asks for {word}"


def check_place(packet: str, table: str, chain: str, program: Program) -> None:
    """InvalidOption if neither the kernel nor *program* has the table or the chain that *packet* names."""
    content = program.find(table)
    if content is None and table not in BUILT_IN:
        raise InvalidOption(f"--must {packet}: there is no table {table}; {' '.join(BUILT_IN)} are tables")
    known = [*BUILT_IN.get(table, ()), *(() if content is None else content.by_name())]
    if chain not in known:
        hint = nearest(chain, known)
        raise InvalidOption(
            f"--must {packet}: table {table} has no chain {chain}{'; ' if hint else ''}{hint}"
        )

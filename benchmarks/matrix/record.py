"""The kernel's result for each pair, as stored in docs/evaluation/matrix.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hitables.ir.fields import Family
from hitables.ir.packet import Backend

from .rules import MATCHES_AS_WRITERS, READERS, TARGETS_TRIED, Try

CHANGED, NEVER, BY_ITSELF, APART, READER_REFUSED, WRITER_REFUSED, NO_PACKET = "c.exrwn"
LEGEND = {
    CHANGED: "some packet got another answer behind the writer",
    NEVER: "no packet did",
    BY_ITSELF: "some packet got another answer, as without a writer",
    APART: "no chain of this family takes both rules",
    READER_REFUSED: "iptables or the kernel refuses the reader",
    WRITER_REFUSED: "iptables or the kernel refuses the writer",
    NO_PACKET: "no packet went on behind the writer",
}
_PARTS = ("codes", "shown", "later", "by_itself", "ended", "went_on", "refused", "lost", "writers", "readers")
WRITERS: tuple[Try, ...] = TARGETS_TRIED + MATCHES_AS_WRITERS


@dataclass(frozen=True, slots=True)
class Setting:
    """One kernel interface: a family and a backend."""

    family: Family
    backend: Backend

    @property
    def name(self) -> str:
        return f"IPv{self.family.value} {self.backend.value}"


SETTINGS = tuple(Setting(family, backend) for family in Family for backend in Backend)


def identity(each: Try) -> str:
    """The name of a reader or writer in the record: its words, its tables unless mangle, its only family."""
    where = f" [{' '.join(each.tables)}]" if each.tables and each.tables != ("mangle",) else ""
    family = f" [IPv{next(iter(each.families)).value}]" if len(each.families) == 1 else ""
    return each.words + where + family


@dataclass(slots=True)
class Record:
    """The whole matrix.

    codes     setting -> one word per writer, of one letter (LEGEND) per reader
    shown     writer -> reader -> setting -> where and by which packet it was shown
    later     the same, of writers in one table and readers in a later one
    by_itself reader -> setting -> where it changed without a writer
    ended, went_on  writer -> the packet whose way it ended, or did not
    refused   rule -> what iptables or the kernel said
    lost      packets that a probe dropped, by setting
    """

    head: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, list[str]] = field(default_factory=dict)
    shown: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    later: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    by_itself: dict[str, dict[str, str]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    went_on: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    writers: Sequence[str] = field(default_factory=lambda: [identity(each) for each in WRITERS])
    readers: Sequence[str] = field(default_factory=lambda: [identity(each) for each in READERS])

    def write(self, path: Path) -> None:
        data = {**self.head, "legend": LEGEND, **{name: getattr(self, name) for name in _PARTS}}
        path.write_text(json.dumps(data, indent=0, ensure_ascii=False) + "\n")


def read_record(path: Path) -> Record:
    """The record in *path*."""
    data = json.loads(path.read_text())
    record = Record()
    for name in _PARTS:
        setattr(record, name, data.pop(name))
    data.pop("legend")
    record.head = data
    return record

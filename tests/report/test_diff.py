"""Changes as text: many of them, and packets of all kinds of fragments."""

from __future__ import annotations

from typing import Any

import pytest

import hitables
from hitables.ir.fields import Family, Field
from hitables.ir.intervals import Values
from hitables.report import region_text
from hitables.report.diff import show
from hitables.report.region_text import describe

EMPTY = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"


def test_a_long_set_of_addresses_is_put_into_words_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these rules meets all sources but 50: it took longer to name them than to find the changes."""
    blocked = "".join(f"-A INPUT -s 10.{3 * net}.0.0/16 -j DROP\n" for net in range(50))
    served = "".join(f"-A INPUT -p tcp --dport {port} -j REJECT\n" for port in range(20, 60, 2))
    changes = hitables.diff(EMPTY, EMPTY.replace("COMMIT", blocked + served + "COMMIT"), backend="nft")
    asked = []
    real = region_text._networks

    def counting(values: Any, family: Family) -> Any:
        asked.append(values)
        return real(values, family)

    region_text.addresses.cache_clear()
    monkeypatch.setattr(region_text, "_networks", counting)
    text = show(changes, ("empty", "full"), limit=20)
    assert "all but 10.0.0.0/16, 10.3.0.0/16, 10.6.0.0/16 and 47 more" in text
    long = [values for values in asked if len(values.pairs) > 50]
    assert len(changes.regions) > 20 and 0 < len(long) <= 3


def test_packets_of_all_kinds_of_fragments_are_not_told_by_them() -> None:
    some, every = Values(((0, 1),)), Values(((0, 2),))
    tcp = Values(((6, 6),))
    assert describe({Field.PROTO: tcp, Field.FRAG: every}, Family.IPV4) == "tcp"
    assert (
        describe({Field.PROTO: tcp, Field.FRAG: some}, Family.IPV4) == "tcp (not fragmented, first fragments)"
    )

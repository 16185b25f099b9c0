"""Matches of ipsets have memory where a rule reads the counters of ipsets."""

from __future__ import annotations

import pytest

from hitables.ir.set_counters import counted_alike, counting
from hitables.parse.iptables import read
from hitables.verify.exact import check
from hitables.verify.question import Equal, Question


def _text(*rules: str) -> str:
    return "\n".join(["*filter", ":INPUT ACCEPT", *(f"-A INPUT {rule}" for rule in rules), "COMMIT", ""])


_QUIET = [
    _text(f"-m set --match-set A src {option} -j DROP", "-m set --match-set B src -j DROP")
    for option in ("! --update-counters", "! --update-subcounters")
]


@pytest.mark.parametrize("source", _QUIET)
def test_a_match_that_counts_less_is_no_sign_that_a_rule_reads_counters(source: str) -> None:
    one, other = counted_alike(read(source), read(source))
    assert one == other == read(source)
    assert isinstance(check(read(source), read(source), Question()), Equal)


def test_a_program_counts_sets_where_only_the_other_one_reads_their_counters() -> None:
    reading = read(
        _text("-m set --match-set A src --packets-gt 2 -j DROP", "-m set --match-set B src -j DROP")
    )
    quiet = read(_QUIET[0])
    assert (reading.counts_sets, quiet.counts_sets) == (True, False)
    assert counted_alike(reading, quiet) == (reading, counting(quiet))
    assert counted_alike(quiet, reading) == (counting(quiet), reading)

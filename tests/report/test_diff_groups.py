"""The report of `hitables diff`: which regions and lines it names, in which order, and its status."""

from __future__ import annotations

import pytest

import hitables
from hitables.ir.packet import Backend
from hitables.report.diff import report, show
from hitables.verify.diff import BROKEN, WHOLE
from hitables.verify.question import Undecided

pytestmark = pytest.mark.engine


def rules_of(*rules: str, heads: str = ":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n") -> hitables.Program:
    return hitables.read("".join(["*filter\n", heads, *(f"-A {rule}\n" for rule in rules), "COMMIT\n"]))


NOTHING = rules_of()


def shown(before: hitables.Program, after: hitables.Program, limit: int | None = None) -> list[str]:
    return show(hitables.diff(before, after), ("A", "B"), limit).splitlines()


def test_a_difference_that_was_found_decides_the_status_beside_an_undecided_chain() -> None:
    before = rules_of("INPUT -s 10.0.0.0/8 -j DROP")
    changes = hitables.diff(before, NOTHING)
    changes.undecided.append(Undecided("out of time", "filter", "FORWARD", Backend.NFT, 0.5))
    result = report(changes, before, NOTHING, None, 0.0)
    assert result.status == 1
    assert "any protocol from 10.0.0.0/8" in result.text
    assert "undecided: out of time in table filter, chain FORWARD, nft: 50% done" in result.text


def test_joined_groups_have_their_largest_regions_first() -> None:
    before = rules_of("INPUT -s 10.0.0.0/8 -j DROP", "INPUT -s 11.0.0.0/10 -j DROP")
    assert shown(before, rules_of("INPUT -s 10.1.0.0/16 -p tcp -j DROP"), limit=1)[1:] == [
        "  any protocol from 10.0.0.0-10.0.255.255, 10.2.0.0-10.255.255.255",
        "  any protocol from 11.0.0.0/10",
        "  all but tcp from 10.1.0.0/16",
        "    was DROP by lines 4 and 5, now ACCEPT by policy",
    ]


def test_each_chain_has_one_heading() -> None:
    before = rules_of(
        "INPUT -s 10.0.0.0/8 -j DROP", "INPUT -s 11.0.0.0/24 -j DROP", "FORWARD -s 10.0.0.0/12 -j DROP"
    )
    headings = [line for line in shown(before, NOTHING) if not line.startswith(" ")]
    assert headings == ["table filter, chain INPUT:", "table filter, chain FORWARD:"]


@pytest.mark.parametrize(("count", "lines"), [(4, "4, 5, 6 and 7"), (5, "4, 5, 6 and 2 more")])
def test_one_more_line_than_are_named_is_named_too(count: int, lines: str) -> None:
    before = rules_of(*(f"INPUT -s 10.{2 * at}.0.0/16 -j DROP" for at in range(count)))
    assert shown(before, NOTHING, limit=1)[-1] == f"    was DROP by lines {lines}, now ACCEPT by policy"


def test_a_limit_by_which_packets_are_told_is_not_named_as_an_effect() -> None:
    before = rules_of("INPUT -s 10.0.0.0/8 -m limit -j DROP")
    limit = "limit --limit 3/hour --limit-burst 5"
    assert shown(before, NOTHING)[1:] == [
        f'  any protocol from 10.0.0.0/8, when "{limit}" matches',
        "    was DROP by line 4, now ACCEPT by policy",
        f'  any protocol from 10.0.0.0/8, when "{limit}" does not match',
        f"    no longer evaluates {limit} (line 4)",
    ]


def test_changes_are_listed_by_the_number_of_their_headers() -> None:
    before = rules_of("INPUT -s 10.0.0.0/24 -j DROP", "INPUT -s 11.0.0.0/8 -j DROP")
    headers = [each.headers for each in hitables.diff(before, NOTHING).regions if each.packets == WHOLE]
    assert headers == sorted(headers, reverse=True) and len(set(headers)) == 2


def test_a_rule_that_drops_broken_headers_decides_them() -> None:
    before = rules_of("INPUT -p tcp -m tcp --dport 22 -j LOG")
    changes = hitables.diff(before, NOTHING, malformed="exact")
    (broken,) = (each.before for each in changes.regions if each.packets == BROKEN)
    assert (broken.verdict, broken.line) == ("DROP", 4)


def test_each_type_and_code_of_icmp_is_a_header() -> None:
    (every,), (echo_request,) = (
        [
            each.headers
            for each in hitables.diff(rules_of(f"INPUT -p icmp{types} -j DROP"), NOTHING).regions
            if each.packets == WHOLE
        ]
        for types in ("", " -m icmp --icmp-type 8/0")
    )
    assert every == 256 * 256 * echo_request


def test_the_first_of_several_rules_in_one_line_is_shown_for_it() -> None:
    before = rules_of("INPUT -s 10.0.0.1,10.0.0.2 -j DROP")
    (finding,) = report(hitables.diff(before, NOTHING), before, NOTHING, None, 0.0).findings
    texts = {place.role: place.text for place in finding.places}
    assert texts["before"] == "-A INPUT -s 10.0.0.1 -j DROP"


def test_the_policy_of_a_chain_that_has_no_line_is_placed_at_its_table() -> None:
    before, after = rules_of("INPUT -s 10.0.0.1 -j DROP"), rules_of("INPUT -s 10.0.0.2 -j ACCEPT", heads="")
    (finding,) = report(hitables.diff(before, after), before, after, None, 0.0).findings
    lines = {place.role: place.line for place in finding.places}
    assert lines == {"before": 4, "after": 1}

"""Rules that several others cover are left out of the lists of groups, and no rule that decides packets is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.by_lists import crossing_rules, proved_by_lists

import hitables
from hitables.build.grow import grow
from hitables.compiler import run_trees
from hitables.compiler.compile import compile_rules
from hitables.verify import exact, group_lists
from hitables.verify.dead_rules import CoverSearch, ListBoxes
from hitables.verify.group_reader import Copies, ListRules
from hitables.verify.question import Difference, Equal, Question

pytestmark = pytest.mark.engine


def in_groups(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(run_trees, "grow", partial(grow, grouping=1))
    return hitables.write(compile_rules(hitables.read(text)).program)


def with_last(text: str, *rules: str) -> str:
    return text.replace("COMMIT", "".join(f"-A FORWARD {rule}\n" for rule in rules) + "COMMIT")


HALVES = ("-s 0.0.0.0/1 -j DROP", "-s 128.0.0.0/1 -d 0.0.0.0/1 -j ACCEPT", "-d 128.0.0.0/1 -j DROP")


def test_rules_that_several_others_cover_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = crossing_rules(600).splitlines(keepends=True)
    lines[300:300] = ["-A FORWARD -s 16.0.0.0/4 -j LOG\n"]
    before = with_last("".join(lines), *HALVES, "-p tcp -j ACCEPT", "-d 9.0.0.0/8 -j DROP")
    assert proved_by_lists(before, in_groups(before, monkeypatch), monkeypatch) is True


@pytest.mark.parametrize("covering", [[], [600], [0, 1, 2]])
def test_a_rule_that_decides_packets_is_not_left_out(
    covering: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = crossing_rules(600)
    before, after = with_last(one, HALVES[0], "-p tcp -j DROP"), with_last(one, HALVES[0])
    after = in_groups(after, monkeypatch)
    dropped = len(hitables.read(before).table("filter")["FORWARD"].rules) - 1

    def too_many(rules: ListRules, _: Copies) -> tuple[ListRules, dict[int, list[int]]]:
        live = rules.live.copy()
        live[dropped] = False
        return replace(rules, live=live), {dropped: covering}

    monkeypatch.setattr(group_lists, "without_dead", too_many)
    assert proved_by_lists(before, after, monkeypatch) is False


def test_a_rule_that_drops_malformed_packets_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native rules of nft let packets pass whose ports are cut off; multiport drops them."""
    one = crossing_rules(600)
    native = "-p tcp -m tcp --dport 0:1023 -j ACCEPT", "-p tcp -m tcp --dport 1024:65535 -j ACCEPT"
    before = with_last(one, *native, "-p tcp -m multiport --dports 1:65535 -j ACCEPT")
    after = in_groups(with_last(one, *native), monkeypatch)
    assert isinstance(exact.check(hitables.read(before), hitables.read(after), Question()), Difference)
    assert proved_by_lists(before, after, monkeypatch) is False


def test_covering_rules_cover() -> None:
    found = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        dims, count = 3, 12
        ends = np.sort(rng.integers(0, 6, (2, dims, count)), axis=0)
        ends[0][rng.random((dims, count)) < 0.5], ends[1][rng.random((dims, count)) < 0.5] = 0, 5
        ends[:, 0, 0] = 3, 2  # contradicts itself
        deciding = (rng.random(count) < 0.8) & (ends[0] <= ends[1]).all(axis=0)
        boxes = ListBoxes(ends[0], ends[1], deciding)
        rule = count - 1
        covering = CoverSearch(boxes).covering(rule)
        points = np.stack(np.meshgrid(*[np.arange(6)] * dims)).reshape(dims, 1, -1)
        inside = ((points >= ends[0][..., None]) & (points <= ends[1][..., None])).all(axis=0)
        earlier = [each for each in range(rule) if boxes.deciding[each]]
        is_covered = not (inside[rule] & ~inside[earlier].any(axis=0)).any()
        assert bool(covering) == is_covered
        if covering:
            found += 1
            assert set(covering) <= set(earlier)
            assert not (inside[rule] & ~inside[covering].any(axis=0)).any()
    assert 30 < found < 270


def test_a_rule_whose_malformed_packets_are_dropped_later_may_be_printed_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule is not dead for them, so the lists are compared with it."""
    one = crossing_rules(600)
    halves = "-p tcp -m tcp --dport 0:1023 -j DROP", "-p tcp -m tcp --dport 1024:65535 -j DROP"
    before = with_last(one, *halves, "-p tcp -m multiport --dports 1:65535 -j DROP", "-j DROP")
    after = in_groups(with_last(one, *halves, "-j DROP"), monkeypatch)
    assert isinstance(exact.check(hitables.read(before), hitables.read(after), Question()), Equal)
    assert proved_by_lists(before, after, monkeypatch) is True


# No packet leaves by a device that `+` is not the name of: no value passes the test, and it is the last one.
MATCHES_NOTHING = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -s 10.2.138.141/32 -j ACCEPT
-A FORWARD -p tcp -j DROP
-A FORWARD -p tcp -j DROP
-A FORWARD -s 10.2.220.252/32 -j DROP
-A FORWARD -p udp -j ACCEPT
-A FORWARD -s 10.0.185.0/24 -p udp -j ACCEPT
-A FORWARD -p tcp --sport 1024:65535 -j ACCEPT
-A FORWARD -s 10.0.120.47/32 -p icmp ! -o lo -j DROP
-A FORWARD -s 10.2.138.141/32 -p icmp -j ACCEPT
-A FORWARD -p tcp --dport 0:1023 -j ACCEPT
-A FORWARD -p icmp -i ppp+ -j ACCEPT
-A FORWARD ! -o + -j DROP
-A FORWARD ! -d 10.0.120.47/32 ! -o lo -j ACCEPT
COMMIT
"""


def test_lists_with_a_rule_that_no_packet_can_match_are_compared() -> None:
    output = hitables.compile(MATCHES_NOTHING, effort="best", leaf_size=16, max_expansion=20)
    assert output.proved and "-j ht" in output.text

"""How the kernel differs from recorded rules, in words."""

from __future__ import annotations

import pytest

from hitables.apply.drift import differences
from hitables.apply.records import Half
from hitables.apply.texts import parse

RULES = ["-s 10.0.0.1/32 -j ACCEPT", "-p tcp -j LOG", "-p udp -j DROP"]


def text(rules: list[str], policy: str = "DROP") -> str:
    return f"*filter\n:INPUT {policy} [0:0]\n" + "".join(f"-A INPUT {each}\n" for each in rules) + "COMMIT\n"


@pytest.mark.parametrize(
    ("present", "words"),
    [
        (["-j ACCEPT", *RULES], "rule 1 is new: '-j ACCEPT'"),
        ([*RULES, "-j ACCEPT"], "rule 4 is new: '-j ACCEPT'"),
        ([RULES[0], "-j A", "-j B", *RULES[1:]], "rules 2 to 3 are new: '-j A'"),
        ([RULES[0], *RULES], "rule 2 is new: '-s 10.0.0.1/32 -j ACCEPT'"),
        ([RULES[0], RULES[2]], "rule 2 is gone: '-p tcp -j LOG'"),
        ([], "rules 1 to 3 are gone: '-s 10.0.0.1/32 -j ACCEPT'"),
        ([RULES[0], "-j A", RULES[2]], "rule 2 is now '-j A', was '-p tcp -j LOG'"),
        (RULES[::-1], "rule 1 is now '-p udp -j DROP', was '-s 10.0.0.1/32 -j ACCEPT' and more up to rule 3"),
    ],
)
def test_rules_that_were_added_removed_or_changed_are_told_apart(present: list[str], words: str) -> None:
    half = Half(parse(text(RULES)), {})
    assert list(differences(parse(text(present)), half, ())) == [f"table filter, chain INPUT: {words}"]


JUMP = "-j f2b-sshd"


@pytest.mark.parametrize(
    ("loaded", "present", "words"),
    [
        ([], [JUMP, JUMP, "-j ACCEPT"], "rule 3 is new: '-j ACCEPT'"),
        ([JUMP, *RULES], [JUMP, RULES[0], "-j A", JUMP, "-j B", *RULES[1:]], "rules 3 to 5 are new: '-j A'"),
        ([JUMP, *RULES], [JUMP, RULES[0], RULES[2]], "rule 3 is gone: '-p tcp -j LOG'"),
        (RULES, [JUMP, RULES[0], "-j A", RULES[2]], "rule 3 is now '-j A', was '-p tcp -j LOG'"),
        (
            RULES,
            [JUMP, RULES[2], RULES[1], JUMP, RULES[0]],
            "rule 2 is now '-p udp -j DROP', was '-s 10.0.0.1/32 -j ACCEPT' and more up to rule 5",
        ),
        (
            [RULES[0], "-j DROP"],
            [JUMP, RULES[0], JUMP, "-j DROP", "-j A"],
            "rule 5 is new: '-j A', where no packet comes: rule 4 takes all (-j DROP)",
        ),
    ],
)
def test_rules_of_others_count_in_the_number_of_a_rule(
    loaded: list[str], present: list[str], words: str
) -> None:
    """`iptables -D INPUT 3` deletes what is called rule 3."""
    half = Half(parse(text(loaded)), {})
    told = list(differences(parse(text(present)), half, ("f2b-*",)))
    assert told == [f"table filter, chain INPUT: {words}"]


def test_a_policy_is_told_first() -> None:
    half = Half(parse(text(RULES)), {})
    told = list(differences(parse(text([], "ACCEPT")), half, ()))
    assert told == ["table filter, chain INPUT: policy ACCEPT, was DROP"]


@pytest.mark.parametrize(
    ("last", "unread"),
    [
        ("-g ht1", ", where no packet comes: rule 4 takes all (-g ht1)"),
        ("-j DROP", ", where no packet comes: rule 4 takes all (-j DROP)"),
        ("-p tcp -g ht1", ""),
        ("-j ht1", ""),
    ],
)
def test_a_rule_behind_one_that_takes_all_packets_is_told_to_be_unread(last: str, unread: str) -> None:
    rules = [*RULES, last]
    half = Half(parse(text(rules)), {})
    (told,) = differences(parse(text([*rules, "-s 10.0.0.9/32 -j DROP"])), half, ())
    assert told == f"table filter, chain INPUT: rule 5 is new: '-s 10.0.0.9/32 -j DROP'{unread}"


def test_flushed_chains_of_trees_are_counted_and_not_called_new() -> None:
    trees = "-A ht1 -s 10.0.0.1/32 -j DROP\n-A ht2 -s 10.0.0.2/32 -j DROP\n"
    loaded = "*filter\n:INPUT DROP [0:0]\n:ht1 -\n:ht2 -\n{}COMMIT\n"
    half = Half(
        parse(loaded.format("-A INPUT -j ht1\n-A INPUT -j ht2\n" + trees)), {"filter": ("ht1", "ht2")}
    )
    calls, trees_told = differences(parse(loaded.format("")), half, ())
    assert calls == "table filter, chain INPUT: rules 1 to 2 are gone: '-j (tree)'"
    assert trees_told == "table filter: 2 chains of trees are missing or have other rules"

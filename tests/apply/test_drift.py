"""How the kernel differs from recorded rules, in words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables.apply.drift import differences
from hitables.apply.drift_words import places
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
        (["-j A", "-j B"], "rule 1 is now '-j A', was '-s 10.0.0.1/32 -j ACCEPT' and more up to rule 2"),
        ([RULES[0], "-j A"], "rule 2 is now '-j A', was '-p tcp -j LOG' and more"),
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
            [JUMP, "-j A", RULES[1], "-j B", JUMP, "-j C"],
            "rule 2 is now '-j A', was '-s 10.0.0.1/32 -j ACCEPT'; rule 4 is now '-j B', was '-p udp -j DROP' and more "
            "up to rule 6",
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
    assert told == [f"table filter, chain INPUT: {each}" for each in words.split("; ")]


@pytest.mark.parametrize("length", [3, 10_000])
def test_rules_in_front_and_at_the_end_are_told_one_by_one(length: int) -> None:
    """Long chains are not compared rule by rule with each other."""
    rules = [f"-d 10.0.{at // 256}.{at % 256}/32 -j DROP" for at in range(length)]
    both = [["-j A", *rules, "-j B", "-j C"], rules]
    added, gone = (
        [each.split("INPUT: ")[1] for each in differences(parse(text(now)), Half(parse(text(was)), {}), ())]
        for now, was in (both, both[::-1])
    )
    assert added == ["rule 1 is new: '-j A'", f"rules {length + 2} to {length + 3} are new: '-j B'"]
    assert gone == ["rule 1 is gone: '-j A'", f"rules {length + 2} to {length + 3} are gone: '-j B'"]


def test_many_places_are_told_as_one() -> None:
    now = [each for rule in "abcde" for each in (f"-j {rule}", "-j X")]
    (told,) = differences(parse(text(now)), Half(parse(text([f"-j {rule}" for rule in "abcde"])), {}), ())
    assert told.endswith("chain INPUT: rule 2 is now '-j X', was '-j b' and more up to rule 10")


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
@settings(max_examples=examples(50))
def test_rules_outside_of_the_places_that_are_told_are_alike(was: list[str], now: list[str]) -> None:
    rebuilt, done = [], 0
    for place in places(was, now):
        assert now[place.start : place.end] != was[place.old_start : place.old_end]
        rebuilt += [*was[done : place.old_start], *now[place.start : place.end]]
        done = place.old_end
    assert rebuilt + was[done:] == now


def test_a_rule_is_told_as_it_is_printed() -> None:
    """So that it can be given to iptables."""
    rule = r"""-m comment --comment "name: \"podman\" it's" -j ACCEPT"""
    (told,) = differences(parse(text([rule])), Half(parse(text([])), {}), ())
    assert told.endswith(f": '{rule}'")


def test_a_policy_is_told_first_and_hides_no_rule() -> None:
    half = Half(parse(text(RULES)), {})
    told = list(differences(parse(text(["-j A", *RULES], "ACCEPT")), half, ()))
    assert told == [
        "table filter, chain INPUT: policy ACCEPT, was DROP",
        "table filter, chain INPUT: rule 1 is new: '-j A'",
    ]
    told = list(differences(parse(text(RULES, "ACCEPT")), half, ()))
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


TREES = """*filter
:INPUT DROP [0:0]
:ht1 - [0:0]
:ht2 - [0:0]
-A INPUT -s 10.0.0.0/8 -g ht1
-A INPUT -d 10.0.0.0/8 -j ht2
-A ht1 -s 10.0.0.1/32 -j DROP
-A ht2 -d 10.0.0.2/32 -j DROP
COMMIT
"""


def of_trees(present: str, loaded: str = TREES) -> list[str]:
    half = Half(parse(loaded), {"filter": ("ht1", "ht2")})
    return [each.removeprefix("table filter, ") for each in differences(parse(present), half, ())]


def test_a_rule_that_enters_a_tree_with_other_rules_is_no_other_rule() -> None:
    changed = TREES.replace("-A ht1", "-A ht1 -s 10.9.9.9/32 -j ACCEPT\n-A ht1")
    assert of_trees(changed) == ["table filter: 1 chains of trees are missing or have other rules"]
    front = "chain INPUT: rule 1 is new: '-i lo -j ACCEPT'"
    assert of_trees(changed.replace("-A INPUT -s", "-A INPUT -i lo -j ACCEPT\n-A INPUT -s"))[0] == front


def test_a_tree_that_is_gone_has_the_name_that_it_was_loaded_with() -> None:
    without = TREES.replace("-A INPUT -s 10.0.0.0/8 -g ht1\n", "").replace(
        "-A ht1 -s 10.0.0.1/32 -j DROP\n", ""
    )
    assert of_trees(without)[0] == "chain INPUT: rule 1 is gone: '-s 10.0.0.0/8 -g ht1'"
    # A rollback has loaded the other tree under this name.
    other = without.replace(":ht2 - [0:0]\n", "").replace("ht2", "ht1")
    assert of_trees(other)[0] == "chain INPUT: rule 1 is gone: '-s 10.0.0.0/8 -g (tree)'"


def test_flushed_chains_of_trees_are_counted_and_not_called_new() -> None:
    trees = "-A ht1 -s 10.0.0.1/32 -j DROP\n-A ht2 -s 10.0.0.2/32 -j DROP\n"
    loaded = "*filter\n:INPUT DROP [0:0]\n:ht1 -\n:ht2 -\n{}COMMIT\n"
    half = Half(
        parse(loaded.format("-A INPUT -j ht1\n-A INPUT -j ht2\n" + trees)), {"filter": ("ht1", "ht2")}
    )
    flushed = loaded.format("-A mine -s 10.0.0.3/32 -j DROP\n").replace(":ht1", ":mine -\n:ht1")
    calls, trees_told, new = differences(parse(flushed), half, ())
    assert calls == "table filter, chain INPUT: rules 1 to 2 are gone: '-j ht1'"
    assert trees_told == "table filter: 2 chains of trees are missing or have other rules"
    assert new == "table filter, chain mine is new"


AWAY = " from which packets do not come back: insert it in front (-I), or have it in the file"


@pytest.mark.parametrize(
    ("gone_to", "called", "behind"),
    [
        ("-s 10.0.0.0/8 -g ht1", "", f", behind a tree (rule 2){AWAY}"),
        ("-s 10.0.0.0/8 -g ht1|-p tcp -g ht2", "", f", behind trees (rules 2 to 3){AWAY}"),
        ("-s 10.0.0.0/8 -g ht1|-p tcp -j LOG|-p tcp -g ht2", "", f", behind trees (2 of rules 2 to 4){AWAY}"),
        ("-g ht1", "", f", where no packet comes: rule 2 takes all (-g ht1){AWAY[AWAY.index(':') :]}"),
        ("-j ht1", "", ""),
        ("-s 10.0.0.0/8 -j ht1", "-p udp -j RETURN|-j DROP", ""),
        ("-s 10.0.0.0/8 -j ht1", "-p udp -g ht2|-j DROP", ""),
        ("-s 10.0.0.0/8 -j ht1", "-p udp -j ht2|-j DROP", f", behind a tree (rule 2){AWAY}"),
        ("-s 10.0.0.0/8 -g mine|-j mine", "", ""),
    ],
)
def test_rules_behind_trees_from_which_packets_do_not_come_back_are_told_so(
    gone_to: str, called: str, behind: str
) -> None:
    chains = "".join(f"-A ht1 {rule}\n" for rule in called.split("|") if rule)
    rules = "".join(f"-A INPUT {rule}\n" for rule in ("-i lo -j ACCEPT", *gone_to.split("|")))
    loaded = f"*filter\n:INPUT DROP\n:ht1 -\n:ht2 -\n:mine -\n{rules}{chains}-A ht2 -j LOG\nCOMMIT\n"
    number = gone_to.count("|") + 3
    added = loaded.replace("COMMIT", "-A INPUT -s fd00::7/128 -j DROP\nCOMMIT")
    (told,) = of_trees(added, loaded)
    assert told == f"chain INPUT: rule {number} is new: '-s fd00::7/128 -j DROP'{behind}"
    (front,) = of_trees(loaded.replace("-A INPUT -i", "-A INPUT -s fd00::7/128 -j DROP\n-A INPUT -i"), loaded)
    assert front == "chain INPUT: rule 1 is new: '-s fd00::7/128 -j DROP'"


def test_several_rules_behind_trees_are_told_at_once() -> None:
    more = TREES.replace("COMMIT", "-A INPUT -i a -j DROP\n-A INPUT -i b -j DROP\nCOMMIT")
    (told,) = of_trees(more)
    assert told.endswith(": insert them in front (-I), or have them in the file")

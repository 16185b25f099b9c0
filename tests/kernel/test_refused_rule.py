"""The rule for which a table is refused at its COMMIT is found by loading parts of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from support.small_namespace import Namespace

from hitables.errors import LiveError
from hitables.kernel.refused_rule import is_commit, line_named, refused_at

BAD = "-A PREROUTING -m rateest --rateest none --rateest-gt --rateest-pps 5 -j DROP"
RULES = [f"-A PREROUTING -s 192.0.2.{n}/32 -j ACCEPT" for n in range(9)]


def text(rules: list[str]) -> str:
    filter_table = ["*filter", ":INPUT ACCEPT [0:0]", "-A INPUT -j ACCEPT", "COMMIT"]
    lines = [*filter_table, "# comment", "*raw", ":PREROUTING ACCEPT [0:0]", ":own - [0:0]", *rules, "COMMIT"]
    return "".join(f"{line}\n" for line in [*lines, "*nat", "COMMIT"])


def commit(text: str) -> int:
    """The line of the second COMMIT."""
    return [number for number, line in enumerate(text.split("\n"), 1) if line == "COMMIT"][1]


class Fake:
    """A namespace whose tool takes texts that *takes* agrees to."""

    def __init__(self, takes: Callable[[list[str]], bool]) -> None:
        self.takes, self.loads = takes, 0

    def run(self, command: tuple[str, ...], text: str) -> str:
        assert command == ("iptables-legacy-restore",)
        lines = text.splitlines()
        assert lines[0] == "*raw" and ":own - [0:0]" in lines and lines[-1] == "COMMIT"
        self.loads += 1
        if not self.takes([line for line in lines if line.startswith("-A")]):
            raise LiveError("line 3 failed")
        return ""


def found(rules: list[str], fake: Fake, before: str = "") -> str:
    """The rule that is found; "" if none is."""
    whole = text(rules)
    number = refused_at(whole, commit(whole), "iptables-legacy", cast(Namespace, fake), before)
    return whole.split("\n")[number - 1] if number else ""


@pytest.mark.parametrize("at", range(10))
def test_a_refused_rule_is_found_at_any_place(at: int) -> None:
    fake = Fake(lambda rules: BAD not in rules)
    assert found([*RULES[:at], BAD, *RULES[at:]], fake) == BAD
    assert fake.loads <= 7


def test_of_several_refused_rules_the_first_is_found() -> None:
    fake = Fake(lambda rules: not any("rateest" in rule for rule in rules))
    assert found([*RULES[:4], BAD, *RULES[4:], BAD.replace("none", "other")], fake) == BAD


def test_a_rule_that_only_another_makes_wrong_is_found() -> None:
    fake = Fake(lambda rules: not {RULES[2], RULES[6]} <= set(rules))
    assert found(RULES, fake) == RULES[6]


def test_no_rule_is_named_if_the_table_is_refused_as_a_whole_or_taken() -> None:
    assert found(RULES, Fake(lambda rules: len(rules) < 5)) == ""
    assert found(RULES, Fake(lambda rules: False)) == ""
    assert found(RULES, Fake(lambda rules: True)) == ""


def test_the_rules_before_those_of_the_text_stay_in_each_part() -> None:
    fake = Fake(lambda rules: rules[:1] == ["-A own -j ACCEPT"] and BAD not in rules)
    assert found([*RULES, BAD], fake, "-A own -j ACCEPT\n") == BAD


def test_the_last_line_of_a_message_counts() -> None:
    assert line_named("iptables-restore: line 68 failed") == 68
    assert line_named("line 3: a warning\nError occurred at line: 5\nTry -h") == 5
    assert line_named("exit status 1: no message") == 0
    assert is_commit(text([]), commit(text([])))
    assert not is_commit(text([]), 1) and not is_commit(text([]), 0) and not is_commit(text([]), 99)


@pytest.mark.needs_kernel
def test_legacy_iptables_names_the_commit_and_the_rule_is_found() -> None:
    whole = text([*RULES, BAD])
    with Namespace() as namespace:
        with pytest.raises(LiveError) as refusal:
            namespace.run(("iptables-legacy-restore",), whole)
        number = line_named(str(refusal.value))
        assert is_commit(whole, number) and number == commit(whole)
        line = refused_at(whole, number, "iptables-legacy", namespace)
    assert whole.split("\n")[line - 1] == BAD

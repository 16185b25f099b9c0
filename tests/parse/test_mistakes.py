"""All mistakes of a rule set are told at once, right lines are not blamed, and other texts are recognised."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hitables_command import run
from support.rule_texts import make_text
from support.scale import examples

from hitables.errors import MISTAKES, ParseError
from hitables.parse.iptables import read

# What is wrong with a line, whatever line it replaces.
WRONG = ("-A FORWARD -p tcp --dprt 3 -j ACCEPT", "-A FORWARD -s 1.2.3.4.5 -j DROP", "-A FORWARD -j NOPE",
         "-A NOWHERE -j DROP", "hello", "-A FORWARD -p tcp --dport 70000")  # fmt: skip


def mistakes(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        read(text, name="office.rules")
    return caught.value


def lines_of(error: ParseError) -> list[int]:
    return [each.line for each in (error, *error.others)]


# ---- laws ----


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), count=st.integers(1, 14))
def test_the_first_ten_mistakes_are_told_and_no_right_line_is(seed: int, count: int) -> None:
    rng = random.Random(seed)
    lines = make_text(rng, rules=60).splitlines()
    places = [at for at, line in enumerate(lines) if line.startswith("-A")]
    chosen = sorted(rng.sample(places, count))
    for at in chosen:
        lines[at] = rng.choice([each for each in WRONG if not re.search("NOWHERE|NOPE", each)])
    error = mistakes("\n".join(lines) + "\n")
    assert lines_of(error) == [at + 1 for at in chosen[:MISTAKES]]
    assert error.unsaid == max(0, count - MISTAKES)
    assert str(error).count("office.rules:") == min(count, MISTAKES)
    if error.unsaid:
        assert f"… and {error.unsaid} more mistake" in str(error)


@pytest.mark.parametrize("wrong", WRONG)
def test_each_mistake_alone_is_told_as_it_was_before(wrong: str) -> None:
    error = mistakes(f"*filter\n:FORWARD DROP\n{wrong}\n-A FORWARD -j ACCEPT\nCOMMIT\n")
    assert error.line == 3 and not error.others and not error.unsaid


# ---- cases ----


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("*filter\n:OUTPUT ACEPT\n:b -\n-A INPUT -j b\n-A OUTPUT -j b\nCOMMIT\n", [2]),
        ("*filter\n-A IN -j DROP\n-A IN -j ACCEPT\n-A INPUT -j IN\nCOMMIT\n", [2]),
        ("*filter\n-A INPUT -j IN\n-A IN -j DROP\n-A IN -j ACCEPT\nCOMMIT\n", [3]),
        ("*filter\n-A INPUT -j IN\n-N IN\n-A IN -j DROP\nCOMMIT\n", [2]),
        (
            "*filtre\n:INPUT DROP\n-A INPUT -j DROP\nCOMMIT\n*nat\n-A POSTROUTING -j MASQURADE\nCOMMIT\n",
            [1, 6],
        ),
        (
            "*filter\n-A INPUT -j NOPE\n-A INPUT -j NOPE\n-A INPUT -j OUTPUT\n-A FORWARD -j NO\nCOMMIT\n",
            [2, 4, 5],
        ),
        ("*filter\n-A INPUT -j SNAT --to-source 1.2.3.4\n-A INPUT -j MASQUERADE\nCOMMIT\n", [2, 3]),
        ("*filter\n-A INPUT -j DROP\n*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n", [3]),
        ("-A INPUT -j DROP\n-A INPUT -j ACCEPT\n*filter\n-A INPUT -x\nCOMMIT\n", [1, 4]),
    ],
)
def test_a_mistake_does_not_make_right_lines_look_wrong(text: str, lines: list[int]) -> None:
    assert lines_of(mistakes(text)) == lines


def test_a_text_with_a_mistake_in_every_line_is_given_up_early() -> None:
    error = mistakes("*filter\n" + "-A INPUT --no\n" * 100_000 + "COMMIT\n")
    assert error.unsaid == 90


SCRIPT = "#!/bin/sh\n# the firewall\nIPT=/sbin/iptables\n$IPT -F INPUT\n$IPT -A INPUT -j DROP\n"
LISTED = "Chain INPUT (policy ACCEPT)\ntarget     prot opt source               destination\n"


@pytest.mark.parametrize(
    ("text", "what", "advice"),
    [
        (LISTED, "iptables -L", "iptables-save"),
        (LISTED.replace("policy ACCEPT", "policy DROP 3 packets, 180 bytes"), "iptables -L", "iptables-save"),
        ("-P INPUT ACCEPT\n-P FORWARD DROP\n-N web\n-A INPUT -j web\n", "iptables -S", "iptables-save"),
        (SCRIPT, "a script", "unshare -n sh -c 'sh SCRIPT >&2; iptables-save'"),
        (SCRIPT.split("\n", 1)[1], "a script", "unshare -n sh -c 'bash SCRIPT >&2; iptables-save'"),
        ("sudo iptables -w -A INPUT -j DROP\n", "a script", "it may still write files"),
        ("/usr/sbin/iptables -P INPUT DROP\n", "a script", "unshare -n sh -c"),
        (f"#!/usr/bin/env bash -e\n{SCRIPT}", "a script", "'bash -e SCRIPT >&2; iptables-save'"),
        (SCRIPT.replace("iptables", "ip6tables"), "calls ip6tables", "SCRIPT >&2; ip6tables-save'; it"),
        ("ip6tables-legacy -P INPUT DROP # as iptables\n", "calls ip6tables", "; ip6tables-legacy-save'; it"),
        (
            "echo Starting\nfor each in iptables ip6tables; do\nip6tables -F\n",
            "calls iptables and ip6tables",
            "iptables-save', then the same with ip6tables-save, as each family needs a file of its own",
        ),
        ("table ip filter {\n\tchain INPUT {\n\t}\n}\n", "nft", "iptables-save"),
        ("#!/usr/sbin/nft -f\nflush ruleset\ntable inet x {\n", "nft", "iptables-save"),
        ('{"nftables": [{"metainfo": {}}]}\n', "nft -j", "iptables-save"),
        ("create blocked hash:net family inet\nadd blocked 10.0.0.0/8\n", "ipset save", "sets need not"),
        ('<?xml version="1.0" encoding="utf-8"?>\n<zone>\n', "XML", "iptables-save"),
        ("@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n", "ClassBench", "hitables convert"),
    ],
)
def test_a_text_of_another_tool_is_named_with_the_right_command(text: str, what: str, advice: str) -> None:
    error = mistakes(text)
    assert what in error.reason and advice in error.hint and not error.others
    assert re.match(r"hitables: -:\d+:1: this is ", run("compile", text=text, status=2).stderr)


def test_a_rule_set_whose_comments_and_rules_name_other_tools_is_read() -> None:
    text = f'# iptables -A INPUT -j DROP\n*filter\n:Chain - [0:0]\n-A INPUT -m comment --comment "{"table ip x {"}"\nCOMMIT\n'
    assert read(text).rule_count() == 1


def test_in_ipv6_the_advice_names_its_tools() -> None:
    error = mistakes("-P INPUT ACCEPT\n-A INPUT -s 2001:db8::1 -j DROP\n")
    assert "ip6tables -S" in error.reason and "ip6tables-save" in error.hint


@pytest.mark.parametrize(
    ("rule", "word", "advice"),
    [
        ("-A INPUT -p tcp –dport 22 -j DROP", "–dport", 'is not the hyphen "-": a web page has changed it; write --dport'),
        ("-A INPUT -p tcp —dport 22 -j DROP", "—dport", "(U+2014, em dash)"),
        ("-A INPUT -p tcp −−dport 22 -j DROP", "−−dport", "write --dport"),
        ("–A INPUT -j DROP", "–A", "write -A"),
        ("-A INPUT –j DROP", "–j", "write -j"),
        ("-A INPUT -p tcp --dport 1000–2000 -j DROP", "1000–2000", "write 1000-2000"),
        ("-A INPUT -m comment --comment “my web” -j DROP", "web”", "is not the quote '\"'"),
        ("-A INPUT -j LOG --log-prefix “fw drop: ”", "drop:", "is not the quote"),
        ("-A INPUT -j\u00a0DROP", "-j\u00a0DROP", "no-break space) is not a blank"),
        ("-A INPUT\u00a0-j DROP", "DROP", "no-break space) is not a blank"),
    ],
)  # fmt: skip
def test_a_character_that_a_web_page_has_changed_is_named(rule: str, word: str, advice: str) -> None:
    error = mistakes(f"*filter\n{rule}\nCOMMIT\n")
    assert advice in error.hint and not error.others
    assert error.text[error.column - 1 :].startswith(word) and error.length == len(word)
    assert advice in mistakes(f"iptables {rule}\n").hint or "–" not in rule


def test_such_a_character_in_a_comment_is_meant() -> None:
    error = mistakes('*filter\n-A INPUT -m comment --comment "a – “b”" -x\nCOMMIT\n')
    assert error.reason == "unknown option -x" and not error.hint
    error = mistakes("*filter\n-A INPUT -m comment --comment “b” -x\nCOMMIT\n")
    assert error.reason == "unknown option -x" and not error.hint


FOUR = "*filter\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\n-A INPUT -j REJECT --reject-with icmp-host-prohibited\nCOMMIT\n"
SIX = "*filter\n-A INPUT -d fe80::/64 -j ACCEPT\n-A INPUT -j REJECT --reject-with icmp6-port-unreachable\nCOMMIT\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (FOUR + SIX, 6, "this is of IPv6, and line 2 of IPv4"),
        (SIX + FOUR, 6, "this is of IPv4, and line 2 of IPv6"),
        (SIX + FOUR.replace("-s 10.0.0.0/8 ", ""), 7, "this is of IPv4, and line 2 of IPv6"),
        ("-4 -A INPUT -s 10.0.0.1 -j DROP\n" + FOUR + SIX, 7, "this is of IPv6, and line 3 of IPv4"),
    ],
)
def test_a_text_of_both_families_is_told_once(text: str, line: int, reason: str) -> None:
    error = mistakes(text)
    assert (error.line, error.reason, error.others) == (line, reason, ())
    assert "each family needs a file of its own" in error.hint


@pytest.mark.parametrize(
    "text",
    [
        f"{SIX}*nat\n-4 -A INPUT -s 10.0.0.1 -j ACCEPT\n-A INPUT -x\nCOMMIT\n",
        f"# -A INPUT -s ::1 -j DROP\n{FOUR}*nat\n-A INPUT -x\nCOMMIT\n",
        f'{FOUR}*nat\n-A INPUT -m comment --comment "-s ::1" -x\nCOMMIT\n',
    ],
)
def test_a_text_is_of_one_family_if_only_a_comment_or_a_line_for_the_other_has_its_addresses(
    text: str,
) -> None:
    assert "unknown option -x" in mistakes(text).reason


def test_a_negation_behind_its_option_is_told_where_it_stands() -> None:
    error = mistakes("*filter\n-A INPUT -i ! eth0 -j DROP\nCOMMIT\n")
    assert error.hint == "write ! -i eth0"


# ---- names of options ----


@pytest.mark.parametrize("command", ["compile", "lint", "reach"])
def test_a_chain_that_the_table_asked_for_does_not_have_is_an_error(command: str) -> None:
    nat = "*nat\n:POSTROUTING ACCEPT\n-A POSTROUTING -j ACCEPT\nCOMMIT\n"
    text = f"*filter\n-A INPUT -j ACCEPT\nCOMMIT\n{nat}"
    done = run(command, "--table", "filter", "--chain", "POSTROUTING", text=text, status=2)
    assert done.stdout == "" and "there is no chain POSTROUTING in table filter" in done.stderr
    found = int(command == "lint")  # that the rule changes nothing
    run(command, "--table", "nat", "--chain", "POSTROUTING", text=text, status=found)


def test_the_scheme_of_the_paper_refuses_names_too() -> None:
    text = "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n"
    done = run("compile", "--scheme", "paper", "--chain", "NOPE", text=text, status=2)
    assert "there is no chain NOPE" in done.stderr


def test_each_of_hundreds_of_mistakes_in_the_scopes_of_rules_is_told_once() -> None:
    line = "-A PREROUTING -m mark --mark {} -j CLASSIFY --set-class 1:1\n"
    text = "*mangle\n:PREROUTING ACCEPT\n" + "".join(line.format(n) for n in range(300)) + "COMMIT\n"
    assert lines_of(mistakes(text)) == list(range(3, 3 + MISTAKES))

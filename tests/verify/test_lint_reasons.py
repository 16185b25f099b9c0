"""The rules that lint names as those that cover a useless rule, or do the same in its place."""

from __future__ import annotations

import pytest
from support.lint_flaws import flaws, summary

import hitables
from hitables.report.lint import report
from hitables.verify import lint_reasons
from hitables.verify.lint import NEVER, NOTHING

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("rules", "line", "covering"),
    [
        ("-s 10.0.0.0/8 -j RETURN\n-s 10.1.1.1 -j ACCEPT", 8, (7,)),
        ("-s 1.1.1.1 -j ACCEPT\n-j RETURN\n-j ACCEPT", 9, (8,)),
        ("-p udp -j LOG\n-j RETURN\n-s 1.1.1.1 -j ACCEPT", 9, (8,)),
        ("-s 10.0.0.0/9 -j RETURN\n-s 10.128.0.0/9 -j RETURN\n-s 10.0.0.0/8 -j RETURN", 9, (7, 8)),
    ],
)
def test_a_return_of_a_user_chain_covers_the_rules_behind_it(
    rules: str, line: int, covering: tuple[int, ...]
) -> None:
    in_chain = "".join(f"-A u {rule}\n" for rule in rules.splitlines())
    found = summary(f"-A INPUT -j u\n{in_chain}", chains=":u - [0:0]\n")
    assert [each for each in found if each[0] == NEVER] == [(NEVER, line, covering)]


@pytest.mark.parametrize(
    "split",
    [
        ("-m mark --mark 5 -j DROP", "-m mark ! --mark 5 -j ACCEPT"),
        ("-m set --match-set a src -j DROP", "-m set ! --match-set a src -j ACCEPT"),
        ("-f -j DROP", "! -f -j ACCEPT"),
        ("! -f -j both", "-f -j DROP"),
    ],
)
@pytest.mark.parametrize("target", ["ACCEPT", "LOG"])
def test_the_rules_of_a_condition_that_splits_the_packets_cover_together(
    split: tuple[str, str], target: str
) -> None:
    one, other = split
    rules = f"-A OUTPUT {one}\n-A OUTPUT {other}\n-A OUTPUT -s 1.1.1.1 -j {target}\n-A both -j DROP\n"
    assert (NEVER, 8, (6, 7)) in summary(rules, chains=":both - [0:0]\n")


def test_of_jumps_that_cover_each_alone_the_first_is_named() -> None:
    rules = (
        "-A OUTPUT -s 10.0.0.0/8 -j one\n-A OUTPUT -s 10.0.0.0/7 -j other\n-A OUTPUT -s 10.1.0.0/16 -j LOG\n"
        "-A one -p tcp -j DROP\n-A one -j REJECT\n-A other -p tcp -j REJECT\n-A other -j DROP\n"
    )
    found = summary(rules, chains=":one - [0:0]\n:other - [0:0]\n")
    assert [each for each in found if each[0] == NEVER] == [(NEVER, 9, (7,))]


def test_a_rule_does_not_cover_with_a_chain_from_which_packets_come_back() -> None:
    rules = (
        "-A OUTPUT -s 10.128.0.0/9 -j ACCEPT\n-A OUTPUT -j some\n-A OUTPUT -s 10.0.0.0/8 -j REJECT\n"
        "-A some -s 11.0.0.0/8 -j DROP\n-A some -s 10.0.0.0/9 -j DROP\n"
    )
    found = summary(rules, chains=":some - [0:0]\n")
    assert [each for each in found if each[0] == NEVER] == [(NEVER, 8, (6, 7))]
    whole = rules.replace("10.0.0.0/9 -j DROP", "10.0.0.0/7 -j DROP")
    assert (NEVER, 8, (7,)) in summary(whole, chains=":some - [0:0]\n")


def test_the_rules_that_do_the_same_for_fragments_are_named_too() -> None:
    rules = "-A OUTPUT -s 1.1.1.1 -j DROP\n-A OUTPUT -f -j DROP\n-A OUTPUT ! -f -j DROP\n"
    assert summary(rules) == [(NOTHING, 5, (6, 7))]
    text = "*filter\n:FORWARD DROP\n{}:u -\n-A {} -s 1.1.1.1 -j DROP\n-A {} -f -s 1.0.0.0/8 -j DROP\n-A {} -f -j ACCEPT\n"
    for chain, jump, end in (
        ("FORWARD", "", "the policy"),
        ("u", "-A FORWARD -j u\n", "what follows u"),
    ):
        program = hitables.read(f"{text.format('', chain, chain, chain)}{jump}COMMIT\n")
        (finding,) = report(hitables.lint(program, chains=chain), program, 0.0).findings
        assert finding.message.endswith(f": changes nothing: line 5, or {end}, would do the same")


def test_lines_are_named_by_fewer_classes_of_packets_where_there_are_many_flaws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lint_reasons, "MOST_ASKED", 0)
    rules = "-A OUTPUT -f -j DROP\n-A OUTPUT ! -f -j ACCEPT\n-A OUTPUT -s 1.1.1.1 -j LOG\n"
    assert (NEVER, 7, (6,)) in summary(rules)


CHAIN = "changes nothing: all packets come back from v"


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        ("-j RETURN", CHAIN),
        ("-j RETURN\n-s 10.0.0.1 -j DROP", CHAIN),
        ("-p udp -j RETURN\n-p tcp -j RETURN", CHAIN),
        ("-s 11.0.0.0/8 -j DROP", CHAIN),
        ("-j w", CHAIN),
        ("-s 10.0.0.1 -j ACCEPT", "changes nothing: line 8 would do the same"),
    ],
)
def test_a_jump_from_which_all_packets_come_back_is_said_to_do_so(chain: str, said: str) -> None:
    rules = "".join(f"-A v {rule}\n" for rule in chain.splitlines())
    text = (
        "*filter\n:FORWARD DROP\n:v -\n:w -\n-A FORWARD -s 11.0.0.0/8 -j v\n-A FORWARD -s 10.0.0.0/8 -j v\n"
        f"-A FORWARD -i eth0 -j ACCEPT\n-A FORWARD -s 10.0.0.0/8 -j ACCEPT\n{rules}-A w -j RETURN\nCOMMIT\n"
    )
    program = hitables.read(text)
    (finding,) = (
        each for each in report(hitables.lint(program), program, 0.0).findings if each.places[0].line == 6
    )
    assert finding.kind == NOTHING
    assert finding.message == f"table filter, chain FORWARD: {said}"


def test_the_nearest_of_many_rules_that_packets_meet_is_named() -> None:
    many = "".join(f"-A INPUT -s 10.0.{at}.0/24 -p tcp -j DROP\n" for at in range(lint_reasons.MOST_MET + 1))
    rules = f"{many}-A INPUT -s 10.0.0.0/8 -j REJECT\n-A INPUT -s 10.0.0.0/9 -j ACCEPT\n"
    assert summary(rules) == [(NEVER, 71, (70,))]


def test_a_jump_to_an_empty_chain_covers_no_rule_that_its_packets_never_reach() -> None:
    rules = (
        "-A INPUT -m conntrack --ctstate INVALID -j DROP\n-A INPUT -j some\n"
        "-A some -j none\n-A some -m conntrack --ctstate INVALID -j DROP\n"
    )
    chains = ":some - [0:0]\n:none - [0:0]\n"
    program = hitables.read(f"*filter\n:INPUT ACCEPT [0:0]\n{chains}{rules}COMMIT\n", name="rules")
    (found,) = (each for each in report(hitables.lint(program), program, 0.0).findings if each.kind == NEVER)
    assert found.message.endswith("never matches: no packet that reaches some can match it")


NO_PACKET = "no packet that reaches guest can match it"


@pytest.mark.parametrize(
    ("jumps", "guest", "said"),
    [
        ("-i wlan1 -j guest", "-d 224.0.0.0/4 -j DROP|-i eth0 -p tcp --dport 22 -j ACCEPT", NO_PACKET),
        (
            "-p tcp --dport 43 -j guest",
            "-m addrtype --dst-type BROADCAST -j DROP|-s 224.0.0.0/4 -j DROP|-p udp -j REJECT",
            NO_PACKET,
        ),
        ("-i eth0 -j guest", "-s 10.0.0.0/8 -j LOG|-s 224.0.0.0/4 -j DROP|-i eth1 -j DROP", NO_PACKET),
        ("-i eth0 -j DROP|-j guest", "-s 224.0.0.0/4 -j DROP|-i eth0 -s 10.0.0.0/8 -j LOG", NO_PACKET),
        ("-i eth0 -j DROP|-j guest", "-s 224.0.0.0/4 -j DROP|-i eth0 -s 224.0.0.0/4 -j LOG", NO_PACKET),
        ("-i eth0 -j DROP|-j guest", "-s 224.0.0.0/4 -j DROP|-i eth0 -j LOG", NO_PACKET),
        ("-p tcp -j guest", "-p udp -j ACCEPT|-s 10.0.0.0/8 -j DROP|-p tcp -j DROP|-j ACCEPT", "line 7 covers it"),
        ("-i eth0 -j DROP|-j guest", "-i eth0 -j LOG|-j DROP|-j ACCEPT", "line 7 covers it"),
        (
            "-i eth0 -s 10.0.0.0/8 -j DROP|-j guest",
            "-s 10.0.0.0/9 -j DROP|-s 10.128.0.0/9 -j DROP|-s 11.0.0.0/8 -j DROP|-i eth0 -s 10.0.0.0/7 -j LOG",
            "line 8 covers it",
        ),
    ],
)  # fmt: skip
def test_only_rules_that_match_packets_of_a_rule_are_said_to_cover_it(
    jumps: str, guest: str, said: str
) -> None:
    """*said* of the last rule of the chain guest."""
    in_input, in_guest = jumps.split("|"), guest.split("|")
    rules = [f"-A INPUT {rule}" for rule in in_input] + [f"-A guest {rule}" for rule in in_guest]
    text = "\n".join(("*filter", ":INPUT DROP [0:0]", ":guest -", *rules, "COMMIT", ""))
    program = hitables.read(text)
    findings = report(hitables.lint(program), program, 0.0).findings
    (found,) = (each for each in findings if each.places[0].line == 3 + len(rules))
    assert found.message == f"table filter, chain guest: never matches: {said}"


def test_a_rule_without_other_matches_covers_alone_where_nothing_writes_what_they_read() -> None:
    rules = (
        "-m set --match-set a src -j DROP", "-p tcp -m tcp --dport 23 -j SET --add-set b src",
        "-m set --match-set a src -j DROP", "-m set ! --match-set b src -j ACCEPT",
        "-p udp -m udp --dport 53 -j SET --del-set b src", "-m set --match-set b src -j DROP",
        "-m set --match-set b src -j REJECT",
    )  # fmt: skip
    text = "".join(f"-A INPUT {rule}\n" for rule in rules)
    assert (NEVER, 11, (10,)) in summary(text)


@pytest.mark.parametrize("away", ["-j LOGDROP", "-g LOGDROP", "-j NESTED", "-j DROP"])
def test_a_rule_that_takes_all_packets_is_named_alone_also_where_it_enters_a_chain_that_drops_them(
    away: str,
) -> None:
    """And not the rules behind it, which no packet of the useless rule meets."""
    rules = (
        f"-s 10.0.0.1 -i eth0 {away}", f"-s 10.0.0.0/24 -i eth0 {away}", "-s 10.0.0.0/24 -p tcp --dport 22 -j ACCEPT",
        f"-m state --state NEW {away}", "-s 10.0.0.0/25 -i eth0 -p udp -j ACCEPT",
    )  # fmt: skip
    text = "".join(f"-A INPUT {rule}\n" for rule in rules)
    text += "-A LOGDROP -j LOG\n-A LOGDROP -j DROP\n-A NESTED -p udp -j LOGDROP\n-A NESTED -j LOGDROP\n"
    found = summary(text, chains=":LOGDROP -\n:NESTED -\n")
    assert (NOTHING, 7, (8,)) in found
    assert (NEVER, 11, (8,)) in found


def test_a_rule_is_not_named_alone_if_its_chain_lets_packets_return() -> None:
    rules = (
        "-A INPUT -s 10.0.0.0/24 -j some\n-A INPUT -p udp -j DROP\n-A INPUT -s 10.0.0.0/25 -j ACCEPT\n"
        "-A some -p udp -j RETURN\n-A some -j DROP\n"
    )
    assert (NEVER, 8, (6, 7)) in summary(rules, chains=":some -\n")


@pytest.mark.parametrize(
    ("enters", "tested", "why"),
    [
        ("INPUT", "-o eth0", "packets that come to u have no output interface"),
        ("OUTPUT", "-i eth0", "packets that come to u have no input interface"),
        ("INPUT", "-p tcp -f", "no fragment comes to u, as the kernel puts fragments together before INPUT"),
        ("INPUT", "-p tcp ! -i +", "no packet matches ! -i +"),
        ("INPUT", "-s 10.0.0.1 -m iprange --src-range 11.0.0.1-11.0.0.9", "its matches exclude each other"),
    ],
)
def test_a_rule_that_matches_nothing_is_told_what_no_packet_has(enters: str, tested: str, why: str) -> None:
    found = flaws(f"-A {enters} -j u\n-A u {tested} -j DROP\n", chains=":u -\n")
    assert [flaw.why for flaw in found if flaw.kind == NEVER] == [why]


def test_a_rule_that_takes_fragments_by_their_payload_is_told_to_do_so() -> None:
    rules = "-A FORWARD -j evil\n-A evil -f -j DROP\n-A evil -p tcp --tcp-flags ALL NONE -j DROP\n"
    input_needs = "-A INPUT -j evil\n-A INPUT -p tcp -j REJECT\n"
    start = f"*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:evil -\n{input_needs}"
    for backend, end in (
        ("nft", f"line 9, or what follows evil, would do the same; {lint_reasons.BY_PAYLOAD}"),
        ("legacy", "packets that return from evil are treated the same"),
    ):
        program = hitables.read(f"{start}{rules}COMMIT\n")
        found = report(hitables.lint(program, backend=backend), program, 0.0).findings
        assert [each.message for each in found if each.places[0].line == 8] == [
            f"table filter, chain evil: changes nothing: {end}"
        ]

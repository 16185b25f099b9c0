"""Rule sets that were once proved equal or compiled wrongly: the kernel treats them differently."""

from __future__ import annotations

import pytest

from hitables import HitablesError, read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.emit.text import write
from hitables.ir.packet import Backend
from hitables.ir.rule import Role
from hitables.verify import bdd, exact
from hitables.verify.lint import lint
from hitables.verify.question import Difference, Equal, Question

RECENT = (
    "-s 10.1.0.0/16 -m recent --set --name x --mask 255.255.255.0 -j ACCEPT",
    "-s 10.2.0.0/16 -m recent --rcheck --name x -j DROP",
)
LIMIT = "-m hashlimit --hashlimit-name x --hashlimit-mode srcip --hashlimit-above"
NFT = Question((Backend.NFT,), "exact")


def text(*rules: str, chain: str = "INPUT", policy: str = "ACCEPT", table: str = "filter") -> str:
    lines = "".join(f"-A {chain} {rule}\n" for rule in rules)
    return f"*{table}\n:{chain} {policy} [0:0]\n{lines}COMMIT\n"


@pytest.mark.parametrize("engine", [exact, bdd])
@pytest.mark.parametrize(
    ("one", "other", "question"),
    [
        # iptables-nft omits a test of all values, unless it is inverted: then the packet must have the field.
        (text("-p udp -m udp ! --dport 10:5 -j ACCEPT", policy="DROP"), text("-p udp -j ACCEPT", policy="DROP"), NFT),
        (text("-p tcp -m tcp ! --tcp-flags SYN ACK -j ACCEPT", policy="DROP"), text("-p tcp -j ACCEPT", policy="DROP"), NFT),
        # The list gets the mask of the rule that is loaded first.
        (text(*RECENT), text(*RECENT[::-1]), Question()),
        (text(f"-s 10.3.0.0/16 {LIMIT} 1/hour -j DROP", f"-s 10.2.0.0/16 {LIMIT} 9/sec -j DROP"),
         text(f"-s 10.2.0.0/16 {LIMIT} 9/sec -j DROP", f"-s 10.3.0.0/16 {LIMIT} 1/hour -j DROP"), Question()),
        # The later option overrides the earlier.
        (text("-m recent --rcheck --name x --rdest --rsource -j DROP"), text("-m recent --rcheck --name x --rdest -j DROP"), Question()),
        (text("-p tcp -j ECN --ecn-tcp-remove --ecn-ip-ect 2", table="mangle"),
         text("-p tcp -j ECN --ecn-ip-ect 2 --ecn-tcp-remove", table="mangle"), Question()),
        # The copy of TEE goes through OUTPUT at once, where a rule may add an entry to the set.
        (text("-m set --match-set L src -j DROP", "-j TEE --gateway 10.0.0.9", "-m set --match-set L src -j DROP"),
         text("-m set --match-set L src -j DROP", "-j TEE --gateway 10.0.0.9"), Question()),
        # A set of sets counts packets in its members.
        (text("-p udp -m set --match-set L src -m udp --dport 7 -j DROP", "-m set --match-set Y src --packets-gt 2 -j DROP"),
         text("-p udp -m udp --dport 7 -m set --match-set L src -j DROP", "-m set --match-set Y src --packets-gt 2 -j DROP"),
         Question()),
    ],
)  # fmt: skip
def test_what_the_kernel_treats_differently_is_not_equal(
    engine, one: str, other: str, question: Question
) -> None:  # type: ignore[no-untyped-def]
    assert isinstance(engine.check(read(one), read(one), question), Equal)
    assert isinstance(engine.check(read(one), read(other), question), Difference)


def test_the_order_of_options_with_the_same_meaning_does_not_matter() -> None:
    one, other = (
        text(f"-m recent --rcheck --name x {sides} -j DROP") for sides in ("--rdest --rsource", "--rsource")
    )
    assert isinstance(exact.check(read(one), read(other), Question()), Equal)
    one, other = (
        text(f"-p tcp -j ECN {options}", table="mangle")
        for options in ("--ecn-ip-ect 2 --ecn-tcp-remove", "--ecn-tcp-remove")
    )
    assert isinstance(exact.check(read(one), read(other), Question()), Equal)


def test_a_written_default_mask_equals_an_omitted_one() -> None:
    """iptables-save prints the mask of every rule: a text is equal to its own save."""
    rules = "-m recent --set --name x -j ACCEPT", "-m recent --rcheck --name x --mask 255.255.255.255 -j DROP"
    saved = rules[0].replace(" -j", " --mask 255.255.255.255 -j"), rules[1]
    assert isinstance(exact.check(read(text(*rules)), read(text(*saved)), Question()), Equal)


def test_the_rule_that_nft_loads_first_gives_a_list_its_mask() -> None:
    """Legacy loads INPUT before user, wherever the rules stand in the text."""
    head, rules = "*filter\n:INPUT ACCEPT\n:user -\n", [f"-A user {RECENT[0]}", f"-A INPUT {RECENT[1]}"]
    one, other = (
        read("\n".join([head + each[0], each[1], "-A INPUT -j user", "COMMIT", ""]))
        for each in (rules, rules[::-1])
    )
    assert isinstance(exact.check(one, one, Question()), Equal)
    assert isinstance(exact.check(one, other, Question()), Difference)


def test_rules_that_configure_one_memory_alike_may_be_exchanged() -> None:
    rules = f"-s 10.3.0.0/16 {LIMIT} 9/sec -j DROP", f"-s 10.2.0.0/16 {LIMIT} 9/sec -j DROP"
    assert isinstance(exact.check(read(text(*rules)), read(text(*rules[::-1])), Question()), Equal)


@pytest.mark.parametrize(
    "rules",
    [
        ("-f -j DROP", "-j ACCEPT", "-j CONNMARK --save-mark"),
        ("-j DROP", f"-s 10.3.0.0/24 {LIMIT} 1/hour -j DROP", f"-s 10.2.0.0/16 {LIMIT} 9/sec -j DROP"),
        ("-j DROP", "-j RATEEST --rateest-name a --rateest-interval 250ms --rateest-ewmalog 500ms"),
    ],
)
def test_rules_that_act_when_they_are_loaded_are_kept(rules: tuple[str, ...]) -> None:
    compiled = compile_rules(read(text(*rules)), Options(equivalence="verdict", min_length=1))
    printed = write(compiled.program)
    assert rules[-1].split()[-1] in printed
    assert all(word in printed for rule in rules[1:] for word in rule.split() if word.startswith("--"))


def test_an_inverted_test_of_all_ports_makes_no_later_rule_unreachable() -> None:
    rules = "-p udp -m udp ! --dport 10:5 -j ACCEPT", "-p udp -j DROP"
    assert not lint(read(text(*rules)), NFT, tell=lambda stage: None).flaws


def test_a_policy_is_kept_where_a_chain_is_declared_again_without_one() -> None:
    program = read("*filter\n:INPUT DROP [0:0]\n:INPUT - [0:0]\n-A INPUT -s 10.0.0.1 -j DROP\nCOMMIT\n")
    chain = program.table("filter")["INPUT"]
    assert (chain.policy, chain.kept) == ("DROP", False)
    assert ":INPUT DROP" in write(program)


@pytest.mark.parametrize(
    ("source", "reason", "line"),
    [
        ("*filter\n:INPUT DROP\nCOMMIT\n*filter\n:FORWARD ACCEPT\nCOMMIT\n", "iptables-legacy keeps it", 4),
        (
            "*filter\n:INPUT ACCEPT\n-A INPUT -j LOG\n:LOG -\n-A LOG -j DROP\nCOMMIT\n",
            "a target here and a chain",
            3,
        ),
        ("*filter\n:LOG -\n-A INPUT -j LOG\n-A LOG -j DROP\n-E LOG X\nCOMMIT\n", "not renamed", 5),
        ("*filter\n:X -\n-A INPUT -j LOG\n-A X -j DROP\n-E X LOG\nCOMMIT\n", "not renamed", 5),
    ],
)
def test_a_text_that_backends_or_order_make_ambiguous_is_refused(source: str, reason: str, line: int) -> None:
    with pytest.raises(HitablesError, match=reason) as caught:
        read(source)
    assert f":{line}:" in str(caught.value)


def test_every_match_of_a_set_has_memory_where_a_rule_reads_counters() -> None:
    program = read(text("-m set --match-set L src -j DROP", "-m set --match-set Y src --bytes-gt 2 -j DROP"))
    assert {rule.matches[0].role for rule in program.table("filter")["INPUT"].rules} == {Role.NAMED}

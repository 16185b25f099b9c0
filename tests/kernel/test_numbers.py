"""What the table says of matches that compare a number: no packet answers them as no number could.

Rules send each packet to a chain for its answers to all matches of one attribute; the counters of these
chains tell which answers occur together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import pytest
from support.kernel_packets import HOOKS as FILTER_HOOKS
from support.kernel_packets import varied_trials
from support.small_namespace import Namespace

import hitables
from hitables.ir.attributes import attributes_of
from hitables.ir.fact import Fact
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials
from hitables.kernel.namespace import run
from hitables.syntax.extensions import MATCHES, TARGETS

BOTH, V4, V6 = (Family.IPV4, Family.IPV6), (Family.IPV4,), (Family.IPV6,)
HOOKS = (*FILTER_HOOKS, "POSTROUTING")  # of table mangle
OUT = ("OUTPUT", "POSTROUTING")
Answers = tuple[bool, ...]

# By family and chains: matches that compare one number.
COMPARED = [
    (BOTH, HOOKS, ("mark --mark 1", "mark ! --mark 5", "mark --mark 4/4", "mark --mark 5/3", "mark ! --mark 0/2")),
    (BOTH, HOOKS, ("connmark --mark 1", "connmark ! --mark 7", "connmark --mark 4/4", "connmark ! --mark 0/5")),
    (BOTH, HOOKS, ("length --length 0:83", "length --length 84", "length ! --length 60:120", "length --length 48:")),
    (V4, HOOKS, ("ttl --ttl-lt 9", "ttl --ttl-eq 3", "ttl ! --ttl-eq 64", "ttl --ttl-gt 8", "ttl --ttl-lt 3")),
    (V6, HOOKS, ("hl --hl-lt 9", "hl --hl-eq 3", "hl ! --hl-eq 64", "hl --hl-gt 8", "hl --hl-lt 3")),
    (BOTH, HOOKS, ("tos --tos 0x10", "dscp --dscp 4", "tos ! --tos 0x10/0x10", "dscp ! --dscp-class EF", "tos --tos 3")),
    (BOTH, OUT, ("owner --uid-owner 1234", "owner ! --uid-owner 0", "owner ! --uid-owner 1234")),
    (BOTH, OUT, ("owner --gid-owner 99", "owner ! --gid-owner 0", "owner ! --gid-owner 99")),
    (V4, HOOKS, ("realm --realm 0", "realm ! --realm 1/3", "realm --realm 2/2")),
    (BOTH, HOOKS, ("pkttype --pkt-type unicast", "pkttype ! --pkt-type broadcast", "pkttype --pkt-type multicast")),
    *(
        (V4, HOOKS, (f"addrtype --{side}-type LOCAL", f"addrtype --{side}-type UNICAST",
                     f"addrtype ! --{side}-type LOCAL,BROADCAST"))
        for side in ("src", "dst")
    ),
    (V4, ("INPUT", "FORWARD"), ("addrtype --dst-type LOCAL --limit-iface-in",
                                "addrtype ! --dst-type UNICAST --limit-iface-in")),
    (V4, ("OUTPUT", "FORWARD"), ("addrtype --dst-type LOCAL --limit-iface-out",
                                 "addrtype ! --dst-type UNICAST --limit-iface-out")),
]  # fmt: skip


def groups(family: Family, chain: str) -> list[tuple[str, ...]]:
    return [texts for families, chains, texts in COMPARED if family in families and chain in chains]


def facts(texts: tuple[str, ...], family: Family, chain: str) -> list[Fact]:
    rules = "".join(f"-A {chain} -m {text}\n" for text in texts)
    program = hitables.read(f"*mangle\n{rules}COMMIT\n", family=family)
    found = [rule.matches[0].number for rule in program.table("mangle")[chain].rules]
    assert all(found)
    return [fact for fact in found if fact is not None]


def possible(asked: list[Fact]) -> set[Answers]:
    """The answers that some number of the attribute gives."""
    attributes = attributes_of(asked)
    numbers = [sum(cell) for cell in product(*(attribute.cells for attribute in attributes))]
    return {tuple(fact.holds(number) for fact in asked) for number in numbers}


def test_every_option_that_compares_a_number_is_tried() -> None:
    texts = {text for _, _, group in COMPARED for text in group}
    tried = {(text.split()[0], re.findall(r"--[\w-]+", text)[0]) for text in texts}
    assert tried == {(name, option) for name, extension in MATCHES.items() for option in extension.numbers}


def test_in_ipv6_types_of_addresses_are_not_compared() -> None:
    program = hitables.read("*mangle\n-A INPUT -m addrtype --src-type LOCAL\nCOMMIT\n", family=Family.IPV6)
    assert program.table("mangle")["INPUT"].rules[0].matches[0].number is None


# Targets that make a number, in an order in which the packets remain different, and two matches that see it.
MADE = [
    *(
        (BOTH, HOOKS, f"MARK {made}", ("mark --mark 5", "mark ! --mark 4/4"))
        for made in ("--xor-mark 1", "--or-mark 4", "--set-xmark 6/2", "--set-mark 2/3", "--and-mark 5", "--set-mark 5")
    ),
    *(
        (BOTH, HOOKS, f"CONNMARK {made}", ("connmark --mark 5", "connmark ! --mark 4/4"))
        for made in ("--xor-mark 1", "--or-mark 4", "--set-xmark 6/2", "--set-mark 2/3", "--and-mark 5", "--set-mark 5")
    ),
    *(
        (BOTH, HOOKS, made, ("tos --tos 0x10", "dscp ! --dscp 4"))
        for made in ("TOS --xor-tos 3", "TOS --or-tos 0x10", "TOS --set-tos 3/1", "DSCP --set-dscp 4", "TOS --and-tos 0xf0",
                     "DSCP --set-dscp-class EF", "TOS --set-tos 0x10")
    ),
    (V4, HOOKS, "TTL --ttl-set 3", ("ttl --ttl-lt 9", "ttl ! --ttl-eq 3")),
    (V6, HOOKS, "HL --hl-set 3", ("hl --hl-lt 9", "hl ! --hl-eq 3")),
]  # fmt: skip


def test_every_option_that_makes_a_number_is_tried() -> None:
    targets = [
        rule.target
        for family in (Family.IPV4, Family.IPV6)
        for rule in hitables.read(
            "*mangle\n"
            + "".join(f"-A INPUT -j {made}\n" for families, _, made, _ in MADE if family in families)
            + "COMMIT\n",
            family=family,
        )
        .table("mangle")["INPUT"]
        .rules
    ]
    assert targets and all(target is not None and target.makes is not None for target in targets)
    tried = {tuple(target.key.split(" ")[:2]) for target in targets if target is not None}
    assert tried == {(name, option) for name, extension in TARGETS.items() for option in extension.makes}


def tree(name: str, chain: str, texts: tuple[str, ...]) -> Iterator[str]:
    """Rules that lead each packet of *chain* to the chain of its answers."""
    yield f"-A {chain} -j {name}"
    for depth, text in enumerate(texts):
        for before in product("ny", repeat=depth):
            here = name + "".join(before)
            yield f"-A {here} -m {text} -g {here}y"
            yield f"-A {here} -g {here}n"
    for answers in product("ny", repeat=len(texts)):
        yield f"-A {name}{''.join(answers)}"


def counts_of_chains(
    chain: str, family: Family, backend: Backend, rules: list[str], sent: list[Trial]
) -> dict[str, int]:
    """By chain that has a rule without matches and target: how many of the packets came to it."""
    chains = sorted({rule.split()[1] for rule in rules} - {chain})
    with Namespace() as namespace:
        text = "".join(f":{name} - [0:0]\n" for name in chains) + "".join(f"{rule}\n" for rule in rules)
        tool = "iptables" if family is Family.IPV4 else "ip6tables"
        namespace.call(run, [f"{tool}-{backend.value}-restore"], f"*mangle\n{text}COMMIT\n")
        furnish(namespace, family, ("eth0", "eth1"))
        prepare(namespace, "mangle", chain, sent, True)
        assert all(result.arrived for result in send_trials(namespace))
        saved = namespace.call(run, [f"{tool}-{backend.value}-save", "-c", "-t", "mangle"])
    found = re.findall(r"^\[(\d+):\d+\] -A (\w+)\s*$", saved, re.MULTILINE)
    return {name: int(count) for count, name in found}


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("chain", HOOKS)
def test_no_packet_answers_as_no_number_could(chain: str, family: Family, backend: Backend) -> None:
    sent, asked = varied_trials(family, chain), groups(family, chain)
    rules = [rule for at, texts in enumerate(asked) for rule in tree(f"t{at}", chain, texts)]
    counted = counts_of_chains(chain, family, backend, rules, sent)
    varied = 0
    for at, texts in enumerate(asked):
        own = {
            answers: counted[f"t{at}{''.join('ny'[answer] for answer in answers)}"]
            for answers in product((False, True), repeat=len(texts))
        }
        assert sum(own.values()) == len(sent), texts
        seen = {answers for answers, count in own.items() if count}
        of_table = facts(texts, family, chain)
        assert seen <= possible(of_table), (texts, seen - possible(of_table))
        varied += len(seen) > 2
        if texts[0].startswith("connmark"):  # a packet without a conntrack entry
            as_if_always_there = [fact._replace(mask=fact.mask & 0xFFFFFFFF) for fact in of_table]
            assert not seen <= possible(as_if_always_there), "so this test can fail"
    assert varied >= 4, "the packets differ in what is asked"


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("chain", HOOKS)
def test_targets_make_the_number_that_the_table_says(chain: str, family: Family, backend: Backend) -> None:
    sent = varied_trials(family, chain)
    asked = [
        (made, texts) for families, chains, made, texts in MADE if family in families and chain in chains
    ]
    rules = []
    for at, (made, texts) in enumerate(asked):
        rules += tree(f"t{at}", chain, texts)
        for before in product("ny", repeat=len(texts)):
            leaf = f"t{at}{''.join(before)}"
            rules += [f"-A {leaf} -j {made}", *tree(f"{leaf}x", leaf, texts)]
    counted = counts_of_chains(chain, family, backend, rules, sent)
    changed = 0
    for at, (made, texts) in enumerate(asked):
        of_table = facts(texts, family, chain)
        (rule,) = (
            hitables.read(f"*mangle\n-A {chain} -j {made}\nCOMMIT\n", family=family)
            .table("mangle")[chain]
            .rules
        )
        assert rule.target is not None and rule.target.makes is not None
        makes = rule.target.makes
        missing = [1 << 32] if made.startswith("CONNMARK") else []
        possible_pairs = {
            tuple(fact.holds(value) for value in (number, makes.of(number)) for fact in of_table)
            for number in [*range(256), *missing]
        }
        own = {
            answers: counted[f"t{at}{told[: len(texts)]}x{told[len(texts) :]}"]
            for answers in product((False, True), repeat=2 * len(texts))
            for told in ["".join("ny"[answer] for answer in answers)]
        }
        assert sum(own.values()) == len(sent), made
        seen = {answers for answers, count in own.items() if count}
        assert seen <= possible_pairs, (made, seen - possible_pairs)
        changed += any(answers[: len(texts)] != answers[len(texts) :] for answers in seen)
    assert changed > len(asked) / 2, "most targets change some answer, so this test can fail"

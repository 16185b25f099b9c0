"""Long chains that are entered often: the prover looks for the rules that packets may match, and misses none.

It does so from the eighth time on (core/c/prove/chain_index.c), so each chain is entered often before.
"""

from __future__ import annotations

from support.exact_answers import differ

from hitables import read
from hitables.ir.program import Program

OFTEN, LONG = 10, 130
PORTS = [f"-p tcp -m tcp --dport {port} -j DROP" for port in range(1, LONG + 1)]


def program(*rules: str, **chains: list[str]) -> Program:
    lines = [f"-A FORWARD {rule}" for rule in rules]
    lines += [f"-A {name} {rule}" for name, own in chains.items() for rule in own]
    declared = [f":{name} -" for name in chains]
    return read("\n".join(["*filter", ":FORWARD ACCEPT", *declared, *lines, "COMMIT", ""]))


def test_a_rule_before_a_long_chain_may_change_which_of_its_rules_matches() -> None:
    """A packet to port 5 that gets port 6 is dropped by the chain alone."""
    often = [f"-s 10.0.0.{at} -p tcp -m tcp --dport {at}" for at in range(1, OFTEN)]
    reads = program(
        *(f"{each} -j ports" for each in often),
        "-s 10.1.0.1 -p tcp -m tcp --dport 5 -g behind",
        ports=PORTS,
        behind=["-j UNHEARD --of", "-p tcp -j ports"],
    )
    knows = program(
        *(f"{each} -j DROP" for each in often),
        "-s 10.1.0.1 -p tcp -m tcp --dport 5 -g after",
        after=["-j UNHEARD --of", "-p tcp -m tcp --dport 5 -j DROP"],
    )
    assert differ(reads, knows) is not None
    without_writer = [
        program(*(f"{each} -j {name}" for each in often), ports=PORTS) for name in ("ports", "DROP")
    ]
    assert differ(*without_writer) is None


def test_a_rule_of_a_long_chain_may_change_which_of_its_others_matches() -> None:
    """A packet to port 5 that gets port 6 is dropped by one of the chains alone."""
    first, other = ([f"-s 10.0.{net}.{at} -p tcp" for at in range(1, OFTEN)] for net in (0, 1))
    begins = ["-s 10.0.0.0/23 -j LOG", "-s 10.0.0.0/23 -j RETURN", "-j UNHEARD --of"]
    lacks_one = [rule for rule in PORTS if "--dport 6 " not in rule]
    to_five = "! -s 10.0.0.0/23 -p tcp -m tcp --dport 5"
    one = program(
        *(f"{each} -j all" for each in first),
        *(f"{each} -j LOG" for each in other),
        f"{to_five} -j all",
        all=[*begins, *PORTS],
    )
    two = program(
        *(f"{each} -j LOG" for each in first),
        *(f"{each} -j most" for each in other),
        f"{to_five} -j most",
        most=[*begins, *lacks_one],
    )
    assert differ(one, two) is not None
    assert differ(two, one) is not None

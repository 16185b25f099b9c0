"""A compiled set stays right when the chains that it leaves to other programs get other rules."""

from __future__ import annotations

import random

import pytest
from support.crossing_text import crossing

import hitables
from hitables.analyse.callgraph import deciding, writes
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.ir.foreign import hide, unknown_rule
from hitables.ir.program import BUILT_IN
from hitables.ir.rule import Ends, Metadata
from hitables.parse.iptables import read
from hitables.syntax.access import UNKNOWN
from hitables.syntax.extensions import TARGETS
from hitables.verify.diff import changes
from hitables.verify.question import Equal, Question

LEFT = "f2b-ban"
DROPS = f"-A {LEFT} -j DROP\n"
LATER = {
    "no rule": "",
    "a return": f"-A {LEFT} -j RETURN\n",
    "an accept": f"-A {LEFT} -j ACCEPT\n",
    "a mark": f"-A {LEFT} -j MARK --set-xmark 0x1/0xffffffff\n",
    "a drop of some": f"-A {LEFT} -s 10.0.0.0/18 -p tcp -j DROP\n",
    "the mark of a connection": f"-A {LEFT} -j CONNMARK --set-xmark 0x1/0xffffffff\n",
}
# How packets of the list get to the chain that is left: the rules in the list, and the chains between.
ROADS = {
    "a jump": (["-s 10.3.0.0/17 -j {left}"], ""),
    "jumps": (["-s 10.3.0.0/17 -j {left}", "-d 10.1.0.0/17 -p udp -j {left}"], ""),
    "a goto": (["-s 10.3.0.0/17 -g {left}"], ""),
    "a chain between": (["-s 10.3.0.0/17 -j mine", "-d 10.1.0.0/17 -j mine"], "-A mine -j {left}\n"),
    "a goto between": (["-s 10.3.0.0/17 -j mine", "-d 10.1.0.0/17 -j mine"], "-A mine -g {left}\n"),
    "a chain that drops": (["-s 10.3.0.0/17 -j mine"], "-A mine -j {left}\n-A mine -j DROP\n"),
}


def crossing_with(road: str, seed: int, content: str = DROPS) -> str:
    """A list of rules that cross, with *road* in its middle, behind which rules read marks."""
    jumps, between = ROADS[road]
    rng = random.Random(seed)
    text = crossing(60, seed)
    rules = [line for line in text.splitlines() if line.startswith("-A")]
    # Nothing in the list but the road has an effect on other rules.
    rules = [rule for rule in rules if not rule.endswith(("LOG", "RETURN"))]
    for jump in jumps:
        middle = len(rules) // 4
        rules.insert(middle + rng.randrange(3), f"-A FORWARD {jump.format(left=LEFT)}")
    rules[-8:-8] = [
        "-A FORWARD -s 10.3.0.0/18 -m mark --mark 0x1 -j ACCEPT",
        "-A FORWARD -d 10.1.0.0/18 -m connmark --mark 0x1 -j DROP",
    ]
    heads = f":FORWARD DROP [0:0]\n:mine - [0:0]\n:{LEFT} - [0:0]\n"
    return "*filter\n" + heads + "\n".join(rules) + f"\n{between.format(left=LEFT)}{content}COMMIT\n"


def differing(source: str, compiled: str) -> list[str]:
    """The rules that LEFT may get later with which *compiled* is not equal to *source*."""
    return [
        what
        for what, content in LATER.items()
        if not all(
            isinstance(case.answer, Equal)
            for case in hitables.check(source.replace(DROPS, content), compiled.replace(DROPS, content)).cases
        )
    ]


# Laws.


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("seed", range(2))
def test_a_list_is_right_whatever_rules_a_left_chain_gets(road: str, seed: int) -> None:
    """Without the proof, which would put chains back that the compiler gets wrong."""
    source = crossing_with(road, seed)
    compiled = compile_text(source, Options(leave=(LEFT,)), prove=False).text
    assert " ht" in compiled
    assert DROPS in compiled
    assert differing(source, compiled) == []


@pytest.mark.parametrize("road", ROADS)
def test_a_left_chain_never_decides_and_writes_what_its_table_can_write(road: str) -> None:
    table = hide(read(crossing_with(road, 0)), [LEFT]).table("filter")
    assert LEFT not in deciding(table)
    assert {Metadata.MARK, Metadata.CONNMARK, Metadata.TCP, Metadata.SETS} <= writes(table)[LEFT]
    for name in ("raw", "mangle", "nat", "security"):
        (target,) = {unknown_rule(name, LEFT).target}
        assert target is not None
        kept = {Metadata.META}
        kept |= {Metadata.ADDRESSES, Metadata.PAYLOAD, Metadata.CT} if name == "nat" else set()
        assert target.writes == frozenset(Metadata) - kept


def test_a_left_chain_writes_all_that_a_target_which_ends_no_path_writes_in_its_table() -> None:
    seen = set()
    for name, each in TARGETS.items():
        if each.ends is Ends.SURELY or each.access == UNKNOWN:
            continue
        for table in each.scopes[""].tables if "" in each.scopes else ():
            seen.add(name)
            assert each.access.writes <= unknown_rule(table, LEFT).target.writes, (name, table)
        if "" not in each.scopes or not each.scopes[""].tables:
            for table in BUILT_IN:
                assert each.access.writes.union(*each.access.writes_with.values()) <= (
                    unknown_rule(table, LEFT).target.writes
                ), (name, table)
    assert {"CT", "TOS", "DNPT"} <= seen


def test_diff_takes_no_interface_and_no_port_for_written_by_a_left_chain_of_nat() -> None:
    text = (
        "*nat\n:PREROUTING ACCEPT [0:0]\n:left - [0:0]\n-A PREROUTING -j left\n"
        "-A PREROUTING -i eth0 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n"
    )
    one, other = (hide(read(each), ["left"]) for each in (text, text.replace("80", "81")))
    found = changes(one, other, Question(), tell=lambda stage: None).regions
    assert found and not any(change.facts for change in found)


# The laws can fail: a list that relies on the rules of today is wrong later.


def test_a_list_that_is_compiled_with_the_rules_of_today_is_wrong_when_they_change() -> None:
    wrong = {
        road: differing(crossing_with(road, 0), hitables.compile(crossing_with(road, 0)).text)
        for road in ROADS
    }
    assert any(wrong.values()), wrong

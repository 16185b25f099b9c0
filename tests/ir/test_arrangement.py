"""How lists are cut into parts."""

from __future__ import annotations

from hitables.ir.arrangement import MOST_BLOCKS, Arrangement, arranged
from hitables.ir.blocks import LONG
from hitables.ir.fields import Family
from hitables.parse.iptables import read

HOSTS = [f"-s 192.0.2.{n} -j DROP" for n in range(LONG)]
PORTS = [f"-p tcp -m tcp --dport {n} -j ACCEPT" for n in range(1, LONG + 1)]
NAMES = [f"-i ppp{n} -j DROP" for n in range(LONG)]
TURNS = [f"-{side} 198.51.100.{n} -j DROP" for n in range(LONG) for side in "sd"]
COUNTED = [f"-{side} 203.0.113.{n}" for n in range(LONG) for side in "sd"]


def arrangement(rules: list[str]) -> Arrangement | None:
    table = read("*filter\n" + "".join(f"-A FORWARD {rule}\n" for rule in rules) + "COMMIT\n").table("filter")
    return arranged(table["FORWARD"], table, Family.IPV4)


def cuts(rules: list[str]) -> tuple[int, ...]:
    found = arrangement(rules)
    assert found is not None and sorted(found.order) == list(range(len(rules)))
    return found.cuts


def test_a_list_of_one_kind_stays_as_it_is() -> None:
    assert arrangement([]) is None and arrangement(HOSTS) is None
    assert arrangement(["-j LOG", *PORTS, "-j DROP"]) is None


def test_lists_of_different_fields_are_parts() -> None:
    assert cuts([*HOSTS, *PORTS]) == (LONG,)
    assert cuts(["-j LOG", *HOSTS, *PORTS, "-j DROP"]) == (1, 1 + LONG, 1 + 2 * LONG)


def test_a_list_of_two_kinds_by_turns_is_one_part() -> None:
    found = arrangement(TURNS)
    assert found is not None and not found.cuts
    part = found.crossing(0, 2 * LONG, exact=True)
    assert part is not None and part.kinds == (0, 1) * LONG and found.crossing(0, LONG, exact=True) is None


def test_all_kinds_of_parts_stand_beside_each_other() -> None:
    rules = [*PORTS, *TURNS, *COUNTED, *PORTS]
    found = arrangement(rules)
    assert found is not None
    assert found.cuts == tuple(LONG * at for at in (1, 3, 4, 5))
    assert [(each.start, each.end) for each in found.crossings] == [(LONG, 3 * LONG)]
    assert found.order[: 3 * LONG] == tuple(range(3 * LONG)) and found.order[3 * LONG + 1] == 3 * LONG + 2


def test_a_block_of_one_of_the_kinds_beside_a_part_belongs_to_it() -> None:
    found = arrangement([*HOSTS, *TURNS])
    assert found is not None and not found.cuts and found.crossing(0, 3 * LONG, exact=True) is not None


def test_a_list_of_many_blocks_is_not_cut() -> None:
    blocks = [[*block, "-j LOG"] for block in (HOSTS, PORTS, NAMES)] * MOST_BLOCKS
    assert arrangement([rule for block in blocks[:MOST_BLOCKS] for rule in block]) is not None
    assert arrangement([rule for block in blocks[: MOST_BLOCKS + 1] for rule in block]) is None


def test_where_no_broken_header_may_be_dropped_ports_are_not_told_apart() -> None:
    found = arrangement([rule for pair in zip(HOSTS, PORTS, strict=True) for rule in pair])
    assert found is not None and found.crossing(0, 2 * LONG, exact=False) is not None
    assert found.crossing(0, 2 * LONG, exact=True) is None

"""The bits of marks that a tree tells apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hitables.analyse.mark_bits import EVERY_BIT, FEWEST, MarkBits, head_that_writes, told_apart
from hitables.ir.fact import Fact
from hitables.parse.iptables import read

MASKS = st.sampled_from([EVERY_BIT, 0xFF00, 0x100FC0, 1, 0x80000001]) | st.integers(1, EVERY_BIT)
MARKS = st.integers(0, EVERY_BIT)


def facts(*tests: str) -> list[Fact]:
    lines = "".join(f"-A FORWARD -m {test} -j ACCEPT\n" for test in tests)
    rules = read(f"*mangle\n:FORWARD ACCEPT\n{lines}COMMIT\n").table("mangle")["FORWARD"].rules
    return [match.fact for rule in rules for match in rule.matches]


def number(bits: MarkBits, mark: int) -> int:
    """The bits of the mark put together, found by trying out."""
    places = [place for place in range(32) if bits.mask >> place & 1]
    return sum((mark >> place & 1) << at for at, place in enumerate(places))


@given(mask=MASKS, mark=MARKS)
def test_the_number_of_a_mark_has_the_bits_of_the_mask(mask: int, mark: int) -> None:
    bits = MarkBits("mark", mask)
    assert bits.bits == mask.bit_count()
    assert bits.spread(number(bits, mark)) == mark & mask


@given(mask=MASKS, value=MARKS, compared=MASKS, others=st.lists(MARKS, max_size=20))
def test_an_interval_holds_all_marks_that_the_match_holds_for(
    mask: int, value: int, compared: int, others: list[int]
) -> None:
    bits = MarkBits("mark", mask)
    (fact,) = facts(f"mark --mark {value & compared:#x}/{compared:#x}")
    interval = bits.interval(fact)
    low, high = interval or (0, (1 << bits.bits) - 1)
    size = high - low + 1
    assert size & size - 1 == 0 and low % size == 0, "it must be one that --mark can test"
    for other in (*others, *(value & compared | each & ~compared for each in others)):
        if fact.holds(other):
            assert low <= number(bits, other) <= high
        elif bits.tells(fact):
            assert not low <= number(bits, other) <= high
    assert (interval is None) == (not compared >> mask.bit_length() - 1 & 1)
    assert bits.tells(fact) == (compared == mask)


def test_matches_that_compare_no_single_value_have_no_interval() -> None:
    bits = MarkBits("mark", EVERY_BIT)
    for fact in facts("mark ! --mark 5", "connmark --mark 5", "mark --mark 0x10/0x0f", "length --length 5"):
        assert bits.interval(fact) is None and not bits.tells(fact)


def test_a_packet_without_a_connection_has_no_connmark() -> None:
    bits = MarkBits("connmark", EVERY_BIT)
    (fact,) = facts("connmark --mark 5")
    assert bits.interval(fact) == (5, 5) and not bits.tells(fact) and not bits.is_of_all


def test_the_bits_that_most_rules_compare_are_told_apart() -> None:
    def told(*tests: str) -> tuple[MarkBits, ...]:
        lines = "".join(f"-A FORWARD -m {test} -j ACCEPT\n" for test in tests)
        return told_apart(read(f"*mangle\n:FORWARD ACCEPT\n{lines}COMMIT\n").table("mangle")["FORWARD"].rules)

    bytes_, wholes = (
        [f"mark --mark {n:#x}00/0xff00" for n in range(12)],
        [f"mark --mark {n}" for n in range(10)],
    )
    of_connections = [f"connmark --mark {n}" for n in range(1, 9)]
    assert told(*bytes_, *wholes) == (MarkBits("mark", 0xFF00),)
    assert told(*wholes, *of_connections) == (MarkBits("mark", EVERY_BIT), MarkBits("connmark", EVERY_BIT))
    assert told(*wholes[: FEWEST - 1]) == () and told(*[wholes[0]] * 50) == ()
    assert told(*["mark --mark 0/0"] * 20) == ()


def test_rules_that_change_marks_stay_in_front() -> None:
    restore, log = "-A FORWARD -j CONNMARK --restore-mark\n", "-A FORWARD -j LOG\n"
    (restoring,) = read(f"*mangle\n:FORWARD ACCEPT\n{restore}COMMIT\n").table("mangle")["FORWARD"].rules

    def head(first: str, name: str = "mark") -> int:
        lines = "".join(f"-A FORWARD -m {name} --mark {n} -j ACCEPT\n" for n in range(20))
        text = f"*mangle\n:FORWARD ACCEPT\n:own -\n-A FORWARD -i lo -j ACCEPT\n{first}{lines}COMMIT\n"
        return head_that_writes(read(text).table("mangle")["FORWARD"].rules, {"own": restoring.writes})

    assert head(restore) == 2 and head(restore, "connmark") == 0
    assert head("-A FORWARD -j own\n") == 2 and head(log) == 0
    assert head(9 * log + restore) == 0

"""The text of filters and events reads back as it was written, and a mistake is named with its column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitables.engine import Action, Event, Filter, Filters
from hitables.errors import ParseError
from hitables.filters import Syntax
from hitables.filters.service import FilterService
from hitables.filters.text import MOST_PRIORITY, LinePlace, read_filters, words_of
from hitables.line_server import Connection

SYNTAX = {4: Syntax(4), 6: Syntax(6)}
FAMILIES = st.sampled_from([4, 6])


@st.composite
def ranges_of(draw: st.DrawFn, width: int) -> tuple[int, int]:
    top = (1 << width) - 1
    one, two = draw(st.integers(0, top)), draw(st.integers(0, top))
    free = draw(st.integers(0, width))
    prefix = (one >> free << free, one >> free << free | (1 << free) - 1)
    return draw(st.sampled_from([(min(one, two), max(one, two)), (one, one), (0, top), prefix]))


@st.composite
def filters(draw: st.DrawFn, family: int) -> Filter:
    ranges = tuple(draw(ranges_of(width)) for width in SYNTAX[family].layout.widths)
    return Filter(draw(st.integers(0, MOST_PRIORITY)), ranges, draw(st.sampled_from(Action)))


@given(family=FAMILIES, data=st.data())
def test_a_filter_reads_back_as_it_was_written(family: int, data: st.DataObject) -> None:
    syntax, each = SYNTAX[family], data.draw(filters(family))
    line = syntax.show_filter(each)
    assert syntax.filter(words_of(line), LinePlace(line)) == each


@given(family=FAMILIES, data=st.data())
def test_an_event_reads_back_as_it_was_written(family: int, data: st.DataObject) -> None:
    syntax = SYNTAX[family]
    header = tuple(data.draw(st.integers(0, (1 << width) - 1)) for width in syntax.layout.widths)
    action = data.draw(st.sampled_from(Action))
    numbers = st.integers(0, 2**63 - 1)
    event = Event(data.draw(numbers), data.draw(numbers), data.draw(st.integers(0, 9)), action, header)
    line = syntax.show_event(event)
    assert syntax.event(words_of(line), LinePlace(line)) == event


LINE_WORDS = st.sampled_from(
    [
        "insert",
        "delete",
        "change",
        "list",
        "classify",
        "monitor",
        "status",
        "5",
        "7",
        "99999999999",
        "allow",
        "deny",
        "add_event",
        "src",
        "dst",
        "sport",
        "dport",
        "proto",
        "tcp",
        "syn",
        "fin-rst",
        "any",
        "10.0.0.0/8",
        "10.0.0.9-10.0.0.3",
        "1-2",
        "2-1",
        "65536",
        "/8",
        "-",
        "#",
        "\x00",
        "é",
        "�",
    ]
)


@given(
    lines=st.lists(
        st.one_of(st.text(max_size=30), st.lists(LINE_WORDS, max_size=8).map(" ".join)), max_size=8
    )
)
def test_any_line_gets_one_answer_and_a_refused_one_changes_nothing(lines: list[str]) -> None:
    with Filters(
        "linear", [Filter(5, SYNTAX[4].ranges([], LinePlace("")), Action.DENY)], layout=SYNTAX[4].layout
    ) as held:
        service, client = FilterService(held, SYNTAX[4]), Connection.__new__(Connection)
        for line in lines:
            before = list(held)
            answer = service.answer(line, client)
            assert bool(answer) == bool(words_of(line))
            *data, last = answer.splitlines() or ["ok"]
            assert all(each.startswith("filter ") for each in data)
            if last.startswith("error column "):
                column, _, reason = last.removeprefix("error column ").partition(": ")
                assert 1 <= int(column) <= len(line) + 1 and reason
                assert list(held) == before
            else:
                assert last == "ok" or last.startswith("ok ")
        service.close()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the priority is missing"),
        ("x allow", "1:1: 'x' is no priority from 0 to 2147483646"),
        ("2147483647 allow", "1:1: '2147483647' is no priority"),
        ("7", "1:2: the action is missing; there are deny, allow, add_event, allow_event"),
        ("7 alow", "1:3: no action is called alow; did you mean allow?"),
        ("7 allow sprot 5", "1:9: no field is called sprot; did you mean sport?"),
        ("7 allow sport", "1:14: the value of sport is missing"),
        ("7 allow sport 70000", "1:15: '70000' is no port from 0 to 65535"),
        ("7 allow sport 9-3", "1:15: the range 9-3 is reversed"),
        ("7 allow sport 9/3", "1:15: '9/3': only addresses have prefixes"),
        ("7 allow sport ９", "1:15: '９' is no port"),
        ("7 allow src 1.2.3", "1:13: '1.2.3' is no IPv4 address"),
        ("7 allow src ::1", "1:13: '::1' is no IPv4 address"),
        ("7 allow src 1.2.3.4/33", "1:13: '33' is no prefix length from 0 to 32"),
        ("7 allow src 1.2.3.4/255.0.0.0", "1:13: '255.0.0.0' is no prefix length"),
        ("7 allow proto tpc", "1:15: 'tpc' is no protocol from 0 to 255, nor one of icmp, tcp"),
        ("7 allow tcp sin", "1:13: 'sin' is no phase of a connection: other, syn, synack, fin, rst"),
        ("7 allow dport 1 dport 1", "1:17: dport is given twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_column(line: str, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        SYNTAX[4].filter(words_of(line), LinePlace(line, "office", 1))
    assert str(raised.value).partition("\n")[0].removeprefix("office:").startswith(message) or not line


def test_a_file_has_one_filter_a_line_and_every_mistake_is_named() -> None:
    text = "# web\n\n10 allow dport 80 # all\n 9 deny src 10.9.9.9/8\n"
    assert [SYNTAX[4].show_filter(each) for each in read_filters(text, SYNTAX[4], "office")] == [
        "10 allow dport 80",
        "9 deny src 10.0.0.0/8",
    ]
    with pytest.raises(ParseError) as raised:
        read_filters("1 allow\n2 alow\n1 deny\n", SYNTAX[4], "office")
    assert str(raised.value).splitlines() == [
        "office:2:3: no action is called alow; did you mean allow?",
        "  2 alow",
        "    ^^^^",
        "office:3:1: line 1 has priority 1 already",
        "  1 deny",
        "  ^",
    ]


def test_a_scoped_address_is_no_address_of_a_filter() -> None:
    with pytest.raises(ParseError, match="no IPv6 address"):
        SYNTAX[6].filter(words_of("1 allow src fe80::1%eth0"), LinePlace(""))

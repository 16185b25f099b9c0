"""Rules that are made column by column, by shape, beside the same lines read one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables.core.line_shapes import cut_lines
from hitables.errors import ParseError
from hitables.ir.program import Program
from hitables.ir.rule import Rule
from hitables.parse import rule_columns
from hitables.parse.iptables import Vocabulary, read
from hitables.syntax.values import ipv4_prefix

HEAD = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:web - [0:0]\n"

ADDRESSES = st.one_of(
    st.builds(
        "{}.{}.0.{}/{}".format, st.integers(0, 12), st.integers(0, 3), st.integers(0, 3), st.integers(0, 32)
    ),
    st.sampled_from(
        [
            "10.0.0.1",
            "010.0.0.1",
            "10.1",
            '"10.0.0.9"',
            "10.0.0.1,10.0.0.2",
            "0.0.0.0/0",
            "10.0.0.0/255.0.255.0",
        ]
    ),
)
CHAINS = st.sampled_from(["FORWARD", "FORWARD", "FORWARD", "INPUT", "OUTPUT", "web"])
GOOD_LINES = st.one_of(
    st.builds("-A {} -s {} -d {} -j ACCEPT".format, CHAINS, ADDRESSES, ADDRESSES),
    st.builds("-A {} -s {} -p tcp -m tcp --dport {} -j DROP".format, CHAINS, ADDRESSES, st.integers(0, 9)),
    st.builds(
        "-A FORWARD -s {} -p udp -m udp --sport {}:{}".format, ADDRESSES, st.integers(0, 4), st.integers(5, 9)
    ),
    st.builds("-A FORWARD ! -s {}.0.0.0/8 -i eth{} -j web".format, st.integers(0, 9), st.integers(0, 3)),
    st.builds('-A FORWARD -m comment --comment "note {}" -j ACCEPT'.format, st.integers(0, 9)),
    st.builds("[{}:2] -A FORWARD -s 10.0.0.{} -j DROP".format, st.integers(0, 1 << 65), st.integers(0, 9)),
    st.builds("[7:{}] -A {} -s {} -i eth0".format, st.integers(0, 99), CHAINS, ADDRESSES),
    st.builds("[1:0{}] -I FORWARD -s 10.0.0.{}".format, st.integers(0, 9), st.integers(0, 9)),
    st.builds("-A FORWARD -j DROP -c {} 5 -s 10.0.0.{}".format, st.integers(0, 2), st.integers(0, 9)),
    st.builds("-I FORWARD 1 -s 10.0.0.{} -j DROP".format, st.integers(0, 9)),
    st.sampled_from(["# a comment", "-A FORWARD", "-A web -j REJECT", "", "-6 -A FORWARD -j DROP", "-F web"]),
)
BAD_LINES = (
    ' "" -A FORWARD',
    "-A FORWARD -s 10.0.0.300 -d 10.0.0.1 -j ACCEPT",
    "-A FORWARD -s 1.2.3.4/33 -d 10.0.0.1/8 -j ACCEPT",
    "-A nowhere1 -s 10.0.0.3 -d 10.0.0.1 -j ACCEPT",
    "-A OUTPUT ! -s 10.0.0.0/8 -i eth1 -j web",
    "-A FORWARD -s 10.0.0.2 -p tcp -m tcp --dport 70000 -j DROP",
    "-A FORWARD -j TPROXY --on-port 80",
    "[1:2]",
    "[1:2] -A FORWARD -s 10.0.0.300 -j DROP",
    "[1:] -A FORWARD -s 10.0.0.3 -j DROP",
    "[1:-2] -A FORWARD -s 10.0.0.3 -j DROP",
    " [1:2] -A FORWARD -s 10.0.0.3 -j DROP",
    "[1:2]-A FORWARD -s 10.0.0.3 -j DROP",
    "[1:2] 10.0.0.3 FORWARD",
)


def outcome(text: str) -> object:
    """The program, or the words of the error."""
    try:
        return read(text)
    except ParseError as error:
        return str(error)


def forward(program: Program) -> tuple[Rule, ...]:
    return next(chain.rules for table in program for chain in table.chains if chain.name == "FORWARD")


def with_columns_from(lines: int, text: str) -> object:
    """The outcome when a shape of at least so many lines is read in columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_columns, "FEWEST", lines)
        return outcome(text)


@settings(deadline=None)
@given(
    lines=st.lists(GOOD_LINES, max_size=30), bad=st.none() | st.sampled_from(BAD_LINES), at=st.integers(0, 60)
)
def test_a_text_is_read_as_its_lines_are_read_one_by_one(lines, bad, at):
    body = [*lines, *lines]
    body[at:at] = [] if bad is None else [bad]
    text = HEAD + "\n".join([*body, "COMMIT", ""])
    one_by_one = repr(with_columns_from(len(text), text))
    assert repr(with_columns_from(1, text)) == one_by_one
    assert repr(outcome(text)) == one_by_one


def test_the_lines_of_a_large_text_are_made_in_columns(monkeypatch):
    lines = [
        f"-A FORWARD -s 10.0.{i}.0/24 -i eth{i % 3} -p tcp -m tcp --dport {i} -j ACCEPT" for i in range(50)
    ]
    text = HEAD + "\n".join([*lines, "COMMIT", ""])
    monkeypatch.delattr("hitables.parse.iptables._Reader.rule_line")
    assert read(text).rule_count() == 50


def test_equal_matches_of_two_texts_are_one_object():
    known = Vocabulary()
    text = HEAD + "".join(f"-A FORWARD -s 10.0.{i}.0/24 -j ACCEPT\n" for i in range(9)) + "COMMIT\n"
    first, second = (forward(read(text, known=known)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.matches[0] is other.matches[0]
        assert one.target is other.target


def test_comments_before_a_rule_stay_with_it_and_with_no_other():
    rules = "".join(f"-A FORWARD -s 10.0.{i}.0/24 -j ACCEPT\n" for i in range(9))
    made = forward(read(HEAD + "# one\n# two\n" + rules + "COMMIT\n"))
    assert [rule.notes for rule in made] == [("# one", "# two")] + [()] * 8
    assert [rule.line for rule in made] == list(range(8, 17))


def test_lines_with_counters_are_made_in_columns_with_their_counters(monkeypatch):
    lines = [f"[{i}:{i * i}] -A FORWARD -s 10.0.{i}.0/24 -j ACCEPT" for i in range(50)]
    monkeypatch.delattr("hitables.parse.iptables._Reader.rule_line")
    made = forward(read(HEAD + "\n".join([*lines, "COMMIT", ""])))
    assert [rule.counters for rule in made] == [(i, i * i) for i in range(50)]


def test_an_error_among_many_lines_of_its_shape_has_its_line_and_column():
    lines = [f"-A FORWARD -s 10.0.{i}.0/24 -j ACCEPT" for i in range(20)]
    lines[13] = "-A FORWARD -s 10.0.999.0/24 -j ACCEPT"
    with pytest.raises(ParseError) as caught:
        read(HEAD + "\n".join([*lines, "COMMIT", ""]), name="a.rules")
    assert (caught.value.line, caught.value.column) == (6 + 13, 15)


def test_a_target_of_another_table_is_refused_at_the_first_rule_that_has_it():
    lines = [f"-A FORWARD -s 10.0.{i}.0/24 -j ACCEPT" for i in range(9)]
    lines[4] = lines[7] = "-A FORWARD -s 10.0.4.0/24 -j MASQUERADE"
    with pytest.raises(ParseError, match="MASQUERADE is not allowed in table filter") as caught:
        read(HEAD + "\n".join([*lines, "COMMIT", ""]))
    assert caught.value.line == 6 + 4


PIECES = st.lists(
    st.one_of(
        st.text(alphabet="ab0", max_size=20),
        st.builds(lambda parts: ".".join(map(str, parts)), st.lists(st.integers(0, 300), max_size=5)),
        st.builds(
            lambda parts, length: ".".join(map(str, parts)) + f"/{length}",
            st.lists(st.integers(0, 300), min_size=4, max_size=4),
            st.integers(0, 40),
        ),
        st.text(alphabet="0123456789./ ", max_size=20),
        st.sampled_from(
            ["1.2.3.4/", "1.2.3.4/08", "01.2.3.4", "1.2.3.4/1/2", "255.255.255.255", "0.0.0.0/0"]
        ),
    )
)


@settings(max_examples=examples(200), deadline=None)
@given(words=PIECES)
def test_pieces_are_numbered_by_equality_and_read_as_addresses(words):
    words = [word.replace(" ", "") or "x" for word in words]
    cut = cut_lines(" ".join(["-A", *(f"-A {word}" for word in words)]).encode(), b"")
    literals = cut.literals.texts()
    assert literals == list(dict.fromkeys(words))
    assert [literals[number] for number in cut.literals.numbers.tolist()] == words
    pairs = [ipv4_prefix(word) for word in literals]
    assert cut.literals.prefixes() == [None if pair == (0, 0xFFFFFFFF) else pair for pair in pairs]
    assert cut.first.tolist() == [0, len(words)]


@given(
    lines=st.lists(st.sampled_from(["", "-A é -s 1", "-A x", '-A y --comment "a b"', "#", "é"]), max_size=20)
)
def test_each_line_has_its_shape_and_its_literals(lines):
    cut = cut_lines("\n".join(lines).encode(), b"")
    alone = [cut_lines(line.encode(), b"") for line in lines] or [cut_lines(b"", b"")]
    shapes, literals = cut.shapes.texts(), cut.literals.texts()
    assert [shapes[number] for number in cut.shapes.numbers.tolist()] == [
        each.shapes.texts()[0] for each in alone
    ]
    for at, each in enumerate(alone):
        numbers = cut.literals.numbers[cut.first[at] : cut.first[at + 1]].tolist()
        mine = each.literals.texts()
        assert [literals[number] for number in numbers] == [mine[n] for n in each.literals.numbers.tolist()]

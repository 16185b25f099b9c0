"""ClassBench filters and traces: what is read, what is refused and where, what is printed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.first_matches import first_matches

from hitables.errors import ParseError, Unsupported
from hitables.files import read_text
from hitables.parse import classbench, trace
from hitables.parse.classbench import ANY_PORT, FilterRule

LINE = "@10.1.2.3/32\t192.168.0.0/16\t0 : 65535\t53 : 80\t0x06/0xFF"


@st.composite
def prefixes(draw: st.DrawFn) -> tuple[int, int]:
    length = draw(st.integers(0, 32))
    free = (1 << (32 - length)) - 1
    low = draw(st.integers(0, 2**32 - 1)) & ~free
    return low, low | free


port = st.integers(0, 65535)
ports = st.just(ANY_PORT) | st.tuples(port, port).map(lambda two: (min(two), max(two)))
flags = st.none() | st.tuples(st.integers(0, 65535), st.integers(1, 65535))
rules = st.builds(
    FilterRule, prefixes(), prefixes(), ports, ports, st.none() | st.integers(0, 255), flags, st.just(0)
)


def dotted(interval: tuple[int, int]) -> str:
    low, high = interval
    address = ".".join(str(byte) for byte in low.to_bytes(4, "big"))
    return f"{address}/{32 - (high - low).bit_length()}"


def written(rule: FilterRule, gap: str, with_flags: bool) -> str:
    """*rule* as ClassBench would write it."""
    protocol = "0x00/0x00" if rule.proto is None else f"0x{rule.proto:02X}/0xFF"
    spans = [f"{low} : {high}" for low, high in (rule.sport, rule.dport)]
    columns = [f"@{dotted(rule.src)}", dotted(rule.dst), *spans, protocol]
    if with_flags:
        value, mask = rule.flags or (0, 0)
        columns.append(f"0x{value:04x}/0x{mask:04x}")
    return gap.join(columns)


@given(st.lists(rules, min_size=1, max_size=8), st.sampled_from([" ", "\t", " \t "]), st.booleans())
def test_what_is_written_is_read_back(drawn: list[FilterRule], gap: str, with_flags: bool) -> None:
    text = "".join(f"{written(rule, gap, with_flags)}\n" for rule in drawn)
    read = classbench.parse(text)
    for number, (rule, expected) in enumerate(zip(read, drawn, strict=True), start=1):
        assert rule == expected._replace(line=number, flags=expected.flags if with_flags else None)


@given(st.text(alphabet="@0123456789./:x \tF\n", max_size=80))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        classbench.parse(text, "some.rules")
    except ParseError as error:
        assert str(error).startswith("some.rules")
        assert error.line or not text.strip()


@given(st.integers(0, len(LINE) - 1), st.sampled_from("@:./x5\t Z-é"))
def test_a_damaged_line_gives_a_rule_or_a_place_in_that_line(at: int, damage: str) -> None:
    line = LINE[:at] + damage + LINE[at + 1 :]
    try:
        assert len(classbench.parse(f"{LINE}\n{line}\n")) == 2
    except ParseError as error:
        assert error.line == 2
        assert 1 <= error.column <= len(line) + 1


def test_host_bits_are_cleared() -> None:
    (rule,) = classbench.parse("@10.1.2.3/8 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00")
    assert rule.src == (10 << 24, (11 << 24) - 1)
    assert rule.proto is None


def test_wildcard_columns_behind_the_flags_are_read_over() -> None:
    (rule,) = classbench.parse(f"{LINE} 0x1000/0x1000 0x0000/0x0000")
    assert rule.flags == (0x1000, 0x1000)


@pytest.mark.parametrize(
    ("damaged", "column", "message"),
    [
        (LINE.replace("53 : 80", "80 : 53"), 39, "did you mean 53 : 80"),
        (LINE.replace("/16", "/33"), 14, "'33' is no prefix length"),
        (LINE.replace("192.168.0.0", "192.168.0.256"), 14, "'192.168.0.256' is no IPv4 address"),
        (LINE.replace("65535", "65536"), 33, "no port from 0 to 65535"),
        (LINE.replace("0xFF", "0x0F"), 47, "the mask must be 0xFF"),
        (LINE.replace("0x06", "6"), 47, "is no 0xVALUE/0xMASK"),
        (LINE.replace("0x06", "0x100"), 47, "protocol 0x100/0xFF"),
        (LINE.removeprefix("@"), 1, "does not belong here; a rule reads"),
        (LINE[:45], 46, "the line ends after 6 values"),
        (LINE.replace("53 : 80", "53"), 42, "does not belong here"),
        (f"{LINE} 0x0/0x0 0x1/0xFFFF", 65, "only wildcards"),
        (f"{LINE} !", 57, "'!' does not belong here"),
        ("-A INPUT -j ACCEPT", 1, "'-' does not belong here"),
    ],
)
def test_a_fault_is_named_with_its_column(damaged: str, column: int, message: str) -> None:
    with pytest.raises(ParseError, match=r"^acl:3:") as caught:
        classbench.parse(f"{LINE}\n\n{damaged}\n", "acl")
    assert caught.value.column == column
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n \n", "\0\1\2"])
def test_a_text_without_a_rule_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        classbench.parse(text)


def test_each_rule_becomes_one_iptables_rule_without_its_wildcards() -> None:
    wildcards = "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00"
    text = "\n".join((LINE, wildcards, "@1.2.3.4/31 0.0.0.0/0 9 : 9 0 : 65535 0x11/0xFF"))
    assert classbench.to_text(classbench.parse(text), "ACL", "DROP").splitlines()[4:] == [
        ":ACL - [0:0]",
        "-A ACL -s 10.1.2.3/32 -d 192.168.0.0/16 -p tcp -m tcp --dport 53:80 -j DROP",
        "-A ACL -j DROP",
        "-A ACL -s 1.2.3.4/31 -p udp -m udp --sport 9 -j DROP",
        "COMMIT",
    ]


def test_ports_of_udplite_are_tested_by_multiport() -> None:
    rules = classbench.to_text(classbench.parse(LINE.replace("0x06", "0x88").replace("0 : 65535", "9 : 9")))
    words = "-p 136 -m multiport --sports 9 -m multiport --dports 53:80 -j ACCEPT"
    assert f"-A FORWARD -s 10.1.2.3/32 -d 192.168.0.0/16 {words}\n" in rules


@pytest.mark.parametrize("protocol", ["0x00/0x00", "0x01/0xFF", "0x2F/0xFF"])
def test_ports_without_a_protocol_that_has_them_are_refused_by_line(protocol: str) -> None:
    filters = classbench.parse(f"{LINE}\n{LINE.replace('0x06/0xFF', protocol)}\n", "fw2")
    with pytest.raises(Unsupported, match="fw2:2: ports of"):
        classbench.to_text(filters)


def test_protocol_0_is_refused_by_line_because_iptables_takes_it_for_any() -> None:
    filters = classbench.parse(
        f"{LINE}\n{LINE.replace('0x06', '0x00').replace('53 : 80', '0 : 65535')}\n", "fw2"
    )
    assert filters.rules[1].proto == 0
    with pytest.raises(Unsupported, match=r"fw2:2: protocol 0 \(0x00/0xFF\): .* write 0x00/0x00"):
        classbench.to_text(filters)


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_protocol_0_is_any_protocol_to_iptables(backend: str) -> None:
    rules = "*filter\n-A FORWARD -s 1.2.3.4 -p 0 -j ACCEPT\nCOMMIT\n"
    script = f"iptables-{backend}-restore && iptables-{backend}-save"
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], input=rules, capture_output=True, text=True, check=True
    )
    assert "-A FORWARD -s 1.2.3.4/32 -j ACCEPT\n" in done.stdout


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_a_converted_set_loads_and_is_saved_with_every_rule(backend: str) -> None:
    spans = {
        "0x06": "53 : 80", "0x11": "1 : 1", "0x84": "5 : 6", "0x21": "5 : 5", "0x2F": "0 : 65535", "0x88": "7 : 9",
    }  # fmt: skip
    text = "".join(f"{LINE}\n".replace("53 : 80", span).replace("0x06", key) for key, span in spans.items())
    rules = classbench.to_text(classbench.parse(text))
    script = f"iptables-{backend}-restore && iptables-{backend}-save"
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], input=rules, capture_output=True, text=True, check=True
    )
    assert sum(line.startswith("-A FORWARD") for line in done.stdout.splitlines()) == 6


def test_rule_numbers_are_counted_from_zero_in_every_form_of_a_trace() -> None:
    from_one = trace.parse("1 2 3 4 6 1\n4294967295 2 3 4 17 9\n")
    assert from_one.expected is not None and from_one.expected.tolist() == [0, 8]
    assert from_one.headers.tolist() == [[1, 2, 3, 4, 6], [4294967295, 2, 3, 4, 17]]
    drawn = trace.parse("1\t2\t3\t4\t6\t0\t0\t\n")
    assert drawn.expected is None and drawn.origin is not None and drawn.origin.tolist() == [0]
    assert trace.parse("1 2 3 4 6").expected is None


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1 2 3 4\n", 1, "4 columns; a trace has 5, 6 or 7"),
        ("1 2 3 4 6\n1 2 3 4 6 1\n", 2, "6 columns; the lines above have 5"),
        ("1 2 3 4 6\n\n1 2 x 4 6\n", 3, "'x' is no source port"),
        ("1 2 3 65536 6\n", 1, "a number from 0 to 65535"),
        ("1 2 3 -4 6\n", 1, "'-4' is no destination port"),
        ("1 2 3 4 6 0\n", 1, "a number from 1"),
        ("1 2 3 4 6 99999999999999999999 1\n", 1, "is no flags"),
        ("", 0, "empty trace"),
    ],
)
def test_a_fault_in_a_trace_is_named_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        trace.parse(text)
    assert caught.value.line == line
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["acl1_100", "acl1_1K", "fw1_100", "fw1_1K", "ipc1_100", "ipc1_1K"])
def test_the_papers_traces_name_the_rule_that_reading_the_list_gives(name: str, shared: Path) -> None:
    filters = classbench.parse(read_text(str(shared / "rulesets/wustl" / f"{name}.gz")))
    packets = trace.parse(read_text(str(shared / "rulesets/wustl" / f"{name}_trace.gz")))
    assert packets.expected is not None
    assert (first_matches(filters, packets.headers) == packets.expected).all()


@pytest.mark.parametrize("name", ["acl1_1k", "acl3_1k", "fw1_1k", "ipc1_1k"])
def test_classbench_names_the_rule_a_header_was_drawn_from_and_earlier_ones_may_match(
    name: str, shared: Path
) -> None:
    filters = classbench.parse(read_text(str(shared / "rulesets/classbench" / f"{name}.gz")))
    packets = trace.parse(read_text(str(shared / "rulesets/classbench" / f"{name}_trace.gz")))
    result = first_matches(filters, packets.headers)
    assert packets.origin is not None
    assert (result >= 0).all() and (result <= packets.origin).all()
    assert (result == packets.origin).mean() > 0.95

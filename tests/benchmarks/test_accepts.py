"""What iptables takes is read, and what it refuses is refused at its place: the campaign, in short."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import command_clients
from support.iptables_version import iptables_is
from support.small_namespace import Namespace

from benchmarks import accepts
from hitables import ParseError, read, write
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load, save

pytestmark = pytest.mark.needs_kernel


def command() -> str:
    return f"{command_clients.folder()}/hitables"


HEAD = "*filter\n:own - [0:0]\n"


@pytest.fixture(scope="module")
def namespace(needs_kernel: None) -> Iterator[Namespace]:
    with Namespace() as opened:
        opened.run(["ipset", "create", "tried", "hash:ip"])
        yield opened


def taken(*lines: str, table: str = "filter", family: Family = Family.IPV4) -> str:
    """What is printed of rules that must be taken."""
    return write(read(f"*{table}\n" + "".join(line + "\n" for line in lines) + "COMMIT\n", family=family))


def test_iptables_and_hitables_take_the_same_texts() -> None:
    """A law over a sample of the campaign: a disagreement must be of a class that has a reason."""
    every = accepts.texts()
    assert len(every) > 20_000
    drawn = random.Random(7).sample(every, 400)
    chosen = list(
        {id(text): text for text in [*(text for text in every if text.group == "base"), *drawn]}.values()
    )
    known: dict[str, object] = {}
    accepts.ask(chosen, known, lambda message: None)
    result = accepts.judge(chosen, known)
    assert result["both"] > 200 and result["neither"] > 150
    assert [each for each in result["classes"] if not each["reason"]] == []


def test_each_disagreement_on_record_has_a_reason() -> None:
    figures = json.loads(accepts.FIGURES.read_text())
    assert figures["texts"] > 20_000 and figures["classes"]
    assert all(each["reason"] for each in figures["classes"])
    assert sum(each["texts"] for each in figures["classes"]) == figures["lenient"] + figures["strict"]


# (line, what the message says, the word under the caret)
REFUSED = [
    ("-A INPUT -p tcp -m multiport --dports 22:22 -j DROP", "low end below", "22:22"),
    ("-A INPUT -m statistic --mode nth --every 2 -j DROP", "--every needs --packet", "--every"),
    ("-A INPUT -m statistic --mode nth --every 2 --packet 2 -j DROP", "at most 1", "statistic"),
    ("-A INPUT -m statistic --mode random -j DROP", "needs --probability", "statistic"),
    ("-A INPUT -m ttl --ttl-eq 256 -j DROP", "from 0 to 255", "256"),
    ("-A INPUT -m ttl --ttl-eq 5 --ttl-lt 6 -j DROP", "cannot be combined with", "--ttl-lt"),
    ("-A INPUT -m ttl -j DROP", "ttl needs one of --ttl-eq", "ttl"),
    ("-A INPUT -m ttl ! --ttl-lt 6 -j DROP", "cannot be negated", "--ttl-lt"),
    ("-A INPUT -m limit --limit 5/sec --limit 6/sec -j DROP", "a second --limit", "--limit"),
    ("-A INPUT -m limit --limit 10001/sec -j DROP", "too fast", "10001/sec"),
    ("-A INPUT -m mark --mark 99999999999999999999 -j DROP", "numbers up to", "99999999999999999999"),
    ("-A INPUT -m hl --hl-eq 5 -j DROP", "IPv6 only", "hl"),
    ("-A INPUT -m recent --set --seconds 5 -j DROP", "cannot be combined with", "recent"),
    ("-A INPUT -m owner --uid-owner 0 -j DROP", "is not allowed in a chain that INPUT reaches", "owner"),
    ("-A OUTPUT -m owner --suppl-groups --gid-owner 5 -j DROP", "needs --gid-owner in front of it", "owner"),
    (
        "-A INPUT -m policy --dir in --strict --proto esp --next -j DROP",
        "element 2: --strict needs",
        "policy",
    ),
    ("-A INPUT -m policy --dir in --strict --reqid 1" + " --next --reqid 1" * 4, "4 is the most", "policy"),
    ("-A INPUT -j MASQUERADE", "is not allowed in table filter", "MASQUERADE"),
    ("-A INPUT -j TCPMSS --set-mss 1400", "needs -p tcp", "TCPMSS"),
    (
        "-A INPUT -p tcp -j TCPMSS --clamp-mss-to-pmtu",
        "is not allowed in a chain that INPUT reaches",
        "TCPMSS",
    ),
    ("-A INPUT -p udp -j REJECT --reject-with tcp-reset", "needs -p tcp", "tcp-reset"),
    ("-A INPUT -j REJECT --reject-with icmp-foo", "unknown reject type", "icmp-foo"),
    ("-A INPUT -j LOG --log-level 8", "unknown value", "8"),
    ("-A INPUT -c 1 2 -c 3 4 -j DROP", "a second -c", "-c"),
    ("-A INPUT -s 10.0.0.0/255.255 -j DROP", "neither a prefix length nor a mask", "10.0.0.0/255.255"),
    (
        "-A INPUT -j RATEEST --rateest-name x --rateest-interval 250ms --rateest-ewmalog 0",
        "--rateest-ewmalog is out of range",
        "RATEEST",
    ),
    ("-N own2 extra", "belongs to no option", "extra"),
    ("-F own -j DROP", "-j cannot be used with -F", "-j"),
    ("-P INPUT ACCEPT -s 10.0.0.1", "-s cannot be used with -P", "-s"),
    ("-N own2 -c 1 2", "-c cannot be used with -N", "-c"),
]


@pytest.mark.parametrize("option", ["--source=10.0.0.1", "--dst=10.0.0.1", "--protocol=tcp", "--prot=tcp"])
def test_an_option_with_its_value_in_one_word_is_read_as_newer_versions_do(
    option: str, namespace: Namespace
) -> None:
    """iptables before 1.8.10 refuses such a word, so no text that it takes is read otherwise."""
    text, apart = (
        f"{HEAD}-A INPUT {words} -j DROP\nCOMMIT\n" for words in (option, option.replace("=", " "))
    )
    assert write(read(text, family=Family.IPV4)) == write(read(apart, family=Family.IPV4))
    answers = namespace.call(accepts.answer, [(f"iptables-{b}-restore", text, "") for b in Backend])
    assert [answer[0] == accepts.LOADED for answer in answers] == [iptables_is((1, 8, 10))] * 2


@pytest.mark.parametrize("option", ["--in-i=e", "--out=e", "--out-interface=e"])
def test_a_name_of_an_interface_in_one_word_with_its_option_is_refused(option: str) -> None:
    """iptables before 1.8.10 takes the whole word for the name where that is short enough."""
    with pytest.raises(ParseError, match="versions of iptables differ in how they read --"):
        read(f"{HEAD}-A FORWARD {option} -j DROP\nCOMMIT\n", family=Family.IPV4)


@pytest.mark.parametrize(("line", "message", "word"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_both_tools_refuse_is_refused_at_its_word(
    line: str, message: str, word: str, namespace: Namespace
) -> None:
    text = HEAD + line + "\nCOMMIT\n"
    with pytest.raises(ParseError) as caught:
        read(text, family=Family.IPV4, name="office.rules")
    error = caught.value
    assert message in str(error) and error.line == 3
    assert re.match(rf"{re.escape(word)}(?![\w.])", error.text[error.column - 1 :]), str(error)
    # Without -t in the tables line the tools are asked about the same rule.
    if "TCPMSS --set-mss" not in line:
        answers = namespace.call(
            accepts.answer, [(f"iptables-{b}-restore", text, "") for b in ("legacy", "nft")]
        )
        assert all(answer[0] != accepts.LOADED for answer in answers), answers


@pytest.mark.parametrize(
    "command",
    ["-N new", "-P INPUT DROP", "-F own", "-X own", "-Z INPUT", "-E own new", "-A own\n-D own 1", "-A own"],
)
def test_a_command_takes_the_options_that_the_tools_take_with_it(command: str, namespace: Namespace) -> None:
    """A rule behind a command that takes none would be lost."""
    options = ["", "-v", "-m tcp", "-s 10.0.0.1", "-p tcp", "-f", "-j ACCEPT", "--goto other", "-c 1 2", "-n"]
    for option in options:
        text = f"{HEAD}:other - [0:0]\n{command} {option}\nCOMMIT\n"
        answers = namespace.call(accepts.answer, [(f"iptables-{b}-restore", text, "") for b in Backend])
        try:
            read(text, family=Family.IPV4)
        except ParseError:
            is_read = False
        else:
            is_read = True
        assert is_read == any(answer[0] == accepts.LOADED for answer in answers), (text, answers)


PATTERN_PIECES = [
    "|41|",
    "|41 42|",
    "| 4a4B |",
    "|41  42|",
    "|4",
    "|zz|",
    "a",
    "4",
    " ",
    "|",
    "||",
    "\\\\",
    "\\\\|",
]


@given(st.lists(st.lists(st.sampled_from(PATTERN_PIECES), max_size=5).map("".join), min_size=1, max_size=6))
@example([""])
@example(["a" * 128, "a" * 129, "|" + "41" * 127 + "|", "|" + "41" * 128 + "|", "a" * 127 + "|41"])
def test_a_pattern_in_hexadecimal_is_taken_or_refused_as_by_the_tools(
    namespace: Namespace, patterns: list[str]
) -> None:
    texts = [f'*filter\n-A INPUT -m string --algo bm --hex-string "{each}"\nCOMMIT\n' for each in patterns]
    answers = namespace.call(accepts.answer, [("iptables-legacy-restore", text, "") for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        try:
            read(text, family=Family.IPV4)
        except ParseError:
            assert answer[0] != accepts.LOADED, text
        else:
            assert answer[0] == accepts.LOADED, (text, answer)


def test_a_header_of_ipv6_has_no_name_that_the_tools_do_not_know(namespace: Namespace) -> None:
    text = "*filter\n-A INPUT -m ipv6header --soft --header {}\nCOMMIT\n"
    tools = [accepts.TOOLS[Family.IPV6, backend] for backend in ("legacy", "nft")]
    for name in ("prot", "proto"):
        answers = namespace.call(accepts.answer, [(tool, text.format(name), "") for tool in tools])
        assert [answer[0] == accepts.LOADED for answer in answers] == [name == "prot"] * 2
    assert "prot" in write(read(text.format("prot"), family=Family.IPV6))
    with pytest.raises(ParseError, match="unknown header 'proto'"):
        read(text.format("proto"), family=Family.IPV6)


@pytest.mark.parametrize(
    ("table", "family", "rule", "first", "second"),
    [
        ("filter", 6, "INPUT -m rt", "--rt-type 0", "--rt-0-res"),
        ("filter", 6, "INPUT -m rt --rt-type 0", "--rt-0-addrs fe80::1", "--rt-0-not-strict"),
        ("filter", 4, "OUTPUT -m owner", "--gid-owner 5", "--suppl-groups"),
        (
            "mangle",
            4,
            "INPUT -j HMARK --hmark-mod 4 --hmark-rnd 2",
            "--hmark-src-prefix 8",
            "--hmark-tuple src",
        ),
    ],
)
def test_options_are_taken_in_the_order_in_which_the_tools_take_them(
    table: str, family: int, rule: str, first: str, second: str, namespace: Namespace
) -> None:
    for words, taken_by_all in ((f"{first} {second}", True), (f"{second} {first}", False)):
        text = f"*{table}\n-A {rule} {words}\nCOMMIT\n"
        tools = [accepts.TOOLS[Family(family), backend] for backend in ("legacy", "nft")]
        answers = namespace.call(accepts.answer, [(tool, text, f"*{table}\nCOMMIT\n") for tool in tools])
        assert [answer[0] == accepts.LOADED for answer in answers] == [taken_by_all] * 2, answers
        if taken_by_all:
            assert words.split()[0] in write(read(text, family=Family(family)))
        else:
            with pytest.raises(ParseError, match=r"in front of it|sets already"):
                read(text, family=Family(family))


@pytest.mark.parametrize(
    ("place", "table"),
    [
        ("-A POSTROUTING -j DNAT --to-destination 10.0.0.1", "nat"),
        ("-A PREROUTING -j CT --notrack", "mangle"),
        ("-A OUTPUT -p tcp -j TPROXY --on-port 80", "mangle"),
        ("-A PREROUTING -j REJECT", "nat"),
    ],
)
def test_a_target_outside_of_its_table_or_chain_is_refused(place: str, table: str) -> None:
    with pytest.raises(ParseError, match="is not allowed"):
        taken(place, table=table)


def test_a_target_is_refused_in_a_chain_of_ones_own_by_where_its_packets_come_from() -> None:
    rules = ("-A own -j MASQUERADE", "-A POSTROUTING -j own")
    assert "MASQUERADE" in taken(":own - [0:0]", *rules, table="nat")
    with pytest.raises(ParseError, match="a chain that OUTPUT reaches"):
        taken(":own - [0:0]", *rules, "-A OUTPUT -j own", table="nat")


# (text, what is printed of it)
TAKEN = [
    ("* filter\n-A INPUT -j DROP\nCOMMIT\n", "-A INPUT -j DROP"),
    ("*filter extra\n-A INPUT -j DROP\nCOMMIT\n", "-A INPUT -j DROP"),
    ('*filter\n-A INPUT "-s" "10.0.0.1" "-j" DROP\nCOMMIT\n', "-A INPUT -s 10.0.0.1 -j DROP"),
    ('*filter\n-A INPUT -s 10.0.0."1" -j DROP\nCOMMIT\n', "-A INPUT -s 10.0.0.1 -j DROP"),
    ('*filter\n-A INPUT -m comment --comment="a b" -j DROP\nCOMMIT\n', '-A INPUT -m comment --comment "a b" -j DROP'),
    ("*filter\n-j DROP -A INPUT\nCOMMIT\n", "-A INPUT -j DROP"),
    ("*filter\n-AINPUT -j DROP\nCOMMIT\n", "-A INPUT -j DROP"),
    ("*filter\n--app INPUT -j DROP --\nCOMMIT\n", "-A INPUT -j DROP"),
    ("*filter\n--append=INPUT -v -4 -j DROP\nCOMMIT\n", "-A INPUT -j DROP"),
    ("*filter\n-A INPUT -c 1,2 -j DROP\nCOMMIT\n", "[1:2] -A INPUT -j DROP"),
    ("*filter\n[-1:2] -A INPUT -j DROP\nCOMMIT\n", "[18446744073709551615:2] -A INPUT -j DROP"),
    ("*filter\n:own - [a:b]\n:INPUT DROP [1\n-A INPUT -j own\nCOMMIT\n", "-A INPUT -j own"),
    ("*filter\n-A INPUT -j ACCEPT\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n", "-A INPUT -j DROP"),
    ("*filter\n:own ACCEPT [0:0]\n-A own -j DROP\nCOMMIT\n", "-A own -j DROP"),
    ("*filter\n:own -\n-A own -j LOG\n:own -\n-A own -j DROP\nCOMMIT\n", "-A own -j DROP"),
    ("*filter\n:INPUT DROP\n-A INPUT -j LOG\n:INPUT ACCEPT\nCOMMIT\n", "-A INPUT -j LOG"),
    ("*filter\n:own -\n-A INPUT -j own\n-E own new\nCOMMIT\n", "-A INPUT -j new"),
    ("*filter\n-F\n-X\n-Z\n-L\n-S INPUT\n-A INPUT -j DROP\n-C INPUT -j DROP\nCOMMIT\n", "-A INPUT -j DROP"),
    ("*filter\n-I INPUT 0x1 -j DROP\nCOMMIT\n", "-A INPUT -j DROP"),
    ("*filter\n:-own -\n-A INPUT -j -own\nCOMMIT\n", "-A INPUT -j -own"),
    ("*filter\n-A INPUT -s 256 -j DROP\nCOMMIT\n", "-A INPUT -s 256 -j DROP"),
    ("*filter\n-A INPUT -p udp --dport 65559 -j DROP\nCOMMIT\n", "-A INPUT -p udp -m udp --dport 65559 -j DROP"),
    ("*filter\n-A INPUT -s any/0 -p +6 -j DROP\nCOMMIT\n", "-A INPUT -s any/0 -p +6 -j DROP"),
    ("*filter\n:A -\n-A A -j A\n-A INPUT -j DROP\nCOMMIT\n", "-A INPUT -j DROP\n-A A -j A"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), TAKEN, ids=[repr(text) for text, _ in TAKEN])
def test_what_a_tool_takes_is_read_as_it_reads_it(text: str, shown: str, namespace: Namespace) -> None:
    program = read(text, family=Family.IPV4)
    printed = write(program)
    rules = [line for line in printed.splitlines() if line.startswith(("-", "["))]
    assert rules == shown.splitlines()
    saved = []
    for each in (text, printed):
        with Namespace() as fresh:
            for backend in Backend:
                answers = fresh.call(accepts.answer, [(f"iptables-{backend.value}-restore", each, "")])
                if answers[0][0] == accepts.LOADED:
                    message = save(Family.IPV4, backend, fresh)
                    saved.append([line for line in message.splitlines() if line.startswith(("-A", ":"))])
                    break
    if "[a:b]" in text and iptables_is((1, 8, 10)):  # which refuses counts that are none
        assert len(saved) == 1
    else:
        assert len(saved) == 2 and saved[0] == saved[1]


def test_ah_needs_its_protocol_in_ipv4_alone() -> None:
    assert "-m ah" in taken("-A INPUT -m ah --ahspi 5 -j DROP", family=Family.IPV6)
    with pytest.raises(ParseError, match="needs -p ah"):
        taken("-A INPUT -m ah --ahspi 5 -j DROP")


def test_an_address_that_the_c_library_reads_means_what_it_loads_as() -> None:
    def source(word: str) -> object:
        (rule,) = (
            read(f"*filter\n-A INPUT -s {word} -j DROP\nCOMMIT\n", family=Family.IPV4)
            .table("filter")["INPUT"]
            .rules
        )
        return rule.matches[0].tests[0].values.pairs

    assert source("256") == ((256, 256),) and source("10.65536") == (((10 << 24) + 65536,) * 2,)
    assert source("10.1") == (((10 << 24) + (1 << 16),) * 2,)


def test_a_table_that_is_given_again_keeps_the_comments_of_the_first() -> None:
    printed = write(read("# one\n*filter\n-A INPUT -j DROP\nCOMMIT\n# two\n*filter\nCOMMIT\n"))
    assert "# one" in printed and "# two" in printed and "DROP" not in printed


def test_a_circle_that_no_packet_comes_to_compiles_and_is_printed_back(tmp_path: Path) -> None:
    rules = "".join(f"-A INPUT -s 10.0.{at}.0/24 -j ACCEPT\n" for at in range(30))
    source = tmp_path / "circle.rules"
    source.write_text(f"*filter\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j A\n{rules}COMMIT\n")
    for words in (
        ["compile"],
        ["lint"],
        ["stats"],
        ["graph"],
        ["graph", "--format", "svg"],
        ["check", str(source)],
    ):
        done = subprocess.run([command(), *words, source], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1) and "fault" not in done.stderr, done.stderr
        if words == ["compile"]:
            assert "-A A -j B\n-A B -j A\n" in done.stdout
            for backend in Backend:
                with Namespace() as fresh:
                    load(done.stdout, Family.IPV4, backend, fresh)


# Names that are no text.

NAME = b"\xff\xfeb\xe9"


def bytes_set() -> bytes:
    rules = b"".join(
        b"-A %s -s 10.0.%d.0/24 -p tcp -m tcp --dport %d -j ACCEPT\n" % (NAME, n, n) for n in range(1, 30)
    )
    return b"*filter\n:INPUT DROP [0:0]\n:%s - [0:0]\n-A INPUT -j %s\n%sCOMMIT\n" % (NAME, NAME, rules)


def test_a_chain_name_that_is_no_text_is_printed_byte_for_byte_and_loads(tmp_path: Path) -> None:
    source, output = tmp_path / "bytes.rules", tmp_path / "compiled"
    source.write_bytes(bytes_set())
    subprocess.run([command(), "compile", source, "-o", output], check=True)
    compiled = output.read_bytes()
    assert b":%s - " % NAME in compiled and b"-j %s" % NAME in compiled
    assert (
        subprocess.run([command(), "check", source, output], capture_output=True, check=False).returncode == 0
    )
    for backend in Backend:
        with Namespace() as fresh:
            load(compiled.decode("utf-8", "surrogateescape"), Family.IPV4, backend, fresh)
            assert NAME.decode("utf-8", "surrogateescape") in save(Family.IPV4, backend, fresh)


@pytest.mark.parametrize(
    "words",
    [
        ["lint"],
        ["stats"],
        ["graph"],
        ["trace", "--packet", "chain=INPUT src=10.0.1.1 dst=1.1.1.1 proto=tcp sport=1 dport=1"],
    ],
    ids=lambda words: words[0],
)
def test_commands_print_such_a_name_as_it_is(words: list[str], tmp_path: Path) -> None:
    source = tmp_path / "bytes.rules"
    source.write_bytes(
        bytes_set()
        .replace(b"-A INPUT -j", b"-A INPUT -s 10.0.0.0/8 -j")
        .replace(b"COMMIT", b"-A %s -s 10.0.1.0/24 -p tcp -m tcp --dport 1 -j ACCEPT\nCOMMIT" % NAME)
    )
    done = subprocess.run([command(), *words, source], capture_output=True, check=False)
    assert NAME in done.stdout and b"fault" not in done.stderr


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_json_holds_the_bytes_of_such_a_name(form: str, tmp_path: Path) -> None:
    source = tmp_path / "bytes.rules"
    source.write_bytes(
        bytes_set().replace(
            b"COMMIT", b"-A %s -s 10.0.1.0/24 -p tcp -m tcp --dport 1 -j ACCEPT\nCOMMIT" % NAME
        )
    )
    done = subprocess.run([command(), "lint", "--format", form, source], capture_output=True, check=False)
    message = json.dumps(json.loads(done.stdout), ensure_ascii=False).encode("utf-8", "surrogateescape")
    assert done.returncode == 1 and NAME in message


def test_a_message_names_such_a_chain_by_its_bytes(tmp_path: Path) -> None:
    source = tmp_path / "bytes.rules"
    source.write_bytes(b"*filter\n-A INPUT -j %s\nCOMMIT\n" % NAME)
    done = subprocess.run([command(), "compile", source], capture_output=True, check=False)
    assert done.returncode == 2 and NAME + b" is neither a chain" in done.stderr

"""iptables-save text to a Program and back: what iptables 1.8.9 takes, and what it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables import ParseError, read, write
from hitables.ir.fields import Family, Field
from hitables.ir.program import Chain, Program
from hitables.ir.rule import Ends, Kind, Metadata, Role, Rule

HEAD = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"


def program(*lines: str, head: str = HEAD, family: Family | None = None) -> Program:
    return read(head + "".join(line + "\n" for line in lines) + "COMMIT\n", family=family)


def chain(*lines: str, name: str = "INPUT", family: Family | None = None) -> Chain:
    return program(*lines, family=family).table("filter")[name]


def rule(line: str, family: Family | None = None) -> Rule:
    (only,) = chain(line, family=family).rules
    return only


def printed(*lines: str) -> list[str]:
    return [line for line in write(program(*lines)).splitlines() if line.startswith(("-", "["))]


def refusal(*lines: str, head: str = HEAD) -> ParseError:
    with pytest.raises(ParseError) as caught:
        program(*lines, head=head)
    return caught.value


# What a line means, by what iptables-save shows once it is loaded.
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("-A INPUT -s 10.1 -j ACCEPT", "-A INPUT -s 10.1 -j ACCEPT"),
        ("-A INPUT --protocol tcp --destination-port 22:24 --jump ACCEPT",
         "-A INPUT -p tcp -m tcp --dport 22:24 -j ACCEPT"),
        ("-A INPUT -p tcp --destination-p 22 -j ACCEPT", "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT"),
        ("-A INPUT -p tcp --dport=22 -j DROP", "-A INPUT -p tcp -m tcp --dport 22 -j DROP"),
        ("-A INPUT -j ACCEPT -s 1.1.1.1", "-A INPUT -s 1.1.1.1 -j ACCEPT"),
        ("-A INPUT -m udp -p udp --dport 5 -j DROP", "-A INPUT -p udp -m udp --dport 5 -j DROP"),
        ("-A INPUT ! -s 10.0.0.0/8 -p tcp ! --dport 5 -j ACCEPT",
         "-A INPUT ! -s 10.0.0.0/8 -p tcp -m tcp ! --dport 5 -j ACCEPT"),
        ("-A INPUT -m comment --comment \"a \\\"b\\\" c\\\\d\" -j DROP",
         "-A INPUT -m comment --comment \"a \\\"b\\\" c\\\\d\" -j DROP"),
        ("-A INPUT -p tcp -m comment --comment foo -m tcp --dport 22 -j DROP",
         "-A INPUT -p tcp -m comment --comment foo -m tcp --dport 22 -j DROP"),
        ("-A INPUT -m recent --set -m recent --name x --update -j ACCEPT",
         "-A INPUT -m recent --set -m recent --name x --update -j ACCEPT"),
        ("-A INPUT -c 5 6 -j DROP", "[5:6] -A INPUT -j DROP"),
        ("[7:8] -A INPUT -j DROP", "[7:8] -A INPUT -j DROP"),
        ("-4 -A INPUT -j DROP", "-A INPUT -j DROP"),
        ("-A FORWARD -p icmpv6 -m icmpv6 --icmpv6-type 137 -j DROP",
         "-A FORWARD -p icmpv6 -m icmp6 --icmpv6-type 137 -j DROP"),
        ("-A INPUT -m frob --nicate 1 2 ! --deep -j DROP", "-A INPUT -m frob --nicate 1 2 ! --deep -j DROP"),
        ("-A INPUT -j FROB --level 3", "-A INPUT -j FROB --level 3"),
        ("-A INPUT -j LOG --log-prefix -dashed", "-A INPUT -j LOG --log-prefix -dashed"),
    ],
)  # fmt: skip
def test_a_line_prints_as_the_kernel_shows_it(given: str, shown: str) -> None:
    assert printed(given) == [shown]


def test_lists_of_addresses_are_rules_of_their_own_sources_outermost() -> None:
    assert printed("-A INPUT -s 10.0.0.1,10.0.0.2 -d 1.1.1.1,2.2.2.2 -j ACCEPT") == [
        "-A INPUT -s 10.0.0.1 -d 1.1.1.1 -j ACCEPT",
        "-A INPUT -s 10.0.0.1 -d 2.2.2.2 -j ACCEPT",
        "-A INPUT -s 10.0.0.2 -d 1.1.1.1 -j ACCEPT",
        "-A INPUT -s 10.0.0.2 -d 2.2.2.2 -j ACCEPT",
    ]


def test_a_list_reads_the_same_after_its_shape_was_met_without_one() -> None:
    assert len(printed("-A INPUT -s 10.0.0.1 -j DROP", "-A INPUT -s 10.0.0.2,10.0.0.3 -j DROP")) == 3


def test_commands_edit_the_chain() -> None:
    lines = printed(
        "-A INPUT -s 1.1.1.1 -j DROP",
        "-I INPUT -s 2.2.2.2 -j DROP",
        "-I INPUT 2 -s 3.3.3.3 -j DROP",
        "-D INPUT -s 1.1.1.1 -j DROP",
        "-R INPUT 1 -s 4.4.4.4 -j DROP",
        "-N X",
        "-A X -j RETURN",
        "-F X",
    )
    assert lines == ["-A INPUT -s 4.4.4.4 -j DROP", "-A INPUT -s 3.3.3.3 -j DROP"]


def test_commands_delete_and_rename_chains() -> None:
    lines = ("-N gone", "-N old", "-N entered", "-A INPUT -j old", "-A INPUT -g old", "-A INPUT -j entered")
    table = program(*lines, "-X gone", "-E old new").table("filter")
    assert [name for name in ("gone", "old", "new", "entered") if name in table] == ["new", "entered"]
    assert [each.enters for each in table["INPUT"].rules] == ["new", "new", "entered"]
    assert "not an empty user chain" in str(refusal("-X INPUT"))
    for head, command in ((":own - [0:0]\n", "-E own LOG"), (":LOG - [0:0]\n", "-E LOG own")):
        assert "called as a target is not renamed" in str(refusal(command, head=HEAD + head))


def test_a_declared_chain_wins_over_a_target_of_its_name() -> None:
    result = program("-A INPUT -j LOG", "-A LOG -j DROP", head=HEAD + ":LOG - [0:0]\n")
    (jump,) = result.table("filter")["INPUT"].rules
    assert jump.target is not None and jump.target.kind is Kind.JUMP


def test_comments_and_counters_survive() -> None:
    text = "# one\n*filter\n:INPUT ACCEPT [1:2]\n# two\n[3:4] -A INPUT -j DROP\n# three\nCOMMIT\n# four\n"
    assert write(read(text)) == text


def test_a_built_in_chain_that_the_text_does_not_name_is_not_printed() -> None:
    text = "*filter\n-A INPUT -j DROP\nCOMMIT\n"
    assert write(read(text)) == text


def test_a_policy_that_the_text_leaves_as_it_is_stays_so() -> None:
    """Legacy keeps the policy that a built-in chain has when it is declared with "-"."""
    text = "*filter\n:INPUT - [0:0]\nCOMMIT\n"
    assert write(read(text)) == text
    assert read(text).table("filter")["INPUT"].policy == "ACCEPT"


@pytest.mark.parametrize("name", ["a'b", "a\\b", "a/b@c"])
def test_names_of_chains_are_declared_without_quotes(name: str) -> None:
    """iptables-restore takes the word behind the colon as it stands."""
    text = write(read(f"*filter\n:{name} - [0:0]\n-A {name} -j DROP\n-A INPUT -j {name}\nCOMMIT\n"))
    assert f":{name} - [0:0]" in text.splitlines()
    assert write(read(text)) == text


def test_reversed_udp_ports_never_match_and_are_kept() -> None:
    result = rule("-A INPUT -p udp -m udp --dport 60000:29 -j DROP")
    assert not result.matches[1].tests[0].values
    assert printed("-A INPUT -p udp -m udp --dport 60000:29 -j DROP")[0].endswith("--dport 60000:29 -j DROP")


@pytest.mark.parametrize(
    ("words", "role"),
    [
        ("-p tcp ! --sport 5 ! --dport 22", Role.CONSTANT), ("-p udp ! --dport 0:65535", Role.CONSTANT),
        ("-p tcp ! --sport 5 ! --dport 22:23", Role.SPACE), ("-p tcp --tcp-flags NONE SYN", Role.CONSTANT),
        ("-p tcp ! --sport 0 ! --dport 22", Role.SPACE),
        ("-p tcp --dport 22", Role.SPACE), ("-m state --state NEW", Role.SPACE),
        ("-m conntrack --ctstate NEW", Role.SPACE), ("-m conntrack --ctstate NEW --ctproto 6", Role.CONSTANT),
        ("-m mark --mark 1", Role.CONSTANT), ("-m set --match-set x src", Role.CONSTANT),
        ("-m set --match-set x src,dst", Role.NAMED),
        ("-m set --match-set x src --packets-gt 4", Role.NAMED), ("-m recent --set", Role.NAMED),
        ("-m statistic --mode random --probability 0.5", Role.NAMED),
        ("-m statistic --mode nth --every 2 --packet 0", Role.ONCE), ("-m limit --limit 1/sec", Role.ONCE),
        ("-m quota --quota 5", Role.ONCE), ("-m connlimit --connlimit-above 3", Role.ONCE),
        ("-m hashlimit --hashlimit-upto 1/sec --hashlimit-name x", Role.NAMED),
        ("-m nobody --knows this", Role.ONCE), ("-m comment --comment x", Role.SPACE),
        ("-p tcp -m tcp --tcp-option 3", Role.CONSTANT), ("-p dccp -m dccp --dccp-option 5", Role.NAMED),
        ("-p sctp -m sctp --chunk-types any INIT", Role.NAMED), ("-p tcp -m osf --genre Linux", Role.CONSTANT),
        ("-p tcp -m osf --genre Linux --log 0", Role.NAMED),
        ("-m set --match-set x src --update-counters", Role.CONSTANT),
        ("-m set --match-set x src ! --update-counters", Role.NAMED),
    ],
)  # fmt: skip
def test_each_match_has_its_role(words: str, role: Role) -> None:
    assert rule(f"-A INPUT {words} -j DROP").matches[-1].role is role


@pytest.mark.parametrize(
    ("words", "ends", "writes"),
    [
        ("-j DROP", Ends.SURELY, None), ("-j LOG", Ends.NEVER, None), ("-j CONNMARK --save-mark", Ends.NEVER, Metadata.CONNMARK),
        ("-j MARK --set-mark 1", Ends.NEVER, Metadata.MARK), ("-j FROB --x", Ends.MAYBE, Metadata.META),
        ("-j SYSRQ", Ends.MAYBE, Metadata.META), ("-j TARPIT", Ends.SURELY, None), ("-j IPMARK --addr src", Ends.NEVER, Metadata.MARK),
    ],
)  # fmt: skip
def test_each_target_says_what_it_ends_and_writes(words: str, ends: Ends, writes: Metadata | None) -> None:
    target = rule(f"-A INPUT {words}").target
    assert target is not None and target.ends is ends
    assert writes is None or writes in target.writes


@pytest.mark.parametrize(
    ("words", "native"),
    [
        ("-p tcp -m tcp --dport 22", True), ("-p tcp -m tcp --syn", True), ("-p tcp -m tcp", False),
        ("-p udp -m udp --dport 0:65535", False), ("-p udp -m udp ! --dport 0:65535", True),
        ("-p tcp -m multiport --dports 22", False), ("-p tcp -m tcp --dport 22 --tcp-option 3", False),
    ],
)  # fmt: skip
def test_nft_reads_natively_what_iptables_nft_translates(words: str, native: bool) -> None:
    assert rule(f"-A INPUT {words} -j DROP").matches[-1].native is native


@pytest.mark.parametrize(
    ("words", "tested"),
    [
        ("-p tcp -m tcp --dport 22 --sport 0:65535", [Field.DPORT]),
        ("-p udp -m udp --dport 0:65535 --sport 1:9", [Field.SPORT]),
        ("-p tcp -m tcp --dport 22 --tcp-flags NONE NONE", [Field.DPORT]),
        ("-p tcp -m tcp ! --sport 7 --dport 0:65535", [Field.SPORT]),
        ("-p tcp -m tcp --dport 0:65535", [Field.DPORT]),  # by itself it goes through xtables
        ("-p sctp -m sctp --dport 22 --sport 0:65535", [Field.SPORT, Field.DPORT]),
    ],
)  # fmt: skip
def test_all_values_beside_another_test_are_no_test(words: str, tested: list[Field]) -> None:
    fields = [test.field for test in rule(f"-A INPUT {words} -j DROP").matches[-1].tests]
    assert sorted(fields) == sorted(tested)


@pytest.mark.needs_kernel
@pytest.mark.parametrize(
    "words", ["--dport 22 --sport 0:65535", "--sport 22 --dport 0:65535", "--dport 22 --tcp-flags NONE NONE"]
)
def test_iptables_nft_writes_nothing_for_all_values_beside_another_test(words: str) -> None:
    add = f"iptables-nft -A INPUT -p tcp {words} -j DROP && nft list chain ip filter INPUT"
    listed = subprocess.run(
        ["unshare", "-n", "sh", "-c", add], capture_output=True, text=True, check=True
    ).stdout
    (line,) = (line.strip() for line in listed.splitlines() if "drop" in line)
    side = "dport" if "--dport 22" in words else "sport"
    assert line.startswith(f"tcp {side} 22 counter")


def test_equal_meaning_has_equal_keys() -> None:
    one = rule('-A INPUT -m limit --limit-burst 5 --limit 1/sec -j LOG --log-level 4 --log-prefix "a"')
    two = rule("-A INPUT -m limit --limit 1/sec -j LOG --log-prefix a")
    assert [m.key for m in one.matches] == [m.key for m in two.matches]
    assert one.target and two.target and one.target.key == two.target.key


@pytest.mark.parametrize(
    ("words", "canonical"),
    [
        # A whole name of iptables itself is never the beginning of a match's option.
        ("-p tcp -m tcp --dport 22 --source 10.0.0.0/8", "-s 10.0.0.0/8 -p tcp -m tcp --dport 22"),
        ("-p udp -m udp --destination 10.0.0.0/8", "-d 10.0.0.0/8 -p udp -m udp"),
        ("-p tcp -m multiport --dports 1,2 --source 10.0.0.1/32", "-s 10.0.0.1/32 -p tcp -m multiport --dports 1,2"),
        ("-m addrtype --src-type LOCAL --src 10.0.0.0/8", "-s 10.0.0.0/8 -m addrtype --src-type LOCAL"),
        ("--fragments", "-f"),
        ("--dest 10.0.0.0/8 -p tcp", "-d 10.0.0.0/8 -p tcp"),
        ("-p tcp -m tcp --dpo 22", "-p tcp -m tcp --dport 22"),
        # --proto is an option of policy, and --protoc can be one of iptables only.
        ("-m policy --dir in --pol ipsec --proto esp", "-m policy --dir in --pol ipsec --proto esp"),
        ("-m policy --dir in --pol ipsec --protoc tcp", "-p tcp -m policy --dir in --pol ipsec"),
    ],
)  # fmt: skip
def test_long_options_are_found_as_getopt_finds_them(words: str, canonical: str) -> None:
    assert f"-A INPUT {canonical} -j ACCEPT" in write(program(f"-A INPUT {words} -j ACCEPT"))


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        ("-p tcp -m tcp --dest 22", "--destination, --destination-port"),
        ("-p tcp -m tcp --dport 1 -m multiport --dpor 1,2", "--dport, --dports"),
        ("--s 10.0.0.1", "--set-counters, --source, --src"),
        ("--in eth0", "--in-interface, --insert"),
    ],
)
def test_a_beginning_that_several_options_have_is_refused(words: str, candidates: str) -> None:
    with pytest.raises(ParseError, match=f"may be each of {candidates}.*write the whole name"):
        program(f"-A INPUT {words} -j ACCEPT")


def test_masks_that_are_no_prefixes_are_read_exactly() -> None:
    (test,) = rule("-A INPUT -s 10.0.12.0/255.0.255.0 -j DROP").matches[0].tests
    assert test.field is Field.SRC and len(test.values) == 256 * 256
    assert 0x0A630C07 in test.values and 0x0A630D07 not in test.values


# (line, what the message says, the word that the caret stands under)
REFUSED = [
    ("-A INPUT -p tcp --sprot 80 -j ACCEPT", "did you mean --sport", "--sprot"),
    ("-A INPUT -s 300.1.1.1 -j DROP", "not an IPv4 address", "300.1.1.1"),
    ("-A INPUT -s host.example -j DROP", "host names are not looked up: write the address", "host.example"),
    ("-A INPUT -s $LAN -j DROP", "iptables-restore replaces no variables", "$LAN"),
    ("-A INPUT -j DROP # why", "write comments in lines of their own", "#"),
    ("-A INPUT -m comment --comment 'a b' -j DROP", "joins words by double quotes only", "b'"),
    ("-A INPUT -s 10.0.0.1/33 -j DROP", "prefix length: 33", "10.0.0.1/33"),
    ("-A INPUT -s ! 10.0.0.0/8 -j ACCEPT", "belongs to no option", "10.0.0.0/8"),
    ("-A INPUT -p 256 -j ACCEPT", "unknown protocol", "256"),
    ("-A INPUT -p mptcp -j ACCEPT", "iptables-nft takes it for 6", "mptcp"),
    ("-A INPUT -ieth0 -j ACCEPT", "write -i eth0", "-ieth0"),
    ("-A INPUT -m comment --comment= -j ACCEPT", 'write --comment ""', "--comment="),
    ("-A INPUT ! -p 0 -j ACCEPT", "never match", "0"),
    ("-A INPUT -p tcp --dport 99999 -j DROP", "ports go from 0 to 65535", "99999"),
    ("-A INPUT -p tcp --dport 80:22 -j DROP", "invalid port range", "80:22"),
    ("-A INPUT -p tcp --dport 80,90 -j DROP", "invalid port", "80,90"),
    ("-A INPUT -p icmp --icmp-type ec -j DROP", "ambiguous", "ec"),
    ("-A INPUT -m state --state NEW,BOGUS -j DROP", "unknown state", "NEW,BOGUS"),
    ("-A OUTPUT -i eth0 -j ACCEPT", "no input interface", "OUTPUT"),
    ("-A INPUT -p tcp -p udp -j DROP", "a second -p", "-p"),
    ("-A INPUT -m multiport --dports 3 -j DROP", "needs -p", "multiport"),
    ("-A INPUT -m tcp --dport 5 -j DROP", "needs -p tcp", "tcp"),
    ("-A INPUT -j DROP -j ACCEPT", "a second -j", "-j"),
    ("-A INPUT -j NOWHERE", "neither a chain", "NOWHERE"),
    ("-A INPUT -g NOWHERE", "neither a chain", "NOWHERE"),
    ("-A INPUT -j OUTPUT", "built-in chain", "OUTPUT"),
    ("-A INPUT -j", "option -j needs a value", "-j"),
    ("-A INPUT -p tcp --tcp-flags SYN", "option --tcp-flags needs 2 values", "--tcp-flags"),
    ("-A INPUT -p tcp --dport -j ACCEPT", "--dport took -j for its value", "ACCEPT"),
    ("-A INPUT -s -m udp -j ACCEPT", "-s took -m for its value", "udp"),
    ("-A INPUT -p tcp --syn extra", "'extra' belongs to no option\n", "extra"),
    ("-A INPUT -m conntrack -- NEW -j ACCEPT", "-- ends the options", "--"),
    (
        "-A PREROUTING -j DROP",
        "it is a chain of tables nat, mangle, raw; those of filter are INPUT",
        "PREROUTING",
    ),
    ("-A ufw-user-input -j DROP", "ufw makes this chain: read the rules of the host", "ufw-user-input"),
    ("-P DROP", "-P needs a chain and a policy", "-P"),
    ("-A INPUT extra -j DROP", "belongs to no option", "extra"),
    ("-A INPUT -m set [unsupported revision] -j DROP", "does not know this revision of set", "[unsupported"),
    ("-A INPUT -p tcp -m tcp -j DNAT [unsupported revision]", "could not print this rule", "[unsupported"),
    ("-A NOCHAIN -j DROP", "not declared", "NOCHAIN"),
    ("-I INPUT 3 -j DROP", "out of range", "3"),
    ("-A INPUT -i averyveryverylongname -j DROP", "longer than 15", "averyveryverylongname"),
    ("-A INPUT -s ::1 -j DROP", None, "::1"),
    ("-A INPUT -m mac --mac-source 00:11:22 -j DROP", "not a MAC address", "00:11:22"),
    ("-A INPUT -m owner --uid-owner $X -j DROP", "is no number", "$X"),
    ("-Q INPUT", "unknown command", "-Q"),
    ("-A INPUT -j ACCEPT --frob", "unknown option", "--frob"),
    (
        "-A INPUT --dport 22 -j DROP",
        "it needs one of -p tcp, -p udp, -p sctp, -p dccp in front of it",
        "--dport",
    ),
    ("-A INPUT --dport 22 -p tcp -j DROP", "in front of it", "--dport"),
    ("-A INPUT -p tpc --dport 22 -j DROP", "unknown protocol 'tpc'", "tpc"),
    ("-A INPUT --ctstate NEW -j DROP", "it needs -m conntrack in front of it", "--ctstate"),
    ("-A INPUT -j DROP --log-prefix x", "it needs -j LOG in front of it", "--log-prefix"),
    ("-A INPUT -m conntrack -j DROP", "conntrack needs one of --ctstate, --ctproto, ", "conntrack"),
    ("-A INPUT -p tcp --dport 22,80 -j DROP", "a list of ports needs -m multiport", "22,80"),
    ("-A INPUT -p tcp --dport 22-80 -j DROP", "a range is 22:80", "22-80"),
    ("iptables -A INPUT -j DROP", "leave that word out", "iptables"),
    ("sudo ip6tables -A INPUT -j DROP", 'leave "sudo ip6tables" out', "sudo"),
    (
        "$IPT -t mangle -A INPUT -j DROP",
        'leave that word out, and -t with its value: a line "*mangle"',
        "$IPT",
    ),
    ("-t nat -A INPUT -j DROP", 'leave it out: a line "*nat" says the table', "-t"),
    ("-A INPUT -j DROP --table", 'a line "*nat" says the table', "--table"),
    ("-A INPUT -j accept", "did you mean ACCEPT? Targets are written in capitals", "accept"),
    ("-A INPUT -j return", "did you mean RETURN? Targets", "return"),
    ("-A INPUT -j ALLOW", "did you mean ACCEPT?", "ALLOW"),
    ("-A INPUT -j DENY", "did you mean DROP?", "DENY"),
    ("-A INPUT -j block", "did you mean DROP?", "block"),
    ("-A INPUT -j input", "declare it by a line :input", "input"),
    ("-A INPUT -J DROP", "did you mean -j?", "-J"),
    ("-A INPUT -S 10.0.0.1 -j DROP", "did you mean -s?", "-S"),
    ("-A INPUT -p tcp/udp -j DROP", "a rule has one protocol: write one rule for each", "tcp/udp"),
    ("-A INPUT -p tcp,udp --dport 53 -j DROP", "write one rule for each", "tcp,udp"),
    ("-A INPUT ! -p tcp,udp -j DROP", "a rule has one protocol\n", "tcp,udp"),
    (
        "-A INPUT -s 10.0.0.1-10.0.0.9 -j DROP",
        "address: '10.0.0.1-10.0.0.9'; a range needs -m iprange --src-range",
        "10.0.0.1-10.0.0.9",
    ),
    (
        "-A INPUT -d 10.0.0.1-10.0.0.9 -j DROP",
        "needs -m iprange --dst-range 10.0.0.1-10.0.0.9",
        "10.0.0.1-10.0.0.9",
    ),
    ("-A INPUT -p icmp --icmp-type echo -j DROP", "one of echo-reply, echo-request", "echo"),
]


@pytest.mark.parametrize(("line", "message", "word"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_iptables_refuses_is_refused_at_its_word(line: str, message: str | None, word: str) -> None:
    with pytest.raises(ParseError) as caught:
        read(HEAD + line + "\nCOMMIT\n", family=Family.IPV4, name="office.rules")
    error = caught.value
    assert message is None or message in str(error)
    assert (error.source, error.line) == ("office.rules", 5)
    assert error.text[error.column - 1 :].startswith(word)
    assert error.length == len(word)


def test_the_message_shows_the_place() -> None:
    assert str(refusal("-A INPUT -p tcp --sprot 80 -j ACCEPT")) == (
        "-:5:17: unknown option --sprot; did you mean --sport?\n"
        "  -A INPUT -p tcp --sprot 80 -j ACCEPT\n"
        "                  ^^^^^^^"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no table"), ("# only a comment\n", "no table"), ("*filter\n", "no COMMIT"),
        ("*frobnicate\nCOMMIT\n", "unknown table"), ("COMMIT\n", "outside of any table"),
        ("*filter\n*nat\nCOMMIT\n", "still open"), ("*filter\n:INPUT QUEUE [0:0]\nCOMMIT\n", "unknown policy"),
        (" *filter\nCOMMIT\n", "a blank at the start"), ("*filter\nCOMMIT \n", "COMMIT alone"),
        ("*filter\n \t\nCOMMIT\n", "a line of blanks"), ("*filter\n-A INPUT -j X\n:X -\nCOMMIT\n", "declared behind"),
        ("*filter\n-A INPUT -j DROP\n-F\nCOMMIT\n", "-F behind rules"), ("*filter\n-N LOG\nCOMMIT\n", "a target has"),
        ("*nat\n-A PREROUTING -j DROP\nCOMMIT\n", "is not allowed in table nat"),
        (f"*filter\n-A INPUT -m comment --comment {'x' * 1024}\nCOMMIT\n", "1024 bytes"),
        (f"*filter\n-A INPUT {'-m limit ' * 130}\nCOMMIT\n", "262 words"),
        (f"*filter\n# {'x' * 10240}\nCOMMIT\n", "10242 bytes"),
        ("*filter\n:INPUT MAYBE\nCOMMIT\n", "unknown policy"), ("*filter\n:INPUT [0:0]\nCOMMIT\n", "unknown policy"),
        ("*filter\n:own -\n-P own DROP\nCOMMIT\n", "chain own is not built in"),
        ("*filter\n:own\nCOMMIT\n", r"a name and a policy.*write :own - \[0:0\]"), ("*filter\n:ACCEPT -\nCOMMIT\n", "cannot be called"),
        (f"*filter\n:{'x' * 29} -\nCOMMIT\n", "longer than 28"), ("*filter\n\x00\nCOMMIT\n", "binary data"), ("\ufeff*filter\nCOMMIT\n", "byte order mark"),
        ("*filter\n[1 -A INPUT\nCOMMIT\n", "no counters"), ("hello\n", "unknown command"),
        ("*filter\n:A -\n:B -\n-A A -j B\n-A B -g A\n-A INPUT -j A\nCOMMIT\n", "circle"),
        ("*filter\n:A -\n-A A -j A\n-A OUTPUT -j A\nCOMMIT\n", "circle"),
        ('*filter\n-A INPUT -m comment --comment "never closed -j DROP\nCOMMIT\n', "never closed"),
        ("*filter\n-A INPUT -j DR\nCOMMIT\n", "neither a chain"),
    ],
)  # fmt: skip
def test_broken_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read(text)


def test_line_ends_of_windows_are_read_where_all_lines_have_them() -> None:
    text = "# one\n*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.0.0.1 -m comment --comment x -j DROP\nCOMMIT\n"
    assert read(text.replace("\n", "\r\n")) == read(text)
    assert read(text.replace("\n", "\r\n")[:-2]) == read(text)


CARRIAGE_RETURNS = [
    '-A INPUT -m comment --comment "a\rb" -j DROP',
    "-A INPUT -s 10.0.0.1\r-j DROP",
    "-A INPUT -j DROP -m comment --comment a\r",
    "-A INPUT -j DROP\r",
    ":INPUT DROP\r",
    "\r",
]


@pytest.mark.parametrize("line", CARRIAGE_RETURNS)
def test_any_other_carriage_return_is_refused(line: str) -> None:
    with pytest.raises(ParseError, match=r"a control character '.r'; line ends of Windows") as caught:
        read(f"*filter\n{line}\nCOMMIT\n", name="office.rules")
    assert (caught.value.line, caught.value.column) == (2, line.index("\r") + 1)


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
@pytest.mark.parametrize("line", CARRIAGE_RETURNS)
def test_a_carriage_return_is_a_blank_to_no_iptables(backend: str, line: str) -> None:
    """It stays in the word, or the text is refused."""
    script = f"iptables-{backend}-restore && iptables-{backend}-save"
    text = f"*filter\n{line}\nCOMMIT\n".encode()
    done = subprocess.run(["unshare", "-n", "sh", "-c", script], input=text, capture_output=True, check=False)
    assert done.returncode or b"\r" in done.stdout


def test_a_wrong_family_is_named() -> None:
    with pytest.raises(ParseError, match="IPv6 address in an IPv4"):
        program("-A INPUT -s ::1 -j DROP", family=Family.IPV4)
    with pytest.raises(ParseError, match="IPv4 address in an IPv6"):
        program("-A INPUT -s 1.2.3.4 -j DROP", family=Family.IPV6)


def test_a_host_name_in_ipv6_rules_is_told_as_in_ipv4_rules() -> None:
    with pytest.raises(ParseError, match=r"not an IPv6 address: 'example.org' \(host names"):
        read("*filter\n-A INPUT -s example.org -j DROP\nCOMMIT\n", family=Family.IPV6)


@pytest.mark.parametrize("words", ["ACCEPT [1:2]", "[0:0]", "ACEPT", "-"])
def test_the_policy_of_a_user_chain_is_passed_over_as_iptables_nft_does(words: str) -> None:
    text = f"*filter\n:own {words}\n-A INPUT -j own\n-A own -j DROP\nCOMMIT\n"
    assert read(text).rules_of("filter", "own") and ":own -" in write(read(text))


def test_lines_for_the_other_family_are_kept_as_comments() -> None:
    shown = write(program("-6 -A INPUT -s ::1 -j DROP", "-A INPUT -j DROP", family=Family.IPV4))
    assert "# not for this family: -6 -A INPUT -s ::1 -j DROP\n-A INPUT -j DROP\n" in shown


def test_the_corpus_reads_and_prints_to_a_fixed_point(shared: Path) -> None:
    files = sorted((shared / "corpus" / "dumps").iterdir()) + sorted(
        (shared / "corpus" / "extensions").iterdir()
    )
    assert len(files) == 102
    for file in files:
        text = file.read_text("utf-8", "surrogateescape")
        program = read(text, name=file.name)
        first = write(program)
        assert write(read(first, family=program.family)) == first, file.name


def test_the_refused_corpus_is_refused_in_its_line(shared: Path) -> None:
    for file in sorted((shared / "corpus" / "refused").iterdir()):
        if file.name != "INDEX.tsv":
            with pytest.raises(ParseError) as caught:
                read(file.read_text("utf-8", "surrogateescape"), name=file.name)
            assert caught.value.line and caught.value.column, file.name


WORDS = st.sampled_from(
    ["-A", "-I", "-D", "INPUT", "OUTPUT", "FORWARD", "-s", "-d", "-p", "tcp", "udp", "icmp", "6", "-m", "-j", "-g", "!", "10.0.0.0/8", "1.2.3.4,5.6.7.8", "eth0", "-i", "-o", "22", "80:90", ":5", "--dport", "--sport", "--dports", "multiport", "state", "--state", "NEW", "limit", "--limit", "1/sec", "LOG", "--log-prefix", '"a', 'b"', "DROP", "ACCEPT", "RETURN", "X", "[1:2]", "COMMIT", "*filter", ":X", "-", "comment", "--comment", "frob", "--x=1", "-f", "-c", "1", "2", "--syn", '"', "\\"]
)  # fmt: skip


@settings(max_examples=examples(300))
@given(st.lists(st.lists(WORDS, max_size=9), max_size=6))
def test_any_heap_of_words_is_read_or_refused(lines: list[list[str]]) -> None:
    text = HEAD + "".join(" ".join(words) + "\n" for words in lines) + "COMMIT\n"
    try:
        result = read(text)
    except ParseError:
        return
    assert write(read(write(result), family=result.family)) == write(result)


def test_setting_a_policy_clears_its_counters() -> None:
    program = read("*filter\n:INPUT ACCEPT [2:168]\n-P INPUT DROP\n-A INPUT -j ACCEPT\nCOMMIT\n")
    chain = program.table("filter")["INPUT"]
    assert (chain.policy, chain.counters) == ("DROP", (0, 0))


@pytest.mark.parametrize(
    ("there", "deleted"),
    [
        ("-s 10.0.0.0/8 -j DROP", "-s 10.1.2.3/255.0.0.0 -j DROP"),
        ("-p tcp -m tcp --dport ssh -j DROP", "-p 6 --dport 22 -j DROP"),
        ("-p tcp -m tcp --syn -j DROP", "-p tcp -m tcp --tcp-flags SYN,RST,ACK,FIN SYN -j DROP"),
        ("-m conntrack --ctstate NEW,ESTABLISHED -j DROP", "-m conntrack --ctstate ESTABLISHED,NEW -j DROP"),
        ("-m mark --mark 0x10 -j LOG", "-m mark --mark 16/0xffffffff -j LOG"),
    ],
)
def test_a_rule_is_deleted_in_any_spelling(there: str, deleted: str) -> None:
    others = "-A INPUT -s 10.0.0.0/9 -j DROP\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\n"
    kept = program(f"{others}-A INPUT {there}\n-D INPUT {deleted}").table("filter")["INPUT"].rules
    assert [each.line for each in kept] == [5, 6]
    with pytest.raises(ParseError, match="no such rule"):
        program(f"{others}-D INPUT {deleted}")


def test_a_match_has_a_name() -> None:
    assert "-m needs the name of a match" in str(refusal('-A INPUT -m "" -j ACCEPT'))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("DNAT --to-destination 10.0.0.5:80-90/8000", ""),
        ("DNAT --to-destination 10.0.0.5:80-90/0", "a range of ports is not shifted by port 0"),
        ("REDIRECT --to-ports 80-90", ""),
        ("REDIRECT --to-ports 80-90/8000", "REDIRECT shifts no range of ports"),
    ],
)
def test_a_range_of_ports_is_shifted_by_dnat_alone(target: str, message: str) -> None:
    text = f"*nat\n-A PREROUTING -p tcp -j {target}\nCOMMIT\n"
    if not message:
        assert f"-j {target}\n" in write(read(text, family=Family.IPV4))
        return
    with pytest.raises(ParseError, match=message):
        read(text, family=Family.IPV4)

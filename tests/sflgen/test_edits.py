"""Updates read and printed: what commands mean, what is refused and how, least edits."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hitables
from hitables.errors import ParseError
from hitables.ir.program import Program
from sflgen import lcs
from sflgen.commands import read_commands
from sflgen.edits import Edit, Op, apply, read_edits, replaceable, rule_key, text, without_undone
from sflgen.lcs import by_bits, by_pairs, gaps
from sflgen.least_edits import sync, with_others

RULES = """*filter
:INPUT ACCEPT [0:0]
:bans - [0:0]
-A INPUT -s 10.1.2.3/32 -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -j bans
-A INPUT -m limit --limit 5/min -j LOG
COMMIT
"""


def lines(commands: str) -> list[str]:
    """The rules of INPUT after *commands*."""
    program = hitables.read(RULES)
    after = apply(program, read_commands(commands, program))
    return [line for line in hitables.write(after).splitlines() if line.startswith("-A INPUT")]


FEW = st.lists(st.integers(0, 3), max_size=21)


@given(FEW, FEW)
def test_gaps_leave_a_longest_common_subsequence(old: list[int], new: list[int]) -> None:
    longest = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, one in enumerate(old):
        for j, other in enumerate(new):
            step = max(longest[i][j + 1], longest[i + 1][j])
            longest[i + 1][j + 1] = longest[i][j] + 1 if one == other else step
    for pairs in (by_bits(old, new), by_pairs(old, new)):
        assert all(old[i] == new[j] for i, j in pairs)
        assert all(i < later_i and j < later_j for (i, j), (later_i, later_j) in itertools.pairwise(pairs))
        assert len(pairs) == longest[-1][-1]
    ranges = list(gaps(old, new))
    kept = [n for n in range(len(old)) if all(n not in removed for removed, _ in ranges)]
    assert [old[n] for n in kept] == [
        new[n] for n in range(len(new)) if all(n not in added for _, added in ranges)
    ]
    assert len(kept) == longest[-1][-1]


def test_thousands_of_equal_rules_are_compared_by_rows_of_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lcs, "by_pairs", None)  # it would look at six million pairs
    old = [*range(3000), *["log"] * 3000]
    new = [*["log"] * 2000, *range(0, 3000, 2), "last"]
    ranges = list(gaps(old, new))
    assert (sum(len(removed) for removed, _ in ranges), sum(len(added) for _, added in ranges)) == (
        4000,
        1501,
    )


def test_a_list_of_addresses_is_inserted_in_the_order_of_iptables() -> None:
    assert lines("-I INPUT 2 -s 1.1.1.1,2.2.2.2 -j DROP")[1:3] == [
        "-A INPUT -s 2.2.2.2 -j DROP",
        "-A INPUT -s 1.1.1.1 -j DROP",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "-D INPUT -s 10.1.2.3 -p tcp --dport 22 -j ACCEPT",
        "iptables -t filter -D INPUT 1",
        "iptables -w -D INPUT -p 6 -s 10.1.2.3/255.255.255.255 --dport ssh -j ACCEPT",
        "--delete INPUT 1",
    ],
)
def test_a_rule_is_found_in_any_spelling(command: str) -> None:
    assert len(lines(command)) == 2 and "10.1.2.3" not in lines(command)[0]


def test_a_chain_with_the_name_of_a_target_is_a_chain() -> None:
    program = hitables.read("*filter\n:LOG -\nCOMMIT\n")
    (edit,) = read_commands("-A INPUT -j LOG", program)
    assert edit.rule is not None and rule_key(edit.rule)[1] == "-j LOG"


def test_edits_are_read_as_they_were_printed() -> None:
    """The rules enter chains of the program, and one that an edit makes; a comment that names a chain enters none."""
    names = [":bans - [0:0]", *(f":chain{number} - [0:0]" for number in range(9))]
    program = hitables.read("\n".join(["*filter", *names, "-A INPUT -j bans", "COMMIT", ""]))
    edits = read_commands(
        "-N made\n-I INPUT 1 -s 10.0.0.1 -j made\n-A bans -p tcp -g chain7\n-D INPUT 2\n"
        '-A INPUT -m comment --comment "-j chain3 -j nowhere" -j chain8\n-A INPUT -j NFLOG --nflog-prefix "-j chain1"\n'
        "-R INPUT 1 -j chain2\n-P INPUT DROP\n-t nat -A POSTROUTING -j MASQUERADE",
        program,
    )
    again = read_edits(text(edits), program)
    assert [text([edit]) for edit in again] == [text([edit]) for edit in edits]
    assert hitables.write(apply(program, again)) == hitables.write(apply(program, edits))
    with pytest.raises(ParseError, match="neither a chain of table filter"):
        read_edits("*filter\n-A INPUT -j chain77\nCOMMIT\n", program)
    with pytest.raises(ParseError, match="no edit of a table"):
        read_edits("-A INPUT -j DROP\n", program)


def test_a_missing_table_is_added() -> None:
    program = hitables.read(RULES)
    after = apply(program, read_commands("-t nat -A POSTROUTING -j MASQUERADE", program))
    assert [table.name for table in after] == ["filter", "nat"]


@pytest.mark.parametrize(("command", "reason", "column"), [
    ("-I NOPE -j DROP", "there is no chain NOPE", 4),
    ("-I INPUT 5 -j DROP", "position 5 is out of range", 10),
    ("-D INPUT 4", "position 4 is out of range", 10),
    ("-R INPUT 0 -j DROP", "position 0 is out of range", 10),
    ("-D INPUT -s 10.9.9.9 -j DROP", "no such rule", 1),
    ("-A INPUT --sprot 80 -j DROP", "unknown option --sprot", 10),
    ("-A INPUT -j NOPE", "NOPE is neither a chain", 13),
    ("-t filler -A INPUT -j DROP", "unknown table 'filler'", 4),
    ("-E bans bars", "-E is not among the updates", 1),
    ("-X bans", "rule 2 of INPUT jumps to bans", 4),
    ("-X INPUT", "INPUT is built in", 4),
    ("-N bans", "bans exists already", 4),
    ("-N ACCEPT", "a chain cannot be called ACCEPT", 4),
    ("-P bans DROP", "user chain bans has no policy", 9),
    ("-A", "a chain is missing", 3),
    ("-R INPUT -j DROP", "-R needs a position", 10),
    ("*fliter", "unknown table", 1),
    ("-F bans -t nat", "-t is not expected here", 9),
    ("-P INPUT DROP -t mangle", "-t is not expected here", 15),
    ("-P INPUT DROP -w 5 -c 1 2", "-c is not expected here", 20),
    ("-N new other", "other is not expected here", 8),
    ("-X bans -w INPUT", "INPUT is not expected here", 12),
])  # fmt: skip
def test_a_command_that_cannot_be_performed_is_refused_with_its_column(
    command: str, reason: str, column: int
) -> None:
    program = hitables.read(RULES)
    with pytest.raises(ParseError) as caught:
        read_commands(f"# a comment\n{command}\n", program, "updates.txt")
    assert reason in caught.value.reason
    assert (caught.value.source, caught.value.line, caught.value.column) == ("updates.txt", 2, column)


def test_the_option_that_waits_for_the_lock_may_have_seconds() -> None:
    program = hitables.read(RULES)
    for command in ("-w 5 -P INPUT DROP", "-P INPUT DROP -w", "-P INPUT DROP --wait 5", "-w -P INPUT DROP"):
        assert [edit.policy for edit in read_commands(command, program)] == ["DROP"]


def test_sync_finds_the_least_edits() -> None:
    old = hitables.read(RULES)
    new = hitables.read(RULES.replace("--dport 22", "--dport 23").replace("INPUT ACCEPT", "INPUT DROP"))
    assert text(sync(old, new)) == (
        "*filter\n-P INPUT DROP\n-R INPUT 1 -s 10.1.2.3/32 -p tcp -m tcp --dport 23 -j ACCEPT\nCOMMIT\n"
    )


def test_sync_leaves_the_policy_of_a_chain_for_which_the_file_names_none() -> None:
    old = hitables.read("*filter\n:INPUT DROP [0:0]\nCOMMIT\n")
    assert sync(old, hitables.read("*filter\n:INPUT - [0:0]\nCOMMIT\n")) == []


def test_sync_keeps_what_is_not_of_the_file() -> None:
    """The rules that enter chains of other programs, at their places, and tables that the file lacks."""
    own = [f"-A INPUT -s 10.0.0.{host} -j DROP" for host in range(1, 7)]
    jumps = ["-A INPUT -p tcp -j f2b-sshd", "-A INPUT -p udp -j f2b-dns", "-A INPUT -j f2b-all"]
    chains = [":INPUT ACCEPT [0:0]", ":f2b-sshd - [0:0]", ":f2b-dns - [0:0]", ":f2b-all - [0:0]"]
    kernel = [jumps[0], *own[:3], jumps[1], *own[3:], jumps[2]]
    nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j MASQUERADE\nCOMMIT\n"
    old = hitables.read("\n".join(["*filter", *chains, *kernel, "COMMIT", nat]))
    file = [own[0], "-A INPUT -s 10.9.9.9 -j DROP", *own[2:5], jumps[1]]
    new = hitables.read("\n".join(["*filter", chains[0], chains[2], *file, "COMMIT", ""]))
    wanted = with_others(old, new, lambda name: name.startswith("f2b-"))
    lines = hitables.write(wanted).splitlines()
    assert [line.replace("/32", "") for line in lines if line.startswith("-A INPUT")] == [
        jumps[0], *file, jumps[2],
    ]  # fmt: skip
    assert "-A POSTROUTING -j MASQUERADE" in lines
    assert text(sync(old, wanted, keep=lambda name: name.startswith("f2b-"))).count("nat") == 0
    assert with_others(old, old, lambda name: True) == old
    more = ["*filter", chains[0], ":new - [0:0]", *own[:1], "-A new -j DROP", "-A INPUT -j new", "COMMIT", ""]
    wanted = with_others(old, hitables.read("\n".join(more)), lambda name: name.startswith("f2b-"))
    lines = hitables.write(wanted).splitlines()
    assert ":new - [0:0]" in lines and "-A new -j DROP" in lines and "-A INPUT -j new" in lines


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("-A POSTROUTING -t nat -j RETURN", "write -t nat in front of the command"),
        ("-A INPUT -s 10.1.1.1 -j DROP -t filter", "write -t filter in front of the command"),
        ("-F POSTROUTING --table", "write --table TABLE in front of the command"),
        ("-A INPUT -w -s 10.1.1.1 -j DROP", "write -w in front of the command, or leave it out"),
        ("-A POSTROUTING -j RETURN", "there are FORWARD, OUTPUT, INPUT, bans"),
    ],
)
def test_an_option_that_belongs_in_front_of_the_command_is_named(command: str, hint: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_commands(command, hitables.read(RULES))
    assert caught.value.hint == hint


def test_words_of_a_comment_are_no_options_of_the_command() -> None:
    (edit,) = read_commands("-A INPUT -m comment --comment -t -j DROP", hitables.read(RULES))
    assert edit.rule is not None and edit.table == "filter"
    assert not read_commands("-D INPUT 1 -w", hitables.read(RULES))[0].rule


@pytest.mark.parametrize("match", ["multiport --dports", "multiport --sports"])
def test_a_range_of_all_ports_is_a_test_where_the_kernel_has_it(match: str) -> None:
    program = hitables.read(f"*filter\n-A INPUT -p tcp -m {match} 0:65535 -j DROP\nCOMMIT\n")
    with pytest.raises(ParseError, match="no such rule"):
        read_commands("-D INPUT -p tcp -j DROP", program)


@pytest.mark.parametrize(
    ("listed", "deleted"),
    [
        ("-p tcp -m tcp --sport 1024 --dport 22", "-p tcp --dport 22 --sport 1024"),
        ("-p tcp -m tcp --dport 80 --tcp-flags FIN,SYN,RST,ACK SYN", "-p tcp --syn --dport 80"),
        ("-p udp -m udp", "-p udp --dport 0:65535"), ("-p tcp -m tcp", "-p tcp --tcp-flags NONE NONE"),
        ("-p tcp --sport 0: --dport 22", "-p tcp --dport 22"),
        ("-s 10.1.1.1/32", "-s 10.1.1.1 -d 0/0"), ("-p udp", "-s 0.0.0.0/0 -i + -p udp"), ("", "-d 0/0"),
    ],
)  # fmt: skip
def test_a_rule_is_deleted_by_any_spelling_of_it(listed: str, deleted: str) -> None:
    for one, other in ((listed, deleted), (deleted, listed)):
        program = hitables.read(f"*filter\n-A INPUT -p icmp -j DROP\n-A INPUT {one} -j DROP\nCOMMIT\n")
        assert [edit.at for edit in read_commands(f"-D INPUT {other} -j DROP", program)] == [1]


@pytest.mark.parametrize("matches_all", ["-s 0.0.0.0/0", "-d 0.0.0.0/0", "-i +", "-o +"])
def test_an_option_that_any_packet_has_is_no_part_of_a_rule(matches_all: str) -> None:
    rules = ("-p udp -j DROP", f"-p udp {matches_all} -j DROP")
    for listed, deleted in (rules, rules[::-1]):
        program = hitables.read(f"*filter\n-A FORWARD {listed}\nCOMMIT\n")
        assert [edit.at for edit in read_commands(f"-D FORWARD {deleted}", program)] == [0]


def test_a_list_of_addresses_deletes_a_rule_for_each() -> None:
    rules = [f"-A INPUT -s 10.0.0.{host} -j DROP" for host in (1, 2, 3)]
    program = hitables.read("\n".join(["*filter", *rules, "COMMIT", ""]))
    edits = read_commands("-D INPUT -s 10.0.0.1,10.0.0.2 -j DROP", program)
    left = hitables.write(apply(program, edits)).splitlines()
    assert [line for line in left if line.startswith("-A")] == rules[2:]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("-D INPUT \u00b2", "belongs to no option"), ("-D INPUT \u0663", "belongs to no option"),
        (f"-D INPUT {'9' * 5000}", "position 9999999999 is out of range"), ("-D INPUT 0", "position 0 is out of"),
        ("ip6tables -D INPUT 1", "a command of ip6tables, but the rules are of IPv4"),
        ("-D INPUT 3 -s 1.1.1.1 -j DROP", "-D takes a position or a rule, not both"),
    ],
)  # fmt: skip
def test_what_is_no_position_and_no_command_of_the_family_is_refused(command: str, message: str) -> None:
    with pytest.raises(hitables.ParseError, match=message):
        read_commands(command, hitables.read(RULES))


def test_positions_may_begin_with_zeros() -> None:
    assert [edit.at for edit in read_commands("-D INPUT 0001", hitables.read(RULES))] == [0]


def random_edits(rng: random.Random, commands: int) -> tuple[Program, list[Edit], Program]:
    """A program, edits of one of its chains, and what they lead to."""
    before = hitables.read("*filter\n:INPUT ACCEPT\n-A INPUT -s 10.0.0.1 -j DROP\n-A INPUT -j LOG\nCOMMIT\n")
    program, edits = before, []
    for number in range(commands):
        count = len(program.table("filter")["INPUT"].rules)
        word = rng.choice(["-A INPUT", f"-I INPUT {rng.randint(1, count + 1)}", "-R INPUT"])
        word += f" {rng.randint(1, count)}" if word == "-R INPUT" and count else ""
        rule = f" -s 10.0.1.{number} -j ACCEPT"
        if count > 1 and rng.random() < 0.3:
            word, rule = f"-D INPUT {rng.randint(1, count)}", ""
        if rng.random() < 0.05:
            word, rule = "-F INPUT", ""
        if word == "-R INPUT":
            continue
        edits += (more := read_commands(word + rule, program))
        program = apply(program, more)
    return before, edits, program


@given(seed=st.integers(0, 2**32), commands=st.integers(1, 12))
def test_no_row_is_replaced_that_the_same_edits_insert(seed: int, commands: int) -> None:
    """iptables-nft-restore crashes there; the result is the same."""
    before, edits, program = random_edits(random.Random(seed), commands)
    loadable, places = replaceable(before, edits)
    assert hitables.write(apply(before, loadable)) == hitables.write(program)
    assert all(loadable[place].rule == edit.rule for place, edit in zip(places, edits, strict=True))
    new: list[bool] = [False] * 2
    for edit in loadable:
        assert edit.op is not Op.REPLACE or not new[edit.at]
        if edit.op is Op.FLUSH:
            new = []
        elif edit.op is Op.DELETE:
            del new[edit.at]
        elif edit.op is Op.REPLACE:
            new[edit.at] = True
        else:
            new.insert(len(new) if edit.op is Op.APPEND else edit.at, True)


@given(seed=st.integers(0, 2**32), commands=st.integers(1, 12))
def test_no_row_is_deleted_that_the_same_edits_insert(seed: int, commands: int) -> None:
    """The kernel refuses rows in front of it; the result is the same."""
    before, edits, program = random_edits(random.Random(seed), commands)
    edits = replaceable(before, edits)[0]
    loadable, places = without_undone(before, edits)
    assert hitables.write(apply(before, loadable)) == hitables.write(program)
    assert [place for place in places if place is not None] == list(range(len(loadable)))
    for place, edit in zip(places, edits, strict=True):
        assert place is None or (loadable[place].op, loadable[place].rule) == (edit.op, edit.rule)
    inserted = [False] * 2
    for edit in loadable:
        if edit.op is Op.FLUSH:
            inserted.clear()
        elif edit.op is Op.DELETE:
            assert not inserted.pop(edit.at)
        elif edit.op is not Op.REPLACE:
            inserted.insert(len(inserted) if edit.op is Op.APPEND else edit.at, True)


@pytest.mark.parametrize("name", ['"U9 ACCEPT"', "-x", "!x", "a" * 29, "ACCEPT"])
def test_a_chain_gets_no_name_that_iptables_refuses(name: str) -> None:
    program = hitables.read("*filter\n:INPUT ACCEPT\nCOMMIT\n")
    with pytest.raises(ParseError):
        read_commands(f"-N {name}", program)


@pytest.mark.parametrize("mask", ["-d 0.0.0.0/0.0.0.1", "! -s 0.0.0.1/0.0.0.1"])
def test_an_address_under_a_mask_with_gaps_is_part_of_a_rule(mask: str) -> None:
    before, after = (
        hitables.read(f"*filter\n:INPUT ACCEPT\n-A INPUT {match}-j DROP\n-A INPUT -j LOG\nCOMMIT\n")
        for match in (f"{mask} ", "")
    )
    assert [edit.op for edit in sync(before, after)] == [Op.REPLACE]
    assert rule_key(before.table("filter")["INPUT"].rules[0]) != rule_key(
        after.table("filter")["INPUT"].rules[0]
    )
    assert sync(before, before) == []

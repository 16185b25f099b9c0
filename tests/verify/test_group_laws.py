"""Laws by which lists of shape groups prove programs that do less than they might, and what the laws refuse.

A version may drop malformed packets that a larger one passes; a form need not list a rule whose packets other
listed rules decide.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from support.by_lists import proved_by_lists
from support.grouped_programs import EFFECT_SLIPS, EFFECTS, LOGS, PLAIN, Grouping, list_program, make_list

pytestmark = pytest.mark.engine
# Pairs of programs to try, from REGROUP_SEED on; set REGROUP_PAIRS for a longer campaign.
PAIRS = int(os.environ.get("REGROUP_PAIRS", "60"))
SEED = int(os.environ.get("REGROUP_SEED", "0"))


@pytest.mark.parametrize("targets", [PLAIN, EFFECTS], ids=["verdicts", "effects"])
def test_lists_prove_versions_that_test_ports_first(
    targets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    proved = tried = 0
    for seed in range(SEED, SEED + PAIRS // 2):
        rng = random.Random(f"ports first {seed}")
        rules = make_list(rng, rng.randrange(6, 14), targets)
        grouped = Grouping(rules, rng, late=seed % 2 == 0, branches=True).write()
        assert grouped.may_replace(list_program(rules)), grouped.text()
        tried += 1
        proved += proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch) is True
    assert proved > 0.8 * tried


def test_lists_prove_no_slip_where_versions_test_ports_first(monkeypatch: pytest.MonkeyPatch) -> None:
    differ = read = 0
    for seed in range(SEED, SEED + PAIRS):
        rng = random.Random(f"slip behind ports {seed}")
        rules = make_list(rng, rng.randrange(6, 14), rng.choice((PLAIN, EFFECTS)))
        slip, late = EFFECT_SLIPS[seed % len(EFFECT_SLIPS)], rng.random() < 0.5
        grouped = Grouping(rules, rng, slip, late, branches=True).write()
        answer = proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch)
        read += answer is not None
        if not grouped.may_replace(list_program(rules)):
            differ += 1
            assert not answer, grouped.text()
    assert differ > 0.08 * PAIRS
    assert read > 0.7 * PAIRS


def test_lists_prove_forms_without_rules_that_listed_ones_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = tried = 0
    for seed in range(SEED, SEED + PAIRS // 2):
        rng = random.Random(f"pruned {seed}")
        rules = make_list(rng, rng.randrange(8, 14))
        grouped = Grouping(rules, rng, pruned=True).write()
        assert grouped.may_replace(list_program(rules)), grouped.text()
        tried += 1
        proved += proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch) is True
    assert proved > 0.7 * tried


def test_lists_prove_no_form_without_a_rule_that_decides_first(monkeypatch: pytest.MonkeyPatch) -> None:
    differ = read = 0
    for seed in range(SEED, SEED + 2 * PAIRS):
        rng = random.Random(f"slip in a pruned form {seed}")
        rules = make_list(rng, rng.randrange(8, 14))
        slip = rng.choice(("pruned", "pruned", "listed", "order", "verdict"))
        grouped = Grouping(rules, rng, slip, pruned=True).write()
        answer = proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch)
        read += answer is not None
        if not grouped.may_replace(list_program(rules)):
            differ += 1
            assert not answer, grouped.text()
    assert differ > 0.1 * PAIRS
    assert read > PAIRS


BEFORE = """\
*filter
:FORWARD DROP [0:0]
-A FORWARD -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A FORWARD -d 10.0.0.2/32 -j DROP
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A FORWARD -d 10.0.0.4/32 -j REJECT
COMMIT
"""
AFTER = """\
*filter
:FORWARD DROP [0:0]
:t1 - [0:0]
:v1 - [0:0]
:v3 - [0:0]
:web - [0:0]
-A FORWARD -j t1
-A FORWARD -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A FORWARD -s 10.0.0.3/32 -j ACCEPT
-A t1 -d 10.0.0.2/32 -j v1
-A t1 -d 10.0.0.2/32 -j DROP
-A t1 -d 10.0.0.4/32 -j v3
-A t1 -d 10.0.0.4/32 -j REJECT
-A v1 -p tcp -m tcp --dport 80 -g web
-A web -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A v3 -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A v3 -s 10.0.0.3/32 -j ACCEPT
COMMIT
"""


def test_a_version_may_drop_malformed_packets_that_a_larger_one_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert proved_by_lists(BEFORE, AFTER, monkeypatch) is True
    unlike = AFTER.replace("-A v3 -s 10.0.0.3/32 -j ACCEPT", "-A v3 -s 10.0.0.3/32 -j DROP")
    assert proved_by_lists(BEFORE, unlike, monkeypatch) is not True


STAYS = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -p icmp -j LOG
-A FORWARD -d 10.0.0.2/32 -j DROP
-A FORWARD -s 10.0.0.1/32 -j ACCEPT
-A FORWARD -p udp -j REJECT
COMMIT
"""
LOGS_TWICE = """\
*filter
:FORWARD ACCEPT [0:0]
:t0 - [0:0]
:t1 - [0:0]
:v2 - [0:0]
:v1 - [0:0]
-A FORWARD -j t0
-A FORWARD -j t1
-A FORWARD -p icmp -j LOG
-A FORWARD -p udp -j REJECT
-A t0 -s 10.0.0.1/32 -j v2
-A t0 -s 10.0.0.1/32 -j ACCEPT
-A t1 -d 10.0.0.2/32 -j v1
-A t1 -d 10.0.0.2/32 -j DROP
-A v2 -j v1
-A v2 -d 10.0.0.2/32 -j v1
-A v2 -d 10.0.0.2/32 -j DROP
-A v1 -p icmp -j LOG
COMMIT
"""
LOGS_ONCE = LOGS_TWICE.replace(":v1", ":w - [0:0]\n:v1").replace(
    """\
-A v2 -j v1
-A v2 -d 10.0.0.2/32 -j v1
-A v2 -d 10.0.0.2/32 -j DROP
""",
    """\
-A v2 -j w
-A v2 -p icmp -j LOG
-A w -d 10.0.0.2/32 -j v1
-A w -d 10.0.0.2/32 -j DROP
""",
)


def test_no_version_reads_rules_that_stay_before_a_form_searches_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A packet from 10.0.0.1 to 10.0.0.2 would be logged twice, though each list is equal to its tree."""
    assert not proved_by_lists(STAYS, LOGS_TWICE, monkeypatch)
    assert proved_by_lists(STAYS, LOGS_ONCE, monkeypatch) is True


def test_no_version_that_reads_rules_that_stay_early_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    differ = 0
    for seed in range(SEED, SEED + PAIRS):
        rng = random.Random(f"early {seed}")
        deciders = [each for each in make_list(rng, 10) if each.matches.src or each.matches.dst]
        rules = [replace(rng.choice(deciders), to=rng.choice(LOGS)), *deciders]
        grouped = Grouping(rules, rng, "early", late=True).write()
        if not grouped.may_replace(list_program(rules)):
            differ += 1
            assert not proved_by_lists(list_program(rules).text(), grouped.text(), monkeypatch), (
                grouped.text()
            )
    assert differ > 0.05 * PAIRS


@pytest.mark.parametrize(
    "match", ["limit --limit 1/sec", "hashlimit --hashlimit-above 5/min --hashlimit-name a"]
)
def test_a_version_may_be_one_rule_with_a_memory_that_rules_share(
    match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory that has a name may be asked in many rules; one of the rule itself is kept in one chain."""
    before, after = (
        text.replace("-p icmp -j LOG", f"-p icmp -m {match} -j DROP") for text in (STAYS, LOGS_ONCE)
    )
    assert (proved_by_lists(before, after, monkeypatch) is True) == match.startswith("hashlimit")


DEAD = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -s 10.0.0.0/25 -j ACCEPT
-A FORWARD -s 10.0.0.128/25 -j REJECT
-A FORWARD -s 10.0.0.0/24 -j DROP
-A FORWARD -d 10.0.0.2/32 -j DROP
-A FORWARD -p udp -j DROP
COMMIT
"""
DEAD_IN_A_VERSION = """\
*filter
:FORWARD ACCEPT [0:0]
:t0 - [0:0]
:t1 - [0:0]
:v - [0:0]
-A FORWARD -j t0
-A FORWARD -j t1
-A FORWARD -p udp -j DROP
-A t0 -d 10.0.0.2/32 -j v
-A t0 -d 10.0.0.2/32 -j DROP
-A t1 -s 10.0.0.0/25 -j ACCEPT
-A t1 -s 10.0.0.128/25 -j REJECT
-A v -s 10.0.0.0/25 -j ACCEPT
-A v -s 10.0.0.128/25 -j REJECT
-A v -s 10.0.0.0/24 -j DROP
COMMIT
"""


def test_a_rule_that_two_rules_cover_may_be_printed_in_a_version_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert proved_by_lists(DEAD, DEAD_IN_A_VERSION, monkeypatch) is True
    alive = DEAD_IN_A_VERSION.replace("-A v -s 10.0.0.128/25 -j REJECT\n", "")
    assert not proved_by_lists(DEAD, alive, monkeypatch)


@pytest.mark.parametrize(
    "memory", ["limit --limit 5/min", "hashlimit --hashlimit-above 5/min --hashlimit-name b"]
)
def test_a_rule_with_a_memory_may_be_dead(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that were pasted together log behind a rule that drops all packets."""
    log = f"-A FORWARD -m {memory} -j LOG\nCOMMIT"
    before = STAYS.replace("-p udp -j REJECT", "-j DROP").replace("COMMIT", log)
    in_tree = "-A t1 -d 10.0.0.2/32 -j DROP\n"
    after = LOGS_ONCE.replace("-A FORWARD -p udp -j REJECT\n", "").replace(
        in_tree, f"{in_tree}-A t1 -j v1\n-A t1 -j DROP\n"
    )
    assert proved_by_lists(before, after, monkeypatch) is True
    alive = before.replace("-A FORWARD -j DROP", "-A FORWARD -p tcp -j DROP")
    lacks = after.replace("-A t1 -j", "-A t1 -p tcp -j")
    assert not proved_by_lists(alive, lacks, monkeypatch)


def test_a_version_drops_the_malformed_packets_that_its_list_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bytes of layer 4 are enough for `-m multiport`, and not for `-m tcp`, which drops the packet."""
    passes = AFTER.replace(
        "-A v3 -s 10.0.0.1/32 -p tcp -m tcp --dport 80",
        "-A v3 -s 10.0.0.1/32 -p tcp -m multiport --dports 80",
    )
    assert passes != AFTER
    assert not proved_by_lists(BEFORE, passes, monkeypatch)


MARKS = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -p tcp -m mark --mark 0x1/0x1 -j REJECT
-A FORWARD -s 10.0.0.3/32 -d 10.0.0.1/32 -p tcp -j MARK --set-xmark 0x1/0x1
-A FORWARD -s 10.0.0.2/31 -p tcp -j DROP
COMMIT
"""
MARKS_FIRST = """\
*filter
:FORWARD ACCEPT [0:0]
:v1 - [0:0]
:v2 - [0:0]
:tree - [0:0]
:rest - [0:0]
-A FORWARD -s 10.0.0.3/32 -d 10.0.0.1/32 -p tcp -j v1
-A FORWARD -s 10.0.0.3/32 -d 10.0.0.1/32 -p tcp -j MARK --set-xmark 0x1/0x1
-A FORWARD -g rest
-A v1 -p tcp -m mark --mark 0x1/0x1 -j REJECT
-A v2 -p tcp -m mark --mark 0x1/0x1 -j REJECT
-A tree -s 10.0.0.2/31 -p tcp -j v2
-A tree -s 10.0.0.2/31 -p tcp -j DROP
-A rest -j tree
-A rest -p tcp -m mark --mark 0x1/0x1 -j REJECT
COMMIT
"""


@pytest.mark.parametrize(
    ("reads", "writes"),
    [
        ("-m mark --mark 0x1/0x1", "MARK --set-xmark 0x1/0x1"),
        ("-m multiport --dports 5", "UNHEARD --of"),
        ("-m multiport --ports 5", "UNHEARD --of"),
    ],
)
def test_no_form_searches_a_rule_behind_one_that_may_change_its_answer(
    reads: str, writes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packet from 10.0.0.3 to 10.0.0.1 would be rejected as it was marked, where the list drops it."""
    words = {"-m mark --mark 0x1/0x1": reads, "MARK --set-xmark 0x1/0x1": writes}
    before, after = MARKS, MARKS_FIRST
    for old, new in words.items():
        before, after = before.replace(old, new), after.replace(old, new)
    assert not proved_by_lists(before, after, monkeypatch)
    no_writer = [
        "\n".join(line for line in text.split("\n") if "10.0.0.3/32" not in line) for text in (before, after)
    ]
    assert proved_by_lists(*no_writer, monkeypatch) is True


LOGS_FOR_MORE = """\
*filter
:FORWARD ACCEPT [0:0]
:tree - [0:0]
:v - [0:0]
-A FORWARD -j tree
-A FORWARD -p udp -j LOG
-A tree -s 10.0.0.2/31 -j v
-A tree -s 10.0.0.2/31 -d 10.0.0.1/32 -j DROP
-A v -p udp -j LOG
COMMIT
"""


def test_a_form_that_searches_rules_that_stay_is_called_for_packets_that_end_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other packets would be logged by the form, and once more behind it."""
    logs = "-A FORWARD -p udp -j LOG\n-A FORWARD -s 10.0.0.2/31 -d 10.0.0.1/32 -j DROP\n"
    before = f"*filter\n:FORWARD ACCEPT [0:0]\n{logs}COMMIT\n"
    assert not proved_by_lists(before, LOGS_FOR_MORE, monkeypatch)
    for_those = LOGS_FOR_MORE.replace("10.0.0.2/31 -j v", "10.0.0.2/31 -d 10.0.0.1/32 -j v")
    assert proved_by_lists(before, for_those, monkeypatch) is True


@pytest.mark.parametrize("ports", ["-m tcp --dport 6", "-m multiport --dports 4,6"])
def test_rules_that_test_what_a_rule_of_the_list_writes_are_not_apart(
    ports: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packet to port 5 that gets port 6 would be rejected, where the list had passed that rule before."""
    writes, rejects = "-p tcp -m tcp --dport 5 -j UNHEARD --of", f"-p tcp {ports} -j REJECT"
    drops = "-d 10.0.0.2/32 -p udp -j DROP"
    before = "".join(f"-A FORWARD {rule}\n" for rule in (rejects, writes, drops))
    after = f"-A FORWARD -j tree\n-A FORWARD {rejects}\n-A tree {writes}\n-A tree {drops}\n"
    one, two = (
        f"*filter\n:FORWARD ACCEPT\n{before}COMMIT\n",
        f"*filter\n:FORWARD ACCEPT\n:tree -\n{after}COMMIT\n",
    )
    assert not proved_by_lists(one, two, monkeypatch)
    silent = [text.replace("UNHEARD --of", "LOG") for text in (one, two)]
    assert proved_by_lists(*silent, monkeypatch) is True


def test_a_listed_rule_decides_no_packets_between_those_that_it_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The form lists the rule that accepts, and not the one that rejects."""

    def is_proved(accepted: str) -> bool:
        accepts = f"-p tcp -m multiport --dports {accepted} -j ACCEPT"
        rejects, drops = "-p tcp -m multiport --dports 2:8 -j REJECT", "-d 10.0.0.2/32 -p tcp"
        before = [f"-A FORWARD {each}" for each in (accepts, rejects, f"{drops} -j DROP")]
        after = ["-A FORWARD -j tree", *before[:2], f"-A tree {drops} -g form", f"-A form {accepts}"]
        one = ["*filter", ":FORWARD ACCEPT", *before, "COMMIT", ""]
        two = ["*filter", ":FORWARD ACCEPT", ":tree -", ":form -", *after, "-A form -j DROP", "COMMIT", ""]
        return proved_by_lists("\n".join(one), "\n".join(two), monkeypatch) is True

    assert is_proved("1:9")
    assert not is_proved("1,9")


def test_no_form_searches_a_rule_that_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would return to the rule behind the form."""

    def is_proved(target: str) -> bool:
        searched, drops = f"-p udp {target}", "-s 10.0.0.2/32 -j DROP"
        before = [f"-A list {searched}", f"-A list {drops}"]
        after = ["-A list -j tree", f"-A list {searched}", f"-A tree {drops.replace('DROP', 'v')}"]
        after += [f"-A tree {drops}", f"-A v {searched}"]
        head = ["*filter", ":FORWARD ACCEPT", ":list -", ":ends -", "-A FORWARD -j list", "-A ends -j REJECT"]
        one, two = [*head, *before, "COMMIT", ""], [*head, ":tree -", ":v -", *after, "COMMIT", ""]
        return proved_by_lists("\n".join(one), "\n".join(two), monkeypatch) is True

    assert is_proved("-j ACCEPT") and is_proved("-g ends")
    assert not is_proved("-j RETURN")


def in_two_groups(
    *rules: str, tree: str, rest: tuple[str, ...], **chains: tuple[str, ...]
) -> tuple[str, str]:
    """A list of FORWARD, and a program that reads the rule *tree* first, then *rest*."""
    own = {"FORWARD": ("-j tree", *rest), "tree": (tree,), **chains}
    lines = [f"-A {name} {each}" for name, listed in own.items() for each in listed]
    declared = [f":{name} -" for name in own if name != "FORWARD"]
    one = ["*filter", ":FORWARD ACCEPT", *(f"-A FORWARD {each}" for each in rules), "COMMIT", ""]
    return "\n".join(one), "\n".join(["*filter", ":FORWARD ACCEPT", *declared, *lines, "COMMIT", ""])


@pytest.mark.parametrize("log", ["LOG --log-prefix a", "MARK --set-xmark 0x1/0x1", "ends"])
def test_two_rules_that_stay_keep_their_order(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packet from 10.0.0.1 to 10.0.0.2 meets both."""

    def is_proved(source: str) -> bool:
        first, second = f"-s {source} -j {log}", "-d 10.0.0.2/32 -p tcp -j LOG --log-prefix b"
        texts = in_two_groups(first, second, tree=second, rest=(first,))
        ends = "-A ends -s 10.0.0.0/24 -j DROP\nCOMMIT\n"
        one, two = (
            text.replace("*filter\n", "*filter\n:ends -\n").replace("COMMIT\n", ends) for text in texts
        )
        return proved_by_lists(one, two, monkeypatch) is True

    assert is_proved("10.0.0.1/32 -p udp")
    assert not is_proved("10.0.0.1/32")


def test_a_memory_has_one_partner_for_whole_packets_and_later_fragments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """nft alone asks it for later fragments, by the bytes where a header has its port."""
    accepts = "-s 10.0.0.1/32 -j ACCEPT"
    drops = "-d 10.0.0.2/32 -p udp -m multiport --dports 5 -j DROP"  # read otherwise in later fragments
    logs = "-p tcp -m tcp --dport 5 -m limit --limit 1/sec -j LOG"
    rules = accepts, logs, drops
    one, two = in_two_groups(*rules, tree=accepts, rest=("-j kept", drops), kept=(logs,))
    assert proved_by_lists(one, two, monkeypatch) is True
    copied = ("-f -j later", "! -f -j whole", drops)
    one, two = in_two_groups(*rules, tree=accepts, rest=copied, later=(logs,), whole=(logs,))
    assert not proved_by_lists(one, two, monkeypatch)


@pytest.mark.parametrize(
    "reads", ["-m mark --mark 0x1/0x1", "-p tcp -m tcp --dport 5", "-p tcp -m multiport --ports 5"]
)
def test_a_rule_whose_answer_may_change_hides_no_later_one_with_its_matches(
    reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, accepts, drops = "-s 10.0.0.1/32 -j ACCEPT", f"{reads} -j ACCEPT", f"{reads} -j DROP"
    for between, is_hidden in (("-j UNHEARD --of", False), ("-j LOG", True)):
        texts = in_two_groups(first, accepts, between, drops, tree=first, rest=(accepts, between))
        assert (proved_by_lists(*texts, monkeypatch) is True) is is_hidden


@pytest.mark.parametrize(
    ("first", "second", "is_hidden"),
    [
        ("-s 10.0.0.2/32 -j ends", "-s 10.0.0.2/32 -j REJECT", True),
        ("-s 10.0.0.2/32 -j returns", "-s 10.0.0.2/32 -j REJECT", False),
        ("-s 10.0.0.2/32 -j goes", "-s 10.0.0.2/32 -j REJECT", False),
        ("-m limit --limit 1/sec -j ACCEPT", "-m limit --limit 1/sec -j DROP", False),
        ("-m recent --name a --rcheck -j ACCEPT", "-m recent --name a --rcheck -j DROP", False),
    ],
)
def test_a_rule_that_may_let_packets_pass_hides_no_later_one_with_its_matches(
    first: str, second: str, is_hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains = (
        *("-A ends -p udp -j LOG", "-A ends -j DROP", "-A returns -p udp -j RETURN", "-A returns -j DROP"),
        *("-A goes -p udp -g logs", "-A goes -j DROP", "-A logs -j LOG"),
    )
    accepts, rejects = "-s 10.0.0.1/32 -j ACCEPT", "-p icmp -j REJECT"
    texts = in_two_groups(accepts, first, second, rejects, tree=accepts, rest=(first, rejects))
    names = ":ends -\n:returns -\n:goes -\n:logs -\n"
    one, two = (
        text.replace("*filter\n", f"*filter\n{names}").replace("COMMIT", "\n".join([*chains, "COMMIT"]))
        for text in texts
    )
    assert (proved_by_lists(one, two, monkeypatch) is True) is is_hidden

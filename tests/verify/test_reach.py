"""The regions of `reach` are what the rules do: each packet of the question is in one, with its rule."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.hitables_command import run
from support.plain_packets import plain_packet, points_of
from support.rule_texts import make_text
from support.scale import examples

import hitables
from hitables.errors import ParseError
from hitables.ir.fields import STATES, Family, Field, Fragment
from hitables.ir.headers import inconsistency, is_malformed
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.program import Program, Table
from hitables.ir.rule import Match, Role
from hitables.ir.semantics import run as walk_of
from hitables.ir.sure_answers import sure_answer
from hitables.ir.synproxy import TAKEN
from hitables.parse.region_words import region
from hitables.verify import reach as reach_module
from hitables.verify.question import Question
from hitables.verify.reach import Reached, reach
from hitables.verify.reach import ReachedBox as Region

OFFICE = Path(__file__).parents[2] / "docs/example/office.rules"
PLAIN = re.compile(r"^[*:]|^COMMIT|-[jg] (ACCEPT|DROP|REJECT|RETURN|LOG|user\d)")
AFTER = re.compile(r" after \d+ writes? of what it reads$")
Box = dict[Field, Values]


def asked(program: Program, box: Box, chain: str, *backends: Backend, stopped: bool = True) -> Reached:
    question = Question(backends or tuple(Backend), tables=frozenset({"filter"}), chains=frozenset({chain}))
    return reach(program, box, question, lambda step: None, stopped)


def is_inside(packet: Packet, box: Box) -> bool:
    """Whether no field of the packet lies outside; one that it lacks does not."""
    return all(packet.values.get(field, values.pairs[0][0]) in values for field, values in box.items())


# Key, chain and index of the rule, and how often this was asked before; and the answer.
Answers = dict[tuple[str, str, int, int], bool]


def add_answer(answers: Answers, key: str, chain: str, at: int, held: bool) -> None:
    ordinal = sum(1 for asked in answers if asked[:3] == (key, chain, at))
    answers[key, chain, at, ordinal] = held


def is_in(packet: Packet, each: Region, facts: dict[str, bool], answers: Answers) -> bool:
    has = all(
        packet.values[field] in values if field in packet.values else field is Field.MAC and each.no_mac
        for field, values in each.box.items()
    )
    # The facts of these packets are the same after writes.
    holds = all(facts.get(AFTER.sub("", key), False) == held for key, held in each.facts)
    told: Answers = {}
    for one in each.asked:
        add_answer(told, one.key, one.chain, one.at, one.held)
    return has and holds and told.items() <= answers.items()


def facts_of_a_packet(rng: random.Random, matches: dict[str, Match]) -> dict[str, bool]:
    """Whether each match holds; those that compare one number compare the same."""
    asking = [match.fact for match in matches.values() if match.role is Role.CONSTANT]
    numbers: dict[str, set[int]] = {fact.attribute: {0, 1} for fact in asking}
    for fact in asking:
        numbers[fact.attribute].update(end for pair in fact.values.pairs for end in pair)
    number = {attribute: rng.choice(sorted(values)) for attribute, values in numbers.items()}
    sure = {key: held for key, match in matches.items() if (held := sure_answer(match)) is not None}
    facts = {
        key: match.fact.holds(number[match.fact.attribute])
        if match.role is Role.CONSTANT
        else rng.random() < 0.5
        for key, match in matches.items()
    }
    # A region names a match with "!" by the one that it negates.
    return facts | sure | {match.negates: not facts[key] for key, match in matches.items() if match.negates}


def test_a_condition_that_is_read_after_writes_is_told() -> None:
    text = (
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j MARK --set-xmark 0x4/0x4\n"
        "-A INPUT -m set --match-set blocked src -j DROP\nCOMMIT\n"
    )
    outcomes = asked(hitables.read(text), {}, "INPUT").outcomes
    key = "set --match-set blocked src after 1 write of what it reads"
    assert [(each.verdict, each.facts) for each in outcomes] == [
        ("ACCEPT", ((key, False),)),
        ("DROP", ((key, True),)),
    ]


# ---- laws ----


@settings(max_examples=examples(12))
@example(seed=5397)  # a rule that decides as the policy does
@example(seed=1764)  # two matches of one mark
@example(seed=930)  # a match of a mark with "!" alone
@given(seed=st.integers(0, 2**32))
def test_each_packet_of_the_question_is_in_one_region_with_the_rule_that_decides_it(seed: int) -> None:
    rng = random.Random(seed)
    family = rng.choice(list(Family))
    lines = make_text(rng, family, rules=25, memory=0.15).splitlines(keepends=True)
    program = hitables.read("".join(filter(PLAIN.search, lines)), family=family)
    points = points_of(program)
    chain = rng.choice(["INPUT", "FORWARD", "OUTPUT"])
    (table,) = program.tables
    matches = {match.key: match for each in table.chains for rule in each.rules for match in rule.matches}
    box: Box = {}
    for field in rng.sample([Field.DST, Field.SRC, Field.PROTO, Field.STATE, Field.DPORT], 3):
        box[field] = Values.of(tuple(sorted(rng.choices(points[field], k=2))))  # type: ignore[arg-type]
    if Field.PROTO in box:
        points[Field.PROTO] = [each for each in points[Field.PROTO] if each in box[Field.PROTO]]
    backend = rng.choice(list(Backend))
    reached = asked(program, box, chain, backend)
    assert reached.complete
    tried = 0
    for _ in range(150):
        packet = forced(rng, plain_packet(rng, points, family, chain), box)
        if packet is None or not is_inside(packet, box):
            continue
        tried += 1
        facts = facts_of_a_packet(rng, matches)
        answers: Answers = {}

        def outcome(match: Match, ordinal: int, answers: Answers = answers) -> Outcome:
            held = sure_answer(match)
            if held is None:
                held = rng.random() < 0.5
                key, chain, at = match.key.split(" of rule ")
                add_answer(answers, key, chain, int(at), held)
            return Outcome.YES if held else Outcome.NO

        packet = replace(packet, fact=lambda match, epoch, facts=facts: facts[match.key], outcome=outcome)
        walk = walk_of(each_rule_with_keys_of_its_own(table), chain, packet, backend)
        found = [each for each in reached.outcomes if is_in(packet, each, facts, answers)]
        assert len(found) == 1, (found, walk.verdict)
        (one,) = found
        last = walk.steps[-1] if walk.steps else None
        decides = last is not None and last.outcome is Outcome.YES and last.rule.is_final
        assert one.verdict == walk.verdict and one.passes == (not walk.verdict.startswith(("DROP", "REJECT")))
        assert (one.chain, one.at) == ((last.chain, last.index) if decides and last else ("", -1))
        assert one.line == (last.rule.line if decides and last else 0)
    assert tried > 20


def each_rule_with_keys_of_its_own(table: Table) -> Table:
    def own(match: Match, place: str) -> Match:
        return match._replace(key=f"{match.key} of rule {place}") if match.role > Role.CONSTANT else match

    return table.of(
        {
            chain.name: chain.with_rules(
                tuple(
                    rule._replace(
                        matches=tuple(own(match, f"{chain.name} of rule {at}") for match in rule.matches)
                    )
                    for at, rule in enumerate(chain.rules)
                )
            )
            for chain in table.chains
        }
    )


def forced(rng: random.Random, packet: Packet, box: Box) -> Packet | None:
    """*packet* with values of *box* where it has the fields; None if there is no such whole packet."""
    values = dict(packet.values)
    for field, allowed in box.items():
        if field in values and field is not Field.PROTO and values[field] not in allowed:
            values[field] = rng.choice(allowed.pairs[0])
    packet = replace(packet, values=values, l4_bytes=64)
    later = values[Field.FRAG] == Fragment.LATER
    return None if later or inconsistency(packet) or is_malformed(packet) else packet


def test_a_question_of_a_hardware_address_is_one_of_packets_without_one_too() -> None:
    program = hitables.read("*filter\n:INPUT DROP [0:0]\n-A INPUT -p 47 -j ACCEPT\nCOMMIT\n")
    found = asked(program, {Field.MAC: Values.only(5)}, "INPUT", Backend.LEGACY)
    assert sorted(each.verdict for each in found.outcomes if each.no_mac) == ["ACCEPT", "DROP"]


def test_regions_of_packets_that_pass_are_those_of_all_packets() -> None:
    program = hitables.read_file(str(OFFICE))
    box = region(Family.IPV4, destination="10.1.8.7:22")
    passing, every = (asked(program, box, "FORWARD", stopped=stopped) for stopped in (False, True))
    assert passing.outcomes == [each for each in every.outcomes if each.passes]
    assert len(every.outcomes) > len(passing.outcomes) > 0


def test_a_compiled_rule_set_lets_the_same_packets_pass() -> None:
    program = hitables.read_file(str(OFFICE))
    compiled = hitables.compile(program).program
    box = region(Family.IPV4, source="10.1.0.0/22", state="any")
    before, after = (asked(each, box, "FORWARD") for each in (program, compiled))
    for passes in (True, False):
        sums = [sum(each.headers for each in one.outcomes if each.passes is passes and not each.asked)
                for one in (before, after)]  # fmt: skip
        assert sums[0] == sums[1] > 0


def test_chains_that_are_asked_for_together_have_the_regions_of_each_alone() -> None:
    rules = (
        "*filter\n:INPUT DROP\n:log - \n:web - \n-A INPUT -s 10.0.0.0/8 -j web\n-A INPUT -j log\n"
        "-A log -j LOG\n-A log -j DROP\n-A web -p tcp --dport 80 -j ACCEPT\n"
        "-A web -p tcp --dport 81 -j REJECT\n-A web -p udp -j log\nCOMMIT\n"
    )
    program = hitables.read(rules)
    box = region(Family.IPV4, destination="10.1.8.7:80-90")
    chains = frozenset({"INPUT", "log", "web"})
    question = Question(tuple(Backend), tables=frozenset({"filter"}), chains=chains)
    together = reach(program, box, question, lambda step: None, True).outcomes
    for chain in chains:
        alone = asked(program, box, chain, *Backend).outcomes
        assert alone and [each for each in together if each.entered == chain] == alone


# ---- cases ----


@pytest.mark.parametrize("rules", ["", "-A theirs -p tcp --dport 80 -j ACCEPT\n-A theirs -j DROP\n"])
def test_chains_of_other_programs_may_let_packets_pass(rules: str, tmp_path: Path) -> None:
    text = f"*filter\n:INPUT DROP\n:theirs - \n-A INPUT -s 10.0.0.0/8 -j theirs\n{rules}COMMIT\n"
    (tmp_path / "rules").write_text(text)
    question = ("reach", tmp_path / "rules", "--to", ":22", "--proto", "tcp", "--chain", "INPUT")
    assert "no such packet passes" in run(*question, status=1).stdout
    done = run(*question, "--leave", "theirs")
    assert "the rules of chain theirs may let them pass" in done.stdout and "from 10.0.0.0/8" in done.stdout
    document = json.loads(run(*question, "--leave", "theirs", "--format", "json", "--dropped").stdout)
    fact = "decided by the rules of chain theirs"
    holds = {(each["passes"], *(f["holds"] for f in each["facts"] if f["key"] == fact))
             for each in document["regions"]}  # fmt: skip
    assert holds == {(True, True), (False, False), (False,)}


def test_a_target_that_is_not_known_may_let_packets_pass_and_one_that_is_known_may_not() -> None:
    rules = "-A INPUT -p tcp -j TCPMSS --set-mss 1400\n-A INPUT -p udp -j FOOBAR --now\n-A INPUT -j DROP\n"
    program = hitables.read(f"*filter\n:INPUT DROP\n{rules}COMMIT\n")
    outcomes = asked(program, region(Family.IPV4, protocols="tcp,udp"), "INPUT").outcomes
    passing = [each for each in outcomes if each.passes]
    assert {(each.line, each.at) for each in passing} == {(4, 1)} and passing[0].verdict.startswith("FOOBAR")
    assert {(each.line, each.at) for each in outcomes if not each.passes} == {(5, 2)}


@pytest.mark.parametrize("protocols", ["", "tcp"])
def test_a_region_of_several_protocols_keeps_the_flags_that_are_asked_of_tcp(protocols: str) -> None:
    program = hitables.read("*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n")
    box = region(Family.IPV4, protocols=protocols)
    (passing,) = [each for each in asked(program, box, "INPUT").outcomes if each.passes]
    assert passing.box[Field.FLAGS] == box[Field.FLAGS]


def test_packets_that_differ_in_their_protocol_alone_are_one_region() -> None:
    """The question asks flags of tcp only, which is no difference."""
    rules = (
        "-A INPUT -i eth0 -j ACCEPT\n-A INPUT -i eth1 -p tcp -j ACCEPT\n-A INPUT -i eth2 ! -p udp -j ACCEPT\n"
    )
    program = hitables.read(f"*filter\n:INPUT DROP\n{rules}COMMIT\n")
    outcomes = asked(program, region(Family.IPV4), "INPUT").outcomes
    assert [each.line for each in sorted(outcomes, key=lambda each: each.line) if each.passes] == [3, 4, 5]
    assert {each.line: Field.PROTO in each.box for each in outcomes if each.passes} == {
        3: False, 4: True, 5: True,
    }  # fmt: skip


def test_conditions_that_all_regions_of_a_chain_share_are_printed_once(tmp_path: Path) -> None:
    recent = "-m recent --update --seconds 60 --name s --rsource"
    accepts = "".join(f"-A INPUT -s {net}.0.0.0/8 -p tcp --dport 22 -j ACCEPT\n" for net in (10, 12))
    (tmp_path / "rules").write_text(f"*filter\n:INPUT DROP\n-A INPUT {recent} -j DROP\n{accepts}COMMIT\n")
    question = ("reach", tmp_path / "rules", "--to", ":22", "--proto", "tcp", "--chain", "INPUT")
    title, *lines = run(*question).stdout.splitlines()[1:]
    assert title.startswith("table filter, chain INPUT, when ") and title.endswith("does not match:")
    assert [line.strip() for line in lines if line.startswith("    ")] == [
        "from 10.0.0.0/8",
        "from 12.0.0.0/8",
    ]
    every = run(*question, "--dropped").stdout
    assert "chain INPUT:" in every and every.count("matches") == 1 and every.count("does not match") == 3


def test_conditions_that_all_regions_of_a_rule_share_are_printed_with_it(tmp_path: Path) -> None:
    matches = ("rt --rt-type 0", "frag --fragid 7", "hbh --hbh-opts 5:2")
    drops = "".join(f"-A INPUT -m {each} -j DROP\n" for each in matches)
    accepts = "-A INPUT -s 2001:db8::/32 -p tcp -j ACCEPT\n-A INPUT -p udp -m hl --hl-eq 255 -j ACCEPT\n"
    rules = f"*filter\n:INPUT DROP\n{drops}{accepts}-A INPUT ! -p tcp -m eui64 -j ACCEPT\nCOMMIT\n"
    (tmp_path / "rules").write_text(rules)
    question = ("reach", tmp_path / "rules", "--family", "6", "--chain", "INPUT", "--proto", "tcp,udp,sctp")
    title, *lines = run(*question).stdout.splitlines()[1:]
    asked = ", ".join(f'"{each}" of line {line}' for line, each in enumerate(matches, 3))
    assert title == f"table filter, chain INPUT, when none of {asked} matches:"
    assert [line.replace(str(tmp_path), "") for line in lines] == [
        "  ACCEPT by /rules:7: -A INPUT -p udp -m hl --hl-eq 255 -j ACCEPT",
        '    udp, where "hl --hl-eq 255" holds',
        '  ACCEPT by /rules:8: -A INPUT ! -p tcp -m eui64 -j ACCEPT, when "eui64" of line 8 matches:',
        '    udp, where "hl --hl-eq 255" does not hold',
        "    sctp",
        "  ACCEPT by /rules:6: -A INPUT -s 2001:db8::/32 -p tcp -j ACCEPT",
        "    tcp from 2001:db8::/32",
    ]
    every = json.loads(run(*question, "--format", "json").stdout)["regions"]
    assert {len(each["asked"]) for each in every} == {3, 4}
    assert all(f"when none of {asked} matches" in each["words"] for each in every)


def test_a_match_with_memory_that_decides_nothing_is_left_out() -> None:
    rules = "-A INPUT -m limit --limit 1/min -j LOG\n-A INPUT -m recent --name a --rcheck -j ACCEPT\n"
    program = hitables.read(f"*filter\n:INPUT DROP\n{rules}COMMIT\n")
    answers = [
        [(one.key.split(" ")[0], one.held, one.line) for one in each.asked]
        for each in asked(program, {}, "INPUT").outcomes
    ]
    assert answers == [[("recent", True, 4)], [("recent", False, 4)]]
    only = hitables.read(
        f"*filter\n:INPUT DROP\n{rules.splitlines()[0]}\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n"
    )
    assert all(not each.asked for each in asked(only, {}, "INPUT").outcomes)


def test_answers_of_two_rules_to_one_match_are_told_apart_and_those_of_a_log_are_left_out(
    tmp_path: Path,
) -> None:
    ssh, recent = "-A INPUT -p tcp -m tcp --dport 22", "-m recent --update --seconds 60 --name S"
    (tmp_path / "rules").write_text(
        f"*filter\n:INPUT DROP\n{ssh} {recent} -j LOG\n{ssh} {recent} -j DROP\n"
        f"{ssh} -m recent --set --name S -j ACCEPT\nCOMMIT\n"
    )
    question = "reach", tmp_path / "rules", "--to", ":22", "--proto", "tcp", "--chain", "INPUT", "--dropped"
    lines = run(*question).stdout.splitlines()
    key = '"recent --hitcount 0 --mask 255.255.255.255 --name S --rsource --seconds 60 --update"'
    assert [line for line in lines if line.startswith("    ")] == [
        f"    all, when {key} of line 4 does not match",
        f"    all, when {key} of line 4 matches",
    ]
    regions = json.loads(run(*question, "--format", "json").stdout)["regions"]
    assert [each["asked"] for each in regions] == [
        [{"key": key.strip('"'), "yes": yes, "line": 4}] for yes in (False, True)
    ]


def test_the_answers_of_a_rule_that_is_asked_twice_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(
        "*filter\n:INPUT DROP\n:twice -\n-A INPUT -j twice\n-A INPUT -i eth0 -j twice\n"
        "-A twice -m statistic --mode random --probability 0.5 -j ACCEPT\nCOMMIT\n"
    )
    lines = run("reach", tmp_path / "rules", "--chain", "INPUT", "--dropped", "--in", "eth0").stdout
    key = re.compile('"statistic [^"]*"')
    assert [line for line in key.sub("S", lines).splitlines() if line.startswith("    ")] == [
        "    all, when S of line 6 does not match, when S of line 6 (evaluation 2) matches",
        "    all, when S of line 6 matches",
        "    all, when none of S of line 6, S of line 6 (evaluation 2) matches",
    ]


def test_more_regions_than_the_bound_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_module, "MOST", {True: 3, False: 3})
    rules = "".join(f"-A INPUT -s 10.{n}.0.0/16 -j ACCEPT\n" for n in range(0, 40, 2))
    reached = asked(hitables.read(f"*filter\n:INPUT DROP\n{rules}COMMIT\n"), {}, "INPUT", stopped=False)
    assert reached.cut_off == {True} and not reached.complete


def test_the_answer_names_file_and_line(tmp_path: Path) -> None:
    done = run("reach", OFFICE, "--to", "10.1.8.7:ssh", "--chain", "FORWARD")
    assert f"ACCEPT by {OFFICE}:12: -A FORWARD -s 10.1.0.0/22" in done.stdout
    assert "tcp from 10.1.0.0-10.1.0.8, 10.1.0.10-10.1.3.255" in done.stdout and "DROP" not in done.stdout
    assert (
        "by policy" in run("reach", OFFICE, "--to", "10.1.8.7:22", "--chain", "FORWARD", "--dropped").stdout
    )
    run("compile", OFFICE, "-o", tmp_path / "compiled", "--map", tmp_path / "map")
    compiled = ("reach", tmp_path / "compiled", "--map", tmp_path / "map", "--chain", "FORWARD")
    assert f"by {OFFICE}:12: -A FORWARD" in run(*compiled, "--to", "10.1.8.7:22").stdout
    document = json.loads(run(*compiled, "--to", "10.1.8.7:22", "--format", "json").stdout)
    assert document["complete"] and {each["source"]["line"] for each in document["regions"]} == {12}


def test_the_rule_whose_memory_answers_is_named_by_its_line_in_the_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    accepts = [f"-A INPUT -s 10.{at}.0.0/16 -p tcp -m tcp --dport {at + 20} -j ACCEPT" for at in range(30)]
    accepts.insert(15, "-A INPUT -p tcp -m recent --update --seconds 60 --name S -j DROP")
    source.write_text("\n".join(["*filter", ":INPUT DROP [0:0]", *accepts, "COMMIT\n"]))
    run("compile", source, "-o", tmp_path / "compiled", "--map", tmp_path / "map")
    question = "--chain", "INPUT", "--to", ":40", "--proto", "tcp"
    told = run("reach", tmp_path / "compiled", "--map", tmp_path / "map", *question).stdout
    assert f'--update" of {source}:18 does not match' in told and "of line" not in told
    assert '--update" of line ' in run("reach", tmp_path / "compiled", *question).stdout


def test_the_status_says_whether_a_packet_passes() -> None:
    done = run("reach", OFFICE, "--to", "192.0.2.1:23", "--chain", "FORWARD", "--from", "192.0.2.2", status=1)
    assert "no such packet passes" in done.stdout
    done = run("reach", OFFICE, "--timeout", "1e-9", "--chain", "FORWARD", status=2)
    assert "undecided: out of time" in done.stdout and "no such packet was found" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "nat"], "there is no table nat"),
        (["--chain", "NOPE"], "there is no chain NOPE in table filter"),
        (["--chain", "forward"], "there is no chain forward in table filter; did you mean FORWARD?"),
        (["--to", "10.1.8:22x"], "--to 10.1.8:22x: invalid port or unknown service '22x'"),
        (["--to", "10.1.8.700"], "--to 10.1.8.700:"),
        (["--from", ":9-3"], "the range is reversed"),
        (["--proto", "icmp", "--to", ":22"], "protocols without ports"),
        (["--ctstate", "FRESH"], "unknown state 'FRESH'"),
        (["--in", "an-interface-too-long"], "longer than 15 bytes"),
    ],
)
def test_a_question_that_has_a_mistake_is_refused(arguments: list[str], message: str) -> None:
    done = run("reach", OFFICE, *arguments, status=2)
    assert done.stdout == "" and message in done.stderr


def test_words_of_a_question() -> None:
    box = region(
        Family.IPV4, destination="10.0.0.0/8:1000-2000", protocols="tcp,udp", iif="eth+", state="any"
    )
    assert box[Field.DST] == Values.of((10 << 24, (11 << 24) - 1)) and box[Field.DPORT] == Values.of(
        (1000, 2000)
    )
    assert box[Field.PROTO] == Values.only(6, 17) and Field.STATE not in box and Field.FLAGS not in box
    six = region(Family.IPV6, destination="[2001:db8::7]:443", source="2001:db8::/32")
    assert six[Field.DST] == Values.only(0x20010DB8 << 96 | 7) and six[Field.DPORT] == Values.only(443)
    assert six[Field.STATE] == Values.only(*(at for at, name in enumerate(STATES) if name.startswith("NEW")))
    assert region(Family.IPV6, destination=":22")[Field.DPORT] == Values.only(22)
    assert region(Family.IPV4, source="10.0.0.1-10.0.0.9")[Field.SRC].count == 9
    for text, hint in (
        ("22", "write :22"),
        ("ssh", "write :ssh"),
        ("22-25", "write :22-25"),
        ("eth0", "--out eth0"),
    ):
        with pytest.raises(ParseError, match=f"--to {text}: not an address.*{hint}"):
            region(Family.IPV4, destination=text)
    with pytest.raises(ParseError, match="--from eth0: not an address; write --in eth0 for an interface"):
        region(Family.IPV4, source="eth0")
    with pytest.raises(ParseError, match="a list of ports; ask once for each port"):
        region(Family.IPV4, destination="10.0.0.1:22,80")
    with pytest.raises(ParseError, match="--proto tpc"):
        region(Family.IPV4, protocols="tpc")


def test_first_packets_of_table_raw_have_no_connection_yet(tmp_path: Path) -> None:
    path = tmp_path / "raw.rules"
    rule = "-A PREROUTING -m conntrack --ctstate NEW -j DROP"
    path.write_text(f"*raw\n:PREROUTING ACCEPT [0:0]\n{rule}\nCOMMIT\n")
    command = "reach", path, "--table", "raw"
    first = run(*command).stdout
    assert first.startswith(
        "any protocol (icmp of type 8, 13, 15, 17) with flags SYN no-FIN no-RST no-ACK state INVALID:"
    )
    assert "ACCEPT by policy\n    all of them" in first
    assert "no such packet passes" in run(*command, "--in", "lo", status=1).stdout
    refused = run(*command, "--ctstate", "NEW", status=2)
    assert "--ctstate NEW: packets of table raw have no connection yet" in refused.stderr
    assert region(Family.IPV4, table="raw", state="NEW,INVALID")[Field.STATE] == Values.only(0)
    assert Field.STATE not in region(Family.IPV4, table="raw", state="any")


def test_rules_of_nat_that_may_change_the_destination_are_told(tmp_path: Path) -> None:
    path = tmp_path / "gateway.rules"
    dnat = "-A PREROUTING -i eth0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 192.168.1.10:80"
    path.write_text(
        f"*nat\n:PREROUTING ACCEPT [0:0]\n{dnat}\nCOMMIT\n*filter\n:FORWARD DROP [0:0]\n"
        "-A FORWARD -p tcp -m tcp --dport 8080 -j ACCEPT\nCOMMIT\n"
    )
    command = "reach", path, "--chain", "FORWARD"
    note = "line 3 (table nat) may change the destination of such packets before table filter sees them"
    assert note in run(*command, "--to", ":8080").stderr
    for others in (("--to", ":8080", "--proto", "udp"), ("--to", ":80"), ("--to", ":8080", "--in", "eth1")):
        assert note not in run(*command, *others, status=0 if "--in" in others else 1).stderr


def test_only_requests_of_icmp_are_first_packets(tmp_path: Path) -> None:
    rule = "-A INPUT -p icmp -m icmp --icmp-type {} -m conntrack --ctstate NEW -j ACCEPT\n"
    path = tmp_path / "icmp.rules"
    path.write_text(f"*filter\n:INPUT DROP [0:0]\n{rule.format(3)}{rule.format(0)}{rule.format(13)}COMMIT\n")
    command = "reach", path, "--proto", "icmp"
    asked_for = run(*command).stdout
    assert "icmp-type 13" in asked_for and "icmp-type 3" not in asked_for and "icmp-type 0" not in asked_for
    every = run(*command, "--ctstate", "any").stdout
    assert "icmp-type 3 " in every and "icmp-type 0 " in every


def test_neighbour_discovery_is_asked_for_by_its_state(tmp_path: Path) -> None:
    path = tmp_path / "six.rules"
    states = "-A INPUT -m conntrack --ctstate NEW,RELATED,ESTABLISHED -j ACCEPT"
    path.write_text(f"*filter\n:INPUT DROP [0:0]\n{states}\nCOMMIT\n")
    command = "reach", path, "--family", "6", "--proto", "icmpv6", "--chain", "INPUT"
    first = run(*command)
    assert first.stdout.startswith("icmpv6 type 128, 139 state NEW:")
    assert "neighbour discovery among them, which is UNTRACKED" in first.stderr
    assert "no such packet passes" in run(*command, "--ctstate", "UNTRACKED", status=1).stdout


def test_an_interface_that_no_packet_of_the_chain_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "host.rules"
    path.write_text("*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n")
    for chain, option in (("INPUT", "--out"), ("OUTPUT", "--in")):
        refused = run("reach", path, "--chain", chain, option, "eth0", status=2)
        assert f"packets of {chain} have no {option}: leave it out" in refused.stderr
        assert "ACCEPT by policy" in run("reach", path, option, "eth0").stdout


def test_only_first_packets_are_asked_for_in_table_nat(tmp_path: Path) -> None:
    path = tmp_path / "nat.rules"
    path.write_text(
        "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -j REDIRECT --to-ports 53\nCOMMIT\n"
    )
    refused = run("reach", path, "--table", "nat", "--ctstate", "INVALID", status=2)
    assert "--ctstate INVALID: table nat sees the first packet of a connection only" in refused.stderr
    assert run("reach", path, "--table", "nat", "--ctstate", "any").stdout.startswith(
        "any protocol state NEW, RELATED:"
    )


def test_a_match_that_holds_for_every_packet_is_no_question(tmp_path: Path) -> None:
    rules = "-A INPUT -m recent ! --set --name a -j ACCEPT\n-A INPUT -m recent --set --name b -j DROP\n"
    program = hitables.read(f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n")
    (one,) = asked(program, region(Family.IPV4), "INPUT").outcomes
    assert (one.verdict, one.line, one.asked) == ("DROP", 4, ())


@pytest.mark.parametrize(
    ("source", "verdicts"),
    [
        ("10.0.0.2", {"DROP": ()}),
        ("10.0.0.3", {"ACCEPT": ()}),
        ("", {"DROP": (("-s 0.0.0.2/0.0.0.3", True),), "ACCEPT": (("-s 0.0.0.2/0.0.0.3", False),)}),
    ],
)
def test_one_address_answers_what_is_asked_under_a_mask_with_gaps(
    source: str, verdicts: dict[str, object]
) -> None:
    program = hitables.read("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 0.0.0.2/0.0.0.3 -j DROP\nCOMMIT\n")
    box = region(Family.IPV4, source=source)
    assert {each.verdict: each.facts for each in asked(program, box, "INPUT").outcomes} == verdicts


def test_synproxy_takes_first_packets_and_tproxy_needs_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "proxies.rules"
    web = "-A INPUT -p tcp -m tcp --dport 22 "
    path.write_text(
        f"*filter\n:INPUT DROP [0:0]\n{web}-j SYNPROXY --mss 1460\n{web}-j ACCEPT\nCOMMIT\n"
        "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j TPROXY --on-port 50\nCOMMIT\n"
    )
    question = "reach", path, "--to", ":22", "--proto", "tcp"
    shown = run(*question, "--chain", "INPUT").stdout
    rule = f"by {path}:3: {web}-j SYNPROXY --mss 1460, which answers them itself"
    assert f"  SYNPROXY --mss 1460 {rule}\n    all of them\n" in shown and "ACCEPT" not in shown
    every = asked(hitables.read_file(str(path)), region(Family.IPV4, destination=":22", state="any"), "INPUT")
    accepted = [each.box[Field.FLAGS] for each in every.outcomes if each.line == 4]
    assert accepted and not any(values.intersect(TAKEN) for values in accepted)
    shown = run(*question, "--table", "mangle").stdout
    assert "-j TPROXY --on-port 50, if a socket listens; else dropped\n" in shown


def test_any_port_of_a_bridge_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "bridge.rules"
    rule = "-A FORWARD -m physdev --physdev-in tapA --physdev-is-bridged -j ACCEPT"
    path.write_text(f"*filter\n:FORWARD DROP [0:0]\n{rule}\nCOMMIT\n")
    assert "    in by port tapA out by port any\n" in run("reach", str(path)).stdout

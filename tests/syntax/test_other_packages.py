"""Matches and targets of xtables-addons: what proofs, lint and reach may take for granted of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.hitables_command import run

import hitables
from hitables.emit.text import write
from hitables.ir.rule import EVERYTHING, Kind, Metadata, Rule
from hitables.parse.near_names import near_names
from hitables.syntax.extensions import MATCHES, TARGETS
from hitables.syntax.options import FOREIGN_TARGETS
from hitables.syntax.other_packages import OTHER_MATCHES, OTHER_TARGETS

pytestmark = pytest.mark.engine


def text_of(*rules: str, chains: str = "", table: str = "mangle") -> str:
    lines = "".join(f"-A FORWARD {rule}\n" for rule in rules)
    return f"*{table}\n:FORWARD ACCEPT [0:0]\n{chains}{lines}COMMIT\n"


def only_rule(words: str) -> Rule:
    return hitables.read(text_of(words)).table("mangle")["FORWARD"].rules[0]


def test_an_extension_has_a_row_or_an_entry() -> None:
    assert not OTHER_MATCHES.keys() & MATCHES.keys()
    assert not OTHER_TARGETS.keys() & TARGETS.keys()
    assert OTHER_TARGETS.keys() <= FOREIGN_TARGETS  # else a name without options is taken for a chain


@pytest.mark.parametrize(
    "words",
    [
        "-m geoip --source-country CN,DE -j ACCEPT", "-m geoip ! --dst-cc A1 -j ACCEPT", "-m geoip -j DROP",
        "-m geoip --no-such-option a b --other -j DROP", "-m psd -j DROP", "-m condition ! --condition my-name -j DROP",
        "-m length2 --layer4 ! --length 10:20 -j DROP", "-m ipp2p --edk --dc -j DROP",
        '-m pknock --name "two words" --knockports 4002,4001 -j ACCEPT', "-j TARPIT", "-j TARPIT --honeypot",
        "-j ACCOUNT --addr 0.0.0.0/0 --tname x", "-j IPMARK --addr src --and-mask 0xff", "-j CHAOS --tarpit",
    ],
)  # fmt: skip
def test_the_words_are_kept(words: str) -> None:
    text = text_of(words)
    assert write(hitables.read(text)) == text
    assert hitables.check(text, hitables.compile(text).text)


@pytest.mark.parametrize("name", OTHER_MATCHES)
def test_a_match_writes_nothing(name: str) -> None:
    match = only_rule(f"-m {name} --option 1 -j DROP").matches[-1]
    assert not match.writes and match.role is OTHER_MATCHES[name].role
    assert not list(near_names(hitables.read(text_of(f"-m {name} --option 1"))))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("-j reject --reject-with tcp-reset", ("-j", "reject", "REJECT")),
        ("-j Nflg --nflog-group 1", ("-j", "Nflg", "NFLOG")),
        ("-m LIMIT --limit 1/s -j DROP", ("-m", "LIMIT", "limit")),
    ],
)
def test_a_known_name_in_the_wrong_case_is_found(words: str, named: tuple[str, str, str]) -> None:
    assert list(near_names(hitables.read(text_of(words)))) == [named]


def test_lscan_which_marks_packets_may_write_everything() -> None:
    assert only_rule("-m lscan --stealth -j DROP").writes == EVERYTHING


@pytest.mark.parametrize(
    ("writer", "asked"),
    [
        ("-j CT --zone 1", "-m geoip --src-cc DE"), ("-m psd", "-m geoip --src-cc DE"),
        ("-j ACCOUNT --addr 0.0.0.0/0 --tname x", "-p tcp -m tcp --dport 80"), ("-m ipp2p --edk", "-i eth0"),
        ("-j LOGMARK", "-m mark --mark 1"), ("-m condition --condition a", "-m condition --condition b"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["exact", "diagrams"])
def test_what_they_do_not_write_keeps_its_answer(writer: str, asked: str, engine: str) -> None:
    table = "raw" if "CT" in writer else "mangle"
    rules = f"{asked} -j ACCEPT", writer, f"{asked} -j DROP"
    texts = [text_of(*each, table=table).replace("FORWARD", "PREROUTING") for each in (rules, rules[:2])]
    assert hitables.check(*texts, engine=engine)


@pytest.mark.parametrize(
    ("writer", "asked"),
    [
        ("-j FANCY --level 3", "-m geoip --src-cc DE"), ("-j FANCY --level 3", "-m condition --condition a"),
        ("-j TOS --set-tos 0x10/0xff", "-m ipp2p --edk"), ("-j IPMARK --addr src", "-m mark --mark 1"),
        ("-j LOG", "-m psd"), ("-j LOG", "-m length2 --length 10"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["exact", "diagrams"])
def test_what_they_read_or_remember_is_asked_anew(writer: str, asked: str, engine: str) -> None:
    rules = f"{asked} -j ACCEPT", writer, f"{asked} -j DROP"
    assert not hitables.check(text_of(*rules), text_of(*rules[:2]), engine=engine)


@pytest.mark.parametrize(
    ("target", "ends"),
    [(name, name not in ("ACCOUNT", "IPMARK", "LOGMARK")) for name in OTHER_TARGETS],
)
def test_no_rule_behind_a_target_that_takes_the_packet_matches(target: str, ends: bool) -> None:
    text = text_of(f"-s 10.0.0.0/8 -j {target}", "-s 10.1.0.0/16 -j DROP")
    found = [(flaw.line, flaw.covering) for flaw in hitables.lint(text).flaws]
    assert found == ([(4, (3,))] if ends else [])
    for engine in ("exact", "diagrams"):
        same = hitables.check(text, text_of(f"-s 10.0.0.0/8 -j {target}"), engine=engine)
        assert bool(same) is ends
    assert not hitables.check(text, text.replace(target, "DROP"))


def test_reach_lists_no_packets_that_a_tarpit_took_and_asks_no_field_anew(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(
        text_of(
            "-p tcp -m tcp --dport 81 -j TARPIT", "-p tcp -m tcp --dport 82 -m geoip --src-cc CN -j ACCEPT",
            "-p tcp -m tcp --dport 82 -m psd -j DROP", "-p tcp -m tcp --dport 83 -j ACCEPT", "-j DROP",
            table="filter",
        )
    )  # fmt: skip
    asked = ("reach", rules, "--proto", "tcp", "--chain", "FORWARD", "--to")
    for port, lines in ((":81", []), (":82", [4]), (":83", [6])):
        told = run(*asked, port, status=0 if lines else 1).stdout
        assert [int(line) for line in re.findall(r"by .*rules:(\d+):", told)] == lines
        assert "write" not in told
    assert "TARPIT by" in run(*asked, ":81", "--dropped", status=1).stdout


def test_a_chain_of_the_name_comes_first() -> None:
    text = text_of("-j TARPIT", "-j DROP", chains=":TARPIT - [0:0]\n")
    target = hitables.read(text).table("mangle")["FORWARD"].rules[0].target
    assert target is not None and target.kind is Kind.JUMP and Metadata.MARK not in target.writes

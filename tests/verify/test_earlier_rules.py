"""What rules of tables that packets meet before do with the packets of a question of `reach`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hitables_command import run

import hitables
from hitables.ir.fields import Family
from hitables.parse.region_words import region
from hitables.verify import earlier_rules as module
from hitables.verify.question import Question
from hitables.verify.reach import reach

RULES = """*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:few - [0:0]
-A PREROUTING -p tcp -m tcp --dport 22 -j few
-A few -i eth0 -j CT --notrack
-A few -i eth0 -j NOTRACK
-A OUTPUT -j CT --notrack
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT {policy} [0:0]
:FORWARD ACCEPT [0:0]
-A PREROUTING -s 10.0.0.0/8 -j ACCEPT
-A PREROUTING -s 10.1.0.0/16 -j DROP
-A PREROUTING -s 192.168.0.0/16 -j DROP
-A PREROUTING -p tcp -j MARK --set-xmark 0x1
-A PREROUTING -p tcp -m tcp --dport 22 -j CONNMARK --restore-mark
-A FORWARD -j DROP
COMMIT
*filter
:INPUT DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -p tcp -m tcp --dport 22:23 -m mark --mark 0x1 -j ACCEPT
-A INPUT -p udp -j ACCEPT
COMMIT
"""
_UNTRACKS = "line 6 (table raw) leaves some of these packets untracked: ask for them with --ctstate UNTRACKED"
_DROPS = "line 16 (table mangle) drops some of these packets before"
_MARKS = "(table mangle) set the mark of some of these packets before: the answer speaks of it"
_MARKS_ONCE = "line 17 (table mangle) sets the mark of some of these packets before: the answer speaks of it"


@pytest.mark.parametrize(
    ("asked", "policy", "notes"),
    [
        ("--proto tcp --to :22", "ACCEPT", [_UNTRACKS, _DROPS, f"lines 17, 18 {_MARKS}"]),
        ("--proto tcp --to :22 --ctstate any", "ACCEPT", [_DROPS, f"lines 17, 18 {_MARKS}"]),
        ("--proto tcp --to :23 --in lo", "ACCEPT", [_DROPS, _MARKS_ONCE]),
        ("--proto tcp --to :22 --in eth1 --from 10.1.2.3", "ACCEPT", []),
        ("--proto udp --to :22 --from 192.168.1.0/24", "ACCEPT", [_DROPS]),
        (
            "--proto udp",
            "DROP",
            ["line 16 and the policy of INPUT (table mangle) drop some of these packets before"],
        ),
        (
            "--chain OUTPUT",
            "ACCEPT",
            [
                "line 8 (table raw) leaves some of these packets untracked: ask for them with --ctstate "
                "UNTRACKED"
            ],
        ),
        ("--table mangle --proto tcp --to :22", "ACCEPT", [_UNTRACKS, _DROPS]),
        ("--table raw --chain PREROUTING --proto tcp --to :22", "ACCEPT", []),
    ],
)
def test_rules_of_raw_and_mangle_that_packets_meet_before_are_told(
    asked: str, policy: str, notes: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "marked.rules"
    path.write_text(RULES.format(policy=policy))
    chain = () if "--chain" in asked else ("--chain", "INPUT")
    told = run("reach", path, *chain, *asked.split()).stderr.splitlines()
    assert told == [f"hitables: {note}" for note in notes]


def test_rules_before_that_are_not_decided_in_time_are_told_by_their_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = hitables.read(RULES.format(policy="ACCEPT"))
    monkeypatch.setattr(module, "SECONDS", 1e-9)
    asked = Question(tables=frozenset({"filter"}), chains=frozenset({"INPUT"}))
    box = region(Family.IPV4, destination=":22", source="10.1.0.0/16", protocols="tcp")
    reached = reach(program, box, asked, lambda stage: None)
    told = module.earlier_rules(program, box, asked, reached, lambda stage: None)
    assert [(each.kind, each.lines) for each in told] == [
        ("untracks", (6, 7)),
        ("drops", (15,)),
        ("mark", (17, 18)),
    ]

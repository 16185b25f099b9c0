"""Limits that limit nothing, as `lint` notes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hitables_command import run

from hitables.ir.fields import Family
from hitables.ir.idle_limits import idle_limits
from hitables.reader import read

WEB = "-A INPUT -p tcp -m tcp --dport 80 -j {}\n"
LIMITED = "-A INPUT -p tcp -m state --state NEW -m tcp --dport 80 -m limit --limit 60/min -j ACCEPT\n"


@pytest.mark.parametrize(
    ("rules", "policy", "by"),
    [
        (LIMITED + WEB.format("ACCEPT"), "DROP", 4),
        (LIMITED + WEB.format("DROP"), "ACCEPT", None),
        (LIMITED + WEB.format("LOG"), "ACCEPT", None),
        (LIMITED + WEB.replace("80", "81").format("DROP") + WEB.format("ACCEPT"), "DROP", 5),
        (LIMITED + "-A INPUT -s 192.0.2.0/24 -j ACCEPT\n", "ACCEPT", None),  # some only, and the rest is not looked at
        (LIMITED, "ACCEPT", 0),
        (LIMITED, "DROP", None),
        (LIMITED + WEB.replace("80", "81").format("DROP"), "ACCEPT", 0),
        (LIMITED + WEB.replace("-p", "-m mark --mark 1 -p").format("ACCEPT"), "DROP", None),
        (LIMITED.replace("-m limit", "-m mark --mark 1 -m limit") + WEB.replace("-p", "-m mark --mark 1 -p").format("ACCEPT"), "DROP", 4),
        (LIMITED.replace("-m limit", "-m connlimit --connlimit-above 10 -m limit") + WEB.format("ACCEPT"), "DROP", 4),
        (LIMITED.replace("ACCEPT", "LOG") + WEB.format("ACCEPT"), "DROP", None),
        (LIMITED + LIMITED, "DROP", None),  # the second limits what comes to both
        (LIMITED.replace("ACCEPT", "DROP") + 32 * WEB.replace("80", "81").format("ACCEPT") + WEB.format("ACCEPT"),
         "DROP", None),  # the rule that accepts the rest is behind those that are looked at
    ],
)  # fmt: skip
def test_a_limit_is_idle_where_what_follows_decides_alike(rules: str, policy: str, by: int | None) -> None:
    text = f"*filter\n:INPUT {policy} [0:0]\n{rules}COMMIT\n"
    found = [each.by for each in idle_limits(read(text, family=Family.IPV4).table("filter"))]
    assert found == ([] if by is None else [by])


@pytest.mark.parametrize(
    "limit",
    [
        "limit --limit 60/min",
        "hashlimit --hashlimit-upto 60/min --hashlimit-name web",
        "connlimit --connlimit-upto 10",
        "quota --quota 1000000",
    ],
)
def test_each_kind_of_limit_may_be_idle(limit: str) -> None:
    rules = WEB.format("ACCEPT").replace("-j", f"-m {limit} -j") + WEB.format("ACCEPT")
    table = read(f"*filter\n:INPUT DROP [0:0]\n{rules}COMMIT\n", family=Family.IPV4).table("filter")
    assert [(each.name, each.line, each.by) for each in idle_limits(table)] == [(limit.split()[0], 3, 4)]


def test_lint_notes_it(tmp_path: Path) -> None:
    path = tmp_path / "web.rules"
    path.write_text(f"*filter\n:INPUT DROP [0:0]\n{LIMITED}{WEB.format('ACCEPT')}COMMIT\n")
    note = "limit of line 3 (table filter, chain INPUT) limits nothing: packets beyond it get the same verdict from line 4"
    assert f"note: {note}" in run("lint", path).stdout

"""Pairs of rule sets that `check` compares, and the schemas that its reports must fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hitables
from hitables.compare import Comparison, check
from hitables.verify.question import Question

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "hitables/schema/check.json").read_text())
SARIF = json.loads((ROOT / "tests/data/sarif-schema-2.1.0.json").read_text())
A = """\
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:services - [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -p tcp -j services
-A INPUT -p icmp -j LOG --log-prefix "ping "
-A FORWARD -s 10.0.0.0/8 -j DROP
-A services -p tcp -m tcp --dport 22 -j ACCEPT
-A services -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
"""
SAME = A.replace("services", "tcp-in").replace("-s 10.0.0.0/8", "-s 10.9.9.9/8")
VERDICT = A.replace("--dport 80 ", "--dport 81 ")
EFFECT = A.replace("ping ", "pong ")
POLICY = A.replace("FORWARD ACCEPT", "FORWARD DROP")
LIMIT = "-m limit --limit 1/sec -j DROP"
ONE_LIMIT = f"*filter\n:a -\n-A INPUT -s 10.0.0.0/8 -j a\n-A INPUT -s 11.0.0.0/8 -j a\n-A a {LIMIT}\nCOMMIT\n"
TWO_LIMITS = ONE_LIMIT.replace("11.0.0.0/8 -j a", "11.0.0.0/8 -j b").replace(
    ":a -", f":a -\n:b -\n-A b {LIMIT}"
)


def read(text: str, name: str = "A") -> hitables.Program:
    return hitables.read(text, name=name)


def compare(before: str, after: str, engine: str = "sample", **question: Any) -> Comparison:
    return check(read(before, "a.rules"), read(after, "b.rules"), Question(**question), engine=engine)

"""Compiled rule sets are recognised, whatever chains no rule enters."""

from __future__ import annotations

import hitables
from hitables.analyse.compiled_text import why_compiled

RULES = "".join(f"-A INPUT -s 10.0.{n}.0/24 -p tcp -m tcp --dport {n + 1} -j DROP\n" for n in range(40))
SOURCE = f"*filter\n:INPUT ACCEPT [0:0]\n{RULES}COMMIT\n"


def test_a_compiled_text_is_recognised_although_no_rule_enters_one_of_its_chains() -> None:
    compiled = hitables.compile(SOURCE).text
    for text in (compiled, compiled.replace(":ht1 ", ":ht99 -\n:ht1 ")):
        assert "chains of trees" in why_compiled(hitables.read(text))


def test_a_source_may_have_chains_with_such_names() -> None:
    assert why_compiled(hitables.read(SOURCE)) == ""
    for entered in ("", "-A INPUT -j ht1\n"):
        text = SOURCE.replace("-A", f":ht1 - [0:0]\n:ht2 - [0:0]\n{entered}-A", 1)
        assert why_compiled(hitables.read(text)) == ""

"""Compiled rule sets are recognised, whatever chains no rule enters."""

from __future__ import annotations

import re

import hitables
from hitables.analyse.compiled_text import why_compiled
from hitables.ir.marker import is_marker

RULES = "".join(f"-A INPUT -s 10.0.{n}.0/24 -p tcp -m tcp --dport {n + 1} -j DROP\n" for n in range(40))
SOURCE = f"*filter\n:INPUT ACCEPT [0:0]\n{RULES}COMMIT\n"


def test_a_compiled_text_is_recognised_by_its_marker() -> None:
    compiled = hitables.read(hitables.compile(SOURCE).text)
    (marker,) = [chain.name for chain in compiled.tables[0].chains if is_marker(chain.name)]
    assert marker in why_compiled(compiled)


def test_a_rule_set_that_only_lacks_rules_is_marked_too() -> None:
    """Its first line, which says so, is lost in a kernel."""
    source = "*filter\n-A INPUT -j DROP\n-A INPUT -s 1.2.3.4 -j ACCEPT\nCOMMIT\n"
    output = hitables.compile(source, equivalence="verdict")
    assert output.program.rule_count() == 1 and "marks it" in why_compiled(output.program)
    assert why_compiled(hitables.compile(source).program) == ""


def test_compiling_a_compiled_rule_set_leaves_one_marker() -> None:
    twice = hitables.compile(hitables.compile(SOURCE).text, min_length=1).program
    assert sum(is_marker(chain.name) for chain in twice.tables[0].chains) == 1


def test_a_compiled_text_without_its_marker_is_recognised_although_no_rule_enters_one_of_its_chains() -> None:
    compiled = re.sub(r":ht-source.*\n", "", hitables.compile(SOURCE).text)
    for text in (compiled, compiled.replace(":ht1 ", ":ht99 -\n:ht1 ")):
        assert "chains of trees" in why_compiled(hitables.read(text))


def test_a_source_may_have_chains_with_such_names() -> None:
    assert why_compiled(hitables.read(SOURCE)) == ""
    for entered in ("", "-A INPUT -j ht1\n"):
        text = SOURCE.replace("-A", f":ht1 - [0:0]\n:ht2 - [0:0]\n{entered}-A", 1)
        assert why_compiled(hitables.read(text)) == ""

"""Legacy: rules of multiport take packets with a cut header, which rules of -m tcp drop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.ir.choices import Malformed

pytestmark = pytest.mark.engine

LISTED = [
    each
    for n in range(20)
    for each in (
        f"-s 10.{n}.0.0/16 -p tcp -m tcp --dport {1000 + n} -j ACCEPT",
        f"-p tcp -m multiport --dports {2000 + n},{3000 + n} -j DROP",
    )
]
TEXT = "\n".join(
    ["*filter", ":FORWARD ACCEPT [0:0]", *(f"-A FORWARD {rule}" for rule in LISTED), "COMMIT", ""]
)
GUARD = "-A FORWARD -p tcp -m tcp -m multiport ! --ports 0:65535\n"


@pytest.mark.parametrize("backend", ["legacy", "any"])
def test_behind_a_fault_they_are_dropped_in_front_of_the_tree(backend: str) -> None:
    options = Options(backend=backend)  # type: ignore[arg-type]
    assert GUARD not in compile_text(TEXT, options).text or backend == "any"
    careful = replace(options, careful=frozenset({("filter", "FORWARD")}))
    text = compile_text(TEXT, careful).text
    assert text.index(GUARD) == text.index("-A FORWARD"), "in front"
    exact = compile_text(TEXT, replace(careful, malformed=Malformed.EXACT)).text
    assert GUARD not in exact, "they would be dropped though the list accepts them"


def test_lists_whose_rules_all_need_as_much_of_a_header_have_no_such_guard() -> None:
    only = "\n".join(line for line in TEXT.split("\n") if "multiport" not in line)
    careful = Options(backend="legacy", careful=frozenset({("filter", "FORWARD")}))
    assert GUARD not in compile_text(only, careful).text

"""The rules of docker in table raw, which no name tells from those of the user.

From version 28 on they drop packets to a container that did not come by its bridge, and packets from other
hosts to ports that are published on 127.0.0.1.  They are in chain PREROUTING itself, where --leave does not
keep them: a rule set that has table raw removes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..emit.text import rule_text
from ..ir.program import Program
from ..ir.rule import Rule
from ..nouns import counted
from .same_rules import rule_key

_RULE = re.compile(
    r"-A PREROUTING -d "
    r"(?:\S+/(?:32|128) ! -i (?:docker0|docker_gwbridge|br-\S+)"
    r"|127\.0\.0\.1/32 ! -i lo -p \w+ -m \w+ --dport \d+) -j DROP"
)


def removed(kernel: Program, wanted: Program) -> list[str]:
    """The rules of docker in *kernel* that are not there any more when *wanted* is loaded."""
    if all(table.name != "raw" for table in wanted):
        return []
    texts = ((rule_text(rule._replace(counters=None), "PREROUTING"), rule) for rule in _rules(kernel))
    of_docker = [(text, rule) for text, rule in texts if _RULE.fullmatch(text)]
    stay = {rule_key(rule) for rule in _rules(wanted)} if of_docker else set()
    return [text for text, rule in of_docker if rule_key(rule) not in stay]


def warning(rules: Sequence[str], by: str, remedy: str) -> str:
    """*rules*: as of `removed`; *by*: what removes them; *remedy*: what keeps them."""
    return (
        f"warning: {by} removes {counted(len(rules), 'rule')} of docker from table raw, as '{rules[0]}': "
        "other hosts then reach containers at their own addresses, and ports that are published on "
        f"127.0.0.1; {remedy}"
    )


def _rules(program: Program) -> Iterator[Rule]:
    for table in program:
        if table.name == "raw" and "PREROUTING" in table:
            yield from table["PREROUTING"].rules

"""The line of a text for which iptables-restore refuses it.

iptables-legacy loads a table as a whole, and the kernel does not say which rule it refuses: the tool names
the line of COMMIT.  Parts of that table, loaded into a scratch namespace, show which rule it is: the first
whose addition is refused, found by bisection.  That costs about log2(rules) loads of a part.
"""

from __future__ import annotations

import re

from ..errors import LiveError
from ..rule_lines import lines_of
from .namespace import Namespace

_LINE = re.compile(r"\bline:? (\d+)")


def line_named(message: str) -> int:
    """The last line that a *message* of iptables-restore names, from 1; 0 if it names none."""
    named = _LINE.findall(message)
    return int(named[-1]) if named else 0


def is_commit(text: str, number: int) -> bool:
    """Whether line *number* of *text*, from 1, is the COMMIT of a table."""
    return lines_of(text)[number - 1 : number] == ["COMMIT"] and number > 0


def refused_at(text: str, number: int, tool: str, namespace: Namespace, before: str = "") -> int:
    """The line of *text*, from 1, for which *tool* ("iptables-legacy") refuses the COMMIT at line *number*.

    0 if it is no single line, or if the table can be loaded into *namespace*, where it is replaced.  The
    namespace must have the objects that rules name.  *before*: the lines of the table before those of *text*.
    """
    table = lines_of(text)[: number - 1]
    start = max(at for at, line in enumerate(table) if line.startswith("*"))
    heads = [line for line in table[start + 1 :] if line.startswith(":")]
    commands = [
        at for at in range(start + 1, len(table)) if table[at] and not table[at].startswith((":", "#"))
    ]

    def takes(part: list[int]) -> bool:
        lines = [table[start], *lines_of(before), *heads, *(table[at] for at in part), "COMMIT", ""]
        try:
            namespace.run((f"{tool}-restore",), "\n".join(lines))
        except LiveError:
            return False
        return True

    if takes(commands) or not takes([]):
        return 0
    taken, refused = 0, len(commands)
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if takes(commands[:middle]):
            taken = middle
        else:
            refused = middle
    found = commands[taken]
    # A table that is too large as a whole is refused at any rule: that rule is no reason.
    if takes([found]) and not takes([at for at in commands if at != found]):
        return 0
    return found + 1

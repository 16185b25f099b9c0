"""Which line of a patch the kernel refuses, for the message to a user who does not see the patch."""

from __future__ import annotations

import contextlib

from hitables.errors import LiveError
from hitables.kernel.namespace import Namespace, run
from hitables.kernel.prerequisites import accounts, accounts_named, furnish
from hitables.kernel.refused_rule import is_commit, line_named, refused_at
from hitables.rule_lines import lines_of, with_ends

# Rules of a table; in a larger one the search takes longer than half a second, for which a stream would wait.
MOST_SEARCHED = 10_000


class Refused(LiveError):
    """The kernel refuses *patch*; *message*: that of the tool, which numbers the lines of the patch."""

    def __init__(self, command: str, message: str, patch: str) -> None:
        self.message, self.patch = message, patch
        super().__init__(f"{command}: {message}{_shown(patch, line_named(message))}")


def _shown(patch: str, number: int) -> str:
    """Line *number* of *patch*, from 1, for a message; "" if it is no rule and no chain."""
    line = "".join(lines_of(patch)[number - 1 : number]) if number else ""
    return f"\n  line {number} of the patch: {line}" if line not in ("", "COMMIT") else ""


def is_refused_commit(error: LiveError) -> bool:
    """Whether the tool could read all rules of the patch, and the kernel did not take them."""
    return isinstance(error, Refused) and is_commit(error.patch, line_named(error.message))


def line_refused(error: LiveError, tool: str) -> str:
    """What *error* does not say: the line for which *tool* ("iptables-legacy") refuses a table at its COMMIT.

    "" if there is nothing to add.  It is looked for in a scratch namespace, with the present rules of the
    kernel, which must not have the patch.
    """
    if not isinstance(error, Refused) or not is_refused_commit(error):
        return ""
    patch, number = error.patch, line_named(error.message)
    table = [line[1:] for line in lines_of(patch)[:number] if line.startswith("*")][-1]
    with contextlib.suppress(LiveError), Namespace() as namespace:
        lines = with_ends(run([f"{tool}-save", "-t", table]))
        before = "".join(line for line in lines if line.startswith((":", "-A ")))
        if len(lines) <= MOST_SEARCHED:
            # An accounting object that this kernel lacks may be the reason.
            present = accounts() if accounts_named(patch) else set()
            with_objects = [line for line in with_ends(patch) if accounts_named(line) <= present]
            furnish(namespace, before + "".join(with_objects))
            return _shown(patch, refused_at(patch, number, tool, namespace, before))
    return ""

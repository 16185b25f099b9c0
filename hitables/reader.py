"""Text to a program that a kernel can load: parsed, and without jumps in a circle.

Every command and every public function reads rule sets through this one function.
"""

from __future__ import annotations

import re

from .analyse.callgraph import check_loops
from .errors import ParseError
from .ir.fields import Family
from .ir.program import Program
from .parse import iptables
from .parse.iptables import Vocabulary

# Half of a surrogate pair, but for those that stand for the bytes of a file that are not UTF-8.
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def read(
    text: str, *, family: Family | None = None, name: str = "-", known: Vocabulary | None = None
) -> Program:
    """Read iptables-save or ip6tables-save text; *name* is the source that errors and reports name.

    Without *family* it is guessed from the text and the name.  *known* speeds up the reading of texts that
    repeat each other.  ParseError for text that iptables-restore would refuse, and for jumps in a circle.
    """
    try:
        program = iptables.read(text, family=family, name=name, known=known)
    except UnicodeEncodeError:
        found = _HALF.search(text)
        if found is None:
            raise
        raise _of_no_file(text, found.start(), name) from None
    check_loops(program)
    return program


def _of_no_file(text: str, at: int, name: str) -> ParseError:
    """The error for a character that no text of a file has, as Python reads files."""
    start = text.rfind("\n", 0, at) + 1
    return ParseError(
        f"the character {text[at]!r} is half of a pair, and no text",
        source=name,
        line=text.count("\n", 0, start) + 1,
        column=at - start + 1,
        text=_HALF.sub("?", text[start:].split("\n", 1)[0]),
    )

"""Text to a program that a kernel can load: parsed, and without jumps in a circle.

Every command and every public function reads rule sets through this one function.
"""

from __future__ import annotations

from .analyse.callgraph import check_loops
from .ir.fields import Family
from .ir.program import Program
from .parse import iptables
from .parse.iptables import Vocabulary


def read(
    text: str, *, family: Family | None = None, name: str = "-", known: Vocabulary | None = None
) -> Program:
    """Read iptables-save or ip6tables-save text; *name* is the source that errors and reports name.

    Without *family* it is guessed from the text and the name.  *known* speeds up the reading of texts that
    repeat each other.  ParseError for text that iptables-restore would refuse, and for jumps in a circle.
    """
    program = iptables.read(text, family=family, name=name, known=known)
    check_loops(program)
    return program

"""Reading and tracing for callers: what `hitables.read` and `hitables.trace` are."""

from __future__ import annotations

from .analyse.callgraph import check_loops
from .ir.fields import Family
from .ir.packet import Backend, Packet
from .ir.program import Program
from .ir.semantics import Walk, run
from .parse import iptables


def read(
    text: str, *, family: Family | None = None, name: str = "-", known: iptables.Vocabulary | None = None
) -> Program:
    """Read iptables-save or ip6tables-save text; *name* is what errors call it.

    Without *family* it is guessed from the text and the name.  ParseError for what
    iptables-restore would refuse, loops of jumps among it.
    """
    program = iptables.read(text, family=family, name=name, known=known)
    check_loops(program)
    return program


def trace(
    program: Program, packet: Packet, *, table: str = "filter", chain: str, backend: Backend = Backend.LEGACY
) -> Walk:
    """Send *packet* into *chain*: its verdict, its effects, and every rule read (ir.semantics).

    KeyError for a table or chain that the program does not have.
    """
    return run(program.table(table), chain, packet, backend)

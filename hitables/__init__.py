"""hitables: iptables rule sets as equivalent jump trees.

    program = hitables.read(text)
    compiled = hitables.compile_rules(program, hitables.Options(backend="nft"))
    print(hitables.write(compiled.program))

Nothing here touches files or the running system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import HitablesError, LiveError, NotEquivalent, ParseError, Unsupported

if TYPE_CHECKING:
    from .api import read, trace
    from .compiler.compile import Compiled, Options, compile_rules
    from .emit.text import write
    from .ir.fields import Family
    from .ir.packet import Backend, Packet
    from .ir.program import Program

__version__ = "0.1.0"

__all__ = [
    "Backend", "Compiled", "Family", "HitablesError", "LiveError", "NotEquivalent", "Options", "Packet",
    "ParseError", "Program", "Unsupported", "compile_rules", "read", "trace", "write",
]  # fmt: skip

# Found when asked for: numpy, lark and networkx take longer to load than `hitables --help` may.
_HOME = {
    "Backend": "ir.packet", "Compiled": "compiler.compile", "Family": "ir.fields",
    "Options": "compiler.compile", "Packet": "ir.packet", "Program": "ir.program",
    "compile_rules": "compiler.compile", "read": "api", "trace": "api", "write": "emit.text",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hitables' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)

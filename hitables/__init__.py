"""hitables: iptables rule sets as equivalent jump trees, compiled and proved.

    import hitables

    output = hitables.compile(text, backend="nft")  # proved equal to text, or an error
    print(output.text)

docs/library.md describes every public name.  `read_file` reads a file; no other function touches files or
the running system.  Public names are loaded when they are first used, so `import hitables` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import (
    DatabaseError,
    Disagreement,
    FileError,
    HitablesError,
    InvalidOption,
    LiveError,
    MissingLibrary,
    NotComparable,
    NotEquivalent,
    OutOfBudget,
    OutOfMemory,
    ParseError,
    UnknownName,
    Unsupported,
)
from .version import __version__

__all__ = [
    "Backend",
    "Changes",
    "Comparison",
    "CompileOptions",
    "DatabaseError",
    "Disagreement",
    "Equivalence",
    "Family",
    "FileError",
    "HitablesError",
    "InvalidOption",
    "Lint",
    "LiveError",
    "Malformed",
    "MissingLibrary",
    "NotComparable",
    "NotEquivalent",
    "OutOfBudget",
    "OutOfMemory",
    "Output",
    "Packet",
    "ParseError",
    "Program",
    "Result",
    "UnknownName",
    "Unsupported",
    "Walk",
    "__version__",
    "check",
    "compile",
    "compile_unproved",
    "diff",
    "lint",
    "read",
    "read_file",
    "stats",
    "trace",
    "write",
]  # fmt: skip

if TYPE_CHECKING:
    from .api import (
        check,
        compile,
        compile_unproved,
        diff,
        lint,
        read,
        read_file,
        stats,
        trace,
        write,
    )
    from .arguments import CompileOptions
    from .compare import Comparison, Result
    from .compiler.pipeline import Output
    from .ir.choices import Equivalence, Malformed
    from .ir.fields import Family
    from .ir.packet import Backend, Packet
    from .ir.program import Program
    from .ir.semantics import Walk
    from .verify.diff import Changes
    from .verify.lint import Lint
else:
    # The module of each public name.  No public name is the name of a module or folder of the package:
    # importing that would replace it.
    _MODULES = {
        "Backend": "ir.packet", "Changes": "verify.diff", "Comparison": "compare",
        "CompileOptions": "arguments", "Equivalence": "ir.choices", "Family": "ir.fields",
        "Lint": "verify.lint", "Malformed": "ir.choices", "Output": "compiler.pipeline",
        "Packet": "ir.packet", "Program": "ir.program", "Result": "compare", "Walk": "ir.semantics",
        "check": "api", "compile": "api", "compile_unproved": "api", "diff": "api", "lint": "api",
        "read": "api", "read_file": "api", "stats": "api", "trace": "api", "write": "api",
    }  # fmt: skip

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'hitables' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f".{_MODULES[name]}", __name__), name)

    def __dir__():
        return sorted({*globals(), *__all__})

"""The types in the signatures of `api` whose modules load slowly: each is loaded when it is first looked up.

So `api` is imported quickly, and `typing.get_type_hints` of its functions finds every name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Changes", "Comparison", "Costs", "Lint", "Output", "Walk"]

if TYPE_CHECKING:
    from .compare import Comparison
    from .compiler.pipeline import Output
    from .costs.profile import Costs
    from .ir.semantics import Walk
    from .verify.diff import Changes
    from .verify.lint import Lint
else:
    _MODULES = {
        "Changes": "verify.diff", "Comparison": "compare", "Costs": "costs.profile", "Lint": "verify.lint",
        "Output": "compiler.pipeline", "Walk": "ir.semantics",
    }  # fmt: skip

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f".{_MODULES[name]}", __package__), name)

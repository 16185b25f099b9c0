"""How deep loaded chains nest, and the depth that a backend accepts."""

from __future__ import annotations

from hitables.compiler.options import NESTING

from .settings import Settings


def depth_limit(settings: Settings) -> int:
    """How many chains may be entered below a built-in one."""
    return NESTING[settings.backend]

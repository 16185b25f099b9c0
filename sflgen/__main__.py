"""`python -m sflgen`: the command `sflgen`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hitables import interrupts


def _load() -> Callable[[], Any]:
    from .cli import main

    return main


interrupts.run("sflgen", _load)

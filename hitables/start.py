"""The entry points of the commands `hitables` and `sflgen`.

Each imports its command inside `interrupts.run`: Ctrl-C during the imports ends it without a traceback.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

from . import interrupts

# No command multiplies matrices.  Importing numpy would start threads for that, which takes up to a tenth
# of a second of the processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def hitables() -> NoReturn:
    def load() -> Callable[[], Any]:
        from .cli.main import main

        return main

    interrupts.run("hitables", load)


def sflgen() -> NoReturn:
    def load() -> Callable[[], Any]:
        from sflgen.cli import main

        return main

    interrupts.run("sflgen", load)

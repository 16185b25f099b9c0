"""How each benchmark ends when it is run as a program: `python -m benchmarks.NAME`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hitables.errors import HitablesError
from hitables.interrupts import INTERRUPTED


def run(main: Callable[[], object]) -> NoReturn:
    """Call *main*.  An error that hitables or the file system explains is one message, with exit status 2."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.stem == "__main__" else program.stem
    try:
        main()
    except HitablesError as error:
        sys.exit(_told(name, str(error)))
    except OSError as error:
        if error.filename is None:
            raise
        sys.exit(_told(name, f"{error.filename}: {error.strerror}"))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(0)


def _told(name: str, message: str) -> int:
    print(f"{name}: {message}", file=sys.stderr)
    return 2

"""Memory of the C engine that lives as long as a Python object."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ._engine import ffi


def owned(pointer: Any, close: Callable[[Any], object], *needed: object) -> Any:
    """*pointer*, for which *close* is called with the last reference to it; *needed* lives until then.

    ffi.gc with a closure over *needed* is not enough: where all of them are part of one cycle, the garbage
    collector ends them in any order.  What `weakref.finalize` holds is no part of a cycle.
    """
    owner = ffi.cast(ffi.typeof(pointer), pointer)
    finalizer = weakref.finalize(owner, _close, close, pointer, needed)
    finalizer.atexit = False  # threads may be inside of calls
    return owner


def _close(close: Callable[[Any], object], pointer: Any, needed: tuple[object, ...]) -> None:
    close(pointer)

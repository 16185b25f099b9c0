"""How many files this process may have open: a shell may allow so few (`ulimit -n`) that rules can be loaded
and not be taken back.
"""

from __future__ import annotations

import contextlib
import resource

from ..errors import HitablesError

NEEDED = 64  # an apply has a dozen open, with those of its tools
_WANTED = 4096


def raise_limit() -> int:
    """Raise the limit of open files to `_WANTED`, or as far as this process may; the limit from now on."""
    kind = resource.RLIMIT_NOFILE
    soft, hard = resource.getrlimit(kind)
    if soft < _WANTED and soft != resource.RLIM_INFINITY:
        wanted = [(_WANTED, _WANTED), (hard, hard)]  # only root may raise the second one
        if hard > _WANTED or hard == resource.RLIM_INFINITY:
            wanted = [(_WANTED, hard)]
        for limits in wanted:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, limits)
                break
    soft, _ = resource.getrlimit(kind)
    return _WANTED if soft == resource.RLIM_INFINITY else soft


def refuse_few() -> None:
    """HitablesError if this process may open too few files for an apply, also after raising the limit."""
    limit = raise_limit()
    if limit < NEEDED:
        raise HitablesError(
            f"only {limit} files may be open at once (ulimit -n), and this needs {NEEDED}; nothing is changed"
        )

"""What the engine opens is closed once: by `close`, or at the end of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Generic, Self, TypeVar

from ..errors import DatabaseError

H = TypeVar("H")


class Closable(Generic[H]):
    """The owner of one handle, which a subclass stores in `_handle` when it is open.

    CLOSED  the message of the error that every call after `close` raises
    """

    CLOSED: ClassVar[str]
    _handle: H | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Every later call raises DatabaseError; a second `close` does nothing.

        A call of another thread runs to its end.  The handle frees its memory with the last reference to it,
        so the last of those calls frees it, and a call costs no more for that.
        """
        handle, self._handle = self._handle, None
        if handle is not None:
            self._ended(handle)

    def _ended(self, handle: H) -> None:
        """What `close` does with a handle of which other threads may still be inside a call."""

    def _opened(self) -> H:
        handle = self._handle
        if handle is None:
            raise DatabaseError(self.CLOSED)
        return handle

"""What the engine opens is closed once: by `close`, or at the end of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from ..errors import DatabaseError


class Handle(Protocol):
    """An object that holds memory of the engine until `close`."""

    def close(self) -> None: ...


H = TypeVar("H", bound=Handle)


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
        """Free the memory.  Every later call raises DatabaseError; a second `close` does nothing."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _opened(self) -> H:
        if self._handle is None:
            raise DatabaseError(self.CLOSED)
        return self._handle

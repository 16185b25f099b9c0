"""The standard streams of a command: closed ones, full ones, and bytes that are not text.

Invariant: a stream that cannot be written never changes the exit status at the end of the process, and never
lets text go to another file.  What standard error cannot take is lost: a message must not turn a command that
has changed a kernel into one that failed.  `terminal.Commands` calls `open_streams` first and `all_written`
last.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from typing import Any, TextIO

from ..errors import HitablesError
from ..files import trouble

BYTES_OR_ESCAPES = "hitables-bytes"
STANDARD_OUTPUT = "standard output"  # in the error of a write to it


def _bytes_or_escapes(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write bytes that are not UTF-8 as they were read, and letters that the encoding lacks as escapes."""
    assert isinstance(error, UnicodeEncodeError)
    letter = error.object[error.start]
    if "\udc80" <= letter <= "\udcff":
        return letter.encode("utf-8", "surrogateescape"), error.start + 1
    return letter.encode("ascii", "backslashreplace"), error.start + 1


codecs.register_error(BYTES_OR_ESCAPES, _bytes_or_escapes)


def open_streams() -> None:
    """Make the standard streams safe to use: open, with their name in errors, and able to write any bytes.

    A closed descriptor would be given to the next file that is opened, which would then receive the text for
    the stream.  After this call writing to a closed or full standard output fails; text for a closed or full
    standard error is lost.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, flags)  # the lowest that is free, which is *number* itself
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_NamedDescriptor(1, STANDARD_OUTPUT), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_Lossy(2, "w", closefd=False), sys.stderr)


class _NamedDescriptor(io.FileIO):
    """A descriptor whose errors have the name of the stream as `OSError.filename`."""

    def __init__(self, number: int, label: str) -> None:
        super().__init__(number, "w", closefd=False)
        self.label = label

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.label
            raise


class _Lossy(io.FileIO):
    """A descriptor that loses what it cannot write: it is full, or its reader has gone or does not read."""

    def write(self, data: Any) -> int:
        try:
            # None: nothing can be written without waiting.
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def _stream(descriptor: io.FileIO, before: TextIO | None) -> TextIO:
    """A text stream to *descriptor*, in the encoding of the stream *before* it."""
    encoding = before.encoding if before is not None else "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(descriptor),
        encoding,
        BYTES_OR_ESCAPES,
        line_buffering=descriptor.fileno() == 2 or descriptor.isatty(),
    )


def system_error(error: BaseException) -> HitablesError | None:
    """The message for an error of the system that names its file or stream; None for any other error."""
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):
        return trouble(os.fsdecode(error.filename), error)
    return None


def all_written() -> bool:
    """Whether standard output has accepted all text; otherwise the rest is discarded."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        discard(sys.stdout)
        return False
    return True


def discard(stream: TextIO | None) -> None:
    """Send pending and later text to /dev/null, since a failure at exit would change the exit status."""
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):  # it is closed, or not a file of the system
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

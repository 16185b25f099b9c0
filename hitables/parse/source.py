"""Files as text: plain or gzip, by their first bytes.

What is no readable text is refused here, with the name of the file, so that the parsers behind
meet nothing but text.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from ..errors import HitablesError

_GZIP = b"\x1f\x8b"


def read_text(path: Path | str) -> str:
    """The text of the file at *path*, unpacked if it is gzip; HitablesError says what is wrong with it."""
    path = Path(path)
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HitablesError(f"{path}: {reason}") from error
    if b"\0" in data:
        raise HitablesError(f"{path}: binary data, no text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HitablesError(f"{path}: no UTF-8 text: byte {error.start}") from error

"""Files in and out: bounded reading, writing that leaves either the old file or the new one."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import tempfile
import zlib
from pathlib import Path

from . import interrupts
from .errors import HitablesError

# About 1.3 million rules.  Reading takes some thirty bytes of memory per byte of text.
LARGEST = 128 << 20


def read_text(path: str) -> str:
    """The text of *path* ("-": standard input), gzip unpacked.  Bytes that are no UTF-8 survive."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(path, "rb") as file:
                packed = file.peek(2)[:2] == b"\x1f\x8b"
                data = gzip.GzipFile(fileobj=file).read(LARGEST + 1) if packed else file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise HitablesError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST:
        raise HitablesError(f"{path}: more than {LARGEST >> 20} MiB of text, which is the most that is read")
    return data.decode("utf-8", "surrogateescape")


def write_text(path: str, text: str) -> None:
    """Write *path* ("-": standard output) by way of a temporary file beside it.

    A reader sees the old file or the new one, never a part; on an error the old one stays.
    """
    data = text.encode("utf-8", "surrogateescape")
    interrupts.check()
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except OSError:
        mode = None
    try:
        if mode is not None and not stat.S_ISREG(mode):
            target.write_bytes(data)
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, stat.S_IMODE(mode) if mode is not None else 0o666 & ~umask)
            interrupts.check()
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise HitablesError(f"{path}: {error.strerror or error}") from None

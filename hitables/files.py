"""Files read and written: reading is bounded, and writing leaves either the old file or the new one."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import interrupts
from .errors import FileError

# About 1.3 million rules.  Reading takes some thirty bytes of memory per byte of text.
LARGEST = 128 << 20
# That are followed from a path, as in the kernel.
MOST_LINKS = 40


def trouble(name: str, error: OSError) -> FileError:
    """The error of a file or stream: its *name*, and the system's message."""
    if isinstance(error, BrokenPipeError):
        raise error
    if error.errno == errno.EBADF:
        return FileError(f"{name}: it is closed")
    if isinstance(error, gzip.BadGzipFile) and str(error).startswith("Not a gzipped file"):
        return FileError(f"{name}: other bytes follow the gzip data; gzip -dc unpacks it without them")
    return FileError(f"{name}: {error.strerror or error}")


def remedy(error: OSError) -> str:
    """What follows a message on a file that is root's; "" if this user is root, or the error is another."""
    return "; run it as root" if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() else ""


def is_there(path: Path) -> bool:
    """Whether *path* exists; OSError where that is unknown, as below a folder that this user may not enter.

    Since Python 3.14 `Path.exists` says no there.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_text(path: str) -> str:
    """The text of *path* ("-": standard input), gzip unpacked.  Bytes that are no UTF-8 survive."""
    name = "standard input" if path == "-" else path
    if path == "-" and sys.stdin is None:
        raise FileError("standard input: it is closed; name a file instead")
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(LARGEST + 1)
        if data[:2] == b"\x1f\x8b":
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(LARGEST + 1)
    except OSError as error:
        raise trouble(name, error) from None
    except (EOFError, zlib.error) as error:
        raise FileError(f"{name}: {error}") from None
    except UnicodeEncodeError:
        raise FileError(f"{name!r}: no file can have this name") from None
    if len(data) > LARGEST:
        raise FileError(f"{name}: more than {LARGEST >> 20} MiB of text, the limit")
    return data.decode("utf-8", "surrogateescape")


def parse_json(text: str) -> Any:
    """The data of a JSON text; ValueError for one that is none, or that nests too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None


ByteStream = io.BufferedReader | gzip.GzipFile


def open_stream(path: str) -> ByteStream:
    """The bytes of *path* ("-": standard input), gzip unpacked, to be read piece by piece.

    Reading raises OSError, and EOFError or zlib.error for damaged gzip.
    """
    name = "standard input" if path == "-" else path
    if path == "-" and sys.stdin is None:
        raise FileError("standard input: it is closed; name a file instead")
    try:
        if path == "-":
            file = _buffered(sys.stdin.buffer)
        else:
            file = _buffered(io.FileIO(path))
        return _Unpacked(file) if file.peek(2)[:2] == b"\x1f\x8b" else file
    except OSError as error:
        raise trouble(name, error) from None


def _buffered(raw: Any) -> io.BufferedReader:
    return io.BufferedReader(raw)


class _Unpacked(gzip.GzipFile):
    """An unpacked file that closes the packed one."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(fileobj=file)
        self._packed = file

    def close(self) -> None:
        super().close()
        self._packed.close()


def write_text(path: str, text: str) -> None:
    """Write *path* ("-": standard output) through a temporary file beside it.

    To standard output, an open file (/dev/stdout, /dev/fd/63) or a device it is written as it is.  Of another
    file a reader sees the old one or the new one, never a part; on an error the old one stays.
    """
    write_texts([(path, text)])


def write_chunks(path: str, chunks: Iterable[bytes | memoryview]) -> None:
    """Write *chunks* one after another to *path* as `write_text` does, without holding them at once.

    To standard output, an open file or a device, each is written as it comes.
    """
    stream = descriptor(path)
    if stream is not None:
        for chunk in chunks:
            _print(bytes(chunk), stream, path)
        return
    target = Path(os.path.realpath(path))
    temporary = ""
    try:
        mode = _mode(target)
        if mode is not None and not stat.S_ISREG(mode):
            with target.open("wb") as device:
                device.writelines(chunks)
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        _give_rights(temporary, target)
        interrupts.check()
        os.replace(temporary, target)
    except OSError as error:
        raise trouble(path, error) from None
    finally:
        if temporary:
            with suppress(FileNotFoundError):  # it has been renamed
                os.unlink(temporary)


def flush_folder(folder: Path) -> None:
    """Make the names in *folder* survive a loss of power; OSError if that fails."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_texts(texts: Iterable[tuple[str, str]]) -> None:
    """Write each text to its path as `write_text` does: all files, or none if one has no space."""
    finish: list[Callable[[], None]] = []
    temporaries: list[str] = []
    try:
        for path, text in texts:
            finish.append(_prepared(path, text.encode("utf-8", "surrogateescape"), temporaries))
        interrupts.check()
        for step in finish:
            step()
    finally:
        for temporary in temporaries:
            with suppress(FileNotFoundError):  # it has been renamed
                os.unlink(temporary)


def _prepared(path: str, data: bytes, temporaries: list[str]) -> Callable[[], None]:
    """Do all steps that may fail for lack of space, which can be undone; the result is the last step."""
    stream = descriptor(path)
    if stream is not None:
        return lambda: _print(data, stream, path)
    target = Path(os.path.realpath(path))
    mode = _mode(target)

    def into_device() -> None:
        try:
            target.write_bytes(data)
        except OSError as error:
            raise trouble(path, error) from None

    def rename() -> None:
        try:
            os.replace(temporary, target)
        except OSError as error:
            raise trouble(path, error) from None

    if mode is not None and not stat.S_ISREG(mode):
        return into_device
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporaries.append(temporary)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _give_rights(temporary, target)
    except OSError as error:
        raise trouble(path, error) from None
    return rename


def _mode(target: Path) -> int | None:
    """The type and permissions of a file; None if there is none."""
    try:
        return target.stat().st_mode
    except OSError:
        return None


def _give_rights(temporary: str, target: Path) -> None:
    """Give *temporary* the owner, group and permissions of *target*, or those of a new file.

    Only root may give a file to somebody else; for other users it becomes theirs.
    """
    try:
        now = target.stat()
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        return
    for owner, group in ((-1, now.st_gid), (now.st_uid, -1)):
        with suppress(OSError):  # not permitted, or unknown to this namespace of users
            os.chown(temporary, owner, group)
    os.chmod(temporary, stat.S_IMODE(now.st_mode))  # behind the owner, whose change removes some of it


def descriptor(path: str) -> int | None:
    """The open file of this process that *path* means (-, /dev/stdout, /dev/fd/63); None: it names a file."""
    if path == "-":
        return 1
    own = os.path.realpath("/proc/self/fd")
    for _ in range(MOST_LINKS):
        folder, name = os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path)
        if folder == own and name.isdecimal():
            return int(name)
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


def _print(data: bytes, stream: int, path: str) -> None:
    """Write to an open file, behind what it has."""
    try:
        if stream == 1:
            if sys.stdout is None:
                raise FileError("standard output: it is closed")
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        with open(stream, "wb", closefd=False) as file:
            file.write(data)
    except OSError as error:
        raise trouble("standard output" if path == "-" else path, error) from None


def check_standard_output() -> None:
    """FileError if standard output is closed: for a command that acts before it writes."""
    try:
        os.write(1, b"")
    except OSError as error:
        raise trouble("standard output", error) from None


def check_outputs(outputs: Mapping[str, str | None], inputs: Mapping[str, str | None]) -> None:
    """Refuse outputs that would overwrite one another or an input, or that cannot be written; and two inputs
    of one standard input.

    Both map the name of a path (an option, a metavariable) to the path; None: absent, "-":
    standard output or input.  Links are followed.  A device such as /dev/null may occur several times.
    """
    streams = [name for name, path in inputs.items() if path == "-"]
    if len(streams) > 1:
        raise FileError(f"{streams[0]} and {streams[1]} are both standard input; name a file for one of them")
    read_by: dict[object, str] = {}
    for name, path in inputs.items():
        for key in _identities(path, 0):
            read_by.setdefault(key, name)
    written: dict[object, str] = {}
    for name, path in outputs.items():
        for key in _identities(path, 1):
            if key in written:
                raise FileError(
                    f"{written[key]} and {name} are the same file, {_shown(path, 1)}; nothing is written"
                )
            if key in read_by:
                raise FileError(
                    f"{name} {_shown(path, 1)} would overwrite {read_by[key]}, which is read; "
                    "nothing is written"
                )
        for key in _identities(path, 1):
            written[key] = name
        if path is not None:
            _check_writable(path)


def named_inputs(word: str, files: Iterable[str]) -> dict[str, str]:
    """The *files* of one argument, for `check_outputs`: each by *word* and its path, or its number where an
    earlier one has the same path.
    """
    named: dict[str, str] = {}
    for number, file in enumerate(files, 1):
        name = f"{word} {file}"
        named[f"{word} {number}" if name in named else name] = file
    return named


def _check_writable(path: str) -> None:
    """Refuse what `write_texts` could not write either, before the work whose result it is to hold."""
    if descriptor(path) is not None:
        return
    target = Path(os.path.realpath(path))
    mode = _mode(target)
    fault = 0
    if mode is not None and not stat.S_ISREG(mode):  # a device
        fault = errno.EISDIR if stat.S_ISDIR(mode) else 0 if os.access(target, os.W_OK) else errno.EACCES
    else:
        folder = _mode(target.parent)
        if folder is None:
            fault = errno.ENOENT
        elif not stat.S_ISDIR(folder):
            fault = errno.ENOTDIR
        elif not os.access(target.parent, os.W_OK | os.X_OK):
            fault = errno.EACCES
    if fault:
        raise FileError(f"{path}: {os.strerror(fault)}")


def _shown(path: str | None, stream: int) -> str:
    return ("standard input", "standard output")[stream] if path == "-" else str(path)


def _identities(path: str | None, stream: int) -> list[object]:
    """Keys that are equal for two paths of one file: the file itself, or the name that it will have."""
    if path is None:
        return []
    is_stream = path == "-" or descriptor(path) == stream
    try:
        status = os.fstat(stream) if is_stream else os.stat(path)
    except OSError:
        return [(stream, "-")] if is_stream else [os.path.realpath(path)]
    if not stat.S_ISREG(status.st_mode):
        # Standard output takes one text; /dev/null takes any number.
        return [(stream, "-")] if is_stream else []
    own: list[object] = [(status.st_dev, status.st_ino)]
    return [*own, (stream, "-")] if is_stream else own

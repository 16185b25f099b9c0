"""The state directory: text files that a person can read, consistent after a crash at any moment.

    state            format, settings, the current generation N, sums of its files
    master.N.rules   the master list
    loaded.N.rules   the rule set loaded for it when generation N was written
    map.N            the layouts of chains, and their entries
    journal.N        every commit since: updates, patch, map lines, in this order
    lock             held by the one writer

Only their owner can read the files, whatever the umask; so it is with a directory that is new.

A commit is one record at the end of the journal.  It takes effect when its last line, with the sum over
the record, is written, and is on disk before the commit returns; an incomplete record is ignored.  A new
generation is written beside the old one and becomes current when `state` is renamed.

A commit that goes to the kernel is *settled* by a line behind its record once the kernel has the patch.
A record without that line makes the next start compare the kernel with both states.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from hitables import interrupts
from hitables.emit.text import write
from hitables.errors import HitablesError
from hitables.files import flush_folder, is_there, remedy
from hitables.ir.fields import Family
from hitables.ir.set_counters import counting
from hitables.parse import iptables
from hitables.rule_lines import lines_of

from .edits import Edit, apply, read_edits
from .planner import Plan
from .state import State
from .state_text import (
    FORMATS,
    checksum,
    decode,
    encode,
    map_lines,
    read_map,
    read_settings,
    read_state_text,
    record_text,
    settled_text,
    state_text,
)

# The files of generations; the number is the first group or the second.
_FILES = re.compile(r"(?:master|loaded)\.(\d+)\.rules|(?:map|journal)\.(\d+)", re.ASCII)
_STARTS = b"begin ", b"settle"  # of a record, and of the line behind it
# Bytes.  A longer journal is replaced by a new generation; reading it again takes about a second.
MAX_JOURNAL = 1 << 20


class ReadOnly(HitablesError):
    """A state on a file system that cannot be written."""


class Damaged(HitablesError):
    """A state that cannot be read; the message names its intact parts."""


@dataclass(frozen=True)
class _Record:
    """A commit in the journal, which ends at byte *end*; *is_settled* if the kernel has it."""

    state: State
    before: State
    edits: Sequence[Edit]
    end: int
    is_settled: bool


class Store:
    """An open state directory; closed (and unlocked) by `close` or at the end of a with block.

    `unsettled` is the state before the last commit if the kernel may not have that commit; `unsettled_edits`
    are then its edits of the kernel's rules.
    """

    def __init__(self, folder: Path, state: State, generation: int, lock: int | None) -> None:
        self.folder, self.state, self.generation, self._lock = folder, state, generation, lock
        self.unsettled: State | None = None
        self.unsettled_edits: Sequence[Edit] = ()
        self._is_synced = True
        self._last = self._end = 0  # bytes of the journal: the start of the last record, the end

    # Opening.

    @classmethod
    def create(cls, folder: Path, state: State) -> Self:
        """A new directory that holds *state*.

        HitablesError if it holds a state already, or other files under the names of one.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HitablesError(f"{folder}: {error.strerror}") from None
        lock = _lock(folder)
        try:
            _check_free(folder)
        except BaseException:
            os.close(lock)
            raise
        store = cls(folder, state, 0, lock)
        try:
            store.compact()
        except BaseException:
            store.discard()
            store.close()
            raise
        return store

    @classmethod
    def open(cls, folder: Path, *, to_write: bool = True) -> Self:
        """The state in *folder*.  HitablesError: it holds none, or is locked; Damaged: it is damaged."""
        if not _holds_state(folder):
            rest = sorted(path.name for path, _ in _generation_files(folder)) if folder.is_dir() else []
            if rest:
                raise Damaged(
                    f"{folder}: the file state is missing, of which a backup may be had; "
                    f"these files of the state are there: {', '.join(rest)}"
                )
            raise HitablesError(
                f"{folder} holds no state; "
                f"create one with sflgen init RULES --state {shlex.quote(str(folder))}"
            )
        lock = _lock(folder) if to_write else None
        try:
            store = cls._read(folder, lock)
            if to_write and store.unsettled is None:
                store._compact_long_journal()
        except BaseException:
            if lock is not None:
                os.close(lock)
            raise
        return store

    @classmethod
    def _read(cls, folder: Path, lock: int | None) -> Self:
        """The state in *folder*; one that a writer replaces meanwhile is read again."""
        while True:
            current = _read(folder / "state")
            try:
                state, generation = _read_generation(folder)
                store = cls(folder, state, generation, lock)
                store._replay(lock is not None)
                return store
            except Damaged:
                if _read(folder / "state") == current:
                    raise

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def is_writable(self) -> bool:
        """Whether this store holds the lock."""
        return self._lock is not None

    def handles(self) -> tuple[int, ...]:
        """The open files that a process inherits to hold the lock with us."""
        return () if self._lock is None else (self._lock,)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Writing.

    def commit(
        self, plan: Plan, load: Callable[[str], None] | None = None, show: Callable[[str], None] | None = None
    ) -> None:
        """Record *plan*, and pass its patch to *load*, which loads it, or to *show*, which prints it.

        If the record cannot be written, *load* raises a HitablesError, or *show* raises anything, the state
        is restored, in memory and on disk.  So it is after an interrupt, which waits for the end of *load*.
        HitablesError for a store that is closed.
        """
        self._check_open()
        if plan.before is not self.state:
            raise HitablesError("the plan was made for another state; plan anew")
        if self.unsettled is not None:
            raise HitablesError(
                f"{self.folder}: it is unknown whether the kernel has the last patch; "
                "run a command with --live to find out"
            )
        assert self._lock is not None
        if not _is_lock_of(self._lock, self.folder):
            raise _gone(self.folder)
        record = record_text(plan)
        interrupts.check()
        if load is not None:
            with interrupts.deferred():  # *load* ends with the kernel having all of the patch or nothing
                self._write_record(record, plan, durable=False)
                self._load(plan, load)
        else:
            start = self._end
            try:
                self._write_record(record + settled_text(plan.after.version), plan, durable=True)
                if show is not None:
                    show(plan.text)
            except BaseException:  # also an interrupt
                with interrupts.deferred():
                    self._truncate(start)
                    self.state = plan.before
                raise
        self._compact_long_journal()

    def _write_record(self, record: str, plan: Plan, durable: bool) -> None:
        start = self._end
        try:
            self._append(record, durable)
        except OSError as error:
            if not is_there(self.folder / "state"):
                raise _gone(self.folder) from None
            self._truncate(start)
            raise HitablesError(f"{self._journal}: {error.strerror}; nothing is changed") from None
        self.state = plan.after

    def _load(self, plan: Plan, load: Callable[[str], None]) -> None:
        self.unsettled, self.unsettled_edits = plan.before, plan.edits
        try:
            load(plan.text)
            self.flush()
        except HitablesError:
            self.undo()
            raise
        self.settle()

    def flush(self) -> None:
        """Write the last record to disk; `load` may call it while the kernel is at work.

        If the machine stops before, the kernel's rules are lost with the record.
        """
        if not self._is_synced:
            try:
                with open(self._journal, "r+b") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                raise HitablesError(f"{self._journal}: {error.strerror}") from None
            self._is_synced = True

    def settle(self) -> None:
        """Record that the kernel has the last commit.

        If this line is lost (a crash, a full disk), the next start compares the kernel with the state.
        So the line need not be on disk at once, and a failure to write it is no failure of the commit.
        """
        self._check_open()
        self.unsettled = None
        last = self._last
        with contextlib.suppress(OSError):
            self._append(settled_text(self.state.version), durable=False)
        self._last = last

    def undo(self) -> None:
        """Remove the last commit, which the kernel does not have."""
        self._check_open()
        assert self.unsettled is not None, "there is a commit to undo"
        self._truncate(self._last)
        self.state, self.unsettled = self.unsettled, None

    def discard(self) -> None:
        """Undo `create`: remove the files, and the folder if it is empty then."""
        with contextlib.suppress(OSError):  # the folder is gone, or holds other files
            own = [path for path, _ in _generation_files(self.folder)]
            for path in (self.folder / "state", self.folder / "state.new", *own, self.folder / "lock"):
                path.unlink(missing_ok=True)
            self.folder.rmdir()

    def compact(self) -> None:
        """Write the state as a new generation with an empty journal, and remove the old one."""
        self._check_open()
        new = self.generation + 1
        files = {
            f"master.{new}.rules": write(self.state.master),
            f"loaded.{new}.rules": write(self.state.loaded),
            f"map.{new}": "".join(f"{line}\n" for line in map_lines({}, {}, self.state)),
        }
        try:
            for name, text in files.items():
                _write_durably(self.folder / name, text)
            _write_durably(self.folder / f"journal.{new}", "")
            _write_durably(self.folder / "state.new", state_text(self.state, new, files))
            os.replace(self.folder / "state.new", self.folder / "state")
        except OSError as error:
            for name in (*files, f"journal.{new}", "state.new"):
                (self.folder / name).unlink(missing_ok=True)
            effect = "the state is unchanged" if self.generation else "no state is begun"
            raise HitablesError(f"{self.folder}: {error.strerror}; {effect}") from None
        self.generation, self._end = new, 0
        try:
            flush_folder(self.folder)
            for path, generation in _generation_files(self.folder):
                if generation != new:
                    path.unlink(missing_ok=True)
        except OSError as error:  # the old generation stays: after a crash it may be current again
            raise HitablesError(f"{self.folder}: {error.strerror}; the state is whole") from None

    def compact_if_possible(self) -> None:
        """Like `compact`, but without room on the disk the journal stays as it is, and may grow."""
        with contextlib.suppress(HitablesError):
            self.compact()

    def _compact_long_journal(self) -> None:
        if self._end > MAX_JOURNAL:
            self.compact_if_possible()

    @property
    def _journal(self) -> Path:
        return self.folder / f"journal.{self.generation}"

    def _check_open(self) -> None:
        """HitablesError for a store that is closed, or was opened to be read: another may have the lock."""
        if self._lock is None:
            raise HitablesError(
                f"{self.folder}: this store is closed, or open for reading only; open it again"
            )

    def _append(self, text: str, durable: bool = True) -> None:
        data = encode(text)
        with open(self._journal, "r+b") as file:
            file.seek(self._end)
            file.write(data)
            file.truncate()
            file.flush()
            if durable:
                os.fsync(file.fileno())
        self._is_synced = durable
        self._last, self._end = self._end, self._end + len(data)

    def _truncate(self, end: int) -> None:
        """Remove the journal behind *end*; if this fails, the sum shows that the rest is no record.

        A journal that could not even be opened has nothing behind *end*.
        """
        self._end = self._last = end
        try:
            if self._journal.stat().st_size <= end:
                return
            with open(self._journal, "r+b") as file:
                file.truncate(end)
                os.fsync(file.fileno())
        except FileNotFoundError:
            return  # another program has removed it, and the record with it
        except OSError as error:
            raise HitablesError(f"{self._journal}: {error.strerror} while a commit was undone") from None

    # Reading the journal.

    def _replay(self, to_write: bool) -> None:
        try:
            data = self._journal.read_bytes()
        except OSError as error:
            raise Damaged(
                f"{self._journal}: {error.strerror}; the rule lists of generation {self.generation} are whole"
            ) from None
        at = 0
        while at < len(data):
            record = self._read_record(data, at)
            if record is None:
                break
            self._last, at = at, record.end
            self.unsettled = None if record.is_settled else record.before
            self.unsettled_edits = () if record.is_settled else record.edits
            self.state = record.state
        self._end = at
        if at < len(data) and to_write:
            last = self._last
            self._truncate(at)
            self._last = last

    def _read_record(self, data: bytes, at: int) -> _Record | None:
        """The record at byte *at*; None if it is incomplete, the last one before a crash."""
        where = f"{self._journal}: the record at byte {at}"
        intact = f"all before it, to version {self.state.version}, is whole"
        start = data[at : at + 6].rstrip(b"\0")  # a disk may have zeros in place of what was lost
        if not any(each.startswith(start) for each in _STARTS):
            raise Damaged(f"{where} is damaged: it has no first line; {intact}")
        mark = data.find(b"\nend ", at)
        stop = data.find(b"\n", mark + 1) if mark >= 0 else -1
        if stop < 0:
            return None
        body, end = data[at : mark + 1], data[mark + 1 : stop].decode("ascii", "replace").split()
        if end[2:] != [checksum(body)]:
            is_last = data.find(b"\nend ", stop) < 0
            # The line that settles it is written with a record that no kernel gets; rules have no NUL.
            if is_last and (b"\nsettled " not in data[stop:] or b"\0" in data[at:]):
                return None  # the last record, part of which was not written to disk
            raise Damaged(f"{where} is damaged; {intact}")
        parts: dict[str, list[str]] = {"begin": [], "update": [], "patch": [], "map": []}
        for line in lines_of(decode(body)):
            word, _, rest = line.partition(" ")
            if word not in parts:
                raise Damaged(f"{where} has an unknown line {line!r}; {intact}")
            parts[word].append(rest)
        version = int(end[1])
        settled = settled_text(version).encode()
        is_settled = data.startswith(settled, stop + 1)
        try:
            state, edits = self._applied(parts, version)
        except (HitablesError, LookupError, ValueError) as error:
            raise Damaged(f"{where} cannot be applied ({error}); {intact}") from None
        return _Record(state, self.state, edits, stop + 1 + (len(settled) if is_settled else 0), is_settled)

    def _applied(self, parts: dict[str, list[str]], version: int) -> tuple[State, Sequence[Edit]]:
        """The state after a record, and its patch; *parts*: its lines by their first word."""
        before, source = self.state, str(self._journal)
        updates = read_edits("\n".join(parts["update"]), before.master, source)
        edits = read_edits("\n".join([*parts["patch"], ""]), before.loaded, source)
        layouts, entry_chains = read_map(parts["map"], before)
        master, loaded = apply(before.master, updates), apply(before.loaded, edits)
        return State(before.settings, master, loaded, layouts, entry_chains, version), edits


# Files.


def _read_generation(folder: Path) -> tuple[State, int]:
    """The current generation: its state before the journal, and its number."""
    path = folder / "state"
    data = _read(path)
    head = data.split(b"\n", 1)[0].decode("utf-8", "replace").split()
    if head[:1] != ["sflgen-state"] or len(head) != 2:
        raise Damaged(f"{path} is no state of sflgen; {_master_lists(folder)}")
    if head[1] not in FORMATS:
        raise HitablesError(
            f"{path} has format {head[1]}, this sflgen reads formats {FORMATS[0]} to {FORMATS[-1]}; "
            "use the sflgen that wrote it"
        )
    body, _, end = data.rpartition(b"end ")
    if end.strip().decode("ascii", "replace") != checksum(body):
        raise Damaged(f"{path} is damaged (its checksum differs); {_master_lists(folder)}")
    values, sums = read_state_text(decode(body))
    texts = _read_files(folder, sums)
    family = Family(int(values["family"]))
    master, loaded = (iptables.read(texts[name], family=family, name=name) for name in ("master", "loaded"))
    if "counts_sets" in values:
        master = counting(master)
    layouts, entry_chains = read_map(lines_of(texts["map"]), None)
    state = State(read_settings(values), master, loaded, layouts, entry_chains, int(values["version"]))
    return state, int(values["generation"])


def _read_files(folder: Path, sums: dict[str, str]) -> dict[str, str]:
    """The texts of the files with these sums, by stem; Damaged if one is not as it was written."""
    texts: dict[str, str] = {}
    damaged = []
    for name, total in sums.items():
        try:
            data = (folder / name).read_bytes()
        except OSError as error:
            damaged.append(f"{name} ({error.strerror})")
            continue
        if checksum(data) != total:
            damaged.append(f"{name} (its checksum differs)")
        texts[name.partition(".")[0]] = decode(data)
    if damaged:
        intact = [name for name in sums if all(not each.startswith(name) for each in damaged)]
        raise Damaged(f"{folder}: damaged: {', '.join(damaged)}; whole: {', '.join(intact) or 'nothing'}")
    return texts


def _master_lists(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("master.*.rules"))
    return f"the master list is in {', '.join(names)}" if names else "there is no master list"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _trouble(path, error) from None


def _trouble(path: Path, error: OSError) -> HitablesError:
    return HitablesError(f"{path}: {error.strerror}{remedy(error)}")


def _write_durably(path: Path, text: str) -> None:
    """Write a file that its owner alone can read: it names addresses that a firewall lets pass."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(encode(text))
        file.flush()
        os.fsync(file.fileno())


def _holds_state(folder: Path) -> bool:
    try:
        return is_there(folder / "state")
    except OSError as error:
        raise _trouble(folder, error) from None


def _generation_files(folder: Path) -> list[tuple[Path, int]]:
    """The files of generations in *folder*, with the number of each."""
    names = ((path, _FILES.fullmatch(path.name)) for path in folder.iterdir())
    return [(path, int(name[1] or name[2])) for path, name in names if name]


def _gone(folder: Path) -> HitablesError:
    return HitablesError(
        f"the state in {folder}, or its lock, was removed by another program, which may have made it anew; "
        "nothing is changed"
    )


def _check_free(folder: Path) -> None:
    """HitablesError if a new state would replace files of *folder*."""
    if _holds_state(folder):
        raise HitablesError(f"{folder} holds a state already; choose another directory, or remove it")
    found = sorted(path.name for path, _ in _generation_files(folder))
    if found:
        raise HitablesError(
            f"{folder} holds {', '.join(found)}: a state has such files; choose another directory, "
            "or remove them"
        )


def _is_lock_of(handle: int, folder: Path) -> bool:
    """Whether the open file *handle* is the lock of *folder*, which may have been removed and made anew."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder / "lock"))
    except OSError:
        return False


def _lock(folder: Path) -> int:
    """Lock *folder*; the open file that holds the lock."""
    path = folder / "lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.EROFS:
            raise ReadOnly(f"{path}: {error.strerror}") from None
        raise _trouble(path, error) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # another process holds it; EACCES on SMB
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        os.close(handle)
        raise HitablesError(f"{folder} is in use by process {holder or '(unknown)'}; wait for it") from None
    except OSError as error:
        os.close(handle)
        raise _trouble(path, error) from None
    if not _is_lock_of(handle, folder):
        os.close(handle)
        raise HitablesError(f"{folder} was removed, or made anew, at this moment; try again")
    with contextlib.suppress(OSError):  # on a full disk the holder has no name
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle

"""The state directory of `hitables apply`: every rule set that was loaded, and which one is confirmed.

    state.json             which record is confirmed, which one waits for its confirmation
    lock                   held by a process that changes the state or the kernel
    0001/record.json       one rule set: when, from which files, by which options, and by family the rest:
    0001/loaded4, loaded6  the text as it was loaded, which a rollback loads again
    0001/source4, source6  the text that it was made of
    0001/waits             there as long as it waits for its confirmation
    sets/NAME.save         an ipset that rules of records name, as `ipset save` printed it last (kept_sets.py)
    confirmed.rules, boot ...           what the next boot loads (boot_files.py)
    log                    a line for each thing that was done

Invariant: state.json names complete records only.  Files are written beside their place, flushed to the disk
and renamed, and so are their folders; then state.json is replaced.  After a loss of power it is the old or
the new one.

A record that waits when the machine is started again has ended: its rules are gone with the kernel.  So has
one without a guard, because nothing is loaded before the guard is written down.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from ..errors import FileError, HitablesError, LiveError
from ..files import flush_folder, is_there, parse_json, read_text, remedy, trouble, write_text
from ..ir.fields import Family
from ..ir.packet import Backend
from . import texts
from .boot_clock import boot_id
from .counts import Origins, keyed, origins_of
from .records import ENDED, FOUND, ROLLED_BACK, ApplyState, Copy, Half, Record, TakenBack, Waiting
from .texts import Tables

VERSION = 1
# Records of the past that are kept, besides the confirmed one and the one that waits: so many rule sets of
# the user, and so many that were found in the kernel.
KEPT = 20
_OPENED = 10  # times that a folder is opened while others replace it
_COUNTS = re.compile(r"^\[\d+:\d+\] | \[\d+:\d+\]$", re.MULTILINE)


class StateDirectory:
    """A state directory, held by this process until `close`."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder, self.lock = folder, lock
        self._halves: dict[Path, tuple[Any, Half]] = {}  # by file: what a half was read from, and the half

    @classmethod
    def open(cls, path: str, create: bool = False, wait: float = 10.0) -> Self:
        """The store in folder *path*; *wait*: seconds for which another process may hold it."""
        folder = Path(path)
        deadline = time.monotonic() + wait
        for attempt in range(1, _OPENED + 1):
            try:
                if create:
                    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                elif not is_there(folder):
                    raise HitablesError(
                        f"{folder}: there is no such state directory; hitables apply makes one"
                    )
                lock = _open_lock(folder / "lock", create)
            except OSError as error:
                message = (
                    f"state directory {folder}: {error.strerror or error}; nothing is changed{remedy(error)}"
                )
                if create and not os.path.isdir(folder):
                    message += " (--state names another directory)"
                raise FileError(message) from None
            _take_lock(lock, folder, deadline)
            # If the folder was moved or removed meanwhile, another process may hold the one in its place.
            if _is_file(lock, folder / "lock") or attempt == _OPENED:
                break
            os.close(lock)
        return cls(folder, lock)

    def close(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # The state.

    @property
    def is_there(self) -> bool:
        """Whether the folder has a state; the first apply writes it."""
        path = self.folder / "state.json"
        with _system_errors(path):
            return is_there(path)

    def state(self) -> ApplyState:
        if not self.is_there:
            return ApplyState()
        path = self.folder / "state.json"
        data = self._json(path, "hitables-state")
        with self._damage(path):
            waiting, taken = data["waiting"], data.get("taken_back")
            state = ApplyState(
                int(data["last"]),
                int(data["confirmed"]),
                waiting
                and Waiting(
                    int(waiting["number"]),
                    int(waiting["before"]),
                    float(waiting["until"]),
                    str(waiting["boot"]),
                    int(waiting["guard"]),
                    float(waiting.get("deadline", 0)),
                    str(waiting.get("namespace", "")),
                ),
                {int(number): str(status) for number, status in data["status"].items()},
                taken and TakenBack(int(taken["number"]), str(taken["boot"]), float(taken["at"])),
            )
        waiting = state.waiting
        if waiting and (waiting.boot != boot_id() or not waiting.guard):
            state = replace(state, waiting=None, status={**state.status, waiting.number: ENDED})
        elif waiting and self.has_ended(waiting.number):
            state = replace(state, waiting=None, status={**state.status, waiting.number: ROLLED_BACK})
        return state

    def begin_waiting(self, number: int) -> None:
        """Mark record *number* as one that waits.

        The mark is a file, because a file can be removed where the disk is full: what is taken back then must
        not be confirmed afterwards.
        """
        with _system_errors(self._mark(number)):
            self._mark(number).touch(mode=0o600)

    def end_waiting(self, number: int) -> None:
        """The record does not wait any more: its rules are confirmed or taken back."""
        with _system_errors(self._mark(number)):
            self._mark(number).unlink(missing_ok=True)

    def has_ended(self, number: int) -> bool:
        """Whether record *number* is there and does not wait."""
        with _system_errors(self._mark(number)):
            return self.has(number) and not is_there(self._mark(number))

    def _mark(self, number: int) -> Path:
        return self._folder(number) / "waits"

    def set_state(self, state: ApplyState) -> None:
        waiting, taken = state.waiting, state.taken_back
        data = {
            "format": "hitables-state",
            "version": VERSION,
            "last": state.last,
            "confirmed": state.confirmed,
            "waiting": waiting
            and {
                "number": waiting.number,
                "before": waiting.before,
                "until": waiting.until,
                "boot": waiting.boot,
                "guard": waiting.guard,
                "deadline": waiting.deadline,
                "namespace": waiting.namespace,
            },
            "status": {str(number): status for number, status in sorted(state.status.items())},
            "taken_back": taken and {"number": taken.number, "boot": taken.boot, "at": taken.at},
        }
        self._write(self.folder / "state.json", json.dumps(data, indent=1) + "\n")

    # Records.

    def add(self, state: ApplyState, record: Record, status: str) -> ApplyState:
        """Write *record*; the state that lists it, which the caller has to set."""
        folder = self._folder(record.number)
        halves = {}
        with _system_errors(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        for family, half in record.halves.items():
            loaded = texts.write(half.tables)
            self._write(folder / f"loaded{int(family)}", loaded)
            self._write(folder / f"source{int(family)}", half.source)
            halves[str(int(family))] = {
                "digests": {"loaded": _digest(loaded), "source": _digest(half.source)},
                "file": half.file,
                "generated": {table: list(names) for table, names in half.generated.items()},
                "absent": list(half.absent),
                "origins": _packed(origins_of(half.tables)),
            }
        data = {
            "format": "hitables-record",
            "version": VERSION,
            "number": record.number,
            "when": record.when,
            "backend": record.backend,
            "leave": list(record.leave),
            "before": record.before,
            "options": record.options,
            "beside": {str(int(family)): dict(tables) for family, tables in record.beside.items()},
            "families": halves,
        }
        self._write(folder / "record.json", json.dumps(data) + "\n")
        _flush(folder)
        _flush(self.folder)
        return replace(state, last=record.number, status={**state.status, record.number: status})

    def record(self, number: int) -> Record:
        """The record *number*; HitablesError if there is none."""
        folder = self._folder(number)
        if not self.has(number):
            raise HitablesError(f"{self.folder}: there is no rule set {number}; hitables history lists them")
        data = self._json_of(number)
        with self._damage(folder / "record.json"):
            halves = {
                Family(int(name)): self._half(folder, name, half) for name, half in data["families"].items()
            }
            return Record(
                int(data["number"]),
                float(data["when"]),
                Backend(data["backend"]).value,
                tuple(map(str, data["leave"])),
                halves,
                int(data["before"]),
                str(data["options"]),
                {Family(int(family)): dict(tables) for family, tables in data.get("beside", {}).items()},
            )

    def _half(self, folder: Path, name: str, data: Mapping[str, Any]) -> Half:
        """The rules of family *name* in a record, from what record.json has of them."""
        parts = {}
        for part in ("loaded", "source"):
            path = folder / f"{part}{name}"
            parts[part] = read_text(str(path))
            if "digests" in data and _digest(parts[part]) != data["digests"][part]:
                raise self._damaged(path, "these are not the rules that were recorded")
        path = folder / f"loaded{name}"
        read_from, half = self._halves.get(path, (None, None))
        if half is None or read_from != (parts, data):
            half = Half(
                keyed(texts.parse(parts["loaded"]), _unpacked(data["origins"])),
                {table: tuple(names) for table, names in data["generated"].items()},
                parts["source"],
                str(data["file"]),
                tuple(map(str, data["absent"])),
            )
            self._halves[path] = ((parts, data), half)
        return half

    def has(self, number: int) -> bool:
        """Whether there is a record *number*."""
        path = self._folder(number) / "record.json"
        with _system_errors(path):
            return is_there(path)

    def set_leave(self, number: int, patterns: Sequence[str]) -> None:
        """Give record *number* other patterns of foreign chains."""
        self._change(number, {"leave": list(patterns)})

    def set_before(self, number: int, before: int) -> None:
        """Give record *number* another record that it replaced."""
        self._change(number, {"before": before})

    def add_beside(self, number: int, family: Family, table: str, holder: int) -> None:
        """A *table* of record *holder* is in force beside record *number* from now on."""
        beside = self._json_of(number).get("beside", {})
        beside.setdefault(str(int(family)), {})[table] = holder
        self._change(number, {"beside": beside})

    def set_tables(self, number: int, family: Family, tables: Tables) -> None:
        """Replace tables of a record, whose rules are the same but for their counters."""
        path = self._folder(number) / f"loaded{int(family)}"
        self._write(path, texts.write({**texts.parse(read_text(str(path))), **tables}))

    def _change(self, number: int, values: Mapping[str, Any]) -> None:
        data = {**self._json_of(number), **values}
        self._write(self._folder(number) / "record.json", json.dumps(data) + "\n")

    def numbers(self) -> list[int]:
        """The numbers of the records, the oldest first."""
        with _system_errors(self.folder):
            names = [each.parent.name for each in self.folder.glob("[0-9]*/record.json")]
        return sorted(int(name) for name in names if name.isdecimal())

    def forget_old(self, state: ApplyState) -> ApplyState:
        """Remove records of the past beyond `KEPT`: those found in the kernel push out none of the user's."""
        needed = self._needed(state)
        past = [number for number in self.numbers() if number not in needed]
        found = [number for number in past if state.status.get(number) == FOUND]
        applied = [number for number in past if state.status.get(number) != FOUND]
        kept = {*found[-KEPT:], *applied[-KEPT:]}
        needed |= {other for number in {*needed, *kept} for other in self._beside(number)}
        old = [number for number in past if number not in needed and number not in kept]
        self.remove(old)
        if old:
            status = {number: each for number, each in state.status.items() if number not in old}
            state = replace(state, status=status)
            self.set_state(state)
        return state

    def remove(self, old: Sequence[int]) -> None:
        """Remove the records *old*, which nothing needs any more."""
        for number in old:
            folder = self._folder(number)
            with _system_errors(folder):
                (folder / "record.json").unlink()  # first, so that no part is taken for a record
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()

    def _needed(self, state: ApplyState) -> set[int]:
        """The records with which *state* goes on, but for those with tables in force beside them."""
        needed = {state.confirmed, state.last}
        if state.waiting:
            needed |= {state.waiting.number, state.waiting.before}
        if self.has(state.confirmed):
            needed.add(self._json_of(state.confirmed)["before"])
        return needed

    def _beside(self, number: int) -> set[int]:
        """The records with tables that are in force beside record *number*."""
        if not self.has(number):
            return set()
        tables = self._json_of(number).get("beside", {}).values()
        return {holder for each in tables for holder in each.values()}

    def copy(self, state: ApplyState) -> Copy:
        """The files with which *state* goes on if the directory is removed."""
        needed = self._needed(state)
        needed |= {other for number in needed for other in self._beside(number)}
        with _system_errors(self.folder):
            files = [file for number in needed if self.has(number) for file in self._folder(number).iterdir()]
            files += self.folder.glob("sets/*.save")
        files.append(self.folder / "state.json")  # last, as it names records that are complete
        return {str(file.relative_to(self.folder)): read_text(str(file)) for file in files}

    def mend(self, copy: Copy) -> bool:
        """Write the files of *copy* that are missing or damaged here; whether there are such files."""
        missing = {name for name in copy if not is_there(self.folder / name)}
        damaged = self._damaged_parts()
        lost = [name for name in copy if name in missing or name.split("/")[0] in damaged]
        for name in lost:
            path = self.folder / name
            with _system_errors(path):
                path.parent.mkdir(mode=0o700, exist_ok=True)
            self._write(path, copy[name])
        return bool(lost)

    def _damaged_parts(self) -> set[str]:
        """The names of state.json and of the folders of records, as far as they are damaged."""
        damaged = set()
        for number in self.numbers():
            try:
                self.record(number)
            except FileError:
                damaged.add(self._folder(number).name)
        try:
            self.state()
        except FileError:
            damaged.add("state.json")
        return damaged

    def _json_of(self, number: int) -> Any:
        """What record.json of record *number* has."""
        return self._json(self._folder(number) / "record.json", "hitables-record")

    def save_set(self, name: str, saved: str) -> None:
        """Keep the ipset *name*; *saved*: what `ipset save` prints of it."""
        path = self._set_file(name)
        if is_there(path) and read_text(str(path)) == saved:
            return
        with _system_errors(path.parent):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        self._write(path, saved)

    def kept_set(self, name: str) -> str:
        """What `save_set` has kept of the ipset *name*; "" if that is nothing, or cannot be read."""
        with contextlib.suppress(FileError):
            return read_text(str(self._set_file(name)))
        return ""

    def _set_file(self, name: str) -> Path:
        return self.folder / "sets" / f"{quote(name, safe='', errors='surrogateescape')}.save"

    def log(self, message: str) -> None:
        """Add a line to the log, with the time."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n"
        with contextlib.suppress(OSError), open(self.folder / "log", "a", errors="surrogateescape") as file:
            file.write(line)

    def _folder(self, number: int) -> Path:
        return self.folder / f"{number:04}"

    def _write(self, path: Path, text: str) -> None:
        write_text(str(path), text)
        _flush(path.parent)

    def _json(self, path: Path, form: str) -> Any:
        try:
            data = parse_json(read_text(str(path)))
        except ValueError as error:
            raise self._damaged(path, error) from None
        if not isinstance(data, dict) or data.get("format") != form:
            raise self._damaged(path, f"no {form} file")
        if data.get("version") != VERSION:
            raise FileError(f"{path}: written by another version of hitables")
        return data

    @contextlib.contextmanager
    def _damage(self, path: Path) -> Iterator[None]:
        """What the JSON in *path* lacks, or has as something else, is a damage of this file."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise self._damaged(path, f"{type(error).__name__} {error}") from None

    def _damaged(self, path: Path, why: object) -> FileError:
        return FileError(f"{path}: damaged ({why}); move {self.folder} away, and apply the rules again")


def _open_lock(path: Path, create: bool) -> int:
    """The descriptor of the lock file, which can be locked on a disk that has become read-only, too."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if create or error.errno not in (errno.EROFS, errno.EACCES):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _take_lock(lock: int, folder: Path, deadline: float) -> None:
    """Lock the file *lock* of *folder*.

    LiveError if another process has it until *deadline*, FileError if it cannot be locked; it is closed then.
    """
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(lock)
                raise LiveError(
                    f"{folder}: another hitables is changing the firewall; try again later"
                ) from None
            time.sleep(0.05)
        except OSError as error:
            os.close(lock)
            raise FileError(f"{folder}: {error.strerror}; nothing is changed") from None


def _is_file(descriptor: int, path: Path) -> bool:
    """Whether *path* is the open file *descriptor*."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _digest(text: str) -> str:
    """SHA-256 of a rule set without its counters, which `StateDirectory.set_tables` changes."""
    return hashlib.sha256(_COUNTS.sub("", text).encode("utf-8", "surrogateescape")).hexdigest()


@contextlib.contextmanager
def _system_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"{trouble(error.filename or str(path), error)}{remedy(error)}") from None


def _flush(folder: Path) -> None:
    """Make the names in *folder* survive a loss of power."""
    with _system_errors(folder):
        flush_folder(folder)


def _packed(origins: Origins) -> dict[str, Any]:
    """Origins with each key once: many rules are copies of one."""
    numbers: dict[str, int] = {}
    tables = {
        table: {
            chain: [numbers.setdefault(key, len(numbers)) for key in keys] for chain, keys in chains.items()
        }
        for table, chains in origins.items()
    }
    return {"rules": list(numbers), "tables": tables}


def _unpacked(data: Mapping[str, Any]) -> Origins:
    rules = data["rules"]
    return {
        table: {chain: [rules[number] for number in keys] for chain, keys in chains.items()}
        for table, chains in data["tables"].items()
    }

"""The state directory: text files that a person can read, whole after a crash at any moment.

    state            format, settings, which files are meant, their sums
    master.N.rules   the master list
    loaded.N.rules   what was loaded for it when generation N was written
    map.N            how the chains are served
    journal.N        every commit since: updates, patch, map lines, in this order
    lock             held by the one writer

A commit is one record at the end of the journal, and is there once its last line, with the sum
over the record, is written; a record that is cut off there never happened.  It is on the disk before
the commit returns.  A new
generation is written beside the old one and becomes the state by the rename of `state`.
A commit that goes to the kernel is *settled* by a line behind its record when the kernel has it;
a record without that line tells the next start to look what the kernel holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from hitables import interrupts
from hitables.emit.text import write
from hitables.errors import HitablesError
from hitables.ir.choices import Malformed, backend_choice, choose
from hitables.ir.fields import Family
from hitables.parse import iptables
from hitables.parse.lines import quote, split, unquote

from .edits import apply, read_edits
from .edits import text as text_of
from .layout import Front, Host, Place, Section, Served, Settings
from .planner import Plan
from .state import State

FORMAT = 2

# Bytes; a longer journal gives way to a new generation.  Reading it again takes about a second.
LONGEST_JOURNAL = 1 << 20


class Damaged(HitablesError):
    """A state that cannot be read, and which of it is whole."""


@dataclass(frozen=True)
class _Record:
    """A commit as the journal has it; *start* and *end* in bytes, *settled* once nothing is to be done."""

    state: State
    before: State
    patch: str
    start: int
    end: int
    settled: bool


class Store:
    """An open state directory; closed (and unlocked) by `close` or at the end of a with block."""

    def __init__(self, folder: Path, state: State, generation: int, lock: int | None) -> None:
        self.folder, self.state, self.generation, self._lock = folder, state, generation, lock
        self.unsettled: State | None = None  # the state before the last commit, if the kernel may not have it
        self._unsynced = False
        self._last = self._end = 0  # bytes of the journal: where the last record begins, where it ends

    # Opening.

    @classmethod
    def create(cls, folder: Path, state: State) -> Self:
        """A new directory that holds *state*; HitablesError when there is a state already."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HitablesError(f"{folder}: {error.strerror}") from None
        lock = _locked(folder)
        if _holds_state(folder):
            os.close(lock)
            raise HitablesError(f"{folder} holds a state already; choose another directory, or remove it")
        store = cls(folder, state, 0, lock)
        try:
            store.compact()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, folder: Path, *, to_write: bool = True) -> Self:
        """The state in *folder*.  HitablesError: none there, locked; Damaged: says what is whole."""
        if not _holds_state(folder):
            raise HitablesError(f"{folder} holds no state; make one with sflgen init RULES --state {folder}")
        lock = _locked(folder) if to_write else None
        try:
            state, generation = _read_generation(folder)
            store = cls(folder, state, generation, lock)
            store._replay(to_write)
            if to_write and store._end > LONGEST_JOURNAL and store.unsettled is None:
                store.compact()
        except BaseException:
            if lock is not None:
                os.close(lock)
            raise
        return store

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def handles(self) -> tuple[int, ...]:
        """The open files that a process must have to hold the lock with us."""
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
        """Make *plan* so.  *load* takes its patch to the kernel; or *show* prints it.

        When the record does not come to the disk, *load* raises a HitablesError, or *show* anything, the
        state is as it was, in memory and on the disk.
        """
        if plan.before is not self.state:
            raise HitablesError("the plan was made for another state; plan anew")
        if self.unsettled is not None:
            raise HitablesError(
                f"{self.folder}: nobody knows whether the kernel has the last patch; "
                "a command with --live finds out"
            )
        start = self._end
        record = _record(plan)
        interrupts.check()
        try:
            self._append(record if load else record + _settled(plan.after.version), durable=load is None)
        except OSError as error:
            self._cut(start)
            raise HitablesError(f"{self._journal}: {error.strerror}; nothing is changed") from None
        self.state = plan.after
        if load is not None:
            self.unsettled = plan.before
            with interrupts.deferred():  # the kernel has all of it or nothing, and we know which
                try:
                    load(plan.text)
                    self.flush()
                except HitablesError:
                    self.undo()
                    raise
                self.settle()
        elif show is not None:
            try:
                show(plan.text)
            except BaseException:
                self._cut(start)
                self.state = plan.before
                raise
        if self._end > LONGEST_JOURNAL:
            with contextlib.suppress(HitablesError):  # no room: the journal holds all, and grows on
                self.compact()

    def flush(self) -> None:
        """Bring the last record to the disk; `load` may call it while the kernel is at work.

        If the machine stops before, the kernel's rules are gone with it.
        """
        if self._unsynced:
            try:
                with open(self._journal, "r+b") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                raise HitablesError(f"{self._journal}: {error.strerror}") from None
            self._unsynced = False

    def settle(self) -> None:
        """The kernel has the last commit.

        Where the line is lost (a crash, a full disk), the next start looks what the kernel holds; so it
        may wait for the next record to come to the disk, and is never a reason to say that a commit failed.
        """
        self.unsettled = None
        last = self._last
        with contextlib.suppress(OSError):
            self._append(_settled(self.state.version), durable=False)
        self._last = last

    def undo(self) -> None:
        """Take back the last commit, which the kernel does not have and refuses."""
        assert self.unsettled is not None, "there is a commit to take back"
        self._cut(self._last)
        self.state, self.unsettled = self.unsettled, None

    def discard(self) -> None:
        """Take back `create`: what it wrote goes, and so does the folder if nothing else is in it."""
        (self.folder / "state").unlink(missing_ok=True)
        for name in ("master", "loaded", "map", "journal"):
            for path in self.folder.glob(f"{name}.*"):
                path.unlink(missing_ok=True)
        (self.folder / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else is in it
            self.folder.rmdir()

    def compact(self) -> None:
        """Write the state as a new generation, with an empty journal; then the old one goes."""
        new = self.generation + 1
        files = {
            f"master.{new}.rules": write(self.state.master),
            f"loaded.{new}.rules": write(self.state.loaded),
            f"map.{new}": "".join(f"{line}\n" for line in _map_lines({}, {}, self.state)),
        }
        try:
            for name, text in files.items():
                _put(self.folder / name, text)
            _put(self.folder / f"journal.{new}", "")
            _put(self.folder / "state.new", _state_text(self.state, new, files))
            os.replace(self.folder / "state.new", self.folder / "state")
        except OSError as error:
            for name in (*files, f"journal.{new}", "state.new"):
                (self.folder / name).unlink(missing_ok=True)
            raise HitablesError(f"{self.folder}: {error.strerror}; the state is as it was") from None
        self.generation, self._end = new, 0
        try:
            _sync_folder(self.folder)
            for path in self.folder.iterdir():
                stem, _, rest = path.name.partition(".")
                if stem in ("master", "loaded", "map", "journal") and rest.split(".")[0] != str(new):
                    path.unlink(missing_ok=True)
        except OSError as error:  # the old generation stays: a crash may yet bring it back
            raise HitablesError(f"{self.folder}: {error.strerror}; the state is whole") from None

    @property
    def _journal(self) -> Path:
        return self.folder / f"journal.{self.generation}"

    def _append(self, text: str, durable: bool = True) -> None:
        data = _bytes(text)
        with open(self._journal, "r+b") as file:
            file.seek(self._end)
            file.write(data)
            file.truncate()
            file.flush()
            if durable:
                os.fsync(file.fileno())
        self._unsynced = not durable
        self._last, self._end = self._end, self._end + len(data)

    def _cut(self, end: int) -> None:
        """Take back what stands behind *end*; when even that fails, the sum tells that it is no record."""
        self._end = self._last = end
        try:
            with open(self._journal, "r+b") as file:
                file.truncate(end)
                os.fsync(file.fileno())
        except OSError as error:
            raise HitablesError(f"{self._journal}: {error.strerror} while a commit was taken back") from None

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
            record = self._next(data, at)
            if record is None:
                break
            self._last, at = at, record.end
            self.unsettled = None if record.settled else record.before
            self.state = record.state
        self._end = at
        if at < len(data) and to_write:
            self._cut_tail()

    def _cut_tail(self) -> None:
        last = self._last
        self._cut(self._end)
        self._last = last

    def _next(self, data: bytes, at: int) -> _Record | None:
        """The record at *at*; None for one that was cut off by a crash."""
        mark = data.find(b"\nend ", at)
        stop = data.find(b"\n", mark + 1) if mark >= 0 else -1
        if stop < 0:
            return None
        body, end = data[at : mark + 1], data[mark + 1 : stop].decode("ascii", "replace").split()
        where = f"{self._journal}: the record at byte {at}"
        whole = f"all before it, to version {self.state.version}, is whole"
        if end[2:] != [_sum(body)]:
            if data.find(b"\nend ", stop) < 0 and b"\nsettled " not in data[stop:]:
                return None  # the last one: half of it never came to the disk
            raise Damaged(f"{where} is damaged; {whole}")
        parts: dict[str, list[str]] = {"begin": [], "update": [], "patch": [], "map": []}
        for each in body.decode("utf-8", "surrogateescape").splitlines():
            word, _, rest = each.partition(" ")
            if word not in parts:
                raise Damaged(f"{where} has a line {each!r} that is not understood; {whole}")
            parts[word].append(rest)
        settled = _settled(int(end[1])).encode()
        is_settled = data.startswith(settled, stop + 1)
        patch = "\n".join([*parts["patch"], ""])
        before = self.state
        try:
            updates = read_edits("\n".join(parts["update"]), before.master, str(self._journal))
            edits = read_edits(patch, before.loaded, str(self._journal))
            served, hosts = _read_map(parts["map"], before)
            master, loaded = apply(before.master, updates), apply(before.loaded, edits)
            state = State(before.settings, master, loaded, served, hosts, int(end[1]))
        except (HitablesError, LookupError, ValueError) as error:
            raise Damaged(f"{where} cannot be done again ({error}); {whole}") from None
        stop += 1 + (len(settled) if is_settled else 0)
        return _Record(state, before, patch, at, stop, is_settled)


# Text.


def _record(plan: Plan) -> str:
    """The journal's record of a plan."""
    lines = [f"begin {plan.after.version}"]
    lines += [f"update {each}" for each in text_of(plan.updates).splitlines()]
    lines += [f"patch {each}" for each in plan.text.splitlines()]
    lines += [f"map {line}" for line in _map_lines(plan.before.served, plan.before.hosts, plan.after)]
    body = "\n".join([*lines, ""])
    return body + f"end {plan.after.version} {_sum(_bytes(body))}\n"


def _settled(version: int) -> str:
    return f"settled {version}\n"


def _map_lines(served: Mapping[Place, Served], hosts: Mapping[Place, Host], after: State) -> Iterator[str]:
    """How chains are served, where that is not as in *served* and *hosts*.

    `chain TABLE CHAIN NAME/SIZE/tree … once=PLACE:NAME,…`
    `host TABLE CHAIN SECTION ROW:OVERLAY:NTH:COST …`
    """
    for place, how in _changed(served, after.served):
        words = ["chain", place[0], quote(place[1])]
        for section in how.sections if how else ():
            name = "." if section.name == place[1] else section.name
            words.append(f"{name}/{section.size}/{'tree' if section.tree else 'list'}")
        if how is not None:
            words.append("once=" + ",".join(f"{at}:{name}" for at, name in how.once))
        yield " ".join(words)
    for place, host in _changed(hosts, after.hosts):
        words = ["host", place[0], quote(place[1])]
        if host is not None:
            words.append(quote(host.section))
            words += [
                f"{front.row}:{front.chain or '-'}:{'-' if front.nth is None else front.nth}:{front.cost}"
                for front in host.fronts
            ]
        yield " ".join(words)


_Value = TypeVar("_Value")


def _changed(
    before: Mapping[Place, _Value], after: Mapping[Place, _Value]
) -> Iterator[tuple[Place, _Value | None]]:
    if before is after:
        return
    for place in {**before, **after}:
        old, new = before.get(place), after.get(place)
        if old is not new and old != new:
            yield place, new


def _read_map(lines: Iterable[str], before: State | None) -> tuple[dict[Place, Served], dict[Place, Host]]:
    """What `_map_lines` said, on top of *before*."""
    served, hosts = (dict(before.served), dict(before.hosts)) if before else ({}, {})
    for said in lines:
        kind, table, chain, *words = [unquote(word) for word, _ in split(said)]
        place = table, chain
        if kind == "chain":
            served.pop(place, None)
            if words:
                served[place] = _read_served(chain, words)
        elif kind == "host":
            hosts.pop(place, None)
            if words:
                hosts[place] = Host(words[0], tuple(_read_front(word) for word in words[1:]))
        else:
            raise ValueError(f"a map line {said!r}")
    return served, hosts


def _read_front(word: str) -> Front:
    row, chain, nth, cost = word.split(":")
    return Front(int(row), "" if chain == "-" else chain, None if nth == "-" else int(nth), int(cost))


def _read_served(chain: str, words: Sequence[str]) -> Served:
    *listed, shared = words
    if not listed or not shared.startswith("once="):
        raise ValueError(f"no map of {chain}")
    sections = []
    for word in listed:
        name, size, kind = word.split("/")
        sections.append(Section(chain if name == "." else name, int(size), kind == "tree"))
    once = []
    for word in filter(None, shared[len("once=") :].split(",")):
        at, _, name = word.partition(":")
        once.append((int(at), name))
    return Served(tuple(sections), tuple(once))


def _state_text(state: State, generation: int, files: Mapping[str, str]) -> str:
    values = {each.name: _shown(getattr(state.settings, each.name)) for each in fields(Settings)}
    settings = [f"{name} {value}".rstrip() for name, value in values.items()]
    lines = [
        f"sflgen-state {FORMAT}", f"family {int(state.master.family)}", f"version {state.version}",
        f"generation {generation}", *settings,
        *(f"file {name} {_sum(_bytes(text))}" for name, text in files.items()),
    ]  # fmt: skip
    body = "\n".join([*lines, ""])
    return body + f"end {_sum(_bytes(body))}\n"


def _shown(value: object) -> str:
    return " ".join(quote(each) for each in value) if isinstance(value, tuple) else str(value)


def _read_generation(folder: Path) -> tuple[State, int]:
    path = folder / "state"
    said: dict[str, str] = {}
    sums: dict[str, str] = {}
    data = _read(path)
    first = data.split(b"\n", 1)[0].decode("utf-8", "replace").split()
    if first[:1] != ["sflgen-state"] or len(first) != 2:
        raise Damaged(f"{path} is no state of sflgen; {_whole(folder)}")
    if first[1] != str(FORMAT):
        raise HitablesError(
            f"{path} has format {first[1]}, this sflgen reads format {FORMAT}; use the sflgen that wrote it"
        )
    body, _, end = data.rpartition(b"end ")
    if end.strip().decode("ascii", "replace") != _sum(body):
        raise Damaged(f"{path} is damaged (its sum is another); {_whole(folder)}")
    for each in body.decode("utf-8", "surrogateescape").splitlines()[1:]:
        word, _, rest = each.partition(" ")
        if word == "file":
            name, total = rest.split()
            sums[name] = total
        else:
            said[word] = rest
    settings = Settings(
        backend=backend_choice(said["backend"]),
        malformed=choose(Malformed, said["malformed"]),
        delta=int(said["delta"]),
        min_length=int(said["min_length"]),
        max_expansion=float(said["max_expansion"]),
        left=tuple(unquote(word) for word, _ in split(said["left"])),
        prefix=said["prefix"],
    )
    texts: dict[str, str] = {}
    broken = []
    for name, total in sums.items():
        try:
            held = (folder / name).read_bytes()
        except OSError as error:
            broken.append(f"{name} ({error.strerror})")
            continue
        if _sum(held) != total:
            broken.append(f"{name} (its sum is another)")
        texts[name.partition(".")[0]] = held.decode("utf-8", "surrogateescape")
    if broken:
        whole = [name for name in sums if all(not each.startswith(name) for each in broken)]
        raise Damaged(f"{folder}: damaged: {', '.join(broken)}; whole: {', '.join(whole) or 'nothing'}")
    family = Family(int(said["family"]))
    master, loaded = (iptables.read(texts[name], family=family, name=name) for name in ("master", "loaded"))
    served, hosts = _read_map(texts["map"].splitlines(), None)
    state = State(settings, master, loaded, served, hosts, int(said["version"]))
    return state, int(said["generation"])


def _whole(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("master.*.rules"))
    return f"the master list is in {', '.join(names)}" if names else "no master list is there"


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HitablesError(f"{path}: {error.strerror}") from None


def _put(path: Path, text: str) -> None:
    with open(path, "wb") as file:
        file.write(_bytes(text))
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _holds_state(folder: Path) -> bool:
    try:
        return (folder / "state").exists()
    except OSError as error:
        raise HitablesError(f"{folder}: {error.strerror}") from None


def _locked(folder: Path) -> int:
    """The lock of *folder*, as an open file."""
    path = folder / "lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HitablesError(f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        os.close(handle)
        raise HitablesError(f"{folder} is in use by process {holder or '(unknown)'}; wait for it") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle

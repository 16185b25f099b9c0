"""A state kept open: commands come in, line by line, and each is answered with its patch.

    -I INPUT 1 -s 192.0.2.7 -j DROP      a command of iptables is one update
    begin … commit                       the commands between them are one patch, all or none
    fold [TABLE CHAIN]                   trees are built anew
    status

An answer is the lines of the patch, then `ok VERSION` or, if nothing was changed, `error REASON`.
With a kernel a patch is loaded before it is answered with `ok`.  Where entries cost more than new
trees, these are grown in the background (background.py); without a kernel the patch that brings
them is part of the next answer to an update.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from hitables.errors import HitablesError

from .background import Folding, Stale, cleared_away, put_aside
from .edits import CommandReader, Edit, Op
from .kernel import Kernel, loader
from .layout import Strategy
from .local_proof import prove_patch, proved_plan
from .planner import Plan, due, fold, merged
from .state import State
from .store import Store

# A kernel that cannot tell whether somebody changed its rules is read again after so many seconds.
LOOK_AGAIN = 5.0

# Updates that are planned ahead of what the kernel has, at most.
AHEAD = 16

# A socket: clients at a time (more wait until one has gone), and in bytes answers that one has not read
# before it is not read either, and what it may send without the end of a line.
CLIENTS, UNREAD, LONGEST_LINE = 200, 1 << 20, 1 << 20

Reply = Callable[[str], None]


@dataclass(slots=True)
class _Asked:
    """Lines that get one answer: once *plan* is loaded; with none, it is *said* when its turn comes."""

    lines: Sequence[str]
    reply: Reply
    plan: Plan | None
    said: str = ""


def _nobody(said: str) -> None:
    """Nobody asked for it: a piece of a fold."""


class Session:
    """One stream of commands over an open store, whose kernel (if any) holds what the state says.

    Updates are planned and proved one behind the other (`waiting`) while the kernel takes those
    before (`loading`, which a thread waits for; it alone touches the store then).  What waits when
    the kernel is ready goes to it as one patch.
    """

    def __init__(
        self,
        store: Store,
        kernel: Kernel | None,
        proving: bool = True,
        tell: Callable[[str], None] = lambda said: None,
        seen: int | None = None,
    ) -> None:
        """*seen*: the `generation` before the kernel was compared with the state; now, if left out."""
        self.store, self.kernel, self.proving, self.tell = store, kernel, proving, tell
        self.aside = kernel is not None and kernel.settings.backend == "nft"  # legacy loads all at each piece
        self.folding: Folding | None = None
        self.again = 0  # the version at which trees are grown again after that failed
        self.pieces: deque[tuple[Edit, ...]] = deque()  # that clear away, to be loaded when there is time
        self.clearing = self.aside  # old trees, or what a crash has left of new ones, may stand aside
        self.batches: dict[object, list[str]] = {}  # that were begun, by who did
        self.waiting: deque[_Asked] = deque()
        self.loading: tuple[list[_Asked], Future[None]] | None = None
        self.thread = ThreadPoolExecutor(1)
        self.ended, self.end = os.pipe()  # a byte for what was loaded
        self.events = select.epoll()
        self.events.register(self.ended, select.EPOLLIN)
        self.seen = None if kernel is None else seen if seen is not None else generation()
        self.looked = time.monotonic()

    def fileno(self) -> int:
        """What can be read when `attend` has something to do."""
        return self.events.fileno()

    def close(self) -> None:
        """Wait for what is under way; stop what is folded in the background."""
        self.thread.shutdown()
        self.drop_folding()
        if self.kernel is not None:
            self.kernel.close()
        self.events.close()
        os.close(self.ended)
        os.close(self.end)

    def answer(self, line: str) -> str:
        """What *line* is answered with; "" for one that only adds to a batch."""
        said: list[str] = []
        self.take([line], said.append)
        self.finish()
        return "".join(said)

    def take(self, lines: Iterable[str], reply: Reply, who: object = None) -> None:
        """Make what *lines* of *who*, who has a batch of its own, say so; *reply* gets the answers, in
        their order, as they come."""
        for line in lines:
            said = line.strip()
            batch = self.batches.get(who)
            if said == "begin":
                self.batches[who] = []
            elif batch is not None and said != "commit":
                batch.append(line)
            elif said.partition(" ")[0] in ("status", "fold"):
                self.finish()
                reply(self.asked(said))
            else:
                self.batches.pop(who, None)
                self.update([line] if batch is None else batch, reply)
        self.attend()

    def attend(self) -> None:
        """Answer what was loaded meanwhile, and go on; without waiting."""
        if self.loading is not None and self.loading[1].done():
            self.loaded()
        self.step()
        self.load()

    def finish(self) -> None:
        """Wait until all is answered."""
        while self.waiting or self.loading is not None:
            self.load()
            if self.loading is not None:
                self.loaded()

    def settle(self) -> None:
        """Wait until all is answered, and no tree is half built or half cleared away."""
        self.drop_folding()
        self.finish()
        while self.pieces or self.clearing:
            self.step()
            self.finish()

    # Updates.

    @property
    def head(self) -> State:
        """The state behind all that is under way."""
        planned = [each.plan for each in self.waiting if each.plan is not None]
        if not planned and self.loading is not None:
            planned = [each.plan for each in self.loading[0] if each.plan is not None]
        return planned[-1].after if planned else self.store.state

    def update(self, lines: Sequence[str], reply: Reply) -> None:
        self.attend()
        asked = _Asked(lines, reply, *self.planned(lines))
        if asked.plan is not None:
            self.watch(asked.plan)
            if self.kernel is None:  # new trees come with an answer: nobody else would be told of them
                trees = self.new_trees(asked.plan.after)
                asked.plan = merged([asked.plan, trees]) if trees is not None else asked.plan
        self.waiting.append(asked)
        self.attend()
        while self.loading is not None and (self.kernel is None or len(self.waiting) >= AHEAD):
            self.loaded()

    def planned(self, lines: Sequence[str]) -> tuple[Plan | None, str]:
        """The proved plan of *lines* behind all that is under way; or what is answered without one."""
        state = self.head
        try:
            reader = CommandReader(state.master, "stream")
            updates = [edit for number, each in enumerate(lines, 1) for edit in reader.line(each, number)]
            if self.is_building and any(edit.op is Op.REMOVE for edit in updates):
                self.settle()  # what stands aside may lead to the chain
                state = self.head
            made = proved_plan(state, updates, Strategy.GRAFT, self.proving)
        except HitablesError as error:
            return None, _error(error)
        return (made, "") if made.updates or made.edits else (None, f"ok {state.version}\n")

    def load(self) -> None:
        """Begin to load what waits, if the kernel is ready."""
        while self.waiting and self.loading is None:
            if self.waiting[0].plan is None:
                asked = self.waiting.popleft()
                asked.reply(asked.said)
                continue
            together = [self.waiting.popleft()]
            while self.waiting and _goes_with(together[0].plan, self.waiting[0].plan):
                together.append(self.waiting.popleft())
            future = self.thread.submit(self.make, merged([each.plan for each in together if each.plan]))
            self.loading = together, future
            future.add_done_callback(self.tell_end)

    def loaded(self) -> None:
        """Wait for what is under way, answer it, and load what waits."""
        assert self.loading is not None, "something is under way"
        (together, future), error = self.loading, None
        try:
            future.result()
        except HitablesError as found:
            error = found
        os.read(self.ended, 1)
        self.loading = None
        if error is not None:
            self.refused(together, error)
            return
        for each in together:
            assert each.plan is not None, "it was loaded"
            if each.reply is not _nobody:
                each.reply(f"{each.plan.text}ok {each.plan.after.version}\n")
        self.load()

    def tell_end(self, future: Future[None]) -> None:
        os.write(self.end, b".")

    def refused(self, together: Sequence[_Asked], error: HitablesError) -> None:
        """*together* cannot be loaded: what comes behind is planned anew, one at a time, and so are they
        if they are several."""
        self.drop_folding()  # it counts on the updates
        behind = [*together, *self.waiting]
        self.waiting.clear()
        if together[0].reply is _nobody:
            self.failed(self.store.state, str(error))
            self.pieces.clear()
        else:
            if any(each.reply is _nobody for each in behind):  # the pieces behind it are nothing without it
                self.pieces.clear()
                self.clearing = self.aside
            if len(together) == 1:
                behind.pop(0).reply(_error(error))
        for each in behind:
            if each.reply is _nobody:
                continue
            each.plan, each.said = self.planned(each.lines)
            self.waiting.append(each)
            self.load()
            self.finish()

    def asked(self, said: str) -> str:
        try:
            return self.told(said)
        except HitablesError as error:
            return _error(error)

    def told(self, said: str) -> str:
        state = self.store.state
        if said == "status":
            return f"{state.master.rule_count()} rules, {state.pending()} pending\nok {state.version}\n"
        _, *place = said.split()
        if len(place) not in (0, 2):
            raise HitablesError("fold takes nothing, or a table and a chain")
        self.settle()
        made = fold(state := self.store.state, [(place[0], place[1])] if place else None)
        if not made.edits:
            return f"ok {state.version}\n"
        if self.proving:
            prove_patch(made)
        self.make(made)
        return f"{made.text}ok {made.after.version}\n"

    # Folding in the background.

    @property
    def is_building(self) -> bool:
        """Whether trees are under way, or chains stand aside."""
        return self.folding is not None or bool(self.pieces) or self.clearing

    def watch(self, made: Plan) -> None:
        """Fold in the background where it pays; *made* comes behind that."""
        if not self.is_building and made.after.version >= self.again:
            places = due(made.before)
            if places:
                if self.loading is not None:
                    wait([self.loading[1]])  # the thread is idle while we fork
                try:
                    self.folding = Folding(made.before, places, self.proving, self.aside)
                except OSError as error:  # no more processes, or files
                    self.failed(made.after, str(error.strerror))
                    return
                self.events.register(self.folding.socket, select.EPOLLIN)
        if self.folding is not None:
            self.folding.note(made)

    def step(self) -> None:
        """Let the next piece of a fold wait to be loaded, behind what was asked for."""
        if self.folding is not None and self.folding.is_done():
            self.unwatch()
        if any(each.reply is _nobody for each in (*self.waiting, *(self.loading[0] if self.loading else ()))):
            return
        if self.clearing and not self.pieces:
            self.pieces += cleared_away(self.head)
            self.clearing = False
        pieces = self.pieces or (self.folding.pieces if self.folding is not None else self.pieces)
        if pieces:
            self.waiting.append(_Asked((), _nobody, put_aside(self.head, pieces.popleft())))
        elif self.kernel is not None:
            made = self.new_trees(self.head)
            if made is not None:
                self.waiting.append(_Asked((), _nobody, made))

    def new_trees(self, now: State) -> Plan | None:
        """What leads from *now* to the new trees, once they are grown."""
        if self.folding is None or not self.folding.is_done():
            return None
        try:
            made = self.folding.plan(now, self.proving)
            return made if made.edits else None
        except Stale:
            return None
        except HitablesError as error:
            self.failed(now, str(error))
            return None
        finally:
            self.drop_folding()

    def failed(self, now: State, why: str) -> None:
        """Tell it, and try again when so much waits again as makes a fold due."""
        self.tell(f"fold: {why}")
        self.again = now.version + now.settings.delta

    def drop_folding(self) -> None:
        if self.folding is not None:
            self.unwatch()
            self.folding.stop()
            self.folding = None
            self.pieces.clear()
            self.clearing = self.aside

    def unwatch(self) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            if self.folding is not None:
                self.events.unregister(self.folding.socket)

    def make(self, made: Plan) -> None:
        """Commit a plan, and bring it to the kernel."""
        kernel = self.kernel
        if kernel is None:
            self.store.commit(made)
        else:
            self.look(kernel)
            self.store.commit(made, loader(kernel, self.store, made))
            if self.seen is not None:  # whatever else was committed meanwhile is not ours
                self.seen += len({edit.table for edit in made.edits})

    def look(self, kernel: Kernel) -> None:
        """Drift if the kernel does not hold what the state says; read only when it may have changed."""
        now, doubted = time.monotonic(), kernel.doubt is not None
        kernel.resolve(self.store)
        if kernel.settings.backend == "nft":
            found = generation()
            changed = found is None or found != self.seen
        else:
            found, changed = None, now - self.looked > LOOK_AGAIN
        if changed or doubted:
            kernel.check(self.store.state)
            self.seen, self.looked = found, now


def generation() -> int | None:
    """How often nf_tables was changed in this namespace; None where that is not told."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as asked:  # NETLINK_NETFILTER
            asked.settimeout(1)
            # nlmsghdr, nfgenmsg: NFT_MSG_GETGEN of the subsystem nf_tables, NLM_F_REQUEST
            asked.send(struct.pack("=IHHIIBBH", 20, 10 << 8 | 16, 1, 1, 0, 0, 0, 0))
            told = asked.recv(4096)
    except OSError:
        return None
    at = 20
    while at + 8 <= len(told):
        size, kind = struct.unpack_from("=HH", told, at)
        if kind == 1:  # NFTA_GEN_ID
            return int(struct.unpack_from(">I", told, at + 4)[0])
        at += max(4, size + 3 & ~3)
    return None


def _error(error: HitablesError) -> str:
    return "error " + " | ".join(str(error).splitlines()) + "\n"


def _goes_with(before: Plan | None, behind: Plan | None) -> bool:
    """Whether two plans can be loaded as one: of one table, so that all is loaded or nothing."""
    if before is None or behind is None:
        return False
    if not before.updates or not behind.updates:
        return False  # a piece of a fold
    tables = {edit.table for each in (before, behind) for edit in each.edits}
    return len(tables) == 1


def over_lines(session: Session, file: TextIO, write: Reply) -> None:
    """Answer the lines of *file* until it ends or one says quit."""
    rest = b""
    for data in _chunks(session, file):
        *lines, rest = (rest + data).split(b"\n")
        quits = next((at for at, line in enumerate(lines) if line.strip() == b"quit"), None)
        session.take(map(_text, lines[:quits]), write)
        if quits is not None:
            break
    else:
        session.take([_text(rest)] if rest else [], write)
    session.finish()
    session.settle()


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _chunks(session: Session, file: TextIO) -> Iterator[bytes]:
    """What comes in, as it comes, be it half a letter; the session goes on meanwhile."""
    try:
        handle = file.fileno()
    except OSError:  # no file of the system: all of it is there
        yield file.read().encode("utf-8", "surrogateescape")
        return
    with selectors.PollSelector() as waiting:
        waiting.register(handle, selectors.EVENT_READ)
        waiting.register(session, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in waiting.select()}
            session.attend()
            if handle in ready:
                data = os.read(handle, 1 << 16)
                if not data:
                    return
                yield data


def over_socket(session: Session, path: Path, tell: Callable[[], None]) -> None:
    """Answer whoever connects to a Unix socket at *path*, many at a time, until KeyboardInterrupt;
    *tell* is called once it listens."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_socket():
            path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o077)
    try:
        listening.bind(str(path))
    except OSError as error:
        raise HitablesError(f"{path}: {error.strerror}") from None
    finally:
        os.umask(mask)
    listening.listen()
    tell()
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(session, selectors.EVENT_READ)
    clients: set[_Client] = set()
    try:
        while True:
            for key, events in waiting.select():
                if key.fileobj is session:
                    session.attend()
                elif key.fileobj is listening:
                    client = _Client(listening.accept()[0])
                    clients.add(client)
                    waiting.register(client.connection, client.wants, client)
                    if len(clients) == CLIENTS:
                        waiting.unregister(listening)
                elif events & selectors.EVENT_READ:
                    key.data.serve(session)
            for client in [*clients]:
                client.write()
                if client.wants:
                    waiting.modify(client.connection, client.wants, client)
                    continue
                waiting.unregister(client.connection)
                client.connection.close()
                clients.remove(client)
                session.batches.pop(client, None)
                if len(clients) == CLIENTS - 1:
                    waiting.register(listening, selectors.EVENT_READ)
    finally:
        path.unlink(missing_ok=True)
        listening.close()


class _Client:
    """Who has connected.  One that does not read its answers waits by itself: nobody waits for it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.rest = b""  # no whole line yet
        self.unread = bytearray()  # answers that it did not take yet
        self.leaves = False

    @property
    def wants(self) -> int:
        """The events to wait for; 0 once it is to go."""
        reads = not self.leaves and len(self.unread) < UNREAD
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if self.unread else 0)

    def serve(self, session: Session) -> None:
        """Take what it sent."""
        try:
            data = self.connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self.rest = (self.rest + data).split(b"\n")
        quits = next((at for at, line in enumerate(lines) if line.strip() == b"quit"), None)
        session.take(map(_text, lines[:quits]), self.reply, self)
        self.leaves = quits is not None or not data
        if len(self.rest) > LONGEST_LINE:
            session.finish()
            self.reply("error the line is too long\n")
            self.leaves = True
        if self.leaves:
            session.finish()

    def reply(self, said: str) -> None:
        self.unread += said.encode("utf-8", "surrogateescape")
        self.write()

    def write(self) -> None:
        """Say as much as it takes."""
        try:
            while self.unread:
                del self.unread[: self.connection.send(self.unread)]
        except BlockingIOError:
            pass
        except OSError:  # it is gone; its updates are made all the same
            self.unread.clear()
            self.leaves = True

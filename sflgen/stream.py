"""A state kept open: commands come in, line by line, and each is answered with its patch.

    -I INPUT 1 -s 192.0.2.7 -j DROP      a command of iptables is one update
    begin … commit                       the commands between them are one patch, all or none
    fold [TABLE CHAIN]                   trees are built anew
    status

An answer is the lines of the patch, then `ok VERSION` or, if nothing was changed, `error REASON`.
With a kernel a patch is loaded before it is answered with `ok`.  Where entries cost more than new
trees, these are grown in the background (background.py); without a kernel the patch that brings
them stands in front of the one of the next answer.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from hitables.errors import HitablesError

from .background import Folding, Stale
from .base import Strategy
from .live import Kernel, loader
from .local import prove_patch, proved_plan
from .patch import Plan, due, fold
from .store import Store
from .updates import CommandReader

# A kernel that cannot tell whether somebody changed its rules is read again after so many seconds.
LOOK_AGAIN = 5.0


class Session:
    """One stream of commands over an open store, whose kernel (if any) holds what the state says.

    Of lines that come together one is planned and proved while the kernel takes the patch of the one
    before (`loading`, which a thread waits for; it alone touches the store then).
    """

    def __init__(
        self, store: Store, kernel: Kernel | None, proving: bool = True,
        tell: Callable[[str], None] = lambda said: None,
    ) -> None:  # fmt: skip
        self.store, self.kernel, self.proving, self.tell = store, kernel, proving, tell
        self.folding: Folding | None = None
        self.waiting = ""  # patches of folds that nobody was told yet
        self.batch: list[str] | None = None
        self.loading: tuple[Plan, Future[None]] | None = None
        self.thread = ThreadPoolExecutor(1)
        self.seen = generation() if kernel else None
        self.looked = time.monotonic()

    def close(self) -> None:
        """Wait for what is under way; stop what is folded in the background."""
        self.thread.shutdown()
        self.drop_folding()

    def answer(self, line: str) -> str:
        """What *line* is answered with; "" for one that only adds to a batch."""
        return "".join(self.answers([line]))

    def answers(self, lines: Iterable[str]) -> Iterator[str]:
        """The answers to lines that came together, in their order."""
        for line in lines:
            said = line.strip()
            if said == "begin":
                self.batch = []
            elif self.batch is not None and said != "commit":
                self.batch.append(line)
            elif said.partition(" ")[0] in ("status", "fold"):
                yield from self.loaded()
                yield self.guarded(lambda said=said: self.asked(said))  # type: ignore[misc]
            else:
                batch, self.batch = self.batch, None
                yield from self.updated([line] if batch is None else batch)
        yield from self.loaded()

    def guarded(self, answer: Callable[[], str]) -> str:
        try:
            return answer()
        except HitablesError as error:
            return "error " + " | ".join(str(error).splitlines()) + "\n"

    def updated(self, lines: Sequence[str]) -> Iterator[str]:
        """Make the updates of *lines*; the answer comes once the kernel has them."""
        if self.folding is not None and self.folding.is_done():
            yield from self.loaded()
            self.take_over()
        before = self.loading
        made, error = self.planned(lines)
        yield from self.loaded()
        if before is not None and before[0].after is not self.store.state:
            made, error = self.planned(lines)  # what came before was refused
        if made is None:
            yield error
        elif not made.updates and not made.edits:
            yield f"ok {self.store.state.version}\n"
        else:
            self.watch(made)
            self.loading = made, self.thread.submit(self.make, made)
            if self.kernel is None:
                yield from self.loaded()

    def planned(self, lines: Sequence[str]) -> tuple[Plan | None, str]:
        """The proved plan of *lines* behind all that is under way; or an error."""
        state = self.loading[0].after if self.loading else self.store.state
        try:
            reader = CommandReader(state.master, "stream")
            updates = [edit for number, each in enumerate(lines, 1) for edit in reader.line(each, number)]
            return proved_plan(state, updates, Strategy.GRAFT, self.proving), ""
        except HitablesError as error:
            return None, "error " + " | ".join(str(error).splitlines()) + "\n"

    def loaded(self) -> Iterator[str]:
        """The answer of what is under way, once it is done."""
        if self.loading is None:
            return
        (made, future), self.loading = self.loading, None
        try:
            future.result()
        except HitablesError as error:
            self.drop_folding()  # it counts on the update
            yield "error " + " | ".join(str(error).splitlines()) + "\n"
            return
        waiting, self.waiting = self.waiting, ""
        yield f"{waiting}{made.text}ok {made.after.version}\n"

    def asked(self, said: str) -> str:
        state = self.store.state
        if said == "status":
            return f"{state.master.rule_count()} rules, {state.pending()} pending\nok {state.version}\n"
        _, *place = said.split()
        if len(place) not in (0, 2):
            raise HitablesError("fold takes nothing, or a table and a chain")
        self.drop_folding()
        made = fold(state, [(place[0], place[1])] if place else None)
        if not made.edits:
            return f"ok {state.version}\n"
        if self.proving:
            prove_patch(made)
        self.make(made)
        return f"{made.text}ok {made.after.version}\n"

    def watch(self, made: Plan) -> None:
        """Fold in the background where it pays; *made* comes behind that."""
        if self.folding is None:
            places = due(self.store.state)
            if places:
                self.folding = Folding(self.store.state, places, self.proving, self.store.handles())
        if self.folding is not None:
            self.folding.note(made)

    def take_over(self) -> None:
        """Load what was folded in the background, once it is done."""
        if self.folding is None or not self.folding.is_done():
            return
        try:
            made = self.folding.plan(self.store.state, self.proving)
            self.make(made)
            if self.kernel is None:
                self.waiting += made.text
        except Stale:
            pass
        except HitablesError as error:
            self.tell(f"fold: {error}")
        finally:
            self.drop_folding()

    def drop_folding(self) -> None:
        if self.folding is not None:
            self.folding.stop()
            self.folding = None

    def make(self, made: Plan) -> None:
        """Commit a plan, and bring it to the kernel."""
        kernel = self.kernel
        if kernel is None:
            self.store.commit(made)
        else:
            self.look(kernel)
            self.store.commit(made, loader(kernel, self.store, made))
            self.seen = generation()

    def look(self, kernel: Kernel) -> None:
        """Drift if the kernel does not hold what the state says; read only when it may have changed."""
        now = time.monotonic()
        if kernel.settings.backend == "nft":
            changed = self.seen is None or generation() != self.seen
        else:
            changed = now - self.looked > LOOK_AGAIN
        if changed:
            kernel.check(self.store.state)
            self.looked = now


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


def over_lines(session: Session, chunks: Iterable[str], write: Callable[[str], None]) -> None:
    """Answer the lines of *chunks* (what came together) until they end or one says quit."""
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split("\n")
        quits = next((at for at, line in enumerate(lines) if line.strip() == "quit"), None)
        for said in session.answers(lines[:quits]):
            write(said)
        if quits is not None:
            return
    if rest:
        for said in session.answers([rest]):
            write(said)


def chunks_of(file: TextIO) -> Iterator[str]:
    """What comes in, as it comes."""
    try:
        handle = file.fileno()
    except OSError:  # no file of the system: all of it is there
        yield file.read()
        return
    while data := os.read(handle, 1 << 16):
        yield data.decode("utf-8", "surrogateescape")


def over_socket(session: Session, path: Path, tell: Callable[[], None]) -> None:
    """Answer whoever connects to a Unix socket at *path*, many at a time, until KeyboardInterrupt;
    *tell* is called once it listens.

    A batch is one for all of them: who says `begin` should say `commit` before others speak.
    """
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
    buffers: dict[socket.socket, bytes] = {}
    try:
        while True:
            for key, _ in waiting.select():
                if key.fileobj is listening:
                    client, _ = listening.accept()
                    waiting.register(client, selectors.EVENT_READ)
                    buffers[client] = b""
                    continue
                client = key.fileobj  # type: ignore[assignment]
                if not _serve(session, client, buffers):
                    waiting.unregister(client)
                    client.close()
                    del buffers[client]
    finally:
        path.unlink(missing_ok=True)
        listening.close()


def _serve(session: Session, client: socket.socket, buffers: dict[socket.socket, bytes]) -> bool:
    """Answer what *client* sent; False once it is gone or says quit."""
    try:
        data = client.recv(1 << 16)
        if not data:
            return False
        *lines, buffers[client] = (buffers[client] + data).split(b"\n")
        quits = next((at for at, line in enumerate(lines) if line.strip() == b"quit"), None)
        for said in session.answers([line.decode("utf-8", "surrogateescape") for line in lines[:quits]]):
            client.sendall(said.encode("utf-8", "surrogateescape"))
        if quits is not None:
            return False
    except ConnectionError:
        return False
    return True

"""Patches taken to the kernel by iptables-restore: one process for each, or one that stays.

Starting the tool takes several times as long as a patch of a few lines.  That of nft commits at each
`COMMIT` that it reads, and with `--verbose` repeats comments, so a comment behind a patch comes back
once the kernel has all of it.  At what the kernel refuses the tool ends with its words, and a new one
is started for the next patch.  When we are killed, what has come to it whole is committed, the rest is
not, and it ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence

from hitables.errors import LiveError

# Seconds after which a tool that has not repeated a comment is one that repeats none.
PATIENCE = 5.0

_LINE = re.compile(r"\bline:? \d+")


def once(
    command: Sequence[str], patch: str, meanwhile: Callable[[], None], handles: Sequence[int]
) -> str | None:
    """Take a patch to the kernel, and call *meanwhile* while it is under way; why it was refused.

    The tool's process holds the open files *handles*.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(patch.encode("utf-8", "surrogateescape"))
            file.seek(0)
        except OSError as error:
            raise LiveError(f"{tempfile.gettempdir()}: {error.strerror}") from error
        try:
            # A session of its own: Ctrl-C is for us, and ends no patch between two tables.
            tool = subprocess.Popen(
                command,
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=handles,
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(command, error) from error
        with tool:
            meanwhile()
            said = tool.communicate()[0].decode("utf-8", "replace").strip()
    return f"exit status {tool.returncode}: {said or 'no message'}" if tool.returncode else None


def _not_started(command: Sequence[str], error: OSError) -> LiveError:
    if isinstance(error, FileNotFoundError):
        return LiveError(f"{command[0]}: no such command; install it, or put it on the PATH")
    return LiveError(f"{command[0]}: {error.strerror}")


class Silent(LiveError):
    """The tool does not repeat comments, so nobody knows when it has done a patch."""


class Restore:
    """The tool of *command*, started when it is needed; its process holds the open files *handles*."""

    def __init__(self, command: Sequence[str], handles: Sequence[int]) -> None:
        self.command, self.handles = [*command, "--verbose"], tuple(handles)
        self._tool: subprocess.Popen[bytes] | None = None
        self._number = itertools.count()
        self._lines = 0  # that this process has read
        self._rest = b""

    def load(self, patch: str, meanwhile: Callable[[], None]) -> str | None:
        """As `once`."""
        said, done = self.run(patch, meanwhile)
        return None if done else said

    def run(self, text: str, meanwhile: Callable[[], None] = lambda: None) -> tuple[str, bool]:
        """What the tool says to *text*, and whether it has done all of it."""
        data = text.encode("utf-8", "surrogateescape")
        if self._tool is None or self._tool.poll() is not None:
            self._start()
        mark = self._tell(data)
        meanwhile()
        said, done = self._hear(mark, None)
        if not done:
            shown = _LINE.sub(lambda at: self._own(at.group()), said.strip())
            return f"exit status {self._end()}: {shown or 'no message'}", False
        self._lines += data.count(b"\n") + 1
        return said, True

    def close(self) -> None:
        """Wait until it has ended, which it does when it has read all."""
        self._end()

    def _start(self) -> None:
        self._end()
        try:
            # A session of its own: Ctrl-C is for us, and ends no patch that is under way.
            self._tool = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=self.handles,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(self.command, error) from error
        assert self._tool.stdin is not None
        os.set_blocking(self._tool.stdin.fileno(), False)
        self._lines, self._rest = 1, b""
        try:
            said, done = self._hear(self._tell(b""), PATIENCE)
        except TimeoutError:
            self._tool.kill()  # it was told nothing yet, and may not even end with its input
            self._end()
            raise Silent(f"{self.command[0]} repeats no comments") from None
        if not done:
            raise Silent(f"{' '.join(self.command)}: exit status {self._end()}: {said.strip()}")

    def _tell(self, data: bytes) -> bytes:
        """Write *data* and a comment; the comment.

        A tool that warns of each rule is read meanwhile, or it would wait for us as we for it.
        """
        assert self._tool is not None and self._tool.stdin is not None and self._tool.stdout is not None
        mark = b"# sflgen %d\n" % next(self._number)
        left = memoryview(data + mark)
        to, out = self._tool.stdin.fileno(), self._tool.stdout.fileno()
        with selectors.PollSelector() as waiting, contextlib.suppress(BrokenPipeError):
            waiting.register(to, selectors.EVENT_WRITE)
            waiting.register(out, selectors.EVENT_READ)
            while left:
                ready = {key.fd for key, _ in waiting.select()}
                if out in ready:
                    said = os.read(out, 1 << 16)
                    if not said:
                        break
                    self._rest += said
                if to in ready:
                    left = left[os.write(to, left) :]
        return mark  # where the tool has ended, what it said is read next

    def _hear(self, mark: bytes, patience: float | None) -> tuple[str, bool]:
        """What the tool says until *mark* comes back; or until it ends instead."""
        assert self._tool is not None and self._tool.stdout is not None
        handle = self._tool.stdout.fileno()
        until = None if patience is None else time.monotonic() + patience
        while mark not in self._rest:
            if until is not None:
                with selectors.DefaultSelector() as waiting:
                    waiting.register(handle, selectors.EVENT_READ)
                    if not waiting.select(max(0.0, until - time.monotonic())):
                        raise TimeoutError
            data = os.read(handle, 1 << 16)
            if not data:
                return self._rest.decode("utf-8", "surrogateescape"), False
            self._rest += data
        said, _, self._rest = self._rest.partition(mark)
        return said.decode("utf-8", "surrogateescape"), True

    def _own(self, said: str) -> str:
        """`line 325` of all that the tool has read as a line of the last patch."""
        words, _, number = said.rpartition(" ")
        return f"{words} {int(number) - self._lines}" if int(number) > self._lines else said

    def _end(self) -> int:
        """Let the tool come to its end; its exit status."""
        tool, self._tool = self._tool, None
        if tool is None:
            return 0
        assert tool.stdin is not None and tool.stdout is not None
        tool.stdin.close()
        tool.stdout.close()
        return tool.wait()

"""Patches loaded by iptables-restore: one process for each patch, or one that stays.

Starting the tool takes several times as long as loading a patch of a few lines.  The nft tool commits at
each `COMMIT` that it reads, and with `--verbose` prints comments again, so a comment behind a patch is
printed when the kernel has all of the patch.  If the kernel refuses a patch, the tool exits with its
message, and a new one is started for the next patch.  If this process is killed, the tool commits every
complete transaction that it has read, and exits.

The tool resolves the numbers of rules when it reads `COMMIT`.  So that word is held back until the tool has
read the rest of the table, and the caller has looked at the kernel once more.
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
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from hitables.errors import LiveError
from hitables.kernel.namespace import start_error

# Seconds after which a tool that has not printed a comment again is taken for one that prints none.
PATIENCE = 5.0

_COMMIT = "\nCOMMIT\n"
_LINE = re.compile(r"\bline:? \d+")


def once(
    command: Sequence[str],
    patch: str,
    meanwhile: Callable[[], None],
    handles: Sequence[int],
    environment: Mapping[str, str] | None = None,
    added: Sequence[int] = (),
) -> tuple[str, bool]:
    """Load a patch with a process of its own, and call *meanwhile* while it runs.

    Returns the output and True, or the reason of a refusal, in which the lines *added* of the patch, from 1,
    do not count, and False.  The process inherits the open files *handles*.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(patch.encode("utf-8", "surrogateescape"))
            file.seek(0)
        except OSError as error:
            raise LiveError(f"{tempfile.gettempdir()}: {error.strerror}") from error
        try:
            # A session of its own, so that Ctrl-C does not end it between two tables of a patch.
            tool = subprocess.Popen(
                command,
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=handles,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        except OSError as error:
            raise start_error(command[0], error) from error
        with tool:
            meanwhile()
            output = tool.communicate()[0].decode("utf-8", "replace").strip()
    if not tool.returncode:
        return output, True
    message = _message(output, 0, added)
    return f"exit status {tool.returncode}: {message or 'no message'}", False


def _message(output: str, before: int, added: Sequence[int]) -> str:
    """The complaint in *output*, without the rules that lines *added* have listed."""
    listed = ("-A ", "-P ", "-N ")
    lines = [line for line in output.strip().splitlines() if not (added and line.startswith(listed))]
    return _LINE.sub(lambda phrase: _renumbered(phrase.group(), before, added), "\n".join(lines))


def _renumbered(phrase: str, before: int, added: Sequence[int]) -> str:
    """`line 325` of a text as a line of its patch: behind *before* lines, and without those *added*."""
    words, _, digits = phrase.rpartition(" ")
    number = int(digits) - before
    return f"{words} {number - bisect_right(added, number)}" if number > 0 else phrase


class Outdated(LiveError):
    """The kernel's rules may have changed since the patch was made; nothing of it is loaded."""


class Silent(LiveError):
    """The tool does not print comments again, so it is unknown when it has loaded a patch."""


class Restore:
    """The tool *command*, started when it is needed; its process inherits the open files *handles*."""

    def __init__(self, command: Sequence[str], handles: Sequence[int]) -> None:
        self.command, self.handles = [*command, "--verbose"], tuple(handles)
        self._tool: subprocess.Popen[bytes] | None = None
        self._number = itertools.count()
        self._lines = 0  # that this process has read
        self._added: Sequence[int] = ()  # the numbers of lines that the text has and the patch has not
        self._unread = b""  # output behind the last comment

    def load(
        self,
        patch: str,
        meanwhile: Callable[[], None],
        may: Callable[[], bool] = lambda: True,
        added: Sequence[int] = (),
    ) -> tuple[str, bool]:
        """Load a patch, as `once` does.

        Outdated, and nothing is loaded, unless *may* agrees when the tool has read the first table.
        """
        head, commit, rest = patch.partition(_COMMIT)
        if not commit:
            return self.run(patch, meanwhile)
        lines = head.count("\n") + 1
        try:
            self._added = [each for each in added if each <= lines]
            output, is_done = self.run(head + "\n")
            if not is_done:
                return output, False
            try:
                if not may():
                    raise Outdated("the rules of the kernel have changed")
            except BaseException:
                self._end()  # without COMMIT the tool loads nothing
                raise
            self._lines -= lines + 1
            # The comment behind the first table is a line, too.
            self._added = sorted([lines + 1, *(each + (each > lines) for each in added)])
            more, is_done = self.run(commit[1:] + rest, meanwhile)
            self._lines += lines + 1
            return (output + more if is_done else more), is_done
        finally:
            self._added = ()

    def run(self, text: str, meanwhile: Callable[[], None] = lambda: None) -> tuple[str, bool]:
        """The output of the tool for *text*, and whether it has executed all of it."""
        data = text.encode("utf-8", "surrogateescape")
        if self._tool is None or self._tool.poll() is not None:
            self._start()
        mark = self._write(data)
        meanwhile()
        output, is_done = self._read_until(mark, None)
        if not is_done:
            message = _message(output, self._lines, self._added)
            return f"exit status {self._end()}: {message or 'no message'}", False
        self._lines += data.count(b"\n") + 1
        return output, True

    def close(self) -> None:
        """Wait until the tool exits, which it does when it has read all of its input."""
        self._end()

    def _start(self) -> None:
        self._end()
        try:
            # A session of its own, so that Ctrl-C does not end it during a patch.
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
            raise start_error(self.command[0], error) from error
        assert self._tool.stdin is not None
        os.set_blocking(self._tool.stdin.fileno(), False)
        self._lines, self._unread = 1, b""
        try:
            output, is_done = self._read_until(self._write(b""), PATIENCE)
        except TimeoutError:
            self._tool.kill()  # it has no patch yet, and may not even exit at the end of its input
            self._end()
            raise Silent(f"{self.command[0]} repeats no comments") from None
        if not is_done:
            raise Silent(f"{' '.join(self.command)}: exit status {self._end()}: {output.strip()}")

    def _write(self, data: bytes) -> bytes:
        """Write *data* and a comment; the comment.

        Output is read meanwhile: a tool that warns of each rule would wait for us as we wait for it.
        """
        assert self._tool is not None and self._tool.stdin is not None and self._tool.stdout is not None
        mark = b"# sflgen %d\n" % next(self._number)
        unwritten = memoryview(data + mark)
        stdin, stdout = self._tool.stdin.fileno(), self._tool.stdout.fileno()
        with selectors.PollSelector() as selector, contextlib.suppress(BrokenPipeError):
            selector.register(stdin, selectors.EVENT_WRITE)
            selector.register(stdout, selectors.EVENT_READ)
            while unwritten:
                ready = {key.fd for key, _ in selector.select()}
                if stdout in ready:
                    output = os.read(stdout, 1 << 16)
                    if not output:
                        break
                    self._unread += output
                if stdin in ready:
                    unwritten = unwritten[os.write(stdin, unwritten) :]
        return mark  # if the tool has exited, its message is read next

    def _read_until(self, mark: bytes, patience: float | None) -> tuple[str, bool]:
        """The output before *mark*, and True; or all output, and False, if the tool exits instead."""
        assert self._tool is not None and self._tool.stdout is not None
        handle = self._tool.stdout.fileno()
        deadline = None if patience is None else time.monotonic() + patience
        while mark not in self._unread:
            if deadline is not None:
                with selectors.DefaultSelector() as selector:
                    selector.register(handle, selectors.EVENT_READ)
                    if not selector.select(max(0.0, deadline - time.monotonic())):
                        raise TimeoutError
            data = os.read(handle, 1 << 16)
            if not data:
                return self._unread.decode("utf-8", "surrogateescape"), False
            self._unread += data
        output, _, self._unread = self._unread.partition(mark)
        return output.decode("utf-8", "surrogateescape"), True

    def _end(self) -> int:
        """Close the tool's input and wait for it; its exit status."""
        tool, self._tool = self._tool, None
        if tool is None:
            return 0
        assert tool.stdin is not None and tool.stdout is not None
        tool.stdin.close()
        tool.stdout.close()
        return tool.wait()

"""Commands in processes of their own that need not import what they run: each is forked from one that has.

What a command does from its arguments to the end of its process is real: its standard files, status, exit.
Not tried here, but in processes that are started: what is imported when, what Python makes of standard files that
are closed when it starts, and how it clears its modules when it ends.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO

# Ends a forked command: what was written is flushed and what is registered is called, as at the end of any program.
# Then Python would clear all modules, whose pages the fork would copy: two thirds of the time of a short command.
# Where a flush fails, and for a status that is no number, Python decides.
LEAVE = """
def leave(command):
    import atexit, threading
    try:
        command()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        threading._shutdown()
        atexit._run_exitfuncs()
        try:
            for each in (sys.stdout, sys.stderr):
                if each is not None:
                    each.flush()
        except (OSError, ValueError):
            raise end from None
        os._exit((end.code or 0) & 0xFF)
"""
# Runs the Python code of its second argument, then waits for commands, and forks for each.  One without a standard
# file, or with a device for its output, leaves this program as any other ends.
SERVER = f"""{LEAVE}
import gc, json, os, socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
exec(sys.argv[2])
gc.freeze()
while True:
    data, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    if not data:
        os._exit(0)
    pid = os.fork()
    if not pid:
        break
    for each in files:
        os.close(each)
    _, status = os.waitpid(pid, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
connection.close()
for number, each in enumerate(files):
    os.dup2(each, number)
    os.close(each)
asked = json.loads(data)
for number in asked["closed"]:  # Python, when it starts, has None for a standard file that is closed
    os.close(number)
    for name in (("stdin", "__stdin__"), ("stdout", "__stdout__"), ("stderr", "__stderr__"))[number]:
        setattr(sys, name, None)
os.environ.clear()
os.environ.update(asked["environment"])
os.chdir(asked["folder"])
if asked["uid"]:
    os.setgroups([])
    os.setgid(asked["uid"])
    os.setuid(asked["uid"])
sys.argv = asked["command"]
import hitables.start
command = getattr(hitables.start, asked["command"][0])
if asked["plain"]:
    leave(command)
command()
"""
NEEDED = (
    "hitables.cli.main", "hitables.compare", "hitables.compiler.pipeline", "hitables.costs.stats", "hitables.api",
    "hitables.report.check", "hitables.report.lint", "hitables.report.diff", "hitables.report.formats",
    "hitables.report.stats", "hitables.verify.portfolio", "hitables.simulate.sampling", "hitables.verify.bdd",
    "hitables.verify.lint", "hitables.verify.diff", "rich.table", "sflgen.cli", "sflgen.kernel", "sflgen.session",
    "hitables.start", "hitables.report.firewall", "hitables.analyse.compiled_text", "numpy.random", "base64",
    "importlib.metadata", "oxidd.bcdd",
)  # fmt: skip
# How many packets a classifier is timed with, and for how long: how fast it is is not what is tried.
TIMED, SECONDS = 20_000, 0.02
TIME_SHORTLY = f"""
import hitables.engine.run
hitables.engine.run.TIMED, hitables.engine.run.SECONDS = {TIMED}, {SECONDS}
"""
IMPORT_NEEDED = f"import {', '.join(NEEDED)}{TIME_SHORTLY}"


@functools.cache
def _server(caller: int, preload: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """For the process *caller*, which may be in a network namespace of its own; ends when it does: nothing
    else holds the other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", SERVER, str(theirs.fileno()), preload]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()
    atexit.register(_end, caller, ours, process)
    return ours, process


def _end(caller: int, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """End the server, if this is *caller* and not a fork of it."""
    if os.getpid() == caller:
        connection.close()
        process.kill()
        process.wait()


def run(
    command: Sequence[str],
    text: str = "",
    folder: str | None = None,
    output: str = "",
    closed: Sequence[int] = (),
    uid: int = 0,
    preload: str = IMPORT_NEEDED,
) -> subprocess.CompletedProcess[str]:
    """Run `hitables ...` or `sflgen ...` with *text* as its input; as subprocess.run with pipes would.

    *output* is a device that standard output goes to, such as /dev/full; nothing of it is read.  *closed*: the
    standard files that the command does not have.  *uid*: the user who runs it; 0: who calls this.  *preload*:
    Python code that imports what the command needs; it runs once, before the command is forked.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as err,
        open(output, "wb") if output else tempfile.TemporaryFile() as out,
    ):
        given.write(text.encode("utf-8", "surrogateescape"))
        given.seek(0)
        asked = {
            "command": list(command),
            "folder": folder or os.getcwd(),
            "environment": dict(os.environ),
            "closed": list(closed),
            "plain": not closed and not output,
            "uid": uid,
        }
        server, _ = _server(os.getpid(), preload)
        socket.send_fds(server, [json.dumps(asked).encode()], [given.fileno(), out.fileno(), err.fileno()])
        status = server.recv(100)
        assert status, "the process that forks has ended"
        printed = "" if output else read_again(out)
        return subprocess.CompletedProcess(list(command), int(status), printed, read_again(err))


def read_again(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "surrogateescape")

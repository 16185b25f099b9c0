"""Scripts `hitables` and `sflgen` for the PATH of other programs: each asks a server to fork the command.

The command has the files, folder, environment and network namespace of its caller, and its exit status is that of
the script, which starts in a tenth of the time of the command.  What becomes of a command that is killed is not
tried with them: signals end the script alone.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from support.forked import LEAVE, NEEDED, TIME_SHORTLY, read_again

SERVER = f"""{LEAVE}
import gc, importlib, marshal, os, select, signal, socket, sys
listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listening.bind(sys.argv[1])
listening.listen(100)
for name in sys.argv[2:]:
    importlib.import_module(name)
# What is set up on this host (ufw, firewalld) is no matter of the tests.
import hitables.apply.neighbours, pathlib
hitables.apply.neighbours.ETC = hitables.apply.neighbours.PROC = pathlib.Path("/nonexistent")
{TIME_SHORTLY}
gc.collect()
gc.freeze()
print("ready", flush=True)
running = {{}}  # by pidfd of each command: its process number, and the connection of who asked for it
while True:
    ready = select.select([listening, 0, *running], [], [])[0]
    if 0 in ready:
        os._exit(0)
    for pidfd in running.keys() & ready:
        pid, connection = running.pop(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            connection.sendall(str(status if status >= 0 else 128 - status).encode())
        except OSError:
            pass  # who asked has been killed
        connection.close()
        os.close(pidfd)
    if listening not in ready:
        continue
    connection = listening.accept()[0]
    data, files, _, _ = socket.recv_fds(connection, 1 << 20, 200)
    if not data:
        continue
    pid = os.fork()
    if not pid:
        break
    for each in files:  # who reads the command's output waits until all have closed it
        os.close(each)
    running[os.pidfd_open(pid)] = pid, connection
for pidfd, (_, other) in running.items():
    os.close(pidfd)
    other.close()
listening.close()
connection.close()
# A child must not enter a namespace with threads of its parent; this program has none.
import ctypes, fcntl
libc = ctypes.CDLL(None, use_errno=True)
is_there = os.path.samestat(os.fstat(files[0]), os.stat("/proc/self/ns/net"))  # only root enters another
if not is_there and libc.setns(files[0], 0x40000000):
    sys.exit("cannot enter the network namespace")
name, words, folder, environment, mask, numbers = marshal.loads(data)
high = [fcntl.fcntl(each, fcntl.F_DUPFD, 300) for each in files]
for each in files:
    os.close(each)
os.close(high[0])
for each, number in zip(high[1:], numbers, strict=True):
    os.dup2(each, number)
    os.close(each)
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
os.umask(mask)
sys.argv = [name, *words]
import hitables.start
leave(getattr(hitables.start, name))
"""
CLIENT = """#!{python} -IS
import _socket, marshal, os, sys
mask = os.umask(0)
os.umask(mask)
numbers = [0, 1, 2]  # and those of <(...)
for each in map(int, os.listdir("/proc/self/fd")):
    try:
        if each > 2 and os.get_inheritable(each):
            numbers.append(each)
    except OSError:
        pass  # of the listing
asked = marshal.dumps(({name!r}, sys.argv[1:], os.getcwd(), dict(os.environ), mask, numbers))
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
server.connect({path!r})
files = [os.open("/proc/self/ns/net", os.O_RDONLY), *numbers]
rights = b"".join(each.to_bytes(4, sys.byteorder) for each in files)
server.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
os._exit(int(server.recv(16) or b"1"))
"""
FOLDER = "HITABLES_TEST_COMMANDS"  # the variable of the environment that names the folder of the scripts
ended = contextlib.ExitStack()


@functools.cache
def folder() -> str:
    """The folder of the scripts; the server ends with the process that has called this first.

    One server serves that process and the namespaces that it makes later, which inherit its environment.
    """
    if FOLDER in os.environ:
        return os.environ[FOLDER]
    path = ended.enter_context(tempfile.TemporaryDirectory(prefix="hitables-commands-"))
    command = [sys.executable, "-c", SERVER, f"{path}/socket", *NEEDED]
    server = ended.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    )
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    for name in ("hitables", "sflgen"):
        script = Path(path, name)
        script.write_text(CLIENT.format(python=sys.executable, name=name, path=f"{path}/socket"))
        script.chmod(0o755)
    os.environ[FOLDER] = path
    return path


def run(program: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in the namespace of the caller; a namespace made after `folder` was called uses its server."""
    mask = os.umask(0)
    os.umask(mask)
    asked = program, words, os.getcwd(), dict(os.environ), mask, [0, 1, 2]
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        open("/proc/self/ns/net", "rb") as namespace,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server,
    ):
        given.write(text.encode("utf-8", "surrogateescape"))
        given.seek(0)
        server.connect(f"{folder()}/socket")
        files = [each.fileno() for each in (namespace, given, out, err)]
        socket.send_fds(server, [marshal.dumps(asked)], files)
        status = int(server.recv(16) or b"1")
        return subprocess.CompletedProcess([program, *words], status, read_again(out), read_again(err))

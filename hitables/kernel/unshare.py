"""A new network namespace for the process that calls.

Root enters it at once.  Without CAP_SYS_ADMIN, which containers and hardened services lack, and for other
users, the process first creates a user namespace, in which it is root.
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000


def enter_network_namespace() -> None:
    """Move this process, which has one thread, to a new network namespace.  OSError if it may not."""
    user, group = os.getuid(), os.getgid()
    if user == 0:
        try:
            _unshare(CLONE_NEWNET)
            return
        except PermissionError:
            pass
        if _enter_with_all_users():
            return
    else:
        _unshare(CLONE_NEWUSER | CLONE_NEWNET)
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)


def _unshare(flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _enter_with_all_users() -> bool:
    """Create a user namespace with all users and groups of the present one; whether it has them.

    Rules of `-m owner` name them.  Only a process that is not in the namespace may map more than one.
    """
    process = os.getpid()
    begin, is_entered = os.pipe()
    writer = os.fork()
    if not writer:
        os.close(is_entered)
        status = 1
        try:
            if os.read(begin, 1):
                for name in ("uid_map", "gid_map"):
                    _map_all(name, process)
                status = 0
        except OSError:
            pass
        finally:
            os._exit(status)
    os.close(begin)
    try:
        _unshare(CLONE_NEWUSER | CLONE_NEWNET)
        os.write(is_entered, b"1")
    finally:
        os.close(is_entered)
        _, status = os.waitpid(writer, 0)
    return status == 0


def _map_all(name: str, process: int) -> None:
    """Give the user namespace of *process* the users, or groups, of this one, by the same numbers."""
    with open(f"/proc/self/{name}") as file:
        ranges = [line.split() for line in file]
    with open(f"/proc/{process}/{name}", "w") as file:
        file.write("".join(f"{first} {first} {count}\n" for first, _, count in ranges))

"""The network namespace of a process: rules belong to one, and a state directory is a file of all of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..errors import LiveError
from .records import Waiting

PROC = Path("/proc")


def network_namespace(process: str = "self") -> str:
    """The kernel's name for the namespace of *process*, device and inode; "": it is not known."""
    with contextlib.suppress(OSError):
        found = os.stat(PROC / process / "ns/net")
        return f"{found.st_dev}:{found.st_ino}"
    return ""


def check_namespace(waiting: Waiting, command: str) -> None:
    """LiveError if the rules that wait are in another namespace than this process, which calls *command*.

    A namespace that has ended took its rules with it, as that of a container which was started again: then
    the state is what there is to go by.
    """
    here = network_namespace()
    if waiting.namespace in ("", here) or not here or not _exists(waiting.namespace):
        return
    raise LiveError(
        f"rule set {waiting.number} waits in another network namespace, whose rules are not those of this "
        f"one; nothing is changed: call hitables {command} in the namespace of hitables apply, for instance "
        "by ip netns exec"
    )


def _exists(namespace: str) -> bool:
    """Whether a process that is visible here is in *namespace*, or a name is mounted on it."""
    root = f" net:[{namespace.partition(':')[2]}] "
    with contextlib.suppress(OSError):
        if root in (PROC / "self/mountinfo").read_text(errors="replace"):
            return True
    return any(name.isdecimal() and network_namespace(name) == namespace for name in os.listdir(PROC))

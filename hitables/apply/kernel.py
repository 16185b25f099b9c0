"""The tables of this network namespace, read and loaded with the tools of one backend.

Reading here is for rules that are about to be replaced, and for counters.  Rules that become a source are
read by `kernel.checked_save`, which does not trust the tools.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from ..kernel.checked_save import backend_of
from ..kernel.contents_legacy import table_names
from ..kernel.legacy_lock import can_be_held_for, legacy_lock, under_lock
from ..kernel.namespace import run, start_error
from . import texts
from .texts import Tables


class Kernel:
    """The rules of one family.  *backend* None: that of the tool called iptables."""

    def __init__(self, family: Family, backend: Backend | None = None, handles: Sequence[int] = ()) -> None:
        """*handles*: open files, such as a lock, that a tool holds while it loads rules."""
        self.family, self.handles = family, tuple(handles)
        self.backend = backend or backend_of(f"{family.tool}-save")
        self.tool = f"{family.tool}-{self.backend.value}"
        if backend is None:
            self.tool = family.tool  # hosts may have no other name of it

    @property
    def takes_lock(self) -> bool:
        """Whether a lock keeps other programs from changing rules between a reading and a load."""
        return self.backend is Backend.LEGACY and can_be_held_for(f"{self.tool}-restore")

    @property
    def resets_policies(self) -> bool:
        """Whether a change of a table sets the counters of its policies to zero."""
        return self.backend is Backend.LEGACY

    @property
    def zeroes_counters(self) -> bool:
        """Whether the tool loads rules with counters of zero, whatever its text has (docs/kernel.md, 11)."""
        return self.backend is Backend.NFT and self.family is Family.IPV6

    def read(self) -> Tables:
        """The tables that exist, with counters."""
        if self.backend is Backend.LEGACY and not table_names(self.family):
            return {}  # the tool would create table filter
        with legacy_lock(self.backend is Backend.LEGACY):
            saved = run([f"{self.tool}-save", "-c"])
        return texts.parse(saved)

    def load(self, text: str) -> None:
        """Load *text* without flushing tables; LiveError with the message of the tool.

        A table takes effect as a whole.  The tool has a session of its own and the handles of this process,
        so it ends its work if this process is killed, and keeps the lock until then.
        """
        if not text:
            return
        command = [f"{self.tool}-restore", "--noflush", "--counters"]
        if self.backend is Backend.LEGACY:
            command += ["-w", "30"]  # seconds for which another tool may hold the lock
            with legacy_lock():
                pass  # here a long wait is told, and the tool would wait silently
        try:
            with under_lock() as environment, tempfile.TemporaryFile() as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                file.seek(0)
                tool = subprocess.run(
                    command,
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[handle for handle in self.handles if handle >= 0],
                    start_new_session=True,
                    check=False,
                    env={**os.environ, "LC_ALL": "C", **environment},
                )
        except OSError as error:
            raise start_error(command[0], error) from error
        if tool.returncode:
            message = tool.stdout.decode("utf-8", "replace").strip() or "no message"
            missing = re.search(r"Set (\S+) doesn't exist", message)
            if missing:
                message += f"\nCreate the ipset {missing[1]} first (ipset create), then try again"
            raise LiveError(f"{' '.join(command)}: exit status {tool.returncode}: {message}")

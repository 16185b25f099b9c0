"""The command of the shell that starts the script of the boot.

It closes the host with commands of its own if the script does not end as it should: if it is missing, cut
off, killed, or cannot load anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..ir.fields import Family
from ..ir.packet import Backend
from .boot_script import LOADED, OPEN_ENOUGH, SshAccess, closed_rules, search_path


def script_word(folder: Path) -> str:
    """The script in the state directory *folder*, as a word of the shell."""
    return shlex.quote(str(folder / "boot" / "load"))


def start_command(
    folder: Path, backends: Mapping[Family, Backend], access: SshAccess, *, words: str = ""
) -> str:
    """The command of the shell that runs the script in the state directory *folder*, with *words*.

    Exit status 0: rules of the user are loaded; 1: the host is closed but for ssh.
    """
    good = "|".join(map(str, OPEN_ENOUGH))
    closed = "|".join(str(each) for each in LOADED if each not in OPEN_ENOUGH)
    return (
        f"export PATH={shlex.quote(search_path(backends.values()))}; "
        f"/bin/sh {script_word(folder)}{words}; case $? in {good}) exit 0;; {closed}) exit 1;; esac; "
        f'echo "hitables: the script of the boot has failed; the host is closed but for ssh" >&2; '
        f"{'; '.join(_closing_commands(backends, access))}; exit 1"
    )


def _closing_commands(backends: Mapping[Family, Backend], access: SshAccess) -> Sequence[str]:
    """Commands that need no file, for both families: one that is confirmed later is closed too."""
    usual = next(iter(backends.values()), Backend.NFT)
    commands = []
    for family in Family:
        backend = backends.get(family, usual)
        tool = f"{tool_of(family, backend)}{' -w 30' if backend is Backend.LEGACY else ''}"
        commands += [f"{tool} -P {chain} DROP" for chain in ("INPUT", "FORWARD")]
        commands += [f"{tool} -I INPUT {rule}" for rule in closed_rules(family, access, with_state=True)]
    return commands


def tool_of(family: Family, backend: Backend) -> str:
    """The iptables of *family* and *backend*: iptables-nft."""
    return f"{family.tool}-{backend.value}"

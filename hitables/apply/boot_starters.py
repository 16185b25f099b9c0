"""What starts the script of the boot: a unit of systemd, a plugin of netfilter-persistent, or a script of
/etc/init.d.

Each is a file with `start_command` (boot_command.py) in it.
"""

from __future__ import annotations

import os
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..errors import HitablesError
from ..files import read_text, trouble, write_text
from ..ir.fields import Family
from ..ir.packet import Backend
from ..kernel.namespace import run
from .boot_command import script_word, start_command, tool_of
from .boot_script import SshAccess, search_path
from .guard import SYSTEMD

UNIT_FOLDER = Path("/etc/systemd/system")
PLUGIN_FOLDER = Path("/usr/share/netfilter-persistent/plugins.d")
INIT_FOLDER = Path("/etc/init.d")

# The services behind After, if they exist, would flush these rules or replace them if they started later.
# ufw fills the chains that it finds (boot_texts.py).
_UNIT = """\
# Written by "hitables persist"; "hitables persist --remove" removes it.
[Unit]
Description=Firewall of hitables
DefaultDependencies=no
After=local-fs.target systemd-modules-load.service
After=nftables.service netfilter-persistent.service iptables.service ip6tables.service ipset.service
Wants=network-pre.target
Before=ufw.service network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=5min
ExecStart=/bin/sh -c {command}

[Install]
WantedBy=sysinit.target
"""

_PLUGIN = """\
#!/bin/sh
# Written by "hitables persist --netfilter-persistent"; "hitables persist --remove" removes it.
case ${{1-}} in
    start | restart | reload | force-reload)
        # iptables-persistent has just put the rules of its files in place of those of the kernel.
        again=
        if {replaced}; then
            again=--again
        fi
        {command}
        ;;
    save)
        echo "hitables: what was confirmed last is saved already"
        ;;
    flush | stop)
        # The plugins of iptables-persistent, if there are any, have removed all rules.
        PATH={path}
        for tool in {tools}; do
            if "$tool-save" 2>/dev/null | grep -q -e "^-A " -e "^:[A-Z]* DROP "; then
                echo "hitables: $tool: the rules stay; iptables-restore replaces them"
            else
                echo "hitables: $tool: all rules are gone, and everything is let in until the next start"
            fi
        done
        ;;
    *)
        echo "Usage: $0 {{start|restart|reload|force-reload|save|flush}}" >&2
        exit 1
        ;;
esac
"""

# The order of the services is that of the unit.  A service that is needed and missing, as localmount is in
# Debian, would keep this one from starting.
_OPENRC = """\
#!{interpreter}
# Written by "hitables persist --init-script"; "hitables persist --remove" removes it.
description="Loads the rules that were confirmed last in hitables"

depend() {{
    use localmount
    after mountall modules bootmisc nftables iptables ip6tables ipset netfilter-persistent
    before net ufw
    provide firewall
}}

start() {{
    ebegin "Loading the rules of hitables"
    ({command})
    eend $?
}}

stop() {{
    einfo "The rules stay as they are"
}}
"""

_WRITER = b'Written by "hitables persist'

# netfilter-persistent starts behind the network here, so this script cannot start behind it.
_SYSVINIT = """\
#!/bin/sh
### BEGIN INIT INFO
# Provides:          hitables
# Required-Start:    mountkernfs $local_fs
# Required-Stop:
# Should-Start:      kmod procps
# X-Start-Before:    networking ufw
# Default-Start:     S
# Default-Stop:
# Short-Description: Firewall of hitables
# Description:       Loads the rules that were confirmed last in hitables.
### END INIT INFO
# Written by "hitables persist --init-script"; "hitables persist --remove" removes it.
case ${{1-}} in
    start | restart | reload | force-reload)
        {command}
        ;;
    stop)
        echo "hitables: the rules stay as they are"
        ;;
    *)
        echo "Usage: $0 {{start|stop|restart|reload|force-reload}}" >&2
        exit 1
        ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Starter(ABC):
    """What starts the script of the boot.

    folder   where its file goes; the init system learns of it only in the folder that the system has for it
    """

    folder: Path
    name: ClassVar[str]
    mode: ClassVar[int]

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @abstractmethod
    def text(self, folder: Path, backends: Mapping[Family, Backend], access: SshAccess) -> str:
        """The file, for the state directory *folder*."""

    def check(self) -> None:  # noqa: B027
        """HitablesError if this host has not what `write` needs."""

    def enable(self) -> None:  # noqa: B027  # most init systems look into their folder
        """Have each boot start it."""

    def disable(self) -> None:  # noqa: B027
        """Have no boot start it any more; its file is still there.

        Without the tool for that, no boot does.
        """

    def write(self, folder: Path, backends: Mapping[Family, Backend], access: SshAccess) -> None:
        """Write the file, which root runs, and enable it.  `check` has found nothing missing.

        Whatever the umask, all users may read the file, and only root may write it.
        """
        text = self.text(folder, backends, access)
        before = os.umask(0o022)
        try:
            write_text(str(self.path), text)
            os.chmod(self.path, self.mode)
        finally:
            os.umask(before)
        self.enable()

    def is_there(self) -> bool:
        return self.path.is_file()

    def calls(self, folder: Path) -> bool:
        """Whether the file, which is there, starts the script of the state directory *folder*."""
        return self._quoted(script_word(folder)) in read_text(str(self.path))

    def _quoted(self, command: str) -> str:
        """A part of a shell command as the file has it."""
        return command

    def remove(self) -> None:
        """Remove the file."""
        try:
            self.path.unlink()
        except OSError as error:
            raise trouble(str(self.path), error) from None


@dataclass(frozen=True, slots=True)
class SystemdUnit(Starter):
    """A unit of systemd."""

    folder: Path = UNIT_FOLDER
    name: ClassVar = "hitables.service"
    mode: ClassVar = 0o644

    def text(self, folder: Path, backends: Mapping[Family, Backend], access: SshAccess) -> str:
        command = self._quoted(start_command(folder, backends, access))
        return _UNIT.format(command=f'"{command}"')

    def _quoted(self, command: str) -> str:
        return command.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")

    def check(self) -> None:
        if self.folder == UNIT_FOLDER and shutil.which("systemctl") is None:
            raise HitablesError(
                "systemctl: no such command; hitables persist --init-script is for OpenRC and sysvinit, and "
                "hitables persist --netfilter-persistent needs neither"
            )

    def enable(self) -> None:
        if self.folder == UNIT_FOLDER:
            _systemctl("enable")

    def disable(self) -> None:
        if self.folder == UNIT_FOLDER and shutil.which("systemctl") is not None:
            _systemctl("disable")


def _systemctl(verb: str) -> None:
    """Enable or disable the unit, also in an image whose systemd does not run."""
    if SYSTEMD.is_dir():
        run(["systemctl", "daemon-reload"])
    run(["systemctl", verb, SystemdUnit.name])


@dataclass(frozen=True, slots=True)
class NetfilterPlugin(Starter):
    """A plugin of netfilter-persistent.

    rules_folder   where iptables-persistent, whose plugins run first, has its rules
    """

    folder: Path = PLUGIN_FOLDER
    rules_folder: Path = Path("/etc/iptables")
    name: ClassVar = "30-hitables"  # after 15-ip4tables and 25-ip6tables, whose rules it replaces
    mode: ClassVar = 0o755

    def iptables_persistent(self) -> list[tuple[Path, Path]]:
        """The plugins of iptables-persistent, each with the file that it loads if both are there."""
        names = {"15-ip4tables": "rules.v4", "25-ip6tables": "rules.v6"}
        return [(self.folder / plugin, self.rules_folder / rules) for plugin, rules in names.items()]

    def text(self, folder: Path, backends: Mapping[Family, Backend], access: SshAccess) -> str:
        replaced = [
            f"{{ [ -e {shlex.quote(str(plugin))} ] && [ -e {shlex.quote(str(rules))} ]; }}"
            for plugin, rules in self.iptables_persistent()
        ]
        return _PLUGIN.format(
            replaced=" || ".join(replaced),
            command=start_command(folder, backends, access, words=" $again"),
            path=shlex.quote(search_path(backends.values())),
            tools=" ".join(tool_of(family, backend) for family, backend in backends.items()),
        )

    def check(self) -> None:
        if not self.folder.is_dir():
            raise HitablesError(f"{self.folder}: no such folder; install netfilter-persistent")


@dataclass(frozen=True, slots=True)
class InitScript(Starter):
    """A script of /etc/init.d: for OpenRC where it is installed, else for sysvinit."""

    folder: Path = INIT_FOLDER
    name: ClassVar = "hitables"
    mode: ClassVar = 0o755

    def text(self, folder: Path, backends: Mapping[Family, Backend], access: SshAccess) -> str:
        command = start_command(folder, backends, access)
        if (interpreter := _program("openrc-run")) is None:
            return _SYSVINIT.format(command=command)
        return _OPENRC.format(interpreter=interpreter, command=command)

    def is_there(self) -> bool:
        """Any file may have this name, so its text decides."""
        return super(InitScript, self).is_there() and _WRITER in self.path.read_bytes()

    def check(self) -> None:
        if self.folder == INIT_FOLDER and _program("rc-update") is None and _program("update-rc.d") is None:
            raise HitablesError(
                "rc-update, update-rc.d: no such command, so this host has neither OpenRC nor sysvinit; "
                "hitables persist without --init-script is for systemd"
            )

    def enable(self) -> None:
        if self.folder == INIT_FOLDER:
            _tell_init(["rc-update", "add", self.name, "boot"], ["update-rc.d", self.name, "defaults"])

    def disable(self) -> None:
        if self.folder == INIT_FOLDER:
            _tell_init(["rc-update", "del", self.name, "boot"], ["update-rc.d", "-f", self.name, "remove"])


def _tell_init(openrc: Sequence[str], sysvinit: Sequence[str]) -> None:
    """Run the first of the commands that the host has."""
    for name, *words in (openrc, sysvinit):
        if (program := _program(name)) is not None:
            run([program, *words])
            return


def _program(name: str) -> str | None:
    """The path of a program for root, whose folder the PATH of a user may lack; None if there is none."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")

"""What starts the script of the boot: a unit of systemd, or a plugin of netfilter-persistent.

Both close the host with commands of their own if the script does not end as it should: if it is missing, cut
off, killed, or cannot load anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..ir.fields import Family
from ..ir.packet import Backend
from .boot_script import LOADED, OPEN_ENOUGH, Access, closed_rules, search_path

UNIT = "hitables.service"
PLUGIN = "30-hitables"  # after 15-ip4tables and 25-ip6tables, whose rules it replaces
UNIT_FOLDER = Path("/etc/systemd/system")
PLUGIN_FOLDER = Path("/usr/share/netfilter-persistent/plugins.d")

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
        {command}
        ;;
    save)
        echo "hitables: what was confirmed last is saved already"
        ;;
    flush | stop)
        echo "hitables: the rules stay; iptables-restore replaces them"
        ;;
    *)
        echo "Usage: $0 {{start|restart|reload|force-reload|save|flush}}" >&2
        exit 1
        ;;
esac
"""


def start_command(folder: Path, backends: Mapping[Family, Backend], access: Access) -> str:
    """The command of the shell that runs the script in the state directory *folder*.

    Exit status 0: rules of the user are loaded; 1: the host is closed but for ssh.
    """
    load = shlex.quote(str(folder / "boot" / "load"))
    good = "|".join(map(str, OPEN_ENOUGH))
    closed = "|".join(str(each) for each in LOADED if each not in OPEN_ENOUGH)
    return (
        f"export PATH={shlex.quote(search_path(backends.values()))}; "
        f"/bin/sh {load}; case $? in {good}) exit 0;; {closed}) exit 1;; esac; "
        f'echo "hitables: the script of the boot has failed; the host is closed but for ssh" >&2; '
        f"{'; '.join(_closing_commands(backends, access))}; exit 1"
    )


def _closing_commands(backends: Mapping[Family, Backend], access: Access) -> Sequence[str]:
    """Commands that need no file, for both families: one that is confirmed later is closed too."""
    usual = next(iter(backends.values()), Backend.NFT)
    commands = []
    for family in Family:
        name = "iptables" if family is Family.IPV4 else "ip6tables"
        backend = backends.get(family, usual)
        tool = f"{name}-{backend.value}{' -w 30' if backend is Backend.LEGACY else ''}"
        commands += [f"{tool} -P {chain} DROP" for chain in ("INPUT", "FORWARD")]
        commands += [f"{tool} -I INPUT {rule}" for rule in closed_rules(family, access, with_state=True)]
    return commands


def unit_text(command: str) -> str:
    """The unit of systemd that runs *command* in a shell."""
    quoted = command.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return _UNIT.format(command=f'"{quoted}"')


def plugin_text(command: str) -> str:
    return _PLUGIN.format(command=command)

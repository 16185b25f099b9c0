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
from .boot_script import LOADED, OPEN_ENOUGH, SshAccess, closed_rules, search_path

UNIT = "hitables.service"
PLUGIN = "30-hitables"  # after 15-ip4tables and 25-ip6tables, whose rules it replaces
RULES_FOLDER = Path("/etc/iptables")  # of iptables-persistent
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


def iptables_persistent(plugin_folder: Path, rules_folder: Path) -> list[tuple[Path, Path]]:
    """The plugins of iptables-persistent, each with the file that it loads if both are there."""
    names = {"15-ip4tables": "rules.v4", "25-ip6tables": "rules.v6"}
    return [(plugin_folder / plugin, rules_folder / rules) for plugin, rules in names.items()]


def start_command(
    folder: Path, backends: Mapping[Family, Backend], access: SshAccess, *, words: str = ""
) -> str:
    """The command of the shell that runs the script in the state directory *folder*, with *words*.

    Exit status 0: rules of the user are loaded; 1: the host is closed but for ssh.
    """
    load = shlex.quote(str(folder / "boot" / "load"))
    good = "|".join(map(str, OPEN_ENOUGH))
    closed = "|".join(str(each) for each in LOADED if each not in OPEN_ENOUGH)
    return (
        f"export PATH={shlex.quote(search_path(backends.values()))}; "
        f"/bin/sh {load}{words}; case $? in {good}) exit 0;; {closed}) exit 1;; esac; "
        f'echo "hitables: the script of the boot has failed; the host is closed but for ssh" >&2; '
        f"{'; '.join(_closing_commands(backends, access))}; exit 1"
    )


def _closing_commands(backends: Mapping[Family, Backend], access: SshAccess) -> Sequence[str]:
    """Commands that need no file, for both families: one that is confirmed later is closed too."""
    usual = next(iter(backends.values()), Backend.NFT)
    commands = []
    for family in Family:
        backend = backends.get(family, usual)
        tool = f"{_tool(family, backend)}{' -w 30' if backend is Backend.LEGACY else ''}"
        commands += [f"{tool} -P {chain} DROP" for chain in ("INPUT", "FORWARD")]
        commands += [f"{tool} -I INPUT {rule}" for rule in closed_rules(family, access, with_state=True)]
    return commands


def _tool(family: Family, backend: Backend) -> str:
    return f"{family.tool}-{backend.value}"


def unit_text(command: str) -> str:
    """The unit of systemd that runs *command* in a shell."""
    quoted = command.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return _UNIT.format(command=f'"{quoted}"')


def plugin_text(
    folder: Path, backends: Mapping[Family, Backend], access: SshAccess, others: Sequence[tuple[Path, Path]]
) -> str:
    """The plugin of netfilter-persistent; *others*: what `iptables_persistent` names."""
    replaced = [
        f"{{ [ -e {shlex.quote(str(plugin))} ] && [ -e {shlex.quote(str(rules))} ]; }}"
        for plugin, rules in others
    ]
    return _PLUGIN.format(
        replaced=" || ".join(replaced),
        command=start_command(folder, backends, access, words=" $again"),
        path=shlex.quote(search_path(backends.values())),
        tools=" ".join(_tool(family, backend) for family, backend in backends.items()),
    )

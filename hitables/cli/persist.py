"""`hitables persist`: the firewall at boot."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import HitablesError
from .help import command, option, section
from .options import state_option
from .values import WholeNumber


@command(
    short_help="Load the confirmed rules at every boot.",
    examples=(
        ("Load the confirmed rules before the network is up", "hitables persist"),
        (
            "Let ssh in from one network only if no rules can be loaded",
            "hitables persist --ssh 2222 --ssh-from 192.0.2.0/24",
        ),
    ),
)
@section(
    "Last resort",
    option(
        "--ssh",
        "ports",
        metavar="PORT",
        type=WholeNumber(1, 65535),
        multiple=True,
        help="If nothing else can be loaded, let in ssh to this port; by default to those of sshd. May be "
        "repeated.",
    ),
    option(
        "--ssh-from",
        "sources",
        metavar="ADDRESS",
        multiple=True,
        help="Let it in from this address or network only; may be repeated.",
    ),
)
@section(
    "Start",
    option(
        "--netfilter-persistent",
        "plugin",
        is_flag=True,
        help="Write a plugin of netfilter-persistent, and no unit of systemd.",
    ),
    option(
        "--init-script",
        is_flag=True,
        help="Write a script of /etc/init.d, for OpenRC or sysvinit, and no unit of systemd.",
    ),
    option(
        "--unit-folder",
        metavar="DIR",
        help="Write the unit, or the script of --init-script, to this folder, and do not enable it.",
    ),
    option("--plugin-folder", metavar="DIR", hidden=True),
    option("--remove", is_flag=True, help="Load nothing at boot any more; the rules of the kernel stay."),
)
@section("State", state_option)
def persist(
    ports: tuple[int, ...],
    sources: tuple[str, ...],
    plugin: bool,
    init_script: bool,
    unit_folder: str | None,
    plugin_folder: str | None,
    remove: bool,
    folder: str,
) -> None:
    """Write what loads the confirmed rules at every boot, before the network is up, and try it.

    Each later confirmation renews it, so it is called once; call it again to save the members of ipsets. A
    boot loads the first of these that is whole and that the kernel takes: the compiled rules, their source,
    the rules that were confirmed before, and rules that let in nothing but ssh.
    """
    from ..apply import persist as boot
    from ..apply.boot_script import SshAccess
    from ..apply.boot_starters import InitScript, NetfilterPlugin, Starter, SystemdUnit

    if plugin and init_script:
        raise HitablesError("give one of --netfilter-persistent and --init-script")
    if plugin and unit_folder is not None:
        raise HitablesError("--netfilter-persistent writes no unit, so --unit-folder does not go with it")
    access = None
    if ports or sources:
        access = SshAccess(ports or boot.ssh_ports(), sources)
    netfilter = NetfilterPlugin(*[Path(each) for each in (plugin_folder,) if each is not None])
    given = [Path(each) for each in (unit_folder,) if each is not None]
    if remove:
        # systemctl looks at scripts of /etc/init.d that have the name of a unit, so the unit goes last.
        starters = InitScript(*given), netfilter, SystemdUnit(*given)
        gone = boot.remove(folder, starters, lambda message: click.echo(message, err=True))
        click.echo("".join(f"removed {path}\n" for path in gone) + "boots load nothing from here any more")
        return
    starter: Starter = netfilter if plugin else InitScript(*given) if init_script else SystemdUnit(*given)
    request = boot.PersistRequest(folder, access, starter, netfilter)
    click.echo(boot.show(boot.persist(request, lambda message: click.echo(message, err=True))))

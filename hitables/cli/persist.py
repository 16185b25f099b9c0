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
        "--unit-folder",
        metavar="DIR",
        help="Write the unit to this folder, and do not enable it; by default /etc/systemd/system.",
    ),
    option("--plugin-folder", metavar="DIR", hidden=True),
    option("--remove", is_flag=True, help="Load nothing at boot any more; the rules of the kernel stay."),
)
@section("State", state_option)
def persist(
    ports: tuple[int, ...],
    sources: tuple[str, ...],
    plugin: bool,
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
    from ..apply.boot_unit import PLUGIN_FOLDER, UNIT_FOLDER

    if plugin and unit_folder is not None:
        raise HitablesError("--netfilter-persistent writes no unit, so --unit-folder does not go with it")
    access = None
    if ports or sources:
        access = SshAccess(ports or boot.ssh_ports(), sources)
    plugins = Path(plugin_folder) if plugin_folder is not None else PLUGIN_FOLDER
    request = boot.PersistRequest(
        folder,
        access,
        None if plugin and not remove else Path(unit_folder) if unit_folder is not None else UNIT_FOLDER,
        plugins if plugin or remove else None,
    )
    if remove:
        gone = boot.remove(request)
        click.echo("".join(f"removed {path}\n" for path in gone) + "boots load nothing from here any more")
        return
    click.echo(boot.show(boot.persist(request, lambda message: click.echo(message, err=True))))

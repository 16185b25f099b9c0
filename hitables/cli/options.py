"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence

import click

from .help import Decorator, option, section
from .values import Number, Size

# The help of every --backend ends with this hint.
FIND_BACKEND = '"iptables -V" prints yours.'

family_option = option(
    "--family",
    type=click.Choice(["4", "6"]),
    help="Read the rules as IPv4 or IPv6; by default this is guessed from the text and its name.",
)


def backend_option(
    help: str, choices: Sequence[str] = ("any", "legacy", "nft"), default: str = "any"
) -> Decorator:
    """--backend: which variant of iptables a command takes rules for; *help* is completed by FIND_BACKEND."""
    return option(
        "--backend",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help=f"{help} {FIND_BACKEND}",
    )


def output_option(help: str) -> Decorator:
    """-o, with standard output as the default."""
    return option("-o", "--output", default="-", metavar="FILE", help=f'{help}; "-": standard output.')


def timeout_option(help: str) -> Decorator:
    return option("--timeout", type=Number(0, min_open=True), metavar="SECONDS", help=help)


def max_memory_option(help: str) -> Decorator:
    return option("--max-memory", type=Size(), metavar="SIZE", help=f"{help} (512M, 2G).")


def costs_option(help: str = 'Model times with this profile of "hitables calibrate".') -> Decorator:
    return option("--costs", "costs_file", metavar="FILE", help=help)


# For commands that print a table or its data as JSON; `is_json` reads these options.
data_options = section(
    "Output",
    option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Print a table (text), or its data.",
    ),
    option("--json", "as_json", is_flag=True, hidden=True),
)


def is_json(form: str, as_json: bool) -> bool:
    """Whether --format json was given, or --json, its old spelling."""
    return as_json or form == "json"


leave_option = option(
    "--leave",
    metavar="PATTERN",
    multiple=True,
    help="Leave chains of this name to the program that manages them (DOCKER*, f2b-*), or those of docker, "
    "fail2ban, kube, calico, cilium, flannel, cni, podman, libvirt, proxmox, ufw, firewalld, "
    "networkmanager, crowdsec, miniupnpd, sshguard, tailscale, psad, fwknop, sshuttle, "
    "neutron, opensnitch, ocserv; may be repeated.",
)

state_option = option(
    "--state",
    "folder",
    default="/var/lib/hitables",
    show_default=True,
    envvar="HITABLES_STATE",
    metavar="DIR",
    help="Use the state in this directory ($HITABLES_STATE).",
)

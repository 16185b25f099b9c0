"""The command `sflgen`: arguments in, patches and an exit status out.

Exit status 0: done; 1: `verify` or `status --live` found a difference, or `repair --dry-run` would change
something; 2: an error, after which neither state nor kernel has the change, unless the message says that
this is unknown; 130: interrupted.  Patches go to standard output (--emit, the default) or to the kernel
(--live), messages to standard error.  A command imports what it needs when it runs, so that `sflgen --help`
is quick.
"""

from __future__ import annotations

import click

import hitables
from hitables.cli.terminal import Commands

from .hot import hot
from .repair import repair
from .serve import stream
from .state import init, print_, status, verify
from .updates import apply_commands, delete, fold, insert, sync

SECTIONS = {
    "State": ("init", "status", "print", "verify"),
    "Updates": ("insert", "delete", "apply-commands", "sync", "fold", "hot", "repair"),
    "Server": ("stream",),
}


@click.group(
    name="sflgen",
    cls=Commands,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        (
            "Compile the rules of this host, and keep their state",
            "sflgen init --live --backend nft --state /var/lib/sflgen",
        ),
        (
            "Block an address in the kernel",
            "sflgen insert --live --state /var/lib/sflgen INPUT 1 -s 192.0.2.7 -j DROP",
        ),
    ),
)
@click.version_option(hitables.__version__, prog_name="sflgen")
def main() -> None:
    """Update compiled iptables rule sets by small patches.

    A state directory holds your rule list and the compiled rule set that is loaded for it. Every
    update changes both, and produces the patch that brings a kernel from one rule set to the next.
    """


for each in (init, status, print_, verify, insert, delete, apply_commands, sync, fold, hot, repair, stream):
    main.add_command(each)

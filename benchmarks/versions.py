"""What another version of iptables makes of the same rules: python -m benchmarks.versions ROOT [--only WORD]

ROOT is the root folder of another distribution (`debootstrap --include=iptables trixie ROOT`).  Each spelling
of each option (spellings.py), and rules drawn near them, are loaded in a scratch namespace with the iptables
of this machine and with that of ROOT, in both backends, each rule by itself.  A rule is printed where one of
the two refuses it, or where the kernel then holds other bytes.  The order of the tests in an nft rule does
not count, nor whether the protocol of IPv4 is read as `meta l4proto` or out of the header.

The exit status is 0: a difference is a fact about iptables, for docs/kernel.md, and no fault.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator

import click

from benchmarks.rule_bytes import read_entries
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.contents_nft import expressions_of
from hitables.kernel.load_save import load
from hitables.kernel.namespace import Namespace

from . import command_line
from .saves import furnished
from .spellings import SECTIONS, Section

PREFIX = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
# The expressions that load the protocol of IPv4: `meta l4proto`, and 1 byte at 9 of the network header.
_META = bytes.fromhex("24000100090001006d657461000000001400020008000200000000100800010000000001")
_HEADER = bytes.fromhex(
    "340001000c0001007061796c6f616400240002000800010000000001080002000000000108000300000000090800040000000001"
)


def held(family: Family, backend: Backend, table: str) -> list[object]:
    """What the kernel of this namespace holds of the rules of *table*."""
    if backend is Backend.LEGACY:
        return list(read_entries(table, family))
    rules = expressions_of(family, table)
    return [sorted(_META if one == _HEADER else one for one in rule) for rule in rules]


def load_with(
    root: str, section: Section, rule: str, kind: tuple[Family, Backend], within: Namespace
) -> object:
    """What the kernel holds of a rule that the iptables of *root* loaded, or the first line of its error."""
    family, backend = kind
    tool = f"{PREFIX[family]}-{backend.value}-restore"
    try:
        within.run(["chroot", root, "env", "-u", "XTABLES_LOCKFILE", tool], section.text([rule]))
    except LiveError as error:
        return str(error).partition(f"{tool}: ")[2].partition("\n")[0] or str(error)
    return within.call(held, family, backend, section.table)


def differences(
    section: Section, kind: tuple[Family, Backend], drawn: int, root: str, within: Namespace
) -> Iterator[tuple[str, str]]:
    """The rules of a section of which the iptables of *root* makes something else, and what that is."""
    rng = random.Random(f"{section.begin} {kind[0]}")
    rules = dict.fromkeys([*(rule for _, rule in section.rules()), *section.drawn(rng, drawn)])
    for rule in rules:
        here, there = (load_with(each, section, rule, kind, within) for each in ("/", root))
        if here == there or (isinstance(here, str) and isinstance(there, str)):
            continue
        if isinstance(here, str):
            yield rule, f"refused here: {here}"
        elif isinstance(there, str):
            yield rule, f"refused there: {there}"
        else:
            yield rule, "the kernel holds something else"
    load(f"*{section.table}\nCOMMIT\n", *kind, within)


@click.command()
@click.argument("root", type=click.Path(exists=True, file_okay=False, resolve_path=True))
@click.option("--only", default="", help="Only extensions whose name holds this.")
@click.option("-n", "--drawn", default=25, show_default=True, help="Rules drawn near each section.")
def main(root: str, only: str, drawn: int) -> None:
    """Load every spelling of every option with the iptables of ROOT, too."""
    for folder in ("/", root):
        command = ["chroot", folder, "iptables", "--version"]
        click.echo(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    count = 0
    for family in Family:
        for backend in Backend:
            with furnished(family, backend) as namespace:
                for section in SECTIONS:
                    if family not in section.families or only not in section.begin:
                        continue
                    for rule, what in differences(section, (family, backend), drawn, root, namespace):
                        click.echo(f"IPv{int(family)} {backend.value}: {rule}: {what}")
                        count += 1
    click.echo(f"{count} rules are loaded otherwise")


if __name__ == "__main__":
    command_line.run(main)

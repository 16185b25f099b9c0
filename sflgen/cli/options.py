"""Options that several commands have, and checks of their input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hitables.cli.help import Command, option, section
from hitables.errors import Unsupported

if TYPE_CHECKING:
    from hitables.ir.program import Program

    from ..kernel import Kernel


def _folder(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """The directory of --state.  click would call a required option so in its help, variable or not."""
    if not value:
        raise click.MissingParameter("Give it, or set SFLGEN_STATE.", ctx, param)
    return value


state_section = section(
    "State",
    option(
        "--state",
        "folder",
        callback=_folder,
        envvar="SFLGEN_STATE",
        metavar="DIR",
        help="Use the state in this directory; required unless $SFLGEN_STATE names one.",
    ),
)

live_option = option(
    "--live/--emit",
    default=False,
    show_default=True,
    help="Load the patch into this kernel, or print it for iptables-restore --noflush; both change the "
    "state.",
)

no_prove_option = option("--no-prove", is_flag=True, help="Skip the proof of the patch.")

strategy_option = option(
    "--strategy",
    type=click.Choice(["overlay", "graft", "fold"]),
    help="Put all changes in front of trees (overlay), put them in leaves where possible (graft), or rebuild "
    "trees at once (fold); by default use the cheapest.",
)

patch_section = section("Patch", live_option, strategy_option, no_prove_option)

table_section = section(
    "Rule set",
    option("-t", "--table", metavar="TABLE", default="filter", show_default=True, help="Change this table."),
)

# The rule is passed on as it is, and may hold options that click does not know.
RULE = {"ignore_unknown_options": True, "allow_interspersed_args": True}
# In the place of --state of the match `state`, which is an option of the command, too.
_STATE_OF_RULE = "--state-of-rule"


class RuleCommand(Command):
    """A command whose arguments are a rule: --state behind `-m state` belongs to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        latest = ""
        words = []
        for at, word in enumerate(args):
            if at and args[at - 1] in ("-m", "--match"):
                latest = word
            words.append(_STATE_OF_RULE if word == "--state" and latest == "state" else word)
            latest = "" if words[-1] == _STATE_OF_RULE else latest
        return super().parse_args(ctx, words)


def words_of(rule: Sequence[str]) -> list[str]:
    """The words of a rule as they were given."""
    return ["--state" if word == _STATE_OF_RULE else word for word in rule]


def warn(kernel: Kernel) -> None:
    """Warn, before a kernel is read, of tables that are not read."""
    for warning in kernel.warnings():
        click.echo(f"sflgen: {warning}", err=True)


def check_complete(master: Program) -> None:
    """Unsupported if the master list is compiled: its rules would be copies, or some would be missing."""
    from hitables.analyse.compiled_text import refuse_compiled
    from hitables.compiler.pipeline import lacks_rules

    if lacks_rules(master):
        raise Unsupported(
            f"{master.name}: was compiled with --equivalence verdict, so it lacks rules that you may want to "
            "change; give the rule set that it was compiled from"
        )
    refuse_compiled(master, master.name)

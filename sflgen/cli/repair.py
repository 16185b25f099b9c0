"""`sflgen repair`: after other programs have changed the kernel's rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hitables.cli.help import command, option, section
from hitables.cli.terminal import Differ

from .options import no_prove_option, state_section, warn

if TYPE_CHECKING:
    from ..kernel import Kernel
    from ..repair import Foreign
    from ..state import State
    from ..store import Store


@command(
    short_help="Take changes of other programs into the rule list, or back.",
    examples=(
        ("Show what others have changed, and what --take would make of it",
         "sflgen repair --take --dry-run --state /var/lib/sflgen"),
        ("Load the rule set of the state again", "sflgen repair --undo --state /var/lib/sflgen"),
    ),
)  # fmt: skip
@state_section
@section(
    "Repair",
    option(
        "--take/--undo",
        "takes",
        default=None,
        help="Make the changes in the rule list too, or load the rule set of the state again.",
    ),
    option("-n", "--dry-run", is_flag=True, help="Say what would change, and change nothing."),
    no_prove_option,
)
def repair(folder: str, takes: bool | None, dry_run: bool, no_prove: bool) -> None:
    """Repair a kernel that does not hold the rule set of the state.

    With --take, a rule that was inserted or deleted by iptables is inserted into the rule list, or deleted
    from it, and the kernel gets the rule set that is compiled for the new list. A change inside of a tree
    can only be taken back. Exit status 0: the kernel holds the rule set of the state now; 1: --dry-run, and
    something would change; 2: an error, after which neither state nor kernel has the change, unless the
    message says that this is unknown. Changes that were found before other programs made new ones may be
    taken then.
    """
    from ..kernel import REPAIRS, Drift, Kernel
    from ..repair import TRIES, find
    from ..store import Store

    with Store.open(Path(folder)) as store:
        kernel = Kernel(store.state.master.family, store.state.settings)
        warn(kernel)
        foreign = find(kernel, _settled(kernel, store, dry_run))
        if not foreign.differences:
            click.echo("the kernel holds the rule set of the state; nothing is changed")
            return
        _tell(foreign)
        if takes is not False and kernel.advice != REPAIRS:
            click.echo(kernel.advice)
        if takes is None and dry_run:
            click.echo("--take or --undo repairs this; each with --dry-run shows how")
            raise Differ
        if takes is None:
            raise click.UsageError("choose --take or --undo; --dry-run shows what each would do")
        repair_kernel = _take if takes else _undo
        left = TRIES
        while foreign.differences:
            try:
                repair_kernel(kernel, store, foreign, dry_run, no_prove)
                return
            except Drift:
                left -= 1
                foreign = find(kernel, store.state)
                # Flushed meanwhile: the user has not asked to take that.
                if not left or (takes and kernel.advice != REPAIRS):
                    raise
            click.echo("other programs have changed rules meanwhile:")
            _tell(foreign)


def _tell(foreign: Foreign) -> None:
    """Print the first differences."""
    for difference in foreign.differences[:10]:
        click.echo(difference)
    if len(foreign.differences) > 10:
        click.echo(f"… and {len(foreign.differences) - 10} more")


def _settled(kernel: Kernel, store: Store, dry_run: bool) -> State:
    """The state to go on from.  If a command was killed before the kernel had its patch, and other programs
    changed rules besides, it is that which the kernel resembles most; with *dry_run* that is not recorded.
    """
    before = store.unsettled
    if before is None:
        return store.state
    after = kernel.may_hold(store.state)
    is_undone = after is None or (after and len(kernel.differences(before)) < len(after))
    if dry_run:
        return before if is_undone else store.state
    if is_undone:
        store.undo()
    else:
        store.settle()
    return store.state


def _undo(kernel: Kernel, store: Store, foreign: Foreign, dry_run: bool, no_prove: bool) -> None:
    from ..repair import undo, undo_text

    del no_prove  # nothing new is loaded
    if dry_run:
        click.echo(undo_text(foreign), nl=False)
        raise Differ
    undo(kernel, store, foreign)
    click.echo("the kernel holds the rule set of the state again")


def _take(kernel: Kernel, store: Store, foreign: Foreign, dry_run: bool, no_prove: bool) -> None:
    from ..proof import planner
    from ..repair import shown, take, updates_of
    from ..settings import Strategy

    updates = updates_of(foreign)
    click.echo("changes of the rule list:")
    for each in shown(updates):
        click.echo(f"  {each}")
    if dry_run:
        raise Differ
    # A new tree would begin with counters of zero.
    plan = planner(not no_prove)(store.state, updates, Strategy.GRAFT)
    take(kernel, store, foreign, plan)
    click.echo(f"taken: the rule list has {len(updates)} changes; the state has version {plan.after.version}")

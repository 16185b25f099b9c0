"""`sflgen insert`, `delete`, `apply-commands`, `sync` and `fold`: commands that commit one plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hitables.cli.help import command, section
from hitables.errors import HitablesError

from .options import (
    RULE,
    RuleCommand,
    check_complete,
    live_option,
    no_prove_option,
    patch_section,
    state_section,
    table_section,
    warn,
    words_of,
)

if TYPE_CHECKING:
    from ..edits import Edit
    from ..planner import Plan
    from ..settings import Strategy
    from ..store import Store


@contextmanager
def open_store(folder: str, live: bool) -> Iterator[tuple[Store, Callable[[Plan], None], list[Edit]]]:
    """The open state, a function that commits a plan, and the edits of other programs that were taken.

    The plan is loaded into the kernel, which must hold the rule set of the state; or it is printed.
    """
    from hitables.files import write_text

    from ..commit import finish_commit, loader
    from ..kernel import Kernel
    from ..repair import check
    from ..store import Store

    with Store.open(Path(folder)) as store:
        kernel = Kernel(store.state.master.family, store.state.settings)
        taken: list[Edit] = []
        if live:
            warn(kernel)
            finish_commit(store, kernel)
            check(kernel, store, lambda message: click.echo(message, err=True), taken)

        def commit(plan: Plan) -> None:
            if live:
                store.commit(plan, loader(kernel, store, plan))
            else:
                store.commit(plan, show=lambda text: write_text("-", text))
            for table, chain, strategy in plan.chosen:
                click.echo(f"{table} {chain}: {strategy.value}", err=True)
            if not live:
                click.echo(_what_changed(folder, plan), err=True)

        yield store, commit, taken


def _what_changed(folder: str, plan: Plan) -> str:
    """What a command without --live has changed, and what is left to do."""
    version = f"changed: the state in {folder}, to version {plan.after.version}"
    if not plan.edits:
        return f"{version}; the kernel needs no patch"
    backend = plan.after.settings.backend
    tool = plan.after.master.family.tool + ("" if backend == "any" else f"-{backend}")
    return f"{version}; not changed: the kernel, until {tool}-restore --noflush loads this patch"


def _strategy(word: str | None) -> Strategy | None:
    from ..settings import Strategy

    return None if word is None else Strategy(word)


def _update(
    folder: str, live: bool, strategy: str | None, no_prove: bool, commands: str, source: str
) -> None:
    from ..commands import read_commands
    from ..proof import planner

    with open_store(folder, live) as (store, commit, taken):
        updates = read_commands(commands, store.state.master, source, taken)
        commit(planner(not no_prove)(store.state, updates, _strategy(strategy)))


def _command_line(op: str, table: str, words: Sequence[str]) -> str:
    from hitables.parse.lines import quote

    for word in (table, *words):
        if "\n" in word:
            raise HitablesError(f"{word!r} is more than one line; an update is one line")
    rule = " ".join(word if word == "!" else quote(word) for word in words_of(words))
    return f"-t {quote(table)} {op} {rule}"


@command(
    cls=RuleCommand,
    context_settings=RULE,
    short_help="Insert a rule, as iptables -I does.",
    examples=(
        (
            "Print the patch that blocks an address",
            "sflgen insert --state office INPUT 1 -s 192.0.2.7 -j DROP",
        ),
        (
            "Accept a network in the kernel, behind eight rules of FORWARD",
            "sflgen insert --live --state office FORWARD 9 -s 10.1.2.0/24 -j ACCEPT",
        ),
    ),
)
@click.argument("chain")
@click.argument("rule", metavar="[POSITION] RULE...", nargs=-1, type=click.UNPROCESSED)
@state_section
@table_section
@patch_section
def insert(
    folder: str,
    live: bool,
    strategy: str | None,
    no_prove: bool,
    table: str,
    chain: str,
    rule: tuple[str, ...],
) -> None:
    """Insert RULE into CHAIN at POSITION (by default 1), written as for iptables -I.

    Without --live this changes the state and prints the patch, but not the kernel: load every patch with
    iptables-restore --noflush, or use --live.
    """
    _update(folder, live, strategy, no_prove, _command_line("-I", table, (chain, *rule)), "insert")


@command(
    cls=RuleCommand,
    context_settings=RULE,
    short_help="Delete a rule, as iptables -D does.",
    examples=(
        ("Delete the third rule of INPUT", "sflgen delete --state office INPUT 3"),
        (
            "Delete a rule from the kernel by its text",
            "sflgen delete --live --state office INPUT -s 192.0.2.7 -j DROP",
        ),
    ),
)
@click.argument("chain")
@click.argument("rule", metavar="POSITION|RULE...", nargs=-1, type=click.UNPROCESSED)
@state_section
@table_section
@patch_section
def delete(
    folder: str,
    live: bool,
    strategy: str | None,
    no_prove: bool,
    table: str,
    chain: str,
    rule: tuple[str, ...],
) -> None:
    """Delete a rule from CHAIN, given by its position or its text, written as for iptables -D.

    Without --live this changes the state and prints the patch, but not the kernel: load every patch with
    iptables-restore --noflush, or use --live.
    """
    _update(folder, live, strategy, no_prove, _command_line("-D", table, (chain, *rule)), "delete")


@command(
    "apply-commands",
    short_help="Perform iptables commands from a file as one patch.",
    examples=(
        ("Print the patch for a file of commands", "sflgen apply-commands --state office changes.txt"),
        (
            "Perform commands from standard input in the kernel",
            "generate-bans | sflgen apply-commands --live --state office -",
        ),
    ),
)
@click.argument("file")
@state_section
@patch_section
def apply_commands(folder: str, live: bool, strategy: str | None, no_prove: bool, file: str) -> None:
    """Perform the iptables commands in FILE, one a line, as one patch: all of them or none.

    FILE "-" is standard input. The commands are -A, -I, -D, -R, -N, -F, -X and -P, each with -t TABLE
    for another table than filter.
    """
    from hitables.files import read_text

    _update(folder, live, strategy, no_prove, read_text(file), file)


@command(
    short_help="Make the rule list equal to a file.",
    examples=(
        ("Print the patch to a new version", "sflgen sync --state office office.rules"),
        ("Load a new version into the kernel", "sflgen sync --live --state office office.rules"),
    ),
)
@click.argument("rules", metavar="FILE")
@state_section
@patch_section
def sync(folder: str, live: bool, strategy: str | None, no_prove: bool, rules: str) -> None:
    """Make the rule list equal to FILE, the output of iptables-save, with the fewest edits.

    Chains that match a --leave of the state stay, and so do the rules that enter them, and tables that FILE
    does not have.
    """
    from hitables import read
    from hitables.files import read_text

    from ..least_edits import sync as least_edits
    from ..least_edits import with_others
    from ..proof import planner

    with open_store(folder, live) as (store, commit, _):
        state = store.state
        new = read(read_text(rules), family=state.master.family, name=rules)
        check_complete(new)
        new = with_others(state.master, new, state.settings.is_foreign)
        updates = least_edits(state.master, new, keep=state.settings.is_foreign)
        commit(planner(not no_prove)(state, updates, _strategy(strategy)))
        click.echo(f"{len(updates)} updates", err=True)


@command(
    short_help="Rebuild trees, so that no update is pending.",
    examples=(
        ("Print the patch that folds all chains", "sflgen fold --state office"),
        ("Fold one chain in the kernel", "sflgen fold --live --state office FORWARD"),
    ),
)
@click.argument("chains", metavar="[CHAIN]...", nargs=-1)
@state_section
@table_section
@section("Patch", live_option, no_prove_option)
def fold(folder: str, live: bool, no_prove: bool, table: str, chains: tuple[str, ...]) -> None:
    """Rebuild the trees of each CHAIN (by default, of all chains) from the rule list.

    Pending updates become part of the trees. Without CHAIN, all tables are folded.
    """
    from ..planner import fold_unproved
    from ..proof import prove_plan

    with open_store(folder, live) as (store, commit, _):
        for name in chains:
            if all(each.name != table or name not in each for each in store.state.master):
                raise HitablesError(f"there is no chain {name} in table {table}")
        plan = fold_unproved(store.state, [(table, name) for name in chains] if chains else None)
        commit(plan if no_prove else prove_plan(plan))

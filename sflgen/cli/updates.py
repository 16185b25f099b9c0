"""`sflgen insert`, `delete`, `apply-commands`, `sync` and `fold`: commands that commit one plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hitables.cli.help import argument, command, section
from hitables.cli.inputs import program_of
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
    from ..kernel import Kernel
    from ..planner import Plan
    from ..settings import Strategy
    from ..state import State
    from ..store import Store


def update_store(
    folder: str, live: bool, make_plan: Callable[[State, Sequence[Edit]], Plan | None]
) -> Plan | None:
    """Commit what *make_plan* returns for the state in *folder*, and for the edits of others that were taken.

    None: nothing is committed.  The plan is loaded into the kernel, which must hold the rule set of the
    state, or it is printed.  If other programs change jumps to foreign chains meanwhile, these are taken, and
    it is planned anew.
    """
    from ..commit import finish_commit
    from ..kernel import Drift, Kernel
    from ..repair import TRIES, check
    from ..store import Store

    with Store.open(Path(folder)) as store:
        kernel = Kernel(store.state.master.family, store.state.settings)
        taken: list[Edit] = []
        if live:
            warn(kernel)
            finish_commit(store, kernel)
            check(kernel, store, _report, taken)
        left = TRIES
        while True:
            plan = make_plan(store.state, taken)
            if plan is None:
                return None
            try:
                _commit(store, plan, kernel if live else None)
                break
            except Drift as error:
                left -= 1
                try:
                    check(kernel, store, _report, taken)
                except HitablesError:
                    raise error from None
                if not left:
                    raise
        for table, chain, strategy in plan.chosen:
            click.echo(f"{table} {chain}: {strategy.value}", err=True)
        if not live:
            click.echo(_what_changed(folder, plan), err=True)
        return plan


def _commit(store: Store, plan: Plan, kernel: Kernel | None) -> None:
    """Commit *plan*, and load it into *kernel*, or print it."""
    from hitables.files import write_text

    from ..commit import loader

    if kernel is None:
        store.commit(plan, show=lambda text: write_text("-", text))
    else:
        store.commit(plan, loader(kernel, store, plan))


def _report(message: str) -> None:
    click.echo(message, err=True)


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

    def make_plan(state: State, taken: Sequence[Edit]) -> Plan:
        updates = read_commands(commands, state.master, source, taken)
        return planner(not no_prove)(state, updates, _strategy(strategy))

    update_store(folder, live, make_plan)


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
@argument("chain")
@argument("rule", metavar="[POSITION] RULE...", nargs=-1, type=click.UNPROCESSED)
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
@argument("chain")
@argument("rule", metavar="POSITION|RULE...", nargs=-1, type=click.UNPROCESSED)
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
@argument("file")
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
@argument("rules", metavar="FILE")
@state_section
@patch_section
def sync(folder: str, live: bool, strategy: str | None, no_prove: bool, rules: str) -> None:
    """Make the rule list equal to FILE, the output of iptables-save, with the fewest edits.

    Chains that match a --leave of the state stay, and so do the rules that enter them, tables that FILE does
    not have, and the policy of a chain that FILE does not declare (":INPUT DROP").
    """
    from hitables.files import read_text
    from hitables.ir.program import with_undeclared_kept
    from hitables.nouns import counted
    from hitables.parse.lost_rules import refuse_lost

    from ..least_edits import sync as least_edits
    from ..least_edits import with_others
    from ..proof import planner

    text, updates = read_text(rules), 0

    def make_plan(state: State, taken: Sequence[Edit]) -> Plan | None:
        nonlocal updates
        new = program_of(text, rules, str(int(state.master.family)))
        check_complete(new)
        refuse_lost(new, text)
        new = with_undeclared_kept(new)
        new = with_others(state.master, new, state.settings.is_foreign)
        edits = least_edits(state.master, new, keep=state.settings.is_foreign)
        updates = len(edits)
        if not edits and not taken:
            return None
        return planner(not no_prove)(state, edits, _strategy(strategy))

    if update_store(folder, live, make_plan) is None:
        click.echo(f"nothing to do: {'the kernel' if live else 'the state'} holds these rules", err=True)
    click.echo(counted(updates, "update"), err=True)


@command(
    short_help="Rebuild trees, so that no update is pending.",
    examples=(
        ("Print the patch that folds all chains", "sflgen fold --state office"),
        ("Fold one chain in the kernel", "sflgen fold --live --state office FORWARD"),
    ),
)
@argument("chains", metavar="[CHAIN]...", nargs=-1)
@state_section
@table_section
@section("Patch", live_option, no_prove_option)
def fold(folder: str, live: bool, no_prove: bool, table: str, chains: tuple[str, ...]) -> None:
    """Rebuild the trees of each CHAIN (by default, of all chains) from the rule list.

    Pending updates become part of the trees. Without CHAIN, all tables are folded.
    """
    from ..planner import fold_unproved
    from ..proof import prove_plan

    def make_plan(state: State, taken: Sequence[Edit]) -> Plan:
        for name in chains:
            if state.master.find_chain(table, name) is None:
                raise HitablesError(f"there is no chain {name} in table {table}")
        plan = fold_unproved(state, [(table, name) for name in chains] if chains else None)
        return plan if no_prove else prove_plan(plan)

    update_store(folder, live, make_plan)

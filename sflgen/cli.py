"""The command `sflgen`: arguments in, patches and an exit status out.

Exit status 0: done; 1: `verify` found a difference, and nothing else; 2: an error, after which neither
state nor kernel is changed; 130: interrupted.  Patches go to standard output (--emit, the default) or to the
kernel (--live), messages to standard error.  A command imports what it needs when it runs, so that
`sflgen --help` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

import hitables
from hitables import interrupts
from hitables.cli.terminal import (
    Commands,
    Differ,
    Number,
    backend_option,
    command,
    family_option,
    option,
    section,
    timeout_option,
)
from hitables.errors import HitablesError, Unsupported

if TYPE_CHECKING:
    from hitables.ir.program import Program

    from .kernel import Kernel
    from .planner import Plan
    from .settings import Strategy
    from .state import State
    from .store import Store

# Seconds after which a thread of `stream` yields to the other; Python's 5 ms are half an update.
SWITCH_INTERVAL = 2e-4


# Options that several commands have.

_state_section = section(
    "State",
    option(
        "--state",
        "folder",
        required=True,
        envvar="SFLGEN_STATE",
        metavar="DIR",
        help="Use the state in this directory (by default $SFLGEN_STATE).",
    ),
)

_live_option = option(
    "--live/--emit",
    default=False,
    show_default=True,
    help="Load the patch into this kernel, or print it for iptables-restore --noflush.",
)

_no_prove_option = option("--no-prove", is_flag=True, help="Skip the proof of the patch.")

_strategy_option = option(
    "--strategy",
    type=click.Choice(["overlay", "graft", "fold"]),
    help="Put changes in front of trees (overlay), or in their leaves where possible (graft), whatever they "
    "cost, or grow trees anew at once (fold); by default the cost decides.",
)

_patch_section = section("Patch", _live_option, _strategy_option, _no_prove_option)

_table_section = section(
    "Rule set",
    option("-t", "--table", metavar="TABLE", default="filter", show_default=True, help="Change this table."),
)

# The rule is passed on as it is, and may hold options that click does not know.
_RULE = {"ignore_unknown_options": True, "allow_interspersed_args": True}

SECTIONS = {
    "State": ("init", "status", "print", "verify"),
    "Updates": ("insert", "delete", "apply-commands", "sync", "fold"),
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


# Beginning a state.


@command(
    examples=(
        (
            "Compile a rule set, and print the patch that compiles the loaded one",
            "sflgen init office.rules --state office --backend nft",
        ),
        (
            "Compile the rules of this host, except those of docker and fail2ban",
            "sflgen init --live --leave 'DOCKER*' --leave 'f2b-*' --state /var/lib/sflgen",
        ),
    ),
)
@click.argument("rules", metavar="[FILE]", required=False)
@_state_section
@section(
    "Rule set",
    backend_option("Make patches right for this iptables; any: for legacy and nft."),
    family_option,
    option(
        "--malformed",
        type=click.Choice(["stricter", "exact"]),
        default="stricter",
        show_default=True,
        help="Allow trees to drop packets with cut-off headers (stricter), or treat them as FILE does.",
    ),
    option(
        "--leave",
        metavar="PATTERN",
        multiple=True,
        help="Never change or compare chains of this name, which other programs manage (DOCKER*, f2b-*); "
        "may be repeated.",
    ),
)
@section(
    "Trees",
    option(
        "--delta",
        type=click.IntRange(0),
        metavar="N",
        default=32,
        show_default=True,
        help="Grow a tree anew when pending updates make an average packet read more than N additional "
        "rules.",
    ),
    option(
        "--min-length",
        type=click.IntRange(1),
        metavar="N",
        default=8,
        show_default=True,
        help="Leave chains of fewer rules as they are.",
    ),
    option(
        "--max-expansion",
        type=Number(1),
        metavar="FACTOR",
        default=4.0,
        show_default=True,
        help="Load at most this many rules per rule of a chain.",
    ),
)
@section("Patch", _live_option)
def init(
    rules: str | None,
    folder: str,
    live: bool,
    backend: str,
    malformed: str,
    delta: int,
    min_length: int,
    max_expansion: float,
    leave: tuple[str, ...],
    family: str | None,
) -> None:
    """Begin a state with the rule list in FILE, compiled.

    FILE is the output of iptables-save; with --live and without FILE, the list is the rule set in
    this kernel. The patch turns the plain rule set into the compiled one.
    """
    from hitables import Family, read
    from hitables.files import read_text, write_text
    from hitables.ir.choices import Malformed, backend_choice

    from .kernel import Kernel, loader
    from .proof import start
    from .settings import Settings
    from .store import Store

    settings = Settings(
        backend_choice(backend), Malformed(malformed), delta, min_length, max_expansion, leave
    )
    chosen = None if family is None else Family(int(family))
    if rules is None and not live:
        raise click.UsageError("give FILE, or --live to begin with the rule set in the kernel")
    if rules is None:
        kernel = Kernel(chosen or Family.IPV4, settings)
        master = _read_kernel(kernel, is_family_guessed=chosen is None)
    else:
        master = read(read_text(rules), family=chosen, name=rules)
        _check_complete(master)
        kernel = Kernel(master.family, settings)
        if live:
            _warn(kernel)
    plan = start(master, settings)
    if live:
        kernel.check(plan.before)
    with Store.create(Path(folder), plan.before) as store:
        try:
            store.commit(plan, loader(kernel, store, plan) if live else None)
            if not live:
                store.compact()
                write_text("-", plan.text)
        except BaseException as error:
            # If a load was interrupted, the next command compares the kernel with the state.
            if not live or isinstance(error, HitablesError):
                store.discard()
            raise
        if live:
            store.compact()
    trees = sum(section.tree for layout in plan.after.layouts.values() for section in layout.sections)
    count, loaded = master.rule_count(), plan.after.loaded.rule_count()
    click.echo(f"{count} rules, {loaded} as loaded, {trees} trees", err=True)


def _read_kernel(kernel: Kernel, is_family_guessed: bool) -> Program:
    """The rule set in the kernel, as a master list."""
    _warn(kernel)
    master = kernel.contents()
    if not master.tables:
        hint = "; --family 6?" if is_family_guessed else ""
        raise HitablesError(f"the kernel holds no IPv{int(kernel.family)} rules{hint}")
    for table, chain in kernel.skipped:
        click.echo(
            f"sflgen: table {table}, chain {chain}: matches --leave, and iptables does not print its rules; "
            "the state has none of them",
            err=True,
        )
    return master


def _warn(kernel: Kernel) -> None:
    """Warn, before a kernel is read, of tables that are not read."""
    for warning in kernel.warnings():
        click.echo(f"sflgen: {warning}", err=True)


def _check_complete(master: Program) -> None:
    """Unsupported if rules were removed from the master list when it was compiled."""
    from hitables.compiler.pipeline import lacks_rules

    if lacks_rules(master):
        raise Unsupported(
            f"{master.name}: was compiled with --equivalence verdict, so it lacks rules that you may want to "
            "change; give the rule set that it was compiled from"
        )


# Updates.


@contextmanager
def _open_store(folder: str, live: bool) -> Iterator[tuple[Store, Callable[[Plan], None]]]:
    """The open state, and a function that commits a plan.

    The plan is loaded into the kernel, which must hold the rule set of the state; or it is printed.
    """
    from hitables.files import write_text

    from .kernel import Kernel, finish_commit, loader
    from .store import Store

    with Store.open(Path(folder)) as store:
        kernel = Kernel(store.state.master.family, store.state.settings)
        if live:
            _warn(kernel)
            finish_commit(store, kernel)
            kernel.check(store.state)

        def commit(plan: Plan) -> None:
            if live:
                store.commit(plan, loader(kernel, store, plan))
            else:
                store.commit(plan, show=lambda text: write_text("-", text))
            for table, chain, strategy in plan.chosen:
                click.echo(f"{table} {chain}: {strategy.value}", err=True)

        yield store, commit


def _strategy(word: str | None) -> Strategy | None:
    from .settings import Strategy

    return None if word is None else Strategy(word)


def _update(
    folder: str, live: bool, strategy: str | None, no_prove: bool, commands: str, source: str
) -> None:
    from .commands import read_commands
    from .proof import planner

    with _open_store(folder, live) as (store, commit):
        updates = read_commands(commands, store.state.master, source)
        commit(planner(not no_prove)(store.state, updates, _strategy(strategy)))


def _command_line(op: str, table: str, words: Sequence[str]) -> str:
    from hitables.parse.lines import quote

    return f"-t {table} {op} " + " ".join(word if word == "!" else quote(word) for word in words)


@command(
    context_settings=_RULE,
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
@_state_section
@_table_section
@_patch_section
def insert(
    folder: str,
    live: bool,
    strategy: str | None,
    no_prove: bool,
    table: str,
    chain: str,
    rule: tuple[str, ...],
) -> None:
    """Insert RULE into CHAIN at POSITION (by default 1), written as for iptables -I."""
    _update(folder, live, strategy, no_prove, _command_line("-I", table, (chain, *rule)), "insert")


@command(
    context_settings=_RULE,
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
@_state_section
@_table_section
@_patch_section
def delete(
    folder: str,
    live: bool,
    strategy: str | None,
    no_prove: bool,
    table: str,
    chain: str,
    rule: tuple[str, ...],
) -> None:
    """Delete a rule from CHAIN, given by its position or its text, written as for iptables -D."""
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
@_state_section
@_patch_section
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
        ("Print the patch that brings a new version", "sflgen sync --state office office.rules"),
        ("Load a new version into the kernel", "sflgen sync --live --state office office.rules"),
    ),
)
@click.argument("rules", metavar="FILE")
@_state_section
@_patch_section
def sync(folder: str, live: bool, strategy: str | None, no_prove: bool, rules: str) -> None:
    """Make the rule list equal to FILE, the output of iptables-save, by the least edits.

    Chains that match a --leave of the state are not compared.
    """
    from hitables import read
    from hitables.files import read_text

    from .least_edits import sync as least_edits
    from .proof import planner

    with _open_store(folder, live) as (store, commit):
        state = store.state
        new = read(read_text(rules), family=state.master.family, name=rules)
        _check_complete(new)
        updates = least_edits(state.master, new, keep=state.settings.is_foreign)
        commit(planner(not no_prove)(state, updates, _strategy(strategy)))
        click.echo(f"{len(updates)} updates", err=True)


@command(
    short_help="Grow trees anew, without pending updates.",
    examples=(
        ("Print the patch that folds all chains", "sflgen fold --state office"),
        ("Fold one chain in the kernel", "sflgen fold --live --state office FORWARD"),
    ),
)
@click.argument("chains", metavar="[CHAIN]...", nargs=-1)
@_state_section
@_table_section
@section("Patch", _live_option, _no_prove_option)
def fold(folder: str, live: bool, no_prove: bool, table: str, chains: tuple[str, ...]) -> None:
    """Grow the trees of each CHAIN (by default, of all chains) anew from the rule list.

    Pending updates become part of the trees. Without CHAIN, all tables are folded.
    """
    from .planner import fold_unproved
    from .proof import prove_plan

    with _open_store(folder, live) as (store, commit):
        for name in chains:
            if all(each.name != table or name not in each for each in store.state.master):
                raise HitablesError(f"there is no chain {name} in table {table}")
        plan = fold_unproved(store.state, [(table, name) for name in chains] if chains else None)
        commit(plan if no_prove else prove_plan(plan))


# Reading a state.


@command(
    short_help="Show rules, pending updates and their cost.",
    examples=(
        ("Show what a fold would save", "sflgen status --state office"),
        ("Compare the kernel with the state", "sflgen status --live --state office"),
    ),
)
@_state_section
@section(
    "Kernel",
    option(
        "--live/--emit",
        default=False,
        show_default=True,
        help="Compare this kernel with the state, or show the state only.",
    ),
)
def status(folder: str, live: bool) -> None:
    """Show the rules of the state, its pending updates, and the additional rules that packets read."""
    from .kernel import Kernel, finish_commit
    from .planner import pending
    from .store import Store

    with Store.open(Path(folder), to_write=live) as store:
        state = store.state
        kernel = Kernel(state.master.family, state.settings)
        if live:
            _warn(kernel)
            finish_commit(store, kernel)
        version = f"version {state.version}, backend {state.settings.backend}"
        click.echo(f"{version}, generation {store.generation}")
        click.echo(f"{state.master.rule_count()} rules, {state.loaded.rule_count()} as loaded")
        chains = pending(state)
        click.echo(f"{len(chains)} chains with trees, {state.pending()} updates pending")
        for each in chains:
            if each.entries:
                click.echo(
                    f"{each.table} {each.chain}: {each.entries} pending, {each.cost:.1f} rules read more "
                    f"(folded at {state.settings.delta})"
                )
        if store.unsettled is not None:
            click.echo(
                "it is unknown whether the kernel has the last patch; run a command with --live to find out"
            )
        if live:
            kernel.check(store.state)
            click.echo("the kernel holds the rule set of the state")


@command(
    short_help="Prove that the loaded rule set is equal to the rule list.",
    examples=(
        ("Prove a state", "sflgen verify --state office"),
        ("Give up after a minute", "sflgen verify --state office --timeout 60"),
    ),
)
@_state_section
@section("Limits", timeout_option("Give up after this long, with exit status 2."))
def verify(folder: str, timeout: float | None) -> None:
    """Prove that the loaded rule set has the effect of the rule list for every packet.

    Exit status 1 and a packet if it has not.
    """
    from hitables.verify.question import Difference, Equal

    from .proof import verify as compare
    from .store import Store

    with Store.open(Path(folder), to_write=False) as store:
        answer = compare(store.state, timeout)
    if isinstance(answer, Equal):
        click.echo("proved: what is loaded is equal to the rule list")
    elif isinstance(answer, Difference):
        click.echo(answer.describe())
        raise Differ
    else:
        raise HitablesError(f"{answer.reason} (table {answer.table}, chain {answer.chain})")


@command(
    "print",
    short_help="Print the rule list, or the loaded rule set.",
    examples=(
        ("Save the rule list", "sflgen print --state office > office.rules"),
        (
            "Load the compiled rule set after a restart",
            "sflgen print --loaded --state office | iptables-nft-restore",
        ),
    ),
)
@_state_section
@section(
    "Output",
    option("--loaded", is_flag=True, help="Print the compiled rule set that is loaded for the rule list."),
)
def print_(folder: str, loaded: bool) -> None:
    """Print the rule list of the state in the format of iptables-save."""
    from hitables.emit.text import write
    from hitables.files import write_text

    from .store import Store

    state: State
    with Store.open(Path(folder), to_write=False) as store:
        state = store.state
    write_text("-", write(state.loaded if loaded else state.master))


# The server.


@command(
    short_help="Answer commands line by line, with the state in memory.",
    examples=(
        (
            "Load each update into the kernel, from many clients",
            "sflgen stream --live --state /var/lib/sflgen --socket /run/sflgen.sock",
        ),
        (
            "Print the patch of each command of a file",
            "sflgen stream --state office < changes.txt",
        ),
    ),
)
@_state_section
@section(
    "Input",
    option(
        "--socket", "path", metavar="PATH", help="Listen on a Unix socket instead of reading standard input."
    ),
)
@section(
    "Patch",
    _live_option,
    option(
        "--prove/--no-prove",
        "proving",
        default=True,
        show_default=True,
        help="Prove each patch before it is printed or loaded, or skip the proofs.",
    ),
)
def stream(folder: str, live: bool, path: str | None, proving: bool) -> None:
    """Answer each line of input with its patch and "ok VERSION", and keep the state in memory.

    A line is an iptables command, "begin" or "commit" around the commands of one patch, "fold [TABLE
    CHAIN]", "status" or "quit". A line that cannot be performed is answered with "error REASON",
    and changes nothing.
    """
    import gc

    from hitables.files import write_text

    from .kernel import Kernel, finish_commit
    from .kernel_watch import generation
    from .server import over_lines, over_socket
    from .session import Session
    from .store import Store

    with Store.open(Path(folder)) as store:
        kernel = Kernel(store.state.master.family, store.state.settings, stays=True) if live else None
        count = None
        if kernel is not None:
            _warn(kernel)
            count = generation()  # so that changes from here on are noticed before the first update
            finish_commit(store, kernel)
            kernel.check(store.state)
        # Short commands run without the garbage collector.  This one may run for months; but updates
        # leave no reference cycles, so a collection is rarely needed.
        gc.freeze()
        gc.set_threshold(200_000, 20, 100)
        gc.enable()
        sys.setswitchinterval(SWITCH_INTERVAL)
        session = Session(store, kernel, proving, lambda message: click.echo(message, err=True), count)
        try:
            with interrupts.terminated():
                if path is not None:
                    over_socket(session, Path(path), lambda: click.echo(f"listening on {path}", err=True))
                elif sys.stdin is None:
                    raise click.UsageError("standard input is closed: give commands there, or a --socket")
                else:
                    over_lines(session, sys.stdin, lambda answer: write_text("-", answer))
        except KeyboardInterrupt:
            interrupts.answered()
            click.echo("stopped", err=True)
        finally:
            session.close()


for each in (init, status, print_, verify, insert, delete, apply_commands, sync, fold, stream):
    main.add_command(each)

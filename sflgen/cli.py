"""The command line of sflgen: arguments in, patches and exit status out.

Exit 0: done; 1: (verify) the law does not hold; 2: trouble, and then nothing is changed.  Patches
go to standard output (--emit, the default) or to the kernel (--live), messages to standard error.
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
from hitables.cli.terminal import Commands, Differ, Number
from hitables.errors import HitablesError, Unsupported

if TYPE_CHECKING:
    from hitables.ir.program import Program

    from .kernel import Kernel
    from .planner import Plan
    from .settings import Strategy
    from .state import State
    from .store import Store

# Seconds after which a thread of `stream` lets the other go on; the 5 ms of Python are half an update.
SWITCH = 2e-4


Command = Callable[..., None]


def _state_option(command: Command) -> Command:
    return click.option(
        "--state",
        "folder",
        required=True,
        envvar="SFLGEN_STATE",
        metavar="DIR",
        help="The state directory (or $SFLGEN_STATE).",
    )(command)


def _live_option(command: Command) -> Command:
    return click.option(
        "--live/--emit",
        default=False,
        show_default=True,
        help="Load the patch into this kernel, or print it for iptables-restore --noflush.",
    )(command)


def _plan_options(command: Command) -> Command:
    command = click.option(
        "--strategy",
        type=click.Choice(["overlay", "graft", "fold"]),
        help="Put off folding (overlay: all in front of trees; graft: in leaves where it can be), or fold at "
        "once; the cost decides when left out.",
    )(command)
    command = click.option("--no-prove", is_flag=True, help="Do without the proof.")(command)
    return _state_option(_live_option(command))


_table_option = click.option("-t", "--table", default="filter", show_default=True)
_RULE = {"ignore_unknown_options": True, "allow_interspersed_args": True}


@click.group(name="sflgen", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(hitables.__version__, prog_name="sflgen")
def main() -> None:
    """Update compiled iptables rule sets by small patches.

    A state directory holds the rule list that you mean and what is loaded for it.  Every update
    changes both, and gives the patch that brings a kernel from one to the other.
    """


@main.command()
@click.argument("rules", required=False)
@_state_option
@_live_option
@click.option("--backend", type=click.Choice(["legacy", "nft", "any"]), default="any", show_default=True)
@click.option("--malformed", type=click.Choice(["stricter", "exact"]), default="stricter", show_default=True)
@click.option(
    "--delta",
    type=click.IntRange(0),
    default=32,
    show_default=True,
    help="Rules read more, on average, that pending updates may cost before a tree is built anew.",
)
@click.option("--min-length", type=click.IntRange(1), default=8, show_default=True)
@click.option("--max-expansion", type=Number(1), default=4.0, show_default=True)
@click.option(
    "--leave",
    multiple=True,
    metavar="PATTERN",
    help="Chains that others change (DOCKER*, f2b-*): never touched, never compared; may be repeated.",
)
@click.option("--family", type=click.Choice(["4", "6"]), help="IP version; guessed when left out.")
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
    """Begin a state with RULES (iptables-save text; with --live and without RULES, what the kernel holds).

    The patch makes the compiled rule set of the plain one.
    """
    from hitables import Family, read
    from hitables.files import read_text, write_text

    from .kernel import Kernel, loader
    from .proof import start
    from .settings import Settings
    from .store import Store

    settings = Settings(backend, malformed, delta, min_length, max_expansion, leave)
    chosen = None if family is None else Family(int(family))
    if rules is None and not live:
        raise click.UsageError("give RULES, or --live to begin with what the kernel holds")
    kernel = Kernel(chosen or Family.IPV4, settings)
    if rules is None:
        _warn(kernel)
        master = kernel.contents()
        if not master.tables:
            hint = "; --family 6?" if chosen is None else ""
            raise HitablesError(f"the kernel holds no IPv{int(kernel.family)} rules{hint}")
        for table, chain in kernel.skipped:
            click.echo(
                f"sflgen: table {table}, chain {chain}: left to others, and iptables does not print what it "
                "holds; the state has no rules of it",
                err=True,
            )
    else:
        master = read(read_text(rules), family=chosen, name=rules)
        _complete(master)
        kernel = Kernel(master.family, settings)
        if live:
            _warn(kernel)
    made = start(master, settings)
    if live:
        kernel.check(made.before)
    with Store.create(Path(folder), made.before) as store:
        try:
            store.commit(made, loader(kernel, store, made) if live else None)
            if not live:
                store.compact()
                write_text("-", made.text)
        except BaseException as error:
            # A load that was interrupted is looked at by the next command.
            if not live or isinstance(error, HitablesError):
                store.discard()
            raise
        if live:
            store.compact()
    trees = sum(section.tree for layout in made.after.layouts.values() for section in layout.sections)
    count, loaded = master.rule_count(), made.after.loaded.rule_count()
    click.echo(f"{count} rules, {loaded} as loaded, {trees} trees", err=True)


def _warn(kernel: Kernel) -> None:
    """Tell, before a kernel is read, what is not read of it."""
    for said in kernel.warnings():
        click.echo(f"sflgen: {said}", err=True)


def _complete(master: Program) -> None:
    """Unsupported when rules went from what is to be the master list."""
    from hitables.compiler.pipeline import lacks_rules

    if lacks_rules(master):
        raise Unsupported(
            f"{master.name}: was compiled with --equivalence verdict, so rules that you may want to change "
            "are not in it; give the rule set that it was compiled from"
        )


@contextmanager
def _store(folder: str, live: bool) -> Iterator[tuple[Store, Callable[[Plan], None]]]:
    """The open state, and what commits a plan: into the kernel, which must hold what the state says,
    or to standard output."""
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


def _strategy(said: str | None) -> Strategy | None:
    from .settings import Strategy

    return None if said is None else Strategy(said)


def _update(
    folder: str, live: bool, strategy: str | None, no_prove: bool, commands: str, source: str
) -> None:
    from .commands import read_commands
    from .proof import planner

    with _store(folder, live) as (store, commit):
        updates = read_commands(commands, store.state.master, source)
        commit(planner(not no_prove)(store.state, updates, _strategy(strategy)))


def _command(op: str, table: str, words: Sequence[str]) -> str:
    from hitables.parse.lines import quote

    return f"-t {table} {op} " + " ".join(word if word == "!" else quote(word) for word in words)


@main.command(context_settings=_RULE)
@_plan_options
@_table_option
@click.argument("chain")
@click.argument("rule", nargs=-1, type=click.UNPROCESSED)
def insert(
    folder: str,
    live: bool,
    strategy: str | None,
    no_prove: bool,
    table: str,
    chain: str,
    rule: tuple[str, ...],
) -> None:
    """Insert a rule into CHAIN: [POSITION] and the rule as iptables -I takes them."""
    _update(folder, live, strategy, no_prove, _command("-I", table, (chain, *rule)), "insert")


@main.command(context_settings=_RULE)
@_plan_options
@_table_option
@click.argument("chain")
@click.argument("rule", nargs=-1, type=click.UNPROCESSED)
def delete(
    folder: str,
    live: bool,
    strategy: str | None,
    no_prove: bool,
    table: str,
    chain: str,
    rule: tuple[str, ...],
) -> None:
    """Delete a rule of CHAIN: its position, or the rule itself, as iptables -D takes them."""
    _update(folder, live, strategy, no_prove, _command("-D", table, (chain, *rule)), "delete")


@main.command("apply-commands")
@_plan_options
@click.argument("file")
def apply_commands(folder: str, live: bool, strategy: str | None, no_prove: bool, file: str) -> None:
    """Make the updates in FILE ("-": standard input): iptables commands, one a line, all or none."""
    from hitables.files import read_text

    _update(folder, live, strategy, no_prove, read_text(file), file)


@main.command()
@_plan_options
@click.argument("rules")
def sync(folder: str, live: bool, strategy: str | None, no_prove: bool, rules: str) -> None:
    """Make the state's rule list equal to RULES (iptables-save text) by the least edits."""
    from hitables import read
    from hitables.files import read_text

    from .least_edits import sync as least_edits
    from .proof import planner

    with _store(folder, live) as (store, commit):
        state = store.state
        new = read(read_text(rules), family=state.master.family, name=rules)
        _complete(new)
        edits = least_edits(state.master, new, keep=state.settings.is_foreign)
        commit(planner(not no_prove)(state, edits, _strategy(strategy)))
        click.echo(f"{len(edits)} updates", err=True)


@main.command()
@_state_option
@_live_option
@click.option("--no-prove", is_flag=True, help="Do without the proof.")
@_table_option
@click.argument("chains", nargs=-1)
def fold(folder: str, live: bool, no_prove: bool, table: str, chains: tuple[str, ...]) -> None:
    """Build the trees of CHAINS (all when none is named) anew from the rule list as it is."""
    from .planner import fold_unproved
    from .proof import prove_plan

    with _store(folder, live) as (store, commit):
        for name in chains:
            if all(each.name != table or name not in each for each in store.state.master):
                raise HitablesError(f"there is no chain {name} in table {table}")
        made = fold_unproved(store.state, [(table, name) for name in chains] if chains else None)
        commit(made if no_prove else prove_plan(made))


@main.command()
@_state_option
@_live_option
def status(folder: str, live: bool) -> None:
    """What the state holds: rules, pending entries, their cost; with --live, whether the kernel has it."""
    from .kernel import Kernel, finish_commit
    from .planner import pending
    from .store import Store

    with Store.open(Path(folder), to_write=live) as store:
        state = store.state
        kernel = Kernel(state.master.family, state.settings)
        if live:
            _warn(kernel)
            finish_commit(store, kernel)
        said = f"version {state.version}, backend {state.settings.backend}"
        click.echo(f"{said}, generation {store.generation}")
        click.echo(f"{state.master.rule_count()} rules, {state.loaded.rule_count()} as loaded")
        waiting = pending(state)
        click.echo(f"{len(waiting)} chains with trees, {state.pending()} updates pending")
        for each in waiting:
            if each.entries:
                click.echo(
                    f"{each.table} {each.chain}: {each.entries} pending, {each.cost:.1f} rules read more "
                    f"(folded at {state.settings.delta})"
                )
        if store.unsettled is not None:
            click.echo("nobody knows whether the kernel has the last patch; a command with --live finds out")
        if live:
            kernel.check(store.state)
            click.echo("the kernel holds what the state says")


@main.command()
@_state_option
@click.option("--timeout", type=Number(0, min_open=True), metavar="SECONDS")
def verify(folder: str, timeout: float | None) -> None:
    """Prove that what is loaded does, for every packet, what the rule list says."""
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


@main.command("print")
@_state_option
@click.option("--loaded", is_flag=True, help="What is loaded for it, instead of the rule list.")
def print_(folder: str, loaded: bool) -> None:
    """Print the state's rule list as iptables-save text."""
    from hitables.emit.text import write
    from hitables.files import write_text

    from .store import Store

    state: State
    with Store.open(Path(folder), to_write=False) as store:
        state = store.state
    write_text("-", write(state.loaded if loaded else state.master))


@main.command()
@_state_option
@_live_option
@click.option("--socket", "path", metavar="PATH", help="Listen on a Unix socket instead of standard input.")
@click.option(
    "--prove/--no-prove",
    "proving",
    default=True,
    show_default=True,
    help="Prove each patch before it is made so, where it is; each fold as a whole.",
)
def stream(folder: str, live: bool, path: str | None, proving: bool) -> None:
    """Keep the state in memory, take commands line by line, answer each with its patch and `ok VERSION`.

    A line is a command of iptables, `begin` or `commit` around those of one patch, `fold [TABLE CHAIN]`,
    `status` or `quit`. What is refused is answered with `error REASON`, and nothing is changed.
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
        seen = None
        if kernel is not None:
            _warn(kernel)
            seen = generation()  # what is changed from here on is looked at before the first update
            finish_commit(store, kernel)
            kernel.check(store.state)
        # Commands that end do without the collector.  This one may run for months; but updates leave no
        # circles behind, so it need not look often.
        gc.freeze()
        gc.set_threshold(200_000, 20, 100)
        gc.enable()
        sys.setswitchinterval(SWITCH)
        session = Session(store, kernel, proving, lambda said: click.echo(said, err=True), seen)
        try:
            with interrupts.terminated():
                if path is not None:
                    over_socket(session, Path(path), lambda: click.echo(f"listening on {path}", err=True))
                elif sys.stdin is None:
                    raise click.UsageError("standard input is closed: give commands there, or a --socket")
                else:
                    over_lines(session, sys.stdin, lambda said: write_text("-", said))
        except KeyboardInterrupt:
            interrupts.answered()
            click.echo("stopped", err=True)
        finally:
            session.close()

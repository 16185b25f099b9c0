"""`sflgen init`, `status`, `print` and `verify`: commands that begin a state, or read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hitables.cli.help import argument, command, option, section
from hitables.cli.inputs import program_of, warn_of_leave
from hitables.cli.options import backend_option, family_option, timeout_option
from hitables.cli.terminal import Differ
from hitables.cli.values import Number
from hitables.errors import HitablesError, Unsupported

from .options import check_complete, live_option, state_section, warn

if TYPE_CHECKING:
    from hitables.ir.program import Program

    from ..kernel import Kernel
    from ..state import State


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
@argument("rules", metavar="[FILE]", required=False)
@state_section
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
        help="Never change or compare chains of this name, which other programs manage (DOCKER*, f2b-*), or "
        "those of docker, fail2ban, kube, calico, cilium, flannel, cni, podman, libvirt, proxmox, ufw, "
        "firewalld, networkmanager, crowdsec, miniupnpd, sshguard, tailscale, psad, fwknop, sshuttle, "
        "neutron, opensnitch, ocserv; may be repeated.",
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
        "--max-updates",
        type=click.IntRange(0),
        metavar="N",
        help="Grow the trees of a chain anew with update N + 1 since they were grown, whatever the updates "
        "cost; by default updates are not counted.",
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
@section("Patch", live_option)
def init(
    rules: str | None,
    folder: str,
    live: bool,
    backend: str,
    malformed: str,
    delta: int,
    max_updates: int | None,
    min_length: int,
    max_expansion: float,
    leave: tuple[str, ...],
    family: str | None,
) -> None:
    """Begin a state with the rule list in FILE, compiled.

    FILE is the output of iptables-save; with --live and without FILE, the list is the rule set in
    this kernel. The patch turns the plain rule set into the compiled one.
    """
    from hitables import Family
    from hitables.files import read_text, write_text
    from hitables.ir.choices import Malformed, backend_choice
    from hitables.ir.foreign import patterns_of
    from hitables.ir.set_counters import counting
    from hitables.kernel.counter_readers import counter_readers
    from hitables.nouns import counted
    from hitables.parse.lost_rules import refuse_lost

    from ..commit import loader
    from ..kernel import Kernel
    from ..proof import start
    from ..settings import Settings
    from ..store import Store

    settings = Settings(
        backend_choice(backend),
        Malformed(malformed),
        delta,
        min_length,
        max_expansion,
        patterns_of(leave),
        max_updates=max_updates,
    )
    chosen = None if family is None else Family(int(family))
    if rules is None and not live:
        raise click.UsageError("give FILE, or --live to begin with the rule set in the kernel")
    if rules is None:
        kernel = Kernel(chosen or Family.IPV4, settings)
        master = _read_kernel(kernel, is_family_guessed=chosen is None)
        check_complete(master)
    else:
        text = read_text(rules)
        master = program_of(text, rules, family)
        check_complete(master)
        refuse_lost(master, text)
        kernel = Kernel(master.family, settings)
        if live:
            warn(kernel)
    if live and any(counter_readers()):  # of any table and family: updates may bring matches of sets
        master = counting(master)
    if not live or rules is None:  # else the kernel may have chains that FILE lacks
        warn_of_leave(leave, [master])
    plan = start(master, settings)
    if live:
        _check_begin(kernel, plan.before, rules)
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
            store.compact_if_possible()  # the kernel has the patch, so this is no error
    trees = sum(section.tree for layout in plan.after.layouts.values() for section in layout.sections)
    count, loaded = counted(master.rule_count(), "rule"), plan.after.loaded.rule_count()
    click.echo(f"{count}, {loaded:,} as loaded, {counted(trees, 'tree')}", err=True)


def _check_begin(kernel: Kernel, state: State, rules: str | None) -> None:
    """Drift unless the kernel holds the rules that a state begins with; there is none yet to repair."""
    from ..kernel import Drift

    if rules is None:
        kernel.check(state, "the rules of the kernel were changed meanwhile", "run the command again")
        return
    try:
        kernel.check(
            state,
            f"the kernel does not hold the rules of {'standard input' if rules == '-' else rules}",
            f"load them with {kernel.tool}-restore first, or leave FILE out: sflgen init --live begins with "
            "the rules of the kernel",
        )
    except Drift:
        _refuse_compiled_kernel(kernel, kernel.contents())
        raise


def _refuse_compiled_kernel(kernel: Kernel, master: Program) -> None:
    """Unsupported, with the way to the source, if the rules of the kernel are compiled."""
    from hitables import Family
    from hitables.analyse.compiled_text import why_compiled

    why = why_compiled(master)
    if not why:
        return
    family = "" if kernel.family is Family.IPV4 else " --family 6"
    raise Unsupported(
        f"the kernel holds compiled rules ({why}), and a state begins with their source.  If hitables apply "
        "loaded them, load the source with its counters, and have hitables give up its tables:\n"
        f"  hitables counters{family} -o now.rules\n"
        f"  {kernel.tool}-restore -c now.rules\n"
        f"  hitables release{family} TABLE...   (all: hitables persist --remove, and remove its state)\n"
        f"  sflgen init --live{family} ...\n"
        'Else load what "hitables counters --map" or "sflgen print" prints'
    )


def _read_kernel(kernel: Kernel, is_family_guessed: bool) -> Program:
    """The rule set in the kernel, as a master list."""
    warn(kernel)
    master = kernel.contents()
    if not master.tables:
        hint = "; --family 6?" if is_family_guessed else ""
        raise HitablesError(f"the kernel holds no IPv{int(kernel.family)} rules{hint}")
    _refuse_compiled_kernel(kernel, master)
    for table, chain in kernel.skipped:
        click.echo(
            f"sflgen: table {table}, chain {chain}: matches --leave, and iptables does not print its rules; "
            "the state has none of them",
            err=True,
        )
    return master


@command(
    short_help="Show rules, pending updates and their cost.",
    examples=(
        ("Show what a fold would save", "sflgen status --state office"),
        ("Compare the kernel with the state", "sflgen status --live --state office"),
    ),
)
@state_section
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
    """Show the rules of the state, its pending updates, and the additional rules that packets read.

    Exit status 1 and the differences if --live finds other rules in the kernel.
    """
    from hitables.nouns import counted

    from ..commit import finish_commit
    from ..differences import listed
    from ..kernel import NOT_HELD, Kernel
    from ..planner import pending
    from ..store import ReadOnly, Store

    try:
        opened = Store.open(Path(folder), to_write=live)
    except ReadOnly:
        opened = Store.open(Path(folder), to_write=False)
    with opened as store:
        state = store.state
        kernel = Kernel(state.master.family, state.settings)
        if live:
            warn(kernel)
            if store.is_writable:
                finish_commit(store, kernel)
        version = f"version {state.version}, backend {state.settings.backend}"
        click.echo(f"{version}, generation {store.generation}")
        click.echo(f"{counted(state.master.rule_count(), 'rule')}, {state.loaded.rule_count():,} as loaded")
        chains, updates = pending(state), counted(state.pending(), "update")
        click.echo(f"{counted(len(chains), 'chain')} with trees, {updates} pending")
        for each in chains:
            if each.entries or each.updates:
                click.echo(
                    f"{each.table} {each.chain}: {each.entries} pending, {each.cost:.1f} rules read more "
                    f"(folded at {state.settings.delta})"
                )
            if each.updates:
                beyond = 1 + (state.settings.max_updates or 0)
                click.echo(
                    f"{each.table} {each.chain}: {counted(each.updates, 'update')} since its trees were "
                    f"grown (folded by update {beyond})"
                )
        if store.unsettled is not None:
            click.echo(
                "it is unknown whether the kernel has the last patch; run a command with --live to find out"
            )
        if live:
            differences = kernel.differences(store.state)
            if differences:
                click.echo("\n".join([NOT_HELD, *listed(differences), kernel.advice]))
                raise Differ
            click.echo("the kernel holds the rule set of the state")


@command(
    short_help="Prove that the loaded rule set is equal to the rule list.",
    examples=(
        ("Prove a state", "sflgen verify --state office"),
        ("Give up after a minute", "sflgen verify --state office --timeout 60"),
    ),
)
@state_section
@section("Limits", timeout_option("Give up after this long, with exit status 2."))
def verify(folder: str, timeout: float | None) -> None:
    """Prove that the loaded rule set has the effect of the rule list for every packet.

    Exit status 1 and a packet if it has not.
    """
    from hitables.verify.question import Difference, Equal

    from ..proof import verify as compare
    from ..store import Store

    with Store.open(Path(folder), to_write=False) as store:
        answer = compare(store.state, timeout)
    if isinstance(answer, Equal):
        click.echo("proved: the loaded rule set is equal to the rule list")
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
@state_section
@section(
    "Output",
    option("--loaded", is_flag=True, help="Print the compiled rule set that is loaded for the rule list."),
)
def print_(folder: str, loaded: bool) -> None:
    """Print the rule list of the state in the format of iptables-save."""
    from hitables.emit.text import write
    from hitables.files import write_text
    from hitables.parse.guess_family import stating_family

    from ..store import Store

    state: State
    with Store.open(Path(folder), to_write=False) as store:
        state = store.state
    rules = state.loaded if loaded else state.master
    write_text("-", stating_family(write(rules), rules.family))

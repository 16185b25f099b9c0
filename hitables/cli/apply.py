"""`hitables apply`, `confirm`, `rollback`, `release`, `status`, `history`: a firewall that can be taken back.

They change the network namespace in which they are called, and its state directory (hitables.apply.store).
"""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..errors import HitablesError, ParseError
from ..nouns import counted
from .help import argument, command, option, section
from .inputs import family_of
from .options import backend_option, data_options, is_json, leave_option, state_option, timeout_option
from .progress import progress_bar
from .terminal import Differ, Printer
from .values import Number, WholeNumber

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..apply.in_force import InForce
    from ..apply.recording import Ready
    from ..apply.records import ApplyState
    from ..apply.request import ApplyRequest
    from ..apply.status import Compared, Status
    from ..ir.fields import Family
    from ..report.firewall import FamilyDifference

# Seconds for finding the changes.  To list all of 65,000 new rules takes many minutes, and 20 are shown.
CHANGES_SECONDS = 10.0


@command(
    short_help="Load rules so that they can be taken back.",
    examples=(
        (
            "Load IPv4 and IPv6 rules; they are taken back unless confirmed within a minute",
            "hitables apply office.rules office6.rules --confirm 60",
        ),
        (
            "Show what would change, and leave the chains of docker and fail2ban as they are",
            "hitables apply office.rules --leave docker --leave fail2ban --dry-run",
        ),
    ),
)
@argument("file", metavar="FILE")
@argument("file6", metavar="[FILE6]", required=False)
@section(
    "Confirmation",
    option(
        "--confirm",
        "seconds",
        type=Number(0),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Load the old rules again unless the new ones are confirmed within this time; 0: confirm them "
        "at once.",
    ),
    option(
        "--check",
        metavar="COMMAND",
        default="",
        help="Confirm the rules if this command succeeds, and load the old ones again if it fails.",
    ),
    option(
        "--by-connection",
        "connection",
        is_flag=True,
        help="Confirm the rules when a new SSH connection from the host of this session is established after "
        "they are loaded, and stays for half a second.",
    ),
)
@section(
    "Safety",
    option(
        "--must",
        metavar="PACKET",
        multiple=True,
        help='Refuse rules that do not let this packet pass, as in "chain=INPUT in=eth0 src=10.0.0.1 '
        'dst=10.0.0.2 proto=tcp sport=1024 dport=22"; may be repeated.',
    ),
    option("--force", is_flag=True, help="Load the rules even if they cut off this session or a --must."),
    option("-n", "--dry-run", is_flag=True, help="Say what would change, and change nothing."),
)
@section(
    "Rule sets",
    backend_option(
        "Load the rules with this iptables; auto: the one that has loaded what is in force, else "
        "the one that iptables is.",
        ("auto", "legacy", "nft"),
        "auto",
    ),
    option(
        "--family",
        type=click.Choice(["4", "6"]),
        help="Read FILE as IPv4 or IPv6, and FILE6 as the other; by default this is guessed from the text "
        "and its name.",
    ),
    leave_option,
    option("--no-compile", is_flag=True, help="Load FILE as it is, without trees."),
    timeout_option("Give up after this long if the compiled rules are not proved by then, and load nothing."),
)
@section("State", state_option)
@data_options
def apply(
    file: str,
    file6: str | None,
    folder: str,
    backend: str,
    family: str | None,
    no_compile: bool,
    seconds: float,
    form: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Compile the rules in FILE (and FILE6), prove them, say what changes, and load them.

    FILE is the output of iptables-save or rules as you wrote them. Tables that it does not have stay as they
    are. Chains that match --leave stay as they are now, and so do the rules that lead to them.

    The old rules are loaded again unless the new ones are confirmed in time: by "hitables confirm" in any
    session, by --check, or by --by-connection. Exit status 0: loaded, recorded or nothing to do; 1:
    --dry-run, and something would change or be recorded; 2: an error, after which the old rules are loaded,
    unless "standard output" alone failed, or the message says that the new ones were confirmed.
    """
    from ..apply.request import ApplyRequest, ApplyResult, Reporter
    from ..apply.run import apply as apply_rules
    from ..compiler.options import Options
    from ..ir.packet import Backend

    request = ApplyRequest(
        files=_files(file, file6, family_of(family)),
        folder=folder,
        backend=None if backend == "auto" else Backend(backend),
        options=None if no_compile else Options(),
        confirm=seconds,
        **options,
    )
    began = time.monotonic()
    data = is_json(form, as_json)
    differences: list[FamilyDifference] = []
    messages: list[str] = []

    def tell(message: str) -> None:
        messages.append(message)
        _tell(message)

    def show_changes(ready: Sequence[Ready], loaded: InForce | None) -> None:
        for each in ready:
            differences.append(_difference(request, each, loaded))
            if not data:
                click.echo(differences[-1].text())

    with progress_bar() as progress:
        result = apply_rules(request, Reporter(progress, tell, show_changes))
    if data:
        from ..report.firewall import apply_report
        from ..report.formats import FORMATS

        report = apply_report(result, differences, _state(folder), messages, time.monotonic() - began)
        click.echo(FORMATS["json"]([report]), nl=False)
        if result.would_act:
            raise Differ
        return
    if result is ApplyResult.NOTHING:
        click.echo("nothing to do: the kernel holds these rules")
    elif result is ApplyResult.RECORDED:
        click.echo("nothing to load: the kernel holds these rules")
    elif result is ApplyResult.WOULD_RECORD:
        click.echo("nothing to load: the kernel holds these rules, and apply would record them")
        raise Differ
    elif result is ApplyResult.WOULD_CHANGE:
        raise Differ
    elif result is ApplyResult.CONFIRMED:
        click.echo("confirmed")
    else:
        click.echo(
            f"confirm the rules within {seconds:g} s, best from a new session; else the old ones are loaded "
            f"again:\n  hitables confirm --state {shlex.quote(os.path.abspath(folder))}"
        )


def _files(file: str, file6: str | None, first: Family | None) -> dict[Family, tuple[str, str]]:
    """The files by family: *first* is that of *file*; None: a file states it by its contents."""
    from ..files import check_outputs, read_text
    from ..parse.guess_family import doubt, guess_family, states_both
    from ..parse.lost_rules import SPLIT

    check_outputs({}, {"FILE": file, "FILE6": file6})
    texts = [(name, read_text(name)) for name in (file, file6) if name is not None]
    for name, text in texts:
        if states_both(text):  # also with --family: what is of the other family would be loaded, too
            raise HitablesError(
                f"{name}: {doubt(text, name)}, so it is of IPv4 and of IPv6; {SPLIT}, and apply both "
                "together (hitables apply FILE FILE6), or delete the line that is wrong"
            )
    if first is not None:
        families = [first, _other(first)]
    elif len(texts) == 2:
        families = _families_of(texts)
    else:
        ((name, text),) = texts
        families = [guess_family(text, name)]
        if reason := doubt(text, name):
            raise HitablesError(
                f"{name}: a rule set of IPv4 or of IPv6? It reads like IPv{int(families[0])}, but {reason}; "
                "give --family 4 or --family 6"
            )
    return dict(zip(families, texts, strict=False))


def _families_of(texts: Sequence[tuple[str, str]]) -> list[Family]:
    """The families of two files: of two that look alike, the one that can be is of the other family."""
    from ..ir.fields import Family
    from ..parse.guess_family import doubt, guess_family, has_icmp, stated_family
    from ..reader import read

    families = [guess_family(text, name) for name, text in texts]
    if families[0] is not families[1]:
        return families
    other = _other(families[0])
    reasons: list[str] = []
    # For IPv6 one of doubtful family is tried first, one with -p icmp last; of equal ones the second first.
    ranks = [0 if doubt(text, name) else 2 if has_icmp(text) else 1 for name, text in texts]
    if other is Family.IPV4:
        ranks.reverse()
    for number in (0, 1) if ranks[0] < ranks[1] else (1, 0):
        name, text = texts[number]
        if stated_family(text) is families[0]:
            reasons.append(f"{name} has the first line of {families[0].tool}-save")
            continue
        try:
            read(text, family=other, name=name)
        except ParseError as error:
            reasons.append(f"{name} cannot be read as IPv{int(other)}:\n{error.alone()}")
            continue
        families[number] = other
        return families
    raise HitablesError(
        "\n".join([f"both files are of IPv{int(families[0])}", *reasons])
        + "\nApply one rule set of IPv4 and one of IPv6 together, or each by itself"
    )


def _other(family: Family) -> Family:
    from ..ir.fields import Family

    return Family.IPV6 if family is Family.IPV4 else Family.IPV4


def _tell(message: str) -> None:
    """Print a message; if the terminal is gone it is lost (streams.py), which takes no rules back."""
    click.echo(message, err=True)


def _state(folder: str) -> ApplyState:
    """The state as it is now, without the lock: the guard or another command may hold it."""
    from pathlib import Path

    from ..apply.store import StateDirectory

    return StateDirectory(Path(folder), -1).state()


def _difference(request: ApplyRequest, ready: Ready, loaded: InForce | None) -> FamilyDifference:
    """Which packets the new rules treat otherwise, and what is loaded for it.

    If the kernel holds the rules of a record of *loaded*, those rules are compared, as their lines are known.
    """
    from ..apply.drift import holds, strange_jumps
    from ..apply.others import own_rule_count
    from ..apply.prepare import THE_KERNEL
    from ..apply.status import with_others
    from ..ir.foreign import entered_by_foreign, hide, patterns_of
    from ..report.firewall import FamilyDifference
    from ..verify.diff import changes as changes_between
    from ..verify.question import Question

    patterns = patterns_of(request.leave)
    after, kernel = ready.prepared.source, ready.kernel
    tables = {table.name for table in after}
    known = None
    for part in loaded.parts if loaded is not None else ():
        half = part.halves.get(kernel.family)
        if half is not None and half.source and tables <= half.tables.keys():
            is_held = holds(ready.known, half, patterns)
            is_held = is_held and not any(strange_jumps(ready.known, half, kernel.family, patterns))
            known = replace(part, leave=patterns) if is_held else None
    before = changes = None
    trouble = ""
    try:
        if known is not None:
            before = with_others(known.halves[kernel.family], ready.found, known, kernel.family)
        earlier = before or ready.found.program
        question = Question(
            (kernel.backend,),
            tables=frozenset(tables),
            entered=entered_by_foreign(earlier, patterns) | entered_by_foreign(after, patterns),
            timeout=min(request.timeout or CHANGES_SECONDS, CHANGES_SECONDS),
        )
        changes = changes_between(
            hide(earlier, patterns), hide(after, patterns), question, tell=lambda stage: None
        )
    except HitablesError as error:
        trouble = str(error)
    title_of_old = THE_KERNEL if before is None else f"{before.name} as it was applied"
    plans = ready.change.plans.values()
    new, changed, removed = (
        sum(len(getattr(plan, part)) for plan in plans) for part in ("staged", "changed", "removed")
    )
    return FamilyDifference(
        kernel.family,
        kernel.backend,
        ready.prepared.file,
        changes,
        trouble,
        (title_of_old, ready.prepared.file),
        own_rule_count(ready.prepared.merged.changeable(), patterns),
        own_rule_count(ready.change.loaded(), patterns),
        new,
        changed,
        removed,
    )


@command(
    short_help="Keep the rules that apply has loaded.",
    examples=(
        ("Keep the rules", "hitables confirm"),
        ("Keep the rules of another state directory", "hitables confirm --state /etc/firewall"),
    ),
)
@section("State", state_option)
@option("--force", is_flag=True, help="Confirm them even if the kernel does not hold them any more.")
def confirm(folder: str, force: bool) -> None:
    """Confirm the rules that "hitables apply" has loaded, so that they stay.

    The kernel must still hold them; what other programs have added to them is no hindrance.
    """
    from ..apply.confirm import confirm as confirm_rules
    from ..apply.still_held import NotHeld

    try:
        number, notes = confirm_rules(folder, force=force)
    except NotHeld as error:
        raise NotHeld(
            f"{error}\nit is not confirmed: hitables status shows what the difference means; "
            "hitables rollback loads the old rules, and so does the guard when the time is over; "
            "hitables confirm --force confirms it all the same"
        ) from None
    for note in notes:
        _tell(note)
    click.echo(f"rule set {number} is confirmed")


@command(
    short_help="Load earlier rules again.",
    examples=(
        ("Load the rules before the present ones", "hitables rollback"),
        ("Load rule set 3 of the history", "hitables rollback 3"),
    ),
)
@argument("number", metavar="[N]", type=WholeNumber(1), required=False)
@section("State", state_option)
@option("--guarded-by", type=int, hidden=True)
def rollback(number: int | None, folder: str, guarded_by: int | None) -> None:
    """Load rule set N of "hitables history" again, or the one before the present one.

    Counters go on, and chains of other programs stay as they are now.
    """
    from ..apply.confirm import roll_back

    loaded, notes = roll_back(folder, number, guarded_by)
    for note in notes:
        _tell(note)
    if loaded:
        click.echo(f"rule set {loaded} is loaded")


@command(
    short_help="Give tables up: compare and load them no more.",
    examples=(
        ("Leave table raw to docker", "hitables release raw"),
        ("Give up table nat of IPv6 alone", "hitables release nat --family 6"),
    ),
)
@argument("tables", metavar="TABLE...", nargs=-1, required=True)
@section(
    "Rule sets",
    option("--family", type=click.Choice(("4", "6")), help="Those of this family; by default those of both."),
)
@section("State", state_option)
def release(tables: tuple[str, ...], family: str | None, folder: str) -> None:
    """Give up tables of the rules in force: "hitables status" compares them no more, and no boot loads them.

    The kernel keeps their rules as they are.
    """
    from ..apply.release import release as give_up

    number, given_up = give_up(folder, tables, family_of(family))
    listed = ", ".join(f"table {table} of IPv{int(of)}" for of, table in given_up)
    click.echo(f"rule set {number} is in force without {listed}; the kernel keeps these rules as they are")


@command(
    cls=Printer,
    short_help="List the rule sets that were loaded.",
    examples=(
        ("List the rule sets", "hitables history"),
        ("List the last three", "hitables history | tail -n 3"),
    ),
)
@section("State", state_option)
@data_options
def history(folder: str, form: str, as_json: bool) -> None:
    """List the rule sets that were loaded; * marks those that are confirmed and in force.

    These are the one that was confirmed last, and earlier ones with a family or tables that it does not have.
    """
    from ..apply.in_force import places
    from ..apply.store import StateDirectory
    from ..report.firewall import history_document, rules_of
    from ..report.formats import dump

    with StateDirectory.open(folder) as store:
        state = store.state()
        records = [store.record(number) for number in store.numbers()]
    if is_json(form, as_json):
        click.echo(dump(history_document(state, records)), nl=False)
        return
    confirmed = [record for record in records if record.number == state.confirmed]
    in_force = {number for record in confirmed for number in places(record).values()}
    for record in records:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.when))
        rules = sum(rules_of(record, family) for family in record.halves)
        files = ", ".join(half.file for half in record.halves.values())
        mark = "*" if record.number in in_force else " "
        how = state.status.get(record.number, "unfinished")
        click.echo(f"{mark} {record.number:>4}  {when}  {how:<11}  {counted(rules, 'rule'):>13}  {files}")


@command(
    cls=Printer,
    short_help="Say whether the kernel holds the confirmed rules.",
    examples=(
        ("Check the firewall from cron", "hitables status"),
        ("Load the confirmed rules again", "hitables status --repair"),
    ),
)
@section(
    "State",
    option("--family", type=click.Choice(("4", "6")), help="Only rules of this family; by default of both."),
    state_option,
)
@section("Limits", timeout_option("Give up the proof after this long."))
@option("--repair", is_flag=True, help="Load the confirmed rules again if the kernel does not hold them.")
@data_options
def status(
    family: str | None, folder: str, repair: bool, timeout: float | None, form: str, as_json: bool
) -> None:
    """Compare the kernel with the rules that were applied, and list who else filters packets.

    Where rules differ, a proof decides whether any packet is treated otherwise. Exit status 0: the kernel
    holds the rules; 1: rules differ; 2: it is unknown, or rules that wait cannot be taken back, as their
    guard has ended or fails.
    """
    from ..apply import status as check
    from ..apply.store import StateDirectory

    began = time.monotonic()
    data = is_json(form, as_json)
    with progress_bar() as progress:
        with StateDirectory.open(folder) as store:
            seen = check.look(store, progress, family_of(family))
        result = check.compare(seen, timeout, progress)
    if not data:
        _show_status(result)
    repaired, still = 0, list[str]()
    if repair and any(each.differing for each in result.compared):
        wanted = [family_of(family)]
        if seen.unread:  # the others are left as they are
            wanted = list(dict.fromkeys(each.family for each in result.compared if each.differing))
        with StateDirectory.open(folder) as store:
            for each in wanted:
                repaired, notes = check.repair(store, each)
                for note in notes:
                    _tell(note)
                if not data:
                    which = f"IPv{int(each)} of rule set" if each else "rule set"
                    click.echo(f"{which} {repaired} is loaded again")
            still = check.still_differing(check.look(store, family=family_of(family)))
    if data:
        from ..report.firewall import status_report
        from ..report.formats import FORMATS

        report = status_report(result, seen.state, seen.force, repaired, still, time.monotonic() - began)
        click.echo(FORMATS["json"]([report]), nl=False)
    elif still:
        click.echo("\n".join(still))
    level = check.exit_status(result, bool(repaired), still)
    if level is check.Level.DRIFT:
        raise Differ
    raise SystemExit(int(level))


def _show_status(result: Status) -> None:
    for compared in result.compared:
        _show_compared(compared)
    for note in result.notes:
        click.echo(note)


def _show_compared(compared: Compared) -> None:
    from ..apply.status import shown
    from ..report.diff import show
    from ..report.firewall import CHANGES_SHOWN, LINES_OF_KERNEL, LISTED_BY

    number, title = compared.number, f"IPv{int(compared.family)}"
    if compared.tables:
        title += f", table{'s' if len(compared.tables) > 1 else ''} {', '.join(compared.tables)}"
    if compared.unread:
        click.echo(f"{title}: it is unknown whether the kernel holds rule set {number}: {compared.unread}")
        return
    if not compared.differing:
        click.echo(f"{title}: the kernel holds rule set {number}")
        return
    if compared.trouble:
        click.echo(f"{title}: rules differ, and cannot be compared: {compared.trouble}")
    elif compared.changes is not None and not compared.changes.regions:
        apart = ", apart from what the chains of --leave do" if compared.leaves else ""
        click.echo(
            f"{title}: rules differ from rule set {number}, but every packet is treated the same{apart}"
        )
    elif compared.changes is not None:
        click.echo(f"{title}: packets are treated differently from rule set {number}:")
    for each in shown(compared.differing):
        click.echo(f"  {each}")
    if compared.changes is not None and compared.changes.regions:
        click.echo(
            show(
                compared.changes,
                compared.names,
                CHANGES_SHOWN,
                LISTED_BY,
                lines_of=("", LINES_OF_KERNEL),
                tells_backend=False,
            )
        )

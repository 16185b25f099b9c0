"""What an apply says before it loads rules: whom they lock out, and which programs' rules they replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..analyse.compiled_text import has_name_of_tree
from ..errors import InvalidOption
from ..ir.fields import Family
from ..ir.foreign import PRESETS, is_foreign, recognised, unmatched
from ..ir.program import Program
from ..parse.iptables import read
from . import docker_raw, known_rules, texts
from .drift import moved_jumps
from .in_force import InForce
from .lockout import LockoutCheck, refuse
from .must_packets import family_of, must_unasked
from .prepare import Found
from .recording import Ready
from .records import Half
from .request import ApplyRequest, Reporter
from .ssh_session import SshSession
from .status import shown


def check_lockout(
    request: ApplyRequest, ready: Sequence[Ready], session: SshSession | None, report: Reporter
) -> None:
    """HitablesError if *session*, or a packet of --must, would not pass; with --force it is a warning."""
    refusals = []
    programs = [_with_tables_that_stay(each) for each in ready]
    for word in must_unasked(request.must, programs):
        report.tell(f"warning: {word}")
    for each, program in zip(ready, programs, strict=True):
        prepared, family = each.prepared, each.kernel.family
        own = {table.name for table in prepared.source}

        def name_of(table: str, line: int, file: str = prepared.file, own: set[str] = own) -> str:
            return f"{file}:{line}" if table in own and 0 < line < texts.LINES_OF_KERNEL else "the kernel"

        check = LockoutCheck(program, own, each.kernel.backend, name_of)
        if session is not None and session.family is family:
            if not session.interface:
                report.tell(
                    "warning: the interface of this SSH session is unknown; rules with -i or -o are "
                    "taken not to match it"
                )
            check.trace_session(session)
        check.trace_must([packet for packet in request.must if family_of(packet) in (family, None)])
        refusals += check.refusals
        for caution in dict.fromkeys(check.cautions):
            report.tell(f"warning: {caution}")
    if refusals and request.force:
        for refusal in refusals:
            report.tell(f"warning: would not pass: {refusal}")
    else:
        refuse(refusals)


def _with_tables_that_stay(ready: Ready) -> Program:
    """The new rules, and the tables of the kernel that they leave as they are."""
    source = ready.prepared.source
    own = {table.name for table in source}
    return replace(
        source, tables=(*source, *(table for table in ready.found.program if table.name not in own))
    )


def check_leave(request: ApplyRequest, family: Family, found: Found, report: Reporter) -> None:
    """Tell of names of --leave that no chain has; InvalidOption for one that resembles a preset."""
    strange = [word for word, _ in unmatched(request.leave, [found.program])]
    if not strange:
        return
    name, text = request.files[family]
    for word, preset in unmatched(strange, [read(text, family=family, name=name)]):
        if preset:
            raise InvalidOption(f"--leave {word}: no chain has this name; did you mean {preset}?")
        report.tell(f"warning: --leave {word}: no chain has this name")


def tell_of_moved_jumps(ready: Sequence[Ready], force: InForce, report: Reporter) -> None:
    """Tell of jumps to chains of --leave that have moved among the rules of *force*."""
    for each in ready:
        family = each.kernel.family
        for part in force.parts:
            half = part.halves.get(family)
            moved = moved_jumps(each.found.tables, half, family, part.leave) if half is not None else ()
            for jump in moved:
                report.tell(f"warning: {jump}; hitables status --repair before apply moves it back")


def tell_of_presets(ready: Ready, patterns: Sequence[str], report: Reporter) -> None:
    """Tell of chains of known programs in the tables that change."""
    changing = {table for table, plan in ready.change.plans.items() if not plan.is_idle}
    program = ready.found.program
    program = replace(program, tables=tuple(table for table in program if table.name in changing))
    for preset in recognised(program, patterns):
        report.tell(
            f"warning: the kernel has chains of {preset}, which these rules replace; "
            f"--leave {preset} keeps them"
        )


def tell_of_lost_chains(
    ready: Ready, earlier: Half | None, patterns: Sequence[str], report: Reporter
) -> None:
    """Tell of chains that go, and that neither a known program nor the rule set *earlier* has made."""
    program = ready.found.program
    known = {pattern for preset in recognised(program, patterns) for pattern in PRESETS[preset]}
    for table, plan in ready.change.plans.items():
        own = earlier.tables.get(table, {}) if earlier is not None else {}
        lost = [
            chain
            for chain in plan.removed
            if chain not in own and not has_name_of_tree(chain) and not is_foreign(chain, tuple(known))
        ]
        if lost:
            report.tell(
                f"warning: table {table}: chains of the kernel that {ready.prepared.file} lacks are removed: "
                f"{', '.join(shown(lost))}.  --leave NAME keeps one that another program manages"
            )


def tell_of_docker(ready: Ready, report: Reporter) -> None:
    """Tell of rules of docker in table raw that the new rules remove (docker_raw.py)."""
    rules = docker_raw.removed(ready.found.program, ready.prepared.source)
    if rules:
        file = ready.prepared.file
        remedy = f"leave table raw out of {file}, and it stays as it is"
        report.tell(docker_raw.warning(rules, file, remedy))


def tell_of_known_rules(ready: Ready, patterns: Sequence[str], report: Reporter) -> None:
    """Tell of rules of other programs that are in no chain of theirs, and go (known_rules.py)."""
    file = ready.prepared.file
    rules = known_rules.removed(ready.found.program, ready.prepared.source, patterns)
    for warning in known_rules.warnings(rules, file, file):
        report.tell(warning)


def tell_of_replaced(family: Family, changed: Sequence[str], report: Reporter) -> None:
    """Tell that another program has changed rules since they were read, which the new rules replace."""
    report.tell(
        f"warning: IPv{int(family)}: the rules of the kernel changed while the new ones were prepared: "
        f"{'; '.join(shown(changed))}.  The new rules replace these too; hitables rollback brings them back"
    )

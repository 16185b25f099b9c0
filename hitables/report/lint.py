"""The result of `hitables lint` as a `Report`: a finding for each flaw, a case for each chain."""

from __future__ import annotations

from collections.abc import Iterator

from ..emit.text import rule_text
from ..ir.fields import Family
from ..ir.foreign import PRESETS, is_foreign, recognised
from ..ir.idle_limits import IdleLimit
from ..ir.program import Program, Table
from ..ir.unmatched import Unmatched
from ..nouns import MAX_LINES, lines_named
from ..rule_lines import lines_of
from ..verify.lint import EMPTY, NEVER, NOTHING, UNREACHED, Flaw, Kept, Lint
from ..verify.needed_packets import Stopped
from ..verify.unforwarded import Unforwarded
from .finding import Case, Finding, Level, Report, SourceLine

LEVELS: dict[str, Level] = {NEVER: "warning", NOTHING: "note", EMPTY: "note", UNREACHED: "note"}


def report(lint: Lint, program: Program, seconds: float) -> Report:
    """Exit status 1 when there is a flaw, else 2 when not all rules were checked."""
    findings = tuple(_finding(flaw, program) for flaw in lint.flaws)
    cases = []
    for table in program:
        for chain in table.chains:
            of_chain = tuple(each for each in findings if each.scope == (table.name, chain.name))
            if chain.rules or of_chain:
                cases.append(Case(table.name, f"chain {chain.name}", 0.0, of_chain))
    if lint.undecided:
        cases.append(Case("lint", "all rules checked", trouble=lint.undecided))
    status = 1 if findings else 2 if lint.undecided else 0
    facts = {
        "file": program.name,
        "rules": program.rule_count(),
        "complete": not lint.undecided,
        "notes": _notes(lint, program),
    }
    text = _text(lint, findings, program)
    return Report("lint", (program.name,), status, findings, tuple(cases), seconds, facts, text)


def _text(lint: Lint, findings: tuple[Finding, ...], program: Program) -> str:
    lines = [line for finding in findings for line in lines_of(finding.text)]
    lines += [f"{program.name}: note: {note}" for note in _notes(lint, program)]
    if lint.undecided:
        lines.append(f"{program.name}: not all rules were checked: {lint.undecided}")
    if not findings and not lint.undecided:
        rules = f"{lint.examined:,}"
        if lint.examined < program.rule_count():
            rules += f" of {program.rule_count():,}"
        lines.append(f"{program.name}: no useless rules (rules checked: {rules})")
    return "\n".join(lines) + "\n"


def _notes(lint: Lint, program: Program) -> list[str]:
    return [
        *_of_other_programs(lint, program),
        *(_kept(kept) for kept in lint.kept),
        *(_unmatched(rule) for rule in lint.unmatched),
        *(_idle_limit(rule) for rule in lint.idle_limits),
        *(_stopped(each) for each in lint.stopped),
        *(_unforwarded(each) for each in lint.unforwarded),
    ]


def _of_other_programs(lint: Lint, program: Program) -> Iterator[str]:
    """Which programs have the chains of findings, and how these are left out."""
    chains = {flaw.chain for flaw in lint.flaws}
    chains |= {flaw.why.split("; ")[0] for flaw in lint.flaws if flaw.kind == EMPTY}
    for preset in recognised(program):
        of_preset = [chain for chain in sorted(chains) if is_foreign(chain, PRESETS[preset])]
        if of_preset:
            example = of_preset[0] + (" and others" if len(of_preset) > 1 else "")
            yield f"{preset} changes its chains itself ({example}); --leave {preset} checks none of them"


def _stopped(stopped: Stopped) -> str:
    needed = stopped.needed
    icmp = "ICMP" if needed.family is Family.IPV4 else "ICMPv6"
    code = "" if needed.code is None else f", code {needed.code}"
    kind = f"{needed.name} ({icmp} type {needed.type}{code})"
    return f"chain {stopped.chain} (table filter) lets no {kind} pass: {needed.without}"


def _unforwarded(found: Unforwarded) -> str:
    place = f"line {found.line} (table nat, chain {found.chain})"
    one = len(found.closed) == 1
    closed = f"{'' if one else 'neither '}chain {' nor chain '.join(found.closed)} (table filter)"
    target = found.rule.target
    return (
        f"{place} leads to where no new connection passes: {closed} lets {'none' if one else 'one'} through "
        f"({target.key if target else ''})"
    )


def _idle_limit(rule: IdleLimit) -> str:
    by = f"line {rule.by}" if rule.by else "the policy"
    place = f"line {rule.line} (table {rule.table}, chain {rule.chain})"
    return f"{rule.name} of {place} limits nothing: packets beyond it get the same verdict from {by}"


def _unmatched(rule: Unmatched) -> str:
    return f"line {rule.line} (table {rule.table}, chain {rule.chain}) matches no packet: {rule.why}"


def _kept(kept: Kept) -> str:
    if kept.entered_by:
        why = f"chain {kept.entered_by}, which is not listed either, enters it"
    elif kept.configures:
        why = "it configures a memory or an estimator that other rules read, by being loaded"
    else:
        why = "without it the kernel would stop tracking connections or reassembling fragments"
    place = f"line {kept.line} (table {kept.table}, chain {kept.chain})"
    return f"{place} affects no verdict, but is not listed: {why}"


def _finding(flaw: Flaw, program: Program) -> Finding:
    table = program.table(flaw.table)
    place = _place(flaw.line, flaw.chain, table, program.name)
    others = tuple(_place(line, flaw.chain, table, program.name) for line in flaw.covering[:MAX_LINES])
    message = _message(flaw, table)
    text = [f"{program.name}:{flaw.line}: {message}", f"    {place.text}"]
    text += [f"    line {other.line}: {other.text}" for other in others]
    return Finding(
        flaw.kind,
        LEVELS[flaw.kind],
        f"table {flaw.table}, chain {flaw.chain}: {message}",
        (place, *others),
        (flaw.table, flaw.chain),
        details={
            "table": flaw.table,
            "chain": flaw.chain,
            "why": flaw.why,
            "together": list(flaw.together),
        },
        text="\n".join(text),
    )


def _message(flaw: Flaw, table: Table) -> str:
    lines = lines_named(flaw.covering)
    if flaw.kind == UNREACHED:
        return f"chain {flaw.chain} is unreachable"
    if flaw.kind == EMPTY:
        name, *remaining = flaw.why.split("; ")  # no name of a chain has a space
        return "; ".join((f"chain {name} is empty: entering it does nothing", *remaining))
    if flaw.kind == NOTHING:
        nothing = f"changes nothing{_once_removed(flaw)}"
        if flaw.why and not lines:
            return f"{nothing}: {flaw.why}"
        own = table[flaw.chain].policy is None
        if flaw.why:
            end = f"what follows {flaw.chain}" if own else "the policy"
            return f"{nothing}: {lines}, or {end}, would do the same"
        if lines:
            return f"{nothing}: {lines} would do the same"
        if own:
            return f"{nothing}: packets that return from {flaw.chain} are treated the same"
        return f"{nothing}: the policy does the same"
    if lines:
        verb = "covers" if len(flaw.covering) == 1 else "cover"
        return "never matches: " + "; ".join(filter(None, (f"{lines} {verb} it", flaw.why)))
    return f"never matches: {flaw.why}"


def _once_removed(flaw: Flaw) -> str:
    if not flaw.together:
        return ""
    verb = "is" if len(flaw.together) == 1 else "are"
    return f" once {lines_named(flaw.together)} {verb} removed, too"


def _place(line: int, chain: str, table: Table, name: str) -> SourceLine:
    """The rule in this line of the chain, or the declaration of the chain."""
    for rule in table[chain].rules:
        if rule.line == line:
            return SourceLine(name, line, rule_text(rule._replace(counters=None), chain))
    return SourceLine(name, line, f":{chain} {table[chain].policy or '-'}")

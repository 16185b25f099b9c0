"""The result of `hitables lint` as a `Report`: a finding for each flaw, a case for each chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from ..ir.fields import Family
from ..ir.foreign import PRESETS, is_foreign, recognised
from ..ir.idle_limits import IdleLimit
from ..ir.no_target import NoTarget
from ..ir.program import Program, Table
from ..ir.rule import Rule
from ..ir.unmatched import Unmatched
from ..nouns import MAX_LINES, lines_named
from ..rule_lines import lines_of
from ..verify.lint import EMPTY, NEVER, NOTHING, UNREACHED, Flaw, Kept, Lint
from ..verify.needed_packets import Stopped
from ..verify.unforwarded import Unforwarded
from .address_lists import as_list, by_line
from .finding import Case, Finding, Level, Report, SourceLine

LEVELS: dict[str, Level] = {NEVER: "warning", NOTHING: "note", EMPTY: "note", UNREACHED: "note"}
_Place = tuple[str, str, int]  # table, chain and line of a flaw


def report(lint: Lint, program: Program, seconds: float, on_text: Sequence[str] = ()) -> Report:
    """Exit status 1 when there is a flaw, else 2 when not all rules were checked.

    on_text  notes on the text of the rule set
    """
    findings = tuple(_findings(lint, program))
    cases = []
    for table in program:
        for chain in table.chains:
            of_chain = tuple(each for each in findings if each.scope == (table.name, chain.name))
            if chain.rules or of_chain:
                cases.append(Case(table.name, f"chain {chain.name}", 0.0, of_chain))
    if lint.undecided:
        cases.append(Case("lint", "all rules checked", trouble=lint.undecided))
    status = 1 if findings else 2 if lint.undecided else 0
    notes = [*on_text, *_notes(lint, program)]
    facts = {
        "file": program.name,
        "rules": program.rule_count(),
        "complete": not lint.undecided,
        "notes": notes,
    }
    text = _text(lint, findings, program, notes)
    return Report("lint", (program.name,), status, findings, tuple(cases), seconds, facts, text)


def _text(lint: Lint, findings: tuple[Finding, ...], program: Program, notes: list[str]) -> str:
    lines = [line for finding in findings for line in lines_of(finding.text)]
    lines += [f"{program.name}: note: {note}" for note in notes]
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
        *(_no_target(each) for each in lint.no_targets),
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


def _no_target(found: NoTarget) -> str:
    place = f"{lines_named(found.lines)} (table {found.table}, chain {found.chain})"
    one = len(found.lines) == 1
    return (
        f"{place} {'has' if one else 'have'} no target (-j): {'it only counts' if one else 'they only count'}"
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


def _findings(lint: Lint, program: Program) -> Iterator[Finding]:
    """One for each flaw; one for the flaws of a line that lists addresses, if they differ in nothing else."""
    useless = Counter(map(_place_of, lint.flaws))
    rules_of: dict[_Place, list[Rule]] = {place: [] for place in useless}
    for table in program:
        for chain in table.chains:
            for rule in chain.rules:
                if (place := (table.name, chain.name, rule.line)) in useless:
                    rules_of[place].append(rule)
    alike: dict[Flaw, list[Flaw]] = {}
    for flaw in lint.flaws:
        alike.setdefault(replace(flaw, rule=None, by=()), []).append(flaw)
    for flaws in alike.values():
        place = _place_of(flaws[0])
        own = [flaw.rule for flaw in flaws if flaw.rule is not None]
        rules = [rule for rule in rules_of[place] if rule in own]
        groups = [flaws] if rules and as_list(rules) is not None else [[flaw] for flaw in flaws]
        for at, group in enumerate(groups):
            part = ""
            if group[0].rule is not None and len(group) < (made := len(rules_of[place])):
                only = "" if useless[place] == made else "only "
                part = f" ({only}this part of the line: {len(group)} of its {made} rules)"
            yield _finding(group, rules if len(groups) == 1 else own[at : at + 1], part, program)


def _place_of(flaw: Flaw) -> _Place:
    return flaw.table, flaw.chain, flaw.line


def _finding(flaws: Sequence[Flaw], rules: Sequence[Rule], part: str, program: Program) -> Finding:
    """The finding of flaws that differ in their rules alone.  *part*: which part of their line these are."""
    flaw, name = flaws[0], program.name
    table = program.table(flaw.table)
    own = next(by_line(rules, flaw.chain))[1] if rules else _declaration(flaw, table)
    place = SourceLine(name, flaw.line, own)
    by = list(dict.fromkeys(rule for each in flaws for rule in each.by))
    by.sort(key=lambda rule: flaw.covering.index(rule.line))
    others = tuple(SourceLine(name, *other) for other in islice(by_line(by, flaw.chain), MAX_LINES))
    message = f"{_message(flaw, table)}{part}"
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
        why, caveats = flaw.why_and_caveats()
        same = _what_does_the_same(why, lines, flaw.chain, own=table[flaw.chain].policy is None)
        return "; ".join((f"changes nothing{_once_removed(flaw)}: {same}", *caveats))
    if lines:
        verb = "covers" if len(flaw.covering) == 1 else "cover"
        return "never matches: " + "; ".join(filter(None, (f"{lines} {verb} it", flaw.why)))
    return f"never matches: {flaw.why}"


def _what_does_the_same(why: str, lines: str, chain: str, *, own: bool) -> str:
    """*own*: whether the chain is a user chain."""
    if why and not lines:
        return why
    if why:
        return f"{lines}, or {f'what follows {chain}' if own else 'the policy'}, would do the same"
    if lines:
        return f"{lines} would do the same"
    return f"packets that return from {chain} are treated the same" if own else "the policy does the same"


def _once_removed(flaw: Flaw) -> str:
    if not flaw.together:
        return ""
    verb = "is" if len(flaw.together) == 1 else "are"
    return f" once {lines_named(flaw.together)} {verb} removed, too"


def _declaration(flaw: Flaw, table: Table) -> str:
    return f":{flaw.chain} {table[flaw.chain].policy or '-'}"

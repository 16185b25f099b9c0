"""What `hitables lint` found: for people, and as a `Report` for the other formats."""

from __future__ import annotations

from ..emit.text import rule_text
from ..ir.program import Program, Table
from ..verify.lint import EMPTY, NEVER, NOTHING, UNREACHED, Flaw, Lint
from .finding import Case, Finding, Level, Place, Report

LEVELS: dict[str, Level] = {NEVER: "warning", NOTHING: "note", EMPTY: "note", UNREACHED: "note"}
MOST = 4  # lines that are named


def report(found: Lint, program: Program, seconds: float) -> Report:
    """One finding per flaw; exit status 1 when there is one, 2 when not all could be looked at."""
    findings = tuple(_finding(flaw, program) for flaw in found.flaws)
    cases = []
    for table in program:
        for chain in table.chains:
            here = tuple(each for each in findings if each.scope == (table.name, chain.name))
            if chain.rules or here:
                cases.append(Case(table.name, f"chain {chain.name}", 0.0, here))
    if found.undecided:
        cases.append(Case("lint", "all rules looked at", trouble=found.undecided))
    status = 1 if findings else 2 if found.undecided else 0
    facts = {"file": program.name, "rules": program.rule_count(), "complete": not found.undecided}
    text = _text(found, findings, program)
    return Report("lint", (program.name,), status, findings, tuple(cases), seconds, facts, text)


def _text(found: Lint, findings: tuple[Finding, ...], program: Program) -> str:
    lines = [line for finding in findings for line in finding.text.splitlines()]
    if found.undecided:
        lines.append(f"{program.name}: not all rules were looked at: {found.undecided}")
    if not findings and not found.undecided:
        lines.append(f"{program.name}: every rule of its {program.rule_count():,} does something")
    return "\n".join(lines) + "\n"


def _finding(flaw: Flaw, program: Program) -> Finding:
    table = program.table(flaw.table)
    place = _place(flaw.line, flaw.chain, table, program.name)
    others = tuple(_place(line, flaw.chain, table, program.name) for line in flaw.covering[:MOST])
    message = _message(flaw)
    text = [f"{program.name}:{flaw.line}: {message}", f"    {place.text}"]
    text += [f"    line {other.line}: {other.text}" for other in others]
    return Finding(
        flaw.kind,
        LEVELS[flaw.kind],
        f"table {flaw.table}, chain {flaw.chain}: {message}",
        (place, *others),
        (flaw.table, flaw.chain),
        details={"table": flaw.table, "chain": flaw.chain, "why": flaw.why},
        text="\n".join(text),
    )


def _message(flaw: Flaw) -> str:
    lines = _lines(flaw.covering)
    if flaw.kind == UNREACHED:
        return f"chain {flaw.chain} is reached by nobody"
    if flaw.kind == EMPTY:
        return f"chain {flaw.why} is empty: entering it does nothing"
    if flaw.kind == NOTHING:
        return "changes nothing: " + (f"{lines} would do the same" if lines else "the policy does the same")
    if lines:
        verb = "covers" if len(flaw.covering) == 1 else "cover"
        return "never matches: " + "; ".join(filter(None, (f"{lines} {verb} it", flaw.why)))
    return f"never matches: {flaw.why}"


def _lines(covering: tuple[int, ...]) -> str:
    if not covering:
        return ""
    told = ", ".join(map(str, covering[:MOST]))
    more = f" and {len(covering) - MOST} more" if len(covering) > MOST else ""
    return f"line{'s' if len(covering) > 1 else ''} {told}{more}"


def _place(line: int, chain: str, table: Table, name: str) -> Place:
    """The rule in this line of the chain, or the chain's declaration."""
    for rule in table[chain].rules:
        if rule.line == line:
            return Place(name, line, rule_text(rule._replace(counters=None), chain))
    return Place(name, line, f":{chain} {table[chain].policy or '-'}")

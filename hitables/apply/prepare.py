"""From a file to the rule set that is loaded: merged with the chains of others, compiled, proved, and tried.

The compiled text is loaded into a scratch network namespace and printed again by the tool.  So a text that
the kernel refuses is refused here, and the record has each rule as this tool prints it, which later answers
by comparing text whether the kernel still holds it.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from ..analyse.compiled_text import refuse_compiled
from ..analyse.weights import counted
from ..compiler.options import Options
from ..compiler.pipeline import Output, compile_program
from ..errors import HitablesError, LiveError
from ..ir.foreign import is_foreign
from ..ir.program import Program
from ..ir.set_counters import counting
from ..kernel.checked_save import KernelReader
from ..kernel.load_save import ip_sets_named
from ..kernel.namespace import CommandFailed, Namespace
from ..kernel.prerequisites import accounts, accounts_named, furnish, set_index
from ..kernel.refused_rule import is_commit, line_named, refused_at
from ..parse.guess_family import stating_family
from ..parse.lost_rules import refuse_lost
from ..reader import read
from . import texts
from .counted_sets import CountedSets
from .counts import keyed, of_compiled, of_source
from .kernel import Kernel
from .load import Wanted
from .others import Merged, merge, of_kernel
from .same_rules import rules_not_loaded, with_jumps_as_spelled
from .texts import LINES_OF_KERNEL, Tables, TextChain

OnStage = Callable[[str], None]
_SHOWN = 10  # rules in a message
THE_KERNEL = "the kernel"  # the name of its rules as a program


@dataclass(frozen=True, slots=True)
class Found:
    """What a kernel holds: *text* checked against it, the same as *tables* and as a *program*.

    The program has the lines of the output of `hitables save`.
    """

    text: str
    tables: Tables
    program: Program


def find(kernel: Kernel, patterns: Sequence[str]) -> Found:
    """Read the kernel; Misread if the tools do not print its rules, but for those of foreign chains."""
    reader = KernelReader(kernel.family, kernel.tool, lambda name: is_foreign(name, patterns), kernel.backend)
    reading = reader.read(counters=True)
    tables = texts.parse(reading.text)
    program = (
        read(stating_family(reading.text, kernel.family), family=kernel.family, name=THE_KERNEL)
        if tables
        else Program(kernel.family, (), THE_KERNEL)
    )
    return Found(reading.text, tables, program)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A rule set that can be loaded.

    source     the rules of the file, with the chains of others that the kernel has, as a program
    output     the compiled rule set with its proof; None if it is loaded as it is
    wanted     what the kernel shall hold
    merged     the source as text, with notes on chains of others
    """

    file: str
    text: str
    source: Program
    output: Output | None
    wanted: Wanted
    merged: Merged


def prepare(
    kernel: Kernel,
    found: Found,
    text: str,
    file: str,
    patterns: Sequence[str],
    options: Options | None,
    timeout: float | None = None,
    tell: OnStage = lambda stage: None,
    known: Tables | None = None,
    counted_sets: CountedSets | None = None,
) -> Prepared:
    """Prepare the rules in *text*, of *file*; with *options* None they are not compiled.

    *known*: what was loaded last, with keys.  *counted_sets*: whether other rules read counters of ipsets.
    Errors are those of reading and compiling; HitablesError for
    ipsets or accounting objects that do not exist, LiveError for a text that the kernel refuses.
    """
    tell(f"reading {file}")
    program = read(text, family=kernel.family, name=file)
    refuse_compiled(program, file)
    refuse_lost(program, text)
    program = with_jumps_as_spelled(program, found.program, patterns)
    merged = merge(texts.of_program(program), found.tables, lambda name: is_foreign(name, patterns))
    merged.notes += rules_not_loaded(program, found.program, patterns)
    merged.tables = _numbered(merged.tables)
    source = texts.with_lines(
        read(texts.write(merged.tables), family=kernel.family, name=file), merged.tables
    )
    if counted_sets is not None and (counted_sets.matter_to(text) or counted_sets.matter_to(found.text)):
        source = counting(source)
    _check_objects(merged, file)
    output = None
    if options is not None:
        tell(f"compiling {file}")
        # The place of a jump that only the kernel has is found again by the rules before it (others.py).
        options = replace(
            options, backend=kernel.backend, leave=tuple(patterns), marked=False, before_jumps=False
        )
        output = compile_program(source, options, timeout=timeout, tell=tell, weigh=counted)
    origins = of_compiled(source, output.source_map) if output else of_source(source)
    tell(f"loading {file} into a scratch namespace")
    loadable = texts.of_program(output.program if output else source)
    stored = _with_jumps_of_kernel(keyed(_stored(kernel, loadable, merged, file), origins), merged, patterns)
    generated = _generated(output) if output else {}
    return Prepared(file, text, source, output, Wanted(stored, generated, known or {}), merged)


def _numbered(tables: Tables) -> Tables:
    """Every rule gets a line of its own, which the source map can name."""
    lines = itertools.count(LINES_OF_KERNEL)
    return {
        table: {
            name: replace(
                chain,
                rules=tuple(rule if rule.line else replace(rule, line=next(lines)) for rule in chain.rules),
            )
            for name, chain in chains.items()
        }
        for table, chains in tables.items()
    }


def _with_jumps_of_kernel(stored: Tables, merged: Merged, patterns: Sequence[str]) -> Tables:
    """*stored*, whose jumps to foreign chains are marked if *merged* has them from the kernel.

    Such jumps are not compiled, so a chain has them in the order of the source.
    """

    def came_from_kernel(table: str, name: str, number: int, entered: str) -> bool:
        chain = merged.tables[table].get(name, TextChain())
        jumps = [rule for rule in chain.rules if is_foreign(rule.enters, patterns)]
        return number < len(jumps) and jumps[number].line >= LINES_OF_KERNEL

    return of_kernel(stored, lambda name: is_foreign(name, patterns), came_from_kernel)


def _check_objects(merged: Merged, file: str) -> None:
    """HitablesError if rules name ipsets, or accounting objects, that do not exist."""
    sets: list[str] = []
    missing_accounts: dict[str, list[str]] = {}
    present: set[str] | None = None
    for table, chains in merged.tables.items():
        for name, chain in chains.items():
            for rule in chain.rules if name not in merged.left[table] else ():
                where = f"{file}:{rule.line}" if rule.line < LINES_OF_KERNEL else "a rule of the kernel"
                for each in ip_sets_named(f"-A x {rule.body}"):
                    if set_index(each) is None:
                        sets.append(f"  {where}: ipset {each}")
                for each in accounts_named(rule.body):
                    present = accounts() if present is None else present
                    if each not in present:
                        missing_accounts.setdefault(each, []).append(f"  {where}: nfacct {each}")
    if sets:
        _refuse_missing("ipsets", sets, "Create them first (ipset create, ipset restore)")
    if missing_accounts:
        lines = [line for each in missing_accounts.values() for line in each]
        commands = "; ".join(f"nfacct add {shlex.quote(each)}" for each in [*missing_accounts][:_SHOWN])
        _refuse_missing("accounting objects", lines, f"Create them first: {commands}")


def _refuse_missing(what: str, lines: Sequence[str], remedy: str) -> NoReturn:
    shown = "\n".join(dict.fromkeys(lines[:_SHOWN]))
    more = f"\n  … and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    raise HitablesError(f"rules name {what} that do not exist; nothing is loaded\n{shown}{more}\n{remedy}")


def _stored(kernel: Kernel, tables: Tables, merged: Merged, file: str) -> Tables:
    """The own chains of *tables* as the tool prints them when they are loaded."""
    loadable = {
        table: {
            name: TextChain(chain.policy) if name in merged.left[table] else chain
            for name, chain in chains.items()
        }
        for table, chains in texts.without_counts(tables).items()
    }
    text = texts.write(loadable)
    with Namespace() as namespace:
        furnish(namespace, text)
        try:
            namespace.run((f"{kernel.tool}-restore",), text)
        except CommandFailed as error:
            at = _refused_rule(_refused_line(str(error), text, kernel, namespace), loadable, tables, file)
            raise LiveError(f"{file}: the kernel refuses its rules; nothing is loaded\n{error}{at}") from None
        printed = texts.parse(namespace.run((f"{kernel.tool}-save",)))
    stored: Tables = {}
    for table, chains in loadable.items():
        stored[table] = {
            name: printed.get(table, {}).get(name, TextChain(chain.policy))
            for name, chain in chains.items()
            if name not in merged.left[table]
        }
        for name, chain in stored[table].items():
            if len(chain.rules) != len(chains[name].rules):
                raise LiveError(
                    f"{file}: of {len(chains[name].rules)} rules of table {table}, chain {name}, "
                    f"{kernel.tool} stores {len(chain.rules)}; nothing is loaded"
                )
    return stored


def _refused_line(message: str, text: str, kernel: Kernel, namespace: Namespace) -> int:
    """The line of *text* for which the kernel refuses it with *message*; 0 if that is unknown."""
    number = line_named(message)
    return refused_at(text, number, kernel.tool, namespace) if is_commit(text, number) else number


def _refused_rule(refused: int, loaded: Tables, tables: Tables, file: str) -> str:
    """The rule at line *refused* of the text of *loaded*, with its line in *file*; "" if there is none."""
    lines: dict[int, str] = {}
    number = 0
    for table, chains in loaded.items():
        number += 1 + len(chains)
        for name, chain in chains.items():
            for at, rule in enumerate(chain.rules):
                number += 1
                line = tables[table][name].rules[at].line
                place = f"{file}:{line}" if 0 < line < LINES_OF_KERNEL else f"table {table}"
                lines[number] = f"\n  {place}: -A {name} {rule.body}"
        number += 1
    return lines.get(refused, "")


def _generated(output: Output) -> dict[str, tuple[str, ...]]:
    """By table, the chains of trees."""
    return {
        table["name"]: tuple(chain["name"] for chain in table["chains"] if chain["origin"] != chain["name"])
        for table in output.source_map["tables"]
    }

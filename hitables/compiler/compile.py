"""Compile a program: long chains become trees of jumps, the rest stays.

Text in, text out is the work of pipeline.py; here a Program becomes a Program,
with a report of what was done to each chain and why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..analyse.callgraph import check_loops
from ..errors import UnknownName
from ..ir.program import Program
from ..ir.rule import EVERYTHING, State
from ..parse.named_memory import FIRST
from ..syntax.extensions import MATCHES, TARGETS
from .options import Options
from .result import ChainReport, Compiled, Fault
from .tables import TableCompiler

__all__ = ["ChainReport", "Compiled", "Fault", "Options", "compile_rules"]


def compile_rules(
    program: Program,
    options: Options = Options(),
    done: Callable[[float], None] = lambda share: None,
    *,
    spare: bool = False,
) -> Compiled:
    """Compile *program*; *done* hears what share of its rules was looked at.

    The result decides every packet as *program* does (on packets with broken headers:
    see Malformed).  That is proved by `pipeline.compile_text`, not here.  *spare*: a chain over which
    compiling breaks off by a fault of hitables stays as it is and stands among the faults, instead of an
    exception.  ParseError when chains jump in a circle; UnknownName when an
    asked-for table or chain does not exist.
    """
    check_loops(program)
    for name in options.tables:
        if all(table.name != name for table in program):
            raise UnknownName(f"{program.name}: there is no table {name}")
    for name in options.chains:
        if all(name not in table for table in program):
            raise UnknownName(f"{program.name}: there is no chain {name}")
    tables, origins, reports, gone, faults = [], {}, [], [], []
    keep = _must_stay(program)
    total, seen = max(1, program.rule_count()), 0

    def tell(rules: int) -> None:
        nonlocal seen
        seen += rules
        done(seen / total)

    for table in program:
        compiler = TableCompiler(program, table, options, keep, tell, spare)
        compiled, new = compiler.run()
        tables.append(compiled)
        origins.update(new)
        reports += [compiler.reports[chain.name] for chain in table.chains if chain.rules]
        gone += sorted(compiler.gone, key=lambda each: each.line)
        faults += compiler.faults
    made = replace(program, tables=tuple(tables))
    return Compiled(made, origins, tuple(reports), tuple(gone), tuple(faults))


def _must_stay(program: Program) -> frozenset[int]:
    """Rules that do something by being loaded.

    While a rule asks for connections, fragments are put together before all others: the first of each
    extension that does.  RATEEST makes what `-m rateest` asks for.  Rules that share a memory by its name and
    say different things of it: the first that is loaded counts.
    """
    kept: dict[object, int] = {}
    for table in program:
        for chain in table.chains:
            for rule in chain.rules:
                for match in rule.matches:
                    asks = State.CT in match.reads and match.reads != EVERYTHING
                    if asks or (match.name in MATCHES and MATCHES[match.name].tracks):
                        kept.setdefault((table.name, match.name), id(rule))
                    if FIRST in match.key:
                        kept[id(rule)] = id(rule)
                if rule.target is None or rule.target.name not in TARGETS:
                    continue
                if TARGETS[rule.target.name].tracks:
                    kept.setdefault((table.name, rule.target.name), id(rule))
                if rule.target.name == "RATEEST":
                    kept[id(rule)] = id(rule)
    return frozenset(kept.values())

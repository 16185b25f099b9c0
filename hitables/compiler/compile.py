"""Compile a program: long chains become trees of jumps, all else stays.

The result is a Program too, with a report for each chain.  It is not proved here: pipeline.py compiles text
into text and proves the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain as row
from operator import attrgetter

from ..analyse.callgraph import check_loops
from ..analyse.tracking import TRACKING_TARGETS, match_tracks, target_tracks
from ..ir.program import Program, check_names
from ..ir.rule import FIRST_LOADED
from ..ir.set_counters import reads_counters
from .options import Options
from .result import ChainReport, Compiled
from .tables import TableCompiler

__all__ = ["ChainReport", "Compiled", "Options", "compile_rules"]


def compile_rules(
    program: Program,
    options: Options = Options(),
    done: Callable[[float], None] = lambda share: None,
    *,
    spare: bool = False,
) -> Compiled:
    """Compile *program*; *done* is called with the share of its rules that is finished.

    The result decides every packet as *program* does (packets with broken headers: see Malformed); it is
    `pipeline.compile_text` that proves this.  *spare*: if a fault of hitables ends the compiling of a chain,
    the chain stays as it is and is listed among the faults; otherwise the exception is raised.  ParseError
    when chains jump in a circle; UnknownName when a table or chain of *options* does not exist.
    """
    check_loops(program)
    check_names(program, options.tables, options.chains)
    tables, origins, reports, gone, faults = [], {}, [], [], []
    keep = _must_stay(program)
    total, finished = max(1, program.rule_count()), 0

    def tell(rules: int) -> None:
        nonlocal finished
        finished += rules
        done(finished / total)

    for table in program:
        compiler = TableCompiler(program, table, options, keep, tell, spare)
        compiler.run()
        compiler = compiler.again()
        compiled, table_origins = compiler.result()
        tables.append(compiled)
        origins.update(table_origins)
        reports += [compiler.reports[chain.name] for chain in table.chains if chain.rules]
        gone += sorted(compiler.gone, key=lambda each: each.line)
        faults += compiler.faults
    result = replace(program, tables=tuple(tables))
    return Compiled(result, origins, tuple(reports), tuple(gone), tuple(faults))


def _must_stay(program: Program) -> frozenset[int]:
    """The ids of rules that have an effect by being loaded, even if no packet reaches them.

    Connections are tracked, and fragments put together, while a rule needs connections: the first rule of
    each extension that does stays.  RATEEST makes the estimator that `-m rateest` reads.  Of rules that share
    a memory by name and configure it differently, the kernel uses the first.  While a rule reads the counters
    of an ipset, each match of any set counts.
    """
    kept: dict[object, int] = {}
    # Rules share equal matches and targets, so there are far fewer objects than rules.
    rules = list(row.from_iterable(chain.rules for table in program for chain in table.chains))
    matches = list(row.from_iterable(map(attrgetter("matches"), rules)))
    distinct = dict(zip(map(id, matches), matches, strict=True))
    tracking = {key for key, match in distinct.items() if match_tracks(match)}
    staying = {
        key
        for key, match in distinct.items()
        if match.name and (FIRST_LOADED in match.key or reads_counters(match))
    }
    names = {target.name for target in {id(rule.target): rule.target for rule in rules}.values() if target}
    if not tracking and not staying and names.isdisjoint(_LOADED):
        return frozenset()
    for table in program:
        for chain in table.chains:
            for rule in chain.rules:
                for match in rule.matches if tracking or staying else ():
                    if id(match) in tracking:
                        kept.setdefault((table.name, match.name), id(rule))
                    if id(match) in staying:
                        kept[id(rule)] = id(rule)
                if rule.target is None or rule.target.name not in _LOADED:
                    continue
                if target_tracks(rule.target):
                    kept.setdefault((table.name, rule.target.name), id(rule))
                if rule.target.name == "RATEEST":
                    kept[id(rule)] = id(rule)
    return frozenset(kept.values())


# The targets that have an effect by being loaded.
_LOADED = {"RATEEST", *TRACKING_TARGETS}

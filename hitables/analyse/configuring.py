"""Rules that configure, by being loaded, what other rules read, whether or not a packet reaches them.

A memory that `hashlimit` or `recent` rules share by a name has the parameters of the rule that is loaded
first (parse/named_memory.py).  `RATEEST` makes an estimator; without it the kernel refuses a rule that reads
it.

Caller: `hitables lint`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.program import Program
from ..ir.rule import FIRST_LOADED, Rule, word_behind


def rules_that_set_parameters(program: Program) -> list[Rule]:
    """The rules of each named memory for which rules differ in parameters."""
    return [rule for rule in program.rules() if any(FIRST_LOADED in match.key for match in rule.matches)]


def makers_of_estimators(program: Program) -> list[list[Rule]]:
    """For each estimator that a rule reads, the rules that make it."""
    makers: dict[str, list[Rule]] = {name: [] for name in _estimators_read(program)}
    for rule in program.rules():
        if rule.target is not None and rule.target.name == "RATEEST":
            name = word_behind("--rateest-name", rule.target.words)
            if name in makers:
                makers[name].append(rule)
    return list(makers.values())


def _estimators_read(program: Program) -> Iterator[str]:
    matches = {id(match): match for rule in program.rules() for match in rule.matches}
    for match in matches.values():
        if match.name == "rateest":
            for option in ("--rateest", "--rateest1", "--rateest2"):
                name = word_behind(option, match.words)
                if name:
                    yield name
